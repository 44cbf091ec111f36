//! What a repository may say about itself. It may tighten what the server allows, never loosen it.

use std::path::{Component, Path};

use serde::{Deserialize, Deserializer};

use super::{
    BudgetSettings, ConfigError, REPOSITORY_FILE, Settings,
    budget::RepositoryBudgetTable,
    from_toml, line_of,
    workflows::{self, SettingsByWorkflow},
};

/// The settings that hold for one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSettings {
    pub budget: BudgetSettings,
    pub workflows: SettingsByWorkflow,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RepositorySettingsFile {
    /// What [`RepoSettings::switches_off`] reads.
    enabled: Option<bool>,
    budget: RepositoryBudgetTable,
    /// What [`TestSettings::parse`] reads.
    test: TestSettings,
}

/// How a repository's own tests are run, where that is not to be found out from its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TestSettings {
    /// A line for the shell, run at the root.
    pub command: Option<String>,
    /// What it leaves, relative to the root: a file in JUnit's XML or TAP, or a folder of `.xml` files.
    #[serde(deserialize_with = "below_root")]
    pub report: Option<String>,
    /// Another line for the shell, which tries the whole from end to end.
    pub end_to_end: Option<String>,
    /// Where all tests together take longer, in seconds, they are run as a whole once instead of three times.
    pub full_seconds: Option<u64>,
}

/// A path below the root, in the one way of writing it that the commit's own paths have.
fn below_root<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(from)?;
    let part = |part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    };
    let parts = Path::new(&text).components().filter(|part| *part != Component::CurDir).map(part);
    match parts.collect::<Option<Vec<_>>>() {
        Some(parts) if !parts.is_empty() => Ok(Some(parts.join("/"))),
        _ => Err(serde::de::Error::custom(
            "`report` under [test] is a file or folder below the root, such as `target/report.xml`",
        )),
    }
}

impl TestSettings {
    /// This line alone, by its exit code.
    pub fn from_command(line: &str) -> Self {
        Self { command: Some(line.to_owned()), ..Self::default() }
    }

    /// What a repository's file says of its tests, whatever else it says.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct TestSettingsFile {
            test: TestSettings,
        }
        let alone: TestSettingsFile =
            toml::from_str(text).map_err(|error| from_toml(REPOSITORY_FILE, text, &error))?;
        Ok(alone.test)
    }
}

impl RepoSettings {
    /// What holds where the repository says nothing, or says something that can't be used.
    pub fn from_server(settings: &Settings) -> Self {
        Self { budget: settings.budget.clone(), workflows: settings.workflows.clone() }
    }

    /// Does the repository's file switch all work off? Also one of which nothing else can be used.
    pub fn switches_off(text: &str) -> bool {
        let enabled = text.parse::<toml::Table>().ok().and_then(|table| table.get("enabled")?.as_bool());
        enabled == Some(false)
    }

    /// Reads the repository's file against what the server allows.
    pub fn parse(text: &str, settings: &Settings) -> Result<Self, ConfigError> {
        let (file, tables) = workflows::split_workflow_tables::<RepositorySettingsFile>(
            text,
            settings.workflows.keys().copied(),
        )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_lies_below_the_root_and_is_written_in_one_way() {
        let parsed = |report: &str| TestSettings::parse(&format!("[test]\nreport = '{report}'"));
        for (written, meant) in [("./r.xml", "r.xml"), ("a//./b/", "a/b"), ("r.xml", "r.xml")] {
            assert_eq!(parsed(written).unwrap().report.as_deref(), Some(meant));
        }
        for bad in ["", ".", "/r.xml", "../r.xml", "a/../r.xml"] {
            assert!(parsed(bad).unwrap_err().message.contains("below the root"), "{bad}");
        }
        assert_eq!(TestSettings::parse("[test]\ncommand = 'x'").unwrap(), TestSettings::from_command("x"));
    }
}
