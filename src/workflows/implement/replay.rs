//! The replay: a last test run on a newer base. If the default branch has new commits that do not touch the change's
//! files, the tests run once more on the newest commit with the change applied. Nothing is drafted again, and the
//! pushed change stays the same. The branch may still get further commits before the push or the merge.

use serde::{Deserialize, Serialize};

use super::{
    ImplementRunState,
    change_document::ChangeDocument,
    test_jobs::{run_test_job, wait_for_tests},
};
use crate::{
    documents::change::TestEvidence,
    engine::StepError,
    rounds::{load_text, require_state},
    runners::{change_verification::ChangeVerifier, red_green, sanitize_line},
    stage::{self, StageDocument as _, StepResult, StepVisit},
    types::{Oid, count},
};

/// Result of testing the change on a newer commit of the default branch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BaseReplay {
    branch: String,
    commit: Oid,
    came: ReplayOutcome,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum ReplayOutcome {
    /// All tests passed. Holds the number of the change's own tests and the number of other tests.
    Passed(usize, usize),
    /// No tests can run on that commit, with or without the change. Holds the reason.
    Untried(String),
    Failed(Vec<String>),
}

impl BaseReplay {
    pub(super) fn add_evidence(&self, evidence: &mut TestEvidence) {
        match &self.came {
            ReplayOutcome::Passed(..) => evidence.add_sentence("On a newer base", self.fact()),
            ReplayOutcome::Untried(_) | ReplayOutcome::Failed(_) => evidence.not_shown.push(self.fact()),
        }
    }

    pub(super) fn fact(&self) -> String {
        let (branch, commit) = (sanitize_line(&self.branch).replace('`', "'"), self.commit.short());
        match &self.came {
            ReplayOutcome::Passed(locked, kept) => format!(
                "The change also passes on `{commit}`, a newer commit of `{branch}` that changes none of the \
                 files of this change: {} of the change and {}.",
                count(*locked, "test", "tests"),
                count(*kept, "other", "others")
            ),
            ReplayOutcome::Untried(why) => {
                let why = why.trim_end_matches('.');
                format!(
                    "The change is untested on `{commit}`, a newer commit of `{branch}`, because tests cannot be \
                     run: {why}."
                )
            }
            ReplayOutcome::Failed(failing) => format!(
                "The change fails tests on `{commit}`, a newer commit of `{branch}` that changes none of the files of this change: {}.",
                failing.join("; ")
            ),
        }
    }
}

/// Runs the tests on the newest commit of the default branch, with the change applied. Returns `None` if this is not
/// needed or not possible: the branch has no commit that is newer and untested, or newer commits change files that the
/// change also changes. The gate shows the latter conflict to people. Returns `Err` with a step result while the tests
/// run, or if they fail after an earlier push.
///
/// # Errors
/// `User` if the tests fail on the newest commit and nothing was pushed yet.
pub(super) async fn replay_on_new_base(
    s: &mut ImplementRunState,
    v: &StepVisit<'_>,
    text: &ChangeDocument,
) -> Result<Result<Option<BaseReplay>, StepResult>, StepError> {
    let (cx, base) = (v.cx, s.stage.base()?.clone());
    let current = s.stage.document();
    let document = load_text(cx, require_state(&current)?).await?;
    let repo = cx.tools().repository(cx).await?;
    let now = cx.tools().fetch_base(cx, "replay-base", &repo).await?;
    if now.commit == base.commit || text.replayed.as_ref().is_some_and(|known| known.commit == now.commit) {
        return Ok(Ok(None));
    }
    let (then, there) = (cx.tools().snapshot(cx, &base).await?, cx.tools().snapshot(cx, &now).await?);
    let mut paths = text.paths(&document).into_iter().chain(text.files_to_change());
    if paths.any(|path| then.entry(&path).map(|e| &e.oid) != there.entry(&path).map(|e| &e.oid)) {
        return Ok(Ok(None));
    }
    let overlay = text.tried_overlay(&document)?;
    let red = require_state(&text.red)?.clone();
    stage::require_still_wanted(&s.stage, cx).await?;
    // A missing sandbox now says nothing about the commit.
    cx.tools().find_sandbox().await?;
    stage::show_working_as(&mut s.stage, v, "replay").await?;
    let look = |trial: ChangeVerifier| async move {
        let before = trial.run(&[], Vec::new()).await?;
        if let Some(why) = red_green::unusable_reason(&before.found) {
            return Ok(ReplayOutcome::Untried(why));
        }
        let mut tried = trial.prove_green(1, &overlay, &before, &red).await?;
        if tried.is_err() {
            // A failure here ends the run, so rule out a flaky test.
            tried = trial.prove_green(1, &overlay, &before, &red).await?;
        }
        Ok(match tried {
            Ok(green) => ReplayOutcome::Passed(green.locked.len(), green.kept),
            Err(failing) => ReplayOutcome::Failed(red_green::describe_failures(&failing)),
        })
    };
    let came = match run_test_job(cx, &now, text.files_to_change(), look).await {
        Ok(Some(came)) => came,
        Ok(None) => return Ok(Err(wait_for_tests(cx))),
        // The error is about that commit, not about the change.
        Err(StepError::User(why)) => ReplayOutcome::Untried(why),
        Err(error) => return Err(error),
    };
    let replay = BaseReplay { branch: now.branch, commit: now.commit, came };
    if matches!(replay.came, ReplayOutcome::Failed(_)) {
        if let Some(exit) = stage::keep_pushed_change(&mut s.stage, v, &replay.fact()).await? {
            return Ok(Err(exit));
        }
        return Err(StepError::User(format!(
            "The change was not pushed. Merge `{0}` into the issue's branch (“Update branch” on its pull request) and \
             write `/restart implement`, or fix the failure on `{0}` and write `/retry`. {1}",
            replay.branch,
            replay.fact()
        )));
    }
    Ok(Ok(Some(replay)))
}
