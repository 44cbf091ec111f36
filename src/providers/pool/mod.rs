//! A pool: several models behind one name, with rules for order, fallback and waiting.
//!
//! Each call tries primary models before fallback models. Only the kind of a failure decides which model is next.
//! Cooldowns of accounts and models are shared by all pools, and models in cooldown are skipped. The pool waits for at
//! most half of the call's deadline. If a wait would be longer, the error tells the caller when to retry.

mod pool_attempts;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use self::pool_attempts::{PoolAttempts, PoolCandidate};
use super::{
    CallError, CallErrorKind, CallRole, CostEstimate, ModelCall, ModelId, ModelReply, POOL, Provider,
    ReplyFuture,
    breakers::{self, CircuitBreakers, CooldownTarget},
};
use crate::{
    clock::SharedClock,
    config::{Retry, Strategy},
    limits,
    types::{MicroUsd, Timestamp, WorkerPool},
};

/// Maximum wait before the pool retries the same model. If the wait would be longer, the pool tries another model
/// instead.
const POOL_SITS_OUT: Duration = Duration::from_secs(60);

pub(super) struct ModelPool {
    name: String,
    /// The primary list and the fallback list.
    lists: [PoolList; 2],
    retry: Retry,
    breakers: Arc<CircuitBreakers>,
    clock: SharedClock,
}

pub(super) struct PoolList {
    members: Vec<PoolMember>,
    /// Index of the member to try first in the next call. `None` unless the strategy is round robin.
    turn: Option<AtomicUsize>,
}

/// A model as named in the settings.
pub(super) struct PoolMember {
    pub(super) spec: String,
    /// Route to the model, or the reason why the route could not be resolved.
    pub(super) route: Result<ModelRoute, String>,
}

pub(super) struct ModelRoute {
    pub(super) id: ModelId,
    pub(super) back_end: Arc<dyn Provider>,
    /// Role for which this model must not be used, and the reason. `None` if every role may use it.
    pub(super) unfit: Option<(CallRole, &'static str)>,
    /// Sort key given by the pool's strategy. Members with lower keys are tried first.
    pub(super) rank: u64,
    /// Maximum time of one call to this member while the pool has other members left to try.
    pub(super) turn: Box<dyn Fn() -> Duration + Send + Sync>,
}

impl ModelRoute {
    pub(super) fn check_role(&self, role: CallRole) -> Result<(), &'static str> {
        match self.unfit {
            Some((unfit, why)) if unfit == role => Err(why),
            _ => Ok(()),
        }
    }
}

impl PoolList {
    pub(super) fn new(mut members: Vec<PoolMember>, strategy: Strategy) -> Self {
        let turn = (strategy == Strategy::RoundRobin).then(AtomicUsize::default);
        if matches!(strategy, Strategy::Cheapest | Strategy::Capability) {
            members.sort_by_key(|member| member.route.as_ref().map_or(u64::MAX, |route| route.rank));
        }
        Self { members, turn }
    }

    /// Returns the member indices in the order in which this call tries the members.
    fn order(&self) -> impl Iterator<Item = usize> {
        let (first, count) =
            (self.turn.as_ref().map_or(0, |turn| turn.load(Ordering::Relaxed)), self.members.len());
        (0..count).map(move |at| (first + at) % count)
    }

    /// Makes the next call start with the member after index `at`.
    fn advance_turn(&self, at: usize) {
        if let Some(turn) = &self.turn {
            turn.store((at + 1) % self.members.len(), Ordering::Relaxed);
        }
    }
}

impl ModelPool {
    pub(super) fn new(
        name: &str,
        lists: [PoolList; 2],
        retry: Retry,
        breakers: Arc<CircuitBreakers>,
        clock: SharedClock,
    ) -> Self {
        Self { name: name.to_owned(), lists, retry, breakers, clock }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &PoolMember> {
        self.lists.iter().flat_map(|list| &list.members)
    }

    fn routes(&self) -> impl Iterator<Item = &ModelRoute> {
        self.members().filter_map(|member| member.route.as_ref().ok())
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let mut attempts = PoolAttempts::new(self, call);
        loop {
            let candidate = match attempts.next_candidate(self.clock.now()) {
                Some(candidate) => candidate,
                None => match attempts.next_cooled(self.clock.now()) {
                    Some((until, candidate)) if self.wait_until(until, cancel).await => candidate,
                    Some(_) => return Err(attempts.cancelled_error()),
                    None => return Err(attempts.exhausted_error(&self.name, self.clock.now())),
                },
            };
            self.lists[candidate.list].advance_turn(candidate.at);
            let error = match self.call_candidate(&mut attempts, candidate, cancel).await {
                Some(Ok(reply)) => return Ok(attempts.finish_reply(reply)),
                Some(Err(error)) => error,
                None => continue,
            };
            if !error.kind.another_may_answer() {
                return Err(attempts.final_error(error));
            }
            if let Some(until) = self.handle_failure(&mut attempts, candidate, error).await
                && !self.wait_until(until, cancel).await
            {
                return Err(attempts.cancelled_error());
            }
        }
    }

    /// Calls one member. Returns `None` if the member's breaker is open.
    async fn call_candidate(
        &self,
        attempts: &mut PoolAttempts<'_>,
        candidate: PoolCandidate<'_>,
        cancel: &CancellationToken,
    ) -> Option<Result<ModelReply, CallError>> {
        let now = self.clock.now();
        let call = attempts.candidate_call(now, candidate);
        // The prefix separates these breakers from those of the back end's own legs.
        let route = format!("pool {}", candidate.route.id);
        if let Err(until) = self.breakers.admit(&route, now, call.deadline).await {
            attempts
                .skip(format!("{}: skipped, it failed repeatedly; next try at {until}", candidate.route.id));
            return None;
        }
        let outcome = candidate.route.back_end.call(&call, cancel).await;
        let kind = breakers::recordable_failure(&call, &outcome);
        self.breakers.record(&route, self.clock.now(), kind).await;
        Some(outcome)
    }

    /// Records a failure. Returns the time at which to retry the same model, or `None` if the model should not be
    /// retried.
    async fn handle_failure<'a>(
        &self,
        attempts: &mut PoolAttempts<'a>,
        candidate: PoolCandidate<'a>,
        error: CallError,
    ) -> Option<Timestamp> {
        let now = self.clock.now();
        let (kind, provider) = (error.kind.clone(), error.usage.provider.clone());
        let most = candidate.route.back_end.estimate(&attempts.candidate_call(now, candidate)).most.0;
        let sent = attempts.record_failure(error, most);
        match kind {
            CallErrorKind::Quota { reset } => {
                if sent {
                    attempts.prefer_fallback();
                }
                let until = now.plus(reset.unwrap_or(limits::QUOTA_COOLDOWN));
                attempts.add_cooling(until, candidate, true);
            }
            CallErrorKind::RateLimited { reset } => {
                let candidate = PoolCandidate { limited: candidate.limited + u32::from(sent), ..candidate };
                let wait = reset.unwrap_or_else(|| self.retry.wait_after(candidate.limited));
                let until = now.plus(wait);
                let short = reset.is_none_or(|reset| reset <= POOL_SITS_OUT);
                if sent && short && candidate.limited <= self.retry.same_model && attempts.may_wait(until) {
                    attempts.requeue(candidate);
                    return Some(until);
                }
                if reset.is_none() {
                    let model =
                        CooldownTarget::Model { provider: &provider, model: &candidate.route.id.model };
                    self.breakers.start_cooldown(model, now, Some(wait)).await;
                }
                attempts.add_cooling(until, candidate, false);
            }
            _ => {}
        }
        None
    }

    /// Waits until the given time. Returns `false` if the call is cancelled first.
    async fn wait_until(&self, until: Timestamp, cancel: &CancellationToken) -> bool {
        let wait: Duration = until.since(self.clock.now());
        tokio::select! {
            () = self.clock.sleep(wait) => true,
            () = cancel.cancelled() => false,
        }
    }
}

impl Provider for ModelPool {
    fn name(&self) -> &'static str {
        POOL
    }

    fn missing_requirement(&self) -> Option<String> {
        let lacking = self.members().map(|member| match &member.route {
            Ok(route) => route.back_end.missing_requirement().map(|why| format!("{}: {why}", member.spec)),
            Err(why) => Some(format!("{}: {why}", member.spec)),
        });
        lacking.collect::<Option<Vec<_>>>().map(|all| all.join("; "))
    }

    fn is_billed(&self) -> bool {
        self.routes().any(|route| route.back_end.is_billed())
    }

    /// Returns the highest of the members' maximum costs. The costs are not added up, because all members share one
    /// budget.
    fn estimate(&self, call: &ModelCall) -> CostEstimate {
        let asked = self.routes().filter(|route| {
            route.check_role(call.role).is_ok() && route.back_end.missing_requirement().is_none()
        });
        asked
            .map(|route| {
                route.back_end.estimate(&ModelCall { model: route.id.model.clone(), ..call.clone() })
            })
            .fold(CostEstimate::ZERO, |all, one| all.combine(one, MicroUsd::max))
    }

    fn would_queue(&self, pool: WorkerPool) -> bool {
        let mut able =
            self.routes().filter(|route| route.back_end.missing_requirement().is_none()).peekable();
        able.peek().is_some() && able.all(|route| route.back_end.would_queue(pool))
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}
