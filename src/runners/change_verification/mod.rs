//! Verifies a change by running the tests of a commit with overlay files. The change's tests must fail without the
//! code, pass with it, and detect reverted parts. The rules of [`red_green`] evaluate each run; the callers decide how
//! to react.

mod adversarial_tests;
mod mutation_check;
mod repository_checks;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::{
    mutation_check::MutationCheck,
    repository_checks::{RepositoryCheck, RepositoryCheckKind, RepositoryComplaint},
};
use super::{
    TestError, TestReport, TestRequest, TestRun, TestWorkspace, libtest,
    red_green::{self, ExpectedTest, FailureGroup, GreenProof, RedProof, TestExpectations},
    sanitize_line,
};
use crate::{
    config::TestSettings,
    documents::{
        change::{ChangeSection, Kind, ParsedChange},
        spec::{ParsedSpec, TestMappingRow},
    },
    git::Snapshot,
    sandbox::Sandbox,
};

/// Duration in seconds above which a test suite counts as slow, unless the repository sets its own limit.
const FULL_SECONDS: u64 = 600;

/// Number of passing runs required, because a flaky test seldom passes three times.
pub const GREEN_RUNS: usize = 3;

/// Maximum number of files listed in the note on files that were left out of a run.
const MOST_LEFT_OUT: usize = 5;

/// Result of one test run, as stored with the change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordedTestRun {
    pub runner: String,
    /// Folder of the project, relative to the repository's root. Empty for the root itself.
    pub folder: String,
    pub found: TestReport,
    /// Reasons why dependencies were not fetched, if missing dependencies could explain a failure. If the tests did not
    /// pass, also reasons why toolchains do not work in the sandbox.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Notes on files that were left out of the checkout, and on projects whose tests were not run.
    #[serde(default)]
    pub left_out: Vec<String>,
    pub seconds: f64,
    pub level: String,
}

impl RecordedTestRun {
    /// Updates the ids of a run that an earlier version stored.
    #[must_use]
    pub fn with_current_ids(mut self) -> Self {
        libtest::number_doc_tests(&mut self.found);
        self
    }

    /// Returns all notes on the run, including the notes on left-out files.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.left_out)
    }

    /// Returns `path` relative to the project's folder. `None` if `path` is outside that folder.
    pub fn project_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.folder.as_str() {
            "" => Some(path),
            folder => path.strip_prefix(folder)?.strip_prefix('/'),
        }
    }

    /// Returns the expected test for a file and name. If the tests run by a command, the result contains only the name,
    /// because a command does not report files.
    pub fn expected_test(&self, file: &str, name: &str) -> ExpectedTest {
        let file = if self.is_command() { "" } else { self.project_path(file).unwrap_or(file) };
        ExpectedTest { file: file.to_owned(), name: name.to_owned(), kind: None }
    }

    /// Returns the expectations that the test runs must meet, derived from the spec and the change.
    pub fn expectations(&self, spec: &ParsedSpec, change: &ParsedChange) -> TestExpectations {
        let tests = || change.files_in(ChangeSection::Tests);
        let in_project = |path: &String| self.project_path(path).map(str::to_owned);
        let files = tests().filter(|file| file.kind != Kind::Delete).map(|file| &file.path);
        // A source file that the spec deletes may hold tests.
        let deleted = spec.view.files.iter().filter(|row| row.change == Some(Kind::Delete));
        let deleted = deleted.map(|row| &row.path);
        let rows = |rows: &[TestMappingRow]| {
            rows.iter().map(|row| self.expected_test(&row.file, &row.name)).collect()
        };
        TestExpectations {
            files: files.filter_map(in_project).collect(),
            removed: deleted.filter_map(in_project).collect(),
            removed_tests: rows(&spec.removed_tests),
            is_reopened: false,
            rows: rows(&spec.tests),
            doc_tests: rows(&spec.doc_tests),
            guards: tests().flat_map(|file| file.guards.clone()).collect(),
            declared: red_green::declared_names(spec),
        }
    }

    /// Returns a description of each required test that these runs cannot check, with the reason.
    pub fn unreachable_tests(&self, spec: &ParsedSpec) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let unreachable = spec.tests.iter().filter_map(|row| {
            let mut files = spec.view.files.iter();
            let added = files.any(|file| file.path == row.file && file.change == Some(Kind::Add));
            let why = match self.project_path(&row.file) {
                _ if self.is_command() => (!seen.insert(&row.name)).then_some(
                    "has the same name as another test, and the repository's test command does not tell them apart",
                ),
                Some(file) => red_green::unreachable_reason(&self.runner, file, added, &self.found),
                None => Some("is in another project than the one whose tests run here"),
            };
            why.map(|why| format!("the test `{}` of `{}` {why}", sanitize_line(&row.name), sanitize_line(&row.file)))
        });
        unreachable.collect()
    }

    /// Whether the tests are run by the repository's own command, which reports only test names, without files.
    pub fn is_command(&self) -> bool {
        self.runner == "command"
    }

    /// Converts a path in the project to a path relative to the repository's root.
    fn repository_path(&self, path: &str) -> String {
        if self.folder.is_empty() { path.to_owned() } else { format!("{}/{path}", self.folder) }
    }
}

/// Files to write over the commit, by path; `None` removes a file.
pub type FileOverlay = Vec<(String, Option<Vec<u8>>)>;

/// Runs a commit's tests in the sandbox with overlay files. All methods return the errors of [`TestWorkspace::run`].
pub struct ChangeVerifier {
    pub sandbox: Sandbox,
    pub snapshot: Snapshot,
    pub asked: TestRequest,
    pub stop: CancellationToken,
}

impl ChangeVerifier {
    /// Runs all tests, or only those of the `targets` files, in a clean build, so that the results do not depend on an
    /// earlier run.
    pub async fn run(&self, targets: &[String], overlay: FileOverlay) -> Result<RecordedTestRun, TestError> {
        self.run_in(&mut TestWorkspace::new()?, targets, overlay).await
    }

    /// Proves with two runs that the tests of some files fail without the code. If the tests fail to build only because
    /// of missing names, a third run uses stubs for these names.
    pub async fn prove_red(
        &self,
        targets: &[String],
        [overlay, stubs]: [FileOverlay; 2],
        before: &TestReport,
        expected: &TestExpectations,
    ) -> Result<Result<RedProof, Vec<String>>, TestError> {
        let first = self.run(targets, overlay.clone()).await?;
        let second = self.run(targets, overlay.clone()).await?;
        Ok(match red_green::prove_red(before, [&first.found, &second.found], expected) {
            Ok(red) if red.has_compile_failures() && !stubs.is_empty() => {
                let run = self.run(targets, [overlay, stubs].concat()).await?;
                Ok(red_green::apply_stub_run(red, before, &run.found, expected))
            }
            red => red.map_err(|wrong| wrong.into_iter().chain(first.notes).collect()),
        })
    }

    /// Proves that the tests pass with the code. Runs all tests `times` times, and stops at the first failure. For a
    /// slow suite, only the first run includes all tests; later runs include only the tests of the change. `before` is
    /// the run without the new tests and the code.
    pub async fn prove_green(
        &self,
        times: usize,
        overlay: &FileOverlay,
        before: &RecordedTestRun,
        red: &RedProof,
    ) -> Result<Result<GreenProof, Vec<FailureGroup>>, TestError> {
        let slow = self.is_slow(before);
        let mut runs: Vec<TestReport> = Vec::new();
        loop {
            let whole = runs.first().filter(|_| slow);
            let files = whole
                .iter()
                .flat_map(|_| &red.files)
                .map(|path| before.repository_path(path))
                .collect::<Vec<_>>();
            let ran = self.run(&files, overlay.clone()).await?;
            let run = match whole {
                Some(whole) => red_green::merge_with_full_run(red, whole, ran.found.clone()),
                None => ran.found.clone(),
            };
            // Not every runner can run single files.
            let alone = (run.tests.len() > ran.found.tests.len()).then(|| ran.found.clone());
            runs.push(run);
            let judged = red_green::prove_green(&before.found, red, &runs.iter().collect::<Vec<_>>());
            if judged.is_err() || runs.len() == times {
                let of_run = |message| FailureGroup { message, tests: vec!["the run itself".to_owned()] };
                let once = |green: &GreenProof| {
                    let again = |id: &str| alone.iter().flat_map(|run| &run.tests).any(|test| test.id == id);
                    alone.as_ref().map(|_| green.locked.iter().filter(|id| !again(id)).count())
                };
                return Ok(judged.map(|green| GreenProof { once: once(&green), ..green }).map_err(
                    |failing| failing.into_iter().chain(ran.notes.into_iter().map(of_run)).collect(),
                ));
            }
        }
    }

    /// Whether the suite is too slow to be run completely several times.
    fn is_slow(&self, before: &RecordedTestRun) -> bool {
        before.seconds > self.asked.settings.full_seconds.unwrap_or(FULL_SECONDS) as f64
    }

    /// Runs tests in a workspace that keeps the build output of earlier runs. This is many times faster, but earlier
    /// runs may have tampered with the build output.
    async fn run_in(
        &self,
        workspace: &mut TestWorkspace,
        targets: &[String],
        overlay: FileOverlay,
    ) -> Result<RecordedTestRun, TestError> {
        self.run_request(workspace, TestRequest { targets: targets.to_vec(), overlay, ..self.asked.clone() })
            .await
    }

    async fn run_request(
        &self,
        workspace: &mut TestWorkspace,
        request: TestRequest,
    ) -> Result<RecordedTestRun, TestError> {
        let tested = workspace.run(&self.sandbox, &self.snapshot, request, &self.stop).await?;
        let left_out = tested.left_out.iter().take(MOST_LEFT_OUT);
        let left_out =
            left_out.map(|file| format!("`{}` was left out: {}", sanitize_line(&file.path), file.why));
        let more = tested.not_run.len().saturating_sub(MOST_LEFT_OUT);
        let not_run: Vec<_> = tested.not_run.iter().take(MOST_LEFT_OUT).map(ToString::to_string).collect();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let not_run = (!not_run.is_empty())
            .then(|| format!("other tests of the repository were not run: {}{more}", not_run.join(", ")));
        let left_out = left_out.chain(not_run).collect();
        Ok(RecordedTestRun {
            runner: tested.runner.to_owned(),
            folder: tested.folder,
            found: tested.found,
            notes: tested.notes,
            left_out,
            seconds: tested.seconds,
            level: self.sandbox.level().as_str().to_owned(),
        })
    }

    /// Runs a shell command. Returns the command's output if the command fails.
    async fn run_check(
        &self,
        workspace: &mut TestWorkspace,
        line: &str,
        overlay: FileOverlay,
    ) -> Result<Option<String>, TestError> {
        let setup = self.asked.settings.setup.clone();
        let settings = TestSettings { setup, ..TestSettings::from_command(line) };
        let request = TestRequest { settings, overlay, ..self.asked.clone() };
        let TestRun { found, notes, .. } =
            workspace.run(&self.sandbox, &self.snapshot, request, &self.stop).await?;
        if found.has_passed() {
            return Ok(None);
        }
        let output =
            found.failures().map(|test| test.message.clone()).chain(found.trouble.clone()).chain(notes);
        Ok(Some(output.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")))
    }
}
