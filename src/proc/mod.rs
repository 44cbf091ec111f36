//! Child processes. No other module starts one.
//!
//! A child gets only the environment variables that its caller sets, plus `PATH` and a marker that identifies its
//! descendants. It has its own process group, a timeout and a limit on its output. A memory limit, a lower priority and
//! a confinement to parts of the file system are optional. The whole group is ended when a call ends for any reason:
//! exit, timeout, cancellation or a dropped future. This module knows no program by name; the caller interprets the
//! output.
//!
//! Timeouts here use the real clock instead of `Clock`, because processes run in real time.

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

/// Default timeout of a child. Only a child that runs at our terminal has no timeout.
const CHILD_TIME: Duration = Duration::from_secs(60);

/// Reserves a local port. As long as the returned socket exists, the system does not assign the port to a process that
/// binds port 0. A process that is told the address can still listen on it.
///
/// # Errors
/// If no port is free.
pub fn reserved_address() -> io::Result<(SocketAddr, TcpSocket)> {
    let socket = TcpSocket::new_v4()?;
    // std, tokio, Go and Postgres also set this option on listeners, so our bound socket that does not listen does not
    // block theirs.
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    Ok((socket.local_addr()?, socket))
}

/// Result of a child that was not ended by us.
#[derive(Debug, Clone)]
pub struct ChildOutput {
    /// Exit status of the child; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Signal that ended the child; `None` if it exited.
    pub signal: Option<i32>,
    pub stdout: Vec<u8>,
    /// The last [`limits::CHILD_ERROR_BYTES`] bytes of standard error.
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
}

impl ChildOutput {
    pub fn success(&self) -> bool {
        self.status == Some(0)
    }

    /// Returns the text of standard error, trimmed, for use in a message.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }
}

/// Reason why a child has no [`ChildOutput`].
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
        "ERR_RESOURCE_EXHAUSTED: the child process and its descendants used {} MB of memory and were ended; the limit is \
         {} MB; raise memory_mb of their pool under [workers]",
        used / MEGABYTE,
        limit / MEGABYTE
    )]
    ResourceExhausted { limit: u64, used: u64 },
    #[error(
        "the child process was ended: with its descendants it had {processes} processes; the limit is {limit}"
    )]
    TooMany { limit: u64, processes: u64 },
    #[error("the child process was not started, because this machine cannot confine it: {why}")]
    NotConfined { why: String },
    #[error("`{program}` could not be run: {source}")]
    Io { program: String, source: io::Error },
}

const MEGABYTE: u64 = 1024 * 1024;

/// Variables of our environment that are passed to a program that talks to a person and opens the person's browser.
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

/// Names of the environment variables from which curl, Git and Node read the proxy.
const PROXY: &[&str] = &["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"];

/// Returns the port of the proxy that children use. A confined child must be allowed to connect to this port.
pub fn proxy_port() -> Option<u16> {
    let named = PROXY.iter().take(2).find_map(|name| std::env::var(name).ok())?;
    proxy_address_port(&named)
}

/// Returns the port of a proxy URL, whose scheme may be missing.
fn proxy_address_port(proxy: &str) -> Option<u16> {
    let address = if proxy.contains("://") { proxy.to_owned() } else { format!("http://{proxy}") };
    url::Url::parse(&address).ok()?.port_or_known_default()
}

/// Builder of a child process. [`run`](ChildCommand::run) starts the child.
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
    /// Creates a builder. `program` is a path, or a name that is looked up in our own `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        // The child needs the machine's `PATH` to find its helper programs.
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

    /// Passes the proxy variables of our own environment on to the child.
    pub fn with_proxy_environment(self) -> Self {
        let named = PROXY.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        named.fold(self, |command, (name, value)| command.env(name, value))
    }

    pub fn current_dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().into());
        self
    }

    /// Sets the bytes that the child reads from stdin. By default, stdin is empty.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets the timeout of the whole process group. The default is `CHILD_TIME`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time between SIGTERM and SIGKILL. The default is [`limits::CHILD_KILL_DELAY`].
    pub fn kill_delay(mut self, delay: Duration) -> Self {
        self.kill_delay = delay;
        self
    }

    /// Sets the maximum number of bytes of stdout. The default is [`limits::CHILD_OUTPUT_BYTES`].
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.output_limit = bytes;
        self
    }

    /// Lowers the child's priority by 0 to 19 steps below ours. Has an effect only on Linux.
    pub fn nice(mut self, steps: i32) -> Self {
        self.nice = steps.clamp(0, 19);
        self
    }

    /// Sets the maximum number of bytes of memory that the child and its descendants may use together. If they exceed
    /// it, all are killed.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Sets the maximum number of processes that the child and its descendants may have together. If they exceed it,
    /// all are killed.
    pub fn process_limit(mut self, processes: u64) -> Self {
        self.process_limit = Some(processes);
        self
    }

    /// Declares the user that the child will switch to. No other process may use that user in the meantime: when the
    /// child ends, all processes of the user are ended, even those that escaped all other limits.
    pub fn exclusive_user(mut self, user: u32) -> Self {
        self.user = Some(user);
        self
    }

    /// Starts the child from a thread that lives as long as our process. This is needed for children with a
    /// parent-death signal, which the kernel sends when the thread that started them ends.
    pub fn from_permanent_thread(mut self) -> Self {
        self.from_lasting_thread = true;
        self
    }

    /// Confines the child. If the confinement fails, the child is not started.
    pub fn confined(mut self, confinement: Confinement) -> Self {
        self.confinement = Some(confinement);
        self
    }

    /// Writes a record of the child to that directory while the child runs, so that [`end_orphans`] can end the child
    /// after a crash of ours.
    pub fn recorded_in(mut self, directory: impl AsRef<Path>) -> Self {
        self.records = Some(directory.as_ref().into());
        self
    }

    /// Sets a directory that only this child uses. If our process crashes, [`end_orphans`] ends the child and then
    /// removes the directory.
    pub fn scratch(mut self, directory: impl AsRef<Path>) -> Self {
        self.scratch = Some(directory.as_ref().into());
        self
    }

    /// Runs the child to its end. An exit status other than 0 is returned as a [`ChildOutput`], not as an error.
    pub async fn run(self, cancel: &CancellationToken) -> Result<ChildOutput, ProcError> {
        self.run_with_lines(cancel, None::<fn(&[u8])>).await
    }

    /// Like [`run`](ChildCommand::run), but also calls `line` with each line of stdout as soon as it is printed. The
    /// line is passed without its line end.
    pub async fn run_lines(
        self,
        cancel: &CancellationToken,
        line: impl FnMut(&[u8]) + Send,
    ) -> Result<ChildOutput, ProcError> {
        self.run_with_lines(cancel, Some(line)).await
    }

    /// Like [`run`](ChildCommand::run), but passes each chunk of both outputs to `sink` and does not collect them. The
    /// output limit applies to both outputs together.
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
                // Don't wait for a process that uses up memory or processes.
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

    /// Runs the child at our terminal without a timeout, with the environment variables listed in `TERMINAL`. Returns
    /// whether the child succeeded.
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

    /// Whether the child is large or untrusted. If so, all processes are searched for its descendants when it has
    /// ended.
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
        let child = self.start(command, &tree)?;
        tree.leader = child.0.id().and_then(|id| ProcessIdentity::read(i32::try_from(id).ok()?));
        if let (Some(record), Some(leader)) = (&mut record, tree.leader)
            && let Err(error) = record.identify(leader)
        {
            tracing::warn!(%error, "could not record a child's PID; only its environment marker identifies it");
        }
        Ok(ChildGroup::new(child, tree, record, self.kill_delay))
    }

    fn write_record(&self, tree: &ProcessTree) -> Option<ChildRecord> {
        let directory = self.records.as_ref()?;
        ChildRecord::create(directory, tree, self.program_name(), self.scratch.clone()).unwrap_or_else(|error| {
            tracing::warn!(directory = %directory.display(), %error, "could not record a child process; a crash may leave it running");
            None
        })
    }

    /// Starts the child. Confinement and priority are properties of a thread, so a child that has either of them is
    /// started from a new thread.
    fn start(
        &self,
        mut command: tokio::process::Command,
        tree: &ProcessTree,
    ) -> Result<(Child, Option<StartedChild>), ProcError> {
        if self.from_lasting_thread {
            let tree = tree.clone();
            let started =
                run_on_permanent_thread(move || StartedChild::spawn_registered(&tree, || command.spawn()));
            return started.and_then(|started| started).map_err(|source| self.start_error(source));
        }
        let mut spawn = || {
            StartedChild::spawn_registered(tree, || command.spawn())
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
                Err(self.start_error(io::Error::other("the thread that starts the child panicked")))
            })
        })
    }

    /// Permanently applies priority and confinement to the current thread.
    #[cfg(target_os = "linux")]
    fn apply_thread_limits(&self) -> Result<(), ProcError> {
        // On Linux a thread has its own priority; elsewhere this would change the whole process.
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

/// Runs `work` on a dedicated thread that lives as long as our process.
fn run_on_permanent_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    type ThreadTask = Box<dyn FnOnce() + Send>;
    static LASTING: LazyLock<mpsc::Sender<ThreadTask>> = LazyLock::new(|| {
        let (send, receive) = mpsc::channel::<ThreadTask>();
        // If the thread can't be started, sending fails.
        let _ = std::thread::Builder::new().spawn(move || receive.into_iter().for_each(|work| work()));
        send
    });
    let (answer, answered) = mpsc::channel();
    let runtime = tokio::runtime::Handle::current();
    let work = move || {
        let _entered = runtime.enter();
        let _ = answer.send(work());
    };
    let gone = || io::Error::other("the thread that starts children is gone");
    LASTING.send(Box::new(work)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())
}

/// Creates an empty directory in `place` that only our user can enter. The directory is removed on drop.
///
/// # Errors
/// If the directory cannot be created.
pub fn private_dir(prefix: &str, place: &Path) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(prefix).permissions(Permissions::from_mode(0o700)).tempdir_in(place)
}

/// Disables core dumps of this process and its children, because their memory contains keys.
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

/// Returns the path of a program in `PATH`. Given a path, the standard library can start the program by `posix_spawn`,
/// without copying our page tables. Given a name, it would fork, because `posix_spawn` looks names up in the wrong
/// environment.
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
