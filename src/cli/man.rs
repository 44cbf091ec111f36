//! `countersign man`: the manual's pages, from the same words as `--help`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;

/// Write the manual's pages, one for each command.
///
/// They are read with `man -l DIR/countersign-serve.1`, or by `man countersign-serve` from a directory such as
/// /usr/local/share/man/man1.
#[derive(clap::Args)]
pub(super) struct ManCommand {
    /// The directory to write them into; it is made if it is not there.
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
