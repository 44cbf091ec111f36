//! The one rule for how long a failed call is retried, by our clock.
//!
//! A service that is busy, broken or slow gets at least [`limits::PATIENCE`] and three requests. The first wait is the
//! one that the service names, or half a minute; each later one is at least twice the one before, whatever the service
//! says. What only time or the operator can end (a used-up account, a refused key, a missing one) has no limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    limits,
    messages::{FailureKind, ModelWaitReason},
    providers::{CallError, CallErrorKind},
    types::Timestamp,
};

/// A server that was off for a while, or a model that took long, is still asked this often.
const LEAST_REQUESTS: u32 = 3;

/// A request that timed out and may be billed is made once more, not oftener.
const PAID_TIMEOUTS: u32 = 2;

const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// First wait after a refused key or login, which hardly ever mends itself.
const REFUSED_LOOK: Duration = Duration::from_secs(600);

const MEGABYTE: u64 = 1 << 20;

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallFailure {
    pub kind: FailureKind,
    /// When the next request is worth it, if waiting helps.
    pub not_before: Option<Timestamp>,
    /// When it failed. Journals written before this field have only `not_before`.
    #[serde(default)]
    at: Option<Timestamp>,
    /// It timed out and may be billed.
    #[serde(default)]
    held: bool,
    /// Tokens of the answer, as far as it came.
    #[serde(default)]
    tokens: u64,
}

impl From<FailureKind> for CallFailure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, not_before: None, at: None, held: false, tokens: 0 }
    }
}

impl CallFailure {
    /// Reads an error of a call at `now`. `last` is how the call failed the time before.
    pub(super) fn of(error: &CallError, last: Option<&Self>, now: Timestamp) -> Self {
        let kind = kind(error);
        let held = timed_out_on_a_bill(error);
        let tokens = error.usage.output_tokens;
        let failure = Self { at: Some(now), held, tokens, ..Self::from(kind) };
        let named = match error.kind {
            CallErrorKind::RateLimited { reset } | CallErrorKind::Quota { reset } => reset,
            _ => None,
        };
        let wait = match failure.hold() {
            None => return failure,
            Some(ModelWaitReason::UsedUp) => {
                let reset = named.unwrap_or(limits::QUOTA_COOLDOWN);
                reset.clamp(limits::COOLDOWN_LEAST, limits::COOLDOWN_MOST)
            }
            Some(hold) => {
                let first = if hold == ModelWaitReason::Refused { REFUSED_LOOK } else { FIRST_WAIT };
                let same = last.filter(|last| last.passes() == failure.passes());
                let doubled = same.and_then(Self::wait).unwrap_or_default().saturating_mul(2);
                let wait = named.or(doubled.is_zero().then_some(first)).unwrap_or_default();
                wait.max(doubled).clamp(limits::COOLDOWN_LEAST, LONGEST_WAIT)
            }
        };
        Self { not_before: Some(now.plus(wait)), ..failure }
    }

    /// The reason to put into the next prompt; `None` if asking again would not help.
    pub(super) fn reason(&self) -> Option<String> {
        match (&self.kind, self.tokens) {
            (FailureKind::Truncated, 0) => Some("the answer was cut off; it has to be shorter".to_owned()),
            (FailureKind::Truncated, tokens) => {
                Some(format!("the answer was cut off at {tokens} tokens; it has to be shorter"))
            }
            (FailureKind::Invalid, _) => Some("the answer was not in the form asked for".to_owned()),
            _ => None,
        }
    }

    /// Why the call is made again later, if it is.
    pub(super) fn hold(&self) -> Option<ModelWaitReason> {
        match self.kind {
            FailureKind::Busy => Some(ModelWaitReason::Busy),
            FailureKind::Unavailable => Some(ModelWaitReason::Unavailable),
            FailureKind::UsedUp => Some(ModelWaitReason::UsedUp),
            FailureKind::Auth => Some(ModelWaitReason::Refused),
            FailureKind::Lacking => Some(ModelWaitReason::Lacking),
            FailureKind::TimedOut => Some(ModelWaitReason::Slow),
            _ => None,
        }
    }

    /// Whether the service is expected to recover by itself soon.
    fn passes(&self) -> bool {
        matches!(
            self.hold(),
            Some(ModelWaitReason::Busy | ModelWaitReason::Unavailable | ModelWaitReason::Slow)
        )
    }

    fn wait(&self) -> Option<Duration> {
        Some(self.not_before?.since(self.at?))
    }
}

/// The failures of one call so far.
#[derive(Debug, Default)]
pub(super) struct CallRetries {
    last: Option<CallFailure>,
    /// When the failures began that pass by themselves, and how many there were.
    since: Option<Timestamp>,
    requests: u32,
    paid_timeouts: u32,
}

impl CallRetries {
    pub(super) fn last(&self) -> Option<&CallFailure> {
        self.last.as_ref()
    }

    /// Takes in another failure. Returns whether the call is given up.
    pub(super) fn ends_with(&mut self, failure: &CallFailure) -> bool {
        self.last = Some(failure.clone());
        self.paid_timeouts += u32::from(failure.held);
        let at = failure.at.or(failure.not_before);
        let Some(at) = at.filter(|_| failure.passes()) else {
            (self.since, self.requests) = (None, 0);
            return failure.hold().is_some() && self.paid_timeouts >= PAID_TIMEOUTS;
        };
        self.requests += 1;
        let waited = at.since(*self.since.get_or_insert(at));
        let long = waited >= limits::PATIENCE && self.requests >= LEAST_REQUESTS;
        long || self.paid_timeouts >= PAID_TIMEOUTS
    }
}

/// Whether one of the call's requests timed out and may be billed all the same.
fn timed_out_on_a_bill(error: &CallError) -> bool {
    let legs = error.before.iter().map(|leg| (&leg.kind, &leg.usage)).chain([(&error.kind, &*error.usage)]);
    legs.into_iter()
        .any(|(kind, usage)| matches!(kind, CallErrorKind::Timeout { .. }) && usage.may_cost_more())
}

fn kind(error: &CallError) -> FailureKind {
    match &error.kind {
        CallErrorKind::Capacity | CallErrorKind::RateLimited { .. } => FailureKind::Busy,
        // A stopped call leaves the step before.
        CallErrorKind::Unavailable | CallErrorKind::Cancelled => FailureKind::Unavailable,
        CallErrorKind::Quota { .. } => FailureKind::UsedUp,
        CallErrorKind::Auth => FailureKind::Auth,
        CallErrorKind::Refused => FailureKind::Refused,
        CallErrorKind::Rejected { code } => FailureKind::Rejected { code: code.clone() },
        CallErrorKind::NoSuchModel => FailureKind::NoSuchModel { model: error.usage.asked.clone() },
        CallErrorKind::ResourceExhausted { used, limit, pool } => {
            let (used, limit) = (used.div_ceil(MEGABYTE), limit / MEGABYTE);
            FailureKind::ResourceExhausted { used, limit, pool: *pool }
        }
        CallErrorKind::TooLong => FailureKind::TooLong,
        CallErrorKind::OverBudget { .. } => FailureKind::OverBudget,
        CallErrorKind::Truncated => FailureKind::Truncated,
        CallErrorKind::InvalidOutput => FailureKind::Invalid,
        CallErrorKind::Empty => FailureKind::Empty,
        CallErrorKind::WrongModel { served: Some(served) } => FailureKind::ServedOther {
            provider: error.usage.provider.clone(),
            asked: error.usage.asked.clone(),
            served: served.clone(),
        },
        CallErrorKind::WrongModel { served: None } => FailureKind::OtherModel,
        CallErrorKind::Timeout { .. } => FailureKind::TimedOut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::{CallAttempt, Metering, Usage};

    fn error(kind: CallErrorKind) -> CallError {
        CallError { kind, message: String::new(), usage: Box::default(), before: Vec::new() }
    }

    fn late(billed: bool, metered: Metering) -> CallError {
        let usage = Usage { metered, billed, input_tokens: 7, ..Usage::default() };
        let kind = CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };
        CallError { usage: Box::new(usage), ..error(kind) }
    }

    fn limited(seconds: u64) -> CallErrorKind {
        CallErrorKind::RateLimited { reset: Some(Duration::from_secs(seconds)) }
    }

    /// Seconds from the first failure to each later request, if the service fails like this every time, in turn.
    fn requests(kinds: &[CallErrorKind], took: u64) -> Vec<u64> {
        let (mut patience, mut now, mut all) = (CallRetries::default(), Timestamp(0), Vec::new());
        for kind in kinds.iter().cycle().take(100) {
            let failure = CallFailure::of(&error(kind.clone()), patience.last(), now);
            let next = failure.not_before.unwrap();
            // As after a restart, which reads it from the journal.
            let failure: CallFailure =
                serde_json::from_str(&serde_json::to_string(&failure).unwrap()).unwrap();
            if patience.ends_with(&failure) {
                break;
            }
            all.push(u64::try_from(next.0 / 1000).unwrap());
            now = next.plus(Duration::from_secs(took));
        }
        all
    }

    #[test]
    fn a_busy_service_gets_a_quarter_of_an_hour_whatever_it_says() {
        let usual = [30, 90, 210, 450, 930];
        assert_eq!(requests(&[CallErrorKind::Capacity], 0), usual);
        assert_eq!(requests(&[CallErrorKind::Unavailable, CallErrorKind::Capacity], 0), usual);
        assert_eq!(requests(&[CallErrorKind::RateLimited { reset: None }], 0), usual);
        let short = requests(&[limited(2)], 0);
        assert_eq!(short, [2, 6, 14, 30, 62, 126, 254, 510, 1022], "the same header again doubles the wait");
        assert_eq!(requests(&[limited(2), limited(3)], 0), short);
        assert!(requests(&[limited(0)], 0).len() < 20, "a wait of nothing is one all the same");
        assert_eq!(requests(&[limited(1), limited(60)], 0)[1], 61, "a longer wait is kept");
        assert_eq!(requests(&[limited(7200)], 0), [3600, 7200], "three requests at least");
        let slow = CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };
        assert_eq!(requests(&[slow], 480).len(), 2, "a slow one takes its time itself");
    }

    #[test]
    fn what_only_time_or_the_operator_ends_has_no_limit() {
        for kind in [CallErrorKind::Quota { reset: None }, CallErrorKind::Auth] {
            assert_eq!(requests(&[kind], 0).len(), 100);
        }
        let often = requests(&[CallErrorKind::Capacity, CallErrorKind::Quota { reset: None }], 0);
        assert_eq!(often.len(), 100, "patience begins again after it");
    }

    #[test]
    fn failures_of_an_older_journal_are_counted() {
        let old = |not_before: i64| -> CallFailure {
            serde_json::from_value(serde_json::json!({"kind": "busy", "not_before": not_before})).unwrap()
        };
        let mut patience = CallRetries::default();
        let ends = [30_000, 90_000, 930_000].map(|at| patience.ends_with(&old(at)));
        assert_eq!(ends, [false, false, true]);
    }

    #[test]
    fn a_request_that_may_be_billed_is_made_once_more_and_a_free_one_oftener() {
        let first = |leg: CallError| {
            let before = vec![CallAttempt { kind: leg.kind, message: leg.message, usage: *leg.usage }];
            CallError { before, ..error(CallErrorKind::Unavailable) }
        };
        for (error, held) in [
            (late(true, Metering::Unknown), true),
            (late(false, Metering::Unknown), false),
            (first(late(true, Metering::Unknown)), true),
            (first(late(false, Metering::Unknown)), false),
        ] {
            assert_eq!(timed_out_on_a_bill(&error), held, "{error:?}");
        }
        let failure = |error: &CallError| CallFailure::of(error, None, Timestamp(0));
        let paid = failure(&late(true, Metering::Unknown));
        let free = failure(&late(false, Metering::Unknown));
        let busy = failure(&error(CallErrorKind::Capacity));
        let used_up = CallErrorKind::Quota { reset: None };
        let quota = failure(&CallError { kind: used_up, ..first(late(true, Metering::Unknown)) });
        for (failures, ends) in [
            (vec![&paid, &paid], true),
            (vec![&paid, &busy, &busy], false),
            (vec![&free; 5], false),
            (vec![&quota, &quota], true),
        ] {
            let mut patience = CallRetries::default();
            let ended = failures.iter().any(|failure| patience.ends_with(failure));
            assert_eq!(ended, ends, "{failures:?}");
        }
    }
}
