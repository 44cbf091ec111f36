//! The rounds that find what no webhook told: the log of deliveries often, labels on issues now and then.

use std::{collections::BTreeMap, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{Intake, IntakeError};
use crate::{
    engine::{CancelRunsRequest, RunFilter, RunView, RunViewStatus},
    limits, panics,
    rounds::{SWITCHED_OFF, is_switched_off, unknown_actor},
    types::{Cause, RepoId, Timestamp},
};

/// How often issues are looked for that bear a label of ours nobody told us of.
const LABELS_INTERVAL: Duration = Duration::from_secs(6 * 3600);

/// The first wait before such a look is repeated that could not see everything; doubled up to the longest.
const LABELS_RETRY: Duration = Duration::from_secs(30);
const LABELS_LONGEST_RETRY: Duration = Duration::from_secs(1800);

impl Intake {
    /// Looks at start and then again and again, until told to stop.
    pub async fn poll_missed_events(&self, stop: CancellationToken) {
        let mut labels = LabelSchedule { due: self.clock.now(), wait: LABELS_RETRY };
        while !stop.is_cancelled() {
            tokio::select! {
                // A look that is cut short is made again by the next boot.
                () = stop.cancelled() => return,
                // One that panics is due again as after any other trouble.
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
            Ok(brought) => tracing::warn!(brought, "deliveries had been missed"),
            Err(trouble) => {
                tracing::warn!(%trouble, "GitHub's log of deliveries could not be looked through; trying again")
            }
        }
        if let Err(trouble) = self.stop_switched_off_runs().await {
            tracing::warn!(%trouble, "it could not be looked at where work was switched off; trying again");
        }
        if labels.due > self.clock.now() {
            return;
        }
        let sure = match self.find_missed_labels().await {
            Ok(found) => found.unsure == 0,
            Err(trouble) => {
                tracing::warn!(%trouble, "labels could not be looked for; trying again");
                false
            }
        };
        labels.reschedule(sure, self.clock.now());
    }
}

impl Intake {
    /// Ends what waits in repositories that have switched all work off: a run at work looks for itself, one at a gate has
    /// no step to do so before somebody speaks.
    ///
    /// # Errors
    /// Those of our own databases; a repository that cannot be asked is left for the next look.
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
                Err(fault) => tracing::warn!(%repo, %fault, "its settings cannot be read now"),
            }
        }
        Ok(())
    }
}

/// When labels are looked for next.
struct LabelSchedule {
    due: Timestamp,
    /// How long to wait if the look was not sure.
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
