//! Two ways to the same model, the dearer one for when the other fails.
//!
//! The call's time is shared by both and never multiplied. A way that is known not to lead anywhere now, because it
//! lacks something or failed again and again a moment ago, is skipped, and named with its reason.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    Attempt, Call, CallError, CallErrorKind, Estimate, Provider, Reply, Usage, Way, outages::Outages,
};
use crate::{
    clock::SharedClock,
    types::{MicroUsd, WorkerPool},
};

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
        let started = self.clock.now();
        let mut before = Vec::new();
        for leg in &self.legs {
            let queued = before.iter().map(|attempt: &Attempt| attempt.usage.queued).sum();
            let taken = self.clock.now().since(started).saturating_sub(queued);
            let left = call.deadline.saturating_sub(taken);
            let attempt = match self.take(leg, call, left, cancel).await {
                Ok(mut reply) => {
                    reply.before = before;
                    return Ok(reply);
                }
                Err(error) => Attempt::of(error),
            };
            let done = !another_may_answer(&attempt.kind);
            before.push(attempt);
            if done {
                break;
            }
        }
        Err(verdict(before))
    }

    async fn take(
        &self,
        leg: &Leg,
        call: &Call,
        left: Duration,
        cancel: &CancellationToken,
    ) -> Result<Reply, CallError> {
        let name = leg.back_end.name();
        let skipped = |why: String| {
            let usage = Usage { provider: name.to_owned(), ..Usage::asking(&call.model) };
            CallError::new(CallErrorKind::Unavailable, format!("{name}: skipped, {why}"), usage)
        };
        if let Some(what) = leg.back_end.lacks() {
            return Err(skipped(what));
        }
        if left.is_zero() {
            return Err(skipped("no time is left for it".into()));
        }
        let way = format!("{name}:{}", call.model);
        if let Err(until) = self.outages.enter(&way, self.clock.now(), leg.limit).await {
            return Err(skipped(format!("it failed again and again; it is tried again at {until}")));
        }
        let call = Call { deadline: leg.limit.min(left), ..call.clone() };
        let outcome = leg.back_end.call(&call, cancel).await;
        let kind = outcome.as_ref().err().map(|error| &error.kind);
        self.outages.leave(&way, self.clock.now(), kind).await;
        outcome
    }
}

/// Would the same model answer where it is reached in another way?
fn another_may_answer(kind: &CallErrorKind) -> bool {
    match kind {
        // Another machine, account, client or budget.
        CallErrorKind::Capacity
        | CallErrorKind::RateLimited { .. }
        | CallErrorKind::Quota { .. }
        | CallErrorKind::Auth
        | CallErrorKind::TooLong
        | CallErrorKind::OverBudget { .. }
        | CallErrorKind::InvalidOutput
        | CallErrorKind::WrongModel { .. }
        | CallErrorKind::Timeout { .. }
        | CallErrorKind::Unavailable => true,
        // The same model, asked the same, would do the same, and be paid for it.
        CallErrorKind::Refused | CallErrorKind::Truncated => false,
        CallErrorKind::Cancelled => false,
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
        let none = Estimate { most: MicroUsd(0), free_way: false };
        self.legs.iter().filter(|leg| leg.back_end.lacks().is_none()).fold(none, |sum, leg| {
            let one = leg.back_end.estimate(call);
            Estimate { most: sum.most.plus(one.most), free_way: sum.free_way || one.free_way }
        })
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
        providers::{CallRole, checked::Checked},
        types::Timestamp,
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
        Call {
            role: CallRole::Drafter,
            system: String::new(),
            prompt: "p".into(),
            schema: None,
            model: "m".into(),
            effort: None,
            deadline: Duration::from_secs(deadline),
            budget: None,
            private: true,
            not_families: Vec::new(),
            workers: Default::default(),
            facts: Default::default(),
        }
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
                Estimate { most: MicroUsd(self.0), free_way: self.0 == 0 }
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
        assert_eq!(estimate([0, 7]), Estimate { most: MicroUsd(7), free_way: true });
        assert_eq!(estimate([5, 7]), Estimate { most: MicroUsd(12), free_way: false });
    }

    #[tokio::test]
    async fn the_deadline_is_shared_and_never_multiplied() {
        let late = || CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };
        assert_eq!(given(1000, late()).await.0, [("first", 180), ("second", 300)]);
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
}
