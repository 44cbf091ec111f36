//! 👀 and 👎 reactions, which show that a command was received or refused. Both are cosmetic: GitHub may refuse them
//! (deleted comment, locked conversation) without any effect on the command.
//!
//! This module also limits the writes that people without permissions can cause. All state is kept in memory; at worst,
//! a reaction is sent again after a restart.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::Intake;
use crate::{
    github::{GitHubApiError, GitHubRepo, Reaction, ReactionTarget},
    store::ClaimedDelivery,
    types::{Actor, DeliveryId, Timestamp, UserId},
};

/// Maximum number of writes per [`PERSON_WINDOW`] that a person without permissions can cause by refused commands (👎),
/// and by `/status` and `/help`. Each of the two is counted separately. The limit suffices for honest use, and ten
/// abusers leave an installation most of its writes.
const PERSON_WRITES: u32 = 5;
const PERSON_WINDOW: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ReactionMemory {
    /// Unfinished deliveries that already got their 👀 reaction, so that a postponed delivery does not get a second one.
    acknowledged: Mutex<HashSet<DeliveryId>>,
    refused: PersonAllowance,
    asked: PersonAllowance,
}

impl ReactionMemory {
    /// Removes a finished delivery from the deliveries that got a 👀 reaction.
    pub(super) fn forget(&self, id: &DeliveryId) {
        self.acknowledged().remove(id);
    }

    fn acknowledged(&self) -> MutexGuard<'_, HashSet<DeliveryId>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Start of the current window, and number of writes in it, for each person. A window begins with its first write.
#[derive(Default)]
struct PersonAllowance(Mutex<HashMap<UserId, (Timestamp, u32)>>);

impl PersonAllowance {
    fn take(&self, who: UserId, now: Timestamp) -> bool {
        let mut minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A start in the future comes from a wrong clock.
        minutes.retain(|_, (since, _)| *since <= now && now.since(*since) < PERSON_WINDOW);
        let (_, had) = minutes.entry(who).or_insert((now, 0));
        *had += 1;
        *had <= PERSON_WRITES
    }
}

impl Intake {
    /// Reacts with 👀 to show that the delivery was received. Does nothing if this was already done for the delivery.
    pub(super) async fn acknowledge(&self, taken: &ClaimedDelivery, repo: &GitHubRepo, on: ReactionTarget) {
        if self.reactions.acknowledged().insert(taken.id.clone()) {
            react(taken, repo, on, Reaction::Eyes).await;
        }
    }

    /// Reacts with 👎, at most `PERSON_WRITES` times per minute and person.
    pub(super) async fn show_refusal(
        &self,
        taken: &ClaimedDelivery,
        repo: &GitHubRepo,
        on: ReactionTarget,
        who: &Actor,
    ) {
        if self.reactions.refused.take(who.id, self.clock.now()) {
            react(taken, repo, on, Reaction::ThumbsDown).await;
        } else {
            tracing::info!(delivery = %taken.id, who = %who.login, "reaction not sent: this person was refused too often");
        }
    }

    /// Whether this person may get another answer to a command that needs no permissions. Retries of one delivery are
    /// counted once.
    pub(super) fn may_ask(&self, taken: &ClaimedDelivery, who: &Actor) -> bool {
        self.reactions.acknowledged().contains(&taken.id)
            || self.reactions.asked.take(who.id, self.clock.now())
    }
}

/// Sends a reaction. Unlike other writes, it may be retried at once, because GitHub ignores a duplicate reaction.
async fn react(taken: &ClaimedDelivery, repo: &GitHubRepo, on: ReactionTarget, reaction: Reaction) {
    let shown = match repo.react(on, reaction).await {
        Err(GitHubApiError::Transient { .. }) => repo.react(on, reaction).await,
        shown => shown,
    };
    if let Err(fault) = shown {
        tracing::info!(delivery = %taken.id, error = %fault, "could not send reaction; continuing");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_person_gets_at_most_five_answers_per_minute() {
        let allowance = PersonAllowance::default();
        let had = |who, at| (0..10).filter(|_| allowance.take(UserId(who), Timestamp(at))).count();
        assert_eq!((had(1, 0), had(2, 30_000), had(1, 59_999)), (5, 5, 0));
        assert_eq!((had(1, 60_000), had(2, 60_000)), (5, 0));
        assert_eq!(had(1, 1000), 5, "a clock set back silences nobody");
    }
}
