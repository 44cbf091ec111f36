//! `countersign serve`: runs the server.

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
/// After SIGTERM or Ctrl-C the server starts no new work and waits for model calls in flight, because these calls are
/// already paid for. A second signal parks the runs of these calls at once. In both cases, the next start continues
/// from the last checkpoint. SIGHUP has the same effect as `countersign reload`.
#[derive(clap::Args)]
pub(super) struct ServeCommand {
    #[command(flatten)]
    config: ConfigFlag,
    /// Also take deliveries from a smee-compatible relay. The value is the address of the relay's channel, which must
    /// also be the App's webhook address. The relay's operator can read all deliveries.
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
                tracing::warn!("cannot call the {role} {spec}, so runs wait: {lacks}");
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

/// Checks the App ID, the key and the clock at startup, because every delivery would fail later if one of them were
/// wrong. A temporary failure of GitHub is only logged.
async fn check_identity(app: &Application) -> anyhow::Result<()> {
    match app.github.app().await {
        Ok(_) => Ok(()),
        Err(fault) if fault.is_temporary() => {
            tracing::warn!(
                "{}; starting anyway, runs wait until GitHub answers",
                wrong_app_message(&app.settings, &fault)
            );
            Ok(())
        }
        Err(fault) => Err(anyhow!(wrong_app_message(&app.settings, &fault))),
    }
}

/// Reloads secrets and the reviewer on each SIGHUP, like `countersign reload`. SIGHUP is supported because service
/// managers use it for reloads.
async fn reload_on_hangup(mut hangups: Signal, app: &Application) {
    while hangups.recv().await.is_some() {
        match app.reload().await {
            Ok(message) => tracing::info!("{message}"),
            Err(why) => tracing::error!("{why}"),
        }
    }
}

/// Cancels `stop` at the first SIGTERM or SIGINT, and `park` at the second.
pub(super) fn on_signals(
    stop: CancellationToken,
    park: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    // Handlers are installed now, not when the future is first polled.
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut term), Ok(mut int)) = signals else {
            tracing::error!("cannot listen for signals");
            return;
        };
        wait_for_either(&mut term, &mut int).await;
        tracing::info!("stopping once model calls in flight have ended; a second signal cancels them");
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
