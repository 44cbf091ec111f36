//! `countersign completions`: prints a shell completion script.

use std::{io::Write, process::ExitCode};

use clap_complete::{Shell, generate};

/// Print a completion script for a shell.
///
/// For bash: `source <(countersign completions bash)`.
#[derive(clap::Args)]
pub(super) struct CompletionsCommand {
    /// Shell for which to print the script.
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        // Generated in memory first: clap_complete panics on a closed pipe.
        let mut script = Vec::new();
        generate(self.shell, &mut super::command(), "countersign", &mut script);
        let _ = std::io::stdout().write_all(&script);
        Ok(ExitCode::SUCCESS)
    }
}
