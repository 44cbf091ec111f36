//! External programs through which we call models. This module finds a program, reads its version and confines it. Each
//! program's back end handles prompts and responses.
//!
//! A program may act on its own, through tools, hooks, plugins or a bug. In any case it can read only its installation
//! and its configuration. It can write only to its configuration and to a directory made for one call. It sees no other
//! files of ours.

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

/// Directories to which installers write programs, searched after `PATH`. Relative directories are below the home
/// directory.
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

/// Placeholder API key sent to a fake API on loopback, which must not receive a real key.
pub(super) const LOOPBACK_KEY: &str = "loopback";

pub(super) struct ProgramKind {
    /// Name of the program in messages.
    pub(super) title: &'static str,
    /// Name of the executable file, and of the program's table under `[providers]`.
    pub(super) name: &'static str,
    pub(super) install: &'static str,
    /// Versions this release was tested with.
    pub(super) tried: &'static [&'static str],
}

pub(super) struct ModelProgram {
    kind: &'static ProgramKind,
    pub(super) settings: ProgramSettings,
    /// Files of the bot, which the program must not read.
    ours: Vec<PathBuf>,
    /// Probe result of each file: the version, or the reason why the program does not work. A changed file is probed
    /// again.
    probed: Mutex<HashMap<FileState, Result<String, String>>>,
}

/// Identifies the state of a file: its path with symlinks resolved, and its modification time.
type FileState = (PathBuf, Option<SystemTime>);

/// A program that was found and whose version was read.
#[derive(Debug, Clone)]
pub(super) struct InstalledProgram {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

impl ModelProgram {
    pub(super) fn new(kind: &'static ProgramKind, settings: ProgramSettings, ours: Vec<PathBuf>) -> Self {
        Self { kind, settings, ours, probed: Mutex::default() }
    }

    /// Returns the reason why the program cannot be run at present, and how to fix it. A file that has not been probed
    /// yet is assumed to work.
    pub(super) fn missing_requirement(&self) -> Option<String> {
        let files = self.candidate_files();
        let mut failures = Vec::new();
        for file in &files {
            match self.known_version(file) {
                Some(Err(why)) => failures.push(why),
                Some(Ok(_)) | None => return self.exposure_reason(file),
            }
        }
        Some(self.install_hint(&failures))
    }

    /// Returns the first installed program that works.
    pub(super) async fn find(&self, cancel: &CancellationToken) -> Result<InstalledProgram, String> {
        let mut failures = Vec::new();
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
                        // Not remembered: the failure may be due to a busy machine.
                        Err(error) => {
                            failures.push(error.to_string());
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
                Err(why) => failures.push(why),
            }
        }
        Err(self.install_hint(&failures))
    }

    /// Returns a description for the operator. The error says how to fix the problem.
    pub(super) async fn describe(&self) -> Result<String, String> {
        let InstalledProgram { path, version } = self.find(&CancellationToken::new()).await?;
        let tried = self.kind.tried;
        let version_note = match tried.contains(&version.as_str()) {
            true => String::new(),
            false => format!(", which this release was not tested with (it was with {})", tried.join(", ")),
        };
        let confinement_note = match check_confinement() {
            Ok(()) => String::new(),
            Err(why) => format!("; it may read every file the server may ({why})"),
        };
        Ok(format!("{version} at {}{version_note}{confinement_note}", path.display()))
    }

    /// Creates the configuration directory if needed, and an empty home directory for one call. The home directory is
    /// removed when the returned value is dropped.
    pub(super) fn prepare_home(&self) -> Result<tempfile::TempDir, String> {
        use std::os::unix::fs::DirBuilderExt;
        let place = &self.settings.config_dir;
        let prefix = format!("countersign-{}-", self.kind.name);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(place);
        // The home may hold the prompt.
        let made = made.and_then(|()| proc::private_dir(&prefix, &std::env::temp_dir()));
        made.map_err(|error| {
            format!(
                "could not create a working directory or the configuration directory ({}): {error}",
                place.display()
            )
        })
    }

    /// Builds the command that runs the program at `path` confined, with `home` as its home directory.
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

    /// Returns the ports to which the program may connect: those of the model's API, the proxy, and name servers.
    fn allowed_ports(&self) -> Vec<u16> {
        let api = self.settings.base_url.as_ref().and_then(url::Url::port_or_known_default);
        [Some(api.unwrap_or(443)), proc::proxy_port(), Some(53)].into_iter().flatten().collect()
    }

    /// Builds the command with which a person logs in at a terminal. The command runs unconfined, with `home` as its
    /// home directory.
    pub(super) async fn terminal_command(&self, home: &Path) -> Result<proc::ChildCommand, String> {
        let found = self.find(&CancellationToken::new()).await?;
        let command = proc::ChildCommand::new(&found.path).with_proxy_environment();
        Ok(command.env("PATH", path_with_own_directory(&found.path)).current_dir(home))
    }

    /// Classifies a failed run of the program. `begun` is true if a model had started to answer.
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

    fn install_hint(&self, failures: &[String]) -> String {
        let ProgramKind { title, name, install, .. } = self.kind;
        let why = match failures {
            [] => format!("{title} was not found"),
            _ => format!("{title} does not work ({})", failures.join("; ")),
        };
        format!("{why}; install it ({install}) or set path under [providers.{name}]")
    }

    /// Returns the candidate files for the program, best first. If the settings name a path, only that file is a
    /// candidate. Otherwise, the files in `PATH` and in the usual install directories are.
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

    /// Returns the reason why the program at `path` could read our files, and how to fix it.
    fn exposure_reason(&self, path: &Path) -> Option<String> {
        let ProgramKind { title, name, .. } = self.kind;
        if let Err(why) = check_confinement() {
            return (!self.settings.allow_unconfined).then(|| {
                format!(
                    "{title} is not run, because this machine can't stop it from reading the server's keys ({why}); \
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
            Some(format!(
                "{title} could read {own}, because it may read all of {within}; move {own} elsewhere"
            ))
        })
    }
}

/// Parses the version from the output. The error quotes the output, because npm, if install scripts are disabled,
/// installs a stub that only prints an error.
fn parse_version(path: &Path, output: &ChildOutput) -> Result<String, String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match printed.split_whitespace().next().filter(|word| is_version(word)) {
        Some(version) if output.success() => Ok(version.to_owned()),
        _ => {
            let printed = quote_text(&(printed + &output.stderr_text()));
            Err(format!("{} printed no version but {printed:?}", path.display()))
        }
    }
}

/// Resolves symlinks in the part of `path` that exists.
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

/// Expands a path pattern with at most one `*`, which matches a directory name. The newest version comes first.
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

/// Returns the files that the program at `path` needs: its own file, or the whole `node_modules` around it, because
/// packages use each other. A script also needs its interpreter.
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

/// Returns the interpreter named in a script's first line.
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

/// Returns `PATH` with the program's own directory first, so that a script finds the Node.js version it was installed
/// with.
fn path_with_own_directory(path: &Path) -> std::ffi::OsString {
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let own = path.parent().map(Path::to_owned);
    std::env::join_paths(own.into_iter().chain(std::env::split_paths(&usual))).unwrap_or(usual)
}

fn is_version(word: &str) -> bool {
    // It is printed unchanged, so allow only safe characters.
    if word.len() > 40 || !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-+".contains(&byte)) {
        return false;
    }
    let numbers = word.split(['-', '+']).next().unwrap_or_default();
    numbers.split('.').count() == 3 && numbers.split('.').all(|part| part.parse::<u32>().is_ok())
}

/// Splits a call into the system prompt, which is passed as an argument or file, and the prompt for stdin. A system
/// prompt of more than `longest` bytes is moved into the prompt for stdin.
pub(super) fn split_prompt(call: &ModelCall, longest: usize) -> (String, String) {
    // An argument cannot hold a NUL.
    let system = call.system.replace('\0', "");
    let mut prompt = call.prompt.clone();
    // The program would treat a leading slash as its own command and answer without a model.
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
