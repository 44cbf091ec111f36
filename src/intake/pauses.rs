//! Shows a pause in the status comments of runs. Steps cannot do this, because no step starts during a pause.

use std::collections::BTreeMap;

use tokio_util::sync::CancellationToken;

use super::{Intake, IntakeError};
use crate::{
    engine::{RunFilter, RunView, RunViewStatus},
    github::none_if_refused,
    limits, messages, panics,
    rounds::STATUS_MARKER,
    store::ActivePause,
    types::{RunId, Timestamp},
};

/// Pause state that is shown in status comments, as far as this process knows.
#[derive(Default)]
pub(super) struct PauseNotices {
    /// Whether each run's status comment currently says that the run is paused.
    runs: BTreeMap<RunId, bool>,
    /// Time at which the last pause ended, while nothing is paused.
    over: Option<Timestamp>,
}

impl Intake {
    pub(super) async fn run_pause_notices(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let again =
                if self.try_pause_notices().await { limits::STATUS_EDIT_GAP } else { limits::SWEEP_EVERY };
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.pause_changed.notified() => {}
                () = self.clock.sleep(again) => {}
            }
        }
    }

    /// Updates the status comments of runs to match the current pauses. Failed edits are retried later. Returns whether
    /// some runs are in the middle of a step and must be checked again soon.
    pub(super) async fn try_pause_notices(&self) -> bool {
        match panics::catch_and_log_panic("updating pause notices", self.update_pause_notices()).await {
            Some(Ok(again)) => again,
            Some(Err(trouble)) => {
                tracing::warn!(error = %trouble, "could not update the status comment of a paused run; will retry");
                false
            }
            None => false,
        }
    }

    async fn update_pause_notices(&self) -> Result<bool, IntakeError> {
        if !self.store.has_pause_notices().await? {
            return Ok(false);
        }
        let pauses = self.engine.pauses().await?;
        let now = self.clock.now();
        let mut held = self.pause_notices.lock().await;
        let PauseNotices { runs: told, over } = &mut *held;
        *over = pauses.is_empty().then(|| over.unwrap_or(now));
        // A run that has ended meanwhile may still show the pause.
        let live_only = !told.values().any(|paused| *paused);
        let mut runs = self.engine.list(RunFilter { repo: None, issue: None, live_only }).await?;
        runs.retain(|run| run.status.is_live() || told.get(&run.id) == Some(&true));
        // A run that started after the pause cannot show it.
        runs.retain(|run| over.is_none_or(|over| run.started_at <= over));
        let mut again = false;
        for run in &runs {
            let same = |other: &RunView| (other.id.repo, other.issue) == (run.id.repo, run.issue);
            let lives = runs.iter().any(|other| same(other) && other.status.is_live());
            let since = ActivePause::since(&pauses, run.id.repo).filter(|_| lives);
            if told.get(&run.id) == Some(&since.is_some()) {
                continue;
            }
            // A running step writes to the comment too, and one of the two edits would be lost.
            if run.status == RunViewStatus::Running {
                again = true;
                continue;
            }
            match panics::catch_and_log_panic(
                "updating the notice of a paused run",
                self.update_pause_notice(run, since),
            )
            .await
            {
                Some(Ok(())) => drop(told.insert(run.id, since.is_some())),
                Some(Err(trouble)) => {
                    tracing::warn!(run = %run.id, error = %trouble, "could not update the status comment of a paused run; will retry");
                }
                None => {}
            }
        }
        if pauses.is_empty() && runs.iter().all(|run| told.get(&run.id) == Some(&false)) {
            *held = PauseNotices::default();
            self.store.clear_pause_notices().await?;
        }
        Ok(again)
    }

    /// Updates the status comment of one run. If the run has no status comment, none is created, because a new comment
    /// would send mail.
    async fn update_pause_notice(&self, run: &RunView, since: Option<Timestamp>) -> Result<(), IntakeError> {
        let Some(row) = self.store.installation_registry().repository(run.id.repo).await? else {
            return Ok(());
        };
        let repo = self.github.repo(row.installation, row.id, row.name);
        if let Some((comment, text)) = repo.read_comment(run.issue, STATUS_MARKER).await? {
            let shown = messages::with_pause_line(&text, since);
            if shown.as_str() != text {
                none_if_refused(repo.edit_comment(comment.id, STATUS_MARKER, &shown).await.map(drop))?;
            }
        }
        Ok(())
    }
}
