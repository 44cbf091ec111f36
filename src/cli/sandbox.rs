//! `countersign sandbox`: runs one command isolated from the rest of this machine.

use std::{
    ffi::OsString,
    io::Write,
    path::{Component, Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Hosts,
    proc,
    sandbox::{
        CommandExit, FETCHED_BYTES, Level, NetworkAccess, Sandbox, SandboxCommand, SandboxLimits,
        SandboxOutcome, SandboxProxy, ScratchDirectory,
    },
};

/// Run an untrusted command isolated from the rest of this machine.
///
/// The command works in the first --rw directory, or without --rw in an empty directory that is removed afterwards. It
/// can see only the system's programs and libraries and the --ro and --rw paths. It has no access to your other files,
/// your environment variables or the network, except for its own loopback and the --host hosts. All processes that it
/// starts are killed when it exits. If you are root, the command runs as another user, which owns the --rw directories
/// until the command exits. These directories may therefore contain only files of root.
///
/// Exit code: the command's own; 128 plus the signal number; 124 if the command hit a limit; 125 if the command was not
/// run.
#[derive(clap::Args)]
pub(super) struct SandboxRunCommand {
    /// Directory that the command may write to.
    #[arg(long, value_name = "DIR", value_parser = super::absolute_path())]
    rw: Vec<PathBuf>,
    /// File or directory that the command may read.
    #[arg(long, value_name = "DIR", value_parser = super::absolute_path())]
    ro: Vec<PathBuf>,
    /// Host that the command may reach by HTTPS through our proxy. Give a name, an address or a network; add the port
    /// if it is not 443.
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// Time limit in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1200)]
    time: u64,
    /// Memory limit in megabytes, for the command and everything it starts.
    #[arg(long, value_name = "MB", default_value_t = 4096)]
    memory: u64,
    /// Maximum number of processes that the command may have.
    #[arg(long, value_name = "NUMBER", default_value_t = 512)]
    processes: u64,
    /// Maximum number of megabytes by which the command's directories may grow.
    #[arg(long, value_name = "MB", default_value_t = 4096)]
    disk: u64,
    /// Maximum number of files by which the command's directories may grow.
    #[arg(long, value_name = "NUMBER", default_value_t = 200_000)]
    files: u64,
    /// Use only this sandbox level; default: the strictest level that works on this machine.
    #[arg(long, value_parser = super::sandbox_level([Level::Full, Level::Basic]))]
    level: Option<Level>,
    /// Command to run, and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Resolves a path. Fails if the path contains a link, because another user could replace the link to redirect the
/// path.
fn resolve_without_links(path: &Path) -> anyhow::Result<PathBuf> {
    let real = path.canonicalize().with_context(|| path.display().to_string())?;
    let named: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    ensure!(
        real == named,
        "{} is a link to {}; pass that path to --rw if you mean it",
        path.display(),
        real.display()
    );
    Ok(real)
}

impl SandboxRunCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self.run_in_sandbox().await {
            Ok(SandboxOutcome { end, stdout, stderr, .. }) => {
                // A closed pipe is not an error.
                let _ = std::io::stdout().write_all(stdout.text().as_bytes());
                let _ = std::io::stderr().write_all(stderr.text().as_bytes());
                Ok(ExitCode::from(match end {
                    CommandExit::Exit(code) => u8::try_from(code).unwrap_or(1),
                    CommandExit::Signal(signal) => u8::try_from(128 + signal).unwrap_or(255),
                    limit => {
                        super::print_failure(format_args!("the command was stopped: {limit}"));
                        124
                    }
                }))
            }
            Err(error) => {
                super::print_failure(format_args!("{error:#}"));
                Ok(ExitCode::from(125))
            }
        }
    }

    async fn run_in_sandbox(self) -> anyhow::Result<SandboxOutcome> {
        let own = std::env::current_exe().context("our own program can't be found")?;
        proc::adopt_orphans()?;
        let sandbox = Sandbox::detect(&own, self.level).await?;
        let real = |path: &PathBuf| path.canonicalize().with_context(|| path.display().to_string());
        let mut write =
            self.rw.iter().map(|path| resolve_without_links(path)).collect::<Result<Vec<_>, _>>()?;
        let scratch = ScratchDirectory::new()?;
        let tree = if write.is_empty() { scratch.path().to_owned() } else { write.remove(0) };
        let mut words = self.command.into_iter();
        let mut run = SandboxCommand::new(words.next().context("no command given")?, tree);
        run.args = words.collect();
        run.write = write;
        run.read = self.ro.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        run.limits = SandboxLimits {
            time: Duration::from_secs(self.time),
            memory_bytes: self.memory << 20,
            processes: self.processes,
            disk_bytes: self.disk << 20,
            inodes: self.files,
            ..SandboxLimits::default()
        };
        let hosts = Hosts::try_from(self.host).map_err(anyhow::Error::msg)?;
        let sockets = ScratchDirectory::new()?;
        let proxy = (!hosts.is_empty())
            .then(|| SandboxProxy::open(&sockets.path().join("way-out"), hosts, FETCHED_BYTES))
            .transpose()?;
        if let Some(proxy) = &proxy {
            run.network = NetworkAccess::Proxy(proxy.socket().to_owned());
        }
        let cancel = CancellationToken::new();
        let signals = tokio::spawn(super::serve::on_signals(cancel.clone(), CancellationToken::new()));
        let ended = sandbox.run(run, &cancel).await;
        signals.abort();
        for refusal in proxy.iter().flat_map(SandboxProxy::refusals) {
            super::print_failure(format_args!("{refusal}"));
        }
        Ok(ended?)
    }
}
