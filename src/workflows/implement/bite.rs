//! Do the tests bite? Which of the changed lines they run is measured where that can be; then the code is undone part by
//! part, and each time somebody should notice. It is told, and stops nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{
    State, keep,
    text::Text,
    trial::{self, Ran, Trial, goes_on},
};
use crate::{
    documents::change::{self, Files, Part, Unit},
    engine::StepError,
    rounds::{need, text_of},
    runners::{
        Coverage,
        judge::{self, Noticed},
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
}

/// Which of the changed lines the tests ran, in the files that the tools speak of.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Covered {
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
        facts.push(match &self.covered {
            Some(covered) => covered.fact(),
            None => "Which of the changed lines the tests run was not measured: it is for Go, for Node, and for Python where \
                     coverage.py is installed."
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
            let (first, count) = part.lines();
            for (line, text) in (first..).zip(text.unwrap_or_default().lines().skip(first - 1).take(count)) {
                match u32::try_from(line)
                    .ok()
                    .and_then(|line| lines.get(&line))
                    .filter(|_| says_something(text))
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

    fn fact(&self) -> String {
        let all = self.ran + self.missed.len();
        let percent = self.ran * 100 / all.max(1);
        let few = if percent < self.wanted as usize { ", which is too little" } else { "" };
        let named = self
            .missed
            .iter()
            .take(NAMED)
            .map(|(path, line)| format!("`{path}:{line}`"))
            .collect::<Vec<_>>()
            .join(", ");
        let more = self.missed.len().saturating_sub(NAMED);
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

/// A line of nothing but brackets or words for people is none that runs, whatever a tool says.
fn says_something(line: &str) -> bool {
    let line = line.trim();
    let comment = ["//", "#", "/*", "*"].iter().any(|mark| line.starts_with(mark));
    !comment && line.contains(char::is_alphanumeric)
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
    let wanted = s.stage.policy()?.coverage.unwrap_or_default();
    // It decides nothing, so its runs may share what was built.
    let undo = move |trial: Trial| async move {
        let (mut bite, mut spent) = (Bite::default(), 0.0);
        let mut bench = trial::bench()?;
        if let Ok(whole) = change::apply(&change, &files) {
            let ran = trial.measure(&mut bench, trial::laid_over(whole.clone())).await?;
            let coverage = ran.found.coverage.as_ref();
            bite.covered = coverage.and_then(|coverage| Covered::of(coverage, &parts, &whole, &ran, wanted));
            spent += ran.seconds;
        }
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
