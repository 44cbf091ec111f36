//! `countersign healthy`: what a container asks of its own server, where there is no other program that speaks HTTP.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::ConfigFlag;
use crate::workflows;

/// A server that needs longer for two words does not serve.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Does the server of these settings answer on its public address?
///
/// For health checks of containers and supervisors: it asks /healthz on this machine, waits 5 seconds at most, and says
/// nothing if all is well. What a run waits for shows `countersign runs`.
#[derive(clap::Args)]
pub(super) struct HealthyCommand {
    #[command(flatten)]
    config: ConfigFlag,
}

impl HealthyCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut address = workflows::load_settings(&self.config.config)?.server.listen;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        // One provider a process; nothing here is encrypted, and the client asks for one anyway.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().timeout(HEALTH_TIMEOUT).build()?;
        let url = format!("http://{address}/healthz");
        let answer = client.get(&url).send().await;
        let status =
            answer.with_context(|| format!("nothing answers at {url}; look into the server's log"))?.status();
        if !status.is_success() {
            bail!(
                "{url} answers {status}, so another program has that address; choose another under [server]"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
