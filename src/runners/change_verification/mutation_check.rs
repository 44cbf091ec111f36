//! Do the tests bite? The code is undone part by part, and each time somebody should notice.

use serde::{Deserialize, Serialize};

use super::{
    super::{
        ChangeCoverage, TestError, TestRequest, TestWorkspace,
        red_green::{self, GreenProof, MutationOutcome},
    },
    ChangeVerifier, FileOverlay, RecordedTestRun,
};
use crate::{documents::change::TestEvidence, sandbox::SandboxError, types::count};

/// All runs of one change together take at most this long, and ten times as long as the tests took before it.
const SECONDS: f64 = 600.0;

/// Parts that are tried.
const MOST_PARTS: usize = 30;

/// Parts that are named.
const NAMED: usize = 5;

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MutationCheck {
    /// A place in the new text each, with who noticed that it was undone.
    parts: Vec<(String, MutationOutcome)>,
    /// For these there was no time.
    not_tried: usize,
    #[serde(default)]
    pub covered: Option<ChangeCoverage>,
    /// The tests of the change alone were asked: all tests together are slow.
    #[serde(default)]
    of_change: bool,
    /// With nothing undone they did not pass as they had.
    #[serde(default)]
    unsure: bool,
}

impl MutationCheck {
    /// Who noticed, and what nobody did.
    pub fn add_evidence(&self, evidence: &mut TestEvidence) {
        let (noticed, all) = red_green::mutation_score(self.parts.iter().map(|(_, noticed)| *noticed));
        let of = |by| self.parts.iter().filter(move |(_, noticed)| *noticed == by);
        let held = of(MutationOutcome::Compiler).count();
        let mut shown = Vec::new();
        if all > 0 {
            let of = if self.of_change { " of the change (no other ran for this)" } else { "" };
            shown.push(format!("a test{of} fails for {noticed} of {}", count(all, "part", "parts")));
        }
        if held > 0 {
            let more = if all > 0 { format!("{held} more") } else { count(held, "part", "parts") };
            shown.push(format!("the build breaks for {more}"));
        }
        if !shown.is_empty() {
            let shown = shown.join("; ");
            evidence.add_sentence(
                "Mutation check",
                format!("with each part of the code reverted in turn, {shown}."),
            );
        }
        let untried = self.not_tried + of(MutationOutcome::Unclear).count();
        if self.unsure {
            let why =
                "No mutation check: with nothing reverted, the tests did not pass in it as they had before.";
            evidence.not_shown.push(why.to_owned());
        } else if untried > 0 {
            let were = if untried == 1 { "was" } else { "were" };
            let parts = count(untried, "part", "parts");
            evidence.not_shown.push(format!("{parts} of the code {were} not tried in the mutation check."));
        }
        let nobody = of(MutationOutcome::Nobody).take(NAMED);
        let nobody = nobody.map(|(place, _)| format!("Reverting `{}` breaks no test.", format_lines(place)));
        evidence.review.extend(nobody);
    }
}

/// `src/report.rs:37+3` as `src/report.rs:37-39`.
fn format_lines(place: &str) -> String {
    let parts = place.rsplit_once(':').and_then(|(path, lines)| {
        let (first, count) = lines.split_once('+')?;
        let (first, count): (usize, usize) = (first.parse().ok()?, count.parse().ok()?);
        Some(match count {
            0 | 1 => format!("{path}:{first}"),
            _ => format!("{path}:{first}-{}", first + count - 1),
        })
    });
    parts.unwrap_or_else(|| place.to_owned())
}

impl ChangeVerifier {
    /// Which of the changed lines all tests run, where that can be told: in a run that ends as the others did, and which
    /// the look at them may disturb.
    pub async fn measure_coverage(
        &self,
        green: &GreenProof,
        overlay: &FileOverlay,
        changed: &[(String, usize)],
        wanted: u32,
    ) -> Result<Option<ChangeCoverage>, TestError> {
        let asked = TestRequest { coverage: true, overlay: overlay.clone(), ..self.asked.clone() };
        let ran = match self.run_request(&mut TestWorkspace::new()?, asked).await {
            Ok(ran) if red_green::classify_mutation(green, &ran.found) == MutationOutcome::Nobody => ran,
            Err(stopped @ TestError::Sandbox(SandboxError::Cancelled)) => return Err(stopped),
            _ => return Ok(None),
        };
        let coverage = ran.found.coverage.as_ref();
        Ok(coverage.and_then(|coverage| {
            ChangeCoverage::measure(coverage, changed, |path| ran.project_path(path), wanted)
        }))
    }

    /// Runs all tests without each part of the code, those of the change first, as long as there is time. It decides nothing, so
    /// the runs may share what was built. `without` says where a part is, and what lies over the commit without it.
    pub async fn check_mutations<P>(
        &self,
        (green, before): (&GreenProof, &RecordedTestRun),
        targets: Vec<String>,
        whole: &FileOverlay,
        parts: &[P],
        without: impl Fn(&P) -> Option<(String, FileOverlay)>,
    ) -> Result<MutationCheck, TestError> {
        let (mut bite, mut spent) = (MutationCheck::default(), 0.0);
        let most = (10.0 * before.seconds).min(SECONDS);
        // Where those of the change notice, or all together are slow, that is all. Runs that do not pass with nothing undone
        // would show nothing.
        let (mut bench, mut asked) = (TestWorkspace::new()?, Vec::new());
        for targets in [targets, Vec::new()] {
            let ran = self.run_in(&mut bench, &targets, whole.clone()).await?;
            spent += ran.seconds;
            // Not every runner can be told of files.
            let of_change = ran.found.tests.len() < green.locked.len() + green.kept;
            if red_green::classify_mutation(green, &ran.found) == MutationOutcome::Nobody {
                bite.of_change = of_change;
                asked.push(targets);
            }
            if !of_change || self.is_slow(before) {
                break;
            }
        }
        bite.unsure = asked.is_empty();
        let parts = if bite.unsure { &[] } else { parts };
        for (at, part) in parts.iter().enumerate() {
            if spent >= most || at >= MOST_PARTS {
                bite.not_tried = parts.len() - at;
                break;
            }
            let Some((place, overlay)) = without(part) else { continue };
            let mut noticed = MutationOutcome::Nobody;
            for targets in &asked {
                let ran = self.run_in(&mut bench, targets, overlay.clone()).await?;
                spent += ran.seconds;
                noticed = red_green::classify_mutation(green, &ran.found);
                if noticed != MutationOutcome::Nobody {
                    break;
                }
            }
            bite.parts.push((place, noticed));
        }
        Ok(bite)
    }
}
