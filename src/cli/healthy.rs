//! `countersign healthy`: a health check for containers that contain no other HTTP client.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::ConfigFlag;
use crate::workflows;

/// Timeout of the health request. A server that takes longer is reported as down.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// Check that the server answers on its public address.
///
/// Containers and supervisors can use this command as a health check. The command requests /healthz on this machine,
/// waits at most 5 seconds, and prints nothing if the server is up. To see what runs are waiting for, use `countersign
/// runs`.
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
        // rustls allows one default provider per process; reqwest requires one even for plain HTTP.
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
