//! Child processes: the only place that starts one.
//!
//! A child gets the environment it is given and nothing else (bar `PATH` and a mark that tells its descendants), its
//! own process group, a time limit and a cap on what it may print; if asked, also a cap on its memory, a lower priority
//! and a part of the file system to see. However a call ends (exit, timeout, cancellation, a dropped future), nothing of
//! the group stays behind. What the output means is the caller's business; this room knows no program by name.
//!
//! Time limits here are on the real clock, whatever `Clock` says: a process runs in real time.

mod confinement;
mod group;
mod orphans;
mod output;
mod processes;
mod seccomp;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::Permissions,
    io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{LazyLock, mpsc},
    time::Duration,
};

use tokio::{
    net::TcpSocket,
    process::{Child, ChildStderr, ChildStdout},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

#[cfg(target_os = "linux")]
pub use self::confinement::confine_permanently;
pub use self::{
    confinement::{
        Confinement, DEVICES, SYSTEM_PATHS, SyscallPolicy, check_confinement, missing_protections,
    },
    orphans::{end_orphans, remove_all},
    output::OutputStream,
    processes::{adopt_orphans, memory_available},
};
use self::{
    group::{ChildGroup, KillReason},
    orphans::ChildRecord,
    output::{read_all, read_chunks, read_tail},
    processes::{MARK, ProcessIdentity, ProcessTree, StartedChild},
};
use crate::limits;

/// A child process without a timeout of its own; nothing we start may run for ever.
const CHILD_TIME: Duration = Duration::from_secs(60);

/// An address of this machine that nobody who asks the system for any address is given, as long as the socket is kept. Whoever
/// names it can listen there.
///
/// # Errors
/// When the system has none left.
pub fn reserved_address() -> io::Result<(SocketAddr, TcpSocket)> {
    let socket = TcpSocket::new_v4()?;
    // Listeners of std, tokio, Go and Postgres say the same; then one that is bound and does not listen is in nobody's way.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok((socket.local_addr()?, socket))
}

/// What a child that ended by itself left behind.
#[derive(Debug, Clone)]
pub struct ChildOutput {
    /// The exit status; `None` when a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    /// The last [`limits::CHILD_ERROR_BYTES`] of standard error.
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
}

impl ChildOutput {
    pub fn success(&self) -> bool {
        self.status == Some(0)
    }

    /// Standard error as one trimmed text, for a message.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// Why there is no [`ChildOutput`].
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    #[error("`{program}` was not found; install it or give its full path")]
    NotFound { program: String },
    #[error("the child process was ended after {:.1} s, its time limit", elapsed.as_secs_f64())]
    TimedOut { elapsed: Duration },
    #[error("the child process was cancelled")]
    Cancelled,
    #[error("the child process was ended: it printed more than {limit} bytes")]
    OutputTooLong { limit: usize },
    #[error(
        "ERR_RESOURCE_EXHAUSTED: the child process and its own took {} MB of memory and were ended, their limit is \
         {} MB; raise memory_mb of their pool under [workers]",
        used / MEGABYTE,
        limit / MEGABYTE
    )]
    ResourceExhausted { limit: u64, used: u64 },
    #[error("the child process and its own were {processes} and were ended, their limit is {limit}")]
    TooMany { limit: u64, processes: u64 },
    #[error("nothing was started, because this machine cannot keep a child process from other files: {why}")]
    NotConfined { why: String },
    #[error("`{program}` could not be run: {source}")]
    Io { program: String, source: io::Error },
}

const MEGABYTE: u64 = 1024 * 1024;

/// What of our environment a program needs that talks to a person and opens their browser.
const TERMINAL: &[&str] = &[
    "HOME",
    "TERM",
    "LANG",
    "BROWSER",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// The way out of a network that has only one, as curl, git and Node know it.
const PROXY: &[&str] = &["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"];

/// The port of the proxy that children are told of; a confined one must be let through to it.
pub fn proxy_port() -> Option<u16> {
    let named = PROXY.iter().take(2).find_map(|name| std::env::var(name).ok())?;
    proxy_address_port(&named)
}

/// Of a proxy's address, which may be written without its scheme.
fn proxy_address_port(proxy: &str) -> Option<u16> {
    let address = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    url::Url::parse(&address).ok()?.port_or_known_default()
}

/// A child process to be. Build it, then [`run`](ChildCommand::run) it.
#[derive(Clone)]
pub struct ChildCommand {
    program: OsString,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    directory: Option<PathBuf>,
    stdin: Vec<u8>,
    timeout: Duration,
    kill_delay: Duration,
    output_limit: usize,
    nice: i32,
    memory_limit: Option<u64>,
    process_limit: Option<u64>,
    user: Option<u32>,
    from_lasting_thread: bool,
    confinement: Option<Confinement>,
    records: Option<PathBuf>,
    scratch: Option<PathBuf>,
}

impl ChildCommand {
    /// `program` is a path, or a name looked up in our own `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        // The path is the machine's, not the operator's: a program's helpers are found through it.
        let env = std::env::var_os("PATH").map(|path| ("PATH".into(), path)).into_iter().collect();
        Self {
            program: program.as_ref().into(),
            args: Vec::new(),
            env,
            directory: None,
            stdin: Vec::new(),
            timeout: CHILD_TIME,
            kill_delay: limits::CHILD_KILL_DELAY,
            output_limit: limits::CHILD_OUTPUT_BYTES,
            nice: 0,
            memory_limit: None,
            process_limit: None,
            user: None,
            from_lasting_thread: false,
            confinement: None,
            records: None,
            scratch: None,
        }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().into());
        self
    }

    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(key.as_ref().into(), value.as_ref().into());
        self
    }

    /// Past the proxy that our own environment names, where it names one.
    pub fn with_proxy_environment(self) -> Self {
        let named = PROXY.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        named.fold(self, |command, (name, value)| command.env(name, value))
    }

    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().into());
        self
    }

    /// Bytes for standard input; without them the child reads end of file at once.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Time until the whole group is ended; `CHILD_TIME` unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Time between SIGTERM and SIGKILL; [`limits::CHILD_KILL_DELAY`] unless set.
    pub fn kill_delay(mut self, delay: Duration) -> Self {
        self.kill_delay = delay;
        self
    }

    /// Bytes of standard output allowed; [`limits::CHILD_OUTPUT_BYTES`] unless set.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// How much lower than our own its priority is, from 0 to 19; on Linux only.
    pub fn nice(mut self, steps: i32) -> Self {
        self.nice = steps.clamp(0, 19);
        self
    }

    /// Bytes of memory that the child and all it starts may use together before all of them are killed.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// How many it and all it starts may be before all of them are killed.
    pub fn process_limit(mut self, processes: u64) -> Self {
        self.process_limit = Some(processes);
        self
    }

    /// The user that it is going to run as by its own doing, and that nobody else is meanwhile: whoever runs as that user
    /// is ended with it, whatever else it has rid itself of.
    pub fn exclusive_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// It asks the kernel to be killed when its parent is gone, by which the kernel means the thread that started it: so one
    /// does that which is never gone before the process.
    pub fn from_permanent_thread(mut self) -> Self {
        self.from_lasting_thread = true;
        self
    }

    /// What of the file system it sees. Where that can't be held to, it is not started.
    pub fn confined(mut self, confinement: Confinement) -> Self {
        self.confinement = Some(confinement);
        self
    }

    /// Keeps a record of it in that directory while it runs, for [`end_orphans`] after a crash.
    pub fn recorded_in(mut self, directory: impl AsRef<Path>) -> Self {
        self.records = Some(directory.as_ref().into());
        self
    }

    /// A directory that is there for this child alone: should we crash, [`end_orphans`] removes it after the child.
    pub fn scratch(mut self, directory: impl AsRef<Path>) -> Self {
        self.scratch = Some(directory.as_ref().into());
        self
    }

    /// Runs the child to its end. A status other than 0 is an [`ChildOutput`], not an error.
    pub async fn run(self, cancel: &CancellationToken) -> Result<ChildOutput, ProcError> {
        self.run_with_lines(cancel, None::<fn(&[u8])>).await
    }

    /// As [`run`](ChildCommand::run), and `line` sees each line of standard output (without its end) as
    /// it is printed.
    pub async fn run_lines(
        self,
        cancel: &CancellationToken,
        line: impl FnMut(&[u8]) + Send,
    ) -> Result<ChildOutput, ProcError> {
        self.run_with_lines(cancel, Some(line)).await
    }

    /// As [`run`](ChildCommand::run), but `sink` gets each piece of both outputs as it is printed, and nothing is kept of them. The
    /// limit is for both together.
    pub async fn run_chunks(
        self,
        cancel: &CancellationToken,
        sink: impl FnMut(OutputStream, &[u8]) + Send,
    ) -> Result<ChildOutput, ProcError> {
        let limit = self.output_limit;
        let read = async move |out: Option<ChildStdout>, err: Option<ChildStderr>| {
            read_chunks(out, err, limit, sink).await.map(|()| (Vec::new(), Vec::new()))
        };
        self.run_with_reader(cancel, read).await
    }

    async fn run_with_lines(
        self,
        cancel: &CancellationToken,
        line: Option<impl FnMut(&[u8]) + Send>,
    ) -> Result<ChildOutput, ProcError> {
        let limit = self.output_limit;
        let read = async move |out: Option<ChildStdout>, err: Option<ChildStderr>| {
            tokio::try_join!(read_all(out, limit, line), read_tail(err))
        };
        self.run_with_reader(cancel, read).await
    }

    async fn run_with_reader(
        mut self,
        cancel: &CancellationToken,
        read: impl AsyncFnOnce(Option<ChildStdout>, Option<ChildStderr>) -> Result<(Vec<u8>, Vec<u8>), KillReason>,
    ) -> Result<ChildOutput, ProcError> {
        if cancel.is_cancelled() {
            return Err(ProcError::Cancelled);
        }
        let started = Instant::now();
        let timeout = self.timeout;
        let stdin = std::mem::take(&mut self.stdin);
        let mut group = self.spawn()?;
        let outgrown = group.wait_for_overuse(self.memory_limit, self.process_limit);
        let ended = tokio::select! {
            done = group.drive(stdin, self.is_guarded(), read) => done,
            why = outgrown => Err(why),
            () = tokio::time::sleep(timeout) => Err(KillReason::TimedOut),
            () = cancel.cancelled() => Err(KillReason::Cancelled),
        };
        match ended {
            Ok((status, (stdout, stderr))) => {
                let (status, signal) = (status.code(), status.signal());
                Ok(ChildOutput { status, signal, stdout, stderr, elapsed: started.elapsed() })
            }
            Err(why) => {
                // Who takes all the memory has no time to end well.
                let at_once = matches!(why, KillReason::TooLarge { .. } | KillReason::TooMany { .. });
                group.end(at_once).await;
                Err(match why {
                    KillReason::TimedOut => ProcError::TimedOut { elapsed: started.elapsed() },
                    KillReason::Cancelled => ProcError::Cancelled,
                    KillReason::TooLong => ProcError::OutputTooLong { limit: self.output_limit },
                    KillReason::TooLarge { used } => {
                        ProcError::ResourceExhausted { limit: self.memory_limit.unwrap_or(0), used }
                    }
                    KillReason::TooMany { processes } => {
                        ProcError::TooMany { limit: self.process_limit.unwrap_or(0), processes }
                    }
                    KillReason::Io(source) => ProcError::Io { program: self.program_name(), source },
                })
            }
        }
    }

    /// Runs the child at our own terminal, for as long as the person there likes, with what that needs of our
    /// environment. Did it end well?
    pub async fn run_at_terminal(self) -> Result<bool, ProcError> {
        let shared = TERMINAL.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let mut command = tokio::process::Command::new(locate_program(&self.program));
        command.arg0(&self.program).args(&self.args).env_clear().envs(shared).envs(&self.env);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let status = command.status().await.map_err(|source| self.start_error(source))?;
        Ok(status.success())
    }

    /// One that is large or not trusted, and worth a look through all processes when it has ended.
    fn is_guarded(&self) -> bool {
        self.memory_limit.is_some()
            || self.process_limit.is_some()
            || self.user.is_some()
            || self.confinement.is_some()
            || self.records.is_some()
    }

    fn spawn(&self) -> Result<ChildGroup, ProcError> {
        let mark = new_mark().map_err(|source| self.start_error(source))?;
        let mut command = tokio::process::Command::new(locate_program(&self.program));
        command
            .arg0(&self.program)
            .args(&self.args)
            .env_clear()
            .envs(&self.env)
            .env(MARK, &mark)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut tree = ProcessTree { leader: None, mark, user: self.user };
        let mut record = self.write_record(&tree);
        let child = self.start(command, &tree.mark)?;
        tree.leader = child.0.id().and_then(|id| ProcessIdentity::read(i32::try_from(id).ok()?));
        if let (Some(record), Some(leader)) = (&mut record, tree.leader)
            && let Err(error) = record.identify(leader)
        {
            tracing::warn!(%error, "the record of a child process is not whole; only its mark tells it");
        }
        Ok(ChildGroup::new(child, tree, record, self.kill_delay))
    }

    fn write_record(&self, tree: &ProcessTree) -> Option<ChildRecord> {
        let directory = self.records.as_ref()?;
        ChildRecord::create(directory, tree, self.program_name(), self.scratch.clone()).unwrap_or_else(|error| {
            tracing::warn!(directory = %directory.display(), %error, "no record of a child process could be kept");
            None
        })
    }

    /// From a thread of its own where the child is to be bound by anything that a thread hands on.
    fn start(
        &self,
        mut command: tokio::process::Command,
        mark: &str,
    ) -> Result<(Child, Option<StartedChild>), ProcError> {
        if self.from_lasting_thread {
            let mark = mark.to_owned();
            let started =
                run_on_permanent_thread(move || StartedChild::spawn_registered(&mark, || command.spawn()));
            return started.and_then(|started| started).map_err(|source| self.start_error(source));
        }
        let mut spawn = || {
            StartedChild::spawn_registered(mark, || command.spawn())
                .map_err(|source| self.start_error(source))
        };
        if self.confinement.is_none() && self.nice == 0 {
            return spawn();
        }
        let runtime = tokio::runtime::Handle::current();
        std::thread::scope(|scope| {
            let bound = || {
                let _entered = runtime.enter();
                self.apply_thread_limits()?;
                spawn()
            };
            let thread = std::thread::Builder::new()
                .spawn_scoped(scope, bound)
                .map_err(|source| self.start_error(source))?;
            thread.join().unwrap_or_else(|_| {
                Err(self.start_error(io::Error::other("the thread that starts it panicked")))
            })
        })
    }

    /// For good: the thread is of no use for anything else afterwards.
    #[cfg(target_os = "linux")]
    fn apply_thread_limits(&self) -> Result<(), ProcError> {
        // Here the priority is a thread's; elsewhere it would be our whole process's.
        rustix::process::nice(self.nice).map_err(|error| self.start_error(error.into()))?;
        let Some(confinement) = &self.confinement else { return Ok(()) };
        let mut confinement = confinement.clone();
        confinement.read.push(locate_program(&self.program));
        confinement::confine_this_thread(&confinement).map_err(|why| ProcError::NotConfined { why })
    }

    #[cfg(not(target_os = "linux"))]
    fn apply_thread_limits(&self) -> Result<(), ProcError> {
        match &self.confinement {
            None => Ok(()),
            Some(_) => check_confinement().map_err(|why| ProcError::NotConfined { why }),
        }
    }

    fn start_error(&self, source: io::Error) -> ProcError {
        let directory_there = self.directory.as_ref().is_none_or(|d| d.is_dir());
        if source.kind() == io::ErrorKind::NotFound && directory_there {
            ProcError::NotFound { program: self.program_name() }
        } else {
            ProcError::Io { program: self.program_name(), source }
        }
    }

    fn program_name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

/// Done by the one thread that only does this.
fn run_on_permanent_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    type ThreadTask = Box<dyn FnOnce() + Send>;
    static LASTING: LazyLock<mpsc::Sender<ThreadTask>> = LazyLock::new(|| {
        let (send, receive) = mpsc::channel::<ThreadTask>();
        // Where no thread can be made, nobody receives, and the sender is told.
        let _ = std::thread::Builder::new().spawn(move || receive.into_iter().for_each(|work| work()));
        send
    });
    let (answer, answered) = mpsc::channel();
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        let _entered = runtime.enter();
        let _ = answer.send(work());
    };
    let gone = || io::Error::other("the thread that starts it is gone");
    LASTING.send(Box::new(work)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())
}

/// An empty directory in `place` that our user alone enters; removed when dropped.
///
/// # Errors
///
/// When it cannot be made.
pub fn private_dir(prefix: &str, place: &Path) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(place)
}

/// No memory of this process, nor of what it starts, is written to disk when it crashes: there are keys in it.
pub fn disable_core_dumps() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

fn new_mark() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(hex::encode(bytes))
}

/// Where in `PATH` a program is. Only a program given by its path is started without a copy of our whole
/// process's page tables (`posix_spawn` looks names up in the wrong environment, so the standard library
/// forks for them).
fn locate_program(program: &OsStr) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = !program.as_encoded_bytes().contains(&b'/');
    let mut places = std::env::split_paths(&path).filter(|directory| named && directory.is_absolute());
    let found = places.find_map(|directory| Some(directory.join(program)).filter(|file| is_executable(file)));
    found.unwrap_or_else(|| program.into())
}

fn is_executable(file: &Path) -> bool {
    let executable = |found: std::fs::Metadata| found.is_file() && found.permissions().mode() & 0o111 != 0;
    file.metadata().is_ok_and(executable)
}

#[cfg(test)]
mod tests;
