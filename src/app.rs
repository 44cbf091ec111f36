//! Wiring and shutdown: settings in, a running server out.

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, serve::ListenerExt};
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::SharedClock,
    config::{RouteMode, Settings},
    engine::{AnyWorkflow, Engine, EngineError, Port},
    git::{GitError, Mirrors},
    github::{GitHub, GitHubError, GitHubOptions, Pacing},
    intake::{Intake, IntakeOptions},
    limits, proc,
    providers::{Providers, ResolveError},
    rounds::{Desk, Recent},
    store::{Store, StoreError},
    web::{self, Bounds, Door, Refusals, Token},
    workflows,
};

/// Once the work has ended, a client in the middle of a request is waited for this long.
const DOOR_GRACE: Duration = Duration::from_secs(1);

/// What a server that stops waits beyond the longest call of a model, for its answer to be written down.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// Everything that runs in one process.
pub struct App {
    pub settings: Arc<Settings>,
    pub store: Arc<Store>,
    pub github: GitHub,
    pub engine: Arc<Engine<Desk>>,
    pub intake: Arc<Intake>,
    pub providers: Arc<Providers>,
    /// What opens the private door and the control socket.
    pub token: Token,
    secrets: Vec<SecretString>,
    refusals: Arc<Refusals>,
    clock: SharedClock,
}

/// Why the server does not start; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("the App's private key {} cannot be read: {error}. Download a new one from the App's settings page, or run `countersign setup`", path.display())]
    Key { path: PathBuf, error: io::Error },
    #[error("{} cannot be written: {error}. Without it nobody can be told from a model's program; put that right", path.display())]
    Token { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    GitHub(#[from] GitHubError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("[models]: {0}")]
    Model(#[from] ResolveError),
    #[error("model under [route]: {0}")]
    Router(ResolveError),
    #[error(
        "cannot listen on {address}: {error}. Choose another address under [server], or stop what holds this one"
    )]
    Listen { address: std::net::SocketAddr, error: io::Error },
}

impl App {
    /// Opens the data directory and wires the rooms. Talks to nobody yet.
    pub async fn build(settings: Settings, clock: SharedClock) -> Result<Self, AppError> {
        let pacing = Pacing::of(&settings.github.api_url);
        Self::build_with(settings, clock, pacing, workflows::ALL).await
    }

    /// As [`build`](Self::build), with writes paced or not wherever GitHub is, and with these workflows.
    pub async fn build_with(
        settings: Settings,
        clock: SharedClock,
        pacing: Pacing,
        workflows: &'static [&'static dyn AnyWorkflow<Desk>],
    ) -> Result<Self, AppError> {
        let settings = Arc::new(settings);
        let pem = std::fs::read_to_string(&settings.app.private_key_file)
            .map_err(|error| AppError::Key { path: settings.app.private_key_file.clone(), error })?;
        let github = GitHub::new(GitHubOptions {
            api_url: settings.github.api_url.clone(),
            git_url: settings.github.git_url.clone(),
            web_url: settings.github.web_url.clone(),
            app_id: settings.app.id,
            private_key: SecretString::from(pem),
            pacing,
            clock: clock.clone(),
        })?;
        let store = Store::open(&settings.data_dir, clock.clone())?;
        let token = Token::renew(&settings.data_dir)
            .map_err(|error| AppError::Token { path: web::token_file(&settings.data_dir), error })?;
        let providers = Arc::new(Providers::remembering(&settings.models, store.clone(), clock.clone())?);
        // By the names asked for; what really serves is checked on every answer.
        providers.check_models(&settings.models)?;
        if let Some(routing) = settings.routing() {
            providers.resolve(&routing.model).map_err(AppError::Router)?;
        }
        let mirrors = Mirrors::new(store.repos_dir(), settings.github.git_url.clone());
        let desk = Desk {
            github: github.clone(),
            mirrors,
            providers: providers.clone(),
            store: store.clone(),
            settings: settings.clone(),
            commits: Recent::default(),
            failing: Default::default(),
            wanted: Default::default(),
            sandbox: Default::default(),
        };
        let engine = Engine::new(store.clone(), workflows, Arc::new(desk), clock.clone())?;
        let port: Arc<dyn Port> = engine.clone();
        let starts = workflows.iter().flat_map(|w| w.commands().iter().map(|row| (w.name(), *row))).collect();
        let allow: BTreeSet<_> = settings.allowed_installations.iter().copied().collect();
        let shows_cost_on_public = settings.budget.show_on_public;
        let routing = settings.routing();
        let routes = routing.is_some_and(|routing| routing.mode != RouteMode::Manual);
        let people = settings.people.clone();
        let options = IntakeOptions { starts, allow, shows_cost_on_public, people, routes };
        let intake = Arc::new(Intake::new(store.clone(), github.clone(), port, clock.clone(), options));
        let secrets = settings.webhook_secrets.clone();
        let refusals = Arc::default();
        Ok(Self { settings, store, github, engine, intake, providers, token, secrets, refusals, clock })
    }

    /// The routes the world may reach.
    pub fn public(&self) -> Router {
        web::public(Door {
            store: self.store.clone(),
            secrets: self.secrets.clone(),
            bell: self.intake.bell(),
            clock: self.clock.clone(),
            refusals: self.refusals.clone(),
        })
    }

    /// The routes for whoever sits at the machine.
    pub fn private(&self) -> Router {
        web::private(web::Operator {
            store: self.store.clone(),
            engine: self.engine.clone(),
            providers: self.providers.clone(),
            settings: self.settings.clone(),
            token: self.token.clone(),
            refusals: self.refusals.clone(),
        })
    }

    /// The routes of the control socket.
    pub fn control(&self) -> Router {
        let (store, engine, clock) = (self.store.clone(), self.engine.clone(), self.clock.clone());
        let token = self.token.clone();
        let (pause_bell, web_url) = (self.intake.pause_bell(), self.settings.github.web_url.clone());
        web::control::routes(web::control::Control { store, engine, clock, token, pause_bell, web_url })
    }

    /// Answers the command line until `ended`.
    async fn serve_control(&self, listener: web::control::Peers, ended: CancellationToken) {
        let bounds = Bounds::of(limits::OPERATOR_CONNECTIONS);
        let served = web::serve(listener, self.control(), bounds, self.clock.clone(), ended.clone());
        ended.run_until_cancelled(served).await;
        drop(std::fs::remove_file(web::control::control_socket(&self.settings.data_dir)));
    }

    /// Serves until `stop`; then nothing new is begun, and steps in flight are awaited until `park`. A client
    /// that is in the middle of a request when all of that has ended does not keep the server up.
    pub async fn serve(
        &self,
        public: TcpListener,
        private: TcpListener,
        stop: CancellationToken,
        park: CancellationToken,
    ) -> io::Result<()> {
        let data = &self.settings.data_dir;
        // Without it nobody could pause this server, or ask what it does.
        let control = web::control::listen(data, self.clock.clone()).map_err(|error| {
            let socket = web::control::control_socket(data);
            let mend = "give the directory to the user that runs the server, or name one with a shorter path";
            io::Error::new(error.kind(), format!("{} cannot be opened: {error}; {mend}", socket.display()))
        })?;
        let page = self.token.page(private.local_addr()?);
        tracing::info!(webhook = %public.local_addr()?, %page, "serving");
        proc::end_orphans(&self.settings.models.workers.children).await?;
        // Ends the wait for `park` once everything else has ended.
        let ended = CancellationToken::new();
        let door = |listener: TcpListener, router, connections| {
            // An answer is one small packet; nothing follows that it could wait for.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            web::serve(listener, router, Bounds::of(connections), self.clock.clone(), stop.clone())
        };
        let public = door(public, self.public(), limits::DOOR_CONNECTIONS);
        let private = door(private, self.private(), limits::OPERATOR_CONNECTIONS);
        let doors = async {
            let patience = async {
                ended.cancelled().await;
                self.clock.sleep(DOOR_GRACE).await;
            };
            tokio::select! {
                _ = futures_util::future::join(public, private) => {}
                () = patience => tracing::info!("stopped while a client was in the middle of a request"),
            }
        };
        let work = async {
            let intake =
                async { tokio::join!(self.intake.run(stop.clone()), self.intake.patrol(stop.clone())) };
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
        let control = Box::pin(self.serve_control(control, ended.clone()));
        tokio::join!(doors, work, closing, parking, control);
        Ok(())
    }
}

/// Binds the two doors of the settings.
pub async fn listen(settings: &Settings) -> Result<(TcpListener, TcpListener), AppError> {
    let bind = |address| async move {
        TcpListener::bind(address).await.map_err(|error| AppError::Listen { address, error })
    };
    Ok((bind(settings.server.listen).await?, bind(settings.server.private_listen).await?))
}
