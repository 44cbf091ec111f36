//! `countersign completions`: what a shell needs to complete our command line.

use std::{io::Write, process::ExitCode};

use clap_complete::{Shell, generate};

/// Print a script that makes a shell complete this program's commands and flags.
///
/// For bash: `source <(countersign completions bash)`.
#[derive(clap::Args)]
pub(super) struct CompletionsCommand {
    /// The shell it is for.
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        // Made whole first: the crate panics on a pipe that was closed.
        let mut script = Vec::new();
        generate(self.shell, &mut super::command(), "countersign", &mut script);
        let _ = std::io::stdout().write_all(&script);
        Ok(ExitCode::SUCCESS)
    }
}
