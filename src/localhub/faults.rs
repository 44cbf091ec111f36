//! Faults that can be injected into localhub, only through its Rust API.

use std::{sync::Arc, time::Duration};

use super::{Hub, lock, model::HubState};
use crate::types::{Oid, RepoId, Timestamp};

/// A fault that affects API requests. A fault with `times` affects that many matching requests. Other faults last until
/// [`Hub::clear_faults`] is called or until the time that they contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubFault {
    /// The request takes effect, but the response is replaced by a 502.
    AnswerBadGatewayAfter { method: String, path_contains: String, times: u32 },
    /// The request fails with this status and has no effect.
    Status { method: String, path_contains: String, status: u16, times: u32 },
    /// The request fails with 422 and GitHub's list of validation errors, and has no effect.
    Unprocessable { method: String, path_contains: String, field: String, code: String, times: u32 },
    /// The request fails with this status and message, and has no effect.
    Refused { method: String, path_contains: String, status: u16, message: &'static str, times: u32 },
    /// The GraphQL mutation with this name fails with the given type, if any, and has no effect. Other mutations in the
    /// request succeed.
    Mutation { name: &'static str, kind: Option<&'static str>, message: &'static str, times: u32 },
    /// The secondary rate limit: the request fails with 403 and `Retry-After`, and has no effect.
    SecondaryLimit { method: String, path_contains: String, retry_after: Duration, times: u32 },
    /// The secondary limit on creating content (80 writes a minute on GitHub). If an installation makes more than
    /// `most` writes during `within`, further writes are refused as in `SecondaryLimit`. `lately` contains the times of
    /// recent writes and must start empty.
    FastWrites { most: usize, within: Duration, lately: Vec<Timestamp> },
    /// The connection is closed without a response. If `after_effect` is true, the request takes effect first;
    /// otherwise it has no effect.
    Drop { method: String, path_contains: String, after_effect: bool, times: u32 },
    /// The response is delayed by this duration in real time, by at most a few seconds.
    Slow { method: String, path_contains: String, by: Duration, times: u32 },
    /// The primary rate limit: until this time, all requests of an installation fail with 403 or 429.
    PrimaryLimit { status: u16, until: Timestamp },
    /// Reads of matching paths return 404 until this time, as GitHub's do briefly after an event.
    HiddenUntil { path_contains: String, until: Timestamp },
    /// Reads of issues, comments, labels, branches, checks and pull requests return the state as it was this long ago.
    ReadsLag { by: Duration },
}

/// Maximum delay caused by `Slow`, which is shorter than a client's timeout.
const MAX_SLOWDOWN: Duration = Duration::from_secs(5);

/// Effect of a fault on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FaultEffect {
    LoseAnswer,
    Status(u16),
    Unprocessable { field: String, code: String },
    Refused { status: u16, message: &'static str },
    RetryAfter(Duration),
    PrimaryLimit { status: u16, until: Timestamp },
    Drop { after_effect: bool },
    Slow(Duration),
    Lag(Duration),
}

/// A copy of the state that was current until `until`, when a change replaced it.
pub(super) struct HubSnapshot {
    until: Timestamp,
    pub(super) state: HubState,
    refs: Vec<(RepoId, String, Oid)>,
}

impl HubSnapshot {
    pub(super) fn branch(&self, repo: RepoId, name: &str) -> Option<&Oid> {
        self.refs.iter().find(|(r, n, _)| *r == repo && n == name).map(|(_, _, oid)| oid)
    }
}

/// Properties of a request against which faults are matched.
pub(super) struct FaultTarget<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// Whether the request carries an installation token.
    pub(super) installation: bool,
    pub(super) now: Timestamp,
}

impl Hub {
    /// Injects a fault. If several faults match a request, the one injected first is used up first.
    pub fn arm_fault(&self, fault: HubFault) {
        lock(&self.0.faults).push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        lock(&self.0.faults).clear();
        lock(&self.0.moments).clear();
    }

    /// Revokes all tokens issued so far.
    pub fn expire_tokens(&self) -> Result<(), super::HubError> {
        self.change(|c| {
            c.state.tokens.clear();
            Ok(())
        })
    }

    pub(super) fn next_fault_effect(&self, request: &FaultTarget<'_>) -> Option<FaultEffect> {
        lock(&self.0.faults).iter_mut().find_map(|fault| fault.effect_on(request))
    }

    /// Returns the error type and message if this mutation should fail; otherwise `None`.
    pub(super) fn mutation_fault(&self, called: &str) -> Option<(Option<&'static str>, &'static str)> {
        lock(&self.0.faults).iter_mut().find_map(|fault| match fault {
            HubFault::Mutation { name, kind, message, times } if *name == called && *times > 0 => {
                *times -= 1;
                Some((*kind, *message))
            }
            _ => None,
        })
    }

    /// Saves a copy of the current state before a change, if a `ReadsLag` fault is active.
    pub(super) fn keep_snapshot(&self, state: &HubState) {
        let lag = lock(&self.0.faults).iter().find_map(|fault| match fault {
            HubFault::ReadsLag { by } => Some(*by),
            _ => None,
        });
        let Some(lag) = lag else { return };
        let branches = |id: &RepoId| {
            let id = *id;
            self.0.git(id).branches().into_iter().map(move |(name, oid)| (id, name, oid))
        };
        let refs = state.repositories.keys().flat_map(branches).collect();
        let now = (self.0.now)();
        let mut moments = lock(&self.0.moments);
        moments.retain(|moment| now.since(moment.until) < lag);
        moments.push(Arc::new(HubSnapshot { until: now, state: state.clone(), refs }));
    }

    /// Returns the state that a read lagging by `lag` sees; `None` if nothing has changed within that time.
    pub(super) fn lagged_snapshot(&self, lag: Duration) -> Option<Arc<HubSnapshot>> {
        let (now, moments) = ((self.0.now)(), lock(&self.0.moments));
        moments.iter().find(|moment| now.since(moment.until) < lag).cloned()
    }
}

impl HubFault {
    fn effect_on(&mut self, on: &FaultTarget<'_>) -> Option<FaultEffect> {
        let (method, part, times, hit) = match self {
            Self::AnswerBadGatewayAfter { method, path_contains, times } => {
                (method, path_contains, times, FaultEffect::LoseAnswer)
            }
            Self::Status { method, path_contains, status, times } => {
                (method, path_contains, times, FaultEffect::Status(*status))
            }
            Self::Unprocessable { method, path_contains, field, code, times } => {
                let (field, code) = (field.clone(), code.clone());
                (method, path_contains, times, FaultEffect::Unprocessable { field, code })
            }
            Self::Refused { method, path_contains, status, message, times } => {
                (method, path_contains, times, FaultEffect::Refused { status: *status, message })
            }
            Self::Mutation { .. } => return None,
            Self::SecondaryLimit { method, path_contains, retry_after, times } => {
                (method, path_contains, times, FaultEffect::RetryAfter(*retry_after))
            }
            Self::Drop { method, path_contains, after_effect, times } => {
                (method, path_contains, times, FaultEffect::Drop { after_effect: *after_effect })
            }
            Self::Slow { method, path_contains, by, times } => {
                (method, path_contains, times, FaultEffect::Slow((*by).min(MAX_SLOWDOWN)))
            }
            Self::FastWrites { most, within, lately } => {
                if !on.installation || on.method == "GET" {
                    return None;
                }
                lately.retain(|at| on.now.since(*at) < *within);
                if lately.len() < *most {
                    lately.push(on.now);
                    return None;
                }
                let wait = within.saturating_sub(on.now.since(lately[0]));
                return Some(FaultEffect::RetryAfter(wait + Duration::from_secs(1)));
            }
            Self::PrimaryLimit { status, until } => {
                let hit = FaultEffect::PrimaryLimit { status: *status, until: *until };
                return (on.installation && on.now < *until).then_some(hit);
            }
            Self::HiddenUntil { path_contains, until } => {
                let hidden = on.method == "GET" && on.path.contains(path_contains.as_str());
                return (hidden && on.now < *until).then_some(FaultEffect::Status(404));
            }
            Self::ReadsLag { by } => return (on.method == "GET").then_some(FaultEffect::Lag(*by)),
        };
        let meant = method.eq_ignore_ascii_case(on.method) && on.path.contains(part.as_str()) && *times > 0;
        meant.then(|| {
            *times -= 1;
            hit
        })
    }
}
