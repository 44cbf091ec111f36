//! The control socket: how the command line speaks to the server of the same data directory.
//!
//! A Unix socket in a directory that only its owner may enter. It accepts connections from our user and from root, and
//! answers a request that carries the server's token. A model's program runs as our user and can connect on some kernels, but
//! Landlock keeps it from the file of the token. We do not look the peer up in `/proc`, because systemd may hide it. JSON
//! both ways; a refusal has a sentence for the person who asked.

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

/// Where the socket of a data directory is.
pub fn control_socket(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// What the socket's routes work on.
#[derive(Clone)]
pub struct ControlContext {
    pub store: Arc<Store>,
    pub engine: Arc<dyn EnginePort>,
    pub clock: SharedClock,
    pub token: ServerToken,
    /// Rung when a pause begins or ends.
    pub pause_bell: Arc<Notify>,
    pub web_url: Url,
    /// Where the private door is.
    pub at: Address,
    /// The name by which the world knows it, if it does.
    pub public_url: Option<Url>,
    pub reload: ReloadCallback,
}

/// Reads the secrets again; says what came of it, or why all is as it was.
pub type ReloadCallback = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Asks for a pause or for its end; without a repository, of the whole server.
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

/// Asks for a link to the operator's pages.
#[derive(Debug, Serialize, Deserialize)]
pub struct PageLinkRequest {
    /// To act there, and not only to read.
    pub act: bool,
    /// How long the session lasts that comes of it.
    pub hours: u32,
}

/// One link by each name that the pages have. The first visit by any of them spends it.
#[derive(Debug, Serialize, Deserialize)]
pub struct PageLinks {
    pub links: Vec<String>,
}

/// Asks that what long ended runs left be archived.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArchiveRunsRequest {
    pub older_than: Duration,
    pub to: PathBuf,
}

/// What came of it, in words.
#[derive(Debug, Serialize, Deserialize)]
pub struct ArchiveReport {
    pub lines: Vec<String>,
    /// Nothing went wrong in any repository.
    pub whole: bool,
}

/// Which runs to list.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct RunListRequest {
    /// `OWNER/REPO`.
    pub repository: Option<String>,
    /// Those that ended as well.
    pub all: bool,
}

/// One run as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunListItem {
    pub run: RunId,
    /// Its name, or its number where we know no name any more.
    pub repository: String,
    pub issue: u64,
    pub workflow: String,
    pub step: String,
    pub status: String,
    /// When it last moved, as GitHub writes times.
    pub since: String,
    /// Calls of GitHub's API it has cost so far, and how many of them wrote.
    pub calls: u64,
    pub writes: u64,
    /// Where the issue is.
    pub url: Option<String>,
    /// What it waits for and what would end that, or why it ended.
    pub why: Option<String>,
}

/// Whose calls to add up.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct CostReportRequest {
    /// `OWNER/REPO`.
    pub repository: Option<String>,
    pub run: Option<RunId>,
    pub by: CostGrouping,
}

/// What gets a line of its own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum CostGrouping {
    #[default]
    Run,
    Stage,
    Model,
    Day,
}

/// A sum as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostLine {
    /// Its name, or its number where we know no name any more.
    pub repository: String,
    /// The run, stage, model or day.
    pub what: String,
    #[serde(flatten)]
    pub spent: Spending,
}

/// An answer in words, and the body of every refusal.
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

/// `waits for /approve lld 3f9c2ab1d4e7 or /revise`
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

/// What ends a pause is what began it: of the server, or of one repository.
fn resume_hint(pause: &ActivePause, name: Option<&RepoName>) -> String {
    let ActivePause { scope, by, .. } = pause;
    match (scope, name) {
        (PauseScope::Repo(_), Some(name)) => format!("paused by {by} until `countersign resume {name}`"),
        _ => format!("paused by {by} until `countersign resume`"),
    }
}

/// Why something asked for is not done.
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

/// Opens the socket. What lies in its place was left by a server that died: the data directory's lock is ours.
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

/// The socket, open to the operator's own processes.
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
                tracing::warn!(
                    refused,
                    "connections to the control socket were refused, the last because {why}"
                );
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Why the process at the other end may not connect.
fn peer_refusal(stream: &UnixStream) -> Option<String> {
    match stream.peer_cred() {
        Ok(peer) if [rustix::process::geteuid().as_raw(), 0].contains(&peer.uid()) => None,
        Ok(peer) => Some(format!("it is of user {}", peer.uid())),
        Err(error) => Some(format!("who it is can't be told: {error}")),
    }
}

/// The socket's routes.
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
    let why = "the token of this server is missing, or is another one's; it is in the data directory";
    ControlError(StatusCode::UNAUTHORIZED, why.to_owned()).into_response()
}

/// The repository last seen under a name, or a refusal that says how it would become known.
pub async fn find_repository(store: &Store, name: &RepoName) -> Result<RepoId, ControlError> {
    let found = store.installation_registry().repository_named(name).await?;
    found.map(|row| row.id).ok_or_else(|| {
        let why = "is known here; check the name, as GitHub writes it now: OWNER/REPO";
        ControlError(StatusCode::NOT_FOUND, format!("no repository {name} {why}"))
    })
}

/// The same for a name that is not read yet.
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
    Json(asked): Json<PauseRequest>,
) -> ControlResult<ControlMessage> {
    let (scope, what) = pause_scope(&control, asked.repository.as_ref()).await?;
    control.pause(scope, asked.by, "asked to on the command line").await?;
    let name = asked.repository.map(|name| format!(" {name}")).unwrap_or_default();
    control_message(format!(
        "{what} is paused: deliveries are still taken in, and no step begins until `countersign resume{name}`"
    ))
}

async fn resume(
    State(control): State<ControlContext>,
    Json(asked): Json<PauseRequest>,
) -> ControlResult<ControlMessage> {
    let (scope, what) = pause_scope(&control, asked.repository.as_ref()).await?;
    let ended = control.resume(scope, asked.by).await?;
    let still = scope != PauseScope::Server
        && control.engine.pauses().await?.iter().any(|pause| pause.scope == PauseScope::Server);
    control_message(match (ended, still) {
        (_, true) => {
            format!("{what} itself is not paused now, but the whole server is: `countersign resume`")
        }
        (true, false) => format!("{what} goes on"),
        (false, false) => format!("{what} was not paused"),
    })
}

impl ControlContext {
    pub(super) async fn pause(&self, scope: PauseScope, by: String, why: &str) -> Result<(), EngineError> {
        self.engine.pause(scope, by, why.to_owned()).await?;
        self.pause_bell.notify_one();
        Ok(())
    }

    /// False: it was not paused.
    pub(super) async fn resume(&self, scope: PauseScope, by: String) -> Result<bool, EngineError> {
        let ended = self.engine.resume(scope, by).await?;
        self.pause_bell.notify_one();
        Ok(ended)
    }

    /// Has a run tried again, or says why not.
    pub(super) async fn retry(&self, run: RunId, by: String) -> Result<(), ControlError> {
        // Each time it is asked for it is a wish of its own.
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
                    "{run} is {}: only a run that failed, waits for a model or is parked can be tried again",
                    view.status
                ),
            ),
            RetryDecision::OtherRunLive(view) => no(
                StatusCode::CONFLICT,
                format!(
                    "{} of the same workflow is at work on issue #{} now; wait for it or end it with `/stop`",
                    view.id, view.issue
                ),
            ),
        }
    }
}

async fn retry(
    State(control): State<ControlContext>,
    Json(asked): Json<RetryCommandRequest>,
) -> ControlResult<ControlMessage> {
    let RetryCommandRequest { run, by } = asked;
    control.retry(run, by).await?;
    control_message(format!("{run} is tried again at the step it failed at"))
}

async fn open(
    State(control): State<ControlContext>,
    Json(asked): Json<PageLinkRequest>,
) -> ControlResult<PageLinks> {
    let secret =
        random_hex().map_err(|error| ControlError(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let scope = if asked.act { SessionScope::Act } else { SessionScope::Read };
    let lasts = Duration::from_secs(3600 * u64::from(asked.hours));
    control.store.make_link(Hash::digest(secret.as_bytes()), scope, lasts).await?;
    let here = format!("http://{}/", control.at);
    let doors = std::iter::once(here).chain(control.public_url.iter().map(Url::to_string));
    Ok(Json(PageLinks { links: doors.map(|door| format!("{door}enter?link={secret}")).collect() }))
}

async fn close(State(control): State<ControlContext>) -> ControlResult<ControlMessage> {
    let (sessions, links) = control.store.revoke_sessions().await?;
    let (sessions, links) =
        (count(sessions, "session is", "sessions are"), count(links, "link is", "links are"));
    control_message(format!("{sessions} over, and {links} taken back: no browser sees the pages any more"))
}

async fn runs(
    State(control): State<ControlContext>,
    Query(asked): Query<RunListRequest>,
) -> ControlResult<Vec<RunListItem>> {
    let repo = match &asked.repository {
        None => None,
        Some(text) => Some(named_by(&control.store, text).await?),
    };
    let found = control.engine.list(RunFilter { repo, issue: None, live_only: !asked.all }).await?;
    Ok(Json(summarize_runs(&control.store, &found, &control.web_url).await?))
}

/// Runs as they are listed, with the names of now.
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
    Query(asked): Query<CostReportRequest>,
) -> ControlResult<Vec<CostLine>> {
    Ok(Json(sum_costs(&control.store, &asked).await?))
}

/// Sums of the ledgers, a line for each repository and whatever is asked for; or why there is nothing to add up.
pub async fn sum_costs(store: &Store, asked: &CostReportRequest) -> Result<Vec<CostLine>, ControlError> {
    let repos = match (&asked.repository, asked.run) {
        (Some(text), _) => vec![named_by(store, text).await?],
        (None, Some(run)) => vec![run.repo],
        (None, None) => store.repositories().await?,
    };
    if let Some(run) = asked.run.filter(|run| !repos.contains(&run.repo)) {
        let why = format!("{run} is no run of that repository; `countersign runs --all` lists them");
        return Err(ControlError(StatusCode::NOT_FOUND, why));
    }
    let mut lines = Vec::new();
    for repo in repos {
        let Some(db) = store.existing_repository_database(repo).await? else { continue };
        let rows = db.call_costs(asked.run, Timestamp(0)).await?;
        let name = store.installation_registry().repository(repo).await?.map(|row| row.name.to_string());
        let repository = name.unwrap_or_else(|| repo.to_string());
        let sums = Spending::grouped_by(&rows, |row| match asked.by {
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
    Json(asked): Json<ForgetRepositoryRequest>,
) -> ControlResult<ControlMessage> {
    let name = &asked.repository;
    let repo = find_repository(&control.store, name).await?;
    let live = control.engine.list(RunFilter { repo: Some(repo), issue: None, live_only: true }).await?;
    if let Some(run) = live.first() {
        let why = format!(
            "{} of {name} not ended, {} on issue #{} first; end them with `/stop` there, or stop the server and ask again",
            count(live.len(), "run has", "runs have"),
            run.id,
            run.issue
        );
        return Err(ControlError(StatusCode::CONFLICT, why));
    }
    control.store.forget_repo(repo).await?;
    tracing::warn!(repository = %name, %repo, "forgotten");
    control_message(forgotten_message(name))
}

async fn reload(State(control): State<ControlContext>) -> ControlResult<ControlMessage> {
    match (control.reload)().await {
        Ok(message) => control_message(message),
        Err(why) => Err(ControlError(StatusCode::CONFLICT, why)),
    }
}

/// What a person is told who had a repository forgotten.
pub fn forgotten_message(name: &RepoName) -> String {
    format!("nothing is kept of {name} any more; while the App is installed there, it is new to it")
}

async fn archive(
    State(control): State<ControlContext>,
    Json(asked): Json<ArchiveRunsRequest>,
) -> ControlResult<ArchiveReport> {
    Ok(Json(archive_runs(&control.store, &*control.clock, &asked).await?))
}

/// Archives what every repository has of that age. One that cannot be archived keeps no other from it.
pub async fn archive_runs(
    store: &Store,
    clock: &dyn Clock,
    asked: &ArchiveRunsRequest,
) -> Result<ArchiveReport, StoreError> {
    let before = clock.now().minus(asked.older_than);
    let mut shelved = ArchiveReport { lines: Vec::new(), whole: true };
    for repo in store.repositories().await? {
        let row = store.installation_registry().repository(repo).await?;
        let name = row.map_or_else(|| repo.to_string(), |row| row.name.to_string());
        match store.archive_runs(repo, before, &asked.to).await {
            Ok(None) => {}
            Ok(Some(done)) => {
                shelved.lines.push(format!(
                    "{name}: {} of {} are in {}",
                    count(done.documents, "text", "texts"),
                    count(done.runs, "run", "runs"),
                    done.file.display()
                ));
                for text in done.damaged {
                    let stays = "is damaged and stays in the database; a backup may have it whole";
                    shelved.lines.push(format!("{name}: the text {text} {stays}"));
                    shelved.whole = false;
                }
            }
            Err(error) => {
                shelved.lines.push(format!("{name}: not archived: {error}"));
                shelved.whole = false;
            }
        }
    }
    if shelved.lines.is_empty() {
        shelved.lines.push("No run ended that long ago.".to_owned());
    }
    Ok(shelved)
}

fn control_message(message: String) -> ControlResult<ControlMessage> {
    Ok(Json(ControlMessage { message }))
}

/// What came back from a server.
#[derive(Debug)]
pub enum ControlReply<T> {
    /// No server runs on this data directory.
    NotRunning,
    Done(T),
    Refused(String),
}

/// Asks the server of a data directory; without `body` it is a question.
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
    // One provider a process; an earlier one is as good. Nothing here is encrypted, and the client asks for one anyway.
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
    let why = answer.json::<ControlMessage>().await.map(|said| said.message);
    Ok(ControlReply::Refused(why.unwrap_or_else(|_| format!("the server answered {status}"))))
}
