//! Whatever command a repository names: its exit code, with JUnit's XML or TAP where it writes one.

use super::{
    CommandExit, ReportLocation, SuiteCommand, SuiteOutput, TestFailure, TestProject, TestReport, TestResult,
    TestSuite, failure,
    junit::{self, JunitCase, JunitResult},
    says_missing, tap,
    toolchains::SYSTEM_PATH,
    wrong,
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
            report: self.project.settings.report.clone().map(ReportLocation::Theirs),
        })
    }

    fn read(&mut self, came: SuiteOutput, found: &mut TestReport) -> Option<SuiteCommand> {
        let own = self
            .project
            .settings
            .report
            .is_none()
            .then(|| came.stdout.clone())
            .filter(|out| tap::is_tap(out));
        for report in came.reports.iter().chain(&own) {
            if report.trim_start().starts_with('<') {
                if let Err(why) = junit::read(report, |case| found.add(test(case))) {
                    found.trouble(why);
                }
            } else if tap::is_tap(report) {
                tap::read(report, found);
            } else {
                found.trouble("the report is neither JUnit XML nor TAP");
            }
        }
        let command = self.project.settings.command.clone().unwrap_or_default();
        let said = [came.stdout.trim(), came.stderr.trim()].join("\n");
        if let Some(report) = self.project.settings.report.as_ref().filter(|_| came.reports.is_empty()) {
            let said = wrong(&said);
            let said = if said.is_empty() { said } else { format!(": {said}") };
            found.trouble(format!("the command left no report at {report}: {}{said}", came.end));
        } else if came.reports.is_empty() && own.is_none() {
            // It tells no tests apart, so it is one.
            found.add(match came.end {
                CommandExit::Exit(0) => TestResult::passed(command),
                CommandExit::Exit(_) if says_missing(&said) => {
                    TestResult::failed(command, TestFailure::Missing, tail(&said))
                }
                CommandExit::Exit(_) => TestResult::failed(command, TestFailure::Error, tail(&said)),
                end => TestResult::failed(command, failure(end), tail(&said)),
            });
        } else if came.end != CommandExit::Exit(0) && found.failed().next().is_none() {
            found.trouble(format!("no test in the report failed, and yet of the command: {}", came.end));
        }
        None
    }
}

/// The end is where programs say what went wrong.
fn tail(said: &str) -> &str {
    &said[said.ceil_char_boundary(said.len().saturating_sub(3_000))..]
}

fn test(case: JunitCase) -> TestResult {
    let id = if case.class.is_empty() { case.name } else { format!("{}::{}", case.class, case.name) };
    let said = if case.text.trim().is_empty() { &case.message } else { &case.text };
    let at = (!case.file.is_empty()).then(|| match case.line {
        Some(line) => format!("{}:{line}", case.file),
        None => case.file.clone(),
    });
    match case.result {
        JunitResult::Passed => TestResult::passed(id),
        JunitResult::Skipped => TestResult::skipped(id, &case.message),
        _ if says_missing(&case.kind) || says_missing(said) => {
            TestResult::failed(id, TestFailure::Missing, said).at(at)
        }
        _ if case.kind.contains("Timeout") || case.kind.contains("TimedOut") => {
            TestResult::failed(id, TestFailure::Timeout, said).at(at)
        }
        JunitResult::Failure => TestResult::failed(id, TestFailure::Assertion, said).at(at),
        JunitResult::Error => TestResult::failed(id, TestFailure::Error, said).at(at),
    }
}
