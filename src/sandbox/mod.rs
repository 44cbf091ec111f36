//! Runs untrusted commands: a repository's tests, their builds, and all processes that these start.
//!
//! A command can access only its work tree and the files and environment passed to it, nothing else of this machine.
//! When the command exits, all processes that it started are killed. The sandbox has two levels:
//!
//! - *full*: bubblewrap creates namespaces (mounts, processes, network, users). Inside, our executable sets limits,
//!   applies Landlock and a seccomp filter, and executes the command.
//! - *basic*, if namespaces are not available: the same without bubblewrap and without any socket. Landlock does not
//!   cover `chmod`, `chown` and sockets in the file system, so this level relies on a separate user. A server that
//!   cannot switch users therefore has no basic level.
//!
//! If the server is root, each run gets a separate user at both levels, because the kernel does not limit the number of
//! root's processes. During the run, that user owns the run's directories.

mod bubblewrap;
mod disk;
mod inner_stage;
mod output;
mod proxy;
mod run_user;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::metrics::{counter::Counter, family::Family};
use tokio_util::sync::CancellationToken;

pub use self::{
    inner_stage::{INNER_STAGE_COMMAND, run_inner_stage},
    output::{TruncatedOutput, strip_terminal_codes},
    proxy::{FETCHED_BYTES, SandboxProxy},
    run_user::ScratchDirectory,
};
use self::{
    inner_stage::{InnerStageSpec, TmpLimits},
    output::CapturedOutputs,
};
pub use crate::config::SandboxLevel as Level;
use crate::proc::{ChildCommand, ProcError, SyscallPolicy, check_confinement};

/// The sandbox of this machine. The sandbox level is detected once.
#[derive(Debug, Clone)]
pub struct Sandbox {
    level: Level,
    /// Reasons why no better level is available; empty at the full level.
    lacks: Vec<String>,
    /// Path of our own executable.
    own: PathBuf,
    /// Directory with the `passwd` and `group` files to mount inside the sandbox. They do not list the users of this
    /// machine.
    names: Arc<ScratchDirectory>,
    /// Records of runs that have a separate user; `None` if runs have no separate user. Runs without a record are
    /// killed together with their bubblewrap process.
    records: Option<Arc<run_user::RecordsDirectory>>,
    /// Programs that already ran successfully in the sandbox and therefore need no further trial run.
    has_run: Arc<Mutex<BTreeSet<PathBuf>>>,
    time: SandboxSeconds,
}

/// Total run time of commands in seconds, labelled by outcome.
pub type SandboxSeconds = Family<[(&'static str, &'static str); 1], Counter<f64, AtomicU64>>;

/// One command to run in the sandbox.
#[derive(Debug, Clone)]
pub struct SandboxCommand {
    /// Path of the program, or a name looked up in the `PATH` of `environment`.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Working directory, readable and writable. Its path must contain no symlinks, and no other run may use it.
    pub tree: PathBuf,
    /// Files and directories that the command may read in addition to the system's files, such as toolchains and
    /// caches. Missing paths are skipped.
    pub read: Vec<PathBuf>,
    /// Directories that the command may write in addition to `tree`. No other run may use them.
    pub write: Vec<PathBuf>,
    /// Complete environment of the command. If `PATH`, `HOME` or `TMPDIR` is missing, a default is added.
    pub environment: BTreeMap<OsString, OsString>,
    pub limits: SandboxLimits,
    pub network: NetworkAccess,
}

impl SandboxCommand {
    /// Creates a command with default limits that can access only `tree`.
    pub fn new(program: impl Into<OsString>, tree: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            tree: tree.into(),
            read: Vec::new(),
            write: Vec::new(),
            environment: BTreeMap::new(),
            limits: SandboxLimits::default(),
            network: NetworkAccess::Loopback,
        }
    }
}

/// Limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct SandboxLimits {
    pub time: Duration,
    /// Maximum total memory of all processes, in bytes.
    pub memory_bytes: u64,
    pub processes: u64,
    /// Maximum number of bytes by which the run's directories may grow. In-memory directories can grow to at most a
    /// quarter of `memory_bytes`.
    pub disk_bytes: u64,
    /// Maximum number of files by which the run's directories may grow.
    pub inodes: u64,
    /// Maximum total number of bytes of stdout and stderr.
    pub output_bytes: usize,
    /// Maximum number of bytes kept from the beginning of each output. The same number is kept from its end.
    pub kept_bytes: usize,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(20 * 60),
            memory_bytes: 4 << 30,
            processes: 512,
            disk_bytes: 4 << 30,
            inodes: 200_000,
            output_bytes: 64 << 20,
            kept_bytes: 64 << 10,
        }
    }
}

impl SandboxLimits {
    /// Returns the maximum number of bytes of each in-memory directory (`/tmp`, `/dev/shm`). The memory limit of the
    /// processes does not cover these bytes.
    fn in_memory_bytes(&self) -> u64 {
        self.disk_bytes.min(self.memory_bytes / 4)
    }
}

/// Network access of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkAccess {
    /// No sockets at all.
    None,
    /// Only a private loopback interface. At the basic level, this is the same as `None`.
    #[default]
    Loopback,
    /// A private loopback interface, and the hosts that the [`SandboxProxy`] at this socket allows. Available only at
    /// the full level.
    Proxy(PathBuf),
}

/// Result of a completed run.
#[derive(Debug, Clone)]
pub struct SandboxOutcome {
    pub end: CommandExit,
    pub stdout: TruncatedOutput,
    pub stderr: TruncatedOutput,
    pub elapsed: Duration,
}

/// Reason why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandExit {
    Exit(i32),
    /// A signal killed the command, or the command exited with the exit code that a shell uses for a signal.
    Signal(i32),
    TimedOut,
    MemoryExceeded,
    TooManyProcesses,
    /// The command wrote too many bytes or files.
    DiskExceeded,
    OutputTooLong,
}

impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "it ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal} ended it"),
            Self::TimedOut => f.write_str("it exceeded its time limit"),
            Self::MemoryExceeded => f.write_str("it exceeded its memory limit"),
            Self::TooManyProcesses => f.write_str("it exceeded its process limit"),
            Self::DiskExceeded => f.write_str("it exceeded its disk limit"),
            Self::OutputTooLong => f.write_str("it exceeded its output limit"),
        }
    }
}

impl CommandExit {
    /// Returns the metric label of the outcome, without details such as the exit code.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exit(0) => "success",
            Self::Exit(_) => "failure",
            Self::Signal(_) => "signal",
            Self::TimedOut => "timeout",
            Self::MemoryExceeded => "memory",
            Self::TooManyProcesses => "processes",
            Self::DiskExceeded => "disk",
            Self::OutputTooLong => "output",
        }
    }

    pub fn success(self) -> bool {
        self == Self::Exit(0)
    }
}

/// Reasons why the command was not run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "no sandbox works on this machine ({})",
        why.join("; ")
    )]
    Unavailable { why: Vec<String> },
    #[error("the {} level of the sandbox does not work here: {}", level.as_str(), why.join("; "))]
    NotThatLevel { level: Level, why: Vec<String> },
    #[error("`{program}` was not found inside the sandbox")]
    NotFound { program: String },
    #[error("could not create the sandbox: {why}")]
    Failed { why: String },
    #[error("the run was cancelled")]
    Cancelled,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Sandbox {
    /// Detects the best working level by trial runs of our executable `own`. If `wanted` is set, tries only that level.
    /// `Level::None` is used only if it is wanted and no better level works.
    pub async fn detect(own: &Path, wanted: Option<Level>) -> Result<Self, SandboxError> {
        let names = run_user::create_user_lists()
            .map_err(|source| SandboxError::Io { path: std::env::temp_dir(), source })?;
        // If this fails, no run can get its own user, and the trial reports that.
        let records = match rustix::process::geteuid().is_root() {
            true => run_user::RecordsDirectory::open().await.ok().map(Arc::new),
            false => None,
        };
        let at = |level, lacks| Self {
            level,
            lacks,
            own: own.to_owned(),
            names: Arc::clone(&names),
            records: records.clone(),
            has_run: Arc::default(),
            time: SandboxSeconds::default(),
        };
        let mut why = Vec::new();
        for level in [Level::Full, Level::Basic] {
            if wanted.is_some_and(|wanted| wanted != level && wanted != Level::None) {
                continue;
            }
            let sandbox = at(level, why.clone());
            match sandbox.try_level().await {
                Ok(()) => return Ok(sandbox),
                Err(lacks) => why.push(lacks),
            }
        }
        match wanted {
            Some(Level::None) => Ok(at(Level::None, why)),
            Some(level) => Err(SandboxError::NotThatLevel { level, why }),
            None => Err(SandboxError::Unavailable { why }),
        }
    }

    /// Returns the sandbox with the run time of commands recorded in the metric `time`.
    pub fn with_time_metric(self, time: SandboxSeconds) -> Self {
        Self { time, ..self }
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Returns the reasons why no better level is available, with a suggested fix for each.
    pub fn missing_features(&self) -> &[String] {
        &self.lacks
    }

    /// Whether [`remember_run`](Self::remember_run) was called for `program`.
    pub fn has_run(&self, program: &Path) -> bool {
        self.has_run.lock().unwrap_or_else(PoisonError::into_inner).contains(program)
    }

    pub fn remember_run(&self, program: &Path) {
        self.has_run.lock().unwrap_or_else(PoisonError::into_inner).insert(program.to_owned());
    }

    async fn try_level(&self) -> Result<(), String> {
        check_confinement()?;
        if self.level == Level::Basic && !rustix::process::geteuid().is_root() {
            return Err(run_user::ONLY_ROOT.to_owned());
        }
        let tree = ScratchDirectory::new().map_err(|error| error.to_string())?;
        let run = SandboxCommand {
            limits: SandboxLimits { time: TRIAL, ..SandboxLimits::default() },
            ..SandboxCommand::new("true", tree.path())
        };
        match self.run(run, &CancellationToken::new()).await {
            Ok(SandboxOutcome { end: CommandExit::Exit(0), .. }) => Ok(()),
            Ok(ended) => Err(format!("its trial run ended with {:?}", ended.end)),
            Err(SandboxError::Failed { why }) if self.level == Level::Full => Err(bubblewrap::remedy(&why)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Runs a command until it exits or exceeds a limit.
    ///
    /// # Errors
    /// Returns an error if the command did not start or was cancelled.
    pub async fn run(
        &self,
        run: SandboxCommand,
        cancel: &CancellationToken,
    ) -> Result<SandboxOutcome, SandboxError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| SandboxError::Io { path, source }
        };
        if matches!(run.network, NetworkAccess::Proxy(_)) && self.level != Level::Full {
            let why = "only the full level of the sandbox has network access".to_owned();
            return Err(SandboxError::Failed { why });
        }
        if let Some(path) = run.read.iter().find(|path| contains_home(path)) {
            let why =
                format!("the sandbox may not read {}: it is or contains the server's home", path.display());
            return Err(SandboxError::Failed { why });
        }
        let is_root = rustix::process::geteuid().is_root();
        let is_system = |place: &&PathBuf| is_root && run_user::is_system_directory(place);
        if let Some(path) = run.write.iter().chain([&run.tree]).find(is_system) {
            let why = format!("{} is a system directory; the sandbox does not write there", path.display());
            return Err(SandboxError::Failed { why });
        }
        let own = match self.level {
            Level::Full | Level::Basic if is_root => {
                Some(Box::pin(run_user::RunUser::acquire(&run, self.level)).await.map_err(io(&run.tree))?)
            }
            _ => None,
        };
        let spec = self.inner_stage_spec(&run, own.as_ref());
        let mut outputs = CapturedOutputs::new(run.limits.kept_bytes.max(LEAST_KEPT), spec.nonce.clone());
        let command = self.command(&run, &spec, own.as_ref())?;
        let stop = cancel.child_token();
        let mut places: Vec<PathBuf> = run.write.iter().chain([&run.tree]).cloned().collect();
        places.extend(own.as_ref().and_then(run_user::RunUser::tmp).map(Path::to_owned));
        let before = disk::measure_usage(&places).await;
        let (ended, outgrown) = {
            let running = command.run_chunks(&stop, |stream, piece| outputs.append(stream, piece));
            tokio::pin!(running);
            tokio::select! {
                ended = &mut running => (ended, None),
                limit = disk::wait_for_overuse(&places, before, run.limits) => {
                    stop.cancel();
                    (running.await, Some(limit))
                }
            }
        };
        if let Some(own) = own
            && let Err(error) = Box::pin(own.release()).await
        {
            // The command has ended, so still return its outcome.
            tracing::warn!(tree = %run.tree.display(), %error, "could not take back ownership of a command's files");
        }
        let outcome = self.build_outcome(run, outputs, ended, outgrown)?;
        let seconds = self.time.get_or_create(&[("end", outcome.end.name())]);
        seconds.inc_by(outcome.elapsed.as_secs_f64());
        Ok(outcome)
    }

    fn inner_stage_spec(&self, run: &SandboxCommand, own: Option<&run_user::RunUser>) -> InnerStageSpec {
        let calls = match (self.level, &run.network) {
            (Level::Full, NetworkAccess::Loopback | NetworkAccess::Proxy(_)) => SyscallPolicy::Isolated,
            _ => SyscallPolicy::Alone,
        };
        let tmp = own.and_then(run_user::RunUser::tmp).unwrap_or("/tmp".as_ref()).to_owned();
        let mut environment = run.environment.clone();
        for (name, usual) in
            [("PATH", inner_stage::PATH.as_ref()), ("HOME", tmp.as_os_str()), ("TMPDIR", tmp.as_os_str())]
        {
            environment.entry(name.into()).or_insert_with(|| usual.to_owned());
        }
        let way_out = matches!(run.network, NetworkAccess::Proxy(_));
        if way_out {
            let address = format!("http://127.0.0.1:{}", inner_stage::WAY_OUT.1);
            environment.extend(["HTTPS_PROXY", "https_proxy"].map(|name| (name.into(), (&address).into())));
        }
        InnerStageSpec {
            nonce: run_user::nonce(),
            program: run.program.clone(),
            args: run.args.clone(),
            environment: environment.into_iter().collect(),
            tree: run.tree.clone(),
            read: run.read.clone(),
            write: run.write.iter().cloned().chain([run.tree.clone(), tmp]).collect(),
            calls,
            user: own.map(|own| own.user),
            way_out,
            tmp: (self.level == Level::Full)
                .then_some(TmpLimits { bytes: run.limits.in_memory_bytes(), inodes: run.limits.inodes }),
            file_bytes: run.limits.disk_bytes,
            processes: run.limits.processes,
        }
    }

    fn command(
        &self,
        run: &SandboxCommand,
        spec: &InnerStageSpec,
        own: Option<&run_user::RunUser>,
    ) -> Result<ChildCommand, SandboxError> {
        let spec_json =
            serde_json::to_vec(spec).map_err(|error| SandboxError::Failed { why: error.to_string() })?;
        let mut command = match self.level {
            Level::Full => ChildCommand::new("bwrap")
                .args(bubblewrap::arguments(run, &self.own, self.names.path(), own.is_some()))
                .stdin(spec_json),
            Level::Basic => {
                ChildCommand::new(&self.own).arg(INNER_STAGE_COMMAND).current_dir(&run.tree).stdin(spec_json)
            }
            Level::None => {
                let bare = ChildCommand::new(&run.program).args(&run.args).current_dir(&run.tree);
                spec.environment.iter().fold(bare, |command, (name, value)| command.env(name, value))
            }
        };
        if let Some(own) = own {
            command = command.exclusive_user(own.user);
        }
        if let Some(tmp) = own.and_then(run_user::RunUser::tmp) {
            command = command.scratch(tmp);
        }
        if let Some(records) = self.records.as_ref().filter(|_| own.is_some()) {
            command = command.recorded_in(records.directory());
        }
        if self.level != Level::None {
            command = command.from_permanent_thread();
        }
        let SandboxLimits { time, memory_bytes, processes, output_bytes, .. } = run.limits;
        // Add 3 for bubblewrap's two processes and the forwarder.
        Ok(command
            .timeout(time)
            .memory_limit(memory_bytes)
            .process_limit(processes + 3)
            .output_limit(output_bytes))
    }

    fn build_outcome(
        &self,
        run: SandboxCommand,
        outputs: CapturedOutputs,
        ended: Result<crate::proc::ChildOutput, ProcError>,
        outgrown: Option<CommandExit>,
    ) -> Result<SandboxOutcome, SandboxError> {
        let failed = |why: String| SandboxError::Failed { why };
        let begun = self.level == Level::None || outputs.has_begun();
        let mut elapsed = run.limits.time;
        let end = match ended {
            Ok(output) if !begun => {
                let (why, missing) = outputs.refusal_reason();
                return Err(match missing {
                    true => SandboxError::NotFound { program: run.program.to_string_lossy().into_owned() },
                    false if why.is_empty() => failed(format!("it ended with {:?}", output.status)),
                    false => failed(why),
                });
            }
            Ok(output) => {
                elapsed = output.elapsed;
                match (output.status, output.signal) {
                    (Some(code @ 129..=192), _) if self.level == Level::Full => {
                        CommandExit::Signal(code - 128)
                    }
                    (Some(code), _) => CommandExit::Exit(code),
                    (None, signal) => CommandExit::Signal(signal.unwrap_or(0)),
                }
            }
            Err(ProcError::TimedOut { elapsed: after }) => {
                elapsed = after;
                CommandExit::TimedOut
            }
            Err(ProcError::ResourceExhausted { .. }) => CommandExit::MemoryExceeded,
            Err(ProcError::TooMany { .. }) => CommandExit::TooManyProcesses,
            Err(ProcError::OutputTooLong { .. }) => CommandExit::OutputTooLong,
            Err(ProcError::Cancelled) => outgrown.ok_or(SandboxError::Cancelled)?,
            Err(ProcError::NotFound { program }) => match self.level {
                Level::None => return Err(SandboxError::NotFound { program }),
                _ => return Err(failed(format!("`{program}` was not found"))),
            },
            Err(error) => return Err(failed(error.to_string())),
        };
        let (stdout, stderr) = outputs.into_outputs();
        Ok(SandboxOutcome { end, stdout, stderr, elapsed })
    }
}

/// Whether `path` is the root directory or contains the server's home directory, so that access to `path` would expose
/// our files.
fn contains_home(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    real.parent().is_none() || home.is_some_and(|home| home.starts_with(&real))
}

/// Minimum number of bytes kept of each output, so that the messages of the inner stage fit.
const LEAST_KEPT: usize = 4096;

/// Timeout of the trial run of a level, which normally takes milliseconds.
const TRIAL: Duration = Duration::from_secs(20);
