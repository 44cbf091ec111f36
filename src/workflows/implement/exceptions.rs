//! Beyond what people approved: files that the spec does not list, and other tests than those that are locked. The drafter
//! writes them all the same, and where it gets no further without, people are asked.

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

/// What the lock was, the code for which it is to be another one, and why none passed it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TestUnlock {
    locked: Hash,
    pub(super) code: Hash,
    why: String,
}

/// The tests that this draft has in the place of the locked ones, if it still has such. What joined those is none of its own,
/// and is written anew once others are locked.
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

/// Mends and checks the draft. Where the last of all that are allowed has nothing wrong but files beyond the spec, they may
/// be allowed.
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

/// No code passes the locked tests. Where its drafter wrote others, these are proven next, in their place.
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
    // Their form is nothing that they are sent back for.
    s.told = 1;
    s.stage.reset_rounds()?;
    s.stage.replace_draft(others);
    Ok(StepResult::NeedsException)
}

/// What a step makes of tests. Those that are to take the place of locked ones are not drafted again: people are to be asked
/// about what the code was written beside.
pub(super) fn settle_proof(
    s: &ImplementRunState,
    came: Result<StepResult, StepError>,
) -> Result<StepResult, StepError> {
    match (came, &s.unlocked) {
        (Ok(StepResult::Redraft), Some(TestUnlock { why, .. })) => Err(StepError::User(format!(
            "No code passes the locked tests, and those that its drafter wants in their place show nothing: {}. {why}",
            s.stage.first_error().unwrap_or("they cannot be used").trim_end_matches('.')
        ))),
        (came, _) => came,
    }
}

/// Asks people for them.
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

/// Hears people. What they allow holds from then on; otherwise the lock is what it was.
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
        // The tests against the code are written and run anew, beside those that are locked now.
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
