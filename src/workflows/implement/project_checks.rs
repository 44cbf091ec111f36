//! Formats the change with the repository's formatter, and runs its linter and end-to-end command.

use super::{
    ImplementRunState,
    change_document::ChangeDocument,
    test_jobs::{run_test_job, wait_for_tests},
    to_mistake,
};
use crate::{
    codebase::mutation_units,
    documents::change,
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
    let draft = load_text(cx, &document).await?;
    if let Err(mistakes) = text.overlay(&draft) {
        return stage::settle_checks(&mut s.stage, mistakes);
    }
    let (asked, text, tree) = (lines.clone(), text.clone(), cx.tools().file_tree(cx, &base).await?);
    let (paths, formats) = (text.files_to_change(), of_step.contains(&RepositoryCheckKind::Format));
    let look = move |trial: ChangeVerifier| async move {
        let (draft, complaint) =
            if formats { text.format(&trial, draft, &tree).await? } else { (draft, None) };
        let overlay = text.overlay(&draft).unwrap_or_default();
        let touched = mutation_units::changed_lines(&change::parse(&draft), &text.files).unwrap_or_default();
        let others = trial.new_complaints(&asked, &overlay, &touched).await?;
        Ok((draft, complaint.into_iter().chain(others).collect::<Vec<_>>()))
    };
    let Some((draft, said)) = run_test_job(cx, &base, paths, look).await? else {
        return Ok(wait_for_tests(cx));
    };
    let document = stage::store_fixed_draft(&mut s.stage, cx, &draft).await?;
    let complains = |which| said.iter().any(|(of, _)| *of == which);
    let decides = complains(RepositoryCheckKind::EndToEnd);
    let is_for_drafter = said.iter().any(|(_, message)| message.is_some());
    // Nobody rewrites tests that joined, so complaints about them send nothing back.
    if decides || is_for_drafter && may_report_complaints(s) && s.attacked != Some(document) {
        s.told += u32::from(!decides);
        let told = said.into_iter().filter_map(|(which, said)| Some(to_mistake(which.rule(), "Code", said?)));
        return stage::settle_checks(&mut s.stage, told.collect());
    }
    s.complaints.extend(lines.iter().map(|line| (document, line.which, complains(line.which))));
    Ok(StepResult::Pass)
}
