//! `countersign man`: writes manual pages generated from the `--help` texts.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;

/// Write manual pages, one per command.
///
/// Read them with `man -l DIR/countersign-serve.1`, or with `man countersign-serve` from a directory such as
/// /usr/local/share/man/man1.
#[derive(clap::Args)]
pub(super) struct ManCommand {
    /// Directory to write to; created if it does not exist.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

impl ManCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        std::fs::create_dir_all(&self.to)
            .and_then(|()| clap_mangen::generate_to(super::command(), &self.to))
            .with_context(|| format!("{} cannot be written; name another directory", self.to.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
