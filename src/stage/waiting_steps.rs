//! A step that waits for a model or for money: what people see of it meanwhile, and how it goes on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{StageState, StepResult, StepVisit, still_wanted, views};
use crate::{
    commands::HOTFIX,
    engine::{RunTrigger, StepError, StepInfo, StepKind},
    messages::RunDisplayState as Shown,
    rounds::{
        self, BudgetShortfall, CallWaitAction, ResumeDecision, Round, StatusUrgency, StepContext,
        UnansweredCall, need,
    },
};

/// An emergency is over by the next day, and so is what was waived for it.
const WAIVER: Duration = Duration::from_secs(24 * 3600);

/// The calls of a stage that can lack an answer. The serde names are those of the steps that make them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageCall {
    Draft,
    Review,
    /// What the issue leaves to a person.
    #[serde(rename = "Conflicts")]
    Questions,
    /// Tests of the reviewer's model against the code.
    Attack,
}

impl StageCall {
    /// The workflow's step that makes the call.
    pub(super) fn step(self, v: &StepVisit<'_>) -> Option<StepInfo> {
        let steps = v.doc.about().steps;
        let of_kind = |kind| steps.iter().find(|step| step.kind == kind);
        let found = match self {
            Self::Draft => of_kind(StepKind::Draft),
            Self::Review | Self::Attack => of_kind(StepKind::Review),
            Self::Questions => steps.iter().take_while(|step| step.kind != StepKind::Draft).last(),
        };
        found.copied()
    }
}

/// Why the run goes on only once there is money for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BudgetPause {
    /// Before this call, and there it goes on.
    pub(super) before: StageCall,
    /// The step that makes it, where several may.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    at: String,
    pub(super) capped: BudgetShortfall,
    /// The comment that says so.
    pub(super) url: Option<String>,
}

impl BudgetPause {
    /// The step that it is paused before.
    pub(super) fn step(&self, v: &StepVisit<'_>) -> Option<StepInfo> {
        let steps = v.doc.about().steps;
        steps.into_iter().find(|step| step.id == self.at).or_else(|| self.before.step(v))
    }
}

/// The step could not have its answer. One that is waited for leaves the round as it was `before`.
pub(super) async fn unanswered(
    s: &mut StageState,
    v: &StepVisit<'_>,
    call: StageCall,
    before: Round,
    why: UnansweredCall,
) -> Result<StepResult, StepError> {
    match why {
        UnansweredCall::Step(error) => Err(error),
        UnansweredCall::Capped(capped) => {
            s.round.pause(before);
            s.paused = Some(BudgetPause { before: call, at: v.at.id.to_owned(), capped, url: None });
            Ok(StepResult::Money)
        }
        UnansweredCall::Running => {
            s.round = before;
            let until = v.cx.clock().now().plus(rounds::COMMAND_LOOK);
            Ok(StepResult::Wait { until, why: "a command runs".to_owned() })
        }
        UnansweredCall::Held(held) => {
            s.round.hold(before, held);
            still(s, v).await.map(|exit| exit.unwrap_or_else(|| again(v.cx)))
        }
    }
}

/// What the step waits for before it calls its model, if it does.
pub(super) async fn still(s: &mut StageState, v: &StepVisit<'_>) -> Result<Option<StepResult>, StepError> {
    let cx = v.cx;
    match s.round.pending(cx, &s.status) {
        CallWaitAction::Nothing => Ok(None),
        CallWaitAction::Mended(held) => {
            let key = format!("{}-over", held.key());
            views::turn_as(s, v, &key, Shown::Working).await?;
            Ok(Some(again(cx)))
        }
        CallWaitAction::Wait { held, until, tell } => {
            if tell && held.parked() {
                views::turn_as(s, v, &held.key(), Shown::Parked).await?;
            } else if tell {
                let shown = views::status(s, v, Shown::Working).await?;
                s.status.show(cx, &held.key(), &shown, StatusUrgency::Turning).await?;
            }
            if tell {
                s.round.told();
            }
            Ok(Some(StepResult::Wait { until, why: held.view().sentence() }))
        }
    }
}

/// What was shown is kept before the journal goes on.
pub(super) fn again(cx: &StepContext) -> StepResult {
    StepResult::Wait { until: cx.clock().now(), why: "going on".to_owned() }
}

/// Waits until somebody raises the cap that is used up, or a shared one begins anew.
pub async fn budget(s: &mut StageState, v: &StepVisit<'_>) -> Result<StepResult, StepError> {
    let cx = v.cx;
    let stage = v.doc.about().stage;
    still_wanted(s, cx).await?;
    let policy = need(&s.policy)?.clone();
    let paused = need(&s.paused)?.clone();
    let BudgetPause { before, capped, .. } = &paused;
    match rounds::resume(cx, stage, capped, &policy).await? {
        ResumeDecision::GoOn => {
            s.paused = None;
            Ok(StepResult::Resume(*before))
        }
        ResumeDecision::Refused(gate) => Ok(StepResult::Ask(gate)),
        ResumeDecision::Unheard => {
            let at_step = paused.step(v).map(|step| step.title.to_owned()).unwrap_or_default();
            let (url, gate) = rounds::pause(cx, stage, at_step, capped, &policy).await?;
            s.paused = Some(BudgetPause { url: Some(url), ..paused });
            views::turn(s, v, Shown::NeedsYou).await?;
            Ok(StepResult::Ask(gate))
        }
    }
}

/// Whoever waived people's approval of documents by starting this run, and why.
pub(super) fn waived(cx: &StepContext) -> Option<(&str, &str)> {
    let RunTrigger { command, args, actor, .. } = &cx.run().trigger;
    (command == HOTFIX).then_some((&actor.login, args))
}

/// Was it waived too long ago?
pub(super) fn waiver_is_over(cx: &StepContext) -> bool {
    waived(cx).is_some() && cx.clock().now().since(cx.run().trigger.at) > WAIVER
}
