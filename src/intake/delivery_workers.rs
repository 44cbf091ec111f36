//! Working the inbox off: live, several lanes side by side; in stories, one delivery after the other.

use std::{mem, sync::PoisonError, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::Intake;
use crate::{
    limits, panics,
    store::{ClaimedDelivery, DeliveryDisposition, StoreError},
    types::{DeliveryId, RepoId},
};

/// Lanes that are worked on at the same time; most of the time goes into waiting for GitHub.
const LANES: usize = 8;

/// A delivery that makes us panic is retried this long, with growing pauses. Others don't wait for it.
const PANIC_AGE: Duration = Duration::from_secs(600);

impl Intake {
    /// Deals with every delivery that is ready, oldest first and one at a time; says how many there were.
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

    /// Works until told to stop. What is acknowledged and not dealt with by then waits for the next boot.
    pub async fn run(&self, stop: CancellationToken) {
        tokio::join!(self.run_lanes(&stop), self.run_cleanup(&stop), self.run_pause_notices(&stop));
    }

    async fn run_lanes(&self, stop: &CancellationToken) {
        let mut lanes = FuturesUnordered::new();
        // Whose turn was last.
        let mut turn = None;
        let inbox = self.store.inbox();
        while !stop.is_cancelled() {
            let take = self.claim_lanes(LANES - lanes.len(), &mut turn);
            let nap = match panics::catch_and_log_panic("claiming deliveries", take).await {
                Some(Ok(taken)) => {
                    let work =
                        |lane| panics::catch_and_log_panic("a lane is worked on", self.work_lane(lane, stop));
                    lanes.extend(taken.into_iter().map(work));
                    self.time_until_due().await
                }
                Some(Err(error)) => {
                    tracing::error!(%error, "the inbox could not be read or written; trying again");
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
                tracing::error!(%error, "what is too old could not be removed; trying again later");
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

    /// Deals with the deliveries of one lane in order. Behind one that holds it nothing is touched.
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
            let (why, now) = (format!("our own fault: {why}"), self.clock.now());
            let age = now.since(taken.received_at);
            let dead = age > PANIC_AGE;
            tracing::error!(delivery = %taken.id, event = %taken.event, why, dead, "a delivery could not be dealt with");
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
        tracing::error!(%error, "what became of deliveries could not be written; it is, before others are taken");
    }
}
