//! Runs a localhub in this process and `countersign serve` as a child process, as in a self-hosted setup.

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use countersign::{
    clock::{Clock, SystemClock},
    github::AppManifest,
    localhub::{AppSpec, Hub, HubOptions, RepoSource, embedded_sample},
    types::{InstallationId, RepoId, Role, UserId},
    web::token_file,
};
use secrecy::{ExposeSecret, SecretString};

pub(crate) const SECRET: &str = "a-secret-for-benches";

/// Maximum time to wait until the server listens.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Site {
    pub(crate) hub: Hub,
    pub(crate) maya: UserId,
    pub(crate) repo: RepoId,
    pub(crate) installation: InstallationId,
    pub(crate) public: SocketAddr,
    pub(crate) private: SocketAddr,
    home: tempfile::TempDir,
}

impl Site {
    /// Creates a repository, owned by maya, that contains the sample's files and has the App installed. Appends `toml`
    /// to the settings.
    pub(crate) async fn new(toml: &str) -> Self {
        let files = embedded_sample()
            .files
            .iter()
            .map(|(path, bytes)| ((*path).to_owned(), bytes.to_vec()))
            .collect();
        Self::of(files, toml).await
    }

    /// Creates a repository that contains these files and has the App installed. Appends `toml` to the settings.
    pub(crate) async fn of(files: Vec<(String, Vec<u8>)>, toml: &str) -> Self {
        let home = scratch();
        let now = Arc::new(|| SystemClock.now());
        let data = home.path().join("hub");
        let options = HubOptions { listen: ([127, 0, 0, 1], 0).into(), data, now, keeps: true };
        let hub = Hub::start(options).await.expect("localhub starts");
        let maya = hub.create_user("maya").expect("a user");
        let repo = hub.create_repo(maya, "tally", RepoSource::Files(files), false).expect("a repository");
        hub.set_role(repo, maya, Role::Admin).expect("a role");
        let (public, private) = (free_address(), free_address());
        let manifest = AppManifest::embedded();
        let permissions = manifest.permissions.iter();
        let app = hub
            .create_app(AppSpec {
                name: "Countersign".to_owned(),
                slug: "countersign".to_owned(),
                permissions: permissions.map(|(k, v)| (k.clone(), v.as_str().to_owned())).collect(),
                events: manifest.events,
                webhook_url: Some(format!("http://{public}/webhook").parse().expect("an address")),
                private_key: None,
                webhook_secret: SecretString::from(SECRET),
                owner: maya,
            })
            .expect("an App");
        let installation = hub.install(app.id, &[repo]).expect("an installation");
        let bot = home.path().join("bot");
        let write = |name: &str, text: &str| std::fs::write(bot.join(name), text).expect("a file");
        std::fs::create_dir_all(&bot).expect("a directory");
        write("key.pem", app.pem.expose_secret());
        write(".env", &format!("COUNTERSIGN_WEBHOOK_SECRET={SECRET}\n"));
        for secret in ["key.pem", ".env"] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(bot.join(secret), mode).expect("a mode");
        }
        write(
            "countersign.toml",
            &format!(
                "[app]\nid = {}\nprivate_key_file = \"key.pem\"\n[server]\nlisten = \"{public}\"\nprivate_listen = \
                 \"{private}\"\n[github]\napi_url = \"{}\"\ngit_url = \"{}\"\nweb_url = \"{}\"\n[data]\ndir = \
                 \"data\"\n[installations]\nallow = [{installation}]\n[models]\ndrafter = \
                 \"stub:drafter\"\nreviewer = \"stub:reviewer\"\n{toml}",
                app.id,
                hub.api_url(),
                hub.base_url(),
                hub.base_url(),
            ),
        );
        Self { hub, maya, repo, installation, public, private, home }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.home.path().join("bot/countersign.toml")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("bot/data")
    }

    /// Starts the server and waits until it listens.
    pub(crate) async fn serve(&self) -> Serving {
        let started = Instant::now();
        let child = Command::new(env!("CARGO_BIN_EXE_countersign"))
            .args(["--log", "error", "serve", "--config"])
            .arg(self.config())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("serve starts");
        let serving = Serving { child, started };
        while tokio::net::TcpStream::connect(self.public).await.is_err() {
            assert!(started.elapsed() < PATIENCE, "serve does not listen");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        serving
    }

    /// Returns the response of `/readyz` on the operator listener.
    pub(crate) async fn ready(&self) -> serde_json::Value {
        let token = std::fs::read_to_string(token_file(&self.data())).expect("the server's token");
        let asked =
            reqwest::Client::new().get(format!("http://{}/readyz", self.private)).bearer_auth(token.trim());
        asked.send().await.expect("the private port").json().await.expect("JSON")
    }

    /// Returns the number of deliveries that are not processed yet.
    pub(crate) async fn unread(&self) -> u64 {
        let ready = self.ready().await;
        let count = |state: &str| ready["inbox"][state].as_u64().expect("a count");
        count("new") + count("taken")
    }
}

/// A server process that is killed when this value is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) started: Instant,
}

impl Serving {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the server and waits until the process has exited.
    pub(crate) fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM to the server and waits until the process has exited.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a scratch directory in Cargo's target directory. `/tmp` is not used because it may be a file system in
/// memory, on which a commit costs nothing.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory")
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    listener.local_addr().expect("its address")
}

/// Returns the directory that contains a peer's script and its dependencies.
pub(crate) fn peer(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers").join(name)
}

/// Runs a future to its end on a new runtime.
pub(crate) fn block_on<F: Future>(part: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(part)
}
