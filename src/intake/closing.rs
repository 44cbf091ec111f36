//! Closing stops work. Closing an issue stops all its runs; closing a pull request stops the run that presents it.
//!
//! An event that arrives in time is trusted without a read, because GitHub's reads lag its webhooks. An event that
//! arrives late (found in the delivery log, or redelivered by someone) may be outdated, so GitHub is asked for the
//! current state.

use super::{
    DeliveryNote, DeliveryResult, GITHUB_LAG, Intake, IntakeError, cause,
    events::{IssueRef, LATE_NOTE},
};
use crate::{
    engine::{CancelRunsRequest, RunFilter, RunView},
    github::{
        GitHubApiError,
        event::{IssueEvent, PullRequestAction, PullRequestEvent},
    },
    rounds::MERGED,
    store::ClaimedDelivery,
    types::{Actor, IssueNo, RunId, Timestamp},
};

impl Intake {
    pub(super) async fn handle_issue_closed(
        &self,
        taken: &ClaimedDelivery,
        at: &IssueRef<'_>,
        e: &IssueEvent,
    ) -> DeliveryResult {
        if self.is_late(taken, e.at) && self.is_open(at).await? {
            return Ok(DeliveryNote::Nothing(LATE_NOTE.into()));
        }
        self.stop_runs(taken, at, &e.sender, "the issue was closed").await
    }

    pub(super) async fn handle_pull_request(
        &self,
        taken: &ClaimedDelivery,
        e: &PullRequestEvent,
    ) -> DeliveryResult {
        let Some(issue) = IssueNo::from_branch(&e.head_branch).filter(|_| e.head_repo == Some(e.repo.id))
        else {
            return Ok(DeliveryNote::Nothing("not a pull request of ours".into()));
        };
        let bot = self.bot().await?.id;
        if e.sender.id == bot {
            return Ok(DeliveryNote::Nothing("done by the App itself".into()));
        }
        let merged = match e.action {
            PullRequestAction::Closed { merged } => merged,
            PullRequestAction::Synchronize => return self.wake_merge_watches(taken, &e.repo, issue).await,
            _ => return Ok(DeliveryNote::Nothing("nothing to do".into())),
        };
        let at = IssueRef { repo: &e.repo, installation: e.installation, issue };
        let closed_at = e.closed_at.unwrap_or(taken.received_at);
        if self.is_late(taken, closed_at) && self.has_open_pull(&at, &e.head_branch).await? {
            return Ok(DeliveryNote::Nothing(LATE_NOTE.into()));
        }
        let live = RunFilter { repo: Some(e.repo.id), issue: Some(issue), live_only: true };
        let why = if merged { MERGED } else { "its pull request was closed" };
        let present = e.author.id == bot && self.is_current_branch(&at, &e.head_branch).await?;
        let shows = |run: &&RunView| {
            shows_pull_request(run, e.opened_at, closed_at, !merged && run.has_watch_step)
                && (present || !run.has_watch_step)
        };
        let mut stopped = 0;
        for run in self.engine.list(live).await?.iter().filter(shows) {
            stopped += self.cancel_runs(taken, &at, &e.sender, Some(run.id), why).await?;
        }
        if stopped == 0 && !present {
            // A run may show a pull request that a person opened.
            return self.wake_merge_watches(taken, &e.repo, issue).await;
        }
        Ok(stop_note(stopped, why))
    }

    /// Stops all runs on an issue.
    pub(super) async fn stop_runs(
        &self,
        taken: &ClaimedDelivery,
        at: &IssueRef<'_>,
        by: &Actor,
        why: &str,
    ) -> DeliveryResult {
        Ok(stop_note(self.cancel_runs(taken, at, by, None, why).await?, why))
    }

    async fn cancel_runs(
        &self,
        taken: &ClaimedDelivery,
        at: &IssueRef<'_>,
        by: &Actor,
        run: Option<RunId>,
        why: &str,
    ) -> Result<usize, IntakeError> {
        let cause = cause::nth(&cause::delivery(taken), run.map_or(0, |run| run.seq));
        let (repo, issue) = (at.repo.id, at.issue);
        let cancel = CancelRunsRequest { repo, issue, run, cause, by: by.clone(), why: why.to_owned() };
        Ok(self.engine.cancel(cancel).await?.len())
    }

    /// Whether the event arrived so long after it happened that it may be outdated.
    pub(super) fn is_late(&self, taken: &ClaimedDelivery, at: Timestamp) -> bool {
        taken.swept || self.github_now().since(at) > GITHUB_LAG
    }

    /// Whether the issue is open. False for a deleted or moved issue.
    async fn is_open(&self, at: &IssueRef<'_>) -> Result<bool, IntakeError> {
        match self.repo(at).issue(at.issue).await {
            Ok(issue) => Ok(issue.state_open),
            Err(GitHubApiError::Gone { .. } | GitHubApiError::Moved { .. }) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Whether the most recent commit of our runs on the issue is on this branch.
    async fn is_current_branch(&self, at: &IssueRef<'_>, branch: &str) -> Result<bool, IntakeError> {
        let Some(db) = self.store.existing_repository_database(at.repo.id).await? else { return Ok(false) };
        Ok(db.commits_of_issue(at.issue).await?.last().is_some_and(|row| row.branch == branch))
    }

    /// Whether the branch has an open pull request, either a reopened one or a newer one.
    async fn has_open_pull(&self, at: &IssueRef<'_>, branch: &str) -> Result<bool, IntakeError> {
        Ok(self.repo(at).pulls_of_branch(branch).await?.iter().any(|pull| pull.open))
    }
}

/// Whether closing this pull request affects the run: the run opened it, presents it at a gate, or may push code to it.
/// A run that started after the closing, or that has not presented the pull request yet, is not affected. Merging a
/// documents-only pull request does not stop a run that goes on to push code. If the pull request is closed between two
/// gates, the run notices before its next stage.
fn shows_pull_request(run: &RunView, opened_at: Timestamp, closed_at: Timestamp, pushes: bool) -> bool {
    let began = run.trigger.at; // by GitHub's clock, like the other times
    let at_a_gate = run.gate.is_some() || run.shows_unopened_gate;
    began <= closed_at && (began <= opened_at || at_a_gate || pushes)
}

fn stop_note(runs: usize, why: &str) -> DeliveryNote {
    match runs {
        0 => DeliveryNote::Nothing("nothing was running".into()),
        n => DeliveryNote::Done(format!("stopping {n} of its runs: {why}")),
    }
}
