//! `countersign move`: from databases in files into a Postgres.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::Context as _;

use super::{ConfigFlag, absolute_path, print_line, require_data};
use crate::{
    app,
    clock::SystemClock,
    store::{self, Store},
    types::count,
    workflows,
};

/// Put a data directory's databases into the Postgres of the settings.
///
/// Stop the server first. Everything goes in one transaction and is read back and compared before it counts, so a move that
/// is stopped is simply begun again; the database has to be empty. DIR is opened as at a start, which brings it to this version, and
/// then gets a mark, because of which no server opens it any more. Not moved: mirrors of repositories (fetched again), what was archived (it stays readable
/// in DIR), and the models' logins (copy their directories, or log in again).
#[derive(clap::Args)]
pub(super) struct MoveCommand {
    /// The data directory that was used up to now.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    from: PathBuf,
    #[command(flatten)]
    config: ConfigFlag,
}

impl MoveCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let postgres = settings.postgres.with_context(|| {
            format!("{} names no postgres_file under [data]; that is where to", self.config.config.display())
        })?;
        require_data(&self.from)?;
        let from = Store::open(&self.from, Arc::new(SystemClock))?;
        // What an older version wrote is brought to what this one knows.
        for repo in from.repositories().await? {
            from.repository_database(repo).await?;
        }
        let server = app::postgres_server(&postgres);
        let moved = tokio::task::spawn_blocking(move || {
            store::move_to_postgres(&from, &server, |repo, rows| {
                print_line(format_args!("repository {repo}: {rows} rows"));
            })
        });
        let moved = moved.await??;
        print_line(format_args!(
            "{}: {}, {} and {}, compared row by row",
            if moved.was_already_there { "it was there already" } else { "moved" },
            count(moved.repositories, "repository", "repositories"),
            count(usize::try_from(moved.rows).unwrap_or(usize::MAX), "row", "rows"),
            count(moved.links, "audit link", "audit links"),
        ));
        if settings.data_dir == self.from {
            print_line(format_args!("Before you start the server, name another directory under [data] dir."));
        }
        Ok(ExitCode::SUCCESS)
    }
}
