//! Adversarial tests: the reviewer's model writes tests that try to break the code, and the workflow runs these tests.
//!
//! A test that fails becomes a finding. The drafter then fixes the code or gives a reason for not doing so, which the
//! next review judges. A test that passes is added to the change's tests and locked.

use serde::{Deserialize, Serialize};

use super::{
    ImplementRunState,
    change_document::{ChangeDocument, LOCKED_HEADING, LOCKED_TESTS},
    store_json,
    test_jobs::{run_test_job, wait_for_tests},
};
use crate::{
    codebase::TreeIndex,
    documents::{
        DocumentMistake,
        change::{
            self, FileChangeBody, TestEvidence,
            adversarial::{AdversarialTestFile, prompt_rules, with_adversarial_tests},
        },
        verdict::{FindingSeverity, RawFinding},
    },
    engine::{LedgerRecord, StepError, TextKind, TextRow},
    rounds::{AdversarialTestSet, load_text, require_state},
    runners::{
        change_verification::ChangeVerifier,
        red_green::{self, AdversarialOutcome},
        sanitize_line,
    },
    stage::{self, BackgroundText, StageDocument as _, StepResult, StepVisit},
    types::Hash,
};

/// Kind of the background text that contains the failing adversarial tests.
const FAILING_TESTS: &str = "adversarial-tests";

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct AdversarialResults {
    /// Name of the model that wrote the tests, as reported in the model's response.
    by: String,
    /// Reason why no adversarial tests were written, as a sentence composed by us.
    not_tried: Option<String>,
    /// Version of the change with which the tests last ran.
    #[serde(default)]
    of: Option<Hash>,
    /// Tests that have not run yet.
    new: Vec<AdversarialTestFile>,
    /// Place and requirement of each test that was added to the change. The place is the path of the test's own file,
    /// or of a file with other tests and the test's name.
    joined: Vec<(String, String)>,
    /// Tests that failed in their last run, each preceded by the id of its finding.
    failing: Vec<(String, AdversarialTestFile)>,
    /// Path of each failing test that could not run with the newest version, and the reason. The findings of these
    /// tests stay open.
    #[serde(default)]
    unclear: Vec<(String, String)>,
    /// Path of each test that was left out, and the reason. `beyond` is the number of further tests dropped because of
    /// the limit.
    left_out: Vec<(String, String)>,
    beyond: usize,
}

impl AdversarialResults {
    /// Returns whether no adversarial tests were written.
    pub(super) fn is_untried(&self) -> bool {
        self.not_tried.is_some()
    }

    /// Returns the places of the adversarial tests that were added to the change.
    pub(super) fn joined_paths(&self) -> impl Iterator<Item = &str> {
        self.joined.iter().map(|(path, _)| path.as_str())
    }

    /// Adds the results to the evidence shown at the gate and in the report.
    pub(super) fn add_evidence(&self, document: Option<Hash>, evidence: &mut TestEvidence) {
        if let Some(why) = &self.not_tried {
            evidence.not_shown.push(format!("The reviewer's model wrote no adversarial tests: {why}"));
            return;
        }
        let shown = |path: &str| format!("`{}`", sanitize_line(path).replace('`', "'"));
        let passes = |n: usize, one: &str, many: &str| {
            (n > 0).then(|| format!("{n} {}", if n == 1 { one } else { many }))
        };
        let left_out = self.left_out.len() + self.beyond;
        let parts = [
            passes(
                self.joined.len(),
                "passes and was added to the change",
                "pass and were added to the change",
            ),
            passes(self.failing.len(), "fails", "fail").map(|fail| {
                let failing =
                    self.failing.iter().map(|(finding, test)| format!("{} ({finding})", shown(&test.path)));
                format!("{fail}: {}", failing.collect::<Vec<_>>().join(", "))
            }),
            passes(left_out, "was left out", "were left out"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            let (all, by) = (self.joined.len() + self.failing.len() + left_out, shown(&self.by));
            let of = if self.of == document { "" } else { ", for an earlier version of the code" };
            let came = parts.join(", ");
            evidence.add_sentence("Adversarial tests", format!("{all} by {by}{of}; {came}."));
        }
        if !self.joined.is_empty() {
            let paths: Vec<String> = self.joined_paths().map(shown).collect();
            evidence.review.push(format!(
                "The reviewer's model wrote {}; no other model reviewed it.",
                paths.join(", ")
            ));
        }
        let unclear = "failed with an earlier version of the code, but proves nothing about this version: it";
        let unclear = self.unclear.iter().map(|(path, why)| format!("{} {unclear} {why}.", shown(path)));
        let left_out =
            self.left_out.iter().map(|(path, why)| format!("{} was left out: it {why}.", shown(path)));
        evidence.not_shown.extend(unclear.chain(left_out));
    }
}

/// Makes the reviewer's model write adversarial tests, once per run.
pub(super) async fn write_tests(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    if text.adversary.is_some() {
        return Ok(StepResult::Pass);
    }
    let cx = v.cx;
    let tests = text.wanted_spec("").tests.into_iter().map(|row| row.file).collect();
    let written = match stage::write_adversarial_tests(&mut s.stage, v, &prompt_rules(&tests)).await? {
        Ok(written) => written,
        Err(exit) => return Ok(exit),
    };
    let mut adversary = AdversarialResults { of: s.stage.document(), ..AdversarialResults::default() };
    match written {
        Err(why) => adversary.not_tried = Some(why),
        Ok(AdversarialTestSet { by, tests, beyond }) => {
            (adversary.by, adversary.beyond) = (by, beyond);
            let tree = cx.tools().file_tree(cx, s.stage.base()?).await?;
            let mut document = load_text(cx, require_state(&s.stage.document())?).await?;
            for test in tests {
                let with = with_adversarial_tests(&document, [&test], &text.files);
                let taken = text.is_name_taken(&test.name, &adversary.new) || test.is_known(&document);
                let taken = taken.then(|| "has the same name as another test".to_owned());
                match taken.or_else(|| refusal_reason(&test, &document, &with, text, v, &tree)) {
                    Some(why) => adversary.left_out.push((test.path, why)),
                    None => {
                        document = with;
                        adversary.new.push(test);
                    }
                }
            }
        }
    }
    s.adversary = Some(store_json(cx, &adversary).await?);
    Ok(StepResult::Pass)
}

/// Returns the reason why a test cannot be added to the change, phrased as the end of a sentence. An adversarial test
/// must follow the same rules as every test of a change.
fn refusal_reason(
    test: &AdversarialTestFile,
    before: &str,
    with: &str,
    text: &ChangeDocument,
    v: &StepVisit<'_>,
    tree: &TreeIndex,
) -> Option<String> {
    let allowed = text.allowed(before).with_tests(&change::parse(before));
    if let Some(why) = test.refusal_reason(&allowed) {
        return Some(why.to_owned());
    }
    let is_new = !change::file_paths(before).contains(&test.path);
    let found = text.before.as_ref().and_then(|ran| {
        red_green::unreachable_reason(
            &ran.runner,
            ran.project_path(&test.path).unwrap_or(&test.path),
            is_new,
            &ran.found,
        )
    });
    if let Some(why) = found {
        return Some(why.to_owned());
    }
    let change = change::parse(with);
    let stands = change.files.iter().find(|file| file.path == test.path);
    if is_new && stands.is_none_or(|file| file.body != FileChangeBody::Whole(test.text.clone())) {
        return Some("is not a file that a change can contain".to_owned());
    }
    let allowed = allowed.with_tests(&change);
    let issue = v.cx.run().trigger.issue;
    let mistakes = change::check(with, issue, &allowed, &text.files, tree);
    let hollow = || text.vacuous_reason(&test.path, &test.text, &test.name);
    let wrong = mistakes.into_iter().find(DocumentMistake::is_error).map(|mistake| mistake.message);
    wrong.or_else(hollow).map(|why| format!("was refused: {}", sanitize_line(&why)))
}

/// Runs the new and the failing adversarial tests with the current code.
pub(super) async fn run_tests(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::show_working(&mut s.stage, v).await?;
    let mut adversary = require_state(&text.adversary)?.clone();
    let failed = adversary.failing.iter().map(|(_, test)| test);
    let tests: Vec<AdversarialTestFile> = adversary.new.iter().chain(failed).cloned().collect();
    let (base, document) = (s.stage.base()?.clone(), *require_state(&s.stage.document())?);
    if tests.is_empty() || s.attacked == Some(document) {
        return Ok(StepResult::Pass);
    }
    let document = load_text(cx, &document).await?;
    if let Err(mistakes) = text.overlay(&with_adversarial_tests(&document, &tests, &text.files)) {
        return stage::settle_checks(&mut s.stage, mistakes);
    }
    let rows: Vec<red_green::ExpectedTest> =
        tests.iter().map(|test| text.test_row(&test.path, &test.name)).collect();
    let known = text.known_tests();
    let tried: Vec<_> = tests.iter().map(|test| test.path.clone()).zip(rows).collect();
    let (ran, red) = (require_state(&text.before)?.clone(), require_state(&text.red)?.clone());
    let (all, code, files) = (tests.clone(), document.clone(), text.files.clone());
    let overlay = move |kept: &[usize]| {
        let text = with_adversarial_tests(&code, kept.iter().map(|at| &all[*at]), &files);
        change::overlay_files(change::apply(&change::parse(&text), &files).unwrap_or_default())
    };
    let look = |trial: ChangeVerifier| async move {
        trial.run_adversarial_tests(&tried, &overlay, &known, (&ran, &red)).await
    };
    let Some((came, green)) = run_test_job(cx, &base, text.files_to_change(), look).await? else {
        return Ok(wait_for_tests(cx));
    };
    let before = std::mem::take(&mut adversary.failing);
    adversary.new.clear();
    adversary.unclear.clear();
    let (mut joined, mut met, mut failing, mut objections) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (test, came) in tests.into_iter().zip(came) {
        let is_same = |known: &AdversarialTestFile| (&known.path, &known.name) == (&test.path, &test.name);
        let known = before.iter().find(|(_, known)| is_same(known)).map(|(finding, _)| finding);
        match (came, known) {
            (AdversarialOutcome::Passes, known) => {
                met.extend(known.cloned());
                joined.push(test);
            }
            (AdversarialOutcome::Fails(_), Some(finding)) => adversary.failing.push((finding.clone(), test)),
            (AdversarialOutcome::Fails(said), None) => {
                objections.push(to_finding(&test, &said));
                failing.push(test);
            }
            (AdversarialOutcome::Nothing(why), None) => adversary.left_out.push((test.path, why)),
            (AdversarialOutcome::Nothing(why), Some(finding)) => {
                adversary.unclear.push((test.path.clone(), why));
                adversary.failing.push((finding.clone(), test));
            }
        }
    }
    let (ids, exit) = stage::record_objections(&mut s.stage, cx, &objections, &met).await?;
    adversary.failing.extend(ids.into_iter().zip(failing));
    if !joined.is_empty() {
        join_tests(s, v, text, &document, &joined).await?;
        if let (Some(green), Some(document)) = (green, s.stage.document()) {
            s.joined = Some((document, store_json(cx, &green).await?));
        }
        let places = joined.into_iter().map(|test| (test.place(&document), test.requirement));
        adversary.joined.extend(places);
    }
    s.attacked = s.stage.document();
    adversary.of = s.attacked;
    let shown: String =
        adversary.failing.iter().map(|(finding, test)| format!("{finding}:\n{}\n", test.text)).collect();
    let heading = "Failing tests that the reviewer's model wrote, each with its finding";
    let (kind, heading, text) =
        (FAILING_TESTS.to_owned(), heading.to_owned(), cx.put(shown.as_bytes()).await?);
    s.stage.add_background(BackgroundText { kind, heading, text, left: false });
    s.adversary = Some(store_json(cx, &adversary).await?);
    Ok(exit)
}

fn to_finding(test: &AdversarialTestFile, said: &str) -> RawFinding {
    let AdversarialTestFile { path, name, requirement, why, .. } = test;
    let detail = format!("{why} The test `{name}` in `{path}` failed twice with the same output: {said}");
    RawFinding {
        severity: FindingSeverity::Blocking,
        category: "tests".to_owned(),
        place: requirement.clone(),
        title: format!("The test {name} fails with this code"),
        detail,
        repeats: None,
    }
}

/// Adds adversarial tests to the change and locks them.
async fn join_tests(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
    document: &str,
    tests: &[AdversarialTestFile],
) -> Result<(), StepError> {
    let cx = v.cx;
    let before = *require_state(&s.locked)?;
    s.own_tests.get_or_insert(before);
    let locked = load_text(cx, &before).await?;
    let locked = cx.put(with_adversarial_tests(&locked, tests, &text.files).as_bytes()).await?;
    let document = cx.put(with_adversarial_tests(document, tests, &text.files).as_bytes()).await?;
    cx.record_later("tests", LedgerRecord::Text(TextRow::new(TextKind::Tests, document))).await?;
    let rows = tests.iter().map(|test| text.test_row(&test.path, &test.name)).collect();
    let red = require_state(&text.red)?.clone().with_rows(rows);
    s.reds.push((locked, store_json(cx, &red).await?));
    s.locked = Some(locked);
    s.stage.replace_draft(document);
    let (kind, heading) = (LOCKED_TESTS.to_owned(), LOCKED_HEADING.to_owned());
    s.stage.add_background(BackgroundText { kind, heading, text: locked, left: false });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::change_document::ChangeDocument, *};
    use crate::runners::change_verification::RecordedTestRun;

    fn test(name: &str) -> AdversarialTestFile {
        let [path, requirement, why, text] = ["tests/a.rs", "REQ-1", "It may.", "x\n"].map(str::to_owned);
        AdversarialTestFile { path, name: name.to_owned(), requirement, why, text }
    }

    #[test]
    fn adversarial_test_evidence_notes_an_older_code_version_and_a_missing_review() {
        let (now, before) = (Some(Hash::digest(b"now")), Some(Hash::digest(b"before")));
        let mut adversary = AdversarialResults { of: before, ..AdversarialResults::default() };
        let told = |adversary: &AdversarialResults, document| {
            let mut evidence = TestEvidence::default();
            adversary.add_evidence(document, &mut evidence);
            evidence.all_lines()
        };
        adversary.by = "o3".to_owned();
        assert_eq!(told(&adversary, before), [""; 0]);
        adversary.joined.push(("tests/a.rs".to_owned(), "REQ-1".to_owned()));
        let joined = "**Adversarial tests:** 1 by `o3`; 1 passes and was added to the change.";
        assert_eq!(told(&adversary, before)[0], joined);
        let earlier = "1 by `o3`, for an earlier version of the code; 1 passes and was added to the change.";
        assert_eq!(
            told(&adversary, now),
            [
                format!("**Adversarial tests:** {earlier}"),
                "The reviewer's model wrote `tests/a.rs`; no other model reviewed it.".to_owned()
            ]
        );
    }

    #[test]
    fn adversarial_test_name_must_be_unique_if_the_runner_reports_no_files() {
        for (runner, name, taken) in [
            ("command", "full", true),
            ("command", "Other::Sums::full", true),
            ("command", "all_full", false),
            ("cargo", "full", false),
        ] {
            let mut text = ChangeDocument::default();
            text.before
                .get_or_insert(RecordedTestRun { runner: runner.to_owned(), ..RecordedTestRun::default() });
            assert_eq!(text.is_name_taken(name, &[test("Sums::full")]), taken, "{name}");
        }
    }
}
