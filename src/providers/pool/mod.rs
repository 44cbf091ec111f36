//! Several models behind one name: who is asked, who next, and when somebody is waited for.
//!
//! The first list is asked before the second, and a call begins with the first again however the last one ended. What a
//! failure means for the next model is decided by its kind alone. Which accounts are used up and which models asked not
//! to be asked is known below, for every pool at once; nobody there is sent anything. Waits end well before the call's
//! time does: who would have to wait longer is told when to come back.

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

/// A wait up to this is sat out by asking the same model again; for a longer one another is asked.
const POOL_SITS_OUT: Duration = Duration::from_secs(60);

pub(super) struct ModelPool {
    name: String,
    /// The primary ones, and those to fall back on.
    lists: [PoolList; 2],
    retry: Retry,
    breakers: Arc<CircuitBreakers>,
    clock: SharedClock,
}

pub(super) struct PoolList {
    members: Vec<PoolMember>,
    /// Whose turn it is, where they take turns.
    turn: Option<AtomicUsize>,
}

/// A model as the settings name it.
pub(super) struct PoolMember {
    pub(super) spec: String,
    /// Or why it cannot be one.
    pub(super) route: Result<ModelRoute, String>,
}

pub(super) struct ModelRoute {
    pub(super) id: ModelId,
    pub(super) back_end: Arc<dyn Provider>,
    /// The side of the table it is never asked on, and why.
    pub(super) unfit: Option<(CallRole, &'static str)>,
    /// Where the strategy goes by it: the lower, the earlier.
    pub(super) rank: u64,
    /// What it gets of a call's time while others are left.
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

    /// The places in the order in which they are asked now.
    fn order(&self) -> impl Iterator<Item = usize> {
        let (first, count) =
            (self.turn.as_ref().map_or(0, |turn| turn.load(Ordering::Relaxed)), self.members.len());
        (0..count).map(move |at| (first + at) % count)
    }

    /// The member at this place has had its turn.
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
        let mut course = PoolAttempts::new(self, call);
        loop {
            let seat = match course.next_candidate(self.clock.now()) {
                Some(seat) => seat,
                None => match course.next_cooled(self.clock.now()) {
                    Some((until, seat)) if self.wait_until(until, cancel).await => seat,
                    Some(_) => return Err(course.cancelled_error()),
                    None => return Err(course.exhausted_error(&self.name, self.clock.now())),
                },
            };
            self.lists[seat.list].advance_turn(seat.at);
            let error = match self.call_candidate(&mut course, seat, cancel).await {
                Some(Ok(reply)) => return Ok(course.finish_reply(reply)),
                Some(Err(error)) => error,
                None => continue,
            };
            if !error.kind.another_may_answer() {
                return Err(course.final_error(error));
            }
            if let Some(until) = self.handle_failure(&mut course, seat, error).await
                && !self.wait_until(until, cancel).await
            {
                return Err(course.cancelled_error());
            }
        }
    }

    /// None: it failed again and again, and is left alone for now.
    async fn call_candidate(
        &self,
        course: &mut PoolAttempts<'_>,
        seat: PoolCandidate<'_>,
        cancel: &CancellationToken,
    ) -> Option<Result<ModelReply, CallError>> {
        let now = self.clock.now();
        let call = course.candidate_call(now, seat);
        // By way of a pool: what the back end itself tries within a call may be known to fail by another name.
        let route = format!("pool {}", seat.route.id);
        if let Err(until) = self.breakers.admit(&route, now, call.deadline).await {
            course.skip(format!(
                "{}: skipped, it failed again and again; it is tried again at {until}",
                seat.route.id
            ));
            return None;
        }
        let outcome = seat.route.back_end.call(&call, cancel).await;
        let kind = breakers::recordable_failure(&call, &outcome);
        self.breakers.record(&route, self.clock.now(), kind).await;
        Some(outcome)
    }

    /// Notes a failure and what follows from it for the others. Some: until then is waited, for the same model.
    async fn handle_failure<'a>(
        &self,
        course: &mut PoolAttempts<'a>,
        seat: PoolCandidate<'a>,
        error: CallError,
    ) -> Option<Timestamp> {
        let now = self.clock.now();
        let (kind, provider) = (error.kind.clone(), error.usage.provider.clone());
        let most = seat.route.back_end.estimate(&course.candidate_call(now, seat)).most.0;
        let sent = course.record_failure(error, most);
        match kind {
            CallErrorKind::Quota { reset } => {
                if sent {
                    course.prefer_fallback();
                }
                let until = now.plus(reset.unwrap_or(limits::QUOTA_COOLDOWN));
                course.add_cooling(until, seat, true);
            }
            CallErrorKind::RateLimited { reset } => {
                let seat = PoolCandidate { limited: seat.limited + u32::from(sent), ..seat };
                let wait = reset.unwrap_or_else(|| self.retry.wait_after(seat.limited));
                let until = now.plus(wait);
                let short = reset.is_none_or(|reset| reset <= POOL_SITS_OUT);
                if sent && short && seat.limited <= self.retry.same_model && course.may_wait(until) {
                    course.requeue(seat);
                    return Some(until);
                }
                if reset.is_none() {
                    let model = CooldownTarget::Model { provider: &provider, model: &seat.route.id.model };
                    self.breakers.start_cooldown(model, now, Some(wait)).await;
                }
                course.add_cooling(until, seat, false);
            }
            _ => {}
        }
        None
    }

    /// Did the time come, and not the end of the call?
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

    /// No call pays two of them more than the dearest may cost: what one was paid is gone from the budget of the next.
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
