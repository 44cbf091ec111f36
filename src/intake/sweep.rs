//! What GitHub delivered and we never had, fetched from its log and put into the inbox.
//!
//! The log is authority enough: only the App itself can read it, so what it holds needs no signature. It is read
//! back to a mark that moves only once everything older is in the inbox; whatever goes wrong on the way, the next look
//! begins at the same mark, and the deliveries' ids keep anything from counting twice.
//!
//! The log is read from its newest end and what it tells is handed in from its oldest: people's words count in the order
//! in which they were said. However much there is, no more than two parts of it are in memory.

use std::{collections::HashSet, mem, time::Duration};

use super::{Intake, IntakeError};
use crate::{
    github::{DeliveryAttempt, DeliveryLogCursor, GitHubApiError, WebhookEvent},
    limits,
    store::{DeliveryReceipt, NewDelivery},
    types::{DeliveryId, Timestamp},
};

/// How much of the log that was looked through already is looked through again: an attempt may be listed late.
const SWEEP_OVERLAP: Duration = Duration::from_secs(600);

/// Deliveries in a row that GitHub fails to hand over before a look through its log is given up: one may be broken for
/// ever, so many together are an outage.
const SWEEP_FAILURES: usize = 3;

/// A stretch of the log: what of it the inbox lacks, the newest first.
struct DeliveryLogSection {
    missing: Vec<DeliveryAttempt>,
    newest: Option<Timestamp>,
    /// None: the mark or the log's end is reached.
    further: Option<DeliveryLogCursor>,
}

/// What was brought so far.
#[derive(Default)]
struct SweepProgress {
    count: usize,
    /// Why one could not be.
    failed: Option<GitHubApiError>,
    /// How many GitHub failed on, one after the other.
    failures: usize,
}

impl Intake {
    /// Looks through the log once; says how many deliveries it brought.
    pub async fn sweep(&self) -> Result<usize, IntakeError> {
        let mark = self.store.sweep_position().await?;
        let mut part = self.read_log_section(mark, None).await?;
        let (newest, latest) = (part.newest, mem::take(&mut part.missing));
        // Of what is further back only where it begins: what that leads to stays the same, whatever comes meanwhile.
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
                why: "the log of deliveries does not end".to_owned(),
            }
            .into());
        }
        let mut brought = SweepProgress::default();
        for from in earlier.into_iter().rev() {
            let part = self.read_log_section(mark, Some(from)).await?;
            self.fetch_deliveries(part.missing, &mut brought).await?;
        }
        // An attempt may be another one at what was brought just now.
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

    /// GitHub's clock counts in its log. A mark that lies ahead of it was set by a clock of ours that was wrong.
    fn clamp_to_github_clock(&self, mark: Timestamp) -> Timestamp {
        mark.min(self.github_now())
    }

    fn may_fetch(&self, attempt: &DeliveryAttempt) -> bool {
        // All nodes have one mark, so what another one serves is fetched for it.
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

    /// The oldest first, as they would have come. One that cannot be had keeps the mark where it is, for as long as
    /// GitHub lists it, and keeps no other out; a few of them in a row are GitHub's own trouble, and end the look.
    async fn fetch_deliveries(
        &self,
        missing: Vec<DeliveryAttempt>,
        brought: &mut SweepProgress,
    ) -> Result<(), IntakeError> {
        let mut had = HashSet::new();
        for attempt in missing.into_iter().rev() {
            // A later attempt counts only where an earlier one cannot be had.
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
                    tracing::warn!(delivery = %attempt.id, event = %attempt.event, "GitHub no longer has what it delivered");
                    continue;
                }
                // The next one would fare no better.
                Err(fault @ (GitHubApiError::RateLimited { .. } | GitHubApiError::Unauthorized { .. })) => {
                    return Err(fault.into());
                }
                Err(fault) if brought.failures == SWEEP_FAILURES => return Err(fault.into()),
                Err(fault) => {
                    tracing::error!(delivery = %attempt.id, event = %attempt.event, %fault, "a missed delivery cannot be had");
                    brought.failed = Some(fault);
                    continue;
                }
            };
            let (id, event) = (attempt.id.clone(), attempt.event.clone());
            let subject = WebhookEvent::subject(&event, &body);
            let new = NewDelivery { id, event, subject, swept: true, body };
            if self.store.inbox().accept_delivery(new).await? == DeliveryReceipt::New {
                tracing::info!(delivery = %attempt.id, event = %attempt.event, at = %attempt.at, "found in GitHub's log");
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
