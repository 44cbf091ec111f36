//! `countersign forget`: removes all stored data of a repository.

use std::{
    io::{BufRead, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::anyhow;

use super::{ConfigFlag, control, print_line, report_usage_error};
use crate::{
    clock::SystemClock,
    store::Store,
    types::RepoName,
    web::control::{self as socket, ControlMessage, ControlReply, ForgetRepositoryRequest},
    workflows,
};

/// Remove all stored data of a repository: runs, documents, costs, audit chain, mirror and deliveries.
///
/// Nothing on GitHub changes. A running server refuses the command while a run of the repository is live; end the run
/// with `/stop` on its issue. If no server runs, live runs are removed too. Only a backup can restore the data.
#[derive(clap::Args)]
pub(super) struct ForgetCommand {
    /// Repository, as OWNER/REPO.
    #[arg(value_name = "OWNER/REPO")]
    repository: RepoName,
    /// Remove the data without asking for confirmation.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    config: ConfigFlag,
}

impl ForgetCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let name = &self.repository;
        if !self.yes {
            if !std::io::stdin().is_terminal() {
                return Ok(report_usage_error("stdin is not a terminal, so nobody can confirm; add --yes"));
            }
            if !confirm(name)? {
                print_line("Nothing was removed.");
                return Ok(ExitCode::FAILURE);
            }
        }
        let request = ForgetRepositoryRequest { repository: name.clone() };
        match control::post_to_server::<ControlMessage>(&settings.data_dir, "/forget", &request).await? {
            ControlReply::Done(reply) => print_line(reply.message),
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::NotRunning => {
                forget_repository(&settings.data_dir, name).await?;
                print_line(socket::forgotten_message(name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn confirm(name: &RepoName) -> std::io::Result<bool> {
    let mut out = std::io::stderr();
    write!(out, "Remove all stored data of {name}? This cannot be undone. Type its name to continue: ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().eq_ignore_ascii_case(&name.to_string()))
}

async fn forget_repository(data: &Path, name: &RepoName) -> anyhow::Result<()> {
    super::require_data(data)?;
    let store = Store::open(data, Arc::new(SystemClock))?;
    let repo = socket::find_repository(&store, name).await?;
    Ok(store.forget_repo(repo).await?)
}
