//! `countersign replay`: lists a folder of recorded responses and checks that they can be replayed.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;

use super::{align_columns, print_line};
use crate::providers::{Cassette, CassetteEntry, CassetteOutcome, Usage, read_cassettes};

/// List the recorded responses in a folder, and check that each can be replayed
///
/// To record responses, and to replay them later without a model, a network or a bill:
///
///   [models]
///   cassettes = { dir = "cassettes", mode = "record" }   # then mode = "replay"
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ReplayCommand {
    /// Folder with the recorded responses.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl ReplayCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let cassettes =
            read_cassettes(&self.dir).with_context(|| format!("{} can't be read", self.dir.display()))?;
        let mut broken = 0;
        let mut rows = vec![["CASSETTE", "ROLE", "ASKED", "SERVED", "OUTCOME"].map(str::to_owned)];
        let served = |usage: &Usage| usage.served.clone().unwrap_or_else(|| "-".to_owned());
        for (name, cassette) in cassettes {
            let name: String = name.chars().take(12).collect();
            let Cassette { request, takes } = match cassette {
                Ok(cassette) => cassette,
                Err(why) => {
                    broken += 1;
                    let blank = || "-".to_owned();
                    rows.push([name, blank(), blank(), blank(), format!("unusable: {why}")]);
                    continue;
                }
            };
            let asked = format!("{}:{}", request.provider, request.model);
            let mut row = |usage, outcome| {
                rows.push([name.clone(), request.role.clone(), asked.clone(), served(usage), outcome])
            };
            for CassetteEntry { before, outcome, usage } in &takes {
                for attempt in before {
                    row(&attempt.usage, format!("tried first: {}", attempt.message));
                }
                row(
                    usage,
                    match outcome {
                        CassetteOutcome::Answer { text, .. } => format!("{} bytes", text.len()),
                        CassetteOutcome::Error { message, .. } => message.clone(),
                    },
                );
            }
        }
        align_columns(&rows).iter().for_each(print_line);
        Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
