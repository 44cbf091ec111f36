//! Budget: a call's maximum cost is reserved before the call. When a cap is reached, the run pauses until a person
//! raises the cap or the cap's period ends.
//!
//! A run's own caps (call, stage, run) are checked against the run's ledger, which has one writer. Shared caps are
//! checked against one table of the whole server, in which one transaction checks and reserves: see `store::spend`.

use serde::{Deserialize, Serialize};

use super::{Policy, StepContext, post_announcement};
use crate::{
    commands,
    config::BudgetSettings,
    engine::{Approvers, CallRow, GateSpec, LedgerRecord, RaiseRow, RunLedger, StepError},
    messages::{self, BudgetCap, CapAmounts, CostHistory, PauseCard, PauseResolution},
    providers::CallRole,
    store::{Reservation, ReservationOutcome, SharedCap, Spending},
    types::{Hash, MicroUsd, Role, Timestamp, Verb},
};

/// Number of past runs on which a cost quote is based: enough for a meaningful p90, and few enough to reflect current
/// models.
const QUOTED_RUNS: u32 = 50;

/// Name of the command that raises a run's caps.
const BUDGET: &str = "budget";

/// Shortfall of a call that would exceed a cap: the cap and the amounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetShortfall {
    cap: BudgetCap,
    limit: MicroUsd,
    spent: MicroUsd,
    next: MicroUsd,
    /// Start of the cap's next period. Set only for a shared cap that is large enough for the call.
    until: Option<Timestamp>,
    /// Maximum to which people may raise the run's cap, and the amount by which the cap may still be raised. `None` if
    /// the cap may be raised without limit.
    room: Option<(MicroUsd, MicroUsd)>,
}

impl BudgetShortfall {
    pub fn remedy(&self) -> PauseResolution {
        let short = self.spent.plus(self.next).minus(self.limit);
        // Whole dollars if possible: nobody wants to be asked again for the next cent.
        let handy = short.to_whole_dollars();
        match (self.until, self.room) {
            (Some(until), _) => PauseResolution::ResumesAt(until),
            (None, _) if self.cap.is_shared() => PauseResolution::Never,
            (None, Some((most, room))) if short > room => PauseResolution::AboveServerLimit(most),
            (None, Some((_, room))) => PauseResolution::Raise(handy.min(room)),
            (None, None) => PauseResolution::Raise(handy),
        }
    }
}

/// Result of checking whether a paused run can resume.
pub enum ResumeDecision {
    Continue,
    /// The answer did not raise the cap. A reply says why, and the gate stays open.
    Refused(GateSpec),
    /// People have not been told about the pause yet, so the caller must announce it.
    NotAnnounced,
}

/// Reserves the maximum cost of a call if no cap is exceeded. `before` is the ledger row of an interrupted attempt at
/// the same call. That attempt may have been billed, so its maximum cost is counted in addition.
pub(super) async fn reserve_budget(
    cx: &StepContext,
    caps: &BudgetSettings,
    (role, key): (CallRole, &str),
    most: MicroUsd,
    before: Option<&CallRow>,
) -> Result<Result<(), BudgetShortfall>, StepError> {
    if most == MicroUsd(0) {
        return Ok(Ok(()));
    }
    if let Some(capped) = exceeded_run_cap(&cx.ledger().await?, caps, role, (most, before)) {
        return Ok(Err(capped));
    }
    let run = &cx.run();
    let asked = Reservation {
        run: run.id,
        visit: cx.visit(),
        key: key.to_owned(),
        installation: run.trigger.installation,
        amount: most.plus(before.map_or(MicroUsd(0), CallRow::shared_cap_amount)),
        repository_day: caps.repository_day,
        installation_month: caps.installation_month,
    };
    let now = cx.clock().now();
    let store = &cx.tools().store;
    Ok(match store.reserve_budget(asked).await.map_err(anyhow::Error::new)? {
        ReservationOutcome::Granted => Ok(()),
        ReservationOutcome::OverCap { cap, spent } => {
            let (cap, limit, until) = match cap {
                SharedCap::RepositoryDay => (BudgetCap::RepositoryDay, caps.repository_day, now.next_day()),
                SharedCap::InstallationMonth => {
                    (BudgetCap::InstallationMonth, caps.installation_month, now.next_month())
                }
            };
            let limit = limit.unwrap_or_default();
            let until = Some(until).filter(|_| most <= limit);
            Err(BudgetShortfall { cap, limit, spent, next: most, until, room: None })
        }
    })
}

/// Returns the run's own cap that the call would exceed by the largest amount, if any.
fn exceeded_run_cap(
    ledger: &RunLedger,
    caps: &BudgetSettings,
    role: CallRole,
    (most, before): (MicroUsd, Option<&CallRow>),
) -> Option<BudgetShortfall> {
    let raised = total_raised(ledger);
    // The interrupted attempt counts as lost, whatever its row says.
    let counted = |call: &CallRow| match before {
        Some(before) if before == call => call.clone().mark_lost().run_cap_amount(),
        _ => call.run_cap_amount(),
    };
    let spent = |of: &dyn Fn(&CallRow) -> bool| {
        ledger.calls.iter().filter(|call| of(call)).fold(MicroUsd(0), |sum, call| sum.plus(counted(call)))
    };
    let stage = match role {
        CallRole::Drafter => Some(BudgetCap::Drafting),
        CallRole::Reviewer => Some(BudgetCap::Reviewing),
        // Router calls make up their whole run, and narrator calls are a small part of any run.
        CallRole::Router | CallRole::Narrator => None,
    };
    let caps_and_spent = [
        (BudgetCap::Call, caps.call, MicroUsd(0)),
        (
            stage.unwrap_or(BudgetCap::Run),
            caps.stage.filter(|_| stage.is_some()),
            spent(&|call| call.role == role.as_str()),
        ),
        (BudgetCap::Run, caps.run, spent(&|_| true)),
    ];
    let room = caps.run_at_most.map(|most| (most, most.minus(caps.run.unwrap_or_default().plus(raised))));
    caps_and_spent
        .into_iter()
        .filter_map(|(cap, limit, spent)| {
            let limit = limit?.plus(raised);
            let over = spent.plus(most) > limit;
            over.then_some(BudgetShortfall { cap, limit, spent, next: most, until: None, room })
        })
        .max_by_key(|capped| capped.spent.plus(capped.next).minus(capped.limit))
}

fn total_raised(ledger: &RunLedger) -> MicroUsd {
    ledger.raises.iter().fold(MicroUsd(0), |sum, row| sum.plus(row.amount))
}

/// Releases the unused part of the run's reservations. If releasing fails, that part stays reserved until the server
/// reads the ledger at its next start.
pub(super) async fn release_unspent(cx: &StepContext) {
    if let Err(error) = cx.tools().store.sync_run_spend(cx.run().id).await {
        tracing::error!(run = %cx.run().id, %error, "could not release unused budget; it stays reserved until the server restarts");
    }
}

/// Tells people that the run is paused before the step `at_step`. Returns the comment's URL and the gate.
pub async fn pause_for_budget(
    cx: &StepContext,
    stage: &str,
    at_step: String,
    capped: &BudgetShortfall,
    policy: &Policy,
) -> Result<(String, GateSpec), StepError> {
    let amounts = CapAmounts { limit: capped.limit, spent: capped.spent, next: capped.next };
    let card = PauseCard {
        run: cx.run().id,
        at_step,
        cap: capped.cap,
        resolution: capped.remedy(),
        amounts: policy.shows_cost.then_some(amounts),
        rehearsal: cx.tools().is_rehearsal(Some(policy)),
    };
    let (url, shown_at) = post_announcement(cx, "paused", &messages::budget_pause_comment(&card)).await?;
    Ok((url, budget_gate(cx, stage, capped, shown_at)))
}

fn budget_gate(cx: &StepContext, stage: &str, capped: &BudgetShortfall, shown_at: Timestamp) -> GateSpec {
    let (run, visit) = (cx.run().id.to_string(), cx.visit().to_string());
    GateSpec {
        stage: stage.to_owned(),
        subject: Hash::digest_parts([BUDGET, &run, &visit].map(str::as_bytes)),
        verbs: vec![(Verb::Budget, Role::Maintain.into())],
        shown_at,
        approvers: Approvers::default(),
        expires: capped.until,
        options: Vec::new(),
    }
}

/// Checks whether somebody raised the run's caps or a new period has begun. A raised cap is stored as a row of the run,
/// so that it outlives the step. The row's audit link names the person.
pub async fn resume_from_budget_pause(
    cx: &StepContext,
    stage: &str,
    capped: &BudgetShortfall,
    policy: &Policy,
) -> Result<ResumeDecision, StepError> {
    // Time only moves forward, so a later attempt makes the same decision.
    let over = capped.until.is_some_and(|until| cx.clock().now() >= until);
    let Some(answer) = cx.answer() else {
        return Ok(if over { ResumeDecision::Continue } else { ResumeDecision::NotAnnounced });
    };
    let ledger = cx.ledger().await?;
    let others = ledger.raises.iter().filter(|row| row.cause != answer.cause);
    let before = others.fold(MicroUsd(0), |sum, row| sum.plus(row.amount));
    let amount = commands::parse_raise(&answer.text).map_err(|error| StepError::Bug(error.into()))?;
    let caps = &policy.caps;
    let stands_at = caps.run.unwrap_or_default().plus(before);
    let refusal = match caps.run_at_most {
        _ if capped.cap.is_shared() => Some(messages::raise_useless_reply(capped.cap, capped.remedy())),
        Some(most) if stands_at.plus(amount) > most => {
            Some(messages::raise_refused_reply(most, most.minus(stands_at)))
        }
        _ => None,
    };
    if let Some(body) = refusal {
        let (_, shown_at) = post_announcement(cx, &format!("refused-{}", answer.cause), &body).await?;
        return Ok(ResumeDecision::Refused(budget_gate(cx, stage, capped, shown_at)));
    }
    let key = format!("raise-{}", answer.cause);
    let row = RaiseRow { by: answer.by.clone(), amount, cause: answer.cause.clone(), at: answer.at };
    cx.record(&key, LedgerRecord::Raise(row)).await?;
    Ok(ResumeDecision::Continue)
}

/// Returns the costs of recent runs of this workflow in the repository; `None` if no run has finished.
pub async fn quote_cost(cx: &StepContext) -> Result<Option<CostHistory>, StepError> {
    let run = cx.run();
    let db = cx.tools().store.repository_database(run.id.repo).await.map_err(anyhow::Error::new)?;
    let history = db.past_run_costs(&run.workflow, QUOTED_RUNS).await.map_err(anyhow::Error::new)?;
    Ok(quote_from_history(&history))
}

/// Computes nearest-rank percentiles of the billed costs. If no run was billed, uses list prices instead.
fn quote_from_history(history: &[(MicroUsd, MicroUsd)]) -> Option<CostHistory> {
    let billed = history.iter().any(|(billed, _)| *billed > MicroUsd(0));
    let mut costs: Vec<_> =
        history.iter().map(|(paid, notional)| if billed { *paid } else { *notional }).collect();
    costs.sort_unstable();
    let rank = |percent: usize| costs.get((costs.len() * percent).div_ceil(100).max(1) - 1).copied();
    Some(CostHistory { runs: costs.len() as u64, p50: rank(50)?, p90: rank(90)?, billed })
}

/// Returns the run's spending so far, if the policy allows showing it to people.
pub async fn run_spending(cx: &StepContext, policy: Option<&Policy>) -> Result<Option<Spending>, StepError> {
    if !policy.is_some_and(|policy| policy.shows_cost) {
        return Ok(None);
    }
    Ok(Some(Spending::from_calls(&cx.ledger().await?.calls)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_quote_uses_nearest_rank_percentiles_of_billed_or_list_prices() {
        let paid = |cents: &[u64]| -> Vec<_> {
            cents.iter().map(|cents| (MicroUsd(cents * 10_000), MicroUsd(99))).collect()
        };
        let of = |history: &[_]| {
            quote_from_history(history).map(|q| (q.runs, q.p50.0 / 10_000, q.p90.0 / 10_000, q.billed))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&paid(&[40])), Some((1, 40, 40, true)));
        assert_eq!(of(&paid(&[90, 10, 20, 30, 40, 50, 60, 70, 80, 100])), Some((10, 50, 90, true)));
        let free = [(MicroUsd(0), MicroUsd(300_000)), (MicroUsd(0), MicroUsd(500_000))];
        assert_eq!(of(&free), Some((2, 30, 50, false)));
    }
}
