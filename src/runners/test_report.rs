//! Results of a test run.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::LineCoverage;
use crate::{documents::is_invisible, sandbox::strip_terminal_codes};

/// Maximum number of tests kept in a report. Further tests are only counted. No suite whose results people read is
/// larger.
const MOST_TESTS: usize = 50_000;

const MOST_TROUBLE: usize = 100;

/// Maximum number of compiler errors kept per build failure. A failure with more errors is not accepted as a proof.
pub(super) const MOST_FAULTS: usize = 200;

/// Maximum bytes of a test's name, which is enough for a long path. `MESSAGE_BYTES` is the maximum of a test's message,
/// which is enough for a screen.
const ID_BYTES: usize = 400;
const MESSAGE_BYTES: usize = 4_000;

/// Result of one test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestResult {
    /// Id of the test in its runner's notation, including the test's file, package or binary.
    pub id: String,
    pub outcome: TestOutcome,
    /// Message of a failure or skip. May be empty.
    pub message: String,
    /// Location as `path:line`, with the path relative to the project.
    pub place: Option<String>,
    /// Compiler errors, if the test did not build.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<CompilerError>,
}

/// A compiler error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerError {
    /// Path of the file, relative to its project. Empty if the error names no file.
    pub file: String,
    pub message: String,
    /// Names that the error reports as missing. Empty for any other error.
    pub missing: Vec<String>,
}

impl CompilerError {
    pub(super) fn new(
        file: &str,
        message: &str,
        missing: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let (file, message) = (sanitize_line_to(file, ID_BYTES), sanitize_line_to(message, ID_BYTES));
        Self { file, message, missing: missing.into_iter().take(MOST_FAULTS).map(Into::into).collect() }
    }
}

impl TestResult {
    fn new(id: impl Into<String>, outcome: TestOutcome, message: impl Into<String>) -> Self {
        Self { id: id.into(), outcome, message: message.into(), place: None, faults: Vec::new() }
    }

    pub(super) fn passed(id: impl Into<String>) -> Self {
        Self::new(id, TestOutcome::Passed, "")
    }

    pub(super) fn skipped(id: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(id, TestOutcome::Skipped, why)
    }

    pub(super) fn failed(id: impl Into<String>, failure: TestFailure, message: impl Into<String>) -> Self {
        Self::new(id, TestOutcome::Failed(failure), message)
    }

    pub(super) fn with_place(self, place: Option<String>) -> Self {
        Self { place, ..self }
    }

    pub(super) fn with_errors(self, faults: Vec<CompilerError>) -> Self {
        Self { faults, ..self }
    }
}

/// Outcome of a test. The JSON form is `"passed"`, `"skipped"` or, for example, `{"failed": "assertion"}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestOutcome {
    Passed,
    Skipped,
    Failed(TestFailure),
}

/// Cause of a test's failure, as far as the report shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TestFailure {
    Assertion,
    /// The test failed with another error at run time, or for an unknown cause.
    Error,
    /// The test failed because the code uses a name that does not exist.
    Missing,
    Build,
    Timeout,
    Crash,
    /// The test failed because it needs 127.0.0.1, which the sandbox does not provide at this level.
    NeedsLoopback,
}

impl TestFailure {
    pub fn name(self) -> &'static str {
        match self {
            Self::Assertion => "assertion",
            Self::Error => "error at run time",
            Self::Missing => "missing symbol or import",
            Self::Build => "build or collection",
            Self::Timeout => "timeout",
            Self::Crash => "crash",
            Self::NeedsLoopback => "needs loopback",
        }
    }
}

/// Results of a test run, and the problems because of which they cannot be trusted.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TestReport {
    pub tests: Vec<TestResult>,
    /// Problems that concern the whole run, one per line. If there are any, the report is not trusted.
    pub trouble: Vec<String>,
    /// Whether the runner's own summary at its end was seen. Earlier versions did not look for it.
    #[serde(default)]
    pub has_summary: bool,
    /// Line coverage, if it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<LineCoverage>,
    /// Folders of the packages that the run built, relative to the project.
    #[serde(skip)]
    packages: BTreeSet<String>,
    #[serde(skip)]
    named: HashMap<String, usize>,
    /// Number of tests seen so far with the same name, by name.
    #[serde(skip)]
    again: HashMap<String, usize>,
    #[serde(skip)]
    beyond: usize,
}

impl TestReport {
    /// Whether at least one test passed, no test failed, and the run had no problem.
    pub fn has_passed(&self) -> bool {
        self.trouble.is_empty() && self.count(TestOutcome::Passed) > 0 && self.failures().next().is_none()
    }

    pub fn count(&self, outcome: TestOutcome) -> usize {
        self.tests.iter().filter(|test| test.outcome == outcome).count()
    }

    pub fn failures(&self) -> impl Iterator<Item = &TestResult> {
        self.tests.iter().filter(|test| matches!(test.outcome, TestOutcome::Failed(_)))
    }

    /// Whether a test timed out. Other tests may have failed only because they waited for that test.
    pub fn has_timeout(&self) -> bool {
        self.count(TestOutcome::Failed(TestFailure::Timeout)) > 0
    }

    /// Whether missing dependencies could explain one of the failed tests.
    pub(super) fn may_lack_dependencies(&self) -> bool {
        let missing = TestOutcome::Failed(TestFailure::Missing);
        !self.trouble.is_empty()
            || self.count(missing) > 0
            || self.count(TestOutcome::Failed(TestFailure::Build)) > 0
    }

    pub(super) fn add_package(&mut self, folder: &str) {
        self.packages.insert(folder.to_owned());
    }

    /// Whether the run built or tested something in this folder of the project.
    pub(super) fn covers(&self, folder: &str) -> bool {
        let is_inside = |path: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        let mut tests = self.tests.iter();
        self.packages.contains(folder)
            || tests.any(|test| is_inside(&test.id) || test.place.as_deref().is_some_and(is_inside))
    }

    /// Adds a test. If the report already has a test of the same name, a number is appended to the new test's name.
    pub(super) fn add(&mut self, test: TestResult) {
        let mut test = sanitize_test(test);
        if self.named.contains_key(&test.id) {
            let count = self.again.entry(test.id.clone()).or_insert(1);
            *count += 1;
            test.id = format!("{} ({count})", test.id);
        }
        self.push_test(test);
    }

    /// Adds a test that may have been reported already, for example because its cleanup also failed. If both reports
    /// exist, the worse result is kept.
    pub(super) fn add_or_merge(&mut self, test: TestResult) {
        let test = sanitize_test(test);
        let failed = matches!(test.outcome, TestOutcome::Failed(_));
        match self.named.get(&test.id) {
            Some(&at) if failed && !matches!(self.tests[at].outcome, TestOutcome::Failed(_)) => {
                self.tests[at] = test;
            }
            Some(_) => {}
            None => self.push_test(test),
        }
    }

    fn push_test(&mut self, test: TestResult) {
        if self.tests.len() < MOST_TESTS {
            self.named.insert(test.id.clone(), self.tests.len());
            self.tests.push(test);
        } else {
            self.beyond += 1;
        }
    }

    pub(super) fn add_trouble(&mut self, line: impl AsRef<str>) {
        if self.trouble.len() < MOST_TROUBLE {
            self.trouble.push(sanitize_line(line.as_ref()));
        }
    }

    /// Completes the report with problems that concern the whole run. Must be called after all tests were added.
    pub(super) fn finish(&mut self) {
        if self.beyond > 0 {
            self.trouble.push(format!(
                "the report has {} tests, and {MOST_TESTS} are read; run a part of them",
                MOST_TESTS + self.beyond
            ));
        }
        if self.tests.is_empty() && self.trouble.is_empty() {
            self.trouble.push("no tests were found".to_owned());
        }
    }

    pub(super) fn mark_loopback_failures(&mut self) {
        let refused = |text: &str| ["EPERM", "peration not permitted"].iter().any(|word| text.contains(word));
        for test in &mut self.tests {
            let failed = matches!(
                test.outcome,
                TestOutcome::Failed(TestFailure::Assertion | TestFailure::Error | TestFailure::Crash)
            );
            if failed && refused(&test.message) {
                test.outcome = TestOutcome::Failed(TestFailure::NeedsLoopback);
            }
        }
    }
}

/// Sanitizes a test's name and message so that they cannot affect a terminal or page. The name becomes a single line.
fn sanitize_test(test: TestResult) -> TestResult {
    let place = test.place.map(|place| sanitize_line_to(&place, ID_BYTES));
    TestResult {
        id: sanitize_line_to(&test.id, ID_BYTES),
        message: sanitize_message(&test.message),
        place,
        ..test
    }
}

/// Turns untrusted text into one line that is safe for a terminal.
pub fn sanitize_line(text: &str) -> String {
    sanitize_line_to(text, MESSAGE_BYTES)
}

fn sanitize_line_to(text: &str, most: usize) -> String {
    let mut line = String::new();
    for c in strip_terminal_codes(text.trim()).chars() {
        match c {
            c if c.is_control() || is_invisible(c) => line.extend(c.escape_default()),
            c => line.push(c),
        }
        if line.len() > most {
            line.push('…');
            break;
        }
    }
    line
}

pub(super) fn sanitize_message(message: &str) -> String {
    let message = strip_terminal_codes(message);
    let visible = |c: &char| matches!(c, '\n' | '\t') || !(c.is_control() || is_invisible(*c));
    let mut kept = String::new();
    for c in message.trim().chars().filter(visible) {
        if kept.len() > MESSAGE_BYTES {
            kept.push('…');
            break;
        }
        kept.push(c);
    }
    kept
}
