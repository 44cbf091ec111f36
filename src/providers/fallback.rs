//! Two routes to the same model, the dearer one for when the other fails.
//!
//! Each leg has its own time, and both together no more than the call. A route that is known not to lead anywhere
//! now, because it lacks something or failed again and again a moment ago, is skipped, and named with its reason. The
//! second is one only while it lacks nothing: a key comes and goes with a reload. Without it the first has the whole call.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    CallAttempt, CallError, CallErrorKind, CostEstimate, ModelCall, ModelReply, Provider, ReplyFuture,
    RouteState, Usage,
    breakers::{self, CircuitBreakers},
};
use crate::{
    clock::SharedClock,
    types::{MicroUsd, WorkerPool},
};

/// A back end and the most of a call's time it gets.
pub(super) struct FallbackLeg {
    pub(super) back_end: Arc<dyn Provider>,
    pub(super) limit: Duration,
}

pub(super) struct FallbackProvider {
    /// Each checks on its own whether a call fits it and its budget.
    legs: [FallbackLeg; 2],
    breakers: Arc<CircuitBreakers>,
    clock: SharedClock,
}

impl FallbackProvider {
    pub(super) fn new(legs: [FallbackLeg; 2], breakers: Arc<CircuitBreakers>, clock: SharedClock) -> Self {
        Self { legs, breakers, clock }
    }

    fn usable_legs(&self) -> &[FallbackLeg] {
        let both = self.legs[1].back_end.missing_requirement().is_none();
        &self.legs[..if both { 2 } else { 1 }]
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let legs = self.usable_legs();
        if let [alone] = legs {
            return alone.back_end.call(call, cancel).await;
        }
        let mut before = Vec::new();
        let (mut left, mut budget) = (call.deadline, call.budget);
        for leg in legs {
            let started = self.clock.now();
            let deadline = leg.limit.min(left);
            // Both together may cost no more than was held back for the call.
            let call = ModelCall { budget, deadline, ..call.clone() };
            let attempt = match self.call_leg(leg, &call, cancel).await {
                Ok(mut reply) => {
                    reply.earlier_attempts = before;
                    return Ok(reply);
                }
                Err(error) => CallAttempt::from_error(error),
            };
            let paid = attempt.max_billed(leg.back_end.estimate(&call).most.0);
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
        Err(merge_errors(before))
    }

    async fn call_leg(
        &self,
        leg: &FallbackLeg,
        call: &ModelCall,
        cancel: &CancellationToken,
    ) -> Result<ModelReply, CallError> {
        let name = leg.back_end.name();
        let skipped = |why: String| {
            let usage = Usage { provider: name.to_owned(), ..Usage::for_model(&call.model) };
            CallError::new(CallErrorKind::Unavailable, format!("{name}: skipped, {why}"), usage)
        };
        if let Some(what) = leg.back_end.missing_requirement() {
            return Err(skipped(what));
        }
        if call.deadline.is_zero() {
            return Err(skipped("no time is left for it".into()));
        }
        let route = format!("{name}:{}", call.model);
        if let Err(until) = self.breakers.admit(&route, self.clock.now(), leg.limit).await {
            return Err(skipped(format!("it failed again and again; it is tried again at {until}")));
        }
        let outcome = leg.back_end.call(call, cancel).await;
        let kind = breakers::recordable_failure(call, &outcome);
        self.breakers.record(&route, self.clock.now(), kind).await;
        outcome
    }
}

/// One error that names all of `attempts`. What the caller does next is decided by the last that was really made; one
/// that was skipped says less.
fn merge_errors(mut attempts: Vec<CallAttempt>) -> CallError {
    let message = attempts.iter().map(|attempt| attempt.message.as_str()).collect::<Vec<_>>().join("; ");
    let made = attempts.iter().rposition(|attempt| attempt.usage.attempts > 0);
    let at = made.unwrap_or_else(|| soonest_attempt(&attempts));
    let last = attempts.remove(at);
    CallError { kind: last.kind, message, usage: Box::new(last.usage), earlier_attempts: attempts }
}

/// Of attempts that were all skipped: the last, or, where that is a matter of time, the one that can be made the first.
fn soonest_attempt(attempts: &[CallAttempt]) -> usize {
    let back = |at: &usize| match attempts[*at].kind {
        CallErrorKind::RateLimited { reset } | CallErrorKind::Quota { reset } => reset,
        _ => None,
    };
    let last = attempts.len().saturating_sub(1);
    back(&last).map_or(last, |_| (0..=last).filter(|at| back(at).is_some()).min_by_key(back).unwrap_or(last))
}

impl Provider for FallbackProvider {
    fn name(&self) -> &'static str {
        self.legs[0].back_end.name()
    }

    fn missing_requirement(&self) -> Option<String> {
        let lacking: Option<Vec<_>> =
            self.usable_legs().iter().map(|leg| leg.back_end.missing_requirement()).collect();
        lacking.map(|all| all.join("; "))
    }

    fn inspect(&self) -> BoxFuture<'_, Vec<RouteState>> {
        Box::pin(async {
            let mut routes = Vec::new();
            for leg in self.usable_legs() {
                routes.extend(leg.back_end.inspect().await);
            }
            routes
        })
    }

    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        self.legs.iter().find_map(|leg| leg.back_end.log_in())
    }

    fn is_billed(&self) -> bool {
        self.usable_legs().iter().any(|leg| leg.back_end.is_billed())
    }

    fn estimate(&self, call: &ModelCall) -> CostEstimate {
        let able = self.legs.iter().filter(|leg| leg.back_end.missing_requirement().is_none());
        able.map(|leg| leg.back_end.estimate(call))
            .fold(CostEstimate::ZERO, |sum, one| sum.combine(one, MicroUsd::plus))
    }

    fn count_tokens<'a>(&'a self, call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        let paid = self
            .usable_legs()
            .iter()
            .find(|leg| leg.back_end.is_billed() && leg.back_end.missing_requirement().is_none());
        match paid {
            Some(leg) => leg.back_end.count_tokens(call),
            None => Box::pin(std::future::ready(None)),
        }
    }

    fn would_queue(&self, pool: WorkerPool) -> bool {
        // Who is asked first is who is stood in line for.
        self.legs
            .iter()
            .find(|leg| leg.back_end.missing_requirement().is_none())
            .is_some_and(|leg| leg.back_end.would_queue(pool))
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::providers::{
        checked_provider::CheckedProvider,
        samples::{self, ModelScript, ModelTestClock, ScriptedProvider},
    };

    const OPUS: &str = "claude-opus-4-6";
    const LATE: CallErrorKind = CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };

    /// The program and the API behind it, as scripted.
    struct FallbackFixture {
        fallback: FallbackProvider,
        script: Arc<Mutex<ModelScript>>,
        clock: Arc<ModelTestClock>,
    }

    impl FallbackFixture {
        /// The program fails by these kinds and then answers, as the API does by those.
        fn failing(program: &[CallErrorKind], api: &[CallErrorKind]) -> Self {
            let failures = [("claude", program), ("anthropic", api)]
                .map(|(name, kinds)| (format!("{name}:{OPUS}"), kinds.iter().cloned().collect()));
            let script =
                Arc::new(Mutex::new(ModelScript { failures: failures.into(), ..ModelScript::default() }));
            let (clock, breakers) = (Arc::new(ModelTestClock::default()), Arc::default());
            let shared = Arc::clone(&clock) as SharedClock;
            let leg = |name, limit| {
                let (script, clock) = (Arc::clone(&script), Arc::clone(&clock));
                let back_end =
                    Arc::new(ScriptedProvider { name, billed: name == "anthropic", script, clock });
                let back_end =
                    CheckedProvider::wrap(back_end, &Arc::default(), &breakers, &Arc::default(), &shared);
                FallbackLeg { back_end, limit: Duration::from_secs(limit) }
            };
            let legs = [leg("claude", 180), leg("anthropic", 300)];
            Self { fallback: FallbackProvider::new(legs, breakers, shared), script, clock }
        }

        async fn ask(&self, call: &ModelCall) -> Result<ModelReply, CallError> {
            self.fallback.call(call, &CancellationToken::new()).await
        }

        /// Who was asked, and the seconds that it had.
        fn given(&self) -> Vec<(String, u64)> {
            let script = self.script.lock().unwrap();
            let names = script.asked.iter().map(|(_, name)| name.split(':').next().unwrap().to_owned());
            names.zip(script.deadlines.iter().map(Duration::as_secs)).collect()
        }
    }

    fn question(deadline: u64) -> ModelCall {
        ModelCall { deadline: Duration::from_secs(deadline), ..samples::call() }
    }

    #[test]
    fn the_paid_way_is_what_a_call_may_cost_and_the_free_one_is_told() {
        let both = FallbackFixture::failing(&[], &[]);
        let CostEstimate { most, may_be_free: free_way, unpriced, .. } = both.fallback.estimate(&question(1));
        assert_eq!((most > MicroUsd(1_600_000), free_way, unpriced), (true, true, false));
        let paid = |leg: &FallbackLeg| FallbackLeg { back_end: Arc::clone(&leg.back_end), limit: leg.limit };
        let legs = [paid(&both.fallback.legs[1]), paid(&both.fallback.legs[1])];
        let twice = FallbackProvider::new(legs, Arc::default(), Arc::new(ModelTestClock::default()))
            .estimate(&question(1));
        assert_eq!((twice.most, twice.may_be_free), (MicroUsd(2 * most.0), false));
    }

    #[tokio::test]
    async fn both_legs_together_spend_no_more_than_the_call_may() {
        const BUDGET: u64 = 10_000_000;
        let most =
            FallbackFixture::failing(&[], &[]).fallback.legs[1].back_end.estimate(&question(480)).most.0;
        for (kind, tokens, left) in [
            (CallErrorKind::InvalidOutput, Some(1000), BUDGET - 25_000),
            (CallErrorKind::Capacity, None, BUDGET),
            // Nobody knows what the other side did meanwhile.
            (LATE, None, BUDGET - most),
            (LATE, Some(1000), BUDGET - most),
        ] {
            let mut both = FallbackFixture::failing(&[], &[kind]);
            // The API as both of its legs.
            both.fallback.legs[0].back_end = Arc::clone(&both.fallback.legs[1].back_end);
            both.script.lock().unwrap().paid = tokens.map(|tokens| (OPUS.to_owned(), tokens));
            both.ask(&ModelCall { budget: Some(BUDGET), ..question(480) }).await.unwrap();
            assert_eq!(both.script.lock().unwrap().budgets, [Some(BUDGET), Some(left)], "{tokens:?}");
        }
    }

    #[tokio::test]
    async fn each_leg_has_its_own_time_within_the_calls() {
        for (deadline, given) in [
            (480, vec![("claude", 180), ("anthropic", 300)]),
            (300, vec![("claude", 180), ("anthropic", 120)]),
            (100, vec![("claude", 100)]),
        ] {
            let both = FallbackFixture::failing(&[LATE], &[LATE]);
            let error = both.ask(&question(deadline)).await.unwrap_err();
            let given: Vec<_> = given.into_iter().map(|(name, time)| (name.to_owned(), time)).collect();
            assert_eq!((both.given(), &error.kind), (given, &LATE), "what was skipped decides nothing");
            assert_eq!(
                error.to_string().ends_with("skipped, no time is left for it"),
                deadline == 100,
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn whoever_said_not_before_then_is_not_asked_before_then() {
        let reset = Some(Duration::from_secs(1000));
        for (kind, name) in [
            (CallErrorKind::Quota { reset }, "its account is used up"),
            (CallErrorKind::RateLimited { reset }, "it asked not to be asked"),
        ] {
            let both = FallbackFixture::failing(&[kind], &[CallErrorKind::Auth, CallErrorKind::Auth]);
            let asked = || both.given().iter().filter(|(name, _)| name == "claude").count();
            both.ask(&question(480)).await.unwrap_err();
            let error = both.ask(&question(480)).await.unwrap_err();
            assert!(error.message.contains(&format!("claude: skipped, {name}")), "{error}");
            assert_eq!((asked(), error.usage.provider.as_str()), (1, "anthropic"));
            both.clock.advance(Duration::from_secs(1000));
            both.ask(&question(480)).await.unwrap();
            assert_eq!(asked(), 2, "then it is");
        }
    }

    #[tokio::test]
    async fn what_the_model_itself_did_is_not_bought_again() {
        for kind in [CallErrorKind::Refused, CallErrorKind::Truncated, CallErrorKind::Cancelled] {
            let both = FallbackFixture::failing(std::slice::from_ref(&kind), &[]);
            let error = both.ask(&question(480)).await.unwrap_err();
            assert_eq!((both.given().len(), error.kind, error.earlier_attempts.len()), (1, kind, 0));
        }
    }

    #[tokio::test]
    async fn waiting_for_a_place_is_no_part_of_the_time() {
        let both = FallbackFixture::failing(&[CallErrorKind::Unavailable], &[]);
        both.script.lock().unwrap().queued = Duration::from_secs(60);
        both.ask(&question(100)).await.unwrap();
        assert_eq!(both.given(), [("claude".to_owned(), 100), ("anthropic".to_owned(), 100)]);
    }

    #[test]
    fn of_two_that_were_skipped_the_first_that_is_back_speaks() {
        let skipped = |kind| CallAttempt { kind, message: "skipped".into(), usage: Usage::for_model("m") };
        let quota = |seconds| CallErrorKind::Quota { reset: Some(Duration::from_secs(seconds)) };
        for (first, second, speaks) in [
            (quota(10), quota(20), quota(10)),
            (quota(20), quota(10), quota(10)),
            (quota(10), CallErrorKind::Auth, CallErrorKind::Auth),
        ] {
            assert_eq!(merge_errors(vec![skipped(first), skipped(second)]).kind, speaks);
        }
    }
}
