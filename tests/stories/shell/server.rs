//! Stories with `localhub`, `setup`, `serve` and `doctor` as separate processes that communicate only by HTTP.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use tempfile::{TempDir, tempdir};
use url::Url;

use super::{
    browser::{Browser, Page},
    process::{PATIENCE, Running, countersign, free_address, run_countersign, text},
};

/// A localhub on which the App is installed, and the files that `setup` wrote.
pub(super) struct Site {
    home: TempDir,
    hub: Running,
    browser: Browser,
    issues: Url,
    config: PathBuf,
}

impl Site {
    pub(super) fn new() -> Self {
        let mut site = Self::bare();
        let webhook = format!("http://{}/webhook", free_address());
        site.set_up(&webhook);
        site
    }

    /// Starts a localhub without an App.
    pub(super) fn bare() -> Self {
        let home = tempdir().unwrap();
        let hub_data = home.path().join("hub");
        let mut hub = Running::start(&mut countersign(&[
            "localhub",
            "--data",
            hub_data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
        ]));
        let mut browser = Browser::default();
        let pages = address(&hub.wait_for_line("pages "));
        assert_eq!(browser.open(&pages).status, 200);
        let issues = address(&hub.wait_for_line("issues "));
        let config = home.path().join("bot/countersign.toml");
        Self { home, hub, browser, issues, config }
    }

    /// Returns the address of the localhub.
    pub(super) fn github(&self) -> Url {
        self.issues.join("/").unwrap()
    }

    pub(super) fn set_up(&mut self, webhook: &str) {
        let github = self.github();
        let mut setup = Running::start(&mut countersign(&[
            "setup",
            "--github",
            github.as_str(),
            "--config",
            self.config.to_str().unwrap(),
            "--webhook-url",
            webhook,
        ]));
        self.register(&mut setup);
        let (code, printed) = setup.end();
        assert_eq!(code, Some(0), "{printed}");
        assert!(printed.contains("Next: countersign doctor --config"), "{printed}");
        assert!(printed.contains("[models] names the scripted stub: no model, no key"), "{printed}");
        self.edit("127.0.0.1:8009", &free_address());
    }

    /// Registers the App in the browser and installs it.
    pub(super) fn register(&mut self, setup: &mut Running) {
        let created = self.consent(setup);
        self.install(&created);
    }

    /// Registers the App in the browser. Returns the page that links to the App's installation.
    pub(super) fn consent(&mut self, setup: &mut Running) -> Page {
        let start = address(&setup.wait_for_line("Open "));
        let page = self.browser.open(&start);
        let consent = self.browser.submit(&page, &form_of(&page.body), &[]);
        assert!(consent.body.contains("pull_requests"), "{}", consent.body);
        let created = self.browser.submit(&consent, "/settings/apps/create", &[]);
        assert_eq!((created.at.path(), created.status), ("/created", 200), "{}", created.body);
        created
    }

    pub(super) fn install(&mut self, created: &Page) {
        let install = self.browser.open(&created.link("/installations/new"));
        let repository = install.value_beside("tally");
        let installed = self.browser.submit(&install, "/installations/new", &[("repository", &repository)]);
        assert_eq!(
            (installed.at.port(), installed.status),
            (self.issues.port(), 200),
            "the App's pages link only to its GitHub: {}",
            installed.body
        );
    }

    /// Returns the page that lists the open issues or pull requests.
    pub(super) fn page_of(&mut self, list: &str) -> String {
        let at = self.issues.join(list).unwrap();
        self.browser.open(&at).body
    }

    pub(super) fn config(&self) -> &Path {
        &self.config
    }

    pub(super) fn directory(&self) -> &Path {
        self.config.parent().unwrap()
    }

    fn settings(&self) -> String {
        fs::read_to_string(&self.config).unwrap()
    }

    pub(super) fn edit(&self, from: &str, to: &str) {
        let text = self.settings();
        assert!(text.contains(from), "{from} is not in:\n{text}");
        fs::write(&self.config, text.replace(from, to)).unwrap();
    }

    pub(super) fn serve(&self) -> Running {
        self.serve_with(&[])
    }

    pub(super) fn serve_with(&self, more: &[&str]) -> Running {
        let mut serving = countersign(&["serve", "--config", self.config.to_str().unwrap()]);
        let mut serving = Running::start(serving.args(more));
        serving.wait_for_line("serving");
        serving
    }

    pub(super) fn doctor(&self) -> (Option<i32>, String) {
        self.doctor_with(&[])
    }

    pub(super) fn doctor_with(&self, more: &[&str]) -> (Option<i32>, String) {
        let output =
            run_countersign(&[&["doctor", "--config", self.config.to_str().unwrap()], more].concat());
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    fn healthy(&self) -> (Option<i32>, String) {
        let output = run_countersign(&["healthy", "--config", self.config.to_str().unwrap()]);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    /// Asserts that `serve` exits with code 1 and an error that contains `words`.
    fn assert_serve_fails(&self, words: &str) {
        let output = run_countersign(&["serve", "--config", self.config.to_str().unwrap()]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.starts_with("countersign: ") && printed.contains(words), "{printed}");
    }

    /// Runs `broken`, which damages the files. Asserts that `doctor` then reports `words`, and restores the files.
    fn assert_doctor_reports(&self, broken: impl FnOnce(), words: &str) {
        let (settings, key) = (self.settings(), fs::read(self.key()).unwrap());
        broken();
        let (code, printed) = self.doctor();
        assert_eq!(code, Some(1), "{words}: {printed}");
        assert!(
            printed.contains("to fix:") && printed.lines().filter(|line| line.contains(words)).count() == 1,
            "`{words}` is not in, once:\n{printed}"
        );
        fs::write(&self.config, settings).unwrap();
        fs::write(self.key(), key).unwrap();
        fs::set_permissions(self.key(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(super) fn key(&self) -> PathBuf {
        self.directory().join("private-key.pem")
    }
}

/// Returns the web address in a line of output.
fn address(line: &str) -> Url {
    let word = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    word.parse().unwrap()
}

/// Returns the action of the page's only form.
fn form_of(body: &str) -> String {
    body.split("action=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn setup_serve_and_approval_work_over_http() {
    let mut site = Site::new();
    assert_eq!(mode(&site.key()), 0o600);
    assert_eq!(mode(&site.directory().join(".env")), 0o600);
    let serving = site.serve();
    let (code, printed) = site.doctor();
    assert_eq!(code, Some(0), "{printed}");
    assert_eq!(site.healthy(), (Some(0), String::new()));

    let issue = site.label("countersign:lld");
    let page = site.browser.wait_for(&issue, "/approve lld ");
    let line = page.body.split("/approve lld ").nth(1).unwrap();
    let hash: String = line.chars().take_while(char::is_ascii_hexdigit).collect();
    assert_eq!(hash.len(), 12, "{hash}");
    site.browser.submit(&page, "/comment", &[("body", &format!("/approve lld {hash}"))]);
    site.browser.wait_for(&issue, "lld: done");
    let thread = site.browser.open(&issue);
    assert!(thread.body.contains("The whole design"), "{}", thread.body);

    let hub = run_countersign(&["localhub", "--data", site.home.path().join("hub").to_str().unwrap()]);
    let printed = text(&hub.stderr);
    assert!(
        hub.status.code() == Some(1) && printed.contains("is in use by another countersign"),
        "{printed}"
    );

    // A second server on the same data is refused.
    let other = site.home.path().join("bot/other.toml");
    let shared =
        site.settings().lines().filter(|line| !line.contains("listen =")).collect::<Vec<_>>().join("\n");
    fs::write(
        &other,
        shared.replace(
            "[server]",
            &format!("[server]\nlisten = \"{}\"\nprivate_listen = \"{}\"", free_address(), free_address()),
        ),
    )
    .unwrap();
    let second = run_countersign(&["serve", "--config", other.to_str().unwrap()]);
    let printed = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{printed}");
    assert!(printed.contains(&site.directory().join("data").display().to_string()), "{printed}");
    assert_eq!(printed.matches("is in use by another countersign").count(), 1, "{printed}");

    serving.signal(Signal::TERM);
    let (code, printed) = serving.end();
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("stopped"), "{printed}");
    let (code, unheard) = site.healthy();
    assert!(code == Some(1) && unheard.contains("look into the server's log"), "{unheard}");
    for moment in ["step done", "model answered", "gate opened; waiting for a person", "run done"] {
        assert!(printed.contains(moment), "{moment} is not in the log:\n{printed}");
    }
    assert!(!printed.contains("delivery needs no action"), "{printed}");
}

#[test]
fn wrong_webhook_secret_is_logged_and_found_by_doctor() {
    let mut site = Site::new();
    let env = site.directory().join(".env");
    fs::write(&env, "COUNTERSIGN_WEBHOOK_SECRET=another-than-the-one-GitHub-has\n").unwrap();
    let mut serving = site.serve();
    let issue = site.issues.join("issues/1").unwrap();
    let page = site.browser.open(&issue);
    site.browser.submit(&page, "/comment", &[("body", "/lld")]);
    let line = serving.wait_for_line("webhook refused: The signature does not match");
    // A refused delivery may have been redelivered by now with another id.
    assert!(line.split("delivery=\"").nth(1).is_some_and(|id| id.find('"') == Some(36)), "{line}");
    let (code, printed) = site.doctor();
    assert_eq!(code, Some(1), "{printed}");
    assert!(printed.contains("GitHub's last delivery ("), "{printed}");
    assert!(
        printed.contains("was refused with 401: the webhook secret on the App's settings page"),
        "{printed}"
    );
    assert!(printed.contains(&format!("COUNTERSIGN_WEBHOOK_SECRET in {}", env.display())), "{printed}");
    assert!(printed.contains("/data, in use by a server"), "{printed}");
}

#[test]
fn setup_prints_an_ssh_tunnel_command_for_the_setup_page() {
    let home = tempdir().unwrap();
    let config = home.path().join("countersign.toml");
    let mut setup = Running::start(&mut countersign(&[
        "setup",
        "--config",
        config.to_str().unwrap(),
        "--webhook-url",
        "https://bot.example.org/webhook",
    ]));
    let port = address(&setup.wait_for_line("Open ")).port().unwrap();
    setup.wait_for_line(&format!("ssh -L {port}:127.0.0.1:{port} "));
    setup.signal(Signal::INT);
    assert_eq!(setup.end().0, Some(130));
}

#[test]
#[ignore = "takes long"]
fn doctor_reports_the_fix_for_broken_settings_and_serve_refuses_them() {
    let site = Site::new();
    let serving = site.serve();
    let (code, printed) = site.doctor();
    assert_eq!(code, Some(0), "{printed}");
    let key = site.key();

    let app = site.settings().lines().find(|line| line.starts_with("id = ")).unwrap().to_owned();
    site.assert_doctor_reports(
        || site.edit(&app, "id = 7"),
        "knows no App with id 7; correct id under [app]",
    );
    let allowed = site.settings().lines().find(|line| line.starts_with("allow = ")).unwrap().to_owned();
    site.assert_doctor_reports(|| site.edit(&allowed, "allow = []"), "[installations] allow is empty");
    site.assert_doctor_reports(
        || fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap(),
        "is open to other users; run: chmod 600",
    );
    let data = site.directory().join("data");
    site.assert_doctor_reports(
        || site.edit("dir = \"data\"", "dir = \"countersign.toml/data\""),
        "cannot be written",
    );
    assert!(!site.directory().join("countersign.toml/data").exists() && data.exists());
    site.assert_doctor_reports(
        || site.edit("[models]", "[models]\nreviwer = \"x\""),
        "unknown field `reviwer`",
    );
    site.assert_doctor_reports(|| site.edit("stub:reviewer", "gemini:pro"), "GEMINI_API_KEY");
    site.assert_doctor_reports(|| fs::write(&key, "no key").unwrap(), "BAD   private key");
    site.assert_doctor_reports(|| fs::remove_file(&key).unwrap(), "cannot be read");
    serving.signal(Signal::TERM);
    assert_eq!(serving.end().0, Some(0));
    site.assert_doctor_reports(|| {}, "start `countersign serve`");

    let settings = site.settings();
    let whole = |text: &str| fs::write(&site.config, text).unwrap();
    whole(&settings.replace("stub:reviewer", "gemini:pro"));
    let serving = site.serve();
    serving.signal(Signal::TERM);
    let (_, printed) = serving.end();
    assert!(printed.contains("cannot call the reviewer gemini:pro"), "{printed}");
    whole(&settings.replace("private-key.pem", "elsewhere.pem"));
    site.assert_serve_fails("elsewhere.pem cannot be read");
    whole(&settings.replace(&app, "id = 7"));
    site.assert_serve_fails("knows no App with id 7");
    whole(&settings);
    for file in [&key, &site.directory().join(".env")] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o640)).unwrap();
        site.assert_serve_fails("is open to other users; run: chmod 600");
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let taken = std::net::TcpListener::bind(site.listening()).unwrap();
    site.assert_serve_fails("Choose another address under [server]");
    drop(taken);
    let long = format!("dir = \"{}/data\"", "long/".repeat(20));
    whole(&settings.replace("dir = \"data\"", &long));
    site.assert_serve_fails("control.sock cannot be opened");
    whole(&settings);
    let database = site.directory().join("data/main.db");
    fs::write(&database, "this is no database, whatever its name says".repeat(100)).unwrap();
    let before = fs::read(&database).unwrap();
    site.assert_serve_fails("main.db");
    assert_eq!(fs::read(&database).unwrap(), before, "a damaged file is evidence");
}

#[test]
fn server_requests_to_remote_hosts_use_the_configured_proxy() {
    let mut site = Site::new();
    // A proxy that answers nothing and records the requested hosts.
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let (sender, requested) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in proxy.incoming().map_while(Result::ok) {
            let mut line = String::new();
            BufReader::new(client).read_line(&mut line).unwrap();
            // The receiver is gone once the test ends.
            let _ = sender.send(line.split(' ').take(2).collect::<Vec<_>>().join(" "));
        }
    });
    // An earlier connection may still ask for another host.
    let wanted = |place: &str| {
        while requested.recv_timeout(PATIENCE).expect("the proxy gets a request")
            != format!("CONNECT {place}:443")
        {}
    };
    let behind = |command: &str| {
        let mut command = countersign(&[command, "--config", site.config.to_str().unwrap()]);
        Running::start(command.env("HTTPS_PROXY", &address))
    };
    let settings = site.settings();
    let github = settings.split("[github]\n").nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
    let git = github.lines().find(|line| line.starts_with("git_url")).unwrap();
    site.edit(git, "git_url = \"https://git.acme.example\"");
    let mut serving = behind("serve");
    serving.wait_for_line("serving");
    let issue = site.issues.join("issues/1").unwrap();
    let page = site.browser.open(&issue);
    site.browser.submit(&page, "/label", &[("name", "countersign:lld")]);
    wanted("git.acme.example");
    drop(serving);

    fs::write(&site.config, settings.replace(&github, "web_url = \"https://acme.ghe.com\"")).unwrap();
    let doctor = behind("doctor");
    wanted("api.acme.ghe.com");
    drop(doctor);
}

#[test]
#[ignore = "takes long"]
fn connections_with_unfinished_requests_do_not_block_a_delivery() {
    let mut site = Site::new();
    let mut few_files = Command::new("sh");
    few_files.args(["-c", "ulimit -n 256; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_countersign")]);
    few_files.args(["serve", "--config", site.config.to_str().unwrap()]);
    let mut serving = Running::start(&mut few_files);
    serving.wait_for_line("serving");
    let silent = |_| {
        let mut silent = TcpStream::connect(site.listening()).unwrap();
        silent.write_all(b"POST /webhook HTTP/1.1\r\nHost: ").unwrap();
        silent
    };
    let held: Vec<_> = (0..300).map(silent).collect();
    let issue = site.label("countersign:lld");
    site.browser.wait_for(&issue, "/approve lld ");
    serving.wait_for_line("connections were closed");
    drop(held);
}

impl Site {
    pub(super) fn listening(&self) -> String {
        self.address("listen = ")
    }

    /// Returns the address of the private listener, which serves the operator's pages.
    pub(super) fn page(&self) -> String {
        self.address("private_listen = ")
    }

    fn address(&self, key: &str) -> String {
        let line = self.settings().lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        line.split('"').nth(1).unwrap().to_owned()
    }

    /// Adds a label to the first issue. Returns the address of the issue's page.
    pub(super) fn label(&mut self, label: &str) -> Url {
        let issue = self.issues.join("issues/1").unwrap();
        let page = self.browser.open(&issue);
        self.browser.submit(&page, "/label", &[("name", label)]);
        issue
    }

    pub(super) fn browser(&mut self) -> &mut Browser {
        &mut self.browser
    }

    /// Posts a comment on the issue whose page has this address.
    pub(super) fn comment(&mut self, issue: &Url, text: &str) {
        let page = self.browser.open(issue);
        self.browser.submit(&page, "/comment", &[("body", text)]);
    }

    pub(super) fn wait_for(&mut self, page: &Url, words: &str) {
        self.browser.wait_for(page, words);
    }

    /// Lets other users of this machine enter the bot's directory.
    pub(super) fn open_to_others(&self) {
        fs::set_permissions(self.home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.hub.child.kill();
    }
}
