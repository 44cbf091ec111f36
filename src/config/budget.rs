//! `[budget]`: spending limits. The limits apply to pay-per-use calls, but not to calls covered by a subscription.

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::types::MicroUsd;

/// Spending limits for calls, runs, repositories and installations. `None` means that the limit does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSettings {
    /// Limit on the maximum possible cost of a single call.
    pub call: Option<MicroUsd>,
    /// Limit on the total cost of drafting in one run. The same limit applies separately to the run's reviews.
    pub stage: Option<MicroUsd>,
    pub run: Option<MicroUsd>,
    /// Highest amount to which people may raise a run's limit with `/budget`.
    pub run_at_most: Option<MicroUsd>,
    /// Limit on the total cost of all runs in a repository per UTC day.
    pub repository_day: Option<MicroUsd>,
    /// Limit on the total cost of all runs in an installation's repositories per UTC month.
    pub installation_month: Option<MicroUsd>,
    /// Whether costs are shown in public repositories.
    pub show_on_public: bool,
}

impl Default for BudgetSettings {
    /// Returns limits of several times the cost of a design that goes badly. These limits still stop a runaway loop
    /// that nobody watches. The most expensive call of the built-in models costs at most $2.50. A design of three
    /// rounds makes about eight calls, and each usually costs well under a dollar.
    fn default() -> Self {
        let dollars = |whole: u64| Some(MicroUsd(whole * 1_000_000));
        Self {
            call: dollars(3),
            stage: dollars(5),
            run: dollars(10),
            run_at_most: dollars(30),
            repository_day: dollars(25),
            installation_month: dollars(200),
            show_on_public: false,
        }
    }
}

impl BudgetSettings {
    /// Whether any spending limit applies to a run or to several runs together.
    pub fn has_spending_cap(&self) -> bool {
        [self.call, self.stage, self.run, self.repository_day, self.installation_month]
            .iter()
            .any(Option::is_some)
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BudgetTable {
    call: Option<Spanned<String>>,
    stage: Option<Spanned<String>>,
    run: Option<Spanned<String>>,
    run_at_most: Option<Spanned<String>>,
    repository_day: Option<Spanned<String>>,
    installation_month: Option<Spanned<String>>,
    show_on_public: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RepositoryBudgetTable {
    call: Option<Spanned<String>>,
    stage: Option<Spanned<String>>,
    run: Option<Spanned<String>>,
    repository_day: Option<Spanned<String>>,
}

/// Byte offset of a mistake in the settings file, and the error message for the mistake.
pub(super) type SettingMistake = (usize, String);

impl BudgetTable {
    pub(super) fn into_settings(self) -> Result<BudgetSettings, SettingMistake> {
        let usual = BudgetSettings::default();
        let cap = |key, given: &Option<Spanned<String>>, usual| match given {
            Some(given) => parse_amount(key, given),
            None => Ok(usual),
        };
        let run = cap("run", &self.run, usual.run)?;
        let run_at_most = match &self.run_at_most {
            Some(given) => {
                let most = parse_amount("run_at_most", given)?;
                if is_looser(run, most) {
                    let message = "run_at_most is less than run, but it limits how far run can be raised; set it to \
                                   run or more";
                    return Err((given.span().start, message.to_owned()));
                }
                most
            }
            // An operator who starts runs above the default maximum means it.
            None if is_looser(run, usual.run_at_most) => run,
            None => usual.run_at_most,
        };
        Ok(BudgetSettings {
            call: cap("call", &self.call, usual.call)?,
            stage: cap("stage", &self.stage, usual.stage)?,
            run,
            run_at_most,
            repository_day: cap("repository_day", &self.repository_day, usual.repository_day)?,
            installation_month: cap(
                "installation_month",
                &self.installation_month,
                usual.installation_month,
            )?,
            show_on_public: self.show_on_public,
        })
    }
}

impl RepositoryBudgetTable {
    /// Returns the server's limits, with lower limits where the repository sets them. A limit that is higher than the
    /// server's is an error.
    pub(super) fn tighten(self, server: &BudgetSettings) -> Result<BudgetSettings, SettingMistake> {
        let tighter = |key, given: &Option<Spanned<String>>, allowed: Option<MicroUsd>| {
            let Some(given) = given else { return Ok(allowed) };
            let requested = parse_amount(key, given)?;
            match allowed {
                Some(most) if is_looser(requested, allowed) => {
                    let message = format!(
                        "{key} = {:?} is more than the {most} that the server allows; choose less",
                        given.as_ref()
                    );
                    Err((given.span().start, message))
                }
                _ => Ok(requested),
            }
        };
        Ok(BudgetSettings {
            call: tighter("call", &self.call, server.call)?,
            stage: tighter("stage", &self.stage, server.stage)?,
            run: tighter("run", &self.run, server.run)?,
            repository_day: tighter("repository_day", &self.repository_day, server.repository_day)?,
            ..server.clone()
        })
    }
}

/// Whether limit `a` allows more than limit `b`.
fn is_looser(a: Option<MicroUsd>, b: Option<MicroUsd>) -> bool {
    match (a, b) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(a), Some(b)) => a > b,
    }
}

pub(super) fn parse_amount(key: &str, given: &Spanned<String>) -> Result<Option<MicroUsd>, SettingMistake> {
    if given.as_ref() == "none" {
        return Ok(None);
    }
    MicroUsd::parse(given.as_ref()).map(Some).map_err(|_| {
        let message = format!(
            "{key} = {:?} is not an amount; write dollars such as \"$2\" or \"$0.50\", or \"none\"",
            given.as_ref()
        );
        (given.span().start, message)
    })
}
