//! Runs a commit's tests in the sandbox.

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
    error_summary,
    generic::GenericSuite,
    node, node_packages, overlay,
    projects::{self, Project},
    pytest,
    python_environment::PythonEnvironment,
    sanitize_line,
    toolchains::{self, Toolchain},
};
use crate::{
    config::TestSettings,
    git::{GitError, SkippedPath, Snapshot},
    proc::{self, ChildCommand},
    sandbox::{self, Level, Sandbox, SandboxCommand, SandboxError, SandboxLimits},
};

/// Total time limit of all programs in one run.
const TIME: Duration = Duration::from_secs(20 * 60);

/// Minimum time limit of one program, used even if less of the run's time remains.
const LEAST: Duration = Duration::from_secs(1);

/// Maximum total bytes read from the output and all reports of one program. A suite of 50,000 tests writes less.
const REPORT_BYTES: u64 = 64_000_000;

/// Options of a test run.
#[derive(Debug, Clone, Default)]
pub struct TestRequest {
    pub settings: TestSettings,
    /// The project to test. With `None`, the project nearest to the files `at_hand` is tested.
    pub project: Option<Project>,
    /// Files that the change affects.
    pub at_hand: Vec<String>,
    /// Id of the test to run, if only one test is requested.
    pub only: Option<String>,
    /// Test files to run, relative to the repository's root. If the list is empty or the runner cannot select files,
    /// all tests run.
    pub targets: Vec<String>,
    /// Files to write over the commit, by path from the repository's root. `None` removes a file.
    pub overlay: Vec<(String, Option<Vec<u8>>)>,
    /// Whether line coverage is measured, if the runner supports it. Measuring needs a separate run, because it may
    /// disturb the tests.
    pub coverage: bool,
    /// Time limit of the run. `None` for the default limit. Fetching dependencies has a limit of its own.
    pub time: Option<Duration>,
    /// Fetcher for dependencies. With `None`, tests can use only dependencies installed on this machine.
    pub dependencies: Option<DependencyFetcher>,
}

/// Result of a test run.
#[derive(Debug, Serialize)]
pub struct TestRun {
    pub runner: &'static str,
    /// Folder of the project, relative to the repository's root. Empty for the root itself.
    pub folder: String,
    #[serde(flatten)]
    pub found: TestReport,
    /// Parts of the test command that were not run, what of the project's dependencies was not read or left out, and why
    /// the project was not installed. Reasons why dependencies were not fetched, if missing dependencies could explain a
    /// failure. If the tests did not pass, also reasons why toolchains do not work in the sandbox.
    pub notes: Vec<String>,
    /// Other projects of the repository that have tests. Empty if only some tests were requested, or an overlay.
    pub not_run: Vec<Project>,
    #[serde(skip)]
    pub left_out: Vec<SkippedPath>,
    pub seconds: f64,
}

/// Reason why the tests could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    #[error(
        "found no Cargo.toml, go.mod, pyproject.toml, package.json or the like; set a command under [test] in \
         .github/countersign.toml"
    )]
    NoRunner,
    #[error("{0}")]
    MissingPrerequisite(String),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("cannot write {path} over the commit's files: {source}")]
    Overlay { path: String, source: io::Error },
    #[error("cannot create the files of this run: {0}")]
    Io(#[from] io::Error),
}

/// Runs the tests of a commit's project once, in fresh directories.
///
/// # Errors
///
/// Returns an error if no test could be run. Failing tests are not an error.
pub async fn run_tests(
    sandbox: &Sandbox,
    snapshot: &Snapshot,
    request: TestRequest,
    cancel: &CancellationToken,
) -> Result<TestRun, TestError> {
    TestWorkspace::new()?.run(sandbox, snapshot, request, cancel).await
}

/// Workspace for repeated runs of one commit's tests. Each run gets fresh files and a fresh home directory. Build
/// output is kept, so that only changes are rebuilt.
pub struct TestWorkspace {
    scratch: TestDirectories,
    began: SystemTime,
    /// Overlay files of the last run, each with its modification time. Build tools detect changes by the modification
    /// time.
    overlaid: HashMap<String, (Vec<u8>, SystemTime)>,
    used: bool,
}

impl TestWorkspace {
    /// Creates a workspace.
    ///
    /// # Errors
    ///
    /// Returns an error if its directories cannot be created.
    pub fn new() -> io::Result<Self> {
        let began = SystemTime::now();
        Ok(Self { scratch: TestDirectories::new()?, began, overlaid: HashMap::new(), used: false })
    }

    /// Runs the tests once, like [`run_tests`], but keeps the build output for later runs.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`run_tests`].
    pub async fn run(
        &mut self,
        sandbox: &Sandbox,
        snapshot: &Snapshot,
        request: TestRequest,
        cancel: &CancellationToken,
    ) -> Result<TestRun, TestError> {
        if std::mem::replace(&mut self.used, true) {
            self.scratch.reset()?;
        }
        let report = request.settings.report.clone();
        // A committed report would belong to another run.
        let stale = |path: &str| report.as_deref().is_some_and(|report| Path::new(path).starts_with(report));
        let tree = &self.scratch.tree;
        let left_out = snapshot.check_out(tree, SandboxLimits::default().disk_bytes, stale).await?;
        snapshot.add_git_folder(tree).await;
        for entry in snapshot.entries() {
            // A file that was left out does not exist.
            let _ =
                utimensat(CWD, tree.join(&entry.path), &timestamps(self.began), AtFlags::SYMLINK_NOFOLLOW);
        }
        let before = std::mem::take(&mut self.overlaid);
        // Removals come first: a folder may replace a file.
        let (gone, new): (Vec<_>, Vec<_>) = request.overlay.iter().partition(|(_, bytes)| bytes.is_none());
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
            self.overlaid.extend(bytes.as_ref().map(|bytes| (path.clone(), (bytes.clone(), since))));
        }
        Box::pin(run_suite(&self.scratch, sandbox, snapshot, request, left_out, cancel)).await
    }

    /// Returns the text of a file as the last run left it.
    pub fn read_file(&self, path: &str) -> io::Result<Option<String>> {
        Ok(read_within(&self.scratch.tree, path, &mut { REPORT_BYTES })?.pop())
    }

    /// Returns those files of the commit that the last run wrote to, if it had no overlay.
    pub fn rewritten_files<'s>(&self, snapshot: &'s Snapshot) -> Vec<&'s str> {
        let paths = snapshot.entries().iter().map(|entry| entry.path.as_str());
        let written = |path: &&str| self.scratch.tree.join(path).symlink_metadata()?.modified();
        paths.filter(|path| written(path).is_ok_and(|time| time > self.began)).collect()
    }
}

fn timestamps(time: SystemTime) -> Timestamps {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() };
    Timestamps { last_access: time, last_modification: time }
}

async fn run_suite(
    scratch: &TestDirectories,
    sandbox: &Sandbox,
    snapshot: &Snapshot,
    request: TestRequest,
    left_out: Vec<SkippedPath>,
    cancel: &CancellationToken,
) -> Result<TestRun, TestError> {
    let time = request.time.unwrap_or(TIME);
    let place = FetchContext { sandbox, snapshot, cancel };
    let SelectedSuite { name, folder, mut suite, given, paths } =
        Box::pin(choose_suite(&place, scratch, &request)).await?;
    let tools = &given.tools;
    let furnished =
        tools.iter().try_for_each(|tool| tool.link_into(&scratch.out.join("home"), &scratch.tree));
    furnished.map_err(|source| TestError::Overlay { path: "the tests' dependencies".to_owned(), source })?;
    if scratch.fresh {
        scratch.copy_prebuilt(name, tools, cancel).await?;
    }
    let started = Instant::now();
    let mut found = TestReport::default();
    let mut notes = Vec::new();
    if let Some(call) = suite.prepare() {
        let (output, _) = scratch.run_command(sandbox, &call, tools, (time / 2).max(LEAST), cancel).await?;
        notes.extend(suite.read_prepared(&output));
    }
    let mut next = Some(suite.begin().map_err(|why| TestError::MissingPrerequisite(sanitize_line(&why)))?);
    if let Some((line, call)) = request.settings.setup.as_ref().zip(next.as_ref()) {
        let setup = SuiteCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), line.clone()],
            environment: call.environment.clone(),
            ..SuiteCommand::default()
        };
        let limit = (time.saturating_sub(started.elapsed()) / 2).max(LEAST);
        let (output, _) = scratch.run_command(sandbox, &setup, tools, limit, cancel).await?;
        if !output.end.success() {
            let printed = error_summary(&[output.stdout, output.stderr].join("\n"));
            let why = format!(
                "`{line}` (`setup` under [test]) failed, so no test was run: {}: {printed}",
                output.end
            );
            return Err(TestError::MissingPrerequisite(sanitize_line(&why)));
        }
    }
    while let Some(call) = next.take() {
        if started.elapsed() >= time {
            found.add_trouble("the time limit for all tests was reached");
            break;
        }
        // No program may use all the remaining time, so that a hanging one leaves some for the next.
        let limit = (time.saturating_sub(started.elapsed()) / 2).max(LEAST);
        let (output, whole) = scratch.run_command(sandbox, &call, tools, limit, cancel).await?;
        if !whole {
            found.add_trouble("the report is larger than 64 MB");
        }
        let read = move || {
            let next = suite.read_output(output, &mut found);
            (suite, found, next)
        };
        let read = tokio::task::spawn_blocking(read).await;
        (suite, found, next) = read.unwrap_or_else(|panic| resume_unwind(panic.into_panic()));
    }
    if sandbox.level() == Level::Basic {
        found.mark_loopback_failures();
    }
    found.finish();
    if found.may_lack_dependencies() || !notes.is_empty() {
        notes.extend(given.notes);
    }
    if !found.has_passed() {
        notes.extend(given.unreached);
    }
    let always = suite.notes().into_iter().map(|note| sanitize_line(&note));
    notes.extend(given.always.into_iter().chain(always));
    let seconds = started.elapsed().as_secs_f64();
    // People are told once, with the run of the commit itself.
    let is_whole = request.only.is_none() && request.targets.is_empty() && request.overlay.is_empty();
    let not_run = match is_whole {
        true => {
            find_untested(snapshot, &paths, &Project { runner: name, folder: folder.clone() }, &found).await?
        }
        false => Vec::new(),
    };
    Ok(TestRun { runner: name, folder, found, notes, not_run, left_out, seconds })
}

/// Returns the other projects of the repository that have tests.
async fn find_untested(
    snapshot: &Snapshot,
    paths: &[String],
    tested: &Project,
    found: &TestReport,
) -> Result<Vec<Project>, TestError> {
    if tested.runner == COMMAND {
        return Ok(Vec::new());
    }
    let is_covered =
        |folder: &str| projects::below(&tested.folder, folder).is_some_and(|folder| found.covers(folder));
    let mut untested = Vec::new();
    for (project, files) in projects::untested_projects(paths, tested, is_covered) {
        // Only its text tells whether a Rust file holds tests.
        let is_own = |path: &str| files.contains(&path);
        let entries = snapshot.entries().iter().filter(|entry| entry.mode.is_file() && is_own(&entry.path));
        let has_tests = project.runner != "cargo"
            || snapshot.read_texts(&entries.collect::<Vec<_>>()).await?.iter().any(|(_, text)| {
                text.contains("#[test]") || text.contains("::test]") || text.contains("::test(")
            });
        if has_tests {
            untested.push(project);
        }
    }
    Ok(untested)
}

/// Name of the runner that is the repository's own test command.
const COMMAND: &str = "command";

struct SelectedSuite {
    name: &'static str,
    folder: String,
    suite: Box<dyn TestSuite>,
    given: TestEnvironment,
    /// Paths of all files of the commit with the overlay.
    paths: Vec<String>,
}

#[derive(Default)]
struct TestEnvironment {
    tools: Vec<Toolchain>,
    /// Fetched dependencies. They are held here so that they are not removed during the run.
    held: Vec<FetchedDependencies>,
    /// Reasons why dependencies were not fetched.
    notes: Vec<String>,
    /// Notes to show if the tests do not pass, such as toolchains that do not work in the sandbox.
    unreached: Vec<String>,
    /// Notes to show with every result.
    always: Vec<String>,
}

impl TestEnvironment {
    /// Adds a toolchain of this machine, together with the dependencies of the project in `folder`.
    async fn add_toolchain(
        &mut self,
        place: &FetchContext<'_>,
        from: Option<&DependencyFetcher>,
        (runner, folder): (&TestRunner, &str),
        mut tool: Toolchain,
        command: bool,
    ) -> Result<(), TestError> {
        let mut all = Ok(());
        // A custom command does not use time-saving presets.
        for preset in runner.setup.iter().filter(|preset| !(command && preset.saves_time)) {
            let Some(from) = from else { break };
            match Box::pin(from.ensure(preset, place, (folder, &tool))).await {
                Ok(DependencyState::Available(mut made)) => {
                    self.always.append(&mut made.notes);
                    self.unreached.append(&mut made.hints);
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

/// Returns a note if the changed files include manifests or lock files, otherwise `None`. Dependencies that a change
/// adds are not fetched, because nobody has approved them yet.
pub fn unfetched_note<'p>(changed: impl Iterator<Item = &'p str>) -> Option<String> {
    const NAMED: usize = 5;
    let reads =
        |path: &str| RUNNERS.iter().flat_map(|runner| runner.setup).any(|preset| (preset.is_manifest)(path));
    let named =
        changed.filter(|path| reads(path)).map(|path| format!("`{}`", sanitize_line(path).replace('`', "'")));
    let mut named: Vec<String> = named.collect();
    let (is, it) = if named.len() > 1 { ("are", "them") } else { ("is", "it") };
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = Some(named.join(", ")).filter(|named| !named.is_empty())?;
    Some(format!("{named}{more} {is} changed; new dependencies in {it} are not fetched in this run"))
}

/// Chooses how to run the tests: with the repository's own test command, or with the runner that matches its project
/// files.
async fn choose_suite(
    place: &FetchContext<'_>,
    scratch: &TestDirectories,
    request: &TestRequest,
) -> Result<SelectedSuite, TestError> {
    let over = |path: &str| request.overlay.iter().rev().find(|(known, _)| known == path);
    let theirs = place.snapshot.entries().iter().map(|entry| &entry.path).filter(|path| over(path).is_none());
    let ours =
        request.overlay.iter().filter(|(path, _)| over(path).is_some_and(|(_, bytes)| bytes.is_some()));
    let paths: Vec<String> = theirs.chain(ours.map(|(path, _)| path)).cloned().collect();
    let (from, mut given) = (request.dependencies.as_ref(), TestEnvironment::default());
    let mut project = TestProject {
        root: scratch.tree.clone(),
        settings: request.settings.clone(),
        only: request.only.clone(),
        coverage: request.coverage,
        time: request.time.unwrap_or(TIME) / 2,
        reports: scratch.out.clone(),
        built: scratch.built.clone(),
        ..TestProject::default()
    };
    let mut python = None;
    if project.settings.command.is_some() {
        // Java and Maven keep settings outside their own folders.
        given
            .tools
            .push(Toolchain { read: toolchains::java_config_files("/etc".as_ref()), ..Toolchain::default() });
        for runner in RUNNERS {
            // It is unknown which toolchains the command uses. If one is missing or not fetched, the command itself
            // will fail and say so.
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
            if there && runner.name == pytest::RUNNER.name {
                project.tool = given.tools.last().cloned().unwrap_or_default();
                project.version = place.snapshot.build_version().await;
                python = Some(PythonEnvironment::new(&project));
            }
        }
        let programs =
            given.tools.iter().filter_map(|tool| Some(tool.program.parent()?.display().to_string()));
        let path = programs.collect();
        let suite = Box::new(GenericSuite { project, path, python });
        return Ok(SelectedSuite { name: COMMAND, folder: String::new(), suite, given, paths });
    }
    let at_hand: Vec<&str> = request.at_hand.iter().map(String::as_str).collect();
    let named = request.project.as_ref().and_then(|project| {
        let runner = RUNNERS.iter().find(|runner| runner.name == project.runner)?;
        Some((runner, project.folder.as_str()))
    });
    let detected = || projects::detect_project(&paths, &at_hand);
    let (runner, folder) = named.or_else(detected).ok_or_else(|| no_runner(&paths))?;
    let below = |path: &String| projects::below(folder, path).map(str::to_owned);
    project.paths = paths.iter().filter_map(below).collect();
    // A target outside the project means all tests must run: its tests are not known here.
    let targets = request.targets.iter().filter(|path| paths.contains(*path));
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
    if runner.name == node::RUNNER.name {
        let texts = read_packages(place.snapshot, &request.overlay).await?;
        project.manifests =
            texts.into_iter().filter_map(|(path, text)| Some((below(&path)?, text))).collect();
    }
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
    if runner.name == pytest::RUNNER.name {
        project.version = place.snapshot.build_version().await;
    }
    let (name, folder) = (runner.name, folder.to_owned());
    Ok(SelectedSuite { name, folder, suite: (runner.suite)(project), given, paths })
}

/// Reads the manifests of all packages of the commit with the overlay, by path.
async fn read_packages(
    snapshot: &Snapshot,
    overlay: &[(String, Option<Vec<u8>>)],
) -> Result<HashMap<String, String>, TestError> {
    let is_manifest = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        (node::RUNNER.manifests.contains(&name) || name == node_packages::WORKSPACE)
            && !path.split('/').any(|part| part == "node_modules")
    };
    let read = snapshot.entries().iter().filter(|entry| entry.mode.is_file() && is_manifest(&entry.path));
    let mut texts: HashMap<String, String> =
        snapshot.read_texts(&read.collect::<Vec<_>>()).await?.into_iter().collect();
    for (path, bytes) in overlay.iter().filter(|(path, _)| is_manifest(path)) {
        texts.remove(path);
        texts.extend(bytes.iter().map(|text| (path.clone(), String::from_utf8_lossy(text).into_owned())));
    }
    Ok(texts)
}

/// Test commands of other languages, by the ending of a manifest's path: the `[test]` table that a person can paste.
const OTHER_COMMANDS: &[(&str, &str, &str)] = &[
    ("pom.xml", "mvn -B -o test", "target/surefire-reports"),
    ("build.gradle", "gradle --offline test", "build/test-results/test"),
    ("build.gradle.kts", "gradle --offline test", "build/test-results/test"),
    ("composer.json", "vendor/bin/phpunit --log-junit report.xml", "report.xml"),
    ("Gemfile", "bundle exec rspec --format RspecJunitFormatter --out report.xml", "report.xml"),
    (".csproj", "dotnet test --no-restore --logger 'junit;LogFilePath=report.xml'", "report.xml"),
];

/// Explains that no runner can test these files. For other languages, gives the settings to paste.
fn no_runner(paths: &[String]) -> TestError {
    let named = OTHER_COMMANDS.iter().find_map(|(ending, command, report)| {
        let is_named = |path: &&String| {
            let name = path.rsplit('/').next().unwrap_or(path);
            if ending.starts_with('.') { name.ends_with(ending) } else { name == *ending }
        };
        let path = paths.iter().filter(is_named).min_by_key(|path| path.matches('/').count())?;
        Some(format!(
            "found `{}`, but Countersign runs only the tests of cargo, go, pytest and node by itself; put this into \
             .github/countersign.toml and adapt it: `[test]`, `command = \"{command}\"`, `report = \"{report}\"`",
            sanitize_line(path)
        ))
    });
    named.map_or(TestError::NoRunner, TestError::MissingPrerequisite)
}

/// Directories of test runs. They are deleted on drop.
struct TestDirectories {
    _all: sandbox::ScratchDirectory,
    tree: std::path::PathBuf,
    /// Directory that contains the reports and the home directory.
    out: std::path::PathBuf,
    built: std::path::PathBuf,
    /// Whether no command has run in these directories so far.
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

    /// Clears everything except the build output, in preparation for the next run. The bot never writes into used build
    /// output itself, because a test run may have tampered with it.
    fn reset(&mut self) -> io::Result<()> {
        self.fresh = false;
        [&self.tree, &self.out].into_iter().try_for_each(|directory| proc::remove_all(directory))?;
        self.create_directories()
    }

    /// Copies the prebuilt standard libraries of the toolchains into the build output. The libraries are trusted,
    /// because no repository code took part in building them.
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
                // A partial copy is useless; the run builds the library itself.
                Err(_) => proc::remove_all(&copy)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Runs a command. Returns the command's output, and whether its report was read completely.
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
        // Standard output may be the report, so it goes to a file that has no size limit.
        let line = "cd \"$0\" && exec 3>\"$1\" && shift && exec \"$@\" >&3 3>&-";
        let folder = self.tree.join(&call.folder);
        run.args =
            ["-c".into(), line.into(), folder.into(), stdout.into(), call.program.clone().into()].into();
        run.args.extend(call.args.iter().map(Into::into));
        run.read = tools.iter().flat_map(|tool| tool.read.clone()).collect();
        run.write = vec![self.out.clone(), self.built.clone()];
        let always = [("HOME", home.as_os_str()), ("LANG", "C.UTF-8".as_ref())];
        run.environment = always.map(|(name, value)| (name.into(), value.to_owned())).into();
        let variables = tools.iter().flat_map(|tool| &tool.environment);
        run.environment.extend(variables.map(|(name, value)| (name.into(), value.into())));
        run.environment.extend(call.environment.iter().map(|(name, value)| (name.into(), value.into())));
        run.limits = SandboxLimits { time, ..SandboxLimits::default() };
        let ended = sandbox.run(run, cancel).await?;
        // One byte above the limit: if none is left, the report was too large.
        let mut left = REPORT_BYTES + 1;
        let reports = match &call.report {
            None => Vec::new(),
            Some(ReportLocation::ReportsFile(name)) => read_within(&self.out, name, &mut left)?,
            Some(ReportLocation::TreePath(path)) => {
                read_within(&self.tree, &format!("{}/{path}", call.folder), &mut left)?
            }
        };
        let lines = read_within(&self.out, coverage::REPORT, &mut left)?.pop();
        let stdout = open_within(&self.out, "stdout")?.map(|file| read_text(file, &mut left)).transpose()?;
        let stdout = stdout.flatten().unwrap_or_default();
        Ok((SuiteOutput { end: ended.end, stdout, stderr: ended.stderr.text(), reports, lines }, left > 0))
    }
}

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens a file or folder that a run created below `root`, if it exists. No symlink is followed, because tests may have
/// created links to files that they cannot read themselves.
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

/// Reads a file, or all XML files of a folder. `room` is the number of bytes that may still be read; the bytes read are
/// subtracted from it.
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

/// Reads a regular file. Returns `None` if `file` is not a regular file.
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
    async fn symlink_created_by_tests_in_place_of_home_is_not_followed() {
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
        assert_eq!(
            std::fs::read_dir(outside.path()).unwrap().count(),
            0,
            "the run wrote outside its directories"
        );
    }

    #[tokio::test]
    async fn oversized_report_is_truncated_with_a_notice() {
        let scratch = TestDirectories::new().unwrap();
        let line = "mkdir r && truncate -s 40M r/a.xml r/b.xml r/c.xml && rm \"$HOME/../stdout\" && \
                    mkdir \"$HOME/../stdout\" && echo x > \"$HOME/../stdout/a.xml\"";
        let args = ["-c", line].map(str::to_owned).into();
        let report = Some(ReportLocation::TreePath("r".to_owned()));
        let call = SuiteCommand { program: "/bin/sh".into(), args, report, ..SuiteCommand::default() };
        let time = Duration::from_secs(60);
        let (output, whole) =
            scratch.run_command(&sandbox().await, &call, &[], time, &CancellationToken::new()).await.unwrap();
        assert_eq!(
            (output.end.success(), output.stdout.as_str(), whole),
            (true, "", false),
            "{}",
            output.stderr
        );
        assert_eq!(output.reports.iter().map(|text| text.len() as u64).sum::<u64>(), REPORT_BYTES + 1);
    }

    #[tokio::test]
    async fn missing_prebuilt_output_or_unusable_dependency_cache_is_not_an_error() {
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
        // No directory can be created there.
        let cache = root.path().join("go.mod/cache");
        let from = DependencyFetcher { repository, cache, hosts, home: Some("/none/such".into()) };
        let [modules, library] = super::super::go::RUNNER.setup else { panic!() };
        let ready = from.ensure(library, &place, ("", &Toolchain::default())).await;
        assert!(matches!(ready, Ok(DependencyState::Unavailable(None))));
        assert!(library.saves_time && !modules.saves_time);
    }

    #[test]
    fn one_note_lists_all_changed_manifests_with_unfetched_dependencies() {
        assert_eq!(unfetched_note(["src/lib.rs"].into_iter()), None);
        let one = "`a/Cargo.toml` is changed; new dependencies in it are not fetched in this run";
        assert_eq!(unfetched_note(["a/Cargo.toml", "b.rs"].into_iter()).unwrap(), one);
        let many = unfetched_note(["go.mod"; 7].into_iter()).unwrap();
        assert!(many.ends_with(
            "`go.mod` and 2 more are changed; new dependencies in them are not fetched in this run"
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

    /// Also checks the modification times, by which build tools detect changes: an unchanged file keeps its time, and a
    /// reverted file gets a new time.
    #[tokio::test]
    async fn consecutive_test_runs_in_one_workspace_share_only_build_output() {
        let root = tempfile::tempdir().unwrap();
        let snapshot = committed(root.path(), "echo a > old").await;
        let (sandbox, cancel) = (sandbox().await, CancellationToken::new());
        let mut workspace = TestWorkspace::new().unwrap();
        for text in ["b", "b", "c", "b"] {
            let line = "test ! -e left && test ! -e \"$HOME/left\" && touch left \"$HOME/left\" && \
                        stat -c %.9Y old new | tr '\\n' ' ' >> ../built/times && cat new >> ../built/times";
            let settings = TestSettings::from_command(line);
            let overlay = vec![("new".to_owned(), Some(format!("{text}\n").into_bytes()))];
            let request = TestRequest { settings, overlay, ..TestRequest::default() };
            let tested = workspace.run(&sandbox, &snapshot, request, &cancel).await.unwrap();
            assert!(tested.found.has_passed(), "{:?}", tested.found);
        }
        let times = std::fs::read_to_string(workspace.scratch.built.join("times")).unwrap();
        let times: Vec<Vec<&str>> = times.lines().map(|line| line.split(' ').collect()).collect();
        assert!(times.iter().all(|line| line[0] == times[0][0]), "{times:?}");
        assert_eq!(times[0], times[1], "the same again");
        assert!(times[1][1] < times[2][1] && times[2][1] < times[3][1], "{times:?}");
    }

    /// The tests see the installed project: its version, its console script, and packages that exist only when it is
    /// installed. They also see the commit.
    #[tokio::test]
    async fn python_project_is_installed_before_its_tests_run() {
        let has_tools = ChildCommand::new("python3").args(["-c", "import pip, pytest, setuptools"]);
        if !has_tools.run(&CancellationToken::new()).await.is_ok_and(|output| output.success()) {
            return;
        }
        let setup = "import os, setuptools\nopen('own/made.py', 'w').close()\nsetuptools.setup(name='own', packages=['own'], \
                     version=os.environ['SETUPTOOLS_SCM_PRETEND_VERSION'], entry_points={'console_scripts': ['say = own:say']})";
        let test = "import importlib.metadata, subprocess\nimport own.made\ndef test_own():\n    \
                    assert importlib.metadata.version('own') == '1.3.dev1'\n    \
                    assert subprocess.check_output(['say']) == b'said\\n'\n    \
                    assert subprocess.check_output(['python', '-c', 'import own']) == b''\n    \
                    assert len(subprocess.check_output(['git', 'rev-parse', 'HEAD'])) == 41\n    \
                    assert subprocess.check_output(['git', 'log', '--format=%s']) == b'a\\n'\n    \
                    assert subprocess.check_output(['git', 'remote']) == b''\n";
        let write = |root: &Path, path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "setup.py", setup);
        write(root.path(), "own/__init__.py", "def say():\n    print('said')\n");
        write(root.path(), "tests/test_own.py", test);
        write(root.path(), "examples/test_no.py", "raise Exception\n");
        write(
            root.path(),
            "tox.ini",
            "[testenv]\ncommands =\n    unit: pytest tests {posargs}\n    sphinx-build docs\n",
        );
        let tag = "git add -A && git -c user.name=A -c user.email=a@example.com commit --quiet -m first && git tag v1.2";
        let snapshot = committed(root.path(), tag).await;
        let (sandbox, cancel) = (sandbox().await, CancellationToken::new());
        let run = |settings, overlay| {
            let request = TestRequest { settings, overlay, ..TestRequest::default() };
            run_tests(&sandbox, &snapshot, request, &cancel)
        };
        let with_setup =
            |line: &str| TestSettings { setup: Some(line.to_owned()), ..TestSettings::default() };
        let ran = run(with_setup("python -c 'import own' && mkdir made"), Vec::new()).await.unwrap();
        assert!(ran.found.has_passed(), "{ran:?}");
        assert_eq!(ran.notes, ["pytest ran only on `tests`, as tox.ini says"]);
        assert_eq!(ran.found.tests[0].id, "tests/test_own.py::test_own");
        let settings = TestSettings {
            setup: Some("touch made".to_owned()),
            ..TestSettings::from_command("test -f made && say")
        };
        assert!(run(settings, Vec::new()).await.unwrap().found.has_passed());
        let broken = vec![("setup.py".to_owned(), Some(b"raise SystemExit('error: none')".to_vec()))];
        let ran = run(TestSettings::default(), broken).await.unwrap();
        assert!(
            ran.notes[0].starts_with("the project was not installed; the tests ran without that"),
            "{ran:?}"
        );
        let refused = run(with_setup("echo error: x; false"), Vec::new()).await.unwrap_err().to_string();
        assert!(
            refused.starts_with("`echo error: x; false` (`setup` under [test]) failed, so no test was run"),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn no_test_command_starts_after_the_time_limit() {
        let settings = TestSettings::from_command("true");
        let request = TestRequest { settings, time: Some(Duration::ZERO), ..TestRequest::default() };
        let root = tempfile::tempdir().unwrap();
        let snapshot = committed(root.path(), "true").await;
        let tested =
            run_tests(&sandbox().await, &snapshot, request, &CancellationToken::new()).await.unwrap();
        assert_eq!(tested.found.trouble, ["the time limit for all tests was reached"]);
        assert_eq!(tested.found.tests, []);
    }

    /// The runner of one member is a program in the commit, and the other one is node.
    #[tokio::test]
    async fn all_members_of_a_javascript_workspace_run_with_their_own_runner() {
        let cancel = CancellationToken::new();
        let Ok(node) = node::RUNNER.probe.find(&cancel).await else { return };
        let root = tempfile::tempdir().unwrap();
        let manifest = |path: &str, script: &str| {
            format!(
                "mkdir -p {path} && echo '{{\"workspaces\": [\"p/*\"], \"scripts\": {{{script}}}}}' > {path}/package.json && "
            )
        };
        let script = [
            manifest(".", "\"test\": \"npm test --workspaces && eslint .\""),
            manifest("p/a", "\"pretest\": \"touch built\", \"test\": \"cross-env A=b c8 mocha x\""),
            manifest("p/b", "\"test\": \"node --test\""),
            manifest("p/c", ""),
            "mkdir -p node_modules/.bin && cd node_modules/.bin && echo '#!/bin/sh' > mocha && chmod +x mocha && ".to_owned(),
            "echo 'test $A$1 = bx && test -e built && echo \"<s><testcase name=\\\"one\\\"/></s>\" > ${5#output=}' >> mocha && ".to_owned(),
            "cd ../.. && echo \"require('node:test')('two', () => {})\" > p/b/b.test.js".to_owned(),
        ]
        .concat();
        let snapshot = committed(root.path(), &script).await;
        let run = TestRequest::default();
        let tested = run_tests(&sandbox().await, &snapshot, run, &cancel).await.unwrap();
        let tests: Vec<&str> = tested.found.tests.iter().map(|test| test.id.as_str()).collect();
        assert_eq!(tests, ["p/a > one", "p/b/b.test.js > two"], "{:?} {}", tested.found, node.version);
        assert!(tested.found.has_passed());
        assert_eq!(tested.notes, ["not run, because they check style, types or packaging: `eslint`"]);
    }

    #[tokio::test]
    async fn tests_run_on_the_commit_with_overlay_files_applied() {
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
        assert!(tested.found.has_passed(), "a folder replaces a file: {:?}", tested.found);
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
