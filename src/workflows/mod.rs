//! The workflows. Adding one is a file here and three lines below.

pub mod implement;
pub mod issue;
pub mod lld;
pub mod route;
pub mod scout;
pub mod spec;

use std::path::Path;

use crate::{
    config::{ConfigError, Settings, WorkflowTable},
    engine::AnyWorkflow,
    rounds::Desk,
};

/// Every workflow there is, in the order `/help` shows them.
pub static ALL: &[&dyn AnyWorkflow<Desk>] =
    &[&route::Route, &scout::Scout, &issue::Issue, &lld::Lld, &spec::Spec, &implement::Implement];

/// Their settings.
pub const TABLES: &[WorkflowTable] =
    &[route::TABLE, scout::TABLE, issue::TABLE, lld::TABLE, spec::TABLE, implement::TABLE];

/// Reads the server's settings, those of every workflow among them.
///
/// # Errors
/// What in the file can't be used, with its line and what to do about it.
pub fn settings(file: &Path) -> Result<Settings, ConfigError> {
    Settings::load(file, TABLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workflow_has_its_settings() {
        let tables: Vec<_> = TABLES.iter().map(|table| table.name).collect();
        let names: Vec<_> = ALL.iter().map(|workflow| workflow.name()).collect();
        assert_eq!(tables, names);
    }
}
