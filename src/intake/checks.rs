//! CI results for pushed commits, and requests to re-run our check.
//!
//! The effect of a re-run request depends on the run that the check belongs to. A halted run is retried, as by
//! `/retry`. For any other run, the check is posted again unchanged, because GitHub shows the check suite as unfinished
//! until we write. We do not react to a re-run request with 👀 or 👎, because it has no comment.

use super::{
    DeliveryNote, DeliveryResult, Intake, cause,
    comment::applies_to_ended_run,
    events::{IssueRef, LATE_NOTE},
};
use crate::{
    engine::{RemarkKind, RetryDecision, RunFilter, RunRemark, RunView, RunViewStatus},
    github::{
        event::{CheckRerequestEvent, CiEvent, RepoRef},
        none_if_refused,
    },
    publication::waits_for_merge,
    rounds::unknown_actor,
    store::ClaimedDelivery,
    types::{IssueNo, Role, Verb},
};

impl Intake {
    /// Handles a CI result by waking the run that last pushed this commit. The run reads the results from GitHub, so
    /// the event's sender need not be trusted.
    pub(super) async fn handle_ci(&self, taken: &ClaimedDelivery, e: &CiEvent) -> DeliveryResult {
        let issue = e.branches.iter().find_map(|branch| IssueNo::from_branch(branch));
        let elsewhere = e.head_repo.is_some_and(|repo| repo != e.repo.id);
        let Some(issue) = issue.filter(|_| !elsewhere && e.app != Some(self.github.app_id())) else {
            return Ok(DeliveryNote::Nothing("CI of another branch, or our own check".into()));
        };
        let Some(db) = self.store.existing_repository_database(e.repo.id).await? else {
            return Ok(DeliveryNote::Nothing("Countersign pushed nothing here".into()));
        };
        let pushed = db.commits_of_issue(issue).await?.into_iter().rev().find_map(|row| row.commit);
        if pushed.as_ref() != Some(&e.commit) {
            return Ok(DeliveryNote::Nothing("not the last pushed commit".into()));
        }
        self.wake_merge_watches(taken, &e.repo, issue).await
    }

    /// Wakes the runs that wait for the merge of the issue's pull request. Called after an event on that pull request.
    pub(super) async fn wake_merge_watches(
        &self,
        taken: &ClaimedDelivery,
        repo: &RepoRef,
        issue: IssueNo,
    ) -> DeliveryResult {
        let live = RunFilter { repo: Some(repo.id), issue: Some(issue), live_only: true };
        let runs = self.engine.list(live).await?;
        let mut told = Vec::new();
        for run in
            runs.iter().filter(|run| run.has_watch_step && (run.shows_unopened_gate || waits_for_merge(run)))
        {
            told.push(run.id.to_string());
            // One wake-up covers everything reported before it.
            let soon = self.clock.now().plus(RunRemark::CHECK_PUSHED_WITHIN);
            if run.status == RunViewStatus::Asking && run.due.is_some_and(|due| due <= soon) {
                continue;
            }
            let remark = RunRemark {
                cause: cause::nth(&cause::delivery(taken), run.id.seq),
                kind: RemarkKind::CheckPushed,
                finding: String::new(),
                text: String::new(),
                by: unknown_actor(),
                role: Role::None,
                at: taken.received_at,
            };
            self.engine.remark(run.id, remark).await?;
        }
        if told.is_empty() {
            return Ok(DeliveryNote::Nothing("no run waits for a merge".into()));
        }
        Ok(DeliveryNote::Done(format!("woke the runs that wait for a merge: {}", told.join(", "))))
    }

    pub(super) async fn handle_check_rerequest(
        &self,
        taken: &ClaimedDelivery,
        e: &CheckRerequestEvent,
    ) -> DeliveryResult {
        let issue = e.head_branch.as_deref().and_then(IssueNo::from_branch);
        let Some(issue) = issue.filter(|_| e.app == self.github.app_id() && !e.sender.bot) else {
            return Ok(DeliveryNote::Nothing("not our check, or requested by a bot".into()));
        };
        if taken.swept {
            return Ok(DeliveryNote::Nothing(LATE_NOTE.into()));
        }
        let at = IssueRef { repo: &e.repo, installation: e.installation, issue };
        let repo = self.repo(&at).with_reply_priority();
        let role = repo.permission(&e.sender).await?;
        let least = self.router.find_command(Verb::Retry.as_str()).map_or(Role::Triage, |row| row.role);
        if role < least {
            return Ok(DeliveryNote::Done(format!("refused: {role} may not rerun a check")));
        }
        let checks = none_if_refused(repo.our_checks(&e.head_oid, &e.name).await)?.unwrap_or_default();
        let runs = RunFilter { repo: Some(e.repo.id), issue: Some(issue), live_only: false };
        let newest = self.engine.list(runs).await?.into_iter().max_by_key(|run| run.id);
        let shown = |run: &RunView| checks.iter().any(|check| check.run_id() == Some(run.id));
        if let Some(run) = newest.filter(|run| applies_to_ended_run(Verb::Retry, Some(run)) && shown(run)) {
            let cause = cause::nth(&cause::delivery(taken), 0);
            let retried =
                self.resume_halted_run(&repo, (issue, run.id, &run.workflow), cause, &e.sender).await?;
            if matches!(retried, RetryDecision::Resumed | RetryDecision::Duplicate) {
                return Ok(DeliveryNote::Done(format!("{} is retried, because its check was rerun", run.id)));
            }
        }
        for check in &checks {
            none_if_refused(repo.resend_check(check).await)?;
        }
        Ok(DeliveryNote::Done(format!("posted {} checks again, unchanged", checks.len())))
    }
}
