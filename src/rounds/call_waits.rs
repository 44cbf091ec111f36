//! Calls that have to wait, because the model is busy, out of quota or refuses access, or because its key or program is
//! missing.
//!
//! Meanwhile the run sleeps and the issue shows the reason; the run does not fail and holds no worker. The wait is
//! stored in the run's state, so checking it calls neither GitHub nor a model. Failures stay in the visit's journal,
//! and the visit counts its waits. A later attempt replays the journal and skips one recorded failure per finished
//! wait, independent of the clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Round, StatusComment, StepContext, budget::BudgetShortfall, model_calls::BudgetedCallResult};
use crate::{
    engine::StepError,
    messages::{ModelWait, ModelWaitReason},
    providers::CallRole,
    types::{Timestamp, WorkerPool},
};

/// Interval between checks of a parked call. It is short for two reasons: a check sends no request, and an operator who
/// has just set the key expects the call to continue.
const PARKED_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Interval between checks for a free worker slot. It is also the longest time that a slot stays unused while runs wait
/// for one. A call takes a minute or more.
const SLOT_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Reason why a call has no result that the workflow could process.
#[derive(Debug)]
pub enum UnansweredCall {
    /// The call must be retried later.
    Waiting(CallWait),
    /// A command that the model requested is running as a job.
    CommandRunning,
    /// A budget cap prevents the call.
    OverBudget(BudgetShortfall),
    Step(StepError),
}

impl From<StepError> for UnansweredCall {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

/// A pending wait before the next call to a model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallWait {
    hold: ModelWaitReason,
    role: String,
    spec: String,
    /// Time of the next call. If a requirement is missing, time of the next check for it.
    until: Timestamp,
    /// Number of the visit that waits. `number` counts the waits of this visit.
    visit: u64,
    number: u32,
    /// Boot epoch of the server process that saw the failure. A restart may change keys.
    boot: i64,
    /// Worker pool whose slot the run waits for.
    #[serde(default)]
    workers: WorkerPool,
    shown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallWaitState {
    /// The wait is not over and must be checked again at this time.
    Until(Timestamp),
    /// The wait is over, because its time has passed.
    Due,
    /// The wait is over, because somebody fixed the cause.
    Resolved,
}

/// Action that a step must take before it calls a model.
pub enum CallWaitAction {
    /// The step makes the call at once.
    Proceed,
    /// The step tells people that the cause of the wait is fixed, and then makes the call.
    AnnounceResolved(CallWait),
    /// The step waits until the given time. If `tell` is true, it also announces the wait, because people do not know
    /// of it yet.
    Wait { held: CallWait, until: Timestamp, tell: bool },
}

impl CallWait {
    /// Whether the call is parked: its wait needs the operator or takes very long.
    pub fn is_parked(&self) -> bool {
        self.to_view().needs_operator()
    }

    pub fn to_view(&self) -> ModelWait {
        let Self { hold, until, .. } = *self;
        ModelWait { reason: hold, role: self.role.clone(), spec: self.spec.clone(), until }
    }

    /// Returns the journal key for comments and other writes about this wait.
    pub fn journal_key(&self) -> String {
        format!("held-{}", self.number)
    }

    /// Checks whether the wait is over, without sending a request.
    fn wait_state(&self, cx: &StepContext) -> CallWaitState {
        let now = cx.clock().now();
        if self.visit != cx.visit() {
            return CallWaitState::Resolved; // a person retried the run
        }
        let look = now.plus(PARKED_CHECK_INTERVAL);
        match self.hold {
            ModelWaitReason::Lacking if cx.tools().providers.missing_requirement(&self.spec).is_some() => {
                CallWaitState::Until(look)
            }
            ModelWaitReason::Lacking => CallWaitState::Resolved,
            ModelWaitReason::Crowded if cx.tools().providers.would_queue(&self.spec, self.workers) => {
                CallWaitState::Until(now.plus(SLOT_CHECK_INTERVAL))
            }
            ModelWaitReason::Crowded => CallWaitState::Due,
            ModelWaitReason::UsedUp | ModelWaitReason::Refused
                if self.boot != cx.tools().store.boot_epoch() =>
            {
                CallWaitState::Resolved
            }
            _ if now >= self.until => CallWaitState::Due,
            ModelWaitReason::Busy | ModelWaitReason::Unavailable | ModelWaitReason::Slow => {
                CallWaitState::Until(self.until)
            }
            ModelWaitReason::UsedUp | ModelWaitReason::Refused => CallWaitState::Until(self.until.min(look)),
        }
    }
}

/// The current wait of a visit, and the number of waits that have already ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct VisitWaits {
    held: Option<CallWait>,
    visit: u64,
    /// Number of waits that have already ended during the step visit `visit`.
    over: u32,
    /// Number of failures that this attempt has seen so far.
    #[serde(skip)]
    met: u32,
    /// Paid responses of this visit and of the visit before a budget pause. They are kept here because a pause ends the
    /// visit and its journal.
    #[serde(default)]
    bought: Vec<(String, BudgetedCallResult)>,
}

impl VisitWaits {
    /// Returns the response to the question with this key, if the response was paid for before a budget pause.
    pub(super) fn stored_answer(&self, key: &str) -> Option<BudgetedCallResult> {
        self.bought.iter().find(|(known, _)| known == key).map(|(_, answered)| answered.clone())
    }

    pub(super) fn store_answer(&mut self, key: &str, answered: &BudgetedCallResult) {
        self.bought.push((key.to_owned(), answered.clone()));
    }

    /// Drops the stored responses. Called once the results of the responses are part of the round.
    pub(super) fn clear_answers(&mut self) {
        self.bought.clear();
    }

    /// Continues if the visit has already waited because of this failure; otherwise starts a wait.
    pub(super) fn wait_after_failure(
        &mut self,
        cx: &StepContext,
        ask: (CallRole, &str),
        hold: ModelWaitReason,
        until: Option<Timestamp>,
    ) -> Result<(), UnansweredCall> {
        self.met += 1;
        if self.visit == cx.visit() && self.met <= self.over {
            return Ok(());
        }
        let until = until.unwrap_or_else(|| cx.clock().now().plus(PARKED_CHECK_INTERVAL));
        Err(UnansweredCall::Waiting(self.new_wait(cx, ask, hold, until)))
    }

    /// Starts a wait for a worker slot, because other calls are already queueing. No request was sent, so no failure is
    /// counted.
    pub(super) fn wait_for_slot(
        &self,
        cx: &StepContext,
        ask: (CallRole, &str),
        workers: WorkerPool,
    ) -> UnansweredCall {
        let until = cx.clock().now().plus(SLOT_CHECK_INTERVAL);
        UnansweredCall::Waiting(CallWait {
            workers,
            ..self.new_wait(cx, ask, ModelWaitReason::Crowded, until)
        })
    }

    fn new_wait(
        &self,
        cx: &StepContext,
        (role, spec): (CallRole, &str),
        hold: ModelWaitReason,
        until: Timestamp,
    ) -> CallWait {
        CallWait {
            hold,
            role: role.to_string(),
            spec: spec.to_owned(),
            until,
            visit: cx.visit(),
            number: self.met,
            boot: cx.tools().store.boot_epoch(),
            workers: WorkerPool::default(),
            shown: false,
        }
    }
}

impl Round {
    pub fn held(&self) -> Option<&CallWait> {
        self.waits.held.as_ref()
    }

    /// Restores the round to its state `before` the step and adds the wait.
    pub fn start_call_wait(&mut self, before: Self, held: CallWait) {
        *self = before;
        self.waits.held = Some(held);
    }

    /// Returns the action that the step must take about the current wait. Sends no request, because many runs may wait
    /// for weeks. A short wait is announced only once the status comment may be edited again.
    pub fn next_wait_action(&mut self, cx: &StepContext, status: &StatusComment) -> CallWaitAction {
        let Some(held) = self.waits.held.clone() else { return CallWaitAction::Proceed };
        let until = match held.wait_state(cx) {
            CallWaitState::Until(until) => until,
            over => {
                self.end_call_wait();
                // After a wait that ended by time, people read the call's result instead.
                let told = over == CallWaitState::Resolved && held.is_parked() && held.shown;
                return if told { CallWaitAction::AnnounceResolved(held) } else { CallWaitAction::Proceed };
            }
        };
        let rests = status.next_edit_at().filter(|rests| !held.is_parked() && *rests > cx.clock().now());
        match rests {
            _ if held.shown => CallWaitAction::Wait { held, until, tell: false },
            Some(rests) => CallWaitAction::Wait { held, until: until.min(rests), tell: false },
            None => CallWaitAction::Wait { held, until, tell: true },
        }
    }

    /// Restores the round to its state `before` the step but keeps paid responses. Used when a cap prevents the next
    /// call.
    pub fn reset_keeping_answers(&mut self, before: Self) {
        let bought = std::mem::take(&mut self.waits.bought);
        *self = before;
        self.waits.bought = bought;
    }

    /// Records that people have been told about the wait.
    pub fn mark_wait_announced(&mut self) {
        if let Some(held) = &mut self.waits.held {
            held.shown = true;
        }
    }

    fn end_call_wait(&mut self) {
        if let Some(held) = self.waits.held.take() {
            (self.waits.visit, self.waits.over) = (held.visit, held.number);
        }
    }
}
