//! Several processes of the bot on one Postgres, of which one is killed in the middle of its work.

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

/// The shortest that is allowed: what the killed one had in hand is waited for no longer.
const LEASE_SECONDS: u32 = 8;

/// Processes that serve, the first of which takes the deliveries.
pub(super) struct DemoNodes {
    running: Mutex<Vec<DemoNode>>,
}

struct DemoNode {
    number: usize,
    child: Child,
    webhook: Url,
    /// So that nobody else gets its doors.
    _reserved: [TcpSocket; 2],
}

/// The lines of the settings by which the program itself looks on.
pub(super) fn settings(postgres: &Path) -> anyhow::Result<String> {
    let file = fs::canonicalize(postgres).with_context(|| format!("{} is not there", postgres.display()))?;
    Ok(format!("postgres_file = {file:?}\nlease_seconds = {LEASE_SECONDS}\n"))
}

impl DemoNodes {
    /// Starts them by `config`, each with a directory and doors of its own, in the directory of that.
    pub(super) fn start(config: &Path, count: usize) -> anyhow::Result<Self> {
        let own = std::env::current_exe()?;
        let text = fs::read_to_string(config)?;
        let running = (1..=count).map(|number| {
            let ((public, at), (private, also_at)) = (reserved_address()?, reserved_address()?);
            let of_node = config.with_file_name(format!("node{number}.toml"));
            let directory = format!("dir = \"node{number}\"");
            let doors = format!("\n[server]\nlisten = \"{public}\"\nprivate_listen = \"{private}\"\n");
            fs::write(&of_node, text.replacen("dir = \"data\"", &directory, 1) + &doors)?;
            let log = File::create(config.with_file_name(format!("node{number}.log")))?;
            let mut serve = Command::new(&own);
            serve.args(["serve", "--config"]).arg(of_node).stdin(Stdio::null()).kill_on_drop(true);
            // Ctrl-C is for this program, which ends them.
            let child = serve.process_group(0).stdout(log.try_clone()?).stderr(log).spawn()?;
            let webhook = format!("http://{public}/webhook").parse()?;
            Ok(DemoNode { number, child, webhook, _reserved: [at, also_at] })
        });
        Ok(Self { running: Mutex::new(running.collect::<anyhow::Result<_>>()?) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<DemoNode>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where deliveries are taken.
    pub(super) fn webhook(&self) -> anyhow::Result<Url> {
        Ok(self.lock().first().context("no process serves any more")?.webhook.clone())
    }

    /// Until each takes deliveries; one that ended by itself is an error.
    pub(super) async fn wait_until_ready(&self) -> anyhow::Result<()> {
        loop {
            for node in self.lock().iter_mut() {
                if let Some(status) = node.child.try_wait()? {
                    bail!(
                        "node {} ended ({status}); node{}.log beside its settings says why",
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

    /// Kills the one that takes the deliveries, and with them the work.
    pub(super) fn kill_first(&self) -> anyhow::Result<()> {
        let mut running = self.lock();
        ensure!(running.len() > 1, "the last process is not killed");
        let mut first = running.remove(0);
        first.child.start_kill()?;
        print_line(format_args!(
            "\n  Node {} is killed in the middle of it. The others go on when its lease is over, in {LEASE_SECONDS} s at most.\n",
            first.number
        ));
        Ok(())
    }

    /// Asks all to stop, and waits until they have.
    pub(super) async fn stop(&self) {
        let running = std::mem::take(&mut *self.lock());
        for mut node in running {
            if let Some(pid) = node.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
                // What is in flight is scripted: the second signal parks it.
                for _ in 0..2 {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            drop(node.child.wait().await);
        }
    }
}
