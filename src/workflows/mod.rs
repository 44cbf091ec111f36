//! The workflows. Adding a workflow takes a new file in this folder and three lines below.

pub mod implement;
pub mod issue;
pub mod lld;
pub mod route;
pub mod scout;
pub mod spec;

use std::path::Path;

use crate::{
    config::{ConfigError, Settings, WorkflowDefaults},
    engine::AnyWorkflow,
    rounds::StepServices,
};

/// All workflows, in the order in which `/help` lists them.
pub static ALL: &[&dyn AnyWorkflow<StepServices>] = &[
    &route::RouteWorkflow,
    &scout::ScoutWorkflow,
    &issue::IssueWorkflow,
    &lld::LldWorkflow,
    &spec::SpecWorkflow,
    &implement::ImplementWorkflow,
];

/// Settings of the workflows, in the order of [`ALL`].
pub const TABLES: &[WorkflowDefaults] =
    &[route::TABLE, scout::TABLE, issue::TABLE, lld::TABLE, spec::TABLE, implement::TABLE];

/// Reads the server's settings, including those of each workflow.
///
/// # Errors
/// The first setting that cannot be used, with its line and the fix.
pub fn load_settings(file: &Path) -> Result<Settings, ConfigError> {
    Settings::load(file, TABLES)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::Value;

    use super::*;
    use crate::engine::{SavedCheckpoint, Workflow};

    /// Asserts that every checkpoint in the fixtures of all versions can be read or upcast.
    fn reads_what_it_stored<W: Workflow<StepServices>>() {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/states");
        let mut read = 0;
        for version in 1..=W::VERSION {
            let file = directory.join(format!("{}-v{version}.jsonl", W::NAME));
            let Ok(lines) = std::fs::read_to_string(file) else { continue };
            for line in lines.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let text = |name: &str| line[name].as_str().unwrap().to_owned();
                let saved = SavedCheckpoint { step: text("step"), state: text("state").into_bytes() };
                let fits = |saved: &SavedCheckpoint| {
                    serde_json::from_str::<W::Step>(&saved.step)
                        .and_then(|_| serde_json::from_slice::<W::State>(&saved.state))
                        .map(drop)
                };
                let fitted = fits(&saved).or_else(|error| match W::upcast(version, &saved) {
                    Some(newer) => fits(&newer),
                    None => Err(error),
                });
                fitted.unwrap_or_else(|error| {
                    panic!("{} cannot read what version {version} stored at {}: {error}", W::NAME, saved.step)
                });
                read += 1;
            }
        }
        assert!(read > 0, "{} has no checkpoints in {}", W::NAME, directory.display());
    }

    #[test]
    fn checkpoints_of_earlier_versions_can_be_read() {
        reads_what_it_stored::<route::RouteWorkflow>();
        reads_what_it_stored::<scout::ScoutWorkflow>();
        reads_what_it_stored::<issue::IssueWorkflow>();
        reads_what_it_stored::<lld::LldWorkflow>();
        reads_what_it_stored::<spec::SpecWorkflow>();
        reads_what_it_stored::<implement::ImplementWorkflow>();
    }

    #[test]
    fn every_workflow_has_a_settings_table() {
        let tables: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        let names: Vec<_> = ALL.iter().map(|workflow| workflow.name()).collect();
        assert_eq!(tables, names);
    }
}
