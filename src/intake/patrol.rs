//! The rounds that find what no webhook told: the log of deliveries often, labels on issues now and then.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Intake;
use crate::{limits, types::Timestamp};

/// How often issues are looked for that bear a label of ours nobody told us of.
const LABELS_EVERY: Duration = Duration::from_secs(6 * 3600);

/// The first wait before such a look is repeated that could not see everything; doubled up to the longest.
const LABELS_RETRY: Duration = Duration::from_secs(30);
const LABELS_LONGEST_RETRY: Duration = Duration::from_secs(1800);

impl Intake {
    /// Looks at start and then again and again, until told to stop.
    pub async fn patrol(&self, stop: CancellationToken) {
        let mut labels = LabelRound { due: self.clock.now(), wait: LABELS_RETRY };
        while !stop.is_cancelled() {
            tokio::select! {
                // A look that is cut short is made again by the next boot.
                () = stop.cancelled() => return,
                () = self.round(&mut labels) => {}
            }
            let nap = labels.due.since(self.clock.now()).min(limits::SWEEP_EVERY);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(nap.max(Duration::from_secs(1))) => {}
            }
        }
    }

    async fn round(&self, labels: &mut LabelRound) {
        match self.sweep().await {
            Ok(0) => {}
            Ok(brought) => tracing::warn!(brought, "deliveries had been missed"),
            Err(trouble) => {
                tracing::warn!(%trouble, "GitHub's log of deliveries could not be looked through; trying again")
            }
        }
        if labels.due > self.clock.now() {
            return;
        }
        let sure = match self.look_for_labels().await {
            Ok(found) => found.unsure == 0,
            Err(trouble) => {
                tracing::warn!(%trouble, "labels could not be looked for; trying again");
                false
            }
        };
        labels.next(sure, self.clock.now());
    }
}

/// When labels are looked for next.
struct LabelRound {
    due: Timestamp,
    /// How long to wait if the look was not sure.
    wait: Duration,
}

impl LabelRound {
    fn next(&mut self, sure: bool, now: Timestamp) {
        if sure {
            *self = Self { due: now.plus(LABELS_EVERY), wait: LABELS_RETRY };
        } else {
            self.due = now.plus(self.wait);
            self.wait = (self.wait * 2).min(LABELS_LONGEST_RETRY);
        }
    }
}
