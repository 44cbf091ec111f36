//! `countersign forget`: remove what is kept of a repository.

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

/// Remove everything kept of a repository: runs, documents, costs, audit chain, mirror and deliveries.
///
/// What is on GitHub stays as it is. A running server refuses while a run of the repository is alive (end it with `/stop`
/// on its issue); without a server what was alive is forgotten with the rest. There is no way back but a backup.
#[derive(clap::Args)]
pub(super) struct ForgetCommand {
    /// The repository, as OWNER/REPO.
    #[arg(value_name = "OWNER/REPO")]
    repository: RepoName,
    /// Do not ask.
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
                return Ok(report_usage_error("nobody is there to be asked; add --yes"));
            }
            if !confirm(name)? {
                print_line("Nothing was removed.");
                return Ok(ExitCode::FAILURE);
            }
        }
        let asked = ForgetRepositoryRequest { repository: name.clone() };
        match control::post_to_server::<ControlMessage>(&settings.data_dir, "/forget", &asked).await? {
            ControlReply::Done(said) => print_line(said.message),
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
    write!(out, "Remove everything kept of {name}? There is no way back. Type its name to go on: ")?;
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
