//! What a repository may say about itself. It may tighten what the server allows, never loosen it.

use serde::Deserialize;

use super::{
    BudgetSettings, ConfigError, REPOSITORY_FILE, Settings,
    budget::RepoBudget,
    from_toml, line_of,
    workflows::{self, Workflows},
};

/// The settings that hold for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSettings {
    pub budget: BudgetSettings,
    pub workflows: Workflows,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct File {
    /// What [`RepoSettings::switches_off`] reads.
    enabled: Option<bool>,
    budget: RepoBudget,
}

impl RepoSettings {
    /// What holds where the repository says nothing, or says something that can't be used.
    pub fn of_server(settings: &Settings) -> Self {
        Self { budget: settings.budget.clone(), workflows: settings.workflows.clone() }
    }

    /// Does the repository's file switch all work off? Also one of which nothing else can be used.
    pub fn switches_off(text: &str) -> bool {
        let enabled = text.parse::<toml::Table>().ok().and_then(|table| table.get("enabled")?.as_bool());
        enabled == Some(false)
    }

    /// Reads the repository's file against what the server allows.
    pub fn parse(text: &str, settings: &Settings) -> Result<Self, ConfigError> {
        let (file, tables) = workflows::split::<File>(text, settings.workflows.keys().copied())
            .map_err(|error| from_toml(REPOSITORY_FILE, text, &error))?;
        let refused = |(at, message): (usize, String)| ConfigError {
            file: REPOSITORY_FILE.into(),
            line: Some(line_of(text, at)),
            message,
        };
        let tightened = tables.into_iter().zip(settings.workflows.values());
        let workflows = tightened
            .map(|((name, table), server)| Ok((name, table.tighten(server).map_err(refused)?)))
            .collect::<Result<_, ConfigError>>()?;
        Ok(Self { budget: file.budget.tighten(&settings.budget).map_err(refused)?, workflows })
    }
}
