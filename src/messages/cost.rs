//! Comments about cost. Amounts are rounded only once, to the cent, when they are formatted.

use serde::{Deserialize, Serialize};

use super::{code_block, model_waits::format_day_and_time, rehearsal_banner};
use crate::{
    github::outbound::{OutboundBody, inline_code, inline_text},
    store::Spending,
    types::{MicroUsd, RunId, Timestamp},
};

/// A budget limit from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetCap {
    Call,
    Drafting,
    Reviewing,
    Run,
    RepositoryDay,
    InstallationMonth,
}

impl BudgetCap {
    /// Whether several runs share the limit.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::RepositoryDay | Self::InstallationMonth)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Call => "one call",
            Self::Drafting => "drafting in this run",
            Self::Reviewing => "reviews in this run",
            Self::Run => "this run",
            Self::RepositoryDay => "this repository's daily cost",
            Self::InstallationMonth => "this installation's monthly cost",
        }
    }
}

/// A run that a budget limit has paused.
#[derive(Debug, Clone)]
pub struct PauseCard {
    pub run: RunId,
    /// Title of the step that comes next, such as `Draft the design`.
    pub at_step: String,
    pub cap: BudgetCap,
    pub resolution: PauseResolution,
    /// Amounts to show; `None` in public repositories, where they are hidden.
    pub amounts: Option<CapAmounts>,
    pub rehearsal: bool,
}

/// The budget limit, the amount spent so far, and the maximum cost of the next call.
#[derive(Debug, Clone, Copy)]
pub struct CapAmounts {
    pub limit: MicroUsd,
    pub spent: MicroUsd,
    /// Maximum cost of the next call.
    pub next: MicroUsd,
}

/// Condition under which a paused run can resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseResolution {
    /// A person must raise the limit by this amount.
    Raise(MicroUsd),
    /// Nobody in the thread can raise the limit far enough, because the server allows at most this amount per run.
    AboveServerLimit(MicroUsd),
    /// The run resumes by itself at this time.
    ResumesAt(Timestamp),
    /// The run cannot resume: one call may cost more than a limit that nobody in the thread can raise.
    Never,
}

impl PauseResolution {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Raise(amount) => {
                format!("To continue, someone with maintain access writes:\n\n{}", budget_command(*amount))
            }
            Self::AboveServerLimit(most) => format!(
                "The server allows at most {most} per run, which is not enough. The operator can raise `run_at_most` \
                 under `[budget]` for new runs."
            ),
            Self::ResumesAt(then) => format!("The run resumes by itself on {}.", format_day_and_time(*then)),
            Self::Never => {
                "One call may cost more than the whole cap, so waiting does not help. The operator can raise the cap \
                 under `[budget]` for new runs."
                    .to_owned()
            }
        }
    }
}

/// Returns the comment that explains why a run is paused.
pub fn budget_pause_comment(card: &PauseCard) -> OutboundBody {
    let amounts = card.amounts.map_or(String::new(), |CapAmounts { limit, spent, next }| {
        format!(" The cap is {limit}; {spent} is spent or reserved. The next call may cost up to {next}.")
    });
    OutboundBody::frame(format!(
        "{}### ✋ Paused before {}\n\nThe cap on {} does not leave enough for the next \
         call.{amounts}\n\n{}\n\n<sub>Run {} · `/stop` ends it</sub>",
        rehearsal_banner(card.rehearsal),
        inline_text(&card.at_step, 80),
        card.cap.name(),
        card.resolution.text(),
        card.run
    ))
}

/// Returns the reply to a `/budget` command that exceeds the server's limit. `room` is the amount that may still be
/// added.
pub fn raise_refused_reply(most: MicroUsd, room: MicroUsd) -> OutboundBody {
    let rest = match room {
        MicroUsd(0) => "The operator can raise `run_at_most` under `[budget]` for new runs.".to_owned(),
        room => format!("The most you can add:\n\n{}", budget_command(room)),
    };
    OutboundBody::frame(format!(
        "The budget was not raised: the server allows at most {most} per run. {rest}"
    ))
}

/// Returns a code block with the `/budget` command to paste.
fn budget_command(amount: MicroUsd) -> String {
    code_block(&format!("/budget +{}", amount.to_exact_dollars()))
}

/// Returns the reply to a `/budget` command that cannot raise the exhausted limit.
pub fn raise_useless_reply(cap: BudgetCap, resolution: PauseResolution) -> OutboundBody {
    OutboundBody::frame(format!(
        "The budget was not raised: the cap on {} is used up, and `/budget` can raise only the caps of a run. {}",
        cap.name(),
        resolution.text()
    ))
}

/// Costs of earlier runs of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostHistory {
    /// Number of finished runs that the costs are taken from.
    pub runs: u64,
    /// Median of the costs; `p90` is their 90th percentile.
    pub p50: MicroUsd,
    pub p90: MicroUsd,
    /// Whether the costs were billed. If false, they are computed from list prices.
    pub billed: bool,
}

/// The cost line of a status comment.
#[derive(Debug, Clone)]
pub struct CostView {
    /// Name of the stage, such as `design`.
    pub stage: String,
    pub history: Option<CostHistory>,
    pub spent: Spending,
}

impl CostView {
    pub(super) fn text(&self) -> String {
        let quote = self.history.as_ref().map(|given| format!(" {}", history_sentence(&self.stage, given)));
        format!("Cost so far: {}.{}", format_spending(&self.spent), quote.unwrap_or_default())
    }
}

fn history_sentence(stage: &str, CostHistory { runs, p50, p90, billed }: &CostHistory) -> String {
    let stage = inline_text(stage, 30);
    let (usual, seldom) = (p50.to_string(), p90.to_string());
    let range = if usual == seldom { usual } else { format!("{usual}, nine in ten at most {seldom}") };
    let before = match runs {
        1 => format!("The previous {stage} cost"),
        runs => format!("Half of the last {runs} {stage}s here cost at most"),
    };
    let notional = if *billed { "" } else { " at list price; nothing was billed" };
    format!("{before} {range}{notional}.")
}

/// Formats costs, for example `$0.31 billed, $1.60 reserved (notional $2.10)`.
pub fn format_spending(sum: &Spending) -> String {
    let mut text = match sum.billed {
        MicroUsd(0) => "$0 billed".to_owned(),
        billed => format!("{billed} billed"),
    };
    if sum.held_in_run > MicroUsd(0) {
        text += &format!(", {} reserved", sum.held_in_run);
    }
    if sum.notional > MicroUsd(0) {
        text += &format!(" (notional {})", sum.notional);
    }
    if sum.unpriced > 0 {
        text += &format!(
            ", {} without a known price",
            super::count(usize::try_from(sum.unpriced).unwrap_or(usize::MAX), "call", "calls")
        );
    }
    text
}

const COSTS: &str = "### Cost of this issue\n\n";

/// Returns a table of an issue's costs by run and by model.
pub fn costs_table(
    by_run: &[(String, Spending)],
    by_model: &[(String, Spending)],
    all: &Spending,
) -> OutboundBody {
    if by_run.is_empty() {
        return OutboundBody::frame(format!("{COSTS}No model has been called yet."));
    }
    let mut out = format!("{COSTS}| | Calls | |\n|---|--:|---|");
    for (name, sum) in by_run.iter().chain(by_model) {
        out.push_str(&format!("\n| {} | {} | {} |", inline_code(name, 80), sum.calls, format_spending(sum)));
    }
    out.push_str(&format!("\n| **all** | {} | {} |", all.calls, format_spending(all)));
    OutboundBody::frame(out)
}

/// Returns the reply to `/cost` in a public repository where costs are hidden.
pub fn costs_hidden_reply() -> OutboundBody {
    OutboundBody::frame(format!(
        "{COSTS}Costs are not shown in public repositories. The operator can run `countersign cost`, or set \
         `show_on_public` under `[budget]`."
    ))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    fn card(resolution: PauseResolution) -> PauseCard {
        PauseCard {
            run: RUN,
            at_step: "Draft the design".into(),
            cap: BudgetCap::Run,
            resolution,
            amounts: Some(CapAmounts {
                limit: MicroUsd(10_000_000),
                spent: MicroUsd(9_204_000),
                next: MicroUsd(1_600_000),
            }),
            rehearsal: false,
        }
    }

    #[test]
    fn budget_pause_comment_without_amounts_shows_no_dollar_sign() {
        let quiet = PauseCard { amounts: None, ..card(PauseResolution::ResumesAt(Timestamp(0))) };
        let text = budget_pause_comment(&quiet);
        assert!(
            text.as_str().contains("The run resumes by itself on 1970-01-01 00:00 UTC."),
            "{}",
            text.as_str()
        );
        assert!(!text.as_str().contains('$'), "{}", text.as_str());
    }

    #[test]
    fn cost_history_and_spending_are_formatted_in_dollars() {
        let quoted = |p50, p90, billed| {
            let given = CostHistory { runs: 12, p50: MicroUsd(p50), p90: MicroUsd(p90), billed };
            history_sentence("design", &given)
        };
        assert_eq!(
            quoted(401_000, 899_000, true),
            "Half of the last 12 designs here cost at most $0.40, nine in ten at most $0.90."
        );
        assert_eq!(
            quoted(401_000, 401_100, false),
            "Half of the last 12 designs here cost at most $0.40 at list price; nothing was billed."
        );
        let sum = Spending {
            calls: 3,
            billed: MicroUsd(310_000),
            held: MicroUsd(3),
            held_in_run: MicroUsd(1),
            notional: MicroUsd(0),
            unpriced: 1,
        };
        assert_eq!(format_spending(&sum), "$0.31 billed, <$0.01 reserved, 1 call without a known price");
        assert_eq!(format_spending(&Spending::default()), "$0 billed");
    }

    #[test]
    fn cost_comments_neutralise_hostile_text() {
        let sums = [(HOSTILE.to_owned(), Spending::default())];
        assert_inert(costs_table(&sums, &sums, &Spending::default()).as_str());
        assert_inert(
            budget_pause_comment(&PauseCard {
                at_step: HOSTILE.into(),
                ..card(PauseResolution::Raise(MicroUsd(2_500_000)))
            })
            .as_str(),
        );
    }
}
