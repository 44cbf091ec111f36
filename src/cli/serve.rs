//! `countersign serve`: the server.

use std::{process::ExitCode, sync::Arc};

use anyhow::{anyhow, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{ConfigFlag, not_the_app};
use crate::{
    app::{self, App},
    clock::SystemClock,
    proc,
    providers::Readiness,
    workflows,
};

/// Receive webhooks and run workflows until stopped.
///
/// SIGTERM or Ctrl-C begins no new work and waits for model calls in flight, which are paid for; a second one
/// parks their runs at once. Either way the next start goes on from the last checkpoint.
#[derive(clap::Args)]
pub(super) struct Serve {
    #[command(flatten)]
    config: ConfigFlag,
}

impl Serve {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::settings(&self.config.config)?;
        for name in &settings.ignored_environment {
            tracing::warn!(
                "{name} is set in the environment and ignored: secrets come from the .env file only"
            );
        }
        if let Some(exposed) = settings.exposed_secrets().into_iter().next() {
            bail!(exposed);
        }
        proc::adopt_orphans()?;
        let app = App::build(settings, Arc::new(SystemClock)).await?;
        identify(&app).await?;
        for Readiness { role, spec, lacks } in app.providers.readiness(&app.settings.models) {
            if let Some(lacks) = lacks {
                tracing::warn!("the {role} {spec} cannot be asked, so runs wait for it: {lacks}");
            }
        }
        let (public, private) = app::listen(&app.settings).await?;
        if app.settings.allowed_installations.is_empty() {
            tracing::warn!("[installations] allow is empty: every delivery will be ignored");
        }
        let (stop, park) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(on_signals(stop.clone(), park.clone()));
        app.serve(public, private, stop, park).await?;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }
}

/// A wrong id, key or clock would fail every delivery later; a GitHub that is away will be back.
async fn identify(app: &App) -> anyhow::Result<()> {
    match app.github.app().await {
        Ok(_) => Ok(()),
        Err(fault) if fault.passes() => {
            tracing::warn!("{}; going on, work waits until it answers", not_the_app(&app.settings, &fault));
            Ok(())
        }
        Err(fault) => Err(anyhow!(not_the_app(&app.settings, &fault))),
    }
}

/// The first signal stops, the second parks.
pub(super) fn on_signals(
    stop: CancellationToken,
    park: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    // Heard from now on, not only once somebody waits for it.
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut term), Ok(mut int)) = signals else {
            tracing::error!("signals cannot be listened for");
            return;
        };
        either(&mut term, &mut int).await;
        tracing::info!("stopping; a second signal parks what is in flight");
        stop.cancel();
        either(&mut term, &mut int).await;
        park.cancel();
    }
}

async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}
