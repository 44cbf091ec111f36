//! A commit's tests, run in the sandbox.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    panic::resume_unwind,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, Timespec, Timestamps, open, openat, utimensat};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{
    RUNNERS, ReportLocation, SuiteCommand, SuiteOutput, TestProject, TestReport, TestRunner, TestSuite,
    coverage,
    dependencies::{DependencyFetcher, DependencyState, FetchContext, FetchedDependencies, run_to_end},
    detect_project,
    generic::GenericSuite,
    overlay, sanitize_line,
    toolchains::{self, Toolchain},
};
use crate::{
    config::TestSettings,
    git::{GitError, SkippedPath, Snapshot},
    proc::{self, ChildCommand},
    sandbox::{self, Level, Sandbox, SandboxCommand, SandboxError, SandboxLimits},
};

/// All programs of one run together.
const TIME: Duration = Duration::from_secs(20 * 60);

/// However little is left, a program gets this.
const LEAST: Duration = Duration::from_secs(1);

/// What is read of all reports of a program and of what it printed, together; more than that no suite of fifty thousand tests
/// writes.
const REPORT_BYTES: u64 = 64_000_000;

/// What is to be run.
#[derive(Debug, Clone, Default)]
pub struct TestRequest {
    pub settings: TestSettings,
    /// The files the work is about; the nearest project is tested.
    pub at_hand: Vec<String>,
    /// One test, by its id.
    pub only: Option<String>,
    /// Test files, from the root, where the runner can be told of files; all tests where it cannot, or where there are none.
    pub targets: Vec<String>,
    /// What lies over the commit's files, by path from the root; none where a file is removed.
    pub overlay: Vec<(String, Option<Vec<u8>>)>,
    /// Which lines run is wanted as well, where it can be told. Measuring is a run of its own: it may disturb one.
    pub coverage: bool,
    /// How long all of it may take; the usual time, where it is not said. What is fetched before has a time of its own.
    pub time: Option<Duration>,
    /// Where what they depend on is fetched from; without it they get what this machine has.
    pub dependencies: Option<DependencyFetcher>,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct TestRun {
    pub runner: &'static str,
    /// The project's folder; empty for the root.
    pub folder: String,
    #[serde(flatten)]
    pub found: TestReport,
    /// Why dependencies were not fetched, where tests miss something.
    pub notes: Vec<String>,
    #[serde(skip)]
    pub left_out: Vec<SkippedPath>,
    pub seconds: f64,
}

/// Why no test was run.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error(
        "there is no Cargo.toml, go.mod, pyproject.toml, package.json or the like here; name a command under [test] in \
         .github/countersign.toml"
    )]
    NoRunner,
    #[error("{0}")]
    MissingPrerequisite(String),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("{path} cannot be laid over the commit's files: {source}")]
    Overlay { path: String, source: io::Error },
    #[error("the files of this run cannot be made: {0}")]
    Io(#[from] io::Error),
}

/// Runs the tests of a commit's project once, in directories of this run alone.
///
/// # Errors
///
/// When nothing could be run. Tests that fail are none.
pub async fn run_tests(
    sandbox: &Sandbox,
    snapshot: &Snapshot,
    asked: TestRequest,
    cancel: &CancellationToken,
) -> Result<TestRun, TestError> {
    TestWorkspace::new()?.run(sandbox, snapshot, asked, cancel).await
}

/// Where the tests of one commit run again and again. Each run has its files and its home anew; what compilers made of them
/// stays, so that only what differs is built.
pub struct TestWorkspace {
    scratch: TestDirectories,
    began: SystemTime,
    /// What lay over the commit's files in the last run, and since when: builders tell by its time whether a file changed.
    laid: HashMap<String, (Vec<u8>, SystemTime)>,
    used: bool,
}

impl TestWorkspace {
    /// # Errors
    ///
    /// When its directories cannot be made.
    pub fn new() -> io::Result<Self> {
        let began = SystemTime::now();
        Ok(Self { scratch: TestDirectories::new()?, began, laid: HashMap::new(), used: false })
    }

    /// As [`run_tests`].
    ///
    /// # Errors
    ///
    /// As those of [`run_tests`].
    pub async fn run(
        &mut self,
        sandbox: &Sandbox,
        snapshot: &Snapshot,
        asked: TestRequest,
        cancel: &CancellationToken,
    ) -> Result<TestRun, TestError> {
        if std::mem::replace(&mut self.used, true) {
            self.scratch.reset()?;
        }
        let report = asked.settings.report.clone();
        // A report that was committed would be of another run.
        let stale = |path: &str| report.as_deref().is_some_and(|report| Path::new(path).starts_with(report));
        let tree = &self.scratch.tree;
        let left_out = snapshot.check_out(tree, SandboxLimits::default().disk_bytes, stale).await?;
        for entry in snapshot.entries() {
            // One that was left out has no time.
            let _ =
                utimensat(CWD, tree.join(&entry.path), &timestamps(self.began), AtFlags::SYMLINK_NOFOLLOW);
        }
        let before = std::mem::take(&mut self.laid);
        // Where a file was, a folder may come.
        let (gone, new): (Vec<_>, Vec<_>) = asked.overlay.iter().partition(|(_, bytes)| bytes.is_none());
        for (path, bytes) in gone.into_iter().chain(new) {
            let same = before.get(path).filter(|(known, _)| Some(known) == bytes.as_ref());
            let since = same.map_or_else(SystemTime::now, |(_, since)| *since);
            overlay::write_overlay_file(tree, path, bytes.as_deref())
                .and_then(|()| match bytes {
                    Some(_) => {
                        Ok(utimensat(CWD, tree.join(path), &timestamps(since), AtFlags::SYMLINK_NOFOLLOW)?)
                    }
                    None => Ok(()),
                })
                .map_err(|source| TestError::Overlay {
                    path: format!("`{}`", sanitize_line(path)),
                    source,
                })?;
            self.laid.extend(bytes.as_ref().map(|bytes| (path.clone(), (bytes.clone(), since))));
        }
        run_suite(&self.scratch, sandbox, snapshot, asked, left_out, cancel).await
    }
}

/// That time, of a file.
fn timestamps(time: SystemTime) -> Timestamps {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() };
    Timestamps { last_access: time, last_modification: time }
}

/// Runs them where the files are.
async fn run_suite(
    scratch: &TestDirectories,
    sandbox: &Sandbox,
    snapshot: &Snapshot,
    asked: TestRequest,
    left_out: Vec<SkippedPath>,
    cancel: &CancellationToken,
) -> Result<TestRun, TestError> {
    let time = asked.time.unwrap_or(TIME);
    let place = FetchContext { sandbox, snapshot, cancel };
    let SelectedSuite { name, folder, mut suite, given } = choose_suite(&place, scratch, &asked).await?;
    let tools = &given.tools;
    let furnished =
        tools.iter().try_for_each(|tool| tool.link_into(&scratch.out.join("home"), &scratch.tree));
    furnished.map_err(|source| TestError::Overlay { path: "what the tests depend on".to_owned(), source })?;
    if scratch.fresh {
        scratch.copy_prebuilt(name, tools, cancel).await?;
    }
    let started = Instant::now();
    let mut found = TestReport::default();
    let mut next = Some(suite.begin().map_err(|why| TestError::MissingPrerequisite(sanitize_line(&why)))?);
    while let Some(call) = next.take() {
        if started.elapsed() >= time {
            found.add_trouble("the time for all tests together was over");
            break;
        }
        // None takes all that is left, so that one that hangs leaves time for the others.
        let limit = (time.saturating_sub(started.elapsed()) / 2).max(LEAST);
        let (came, whole) = scratch.run_command(sandbox, &call, tools, limit, cancel).await?;
        if !whole {
            found.add_trouble("the report is larger than 64 MB");
        }
        let read = move || {
            let next = suite.read_output(came, &mut found);
            (suite, found, next)
        };
        let read = tokio::task::spawn_blocking(read).await;
        (suite, found, next) = read.unwrap_or_else(|panic| resume_unwind(panic.into_panic()));
    }
    if sandbox.level() == Level::Basic {
        found.mark_loopback_failures();
    }
    found.finish();
    let mut notes = if found.may_lack_dependencies() { given.notes } else { Vec::new() };
    if !found.has_passed() {
        notes.extend(given.unreached);
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(TestRun { runner: name, folder, found, notes, left_out, seconds })
}

struct SelectedSuite {
    name: &'static str,
    folder: String,
    suite: Box<dyn TestSuite>,
    given: TestEnvironment,
}

/// What tests are run with.
#[derive(Default)]
struct TestEnvironment {
    tools: Vec<Toolchain>,
    /// Dependencies that were fetched, kept from being removed.
    held: Vec<FetchedDependencies>,
    /// As those of [`TestRun`].
    notes: Vec<String>,
    /// Toolchains that the command may want and cannot run.
    unreached: Vec<String>,
}

impl TestEnvironment {
    /// A toolchain of this machine, with what the project in that folder depends on.
    async fn add_toolchain(
        &mut self,
        place: &FetchContext<'_>,
        from: Option<&DependencyFetcher>,
        (runner, folder): (&TestRunner, &str),
        mut tool: Toolchain,
        command: bool,
    ) -> Result<(), TestError> {
        let mut all = Ok(());
        // A command does not know where what saves time is.
        for preset in runner.setup.iter().filter(|preset| !(command && preset.saves_time)) {
            let Some(from) = from else { break };
            match from.ensure(preset, place, (folder, &tool)).await {
                Ok(DependencyState::Available(made)) => {
                    (preset.install)(&made.path, &mut tool);
                    self.held.push(made);
                }
                Ok(DependencyState::Unavailable(note)) => self.notes.extend(note),
                Err(error) => {
                    all = Err(error);
                    break;
                }
            }
        }
        self.tools.push(tool);
        all
    }
}

/// What is not fetched in a run with these files changed, if there are manifests or lock files among them: nobody approved that
/// yet.
pub fn unfetched_note<'p>(changed: impl Iterator<Item = &'p str>) -> Option<String> {
    const NAMED: usize = 5;
    let reads =
        |path: &str| RUNNERS.iter().flat_map(|runner| runner.setup).any(|preset| (preset.is_manifest)(path));
    let named =
        changed.filter(|path| reads(path)).map(|path| format!("`{}`", sanitize_line(path).replace('`', "'")));
    let mut named: Vec<String> = named.collect();
    let (is, it) = if named.len() > 1 { ("are", "they") } else { ("is", "it") };
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = Some(named.join(", ")).filter(|named| !named.is_empty())?;
    Some(format!("{named}{more} {is} changed; what {it} may name anew is not fetched in this run"))
}

/// The command that the repository names, or the runner its files speak of.
async fn choose_suite(
    place: &FetchContext<'_>,
    scratch: &TestDirectories,
    asked: &TestRequest,
) -> Result<SelectedSuite, TestError> {
    let over = |path: &str| asked.overlay.iter().rev().find(|(known, _)| known == path);
    let theirs = place.snapshot.entries().iter().map(|entry| &entry.path).filter(|path| over(path).is_none());
    let ours = asked.overlay.iter().filter(|(path, _)| over(path).is_some_and(|(_, bytes)| bytes.is_some()));
    let paths: Vec<String> = theirs.chain(ours.map(|(path, _)| path)).cloned().collect();
    let (from, mut given) = (asked.dependencies.as_ref(), TestEnvironment::default());
    let mut project = TestProject {
        root: scratch.tree.clone(),
        settings: asked.settings.clone(),
        only: asked.only.clone(),
        coverage: asked.coverage,
        time: asked.time.unwrap_or(TIME) / 2,
        reports: scratch.out.clone(),
        built: scratch.built.clone(),
        ..TestProject::default()
    };
    if project.settings.command.is_some() {
        // A machine's Java and Maven have their settings outside of what is theirs.
        given
            .tools
            .push(Toolchain { read: toolchains::java_config_files("/etc".as_ref()), ..Toolchain::default() });
        for runner in RUNNERS {
            // It is not known which it takes; what this machine lacks the command will say, and what was not fetched, too.
            let Ok(tool) = runner.probe.find(place.cancel).await else { continue };
            let there = runner.manifests.iter().any(|name| paths.iter().any(|path| path == name));
            if there
                && let Err(why) =
                    Box::pin(runner.probe.try_in_sandbox(place.sandbox, &tool, place.cancel)).await
            {
                given.unreached.push(why);
            }
            match given.add_toolchain(place, from.filter(|_| there), (runner, ""), tool, true).await {
                Err(TestError::MissingPrerequisite(why)) => given.notes.push(why),
                added => added?,
            }
        }
        let programs =
            given.tools.iter().filter_map(|tool| Some(tool.program.parent()?.display().to_string()));
        let path = programs.collect();
        let suite = Box::new(GenericSuite { project, path });
        return Ok(SelectedSuite { name: "command", folder: String::new(), suite, given });
    }
    let at_hand: Vec<&str> = asked.at_hand.iter().map(String::as_str).collect();
    let (runner, folder) = detect_project(&paths, &at_hand).ok_or(TestError::NoRunner)?;
    let below = |path: &String| match folder {
        "" => Some(path.clone()),
        folder => Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned()),
    };
    project.paths = paths.iter().filter_map(below).collect();
    // One that lies elsewhere is not of this project, and what it has of tests is not known here.
    let targets = asked.targets.iter().filter(|path| paths.contains(*path));
    project.targets = targets.map(below).collect::<Option<_>>().unwrap_or_default();
    let manifest = runner.manifests.iter().map(|name| format!("{folder}/{name}")).find_map(|path| {
        let path = path.trim_start_matches('/');
        paths.iter().find(|known| *known == path)
    });
    let manifest = manifest.map_or("", String::as_str);
    let bytes = match over(manifest) {
        Some((_, bytes)) => bytes.clone().map(Into::into),
        None => place.snapshot.read_path(manifest).await?,
    };
    project.manifest = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    project.root = if folder.is_empty() { scratch.tree.clone() } else { scratch.tree.join(folder) };
    folder.clone_into(&mut project.folder);
    let tool = runner.probe.find(place.cancel).await.map_err(TestError::MissingPrerequisite)?;
    let tried = Box::pin(runner.probe.try_in_sandbox(place.sandbox, &tool, place.cancel)).await;
    tried.map_err(|why| match place.cancel.is_cancelled() {
        true => TestError::Sandbox(SandboxError::Cancelled),
        false => TestError::MissingPrerequisite(why),
    })?;
    given.add_toolchain(place, from, (runner, folder), tool, false).await?;
    project.tool = given.tools[0].clone();
    Ok(SelectedSuite { name: runner.name, folder: folder.to_owned(), suite: (runner.suite)(project), given })
}

/// The directories of runs, gone with it.
struct TestDirectories {
    _all: sandbox::ScratchDirectory,
    tree: std::path::PathBuf,
    /// For reports, and the home of what runs.
    out: std::path::PathBuf,
    /// For what compilers make.
    built: std::path::PathBuf,
    /// Nothing ran here yet.
    fresh: bool,
}

impl TestDirectories {
    fn new() -> io::Result<Self> {
        let all = sandbox::ScratchDirectory::new()?;
        let [tree, out, built] = ["tree", "out", "built"].map(|name| all.path().join(name));
        let scratch = Self { _all: all, tree, out, built, fresh: true };
        std::fs::create_dir(&scratch.built)?;
        scratch.create_directories()?;
        Ok(scratch)
    }

    fn create_directories(&self) -> io::Result<()> {
        std::fs::create_dir(&self.tree)?;
        std::fs::create_dir_all(self.out.join("home"))
    }

    /// The next run has nothing of the last one but what was built: we never write there, whatever a run made of it.
    fn reset(&mut self) -> io::Result<()> {
        self.fresh = false;
        [&self.tree, &self.out].into_iter().try_for_each(|directory| proc::remove_all(directory))?;
        self.create_directories()
    }

    /// Copies what was made of the toolchains' own libraries: none of the repository's code had a part in it.
    async fn copy_prebuilt(
        &self,
        runner: &str,
        tools: &[Toolchain],
        cancel: &CancellationToken,
    ) -> Result<(), TestError> {
        for made in tools.iter().filter_map(|tool| tool.built.as_ref()) {
            let copy = self.built.join(runner);
            let mut copied = run_to_end(ChildCommand::new("cp").arg("-R").arg(made).arg(&copy), cancel).await;
            if copied.is_ok() {
                copied = run_to_end(ChildCommand::new("chmod").args(["-R", "u+w"]).arg(&copy), cancel).await;
            }
            match copied {
                Err(error) if cancel.is_cancelled() => return Err(error),
                // Half of it is none; it is built, as without.
                Err(_) => proc::remove_all(&copy)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// What came of it, and whether that is all of its report.
    async fn run_command(
        &self,
        sandbox: &Sandbox,
        call: &SuiteCommand,
        tools: &[Toolchain],
        time: Duration,
        cancel: &CancellationToken,
    ) -> Result<(SuiteOutput, bool), TestError> {
        let home = self.out.join("home");
        let stdout = self.out.join("stdout");
        let mut run = SandboxCommand::new("/bin/sh", &self.tree);
        // Reports are read whole, so they go into a file and not past the cap on what is kept of an output.
        let line = "cd \"$0\" && exec 3>\"$1\" && shift && exec \"$@\" >&3 3>&-";
        let folder = self.tree.join(&call.folder);
        run.args =
            ["-c".into(), line.into(), folder.into(), stdout.into(), call.program.clone().into()].into();
        run.args.extend(call.args.iter().map(Into::into));
        run.read = tools.iter().flat_map(|tool| tool.read.clone()).collect();
        run.write = vec![self.out.clone(), self.built.clone()];
        let always = [("HOME", home.as_os_str()), ("LANG", "C.UTF-8".as_ref())];
        run.environment = always.map(|(name, value)| (name.into(), value.to_owned())).into();
        let told = tools.iter().flat_map(|tool| &tool.environment);
        run.environment.extend(told.map(|(name, value)| (name.into(), value.into())));
        run.environment.extend(call.environment.iter().map(|(name, value)| (name.into(), value.into())));
        run.limits = SandboxLimits { time, ..SandboxLimits::default() };
        let ended = sandbox.run(run, cancel).await?;
        // One more than is read: who leaves none of it had more to say.
        let mut room = REPORT_BYTES + 1;
        let reports = match &call.report {
            None => Vec::new(),
            Some(ReportLocation::ReportsFile(name)) => read_within(&self.out, name, &mut room)?,
            Some(ReportLocation::TreePath(path)) => {
                read_within(&self.tree, &format!("{}/{path}", call.folder), &mut room)?
            }
        };
        let lines = read_within(&self.out, coverage::REPORT, &mut room)?.pop();
        let stdout = open_within(&self.out, "stdout")?.map(|file| read_text(file, &mut room)).transpose()?;
        let stdout = stdout.flatten().unwrap_or_default();
        Ok((SuiteOutput { end: ended.end, stdout, stderr: ended.stderr.text(), reports, lines }, room > 0))
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A file or folder that a run left below `root`, if it is there. What wrote it may have put links there to what it could
/// not read itself, so none is followed.
fn open_within(root: &Path, path: &str) -> io::Result<Option<OwnedFd>> {
    let mut at = open(root, READ, Mode::empty())?;
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match openat(&at, part, READ, Mode::empty()) {
            Ok(next) if part != ".." => at = next,
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The texts of a file, or of the files of a folder; none where there are none. What is read is taken off `room`.
fn read_within(root: &Path, path: &str, room: &mut u64) -> io::Result<Vec<String>> {
    let Some(at) = open_within(root, path)? else { return Ok(Vec::new()) };
    if let Some(text) = read_text(at.try_clone()?, room)? {
        return Ok(vec![text]);
    }
    let names = Dir::read_from(&at)?.flatten().map(|entry| entry.file_name().to_owned());
    let mut names: Vec<_> = names.filter(|name| name.to_bytes().ends_with(b".xml")).collect();
    names.sort();
    let mut texts = Vec::new();
    for name in names {
        if let Ok(file) = openat(&at, name.as_c_str(), READ, Mode::empty()) {
            texts.extend(read_text(file, room)?);
        }
        if *room == 0 {
            break;
        }
    }
    Ok(texts)
}

/// None of a folder, and of whatever else is no file.
fn read_text(file: OwnedFd, room: &mut u64) -> io::Result<Option<String>> {
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    *room -= file.take(*room).read_to_end(&mut bytes)? as u64;
    Ok(Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn sandbox() -> Sandbox {
        Sandbox::detect(Path::new("/bin/false"), Some(Level::None)).await.unwrap()
    }

    #[tokio::test]
    async fn what_tests_make_of_their_home_leads_us_nowhere() {
        let (scratch, outside) = (TestDirectories::new().unwrap(), tempfile::tempdir().unwrap());
        let tools = [Toolchain { home: vec![(".x/y/index", "/usr".into())], ..Toolchain::default() }];
        let home = scratch.out.join("home");
        tools[0].link_into(&home, &scratch.tree).unwrap();
        assert!(home.join(".x/y/index").is_symlink());
        std::fs::remove_dir_all(&home).unwrap();
        std::os::unix::fs::symlink(outside.path(), &home).unwrap();
        let call = SuiteCommand { program: "/bin/true".into(), ..SuiteCommand::default() };
        let time = Duration::from_secs(60);
        scratch.run_command(&sandbox().await, &call, &tools, time, &CancellationToken::new()).await.unwrap();
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "something was made outside");
    }

    #[tokio::test]
    async fn a_report_that_is_too_large_is_said_to_be() {
        let scratch = TestDirectories::new().unwrap();
        let line = "mkdir r && truncate -s 40M r/a.xml r/b.xml r/c.xml && rm \"$HOME/../stdout\" && \
                    mkdir \"$HOME/../stdout\" && echo x > \"$HOME/../stdout/a.xml\"";
        let args = ["-c", line].map(str::to_owned).into();
        let report = Some(ReportLocation::TreePath("r".to_owned()));
        let call = SuiteCommand { program: "/bin/sh".into(), args, report, ..SuiteCommand::default() };
        let time = Duration::from_secs(60);
        let (came, whole) =
            scratch.run_command(&sandbox().await, &call, &[], time, &CancellationToken::new()).await.unwrap();
        assert_eq!((came.end.success(), came.stdout.as_str(), whole), (true, "", false), "{}", came.stderr);
        assert_eq!(came.reports.iter().map(|text| text.len() as u64).sum::<u64>(), REPORT_BYTES + 1);
    }

    #[tokio::test]
    async fn what_only_saves_time_is_left_out_where_it_cannot_be_had() {
        let (scratch, cancel) = (TestDirectories::new().unwrap(), CancellationToken::new());
        let of = |made: &str| [Toolchain { built: Some(made.into()), ..Toolchain::default() }];
        scratch.copy_prebuilt("go", &of("/none/such"), &cancel).await.unwrap();
        assert!(!scratch.built.join("go").exists());
        cancel.cancel();
        let ended = scratch.copy_prebuilt("go", &of("/none/such"), &cancel).await;
        assert!(matches!(ended, Err(TestError::Sandbox(SandboxError::Cancelled))), "{ended:?}");
        let (sandbox, cancel) = (sandbox().await, CancellationToken::new());
        let root = tempfile::tempdir().unwrap();
        let snapshot = committed(root.path(), "echo module a > go.mod").await;
        let place = FetchContext { sandbox: &sandbox, snapshot: &snapshot, cancel: &cancel };
        let (repository, hosts) = ("a".to_owned(), crate::config::Hosts::default());
        // No directory can be made there.
        let cache = root.path().join("go.mod/cache");
        let from = DependencyFetcher { repository, cache, hosts, home: Some("/none/such".into()) };
        let [modules, library] = super::super::go::RUNNER.setup else { panic!() };
        let ready = from.ensure(library, &place, ("", &Toolchain::default())).await;
        assert!(matches!(ready, Ok(DependencyState::Unavailable(None))));
        assert!(library.saves_time && !modules.saves_time);
    }

    #[test]
    fn manifests_that_changed_are_one_note() {
        assert_eq!(unfetched_note(["src/lib.rs"].into_iter()), None);
        let one = "`a/Cargo.toml` is changed; what it may name anew is not fetched in this run";
        assert_eq!(unfetched_note(["a/Cargo.toml", "b.rs"].into_iter()).unwrap(), one);
        let many = unfetched_note(["go.mod"; 7].into_iter()).unwrap();
        assert!(many.ends_with(
            "`go.mod` and 2 more are changed; what they may name anew is not fetched in this run"
        ));
    }

    async fn committed(root: &Path, script: &str) -> Snapshot {
        let line = format!(
            "git init --quiet && {script} && git add -A && git -c user.name=A -c user.email=a@example.com commit --quiet \
             --allow-empty -m a"
        );
        let made = ChildCommand::new("sh").args(["-c", &line]).current_dir(root);
        assert!(made.run(&CancellationToken::new()).await.unwrap().success());
        crate::git::open_local(root, "HEAD").await.unwrap()
    }

    /// Builders go by the times of files: what is the same is as old as it was, whatever is undone in between.
    #[tokio::test]
    async fn runs_of_one_bench_share_what_was_built_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let snapshot = committed(root.path(), "echo a > old").await;
        let (sandbox, cancel) = (sandbox().await, CancellationToken::new());
        let mut bench = TestWorkspace::new().unwrap();
        for text in ["b", "b", "c", "b"] {
            let line = "test ! -e left && test ! -e \"$HOME/left\" && touch left \"$HOME/left\" && \
                        stat -c %.9Y old new | tr '\\n' ' ' >> ../built/times && cat new >> ../built/times";
            let settings = TestSettings::from_command(line);
            let overlay = vec![("new".to_owned(), Some(format!("{text}\n").into_bytes()))];
            let asked = TestRequest { settings, overlay, ..TestRequest::default() };
            let tested = bench.run(&sandbox, &snapshot, asked, &cancel).await.unwrap();
            assert!(tested.found.has_passed(), "{:?}", tested.found);
        }
        let times = std::fs::read_to_string(bench.scratch.built.join("times")).unwrap();
        let times: Vec<Vec<&str>> = times.lines().map(|line| line.split(' ').collect()).collect();
        assert!(times.iter().all(|line| line[0] == times[0][0]), "{times:?}");
        assert_eq!(times[0], times[1], "the same again");
        assert!(times[1][1] < times[2][1] && times[2][1] < times[3][1], "{times:?}");
    }

    #[tokio::test]
    async fn nothing_is_run_when_the_time_is_over() {
        let settings = TestSettings::from_command("true");
        let asked = TestRequest { settings, time: Some(Duration::ZERO), ..TestRequest::default() };
        let root = tempfile::tempdir().unwrap();
        let snapshot = committed(root.path(), "true").await;
        let tested = run_tests(&sandbox().await, &snapshot, asked, &CancellationToken::new()).await.unwrap();
        assert_eq!(tested.found.trouble, ["the time for all tests together was over"]);
        assert_eq!(tested.found.tests, []);
    }

    #[tokio::test]
    async fn what_lies_over_a_commit_is_what_is_tested() {
        let root = tempfile::tempdir().unwrap();
        let snapshot =
            committed(root.path(), "echo a > old && mkdir f && ln -s f away && echo { > package.json").await;
        let (sandbox, cancel) = (sandbox().await, CancellationToken::new());
        let over = |command: Option<&str>, path: &str, text: Option<&str>| {
            let settings = command.map(TestSettings::from_command).unwrap_or_default();
            let overlay = [(path, text), ("old", None)]
                .map(|(p, text)| (p.to_owned(), text.map(|t| t.as_bytes().into())));
            run_tests(
                &sandbox,
                &snapshot,
                TestRequest { settings, overlay: overlay.into(), ..TestRequest::default() },
                &cancel,
            )
        };
        let tested = over(Some("grep b new/x && ! test -e old"), "new/x", Some("b")).await.unwrap();
        assert!(tested.found.has_passed(), "{:?}", tested.found);
        let tested = over(Some("grep b old/x"), "old/x", Some("b")).await.unwrap();
        assert!(tested.found.has_passed(), "a file made room for a folder: {:?}", tested.found);
        assert!(matches!(over(Some("true"), "away/x", Some("b")).await, Err(TestError::Overlay { .. })));
        assert!(
            matches!(over(None, "package.json", None).await, Err(TestError::NoRunner)),
            "the manifest is gone"
        );
        assert!(matches!(
            over(None, "package.json", Some("[")).await,
            Err(TestError::MissingPrerequisite(_))
        ));
    }
}
