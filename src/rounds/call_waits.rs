//! A call that has to wait: its model is busy, used up, refuses us, or there is nothing to ask it with.
//!
//! The run sleeps and says why on the issue; it neither fails nor holds a worker. What it waits for is kept in its
//! state, so that a look whether the wait is over asks neither GitHub nor a model. What a call came to stays in the
//! visit's journal, and the visit counts its waits: an attempt that reads the journal back passes over as many failures
//! as were waited for, whatever the clock says.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Round, StatusComment, StepContext, budget::BudgetShortfall, model_calls::BudgetedCallResult};
use crate::{
    engine::StepError,
    messages::{ModelWait, ModelWaitReason},
    providers::CallRole,
    types::{Timestamp, WorkerPool},
};

/// Between two looks whether a model that could not be asked can be asked now: that asks nobody, and whoever has just
/// put in the key looks whether it helped.
const PARKED_CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// A run that waits for a place in a crowd looks again after this: a call takes a minute or more, and a place stands
/// empty no longer than that only when all who stood in line had theirs.
const SLOT_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Why a call came to nothing that leaves by an edge.
#[derive(Debug)]
pub enum UnansweredCall {
    /// It has to be made again later.
    Waiting(CallWait),
    /// A command that its model asked for goes on beside the steps.
    CommandRunning,
    /// A cap keeps it from being paid for.
    OverBudget(BudgetShortfall),
    Step(StepError),
}

impl From<StepError> for UnansweredCall {
    fn from(error: StepError) -> Self {
        Self::Step(error)
    }
}

/// What a run waits for before it asks a model again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallWait {
    hold: ModelWaitReason,
    role: String,
    spec: String,
    /// When the model is asked again; of what lacks, when it is looked at again.
    until: Timestamp,
    /// The visit that waits, and the ordinal of this wait among its waits.
    visit: u64,
    number: u32,
    /// The start of the server that saw it: a later one may have other keys.
    boot: i64,
    /// Where its place is, if that is what it waits for.
    #[serde(default)]
    workers: WorkerPool,
    shown: bool,
}

/// How a wait stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallWaitState {
    /// To be looked at again then.
    Until(Timestamp),
    /// Over because its time has come.
    Due,
    /// Over because somebody did something about it.
    Resolved,
}

/// What a step that calls a model does first.
pub enum CallWaitAction {
    /// Makes the call.
    Proceed,
    /// Tells people that what they were asked to do has been done, then makes the call.
    AnnounceResolved(CallWait),
    /// Waits, and tells people of it where they do not know.
    Wait { held: CallWait, until: Timestamp, tell: bool },
}

impl CallWait {
    /// Does it take the operator, or very long?
    pub fn is_parked(&self) -> bool {
        self.to_view().needs_operator()
    }

    pub fn to_view(&self) -> ModelWait {
        let Self { hold, until, .. } = *self;
        ModelWait { reason: hold, role: self.role.clone(), spec: self.spec.clone(), until }
    }

    /// Names what is written about it in the visit's journal.
    pub fn journal_key(&self) -> String {
        format!("held-{}", self.number)
    }

    /// Looks whether it still has to be waited for. Asks nobody.
    fn wait_state(&self, cx: &StepContext) -> CallWaitState {
        let now = cx.clock().now();
        if self.visit != cx.visit() {
            return CallWaitState::Resolved; // somebody wants it tried again
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

/// What a run waits for, and how often its visit has waited.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct VisitWaits {
    held: Option<CallWait>,
    visit: u64,
    /// Waits of that visit which are over.
    over: u32,
    /// Failures that this attempt has met so far.
    #[serde(skip)]
    met: u32,
    /// What this visit was answered, and the one before it where that came to a pause for money: a pause ends the visit,
    /// and its journal with it.
    #[serde(default)]
    bought: Vec<(String, BudgetedCallResult)>,
}

impl VisitWaits {
    /// An answer that was paid for before the pause.
    pub(super) fn stored_answer(&self, key: &str) -> Option<BudgetedCallResult> {
        self.bought.iter().find(|(known, _)| known == key).map(|(_, answered)| answered.clone())
    }

    pub(super) fn store_answer(&mut self, key: &str, answered: &BudgetedCallResult) {
        self.bought.push((key.to_owned(), answered.clone()));
    }

    /// The turn is over, and what it was answered is in the round.
    pub(super) fn clear_answers(&mut self) {
        self.bought.clear();
    }

    /// Goes on where this failure was waited for.
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

    /// Not yet: others stand in line already. Nothing was asked and so nothing failed that would be passed over later.
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

    /// Nothing was bought, so nothing moved: the round is as it was `before`, but for what it waits for.
    pub fn start_call_wait(&mut self, before: Self, held: CallWait) {
        *self = before;
        self.waits.held = Some(held);
    }

    /// What the round waits for now, with a status comment that stands as it does. Asks nobody: a run may wait for
    /// weeks, and others with it. A short wait is told of only when the comment may be edited again.
    pub fn next_wait_action(&mut self, cx: &StepContext, status: &StatusComment) -> CallWaitAction {
        let Some(held) = self.waits.held.clone() else { return CallWaitAction::Proceed };
        let until = match held.wait_state(cx) {
            CallWaitState::Until(until) => until,
            over => {
                self.end_call_wait();
                // Of a call that is made because its time has come, people read what it came to.
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

    /// A cap came before the next call: the round is as it was `before`, but for what was paid for already.
    pub fn reset_keeping_answers(&mut self, before: Self) {
        let bought = std::mem::take(&mut self.waits.bought);
        *self = before;
        self.waits.bought = bought;
    }

    /// People were told of the wait.
    pub fn mark_wait_announced(&mut self) {
        if let Some(held) = &mut self.waits.held {
            held.shown = true;
        }
    }

    /// The wait is over.
    fn end_call_wait(&mut self) {
        if let Some(held) = self.waits.held.take() {
            (self.waits.visit, self.waits.over) = (held.visit, held.number);
        }
    }
}
