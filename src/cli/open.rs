//! `countersign open`: the way into the operator's pages.

use std::process::ExitCode;

use super::{ConfigFlag, control, print_line};
use crate::{
    web::control::{PageLinkRequest, PageLinks},
    workflows,
};

/// Print a link to the pages of a running server.
///
/// The first browser that opens it within ten minutes may read them, until its session is over or taken back. Only a hash of
/// either is kept.
#[derive(clap::Args)]
pub(super) struct OpenCommand {
    /// Also retry runs, pause and resume, and give deliveries another try.
    #[arg(long)]
    act: bool,
    /// How long the session lasts.
    #[arg(long, value_name = "HOURS", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=720))]
    hours: u32,
    /// Take every link back and end every session instead.
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
