//! Runs adversarial tests, which are written in order to break the code.

use super::{
    super::{
        TestError, TestWorkspace,
        red_green::{self, AdversarialOutcome, GreenProof, RedProof},
    },
    ChangeVerifier, FileOverlay, GREEN_RUNS, RecordedTestRun,
};

/// Path of a test file, and the test that is expected in this file.
type AdversarialTest = (String, red_green::ExpectedTest);

impl ChangeVerifier {
    /// Returns the outcome of each test when run with the code, and the proof for the tests that pass. `overlay`
    /// returns the code with the tests at the given positions. `known` contains the ids of the tests that existed before.
    pub async fn run_adversarial_tests(
        &self,
        tried: &[AdversarialTest],
        overlay: &(impl Fn(&[usize]) -> FileOverlay + Sync),
        known: &[String],
        (before, red): (&RecordedTestRun, &RedProof),
    ) -> Result<(Vec<AdversarialOutcome>, Option<GreenProof>), TestError> {
        let mut outcomes = self.judge_each(tried, overlay, known).await?;
        let green = self.prove_with_others(tried, overlay, &mut outcomes, (before, red)).await?;
        Ok((outcomes, green))
    }

    /// Determines the outcome of each test. First runs all tests together, twice. If a test proves nothing in these
    /// runs, it may have affected the other tests, so each test is then run separately.
    async fn judge_each(
        &self,
        tried: &[AdversarialTest],
        overlay: &(impl Fn(&[usize]) -> FileOverlay + Sync),
        known: &[String],
    ) -> Result<Vec<AdversarialOutcome>, TestError> {
        let mut workspace = TestWorkspace::new()?;
        let all: Vec<red_green::ExpectedTest> = tried.iter().map(|(_, row)| row.clone()).collect();
        let (mut outcomes, mut trouble) = (Vec::new(), false);
        for together in [true, false] {
            if !together && (tried.len() == 1 || !trouble) {
                break;
            }
            outcomes.clear();
            let every: Vec<usize> = (0..tried.len()).collect();
            for some in every.chunks(if together { tried.len() } else { 1 }) {
                let (overlay, some) = (overlay(some), &tried[some[0]..=some[some.len() - 1]]);
                let targets: Vec<String> = some.iter().map(|(path, _)| path.clone()).collect();
                let first = self.run_in(&mut workspace, &targets, overlay.clone()).await?.found;
                let second = self.run_in(&mut workspace, &targets, overlay).await?.found;
                let runs = [&first, &second];
                outcomes.extend(some.iter().map(|(_, row)| red_green::attacked(runs, row, &all, known)));
                trouble |= runs.iter().any(|run| !run.trouble.is_empty() || run.has_timeout());
            }
            trouble |= outcomes.iter().any(|outcomes| matches!(outcomes, AdversarialOutcome::Nothing(_)));
        }
        Ok(outcomes)
    }

    /// Proves that the passing tests also pass together with all other tests, and drops the tests that do not. Returns
    /// the proof for the remaining tests.
    async fn prove_with_others(
        &self,
        tried: &[AdversarialTest],
        overlay: &(impl Fn(&[usize]) -> FileOverlay + Sync),
        outcomes: &mut [AdversarialOutcome],
        (before, red): (&RecordedTestRun, &RedProof),
    ) -> Result<Option<GreenProof>, TestError> {
        loop {
            let passing: Vec<usize> =
                (0..tried.len()).filter(|at| outcomes[*at] == AdversarialOutcome::Passes).collect();
            if passing.is_empty() {
                return Ok(None);
            }
            let kept: Vec<&AdversarialTest> = passing.iter().map(|at| &tried[*at]).collect();
            let red = red.clone().with_rows(kept.iter().map(|(_, row)| row.clone()).collect());
            let failing = match self.prove_green(GREEN_RUNS, &overlay(&passing), before, &red).await? {
                Ok(green) => return Ok(Some(green)),
                Err(failing) => failing,
            };
            let fails = |row: &red_green::ExpectedTest| {
                failing.iter().flat_map(|group| &group.tests).any(|id| row.matches_id(id) || *id == row.name)
            };
            // If the failure cannot be attributed, all are dropped.
            let any = kept.iter().any(|(_, row)| fails(row));
            for at in passing.into_iter().filter(|at| !any || fails(&tried[*at].1)) {
                outcomes[at] = AdversarialOutcome::Nothing(
                    "does not always pass together with all other tests".to_owned(),
                );
            }
        }
    }
}
