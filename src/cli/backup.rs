//! `countersign backup` and `countersign check`: copy the databases, and check that they are intact.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use anyhow::bail;
use tokio_util::sync::CancellationToken;

use super::{ConfigFlag, INTERRUPTED, absolute_path, print_line, serve::on_signals};
use crate::{
    config::Settings,
    store::{self, DatabaseSource, StoreError},
    types::count,
    workflows,
};

/// Copy all databases into a new data directory, also while the server runs.
///
/// If the command succeeds, the copy is complete and consistent. A repository whose database cannot be read is named
/// and skipped; the exit code is then 1. DIR appears only when the copy is complete, so Ctrl-C leaves nothing behind.
/// To restore, point `[data] dir` at the copy (or move the copy there) and start the server. Runs then continue from
/// their last step in the copy, and the server fetches the deliveries that it missed from GitHub's log. Not copied:
/// mirrors of repositories (fetched again), settings, keys and `.env`.
#[derive(clap::Args)]
pub(super) struct BackupCommand {
    /// Directory that does not exist yet or is empty.
    #[arg(value_name = "DIR", value_parser = absolute_path())]
    directory: PathBuf,
    #[command(flatten)]
    config: ConfigFlag,
}

/// Check that the databases are intact; changes nothing.
///
/// Reads every page, compares every document with its hash, and verifies every link of the audit chains. Works while a
/// server runs, because each database is read in one snapshot. With Postgres, pages are not checked. The exit code is 1
/// if a problem is found.
#[derive(clap::Args)]
pub(super) struct CheckCommand {
    #[command(flatten)]
    config: ConfigFlag,
}

impl BackupCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let directory = self.directory;
        let from = self.config.open_source(None)?;
        require_separate_directory(&settings, &directory)?;
        let begun = Instant::now(); // printed only; decides nothing
        let to = directory.clone();
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), CancellationToken::new()));
        let backup =
            match tokio::task::spawn_blocking(move || store::create_backup(&from, &to, &stop)).await? {
                Err(StoreError::Closing) => {
                    print_line("Stopped; the partial copy was removed.");
                    return Ok(ExitCode::from(INTERRUPTED));
                }
                backup => backup?,
            };
        print_line(format_args!(
            "{} holds main.db and the databases of {}: {} KiB in {} ms",
            directory.display(),
            count(backup.repositories, "repository", "repositories"),
            backup.bytes.div_ceil(1024),
            begun.elapsed().as_millis()
        ));
        for missing in &backup.missing {
            print_line(format_args!("NOT in the copy: {missing}"));
        }
        Ok(if backup.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Fails if the backup would be written into the data directory, or into the configuration directory of a model
/// program, which models can read.
fn require_separate_directory(settings: &Settings, directory: &Path) -> anyhow::Result<()> {
    let models = &settings.models;
    let real = directory.ancestors().find_map(|place| place.canonicalize().ok()).unwrap_or_default();
    for place in [&settings.data_dir, &models.claude.config_dir, &models.opencode.config_dir] {
        if place.canonicalize().is_ok_and(|place| real.starts_with(place)) {
            bail!(
                "a backup cannot be in {}, which the server or a model's program uses; choose a directory outside it",
                place.display()
            );
        }
    }
    Ok(())
}

impl CheckCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let source = self.config.open_source(None)?;
        let advice = match &source {
            DatabaseSource::Files(data) => format!(
                "Stop the server, keep {} as it is for inspection, and continue from a backup. A damaged repository file does \
                 not affect the others, so you can restore only that file.",
                data.display()
            ),
            DatabaseSource::Server(_) => {
                "Stop all nodes, keep a dump for inspection, and continue from an older dump.".to_owned()
            }
        };
        let mut sound = true;
        for database in tokio::task::spawn_blocking(move || store::check_databases(&source)).await?? {
            let place = &database.place;
            if database.problems.is_empty() {
                print_line(format_args!("{place}: intact; {}", database.contents));
            }
            for wrong in &database.problems {
                print_line(format_args!("{place}: WRONG: {wrong}"));
                sound = false;
            }
        }
        if !sound {
            print_line(advice);
        }
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
