//! What the repository checks itself by besides its tests: formatter, linter, and a line of its own from end to end. Of each
//! it is known whether it ends well without the change: what does not is never counted.

use serde::{Deserialize, Serialize};

use super::{
    State, mistakes,
    text::Text,
    trial::{self, Overlay, Trial, goes_on},
};
use crate::{
    engine::StepError,
    rounds::{need, text_of},
    runners::one_line,
    stage::{self, Document as _, Exit, Visit},
};

/// Who writes the tests is told once what the formatter says, and who writes the code what formatter and linter say. What is
/// left of it then stops nothing: it may be about tests, which are locked, and drafts are for what does not work.
pub(super) fn may_be_told(s: &State) -> bool {
    s.told == 0 && s.stage.may_draft()
}

/// Characters of what such a program says that the drafter reads, from its end.
const SAID: usize = 2_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Which {
    Format,
    Lint,
    EndToEnd,
}

impl Which {
    fn rule(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Lint => "lint",
            Self::EndToEnd => "end_to_end",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Format => "formatter",
            Self::Lint => "linter",
            Self::EndToEnd => "end-to-end run",
        }
    }
}

/// A line for the shell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Line {
    pub which: Which,
    line: String,
    /// It ends well without the change.
    before: bool,
}

impl Line {
    /// How it stands with the change, in a sentence. `complains`: of this version of it.
    pub(super) fn fact(&self, complains: bool) -> String {
        let name = format!("The {}, `{}`,", self.which.name(), one_line(&self.line).replace('`', "'"));
        match (self.before, complains) {
            (false, _) => {
                format!(
                    "{name} was not checked: without the change it does not end well either, or is not here."
                )
            }
            (true, true) => format!("{name} ends well without the change, and not with it."),
            (true, false) => format!("{name} ends well with the change, as it did without."),
        }
    }
}

/// What each says without the change.
pub(super) async fn before(trial: &Trial) -> Result<Vec<Line>, StepError> {
    let (mut lines, mut bench) = (Vec::new(), trial::bench()?);
    for (which, line) in trial.lines() {
        let before = trial.line(&mut bench, &line, Vec::new()).await?.is_none();
        lines.push(Line { which, line, before });
    }
    Ok(lines)
}

/// What those say with something laid over that say nothing without.
pub(super) async fn complaints(
    trial: &Trial,
    lines: &[Line],
    overlay: &Overlay,
) -> Result<Vec<(Which, String)>, StepError> {
    let (mut said, mut bench) = (Vec::new(), trial::bench()?);
    for Line { which, line, .. } in lines.iter().filter(|line| line.before) {
        if let Some(text) = trial.line(&mut bench, line, overlay.clone()).await? {
            let from = text.ceil_char_boundary(text.len().saturating_sub(SAID));
            said.push((*which, format!("`{line}` does not end well: {}", &text[from..])));
        }
    }
    Ok(said)
}

/// Runs those of a step with the change, where it was not done yet.
pub(super) async fn run(
    s: &mut State,
    v: &Visit<'_>,
    text: &Text,
    of_step: &[Which],
) -> Result<Exit, StepError> {
    let cx = v.cx;
    let lines: Vec<Line> =
        text.lines.iter().filter(|line| line.before && of_step.contains(&line.which)).cloned().collect();
    let (base, document) = (s.stage.base()?.clone(), *need(&s.stage.document())?);
    let known = |which: Which| s.complaints.iter().any(|(of, known, _)| (*of, *known) == (document, which));
    if lines.iter().all(|line| known(line.which)) {
        return Ok(Exit::Pass);
    }
    stage::at_work(&mut s.stage, v).await?;
    let overlay = match text.overlay(&text_of(cx, &document).await?) {
        Ok(overlay) => overlay,
        Err(mistakes) => return stage::settle_checks(&mut s.stage, mistakes),
    };
    let asked = lines.clone();
    let look = |trial: Trial| async move { complaints(&trial, &asked, &overlay).await };
    let Some(said) = trial::job(cx, &base, text.files_to_change(), look).await? else {
        return Ok(goes_on(cx));
    };
    let complains = |which| said.iter().any(|(of, _)| *of == which);
    let decides = complains(Which::EndToEnd);
    // What joined the tests nobody writes otherwise.
    if decides || !said.is_empty() && may_be_told(s) && s.attacked != Some(document) {
        s.told += u32::from(!decides);
        let told = said.into_iter().flat_map(|(which, said)| mistakes(which.rule(), "Code", vec![said]));
        return stage::settle_checks(&mut s.stage, told.collect());
    }
    s.complaints.extend(lines.iter().map(|line| (document, line.which, complains(line.which))));
    Ok(Exit::Pass)
}
