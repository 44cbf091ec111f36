//! One call's way through a pool: who is still to be asked, what was tried, and what it all comes to.

use std::collections::VecDeque;

use super::{ModelPool, ModelRoute};
use crate::{
    providers::{CallAttempt, CallError, CallErrorKind, CallRole, ModelCall, ModelReply, Usage, quote_text},
    types::Timestamp,
};

/// Models of a pool that one call is asked of: the three and the two of the usual one.
const POOL_ATTEMPTS: u32 = 5;

/// A member in this call.
#[derive(Clone, Copy)]
pub(super) struct PoolCandidate<'a> {
    pub(super) route: &'a ModelRoute,
    pub(super) list: usize,
    /// Its place in the list.
    pub(super) at: usize,
    /// How often it said, when asked, that it was asked too often.
    pub(super) limited: u32,
}

/// One that can be asked from then on.
struct CoolingCandidate<'a> {
    until: Timestamp,
    seat: PoolCandidate<'a>,
    used_up: bool,
}

pub(super) struct PoolAttempts<'a> {
    call: &'a ModelCall,
    ends: Timestamp,
    /// No wait goes beyond: an answer takes its time, too.
    waits_end: Timestamp,
    queue: VecDeque<PoolCandidate<'a>>,
    cooling: Vec<CoolingCandidate<'a>>,
    /// The requests that were made, in order.
    before: Vec<CallAttempt>,
    /// Those that were not asked, with the reason.
    passed: Vec<String>,
    /// What the last of those needs, if it is more than time.
    needs: Option<CallErrorKind>,
    asked: u32,
    waited: u32,
    /// What is left of the call's.
    budget: Option<u64>,
}

impl<'a> PoolAttempts<'a> {
    pub(super) fn new(pool: &'a ModelPool, call: &'a ModelCall) -> Self {
        let now = pool.clock.now();
        let mut course = Self {
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
                match course.check_route(member.route.as_ref()) {
                    Ok(route) => course.queue.push_back(PoolCandidate { route, list, at, limited: 0 }),
                    Err(why) => course.passed.push(format!("{}: skipped, {why}", member.spec)),
                }
            }
        }
        course
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
                    format!("the {family} family had a hand in what it would look at")
                }
            });
        }
        if let Some(what) = route.back_end.missing_requirement() {
            self.needs = Some(CallErrorKind::Auth);
            return Err(what);
        }
        Ok(route)
    }

    /// Who is asked now, if anybody is.
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

    /// With nobody else left to ask: the first who can be asked again, if that is soon enough. What is used up is not
    /// back in a moment.
    pub(super) fn next_cooled(&mut self, now: Timestamp) -> Option<(Timestamp, PoolCandidate<'a>)> {
        let short = (0..self.cooling.len()).filter(|at| !self.cooling[*at].used_up);
        let soonest = short.min_by_key(|at| self.cooling[*at].until)?;
        // The last bound is for a clock that does not move.
        let late = now >= self.ends || !self.may_wait(self.cooling[soonest].until);
        if late || self.waited >= POOL_ATTEMPTS {
            return None;
        }
        self.waited += 1;
        let CoolingCandidate { until, seat, .. } = self.cooling.remove(soonest);
        Some((until, seat))
    }

    pub(super) fn may_wait(&self, until: Timestamp) -> bool {
        self.asked < POOL_ATTEMPTS && until <= self.waits_end
    }

    /// The call as the one is asked it who was just taken out of the queue.
    pub(super) fn candidate_call(&self, now: Timestamp, seat: PoolCandidate<'_>) -> ModelCall {
        let left = self.ends.since(now);
        let deadline = if self.queue.is_empty() { left } else { left.min((seat.route.turn)()) };
        ModelCall { model: seat.route.id.model.clone(), deadline, budget: self.budget, ..self.call.clone() }
    }

    pub(super) fn finish_reply(self, mut reply: ModelReply) -> ModelReply {
        let own = std::mem::take(&mut reply.earlier_attempts);
        reply.earlier_attempts = self.before.into_iter().chain(own).collect();
        reply
    }

    /// Keeps a failure in mind, of an attempt that could cost `most`. Was anything sent at all?
    pub(super) fn record_failure(&mut self, mut error: CallError, most: u64) -> bool {
        let mut attempts = std::mem::take(&mut error.earlier_attempts);
        let kind = error.kind.clone();
        attempts.push(CallAttempt::from_error(error));
        let paid = attempts.iter().fold(0_u64, |sum, attempt| sum.saturating_add(attempt.max_billed(most)));
        self.budget = self.budget.map(|budget| budget.saturating_sub(paid));
        // Waiting for a place on this machine is no part of a call's time.
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

    /// It is left alone for now.
    pub(super) fn skip(&mut self, why: String) {
        self.passed.push(why);
        self.needs = None;
    }

    /// Whose account is used up speaks for its list: the other one first, from now on.
    pub(super) fn prefer_fallback(&mut self) {
        self.queue.make_contiguous().sort_by_key(|seat| std::cmp::Reverse(seat.list));
    }

    /// The same one is asked next.
    pub(super) fn requeue(&mut self, seat: PoolCandidate<'a>) {
        self.queue.push_front(seat);
    }

    pub(super) fn add_cooling(&mut self, until: Timestamp, seat: PoolCandidate<'a>, used_up: bool) {
        self.cooling.push(CoolingCandidate { until, seat, used_up });
    }

    pub(super) fn cancelled_error(self) -> CallError {
        let error = CallError::new(CallErrorKind::Cancelled, "cancelled", Usage::for_model(&self.call.model));
        CallError { earlier_attempts: self.before, ..error }
    }

    /// Nobody else is asked after this one.
    pub(super) fn final_error(self, error: CallError) -> CallError {
        let before = self.before.into_iter().chain(error.earlier_attempts).collect();
        CallError { earlier_attempts: before, ..error }
    }

    /// One error that names everything tried and everybody skipped. What the caller does next is decided by whoever may
    /// be asked again the soonest, if anybody may.
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

/// Is it over by itself?
fn is_transient(kind: &CallErrorKind) -> bool {
    matches!(
        kind,
        CallErrorKind::Capacity
            | CallErrorKind::Unavailable
            | CallErrorKind::RateLimited { .. }
            | CallErrorKind::Quota { .. }
    )
}
