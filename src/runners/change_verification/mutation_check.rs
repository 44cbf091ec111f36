//! Mutation check: reverts the code part by part and runs the tests each time. A good suite fails for each reverted
//! part.

use serde::{Deserialize, Serialize};

use super::{
    super::{
        ChangeCoverage, TestError, TestRequest, TestWorkspace,
        red_green::{self, GreenProof, MutationOutcome},
    },
    ChangeVerifier, FileOverlay, RecordedTestRun,
};
use crate::{documents::change::TestEvidence, sandbox::SandboxError, types::count};

/// Maximum duration of all runs for one change, in seconds. The runs also stop at ten times the duration of the test
/// run without the change.
const SECONDS: f64 = 600.0;

const MOST_PARTS: usize = 30;

const NAMED: usize = 5;

/// Result of a mutation check.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MutationCheck {
    /// Location of each reverted part in the new text, and the outcome of the tests when that part was reverted. Parts
    /// that were reverted together have one entry, with their locations separated by `, `.
    parts: Vec<(String, MutationOutcome)>,
    /// Number of parts that were not reverted because the time limit was reached.
    not_tried: usize,
    #[serde(default)]
    pub covered: Option<ChangeCoverage>,
    /// Whether only the change's tests were run, because the suite is slow.
    #[serde(default)]
    of_change: bool,
    /// Whether the tests failed in this check although no part was reverted. If so, the check proves nothing.
    #[serde(default)]
    unsure: bool,
}

impl MutationCheck {
    /// Records in the evidence the reverted parts that the tests detected and those that they missed.
    pub fn add_evidence(&self, evidence: &mut TestEvidence) {
        let (noticed, all) = red_green::mutation_score(self.parts.iter().map(|(_, noticed)| *noticed));
        let of = |by| self.parts.iter().filter(move |(_, noticed)| *noticed == by);
        let bound = of(MutationOutcome::Compiler).count();
        let mut shown = Vec::new();
        if all > 0 {
            let of = if self.of_change { " of the change (no other ran for this)" } else { "" };
            shown.push(format!("a test{of} fails for {noticed} of {}", count(all, "part", "parts")));
        }
        if all == 0 && bound > 0 {
            let why = "The mutation check shows nothing: no part of the code could be reverted without breaking the build.";
            evidence.not_shown.push(why.to_owned());
        } else if bound > 0 {
            shown.push(format!("{bound} more could not be reverted alone"));
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
            let why = "No mutation check: the tests failed in it even before anything was reverted.";
            evidence.not_shown.push(why.to_owned());
        } else if untried > 0 {
            let were = if untried == 1 { "was" } else { "were" };
            let parts = count(untried, "part", "parts");
            evidence.not_shown.push(format!("{parts} of the code {were} not tried in the mutation check."));
        }
        let nobody = of(MutationOutcome::Nobody).take(NAMED);
        let lines = |place: &str| place.split(", ").map(format_lines).collect::<Vec<_>>().join("`, `");
        let nobody = nobody.map(|(place, _)| format!("Reverting `{}` breaks no test.", lines(place)));
        evidence.review.extend(nobody);
    }
}

/// Formats `src/report.rs:37+3` as `src/report.rs:37-39`.
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
    /// Measures which changed lines the tests execute, if the runner supports it. Measuring may disturb the tests, so
    /// it happens in a separate run, whose results must be the same as before.
    pub async fn measure_coverage(
        &self,
        green: &GreenProof,
        overlay: &FileOverlay,
        changed: &[(String, usize)],
        wanted: u32,
    ) -> Result<Option<ChangeCoverage>, TestError> {
        let request = TestRequest { coverage: true, overlay: overlay.clone(), ..self.asked.clone() };
        let ran = match self.run_request(&mut TestWorkspace::new()?, request).await {
            Ok(ran) if red_green::classify_mutation(green, &ran.found) == MutationOutcome::Nobody => ran,
            Err(stopped @ TestError::Sandbox(SandboxError::Cancelled)) => return Err(stopped),
            _ => return Ok(None),
        };
        let coverage = ran.found.coverage.as_ref();
        Ok(coverage.and_then(|coverage| {
            ChangeCoverage::measure(coverage, changed, |path| ran.project_path(path), wanted)
        }))
    }

    /// Reverts each part in turn and runs the tests, those of the change first, until the time limit is reached. A part
    /// without which the code does not build is reverted again, together with the parts that need it. The result does
    /// not decide whether the change is accepted, so the runs may share build output. `without` returns a part's
    /// location and the overlay without that part, alone (`false`) or with those parts (`true`).
    pub async fn check_mutations<P>(
        &self,
        (green, before): (&GreenProof, &RecordedTestRun),
        targets: Vec<String>,
        whole: &FileOverlay,
        parts: &[P],
        without: impl Fn(&P, bool) -> Option<(String, FileOverlay)>,
    ) -> Result<MutationCheck, TestError> {
        let (mut check, mut spent) = (MutationCheck::default(), 0.0);
        let most = (10.0 * before.seconds).min(SECONDS);
        // The full suite runs only if it is fast and the change's tests miss a part. A suite that fails with nothing
        // reverted proves nothing.
        let (mut workspace, mut selections) = (TestWorkspace::new()?, Vec::new());
        let mut tried: Vec<(FileOverlay, MutationOutcome)> = Vec::new();
        for targets in [targets, Vec::new()] {
            let ran = self.run_in(&mut workspace, &targets, whole.clone()).await?;
            spent += ran.seconds;
            // Not every runner can run single files.
            let of_change = ran.found.tests.len() < green.locked.len() + green.kept;
            if red_green::classify_mutation(green, &ran.found) == MutationOutcome::Nobody {
                check.of_change = of_change;
                selections.push(targets);
            }
            if !of_change || self.is_slow(before) {
                break;
            }
        }
        check.unsure = selections.is_empty();
        let parts = if check.unsure { &[] } else { parts };
        for (at, part) in parts.iter().enumerate() {
            if spent >= most || at >= MOST_PARTS {
                check.not_tried = parts.len() - at;
                break;
            }
            let mut came = None;
            for together in [false, true] {
                let Some((place, overlay)) = without(part, together) else { break };
                if let Some((_, known)) = tried.iter().find(|(known, _)| *known == overlay) {
                    // An earlier part was reverted together with this one, and counts for both.
                    came = came.filter(|_| *known == MutationOutcome::Compiler);
                    break;
                }
                let mut noticed = MutationOutcome::Nobody;
                for targets in &selections {
                    let ran = self.run_in(&mut workspace, targets, overlay.clone()).await?;
                    spent += ran.seconds;
                    noticed = red_green::classify_mutation(green, &ran.found);
                    if noticed != MutationOutcome::Nobody {
                        break;
                    }
                }
                tried.push((overlay, noticed));
                came = Some((place, noticed));
                if noticed != MutationOutcome::Compiler {
                    break;
                }
            }
            check.parts.extend(came);
        }
        Ok(check)
    }
}
