//! `countersign login`: logs a model's program in, only for use by the server.

use std::{process::ExitCode, sync::Arc};

use anyhow::{anyhow, bail};

use super::{ConfigFlag, print_line};
use crate::{clock::SystemClock, providers::ModelProviders, workflows};

/// Log the Claude CLI or OpenCode in for the server, with your subscription.
///
/// Runs the program's own login command in a separate configuration directory of the server. Your own configuration is
/// not used, because its hooks would then run with every call. Run this command as the user that runs the server.
#[derive(clap::Args)]
pub(super) struct LoginCommand {
    #[command(flatten)]
    pub(super) config: ConfigFlag,
    /// Program to log in.
    #[arg(value_parser = ["claude", "opencode"], default_value = "claude")]
    pub(super) program: String,
}

impl LoginCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let providers = ModelProviders::new(&settings.models, Arc::new(SystemClock))?;
        let name = self.program.as_str();
        let back_end = providers.login_program(name).ok_or_else(|| anyhow!("unknown program {name}"))?;
        let login = back_end.log_in().ok_or_else(|| anyhow!("{name} has no login"))?;
        if !login.await.map_err(|why| anyhow!(why))? {
            bail!("{name} was not logged in; run `countersign login {name}` again");
        }
        let routes = back_end.inspect().await;
        let route = routes.iter().find(|route| route.provider == name);
        match route.map(|route| &route.state) {
            Some(Ok(state)) => print_line(format_args!("{name} is logged in ({state}).")),
            Some(Err(why)) => bail!("{why}"),
            None => bail!("{name} did not report whether it is logged in"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
