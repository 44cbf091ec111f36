//! Fetches deliveries that we missed from GitHub's delivery log and puts them into the inbox.
//!
//! The log needs no signature check, because only the App itself can read it. A sweep reads the log back to a mark. The
//! mark moves forward only once everything older is in the inbox. After a failure, the next sweep starts at the same
//! mark; delivery ids prevent duplicates.
//!
//! The log is read newest first but stored oldest first, so that people's commands are processed in order. At most two
//! sections of the log are in memory at a time.

use std::{collections::HashSet, mem, time::Duration};

use super::{Intake, IntakeError};
use crate::{
    github::{DeliveryAttempt, DeliveryLogCursor, GitHubApiError, WebhookEvent},
    limits,
    store::{DeliveryReceipt, NewDelivery},
    types::{DeliveryId, Timestamp},
};

/// Overlap of a sweep with the previous one, because GitHub may list an attempt late.
const SWEEP_OVERLAP: Duration = Duration::from_secs(600);

/// Number of consecutive failed deliveries after which a sweep is given up. A single delivery may fail forever, but
/// several consecutive failures indicate an outage.
const SWEEP_FAILURES: usize = 3;

/// A section of the delivery log, with the deliveries that are missing from the inbox, newest first.
struct DeliveryLogSection {
    missing: Vec<DeliveryAttempt>,
    newest: Option<Timestamp>,
    /// Cursor of the next, older section; `None` if the mark or the end of the log was reached.
    further: Option<DeliveryLogCursor>,
}

/// Progress of a sweep.
#[derive(Default)]
struct SweepProgress {
    count: usize,
    /// Error of a delivery that could not be fetched.
    failed: Option<GitHubApiError>,
    /// Number of consecutive failures on GitHub's side.
    failures: usize,
}

impl Intake {
    /// Reads the delivery log once. Returns the number of recovered deliveries.
    pub async fn sweep(&self) -> Result<usize, IntakeError> {
        let mark = self.store.sweep_position().await?;
        let mut part = self.read_log_section(mark, None).await?;
        let (newest, latest) = (part.newest, mem::take(&mut part.missing));
        // For older sections only the cursor is kept; what it leads to does not change meanwhile.
        let mut earlier = Vec::new();
        for _ in 1..limits::SWEEP_PARTS {
            let Some(from) = part.further.take() else { break };
            part = self.read_log_section(mark, Some(from.clone())).await?;
            if !part.missing.is_empty() {
                earlier.push(from);
            }
        }
        if part.further.is_some() {
            let call = "GET /app/hook/deliveries".to_owned();
            return Err(GitHubApiError::Unexpected {
                call,
                why: "the delivery log has too many pages".to_owned(),
            }
            .into());
        }
        let mut brought = SweepProgress::default();
        for from in earlier.into_iter().rev() {
            let part = self.read_log_section(mark, Some(from)).await?;
            self.fetch_deliveries(part.missing, &mut brought).await?;
        }
        // An attempt may be a redelivery of one just stored.
        self.fetch_deliveries(self.filter_unknown(latest).await?, &mut brought).await?;
        if let Some(failed) = brought.failed {
            return Err(failed.into());
        }
        self.advance_mark(mark, newest).await?;
        Ok(brought.count)
    }

    async fn read_log_section(
        &self,
        mark: Timestamp,
        mut from: Option<DeliveryLogCursor>,
    ) -> Result<DeliveryLogSection, IntakeError> {
        let (mut missing, mut newest) = (Vec::new(), None);
        for _ in 0..limits::SWEEP_PAGES {
            let page = self.github.deliveries(from.as_ref()).await?;
            let since = self.clamp_to_github_clock(mark);
            newest = newest.or(page.attempts.first().map(|attempt| attempt.at));
            let reached = page.attempts.last().is_none_or(|oldest| oldest.at < since);
            let wanted = page.attempts.into_iter().filter(|a| a.at >= since && self.may_fetch(a)).collect();
            missing.extend(self.filter_unknown(wanted).await?);
            from = page.next_page.filter(|_| !reached);
            if from.is_none() {
                break;
            }
        }
        Ok(DeliveryLogSection { missing, newest, further: from })
    }

    /// Returns the mark, but at most GitHub's current time, which the log uses. A later mark can only result from an
    /// error of our clock.
    fn clamp_to_github_clock(&self, mark: Timestamp) -> Timestamp {
        mark.min(self.github_now())
    }

    fn may_fetch(&self, attempt: &DeliveryAttempt) -> bool {
        // All nodes share one mark, so we also fetch deliveries for installations that other nodes serve.
        attempt.installation.is_none_or(|id| self.allow.contains(&id) || self.store.is_served_by_cluster(id))
    }

    async fn filter_unknown(
        &self,
        attempts: Vec<DeliveryAttempt>,
    ) -> Result<Vec<DeliveryAttempt>, IntakeError> {
        let ids = attempts.iter().map(|attempt| attempt.id.clone()).collect();
        let unheard: HashSet<DeliveryId> = self.store.missing_deliveries(ids).await?.into_iter().collect();
        Ok(attempts.into_iter().filter(|attempt| unheard.contains(&attempt.id)).collect())
    }

    /// Fetches missing deliveries, oldest first. A delivery that cannot be fetched keeps the mark in place as long as
    /// GitHub lists it, but does not block other deliveries. Several consecutive failures indicate an outage and end
    /// the sweep.
    async fn fetch_deliveries(
        &self,
        missing: Vec<DeliveryAttempt>,
        brought: &mut SweepProgress,
    ) -> Result<(), IntakeError> {
        let mut had = HashSet::new();
        for attempt in missing.into_iter().rev() {
            // A later attempt is used only if the earlier one could not be fetched.
            if had.contains(&attempt.id) {
                continue;
            }
            let answer = self.github.delivery_payload(&attempt).await;
            brought.failures = match &answer {
                Err(GitHubApiError::Transient { .. }) => brought.failures + 1,
                _ => 0,
            };
            let body = match answer {
                Ok(Some(body)) => body,
                Ok(None) => {
                    tracing::warn!(delivery = %attempt.id, event = %attempt.event, "GitHub no longer has this missed delivery; skipping");
                    continue;
                }
                // The next one would fail too.
                Err(fault @ (GitHubApiError::RateLimited { .. } | GitHubApiError::Unauthorized { .. })) => {
                    return Err(fault.into());
                }
                Err(fault) if brought.failures == SWEEP_FAILURES => return Err(fault.into()),
                Err(fault) => {
                    tracing::error!(delivery = %attempt.id, event = %attempt.event, error = %fault, "could not fetch a missed delivery; will retry");
                    brought.failed = Some(fault);
                    continue;
                }
            };
            let (id, event) = (attempt.id.clone(), attempt.event.clone());
            let subject = WebhookEvent::subject(&event, &body);
            let new = NewDelivery { id, event, subject, swept: true, body };
            if self.store.inbox().accept_delivery(new).await? == DeliveryReceipt::New {
                tracing::info!(delivery = %attempt.id, event = %attempt.event, at = %attempt.at, "recovered a missed delivery");
                brought.count += 1;
                self.delivery_stored.notify_one();
            }
            had.insert(attempt.id);
        }
        Ok(())
    }

    async fn advance_mark(&self, mark: Timestamp, newest: Option<Timestamp>) -> Result<(), IntakeError> {
        let since = self.clamp_to_github_clock(mark);
        let overlap = i64::try_from(SWEEP_OVERLAP.as_millis()).unwrap_or(0);
        let to = newest.map_or(since, |newest| since.max(Timestamp(newest.0.saturating_sub(overlap))));
        if to != mark {
            self.store.set_sweep_position(to).await?;
        }
        Ok(())
    }
}
