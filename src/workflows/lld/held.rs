//! A step that waits for a model: what people see of it meanwhile, and how it goes on.

use super::{At, State, pause, show};
use crate::{
    engine::{Next, StepError},
    messages::{self, State as Shown},
    rounds::{Cx, Held, NoAnswer, Round, Urgency, Wait},
};

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
            Ok(pause(s, at, capped))
        }
        NoAnswer::Held(held) => {
            s.round.hold(before, held);
            still(s, cx, at).await.map(|next| next.unwrap_or_else(|| again(cx)))
        }
    }
}

/// What the step waits for, if it does. Asks nobody: a run may wait for weeks, and others with it.
pub(super) async fn still(s: &mut State, cx: &Cx, at: At) -> Result<Option<Next<At>>, StepError> {
    let Some(held) = s.round.held().cloned() else { return Ok(None) };
    let until = match held.stands(cx) {
        Wait::On(until) => until,
        // People read what it came to, which is this again or the next step.
        Wait::Due => {
            s.round.release();
            return Ok(None);
        }
        Wait::Mended => {
            s.round.release();
            if !(held.parked() && held.shown()) {
                return Ok(None);
            }
            show::turn_as(s, cx, &format!("{}-over", held.key()), at, Shown::Working, messages::WORKING)
                .await?;
            return Ok(Some(again(cx)));
        }
    };
    let rests = s.status.rests_until().filter(|rests| *rests > cx.clock().now());
    let until = match rests {
        _ if held.shown() => until,
        Some(rests) if !held.parked() => until.min(rests),
        _ => {
            tell(s, cx, at, &held).await?;
            until
        }
    };
    Ok(Some(Next::Wait { until, why: held.view().sentence() }))
}

async fn tell(s: &mut State, cx: &Cx, at: At, held: &Held) -> Result<(), StepError> {
    if held.parked() {
        show::turn_as(s, cx, &held.key(), at, Shown::Parked, messages::NEEDS_YOU).await?;
    } else {
        let shown = show::status(s, cx, at, Shown::Working).await?;
        s.status.show(cx, &held.key(), &shown, Urgency::Turning).await?;
    }
    s.round.told();
    Ok(())
}

/// What was shown is kept before the journal goes on.
fn again(cx: &Cx) -> Next<At> {
    Next::Wait { until: cx.clock().now(), why: "going on".to_owned() }
}
