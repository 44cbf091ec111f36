//! `countersign backup` and `check`: a copy that can be gone on from, and whether what lies on disk is sound.

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

/// Copy everything there is into a data directory of files, also while the server works.
///
/// The copy is complete and consistent once the command ends with success. A repository whose database cannot be read
/// is named and left out, and the exit code is 1. DIR appears when everything else is in it; Ctrl-C leaves nothing. To
/// go on from it, point `[data] dir` at it (or move it there) and start the server: runs continue from their last step
/// in the copy, and what GitHub delivered since is fetched from its log. Not in it: mirrors of repositories (fetched
/// again), settings, keys and `.env`.
#[derive(clap::Args)]
pub(super) struct BackupCommand {
    /// A directory that does not exist yet, or is empty.
    #[arg(value_name = "DIR", value_parser = absolute_path())]
    directory: PathBuf,
    #[command(flatten)]
    config: ConfigFlag,
}

/// Look whether the databases are sound; changes nothing.
///
/// Reads every page, every document against its hash, every link of the audit chains. May run beside a server: each
/// database is read as it is at one moment. In a Postgres its pages are left to it. Exit code 1 when something is wrong.
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
        let begun = Instant::now(); // for the person who waited for it; decides nothing
        let to = directory.clone();
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), CancellationToken::new()));
        let made = match tokio::task::spawn_blocking(move || store::create_backup(&from, &to, &stop)).await? {
            Err(StoreError::Closing) => {
                print_line("Stopped; nothing is left of the copy.");
                return Ok(ExitCode::from(INTERRUPTED));
            }
            made => made?,
        };
        print_line(format_args!(
            "{} holds main.db and the databases of {}: {} KiB in {} ms",
            directory.display(),
            count(made.repositories, "repository", "repositories"),
            made.bytes.div_ceil(1024),
            begun.elapsed().as_millis()
        ));
        for missing in &made.missing {
            print_line(format_args!("NOT in it: {missing}"));
        }
        Ok(if made.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Not where models' programs keep their own: what lies there they may read.
fn require_separate_directory(settings: &Settings, directory: &Path) -> anyhow::Result<()> {
    let models = &settings.models;
    let real = directory.ancestors().find_map(|place| place.canonicalize().ok()).unwrap_or_default();
    for place in [&settings.data_dir, &models.claude.config_dir, &models.opencode.config_dir] {
        if place.canonicalize().is_ok_and(|place| real.starts_with(place)) {
            bail!(
                "a backup does not lie in {}, which the server or a model's program uses; choose a place outside of it",
                place.display()
            );
        }
    }
    Ok(())
}

impl CheckCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let source = self.config.open_source(None)?;
        let mend = match &source {
            DatabaseSource::Files(data) => format!(
                "Stop the server, keep {} as it is for whoever looks into it, and go on from a backup. A repository's file \
                 harms no other: it alone may be taken from the backup.",
                data.display()
            ),
            DatabaseSource::Server(_) => {
                "Stop all nodes, keep a dump for whoever looks into it, and go on from an older one."
                    .to_owned()
            }
        };
        let mut sound = true;
        for database in tokio::task::spawn_blocking(move || store::check_databases(&source)).await?? {
            let place = &database.place;
            if database.problems.is_empty() {
                print_line(format_args!("{place}: sound; {}", database.contents));
            }
            for wrong in &database.problems {
                print_line(format_args!("{place}: WRONG: {wrong}"));
                sound = false;
            }
        }
        if !sound {
            print_line(mend);
        }
        Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
