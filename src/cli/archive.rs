//! `countersign archive`: put what long ended runs left into files, and make room.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::anyhow;

use super::{ConfigFlag, absolute_path, control, print_line, require_data};
use crate::{
    clock::SystemClock,
    store::Store,
    web::control::{self as socket, ArchiveReport, ArchiveRunsRequest, ControlReply},
    workflows,
};

/// Put texts and trails of long ended runs into a file for each repository, and take them out of its database.
///
/// The file has everything of these runs, as lines of JSON packed by zstd (`zstdcat FILE`): rows, texts, trail, calls,
/// findings, audit. It is read back before anything is removed. What was judged, accepted, pushed or left for later work
/// stays, and so do all rows: costs, findings and the audit chain are as before, and `countersign audit verify` names the
/// file. Other runs are not touched. What is freed is used again by the database; its file does not shrink, but a
/// `countersign backup` comes without it. Stopped on the way, it goes on when asked again. Also while the server works.
#[derive(clap::Args)]
pub(super) struct ArchiveCommand {
    /// Runs that ended at least so many days ago.
    #[arg(long, value_name = "DAYS", value_parser = days)]
    older_than: Duration,
    /// Where the files go; `archives` in the data directory where none is named. `countersign forget` removes those there.
    #[arg(long, value_name = "DIR", value_parser = absolute_path())]
    to: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFlag,
}

fn days(text: &str) -> Result<Duration, String> {
    let days: Option<u32> = text.strip_suffix('d').and_then(|days| days.parse().ok());
    match days {
        Some(days @ 1..=36_500) => Ok(Duration::from_secs(u64::from(days) * 24 * 3600)),
        _ => Err("write days, at least one: 90d".to_owned()),
    }
}

impl ArchiveCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let data = workflows::load_settings(&self.config.config)?.data_dir;
        let to = self.to.unwrap_or_else(|| Store::archive_directory(&data));
        let asked = ArchiveRunsRequest { older_than: self.older_than, to };
        let shelved: ArchiveReport = match control::post_to_server(&data, "/archive", &asked).await? {
            ControlReply::Done(shelved) => shelved,
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::NotRunning => {
                require_data(&data)?;
                let clock = Arc::new(SystemClock);
                socket::archive_runs(&*Store::open(&data, clock.clone())?, &*clock, &asked).await?
            }
        };
        shelved.lines.iter().for_each(print_line);
        Ok(if shelved.whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
