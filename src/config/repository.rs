//! A repository's own settings. They may tighten the server's settings but not loosen them.

use std::path::{Component, Path};

use serde::{Deserialize, Deserializer};

use super::{
    BudgetSettings, ConfigError, REPOSITORY_FILE, Settings,
    budget::RepositoryBudgetTable,
    from_toml, line_of,
    workflows::{self, SettingsByWorkflow},
};

/// Settings that apply to one repository: the server's settings, tightened by the repository's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoSettings {
    pub budget: BudgetSettings,
    pub workflows: SettingsByWorkflow,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RepositorySettingsFile {
    /// Whether work is enabled; evaluated by [`RepoSettings::switches_off`].
    enabled: Option<bool>,
    budget: RepositoryBudgetTable,
    /// The `[test]` table; evaluated by [`TestSettings::parse`].
    test: TestSettings,
}

/// Settings for running a repository's tests, for a repository whose files do not show how to run them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TestSettings {
    /// Shell command that runs before the tests, at the repository's root. If it fails, no test is run.
    pub setup: Option<String>,
    /// Shell command that runs the tests, at the repository's root.
    pub command: Option<String>,
    /// Report that the command writes: a JUnit XML or TAP file, or a folder of `.xml` files. The path is relative to
    /// the root.
    #[serde(deserialize_with = "below_root")]
    pub report: Option<String>,
    /// Shell command that runs the end-to-end tests.
    pub end_to_end: Option<String>,
    /// Duration in seconds above which the whole test suite is run once instead of three times.
    pub full_seconds: Option<u64>,
}

/// Deserializes a path below the root, normalized like the paths of a commit.
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
    /// Returns test settings that contain only this command. The command's exit code is the test result.
    pub fn from_command(line: &str) -> Self {
        Self { command: Some(line.to_owned()), ..Self::default() }
    }

    /// Reads `[test]` of a repository's file and ignores the other tables.
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
    /// Returns the settings of a repository that has no valid settings file.
    pub fn from_server(settings: &Settings) -> Self {
        Self { budget: settings.budget.clone(), workflows: settings.workflows.clone() }
    }

    /// Returns whether the repository's file disables all work. This setting takes effect even if the rest of the file
    /// is invalid.
    pub fn switches_off(text: &str) -> bool {
        let enabled = text.parse::<toml::Table>().ok().and_then(|table| table.get("enabled")?.as_bool());
        enabled == Some(false)
    }

    /// Parses the repository's file and checks it against the server's settings.
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
    fn report_path_is_normalized_and_stays_below_root() {
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
