//! A Postgres for whoever wants to see ours at work on one: the machine's own program, started once on a free port of
//! loopback, in a directory that goes with it. It ends with the process that started it.

use std::{
    fs,
    net::TcpListener,
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

use postgres::{Client, NoTls};

/// Set by who has installed one: then nothing may be skipped.
const WANTED: &str = "COUNTERSIGN_TEST_POSTGRES";

/// Runs a program until it ends or is to end; a server's data go with it.
const UNTIL_ENDED: &str = r#""$@" & child=$!
trap 'kill -INT $child' TERM
wait $child; code=$?
if [ "${1##*/}" = postgres ]; then wait $child; rm -rf "$PWD"; fi
exit $code"#;

/// The address of a database that nobody used before; none where no Postgres is installed.
pub(super) fn database() -> Option<String> {
    static SERVER: OnceLock<Option<u16>> = OnceLock::new();
    static MADE: AtomicU32 = AtomicU32::new(0);
    let port = thread::spawn(|| *SERVER.get_or_init(start)).join().unwrap()?;
    let name = format!("t{}", MADE.fetch_add(1, SeqCst));
    let made = name.clone();
    let make = move || {
        let mut client = Client::connect(&address(port, "postgres"), NoTls).unwrap();
        client.batch_execute(&format!("CREATE DATABASE {made}")).unwrap();
    };
    thread::spawn(make).join().unwrap();
    Some(address(port, &name))
}

fn address(port: u16, database: &str) -> String {
    format!("postgres://countersign@127.0.0.1:{port}/{database}")
}

fn start() -> Option<u16> {
    let Some(programs) = programs() else {
        assert!(std::env::var_os(WANTED).is_none(), "{WANTED} is set, and no Postgres is installed");
        eprintln!("skipped: what needs Postgres, because initdb and postgres are not installed");
        return None;
    };
    let home = tempfile::Builder::new().prefix("countersign-postgres-").tempdir().unwrap().keep();
    let owner = unprivileged(&home);
    let data = home.join("data");
    let as_owner = |program: &str| {
        let mut command = Command::new("setpriv");
        // It ends when the thread that started it does, which is with this process.
        command.args(["--pdeathsig", "TERM"]);
        if let Some((user, group)) = owner {
            let (user, group) = (format!("--reuid={user}"), format!("--regid={group}"));
            command.args([user.as_str(), group.as_str(), "--clear-groups"]);
        }
        command.args(["--", "sh", "-c", UNTIL_ENDED, "sh"]).arg(programs.join(program));
        command.stdin(Stdio::null()).current_dir(&home);
        command
    };
    let made = as_owner("initdb")
        .args(["--username=countersign", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D"])
        .arg(&data)
        .output()
        .unwrap();
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = as_owner("postgres");
    server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k", "", "-c", "listen_addresses=127.0.0.1"]);
    server.args(["-c", "max_connections=200"]).stdout(Stdio::null()).stderr(Stdio::null());
    thread::spawn(move || {
        // As long as this thread waits for it, it runs; and no longer.
        let ended = server.status();
        panic!("Postgres ended: {ended:?}");
    });
    for _ in 0..600 {
        if Client::connect(&address(port, "postgres"), NoTls).is_ok() {
            return Some(port);
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("Postgres does not answer");
}

/// Where its programs are: on the path, or where Debian has them.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(debian.map(|version| version.path().join("bin")));
    places.into_iter().find(|place| place.join("initdb").exists() && place.join("postgres").exists())
}

/// Postgres refuses to run as root: then it runs as somebody else, to whom its home is given.
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
