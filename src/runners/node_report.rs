//! Reads the report of our `node --test` reporter: one event per line.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use serde::Deserialize;

use super::{CommandExit, SuiteOutput, TestFailure, TestReport, TestResult, mentions_missing_name};

/// Maximum nesting of suites in a test's name. Real test suites are not nested that deeply.
const DEEPEST: usize = 64;

/// Maximum bytes kept of the standard error of a test file's process.
const STDERR_BYTES: usize = 8 * 1024;

pub(super) fn read_node_report(root: &Path, output: &SuiteOutput, found: &mut TestReport) {
    let root = format!("{}/", root.display());
    let mut files = NodeReportReader { root, files: HashMap::new(), found };
    for line in output.reports.iter().flat_map(|report| report.lines()) {
        match serde_json::from_str(line) {
            Ok(event) => files.handle_event(event),
            Err(error) if output.end != CommandExit::TimedOut => {
                files.found.add_trouble(format!("the report has a line that is not node's: {error}"));
                break;
            }
            // The last line is cut off by the timeout.
            Err(_) => {}
        }
    }
    files.record_unfinished(output);
}

/// One event in the output of our reporter.
#[derive(Deserialize)]
struct NodeTestEvent {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    nesting: usize,
    #[serde(default)]
    file: String,
    line: Option<u32>,
    /// `true` or the reason for skipping, if the test is skipped.
    skip: Option<serde_json::Value>,
    #[serde(default)]
    suite: bool,
    #[serde(default)]
    failure: String,
    signal: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    stack: String,
}

#[derive(Default)]
struct NodeFileState {
    /// Names of the enclosing suites and the current test, outermost first.
    within: Vec<String>,
    running: BTreeSet<String>,
    stderr: String,
    tests: usize,
}

struct NodeReportReader<'a> {
    root: String,
    files: HashMap<String, NodeFileState>,
    found: &'a mut TestReport,
}

impl NodeReportReader<'_> {
    fn handle_event(&mut self, mut event: NodeTestEvent) {
        event.nesting = event.nesting.min(DEEPEST);
        let path = event.file.strip_prefix(&self.root).unwrap_or(&event.file).to_owned();
        let file = self.files.entry(path.clone()).or_default();
        // Node reports each file as a test that contains the file's tests.
        let whole = event.nesting == 0 && event.file.ends_with(&event.name);
        match event.kind.as_str() {
            "stderr" if file.stderr.len() < STDERR_BYTES => file.stderr.push_str(&event.message),
            "dequeue" if !whole => drop(file.running.insert(event.name)),
            "end" => self.found.has_summary = true,
            "complete" => drop(file.running.remove(&event.name)),
            "start" => {
                file.within.truncate(event.nesting);
                file.within.push(event.name);
            }
            "pass" | "fail" if event.failure == "subtestsFailed" && (event.suite || whole) => {}
            "pass" if event.suite => {}
            "fail" if whole => self.record_file_failure(&path, &event),
            "pass" | "fail" => {
                file.tests += 1;
                let outer = file.within.iter().take(event.nesting).map(String::as_str);
                let names: Vec<&str> =
                    [path.as_str()].into_iter().chain(outer).chain([event.name.as_str()]).collect();
                let id = if whole { path.clone() } else { names.join(" > ") };
                self.found.add(test_from_event(id, &path, &event));
            }
            _ => {}
        }
    }

    /// Records that the process of a test file failed for a reason other than a failed test.
    fn record_file_failure(&mut self, path: &str, event: &NodeTestEvent) {
        let file = self.files.remove(path).unwrap_or_default();
        if event.failure == "testTimeoutFailure" && !file.running.is_empty() {
            return self.record_hung_tests(path, &file);
        }
        let failure = match event {
            _ if event.failure == "testTimeoutFailure" => TestFailure::Timeout,
            _ if event.signal.is_some() => TestFailure::Crash,
            _ if mentions_missing_name(&file.stderr) => TestFailure::Missing,
            _ if file.tests == 0 || file.stderr.contains("SyntaxError") => TestFailure::Build,
            _ if file.stderr.contains("AssertionError") => TestFailure::Assertion,
            _ => TestFailure::Error,
        };
        let signal = event.signal.as_ref().map(|signal| format!("{signal}\n")).unwrap_or_default();
        let text = if file.stderr.trim().is_empty() { &event.message } else { &file.stderr };
        self.found.add(TestResult::failed(path, failure, signal + text).with_place(parse_place(path, text)));
    }

    fn record_hung_tests(&mut self, path: &str, file: &NodeFileState) {
        for name in &file.running {
            let message = "it did not finish within its time limit";
            self.found.add(TestResult::failed(format!("{path} > {name}"), TestFailure::Timeout, message));
        }
    }

    /// Records the tests that were still running when the whole run timed out.
    fn record_unfinished(&mut self, output: &SuiteOutput) {
        if output.end == CommandExit::TimedOut {
            for (path, file) in std::mem::take(&mut self.files) {
                self.record_hung_tests(&path, &file);
            }
        }
    }
}

fn test_from_event(id: String, path: &str, event: &NodeTestEvent) -> TestResult {
    let at = parse_place(path, &event.stack).or_else(|| Some(format!("{path}:{}", event.line?)));
    let failed = |failure| {
        let message = if event.message.is_empty() { &event.stack } else { &event.message };
        TestResult::failed(id.clone(), failure, message).with_place(at)
    };
    match (&event.skip, event.kind.as_str(), event.failure.as_str()) {
        (Some(serde_json::Value::String(why)), ..) => TestResult::skipped(id, why),
        (Some(serde_json::Value::Bool(true)), ..) => TestResult::skipped(id, ""),
        (_, "pass", _) => TestResult::passed(id),
        // `cancelledByParent` also covers a promise that never settles.
        (_, _, "testTimeoutFailure" | "cancelledByParent") => failed(TestFailure::Timeout),
        _ if event.stack.starts_with("AssertionError") => failed(TestFailure::Assertion),
        _ if mentions_missing_name(&event.stack) => failed(TestFailure::Missing),
        _ => failed(TestFailure::Error),
    }
}

/// Returns the first `path:line` in a stack trace.
pub(super) fn parse_place(path: &str, stack: &str) -> Option<String> {
    let (_, rest) = stack.split_once(&format!("{path}:"))?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (end > 0).then(|| format!("{path}:{}", &rest[..end]))
}
