//! `countersign reload`: new secrets for a running server.

use std::process::ExitCode;

use anyhow::anyhow;

use super::{ConfigFlag, control};
use crate::workflows;

/// Have the running server read its secrets again: the webhook's, the App's private key and the models' keys.
///
/// Runs go on meanwhile. All of it is checked before anything is taken: where a file cannot be read, is open to other
/// users, or holds no key of this App, the server keeps what it has and this says why. Other settings wait for a restart,
/// and are named.
#[derive(clap::Args)]
pub(super) struct ReloadCommand {
    #[command(flatten)]
    config: ConfigFlag,
}

impl ReloadCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config).map_err(|error| {
            anyhow!("{error}; nothing was changed, and a running server goes on with what it had")
        })?;
        control::call_and_print(&settings, "/reload", &()).await?;
        Ok(ExitCode::SUCCESS)
    }
}
