//! `countersign serve`: the server.

use std::{process::ExitCode, sync::Arc};

use anyhow::{anyhow, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{ConfigFlag, report_usage_error, wrong_app_message};
use crate::{
    app::{self, Application},
    clock::SystemClock,
    config::is_loopback,
    proc,
    providers::ModelReadiness,
    web::WebhookRelay,
    workflows,
};

/// Receive webhooks and run workflows until stopped.
///
/// SIGTERM or Ctrl-C begins no new work and waits for model calls in flight, which are paid for; a second one
/// parks their runs at once. Either way the next start goes on from the last checkpoint. SIGHUP does what `countersign
/// reload` does.
#[derive(clap::Args)]
pub(super) struct ServeCommand {
    #[command(flatten)]
    config: ConfigFlag,
    /// Take deliveries from a relay that speaks as smee does, too: the address of its channel, which is the App's webhook
    /// address then. Who runs the relay reads all deliveries.
    #[arg(long, value_name = "URL")]
    relay: Option<Url>,
}

impl ServeCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(relay) = self.relay.as_ref().filter(|url| url.scheme() != "https" && !is_loopback(url)) {
            return Ok(report_usage_error(format_args!("--relay {relay} is not encrypted; write https://")));
        }
        let settings = workflows::load_settings(&self.config.config)?;
        for name in &settings.ignored_environment {
            tracing::warn!(
                "{name} is set in the environment and ignored: secrets come from the .env file only"
            );
        }
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        if let Some(exposed) = settings.exposed_secrets().into_iter().next() {
            bail!(exposed);
        }
        proc::adopt_orphans()?;
        let app = Application::build(settings, Arc::new(SystemClock)).await?;
        check_identity(&app).await?;
        for ModelReadiness { role, spec, lacks } in app.providers.readiness(&app.settings.models) {
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
        let hangups = signal(SignalKind::hangup())?;
        let serving = Box::pin(async {
            let served = app.serve(public, private, stop.clone(), park).await;
            stop.cancel();
            served
        });
        let relay = self
            .relay
            .map(|channel| WebhookRelay::new(channel, app.public(), Arc::new(SystemClock)))
            .transpose()?;
        let relayed = async {
            if let Some(relay) = relay {
                stop.run_until_cancelled(relay.run()).await;
            }
        };
        let reloading = stop.run_until_cancelled(reload_on_hangup(hangups, &app));
        let (served, _, ()) = tokio::join!(serving, reloading, relayed);
        served?;
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }
}

/// A wrong id, key or clock would fail every delivery later; a GitHub that is away will be back.
async fn check_identity(app: &Application) -> anyhow::Result<()> {
    match app.github.app().await {
        Ok(_) => Ok(()),
        Err(fault) if fault.is_temporary() => {
            tracing::warn!(
                "{}; going on, work waits until it answers",
                wrong_app_message(&app.settings, &fault)
            );
            Ok(())
        }
        Err(fault) => Err(anyhow!(wrong_app_message(&app.settings, &fault))),
    }
}

/// What `countersign reload` does, for service managers.
async fn reload_on_hangup(mut hangups: Signal, app: &Application) {
    while hangups.recv().await.is_some() {
        match app.reload().await {
            Ok(said) => tracing::info!("{said}"),
            Err(why) => tracing::error!("{why}"),
        }
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
        wait_for_either(&mut term, &mut int).await;
        tracing::info!("stopping; a second signal parks what is in flight");
        stop.cancel();
        wait_for_either(&mut term, &mut int).await;
        park.cancel();
    }
}

async fn wait_for_either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}
