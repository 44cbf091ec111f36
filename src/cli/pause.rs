//! `countersign pause`, `resume` and `retry`: operator commands for a running server.

use std::process::ExitCode;

use super::{ConfigFlag, control};
use crate::{
    types::{RepoName, RunId},
    web::control::{PauseRequest, RetryCommandRequest},
    workflows,
};

/// Stop starting new steps, for one repository or for all.
///
/// Comments are still accepted and acknowledged, and running steps finish. A pause survives restarts. `countersign
/// resume` ends the pause, and every run then continues where it stopped.
#[derive(clap::Args)]
pub(super) struct PauseCommand {
    /// Pause only this repository, given as OWNER/REPO.
    #[arg(value_name = "OWNER/REPO")]
    repository: Option<RepoName>,
    #[command(flatten)]
    config: ConfigFlag,
}

/// End a pause.
///
/// A repository that was paused by name stays paused until you name it here. While the whole server is paused, no run
/// continues, not even in a repository that you name.
#[derive(clap::Args)]
pub(super) struct ResumeCommand {
    /// Resume only this repository, given as OWNER/REPO.
    #[arg(value_name = "OWNER/REPO")]
    repository: Option<RepoName>,
    #[command(flatten)]
    config: ConfigFlag,
}

/// Retry a run that failed or is parked.
///
/// The run continues at the step where it failed and keeps all earlier results, so model calls that were paid for are
/// not repeated. Use this command after you have fixed the cause, for example a wrong key, an exhausted quota, a full
/// disk or an outdated version.
#[derive(clap::Args)]
pub(super) struct RetryCommand {
    /// Run ID, for example 8123-4, as shown by the run's comments and by `countersign runs --all`.
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
