//! `countersign localhub`: runs the demo's local GitHub as a separate command.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{absolute_path, claim_directory, print_line, report_usage_error, serve::on_signals};
use crate::{
    clock::{Clock, SystemClock},
    localhub::{self, Hub, HubOptions, RepoSource},
    types::Role,
};

/// Run the demo's local GitHub by itself, to try `setup`, `doctor` and `serve` with it.
///
/// The local GitHub listens only on the loopback interface and serves one sample repository with three issues. Its
/// state is kept in the data directory, so that a later start with the same directory continues from that state.
#[derive(clap::Args)]
pub(super) struct LocalhubCommand {
    /// Loopback address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8010")]
    listen: SocketAddr,
    /// Directory for the repositories and the state of the local GitHub.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    data: PathBuf,
}

impl LocalhubCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if !self.listen.ip().is_loopback() {
            return Ok(report_usage_error(format_args!(
                "--listen {} is not loopback; localhub serves this machine only, write 127.0.0.1:PORT",
                self.listen
            )));
        }
        let _lock = claim_directory(&self.data, localhub::STATE_FILE)?;
        let hub = Hub::start(HubOptions {
            listen: self.listen,
            data: self.data,
            now: Arc::new(|| SystemClock.now()),
            keeps: true,
        })
        .await?;
        let repo = match hub.repository_id("maya", "tally") {
            Some(repo) => repo,
            None => create_sample_repository(&hub)?,
        };
        // Installed before we print the addresses: a script may stop us as soon as it has read them.
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), stop.clone()));
        print_line(format_args!("pages     {}", hub.page_url()));
        print_line(format_args!("API       {}", hub.api_url()));
        print_line(format_args!("git       {}", hub.base_url()));
        if let Some(page) = hub.repo_page_url(repo, "issues") {
            print_line(format_args!("issues    {page}"));
        }
        print_line("To set up the App:");
        print_line(format_args!("          countersign init --github {}", hub.base_url()));
        stop.cancelled().await;
        hub.stop().await;
        Ok(ExitCode::SUCCESS)
    }
}

fn create_sample_repository(hub: &Hub) -> anyhow::Result<crate::types::RepoId> {
    let sample = localhub::embedded_sample();
    let maya = hub.create_user("maya")?;
    let files = sample.files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec())).collect();
    let repo = hub.create_repo(maya, "tally", RepoSource::Files(files), false)?;
    for (login, role) in [("maya", Role::Admin), ("sam", Role::Write), ("tess", Role::Triage)] {
        let user = hub.create_user(login)?;
        hub.set_role(repo, user, role)?;
    }
    hub.create_user("stranger")?;
    for (title, body) in &sample.issues {
        hub.open_issue(repo, maya, title, body)?;
    }
    Ok(repo)
}
