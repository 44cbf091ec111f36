//! 👀 and 👎: that somebody was heard, or may not. Both are decoration. GitHub may refuse them (the comment was deleted,
//! its conversation is locked), and what they are about goes on all the same.
//!
//! Here too is what one person may make us write, who needs no rights for it. All of this is memory alone: a process
//! that ends forgets it, and at worst shows once more what is there.

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

/// What one person may make us write in such a time who needs no rights for it: 👎, and answers to `/status` and
/// `/help`. Nobody in earnest needs more, and ten who are not leave an installation most of its writes.
const PERSON_WRITES: u32 = 5;
const PERSON_WINDOW: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ReactionMemory {
    /// Deliveries that had their 👀 and are not dealt with yet: one that was put off gets no second.
    acknowledged: Mutex<HashSet<DeliveryId>>,
    refused: PersonAllowance,
    asked: PersonAllowance,
}

impl ReactionMemory {
    /// It was dealt with.
    pub(super) fn forget(&self, id: &DeliveryId) {
        self.acknowledged().remove(id);
    }

    fn acknowledged(&self) -> MutexGuard<'_, HashSet<DeliveryId>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What each person had in the minute that began with their first.
#[derive(Default)]
struct PersonAllowance(Mutex<HashMap<UserId, (Timestamp, u32)>>);

impl PersonAllowance {
    fn take(&self, who: UserId, now: Timestamp) -> bool {
        let mut minutes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that lies ahead was begun by a clock that was wrong.
        minutes.retain(|_, (since, _)| *since <= now && now.since(*since) < PERSON_WINDOW);
        let (_, had) = minutes.entry(who).or_insert((now, 0));
        *had += 1;
        *had <= PERSON_WRITES
    }
}

impl Intake {
    /// Shows that what a delivery tells was heard.
    pub(super) async fn acknowledge(&self, taken: &ClaimedDelivery, repo: &GitHubRepo, on: ReactionTarget) {
        if self.reactions.acknowledged().insert(taken.id.clone()) {
            react(taken, repo, on, Reaction::Eyes).await;
        }
    }

    /// Shows somebody that they may not, a few times a minute.
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
            tracing::info!(delivery = %taken.id, who = %who.login, "one refusal of many is not shown");
        }
    }

    /// May this person be told once more what anybody may ask? What a delivery asks counts once.
    pub(super) fn may_ask(&self, taken: &ClaimedDelivery, who: &Actor) -> bool {
        self.reactions.acknowledged().contains(&taken.id)
            || self.reactions.asked.take(who.id, self.clock.now())
    }
}

/// Unlike other writes it may be repeated at once: what is there already GitHub leaves alone.
async fn react(taken: &ClaimedDelivery, repo: &GitHubRepo, on: ReactionTarget, reaction: Reaction) {
    let shown = match repo.react(on, reaction).await {
        Err(GitHubApiError::Transient { .. }) => repo.react(on, reaction).await,
        shown => shown,
    };
    if let Err(fault) = shown {
        tracing::info!(delivery = %taken.id, %fault, "a reaction is not shown");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_person_has_a_few_a_minute() {
        let allowance = PersonAllowance::default();
        let had = |who, at| (0..10).filter(|_| allowance.take(UserId(who), Timestamp(at))).count();
        assert_eq!((had(1, 0), had(2, 30_000), had(1, 59_999)), (5, 5, 0));
        assert_eq!((had(1, 60_000), had(2, 60_000)), (5, 0));
        assert_eq!(had(1, 1000), 5, "a clock set back silences nobody");
    }
}
