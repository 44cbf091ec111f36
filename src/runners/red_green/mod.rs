//! Red and green: what runs of tests prove of a change. Pure rules over what the runs came to.
//!
//! Red: each new test fails without the code, twice alike, as it runs or because a name is missing that the spec declares.
//! Green: with the code each of them passes in every run, and so does what passed before.

mod evidence;
mod ids;
mod names;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::{ids::unreachable_reason, names::declared_names};
use self::{
    ids::{contains_test, is_in_file, is_path_suffix},
    names::missing_names,
};
use super::{TestFailure, TestOutcome, TestReport, TestResult, sanitize_line, test_report::MOST_FAULTS};
use crate::documents::change::{STUB, test_id_has_name};

/// What the change and its spec say of the tests.
#[derive(Debug, Clone, Default)]
pub struct TestExpectations {
    /// The test files that are added or modified.
    pub files: Vec<String>,
    /// Those that are deleted.
    pub removed: Vec<String>,
    /// The tests that the spec asks for.
    pub rows: Vec<ExpectedTest>,
    /// Those that pass already, since they guard what there is.
    pub guards: Vec<String>,
    /// What is missing before the code is written; see [`declared_names`].
    pub declared: Vec<String>,
}

/// A test that the spec asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedTest {
    /// Relative to its project; empty where its runner does not say of which file a test is.
    pub file: String,
    pub name: String,
    /// How it was seen at red; none where it was not seen to fail, and guards nothing.
    pub kind: Option<RedKind>,
}

impl ExpectedTest {
    /// Is it this test?
    pub fn matches_id(&self, id: &str) -> bool {
        test_id_has_name(id, &self.name) && (self.file.is_empty() || is_in_file(id, &self.file))
    }
}

/// Why a test fails without the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedKind {
    Assertion,
    /// It names what the spec declares.
    Missing,
    /// Something else ended it as it ran.
    Runtime,
    /// The file, package or binary that it is in cannot be built without; its tests are known at green.
    Compile,
    /// With stubs of what the spec declares it runs, and fails by nothing but their panic.
    Weak,
    /// It passes, and guards what there is.
    Guard,
}

/// The proof of red.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RedProof {
    /// By the id of a test, or of what cannot be built.
    pub tests: BTreeMap<String, RedKind>,
    /// The test files, those of them that are deleted, and the tests that the spec asks for.
    pub files: Vec<String>,
    #[serde(default)]
    pub removed: Vec<String>,
    #[serde(default)]
    pub rows: Vec<ExpectedTest>,
    /// What fails or differs from run to run without any change.
    pub broken: Vec<String>,
    /// Tests of what cannot be built, with stubs in the place of the code.
    #[serde(default)]
    pub stubbed: BTreeMap<String, RedKind>,
}

impl RedProof {
    /// Is something red by the compiler alone?
    pub fn has_compile_failures(&self) -> bool {
        self.tests.values().any(|kind| *kind == RedKind::Compile)
    }

    /// With tests that joined later, and were not seen to fail.
    #[must_use]
    pub fn with_rows(mut self, rows: Vec<ExpectedTest>) -> Self {
        self.files.extend(rows.iter().map(|row| row.file.clone()).filter(|file| !file.is_empty()));
        self.rows.extend(rows);
        self
    }
}

/// The proof of green.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GreenProof {
    /// The tests of the change, all of which passed in every run.
    pub locked: Vec<String>,
    /// How many others passed before and do.
    pub kept: usize,
    /// Where all tests together are slow, so many of the new ones ran once, as those that are `kept` did.
    #[serde(default)]
    pub once: Option<usize>,
    /// What failed before, and what was in test files that are deleted: listed, and never counted.
    pub broken: Vec<String>,
    pub gone: Vec<String>,
}

/// Failures with one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    pub message: String,
    /// The ids of all of them.
    pub tests: Vec<String>,
}

/// Why nothing could be proven beside such tests: what cannot be built takes others along, and where none passes the fault is
/// not theirs alone. What else fails is listed, and never counted.
pub fn unusable_reason(found: &TestReport) -> Option<String> {
    let unbuilt = |test: &&TestResult| match test.outcome {
        TestOutcome::Failed(TestFailure::Build) => true,
        TestOutcome::Failed(TestFailure::Missing) => !test.faults.is_empty(),
        _ => false,
    };
    let unbuilt = found.failures().find(unbuilt).map(|test| format!("`{}` cannot be built", test.id));
    // A repository may have none yet.
    let trouble = found.trouble.iter().find(|line| !found.tests.is_empty() || *line != "no tests were found");
    let none = || {
        let first = found.failures().next().filter(|_| found.count(TestOutcome::Passed) == 0)?;
        Some(format!("none passes: `{}`: {}", first.id, sanitize_line(&first.message)))
    };
    unbuilt.or(trouble.cloned()).or_else(none)
}

/// Do the new tests fail as they have to? `base` is without them, `with` are two runs with them and without the code.
///
/// # Errors
///
/// What the tests have wrong, a line each, for who writes them.
pub fn prove_red(
    base: &TestReport,
    with: [&TestReport; 2],
    told: &TestExpectations,
) -> Result<RedProof, Vec<String>> {
    let (before, [first, second]) = (tests_by_id(base), with.map(tests_by_id));
    let trouble: BTreeSet<&String> = with.iter().flat_map(|run| &run.trouble).collect();
    let mut wrong: Vec<String> =
        trouble.into_iter().map(|line| format!("the run itself failed: {line}")).collect();
    let (files, removed) = (told.files.clone(), told.removed.clone());
    let mut red = RedProof { files, removed, rows: told.rows.clone(), ..RedProof::default() };
    red.broken = before
        .values()
        .filter(|test| test.outcome != TestOutcome::Passed)
        .map(|test| test.id.clone())
        .collect();
    for (id, test) in &first {
        let was = before.get(id).map(|test| test.outcome);
        let again = second.get(id).map(|test| test.outcome);
        let theirs = was.is_some() && !told.files.iter().any(|file| is_in_file(id, file));
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
        } else if !theirs && passes && again == Some(test.outcome) && is_guard(told, id) {
            red.tests.insert((*id).to_owned(), RedKind::Guard);
        } else if theirs || was == Some(test.outcome) {
            // As before.
        } else if again != Some(test.outcome) {
            wrong.push(format!(
                "`{id}` did not end alike in two runs; a test depends on nothing but the code"
            ));
        } else if test.outcome == TestOutcome::Skipped {
            wrong.push(format!("`{id}` is skipped; have it run"));
        } else if failed {
            match classify_failure(test, told) {
                Ok(kind) => {
                    red.tests.insert((*id).to_owned(), kind);
                }
                Err(why) => wrong.push(format!("`{id}` {why}")),
            }
        } else if was.is_none() && !told.files.iter().any(|file| is_path_suffix(file, id)) {
            // A file that could be read is no test of its own.
            wrong.push(format!(
                "`{id}` passes without the code, so it shows nothing; have it fail, or write `Guards: NAME` below the heading \
                 of its file if it guards what there is"
            ));
        }
    }
    let unbuilt =
        || red.tests.iter().filter(|(_, kind)| **kind == RedKind::Compile).map(|(id, _)| id.as_str());
    for id in before.iter().filter(|(_, test)| test.outcome == TestOutcome::Passed).map(|(id, _)| *id) {
        let ours = told.files.iter().any(|file| is_in_file(id, file));
        if ours && !first.contains_key(id) && !unbuilt().any(|whole| contains_test(whole, id)) {
            wrong.push(format!("`{id}` is gone; keep the tests that there are"));
        }
    }
    for row in &mut red.rows {
        let (name, file) = (&row.name, &row.file);
        let seen = |(id, _): &(&String, &RedKind)| row.matches_id(id);
        // What cannot be built has the tests of its own file, and of those in which it is wrong.
        let whole = |(id, kind): &(&String, &RedKind)| {
            let faults = || first.get(id.as_str()).into_iter().flat_map(|test| &test.faults);
            **kind == RedKind::Compile
                && (is_in_file(id, file) || faults().any(|fault| is_path_suffix(file, &fault.file)))
        };
        row.kind = red.tests.iter().find(seen).or(red.tests.iter().find(whole)).map(|(_, kind)| *kind);
        if !first.keys().any(|id| row.matches_id(id)) && row.kind.is_none() {
            wrong.push(format!(
                "no test `{name}` of `{file}` was run, which the spec asks for; is its file found by the runner?"
            ));
        } else if row.kind.is_none() && (file.is_empty() || told.files.contains(file)) {
            wrong.push(format!(
                "`{name}` of `{file}`, which the spec asks for, is not seen to fail: it ends as it did before; have it fail, \
                 or write `Guards: {name}` below the heading of its file if it guards what there is"
            ));
        }
    }
    if red.tests.values().all(|kind| *kind == RedKind::Guard) && wrong.is_empty() {
        wrong.push("there is no new test that fails without the code".to_owned());
    }
    wrong.truncate(MOST_LINES);
    if wrong.is_empty() { Ok(red) } else { Err(wrong) }
}

/// What a run with stubs in the place of the code says of tests that could not be built without. One of what cannot be built with
/// them either says nothing, and neither does one that passed before. A stub panics or gives nothing, so one that passes may want
/// just that, and of what ends a test by no assertion the stub may be the reason.
pub fn apply_stub_run(
    mut red: RedProof,
    before: &TestReport,
    run: &TestReport,
    told: &TestExpectations,
) -> RedProof {
    let before = tests_by_id(before);
    let whole = |id: &str| {
        red.tests.iter().any(|(whole, kind)| *kind == RedKind::Compile && contains_test(whole, id))
    };
    let passed = |id: &str| before.get(id).is_some_and(|test| test.outcome == TestOutcome::Passed);
    for test in run.tests.iter().filter(|test| whole(&test.id) && !passed(&test.id)) {
        let kind = match test.outcome {
            TestOutcome::Passed if is_guard(told, &test.id) => RedKind::Guard,
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

/// Lines of what is wrong with tests; who has more begins anew.
const MOST_LINES: usize = 40;

/// Is it said to guard what there is?
fn is_guard(told: &TestExpectations, id: &str) -> bool {
    told.guards.iter().any(|name| test_id_has_name(id, name))
}

/// Why it fails, if that is a proof, or what is wrong as the end of a sentence.
fn classify_failure(test: &TestResult, told: &TestExpectations) -> Result<RedKind, String> {
    let declared = |name: &String| told.declared.contains(name);
    let of_tests = |path: &str| !path.is_empty() && told.files.iter().any(|file| is_path_suffix(file, path));
    let said = message_head(&test.message);
    if let Some(fault) = test.faults.iter().find(|fault| {
        fault.missing.is_empty() || !fault.missing.iter().all(declared) || !of_tests(&fault.file)
    }) {
        let why = match fault.missing.iter().find(|name| !declared(name)) {
            _ if !of_tests(&fault.file) => "in what is no file of the new tests".to_owned(),
            Some(name) => format!("which misses `{name}`, and the spec declares no such name"),
            None => "which is no missing name".to_owned(),
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
                Some(name) => Err(format!("misses `{name}`, and the spec declares no such name: {said}")),
                None if names.is_empty() => Err(format!("misses a name that cannot be told: {said}")),
                None => Ok(if whole { RedKind::Compile } else { RedKind::Missing }),
            }
        }
        TestOutcome::Failed(failure) => {
            Err(format!("fails by {}, not by an assertion: {said}", failure.name()))
        }
        TestOutcome::Passed | TestOutcome::Skipped => Err("does not fail".to_owned()),
    }
}

/// What is said of tests that the locked ones have no more: no code can bring them back.
pub const REMOVED_TEST_MESSAGE: &str = "it passed before, and its file was changed so that it is no more";

/// Does the code do what its tests ask, and what it did? `base` is without tests and code, `runs` are with both.
///
/// # Errors
///
/// What fails, by its message, for who writes the code.
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
    let mut failing = BTreeMap::<String, BTreeSet<String>>::new();
    let mut fail = |id: &str, message: &str| {
        failing.entry(message_head(message)).or_default().insert(id.to_owned());
    };
    let (mut locked, mut gone) = (BTreeSet::new(), BTreeSet::new());
    for run in runs {
        run.trouble.iter().for_each(|line| fail("the run itself", line));
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
        for row in red.rows.iter().filter(|row| !now.keys().any(|id| row.matches_id(id) && passed(id))) {
            fail(&row.name, "no test of this name passed");
        }
        for id in before.keys().filter(|id| passed_before(id) && !red.tests.contains_key(**id)) {
            match now.get(id) {
                Some(test) if test.outcome == TestOutcome::Passed => {}
                Some(test) => fail(
                    id,
                    if test.outcome == TestOutcome::Skipped { "it is skipped" } else { &test.message },
                ),
                None if of(&red.removed, id) => {
                    gone.insert((*id).to_owned());
                }
                None if of(&red.files, id) => fail(id, REMOVED_TEST_MESSAGE),
                None => fail(id, "it passed before, and was not run now"),
            }
        }
    }
    // Of a set that changes from run to run nobody knows what it holds.
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
        let kept =
            before.keys().filter(|id| passed_before(id) && !locked.contains(**id)).count() - gone.len();
        let (locked, gone) = (locked.into_iter().collect(), gone.into_iter().collect());
        return Ok(GreenProof { locked, kept, once: None, broken: red.broken.clone(), gone });
    }
    let groups = failing
        .into_iter()
        .map(|(message, tests)| FailureGroup { message, tests: tests.into_iter().collect() });
    let mut groups: Vec<FailureGroup> = groups.collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.tests.len()));
    Err(groups)
}

/// A run of the change's tests alone, as if the others had been run with them and had come to what they came to in the `whole`
/// run.
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

/// What fails, for a prompt: a paragraph each, bounded.
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

/// The first lines of what a test says. Eight of these and the ids beside them are no more than twelve thousand characters.
fn message_head(message: &str) -> String {
    const LINES: usize = 12;
    const CHARS: usize = 900;
    let lines = message.lines().filter(|line| !line.trim().is_empty()).take(LINES);
    lines.collect::<Vec<_>>().join("\n").chars().take(CHARS).collect()
}

/// Who notices that a part of the code is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MutationOutcome {
    /// A test that ran.
    Test,
    /// It cannot be built, or names what is not there.
    Compiler,
    Nobody,
    /// The run broke off, and no test of it failed.
    Unclear,
}

/// What a run came to that had a part of the change undone.
pub fn classify_mutation(green: &GreenProof, run: &TestReport) -> MutationOutcome {
    let ours = |test: &&TestResult| !green.broken.contains(&test.id);
    // Code that names what is not there shows nothing of what it does.
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

/// What tests noticed, of what they could have: those that only the compiler holds are in neither, nor those of which nothing is
/// known.
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

/// What two runs with the code say of such a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdversarialOutcome {
    Passes,
    /// Twice alike, with what it says.
    Fails(String),
    /// It shows nothing, for this reason: the end of a sentence about it.
    Nothing(String),
}

/// One of `all`, each of which is the only test of its file; `known` are the ids of those that ran before.
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
    // What holds the test is told of as a whole where it cannot be built. What is missing as it runs may be so in the code.
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
        () if unbuilt => nothing("cannot be built, or names what is not there"),
        () if ids.is_empty() => nothing("is not found by the runner"),
        () if first.keys().any(|id| others(id)) => nothing("stands in a file with other tests"),
        () if outcomes.contains(&TestOutcome::Skipped) => nothing("is skipped"),
        () if !alike => nothing("did not end alike in two runs"),
        () => match failed.map(|id| first[id]) {
            None => AdversarialOutcome::Passes,
            Some(test) => match test.outcome {
                TestOutcome::Failed(TestFailure::Timeout) => {
                    AdversarialOutcome::Fails("it did not end in time".to_owned())
                }
                TestOutcome::Failed(TestFailure::NeedsLoopback) => nothing("needs a network"),
                _ => AdversarialOutcome::Fails(sanitize_line(&message_head(&test.message))),
            },
        },
    }
}

#[cfg(test)]
mod tests;
