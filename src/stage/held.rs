//! A step that waits for a model or for money: what people see of it meanwhile, and how it goes on.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Exit, Stage, Visit, show, still_wanted};
use crate::{
    commands::HOTFIX,
    engine::{Kind, StepError, StepInfo, Trigger},
    messages::State as Shown,
    rounds::{self, Capped, Cx, NoAnswer, Pending, Resumed, Round, Urgency, need},
};

/// An emergency is over by the next day, and so is what was waived for it.
const WAIVER: Duration = Duration::from_secs(24 * 3600);

/// The calls of a stage that can lack an answer. The serde names are those of the steps that make them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Before {
    Draft,
    Review,
    /// What the issue leaves to a person.
    #[serde(rename = "Conflicts")]
    Questions,
    /// Tests of the reviewer's model against the code.
    Attack,
}

impl Before {
    /// The workflow's step that makes the call.
    pub(super) fn step(self, v: &Visit<'_>) -> Option<StepInfo> {
        let steps = v.doc.about().steps;
        let of_kind = |kind| steps.iter().find(|step| step.kind == kind);
        let found = match self {
            Self::Draft => of_kind(Kind::Draft),
            Self::Review | Self::Attack => of_kind(Kind::Review),
            Self::Questions => steps.iter().take_while(|step| step.kind != Kind::Draft).last(),
        };
        found.copied()
    }
}

/// Why the run goes on only once there is money for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Paused {
    /// Before this call, and there it goes on.
    pub(super) before: Before,
    /// The step that makes it, where several may.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    at: String,
    pub(super) capped: Capped,
    /// The comment that says so.
    pub(super) url: Option<String>,
}

impl Paused {
    /// The step that it is paused before.
    pub(super) fn step(&self, v: &Visit<'_>) -> Option<StepInfo> {
        let steps = v.doc.about().steps;
        steps.into_iter().find(|step| step.id == self.at).or_else(|| self.before.step(v))
    }
}

/// The step could not have its answer. One that is waited for leaves the round as it was `before`.
pub(super) async fn unanswered(
    s: &mut Stage,
    v: &Visit<'_>,
    call: Before,
    before: Round,
    why: NoAnswer,
) -> Result<Exit, StepError> {
    match why {
        NoAnswer::Step(error) => Err(error),
        NoAnswer::Capped(capped) => {
            s.round.pause(before);
            s.paused = Some(Paused { before: call, at: v.at.id.to_owned(), capped, url: None });
            Ok(Exit::Money)
        }
        NoAnswer::Running => {
            s.round = before;
            let until = v.cx.clock().now().plus(rounds::COMMAND_LOOK);
            Ok(Exit::Wait { until, why: "a command runs".to_owned() })
        }
        NoAnswer::Held(held) => {
            s.round.hold(before, held);
            still(s, v).await.map(|exit| exit.unwrap_or_else(|| again(v.cx)))
        }
    }
}

/// What the step waits for before it calls its model, if it does.
pub(super) async fn still(s: &mut Stage, v: &Visit<'_>) -> Result<Option<Exit>, StepError> {
    let cx = v.cx;
    match s.round.pending(cx, &s.status) {
        Pending::Nothing => Ok(None),
        Pending::Mended(held) => {
            let key = format!("{}-over", held.key());
            show::turn_as(s, v, &key, Shown::Working).await?;
            Ok(Some(again(cx)))
        }
        Pending::Wait { held, until, tell } => {
            if tell && held.parked() {
                show::turn_as(s, v, &held.key(), Shown::Parked).await?;
            } else if tell {
                let shown = show::status(s, v, Shown::Working).await?;
                s.status.show(cx, &held.key(), &shown, Urgency::Turning).await?;
            }
            if tell {
                s.round.told();
            }
            Ok(Some(Exit::Wait { until, why: held.view().sentence() }))
        }
    }
}

/// What was shown is kept before the journal goes on.
pub(super) fn again(cx: &Cx) -> Exit {
    Exit::Wait { until: cx.clock().now(), why: "going on".to_owned() }
}

/// Waits until somebody raises the cap that is used up, or a shared one begins anew.
pub async fn budget(s: &mut Stage, v: &Visit<'_>) -> Result<Exit, StepError> {
    let cx = v.cx;
    let stage = v.doc.about().stage;
    still_wanted(s, cx).await?;
    let policy = need(&s.policy)?.clone();
    let paused = need(&s.paused)?.clone();
    let Paused { before, capped, .. } = &paused;
    match rounds::resume(cx, stage, capped, &policy).await? {
        Resumed::GoOn => {
            s.paused = None;
            Ok(Exit::Resume(*before))
        }
        Resumed::Refused(gate) => Ok(Exit::Ask(gate)),
        Resumed::Unheard => {
            let at_step = paused.step(v).map(|step| step.title.to_owned()).unwrap_or_default();
            let (url, gate) = rounds::pause(cx, stage, at_step, capped, &policy).await?;
            s.paused = Some(Paused { url: Some(url), ..paused });
            show::turn(s, v, Shown::NeedsYou).await?;
            Ok(Exit::Ask(gate))
        }
    }
}

/// Whoever waived people's approval of documents by starting this run, and why.
pub(super) fn waived(cx: &Cx) -> Option<(&str, &str)> {
    let Trigger { command, args, actor, .. } = &cx.run().trigger;
    (command == HOTFIX).then_some((&actor.login, args))
}

/// Was it waived too long ago?
pub(super) fn waiver_is_over(cx: &Cx) -> bool {
    waived(cx).is_some() && cx.clock().now().since(cx.run().trigger.at) > WAIVER
}
