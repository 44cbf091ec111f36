//! Workers that process the inbox. The server processes several lanes in parallel; tests process one delivery at a
//! time.

use std::{mem, sync::PoisonError, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::Intake;
use crate::{
    limits, panics,
    store::{ClaimedDelivery, DeliveryDisposition, StoreError},
    types::{DeliveryId, RepoId},
};

/// Maximum number of lanes processed in parallel. A lane spends most of its time waiting for GitHub, so several can run
/// at once.
const LANES: usize = 8;

/// Time for which a delivery is retried if processing it panics. The pauses between retries grow, and other deliveries
/// do not have to wait.
const PANIC_AGE: Duration = Duration::from_secs(600);

impl Intake {
    /// Processes all ready deliveries, oldest first and one at a time. Returns the number of processed deliveries.
    pub async fn drain_inbox(&self) -> Result<usize, StoreError> {
        let stop = CancellationToken::new();
        self.try_pause_notices().await;
        let mut count = 0;
        loop {
            self.save_unsaved_endings().await?;
            let Some(taken) = self.store.inbox().claim().await? else { return Ok(count) };
            self.work_lane(vec![taken], &stop).await?;
            count += 1;
        }
    }

    /// Processes deliveries until `stop` is cancelled. Deliveries that are acknowledged but not processed by then stay
    /// in the inbox until the next start.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(self.run_lanes(&stop), self.run_cleanup(&stop), self.run_pause_notices(&stop));
    }

    async fn run_lanes(&self, stop: &CancellationToken) {
        let mut lanes = FuturesUnordered::new();
        // Repository whose lane was claimed last.
        let mut turn = None;
        let inbox = self.store.inbox();
        while !stop.is_cancelled() {
            let take = self.claim_lanes(LANES - lanes.len(), &mut turn);
            let nap = match panics::catch_and_log_panic("claiming deliveries", take).await {
                Some(Ok(taken)) => {
                    let work =
                        |lane| panics::catch_and_log_panic("processing a lane", self.work_lane(lane, stop));
                    lanes.extend(taken.into_iter().map(work));
                    self.time_until_due().await
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "could not read or write the inbox; will retry");
                    limits::DELIVERY_RETRY
                }
                None => limits::DELIVERY_RETRY,
            };
            let free = lanes.len() < LANES;
            tokio::select! {
                () = stop.cancelled() => break,
                Some(worked) = lanes.next() => log_lane_error(worked),
                () = self.delivery_stored.notified(), if free => {}
                () = inbox.wait_for_remote_delivery(), if free => {}
                () = self.clock.sleep(nap), if free => {}
            }
        }
        while let Some(worked) = lanes.next().await {
            log_lane_error(worked);
        }
    }

    async fn run_cleanup(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            if let Some(Err(error)) =
                panics::catch_and_log_panic("removing old rows", self.remove_old_data()).await
            {
                tracing::error!(%error, "could not remove expired data; will retry later");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(limits::TIDY_EVERY) => {}
            }
        }
    }

    async fn claim_lanes(
        &self,
        lanes: usize,
        turn: &mut Option<RepoId>,
    ) -> Result<Vec<Vec<ClaimedDelivery>>, StoreError> {
        if lanes == 0 {
            return Ok(Vec::new());
        }
        self.save_unsaved_endings().await?;
        let taken = self.store.inbox().claim_lanes(lanes, *turn).await?;
        if let Some(last) = taken.last().and_then(|lane| lane.first()) {
            *turn = last.subject.repository;
        }
        Ok(taken)
    }

    async fn time_until_due(&self) -> Duration {
        match self.store.inbox().next_due().await {
            Ok(Some(at)) => {
                at.since(self.clock.now()).clamp(Duration::from_millis(50), limits::LONGEST_SLEEP)
            }
            Ok(None) => limits::LONGEST_SLEEP,
            Err(_) => Duration::from_secs(1),
        }
    }

    /// Processes the deliveries of one lane in order. If a delivery is postponed and blocks the lane, releases the
    /// remaining deliveries unprocessed.
    async fn work_lane(
        &self,
        lane: Vec<ClaimedDelivery>,
        stop: &CancellationToken,
    ) -> Result<(), StoreError> {
        let mut endings = Vec::with_capacity(lane.len());
        let mut held = false;
        for taken in lane {
            let ending = if held || stop.is_cancelled() {
                DeliveryDisposition::Released
            } else {
                self.handle_delivery_safely(&taken).await
            };
            held |= matches!(ending, DeliveryDisposition::PutOff { holds, .. } if holds > self.clock.now());
            endings.push((taken.id, ending));
        }
        self.save_endings(endings).await
    }

    async fn handle_delivery_safely(&self, taken: &ClaimedDelivery) -> DeliveryDisposition {
        panics::catch_panic(self.handle_delivery(taken)).await.unwrap_or_else(|why| {
            let (why, now) = (format!("our fault: {why}"), self.clock.now());
            let age = now.since(taken.received_at);
            let dead = age > PANIC_AGE;
            tracing::error!(delivery = %taken.id, event = %taken.event, why, dead, "could not process delivery");
            if dead {
                return DeliveryDisposition::Dead(why);
            }
            let pause = (age / 4).clamp(limits::DELIVERY_RETRY, limits::DELIVERY_LONGEST_RETRY);
            DeliveryDisposition::PutOff { why, at: now.plus(pause), holds: now }
        })
    }

    async fn save_endings(&self, endings: Vec<(DeliveryId, DeliveryDisposition)>) -> Result<(), StoreError> {
        let written = self.store.inbox().record_dispositions(endings.clone()).await;
        if written.is_err() {
            self.unsaved_endings.lock().unwrap_or_else(PoisonError::into_inner).extend(endings);
        }
        written
    }

    async fn save_unsaved_endings(&self) -> Result<(), StoreError> {
        let left = mem::take(&mut *self.unsaved_endings.lock().unwrap_or_else(PoisonError::into_inner));
        if left.is_empty() { Ok(()) } else { self.save_endings(left).await }
    }
}

fn log_lane_error(worked: Option<Result<(), StoreError>>) {
    if let Some(Err(error)) = worked {
        tracing::error!(%error, "could not save the outcome of deliveries; will retry before claiming more");
    }
}
