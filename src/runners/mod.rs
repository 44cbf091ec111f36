//! Runs a repository's own tests: chooses the runner, builds its commands, and reads its report.
//!
//! Reports are untrusted, because the repository's code writes them in the sandbox. Sizes are limited, names and
//! messages are sanitized, and a run passes only if its programs also exit successfully and write their summary.
//! Nevertheless, a test can forge the report of its runner, which we cannot detect.

mod cargo;
pub mod change_verification;
mod coverage;
mod dependencies;
mod generic;
mod go;
mod jest_report;
mod junit;
mod libtest;
mod node;
mod node_packages;
mod node_report;
mod node_scripts;
mod overlay;
mod presets;
mod projects;
mod pytest;
mod python_environment;
pub mod red_green;
mod run;
mod tap;
mod test_placement;
mod test_report;
#[cfg(test)]
mod tests;
mod toolchains;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

pub use self::{
    coverage::{ChangeCoverage, LineCoverage, can_measure, unmeasured_reason},
    dependencies::DependencyFetcher,
    projects::Project,
    run::{TestError, TestRequest, TestRun, TestWorkspace, run_tests, unfetched_note},
    test_placement::TestPlacement,
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
    /// Names of manifest files. A folder with such a file is a project for this runner.
    manifests: &'static [&'static str],
    probe: ToolchainProbe,
    setup: &'static [DependencyPreset],
    suite: fn(TestProject) -> Box<dyn TestSuite>,
}

/// Test runners, highest priority first. If several runners can test a folder, the first of them is used.
const RUNNERS: &[TestRunner] = &[cargo::RUNNER, go::RUNNER, pytest::RUNNER, node::RUNNER];

/// A project to test, and the settings for testing it.
#[derive(Default)]
struct TestProject {
    /// Folder of the manifest, relative to the root of the tree. Empty for the root itself.
    folder: String,
    /// Absolute path of the folder inside the sandbox.
    root: PathBuf,
    manifest: String,
    /// The same kind of manifest in this and all other folders of the project, by path relative to `folder`.
    manifests: BTreeMap<String, String>,
    /// Paths of all files of the commit inside `folder`, relative to `folder`.
    paths: Vec<String>,
    settings: TestSettings,
    /// Whether line coverage is measured, if the runner supports it.
    coverage: bool,
    /// Id of the test to run, if only one test is requested.
    only: Option<String>,
    /// Test files to run, relative to `folder`. If empty, all tests run.
    targets: Vec<String>,
    tool: Toolchain,
    time: Duration,
    /// Writable folder outside the tree, for reports.
    reports: PathBuf,
    /// Writable folder for build output, which later runs can reuse.
    built: PathBuf,
    /// Version that a build gets if it takes its version from git.
    version: String,
}

impl TestProject {
    fn coverage_file(&self) -> String {
        self.reports.join(coverage::REPORT).display().to_string()
    }

    /// Returns those requested files that this runner recognizes as tests. The request may also contain other files
    /// that the tests need.
    fn requested_files(&self, is_test: impl Fn(&str) -> bool) -> Vec<&str> {
        let files = self.targets.iter().filter(|_| self.only.is_none()).map(String::as_str);
        files.filter(|file| is_test(file)).collect()
    }
}

/// One test run as a sequence of programs. Each command is derived from the output of the previous program.
trait TestSuite: Send {
    /// Returns a command that prepares the environment of all others, if one is needed.
    fn prepare(&mut self) -> Option<SuiteCommand> {
        None
    }

    /// Reads the output of the preparing command. Returns notes for the report, such as what is missing.
    fn read_prepared(&mut self, _: &SuiteOutput) -> Vec<String> {
        Vec::new()
    }

    /// Returns the first command.
    ///
    /// # Errors
    ///
    /// Returns a one-line reason, for a person to read, why no test can be run.
    fn begin(&mut self) -> Result<SuiteCommand, String>;

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand>;

    /// Returns notes to show with every result, such as parts of the test command that were not run.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A program to run. Its standard output is written to a file, so that a report on standard output is not truncated.
#[derive(Debug, Default)]
struct SuiteCommand {
    program: PathBuf,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    /// Working directory, relative to the root of the tree.
    folder: String,
    /// Location of the report that the program writes: a file in [`TestProject::reports`], or a file or folder in the
    /// tree, relative to `folder`.
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
    /// Contents of the report files. Empty if the program wrote none.
    reports: Vec<String>,
    /// Content of [`TestProject::coverage_file`], if the file exists.
    lines: Option<String>,
}

/// Derives the failure of a test that has no result from the exit status of its program.
fn exit_failure(end: CommandExit) -> TestFailure {
    if end == CommandExit::TimedOut { TestFailure::Timeout } else { TestFailure::Crash }
}

/// Returns a one-line description of each runner. If the runner is available, the line names the toolchain that the
/// sandbox uses. The error names the missing program and how to install it.
pub async fn describe_toolchains(sandbox: Option<&Sandbox>) -> Vec<(&'static str, Result<String, String>)> {
    let cancel = CancellationToken::new();
    let look =
        async |runner: &'static TestRunner| (runner.name, runner.probe.describe(sandbox, &cancel).await);
    futures_util::future::join_all(RUNNERS.iter().map(look)).await
}

/// Summarizes a program's output: up to three lines that mention an error, or the last line if no line does.
fn error_summary(output: &str) -> String {
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let says_so = |line: &&str| line.to_ascii_lowercase().contains("error");
    let mut errors: Vec<&str> = lines().filter(says_so).take(3).collect();
    if errors.is_empty() {
        errors.extend(lines().next_back());
    }
    errors.join("; ")
}

/// Whether the output says that code uses a missing name. Recognizes the messages of common languages.
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
