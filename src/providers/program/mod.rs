//! Programs of others that models are asked through: finding one, asking it once which version it is, and what of this
//! machine it may see. What it is asked and what it answers is its back end's business.
//!
//! Whatever a program does besides what it is told (tools, hooks, plugins, a bug), it reads its own installation and its
//! own configuration, writes there and in a directory made for one call, and sees nothing else of ours.

mod limit_messages;

use std::{
    collections::HashMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use tokio_util::sync::CancellationToken;

pub(super) use self::limit_messages::limit_kind;
use super::{CallErrorKind, ModelCall, quote_text};
use crate::{
    config::ProgramSettings,
    limits,
    proc::{self, ChildOutput, Confinement, ProcError, check_confinement},
    types::WorkerPool,
};

/// Where installers put programs, besides `PATH`; under the home directory where they don't begin with `/`.
const PLACES: &[&str] = &[
    ".nvm/versions/node/*/bin",
    "/usr/local/bin",
    ".npm/bin",
    ".npm-global/bin",
    ".local/bin",
    ".claude/local",
    ".opencode/bin",
    ".bun/bin",
    "/opt/homebrew/bin",
];

/// A loopback imitation of an API wants some key, and a real one has no business there.
pub(super) const LOOPBACK_KEY: &str = "loopback";

/// What sets one such program apart from another.
pub(super) struct ProgramKind {
    /// In messages.
    pub(super) title: &'static str,
    /// The name of its file, and of its table under `[providers]`.
    pub(super) name: &'static str,
    /// The command that installs it.
    pub(super) install: &'static str,
    /// The versions this release was tried with.
    pub(super) tried: &'static [&'static str],
}

pub(super) struct ModelProgram {
    kind: &'static ProgramKind,
    pub(super) settings: ProgramSettings,
    /// What is ours and none of its business.
    ours: Vec<PathBuf>,
    /// What each file that was tried is: its version, or why it is no use. Asked again when the file has changed.
    probed: Mutex<HashMap<FileState, Result<String, String>>>,
}

/// A file, its links followed, and when it was last changed.
type FileState = (PathBuf, Option<SystemTime>);

/// A program that answered for itself.
#[derive(Debug, Clone)]
pub(super) struct InstalledProgram {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

impl ModelProgram {
    pub(super) fn new(kind: &'static ProgramKind, settings: ProgramSettings, ours: Vec<PathBuf>) -> Self {
        Self { kind, settings, ours, probed: Mutex::default() }
    }

    /// Why it can't be run as things stand, with the fix. A file nobody has tried yet is taken for good.
    pub(super) fn missing_requirement(&self) -> Option<String> {
        let files = self.candidate_files();
        let mut ill = Vec::new();
        for file in &files {
            match self.known_version(file) {
                Some(Err(why)) => ill.push(why),
                Some(Ok(_)) | None => return self.exposure_reason(file),
            }
        }
        Some(self.install_hint(&ill))
    }

    /// The first that works of those that are there.
    pub(super) async fn find(&self, cancel: &CancellationToken) -> Result<InstalledProgram, String> {
        let mut ill = Vec::new();
        for path in self.candidate_files() {
            if let Some(why) = self.exposure_reason(&path) {
                return Err(why);
            }
            let outcome = match self.known_version(&path) {
                Some(outcome) => outcome,
                None => {
                    let home = self.prepare_home()?;
                    let command = self.command(&path, home.path()).arg("--version");
                    let output = match command.timeout(limits::VERSION_TIME).run(cancel).await {
                        Ok(output) => output,
                        // Not remembered: a busy machine is no illness.
                        Err(error) => {
                            ill.push(error.to_string());
                            continue;
                        }
                    };
                    let outcome = parse_version(&path, &output);
                    let mut probed = self.probed.lock().unwrap_or_else(PoisonError::into_inner);
                    probed.insert(file_state(&path), outcome.clone());
                    outcome
                }
            };
            match outcome {
                Ok(version) => return Ok(InstalledProgram { path, version }),
                Err(why) => ill.push(why),
            }
        }
        Err(self.install_hint(&ill))
    }

    /// For the operator: what was found, or what is to be done.
    pub(super) async fn describe(&self) -> Result<String, String> {
        let InstalledProgram { path, version } = self.find(&CancellationToken::new()).await?;
        let tried = self.kind.tried;
        let doubt = match tried.contains(&version.as_str()) {
            true => String::new(),
            false => format!(", which this release was not tried with (it was with {})", tried.join(", ")),
        };
        let loose = match check_confinement() {
            Ok(()) => String::new(),
            Err(why) => format!("; it may read every file the server may ({why})"),
        };
        Ok(format!("{version} at {}{doubt}{loose}", path.display()))
    }

    /// Its configuration directory, and an empty home for one call that goes when dropped.
    pub(super) fn prepare_home(&self) -> Result<tempfile::TempDir, String> {
        use std::os::unix::fs::DirBuilderExt;
        let place = &self.settings.config_dir;
        let prefix = format!("countersign-{}-", self.kind.name);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(place);
        // The prompt may lie in there.
        let made = made.and_then(|()| proc::private_dir(&prefix, &std::env::temp_dir()));
        made.map_err(|error| {
            format!(
                "no working directory or configuration directory ({}) could be made: {error}",
                place.display()
            )
        })
    }

    /// The program at `path`, to be run in `home` and nowhere else.
    pub(super) fn command(&self, path: &Path, home: &Path) -> proc::ChildCommand {
        let mut command = proc::ChildCommand::new(path)
            .with_proxy_environment()
            .env("HOME", home)
            .env("TMPDIR", home)
            .env("PATH", path_with_own_directory(path))
            .current_dir(home)
            .scratch(home);
        if check_confinement().is_ok() || !self.settings.allow_unconfined {
            let write = vec![home.to_owned(), self.settings.config_dir.clone()];
            let ports = self.allowed_ports();
            command = command.confined(Confinement {
                read: installation(path),
                write,
                ports,
                calls: proc::SyscallPolicy::Program,
            });
        }
        command
    }

    /// Where a model is: the port of its API, that of the proxy on the way, and that of name servers.
    fn allowed_ports(&self) -> Vec<u16> {
        let api = self.settings.base_url.as_ref().and_then(url::Url::port_or_known_default);
        [Some(api.unwrap_or(443)), proc::proxy_port(), Some(53)].into_iter().flatten().collect()
    }

    /// The program as its user runs it, at a terminal and with nothing held back, in `home`; for logging in.
    pub(super) async fn terminal_command(&self, home: &Path) -> Result<proc::ChildCommand, String> {
        let found = self.find(&CancellationToken::new()).await?;
        let command = proc::ChildCommand::new(&found.path).with_proxy_environment();
        Ok(command.env("PATH", path_with_own_directory(&found.path)).current_dir(home))
    }

    /// As [`CallErrorKind`] has it: why there is no output to judge. `begun`: a model had begun to answer.
    pub(super) fn classify_error(
        &self,
        error: &ProcError,
        pool: WorkerPool,
        begun: bool,
    ) -> (CallErrorKind, String) {
        let kind = match error {
            ProcError::TimedOut { elapsed } => CallErrorKind::Timeout { idle: begun, elapsed: *elapsed },
            ProcError::Cancelled => CallErrorKind::Cancelled,
            ProcError::OutputTooLong { .. } => CallErrorKind::InvalidOutput,
            ProcError::ResourceExhausted { limit, used } => {
                CallErrorKind::ResourceExhausted { used: *used, limit: *limit, pool }
            }
            ProcError::NotFound { .. }
            | ProcError::NotConfined { .. }
            | ProcError::TooMany { .. }
            | ProcError::Io { .. } => CallErrorKind::Unavailable,
        };
        (kind, format!("{}: {error}", self.kind.name))
    }

    fn install_hint(&self, ill: &[String]) -> String {
        let ProgramKind { title, name, install, .. } = self.kind;
        let why = match ill {
            [] => format!("{title} was not found"),
            _ => format!("{title} does not work ({})", ill.join("; ")),
        };
        format!("{why}; install it ({install}) or set path under [providers.{name}]")
    }

    /// The files that may be it, the best first: as set, else from `PATH`, else where installers put it.
    fn candidate_files(&self) -> Vec<PathBuf> {
        if let Some(path) = &self.settings.path
            && path.components().count() > 1
        {
            return Some(path.clone()).filter(|path| path.is_file()).into_iter().collect();
        }
        let name = self.settings.path.as_deref().unwrap_or(Path::new(self.kind.name));
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let in_path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&in_path).filter(|directory| directory.is_absolute());
        let directories = in_path.chain(PLACES.iter().flat_map(|place| expand_pattern(&home.join(place))));
        let mut files = Vec::new();
        for file in directories.map(|directory| directory.join(name)) {
            if file.is_file() && !files.contains(&file) {
                files.push(file);
            }
        }
        files
    }

    fn known_version(&self, path: &Path) -> Option<Result<String, String>> {
        self.probed.lock().unwrap_or_else(PoisonError::into_inner).get(&file_state(path)).cloned()
    }

    /// Why running the program at `path` would show it what is ours, with the fix.
    fn exposure_reason(&self, path: &Path) -> Option<String> {
        let ProgramKind { title, name, .. } = self.kind;
        if let Err(why) = check_confinement() {
            return (!self.settings.allow_unconfined).then(|| {
                format!(
                    "{title} is not run, because this machine can't keep it from reading the server's keys ({why}); \
                     use another machine, or accept it with allow_unconfined = true under [providers.{name}]"
                )
            });
        }
        let mut open = installation(path);
        open.push(self.settings.config_dir.clone());
        open.extend(proc::SYSTEM_PATHS.iter().map(PathBuf::from));
        let open: Vec<_> = open.iter().map(|place| resolve_links(place)).collect();
        self.ours.iter().find_map(|own| {
            let lies = resolve_links(own);
            let within = open.iter().find(|place| lies.starts_with(place))?;
            let (own, within) = (own.display(), within.display());
            Some(format!("{title} could read {own}, for it may read all of {within}; move {own} elsewhere"))
        })
    }
}

/// The version it says it is. What npm leaves where it may run no scripts is a file that only complains.
fn parse_version(path: &Path, output: &ChildOutput) -> Result<String, String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match said.split_whitespace().next().filter(|word| is_version(word)) {
        Some(version) if output.success() => Ok(version.to_owned()),
        _ => {
            let said = quote_text(&(said + &output.stderr_text()));
            Err(format!("{} says no version but {said:?}", path.display()))
        }
    }
}

/// `path` with its links followed, as far as it exists.
fn resolve_links(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolve_links(parent).join(name),
        _ => path.to_owned(),
    }
}

fn file_state(path: &Path) -> FileState {
    (resolve_links(path), path.metadata().and_then(|found| found.modified()).ok())
}

/// The directories that a pattern with at most one `*` for a name stands for, the newest version first.
fn expand_pattern(pattern: &Path) -> Vec<PathBuf> {
    let mut parts = pattern.iter();
    let before: PathBuf = parts.by_ref().take_while(|part| *part != "*").collect();
    let after: PathBuf = parts.collect();
    if before == pattern {
        return vec![before];
    }
    let mut found: Vec<_> =
        fs::read_dir(before).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let numbers = |path: &PathBuf| -> Vec<u64> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    found.sort_by_key(|path| std::cmp::Reverse(numbers(path)));
    found.into_iter().map(|path| path.join(&after)).collect()
}

/// What there is on disk of the program at `path`: its file or, where npm put it, all packages beside it, for they use
/// one another; and the program that reads it, if it is a script.
fn installation(path: &Path) -> Vec<PathBuf> {
    let file = resolve_links(path);
    let packages = file.ancestors().filter(|place| place.ends_with("node_modules")).last();
    let mut all = vec![packages.unwrap_or(&file).to_owned()];
    if let Some(beside) = file.parent().map(|directory| directory.join("node_modules"))
        && packages.is_none()
        && beside.is_dir()
    {
        all.push(beside);
    }
    all.extend(interpreter(path).map(|program| resolve_links(&program)));
    all
}

/// What the first line of a script names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut start = [0; 256];
    let length = fs::File::open(script).and_then(|mut file| file.read(&mut start)).ok()?;
    let line = start[..length].strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let program = PathBuf::from(words.next()?);
    if !program.ends_with("env") {
        return Some(program);
    }
    let name = words.find(|word| !word.starts_with('-'))?;
    std::env::split_paths(&path_with_own_directory(script))
        .map(|place| place.join(name))
        .find(|file| file.is_file())
}

/// `PATH`, and before it where the program itself is: its node is the one it was installed with.
fn path_with_own_directory(path: &Path) -> std::ffi::OsString {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let own = path.parent().map(Path::to_owned);
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&usual))).unwrap_or(usual)
}

fn is_version(word: &str) -> bool {
    // It is printed as it is.
    if word.len() > 40 || !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte)) {
        return false;
    }
    let numbers = word.split(['-', '+']).next().unwrap_or_default();
    numbers.split('.').count() == 3 && numbers.split('.').all(|part| part.parse::<u32>().is_ok())
}

/// The system prompt as an argument or a file, and the rest for standard input. `longest`: what fits there, in bytes.
pub(super) fn split_prompt(call: &ModelCall, longest: usize) -> (String, String) {
    // No argument may hold a NUL, and no prompt needs one.
    let system = call.system.replace('\0', "");
    let mut prompt = call.prompt.clone();
    // A leading slash would be a command of the program's own, answered without any model.
    if prompt.trim_start().starts_with('/') {
        prompt.insert_str(0, "The request:\n\n");
    }
    if system.len() > longest {
        return ("Follow the instructions that come first.".into(), format!("{system}\n\n{prompt}"));
    }
    (system, prompt)
}

#[cfg(test)]
mod tests;
