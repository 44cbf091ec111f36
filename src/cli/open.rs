//! `countersign open`: prints a link that opens the operator's pages.

use std::process::ExitCode;

use super::{ConfigFlag, control, print_line};
use crate::{
    web::control::{PageLinkRequest, PageLinks},
    workflows,
};

/// Print a link to the pages of a running server.
///
/// The link works once, within ten minutes. The browser that opens it may read the pages until its session ends or is
/// revoked. The server stores only a hash of the link and a hash of the session.
#[derive(clap::Args)]
pub(super) struct OpenCommand {
    /// Also allow the session to retry runs, pause and resume, and retry deliveries.
    #[arg(long)]
    act: bool,
    /// Length of the session in hours.
    #[arg(long, value_name = "HOURS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=720))]
    hours: u32,
    /// Revoke every link and every session, and print no new link.
    #[arg(long, conflicts_with_all = ["act", "hours"])]
    revoke: bool,
    #[command(flatten)]
    config: ConfigFlag,
}

impl OpenCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Self { act, hours, revoke, config } = self;
        let settings = workflows::load_settings(&config.config)?;
        if revoke {
            control::call_and_print(&settings, "/close", &()).await?;
        } else {
            let opened: PageLinks =
                control::call_server(&settings, "/open", &PageLinkRequest { act, hours }).await?;
            opened.links.iter().for_each(print_line);
        }
        Ok(ExitCode::SUCCESS)
    }
}
