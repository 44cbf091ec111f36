//! Running what nobody vouches for: a repository's tests, the builds before them, and whatever these start.
//!
//! A command gets its work tree, what it was given to read, the environment it was given, and nothing else of this machine.
//! However it ends, nothing that it started stays behind. Two levels:
//!
//! - *full*: bubblewrap makes namespaces of its own for it (mounts, processes, network, users), and inside our own program
//!   sets limits, takes on Landlock and a filter of system calls, and becomes the command;
//! - *basic*, where no namespace can be made: the same without bubblewrap and without any socket. Landlock does not know
//!   `chmod`, `chown` and the like, nor sockets in the file system: that another user may not touch what is ours is what holds
//!   these. So there is no basic level for a server that can't change its user.
//!
//! Under a server that is root a run has a user of its own, in both levels: the kernel sets no limit to how many processes
//! root is, in whatever namespace. What is worked on is a directory of this run alone, and belongs to that user meanwhile.

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
    output::TruncatedOutput,
    proxy::{FETCHED_BYTES, SandboxProxy},
    run_user::ScratchDirectory,
};
use self::{
    inner_stage::{InnerStageSpec, TmpLimits},
    output::CapturedOutputs,
};
pub use crate::config::SandboxLevel as Level;
use crate::proc::{ChildCommand, ProcError, SyscallPolicy, check_confinement};

/// What this machine has, found once.
#[derive(Debug, Clone)]
pub struct Sandbox {
    level: Level,
    /// Why it is no better; empty in the full level.
    lacks: Vec<String>,
    /// Our own program.
    own: PathBuf,
    /// A list of users and groups that has nobody of this machine in it.
    names: Arc<ScratchDirectory>,
    /// Of runs that have a user of their own: what else they start ends with bubblewrap.
    records: Option<Arc<run_user::RecordsDirectory>>,
    /// Programs that ran inside before, so that they need not be tried again.
    has_run: Arc<Mutex<BTreeSet<PathBuf>>>,
    time: SandboxSeconds,
}

/// Seconds that commands ran, by how they ended.
pub type SandboxSeconds = Family<[(&'static str, &'static str); 1], Counter<f64, AtomicU64>>;

/// One command to run.
#[derive(Debug, Clone)]
pub struct SandboxCommand {
    /// A path, or a name looked up in the `PATH` of `environment`.
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Where it works, read and written; a directory of this run alone, by its real path.
    pub tree: PathBuf,
    /// Files and directories to read besides the system's own: toolchains, caches. What is not there is left out.
    pub read: Vec<PathBuf>,
    /// Directories to write besides the tree, for this run alone, too.
    pub write: Vec<PathBuf>,
    /// All of its environment. `PATH`, `HOME` and `TMPDIR` are added where they are missing.
    pub environment: BTreeMap<OsString, OsString>,
    pub limits: SandboxLimits,
    pub network: NetworkAccess,
}

impl SandboxCommand {
    /// That command in that tree, with nothing more to read or write, under the usual limits.
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

/// What a run may take.
#[derive(Debug, Clone, Copy)]
pub struct SandboxLimits {
    pub time: Duration,
    /// Of all its processes together.
    pub memory_bytes: u64,
    pub processes: u64,
    /// What its directories may grow by; those that are kept in memory hold no more than a quarter of the memory.
    pub disk_bytes: u64,
    /// The same, counted in files.
    pub inodes: u64,
    /// Of both outputs together.
    pub output_bytes: usize,
    /// Of each output's beginning, and again of its end.
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
    /// Bytes that each of the two directories kept in memory (`/tmp`, `/dev/shm`) may hold: what lies there is in no process's
    /// account.
    fn in_memory_bytes(&self) -> u64 {
        self.disk_bytes.min(self.memory_bytes / 4)
    }
}

/// Whom a run may speak to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkAccess {
    /// Nobody: it has no sockets.
    None,
    /// Itself, by addresses of its own. In the basic level there is no such thing, and it is as `None`.
    #[default]
    Loopback,
    /// Itself, and whom the [`SandboxProxy`] at this socket lets it speak to; only in the full level.
    Proxy(PathBuf),
}

/// A run that was begun and is over.
#[derive(Debug, Clone)]
pub struct SandboxOutcome {
    pub end: CommandExit,
    pub stdout: TruncatedOutput,
    pub stderr: TruncatedOutput,
    pub elapsed: Duration,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandExit {
    Exit(i32),
    /// By a signal; or by an exit code that says so, as shells do it.
    Signal(i32),
    TimedOut,
    MemoryExceeded,
    TooManyProcesses,
    /// Too many bytes, or too many files.
    DiskExceeded,
    OutputTooLong,
}

impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "it ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal} ended it"),
            Self::TimedOut => f.write_str("it took longer than it may"),
            Self::MemoryExceeded => f.write_str("it took more memory than it may"),
            Self::TooManyProcesses => f.write_str("it started more processes than it may"),
            Self::DiskExceeded => f.write_str("it wrote more bytes or files than it may"),
            Self::OutputTooLong => f.write_str("it printed more than it may"),
        }
    }
}

impl CommandExit {
    /// Its name without what it says of this one run.
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

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error(
        "nothing can be run apart from the rest of this machine ({})",
        why.join("; ")
    )]
    Unavailable { why: Vec<String> },
    #[error("the {} level of the sandbox does not work here: {}", level.as_str(), why.join("; "))]
    NotThatLevel { level: Level, why: Vec<String> },
    #[error("`{program}` was not found inside the sandbox")]
    NotFound { program: String },
    #[error("the sandbox could not be made: {why}")]
    Failed { why: String },
    #[error("the run was cancelled")]
    Cancelled,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Sandbox {
    /// The best level that works here, each tried out with the program `own`, which is ours; or `wanted` and no other. `None` as
    /// level is taken only if it is wanted, and then only where there is nothing better.
    pub async fn detect(own: &Path, wanted: Option<Level>) -> Result<Self, SandboxError> {
        let names = run_user::create_user_lists()
            .map_err(|source| SandboxError::Io { path: std::env::temp_dir(), source })?;
        // Where there can be none, there can be no user of a run either, and the trial says so.
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

    /// The same, and the time that commands take is counted here.
    pub fn with_time_metric(self, time: SandboxSeconds) -> Self {
        Self { time, ..self }
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Why the level is no better, and what would help.
    pub fn missing_features(&self) -> &[String] {
        &self.lacks
    }

    /// Whether [`remember_run`](Self::remember_run) was called for that program.
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
            Ok(ended) => Err(format!("a trial of it ended with {:?}", ended.end)),
            Err(SandboxError::Failed { why }) if self.level == Level::Full => Err(bubblewrap::remedy(&why)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Runs a command to its end, or to the end of one of its limits.
    ///
    /// # Errors
    ///
    /// When it was not begun, or was cancelled.
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
            let why = "only the full level of the sandbox has a way out".to_owned();
            return Err(SandboxError::Failed { why });
        }
        if let Some(path) = run.read.iter().find(|path| contains_home(path)) {
            let why =
                format!("{} may not be read inside: it is, or holds, the server's home", path.display());
            return Err(SandboxError::Failed { why });
        }
        let is_root = rustix::process::geteuid().is_root();
        let of_the_system = |place: &&PathBuf| is_root && run_user::is_system_directory(place);
        if let Some(path) = run.write.iter().chain([&run.tree]).find(of_the_system) {
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
            // What was run has ended all the same, and how is to be told.
            tracing::warn!(tree = %run.tree.display(), %error, "files of a command are not ours again");
        }
        let judged = self.build_outcome(run, outputs, ended, outgrown)?;
        let seconds = self.time.get_or_create(&[("end", judged.end.name())]);
        seconds.inc_by(judged.elapsed.as_secs_f64());
        Ok(judged)
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
        let told =
            serde_json::to_vec(spec).map_err(|error| SandboxError::Failed { why: error.to_string() })?;
        let mut command = match self.level {
            Level::Full => ChildCommand::new("bwrap")
                .args(bubblewrap::arguments(run, &self.own, self.names.path(), own.is_some()))
                .stdin(told),
            Level::Basic => {
                ChildCommand::new(&self.own).arg(INNER_STAGE_COMMAND).current_dir(&run.tree).stdin(told)
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
        // Bubblewrap's own two are none of the command's, nor is what leads to the way out.
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

/// Nothing is kept from a command that is given all of this.
fn contains_home(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    real.parent().is_none() || home.is_some_and(|home| home.starts_with(&real))
}

/// Of each output so much is kept in any case: what the inner stage says is among it.
const LEAST_KEPT: usize = 4096;

/// A trial of a level: some milliseconds, unless the machine is very busy.
const TRIAL: Duration = Duration::from_secs(20);
