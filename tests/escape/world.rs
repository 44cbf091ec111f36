//! Surroundings that the sandbox must protect: a home directory with secrets, a process, and listening sockets.

use std::{
    fs,
    io::ErrorKind,
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{Cell, own_user};

/// Secret that is in the server's environment and in each file that the server keeps.
pub(crate) const CANARY: &str = "canary-in-the-coal-mine";

const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn countersign() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command.stdin(Stdio::null());
    command
}

pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) struct World {
    cell: Cell,
    place: TempDir,
    mark: String,
    victim: Child,
    before: Vec<String>,
    tcp: TcpListener,
    udp: UdpSocket,
    unix: [UnixListener; 2],
}

impl World {
    pub(crate) fn new(cell: Cell) -> Self {
        let place = tempfile::Builder::new().prefix("escape-").tempdir().unwrap();
        let mark = place.path().file_name().unwrap().to_str().unwrap().to_owned();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let home = place.path().join("home");
        for name in
            [".ssh/id_ed25519", "private-key.pem", ".env", "main.db", "cache/other/secret", "outside/file"]
        {
            fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            fs::write(home.join(name), CANARY).unwrap();
        }
        // Go writes telemetry to the caller's home even for a version request, unless it is turned off.
        let counts = home.join(".config/go/telemetry");
        fs::create_dir_all(&counts).unwrap();
        fs::write(counts.join("mode"), "off").unwrap();
        fs::create_dir(place.path().join("tree")).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let hidden = SocketAddr::from_abstract_name(&mark).unwrap();
        let unix =
            [UnixListener::bind(home.join("sock")).unwrap(), UnixListener::bind_addr(&hidden).unwrap()];
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        unix.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        if own_user() == 0 {
            chown_tree(cell.user, place.path());
        }
        let mut victim = Command::new("sleep");
        victim.arg("600").env("SECRET", CANARY);
        let victim = as_user(&mut victim, cell.user).spawn().unwrap();
        let before = state(&home);
        Self { cell, place, mark, victim, before, tcp, udp, unix }
    }

    fn home(&self) -> PathBuf {
        self.place.path().join("home")
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.place.path().join("tree")
    }

    /// Replaces the placeholders in a script by the values of this test environment.
    pub(crate) fn fill_placeholders(&self, script: &str) -> String {
        let shown = |path: PathBuf| path.to_str().unwrap().to_owned();
        [
            ("{place}", shown(self.place.path().to_owned())),
            ("{home}", shown(self.home())),
            ("{tree}", shown(self.tree())),
            ("{mark}", self.mark.clone()),
            ("{pid}", self.victim.id().to_string()),
            ("{tcp}", self.tcp.local_addr().unwrap().port().to_string()),
            ("{udp}", self.udp.local_addr().unwrap().port().to_string()),
        ]
        .iter()
        .fold(script.to_owned(), |script, (name, value)| script.replace(name, value))
    }

    /// Returns a command that runs the script in the sandbox. The command inherits an open file descriptor and has a
    /// secret in its environment.
    pub(crate) fn command(&self, flags: &[&str], script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "exec 7<\"$0\"; exec \"$@\""]).arg(self.home().join(".env"));
        command.arg(env!("CARGO_BIN_EXE_countersign")).args(["sandbox", "--level", self.cell.level, "--rw"]);
        command.arg(self.tree()).args(flags).args(["--", "sh", "-c", script]);
        command.env("SECRET", CANARY).env("HOME", self.home()).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        as_user(&mut command, self.cell.user);
        command
    }

    pub(crate) fn run(&self, flags: &[&str], script: &str) -> CommandOutput {
        self.output_of(&mut self.command(flags, script))
    }

    fn output_of(&self, command: &mut Command) -> CommandOutput {
        let output = command.output().unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(!out.contains(CANARY) && !err.contains(CANARY), "{}: a secret: {out}{err}", self.cell.name);
        CommandOutput { code: output.status.code().unwrap_or(-1), out, err }
    }

    /// Creates a repository from these files and the attack script. Files below `.git` are written after the commit.
    pub(crate) fn repository(&self, files: &[(&str, &str)], attack: &str) -> PathBuf {
        let root = self.place.path().join("repo");
        let write = |(path, text): (&str, &str)| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, self.fill_placeholders(text)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let is_git_file = |path: &str| path.starts_with(".git/");
        let committed = files.iter().filter(|(path, _)| !is_git_file(path));
        committed.chain([&("attack.sh", attack)]).copied().for_each(write);
        let line = "git init --quiet && git add --all && git -c user.name=A -c user.email=a@example.com commit --quiet -m a";
        let made =
            Command::new("sh").args(["-c", line]).current_dir(&root).env("HOME", &root).status().unwrap();
        assert!(made.success());
        files.iter().filter(|(path, _)| is_git_file(path)).copied().for_each(write);
        if own_user() == 0 {
            chown_tree(self.cell.user, &root);
        }
        root
    }

    /// Runs the repository's tests and returns everything that was printed.
    pub(crate) fn run_tests(&self, repository: &Path) -> CommandOutput {
        self.output_of(&mut self.test_command(repository))
    }

    pub(crate) fn test_command(&self, repository: &Path) -> Command {
        let mut command = countersign();
        command
            .args(["test", "--json", "--level", self.cell.level, "--cache"])
            .arg(self.home().join("cache"));
        command.arg("--repo").arg(repository).env("SECRET", CANARY);
        // These variables find the user's own toolchain.
        for (name, folder) in [("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv")] {
            let usual = || Some(Path::new(&std::env::var_os("HOME")?).join(folder).into_os_string());
            command.envs(std::env::var_os(name).or_else(usual).map(|path| (name, path)));
        }
        command.env("HOME", self.home());
        as_user(&mut command, self.cell.user);
        command
    }

    /// Returns one line for everything outside the sandbox that was changed or contacted.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let after = state(&self.home());
        if after != self.before {
            wrong.push(format!("outside was {:?} and is {after:?}", self.before));
        }
        if !Path::new(&format!("/proc/{}/environ", self.victim.id())).exists() {
            wrong.push("a process outside was ended".to_owned());
        }
        let untouched = |result: std::io::Result<()>| matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock);
        let listeners = [
            untouched(self.tcp.accept().map(drop)),
            untouched(self.udp.recv(&mut [0; 8]).map(drop)),
            untouched(self.unix[0].accept().map(drop)),
            untouched(self.unix[1].accept().map(drop)),
        ];
        if listeners.contains(&false) {
            wrong.push(format!(
                "untouched outside listeners (TCP, UDP, socket path, socket name): {listeners:?}"
            ));
        }
        wrong.extend(self.leftover_processes().into_iter().map(|left| format!("left running: {left}")));
        for found in walk(&self.tree()) {
            let data = found.symlink_metadata().unwrap();
            let kind = data.file_type();
            let lends = data.is_file() && data.mode() & 0o6000 != 0;
            if lends || kind.is_block_device() || kind.is_char_device() {
                wrong.push(format!("{} has mode {:o}", found.display(), data.mode()));
            }
            if data.uid() != self.cell.user {
                wrong.push(format!("{} is {}'s", found.display(), data.uid()));
            }
        }
        if Path::new("/dev/shm").join(&self.mark).exists() {
            wrong.push("/dev/shm is shared".to_owned());
        }
        wrong
    }

    /// Returns the processes named after this test environment that are still running.
    pub(crate) fn leftover_processes(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let named = entries.filter_map(|entry| {
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            line.starts_with(self.mark.as_bytes()).then(|| String::from_utf8_lossy(&line).into_owned())
        });
        named.collect()
    }

    pub(crate) fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < until, "{}: {what}", self.cell.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn as_user(command: &mut Command, user: u32) -> &mut Command {
    if own_user() == 0 && user != 0 { command.uid(user).gid(user) } else { command }
}

fn chown_tree(user: u32, place: &Path) {
    walk(place).iter().for_each(|path| chown(path, Some(user), Some(user)).unwrap());
}

/// Returns the path and all paths below it. Links are not followed.
fn walk(place: &Path) -> Vec<PathBuf> {
    let mut all = vec![place.to_owned()];
    let mut at = 0;
    while at < all.len() {
        if all[at].symlink_metadata().unwrap().is_dir() {
            let within: Vec<_> = fs::read_dir(&all[at]).unwrap().map(|entry| entry.unwrap().path()).collect();
            all.extend(within);
        }
        at += 1;
    }
    all
}

/// Returns a description of each file below a path, with every property that an attack could change.
fn state(place: &Path) -> Vec<String> {
    let describe = |path: &PathBuf| {
        let data = path.symlink_metadata().unwrap();
        let text = if data.is_file() {
            String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
        } else {
            String::new()
        };
        format!(
            "{} {:o} {} {} {} {text}",
            path.display(),
            data.mode(),
            data.uid(),
            data.mtime(),
            data.nlink()
        )
    };
    let mut all: Vec<_> = walk(place).iter().map(describe).collect();
    all.sort();
    all
}
