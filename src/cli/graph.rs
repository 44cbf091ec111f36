//! `countersign graph`: prints a workflow's diagram, drawn from the engine's own table.

use std::process::ExitCode;

use super::{print_line, report_usage_error};
use crate::workflows;

/// Print a workflow's steps and edges as a mermaid diagram.
///
/// The diagram is drawn from the table that the engine checks at startup and follows at every step.
#[derive(clap::Args)]
pub(super) struct GraphCommand {
    /// Name of the workflow, for example `lld`.
    workflow: String,
}

impl GraphCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Some(workflow) = workflows::ALL.iter().find(|w| w.name() == self.workflow) else {
            let known: Vec<_> = workflows::ALL.iter().map(|w| w.name()).collect();
            let known = known.join(", ");
            return Ok(report_usage_error(format_args!(
                "unknown workflow `{}`; known are {known}",
                self.workflow
            )));
        };
        print_line(workflow.mermaid().trim_end());
        Ok(ExitCode::SUCCESS)
    }
}
