//! Attempts of one call to a pool: the queue of members, the failures so far, and the final error.

use std::collections::VecDeque;

use super::{ModelPool, ModelRoute};
use crate::{
    providers::{CallAttempt, CallError, CallErrorKind, CallRole, ModelCall, ModelReply, Usage, quote_text},
    types::Timestamp,
};

/// Maximum number of attempts per call: enough for the 3 primary and 2 fallback models of the default pool.
const POOL_ATTEMPTS: u32 = 5;

/// A pool member as a candidate of one call.
#[derive(Clone, Copy)]
pub(super) struct PoolCandidate<'a> {
    pub(super) route: &'a ModelRoute,
    pub(super) list: usize,
    /// Index of the member in its list.
    pub(super) at: usize,
    /// Number of times that the member was rate limited in this call.
    pub(super) limited: u32,
}

/// A member that is in cooldown and can be retried at `until`.
struct CoolingCandidate<'a> {
    until: Timestamp,
    candidate: PoolCandidate<'a>,
    used_up: bool,
}

pub(super) struct PoolAttempts<'a> {
    call: &'a ModelCall,
    ends: Timestamp,
    /// Time at which all waits must be over, so that enough time remains for a response.
    waits_end: Timestamp,
    queue: VecDeque<PoolCandidate<'a>>,
    cooling: Vec<CoolingCandidate<'a>>,
    /// Failed requests, in order.
    before: Vec<CallAttempt>,
    /// Skipped members, each with the reason.
    passed: Vec<String>,
    /// Failure of the last skipped member, unless the failure will pass with time.
    needs: Option<CallErrorKind>,
    asked: u32,
    waited: u32,
    /// Remaining budget of the call.
    budget: Option<u64>,
}

impl<'a> PoolAttempts<'a> {
    pub(super) fn new(pool: &'a ModelPool, call: &'a ModelCall) -> Self {
        let now = pool.clock.now();
        let mut attempts = Self {
            call,
            ends: now.plus(call.deadline),
            waits_end: now.plus(call.deadline / 2),
            queue: VecDeque::new(),
            cooling: Vec::new(),
            before: Vec::new(),
            passed: Vec::new(),
            needs: None,
            asked: 0,
            waited: 0,
            budget: call.budget,
        };
        for (list, members) in pool.lists.iter().enumerate() {
            for at in members.order() {
                let member = &members.members[at];
                match attempts.check_route(member.route.as_ref()) {
                    Ok(route) => attempts.queue.push_back(PoolCandidate { route, list, at, limited: 0 }),
                    Err(why) => attempts.passed.push(format!("{}: skipped, {why}", member.spec)),
                }
            }
        }
        attempts
    }

    fn check_route(&mut self, route: Result<&'a ModelRoute, &String>) -> Result<&'a ModelRoute, String> {
        let route = route.map_err(Clone::clone)?;
        route.check_role(self.call.role)?;
        if let Some(family) =
            route.id.family.as_ref().filter(|family| self.call.excluded_families.contains(family))
        {
            return Err(match self.call.role {
                CallRole::Drafter => format!("the {family} family is left to review"),
                CallRole::Reviewer | CallRole::Router | CallRole::Narrator => {
                    format!("the {family} family contributed to what it would review")
                }
            });
        }
        if let Some(what) = route.back_end.missing_requirement() {
            self.needs = Some(CallErrorKind::Auth);
            return Err(what);
        }
        Ok(route)
    }

    /// Takes the next member from the queue. Returns `None` if the queue is empty or the call's time is used up.
    pub(super) fn next_candidate(&mut self, now: Timestamp) -> Option<PoolCandidate<'a>> {
        if self.asked >= POOL_ATTEMPTS {
            return None;
        }
        if now >= self.ends {
            if !self.queue.is_empty() {
                self.passed.push("no time is left for others".to_owned());
                self.queue.clear();
            }
            return None;
        }
        self.queue.pop_front()
    }

    /// If the queue is empty, returns the member whose cooldown ends first, if the call may wait that long. Members
    /// with an exhausted account are excluded, because they do not recover within a call.
    pub(super) fn next_cooled(&mut self, now: Timestamp) -> Option<(Timestamp, PoolCandidate<'a>)> {
        let short = (0..self.cooling.len()).filter(|at| !self.cooling[*at].used_up);
        let soonest = short.min_by_key(|at| self.cooling[*at].until)?;
        // The limit on waits ends the loop even if the clock does not move.
        let late = now >= self.ends || !self.may_wait(self.cooling[soonest].until);
        if late || self.waited >= POOL_ATTEMPTS {
            return None;
        }
        self.waited += 1;
        let CoolingCandidate { until, candidate, .. } = self.cooling.remove(soonest);
        Some((until, candidate))
    }

    pub(super) fn may_wait(&self, until: Timestamp) -> bool {
        self.asked < POOL_ATTEMPTS && until <= self.waits_end
    }

    /// Builds the call to this member, which the caller has just taken from the queue.
    pub(super) fn candidate_call(&self, now: Timestamp, candidate: PoolCandidate<'_>) -> ModelCall {
        let left = self.ends.since(now);
        let deadline = if self.queue.is_empty() { left } else { left.min((candidate.route.turn)()) };
        ModelCall {
            model: candidate.route.id.model.clone(),
            deadline,
            budget: self.budget,
            ..self.call.clone()
        }
    }

    pub(super) fn finish_reply(self, mut reply: ModelReply) -> ModelReply {
        let own = std::mem::take(&mut reply.earlier_attempts);
        reply.earlier_attempts = self.before.into_iter().chain(own).collect();
        reply
    }

    /// Records a failed attempt, whose maximum cost was `most`. Returns whether a request was sent.
    pub(super) fn record_failure(&mut self, mut error: CallError, most: u64) -> bool {
        let mut attempts = std::mem::take(&mut error.earlier_attempts);
        let kind = error.kind.clone();
        attempts.push(CallAttempt::from_error(error));
        let paid = attempts.iter().fold(0_u64, |sum, attempt| sum.saturating_add(attempt.max_billed(most)));
        self.budget = self.budget.map(|budget| budget.saturating_sub(paid));
        // Queueing for a worker slot does not count towards the deadline.
        let queued = attempts.iter().map(|attempt| attempt.usage.queued).sum();
        (self.ends, self.waits_end) = (self.ends.plus(queued), self.waits_end.plus(queued));
        let sent = attempts.iter().any(|attempt| attempt.usage.attempts > 0);
        if sent {
            self.asked += 1;
            self.before.extend(attempts);
        } else {
            self.passed.extend(attempts.into_iter().map(|attempt| attempt.message));
            if !is_transient(&kind) {
                self.needs = Some(kind);
            }
        }
        sent
    }

    /// Records a member that is skipped because of its breaker.
    pub(super) fn skip(&mut self, why: String) {
        self.passed.push(why);
        self.needs = None;
    }

    /// Moves the members of the fallback list to the front of the queue. Used after a primary account is exhausted.
    pub(super) fn prefer_fallback(&mut self) {
        self.queue.make_contiguous().sort_by_key(|candidate| std::cmp::Reverse(candidate.list));
    }

    /// Puts the member at the front of the queue.
    pub(super) fn requeue(&mut self, candidate: PoolCandidate<'a>) {
        self.queue.push_front(candidate);
    }

    pub(super) fn add_cooling(&mut self, until: Timestamp, candidate: PoolCandidate<'a>, used_up: bool) {
        self.cooling.push(CoolingCandidate { until, candidate, used_up });
    }

    pub(super) fn cancelled_error(self) -> CallError {
        let error = CallError::new(CallErrorKind::Cancelled, "cancelled", Usage::for_model(&self.call.model));
        CallError { earlier_attempts: self.before, ..error }
    }

    /// Completes `error` with the earlier failed attempts, and ends the call without trying other members.
    pub(super) fn final_error(self, error: CallError) -> CallError {
        let before = self.before.into_iter().chain(error.earlier_attempts).collect();
        CallError { earlier_attempts: before, ..error }
    }

    /// Returns one error that names all failed and skipped members. It has the kind of the failure after which a retry
    /// is possible soonest. If no failure allows a retry, it has the kind of the last failure.
    pub(super) fn exhausted_error(mut self, pool: &str, now: Timestamp) -> CallError {
        let tried = self.before.iter().map(|CallAttempt { kind, message, usage }| {
            format!("{}:{} {kind:?}: {}", usage.provider, usage.asked, quote_text(message))
        });
        let all: Vec<_> = tried.chain(self.passed.iter().map(|why| quote_text(why))).collect();
        let message = format!("pool:{pool}: nobody answered: {}", all.join("; "));

        let last = |of: fn(&CallErrorKind) -> bool| self.before.iter().rposition(|attempt| of(&attempt.kind));
        let soon = last(|kind| matches!(kind, CallErrorKind::Capacity | CallErrorKind::Unavailable));
        let (speaker, kind) = match (soon, self.cooling.iter().min_by_key(|cooling| cooling.until)) {
            (Some(at), _) => (Some(at), self.before[at].kind.clone()),
            (None, Some(cooling)) => {
                let reset = Some(cooling.until.since(now));
                let limited = |kind: &CallErrorKind| {
                    matches!(kind, CallErrorKind::RateLimited { .. } | CallErrorKind::Quota { .. })
                };
                let kind = match cooling.used_up {
                    true => CallErrorKind::Quota { reset },
                    false => CallErrorKind::RateLimited { reset },
                };
                (last(limited), kind)
            }
            (None, None) => match self.before.last() {
                Some(attempt) => (Some(self.before.len() - 1), attempt.kind.clone()),
                None => (None, self.needs.take().unwrap_or(CallErrorKind::Unavailable)),
            },
        };
        let usage = match speaker {
            Some(at) => self.before.remove(at).usage,
            None => Usage::for_model(&self.call.model),
        };
        CallError { earlier_attempts: self.before, ..CallError::new(kind, message, usage) }
    }
}

/// Whether the failure will pass with time.
fn is_transient(kind: &CallErrorKind) -> bool {
    matches!(
        kind,
        CallErrorKind::Capacity
            | CallErrorKind::Unavailable
            | CallErrorKind::RateLimited { .. }
            | CallErrorKind::Quota { .. }
    )
}
