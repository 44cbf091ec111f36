//! Postgres for tests. The installed server is started once per test process, on a free loopback port and in a
//! temporary directory. The server is stopped when the process that started it exits.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use countersign::proc::reserved_address;
use postgres::{Client, NoTls, error::SqlState};
use rustix::process::{Pid, Signal, kill_process};

/// Environment variable that requires Postgres. If it is set, a missing Postgres fails the test instead of skipping it.
const WANTED: &str = "COUNTERSIGN_TEST_POSTGRES";

/// Mount point of the small disk that only the server sees.
const SMALL_DISK: &str = "/mnt";

/// Shell script that runs a program until it ends or gets SIGTERM. If the program is the Postgres server, the script
/// then deletes the server's data.
const RUN_UNTIL_TERM: &str = r#""$@" & child=$!
trap 'kill -INT $child' TERM
wait $child; code=$?
if [ "${1##*/}" = postgres ]; then wait $child; rm -rf "$3"; rmdir "$PWD" 2>/dev/null; fi
exit $code"#;

/// Shell script that creates a private certificate authority, and a server certificate for `localhost`.
const CERTIFICATES: &str =
    "new='openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'
$new -subj /CN=authority -keyout authority.key -out authority.crt &&
$new -CA authority.crt -CAkey authority.key -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -addext basicConstraints=critical,CA:FALSE -keyout data/server.key -out data/server.crt";

/// Database role that needs a password. The test that uses the role creates it.
pub(super) const GUARDED: &str = "guarded";

/// Returns the address of a new database, or `None` if Postgres is not installed.
pub(super) fn database() -> Option<String> {
    create_database("")
}

/// Returns the address of a new database on a private disk of 24 MB. Returns `None` if Postgres is not installed, or if
/// the disk cannot be created, which requires root.
pub(super) fn database_on_a_small_disk() -> Option<String> {
    static SMALL: OnceLock<bool> = OnceLock::new();
    let server = database()?;
    let make = move || {
        let mut client = Client::connect(&server, NoTls).unwrap();
        client.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{SMALL_DISK}'")).is_ok()
    };
    if !thread::spawn(|| *SMALL.get_or_init(make)).join().unwrap() {
        eprintln!("skipped: a full disk under Postgres, because only root can make a small one");
        return None;
    }
    create_database("TABLESPACE small")
}

/// Returns the file with the server's certificate authority. The server's certificate is valid for the host
/// `localhost`. Returns `None` if openssl could not create the certificates.
pub(super) fn authority() -> Option<PathBuf> {
    let home = server()?.1;
    if !home.join("data/server.crt").exists() {
        eprintln!("skipped: Postgres with TLS, because no openssl of version 3 is installed");
        return None;
    }
    Some(home.join("authority.crt"))
}

/// Returns the port and the directory of the shared server, which is started at the first call.
fn server() -> Option<(u16, &'static Path)> {
    static SERVER: OnceLock<Option<(u16, PathBuf)>> = OnceLock::new();
    let started = thread::spawn(|| SERVER.get_or_init(start)).join().unwrap().as_ref()?;
    Some((started.0, &started.1))
}

fn create_database(how: &str) -> Option<String> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let (port, _) = server()?;
    let name = format!("t{}", MADE.fetch_add(1, SeqCst));
    sql(&address(port, "postgres"), &format!("CREATE DATABASE {name} {how}"));
    Some(address(port, &name))
}

/// Runs SQL on a separate connection.
pub(super) fn sql(address: &str, sql: &str) {
    let (address, sql) = (address.to_owned(), sql.to_owned());
    let work = move || Client::connect(&address, NoTls).unwrap().batch_execute(&sql).unwrap();
    thread::spawn(work).join().unwrap();
}

/// Runs `first` and then a query that returns one number from our schema. Both run on the same separate connection.
pub(super) fn number(address: &str, first: &str, sql: &str) -> i64 {
    let (address, first, sql) = (address.to_owned(), first.to_owned(), sql.to_owned());
    let query = thread::spawn(move || {
        let mut client = Client::connect(&address, NoTls).unwrap();
        client.batch_execute(&format!("SET search_path = countersign; {first}")).unwrap();
        client.query_one(&sql, &[]).unwrap().get(0)
    });
    query.join().unwrap()
}

/// Disconnects all users of this database for good, by renaming the database. Returns its new address.
pub(super) fn cut_off(address: &str) -> String {
    let (others, name) = address.rsplit_once('/').unwrap();
    let (others, name, renamed) = (format!("{others}/postgres"), name.to_owned(), format!("{name}_cut_off"));
    let cut = format!("{address}_cut_off");
    let work = move || {
        let mut client = Client::connect(&others, NoTls).unwrap();
        client.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).unwrap();
        let ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $1";
        let rename = format!("ALTER DATABASE {name} RENAME TO {renamed}");
        // A client that was connecting when the database closed may still get in.
        loop {
            client.query(ended, &[&name]).unwrap();
            match client.batch_execute(&rename) {
                Ok(()) => break,
                Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) => {}
                Err(error) => panic!("{rename}: {error}"),
            }
        }
        client.batch_execute(&format!("ALTER DATABASE {renamed} ALLOW_CONNECTIONS true")).unwrap();
    };
    thread::spawn(work).join().unwrap();
    cut
}

fn address(port: u16, database: &str) -> String {
    format!("postgres://countersign@127.0.0.1:{port}/{database}")
}

/// Reserves a free port until this process ends.
fn free_port() -> u16 {
    let (address, socket) = reserved_address().unwrap();
    std::mem::forget(socket);
    address.port()
}

fn installed() -> Option<PathBuf> {
    let found = programs();
    if found.is_none() {
        assert!(std::env::var_os(WANTED).is_none(), "{WANTED} is set, and no Postgres is installed");
        eprintln!("skipped: what needs Postgres, because initdb and postgres are not installed");
    }
    found
}

fn start() -> Option<(u16, PathBuf)> {
    let programs = installed()?;
    let home = tempfile::Builder::new().prefix("countersign-postgres-").tempdir().unwrap().keep();
    let (owner, port) = (unprivileged(&home), free_port());
    let cluster = Cluster { programs: &programs, home: &home, owner, small_disk: small_disk(owner) };
    cluster.make();
    cluster.serve("data", port);
    Some((port, home))
}

/// Returns a shell command that mounts a small disk that only this server sees. Returns `None` if that is not possible;
/// it requires root.
fn small_disk(owner: Option<(u32, u32)>) -> Option<String> {
    let own_mounts =
        Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|end| end.success());
    owner.filter(|_| own_mounts).map(|(user, group)| {
        format!("mount -t tmpfs -o size=24m,uid={user},gid={group} none {SMALL_DISK}; exec \"$@\"")
    })
}

/// A directory with data of database servers, and the user under which the servers run.
struct Cluster<'a> {
    programs: &'a Path,
    home: &'a Path,
    owner: Option<(u32, u32)>,
    small_disk: Option<String>,
}

impl Cluster<'_> {
    fn as_owner(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        if let Some(mount) = &self.small_disk {
            command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", mount, "sh", "setpriv"]);
        }
        // The program ends with the thread that started it, so with this process.
        command.args(["--pdeathsig", "TERM"]);
        if let Some((user, group)) = self.owner {
            let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
            command.args([user.as_str(), group.as_str(), "--clear-groups"]);
        }
        command.args(["--", "sh", "-c", RUN_UNTIL_TERM, "sh"]).arg(self.programs.join(program));
        command.stdin(Stdio::null()).current_dir(self.home);
        command
    }

    fn make(&self) {
        let created = self
            .as_owner("initdb")
            .args([
                "--username=countersign",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
                "data",
            ])
            .output()
            .unwrap();
        assert!(created.status.success(), "initdb: {}", String::from_utf8_lossy(&created.stderr));
        let rules = self.home.join("data/pg_hba.conf");
        let others = fs::read_to_string(&rules).unwrap();
        fs::write(&rules, format!("host all {GUARDED} all scram-sha-256\n{others}")).unwrap();
        let certified = self.as_owner("/bin/sh").args(["-c", CERTIFICATES]).output().unwrap();
        if certified.status.success() {
            let settings = self.home.join("data/postgresql.auto.conf");
            let others = fs::read_to_string(&settings).unwrap();
            fs::write(&settings, others + "ssl = on\n").unwrap();
        }
    }

    /// Starts the server. The server runs until it is stopped or this process exits.
    fn serve(&self, data: &str, port: u16) {
        let mut server = self.as_owner("postgres");
        server.args(["-D", data, "-p", &port.to_string(), "-k", "", "-c", "listen_addresses=127.0.0.1"]);
        server.args(["-c", "max_connections=200"]).stdout(Stdio::null()).stderr(Stdio::null());
        // The server runs exactly as long as this thread waits for it.
        thread::spawn(move || server.status());
        for _ in 0..6000 {
            if Client::connect(&address(port, "postgres"), NoTls).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("Postgres does not answer");
    }
}

/// Returns the directory of the Postgres programs. Searches the `PATH` and Debian's directory for Postgres.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(debian.map(|version| version.path().join("bin")));
    let all = ["initdb", "postgres", "pg_basebackup"];
    places.into_iter().find(|place| all.iter().all(|program| place.join(program).exists()))
}

/// If we are root, gives the directory to another user and returns that user, because Postgres refuses to run as root.
/// Returns `None` if we are not root.
fn unprivileged(home: &Path) -> Option<(u32, u32)> {
    if fs::metadata(home).unwrap().uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(|number| number.parse().unwrap());
        Some((numbers.next()?, numbers.next()?))
    };
    let (user, group) = of("postgres").or_else(|| of("nobody")).unwrap();
    chown(home, Some(user), Some(group)).unwrap();
    Some((user, group))
}

/// A primary server, and a synchronous standby that can replace the primary.
pub(super) struct Pair {
    pub(super) first: u16,
    pub(super) second: u16,
    home: PathBuf,
}

impl Pair {
    /// Starts both servers. Returns `None` if Postgres is not installed.
    pub(super) fn start() -> Option<Self> {
        let programs = installed()?;
        let home = tempfile::Builder::new().prefix("countersign-postgres-").tempdir().unwrap().keep();
        let owner = unprivileged(&home);
        let (first, second) = (free_port(), free_port());
        let cluster = Cluster { programs: &programs, home: &home, owner, small_disk: None };
        cluster.make();
        cluster.serve("data", first);
        let from = format!("--dbname=postgres://countersign@127.0.0.1:{first}/postgres");
        let copied = cluster
            .as_owner("pg_basebackup")
            .args(["-D", "second", "-R", "-X", "stream", "-c", "fast", &from])
            .output();
        let copied = copied.unwrap();
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        cluster.serve("second", second);
        let pair = Self { first, second, home };
        pair.execute(first, "ALTER SYSTEM SET synchronous_standby_names = '*'");
        pair.execute(first, "SELECT pg_reload_conf()");
        for _ in 0..6000 {
            let synchronous = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            if pair.connect(first).query_one(synchronous, &[]).unwrap().get::<_, i64>(0) == 1 {
                return Some(pair);
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("the second Postgres does not follow the first");
    }

    /// Returns an address that names both servers. The client connects to the server that accepts writes.
    pub(super) fn address(&self, user: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{},127.0.0.1:{}/postgres", self.first, self.second)
    }

    pub(super) fn connect(&self, port: u16) -> Client {
        Client::connect(&address(port, "postgres"), NoTls).unwrap()
    }

    fn execute(&self, port: u16, sql: &str) {
        self.connect(port).batch_execute(sql).unwrap();
    }

    /// Kills the primary and promotes the standby.
    pub(super) fn promote(&self) {
        let noted = fs::read_to_string(self.home.join("data/postmaster.pid")).unwrap();
        let pid = noted.lines().next().unwrap().parse().ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::QUIT).unwrap();
        while Client::connect(&address(self.first, "postgres"), NoTls).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
        self.execute(self.second, "SELECT pg_promote()");
    }
}
