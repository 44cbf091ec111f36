//! Runs a repository's own tests: chooses the runner, builds its commands, and reads its report.
//!
//! Reports are not trusted, because the repository's code writes them in the sandbox. Sizes are limited, names and
//! messages are sanitized, and a run passes only if its programs also exit successfully. A test can still forge the
//! report of its runner, which we cannot detect.

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

struct TestRunner {
    name: &'static str,
    /// Manifest files that mark a folder as a project for this runner.
    manifests: &'static [&'static str],
    probe: ToolchainProbe,
    setup: &'static [DependencyPreset],
    suite: fn(TestProject) -> Box<dyn TestSuite>,
}

/// Test runners, highest priority first. The priority decides for folders that several runners can test.
const RUNNERS: &[TestRunner] = &[cargo::RUNNER, go::RUNNER, pytest::RUNNER, node::RUNNER];

/// The project to test and how to test it.
#[derive(Default)]
struct TestProject {
    /// Folder of the manifest, relative to the root of the tree; empty for the root.
    folder: String,
    /// Absolute path of the folder inside the sandbox.
    root: PathBuf,
    manifest: String,
    /// All files of the commit inside `folder`, relative to it.
    paths: Vec<String>,
    settings: TestSettings,
    /// Whether to measure line coverage, if the runner can.
    coverage: bool,
    /// Id of the test to run, if a single one is requested.
    only: Option<String>,
    /// Test files to run, relative to `folder`; empty for all tests.
    targets: Vec<String>,
    tool: Toolchain,
    time: Duration,
    /// Writable folder outside the tree, for reports.
    reports: PathBuf,
    /// Writable folder for build output, which later runs reuse.
    built: PathBuf,
}

impl TestProject {
    fn coverage_file(&self) -> String {
        self.reports.join(coverage::REPORT).display().to_string()
    }

    /// Returns the requested files that this runner recognizes as tests. The request may also name other files that the
    /// tests need.
    fn requested_files(&self, is_test: impl Fn(&str) -> bool) -> Vec<&str> {
        let files = self.targets.iter().filter(|_| self.only.is_none()).map(String::as_str);
        files.filter(|file| is_test(file)).collect()
    }
}

/// One test run as a sequence of programs. Each command depends on the output of the previous program.
trait TestSuite: Send {
    /// Returns the first command.
    ///
    /// # Errors
    ///
    /// Returns the reason why nothing can be run, in one line for a person.
    fn begin(&mut self) -> Result<SuiteCommand, String>;

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand>;
}

/// A program to run. Its standard output goes to a file, so that a report on stdout is not truncated.
#[derive(Debug, Default)]
struct SuiteCommand {
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    /// Working directory, relative to the root of the tree.
    folder: String,
    /// Report that the program writes: a file in [`TestProject::reports`], or a file or folder in the tree, relative to
    /// `folder`.
    report: Option<ReportLocation>,
}

#[derive(Debug, Clone)]
enum ReportLocation {
    ReportsFile(&'static str),
    TreePath(String),
}

struct SuiteOutput {
    end: CommandExit,
    stdout: String,
    /// End of the program's standard error.
    stderr: String,
    /// Texts of the report files; empty if the program wrote none.
    reports: Vec<String>,
    /// Text of [`TestProject::coverage_file`], if the file exists.
    lines: Option<String>,
}

/// Derives the failure of a test without a result from its program's exit.
fn exit_failure(end: CommandExit) -> TestFailure {
    if end == CommandExit::TimedOut { TestFailure::Timeout } else { TestFailure::Crash }
}

/// Returns the runner and the folder of the project to test. Chooses the nearest manifest above most of the files
/// `at_hand`, or else the topmost manifest of the repository.
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

/// Describes each runner in one line: the toolchain that the sandbox uses, or the missing program and how to install
/// it.
pub async fn describe_toolchains(sandbox: Option<&Sandbox>) -> Vec<(&'static str, Result<String, String>)> {
    let cancel = CancellationToken::new();
    let look =
        async |runner: &'static TestRunner| (runner.name, runner.probe.describe(sandbox, &cancel).await);
    futures_util::future::join_all(RUNNERS.iter().map(look)).await
}

/// Summarizes a program's output: up to three lines that mention an error, or else the last line.
fn error_summary(output: &str) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let says_so = |line: &&str| line.to_ascii_lowercase().contains("error");
    let mut errors: Vec<&str> = lines().filter(says_so).take(3).collect();
    if errors.is_empty() {
        errors.extend(lines().next_back());
    }
    errors.join("; ")
}

/// Whether the output says that code uses a missing name. Searches for the messages of common languages.
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
