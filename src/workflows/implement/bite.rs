//! Do the tests bite? Which of the changed lines they run is measured where that can be; then the code is undone part by
//! part, and each time somebody should notice. It is told, and stops nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    State, keep,
    text::Text,
    trial::{self, Ran, Trial, goes_on},
};
use crate::{
    codebase::{
        Language, says_something,
        units::{self, Unit},
    },
    documents::change::{self, Change, Files, Part},
    engine::StepError,
    rounds::{need, text_of},
    runners::{
        Coverage, is_measured,
        judge::{self, Green, Noticed},
    },
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
    #[serde(default)]
    covered: Option<Covered>,
    /// The tests of the change alone were asked: all tests together are slow.
    #[serde(default)]
    of_change: bool,
    /// With nothing undone they did not pass as they had.
    #[serde(default)]
    unsure: bool,
}

/// Which of the changed lines the tests ran, in the files that the tools speak of.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Covered {
    files: usize,
    ran: usize,
    /// A place each.
    missed: BTreeSet<(String, usize)>,
    /// So many of a hundred are wanted.
    wanted: u32,
}

impl Bite {
    /// In sentences, for the gate and the report.
    pub(super) fn facts(&self) -> Vec<String> {
        let (noticed, all) = judge::score(self.parts.iter().map(|(_, noticed)| *noticed));
        let held = |by| self.parts.iter().filter(|(_, noticed)| *noticed == by).count();
        let of = if self.of_change { " of the change, the only ones that were run for this" } else { "" };
        let mut facts = vec![match self.unsure {
            true => "Which parts of the code the tests notice was not measured: run for that with nothing undone, they did not pass \
                     as they had before."
                .to_owned(),
            false => format!(
                "Undone one at a time, {noticed} of {all} parts of the code were noticed by a test{of}; {} more are held by the \
                 compiler alone, and {} were not tried, or their runs broke off.",
                held(Noticed::Compiler),
                self.not_tried + held(Noticed::Unclear)
            ),
        }];
        let nobody = self.parts.iter().filter(|(_, noticed)| *noticed == Noticed::Nobody);
        facts.extend(
            nobody.take(NAMED).map(|(place, _)| format!("No test{of} notices when `{place}` is undone.")),
        );
        facts.push(match &self.covered {
            Some(covered) => covered.fact(NAMED),
            None => "Which of the changed lines the tests run was not measured: it is for Go, for Node, and for Python where \
                     coverage.py is installed, if all tests pass then, too."
                .to_owned(),
        });
        facts
    }
}

impl Covered {
    /// None where the tools say nothing of any changed line.
    fn of(coverage: &Coverage, parts: &[Unit], files: &Files, ran: &Ran, wanted: u32) -> Option<Self> {
        let mut covered = Self { wanted, ..Self::default() };
        let mut seen = BTreeSet::new();
        for part in parts {
            let Some(lines) = ran.within(&part.path).and_then(|path| coverage.get(path)) else { continue };
            let text =
                files.iter().find(|(path, _)| *path == part.path).and_then(|(_, text)| text.as_deref());
            seen.insert(&part.path);
            let (language, (first, count)) = (Language::of(&part.path), part.lines());
            for (line, text) in (first..).zip(text.unwrap_or_default().lines().skip(first - 1).take(count)) {
                match u32::try_from(line)
                    .ok()
                    .and_then(|line| lines.get(&line))
                    .filter(|_| says_something(language, text))
                {
                    Some(true) => covered.ran += 1,
                    Some(false) => drop(covered.missed.insert((part.path.clone(), line))),
                    None => {}
                }
            }
        }
        covered.files = seen.len();
        (covered.ran + covered.missed.len() > 0).then_some(covered)
    }

    /// With so many of the lines that no test runs.
    pub(super) fn fact(&self, most: usize) -> String {
        let all = self.ran + self.missed.len();
        let percent = self.ran * 100 / all.max(1);
        let few = if percent < self.wanted as usize { ", which is too little" } else { "" };
        let named = self
            .missed
            .iter()
            .take(most)
            .map(|(path, line)| format!("`{path}:{line}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let more = self.missed.len().saturating_sub(most);
        let missed = match more {
            _ if named.is_empty() => String::new(),
            0 => format!(" Not run: {named}."),
            more => format!(" Not run: {named} and {more} more."),
        };
        format!(
            "The tests run {} of {all} changed lines that can run ({percent} %, and {} % are wanted{few}); files measured: {}.{missed}",
            self.ran, self.wanted, self.files
        )
    }
}

/// Which of the changed lines all tests run, where that can be told: in a run that ends as the others did.
///
/// # Errors
/// That it was stopped.
pub(super) async fn measured(
    trial: &Trial,
    green: &Green,
    (change, files): (&Change, &BTreeMap<String, String>),
    wanted: u32,
) -> Result<Option<Covered>, StepError> {
    let Ok(whole) = change::apply(change, files) else { return Ok(None) };
    let parts = units::changed_lines(change, files).unwrap_or_default();
    let ran = match trial.measure(&mut trial::bench()?, change::laid_over(whole.clone())).await {
        Ok(ran) if judge::noticed(green, &ran.found) == Noticed::Nobody => ran,
        Err(later @ StepError::Later { .. }) => return Err(later),
        _ => return Ok(None),
    };
    let coverage = ran.found.coverage.as_ref();
    Ok(coverage.and_then(|coverage| Covered::of(coverage, &parts, &whole, &ran, wanted)))
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
    let parts = units::bite_units(&change, &text.files).unwrap_or_default();
    let targets: Vec<String> = change.of(Part::Tests).map(|file| file.path.clone()).collect();
    let before = need(&text.before)?.clone();
    let most = (10.0 * before.seconds).min(SECONDS);
    let (green, files, covered) = (green.clone(), text.files.clone(), text.covered.clone());
    let wanted = s.stage.policy()?.coverage.unwrap_or_default();
    let to_measure = is_measured(&before.runner) && s.covered.is_none_or(|(of, _)| of != document);
    // It decides nothing, so its runs may share what was built.
    let undo = move |trial: Trial| async move {
        let (mut bite, mut spent) = (Bite { covered, ..Bite::default() }, 0.0);
        if to_measure {
            bite.covered = measured(&trial, &green, (&change, &files), wanted).await?;
        }
        let Ok(whole) = change::apply(&change, &files) else { return Ok(bite) };
        let whole = change::laid_over(whole);
        // The tests of the change come first: where they notice, or all together are slow, that is all. Runs that do not pass
        // with nothing undone would show nothing.
        let (mut bench, mut asked) = (trial::bench()?, Vec::new());
        for targets in [targets, Vec::new()] {
            let ran = trial.run_on(&mut bench, &targets, whole.clone()).await?;
            spent += ran.seconds;
            // Not every runner can be told of files.
            let of_change = ran.found.tests.len() < green.locked.len() + green.kept;
            if judge::noticed(&green, &ran.found) == Noticed::Nobody {
                bite.of_change = of_change;
                asked.push(targets);
            }
            if !of_change || trial.is_slow(&before) {
                break;
            }
        }
        bite.unsure = asked.is_empty();
        let parts = if bite.unsure { Vec::new() } else { parts };
        for (at, part) in parts.iter().enumerate() {
            if spent >= most || at >= MOST_PARTS {
                bite.not_tried = parts.len() - at;
                break;
            }
            let Ok(without) = units::without(&change, &files, part) else { continue };
            let overlay = change::laid_over(without);
            let mut noticed = Noticed::Nobody;
            for targets in &asked {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_tests_is_told_which_changed_lines_none_runs() {
        let missed = [("src/a.py".to_owned(), 7)].into();
        let covered = Covered { files: 1, ran: 3, missed, wanted: 95 };
        let mut text = Text::default();
        text.covered.get_or_insert(covered);
        let said = text.facts("c0ffee");
        assert!(said.contains("(75 %, and 95 % are wanted, which is too little)"), "{said}");
        assert!(said.contains("Not run: `src/a.py:7`."), "{said}");
    }
}
