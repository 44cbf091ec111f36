//! Two ways to the same model, the dearer one for when the other fails.
//!
//! Each leg has its own time, and both together no more than the call. A way that is known not to lead anywhere now, because it
//! lacks something or failed again and again a moment ago, is skipped, and named with its reason.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    Attempt, Call, CallError, CallErrorKind, Estimate, Provider, Reply, Usage, Way, outages::Outages,
};
use crate::{clock::SharedClock, types::WorkerPool};

/// A back end and the most of a call's time it gets.
pub(super) struct Leg {
    pub(super) back_end: Arc<dyn Provider>,
    pub(super) limit: Duration,
}

pub(super) struct Fallback {
    /// Each checks on its own whether a call fits it and its budget.
    legs: [Leg; 2],
    outages: Arc<Outages>,
    clock: SharedClock,
}

impl Fallback {
    pub(super) fn new(legs: [Leg; 2], outages: Arc<Outages>, clock: SharedClock) -> Self {
        Self { legs, outages, clock }
    }

    async fn ask(&self, call: &Call, cancel: &CancellationToken) -> Result<Reply, CallError> {
        let mut before = Vec::new();
        let (mut left, mut budget) = (call.deadline, call.budget);
        for leg in &self.legs {
            let started = self.clock.now();
            let deadline = leg.limit.min(left);
            // Both together may cost no more than was held back for the call.
            let call = Call { budget, deadline, ..call.clone() };
            let attempt = match self.take(leg, &call, cancel).await {
                Ok(mut reply) => {
                    reply.before = before;
                    return Ok(reply);
                }
                Err(error) => Attempt::of(error),
            };
            let paid = attempt.paid(leg.back_end.estimate(&call).most.0);
            budget = budget.map(|budget| budget.saturating_sub(paid));
            // Neither the wait for a place nor cleaning up is taken from the other leg.
            let taken = self.clock.now().since(started).saturating_sub(attempt.usage.queued);
            left = left.saturating_sub(taken.min(deadline));
            let done = !attempt.kind.another_may_answer();
            before.push(attempt);
            if done {
                break;
            }
        }
        Err(verdict(before))
    }

    async fn take(&self, leg: &Leg, call: &Call, cancel: &CancellationToken) -> Result<Reply, CallError> {
        let name = leg.back_end.name();
        let skipped = |why: String| {
            let usage = Usage { provider: name.to_owned(), ..Usage::asking(&call.model) };
            CallError::new(CallErrorKind::Unavailable, format!("{name}: skipped, {why}"), usage)
        };
        if let Some(what) = leg.back_end.lacks() {
            return Err(skipped(what));
        }
        if call.deadline.is_zero() {
            return Err(skipped("no time is left for it".into()));
        }
        let way = format!("{name}:{}", call.model);
        if let Err(until) = self.outages.enter(&way, self.clock.now(), leg.limit).await {
            return Err(skipped(format!("it failed again and again; it is tried again at {until}")));
        }
        let outcome = leg.back_end.call(call, cancel).await;
        let kind = outcome.as_ref().err().map(|error| &error.kind);
        self.outages.leave(&way, self.clock.now(), kind).await;
        outcome
    }
}

/// One error that names all of `attempts`. What the caller does next is decided by the last that was really made; one
/// that was skipped says less.
fn verdict(mut attempts: Vec<Attempt>) -> CallError {
    let message = attempts.iter().map(|attempt| attempt.message.as_str()).collect::<Vec<_>>().join("; ");
    let made = attempts.iter().rposition(|attempt| attempt.usage.attempts > 0);
    let at = made.unwrap_or_else(|| soonest(&attempts));
    let last = attempts.remove(at);
    CallError { kind: last.kind, message, usage: Box::new(last.usage), before: attempts }
}

/// Of attempts that were all skipped: the last, or, where that is a matter of time, the one that can be made the first.
fn soonest(attempts: &[Attempt]) -> usize {
    let back = |at: &usize| match attempts[*at].kind {
        CallErrorKind::RateLimited { reset } | CallErrorKind::Quota { reset } => reset,
        _ => None,
    };
    let last = attempts.len().saturating_sub(1);
    back(&last).map_or(last, |_| (0..=last).filter(|at| back(at).is_some()).min_by_key(back).unwrap_or(last))
}

impl Provider for Fallback {
    fn name(&self) -> &'static str {
        self.legs[0].back_end.name()
    }

    fn lacks(&self) -> Option<String> {
        let lacking: Option<Vec<_>> = self.legs.iter().map(|leg| leg.back_end.lacks()).collect();
        lacking.map(|all| all.join("; "))
    }

    fn look(&self) -> BoxFuture<'_, Vec<Way>> {
        Box::pin(async {
            let mut ways = Vec::new();
            for leg in &self.legs {
                ways.extend(leg.back_end.look().await);
            }
            ways
        })
    }

    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        self.legs.iter().find_map(|leg| leg.back_end.log_in())
    }

    fn bills(&self) -> bool {
        self.legs.iter().any(|leg| leg.back_end.bills())
    }

    fn estimate(&self, call: &Call) -> Estimate {
        let able = self.legs.iter().filter(|leg| leg.back_end.lacks().is_none());
        able.map(|leg| leg.back_end.estimate(call))
            .fold(Estimate::NOTHING, |sum, one| sum.or(one, sum.most.plus(one.most)))
    }

    fn crowded(&self, pool: WorkerPool) -> bool {
        // Who is asked first is who is stood in line for.
        self.legs
            .iter()
            .find(|leg| leg.back_end.lacks().is_none())
            .is_some_and(|leg| leg.back_end.crowded(pool))
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(self.ask(call, cancel))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::Pin,
        sync::{
            Mutex,
            atomic::{AtomicI64, Ordering},
        },
    };

    use super::*;
    use crate::{
        clock::Clock,
        providers::{Metered, checked::Checked, samples},
        types::{MicroUsd, Timestamp},
    };

    #[derive(Default)]
    struct Hands(AtomicI64);

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(std::future::pending())
        }
    }

    /// Fails as told after all the time it is given, and notes how much that was.
    struct Slow {
        name: &'static str,
        kind: CallErrorKind,
        clock: Arc<Hands>,
        given: Arc<Mutex<Vec<(&'static str, u64)>>>,
    }

    impl Provider for Slow {
        fn name(&self) -> &'static str {
            self.name
        }

        fn lacks(&self) -> Option<String> {
            None
        }

        fn bills(&self) -> bool {
            false
        }

        fn call<'a>(
            &'a self,
            call: &'a Call,
            _: &'a CancellationToken,
        ) -> BoxFuture<'a, Result<Reply, CallError>> {
            self.given.lock().unwrap().push((self.name, call.deadline.as_secs()));
            self.clock.0.fetch_add(call.deadline.as_millis() as i64, Ordering::Relaxed);
            let usage = Usage { attempts: 1, ..Usage::asking(&call.model) };
            let error = CallError::new(self.kind.clone(), format!("{}: too slow", self.name), usage);
            Box::pin(async { Err(error) })
        }
    }

    fn question(deadline: u64) -> Call {
        Call { model: "m".into(), deadline: Duration::from_secs(deadline), private: true, ..samples::call() }
    }

    /// What each leg was given of `deadline` seconds, where the first fails by `kind`.
    async fn given(deadline: u64, kind: CallErrorKind) -> (Vec<(&'static str, u64)>, CallError) {
        let (clock, given) = (Arc::new(Hands::default()), Arc::default());
        let leg = |name, kind, limit| Leg {
            back_end: Arc::new(Slow { name, kind, clock: Arc::clone(&clock), given: Arc::clone(&given) }),
            limit: Duration::from_secs(limit),
        };
        let legs = [leg("first", kind, 180), leg("second", CallErrorKind::Capacity, 300)];
        let fallback = Fallback::new(legs, Arc::default(), Arc::clone(&clock) as SharedClock);
        let call = question(deadline);
        let error = fallback.call(&call, &CancellationToken::new()).await.unwrap_err();
        let given = given.lock().unwrap().clone();
        (given, error)
    }

    #[test]
    fn the_paid_way_is_what_a_call_may_cost_and_the_free_one_is_told() {
        struct Paid(u64);
        impl Provider for Paid {
            fn name(&self) -> &'static str {
                "paid"
            }
            fn lacks(&self) -> Option<String> {
                None
            }
            fn bills(&self) -> bool {
                true
            }
            fn estimate(&self, _: &Call) -> Estimate {
                Estimate { most: MicroUsd(self.0), free_way: self.0 == 0, unpriced: false }
            }
            fn call<'a>(
                &'a self,
                _: &'a Call,
                _: &'a CancellationToken,
            ) -> BoxFuture<'a, Result<Reply, CallError>> {
                unreachable!("it is only asked what it costs")
            }
        }
        let estimate = |costs: [u64; 2]| {
            let legs = costs.map(|most| Leg { back_end: Arc::new(Paid(most)), limit: Duration::ZERO });
            Fallback::new(legs, Arc::default(), Arc::new(Hands::default())).estimate(&question(1))
        };
        let told = |costs| (estimate(costs).most, estimate(costs).free_way);
        assert_eq!(told([0, 7]), (MicroUsd(7), true));
        assert_eq!(told([5, 7]), (MicroUsd(12), false));
    }

    /// Fails by `kind`, is paid `cost` for it where that is known, and notes what it was given to spend.
    struct Dear {
        kind: CallErrorKind,
        cost: Option<u64>,
        given: Arc<Mutex<Vec<Option<u64>>>>,
    }

    impl Provider for Dear {
        fn name(&self) -> &'static str {
            "dear"
        }

        fn lacks(&self) -> Option<String> {
            None
        }

        fn bills(&self) -> bool {
            true
        }

        fn estimate(&self, _: &Call) -> Estimate {
            Estimate { most: MicroUsd(70), free_way: false, unpriced: false }
        }

        fn call<'a>(
            &'a self,
            call: &'a Call,
            _: &'a CancellationToken,
        ) -> BoxFuture<'a, Result<Reply, CallError>> {
            self.given.lock().unwrap().push(call.budget);
            let metered = match self.kind {
                CallErrorKind::Timeout { .. } => Metered::Unknown,
                _ => Metered::Known,
            };
            let cost_microusd = self.cost;
            let asking = Usage::asking(&call.model);
            let usage = Usage { attempts: 1, billed: true, cost_microusd, metered, ..asking };
            let error = CallError::new(self.kind.clone(), "it failed", usage);
            Box::pin(async { Err(error) })
        }
    }

    #[tokio::test]
    async fn both_legs_together_spend_no_more_than_the_call_may() {
        let late = CallErrorKind::Timeout { idle: true, elapsed: Duration::ZERO };
        for (kind, cost, left) in [
            (CallErrorKind::InvalidOutput, Some(30), 70),
            (CallErrorKind::InvalidOutput, Some(130), 0),
            (CallErrorKind::Capacity, None, 100),
            // Nobody knows what the other side did meanwhile.
            (late.clone(), None, 30),
            (late, Some(5), 30),
        ] {
            let given = Arc::default();
            let legs = [kind.clone(), kind].map(|kind| Leg {
                back_end: Arc::new(Dear { kind, cost, given: Arc::clone(&given) }),
                limit: Duration::from_secs(9),
            });
            let fallback = Fallback::new(legs, Arc::default(), Arc::new(Hands::default()));
            let call = Call { budget: Some(100), ..question(300) };
            fallback.call(&call, &CancellationToken::new()).await.unwrap_err();
            assert_eq!(*given.lock().unwrap(), [Some(100), Some(left)], "{cost:?}");
        }
    }

    #[tokio::test]
    async fn each_leg_has_its_own_time_within_the_calls() {
        let late = || CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };
        assert_eq!(given(480, late()).await.0, [("first", 180), ("second", 300)]);
        assert_eq!(given(300, late()).await.0, [("first", 180), ("second", 120)]);
        let (given, error) = given(100, late()).await;
        assert_eq!(given, [("first", 100)]);
        assert_eq!(error.kind, late(), "what was skipped decides nothing");
        assert_eq!(error.to_string(), "first: too slow; second: skipped, no time is left for it");
    }

    #[tokio::test]
    async fn whoever_said_not_before_then_is_not_asked_before_then() {
        for (kind, name) in [
            (CallErrorKind::Quota { reset: Some(Duration::from_secs(1000)) }, "its account is used up"),
            (
                CallErrorKind::RateLimited { reset: Some(Duration::from_secs(1000)) },
                "it asked not to be asked",
            ),
        ] {
            let (clock, given, outages) = (Arc::new(Hands::default()), Arc::default(), Arc::default());
            let shared = Arc::clone(&clock) as SharedClock;
            let leg = |name, kind| {
                let slow = Slow { name, kind, clock: Arc::clone(&clock), given: Arc::clone(&given) };
                let back_end = Checked::around(Arc::new(slow), &Arc::default(), &outages, &shared);
                Leg { back_end, limit: Duration::from_secs(1) }
            };
            let legs = [leg("claude", kind), leg("anthropic", CallErrorKind::InvalidOutput)];
            let fallback = Fallback::new(legs, Arc::clone(&outages), Arc::clone(&shared));
            let never = CancellationToken::new();
            let asked = || given.lock().unwrap().iter().filter(|(name, _)| *name == "claude").count();
            fallback.call(&question(10), &never).await.unwrap_err();
            let error = fallback.call(&question(10), &never).await.unwrap_err();
            assert!(error.message.contains(&format!("claude: skipped, {name}")), "{error}");
            assert_eq!((asked(), error.usage.provider.as_str()), (1, "anthropic"));
            clock.0.fetch_add(1_000_000, Ordering::Relaxed);
            fallback.call(&question(10), &never).await.unwrap_err();
            assert_eq!(asked(), 2, "then it is");
        }
    }

    #[tokio::test]
    async fn what_the_model_itself_did_is_not_bought_again() {
        for kind in [CallErrorKind::Refused, CallErrorKind::Truncated, CallErrorKind::Cancelled] {
            let (given, error) = given(300, kind.clone()).await;
            assert_eq!((given.len(), error.kind, error.before.len()), (1, kind, 0));
        }
    }

    /// Waits for a place for all of a minute, and then takes no time to fail.
    struct Queued(Arc<Hands>, Arc<Mutex<Vec<u64>>>);

    impl Provider for Queued {
        fn name(&self) -> &'static str {
            "queued"
        }

        fn lacks(&self) -> Option<String> {
            None
        }

        fn bills(&self) -> bool {
            false
        }

        fn call<'a>(
            &'a self,
            call: &'a Call,
            _: &'a CancellationToken,
        ) -> BoxFuture<'a, Result<Reply, CallError>> {
            self.1.lock().unwrap().push(call.deadline.as_secs());
            self.0.0.fetch_add(60_000, Ordering::Relaxed);
            let usage = Usage { attempts: 1, queued: Duration::from_secs(60), ..Usage::asking("m") };
            Box::pin(async { Err(CallError::new(CallErrorKind::Unavailable, "no", usage)) })
        }
    }

    #[tokio::test]
    async fn waiting_for_a_place_is_no_part_of_the_time() {
        let (clock, given) = (Arc::new(Hands::default()), Arc::default());
        let legs = [0, 1].map(|_| Leg {
            back_end: Arc::new(Queued(Arc::clone(&clock), Arc::clone(&given))),
            limit: Duration::from_secs(300),
        });
        let fallback = Fallback::new(legs, Arc::default(), Arc::clone(&clock) as SharedClock);
        fallback.call(&question(100), &CancellationToken::new()).await.unwrap_err();
        assert_eq!(*given.lock().unwrap(), [100, 100]);
    }

    #[test]
    fn of_two_that_were_skipped_the_first_that_is_back_speaks() {
        let skipped = |kind| Attempt { kind, message: "skipped".into(), usage: Usage::asking("m") };
        let quota = |seconds| CallErrorKind::Quota { reset: Some(Duration::from_secs(seconds)) };
        for (first, second, speaks) in [
            (quota(10), quota(20), quota(10)),
            (quota(20), quota(10), quota(10)),
            (quota(10), CallErrorKind::Auth, CallErrorKind::Auth),
        ] {
            assert_eq!(verdict(vec![skipped(first), skipped(second)]).kind, speaks);
        }
    }
}
