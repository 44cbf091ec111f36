//! Red and green proofs of a change, as pure rules over test reports.
//!
//! Red: without the code, each new test fails in the same way in two runs. The test fails while running, or because a
//! name that the spec declares is missing. Green: with the code, each new test passes in every run. Every test that
//! passed before must also pass in every run.

mod evidence;
mod ids;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::{evidence::list_tests, ids::unreachable_reason, names::declared_names};
use self::{
    ids::{contains_test, doc_test_item, is_in_file, is_path_suffix},
    names::missing_names,
};
use super::{TestFailure, TestOutcome, TestReport, TestResult, sanitize_line, test_report::MOST_FAULTS};
use crate::documents::{
    change::{STUB, test_id_has_name},
    spec::DOC_TEST,
};

/// Requirements that the tests of a change must meet, derived from the change and its spec.
#[derive(Debug, Clone, Default)]
pub struct TestExpectations {
    /// Added and modified test files.
    pub files: Vec<String>,
    /// Removed test files.
    pub removed: Vec<String>,
    /// Existing tests that the approved spec removes or renames.
    pub removed_tests: Vec<ExpectedTest>,
    /// Whether a person asked for other tests, so that existing ones may go.
    pub is_reopened: bool,
    pub rows: Vec<ExpectedTest>,
    /// Doc tests, which are written with the code.
    pub doc_tests: Vec<ExpectedTest>,
    /// Names of regression guards, which are new tests that already pass before the change.
    pub guards: Vec<String>,
    /// Names that do not exist before the code is written; see [`declared_names`].
    pub declared: Vec<String>,
}

/// A test that the spec requires.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedTest {
    /// Path of the test file, relative to its project. Empty if the runner does not report files.
    pub file: String,
    pub name: String,
    /// Outcome without the code. `None` if the test is not a guard and no run has shown that it fails.
    pub kind: Option<RedKind>,
}

impl ExpectedTest {
    /// Whether `id` is the id of this test.
    pub fn matches_id(&self, id: &str) -> bool {
        if let Some((file, item)) = doc_test_item(id) {
            let name = self.name.strip_prefix(DOC_TEST).unwrap_or_default();
            return test_id_has_name(item, name) && is_path_suffix(file, &self.file);
        }
        test_id_has_name(id, &self.name) && (self.file.is_empty() || is_in_file(id, &self.file))
    }
}

/// Outcome of a new test without the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedKind {
    Assertion,
    /// The test fails at run time because a name that the spec declares is missing.
    Missing,
    /// The test fails at run time with another error.
    Runtime,
    /// The test's file, package or binary does not build without the code. The tests in it are known only once the code
    /// exists.
    Compile,
    /// The test runs if stubs replace the declared names, and fails only because a stub panics.
    Weak,
    /// The test passes without the code, as a regression guard.
    Guard,
}

/// Proof that the new tests fail without the code.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RedProof {
    /// Outcomes without the code, by id. An id names a test, or a file, package or binary that does not build.
    pub tests: BTreeMap<String, RedKind>,
    /// Test files of the change. `removed` contains the deleted test files, and `rows` the tests that the spec
    /// requires.
    pub files: Vec<String>,
    #[serde(default)]
    pub removed: Vec<String>,
    #[serde(default)]
    pub removed_tests: Vec<ExpectedTest>,
    /// Ids of existing tests that are gone because a person asked for other tests.
    #[serde(default)]
    pub dropped: Vec<String>,
    #[serde(default)]
    pub rows: Vec<ExpectedTest>,
    #[serde(default)]
    pub doc_tests: Vec<ExpectedTest>,
    /// Tests that fail or are flaky even without the change.
    pub broken: Vec<String>,
    /// Outcomes of tests that do not build without the code. They are from a run with stubs in place of the code.
    #[serde(default)]
    pub stubbed: BTreeMap<String, RedKind>,
}

impl RedProof {
    /// Whether some tests fail only because they do not build.
    pub fn has_compile_failures(&self) -> bool {
        self.tests.values().any(|kind| *kind == RedKind::Compile)
    }

    /// Adds tests that were written after the red proof. These tests have therefore not been seen to fail.
    #[must_use]
    pub fn with_rows(mut self, rows: Vec<ExpectedTest>) -> Self {
        self.files.extend(rows.iter().map(|row| row.file.clone()).filter(|file| !file.is_empty()));
        self.rows.extend(rows);
        self
    }
}

/// Proof that the tests pass with the code.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GreenProof {
    /// Tests of the change. All of them passed in every run.
    pub locked: Vec<String>,
    /// Number of other tests that passed before the change and still pass.
    pub kept: usize,
    /// Number of `locked` tests that ran only once because the suite is slow.
    #[serde(default)]
    pub once: Option<usize>,
    /// Tests that failed before the change. `gone` contains the tests in deleted files. Both are reported but do not
    /// affect the proof.
    pub broken: Vec<String>,
    pub gone: Vec<String>,
}

/// Tests that failed with the same message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    pub message: String,
    pub tests: Vec<String>,
}

/// Returns the reason why the existing tests cannot support a proof; `None` if they can. They cannot if a build fails,
/// because a failed build hides other tests. They also cannot if no test passes, because the cause then lies outside
/// the tests. Other failures do not prevent a proof.
pub fn unusable_reason(found: &TestReport) -> Option<String> {
    let unbuilt = |test: &&TestResult| match test.outcome {
        TestOutcome::Failed(TestFailure::Build) => true,
        TestOutcome::Failed(TestFailure::Missing) => !test.faults.is_empty(),
        _ => false,
    };
    let unbuilt = found.failures().find(unbuilt).map(|test| format!("`{}` cannot be built", test.id));
    // A repository may have no tests yet.
    let trouble = found.trouble.iter().find(|line| !found.tests.is_empty() || *line != "no tests were found");
    let none = || {
        let first = found.failures().next().filter(|_| found.count(TestOutcome::Passed) == 0)?;
        Some(format!("no test passes: `{}`: {}", first.id, sanitize_line(&first.message)))
    };
    unbuilt.or(trouble.cloned()).or_else(none)
}

/// Checks that the new tests fail as required. `base` is the report of a run without the new tests. `with` are the
/// reports of two runs with the tests but without the code.
///
/// # Errors
///
/// Returns the problems of the tests, one per line, for the author of the tests.
pub fn prove_red(
    base: &TestReport,
    with: [&TestReport; 2],
    expected: &TestExpectations,
) -> Result<RedProof, Vec<String>> {
    let (before, [first, second]) = (tests_by_id(base), with.map(tests_by_id));
    let trouble: BTreeSet<&String> = with.iter().flat_map(|run| &run.trouble).collect();
    let mut wrong: Vec<String> =
        trouble.into_iter().map(|line| format!("the run itself failed: {line}")).collect();
    let mut red = RedProof {
        files: expected.files.clone(),
        removed: expected.removed.clone(),
        removed_tests: expected.removed_tests.clone(),
        rows: expected.rows.clone(),
        doc_tests: expected.doc_tests.clone(),
        ..RedProof::default()
    };
    red.broken = before
        .values()
        .filter(|test| test.outcome != TestOutcome::Passed)
        .map(|test| test.id.clone())
        .collect();
    for (id, test) in &first {
        let was = before.get(id).map(|test| test.outcome);
        let again = second.get(id).map(|test| test.outcome);
        let theirs = was.is_some() && !expected.files.iter().any(|file| is_in_file(id, file));
        let failed = matches!(test.outcome, TestOutcome::Failed(_));
        let passes = test.outcome == TestOutcome::Passed;
        if theirs && !passes && again == Some(test.outcome) && was == Some(TestOutcome::Passed) {
            let now = if failed { "fails" } else { "is skipped" };
            wrong.push(format!(
                "`{id}` passed before the tests were added, and {now} now: {}",
                message_head(&test.message)
            ));
        } else if theirs && again != Some(test.outcome) {
            red.broken.push((*id).to_owned());
        } else if !theirs && passes && again == Some(test.outcome) && is_guard(expected, id) {
            red.tests.insert((*id).to_owned(), RedKind::Guard);
        } else if theirs || was == Some(test.outcome) {
            // Unchanged from before.
        } else if again != Some(test.outcome) {
            wrong.push(format!(
                "`{id}` ended differently in two runs; a test must depend on nothing but the code"
            ));
        } else if test.outcome == TestOutcome::Skipped {
            wrong.push(format!("`{id}` is skipped; have it run"));
        } else if failed {
            match classify_failure(test, expected) {
                Ok(kind) => {
                    red.tests.insert((*id).to_owned(), kind);
                }
                Err(why) => wrong.push(format!("`{id}` {why}")),
            }
        } else if was.is_none() && !expected.files.iter().any(|file| is_path_suffix(file, id)) {
            // The id of a file that merely loaded is not a test.
            wrong.push(format!(
                "`{id}` passes without the code, so it shows nothing; have it fail, or write `Guards: NAME` below the heading \
                 of its file if it guards existing behaviour"
            ));
        }
    }
    let unbuilt =
        || red.tests.iter().filter(|(_, kind)| **kind == RedKind::Compile).map(|(id, _)| id.as_str());
    for id in before.iter().filter(|(_, test)| test.outcome == TestOutcome::Passed).map(|(id, _)| *id) {
        let ours = expected.files.iter().any(|file| is_in_file(id, file));
        let removed = expected.removed_tests.iter().any(|row| row.matches_id(id));
        if ours && removed && first.contains_key(id) {
            wrong.push(format!("`{id}` is still there; the approved spec removes it"));
        }
        if ours && !removed && !first.contains_key(id) && !unbuilt().any(|whole| contains_test(whole, id)) {
            match expected.is_reopened {
                true => red.dropped.push(id.to_owned()),
                false => wrong.push(format!("`{id}` is gone; keep the existing tests")),
            }
        }
    }
    if expected.is_reopened {
        let is_run = |row: &ExpectedTest| first.keys().any(|id| row.matches_id(id));
        red.rows.retain(|row| is_run(row) || unbuilt().next().is_some());
    }
    for row in &mut red.rows {
        let (name, file) = (&row.name, &row.file);
        let seen = |(id, _): &(&String, &RedKind)| row.matches_id(id);
        // A build failure stands for the tests of its own file, and of files its errors are in.
        let whole = |(id, kind): &(&String, &RedKind)| {
            let faults = || first.get(id.as_str()).into_iter().flat_map(|test| &test.faults);
            **kind == RedKind::Compile
                && (is_in_file(id, file) || faults().any(|fault| is_path_suffix(file, &fault.file)))
        };
        row.kind = red.tests.iter().find(seen).or(red.tests.iter().find(whole)).map(|(_, kind)| *kind);
        // A repository's own command reports no files.
        let of = if file.is_empty() { String::new() } else { format!(" of `{file}`") };
        if !first.keys().any(|id| row.matches_id(id)) && row.kind.is_none() {
            wrong.push(format!(
                "no test `{name}`{of} was run, but the spec requires it; does the runner find its file?"
            ));
        } else if row.kind.is_none() && (file.is_empty() || expected.files.contains(file)) {
            wrong.push(format!(
                "`{name}`{of}, which the spec requires, is not seen to fail: its outcome is the same as before; have it fail, \
                 or write `Guards: {name}` below the heading of its file if it guards existing behaviour"
            ));
        }
    }
    if red.tests.values().all(|kind| *kind == RedKind::Guard) && wrong.is_empty() {
        wrong.push("there is no new test that fails without the code".to_owned());
    }
    wrong.truncate(MOST_LINES);
    if wrong.is_empty() { Ok(red) } else { Err(wrong) }
}

/// Adds outcomes of tests that do not build without the code, from a run with stubs in place of the code. Skips tests
/// that still do not build, and tests that passed before. A stub panics or returns nothing. Therefore a passing test
/// may expect exactly the stub's behavior, and an error other than an assertion may come from the stub.
pub fn apply_stub_run(
    mut red: RedProof,
    before: &TestReport,
    run: &TestReport,
    expected: &TestExpectations,
) -> RedProof {
    let before = tests_by_id(before);
    let whole = |id: &str| {
        red.tests.iter().any(|(whole, kind)| *kind == RedKind::Compile && contains_test(whole, id))
    };
    let passed = |id: &str| before.get(id).is_some_and(|test| test.outcome == TestOutcome::Passed);
    for test in run.tests.iter().filter(|test| whole(&test.id) && !passed(&test.id)) {
        let kind = match test.outcome {
            TestOutcome::Passed if is_guard(expected, &test.id) => RedKind::Guard,
            TestOutcome::Passed => RedKind::Compile,
            TestOutcome::Failed(TestFailure::Assertion) if !test.message.contains(STUB) => RedKind::Assertion,
            TestOutcome::Failed(TestFailure::Assertion | TestFailure::Error | TestFailure::Crash) => {
                RedKind::Weak
            }
            TestOutcome::Failed(_) | TestOutcome::Skipped => continue,
        };
        red.stubbed.insert(test.id.clone(), kind);
        red.rows.iter_mut().filter(|row| row.matches_id(&test.id)).for_each(|row| row.kind = Some(kind));
    }
    red
}

/// Maximum number of problems reported at once. If there are more, the tests must be rewritten anyway.
const MOST_LINES: usize = 40;

fn is_guard(expected: &TestExpectations, id: &str) -> bool {
    expected.guards.iter().any(|name| test_id_has_name(id, name))
}

/// Returns the kind of a failure that is acceptable without the code. The error is the problem with the test, phrased
/// as the end of a sentence.
fn classify_failure(test: &TestResult, expected: &TestExpectations) -> Result<RedKind, String> {
    let declared = |name: &String| expected.declared.contains(name);
    let of_tests =
        |path: &str| !path.is_empty() && expected.files.iter().any(|file| is_path_suffix(file, path));
    let head = message_head(&test.message);
    if let Some(fault) = test.faults.iter().find(|fault| {
        fault.missing.is_empty() || !fault.missing.iter().all(declared) || !of_tests(&fault.file)
    }) {
        let why = match fault.missing.iter().find(|name| !declared(name)) {
            _ if !of_tests(&fault.file) => "in a file that is not one of the new test files".to_owned(),
            Some(name) => format!("which misses `{name}`, and the spec declares no such name"),
            None => "which is not a missing name".to_owned(),
        };
        return Err(format!("cannot be built: {}: {}, {why}", fault.file, fault.message));
    }
    if test.faults.len() >= MOST_FAULTS {
        return Err(format!("cannot be built: it has {MOST_FAULTS} errors or more"));
    }
    let whole = !test.faults.is_empty() || of_tests(&test.id);
    match test.outcome {
        TestOutcome::Failed(TestFailure::Assertion) => Ok(RedKind::Assertion),
        TestOutcome::Failed(TestFailure::Error) if !whole && missing_names(&test.message).is_empty() => {
            Ok(RedKind::Runtime)
        }
        TestOutcome::Failed(TestFailure::Missing | TestFailure::Error) => {
            let names = missing_names(&test.message);
            match names.iter().find(|name| !declared(name)) {
                _ if !test.faults.is_empty() => Ok(RedKind::Compile),
                Some(name) => Err(format!("misses `{name}`, and the spec declares no such name: {head}")),
                None if names.is_empty() => {
                    Err(format!("misses a name that could not be determined: {head}"))
                }
                None => Ok(if whole { RedKind::Compile } else { RedKind::Missing }),
            }
        }
        TestOutcome::Failed(failure) => {
            Err(format!("fails by {}, not by an assertion: {head}", failure.name()))
        }
        TestOutcome::Passed | TestOutcome::Skipped => Err("does not fail".to_owned()),
    }
}

/// Message about a test that passed before the change and is missing from its changed file, which did not build without
/// the code. No code can make such a test pass.
pub const REMOVED_TEST_MESSAGE: &str = "it passed before, but its changed file no longer contains it";

/// Checks that the new tests pass and that the earlier tests still pass. `base` is the report of a run without the
/// tests and the code; `runs` are the reports of runs with both.
///
/// # Errors
///
/// Returns the failures grouped by message, for the author of the code.
pub fn prove_green(
    base: &TestReport,
    red: &RedProof,
    runs: &[&TestReport],
) -> Result<GreenProof, Vec<FailureGroup>> {
    let before = tests_by_id(base);
    let passed_before = |id: &str| {
        before.get(id).is_some_and(|test| test.outcome == TestOutcome::Passed)
            && !red.broken.iter().any(|broken| broken == id)
    };
    let of = |files: &[String], id: &str| files.iter().any(|file| is_in_file(id, file));
    // With stubs, a file did build without the code.
    let stubbed = |whole: &str| red.stubbed.keys().any(|id| contains_test(whole, id));
    let unbuilt = |id: &str| {
        let mut wholes = red.tests.iter().filter(|(_, kind)| **kind == RedKind::Compile);
        wholes.any(|(whole, _)| contains_test(whole, id) && !stubbed(whole))
    };
    let mut failing = BTreeMap::<String, BTreeSet<String>>::new();
    let mut fail = |id: &str, message: &str| {
        failing.entry(message_head(message)).or_default().insert(id.to_owned());
    };
    let (mut locked, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for run in runs {
        run.trouble.iter().for_each(|line| fail("the run itself", line));
        if base.has_summary && !run.has_summary {
            fail("the run itself", "the test runner ended without its summary");
        }
        let now = tests_by_id(run);
        let passed = |id: &str| now.get(id).is_some_and(|test| test.outcome == TestOutcome::Passed);
        for (id, test) in
            now.iter().filter(|(id, _)| !before.contains_key(**id) || red.tests.contains_key(**id))
        {
            locked.insert((*id).to_owned());
            match test.outcome {
                TestOutcome::Passed => {}
                TestOutcome::Skipped => fail(id, "it is skipped"),
                TestOutcome::Failed(_) => fail(id, &test.message),
            }
        }
        for (id, kind) in &red.tests {
            let there = match kind {
                RedKind::Compile => now.keys().any(|test| contains_test(id, test) && passed(test)),
                _ => now.contains_key(id.as_str()),
            };
            if !there {
                fail(id, "it was not run");
            }
        }
        for row in red
            .rows
            .iter()
            .chain(&red.doc_tests)
            .filter(|row| !now.keys().any(|id| row.matches_id(id) && passed(id)))
        {
            fail(&row.name, "no test of this name passed");
        }
        for id in before.keys().filter(|id| passed_before(id) && !red.tests.contains_key(**id)) {
            match now.get(id) {
                Some(test) if test.outcome == TestOutcome::Passed => {}
                Some(test) => fail(
                    id,
                    if test.outcome == TestOutcome::Skipped { "it is skipped" } else { &test.message },
                ),
                None if of(&red.removed, id) || red.removed_tests.iter().any(|row| row.matches_id(id)) => {
                    gone.insert((*id).to_owned());
                }
                None if red.dropped.iter().any(|dropped| dropped == id) => {}
                None if of(&red.files, id) && unbuilt(id) => fail(id, REMOVED_TEST_MESSAGE),
                None => fail(id, "it passed before, but was not run now"),
            }
        }
    }
    // Tests that do not run each time prove nothing.
    for run in runs.iter().map(|run| tests_by_id(run)) {
        locked
            .iter()
            .filter(|id| !run.contains_key(id.as_str()))
            .for_each(|id| fail(id, "it was not run each time"));
    }
    if locked.is_empty() {
        fail("the run itself", "no test of this change was run");
    }
    if failing.is_empty() {
        let is_kept = |id: &str| passed_before(id) && !locked.contains(id) && !gone.contains(id);
        let kept =
            before.keys().filter(|id| is_kept(id) && !red.dropped.iter().any(|gone| gone == *id)).count();
        let (locked, gone) = (locked.into_iter().collect(), gone.into_iter().collect());
        // A test that is skipped on this machine has not failed.
        let skipped =
            |id: &&String| before.get(id.as_str()).is_some_and(|test| test.outcome == TestOutcome::Skipped);
        let broken = red.broken.iter().filter(|id| !skipped(id)).cloned().collect();
        return Ok(GreenProof { locked, kept, once: None, broken, gone });
    }
    let groups = failing
        .into_iter()
        .map(|(message, tests)| FailureGroup { message, tests: tests.into_iter().collect() });
    let mut groups: Vec<FailureGroup> = groups.collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.tests.len()));
    Err(groups)
}

/// Adds the results of all other tests, taken from the `whole` run, to the report of a run of only the change's tests.
pub fn merge_with_full_run(red: &RedProof, whole: &TestReport, mut alone: TestReport) -> TestReport {
    let ran: BTreeSet<String> = tests_by_id(&alone).into_keys().map(str::to_owned).collect();
    let unbuilt = |id: &str| {
        red.tests.iter().any(|(whole, kind)| *kind == RedKind::Compile && contains_test(whole, id))
    };
    let others = whole.tests.iter().filter(|test| {
        let id = test.id.as_str();
        !red.tests.contains_key(id) && !unbuilt(id) && !ran.contains(id)
    });
    alone.tests.extend(others.cloned());
    alone
}

/// Describes failures for a prompt. Each failure gets one paragraph of limited length.
pub fn describe_failures(failing: &[FailureGroup]) -> Vec<String> {
    const GROUPS: usize = 8;
    const IDS: usize = 5;
    let mut lines: Vec<String> = failing
        .iter()
        .take(GROUPS)
        .map(|group| {
            let ids = group.tests.iter().take(IDS).map(|id| format!("`{id}`")).collect::<Vec<_>>().join(", ");
            let more = group.tests.len().saturating_sub(IDS);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{ids}{more}: {}", group.message)
        })
        .collect();
    let left: usize = failing.iter().skip(GROUPS).map(|group| group.tests.len()).sum();
    lines.extend((left > 0).then(|| format!("{left} more tests fail for other reasons")));
    lines
}

/// Returns the first lines of a message. They are limited so that eight messages with their ids take at most 12,000
/// characters in total.
fn message_head(message: &str) -> String {
    const LINES: usize = 12;
    const CHARS: usize = 900;
    let lines = message.lines().filter(|line| !line.trim().is_empty()).take(LINES);
    lines.collect::<Vec<_>>().join("\n").chars().take(CHARS).collect()
}

/// Outcome of a run with one part of the code reverted: whether a test, the compiler or nothing detected it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MutationOutcome {
    Test,
    /// The compiler detected the reverted part: the code does not build, or uses a missing name.
    Compiler,
    Nobody,
    /// The outcome is unclear, because the run was aborted before any test failed.
    Unclear,
}

/// Classifies a test run in which one part of the change was reverted.
pub fn classify_mutation(green: &GreenProof, run: &TestReport) -> MutationOutcome {
    let ours = |test: &&TestResult| !green.broken.contains(&test.id);
    // A missing name says nothing about behaviour.
    let unbuilt = |test: &TestResult| {
        matches!(test.outcome, TestOutcome::Failed(TestFailure::Build | TestFailure::Missing))
    };
    let failed: Vec<&TestResult> = run.failures().filter(ours).collect();
    match () {
        () if failed.is_empty() && run.trouble.is_empty() => MutationOutcome::Nobody,
        () if failed.iter().any(|test| !unbuilt(test)) => MutationOutcome::Test,
        () if failed.is_empty() => MutationOutcome::Unclear,
        () => MutationOutcome::Compiler,
    }
}

/// Returns the number of parts that tests detected, and the number of parts that they could have detected. Both numbers
/// exclude unclear parts, and parts that only the compiler detected.
pub fn mutation_score(parts: impl IntoIterator<Item = MutationOutcome>) -> (usize, usize) {
    parts.into_iter().fold((0, 0), |(test, all), part| match part {
        MutationOutcome::Test => (test + 1, all + 1),
        MutationOutcome::Nobody => (test, all + 1),
        MutationOutcome::Compiler | MutationOutcome::Unclear => (test, all),
    })
}

fn tests_by_id(found: &TestReport) -> BTreeMap<&str, &TestResult> {
    found.tests.iter().map(|test| (test.id.as_str(), test)).collect()
}

/// Outcome of an adversarial test after two runs with the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdversarialOutcome {
    Passes,
    /// The test failed in the same way in both runs. Holds the failure message.
    Fails(String),
    /// The test proves nothing. Holds the reason, phrased as the end of a sentence.
    Nothing(String),
}

/// Returns the outcome of the test `row`, from the reports of two runs. A file may contain only tests of `all` and of
/// `known`, the ids of tests that existed before; otherwise its tests prove nothing.
pub fn attacked(
    runs: [&TestReport; 2],
    row: &ExpectedTest,
    all: &[ExpectedTest],
    known: &[String],
) -> AdversarialOutcome {
    let [first, second] = runs.map(tests_by_id);
    let others = |id: &str| {
        is_in_file(id, &row.file)
            && !all.iter().any(|row| row.matches_id(id))
            && !known.iter().any(|known| known == id)
    };
    let ids: Vec<&str> = first.keys().copied().filter(|id| row.matches_id(id)).collect();
    // A build failure is reported for the whole file. A name missing only at run time may be a bug of the code.
    let own = |path: &str| !path.is_empty() && is_path_suffix(&row.file, path);
    let unbuilt = first.values().any(|test| match test.outcome {
        TestOutcome::Failed(TestFailure::Build) => {
            row.matches_id(&test.id) || is_in_file(&test.id, &row.file)
        }
        TestOutcome::Failed(TestFailure::Missing) if row.matches_id(&test.id) => {
            test.faults.iter().any(|f| own(&f.file))
        }
        TestOutcome::Failed(TestFailure::Missing) => is_in_file(&test.id, &row.file),
        _ => false,
    });
    let outcomes: Vec<TestOutcome> = ids.iter().map(|id| first[id].outcome).collect();
    let alike = ids.iter().all(|id| second.get(id).is_some_and(|test| test.outcome == first[id].outcome));
    let failed = ids.iter().find(|id| matches!(first[*id].outcome, TestOutcome::Failed(_)));
    let nothing = |why: &str| AdversarialOutcome::Nothing(why.to_owned());
    match () {
        () if unbuilt => nothing("cannot be built, or uses a missing name"),
        () if ids.is_empty() => nothing("is not found by the runner"),
        () if first.keys().any(|id| others(id)) => nothing("is in a file with other tests"),
        () if outcomes.contains(&TestOutcome::Skipped) => nothing("is skipped"),
        () if !alike => nothing("ended differently in two runs"),
        () => match failed.map(|id| first[id]) {
            None => AdversarialOutcome::Passes,
            Some(test) => match test.outcome {
                TestOutcome::Failed(TestFailure::Timeout) => {
                    AdversarialOutcome::Fails("it did not finish in time".to_owned())
                }
                TestOutcome::Failed(TestFailure::NeedsLoopback) => nothing("needs a network"),
                _ => AdversarialOutcome::Fails(sanitize_line(&message_head(&test.message))),
            },
        },
    }
}

#[cfg(test)]
mod tests;
