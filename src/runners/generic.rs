//! Whatever command a repository names: its exit code, with JUnit's XML or TAP where it writes one.

use super::{
    CommandExit, ReportLocation, SuiteCommand, SuiteOutput, TestFailure, TestProject, TestReport, TestResult,
    TestSuite, error_summary, exit_failure,
    junit::{self, JunitCase, JunitResult},
    mentions_missing_name, tap,
    toolchains::SYSTEM_PATH,
};

pub(super) struct GenericSuite {
    pub(super) project: TestProject,
    /// Where the toolchains of this machine have their programs.
    pub(super) path: Vec<String>,
}

impl TestSuite for GenericSuite {
    fn begin(&mut self) -> Result<SuiteCommand, String> {
        if self.project.only.is_some() {
            return Err(
                "a command of the repository's own runs all of its tests; leave out --only".to_owned()
            );
        }
        let command = self.project.settings.command.clone().ok_or("no test command is named")?;
        let path = self.path.iter().map(String::as_str).chain([SYSTEM_PATH]).collect::<Vec<_>>().join(":");
        Ok(SuiteCommand {
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), command],
            environment: vec![("PATH".to_owned(), path)],
            folder: self.project.folder.clone(),
            report: self.project.settings.report.clone().map(ReportLocation::TreePath),
        })
    }

    fn read_output(&mut self, came: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let own = self
            .project
            .settings
            .report
            .is_none()
            .then(|| came.stdout.clone())
            .filter(|out| tap::is_tap(out));
        for report in came.reports.iter().chain(&own) {
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
        let said = [came.stdout.trim(), came.stderr.trim()].join("\n");
        if let Some(report) = self.project.settings.report.as_ref().filter(|_| came.reports.is_empty()) {
            let said = error_summary(&said);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            found.add_trouble(format!("the command left no report at {report}: {}{said}", came.end));
        } else if came.reports.is_empty() && own.is_none() {
            // It tells no tests apart, so it is one.
            found.add(match came.end {
                CommandExit::Exit(0) => TestResult::passed(command),
                CommandExit::Exit(_) if mentions_missing_name(&said) => {
                    TestResult::failed(command, TestFailure::Missing, message_tail(&said))
                }
                CommandExit::Exit(_) => TestResult::failed(command, TestFailure::Error, message_tail(&said)),
                end => TestResult::failed(command, exit_failure(end), message_tail(&said)),
            });
        } else if came.end != CommandExit::Exit(0) && found.failures().next().is_none() {
            found.add_trouble(format!("no test in the report failed, and yet of the command: {}", came.end));
        }
        None
    }
}

/// The end is where programs say what went wrong.
fn message_tail(said: &str) -> &str {
    &said[said.ceil_char_boundary(said.len().saturating_sub(3_000))..]
}

fn test_from_case(case: JunitCase) -> TestResult {
    let id = if case.class.is_empty() { case.name } else { format!("{}::{}", case.class, case.name) };
    let said = if case.text.trim().is_empty() { &case.message } else { &case.text };
    let at = (!case.file.is_empty()).then(|| match case.line {
        Some(line) => format!("{}:{line}", case.file),
        None => case.file.clone(),
    });
    match case.result {
        JunitResult::Passed => TestResult::passed(id),
        JunitResult::Skipped => TestResult::skipped(id, &case.message),
        _ if mentions_missing_name(&case.kind) || mentions_missing_name(said) => {
            TestResult::failed(id, TestFailure::Missing, said).with_place(at)
        }
        _ if case.kind.contains("Timeout") || case.kind.contains("TimedOut") => {
            TestResult::failed(id, TestFailure::Timeout, said).with_place(at)
        }
        JunitResult::Failure => TestResult::failed(id, TestFailure::Assertion, said).with_place(at),
        JunitResult::Error => TestResult::failed(id, TestFailure::Error, said).with_place(at),
    }
}
