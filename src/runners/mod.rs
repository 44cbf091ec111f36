//! A repository's own tests: which runner they need, what it is told to do, and how its report is read.
//!
//! A report is written by the repository's own code, in the sandbox. It is read as such: in bounds, names and messages made
//! harmless, and a run passed only if the programs that wrote it ended well, too. What a test does inside its runner's own
//! process it can do to the report as well; no reader can tell that.

mod cargo;
pub mod change_verification;
mod coverage;
mod dependencies;
mod generic;
mod go;
mod junit;
mod libtest;
mod node;
mod node_report;
mod overlay;
mod presets;
mod pytest;
pub mod red_green;
mod run;
mod tap;
mod test_report;
#[cfg(test)]
mod tests;
mod toolchains;

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

pub use self::{
    coverage::{ChangeCoverage, LineCoverage, can_measure},
    dependencies::DependencyFetcher,
    run::{TestError, TestRequest, TestRun, TestWorkspace, run_tests, unfetched_note},
    test_report::{CompilerError, TestFailure, TestOutcome, TestReport, TestResult, sanitize_line},
};
use self::{
    dependencies::DependencyPreset,
    toolchains::{Toolchain, ToolchainProbe},
};
use crate::{
    config::TestSettings,
    sandbox::{CommandExit, Sandbox},
};

/// How one ecosystem's tests are run.
struct TestRunner {
    name: &'static str,
    /// Files that make a folder a project of this kind.
    manifests: &'static [&'static str],
    probe: ToolchainProbe,
    setup: &'static [DependencyPreset],
    suite: fn(TestProject) -> Box<dyn TestSuite>,
}

/// Where a folder is a project of several kinds, the first of them runs its tests.
const RUNNERS: &[TestRunner] = &[cargo::RUNNER, go::RUNNER, pytest::RUNNER, node::RUNNER];

/// What is to be tested.
#[derive(Default)]
struct TestProject {
    /// The manifest's folder, relative to the root of the tree; empty for the root itself.
    folder: String,
    /// The same as the tests see it.
    root: PathBuf,
    /// The manifest's text.
    manifest: String,
    /// Every file of the commit, relative to `folder`.
    paths: Vec<String>,
    settings: TestSettings,
    /// Which lines run is wanted as well, where it can be told.
    coverage: bool,
    /// The one test that is asked for.
    only: Option<String>,
    /// The test files that are, relative to `folder`; all where there are none.
    targets: Vec<String>,
    tool: Toolchain,
    /// How long one program may take.
    time: Duration,
    /// A writable folder outside of the tree, for reports.
    reports: PathBuf,
    /// The same for what compilers make, which later runs of the same files find there.
    built: PathBuf,
}

impl TestProject {
    /// Where it is written which lines ran.
    fn coverage_file(&self) -> String {
        self.reports.join(coverage::REPORT).display().to_string()
    }

    /// The files that are asked for, of those that this runner takes for tests. What else the tests need is no test.
    fn requested_files(&self, is_test: impl Fn(&str) -> bool) -> Vec<&str> {
        let files = self.targets.iter().filter(|_| self.only.is_none()).map(String::as_str);
        files.filter(|file| is_test(file)).collect()
    }
}

/// One run of a project's tests: a program after the other, each chosen by what the one before it came to.
trait TestSuite: Send {
    /// # Errors
    ///
    /// Why nothing can be run, in one line for a person.
    fn begin(&mut self) -> Result<SuiteCommand, String>;

    fn read_output(&mut self, came: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand>;
}

/// A program that is to be run. Its standard output goes into a file, so that a report there is whole.
#[derive(Debug, Default)]
struct SuiteCommand {
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    /// Where it runs, relative to the root of the tree.
    folder: String,
    /// A file it writes in [`TestProject::reports`], or a file or folder in the tree, relative to `folder`.
    report: Option<ReportLocation>,
}

#[derive(Debug, Clone)]
enum ReportLocation {
    ReportsFile(&'static str),
    TreePath(String),
}

/// What came of it.
struct SuiteOutput {
    end: CommandExit,
    stdout: String,
    /// The end of what it said on standard error.
    stderr: String,
    /// The texts of its report, none where it wrote none.
    reports: Vec<String>,
    /// That at [`TestProject::coverage_file`], none where there is none.
    lines: Option<String>,
}

/// Why tests have no result whose program ended so.
fn exit_failure(end: CommandExit) -> TestFailure {
    if end == CommandExit::TimedOut { TestFailure::Timeout } else { TestFailure::Crash }
}

/// Runner and folder for the files at hand: the nearest manifest above most of them, the topmost of the repository where
/// there are none.
fn detect_project<'p>(paths: &'p [String], at_hand: &[&str]) -> Option<(&'static TestRunner, &'p str)> {
    let projects = || {
        RUNNERS.iter().enumerate().flat_map(|(order, runner)| {
            paths.iter().filter_map(move |path| {
                let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
                runner.manifests.contains(&name).then_some((order, runner, folder))
            })
        })
    };
    let depth = |folder: &str| if folder.is_empty() { 0 } else { folder.split('/').count() };
    let holds = |folder: &str, path: &str| {
        folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    let nearest = |path: &&str| {
        projects()
            .filter(|(.., folder)| holds(folder, path))
            .max_by_key(|(order, _, folder)| (depth(folder), std::cmp::Reverse(*order)))
    };
    let mut above: Vec<_> = at_hand.iter().filter_map(nearest).collect();
    above.sort_by_key(|(order, _, folder)| (*folder, *order));
    let runs = above.chunk_by(|left, right| (left.0, left.2) == (right.0, right.2));
    let most = runs.max_by_key(|run| run.len()).and_then(|run| run.first()).copied();
    let topmost = || projects().min_by_key(|(order, _, folder)| (depth(folder), *folder, *order));
    most.or_else(topmost).map(|(_, runner, folder)| (runner, folder))
}

/// One line per runner: the toolchain that runs in the sandbox, or what is missing and how to get it.
pub async fn describe_toolchains(sandbox: Option<&Sandbox>) -> Vec<(&'static str, Result<String, String>)> {
    let cancel = CancellationToken::new();
    let look =
        async |runner: &'static TestRunner| (runner.name, runner.probe.describe(sandbox, &cancel).await);
    futures_util::future::join_all(RUNNERS.iter().map(look)).await
}

/// What went wrong, by a program's own word: the lines that say so, or the last one.
fn error_summary(said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let says_so = |line: &&str| line.to_ascii_lowercase().contains("error");
    let mut told: Vec<&str> = lines().filter(says_so).take(3).collect();
    if told.is_empty() {
        told.extend(lines().next_back());
    }
    told.join("; ")
}

/// Does this say that code names what is not there? What languages call it; nothing else tells it from other failures.
fn mentions_missing_name(text: &str) -> bool {
    [
        "ModuleNotFoundError",
        "ImportError",
        "NameError:",
        "ReferenceError",
        "ERR_MODULE_NOT_FOUND",
        "ERR_PACKAGE_PATH_NOT_EXPORTED",
        "MODULE_NOT_FOUND",
        "Cannot find module",
        "does not provide an export named",
        "is not a function",
        "NoClassDefFoundError",
        "ClassNotFoundException",
        "NoSuchMethodError",
        "cannot find symbol",
    ]
    .iter()
    .any(|name| text.contains(name))
        || text.contains("AttributeError: module ")
}
