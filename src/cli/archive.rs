//! `countersign archive`: moves texts and trails of old runs from the databases into files.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::anyhow;

use super::{ConfigFlag, absolute_path, control, print_line, require_data};
use crate::{
    clock::SystemClock,
    store::Store,
    web::control::{self as socket, ArchiveReport, ArchiveRunsRequest, ControlReply},
    workflows,
};

/// Move texts and trails of old finished runs into one file per repository, to free database space.
///
/// Each file holds all data of the archived runs as zstd-compressed lines of JSON (`zstdcat FILE`): rows, texts, trail,
/// calls, findings, audit. The command reads each file back before it removes anything from the database. The database
/// keeps the rows, and the texts that were reviewed, accepted, pushed or deferred. Costs, findings and the audit chain
/// therefore do not change, and `countersign audit verify` names the file that holds a missing text. Other runs are not
/// touched. The database reuses the freed space: the database file does not shrink, but a `countersign backup` is
/// smaller. If the command is interrupted, run it again to continue. Works while the server runs.
#[derive(clap::Args)]
pub(super) struct ArchiveCommand {
    /// Archive only runs that ended at least this many days ago.
    #[arg(long, value_name = "DAYS", value_parser = days)]
    older_than: Duration,
    /// Directory for the files; default: `archives` in the data directory. `countersign forget` removes archive files
    /// only from the default directory.
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
        let request = ArchiveRunsRequest { older_than: self.older_than, to };
        let report: ArchiveReport = match control::post_to_server(&data, "/archive", &request).await? {
            ControlReply::Done(report) => report,
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::NotRunning => {
                require_data(&data)?;
                let clock = Arc::new(SystemClock);
                socket::archive_runs(&*Store::open(&data, clock.clone())?, &*clock, &request).await?
            }
        };
        report.lines.iter().for_each(print_line);
        Ok(if report.whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
