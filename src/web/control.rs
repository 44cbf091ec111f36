//! The control socket, through which the command line talks to the server of the same data directory.
//!
//! It is a Unix socket in a directory that only its owner may enter. The socket accepts connections from our user and
//! from root, and every request must carry the server's token. Model programs run as our user, so on some kernels they
//! can connect, but Landlock keeps the token file from them. We do not look the peer up in `/proc`, because systemd may
//! hide it. Requests and responses are JSON; an error contains a sentence for the user.

use std::{
    io,
    net::SocketAddr as Address,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::Listener,
};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    net::{UnixListener, UnixStream, unix::SocketAddr},
    sync::Notify,
};
use url::Url;

use super::{ServerToken, listener::LogThrottle, server_token::random_hex, token_file};
use crate::{
    clock::{Clock, SharedClock},
    engine::{
        AllowedResponders, EngineError, EnginePort, GateRow, PauseScope, RetryDecision, RetryRunRequest,
        RunFilter, RunView,
    },
    messages::step_name,
    store::{ActivePause, SessionScope, Spending, Store, StoreError},
    types::{Cause, Hash, RepoId, RepoName, RunId, Timestamp, Verb, count},
};

/// Returns the path of a data directory's control socket.
pub fn control_socket(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// State of the socket's routes.
#[derive(Clone)]
pub struct ControlContext {
    pub store: Arc<Store>,
    pub engine: Arc<dyn EnginePort>,
    pub clock: SharedClock,
    pub token: ServerToken,
    /// Notified when a pause starts or ends.
    pub pause_bell: Arc<Notify>,
    pub web_url: Url,
    /// Address of the operator listener.
    pub at: Address,
    /// Public URL of the pages, if configured.
    pub public_url: Option<Url>,
    pub reload: ReloadCallback,
}

/// Callback that reloads the secrets. Returns a summary of the changes, or the reason why nothing was changed.
pub type ReloadCallback = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Request to start or end a pause. The pause covers one repository, or the whole server if no repository is named.
#[derive(Debug, Serialize, Deserialize)]
pub struct PauseRequest {
    pub repository: Option<RepoName>,
    pub by: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RetryCommandRequest {
    pub run: RunId,
    pub by: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ForgetRepositoryRequest {
    pub repository: RepoName,
}

/// Request for a link to the operator's pages.
#[derive(Debug, Serialize, Deserialize)]
pub struct PageLinkRequest {
    /// Whether the new session may make changes.
    pub act: bool,
    /// Lifetime of the new session in hours.
    pub hours: u32,
}

/// Single-use links to the pages, one for each host name under which the pages can be reached. The first use of any
/// link invalidates all of them.
#[derive(Debug, Serialize, Deserialize)]
pub struct PageLinks {
    pub links: Vec<String>,
}

/// Request to archive the texts of runs that ended long ago.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArchiveRunsRequest {
    pub older_than: Duration,
    pub to: PathBuf,
}

/// Result of an archive request, as lines for the user.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArchiveReport {
    pub lines: Vec<String>,
    /// Whether every repository was archived without errors.
    pub whole: bool,
}

/// Filter for the list of runs.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct RunListRequest {
    /// Repository to list, as `OWNER/REPO`; all repositories if missing.
    pub repository: Option<String>,
    /// Whether to include ended runs.
    pub all: bool,
}

/// An entry of the list of runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunListItem {
    pub run: RunId,
    /// Name of the repository, or its number if the name is unknown.
    pub repository: String,
    pub issue: u64,
    pub workflow: String,
    pub step: String,
    pub status: String,
    /// Time of the run's last change, in GitHub's format.
    pub since: String,
    /// Number of GitHub API calls that the run has made so far. `writes` is the number of those calls that were writes.
    pub calls: u64,
    pub writes: u64,
    /// URL of the issue.
    pub url: Option<String>,
    /// Reason for the wait of a waiting run, with the command that ends the wait. If the run has ended, the reason why
    /// it ended.
    pub why: Option<String>,
}

/// Filter and grouping for the cost report.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct CostReportRequest {
    /// Repository to report on, as `OWNER/REPO`; all repositories if missing.
    pub repository: Option<String>,
    pub run: Option<RunId>,
    pub by: CostGrouping,
}

/// Grouping key of the report.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CostGrouping {
    #[default]
    Run,
    Stage,
    Model,
    Day,
}

/// A line of the cost report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostLine {
    /// Name of the repository, or its number if the name is unknown.
    pub repository: String,
    /// The run, stage, model or day whose costs the line sums up.
    pub what: String,
    #[serde(flatten)]
    pub spent: Spending,
}

/// A response that consists of a message to the user. Every error response has this form, too.
#[derive(Debug, Serialize, Deserialize)]
pub struct ControlMessage {
    pub message: String,
}

impl RunListItem {
    pub(super) fn new(run: &RunView, name: Option<&RepoName>, pauses: &[ActivePause], web_url: &Url) -> Self {
        let paused = ActivePause::for_repository(pauses, run.id.repo).filter(|_| run.status.is_live());
        let gate = run.gate.as_ref();
        let path = name.map(|name| format!("{name}/issues/{}", run.issue));
        let web_url = web_url.as_str().trim_end_matches('/');
        Self {
            run: run.id,
            repository: name.map_or_else(|| run.id.repo.to_string(), RepoName::to_string),
            issue: run.issue.0,
            workflow: run.workflow.clone(),
            step: step_name(&run.step_id, &run.step_title),
            status: paused.map_or_else(|| run.status.to_string(), |_| "paused".to_owned()),
            since: paused
                .map_or_else(|| gate.map_or(run.updated_at, |g| g.spec.shown_at), |p| p.at)
                .to_string(),
            calls: run.calls.calls,
            writes: run.calls.writes,
            url: path.map(|path| format!("{web_url}/{path}")),
            why: paused
                .map(|pause| resume_hint(pause, name))
                .or_else(|| gate.map(gate_wait_text))
                .or(run.why.clone()),
        }
    }
}

/// Returns the commands that a gate waits for, such as `waits for /approve lld 3f9c2ab1d4e7 or /revise`.
fn gate_wait_text(gate: &GateRow) -> String {
    let line = |(verb, _): &(Verb, AllowedResponders)| match verb {
        Verb::Approve => format!("/{verb} {} {}", gate.spec.stage, gate.spec.subject.short()),
        _ => format!("/{verb}"),
    };
    let (approve, others): (Vec<_>, Vec<_>) =
        gate.spec.verbs.iter().partition(|(verb, _)| *verb == Verb::Approve);
    let lines: Vec<_> = approve.into_iter().chain(others).map(line).collect();
    format!("waits for {}", lines.join(" or "))
}

/// Returns a text that names the person who paused the run and the command that ends the pause.
fn resume_hint(pause: &ActivePause, name: Option<&RepoName>) -> String {
    let ActivePause { scope, by, .. } = pause;
    match (scope, name) {
        (PauseScope::Repo(_), Some(name)) => format!("paused by {by} until `countersign resume {name}`"),
        _ => format!("paused by {by} until `countersign resume`"),
    }
}

/// An error response: status and message.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub struct ControlError(pub(super) StatusCode, pub(super) String);

pub(super) type ControlResult<T> = Result<Json<T>, ControlError>;

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        (self.0, Json(ControlMessage { message: self.1 })).into_response()
    }
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<EngineError> for ControlError {
    fn from(error: EngineError) -> Self {
        Self(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

/// Opens the socket. An existing socket file is left over from a crash and is replaced, because we hold the lock of the
/// data directory.
pub fn listen(data: &Path, clock: SharedClock) -> io::Result<ControlListener> {
    let path = control_socket(data);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(ControlListener { listener, refused: LogThrottle::default(), clock })
}

/// The control socket. It accepts connections only from our user and root.
pub struct ControlListener {
    listener: UnixListener,
    refused: LogThrottle,
    clock: SharedClock,
}

impl Listener for ControlListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.listener).await;
            let Some(why) = peer_refusal(&stream) else { return (stream, address) };
            if let Some(refused) = self.refused.record(self.clock.now()) {
                tracing::warn!(refused, "refused connections to the control socket; last reason: {why}");
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Returns the reason for refusing the process that connects, or `None` if it may connect.
fn peer_refusal(stream: &UnixStream) -> Option<String> {
    match stream.peer_cred() {
        Ok(peer) if [rustix::process::geteuid().as_raw(), 0].contains(&peer.uid()) => None,
        Ok(peer) => Some(format!("it runs as user {}", peer.uid())),
        Err(error) => Some(format!("its user cannot be determined: {error}")),
    }
}

/// Returns the socket's routes.
pub fn routes(control: ControlContext) -> Router {
    Router::new()
        .route("/runs", get(runs))
        .route("/cost", get(cost))
        .route("/settle", post(super::held_calls::handle_settle))
        .route("/pause", post(pause))
        .route("/resume", post(resume))
        .route("/retry", post(retry))
        .route("/forget", post(forget))
        .route("/open", post(open))
        .route("/close", post(close))
        .route("/reload", post(reload))
        .route("/archive", post(archive))
        .layer(middleware::from_fn_with_state(control.token.clone(), require_token))
        .with_state(control)
}

async fn require_token(State(token): State<ServerToken>, request: Request, next: Next) -> Response {
    if token.authorizes(request.headers()) {
        return next.run(request).await;
    }
    let why = "the token of this server is missing or wrong; it is in the data directory";
    ControlError(StatusCode::UNAUTHORIZED, why.to_owned()).into_response()
}

/// Returns the repository that had this name when it was last seen. The error for an unknown name explains the expected
/// form.
pub async fn find_repository(store: &Store, name: &RepoName) -> Result<RepoId, ControlError> {
    let found = store.installation_registry().repository_named(name).await?;
    found.map(|row| row.id).ok_or_else(|| {
        let why = "is known here; check the name, as GitHub writes it now: OWNER/REPO";
        ControlError(StatusCode::NOT_FOUND, format!("no repository {name} {why}"))
    })
}

/// Parses a repository name and looks the repository up like [`find_repository`].
async fn named_by(store: &Store, text: &str) -> Result<RepoId, ControlError> {
    let name = text.parse().map_err(|_| {
        ControlError(StatusCode::BAD_REQUEST, format!("`{text}` is not a repository's name: OWNER/REPO"))
    })?;
    find_repository(store, &name).await
}

async fn pause_scope(
    control: &ControlContext,
    name: Option<&RepoName>,
) -> Result<(PauseScope, String), ControlError> {
    Ok(match name {
        None => (PauseScope::Server, "the server".to_owned()),
        Some(name) => (PauseScope::Repo(find_repository(&control.store, name).await?), name.to_string()),
    })
}

async fn pause(
    State(control): State<ControlContext>,
    Json(request): Json<PauseRequest>,
) -> ControlResult<ControlMessage> {
    let (scope, what) = pause_scope(&control, request.repository.as_ref()).await?;
    control.pause(scope, request.by, "requested on the command line").await?;
    let name = request.repository.map(|name| format!(" {name}")).unwrap_or_default();
    control_message(format!(
        "{what} is paused: deliveries are still accepted, but no step starts until `countersign resume{name}`"
    ))
}

async fn resume(
    State(control): State<ControlContext>,
    Json(request): Json<PauseRequest>,
) -> ControlResult<ControlMessage> {
    let (scope, what) = pause_scope(&control, request.repository.as_ref()).await?;
    let ended = control.resume(scope, request.by).await?;
    let still = scope != PauseScope::Server
        && control.engine.pauses().await?.iter().any(|pause| pause.scope == PauseScope::Server);
    control_message(match (ended, still) {
        (_, true) => {
            format!("{what} itself is not paused, but the whole server is; run `countersign resume`")
        }
        (true, false) => format!("{what} is resumed"),
        (false, false) => format!("{what} was not paused"),
    })
}

impl ControlContext {
    pub(super) async fn pause(&self, scope: PauseScope, by: String, why: &str) -> Result<(), EngineError> {
        self.engine.pause(scope, by, why.to_owned()).await?;
        self.pause_bell.notify_one();
        Ok(())
    }

    /// Ends the pause of `scope`. Returns false if `scope` was not paused.
    pub(super) async fn resume(&self, scope: PauseScope, by: String) -> Result<bool, EngineError> {
        let ended = self.engine.resume(scope, by).await?;
        self.pause_bell.notify_one();
        Ok(ended)
    }

    /// Retries a run. The error states the reason if the run cannot be retried.
    pub(super) async fn retry(&self, run: RunId, by: String) -> Result<(), ControlError> {
        // A cause per request, so that each request retries the run.
        let cause = Cause(format!("operator-{run}-{}", self.clock.now().0));
        let no = |status, why| Err(ControlError(status, why));
        match self.engine.retry(RetryRunRequest { run, cause, by }).await? {
            RetryDecision::Resumed | RetryDecision::Duplicate => Ok(()),
            RetryDecision::NoRun => no(
                StatusCode::NOT_FOUND,
                format!("there is no run {run}; `countersign runs --all` lists them"),
            ),
            RetryDecision::NotFailed(view) => no(
                StatusCode::CONFLICT,
                format!(
                    "{run} is {}: only a run that failed, waits for a model or is parked can be retried",
                    view.status
                ),
            ),
            RetryDecision::OtherRunLive(view) => no(
                StatusCode::CONFLICT,
                format!(
                    "{} of the same workflow is already running on issue #{}; wait for it or end it with `/stop`",
                    view.id, view.issue
                ),
            ),
        }
    }
}

async fn retry(
    State(control): State<ControlContext>,
    Json(request): Json<RetryCommandRequest>,
) -> ControlResult<ControlMessage> {
    let RetryCommandRequest { run, by } = request;
    control.retry(run, by).await?;
    control_message(format!("{run} retries the step it failed at"))
}

async fn open(
    State(control): State<ControlContext>,
    Json(request): Json<PageLinkRequest>,
) -> ControlResult<PageLinks> {
    let secret =
        random_hex().map_err(|error| ControlError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let scope = if request.act { SessionScope::Act } else { SessionScope::Read };
    let lasts = Duration::from_secs(3600 * u64::from(request.hours));
    control.store.make_link(Hash::digest(secret.as_bytes()), scope, lasts).await?;
    let here = format!("http://{}/", control.at);
    let bases = std::iter::once(here).chain(control.public_url.iter().map(Url::to_string));
    Ok(Json(PageLinks { links: bases.map(|base| format!("{base}enter?link={secret}")).collect() }))
}

async fn close(State(control): State<ControlContext>) -> ControlResult<ControlMessage> {
    let (sessions, links) = control.store.revoke_sessions().await?;
    let (sessions, links) =
        (count(sessions, "session is", "sessions are"), count(links, "link is", "links are"));
    control_message(format!("{sessions} closed, and {links} revoked: no browser can open the pages now"))
}

async fn runs(
    State(control): State<ControlContext>,
    Query(request): Query<RunListRequest>,
) -> ControlResult<Vec<RunListItem>> {
    let repo = match &request.repository {
        None => None,
        Some(text) => Some(named_by(&control.store, text).await?),
    };
    let found = control.engine.list(RunFilter { repo, issue: None, live_only: !request.all }).await?;
    Ok(Json(summarize_runs(&control.store, &found, &control.web_url).await?))
}

/// Returns runs as list items, with the current repository names.
pub async fn summarize_runs(
    store: &Store,
    runs: &[RunView],
    web_url: &Url,
) -> Result<Vec<RunListItem>, StoreError> {
    let pauses = store.pauses().await?;
    let mut lines = Vec::with_capacity(runs.len());
    let mut known: Option<(RepoId, Option<RepoName>)> = None;
    for run in runs {
        if known.as_ref().is_none_or(|(id, _)| *id != run.id.repo) {
            let row = store.installation_registry().repository(run.id.repo).await?;
            known = Some((run.id.repo, row.map(|row| row.name)));
        }
        let name = known.as_ref().and_then(|(_, name)| name.as_ref());
        lines.push(RunListItem::new(run, name, &pauses, web_url));
    }
    Ok(lines)
}

async fn cost(
    State(control): State<ControlContext>,
    Query(request): Query<CostReportRequest>,
) -> ControlResult<Vec<CostLine>> {
    Ok(Json(sum_costs(&control.store, &request).await?))
}

/// Returns the costs in all ledgers, summed by repository and by the requested grouping.
pub async fn sum_costs(store: &Store, request: &CostReportRequest) -> Result<Vec<CostLine>, ControlError> {
    let repos = match (&request.repository, request.run) {
        (Some(text), _) => vec![named_by(store, text).await?],
        (None, Some(run)) => vec![run.repo],
        (None, None) => store.repositories().await?,
    };
    if let Some(run) = request.run.filter(|run| !repos.contains(&run.repo)) {
        let why = format!("{run} is not a run of that repository; `countersign runs --all` lists them");
        return Err(ControlError(StatusCode::NOT_FOUND, why));
    }
    let mut lines = Vec::new();
    for repo in repos {
        let Some(db) = store.existing_repository_database(repo).await? else { continue };
        let rows = db.call_costs(request.run, Timestamp(0)).await?;
        let name = store.installation_registry().repository(repo).await?.map(|row| row.name.to_string());
        let repository = name.unwrap_or_else(|| repo.to_string());
        let sums = Spending::grouped_by(&rows, |row| match request.by {
            CostGrouping::Run => format!("{} {} #{}", row.run, row.workflow, row.issue),
            CostGrouping::Stage => format!("{} {}", row.workflow, row.call.role),
            CostGrouping::Model => row.call.served.as_ref().unwrap_or(&row.call.asked).clone(),
            CostGrouping::Day => row.at.to_string()[..10].to_owned(),
        });
        lines.extend(sums.into_iter().map(|(what, spent)| CostLine {
            repository: repository.clone(),
            what,
            spent,
        }));
    }
    Ok(lines)
}

async fn forget(
    State(control): State<ControlContext>,
    Json(request): Json<ForgetRepositoryRequest>,
) -> ControlResult<ControlMessage> {
    let name = &request.repository;
    let repo = find_repository(&control.store, name).await?;
    let live = control.engine.list(RunFilter { repo: Some(repo), issue: None, live_only: true }).await?;
    if let Some(run) = live.first() {
        let why = format!(
            "{name} has {}, the first is {} on issue #{}; end them with `/stop` there, or stop the server and try again",
            count(live.len(), "live run", "live runs"),
            run.id,
            run.issue
        );
        return Err(ControlError(StatusCode::CONFLICT, why));
    }
    control.store.forget_repo(repo).await?;
    tracing::warn!(repository = %name, %repo, "deleted everything stored about a repository");
    control_message(forgotten_message(name))
}

async fn reload(State(control): State<ControlContext>) -> ControlResult<ControlMessage> {
    match (control.reload)().await {
        Ok(message) => control_message(message),
        Err(why) => Err(ControlError(StatusCode::CONFLICT, why)),
    }
}

/// Returns the message that confirms the deletion of a repository's data.
pub fn forgotten_message(name: &RepoName) -> String {
    format!(
        "deleted everything stored about {name}; if the App is still installed there, it starts from scratch"
    )
}

async fn archive(
    State(control): State<ControlContext>,
    Json(request): Json<ArchiveRunsRequest>,
) -> ControlResult<ArchiveReport> {
    Ok(Json(archive_runs(&control.store, &*control.clock, &request).await?))
}

/// Archives runs of the requested age in every repository. If archiving fails for one repository, the others are still
/// archived.
pub async fn archive_runs(
    store: &Store,
    clock: &dyn Clock,
    request: &ArchiveRunsRequest,
) -> Result<ArchiveReport, StoreError> {
    let before = clock.now().minus(request.older_than);
    let mut report = ArchiveReport { lines: Vec::new(), whole: true };
    for repo in store.repositories().await? {
        let row = store.installation_registry().repository(repo).await?;
        let name = row.map_or_else(|| repo.to_string(), |row| row.name.to_string());
        match store.archive_runs(repo, before, &request.to).await {
            Ok(None) => {}
            Ok(Some(done)) => {
                report.lines.push(format!(
                    "{name}: {} of {} are in {}",
                    count(done.documents, "text", "texts"),
                    count(done.runs, "run", "runs"),
                    done.file.display()
                ));
                for text in done.damaged {
                    let stays = "is damaged and stays in the database; a backup may have it whole";
                    report.lines.push(format!("{name}: the text {text} {stays}"));
                    report.whole = false;
                }
            }
            Err(error) => {
                report.lines.push(format!("{name}: not archived: {error}"));
                report.whole = false;
            }
        }
    }
    if report.lines.is_empty() {
        report.lines.push("No run ended that long ago.".to_owned());
    }
    Ok(report)
}

fn control_message(message: String) -> ControlResult<ControlMessage> {
    Ok(Json(ControlMessage { message }))
}

/// Result of a request from the command line to the server.
#[derive(Debug)]
pub enum ControlReply<T> {
    /// No server runs on this data directory.
    NotRunning,
    Done(T),
    Refused(String),
}

/// Sends a request to the server of a data directory. With a `body` the request is a POST, otherwise a GET.
pub async fn call_server<T: DeserializeOwned>(
    data: &Path,
    path: &str,
    body: Option<serde_json::Value>,
) -> Result<ControlReply<T>, reqwest::Error> {
    let socket = control_socket(data);
    match UnixStream::connect(&socket).await {
        Ok(_) => {}
        Err(_) => return Ok(ControlReply::NotRunning),
    }
    // One TLS provider per process; an earlier one is as good. This connection is not encrypted, but the client
    // requires a provider.
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().unix_socket(socket).build()?;
    let url = format!("http://countersign{path}");
    let token = match ServerToken::read(data) {
        Ok(token) => token,
        Err(error) => {
            return Ok(ControlReply::Refused(format!(
                "{} cannot be read: {error}",
                token_file(data).display()
            )));
        }
    };
    let request = match &body {
        None => client.get(url),
        Some(body) => client.post(url).json(body),
    };
    let answer = request.header(header::AUTHORIZATION, token.bearer()).send().await?;
    if answer.status().is_success() {
        return answer.json().await.map(ControlReply::Done);
    }
    let status = answer.status();
    let why = answer.json::<ControlMessage>().await.map(|reply| reply.message);
    Ok(ControlReply::Refused(why.unwrap_or_else(|_| format!("the server answered {status}"))))
}
