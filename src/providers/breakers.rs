//! What is not to be asked now, because it failed again and again or said itself "not before then". Kept in the store
//! where there is one, so that a restart does not forget.
//!
//! A route to a model that failed is left alone for a while; then one call tries whether it is back. An account or a model
//! that named its time is left alone until then, and no longer than such a time can be.

use std::{
    collections::BTreeMap,
    sync::{
        self, Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Mutex;

use super::{CallError, CallErrorKind, ModelCall, ModelReply};
use crate::{
    limits,
    store::{RouteOutage, Store},
    types::Timestamp,
};

/// The longest that a model is left alone because it was asked too often: no such limit is for more than an hour.
const MODEL_COOLDOWN_MOST: Duration = Duration::from_secs(3600);

/// So many failures in a row are an outage and not bad luck.
const BREAKER_FAILURES: u32 = 2;

/// How a call failed, as far as it says anything of those after it. Whoever sorts a request waits neither for a place nor
/// for an answer that others would wait for.
pub(super) fn recordable_failure<'a>(
    call: &ModelCall,
    outcome: &'a Result<ModelReply, CallError>,
) -> Option<&'a CallErrorKind> {
    let error = outcome.as_ref().err()?;
    let hasty = error.usage.attempts == 0 || matches!(error.kind, CallErrorKind::Timeout { .. });
    Some(if !call.role.is_waited_for() && hasty { &CallErrorKind::Cancelled } else { &error.kind })
}

#[derive(Default)]
pub(super) struct CircuitBreakers {
    store: Option<Arc<Store>>,
    /// None: the store was not read yet.
    routes: Mutex<Option<BTreeMap<String, CircuitBreaker>>>,
    /// When it was read, as [`Store::remote_changes`] counts.
    learned: AtomicU64,
    /// How each model failed last, since the server started.
    failures: sync::Mutex<BTreeMap<String, LastFailure>>,
    /// Models that answered in place of others since the last reload. Another call would cost money and not count either.
    substitutes: sync::Mutex<BTreeMap<String, String>>,
}

/// How a model failed when it was asked last and failed.
#[derive(Debug, Clone)]
pub struct LastFailure {
    /// `provider:model`
    pub model: String,
    pub class: &'static str,
    pub at: Timestamp,
}

/// What is not asked before a time.
#[derive(Debug, Clone)]
pub struct ActiveCooldown {
    /// `account claude`, `model gemini:pro`, or a route: `claude:opus`.
    pub what: String,
    /// In a row; none where it named its time itself.
    pub failures: u32,
    pub until: Timestamp,
}

#[derive(Clone, Copy)]
struct CircuitBreaker {
    outage: RouteOutage,
    /// A call is trying it; others keep away until it is back, and not beyond this.
    tried_until: Option<Timestamp>,
}

impl CircuitBreaker {
    fn new(outage: RouteOutage) -> Self {
        Self { outage, tried_until: None }
    }
}

/// What named a time before which it is not to be asked.
#[derive(Clone, Copy)]
pub(super) enum CooldownTarget<'a> {
    /// All that is paid for together: `claude`, `opencode:google`.
    Account(&'a str),
    Model {
        provider: &'a str,
        model: &'a str,
    },
}

impl CooldownTarget<'_> {
    /// Its name in the store, where no route to a model has a space.
    fn store_key(self) -> String {
        match self {
            Self::Account(account) => format!("account {account}"),
            Self::Model { provider, model } => format!("model {provider}:{model}"),
        }
    }
}

impl CircuitBreakers {
    /// Remembers in `store`, if there is one, and what is remembered there.
    pub(super) fn with_store(store: Option<Arc<Store>>) -> Self {
        Self { store, ..Self::default() }
    }

    /// For an operator to look at; it decides nothing.
    pub(super) fn record_failure(&self, provider: &str, model: &str, at: Timestamp, kind: &CallErrorKind) {
        let model = format!("{provider}:{model}");
        let mut failures = self.failures.lock().unwrap_or_else(sync::PoisonError::into_inner);
        failures.insert(model.clone(), LastFailure { model, class: kind.name(), at });
    }

    pub(super) fn record_substitute(&self, provider: &str, model: &str, served: &str) {
        let mut substitutes = self.substitutes.lock().unwrap_or_else(sync::PoisonError::into_inner);
        substitutes.insert(format!("{provider}:{model}"), served.to_owned());
    }

    pub(super) fn substitute(&self, provider: &str, model: &str) -> Option<String> {
        let substitutes = self.substitutes.lock().unwrap_or_else(sync::PoisonError::into_inner);
        substitutes.get(&format!("{provider}:{model}")).cloned()
    }

    pub(super) fn forget_substitutes(&self) {
        self.substitutes.lock().unwrap_or_else(sync::PoisonError::into_inner).clear();
    }

    pub(super) fn last_failures(&self) -> Vec<LastFailure> {
        self.failures.lock().unwrap_or_else(sync::PoisonError::into_inner).values().cloned().collect()
    }

    /// All that is left alone now.
    pub(super) async fn active_cooldowns(&self, now: Timestamp) -> Vec<ActiveCooldown> {
        let mut routes = self.routes.lock().await;
        let all = self.load_routes(&mut routes).await.iter();
        let resting = all.map(|(what, breaker)| {
            let RouteOutage { failures, until } = breaker.outage;
            ActiveCooldown { what: what.clone(), failures, until }
        });
        resting
            .filter(|one| now < one.until && (one.failures == 0 || one.failures >= BREAKER_FAILURES))
            .collect()
    }

    /// May `route` be taken now? If not, until when not. The one call that may try a route whose breaker is open has `longest`
    /// for it.
    pub(super) async fn admit(
        &self,
        route: &str,
        now: Timestamp,
        longest: Duration,
    ) -> Result<(), Timestamp> {
        let mut routes = self.routes.lock().await;
        let Some(route) = self.load_routes(&mut routes).await.get_mut(route) else { return Ok(()) };
        if route.outage.failures < BREAKER_FAILURES {
            return Ok(());
        }
        let closed = route.tried_until.unwrap_or(route.outage.until);
        if now < closed {
            return Err(closed);
        }
        route.tried_until = Some(now.plus(longest));
        Ok(())
    }

    /// How the call went for which a route was taken.
    pub(super) async fn record(&self, name: &str, now: Timestamp, failed: Option<&CallErrorKind>) {
        let mut routes = self.routes.lock().await;
        let routes = self.load_routes(&mut routes).await;
        let outage = match failed {
            // Nobody was asked, or nobody was waited for: nothing is known of it.
            Some(CallErrorKind::Cancelled | CallErrorKind::OverBudget { .. } | CallErrorKind::TooLong) => {
                if let Some(route) = routes.get_mut(name) {
                    route.tried_until = None;
                }
                return;
            }
            Some(
                CallErrorKind::Capacity
                | CallErrorKind::Unavailable
                | CallErrorKind::ResourceExhausted { .. }
                | CallErrorKind::Timeout { .. },
            ) => {
                let failures = routes.get(name).map_or(0, |route| route.outage.failures).saturating_add(1);
                Some(RouteOutage { failures, until: now.plus(limits::BREAKER_COOLDOWN) })
            }
            // Somebody was there and answered.
            _ => None,
        };
        self.set_outage(routes, name, outage).await;
    }

    /// It said "not before `after`", or that its allowance is used up and not until when.
    pub(super) async fn start_cooldown(
        &self,
        what: CooldownTarget<'_>,
        now: Timestamp,
        after: Option<Duration>,
    ) {
        let (usual, most) = match what {
            CooldownTarget::Account(_) => (limits::QUOTA_COOLDOWN, limits::LONGEST_COOLDOWN),
            CooldownTarget::Model { .. } => (limits::RATE_COOLDOWN, MODEL_COOLDOWN_MOST),
        };
        let until = now.plus(after.unwrap_or(usual).clamp(limits::SHORTEST_COOLDOWN, most));
        let name = what.store_key();
        tracing::warn!(what = name, %until, "not asked for a while");
        let mut routes = self.routes.lock().await;
        let routes = self.load_routes(&mut routes).await;
        self.set_outage(routes, &name, Some(RouteOutage { failures: 0, until })).await;
    }

    /// Until when it is left alone, if it is.
    pub(super) async fn cooldown_until(&self, what: CooldownTarget<'_>, now: Timestamp) -> Option<Timestamp> {
        let mut routes = self.routes.lock().await;
        let until = self.load_routes(&mut routes).await.get(&what.store_key())?.outage.until;
        // A clock that was set back makes no cooldown longer than one can be.
        (now < until && until.since(now) <= limits::LONGEST_COOLDOWN).then_some(until)
    }

    /// It was asked and answered.
    pub(super) async fn end_cooldown(&self, what: CooldownTarget<'_>) {
        let mut routes = self.routes.lock().await;
        let routes = self.load_routes(&mut routes).await;
        self.set_outage(routes, &what.store_key(), None).await;
    }

    async fn set_outage(
        &self,
        routes: &mut BTreeMap<String, CircuitBreaker>,
        name: &str,
        outage: Option<RouteOutage>,
    ) {
        let changed = match outage {
            Some(outage) => routes
                .insert(name.to_owned(), CircuitBreaker::new(outage))
                .is_none_or(|known| known.outage != outage),
            None => routes.remove(name).is_some(),
        };
        if changed
            && let Some(store) = &self.store
            && let Err(error) = store.set_outage(name, outage).await
        {
            // It is still known until the next restart.
            tracing::warn!(route = name, %error, "an outage could not be written down");
        }
    }

    async fn load_routes<'a>(
        &self,
        routes: &'a mut Option<BTreeMap<String, CircuitBreaker>>,
    ) -> &'a mut BTreeMap<String, CircuitBreaker> {
        let learned = self.store.as_ref().map_or(0, |store| store.remote_changes());
        if self.learned.swap(learned, Relaxed) != learned {
            *routes = None;
        }
        if routes.is_none()
            && let Some(store) = &self.store
        {
            match store.outages().await {
                Ok(known) => {
                    *routes = Some(
                        known
                            .into_iter()
                            .map(|(route, outage)| (route, CircuitBreaker::new(outage)))
                            .collect(),
                    );
                }
                Err(error) => tracing::warn!(%error, "known outages could not be read"),
            }
        }
        routes.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    #[tokio::test]
    async fn no_cooldown_is_longer_than_one_can_be_nor_by_a_clock_that_was_set_back() {
        let model = CooldownTarget::Model { provider: "p", model: "m" };
        for (what, most) in
            [(CooldownTarget::Account("p"), limits::LONGEST_COOLDOWN), (model, MODEL_COOLDOWN_MOST)]
        {
            let breakers = CircuitBreakers::default();
            breakers.start_cooldown(what, NOW, Some(Duration::MAX)).await;
            assert_eq!(breakers.cooldown_until(what, NOW).await, Some(NOW.plus(most)));
            assert_eq!(breakers.cooldown_until(what, NOW.plus(most)).await, None);
            assert_eq!(breakers.cooldown_until(what, NOW.minus(limits::LONGEST_COOLDOWN)).await, None);
            breakers.start_cooldown(what, NOW, Some(Duration::ZERO)).await;
            assert_eq!(breakers.cooldown_until(what, NOW).await, Some(NOW.plus(limits::SHORTEST_COOLDOWN)));
        }
    }

    #[tokio::test]
    async fn whoever_tries_a_route_and_gives_up_leaves_it_to_the_next() {
        let (breakers, long) = (CircuitBreakers::default(), Duration::from_secs(300));
        for _ in 0..BREAKER_FAILURES {
            breakers.admit("r", NOW, long).await.unwrap();
            breakers.record("r", NOW, Some(&CallErrorKind::Capacity)).await;
        }
        let later = NOW.plus(limits::BREAKER_COOLDOWN);
        assert_eq!(breakers.admit("r", NOW, long).await, Err(later));
        breakers.admit("r", later, long).await.unwrap();
        assert_eq!(breakers.admit("r", later, long).await, Err(later.plus(long)));
        breakers.record("r", later, Some(&CallErrorKind::Cancelled)).await;
        breakers.admit("r", later, long).await.unwrap();
    }
}
