//! `countersign pause`, `resume` and `retry`: an operator's hand on a running server.

use std::process::ExitCode;

use super::{ConfigFlag, control};
use crate::{
    types::{RepoName, RunId},
    web::control::{PauseRequest, RetryCommandRequest},
    workflows,
};

/// Begin no step from now on, of one repository or of all.
///
/// What people say is still taken in and acknowledged, and steps that are under way end as they would. A pause outlives
/// restarts; `countersign resume` ends it, and everything goes on where it stood.
#[derive(clap::Args)]
pub(super) struct PauseCommand {
    /// Only this repository, as OWNER/REPO.
    #[arg(value_name = "OWNER/REPO")]
    repository: Option<RepoName>,
    #[command(flatten)]
    config: ConfigFlag,
}

/// End a pause.
///
/// A repository that was paused by itself stays so until it is named here; while the whole server is paused, nothing
/// goes on.
#[derive(clap::Args)]
pub(super) struct ResumeCommand {
    /// Only this repository, as OWNER/REPO.
    #[arg(value_name = "OWNER/REPO")]
    repository: Option<RepoName>,
    #[command(flatten)]
    config: ConfigFlag,
}

/// Try a run again that failed or is parked.
///
/// It goes on at the step it failed at, with everything it had by then; answers of models that were paid for are not
/// bought again. For when the cause is mended: a key, a quota, a full disk, a newer version.
#[derive(clap::Args)]
pub(super) struct RetryCommand {
    /// The run, as its comments and `countersign runs --all` show it, for example 8123-4.
    #[arg(value_name = "RUN")]
    run: RunId,
    #[command(flatten)]
    config: ConfigFlag,
}

impl PauseCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        send_request("/pause", self.repository, &self.config).await
    }
}

impl ResumeCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        send_request("/resume", self.repository, &self.config).await
    }
}

async fn send_request(
    path: &str,
    repository: Option<RepoName>,
    config: &ConfigFlag,
) -> anyhow::Result<ExitCode> {
    let settings = workflows::load_settings(&config.config)?;
    control::call_and_print(&settings, path, &PauseRequest { repository, by: control::operator_name() })
        .await?;
    Ok(ExitCode::SUCCESS)
}

impl RetryCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        control::call_and_print(
            &settings,
            "/retry",
            &RetryCommandRequest { run: self.run, by: control::operator_name() },
        )
        .await?;
        Ok(ExitCode::SUCCESS)
    }
}
