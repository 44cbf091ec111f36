//! `countersign login`: log a model's program in, for the server and nobody else.

use std::{process::ExitCode, sync::Arc};

use anyhow::{anyhow, bail};

use super::{ConfigFlag, print_line};
use crate::{clock::SystemClock, providers::ModelProviders, workflows};

/// Log the Claude CLI, or OpenCode, in for the server, with your subscription.
///
/// Runs the program's own login in a configuration directory of the server's, never in yours: what you set up there for
/// yourself, hooks too, would otherwise run with every call. Run it as the user the server runs as.
#[derive(clap::Args)]
pub(super) struct LoginCommand {
    #[command(flatten)]
    pub(super) config: ConfigFlag,
    /// Which program.
    #[arg(value_parser = ["claude", "opencode"], default_value = "claude")]
    pub(super) program: String,
}

impl LoginCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let providers = ModelProviders::new(&settings.models, Arc::new(SystemClock))?;
        let name = self.program.as_str();
        let back_end = providers.login_program(name).ok_or_else(|| anyhow!("{name} is no program"))?;
        let login = back_end.log_in().ok_or_else(|| anyhow!("{name} is not logged in to"))?;
        if !login.await.map_err(|why| anyhow!(why))? {
            bail!("{name} was not logged in; run `countersign login {name}` again");
        }
        let ways = back_end.inspect().await;
        let way = ways.iter().find(|way| way.provider == name);
        match way.map(|way| &way.state) {
            Some(Ok(said)) => print_line(format_args!("{name} is logged in ({said}).")),
            Some(Err(why)) => bail!("{why}"),
            None => bail!("{name} did not say whether it is logged in"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
