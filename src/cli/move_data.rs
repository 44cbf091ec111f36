//! `countersign move`: copies databases from files into Postgres.

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

/// Copy a data directory's databases into the Postgres database of the settings.
///
/// Stop the server first. The Postgres database must be empty. All data is copied in one transaction, and is read back
/// and compared before the commit, so you can repeat an interrupted move. DIR is upgraded to this version, and is
/// marked after the move so that no server opens it again. Not moved: mirrors of repositories (fetched again), archives
/// (they stay readable in DIR), and the models' logins (copy their directories, or log in again).
#[derive(clap::Args)]
pub(super) struct MoveCommand {
    /// Data directory that the server has used so far.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    from: PathBuf,
    #[command(flatten)]
    config: ConfigFlag,
}

impl MoveCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let postgres = settings.postgres.with_context(|| {
            format!(
                "{} has no postgres_file under [data]; set it to name the target",
                self.config.config.display()
            )
        })?;
        require_data(&self.from)?;
        let from = Store::open(&self.from, Arc::new(SystemClock))?;
        // Opening each database migrates it to this version's schema.
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
            if moved.was_already_there { "already moved" } else { "moved" },
            count(moved.repositories, "repository", "repositories"),
            count(usize::try_from(moved.rows).unwrap_or(usize::MAX), "row", "rows"),
            count(moved.links, "audit link", "audit links"),
        ));
        if settings.data_dir == self.from {
            print_line(format_args!("Before you start the server, set [data] dir to another directory."));
        }
        Ok(ExitCode::SUCCESS)
    }
}
