//! A step that waits for a model or for money: what people see of it meanwhile, and how it goes on.

use serde::{Deserialize, Serialize};

use super::{At, STAGE, State, gates::unpause, look, show};
use crate::{
    engine::{Next, Step, StepError},
    messages::{self, State as Shown},
    rounds::{self, Capped, Cx, NoAnswer, Pending, Resumed, Round, Urgency, need},
};

/// Why the run goes on only once there is money for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Paused {
    /// Before this step, and there it goes on.
    pub(super) before: At,
    pub(super) capped: Capped,
    /// The comment that says so.
    pub(super) url: Option<String>,
}

/// The step could not have its answer. One that is waited for leaves the round as it was `before`.
pub(super) async fn unanswered(
    s: &mut State,
    cx: &Cx,
    at: At,
    before: Round,
    why: NoAnswer,
) -> Result<Next<At>, StepError> {
    match why {
        NoAnswer::Step(error) => Err(error),
        NoAnswer::Capped(capped) => {
            s.round.pause(before);
            s.paused = Some(Paused { before: at, capped, url: None });
            Ok(Next::Go(At::Budget))
        }
        NoAnswer::Held(held) => {
            s.round.hold(before, held);
            still(s, cx, at).await.map(|next| next.unwrap_or_else(|| again(cx)))
        }
    }
}

/// What the step waits for before it calls its model, if it does.
pub(super) async fn still(s: &mut State, cx: &Cx, at: At) -> Result<Option<Next<At>>, StepError> {
    match s.round.pending(cx, &s.status) {
        Pending::Nothing => Ok(None),
        Pending::Mended(held) => {
            let key = format!("{}-over", held.key());
            show::turn_as(s, cx, &key, at, Shown::Working, messages::WORKING).await?;
            Ok(Some(again(cx)))
        }
        Pending::Wait { held, until, tell } => {
            if tell && held.parked() {
                show::turn_as(s, cx, &held.key(), at, Shown::Parked, messages::NEEDS_YOU).await?;
            } else if tell {
                let shown = show::status(s, cx, at, Shown::Working).await?;
                s.status.show(cx, &held.key(), &shown, Urgency::Turning).await?;
            }
            if tell {
                s.round.told();
            }
            Ok(Some(Next::Wait { until, why: held.view().sentence() }))
        }
    }
}

/// What was shown is kept before the journal goes on.
fn again(cx: &Cx) -> Next<At> {
    Next::Wait { until: cx.clock().now(), why: "going on".to_owned() }
}

/// Waits until somebody raises the cap that is used up, or a shared one begins anew.
pub(super) async fn budget(s: &mut State, cx: &Cx) -> Result<Next<At>, StepError> {
    look(s, cx).await?;
    let policy = need(&s.policy)?.clone();
    let Paused { before, capped, .. } = need(&s.paused)?.clone();
    match rounds::resume(cx, STAGE, &capped, &policy).await? {
        Resumed::GoOn => {
            unpause(s, cx).await?;
            s.paused = None;
            Ok(Next::Go(before))
        }
        Resumed::Refused(gate) => Ok(Next::Ask(gate)),
        Resumed::Unheard => {
            let at_step = format!("{} {}", before.id(), before.title());
            let (url, gate) = rounds::pause(cx, STAGE, at_step, &capped, &policy).await?;
            s.paused = Some(Paused { before, capped, url: Some(url) });
            show::turn(s, cx, At::Budget, Shown::NeedsYou, messages::NEEDS_YOU).await?;
            Ok(Next::Ask(gate))
        }
    }
}
