//! `countersign forget`: remove what is kept of a repository.

use std::{
    io::{BufRead, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use anyhow::anyhow;

use super::{ConfigFlag, control, say, wrong_usage};
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
        let settings = workflows::settings(&self.config.config)?;
        let name = &self.repository;
        if !self.yes {
            if !std::io::stdin().is_terminal() {
                return Ok(wrong_usage("nobody is there to be asked; add --yes"));
            }
            if !confirmed(name)? {
                say("Nothing was removed.");
                return Ok(ExitCode::FAILURE);
            }
        }
        let asked = ForgetRepositoryRequest { repository: name.clone() };
        match control::post::<ControlMessage>(&settings.data_dir, "/forget", &asked).await? {
            ControlReply::Done(said) => say(said.message),
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::Nobody => {
                forget(&settings.data_dir, name).await?;
                say(socket::forgotten(name));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn confirmed(name: &RepoName) -> std::io::Result<bool> {
    let mut out = std::io::stderr();
    write!(out, "Remove everything kept of {name}? There is no way back. Type its name to go on: ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().eq_ignore_ascii_case(&name.to_string()))
}

async fn forget(data: &Path, name: &RepoName) -> anyhow::Result<()> {
    super::must_hold_data(data)?;
    let store = Store::open(data, Arc::new(SystemClock))?;
    let repo = socket::named(&store, name).await?;
    Ok(store.forget_repo(repo).await?)
}
