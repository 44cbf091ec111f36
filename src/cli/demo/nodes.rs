//! Runs the bot as several processes on one Postgres database; one of the processes is killed midway.

use std::{
    fs::{self, File},
    path::Path,
    process::Stdio,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    net::TcpSocket,
    process::{Child, Command},
};
use url::Url;

use super::super::print_line;
use crate::proc::reserved_address;

/// Lease of the demo's nodes in seconds. This is the shortest allowed lease, so that another node soon continues the
/// work of the killed node.
const LEASE_SECONDS: u32 = 8;

/// Running `serve` processes. The first process in the list receives the deliveries.
pub(super) struct DemoNodes {
    running: Mutex<Vec<DemoNode>>,
}

struct DemoNode {
    number: usize,
    child: Child,
    webhook: Url,
    /// Sockets that keep the node's two ports reserved.
    _reserved: [TcpSocket; 2],
}

/// Returns the settings lines that connect the demo's own process to the shared database.
pub(super) fn settings(postgres: &Path) -> anyhow::Result<String> {
    let file = fs::canonicalize(postgres).with_context(|| format!("{} is not there", postgres.display()))?;
    Ok(format!("postgres_file = {file:?}\nlease_seconds = {LEASE_SECONDS}\n"))
}

impl DemoNodes {
    /// Starts `count` nodes with the settings in `config`. Each node gets its own ports, and its own data directory,
    /// settings file and log in the directory of `config`.
    pub(super) fn start(config: &Path, count: usize) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let text = fs::read_to_string(config)?;
        let running = (1..=count).map(|number| {
            let ((public, at), (private, also_at)) = (reserved_address()?, reserved_address()?);
            let node_config = config.with_file_name(format!("node{number}.toml"));
            let directory = format!("dir = \"node{number}\"");
            let ports = format!("\n[server]\nlisten = \"{public}\"\nprivate_listen = \"{private}\"\n");
            fs::write(&node_config, text.replacen("dir = \"data\"", &directory, 1) + &ports)?;
            let log = File::create(config.with_file_name(format!("node{number}.log")))?;
            let mut serve = Command::new(&own);
            serve.args(["serve", "--config"]).arg(node_config).stdin(Stdio::null()).kill_on_drop(true);
            // Its own process group, so Ctrl-C reaches only the demo, which stops the nodes.
            let child = serve.process_group(0).stdout(log.try_clone()?).stderr(log).spawn()?;
            let webhook = format!("http://{public}/webhook").parse()?;
            Ok(DemoNode { number, child, webhook, _reserved: [at, also_at] })
        });
        Ok(Self { running: Mutex::new(running.collect::<anyhow::Result<_>>()?) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<DemoNode>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the webhook address of the node that receives the deliveries.
    pub(super) fn webhook(&self) -> anyhow::Result<Url> {
        Ok(self.lock().first().context("no node is left")?.webhook.clone())
    }

    /// Waits until every node accepts connections; fails if a node has exited.
    pub(super) async fn wait_until_ready(&self) -> anyhow::Result<()> {
        loop {
            for node in self.lock().iter_mut() {
                if let Some(status) = node.child.try_wait()? {
                    bail!(
                        "node {} exited ({status}); see node{}.log next to its settings",
                        node.number,
                        node.number
                    );
                }
            }
            let answers = |node: &DemoNode| {
                let at = node.webhook.socket_addrs(|| None).unwrap_or_default();
                std::net::TcpStream::connect(at.as_slice()).is_ok()
            };
            if self.lock().iter().all(answers) {
                return Ok(());
            }
            tokio::time::sleep(super::POLL_INTERVAL).await;
        }
    }

    /// Kills the node that receives the deliveries, even while the node works.
    pub(super) fn kill_first(&self) -> anyhow::Result<()> {
        let mut running = self.lock();
        ensure!(running.len() > 1, "cannot kill the last node");
        let mut first = running.remove(0);
        first.child.start_kill()?;
        print_line(format_args!(
            "\n  Node {} is killed now. The others continue when its lease expires, in {LEASE_SECONDS} s at most.\n",
            first.number
        ));
        Ok(())
    }

    pub(super) async fn stop(&self) {
        let running = std::mem::take(&mut *self.lock());
        for mut node in running {
            if let Some(pid) = node.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
                // Calls in flight are scripted, so the second signal, which parks them, loses nothing.
                for _ in 0..2 {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            drop(node.child.wait().await);
        }
    }
}
