//! Runs a repository's own test command. Reads the command's exit code, and its JUnit XML or TAP report if it writes
//! one.

use super::{
    CommandExit, ReportLocation, SuiteCommand, SuiteOutput, TestFailure, TestProject, TestReport, TestResult,
    TestSuite, error_summary, exit_failure,
    junit::{self, JunitCase, JunitResult},
    mentions_missing_name, pytest,
    python_environment::PythonEnvironment,
    tap,
    toolchains::SYSTEM_PATH,
};

pub(super) struct GenericSuite {
    pub(super) project: TestProject,
    /// Folders with the programs of this machine's toolchains.
    pub(super) path: Vec<String>,
    /// Environment of the Python project, if the repository is one.
    pub(super) python: Option<PythonEnvironment>,
}

impl TestSuite for GenericSuite {
    fn prepare(&mut self) -> Option<SuiteCommand> {
        self.python.as_ref().map(PythonEnvironment::prepare)
    }

    fn read_prepared(&mut self, output: &SuiteOutput) -> Vec<String> {
        self.python.as_mut().and_then(|python| python.read(output)).into_iter().collect()
    }

    fn begin(&mut self) -> Result<SuiteCommand, String> {
        if self.project.only.is_some() {
            return Err(
                "the repository's own test command always runs all tests; leave out --only".to_owned()
            );
        }
        let command = self.project.settings.command.clone().ok_or("no test command is set")?;
        let path = self.path.iter().map(String::as_str).chain([SYSTEM_PATH]).collect::<Vec<_>>().join(":");
        Ok(SuiteCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), command],
            environment: match &self.python {
                Some(python) => python.variables(&path),
                None => vec![("PATH".to_owned(), path)],
            },
            folder: self.project.folder.clone(),
            report: self.project.settings.report.clone().map(ReportLocation::TreePath),
        })
    }

    fn read_output(&mut self, output: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let own = self
            .project
            .settings
            .report
            .is_none()
            .then(|| output.stdout.clone())
            .filter(|out| tap::is_tap(out));
        found.has_summary = pytest::parse_summary(&output.stdout).is_some();
        for report in output.reports.iter().chain(&own) {
            if report.trim_start().starts_with('<') {
                if let Err(why) = junit::read_junit(report, |case| found.add(test_from_case(case))) {
                    found.add_trouble(why);
                }
            } else if tap::is_tap(report) {
                tap::read_tap(report, found);
            } else {
                found.add_trouble("the report is neither JUnit XML nor TAP");
            }
        }
        let command = self.project.settings.command.clone().unwrap_or_default();
        let printed = [output.stdout.trim(), output.stderr.trim()].join("\n");
        if let Some(report) = self.project.settings.report.as_ref().filter(|_| output.reports.is_empty()) {
            let printed = error_summary(&printed);
            let printed = if printed.is_empty() { printed } else { format!(": {printed}") };
            found.add_trouble(format!("the command left no report at {report}: {}{printed}", output.end));
        } else if output.reports.is_empty() && own.is_none() {
            // Without a report, the command counts as one test.
            found.add(match output.end {
                CommandExit::Exit(0) => TestResult::passed(command),
                CommandExit::Exit(_) if mentions_missing_name(&printed) => {
                    TestResult::failed(command, TestFailure::Missing, message_tail(&printed))
                }
                CommandExit::Exit(_) => {
                    TestResult::failed(command, TestFailure::Error, message_tail(&printed))
                }
                end => TestResult::failed(command, exit_failure(end), message_tail(&printed)),
            });
        } else if output.end != CommandExit::Exit(0) && found.failures().next().is_none() {
            found.add_trouble(format!(
                "the command failed although no test in its report did: {}",
                output.end
            ));
        }
        None
    }
}

/// Returns the end of a program's output, which usually names the error.
pub(super) fn message_tail(output: &str) -> &str {
    &output[output.ceil_char_boundary(output.len().saturating_sub(3_000))..]
}

fn test_from_case(case: JunitCase) -> TestResult {
    let id = if case.class.is_empty() { case.name } else { format!("{}::{}", case.class, case.name) };
    let text = if case.text.trim().is_empty() { &case.message } else { &case.text };
    let at = (!case.file.is_empty()).then(|| match case.line {
        Some(line) => format!("{}:{line}", case.file),
        None => case.file.clone(),
    });
    match case.result {
        JunitResult::Passed => TestResult::passed(id),
        JunitResult::Skipped => TestResult::skipped(id, &case.message),
        _ if mentions_missing_name(&case.kind) || mentions_missing_name(text) => {
            TestResult::failed(id, TestFailure::Missing, text).with_place(at)
        }
        _ if case.kind.contains("Timeout") || case.kind.contains("TimedOut") => {
            TestResult::failed(id, TestFailure::Timeout, text).with_place(at)
        }
        JunitResult::Failure => TestResult::failed(id, TestFailure::Assertion, text).with_place(at),
        JunitResult::Error => TestResult::failed(id, TestFailure::Error, text).with_place(at),
    }
}
