//! Do the tests bite? Which of the changed lines they run is measured where that can be; then the code is undone part by
//! part, and each time somebody should notice. It is told, and stops nothing.

use super::{
    ImplementRunState,
    change_document::ChangeDocument,
    keep,
    test_jobs::{goes_on, job},
};
use crate::{
    codebase::mutation_units,
    documents::change::{self, ChangeSection},
    engine::StepError,
    rounds::{need, text_of},
    runners::{change_verification::ChangeVerifier, is_measured},
    stage::{self, StageDocument as _, StepResult, StepVisit},
};

/// Undoes the parts of the code, and runs all tests without each.
pub(super) async fn bite(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<StepResult, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    // What nobody could see pass, nobody can see fail.
    let Some(green) = text.green.clone() else { return Ok(StepResult::Pass) };
    if s.bite.is_some_and(|(of, _)| of == document) {
        return Ok(StepResult::Pass);
    }
    let tried = text_of(cx, &document).await?;
    let (change, files) = (change::parse(&tried), text.files.clone());
    let parts = mutation_units::bite_units(&change, &files).unwrap_or_default();
    let lines = mutation_units::changed_lines(&change, &files).unwrap_or_default();
    let whole = text.tried(&tried)?;
    let targets: Vec<String> = change.of(ChangeSection::Tests).map(|file| file.path.clone()).collect();
    let (before, known) = (need(&text.before)?.clone(), text.covered.clone());
    let wanted = s.stage.policy()?.coverage.unwrap_or_default();
    let to_measure = is_measured(&before.runner) && s.covered.is_none_or(|(of, _)| of != document);
    let undo = move |trial: ChangeVerifier| async move {
        let covered = if to_measure { trial.covered(&green, &whole, &lines, wanted).await? } else { known };
        let without = |part: &mutation_units::MutationUnit| {
            let overlay = change::laid_over(mutation_units::without(&change, &files, part).ok()?);
            let (line, lines) = part.lines();
            Some((format!("{}:{line}+{lines}", part.path), overlay))
        };
        let mut bite = trial.bite((&green, &before), targets, &whole, &parts, without).await?;
        bite.covered = covered;
        Ok(bite)
    };
    let Some(bite) = job(cx, &base, text.files_to_change(), undo).await? else {
        return Ok(goes_on(cx));
    };
    s.bite = Some((document, keep(cx, &bite).await?));
    Ok(StepResult::Pass)
}
