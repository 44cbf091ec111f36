//! What threads say while the operator holds the work up. No step says it, since none begins.

use std::sync::{MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use super::{BTreeSet, Intake, Trouble};
use crate::{
    engine::{Filter, RunView},
    limits, messages, rounds,
    store::Pause,
    types::{RunId, Timestamp},
};

impl Intake {
    pub(super) async fn keep_telling_pauses(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            self.tell_pauses().await;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.paused.notified() => {}
                () = self.clock.sleep(limits::SWEEP_EVERY) => {}
            }
        }
    }

    /// Brings the status comments of live runs up to what is paused now; one that cannot be edited is tried again.
    pub(super) async fn tell_pauses(&self) {
        if let Err(trouble) = self.look_at_pauses().await {
            tracing::warn!(%trouble, "that work is paused could not be told; trying again");
        }
    }

    async fn look_at_pauses(&self) -> Result<(), Trouble> {
        let pauses = self.engine.pauses().await?;
        if pauses.is_empty() && self.told_paused().is_empty() {
            return Ok(());
        }
        let live = self.engine.list(Filter { repo: None, issue: None, live_only: true }).await?;
        self.told_paused().retain(|told| live.iter().any(|run| run.id == *told));
        for run in &live {
            let since = Pause::since(&pauses, run.id.repo);
            if since.is_some() == self.told_paused().contains(&run.id) {
                continue;
            }
            if let Err(trouble) = self.tell_pause(run, since).await {
                tracing::warn!(run = %run.id, %trouble, "that work is paused could not be told; trying again");
                continue;
            }
            let mut told = self.told_paused();
            match since {
                Some(_) => told.insert(run.id),
                None => told.remove(&run.id),
            };
        }
        Ok(())
    }

    /// A run that never said anything has no comment to say it in, and a new one would be mail.
    async fn tell_pause(&self, run: &RunView, since: Option<Timestamp>) -> Result<(), Trouble> {
        let Some(row) = self.store.directory().repository(run.id.repo).await? else { return Ok(()) };
        let repo = self.github.repo(row.installation, row.id, row.name);
        let marker = rounds::status_marker(run.id);
        if let Some((comment, text)) = repo.read_comment(run.issue, &marker).await? {
            let shown = messages::with_pause(&text, since);
            if shown.as_str() != text {
                repo.edit_comment(comment.id, &marker, &shown).await?;
            }
        }
        Ok(())
    }

    fn told_paused(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.told_paused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
