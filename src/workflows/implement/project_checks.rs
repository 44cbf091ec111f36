//! Formatter, linter and the line from end to end, with the change.

use super::{
    ImplementRunState,
    change_document::ChangeDocument,
    mistakes,
    test_jobs::{goes_on, job},
};
use crate::{
    engine::StepError,
    rounds::{need, text_of},
    runners::change_verification::{ChangeVerifier, RepositoryCheck, RepositoryCheckKind},
    stage::{self, StageDocument as _, StepResult, StepVisit},
};

/// Who writes the tests is told once what the formatter says, and who writes the code what formatter and linter say. What is
/// left of it then stops nothing: it may be about tests, which are locked, and drafts are for what does not work.
pub(super) fn may_be_told(s: &ImplementRunState) -> bool {
    s.told == 0 && s.stage.may_draft()
}

/// Runs those of a step with the change, where it was not done yet.
pub(super) async fn run(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
    of_step: &[RepositoryCheckKind],
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let lines: Vec<RepositoryCheck> =
        text.lines.iter().filter(|line| line.before && of_step.contains(&line.which)).cloned().collect();
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    let known = |which: RepositoryCheckKind| {
        s.complaints.iter().any(|(of, known, _)| (*of, *known) == (document, which))
    };
    if lines.iter().all(|line| known(line.which)) {
        return Ok(StepResult::Pass);
    }
    stage::at_work(&mut s.stage, v).await?;
    let overlay = match text.overlay(&text_of(cx, &document).await?) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let asked = lines.clone();
    let look = |trial: ChangeVerifier| async move { trial.complaints(&asked, &overlay).await };
    let Some(said) = job(cx, &base, text.files_to_change(), look).await? else {
        return Ok(goes_on(cx));
    };
    let complains = |which| said.iter().any(|(of, _)| *of == which);
    let decides = complains(RepositoryCheckKind::EndToEnd);
    // What joined the tests nobody writes otherwise.
    if decides || !said.is_empty() && may_be_told(s) && s.attacked != Some(document) {
        s.told += u32::from(!decides);
        let told = said.into_iter().flat_map(|(which, said)| mistakes(which.rule(), "Code", vec![said]));
        return stage::settle_checks(&mut s.stage, told.collect());
    }
    s.complaints.extend(lines.iter().map(|line| (document, line.which, complains(line.which))));
    Ok(StepResult::Pass)
}
