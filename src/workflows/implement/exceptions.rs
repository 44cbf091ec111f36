//! Exceptions for `implement`: files that the spec does not list, and tests that replace the locked ones. A draft may
//! contain both. If no version passes without them, people are asked to grant the exception.

use serde::{Deserialize, Serialize};

use super::{ChangeDocument, ImplementRunState, adversarial::AdversarialResults, lock_tests};
use crate::{
    documents::{DocumentMistake, change},
    engine::StepError,
    publication,
    rounds::{load_text, require_state},
    stage::{self, ExceptionRequest, StageDocument as _, StepResult, StepVisit},
    types::Hash,
};

/// A pending replacement of the locked tests. Holds the version with the old locked tests, the code that needs the new
/// tests, and the reason why no code passed the old tests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TestUnlock {
    locked: Hash,
    pub(super) code: Hash,
    why: String,
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
    let paths = change::files_beyond_scope(&change::parse(&draft), &text.allowed(), &tree);
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
            "No code passes the locked tests, and the drafter's new tests prove nothing: {}. {why}",
            s.stage.first_error().unwrap_or("they cannot be used").trim_end_matches('.')
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
    let cx = v.cx;
    let tests = |text: String| change::tests_section(&text).unwrap_or_default().to_owned();
    let before = tests(load_text(cx, &unlocked.locked).await?);
    let now = tests(load_text(cx, require_state(&s.stage.document())?).await?);
    let diff = cx.put(publication::text_diff(&before, &now).as_bytes()).await?;
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
    let cx = v.cx;
    if let StepResult::Pass = exit {
        lock_tests(s)?;
        // The adversarial tests are written and run again for the new lock.
        (s.adversary, s.attacked, s.joined) = (None, None, None);
        let tests = load_text(cx, require_state(&s.locked)?).await?;
        let text =
            change::fix(&load_text(cx, &code).await?, cx.run().trigger.issue, change::tests_section(&tests));
        code = cx.put(text.as_bytes()).await?;
    } else {
        s.locked = Some(locked);
    }
    s.stage.replace_draft(code);
    Ok(exit)
}
