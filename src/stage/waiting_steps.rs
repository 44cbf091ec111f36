//! Steps that wait for a model or for budget: displaying the wait and resuming the step.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{StageState, StepResult, StepVisit, require_still_wanted, views};
use crate::{
    commands::HOTFIX,
    engine::{RunTrigger, StepError, StepInfo, StepKind},
    messages::RunDisplayState as Shown,
    rounds::{
        self, BudgetShortfall, CallWaitAction, ResumeDecision, Round, StatusUrgency, StepContext,
        UnansweredCall, require_state,
    },
};

/// Validity period of a `/hotfix` waiver. One day is enough, because an emergency is over by then.
const WAIVER_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Model calls of a stage that may have to wait. The serde name of each call is that of the step that makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageCall {
    Draft,
    Review,
    /// The call that asks a model for open questions about the issue.
    #[serde(rename = "Conflicts")]
    Questions,
    /// The call that asks the reviewer's model for adversarial tests.
    Attack,
}

impl StageCall {
    /// Returns the workflow's step that makes the call.
    pub(super) fn workflow_step(self, v: &StepVisit<'_>) -> Option<StepInfo> {
        let steps = v.doc.info().steps;
        let of_kind = |kind| steps.iter().find(|step| step.kind == kind);
        let found = match self {
            Self::Draft => of_kind(StepKind::Draft),
            Self::Review | Self::Attack => of_kind(StepKind::Review),
            Self::Questions => steps.iter().take_while(|step| step.kind != StepKind::Draft).last(),
        };
        found.copied()
    }
}

/// A pause of the run until budget is available.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BudgetPause {
    /// The call that the run was about to make when it paused, and that it makes when it resumes.
    pub(super) before: StageCall,
    /// ID of the step that makes the call. Empty if only one step can make the call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    at: String,
    pub(super) capped: BudgetShortfall,
    /// URL of the comment about the pause.
    pub(super) url: Option<String>,
}

impl BudgetPause {
    /// Returns the step that the run was about to execute when it paused.
    pub(super) fn paused_step(&self, v: &StepVisit<'_>) -> Option<StepInfo> {
        let steps = v.doc.info().steps;
        steps.into_iter().find(|step| step.id == self.at).or_else(|| self.before.workflow_step(v))
    }
}

/// Handles a call for which the model gave no response. If the run has to wait, restores the round to `before`, its
/// state before the call.
pub(super) async fn handle_no_answer(
    s: &mut StageState,
    v: &StepVisit<'_>,
    call: StageCall,
    before: Round,
    why: UnansweredCall,
) -> Result<StepResult, StepError> {
    match why {
        UnansweredCall::Step(error) => Err(error),
        UnansweredCall::OverBudget(capped) => {
            s.round.reset_keeping_answers(before);
            s.paused = Some(BudgetPause { before: call, at: v.at.id.to_owned(), capped, url: None });
            Ok(StepResult::OutOfBudget)
        }
        UnansweredCall::CommandRunning => {
            s.round = before;
            let until = v.cx.clock().now().plus(rounds::COMMAND_POLL_INTERVAL);
            Ok(StepResult::Wait { until, why: "a command is running".to_owned() })
        }
        UnansweredCall::Waiting(held) => {
            s.round.start_call_wait(before, held);
            check_pending_wait(s, v).await.map(|exit| exit.unwrap_or_else(|| retry_at_once(v.cx)))
        }
    }
}

/// Returns the step's pending wait if it is not over yet. In that case the step does not call its model.
pub(super) async fn check_pending_wait(
    s: &mut StageState,
    v: &StepVisit<'_>,
) -> Result<Option<StepResult>, StepError> {
    let cx = v.cx;
    match s.round.next_wait_action(cx, &s.status) {
        CallWaitAction::Proceed => Ok(None),
        CallWaitAction::AnnounceResolved(held) => {
            let key = format!("{}-over", held.journal_key());
            views::show_state_as(s, v, &key, Shown::Working).await?;
            Ok(Some(retry_at_once(cx)))
        }
        CallWaitAction::Wait { held, until, tell } => {
            if tell && held.is_parked() {
                views::show_state_as(s, v, &held.journal_key(), Shown::Parked).await?;
            } else if tell {
                let shown = views::status_body(s, v, Shown::Working).await?;
                s.status.show(cx, &held.journal_key(), &shown, StatusUrgency::TurningPoint).await?;
            }
            if tell {
                s.round.mark_wait_announced();
            }
            Ok(Some(StepResult::Wait { until, why: held.to_view().sentence() }))
        }
    }
}

/// Returns a result that saves the state and immediately runs the step again.
pub(super) fn retry_at_once(cx: &StepContext) -> StepResult {
    StepResult::Wait { until: cx.clock().now(), why: "continuing".to_owned() }
}

/// Waits until somebody raises the exhausted limit, or until a new period of a shared limit starts.
pub async fn wait_for_budget(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let stage = v.doc.info().stage;
    require_still_wanted(s, cx).await?;
    let policy = require_state(&s.policy)?.clone();
    let paused = require_state(&s.paused)?.clone();
    let BudgetPause { before, capped, .. } = &paused;
    match rounds::resume_from_budget_pause(cx, stage, capped, &policy).await? {
        ResumeDecision::Continue => {
            s.paused = None;
            Ok(StepResult::Resume(*before))
        }
        ResumeDecision::Refused(gate) => Ok(StepResult::Ask(gate)),
        ResumeDecision::NotAnnounced => {
            let at_step = paused.paused_step(v).map(|step| step.title.to_owned()).unwrap_or_default();
            let (url, gate) = rounds::pause_for_budget(cx, stage, at_step, capped, &policy).await?;
            s.paused = Some(BudgetPause { url: Some(url), ..paused });
            views::show_state(s, v, Shown::NeedsYou).await?;
            Ok(StepResult::Ask(gate))
        }
    }
}

/// Returns the person who waived the approval of the documents by `/hotfix`, and the reason.
pub(super) fn hotfix_waiver(cx: &StepContext) -> Option<(&str, &str)> {
    let RunTrigger { command, args, actor, .. } = &cx.run().trigger;
    (command == HOTFIX).then_some((&actor.login, args))
}

pub(super) fn is_waiver_expired(cx: &StepContext) -> bool {
    hotfix_waiver(cx).is_some() && cx.clock().now().since(cx.run().trigger.at) > WAIVER_LIFETIME
}
