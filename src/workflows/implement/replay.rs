//! Where the default branch went on and left the files of the change alone, the tests run once more on what is on it now with
//! the change laid over. Nothing is drafted anew, and what is pushed is what was tried before. It may go on again before the
//! push, and before the merge.

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

/// What came of the change on a later commit than it was made on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BaseReplay {
    branch: String,
    commit: Oid,
    came: ReplayOutcome,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum ReplayOutcome {
    /// So many tests of the change, and others.
    Passed(usize, usize),
    /// Nothing can be run there, with the change or without it.
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
                "The change was tried on `{commit}` as well, which was `{branch}` then and changes no file of this: with it on top \
                 all pass, {} of the change and {}.",
                count(*locked, "test", "tests"),
                count(*kept, "other", "others")
            ),
            ReplayOutcome::Untried(why) => {
                let why = why.trim_end_matches('.');
                format!(
                    "`{branch}` went on to `{commit}`, where the change is untried, because nothing can be run there: {why}."
                )
            }
            ReplayOutcome::Failed(failing) => format!(
                "The change was tried on `{commit}` as well, which was `{branch}` then and changes no file of this: with it on top \
                 not all tests pass: {}.",
                failing.join("; ")
            ),
        }
    }
}

/// Tries the change on what the default branch is now, if that is something else than before: what it came to, none where there
/// is nothing to try, or an exit while tests run, or where they fail and something was pushed before. Where both changed the
/// same files, people are shown that at the gate.
///
/// # Errors
/// `User` where tests fail there and nothing was pushed.
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
    // Where this server has none by now, that says nothing of the commit.
    cx.tools().find_sandbox().await?;
    stage::show_working_as(&mut s.stage, v, "replay").await?;
    let look = |trial: ChangeVerifier| async move {
        let before = trial.run(&[], Vec::new()).await?;
        if let Some(why) = red_green::unusable_reason(&before.found) {
            return Ok(ReplayOutcome::Untried(why));
        }
        let mut tried = trial.prove_green(1, &overlay, &before, &red).await?;
        if tried.is_err() {
            // So much hangs on it that chance gets no word.
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
        // It is of that commit, and not of the change.
        Err(StepError::User(why)) => ReplayOutcome::Untried(why),
        Err(error) => return Err(error),
    };
    let replay = BaseReplay { branch: now.branch, commit: now.commit, came };
    if matches!(replay.came, ReplayOutcome::Failed(_)) {
        if let Some(exit) = stage::keep_pushed_change(&mut s.stage, v, &replay.fact()).await? {
            return Ok(Err(exit));
        }
        return Err(StepError::User(format!(
            "The change is not pushed. Merge `{0}` into the issue's branch (“Update branch” on its pull request) and write `/restart \
             implement` to have it made on that, or mend it on `{0}` and write `/retry`. {1}",
            replay.branch,
            replay.fact()
        )));
    }
    Ok(Ok(Some(replay)))
}
