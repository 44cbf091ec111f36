//! Do the tests bite? The code is undone part by part, and each time somebody should notice. It is told, and stops nothing.

use serde::{Deserialize, Serialize};

use super::{
    State, keep,
    text::Text,
    trial::{self, Trial, goes_on},
};
use crate::{
    documents::change::{self, Part},
    engine::StepError,
    rounds::{need, text_of},
    runners::judge::{self, Noticed},
    stage::{self, Document as _, Exit, Visit},
};

/// All runs of one change together take at most this long, and ten times as long as the tests took before it.
const SECONDS: f64 = 600.0;

/// Parts that are tried, the largest first.
const MOST_PARTS: usize = 30;

/// Parts that are named of those that nobody noticed.
const NAMED: usize = 5;

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Bite {
    /// A place in the new text each, with who noticed that it was undone.
    parts: Vec<(String, Noticed)>,
    /// For these there was no time.
    not_tried: usize,
}

impl Bite {
    /// In sentences, for the gate and the report.
    pub(super) fn facts(&self) -> Vec<String> {
        let (noticed, all) = judge::score(self.parts.iter().map(|(_, noticed)| *noticed));
        let compiler = self.parts.len() - all;
        let mut facts = vec![format!(
            "Undone one at a time, {noticed} of {all} parts of the code were noticed by a test; {compiler} more are held by the \
             compiler alone, and {} were not tried.",
            self.not_tried
        )];
        let nobody = self.parts.iter().filter(|(_, noticed)| *noticed == Noticed::Nobody);
        facts.extend(
            nobody.take(NAMED).map(|(place, _)| format!("No test notices when `{place}` is undone.")),
        );
        facts
    }
}

/// Undoes the parts of the code, and runs all tests without each.
pub(super) async fn bite(s: &mut State, v: &Visit<'_>, text: &Text) -> Result<Exit, StepError> {
    let cx = v.cx;
    stage::at_work(&mut s.stage, v).await?;
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    // What nobody could see pass, nobody can see fail.
    let Some(green) = &text.green else { return Ok(Exit::Pass) };
    if s.bite.is_some_and(|(of, _)| of == document) {
        return Ok(Exit::Pass);
    }
    let change = change::parse(&text_of(cx, &document).await?);
    let parts = change::bite_units(&change, &text.files).unwrap_or_default();
    let targets: Vec<String> = change.of(Part::Tests).map(|file| file.path.clone()).collect();
    let most = text.before.as_ref().map_or(SECONDS, |before| (10.0 * before.seconds).min(SECONDS));
    let (green, files) = (green.clone(), text.files.clone());
    // It decides nothing, so its runs may share what was built.
    let undo = move |trial: Trial| async move {
        let (mut bite, mut spent) = (Bite::default(), 0.0);
        let mut bench = trial::bench()?;
        for (at, part) in parts.iter().enumerate() {
            if spent >= most || at >= MOST_PARTS {
                bite.not_tried = parts.len() - at;
                break;
            }
            let Ok(without) = change::without(&change, &files, part) else { continue };
            let overlay = trial::laid_over(without);
            // The tests of the change come first: where they notice, that is all.
            let mut noticed = Noticed::Nobody;
            for targets in [targets.as_slice(), &[]] {
                let ran = trial.run_on(&mut bench, targets, overlay.clone()).await?;
                spent += ran.seconds;
                noticed = judge::noticed(&green, &ran.found);
                if noticed != Noticed::Nobody {
                    break;
                }
            }
            let (line, lines) = part.lines();
            bite.parts.push((format!("{}:{line}+{lines}", part.path), noticed));
        }
        Ok(bite)
    };
    let Some(bite) = trial::job(cx, &base, text.files_to_change(), undo).await? else {
        return Ok(goes_on(cx));
    };
    s.bite = Some((document, keep(cx, &bite).await?));
    Ok(Exit::Pass)
}
