//! `[budget]`: how much may be put on a bill before people are asked. What a subscription pays counts against none of it.

use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::types::MicroUsd;

/// The caps of one run, and of what it shares with others. None: no cap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSettings {
    /// One call, at the most it can cost.
    pub call: Option<MicroUsd>,
    /// All drafting, or all reviewing, of one run.
    pub stage: Option<MicroUsd>,
    pub run: Option<MicroUsd>,
    /// How far people may raise a run's cap from the thread.
    pub run_at_most: Option<MicroUsd>,
    /// All runs of a repository in one day of UTC.
    pub repository_day: Option<MicroUsd>,
    /// All repositories of an installation in one month of UTC.
    pub installation_month: Option<MicroUsd>,
    /// Show costs where everybody reads them.
    pub show_on_public: bool,
}

impl Default for BudgetSettings {
    /// Room for what a design costs when all goes badly, several times over, and none for a loop that nobody watches:
    /// the dearest call of the built-in models may cost $2.50 at most, a design of three rounds makes about eight calls at
    /// well under a dollar each, and a repository that starts a dozen of them a day is one that somebody looks after.
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
    /// Is there a cap on what a run, or runs together, may spend?
    pub fn has_spending_cap(&self) -> bool {
        [self.call, self.stage, self.run, self.repository_day, self.installation_month]
            .iter()
            .any(Option::is_some)
    }
}

/// As it is written in the server's file.
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

/// As a repository may write it for itself.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RepositoryBudgetTable {
    call: Option<Spanned<String>>,
    stage: Option<Spanned<String>>,
    run: Option<Spanned<String>>,
    repository_day: Option<Spanned<String>>,
}

/// A mistake and where in the text it stands.
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
                    let message = "run_at_most is less than run; a cap cannot be raised to less than it is";
                    return Err((given.span().start, message.to_owned()));
                }
                most
            }
            // Whoever allows more than the usual from the start means it.
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
    /// The server's caps, with those that the repository set lower.
    pub(super) fn tighten(self, server: &BudgetSettings) -> Result<BudgetSettings, SettingMistake> {
        let tighter = |key, given: &Option<Spanned<String>>, allowed: Option<MicroUsd>| {
            let Some(given) = given else { return Ok(allowed) };
            let asked = parse_amount(key, given)?;
            match allowed {
                Some(most) if is_looser(asked, allowed) => {
                    let message = format!(
                        "{key} = {:?} is more than the {most} that the server allows; choose less",
                        given.as_ref()
                    );
                    Err((given.span().start, message))
                }
                _ => Ok(asked),
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

/// Does cap `a` let more through than `b`?
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
            "{key} = {:?} is no amount; write dollars such as \"$2\" or \"$0.50\", or \"none\"",
            given.as_ref()
        );
        (given.span().start, message)
    })
}
