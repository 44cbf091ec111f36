//! Two routes to the same model. The second, more expensive route is used only if the first fails.
//!
//! Each route has its own timeout, and both together stay within the call's deadline. A route that lacks a requirement,
//! or whose breaker is open, is skipped, and the reason is recorded. The second route counts only if it has all its
//! requirements, such as a key, which a reload of the settings may add. Without a usable second route, the first route
//! may use the whole deadline.

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

/// A back end and the maximum time that it may use of a call's deadline.
pub(super) struct FallbackLeg {
    pub(super) back_end: Arc<dyn Provider>,
    pub(super) limit: Duration,
}

pub(super) struct FallbackProvider {
    /// The two routes in order. Each back end itself checks that the call fits its context window and budget.
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
            // Both legs share the budget reserved for the call.
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
            // Queueing and cleanup time is not charged to the other leg.
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
            return Err(skipped(format!("it failed repeatedly; next try at {until}")));
        }
        let outcome = leg.back_end.call(call, cancel).await;
        let kind = breakers::recordable_failure(call, &outcome);
        self.breakers.record(&route, self.clock.now(), kind).await;
        outcome
    }
}

/// Merges all attempts into one error. The error has the kind of the last attempt that was sent. If no attempt was
/// sent, it has the kind of the attempt chosen by `soonest_attempt`.
fn merge_errors(mut attempts: Vec<CallAttempt>) -> CallError {
    let message = attempts.iter().map(|attempt| attempt.message.as_str()).collect::<Vec<_>>().join("; ");
    let made = attempts.iter().rposition(|attempt| attempt.usage.attempts > 0);
    let at = made.unwrap_or_else(|| soonest_attempt(&attempts));
    let last = attempts.remove(at);
    CallError { kind: last.kind, message, usage: Box::new(last.usage), earlier_attempts: attempts }
}

/// Returns the index of the attempt to report if all routes were skipped. It is the last attempt, unless that one
/// failed because of a cooldown with a known end. In that case, it is the attempt whose cooldown ends first.
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
        // The call queues at the first usable leg.
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

    /// A fallback from the Claude CLI to the API, both scripted.
    struct FallbackFixture {
        fallback: FallbackProvider,
        script: Arc<Mutex<ModelScript>>,
        clock: Arc<ModelTestClock>,
    }

    impl FallbackFixture {
        /// Creates a fallback in which each back end fails with the given kinds in order, and then answers.
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

        /// Returns the provider and the deadline in seconds of each call made so far.
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
    fn fallback_estimate_adds_up_paid_providers_and_reports_whether_one_is_free() {
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
    async fn first_provider_and_fallback_share_the_budget() {
        const BUDGET: u64 = 10_000_000;
        let most =
            FallbackFixture::failing(&[], &[]).fallback.legs[1].back_end.estimate(&question(480)).most.0;
        for (kind, tokens, left) in [
            (CallErrorKind::InvalidOutput, Some(1000), BUDGET - 25_000),
            (CallErrorKind::Capacity, None, BUDGET),
            // The service may have finished the answer after our timeout.
            (LATE, None, BUDGET - most),
            (LATE, Some(1000), BUDGET - most),
        ] {
            let mut both = FallbackFixture::failing(&[], &[kind]);
            // Use the API for both legs.
            both.fallback.legs[0].back_end = Arc::clone(&both.fallback.legs[1].back_end);
            both.script.lock().unwrap().paid = tokens.map(|tokens| (OPUS.to_owned(), tokens));
            both.ask(&ModelCall { budget: Some(BUDGET), ..question(480) }).await.unwrap();
            assert_eq!(both.script.lock().unwrap().budgets, [Some(BUDGET), Some(left)], "{tokens:?}");
        }
    }

    #[tokio::test]
    async fn timeouts_of_first_provider_and_fallback_fit_into_the_deadline() {
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
    async fn fallback_skips_a_provider_in_cooldown() {
        let reset = Some(Duration::from_secs(1000));
        for (kind, name) in [
            (CallErrorKind::Quota { reset }, "its quota is exhausted"),
            (CallErrorKind::RateLimited { reset }, "it is rate limited"),
        ] {
            let both = FallbackFixture::failing(&[kind], &[CallErrorKind::Auth, CallErrorKind::Auth]);
            let claude_calls = || both.given().iter().filter(|(name, _)| name == "claude").count();
            both.ask(&question(480)).await.unwrap_err();
            let error = both.ask(&question(480)).await.unwrap_err();
            assert!(error.message.contains(&format!("claude: skipped, {name}")), "{error}");
            assert_eq!((claude_calls(), error.usage.provider.as_str()), (1, "anthropic"));
            both.clock.advance(Duration::from_secs(1000));
            both.ask(&question(480)).await.unwrap();
            assert_eq!(claude_calls(), 2, "then it is");
        }
    }

    #[tokio::test]
    async fn refusal_or_truncation_is_not_retried_on_the_fallback() {
        for kind in [CallErrorKind::Refused, CallErrorKind::Truncated, CallErrorKind::Cancelled] {
            let both = FallbackFixture::failing(std::slice::from_ref(&kind), &[]);
            let error = both.ask(&question(480)).await.unwrap_err();
            assert_eq!((both.given().len(), error.kind, error.earlier_attempts.len()), (1, kind, 0));
        }
    }

    #[tokio::test]
    async fn fallback_deadline_does_not_include_time_spent_in_the_queue() {
        let both = FallbackFixture::failing(&[CallErrorKind::Unavailable], &[]);
        both.script.lock().unwrap().queued = Duration::from_secs(60);
        both.ask(&question(100)).await.unwrap();
        assert_eq!(both.given(), [("claude".to_owned(), 100), ("anthropic".to_owned(), 100)]);
    }

    #[test]
    fn merged_fallback_error_comes_from_the_provider_that_recovers_soonest() {
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
