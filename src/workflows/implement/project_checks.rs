//! Runs the repository's formatter, linter and end-to-end command with the change.

use super::{
    ImplementRunState,
    change_document::ChangeDocument,
    test_jobs::{run_test_job, wait_for_tests},
    to_mistakes,
};
use crate::{
    engine::StepError,
    rounds::{load_text, require_state},
    runners::change_verification::{ChangeVerifier, RepositoryCheck, RepositoryCheckKind},
    stage::{self, StageDocument as _, StepResult, StepVisit},
};

/// Returns whether complaints of the formatter or linter may send the draft back. They may do so once for the tests and
/// once for the code. Later complaints block nothing: they may concern locked tests, and the limited number of drafts
/// is needed for failing tests.
pub(super) fn may_report_complaints(s: &ImplementRunState) -> bool {
    s.told == 0 && s.stage.may_draft()
}

/// Runs this step's checks on the change, unless these checks have already run on the current version.
pub(super) async fn run_checks(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
    of_step: &[RepositoryCheckKind],
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let lines: Vec<RepositoryCheck> =
        text.lines.iter().filter(|line| line.before && of_step.contains(&line.which)).cloned().collect();
    let (base, document) = (s.stage.base()?.clone(), *require_state(&s.stage.document())?);
    let known = |which: RepositoryCheckKind| {
        s.complaints.iter().any(|(of, known, _)| (*of, *known) == (document, which))
    };
    if lines.iter().all(|line| known(line.which)) {
        return Ok(StepResult::Pass);
    }
    stage::show_working(&mut s.stage, v).await?;
    let overlay = match text.overlay(&load_text(cx, &document).await?) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let asked = lines.clone();
    let look = |trial: ChangeVerifier| async move { trial.new_complaints(&asked, &overlay).await };
    let Some(said) = run_test_job(cx, &base, text.files_to_change(), look).await? else {
        return Ok(wait_for_tests(cx));
    };
    let complains = |which| said.iter().any(|(of, _)| *of == which);
    let decides = complains(RepositoryCheckKind::EndToEnd);
    // Nobody rewrites tests that joined, so complaints about them send nothing back.
    if decides || !said.is_empty() && may_report_complaints(s) && s.attacked != Some(document) {
        s.told += u32::from(!decides);
        let told = said.into_iter().flat_map(|(which, said)| to_mistakes(which.rule(), "Code", vec![said]));
        return stage::settle_checks(&mut s.stage, told.collect());
    }
    s.complaints.extend(lines.iter().map(|line| (document, line.which, complains(line.which))));
    Ok(StepResult::Pass)
}
