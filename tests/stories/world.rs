//! Test environment of a story: a localhub, the bot, and a clock that only the story advances.
//!
//! A story sets a label or comments, waits until the bot has nothing left to do, and asserts the result. A story fails
//! at its end if it has not inspected all actions of the bot (see `unseen`). With `COUNTERSIGN_TEST_DATA=postgres`,
//! each test environment has its own Postgres database.

use std::{
    future::Future,
    os::unix::fs::PermissionsExt,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use countersign::{
    app::{AppError, Application},
    clock::Clock,
    config::Settings,
    engine::{EnginePort, RunFilter, RunView},
    github::{AppManifest, Pacing},
    localhub::{AppSpec, Hub, HubIssueView, HubOptions, RepoSource, embedded_sample},
    store::StoreError,
    types::{InstallationId, IssueNo, RepoId, Role, Timestamp, UserId},
    web::token_file,
    workflows,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    postgres, toys,
    unseen::{Act, Unseen},
};

/// Clock that advances only when a test advances it.
pub(crate) struct ManualClock {
    now: Mutex<Timestamp>,
    moved: Notify,
}

impl ManualClock {
    fn new() -> Arc<Self> {
        Self::at(Timestamp::parse("2026-03-02T09:00:00Z").unwrap())
    }

    fn at(now: Timestamp) -> Arc<Self> {
        Arc::new(Self { now: Mutex::new(now), moved: Notify::new() })
    }

    pub(crate) fn pass(&self, duration: Duration) {
        let mut now = self.now.lock().unwrap();
        *now = now.plus(duration);
        self.moved.notify_waiters();
    }

    /// Sets the clock back, as an administrator might do.
    pub(crate) fn set_back(&self, duration: Duration) {
        let mut now = self.now.lock().unwrap();
        *now = now.minus(duration);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let until = self.now().plus(duration);
            loop {
                let moved = self.moved.notified();
                if self.now() >= until {
                    return;
                }
                moved.await;
            }
        })
    }
}

pub(crate) const SECRET: &str = "a-secret-for-stories";

/// Environment variable that makes test environments store their data in Postgres. By default, data are stored in
/// files.
const DATA: &str = "COUNTERSIGN_TEST_DATA";

/// Name of the file, in the bot's directory, that contains the URL of the bot's Postgres database.
pub(crate) const ADDRESS: &str = "postgres.url";

/// The App's private key. All test environments share it, because generating a key is slow.
static KEY: OnceLock<SecretString> = OnceLock::new();

pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) app: Arc<Application>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) repo: RepoId,
    pub(crate) issue: IssueNo,
    pub(crate) installation: InstallationId,
    pub(crate) webhook: url::Url,
    directory: TempDir,
    public: PublicServer,
    turn: Turn,
    pub(crate) unseen: Unseen,
    toys: bool,
}

/// Lock that keeps the bot from working while a webhook is delivered, so that a story runs the same way each time.
type Turn = Arc<tokio::sync::RwLock<()>>;

/// Task that serves the bot's public router.
struct PublicServer {
    close: CancellationToken,
    task: JoinHandle<()>,
}

impl PublicServer {
    fn start(listener: TcpListener, router: axum::Router, turn: &Turn) -> Self {
        let turn = Arc::clone(turn);
        let router = router.layer(axum::middleware::from_fn(
            move |request: axum::extract::Request, next: axum::middleware::Next| {
                let turn = Arc::clone(&turn);
                async move {
                    let _delivering = turn.read().await;
                    next.run(request).await
                }
            },
        ));
        let close = CancellationToken::new();
        let closed = close.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            axum::serve(listener, router).with_graceful_shutdown(closed).await.unwrap();
        });
        Self { close, task }
    }

    /// Stops the server and waits until no task uses the router any more.
    async fn stop(self) {
        self.close.cancel();
        self.task.await.unwrap();
    }
}

/// Ids that are needed to reopen a copy of a test environment.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) app: u64,
    pub(crate) repo: RepoId,
    pub(crate) issue: IssueNo,
    installation: InstallationId,
    toys: bool,
}

/// Options in which a test environment differs from the default one.
#[derive(Default)]
pub(crate) struct Setting {
    /// Script of the model responses. `None` selects the rehearsal script.
    pub(crate) script: Option<String>,
    /// Models of the drafter and the reviewer. `None` selects the rehearsal's models.
    pub(crate) models: Option<(&'static str, &'static str)>,
    pub(crate) issue: Option<(String, String)>,
    /// Additional lines for `countersign.toml`.
    pub(crate) toml: String,
    /// Additional lines for `.env`.
    pub(crate) env: String,
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// Whether documents are published as files on a pull request.
    pub(crate) as_files: bool,
    /// Whether the sample's files are left out. In that case the repository contains only `files`.
    pub(crate) bare: bool,
    pub(crate) private: bool,
    /// Permission that the App does not have. If empty, the App has all permissions.
    pub(crate) lacks: &'static str,
    /// Whether the toy workflows of [`toys`] are registered in addition.
    pub(crate) toys: bool,
    /// Whether the bot paces its writes to stay within GitHub's limits. In that case the test must advance the clock
    /// while the bot works.
    pub(crate) paced: bool,
    /// Timeout of one test run in the sandbox.
    pub(crate) test_time: Option<Duration>,
    /// URL of the Postgres database that stores the data.
    pub(crate) postgres: Option<String>,
}

/// Returns whether all test cases are to run instead of a sample.
pub(crate) fn all() -> bool {
    std::env::var("COUNTERSIGN_TESTS").is_ok_and(|value| value == "all")
}

/// Returns all test cases if `COUNTERSIGN_TESTS=all` is set, otherwise only the first.
pub(crate) fn some<T, const MANY: usize>(cases: [T; MANY]) -> impl Iterator<Item = T> {
    cases.into_iter().take(if all() { MANY } else { 1 })
}

const TOYS: [&str; 2] = ["pages", "patch"];

/// Returns the settings without the tables of the toy workflows, because the real program rejects these tables.
pub(crate) fn without_toys(mut toml: String) -> String {
    for toy in TOYS {
        toml = toml.replace(&format!("[{toy}]\npublish = \"pull-request\"\n"), "");
    }
    toml
}

/// Adds `publish = "pull-request"` to the settings table of each workflow.
fn publish_files(toml: &str, toys: bool) -> String {
    let toys: &[&str] = if toys { &TOYS } else { &[] };
    let workflows = ["lld", "spec", "scout", "implement"].into_iter().chain(toys.iter().copied());
    let mut toml = format!("{toml}\n");
    for workflow in workflows {
        let (table, row) = (format!("[{workflow}]\n"), "publish = \"pull-request\"\n");
        match toml.find(&table) {
            Some(at) => toml.insert_str(at + table.len(), row),
            None => toml += &(table + row),
        }
    }
    toml
}

/// Creates the default test environment, except that documents are published as files on a pull request.
pub(crate) async fn world_of_files() -> World {
    World::new(Setting { as_files: true, ..Setting::default() }).await
}

/// Creates the default test environment. The user maya owns a public repository with the sample's first issue. The user
/// max has the maintain role, sam the write role and tess the triage role; `stranger` has no role.
pub(crate) async fn world() -> World {
    World::new(Setting::default()).await
}

impl World {
    pub(crate) async fn new(setting: Setting) -> Self {
        let directory = directory();
        let clock = ManualClock::new();
        let hub = start_hub(directory.path(), &clock).await;
        let maya = hub.create_user("maya").unwrap();
        let sample = embedded_sample();
        let mut files: Vec<_> = sample.files.iter().map(|(p, b)| ((*p).to_owned(), b.to_vec())).collect();
        if setting.bare {
            files.clear();
        }
        files.extend(setting.files);
        let repo = hub.create_repo(maya, "tally", RepoSource::Files(files), setting.private).unwrap();
        for (login, role) in
            [("maya", Role::Admin), ("max", Role::Maintain), ("sam", Role::Write), ("tess", Role::Triage)]
        {
            let user = hub.create_user(login).unwrap();
            hub.set_role(repo, user, role).unwrap();
        }
        hub.create_user("stranger").unwrap();
        let (title, body) =
            setting.issue.unwrap_or_else(|| (sample.issues[0].0.to_string(), sample.issues[0].1.to_string()));
        let issue = hub.open_issue(repo, maya, &title, &body).unwrap();

        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook: url::Url = format!("http://{}/webhook", door.local_addr().unwrap()).parse().unwrap();
        let manifest = AppManifest::embedded();
        let credentials = hub
            .create_app(AppSpec {
                name: "Countersign".to_owned(),
                slug: "countersign".to_owned(),
                permissions: manifest
                    .permissions
                    .iter()
                    .filter(|(name, _)| *name != setting.lacks)
                    .map(|(k, v)| (k.clone(), v.as_str().to_owned()))
                    .collect(),
                events: manifest.events,
                webhook_url: Some(webhook.clone()),
                private_key: KEY.get().cloned(),
                webhook_secret: SecretString::from(SECRET),
                owner: maya,
            })
            .unwrap();
        // All worlds share the key of whichever is created first.
        KEY.get_or_init(|| credentials.pem.clone());
        let installation = hub.install(credentials.id, &[repo]).unwrap();

        let home = directory.path().join("bot");
        std::fs::create_dir_all(&home).unwrap();
        write_secret(&home.join("key.pem"), credentials.pem.expose_secret());
        let env = format!("COUNTERSIGN_WEBHOOK_SECRET={SECRET}\n{}", setting.env);
        write_secret(&home.join(".env"), &env);
        let script = match &setting.script {
            Some(text) => {
                std::fs::write(home.join("script.toml"), text).unwrap();
                "[providers.stub]\nscript = \"script.toml\"\n"
            }
            None => "",
        };
        let wanted = std::env::var(DATA).is_ok_and(|value| value == "postgres");
        let address = setting.postgres.or_else(|| wanted.then(|| postgres::database().unwrap()));
        let data = match &address {
            Some(address) => {
                write_secret(&home.join(ADDRESS), address);
                // So long that no lease is renewed or expires during a story.
                format!("postgres_file = \"{ADDRESS}\"\nlease_seconds = 600\n")
            }
            None => String::new(),
        };
        let (drafter, reviewer) = setting.models.unwrap_or(("stub:drafter", "stub:reviewer"));
        let toml = format!(
            "[app]\nid = {}\nprivate_key_file = \"key.pem\"\n[github]\napi_url = \"{}\"\ngit_url = \"{}\"\nweb_url = \
             \"{}\"\n[data]\ndir = \"data\"\n{data}[installations]\nallow = [{installation}]\n[models]\ndrafter = \
             \"{drafter}\"\nreviewer = \"{reviewer}\"\n{script}{}",
            credentials.id,
            hub.api_url(),
            hub.base_url(),
            hub.base_url(),
            if setting.as_files { publish_files(&setting.toml, setting.toys) } else { setting.toml },
        );
        std::fs::write(home.join("countersign.toml"), toml).unwrap();
        let pacing = if setting.paced { Pacing::GitHub } else { Pacing::Off };
        let toys = setting.toys;
        let app = build_with(&home.join("countersign.toml"), &clock, pacing, toys, setting.test_time).await;
        let turn = Turn::default();
        let public = PublicServer::start(door, app.public(), &turn);
        let unseen = Unseen::of(&hub);
        let mut world = Self {
            hub,
            app,
            clock,
            repo,
            issue,
            installation,
            webhook,
            directory,
            public,
            turn,
            unseen,
            toys,
        };
        world.settle().await;
        world
    }

    /// Starts a hub and a bot on `directory`, which is a copy of another test environment, with the clock at `now`.
    /// Deliveries that were pending in the copy count as failed.
    pub(crate) async fn go_on(directory: TempDir, known: Known, now: Timestamp) -> Self {
        let Known { app: id, repo, issue, installation, toys } = known;
        let clock = ManualClock::at(now);
        give_up_deliveries(&directory.path().join("hub/hub.json"));
        let hub = start_hub(directory.path(), &clock).await;
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook: url::Url = format!("http://{}/webhook", door.local_addr().unwrap()).parse().unwrap();
        hub.set_webhook(id, Some(webhook.clone()), &SecretString::from(SECRET)).unwrap();
        let config = directory.path().join("bot/countersign.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        let before = text.split("web_url = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        std::fs::write(&config, text.replace(&before, hub.base_url().as_str())).unwrap();
        let app = build(&config, &clock, Pacing::Off, toys).await;
        let turn = Turn::default();
        let public = PublicServer::start(door, app.public(), &turn);
        let unseen = Unseen::of(&hub);
        Self { hub, app, clock, repo, issue, installation, webhook, directory, public, turn, unseen, toys }
    }

    /// Stops the bot and the hub. Returns the directory with their data.
    pub(crate) async fn leave(self) -> TempDir {
        let Self { hub, app, directory, public, .. } = self;
        public.stop().await;
        hub.stop().await;
        drop(app);
        directory
    }

    pub(crate) fn known(&self) -> Known {
        let Self { repo, issue, installation, toys, .. } = *self;
        Known { app: self.app.settings.app.id, repo, issue, installation, toys }
    }

    /// Returns the directory that contains the directories of the hub and the bot.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Restarts the bot between two steps. The new bot continues with the data on disk.
    pub(crate) async fn restart(self) -> Self {
        self.restart_after(|_| ()).await
    }

    /// Restarts the bot. Calls `meanwhile` while the bot is down.
    pub(crate) async fn restart_after(self, meanwhile: impl FnOnce(&Hub)) -> Self {
        let Self {
            hub, app, clock, repo, issue, installation, directory, public, turn, unseen, toys, ..
        } = self;
        // Another world may take this port meanwhile, so webhooks go to an unused one until the bot is back.
        let id = app.settings.app.id;
        let listens_at = |url| hub.set_webhook(id, Some(url), &SecretString::from(SECRET)).unwrap();
        listens_at("http://127.0.0.1:9/".parse().unwrap());
        public.stop().await;
        drop(app);
        meanwhile(&hub);
        hub.wait_for_webhooks().await;
        let app = build(&directory.path().join("bot/countersign.toml"), &clock, Pacing::Off, toys).await;
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let webhook: url::Url = format!("http://{}/webhook", door.local_addr().unwrap()).parse().unwrap();
        listens_at(webhook.clone());
        let public = PublicServer::start(door, app.public(), &turn);
        Self { hub, app, clock, repo, issue, installation, webhook, directory, public, turn, unseen, toys }
    }

    /// Returns the server's token for the private listener.
    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(token_file(&self.app.settings.data_dir)).unwrap()
    }

    /// Starts a private listener and returns its URL.
    pub(crate) async fn private(&self) -> url::Url {
        let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = door.local_addr().unwrap();
        let url = format!("http://{at}/").parse().unwrap();
        let router = self.app.private(at, CancellationToken::new());
        tokio::spawn(async move { axum::serve(door, router).await });
        url
    }

    pub(crate) fn user(&self, login: &str) -> UserId {
        self.hub.user_id(login).unwrap_or_else(|| panic!("no user {login}"))
    }

    /// Turns webhook deliveries off if `lost` is true, otherwise on again.
    pub(crate) fn lose_webhooks(&self, lost: bool) {
        let app = self.hub.credentials("countersign").unwrap().id;
        let to = (!lost).then(|| self.webhook.clone());
        self.hub.set_webhook(app, to, &SecretString::from(SECRET)).unwrap();
    }

    /// Adds a label to the issue as this user, then lets the bot work until nothing is left to do.
    pub(crate) async fn label(&mut self, who: &str, label: &str) {
        self.hub.label(self.repo, self.issue, self.user(who), label).unwrap();
        self.settle().await;
    }

    /// Advances the clock by one minute and posts a comment as this user. Then lets the bot work until nothing is left
    /// to do.
    #[track_caller]
    pub(crate) fn comment<'a>(&'a mut self, who: &'a str, text: &'a str) -> impl Future<Output = ()> + 'a {
        self.pass(60);
        self.comment_at_once(who, text)
    }

    /// Posts a comment as this user without advancing the clock. Then lets the bot work until nothing is left to do.
    pub(crate) async fn comment_at_once(&mut self, who: &str, text: &str) {
        let id = self.hub.comment(self.repo, self.issue, self.user(who), text).unwrap();
        self.unseen.saw(self.repo, Act::Comment(id));
        self.settle().await;
    }

    pub(crate) fn pass(&self, seconds: u64) {
        self.clock.pass(Duration::from_secs(seconds));
    }

    /// Processes the pending deliveries, then lets each ready run take this many steps.
    pub(crate) async fn step(&mut self, steps: usize) {
        self.hub.wait_for_webhooks().await;
        let _working = self.turn.write().await;
        self.app.intake.drain_inbox().await.unwrap();
        for _ in 0..steps {
            self.app.engine.tick().await.unwrap();
        }
    }

    /// Advances the clock in steps of 15 seconds. After each step, lets the bot work until nothing is left to do.
    pub(crate) async fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds.div_ceil(15) {
            self.pass(15);
            self.settle().await;
        }
    }

    /// Lets the bot work until nothing is left to do: no webhook is pending, no delivery is unread, and no step is
    /// ready.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..500 {
            self.hub.wait_for_webhooks().await;
            self.unseen.keep_up();
            let _working = self.turn.write().await;
            let read = self.app.intake.drain_inbox().await.unwrap();
            let stepped = self.app.engine.tick().await.unwrap();
            if read + stepped == 0 && self.hub.pending_webhooks() == 0 {
                return;
            }
        }
        panic!("still busy after 500 rounds; the thread so far:\n{}", self.thread());
    }

    pub(crate) fn view(&self) -> HubIssueView {
        self.hub.issue(self.repo, self.issue).expect("the issue exists")
    }

    pub(crate) async fn run(&self) -> Option<RunView> {
        let filter = RunFilter { repo: Some(self.repo), issue: Some(self.issue), live_only: false };
        self.app.engine.list(filter).await.unwrap().into_iter().max_by_key(|run| run.id)
    }

    /// Returns the number of runs that were ever started in the repository.
    pub(crate) fn runs_begun(&self) -> i64 {
        self.number(Some(self.repo), "SELECT COUNT(*) FROM run")
    }

    /// Returns the whole thread as text, for failure messages.
    pub(crate) fn thread(&self) -> String {
        let view = self.view();
        let mut out = format!("#{} {} {:?}\n", view.number, view.title, view.labels);
        for comment in view.comments {
            out += &format!(
                "--- {} (edited {}x) {:?}\n{}\n",
                comment.author, comment.edits, comment.reactions, comment.body
            );
        }
        out
    }

    /// Replaces addresses and hashes by fixed words, so that texts can be compared.
    pub(crate) fn plain(&self, text: &str) -> String {
        let mut text = text.replace(self.hub.base_url().as_str().trim_end_matches('/'), "HUB");
        let mut out = String::new();
        while let Some(at) = text.find(|c: char| c.is_ascii_hexdigit()) {
            let run = text[at..].find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len() - at);
            let (word, hash) = (&text[at..at + run], run == 7 || run == 12 || run == 40 || run == 64);
            out += &text[..at];
            out += if hash && word.bytes().any(|b| b.is_ascii_digit()) { "HASH" } else { word };
            text = text[at + run..].to_owned();
        }
        out + &text
    }

    /// Returns the number that an SQL query yields. The query runs on the repository's database, or on the server's
    /// main database if `of` is `None`.
    pub(crate) fn number(&self, of: Option<RepoId>, sql: &str) -> i64 {
        if let Ok(address) = std::fs::read_to_string(self.directory().join("bot").join(ADDRESS)) {
            let of = of.map_or(String::new(), |repo| format!("SET countersign.repo = '{repo}'"));
            return postgres::number(&address, &of, sql);
        }
        let data = self.directory().join("bot/data");
        let file = of.map_or(data.join("main.db"), |repo| data.join(format!("repos/{repo}/checkpoints.db")));
        let database =
            rusqlite::Connection::open_with_flags(file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Returns the URL of a path on the public listener.
    pub(crate) fn door(&self, path: &str) -> url::Url {
        self.webhook.join(path).unwrap()
    }
}

/// Creates a directory for a test environment. The directory is in memory if there is enough space, because no story
/// depends on data surviving a power failure.
pub(crate) fn directory() -> TempDir {
    /// Minimum number of free bytes in memory. A test may have many copies of a test environment at the same time.
    const MIN_FREE_BYTES: u64 = 2 << 30;
    let memory = "/dev/shm";
    let roomy = rustix::fs::statvfs(memory).is_ok_and(|disk| disk.f_bavail * disk.f_frsize >= MIN_FREE_BYTES);
    let in_memory = roomy.then(|| tempfile::tempdir_in(memory).ok()).flatten();
    in_memory.unwrap_or_else(|| tempfile::tempdir().unwrap())
}

pub(crate) fn write_secret(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Marks the pending deliveries in the hub's state file as failed.
fn give_up_deliveries(file: &Path) {
    let mut state: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for delivery in state["deliveries"].as_array_mut().unwrap() {
        if delivery["status"].is_null() {
            delivery["status"] = 0.into();
        }
    }
    std::fs::write(file, state.to_string()).unwrap();
}

async fn start_hub(directory: &Path, clock: &Arc<ManualClock>) -> Hub {
    let clock = clock.clone();
    let options = HubOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        data: directory.join("hub"),
        now: Arc::new(move || clock.now()),
        keeps: false,
    };
    Hub::start(options).await.unwrap()
}

async fn build(config: &Path, clock: &Arc<ManualClock>, pacing: Pacing, toys: bool) -> Arc<Application> {
    build_with(config, clock, pacing, toys, None).await
}

async fn build_with(
    config: &Path,
    clock: &Arc<ManualClock>,
    pacing: Pacing,
    toys: bool,
    test_time: Option<Duration>,
) -> Arc<Application> {
    let (workflows, tables) =
        if toys { (toys::ALL, toys::TABLES) } else { (workflows::ALL, workflows::TABLES) };
    let patience = Instant::now() + Duration::from_secs(120);
    loop {
        let mut settings = Settings::load(config, tables).unwrap();
        settings.sandbox.time = test_time;
        settings.sandbox.program = Some(env!("CARGO_BIN_EXE_countersign").into());
        match Application::build_with(settings, clock.clone(), pacing, workflows).await {
            Ok(app) => return Arc::new(app),
            // A child process of another world inherits our lock between its fork and its exec.
            Err(AppError::Store(StoreError::InUse { .. })) if Instant::now() < patience => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}
