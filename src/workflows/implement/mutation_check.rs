//! The mutation check. If the runner supports coverage, it first measures which changed lines the tests execute. Then
//! it reverts one part of the code at a time and checks that a test fails. The result is only reported and never blocks
//! the change.

use super::{
    ImplementRunState,
    change_document::ChangeDocument,
    store_json,
    test_jobs::{run_test_job, wait_for_tests},
};
use crate::{
    codebase::mutation_units,
    documents::change::{self, ChangeSection},
    engine::StepError,
    rounds::{load_text, require_state},
    runners::{can_measure, change_verification::ChangeVerifier},
    stage::{self, StageDocument as _, StepResult, StepVisit},
};

/// Reverts each part of the code in turn and runs the tests without that part.
pub(super) async fn run_mutation_check(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::show_working(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *require_state(&s.stage.document())?);
    // Without a green proof a failing test shows nothing.
    let Some(green) = text.green.clone() else { return Ok(StepResult::Pass) };
    if s.bite.is_some_and(|(of, _)| of == document) {
        return Ok(StepResult::Pass);
    }
    let tried = load_text(cx, &document).await?;
    let (change, files) = (change::parse(&tried), text.files.clone());
    let parts = mutation_units::split_into_units(&change, &files).unwrap_or_default();
    let lines = mutation_units::changed_lines(&change, &files).unwrap_or_default();
    let whole = text.tried_overlay(&tried)?;
    let targets: Vec<String> = change.files_in(ChangeSection::Tests).map(|file| file.path.clone()).collect();
    let (before, known) = (require_state(&text.before)?.clone(), text.covered.clone());
    let wanted = s.stage.policy()?.coverage.unwrap_or_default();
    let to_measure = can_measure(&before.runner) && s.covered.is_none_or(|(of, _)| of != document);
    let undo = move |trial: ChangeVerifier| async move {
        let covered =
            if to_measure { trial.measure_coverage(&green, &whole, &lines, wanted).await? } else { known };
        let without = |part: &mutation_units::MutationUnit, together: bool| {
            let (place, files) =
                mutation_units::revert_with_connected(&change, &files, (&parts, part), together)?;
            Some((place, change::overlay_files(files)))
        };
        let mut bite = trial.check_mutations((&green, &before), targets, &whole, &parts, without).await?;
        bite.covered = covered;
        Ok(bite)
    };
    let Some(bite) = run_test_job(cx, &base, text.files_to_change(), undo).await? else {
        return Ok(wait_for_tests(cx));
    };
    s.bite = Some((document, store_json(cx, &bite).await?));
    Ok(StepResult::Pass)
}
