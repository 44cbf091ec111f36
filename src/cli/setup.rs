//! `countersign setup`: registers the App with GitHub's manifest flow, and writes the settings and secrets.

use std::{
    fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{ConfigFlag, INTERRUPTED, print_line, report_usage_error, serve::on_signals, wrong_app_message};
use crate::{
    clock::{Clock, SystemClock},
    config::{GitHubSettings, is_loopback},
    github::{self, AppManifest, GitHub, NewApp, manifest},
    messages::escape_html,
    providers::SAMPLE,
    types::with_causes,
    workflows,
};

/// Interval at which setup asks GitHub whether the new App has been installed. The interval is short because a person
/// waits in the browser.
const INSTALL_POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Register the App on GitHub and write its settings.
///
/// Opens a page on this machine with one button that takes you to GitHub. GitHub asks for your consent and sends you
/// back. Setup then writes countersign.toml, the private key, and a .env with the webhook secret; only your user can
/// read the key and the .env. Finally, setup waits until you have installed the App, and adds the installation to the
/// allow list.
#[derive(clap::Args)]
pub(super) struct SetupCommand {
    #[command(flatten)]
    pub(super) config: ConfigFlag,
    /// GitHub's address: github.com, your GitHub Enterprise Server, or a localhub.
    #[arg(long, value_name = "URL", default_value = "https://github.com")]
    pub(super) github: Url,
    /// Public address of this server's /webhook, to which GitHub sends deliveries. Required unless GitHub is a
    /// localhub.
    #[arg(long, value_name = "URL")]
    pub(super) webhook_url: Option<Url>,
    /// Name of the App, which must be unique on github.com.
    #[arg(long, default_value = "countersign")]
    pub(super) name: String,
    /// Register the App for this organisation instead of for yourself.
    #[arg(long, value_name = "ORGANISATION")]
    pub(super) organization: Option<String>,
    /// Port of the setup page on the loopback interface; 0 picks a free port.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(super) port: u16,
    /// Whether the webhook address belongs to a relay. In that case the address does not determine where `serve`
    /// listens.
    #[arg(skip)]
    pub(super) relayed: bool,
}

/// Default listen address of `serve`. The webhook address `LOCAL_WEBHOOK` belongs to this listen address.
const LOCAL_LISTEN: &str = "127.0.0.1:8008";
pub(super) const LOCAL_WEBHOOK: &str = "http://127.0.0.1:8008/webhook";

impl SetupCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let code = self.register().await?;
        if code != ExitCode::SUCCESS {
            return Ok(code);
        }
        let config = self.config.config.display();
        if !is_loopback(&self.github) {
            let env = self.config.config.with_file_name(".env");
            print_line(format_args!(
                "Put GEMINI_API_KEY into {} and log Claude in for the server: countersign login --config {config}",
                env.display()
            ));
        }
        print_line(format_args!(
            "Next: countersign doctor --config {config}, then countersign serve --config {config}"
        ));
        Ok(code)
    }

    /// Registers the App and waits for its installation. Does not print the next steps.
    pub(super) async fn register(&self) -> anyhow::Result<ExitCode> {
        let webhook = match &self.webhook_url {
            Some(url) => url.clone(),
            None if is_loopback(&self.github) => LOCAL_WEBHOOK.parse()?,
            None => {
                return Ok(report_usage_error(format_args!(
                    "--webhook-url is missing: {} must know where to reach this server, for example \
                     https://bot.example.org/webhook",
                    self.github
                )));
            }
        };
        if let Some(why) = webhook_problem(&webhook, &self.github) {
            return Ok(report_usage_error(format_args!("--webhook-url {webhook} {why}")));
        }
        let listen = if self.relayed { LOCAL_LISTEN.to_owned() } else { listen_address(&webhook) };
        let files = SetupFiles::beside(&self.config.config, listen)?;
        let listener = TcpListener::bind(("127.0.0.1", self.port))
            .await
            .with_context(|| format!("cannot listen on port {}; name another with --port", self.port))?;
        let port = listener.local_addr()?.port();
        let here: Url = format!("http://127.0.0.1:{port}/").parse()?;
        let github = GitHubSettings::from_web_url(&with_slash(&self.github));
        let state = random_hex()?;
        let manifest = AppManifest::embedded().registration_form(
            &self.name,
            &manifest::AppManifestUrls {
                homepage: origin(&webhook),
                webhook: webhook.to_string(),
                created: here.join("created")?.to_string(),
            },
        );
        let (codes_sender, codes) = mpsc::channel(4);
        let page = Arc::new(SetupPage {
            register: self.registration_url(&state)?,
            manifest: manifest.to_string(),
            state,
            codes_sender,
        });
        let router = Router::new()
            .route("/", get(show_start_page))
            .route("/created", get(handle_callback))
            .with_state(page);
        let stop = CancellationToken::new();
        tokio::spawn(on_signals(stop.clone(), stop.clone()));
        let closing = stop.clone();
        let server = tokio::spawn(async move {
            axum::serve(listener, router).with_graceful_shutdown(closing.cancelled_owned()).await
        });
        print_line(format_args!("Open {here} and press the button."));
        if !is_loopback(&self.github) {
            print_line(
                "If this machine has no browser, run this on one that has, and open the address there:",
            );
            print_line(format_args!("  ssh -L {port}:127.0.0.1:{port} USER@THIS-MACHINE"));
        }
        let done = tokio::select! {
            // Polled first: stopping also closes the page, which would end the other branch with an error.
            biased;
            () = stop.cancelled() => {
                print_line("Stopped before the App was installed. What was written is kept; `countersign init` continues from there.");
                return Ok(ExitCode::from(INTERRUPTED));
            }
            result = finish_registration(&files, &github, codes) => result,
        };
        // Gives the last page time to reach the browser.
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.cancel();
        server.await??;
        done?;
        Ok(ExitCode::SUCCESS)
    }

    fn registration_url(&self, state: &str) -> anyhow::Result<Url> {
        let path = match &self.organization {
            Some(organization) => format!("organizations/{organization}/settings/apps/new"),
            None => "settings/apps/new".to_owned(),
        };
        let mut url = with_slash(&self.github).join(&path)?;
        url.query_pairs_mut().append_pair("state", state);
        Ok(url)
    }
}

/// Finishes the registration after the user's consent: exchanges the code, writes the files and waits for the
/// installation.
async fn finish_registration(
    files: &SetupFiles,
    github: &GitHubSettings,
    mut codes: mpsc::Receiver<ManifestCode>,
) -> anyhow::Result<()> {
    let Some(ManifestCode { code, reply }) = codes.recv().await else { bail!("the page was closed") };
    let app = match exchange_code(files, github, &code).await {
        Ok(app) => app,
        Err(error) => {
            // The browser may be gone, so the terminal shows the error too.
            let _ = reply.send(Err(with_causes(&*error)));
            return Err(error);
        }
    };
    let install = format!("{}/installations/new", app.url);
    print_line(format_args!("Registered {} (App {}).", app.name, app.id));
    print_line(format_args!(
        "Wrote {}, {} and {}.",
        files.config.display(),
        files.key.display(),
        files.env.display()
    ));
    let _ = reply.send(Ok(install.clone()));
    allow_installation(&files.config, Some(install)).await?;
    if is_loopback(&github.web_url) {
        print_line("This is a localhub, so [models] names the scripted stub: no model, no key, no login.");
    }
    Ok(())
}

async fn exchange_code(files: &SetupFiles, github: &GitHubSettings, code: &str) -> anyhow::Result<NewApp> {
    let app = github::convert_manifest(&github.api_url, code, Arc::new(SystemClock)).await?;
    let secret = match &app.webhook_secret {
        Some(secret) => secret,
        None => bail!(
            "GitHub made no webhook secret; set one in the App's settings and in {}",
            files.env.display()
        ),
    };
    write_secret(&files.key, app.private_key.expose_secret())?;
    add_secret(&files.env, WEBHOOK_SECRET, secret)?;
    files.write_config(github, app.id)?;
    Ok(app)
}

/// Allow-list line in new settings, which is replaced once the App is installed.
const EMPTY_ALLOW_LIST: &str = "allow = []";

/// Waits until the App is installed, and adds the installation to the allow list. Polls GitHub instead of using a
/// redirect URL. A redirect URL would stay in the App's settings and lead nowhere after setup.
pub(super) async fn allow_installation(config: &Path, from: Option<String>) -> anyhow::Result<()> {
    let settings = workflows::load_settings(config)?;
    let path = &settings.app.private_key_file;
    let key = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let key = SecretString::from(key);
    let client = GitHub::without_pacing(&settings.github, settings.app.id, key, Arc::new(SystemClock))?;
    let from = match from {
        Some(from) => from,
        None => {
            let app = client.app().await.map_err(|fault| anyhow!(wrong_app_message(&settings, &fault)))?;
            format!("{}/installations/new", app.url)
        }
    };
    print_line(format_args!("Now install it: {from}"));
    let mut last_error = String::new();
    let installation = loop {
        match client.installations().await.as_deref() {
            Ok([]) => {}
            Ok([one]) => break one.id,
            Ok(_) => bail!("the App has several installations; list those to serve in [installations] allow"),
            // GitHub may not know the new App on all its servers yet.
            Err(fault) if fault.to_string() == last_error => {}
            Err(fault) => {
                last_error = fault.to_string();
                print_line(format_args!("Cannot tell yet whether it is installed: {last_error}"));
            }
        }
        SystemClock.sleep(INSTALL_POLL_INTERVAL).await;
    };
    let text = fs::read_to_string(config)?;
    let line = format!("\n{EMPTY_ALLOW_LIST}");
    if !text.contains(&line) {
        bail!("add {installation} to allow under [installations] in {}", config.display());
    }
    fs::write(config, text.replacen(&line, &format!("\nallow = [{installation}]"), 1))
        .with_context(|| format!("{} cannot be written", config.display()))?;
    print_line(format_args!("Installation {installation} is on the allow-list."));
    Ok(())
}

struct SetupPage {
    register: Url,
    manifest: String,
    state: String,
    codes_sender: mpsc::Sender<ManifestCode>,
}

/// Code from GitHub's redirect. The channel `reply` accepts the App's installation URL or an error, either of which is
/// then shown in the browser.
struct ManifestCode {
    code: String,
    reply: oneshot::Sender<Result<String, String>>,
}

async fn show_start_page(State(setup): State<Arc<SetupPage>>) -> Response {
    let body = format!(
        "<h1>Register Countersign</h1><p>GitHub shows the permissions the App asks for and creates it on your account. You come \
         back here afterwards.</p><form method=\"post\" action=\"{}\"><input type=\"hidden\" name=\"manifest\" \
         value=\"{}\"><button>Continue on GitHub</button></form>",
        escape_html(setup.register.as_str()),
        escape_html(&setup.manifest)
    );
    page(StatusCode::OK, &body)
}

#[derive(Deserialize)]
struct ManifestCallback {
    code: Option<String>,
    state: Option<String>,
}

async fn handle_callback(
    State(setup): State<Arc<SetupPage>>,
    Query(query): Query<ManifestCallback>,
) -> Response {
    if query.state.as_deref() != Some(setup.state.as_str()) {
        return page(
            StatusCode::FORBIDDEN,
            "<p>This response is not for the page that was opened here. Start at <a href=\"/\">the beginning</a>.</p>",
        );
    }
    let Some(code) = query.code else {
        return page(
            StatusCode::BAD_REQUEST,
            "<p>GitHub sent no code. Start at <a href=\"/\">the beginning</a>.</p>",
        );
    };
    let (reply, answer) = oneshot::channel();
    if setup.codes_sender.send(ManifestCode { code, reply }).await.is_err() {
        return page(StatusCode::GONE, "<p>Setup has ended. Run it again.</p>");
    }
    match answer.await {
        Ok(Ok(install)) => page(
            StatusCode::OK,
            &format!(
                "<h1>Registered</h1><p>The key and the secret are written. Last step: <a href=\"{}\">install the App</a> on \
                 the repositories it should work in. The terminal then shows the next step.</p>",
                escape_html(&install)
            ),
        ),
        Ok(Err(why)) => {
            page(StatusCode::BAD_GATEWAY, &format!("<h1>Not registered</h1><p>{}</p>", escape_html(&why)))
        }
        Err(_) => page(StatusCode::GONE, "<p>Setup has ended. Run it again.</p>"),
    }
}

fn page(status: StatusCode, body: &str) -> Response {
    let html = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Countersign setup</title><style>body{{font:16px system-ui;max-width:\
         36rem;margin:4rem auto;padding:0 1rem}}button{{font:inherit;padding:.5rem 1rem}}</style>{body}\n"
    );
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    (status, [(header::CONTENT_SECURITY_POLICY, policy)], Html(html)).into_response()
}

/// Returns a description of the problem with a webhook address, and its fix: GitHub cannot reach the address or should
/// not use it. Returns `None` if the address is valid.
pub(super) fn webhook_problem(webhook: &Url, github: &Url) -> Option<&'static str> {
    match (is_loopback(webhook), is_loopback(github)) {
        (true, false) => Some("is a loopback address; write the address where GitHub reaches this server"),
        (false, true) => Some(
            "is elsewhere, and a localhub delivers on its own machine; write http://127.0.0.1:PORT/webhook",
        ),
        (false, false) if webhook.scheme() != "https" => {
            Some("is not encrypted; write https:// and put TLS in front")
        }
        _ if webhook.path() == "/" => {
            Some("has no path; add /webhook, or the path that your proxy passes on to it")
        }
        _ => None,
    }
}

/// Returns the address on which `serve` should listen. If the webhook address is on this machine, uses its port;
/// otherwise returns the default address.
fn listen_address(webhook: &Url) -> String {
    match webhook.port_or_known_default() {
        Some(port) if is_loopback(webhook) => format!("127.0.0.1:{port}"),
        _ => LOCAL_LISTEN.to_owned(),
    }
}

/// Returns the origin of the webhook address, which is used as the server's own address. The App's page on GitHub links
/// to it.
fn origin(webhook: &Url) -> String {
    webhook.join("/").map_or_else(|_| webhook.to_string(), String::from)
}

fn with_slash(url: &Url) -> Url {
    let mut url = url.clone();
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    url
}

struct SetupFiles {
    config: PathBuf,
    key: PathBuf,
    env: PathBuf,
    listen: String,
}

impl SetupFiles {
    fn beside(config: &Path, listen: String) -> anyhow::Result<Self> {
        let directory = config.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let files = Self {
            config: config.to_owned(),
            key: directory.join("private-key.pem"),
            env: directory.join(".env"),
            listen,
        };
        // A `.env` that holds only keys is not from an earlier setup.
        let prepared =
            !read_secrets(&files.env)?.lines().any(|line| variable_name(line).starts_with(WEBHOOK_SECRET));
        for file in [&files.config, &files.key, &files.env] {
            if file.exists() && !(prepared && file == &files.env) {
                bail!(
                    "{} already exists and will not be overwritten; if an earlier setup was not finished, `countersign \
                     doctor` says what is missing; otherwise name a settings file in another directory with --config",
                    file.display()
                );
            }
        }
        fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be created", directory.display()))?;
        // Checked before the App is registered: GitHub returns the private key only once.
        tempfile::tempfile_in(directory)
            .with_context(|| format!("{} cannot be written", directory.display()))?;
        Ok(files)
    }

    fn write_config(&self, github: &GitHubSettings, app: u64) -> anyhow::Result<()> {
        let rehearsal = is_loopback(&github.web_url);
        let [drafter, reviewer] = match rehearsal {
            true => ["stub:drafter", "stub:reviewer"],
            false => ["claude:opus", "gemini:pro"],
        };
        let mut text = format!(
            "# Settings of the server. Secrets are in .env beside this file.\n\n\
             [app]\nid = {app}\nprivate_key_file = \"private-key.pem\"\n\n\
             [github]\napi_url = \"{}\"\ngit_url = \"{}\"\nweb_url = \"{}\"\n\n\
             [server]\n# Receives the webhook; put TLS in front of it.\nlisten = \"{}\"\n\
             # The operator's page and /readyz, for this machine only.\nprivate_listen = \"127.0.0.1:8009\"\n\n\
             [data]\ndir = \"data\"\n\n\
             [installations]\n# Only these are served; everyone else is answered and ignored.\n{EMPTY_ALLOW_LIST}\n\n\
             [models]\ndrafter = \"{drafter}\"\nreviewer = \"{reviewer}\"\n\n\
             # Google may train on what a key of the free tier is sent, so a key is used for private repositories only\n\
             # if you state here that its project pays:\n\
             # [[providers.gemini.key]]\n# name = \"default\" # GEMINI_API_KEY\n# tier = \"paid\"\n",
            github.api_url, github.git_url, github.web_url, self.listen
        );
        if rehearsal {
            let script = self.config.with_file_name("script.toml");
            write_secret(&script, SAMPLE)?;
            text += "\n# What the stub answers for issue 1 of the sample repository.\n[providers.stub]\nscript = \"script.toml\"\n";
        }
        fs::write(&self.config, text).with_context(|| format!("{} cannot be written", self.config.display()))
    }
}

const WEBHOOK_SECRET: &str = "COUNTERSIGN_WEBHOOK_SECRET";

/// Writes a secret to `.env`. Replaces the line of the variable if the line exists, and keeps all other lines.
pub(super) fn add_secret(env: &Path, name: &str, secret: &SecretString) -> anyhow::Result<()> {
    let text = read_secrets(env)?;
    let others = text.lines().filter(|line| variable_name(line) != name);
    let mut text: String = others.map(|line| format!("{line}\n")).collect();
    text.push_str(&format!("{name}='{}'\n", secret.expose_secret()));
    write_secret(env, &text)
}

/// Returns the text of `.env`, or the header of a new `.env` if the file does not exist.
fn read_secrets(env: &Path) -> anyhow::Result<String> {
    match fs::read_to_string(env) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Ok("# Secrets of the server. Only this file is read; the process environment is not.\n\
                # The reviewer's key, from Google AI Studio:\n# GEMINI_API_KEY=\n"
                .to_owned())
        }
        read => read.with_context(|| format!("{} cannot be read", env.display())),
    }
}

/// Returns the variable name, which is the part of a line before `=`.
fn variable_name(line: &str) -> &str {
    line.trim().trim_start_matches("export ").split('=').next().unwrap_or_default().trim()
}

/// Writes a file that only its owner can read. Replaces an existing file or link.
pub(super) fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot = || format!("{} cannot be written", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).with_context(cannot)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all());
    written.and_then(|()| Ok(file.persist(path)?)).with_context(cannot)?;
    Ok(())
}

pub(super) fn random_hex() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
    Ok(hex::encode(bytes))
}
