//! Circuit breakers and cooldowns of routes, models and accounts that must not be called at present. They are kept in
//! the store, if one is configured, so that they survive a restart.
//!
//! After repeated failures a route is skipped for a while, and then one trial call is made. An account or model in
//! cooldown is skipped until the reset time that its provider named, up to a maximum.

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

/// Maximum cooldown of a rate-limited model. Rate limits reset within an hour.
const MODEL_COOLDOWN_MOST: Duration = Duration::from_secs(3600);

/// Number of consecutive failures of a route that open its breaker.
const BREAKER_FAILURES: u32 = 2;

/// Returns the failure to record for the route. Router and narrator calls have short deadlines. Their timeouts and
/// unsent calls are therefore recorded as cancelled, which does not count as a failure of the route.
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
    /// Circuit breakers by route name and cooldowns by store key of the account or model. `None` until read from the
    /// store.
    routes: Mutex<Option<BTreeMap<String, CircuitBreaker>>>,
    /// Value of [`Store::remote_changes`] at the time when `routes` was read from the store.
    learned: AtomicU64,
    /// Last failure of each model since the server started.
    failures: sync::Mutex<BTreeMap<String, LastFailure>>,
    /// Models in whose place another model answered since the last reload; maps the requested model to the serving
    /// model. Such a model is not called again, because the call would cost money and its response would be rejected.
    substitutes: sync::Mutex<BTreeMap<String, String>>,
}

/// Most recent failure of a model.
#[derive(Debug, Clone)]
pub struct LastFailure {
    /// Model in the form `provider:model`.
    pub model: String,
    pub class: &'static str,
    pub at: Timestamp,
}

/// An account, model or route that is skipped until a time.
#[derive(Debug, Clone)]
pub struct ActiveCooldown {
    /// The skipped target, for example `account claude`, `model gemini:pro` or the route `claude:opus`.
    pub what: String,
    /// Number of consecutive failures, if this cooldown is for a route. 0 for the cooldown of an account or a model.
    pub failures: u32,
    pub until: Timestamp,
}

#[derive(Clone, Copy)]
struct CircuitBreaker {
    outage: RouteOutage,
    /// Set while a trial call of the route is running. Other calls are refused until the trial ends, or at the latest
    /// until this time.
    tried_until: Option<Timestamp>,
}

impl CircuitBreaker {
    fn new(outage: RouteOutage) -> Self {
        Self { outage, tried_until: None }
    }
}

/// The account or model that is in cooldown.
#[derive(Clone, Copy)]
pub(super) enum CooldownTarget<'a> {
    /// An account whose models share one quota, such as `claude` or `opencode:google`.
    Account(&'a str),
    Model {
        provider: &'a str,
        model: &'a str,
    },
}

impl CooldownTarget<'_> {
    /// Returns the target's key in the store. The key contains a space, which route names never do, so that it cannot
    /// collide with a route name.
    fn store_key(self) -> String {
        match self {
            Self::Account(account) => format!("account {account}"),
            Self::Model { provider, model } => format!("model {provider}:{model}"),
        }
    }
}

impl CircuitBreakers {
    /// Creates the breakers, which read and write their state in `store` if one is given.
    pub(super) fn with_store(store: Option<Arc<Store>>) -> Self {
        Self { store, ..Self::default() }
    }

    /// Records a failure to show it to the operator. The record does not affect which routes are called.
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

    /// Returns the accounts, models and routes that are skipped now.
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

    /// Checks whether `route` may be called now. If not, the error is the time at which a call may be tried again. An
    /// open breaker admits one trial call at a time; other calls are refused for at most `longest` while the trial
    /// runs.
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

    /// Records how an admitted call ended.
    pub(super) async fn record(&self, name: &str, now: Timestamp, failed: Option<&CallErrorKind>) {
        let mut routes = self.routes.lock().await;
        let routes = self.load_routes(&mut routes).await;
        let outage = match failed {
            // The model was not called, or its answer not awaited, so its state is unknown.
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
            // The service answered.
            _ => None,
        };
        self.set_outage(routes, name, outage).await;
    }

    /// Starts a cooldown of length `after`. If the provider named no length, the default length is used.
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
        tracing::warn!(what = name, %until, "cooldown started");
        let mut routes = self.routes.lock().await;
        let routes = self.load_routes(&mut routes).await;
        self.set_outage(routes, &name, Some(RouteOutage { failures: 0, until })).await;
    }

    /// Returns the end of the target's cooldown. `None` if the target is not in cooldown now.
    pub(super) async fn cooldown_until(&self, what: CooldownTarget<'_>, now: Timestamp) -> Option<Timestamp> {
        let mut routes = self.routes.lock().await;
        let until = self.load_routes(&mut routes).await.get(&what.store_key())?.outage.until;
        // If the clock was set back, ignore a cooldown longer than the maximum.
        (now < until && until.since(now) <= limits::LONGEST_COOLDOWN).then_some(until)
    }

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
            // The outage stays known in memory until a restart.
            tracing::warn!(route = name, %error, "could not store an outage; it is lost at the next restart");
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
                Err(error) => tracing::warn!(%error, "could not read stored outages"),
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
    async fn cooldown_is_bounded_even_if_the_clock_is_set_back() {
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
    async fn cancelled_trial_call_does_not_keep_the_circuit_breaker_open() {
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
