//! Decides how long a failed call is retried, by our clock.
//!
//! A service that is busy, broken or slow is retried for at least [`limits::MODEL_RETRY_WINDOW`] and with at least
//! three requests. The first wait is the service's retry-after time, or half a minute. Each later wait is at least
//! twice the previous one, even if the service names a shorter time. Failures that only time or the operator can end
//! (exhausted quota, refused or missing key) are retried without limit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    limits,
    messages::{FailureKind, ModelWaitReason},
    providers::{CallError, CallErrorKind},
    types::Timestamp,
};

/// Minimum number of requests before a call is given up, even if server downtime or slow responses used up the retry
/// window.
const LEAST_REQUESTS: u32 = 3;

/// Number of timed-out, possibly billed requests after which a call is given up.
const PAID_TIMEOUTS: u32 = 2;

const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// First wait after a key or login was refused, which rarely resolves by itself.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(600);

const MEGABYTE: u64 = 1 << 20;

/// Reason why a call has no response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallFailure {
    pub kind: FailureKind,
    /// Time of the next request. `None` if waiting does not help.
    pub not_before: Option<Timestamp>,
    /// Time of the failure. Missing in older journals, which have only `not_before`.
    #[serde(default)]
    at: Option<Timestamp>,
    /// Whether a request of the call timed out and may have been billed.
    #[serde(default)]
    held: bool,
    /// Number of tokens in the partial response.
    #[serde(default)]
    tokens: u64,
}

impl From<FailureKind> for CallFailure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, not_before: None, at: None, held: false, tokens: 0 }
    }
}

impl CallFailure {
    /// Converts an error of a call, which occurred at `now`, to a failure. `last` is the previous failure of the same
    /// call.
    pub(super) fn from_error(error: &CallError, last: Option<&Self>, now: Timestamp) -> Self {
        let kind = failure_kind(error);
        let held = timed_out_billable(error);
        let tokens = error.usage.output_tokens;
        let failure = Self { at: Some(now), held, tokens, ..Self::from(kind) };
        let named = match error.kind {
            CallErrorKind::RateLimited { reset } | CallErrorKind::Quota { reset } => reset,
            _ => None,
        };
        let wait = match failure.wait_reason() {
            None => return failure,
            Some(ModelWaitReason::UsedUp) => {
                let reset = named.unwrap_or(limits::QUOTA_COOLDOWN);
                reset.clamp(limits::SHORTEST_COOLDOWN, limits::LONGEST_COOLDOWN)
            }
            Some(hold) => {
                let first = if hold == ModelWaitReason::Refused { REFUSED_RETRY_DELAY } else { FIRST_WAIT };
                let same = last.filter(|last| last.is_transient() == failure.is_transient());
                let doubled = same.and_then(Self::wait_duration).unwrap_or_default().saturating_mul(2);
                let wait = named.or(doubled.is_zero().then_some(first)).unwrap_or_default();
                wait.max(doubled).clamp(limits::SHORTEST_COOLDOWN, LONGEST_WAIT)
            }
        };
        Self { not_before: Some(now.plus(wait)), ..failure }
    }

    /// Returns the rejection reason to include in the next prompt; `None` if asking the model again would not help.
    pub(super) fn prompt_reason(&self) -> Option<String> {
        match (&self.kind, self.tokens) {
            (FailureKind::Truncated, 0) => Some("the answer was cut off; it has to be shorter".to_owned()),
            (FailureKind::Truncated, tokens) => {
                Some(format!("the answer was cut off at {tokens} tokens; it has to be shorter"))
            }
            (FailureKind::Invalid, _) => Some("the answer was not in the form asked for".to_owned()),
            _ => None,
        }
    }

    /// Returns the reason why the call waits for a retry; `None` if it does not wait.
    pub(super) fn wait_reason(&self) -> Option<ModelWaitReason> {
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

    /// Whether the failure is transient: the service is expected to recover soon by itself.
    fn is_transient(&self) -> bool {
        matches!(
            self.wait_reason(),
            Some(ModelWaitReason::Busy | ModelWaitReason::Unavailable | ModelWaitReason::Slow)
        )
    }

    fn wait_duration(&self) -> Option<Duration> {
        Some(self.not_before?.since(self.at?))
    }
}

#[derive(Debug, Default)]
pub(super) struct CallRetries {
    last: Option<CallFailure>,
    /// Start of the current series of transient failures. `requests` is the number of failures in the series.
    since: Option<Timestamp>,
    requests: u32,
    paid_timeouts: u32,
}

impl CallRetries {
    pub(super) fn last_failure(&self) -> Option<&CallFailure> {
        self.last.as_ref()
    }

    /// Records a failure. Returns whether the call should be given up.
    pub(super) fn record_failure(&mut self, failure: &CallFailure) -> bool {
        self.last = Some(failure.clone());
        self.paid_timeouts += u32::from(failure.held);
        let at = failure.at.or(failure.not_before);
        let Some(at) = at.filter(|_| failure.is_transient()) else {
            (self.since, self.requests) = (None, 0);
            return failure.wait_reason().is_some() && self.paid_timeouts >= PAID_TIMEOUTS;
        };
        self.requests += 1;
        let waited = at.since(*self.since.get_or_insert(at));
        let long = waited >= limits::MODEL_RETRY_WINDOW && self.requests >= LEAST_REQUESTS;
        long || self.paid_timeouts >= PAID_TIMEOUTS
    }
}

/// Whether any request of the call timed out and may have been billed.
fn timed_out_billable(error: &CallError) -> bool {
    let legs = error
        .earlier_attempts
        .iter()
        .map(|leg| (&leg.kind, &leg.usage))
        .chain([(&error.kind, &*error.usage)]);
    legs.into_iter()
        .any(|(kind, usage)| matches!(kind, CallErrorKind::Timeout { .. }) && usage.may_cost_more())
}

fn failure_kind(error: &CallError) -> FailureKind {
    match &error.kind {
        CallErrorKind::Capacity | CallErrorKind::RateLimited { .. } => FailureKind::Busy,
        // The caller handles a cancelled call before this.
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
        CallError { kind, message: String::new(), usage: Box::default(), earlier_attempts: Vec::new() }
    }

    fn timeout_error(billed: bool, metered: Metering) -> CallError {
        let usage = Usage { metered, billed, input_tokens: 7, ..Usage::default() };
        let kind = CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };
        CallError { usage: Box::new(usage), ..error(kind) }
    }

    fn rate_limited(seconds: u64) -> CallErrorKind {
        CallErrorKind::RateLimited { reset: Some(Duration::from_secs(seconds)) }
    }

    /// Returns the seconds from the first failure to each retry. The service fails with each of `kinds` in turn.
    fn request_times(kinds: &[CallErrorKind], took: u64) -> Vec<u64> {
        let (mut patience, mut now, mut all) = (CallRetries::default(), Timestamp(0), Vec::new());
        for kind in kinds.iter().cycle().take(100) {
            let failure = CallFailure::from_error(&error(kind.clone()), patience.last_failure(), now);
            let next = failure.not_before.unwrap();
            // Round-trip through JSON, as after a restart.
            let failure: CallFailure =
                serde_json::from_str(&serde_json::to_string(&failure).unwrap()).unwrap();
            if patience.record_failure(&failure) {
                break;
            }
            all.push(u64::try_from(next.0 / 1000).unwrap());
            now = next.plus(Duration::from_secs(took));
        }
        all
    }

    #[test]
    fn call_to_an_overloaded_model_service_is_retried_for_fifteen_minutes() {
        let usual = [30, 90, 210, 450, 930];
        assert_eq!(request_times(&[CallErrorKind::Capacity], 0), usual);
        assert_eq!(request_times(&[CallErrorKind::Unavailable, CallErrorKind::Capacity], 0), usual);
        assert_eq!(request_times(&[CallErrorKind::RateLimited { reset: None }], 0), usual);
        let short = request_times(&[rate_limited(2)], 0);
        assert_eq!(short, [2, 6, 14, 30, 62, 126, 254, 510, 1022], "a repeated header doubles the wait");
        assert_eq!(request_times(&[rate_limited(2), rate_limited(3)], 0), short);
        assert!(request_times(&[rate_limited(0)], 0).len() < 20, "a zero wait is still counted");
        assert_eq!(
            request_times(&[rate_limited(1), rate_limited(60)], 0)[1],
            61,
            "a longer retry-after is respected"
        );
        assert_eq!(request_times(&[rate_limited(7200)], 0), [3600, 7200], "three requests at least");
        let slow = CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO };
        assert_eq!(request_times(&[slow], 480).len(), 2, "slow requests use up the window");
    }

    #[test]
    fn quota_and_key_failures_are_retried_without_limit() {
        for kind in [CallErrorKind::Quota { reset: None }, CallErrorKind::Auth] {
            assert_eq!(request_times(&[kind], 0).len(), 100);
        }
        let often = request_times(&[CallErrorKind::Capacity, CallErrorKind::Quota { reset: None }], 0);
        assert_eq!(often.len(), 100, "a quota failure resets the series");
    }

    #[test]
    fn failures_stored_by_an_older_version_count_towards_the_retry_limit() {
        let old = |not_before: i64| -> CallFailure {
            serde_json::from_value(serde_json::json!({"kind": "busy", "not_before": not_before})).unwrap()
        };
        let mut patience = CallRetries::default();
        let ends = [30_000, 90_000, 930_000].map(|at| patience.record_failure(&old(at)));
        assert_eq!(ends, [false, false, true]);
    }

    #[test]
    fn timed_out_call_is_retried_once_if_billable_and_more_often_if_free() {
        let first = |leg: CallError| {
            let before = vec![CallAttempt { kind: leg.kind, message: leg.message, usage: *leg.usage }];
            CallError { earlier_attempts: before, ..error(CallErrorKind::Unavailable) }
        };
        for (error, held) in [
            (timeout_error(true, Metering::Unknown), true),
            (timeout_error(false, Metering::Unknown), false),
            (first(timeout_error(true, Metering::Unknown)), true),
            (first(timeout_error(false, Metering::Unknown)), false),
        ] {
            assert_eq!(timed_out_billable(&error), held, "{error:?}");
        }
        let failure = |error: &CallError| CallFailure::from_error(error, None, Timestamp(0));
        let paid = failure(&timeout_error(true, Metering::Unknown));
        let free = failure(&timeout_error(false, Metering::Unknown));
        let busy = failure(&error(CallErrorKind::Capacity));
        let used_up = CallErrorKind::Quota { reset: None };
        let quota = failure(&CallError { kind: used_up, ..first(timeout_error(true, Metering::Unknown)) });
        for (failures, ends) in [
            (vec![&paid, &paid], true),
            (vec![&paid, &busy, &busy], false),
            (vec![&free; 5], false),
            (vec![&quota, &quota], true),
        ] {
            let mut patience = CallRetries::default();
            let ended = failures.iter().any(|failure| patience.record_failure(failure));
            assert_eq!(ended, ends, "{failures:?}");
        }
    }
}
