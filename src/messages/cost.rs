//! What work costs, in the words people read: one rounding, to the cent, at the very end.

use serde::{Deserialize, Serialize};

use super::{code_block, model_waits::format_day_and_time, rehearsal_banner};
use crate::{
    github::outbound::{OutboundBody, inline_code, inline_text},
    store::Spending,
    types::{MicroUsd, RunId, Timestamp},
};

/// Which limit of the settings it is.
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
    /// Do several runs spend under it together?
    pub fn is_shared(self) -> bool {
        matches!(self, Self::RepositoryDay | Self::InstallationMonth)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Call => "one call",
            Self::Drafting => "the drafting of one run",
            Self::Reviewing => "the reviews of one run",
            Self::Run => "this run",
            Self::RepositoryDay => "this repository in a day",
            Self::InstallationMonth => "this installation in a month",
        }
    }
}

/// A run that a cap keeps from going on.
#[derive(Debug, Clone)]
pub struct PauseCard {
    pub run: RunId,
    /// Before what: `Draft the design`.
    pub at_step: String,
    pub cap: BudgetCap,
    pub resolution: PauseResolution,
    /// None where everybody would read it.
    pub amounts: Option<CapAmounts>,
    pub rehearsal: bool,
}

/// The cap as it stands, and what is to be had under it.
#[derive(Debug, Clone, Copy)]
pub struct CapAmounts {
    pub limit: MicroUsd,
    pub spent: MicroUsd,
    /// What the next call may cost at most.
    pub next: MicroUsd,
}

/// How a paused run comes to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseResolution {
    /// By a person.
    Raise(MicroUsd),
    /// By nobody here: the server lets a run have no more than this.
    AboveServerLimit(MicroUsd),
    /// By itself.
    ResumesAt(Timestamp),
    /// Not at all: one call may cost more than a cap that nobody here can raise.
    Never,
}

impl PauseResolution {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Raise(amount) => {
                format!("Someone with maintain access lets it go on:\n\n{}", budget_command(*amount))
            }
            Self::AboveServerLimit(most) => format!(
                "It would take more than the {most} that the server lets a run have. Whoever runs the server can raise \
                 `run_at_most` under `[budget]` for new runs."
            ),
            Self::ResumesAt(then) => format!("It goes on by itself on {}.", format_day_and_time(*then)),
            Self::Never => {
                "One call may cost more than the whole of that cap, so waiting does not help. Whoever runs \
                            the server can raise it under `[budget]` for new runs."
                    .to_owned()
            }
        }
    }
}

/// The comment that says why nothing happens any more.
pub fn budget_pause_comment(card: &PauseCard) -> OutboundBody {
    let amounts = card.amounts.map_or(String::new(), |CapAmounts { limit, spent, next }| {
        format!(
            " It is {limit}; {spent} of it is spent or held back, and the next call may cost up to {next}."
        )
    });
    OutboundBody::frame(format!(
        "{}### ✋ Paused before {}\n\nThe cap on {} leaves too little for the next call.{amounts}\n\n{}\n\n\
         <sub>Run {} · `/stop` ends it</sub>",
        rehearsal_banner(card.rehearsal),
        inline_text(&card.at_step, 80),
        card.cap.name(),
        card.resolution.text(),
        card.run
    ))
}

/// `/budget` asked for more than the server gives; `room` is what may still be added.
pub fn raise_refused_reply(most: MicroUsd, room: MicroUsd) -> OutboundBody {
    let rest = match room {
        MicroUsd(0) => {
            "Whoever runs the server can raise `run_at_most` under `[budget]` for new runs.".to_owned()
        }
        room => format!("At most:\n\n{}", budget_command(room)),
    };
    OutboundBody::frame(format!("Nothing was raised: the server lets a run have no more than {most}. {rest}"))
}

/// The line a person pastes.
fn budget_command(amount: MicroUsd) -> String {
    code_block(&format!("/budget +{}", amount.to_exact_dollars()))
}

/// `/budget` was said where it is of no use.
pub fn raise_useless_reply(cap: BudgetCap, way_on: PauseResolution) -> OutboundBody {
    OutboundBody::frame(format!(
        "Nothing was raised: what is used up is the cap on {}, and `/budget` raises those of one run. {}",
        cap.name(),
        way_on.text()
    ))
}

/// What runs like this one cost before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostHistory {
    /// So many came to their end.
    pub runs: u64,
    /// Half of them cost no more than this, and nine of ten no more than that.
    pub p50: MicroUsd,
    pub p90: MicroUsd,
    /// On a bill; otherwise by list price only.
    pub billed: bool,
}

/// The line about money in a status comment.
#[derive(Debug, Clone)]
pub struct CostView {
    /// `LLD`
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
    let range = if usual == seldom { usual } else { format!("{usual}, one in ten more than {seldom}") };
    let before = match runs {
        1 => format!("The {stage} before cost"),
        runs => format!("The last {runs} {stage}s here: half cost at most"),
    };
    let notional = if *billed { "" } else { " by list price; nothing was billed" };
    format!("{before} {range}{notional}.")
}

/// `$0.31 billed, $1.60 held back (notional $2.10)`
pub fn format_spending(sum: &Spending) -> String {
    let mut text = match sum.billed {
        MicroUsd(0) => "$0 billed".to_owned(),
        billed => format!("{billed} billed"),
    };
    if sum.held_in_run > MicroUsd(0) {
        text += &format!(", {} held back", sum.held_in_run);
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

/// What was spent for an issue, by run and by model.
pub fn costs_table(
    by_run: &[(String, Spending)],
    by_model: &[(String, Spending)],
    all: &Spending,
) -> OutboundBody {
    if by_run.is_empty() {
        return OutboundBody::frame(format!("{COSTS}No model was called yet."));
    }
    let mut out = format!("{COSTS}| | Calls | |\n|---|--:|---|");
    for (name, sum) in by_run.iter().chain(by_model) {
        out.push_str(&format!("\n| {} | {} | {} |", inline_code(name, 80), sum.calls, format_spending(sum)));
    }
    out.push_str(&format!("\n| **all** | {} | {} |", all.calls, format_spending(all)));
    OutboundBody::frame(out)
}

/// Asked where everybody would read it.
pub fn costs_hidden_reply() -> OutboundBody {
    OutboundBody::frame(format!(
        "{COSTS}Costs are not shown where everybody reads them. Whoever runs the server sees them with `countersign cost`, \
         or sets `show_on_public` under `[budget]`."
    ))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::*, *};

    fn card(way_on: PauseResolution) -> PauseCard {
        PauseCard {
            run: RUN,
            at_step: "Draft the design".into(),
            cap: BudgetCap::Run,
            resolution: way_on,
            amounts: Some(CapAmounts {
                limit: MicroUsd(10_000_000),
                spent: MicroUsd(9_204_000),
                next: MicroUsd(1_600_000),
            }),
            rehearsal: false,
        }
    }

    #[test]
    fn a_pause_says_which_cap_how_much_and_the_line_to_paste() {
        let quiet = PauseCard { amounts: None, ..card(PauseResolution::ResumesAt(Timestamp(0))) };
        let text = budget_pause_comment(&quiet);
        assert!(text.as_str().contains("It goes on by itself on 1970-01-01 00:00 UTC."), "{}", text.as_str());
        assert!(!text.as_str().contains('$'), "{}", text.as_str());
    }

    #[test]
    fn quotes_and_sums_read_as_money() {
        let quoted = |p50, p90, billed| {
            let given = CostHistory { runs: 12, p50: MicroUsd(p50), p90: MicroUsd(p90), billed };
            history_sentence("LLD", &given)
        };
        assert_eq!(
            quoted(401_000, 899_000, true),
            "The last 12 LLDs here: half cost at most $0.40, one in ten more than $0.90."
        );
        assert_eq!(
            quoted(401_000, 401_100, false),
            "The last 12 LLDs here: half cost at most $0.40 by list price; nothing was billed."
        );
        let sum = Spending {
            calls: 3,
            billed: MicroUsd(310_000),
            held: MicroUsd(3),
            held_in_run: MicroUsd(1),
            notional: MicroUsd(0),
            unpriced: 1,
        };
        assert_eq!(format_spending(&sum), "$0.31 billed, <$0.01 held back, 1 call without a known price");
        assert_eq!(format_spending(&Spending::default()), "$0 billed");
    }

    #[test]
    fn nothing_in_it_acts() {
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
