//! `countersign reload`: loads new secrets into a running server.

use std::process::ExitCode;

use anyhow::anyhow;

use super::{ConfigFlag, control};
use crate::workflows;

/// Make the running server read its secrets again: the webhook secret, the App's private key and the models' keys.
///
/// Runs continue during the reload. All files are checked before anything is replaced. If a file cannot be read, is
/// readable by other users, or contains no key of this App, the server keeps its current secrets and this command
/// prints the reason. The command also lists other settings that have changed and need a restart.
#[derive(clap::Args)]
pub(super) struct ReloadCommand {
    #[command(flatten)]
    config: ConfigFlag,
}

impl ReloadCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config).map_err(|error| {
            anyhow!("{error}; nothing was changed, and a running server keeps its current secrets")
        })?;
        control::call_and_print(&settings, "/reload", &()).await?;
        Ok(ExitCode::SUCCESS)
    }
}
