//! Exceptions for `implement`: files that the spec does not list, and tests that replace the locked ones. A draft may
//! contain both. If no version passes without them, people are asked to grant the exception.

use serde::{Deserialize, Serialize};

use super::{
    ChangeDocument, ImplementRunState, adversarial::AdversarialResults, change_document::LOCKED_TESTS,
    lock_tests,
};
use crate::{
    documents::{DocumentMistake, change},
    engine::StepError,
    publication,
    rounds::{StepContext, load_text, require_state},
    stage::{self, Exception, ExceptionRequest, StageDocument as _, StepResult, StepVisit},
    types::{Hash, Timestamp},
};

/// A pending replacement of the locked tests. Holds the version with the old locked tests, the code that needs the new
/// tests, and the reason why no code passed the old tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TestUnlock {
    locked: Hash,
    pub(super) code: Hash,
    why: String,
}

/// Locked tests that a person had unlocked by `/revise tests`, until other tests are locked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ReopenedTests {
    locked: Hash,
    pub(super) code: Hash,
    by: String,
    at: Timestamp,
}

/// Unlocks the tests if the request that sent the change back asks for that. The tests are then drafted, seen to fail and
/// reviewed again.
pub(super) async fn reopen_tests(
    s: &mut ImplementRunState,
    cx: &StepContext,
    text: &ChangeDocument,
) -> Result<(), StepError> {
    let Some((by, at)) = s.stage.take_test_request() else { return Ok(()) };
    let Some(all) = s.locked.take() else { return Ok(()) };
    // Tests of the reviewer's model are written again later.
    let own = s.own_tests.take();
    let locked = own.unwrap_or(all);
    let code = *require_state(&s.stage.document())?;
    s.reopened = Some(ReopenedTests { locked, code, by, at });
    (s.others, s.adversary, s.attacked, s.joined) = (None, None, None, None);
    (s.told, s.objections) = (0, 0);
    s.stage.remove_background(LOCKED_TESTS);
    // Earlier versions of this program did not record the drafter's own tests.
    let joined = text.adversary.iter().filter(|_| own.is_none()).flat_map(AdversarialResults::joined_paths);
    let tests = change::without_files(&load_text(cx, &locked).await?, &joined.collect::<Vec<_>>());
    s.stage.replace_draft(cx.put(tests.as_bytes()).await?);
    Ok(())
}

/// Puts the code of before back behind newly locked tests, and records who asked for them. If the code passes, no model
/// is called for it.
pub(super) async fn restore_code(s: &mut ImplementRunState, cx: &StepContext) -> Result<(), StepError> {
    let Some(ReopenedTests { locked, code, by, at }) = s.reopened.take() else { return Ok(()) };
    let tests = *require_state(&s.locked)?;
    let diff = tests_diff(cx, &locked, &tests).await?;
    s.stage.record_exception(Exception::new(ExceptionRequest::Tests { diff }, tests, by, at));
    s.stage.replace_draft(with_tests(cx, &code, &tests).await?);
    Ok(())
}

/// Stores the difference between the test sections of two texts.
async fn tests_diff(cx: &StepContext, before: &Hash, now: &Hash) -> Result<Hash, StepError> {
    let [before, now] = [load_text(cx, before).await?, load_text(cx, now).await?]
        .map(|text| change::tests_section(&text).unwrap_or_default().to_owned());
    cx.put(publication::text_diff(&before, &now).as_bytes()).await
}

/// Stores the code of one text with the tests of another.
async fn with_tests(cx: &StepContext, code: &Hash, tests: &Hash) -> Result<Hash, StepError> {
    let tests = load_text(cx, tests).await?;
    let text =
        change::fix(&load_text(cx, code).await?, cx.run().trigger.issue, change::tests_section(&tests));
    cx.put(text.as_bytes()).await
}

/// Stores the tests with which this draft replaces locked tests, if any. Adversarial tests are left out, because the
/// reviewer's model writes them again after the new tests are locked.
pub(super) async fn find_other_tests(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<(), StepError> {
    let (cx, Some(locked)) = (v.cx, &s.locked) else { return Ok(()) };
    let joined: Vec<&str> = text.adversary.iter().flat_map(AdversarialResults::joined_paths).collect();
    let draft = load_text(cx, require_state(&s.stage.document())?).await?;
    s.others = match change::replaced_tests(&draft, &load_text(cx, locked).await?, &joined) {
        Some(others) => Some(cx.put(others.as_bytes()).await?),
        None => None,
    };
    Ok(())
}

/// Fixes and checks the draft. If no further draft is allowed and the draft's only mistake is changing files beyond the
/// spec, requests an exception for these files.
pub(super) async fn check_draft(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::fix_draft(&mut s.stage, v).await?;
    let checked = stage::check_draft(&mut s.stage, v).await;
    if s.unlocked.is_some() || !matches!(checked, Err(StepError::User(_))) {
        return settle_proof(s, checked);
    }
    let draft = load_text(cx, require_state(&s.stage.document())?).await?;
    let tree = cx.tools().file_tree(cx, s.stage.base()?).await?;
    let paths = change::files_beyond_scope(&change::parse(&draft), &text.allowed(&draft), &tree);
    let with = ChangeDocument::load_with_files(s, cx, &paths).await?;
    if paths.is_empty()
        || with.check(&draft, cx.run().trigger.issue, &tree).iter().any(DocumentMistake::is_error)
    {
        return checked;
    }
    stage::request_exception(&mut s.stage, v, ExceptionRequest::Scope(paths)).await
}

/// Handles the case that the last allowed draft still fails the locked tests. If the draft contains replacement tests,
/// the workflow proves these tests next. Otherwise the failure is returned.
pub(super) fn unlock_tests(
    s: &mut ImplementRunState,
    came: Result<StepResult, StepError>,
) -> Result<StepResult, StepError> {
    let why = match came {
        Err(StepError::User(why)) => why,
        came => return came,
    };
    let (Some(others), Some(locked), Some(code)) = (s.others.take(), s.locked, s.stage.document()) else {
        return Err(StepError::User(why));
    };
    (s.locked, s.unlocked) = (None, Some(TestUnlock { locked, code, why }));
    // No formatter complaints for these tests: they are not drafted again.
    s.told = 1;
    s.stage.reset_rounds()?;
    s.stage.replace_draft(others);
    Ok(StepResult::NeedsException)
}

/// Turns a request to redraft replacement tests into an error, because replacement tests are never drafted again. Any
/// other result of a test step is returned unchanged.
pub(super) fn settle_proof(
    s: &ImplementRunState,
    came: Result<StepResult, StepError>,
) -> Result<StepResult, StepError> {
    match (came, &s.unlocked) {
        (Ok(StepResult::Redraft), Some(TestUnlock { why, .. })) => Err(StepError::User(format!(
            "No draft of the code passes the locked tests, and the drafter's new tests cannot replace them: {}. {why}",
            s.stage.first_error().unwrap_or("they failed a check").trim_end_matches('.')
        ))),
        (came, _) => came,
    }
}

/// Asks people to accept the replacement tests.
pub(super) async fn request_other_tests(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    unlocked: &TestUnlock,
) -> Result<StepResult, StepError> {
    let diff = tests_diff(v.cx, &unlocked.locked, require_state(&s.stage.document())?).await?;
    stage::request_exception(&mut s.stage, v, ExceptionRequest::Tests { diff }).await
}

/// Runs the gate at which people decide on an exception. A granted exception applies from then on; otherwise the old
/// locked tests are restored.
pub(super) async fn run_exception_gate(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
) -> Result<StepResult, StepError> {
    let exit = stage::run_exception_gate(&mut s.stage, v).await?;
    let unlocked = match &exit {
        StepResult::Pass | StepResult::Reread => s.unlocked.take(),
        _ => None,
    };
    let Some(TestUnlock { locked, mut code, .. }) = unlocked else { return Ok(exit) };
    if let StepResult::Pass = exit {
        lock_tests(s)?;
        // The adversarial tests are written and run again for the new lock.
        (s.adversary, s.attacked, s.joined) = (None, None, None);
        code = with_tests(v.cx, &code, require_state(&s.locked)?).await?;
    } else {
        s.locked = Some(locked);
    }
    s.stage.replace_draft(code);
    Ok(exit)
}
