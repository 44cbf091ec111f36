//! What threads say while the operator holds the work up. No step says it, since none begins.

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

/// What status comments say of pauses, as far as this boot has seen.
#[derive(Default)]
pub(super) struct PauseNotices {
    /// Does a run's say that it is paused?
    runs: BTreeMap<RunId, bool>,
    /// Since when nothing is paused.
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

    /// Brings the status comments of runs up to what is paused now; one that cannot be edited is tried again. Are some in the
    /// middle of a step, and to be looked at again soon?
    pub(super) async fn try_pause_notices(&self) -> bool {
        match panics::catch_and_log_panic("pauses are told", self.update_pause_notices()).await {
            Some(Ok(again)) => again,
            Some(Err(trouble)) => {
                tracing::warn!(%trouble, "could not update the status comment of a paused run; will retry");
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
        // One that has ended since may say it still.
        let live_only = !told.values().any(|paused| *paused);
        let mut runs = self.engine.list(RunFilter { repo: None, issue: None, live_only }).await?;
        runs.retain(|run| run.status.is_live() || told.get(&run.id) == Some(&true));
        // No step of one that began later can have said it.
        runs.retain(|run| over.is_none_or(|over| run.started_at <= over));
        let mut again = false;
        for run in &runs {
            let same = |other: &RunView| (other.id.repo, other.issue) == (run.id.repo, run.issue);
            let lives = runs.iter().any(|other| same(other) && other.status.is_live());
            let since = ActivePause::since(&pauses, run.id.repo).filter(|_| lives);
            if told.get(&run.id) == Some(&since.is_some()) {
                continue;
            }
            // Its step writes there, too, and one of the two would be lost.
            if run.status == RunViewStatus::Running {
                again = true;
                continue;
            }
            match panics::catch_and_log_panic("telling a paused run", self.update_pause_notice(run, since))
                .await
            {
                Some(Ok(())) => drop(told.insert(run.id, since.is_some())),
                Some(Err(trouble)) => {
                    tracing::warn!(run = %run.id, %trouble, "could not update the status comment of a paused run; will retry");
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

    /// A run that never said anything has no comment to say it in, and a new one would be mail.
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
