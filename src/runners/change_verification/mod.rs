//! Runs that show something of a change: with other files laid over those of a commit its tests fail, pass, or notice what is
//! undone. What each comes to is judged by the rules of [`red_green`]; who has them run, and what follows, is known
//! elsewhere.

mod adversarial_tests;
mod mutation_check;
mod repository_checks;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::{
    mutation_check::MutationCheck,
    repository_checks::{RepositoryCheck, RepositoryCheckKind},
};
use super::{
    TestError, TestReport, TestRequest, TestRun, TestWorkspace,
    red_green::{self, ExpectedTest, FailureGroup, GreenProof, RedProof, TestExpectations},
    sanitize_line,
};
use crate::{
    config::TestSettings,
    documents::{
        change::{ChangeSection, Kind, ParsedChange},
        spec::ParsedSpec,
    },
    git::Snapshot,
    sandbox::Sandbox,
};

/// Suites that take longer than so many seconds are slow, where the repository does not say it.
const FULL_SECONDS: u64 = 600;

/// All tests pass so often before it is believed: one that passes by luck seldom does three times.
pub const GREEN_RUNS: usize = 3;

/// Files that are named of those that a run was without.
const MOST_LEFT_OUT: usize = 5;

/// A run of a commit's tests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RecordedTestRun {
    pub runner: String,
    /// The project's folder; empty for the root.
    pub folder: String,
    pub found: TestReport,
    /// Why dependencies were not fetched, where tests miss something.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Which files are not there.
    #[serde(default)]
    pub left_out: Vec<String>,
    pub seconds: f64,
    /// How well it was kept apart.
    pub level: String,
}

impl RecordedTestRun {
    /// What is to be known of it besides.
    pub fn all_notes(&self) -> impl Iterator<Item = &String> {
        self.notes.iter().chain(&self.left_out)
    }

    /// A path as the project's own tests have it, where it is the project's.
    pub fn project_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.folder.as_str() {
            "" => Some(path),
            folder => path.strip_prefix(folder)?.strip_prefix('/'),
        }
    }

    /// A test as they have it. A command of the repository says of no test where it is.
    pub fn expected_test(&self, file: &str, name: &str) -> ExpectedTest {
        let file = if self.is_command() { "" } else { self.project_path(file).unwrap_or(file) };
        ExpectedTest { file: file.to_owned(), name: name.to_owned(), kind: None }
    }

    /// What the tests of a change and its spec say that the runs have to show.
    pub fn expectations(&self, spec: &ParsedSpec, change: &ParsedChange) -> TestExpectations {
        let tests = || change.files_in(ChangeSection::Tests);
        let there = |removed: bool| {
            let files = tests().filter(|file| (file.kind == Kind::Delete) == removed);
            files.filter_map(|file| self.project_path(&file.path)).map(str::to_owned).collect()
        };
        TestExpectations {
            files: there(false),
            removed: there(true),
            rows: spec.tests.iter().map(|row| self.expected_test(&row.file, &row.name)).collect(),
            guards: tests().flat_map(|file| file.guards.clone()).collect(),
            declared: red_green::declared_names(spec),
        }
    }

    /// A test of the spec that they could not be asked about, and why, in a clause; none where they can about all.
    pub fn unreachable_test(&self, spec: &ParsedSpec) -> Option<String> {
        let mut seen = BTreeSet::new();
        spec.tests.iter().find_map(|row| {
            let mut files = spec.view.files.iter();
            let added = files.any(|file| file.path == row.file && file.change == Some(Kind::Add));
            let why = match self.project_path(&row.file) {
                _ if self.is_command() => (!seen.insert(&row.name)).then_some(
                    "has the name of another one, and the command of the repository does not say which is which",
                ),
                Some(file) => red_green::unreachable_reason(&self.runner, file, added, &self.found),
                None => Some("stands in another project than the one whose tests run here"),
            };
            why.map(|why| format!("the test `{}` of `{}` {why}", sanitize_line(&row.name), sanitize_line(&row.file)))
        })
    }

    /// Are they run by a command of the repository, which knows them by their names alone?
    pub fn is_command(&self) -> bool {
        self.runner == "command"
    }

    /// One of theirs as the repository has it.
    fn repository_path(&self, path: &str) -> String {
        if self.folder.is_empty() { path.to_owned() } else { format!("{}/{path}", self.folder) }
    }
}

/// Files that lie over those of the commit; none where one is removed.
pub type FileOverlay = Vec<(String, Option<Vec<u8>>)>;

/// Runs of a commit's tests in the sandbox, with other files laid over its own. The errors of all are those of [`TestWorkspace::run`].
pub struct ChangeVerifier {
    pub sandbox: Sandbox,
    pub snapshot: Snapshot,
    pub asked: TestRequest,
    pub stop: CancellationToken,
}

impl ChangeVerifier {
    /// All tests, or those of some files, built from nothing: what an earlier run left says nothing of this one.
    pub async fn run(&self, targets: &[String], overlay: FileOverlay) -> Result<RecordedTestRun, TestError> {
        self.run_in(&mut TestWorkspace::new()?, targets, overlay).await
    }

    /// Those of some files without the code, twice: do they fail as they have to? Where nothing but missing names keeps them
    /// from being built, once more with stubs.
    pub async fn prove_red(
        &self,
        targets: &[String],
        [overlay, stubs]: [FileOverlay; 2],
        before: &TestReport,
        told: &TestExpectations,
    ) -> Result<Result<RedProof, Vec<String>>, TestError> {
        let first = self.run(targets, overlay.clone()).await?;
        let second = self.run(targets, overlay.clone()).await?;
        Ok(match red_green::prove_red(before, [&first.found, &second.found], told) {
            Ok(red) if red.has_compile_failures() && !stubs.is_empty() => {
                let run = self.run(targets, [overlay, stubs].concat()).await?;
                Ok(red_green::apply_stub_run(red, before, &run.found, told))
            }
            red => red.map_err(|wrong| wrong.into_iter().chain(first.notes).collect()),
        })
    }

    /// All tests so often, or where they are slow all of them once and those of the change as often: until one does not pass.
    /// `before` is without tests and code.
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
            // Not every runner can be told of files.
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

    /// Do all tests together take longer than the repository waits for three times?
    fn is_slow(&self, before: &RecordedTestRun) -> bool {
        before.seconds > self.asked.settings.full_seconds.unwrap_or(FULL_SECONDS) as f64
    }

    /// On what earlier runs there built, which is many times as fast, and which they may have changed.
    async fn run_in(
        &self,
        bench: &mut TestWorkspace,
        targets: &[String],
        overlay: FileOverlay,
    ) -> Result<RecordedTestRun, TestError> {
        self.run_request(bench, TestRequest { targets: targets.to_vec(), overlay, ..self.asked.clone() })
            .await
    }

    async fn run_request(
        &self,
        bench: &mut TestWorkspace,
        asked: TestRequest,
    ) -> Result<RecordedTestRun, TestError> {
        let tested = bench.run(&self.sandbox, &self.snapshot, asked, &self.stop).await?;
        let left_out = tested.left_out.iter().take(MOST_LEFT_OUT);
        let left_out = left_out
            .map(|file| format!("`{}` was left out: {}", sanitize_line(&file.path), file.why))
            .collect();
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

    /// What a line for the shell says where it does not end well.
    async fn run_check(
        &self,
        bench: &mut TestWorkspace,
        line: &str,
        overlay: FileOverlay,
    ) -> Result<Option<String>, TestError> {
        let asked = TestRequest { settings: TestSettings::from_command(line), overlay, ..self.asked.clone() };
        let TestRun { found, notes, .. } =
            bench.run(&self.sandbox, &self.snapshot, asked, &self.stop).await?;
        if found.has_passed() {
            return Ok(None);
        }
        let said =
            found.failures().map(|test| test.message.clone()).chain(found.trouble.clone()).chain(notes);
        Ok(Some(said.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")))
    }
}
