//! What CI says of what a run pushed; and that somebody asks on a commit that our check be run again.
//!
//! A check is run again by what it shows: a run that halted is tried again, as `/retry` does it. Of any other the check
//! is shown again as it stands, since GitHub holds its suite for unfinished until we write. There is no comment on which a
//! 👀 or a 👎 could say that it was heard.

use super::{
    DeliveryNote, DeliveryResult, Intake, cause,
    comment::means,
    events::{IssueRef, LATE},
};
use crate::{
    engine::{RETRY, RetryDecision, RunFilter, RunRemark, RunView, RunViewStatus},
    github::{
        decorated,
        event::{CheckRerequestEvent, CiEvent, RepoRef},
    },
    publication::waits_for_merge,
    rounds::someone,
    store::ClaimedDelivery,
    types::{IssueNo, Role},
};

impl Intake {
    /// CI has something to say: it is time to look, for the run that pushed this very commit last. What it says is read from
    /// GitHub, so that nothing hangs on who says it.
    pub(super) async fn ci(&self, taken: &ClaimedDelivery, e: &CiEvent) -> DeliveryResult {
        let issue = e.branches.iter().find_map(|branch| IssueNo::of_branch(branch));
        let elsewhere = e.head_repo.is_some_and(|repo| repo != e.repo.id);
        let Some(issue) = issue.filter(|_| !elsewhere && e.app != Some(self.github.app_id())) else {
            return Ok(DeliveryNote::Nothing("CI of no branch of ours, or a check of our own".into()));
        };
        let Some(db) = self.store.repo_if_any(e.repo.id).await? else {
            return Ok(DeliveryNote::Nothing("nothing was pushed here".into()));
        };
        let pushed = db.commits_of_issue(issue).await?.into_iter().rev().find_map(|row| row.commit);
        if pushed.as_ref() != Some(&e.commit) {
            return Ok(DeliveryNote::Nothing("not the commit that was pushed last".into()));
        }
        self.look_again(taken, &e.repo, issue).await
    }

    /// Something happened on a pull request: it is time to look, for the runs that wait for its merge.
    pub(super) async fn look_again(
        &self,
        taken: &ClaimedDelivery,
        repo: &RepoRef,
        issue: IssueNo,
    ) -> DeliveryResult {
        let live = RunFilter { repo: Some(repo.id), issue: Some(issue), live_only: true };
        let runs = self.engine.list(live).await?;
        let mut told = Vec::new();
        for run in runs.iter().filter(|run| run.watches && (run.opening || waits_for_merge(run))) {
            told.push(run.id.to_string());
            // One look answers for all that is told before it.
            let soon = self.clock.now().plus(RunRemark::LOOK_WITHIN);
            if run.status == RunViewStatus::Asking && run.due.is_some_and(|due| due <= soon) {
                continue;
            }
            let remark = RunRemark {
                cause: cause::nth(&cause::delivery(taken), run.id.seq),
                verb: RunRemark::LOOK.to_owned(),
                finding: String::new(),
                text: String::new(),
                by: someone(),
                role: Role::None,
                at: taken.received_at,
            };
            self.engine.remark(run.id, remark).await?;
        }
        if told.is_empty() {
            return Ok(DeliveryNote::Nothing("no run waits for a merge".into()));
        }
        Ok(DeliveryNote::Done(format!("told to look again: {}", told.join(", "))))
    }

    pub(super) async fn rerequested(
        &self,
        taken: &ClaimedDelivery,
        e: &CheckRerequestEvent,
    ) -> DeliveryResult {
        let issue = e.head_branch.as_deref().and_then(IssueNo::of_branch);
        let Some(issue) = issue.filter(|_| e.app == self.github.app_id() && !e.sender.bot) else {
            return Ok(DeliveryNote::Nothing("not a check of ours, or asked for by a bot".into()));
        };
        if taken.swept {
            return Ok(DeliveryNote::Nothing(LATE.into()));
        }
        let at = IssueRef { repo: &e.repo, installation: e.installation, issue };
        let repo = self.repo(&at).answering();
        let role = repo.permission(&e.sender).await?;
        let least = self.router.row(RETRY).map_or(Role::Triage, |row| row.role);
        if role < least {
            return Ok(DeliveryNote::Done(format!("refused: {role} may not run a check again")));
        }
        let checks = decorated(repo.checks_on(&e.head_oid, &e.name).await)?.unwrap_or_default();
        let runs = RunFilter { repo: Some(e.repo.id), issue: Some(issue), live_only: false };
        let newest = self.engine.list(runs).await?.into_iter().max_by_key(|run| run.id);
        let shown = |run: &RunView| checks.iter().any(|check| check.run() == Some(run.id));
        if let Some(run) = newest.filter(|run| means(RETRY, Some(run)) && shown(run)) {
            let cause = cause::nth(&cause::delivery(taken), 0);
            let retried = self.try_again(&repo, (issue, run.id, &run.workflow), cause, &e.sender).await?;
            if matches!(retried, RetryDecision::Going | RetryDecision::Duplicate) {
                return Ok(DeliveryNote::Done(format!("{} is tried again, as its check is", run.id)));
            }
        }
        for check in &checks {
            decorated(repo.repeat_check(check).await)?;
        }
        Ok(DeliveryNote::Done(format!("{} checks shown again as they stand", checks.len())))
    }
}
