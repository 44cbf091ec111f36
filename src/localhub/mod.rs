//! localhub: a small GitHub on the loopback interface, based on real bare Git repositories. `countersign demo` and the
//! tests run against it. The bot uses it only over HTTP, exactly like GitHub, and cannot tell the difference.
//!
//! localhub follows GitHub's REST documentation and shares no types with the client. Routes that are not implemented
//! return 404 and name the route. Users act through the Rust API or on localhub's pages; faults can be injected only
//! through the Rust API. localhub listens on loopback only and rejects foreign `Host` headers.
//!
//! Start reading here, then `transaction.rs` (all changes), `rest/` (the API), `smart_http.rs` (Git), `webhooks.rs` and
//! `pages/`.

mod actions;
mod checks;
mod ci;
mod conversation;
mod error;
mod faults;
mod git;
mod json;
mod json_pulls;
mod keys;
mod model;
mod pages;
mod rest;
mod sample;
mod server;
mod smart_http;
mod transaction;
mod views;
mod webhooks;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    io::Write as _,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicUsize},
};

use tokio::{sync::broadcast, sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use url::Url;

pub use actions::{AppCredentials, AppSpec, LineCommentView, RepoSource};
pub use checks::HubCheckView;
pub use ci::ActionsJob;
pub use error::HubError;
pub use faults::HubFault;
pub use git::HubGitError;
pub use model::{HubAnnotation, HubDelivery, RepositoryProfile};
pub use sample::{SampleRepository, embedded_sample};
pub use views::{
    HubCommentView, HubCommitView, HubEvent, HubEventKind, HubIssueView, HubPullRequestView, HubRequestView,
    HubReviewView, HubTimelineItem,
};

use crate::types::{Oid, RepoId, Timestamp};
use git::BareRepository;
use model::HubState;
use transaction::HubTransaction;

/// Name of the state file in the data directory.
pub const STATE_FILE: &str = "hub.json";

/// Options of a hub: address, data directory and clock.
pub struct HubOptions {
    /// A loopback address. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Directory of the bare repositories and `hub.json`. A hub that is started with an existing directory continues
    /// from its state.
    pub data: PathBuf,
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Whether each change is written to `hub.json` before it is published. If false, the state is written only once,
    /// when the hub stops.
    pub keeps: bool,
}

/// A running hub. Clones refer to the same hub. Methods that change the state block while Git runs.
#[derive(Clone)]
pub struct Hub(Arc<HubInner>);

type WriteWatcher = OnceLock<Box<dyn Fn(&HubRequestView) + Send + Sync>>;

pub(crate) struct HubInner {
    state: Mutex<HubState>,
    data: PathBuf,
    keeps: bool,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    address: SocketAddr,
    /// Base URL `http://127.0.0.1:PORT`, without a trailing slash.
    base: String,
    /// Token that grants access to the pages. It is printed at each start and then kept in a cookie.
    page_token: String,
    events: broadcast::Sender<HubEvent>,
    /// Number of webhook deliveries that are queued or being sent.
    pending: watch::Sender<usize>,
    requests: Mutex<Vec<HubRequestView>>,
    writes: AtomicUsize,
    faults: Mutex<Vec<HubFault>>,
    /// Earlier states for lagging reads; empty unless a `ReadsLag` fault is active.
    moments: Mutex<Vec<Arc<faults::HubSnapshot>>>,
    write_watch: WriteWatcher,
    /// Number of requests made with each token in the current hour, for the rate limit headers.
    used: Mutex<HashMap<String, (i64, u64)>>,
    /// Pull requests whose current branch heads have been compared. The first read of a pull request starts the
    /// comparison.
    compared: Mutex<HashMap<(RepoId, u64), [Oid; 2]>>,
    stop: CancellationToken,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Hub {
    /// Opens the data directory and starts listening. Must be called within a Tokio runtime.
    pub async fn start(options: HubOptions) -> Result<Self, HubError> {
        if !options.listen.ip().is_loopback() {
            return Err(HubError::NotLoopback(options.listen));
        }
        let mut state = load_state(&options.data)?;
        if state.page_token.is_empty() {
            state.page_token = random_hex(16)?;
            save_state(&options.data, &state)?;
        }
        let listener = tokio::net::TcpListener::bind(options.listen)
            .await
            .map_err(|source| HubError::Listen { address: options.listen, source })?;
        let address =
            listener.local_addr().map_err(|source| HubError::Listen { address: options.listen, source })?;
        let waiting = state.deliveries.iter().filter(|d| d.status.is_none()).count();
        let hub = Self(Arc::new(HubInner {
            page_token: state.page_token.clone(),
            state: Mutex::new(state),
            data: options.data,
            keeps: options.keeps,
            now: options.now,
            address,
            base: format!("http://{address}"),
            events: broadcast::channel(4096).0,
            pending: watch::channel(waiting).0,
            requests: Mutex::default(),
            writes: AtomicUsize::new(0),
            faults: Mutex::default(),
            moments: Mutex::default(),
            write_watch: WriteWatcher::default(),
            used: Mutex::default(),
            compared: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: Mutex::default(),
        }));
        if hub.read(|s| !transaction::find_missed_branch_moves(s, &hub.0).is_empty()) {
            hub.change(|c| c.catch_up())?;
        }
        let courier = webhooks::WebhookSender::new(hub.clone())?;
        let tasks = vec![tokio::spawn(server::serve(hub.clone(), listener)), tokio::spawn(courier.run())];
        *lock(&hub.0.tasks) = tasks;
        Ok(hub)
    }

    /// Stops listening and sending webhooks. Queued webhooks are sent after the next start.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        let tasks = std::mem::take(&mut *lock(&self.0.tasks));
        for task in tasks {
            // A panicked task has already logged its panic.
            drop(task.await);
        }
        if !self.0.keeps
            && let Err(error) = self.read(|state| save_state(&self.0.data, state))
        {
            tracing::error!(%error, "could not save the hub's state; it is lost");
        }
    }

    /// Waits until [`Hub::stop`] is called.
    pub async fn stopped(&self) {
        self.0.stop.cancelled().await;
    }

    pub fn base_url(&self) -> Url {
        self.url("")
    }

    /// Returns the API URL that a client must use instead of `https://api.github.com`.
    pub fn api_url(&self) -> Url {
        self.url("/api/v3")
    }

    /// Returns the URL of the pages, including the access token.
    pub fn page_url(&self) -> Url {
        self.url(&format!("/?token={}", self.0.page_token))
    }

    /// Returns the URL of a page of a repository, including the access token: `hub.repo_page_url(repo, "issues/1")`.
    pub fn repo_page_url(&self, repo: RepoId, path: &str) -> Option<Url> {
        let name = self.read(|s| s.repositories.get(&repo).map(|r| s.name_of(r)))?;
        Some(self.url(&format!("/{name}/{path}?token={}", self.0.page_token)))
    }

    /// Copies the whole state into a new directory as one snapshot, from which a second hub can continue. Queued
    /// webhooks are copied too and keep their target URL.
    pub fn copy_to(&self, fresh: &Path) -> Result<(), HubError> {
        let state = lock(&self.0.state);
        copy_folder(&self.0.data, fresh)
            .map_err(|source| HubError::Data { path: fresh.to_owned(), source })?;
        save_state(fresh, &state)
    }

    fn url(&self, path: &str) -> Url {
        let text = format!("{}{path}", self.0.base);
        Url::parse(&text).expect("a socket address and a path of ours make a URL")
    }

    /// Returns the path of a bare repository.
    pub fn git_dir(&self, repo: RepoId) -> PathBuf {
        self.0.git_dir(repo)
    }

    /// Subscribes to all events from now on. A reader that falls 4096 events behind gets a lag error.
    pub fn subscribe(&self) -> broadcast::Receiver<HubEvent> {
        self.0.events.subscribe()
    }

    fn read<T>(&self, look: impl FnOnce(&HubState) -> T) -> T {
        look(&lock(&self.0.state))
    }

    /// Applies a change to the state, writes the state to disk, then publishes the events.
    fn change<T, E: From<HubError>>(
        &self,
        act: impl FnOnce(&mut HubTransaction<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut state = lock(&self.0.state);
        self.keep_snapshot(&state);
        let mut change = HubTransaction::new(&mut state, &self.0);
        let result = act(&mut change);
        let happened = change.finish();
        if self.0.keeps {
            save_state(&self.0.data, &state)?;
        }
        let waiting = state.deliveries.iter().filter(|d| d.status.is_none()).count();
        self.0.pending.send_replace(waiting);
        drop(state);
        for event in happened {
            // No subscriber is fine.
            drop(self.0.events.send(event));
        }
        result
    }
}

impl HubInner {
    /// Whether a pull request's mergeability is known. As on GitHub, it is unknown in the first read of the same branch
    /// heads and known in later ones.
    fn is_compared(&self, pull: (RepoId, u64), ends: [Oid; 2]) -> bool {
        lock(&self.compared).insert(pull, ends.clone()) == Some(ends)
    }

    fn git_dir(&self, repo: RepoId) -> PathBuf {
        self.data.join("repositories").join(format!("{repo}.git"))
    }

    fn git(&self, repo: RepoId) -> BareRepository {
        BareRepository::open(self.git_dir(repo))
    }

    fn delivery_file(&self, guid: &str) -> PathBuf {
        self.data.join("deliveries").join(format!("{guid}.json"))
    }
}

/// Locks a mutex. Ignores poisoning, because each row is changed completely or not at all.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load_state(data: &Path) -> Result<HubState, HubError> {
    let unusable = |source: std::io::Error| HubError::Data { path: data.to_owned(), source };
    for folder in ["repositories", "deliveries"] {
        std::fs::create_dir_all(data.join(folder)).map_err(unusable)?;
    }
    let file = data.join(STATE_FILE);
    match std::fs::read(&file) {
        // Empty: the file only marks the directory as a hub's.
        Ok(bytes) if bytes.is_empty() => Ok(HubState::default()),
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map_err(|e| HubError::Damaged { path: file, message: e.to_string() }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(HubState::default()),
        Err(e) => Err(unusable(e)),
    }
}

fn save_state(data: &Path, state: &HubState) -> Result<(), HubError> {
    let path = data.join(STATE_FILE);
    let unusable = |source: std::io::Error| HubError::Data { path: path.clone(), source };
    let bytes = serde_json::to_vec(state).map_err(|e| unusable(e.into()))?;
    // Written atomically; readable by the owner only, because it holds the rehearsal App's key.
    let fresh = data.join("hub.json.new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(unusable)?;
    file.write_all(&bytes).map_err(unusable)?;
    std::fs::rename(&fresh, &path).map_err(unusable)
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn random_hex(bytes: usize) -> Result<String, HubError> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer).map_err(|e| HubError::Refused(format!("no random numbers: {e}")))?;
    Ok(hex::encode(buffer))
}
