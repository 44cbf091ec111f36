//! Runs of tests that were written against the code.

use super::{
    super::{
        TestError, TestWorkspace,
        red_green::{self, AdversarialOutcome, GreenProof, RedProof},
    },
    ChangeVerifier, FileOverlay, GREEN_RUNS, RecordedTestRun,
};

/// A test's file with what the runs know it by.
type AdversarialTest = (String, red_green::ExpectedTest);

impl ChangeVerifier {
    /// What each of them comes to with the code, and the proof of those that pass. `overlay` has the code and all of them,
    /// `known` are the ids of those that ran before.
    pub async fn run_adversarial_tests(
        &self,
        tried: &[AdversarialTest],
        overlay: &FileOverlay,
        known: &[String],
        (before, red): (&RecordedTestRun, &RedProof),
    ) -> Result<(Vec<AdversarialOutcome>, Option<GreenProof>), TestError> {
        let mut came = self.judge_each(tried, overlay, known).await?;
        let green = self.prove_with_others(tried, overlay, &mut came, (before, red)).await?;
        Ok((came, green))
    }

    /// What two runs say of each. They run together; where one shows nothing it may have taken others along, and each runs alone.
    async fn judge_each(
        &self,
        tried: &[AdversarialTest],
        overlay: &FileOverlay,
        known: &[String],
    ) -> Result<Vec<AdversarialOutcome>, TestError> {
        let mut bench = TestWorkspace::new()?;
        let all: Vec<red_green::ExpectedTest> = tried.iter().map(|(_, row)| row.clone()).collect();
        let (mut came, mut trouble) = (Vec::new(), false);
        for together in [true, false] {
            if !together && (tried.len() == 1 || !trouble) {
                break;
            }
            came.clear();
            for some in tried.chunks(if together { tried.len() } else { 1 }) {
                let overlay = keep_only(overlay, tried, &some.iter().collect::<Vec<_>>());
                let targets: Vec<String> = some.iter().map(|(path, _)| path.clone()).collect();
                let first = self.run_in(&mut bench, &targets, overlay.clone()).await?.found;
                let second = self.run_in(&mut bench, &targets, overlay).await?.found;
                let runs = [&first, &second];
                came.extend(some.iter().map(|(_, row)| red_green::attacked(runs, row, &all, known)));
                trouble |= runs.iter().any(|run| !run.trouble.is_empty() || run.has_timeout());
            }
            trouble |= came.iter().any(|came| matches!(came, AdversarialOutcome::Nothing(_)));
        }
        Ok(came)
    }

    /// Those that pass have to pass like every test of a change, beside all others; what does not joins them not. The proof of
    /// those that do.
    async fn prove_with_others(
        &self,
        tried: &[AdversarialTest],
        overlay: &FileOverlay,
        came: &mut [AdversarialOutcome],
        (before, red): (&RecordedTestRun, &RedProof),
    ) -> Result<Option<GreenProof>, TestError> {
        loop {
            let passing: Vec<usize> =
                (0..tried.len()).filter(|at| came[*at] == AdversarialOutcome::Passes).collect();
            if passing.is_empty() {
                return Ok(None);
            }
            let kept: Vec<&AdversarialTest> = passing.iter().map(|at| &tried[*at]).collect();
            let red = red.clone().with_rows(kept.iter().map(|(_, row)| row.clone()).collect());
            let failing =
                match self.prove_green(GREEN_RUNS, &keep_only(overlay, tried, &kept), before, &red).await? {
                    Ok(green) => return Ok(Some(green)),
                    Err(failing) => failing,
                };
            let fails = |row: &red_green::ExpectedTest| {
                failing.iter().flat_map(|group| &group.tests).any(|id| row.matches_id(id) || *id == row.name)
            };
            // Whose fault it is may not be told.
            let any = kept.iter().any(|(_, row)| fails(row));
            for at in passing.into_iter().filter(|at| !any || fails(&tried[*at].1)) {
                came[at] =
                    AdversarialOutcome::Nothing("does not pass each time beside all other tests".to_owned());
            }
        }
    }
}

/// With these tests alone of those that are tried.
fn keep_only(overlay: &FileOverlay, tried: &[AdversarialTest], kept: &[&AdversarialTest]) -> FileOverlay {
    let left = |path: &str| tried.iter().any(|(of, _)| of == path) && !kept.iter().any(|(of, _)| of == path);
    overlay.iter().filter(|(path, _)| !left(path)).cloned().collect()
}
