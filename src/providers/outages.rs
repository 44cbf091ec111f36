//! Ways to a model that failed again and again are left alone for a while; then one call tries whether they are back.
//! Kept in the store where there is one, so that a restart does not forget.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Mutex;

use super::CallErrorKind;
use crate::{
    limits,
    store::{Outage, Store},
    types::Timestamp,
};

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
        if way.outage.failures < limits::OUTAGE_FAILURES {
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
            Some(CallErrorKind::Capacity | CallErrorKind::Unavailable | CallErrorKind::Timeout { .. }) => {
                let failures = ways.get(name).map_or(0, |way| way.outage.failures).saturating_add(1);
                Some(Outage { failures, until: now.plus(limits::OUTAGE_HOLDS) })
            }
            // Somebody was there and answered.
            _ => None,
        };
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
