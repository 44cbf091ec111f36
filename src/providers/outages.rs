//! What is not to be asked now, because it failed again and again or said itself "not before then". Kept in the store
//! where there is one, so that a restart does not forget.
//!
//! A way to a model that failed is left alone for a while; then one call tries whether it is back. An account or a model
//! that named its time is left alone until then, and no longer than such a time can be.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::CallErrorKind;
use crate::{
    limits,
    store::{Outage, Store},
    types::Timestamp,
};

/// The longest that a model is left alone because it was asked too often: no such limit is for more than an hour.
const MODEL_RESTS_MOST: Duration = Duration::from_secs(3600);

/// So many failures in a row are an outage and not bad luck.
const OUTAGE_FAILURES: u32 = 2;

#[derive(Default)]
pub(super) struct Outages {
    store: Option<Arc<Store>>,
    /// None: the store was not read yet.
    ways: Mutex<Option<BTreeMap<String, Way>>>,
}

#[derive(Clone, Copy)]
struct Way {
    outage: Outage,
    /// A call is trying it; others keep away until it is back, and not beyond this.
    tried_until: Option<Timestamp>,
}

impl Way {
    fn of(outage: Outage) -> Self {
        Self { outage, tried_until: None }
    }
}

/// What rests, other than by failing.
#[derive(Clone, Copy)]
pub(super) enum Resting<'a> {
    /// All that is paid for together: `claude`, `opencode:google`.
    Account(&'a str),
    Model {
        provider: &'a str,
        model: &'a str,
    },
}

impl Resting<'_> {
    /// Its name in the store, where no way to a model has a space.
    fn name(self) -> String {
        match self {
            Self::Account(account) => format!("account {account}"),
            Self::Model { provider, model } => format!("model {provider}:{model}"),
        }
    }
}

impl Outages {
    /// Remembers in `store`, if there is one, and what is remembered there.
    pub(super) fn kept_in(store: Option<Arc<Store>>) -> Self {
        Self { store, ways: Mutex::default() }
    }

    /// May `way` be taken now? If not, until when not. The one call that may try a way which was closed has `longest`
    /// for it.
    pub(super) async fn enter(&self, way: &str, now: Timestamp, longest: Duration) -> Result<(), Timestamp> {
        let mut ways = self.ways.lock().await;
        let Some(way) = self.read(&mut ways).await.get_mut(way) else { return Ok(()) };
        if way.outage.failures < OUTAGE_FAILURES {
            return Ok(());
        }
        let closed = way.tried_until.unwrap_or(way.outage.until);
        if now < closed {
            return Err(closed);
        }
        way.tried_until = Some(now.plus(longest));
        Ok(())
    }

    /// How the call went for which a way was taken.
    pub(super) async fn leave(&self, name: &str, now: Timestamp, failed: Option<&CallErrorKind>) {
        let mut ways = self.ways.lock().await;
        let ways = self.read(&mut ways).await;
        let outage = match failed {
            // Nobody was asked, or nobody was waited for: nothing is known of it.
            Some(CallErrorKind::Cancelled | CallErrorKind::OverBudget { .. } | CallErrorKind::TooLong) => {
                if let Some(way) = ways.get_mut(name) {
                    way.tried_until = None;
                }
                return;
            }
            Some(
                CallErrorKind::Capacity
                | CallErrorKind::Unavailable
                | CallErrorKind::ResourceExhausted { .. }
                | CallErrorKind::Timeout { .. },
            ) => {
                let failures = ways.get(name).map_or(0, |way| way.outage.failures).saturating_add(1);
                Some(Outage { failures, until: now.plus(limits::OUTAGE_HOLDS) })
            }
            // Somebody was there and answered.
            _ => None,
        };
        self.note(ways, name, outage).await;
    }

    /// It said "not before `after`", or that its allowance is used up and not until when.
    pub(super) async fn rest(&self, what: Resting<'_>, now: Timestamp, after: Option<Duration>) {
        let (usual, most) = match what {
            Resting::Account(_) => (limits::KEY_RESTS_FROM_QUOTA, limits::KEY_RESTS_MOST),
            Resting::Model { .. } => (limits::KEY_RESTS_FROM_RATE, MODEL_RESTS_MOST),
        };
        let until = now.plus(after.unwrap_or(usual).clamp(limits::KEY_RESTS_LEAST, most));
        let name = what.name();
        tracing::warn!(what = name, %until, "not asked for a while");
        let mut ways = self.ways.lock().await;
        let ways = self.read(&mut ways).await;
        self.note(ways, &name, Some(Outage { failures: 0, until })).await;
    }

    /// Until when it rests, if it does.
    pub(super) async fn rests(&self, what: Resting<'_>, now: Timestamp) -> Option<Timestamp> {
        let mut ways = self.ways.lock().await;
        let until = self.read(&mut ways).await.get(&what.name())?.outage.until;
        // A clock that was set back makes no rest longer than it can be.
        (now < until && until.since(now) <= limits::KEY_RESTS_MOST).then_some(until)
    }

    /// It was asked and answered.
    pub(super) async fn answered(&self, what: Resting<'_>) {
        let mut ways = self.ways.lock().await;
        let ways = self.read(&mut ways).await;
        self.note(ways, &what.name(), None).await;
    }

    async fn note(&self, ways: &mut BTreeMap<String, Way>, name: &str, outage: Option<Outage>) {
        let changed = match outage {
            Some(outage) => ways.insert(name.to_owned(), Way::of(outage)).is_none_or(|w| w.outage != outage),
            None => ways.remove(name).is_some(),
        };
        if changed
            && let Some(store) = &self.store
            && let Err(error) = store.set_outage(name, outage).await
        {
            // It is still known until the next restart.
            tracing::warn!(way = name, %error, "an outage could not be written down");
        }
    }

    async fn read<'a>(&self, ways: &'a mut Option<BTreeMap<String, Way>>) -> &'a mut BTreeMap<String, Way> {
        if ways.is_none()
            && let Some(store) = &self.store
        {
            match store.outages().await {
                Ok(known) => {
                    *ways = Some(known.into_iter().map(|(way, outage)| (way, Way::of(outage))).collect());
                }
                Err(error) => tracing::warn!(%error, "known outages could not be read"),
            }
        }
        ways.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    #[tokio::test]
    async fn no_rest_is_longer_than_one_can_be_nor_by_a_clock_that_was_set_back() {
        let model = Resting::Model { provider: "p", model: "m" };
        for (what, most) in [(Resting::Account("p"), limits::KEY_RESTS_MOST), (model, MODEL_RESTS_MOST)] {
            let outages = Outages::default();
            outages.rest(what, NOW, Some(Duration::MAX)).await;
            assert_eq!(outages.rests(what, NOW).await, Some(NOW.plus(most)));
            assert_eq!(outages.rests(what, NOW.plus(most)).await, None);
            assert_eq!(outages.rests(what, NOW.minus(limits::KEY_RESTS_MOST)).await, None);
            outages.rest(what, NOW, Some(Duration::ZERO)).await;
            assert_eq!(outages.rests(what, NOW).await, Some(NOW.plus(limits::KEY_RESTS_LEAST)));
        }
    }

    #[tokio::test]
    async fn whoever_tries_a_way_and_gives_up_leaves_it_to_the_next() {
        let (outages, long) = (Outages::default(), Duration::from_secs(300));
        for _ in 0..OUTAGE_FAILURES {
            outages.enter("w", NOW, long).await.unwrap();
            outages.leave("w", NOW, Some(&CallErrorKind::Capacity)).await;
        }
        let later = NOW.plus(limits::OUTAGE_HOLDS);
        assert_eq!(outages.enter("w", NOW, long).await, Err(later));
        outages.enter("w", later, long).await.unwrap();
        assert_eq!(outages.enter("w", later, long).await, Err(later.plus(long)));
        outages.leave("w", later, Some(&CallErrorKind::Cancelled)).await;
        outages.enter("w", later, long).await.unwrap();
    }
}
