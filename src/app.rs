//! Builds a server from the settings, runs it and shuts it down.

mod reload;

use std::{collections::BTreeSet, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, serve::ListenerExt};
use secrecy::SecretString;
use tokio::{net::TcpListener, sync::Mutex};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    clock::SharedClock,
    config::{PostgresSettings, ReloadableValue, RouteMode, Settings},
    engine::{AnyWorkflow, Engine, EngineError, EnginePort},
    git::{GitError, Mirrors},
    github::{GitHub, GitHubClientError, GitHubOptions, Pacing},
    intake::{Intake, IntakeOptions},
    limits, proc,
    providers::{ModelProviders, ResolveError},
    rounds::{CommitCache, StepServices},
    sandbox,
    store::{self, DatabaseSource, Store, StoreError},
    traces::{self, TraceExporter},
    web::{
        self, ConnectionLimits, DeliveryOutcomeCounter, ServerToken, WebhookContext, WebhookRefusalLog,
        control::ControlContext,
    },
    workflows,
};

use reload::SecretReloader;

/// Maximum time that shutdown waits for clients in the middle of a request. The wait begins once the engine and the
/// intake have stopped.
const CONNECTION_GRACE: Duration = Duration::from_secs(1);

/// Time that shutdown waits beyond the longest model call, so that the response of the call can be recorded.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// The components of one server process.
pub struct Application {
    pub settings: Arc<Settings>,
    pub store: Arc<Store>,
    pub github: GitHub,
    pub engine: Arc<Engine<StepServices>>,
    pub intake: Arc<Intake>,
    pub providers: Arc<ModelProviders>,
    /// Token that grants access to the operator listener and the control socket.
    pub token: ServerToken,
    secrets: ReloadableValue<Vec<SecretString>>,
    reloading: Arc<SecretReloader>,
    workflows: &'static [&'static dyn AnyWorkflow<StepServices>],
    refusals: Arc<WebhookRefusalLog>,
    deliveries: DeliveryOutcomeCounter,
    sandbox_time: sandbox::SandboxSeconds,
    traced: traces::TraceMetrics,
    /// Exporter of traces; `None` if the settings name no collector.
    pub traces: Option<TraceExporter>,
    clock: SharedClock,
}

/// Reasons why the server does not start. Each message says how to fix the problem.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("the App's private key {} cannot be read: {error}. Download a new one from the App's settings page, or run `countersign setup`", path.display())]
    Key { path: PathBuf, error: io::Error },
    #[error("{} cannot be written: {error}. The server needs this token to tell operators from model programs; make the path writable", path.display())]
    Token { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    GitHub(#[from] GitHubClientError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("[models]: {0}")]
    Model(#[from] ResolveError),
    #[error(
        "cannot create the HTTP client for traces: {0}. Check this system's CA certificates, or remove otlp from [telemetry]"
    )]
    Collector(reqwest::Error),
    #[error("model under [route]: {0}")]
    Router(ResolveError),
    #[error(
        "cannot listen on {address}: {error}. Choose another address under [server], or stop the program \
         that uses this one"
    )]
    Listen { address: SocketAddr, error: io::Error },
}

/// Returns the databases that the settings name, or `None` if no server has created them yet.
pub fn find_source(settings: &Settings) -> Result<Option<DatabaseSource>, StoreError> {
    let source = match &settings.postgres {
        Some(postgres) => DatabaseSource::from_postgres(&postgres_server(postgres))?,
        None => settings.data_dir.as_path().into(),
    };
    Ok(source.is_initialized()?.then_some(source))
}

/// Returns the connection settings of the Postgres server.
pub fn postgres_server(postgres: &PostgresSettings) -> store::PostgresServer {
    store::PostgresServer { address: postgres.address.clone(), lease: postgres.lease }
}

impl Application {
    /// Opens the data directory and connects the components. Sends no network request.
    pub async fn build(settings: Settings, clock: SharedClock) -> Result<Self, AppError> {
        let pacing = Pacing::for_api(&settings.github.api_url);
        Self::build_with(settings, clock, pacing, workflows::ALL).await
    }

    /// Same as [`build`](Self::build), but with the given workflows and the given pacing of writes to GitHub.
    pub async fn build_with(
        settings: Settings,
        clock: SharedClock,
        pacing: Pacing,
        workflows: &'static [&'static dyn AnyWorkflow<StepServices>],
    ) -> Result<Self, AppError> {
        let settings = Arc::new(settings);
        let key = private_key(&settings)?;
        let github = github(&settings, key.clone(), pacing, clock.clone())?;
        let store = match &settings.postgres {
            Some(postgres) => {
                Store::join_postgres(&postgres_server(postgres), &settings.data_dir, clock.clone())?
            }
            None => Store::open(&settings.data_dir, clock.clone())?,
        };
        store.publish_settings(&settings.fingerprints(), &settings.allowed_installations).await?;
        github.share_pace(store.clone());
        let token = ServerToken::renew(&settings.data_dir)
            .map_err(|error| AppError::Token { path: web::token_file(&settings.data_dir), error })?;
        let providers = Arc::new(ModelProviders::with_store(&settings.models, store.clone(), clock.clone())?);
        // Checks the configured names. Each response reveals which model really served it.
        providers.check_models(&settings.models)?;
        if let Some(routing) = settings.routing() {
            providers.resolve(&routing.model).map_err(AppError::Router)?;
        }
        let mirrors = Mirrors::new(store.repos_dir(), settings.github.git_url.clone());
        let sandbox_time = sandbox::SandboxSeconds::default();
        let reviewer = ReloadableValue::new(settings.models.reviewer.clone());
        let services = StepServices {
            github: github.clone(),
            mirrors,
            providers: providers.clone(),
            store: store.clone(),
            settings: settings.clone(),
            reviewer: reviewer.clone(),
            commits: CommitCache::default(),
            fetch_failure_time: Default::default(),
            switch_checked_at: Default::default(),
            sandbox: Default::default(),
            sandbox_time: sandbox_time.clone(),
        };
        let engine = Engine::new(store.clone(), workflows, Arc::new(services), clock.clone())?;
        let traced = traces::TraceMetrics::default();
        let trace = |collector: &Url| {
            let visits = engine.telemetry().subscribe_visits();
            TraceExporter::new(collector, visits, store.clone(), clock.clone(), traced.clone())
        };
        let traces = settings.collector.as_ref().map(trace).transpose().map_err(AppError::Collector)?;
        let port: Arc<dyn EnginePort> = engine.clone();
        let starts = workflows.iter().flat_map(|w| w.commands().iter().map(|row| (w.name(), *row))).collect();
        let allow: BTreeSet<_> = settings.allowed_installations.iter().copied().collect();
        let shows_cost_on_public = settings.budget.show_on_public;
        let routing = settings.routing();
        let routes = routing.is_some_and(|routing| routing.mode != RouteMode::Manual);
        let people = settings.people.clone();
        let options = IntakeOptions { starts, allow, shows_cost_on_public, people, routes };
        let intake = Arc::new(Intake::new(store.clone(), github.clone(), port, clock.clone(), options));
        let secrets = ReloadableValue::new(settings.webhook_secrets.clone());
        let reloading = Arc::new(SecretReloader {
            settings: settings.clone(),
            key: Mutex::new(key),
            github: github.clone(),
            providers: providers.clone(),
            webhook: secrets.clone(),
            reviewer,
            engine: engine.clone(),
            store: store.clone(),
            clock: clock.clone(),
        });
        let refusals = Arc::default();
        let deliveries = DeliveryOutcomeCounter::default();
        Ok(Self {
            settings,
            store,
            github,
            engine,
            intake,
            providers,
            token,
            secrets,
            reloading,
            workflows,
            refusals,
            deliveries,
            sandbox_time,
            traced,
            traces,
            clock,
        })
    }

    /// Returns the routes of the public listener.
    pub fn public(&self) -> Router {
        web::webhook_router(WebhookContext {
            store: self.store.clone(),
            secrets: self.secrets.clone(),
            bell: self.intake.delivery_notifier(),
            clock: self.clock.clone(),
            refusals: self.refusals.clone(),
            deliveries: self.deliveries.clone(),
        })
    }

    /// Returns the routes of the operator listener, which has the address `at`. Long-lived requests end when `stop` is
    /// cancelled.
    pub fn private(&self, at: SocketAddr, stop: CancellationToken) -> Router {
        web::operator_router(web::OperatorContext {
            control: self.control_handle(at),
            providers: self.providers.clone(),
            settings: self.settings.clone(),
            reviewer: self.reloading.reviewer.clone(),
            refusals: self.refusals.clone(),
            observed: web::MetricSources {
                deliveries: self.deliveries.clone(),
                github: self.github.remaining_rate_limits().clone(),
                run_time: self.engine.telemetry().run_seconds().clone(),
                run_ends: self.engine.telemetry().run_ends().clone(),
                sandbox_time: self.sandbox_time.clone(),
                traces: self.traced.clone(),
                clock: self.clock.clone(),
            },
            workflows: self.workflows,
            bell: self.intake.delivery_notifier(),
            stop,
        })
    }

    /// Returns the routes of the control socket. `private` is the address of the server's operator listener.
    pub fn control(&self, private: SocketAddr) -> Router {
        web::control::routes(self.control_handle(private))
    }

    fn control_handle(&self, at: SocketAddr) -> ControlContext {
        let (store, engine, clock) = (self.store.clone(), self.engine.clone(), self.clock.clone());
        let token = self.token.clone();
        let (pause_bell, web_url) = (self.intake.pause_notifier(), self.settings.github.web_url.clone());
        let public_url = self.settings.server.public_url.clone();
        let reloading = self.reloading.clone();
        let reload: web::control::ReloadCallback = Arc::new(move || {
            let reloading = reloading.clone();
            Box::pin(async move { reloading.reload().await })
        });
        ControlContext { store, engine, clock, token, pause_bell, web_url, at, public_url, reload }
    }

    /// Reloads the secrets and the reviewer. Returns a summary of the changes, or the reason why nothing was changed.
    pub async fn reload(&self) -> Result<String, String> {
        self.reloading.reload().await
    }

    /// Serves the control socket until `ended` is cancelled, then removes the socket.
    async fn serve_control(
        &self,
        listener: web::control::ControlListener,
        at: SocketAddr,
        ended: CancellationToken,
    ) {
        let bounds = ConnectionLimits::new(limits::OPERATOR_CONNECTIONS);
        let served = web::serve(listener, self.control(at), bounds, self.clock.clone(), ended.clone());
        ended.run_until_cancelled(served).await;
        drop(std::fs::remove_file(web::control::control_socket(&self.settings.data_dir)));
    }

    /// Serves until `stop` is cancelled. Then starts no new work and waits for running steps; cancelling `park` ends
    /// this wait. A client in the middle of a request delays the exit by at most `CONNECTION_GRACE`.
    pub async fn serve(
        &self,
        public: TcpListener,
        private: TcpListener,
        stop: CancellationToken,
        park: CancellationToken,
    ) -> io::Result<()> {
        let data = &self.settings.data_dir;
        // Without the socket nobody could pause or inspect this server.
        let control = web::control::listen(data, self.clock.clone()).map_err(|error| {
            let socket = web::control::control_socket(data);
            let fix = "give the directory to the user that runs the server, or name one with a shorter path";
            io::Error::new(error.kind(), format!("{} cannot be opened: {error}; {fix}", socket.display()))
        })?;
        let at = private.local_addr()?;
        let pages = format!("http://{at}/");
        tracing::info!(webhook = %public.local_addr()?, pages, "serving; `countersign open` prints a link to the pages");
        proc::end_orphans(&self.settings.models.workers.children).await?;
        // Cancelled once all work has ended; shutdown then no longer waits for `park`.
        let ended = CancellationToken::new();
        let serve_listener = |listener: TcpListener, router, connections| {
            // Responses are single small packets, so Nagle's algorithm only delays them.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            web::serve(listener, router, ConnectionLimits::new(connections), self.clock.clone(), stop.clone())
        };
        let public = serve_listener(public, self.public(), limits::PUBLIC_CONNECTIONS);
        let private = serve_listener(private, self.private(at, stop.clone()), limits::OPERATOR_CONNECTIONS);
        let listeners = async {
            let patience = async {
                ended.cancelled().await;
                self.clock.sleep(CONNECTION_GRACE).await;
            };
            tokio::select! {
                _ = futures_util::future::join(public, private) => {}
                () = patience => tracing::info!("stopped before a client's request was finished"),
            }
        };
        let work = async {
            let intake = async {
                tokio::join!(self.intake.run(stop.clone()), self.intake.poll_missed_events(stop.clone()))
            };
            let (_, ()) = tokio::join!(intake, self.engine.run(stop.clone()));
            ended.cancel();
        };
        let closing = async {
            stop.cancelled().await;
            self.providers.close();
        };
        let parking = async {
            let patience = async {
                stop.cancelled().await;
                self.clock.sleep(self.settings.models.timeouts.longest() + SHUTDOWN_GRACE).await;
            };
            tokio::select! {
                () = park.cancelled() => self.engine.park(),
                () = patience => self.engine.park(),
                () = ended.cancelled() => {}
            }
        };
        let control = Box::pin(self.serve_control(control, at, ended.clone()));
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.run(ended.clone()).await;
            }
        };
        // Nothing waits for these model lists, so an unresponsive service delays no start.
        let lists = self.providers.watch_lists(|| self.reloading.current_settings(), &*self.clock);
        let lists = Box::pin(stop.run_until_cancelled(lists));
        tokio::join!(listeners, work, closing, parking, control, traces, lists);
        Ok(())
    }
}

fn private_key(settings: &Settings) -> Result<SecretString, AppError> {
    let path = &settings.app.private_key_file;
    let pem = std::fs::read_to_string(path);
    pem.map(SecretString::from).map_err(|error| AppError::Key { path: path.clone(), error })
}

fn github(
    settings: &Settings,
    private_key: SecretString,
    pacing: Pacing,
    clock: SharedClock,
) -> Result<GitHub, GitHubClientError> {
    GitHub::new(GitHubOptions {
        api_url: settings.github.api_url.clone(),
        web_url: settings.github.web_url.clone(),
        app_id: settings.app.id,
        private_key,
        pacing,
        clock,
    })
}

/// Binds the public address and the operator address from the settings.
pub async fn listen(settings: &Settings) -> Result<(TcpListener, TcpListener), AppError> {
    let bind = |address| async move {
        TcpListener::bind(address).await.map_err(|error| AppError::Listen { address, error })
    };
    Ok((bind(settings.server.listen).await?, bind(settings.server.private_listen).await?))
}
