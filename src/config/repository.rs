//! What a repository may say about itself. It may tighten what the server allows, never loosen it.

use serde::Deserialize;
use toml::Spanned;

use super::{
    BudgetSettings, ConfigError, LldSettings, REPOSITORY_FILE, Settings, budget::RepoBudget, from_toml,
    line_of,
};

/// The settings that hold for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSettings {
    pub budget: BudgetSettings,
    pub lld: LldSettings,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    budget: RepoBudget,
    lld: Lld,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Lld {
    max_rounds: Option<Spanned<u32>>,
    draft_gate: Option<Spanned<bool>>,
}

impl RepoSettings {
    /// What holds where the repository says nothing, or says something that can't be used.
    pub fn of_server(settings: &Settings) -> Self {
        Self { budget: settings.budget.clone(), lld: settings.lld.clone() }
    }

    /// Reads the repository's file against what the server allows.
    pub fn parse(text: &str, settings: &Settings) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|error| from_toml(REPOSITORY_FILE, text, &error))?;
        let mut lld = settings.lld.clone();
        let refuse = |at: usize, message: String| ConfigError {
            file: REPOSITORY_FILE.into(),
            line: Some(line_of(text, at)),
            message,
        };
        if let Some(rounds) = file.lld.max_rounds {
            let (at, asked, allowed) = (rounds.span().start, *rounds.as_ref(), lld.max_rounds);
            if asked == 0 || asked > allowed {
                let message = format!(
                    "max_rounds = {asked} is outside 1 to {allowed}, what the server allows; \
                     choose a number in that range"
                );
                return Err(refuse(at, message));
            }
            lld.max_rounds = asked;
        }
        if let Some(gate) = file.lld.draft_gate {
            if lld.draft_gate && !*gate.as_ref() {
                let message = "draft_gate = false would take away a gate the server demands; remove the line or set \
                               it to true";
                return Err(refuse(gate.span().start, message.to_owned()));
            }
            lld.draft_gate = *gate.as_ref();
        }
        let budget = file.budget.tighten(&settings.budget).map_err(|(at, message)| refuse(at, message))?;
        Ok(Self { budget, lld })
    }
}
