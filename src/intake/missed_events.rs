//! Periodic searches for events whose webhook was lost. The delivery log is searched often, the labels of issues
//! rarely.

use std::{collections::BTreeMap, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{Intake, IntakeError};
use crate::{
    engine::{CancelRunsRequest, RunFilter, RunView, RunViewStatus},
    limits, panics,
    rounds::{SWITCHED_OFF, is_switched_off, unknown_actor},
    types::{Cause, RepoId, Timestamp},
};

/// Interval between searches for missed labels on issues.
const LABELS_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// Wait before an incomplete search is repeated for the first time. The wait is doubled each time, up to
/// `LABELS_LONGEST_RETRY`.
const LABELS_RETRY: Duration = Duration::from_secs(30);
const LABELS_LONGEST_RETRY: Duration = Duration::from_secs(1800);

impl Intake {
    /// Searches for missed events at start and then periodically, until `stop` is cancelled.
    pub async fn poll_missed_events(&self, stop: CancellationToken) {
        let mut labels = LabelSchedule { due: self.clock.now(), wait: LABELS_RETRY };
        while !stop.is_cancelled() {
            tokio::select! {
                // A search that is cut short is repeated at the next start.
                () = stop.cancelled() => return,
                // A search that panics is repeated like any failed one.
                _ = panics::catch_and_log_panic("looking for lost webhooks", self.poll_once(&mut labels)) => {}
            }
            let nap = labels.due.since(self.clock.now()).min(limits::SWEEP_EVERY);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(nap.max(Duration::from_secs(1))) => {}
            }
        }
    }

    async fn poll_once(&self, labels: &mut LabelSchedule) {
        match self.sweep().await {
            Ok(0) => {}
            Ok(brought) => tracing::warn!(count = brought, "recovered missed deliveries"),
            Err(trouble) => {
                tracing::warn!(error = %trouble, "could not read GitHub's delivery log; will retry")
            }
        }
        if let Err(trouble) = self.stop_switched_off_runs().await {
            tracing::warn!(error = %trouble, "could not check which repositories disabled Countersign; will retry");
        }
        if labels.due > self.clock.now() {
            return;
        }
        let sure = match self.find_missed_labels().await {
            Ok(found) => found.unsure == 0,
            Err(trouble) => {
                tracing::warn!(error = %trouble, "could not search for missed labels; will retry");
                false
            }
        };
        labels.reschedule(sure, self.clock.now());
    }
}

impl Intake {
    /// Ends waiting runs in repositories whose settings have switched all work off. A run that is executing steps
    /// checks the settings itself, but a waiting run executes no step until someone answers.
    ///
    /// # Errors
    ///
    /// Returned only if our own databases fail. A repository that GitHub does not return is checked again next time.
    pub async fn stop_switched_off_runs(&self) -> Result<(), IntakeError> {
        let live = self.engine.list(RunFilter { repo: None, issue: None, live_only: true }).await?;
        let mut waiting: BTreeMap<RepoId, Vec<RunView>> = BTreeMap::new();
        for run in live
            .into_iter()
            .filter(|run| matches!(run.status, RunViewStatus::Asking | RunViewStatus::Waiting))
        {
            waiting.entry(run.id.repo).or_default().push(run);
        }
        for (repo, runs) in waiting {
            let Some(row) = self.store.installation_registry().repository(repo).await? else { continue };
            if !self.allow.contains(&row.installation) {
                continue;
            }
            match is_switched_off(&self.github.repo(row.installation, repo, row.name)).await {
                Ok(false) => {}
                Ok(true) => {
                    for run in runs {
                        let (cause, why) =
                            (Cause(format!("switched-off-{}", run.id)), SWITCHED_OFF.to_owned());
                        let (issue, run) = (run.issue, Some(run.id));
                        self.engine
                            .cancel(CancelRunsRequest { repo, issue, run, cause, by: unknown_actor(), why })
                            .await?;
                    }
                }
                Err(fault) => {
                    tracing::warn!(%repo, error = %fault, "could not read a repository's settings; will retry")
                }
            }
        }
        Ok(())
    }
}

/// Schedule of the searches for missed labels.
struct LabelSchedule {
    due: Timestamp,
    /// Time to wait before the next search if this one is incomplete.
    wait: Duration,
}

impl LabelSchedule {
    fn reschedule(&mut self, sure: bool, now: Timestamp) {
        if sure {
            *self = Self { due: now.plus(LABELS_INTERVAL), wait: LABELS_RETRY };
        } else {
            self.due = now.plus(self.wait);
            self.wait = (self.wait * 2).min(LABELS_LONGEST_RETRY);
        }
    }
}
