//! Settings: the server's `countersign.toml`, the secrets in `.env` in the same directory, and a repository's
//! `.github/countersign.toml`, which may only tighten the server's settings.
//!
//! Settings are checked when they are loaded. Each error names the file, the line and the fix. Secrets are never read
//! from the process environment and never appear in a `Debug` output or error message. The module `providers` checks
//! that drafter and reviewer belong to different model families.

mod budget;
mod file;
mod gates;
mod local_models;
mod models;
mod people;
mod pools;
mod program;
mod reloadable;
mod repository;
mod routing;
mod sandbox;
mod secrets;
mod timeouts;
mod workers;
mod workflows;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use secrecy::SecretString;
use url::{Host, Url};

pub use budget::BudgetSettings;
pub use gates::GateRules;
pub use models::model_rows;
pub use people::PeopleSettings;
pub use pools::{Level, Names, PoolSettings, ResolvedModelName, Retry, Strategy};
pub use program::ProgramSettings;
pub use reloadable::{ReloadableValue, same_secrets};
pub use repository::{RepoSettings, TestSettings};
pub use routing::{RouteMode, Routing};
pub use sandbox::{FetchSettings, Hosts, SandboxLevel, SandboxSettings};
pub use secrets::Secrets;
pub use timeouts::Timeouts;
pub use workers::{Bulkhead, PoolAssignment, WorkerSettings};
pub use workflows::{
    BeginsWith, Filing, MOST_ROUNDS, Publish, Search, SettingsByWorkflow, ToolSettings, WorkflowDefaults,
    WorkflowSettings, document_path_of,
};

use crate::types::{Family, InstallationId, RunId, Timestamp};

/// Default path of the settings file.
pub const DEFAULT_FILE: &str = "countersign.toml";

/// Known providers. In `provider:model`, the provider is the part before the colon.
const PROVIDERS: [&str; 7] = ["claude", "anthropic", "gemini", "ollama", "openai", "opencode", "stub"];

/// Path of a repository's own settings file, which is read from the default branch.
pub const REPOSITORY_FILE: &str = ".github/countersign.toml";

/// Error for an invalid setting, with the setting's location and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the file as shown to the user.
    pub file: String,
    /// Line number, counted from 1, if the error has a location in the file.
    pub line: Option<usize>,
    /// Error message of one sentence that includes the fix. Never contains a secret.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The server's checked settings. All paths are absolute.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Path of the file from which the settings were read.
    pub file: PathBuf,
    pub app: AppSettings,
    pub github: GitHubSettings,
    pub server: ServerSettings,
    /// Directory that contains the databases and mirrors.
    pub data_dir: PathBuf,
    /// Shared Postgres database. If `None`, the databases are files in `data_dir`.
    pub postgres: Option<PostgresSettings>,
    /// Installations that this server serves. Deliveries of other installations are acknowledged and ignored.
    pub allowed_installations: Vec<InstallationId>,
    pub models: ModelSettings,
    pub budget: BudgetSettings,
    pub people: PeopleSettings,
    pub sandbox: SandboxSettings,
    pub fetch: FetchSettings,
    /// Endpoint to which traces are sent as OTLP over HTTP. If `None`, no traces are sent.
    pub collector: Option<Url>,
    workflows: SettingsByWorkflow,
    /// Secrets for verifying webhook signatures. During a rotation two secrets are valid; the current one comes first.
    pub webhook_secrets: Vec<SecretString>,
    /// Names of secrets that were found in the process environment. They are reported at startup, because we never read
    /// secrets from the environment.
    pub ignored_environment: Vec<String>,
    /// Warnings about settings that are valid but probably wrong. Each warning is one sentence and contains the line
    /// number.
    pub warnings: Vec<String>,
}

/// A Postgres database that several servers share.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// File that contains the database address.
    pub file: PathBuf,
    pub address: SecretString,
    /// Duration of a server's lease. If a server does not renew its lease within this time, other servers take over its
    /// runs.
    pub lease: std::time::Duration,
}

#[derive(Debug, Clone)]
pub struct AppSettings {
    pub id: u64,
    /// File that contains the App's private key in PEM format.
    pub private_key_file: PathBuf,
}

/// Base URLs of a GitHub instance. Only URLs without a path end with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubSettings {
    pub api_url: Url,
    pub git_url: Url,
    pub web_url: Url,
}

impl GitHubSettings {
    /// Derives the base URLs from the web URL. On GitHub's own hosts, the API has a separate host (`api.…`). On GitHub
    /// Enterprise Server, the API has the path `/api/v3`.
    pub fn from_web_url(web: &Url) -> Self {
        let hosted = web.host_str().filter(|host| *host == "github.com" || host.ends_with(".ghe.com"));
        let api = match hosted {
            Some(host) => format!("https://api.{host}/"),
            None => format!("{}/api/v3", web.as_str().trim_end_matches('/')),
        };
        let api_url = api.parse().expect("a URL with a path appended is valid");
        Self { api_url, git_url: web.clone(), web_url: web.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Address of the public listener, which serves `/webhook` and `/healthz`.
    pub listen: SocketAddr,
    /// Loopback address of the operator listener, which serves the operator's pages, metrics and readiness.
    pub private_listen: SocketAddr,
    /// Public origin of the operator's pages, if a proxy makes the pages public.
    pub public_url: Option<Url>,
}

impl ServerSettings {
    /// Returns the public URL of a run's page; `None` if the operator's pages are not public.
    pub fn run_page(&self, run: RunId) -> Option<String> {
        self.public_url.as_ref().map(|url| format!("{url}runs/{}/{}", run.repo, run.seq))
    }
}

/// Settings of models and providers. Rehearsals build these settings without a file.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Model that drafts for roles without a model of their own, as `provider:model`.
    pub drafter: String,
    /// Models of the roles that have a model of their own, as `provider:model`, by role.
    pub roles: BTreeMap<String, String>,
    /// Model that reviews, as `provider:model`.
    pub reviewer: String,
    /// Models that correct or extend the built-in model table.
    pub table: Vec<Model>,
    /// Model IDs that are accepted in a response in place of the requested one. The key is the requested
    /// `provider:model`.
    pub successors: BTreeMap<String, Vec<String>>,
    /// Names that stand for models: pools, capabilities, roles and presets.
    pub names: Names,
    pub claude: ProgramSettings,
    pub anthropic: AnthropicSettings,
    pub gemini: GeminiSettings,
    pub ollama: OllamaSettings,
    pub openai: OpenAiSettings,
    pub opencode: ProgramSettings,
    /// Whether the operator has confirmed that OpenCode calls the model that we request.
    pub attest_opencode: bool,
    pub stub: StubSettings,
    pub workers: WorkerSettings,
    pub timeouts: Timeouts,
    /// Settings for recording or replaying model responses; `None` to do neither.
    pub cassettes: Option<CassetteSettings>,
    /// Files and directories of the server that the programs of models must not read.
    pub ours: Vec<PathBuf>,
}

/// A model, defined by a `[[model]]` table of the settings or by a row of the built-in table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Model ID that is sent to the API.
    pub id: String,
    /// Other names of the model that are accepted after `provider:`.
    pub aliases: Vec<String>,
    /// Providers that serve the model, by the name that is written before the colon. The default provider comes first.
    pub providers: Vec<String>,
    pub family: Family,
    /// Size of the context window in tokens, for input and output together.
    pub context: u64,
    /// Maximum number of output tokens in one response.
    pub max_output: u64,
    /// Base price, followed by the prices of the tiers. For a call, the last price that applies is used. Empty if the
    /// price is unknown.
    pub prices: Vec<Price>,
    /// Retirement date that the model's vendor has announced.
    pub retires: Option<Timestamp>,
    /// Replacement model that the vendor recommends.
    pub successor: Option<String>,
    /// Page from which the data of this row was taken, and the day on which the page was read.
    pub source: Option<String>,
}

impl Model {
    /// Returns the price that applies at the time `now` to a call whose prompt has `prompt` tokens. Returns `None` if
    /// no price is known.
    pub fn price(&self, prompt: u64, now: Timestamp) -> Option<Price> {
        let applies = |price: &&Price| {
            (price.above == 0 || prompt > price.above) && price.from.is_none_or(|from| from <= now)
        };
        self.prices.iter().rev().find(applies).copied()
    }
}

/// Prices in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// Number of prompt tokens, including cached tokens, above which the price applies; 0 if it applies to all prompts.
    pub above: u64,
    /// Time from which the price applies; `None` if it has always applied.
    pub from: Option<Timestamp>,
}

impl Price {
    /// Returns a price with Anthropic's usual cache prices. A cache read costs a tenth of the input price, and a cache
    /// write costs 1.25 times the input price.
    pub fn per_million(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: input / 10, cache_write: input / 4 * 5, above: 0, from: None }
    }
}

/// Settings of the Anthropic API, which is called directly, without the Claude program.
#[derive(Debug, Clone)]
pub struct AnthropicSettings {
    pub base_url: Url,
    pub api_key: Option<SecretString>,
}

#[derive(Debug, Clone)]
pub struct GeminiSettings {
    pub base_url: Url,
    /// API keys, in the order in which they are used.
    pub keys: Vec<GeminiKey>,
    /// Whether free-tier keys may also be used for private repositories.
    pub free_for_private: bool,
    /// Whether Gemini may also draft. By default, Gemini only reviews.
    pub drafts: bool,
}

impl GeminiSettings {
    fn from_keys(base_url: Url, keys: Vec<GeminiKey>) -> Self {
        Self { base_url, keys, free_for_private: false, drafts: false }
    }

    /// Whether at least one key may be used only for public repositories.
    pub fn depends_on_privacy(&self) -> bool {
        self.keys.iter().any(|key| !self.may_read_private(key))
    }

    /// Returns whether private code may be sent with this key. A key of unknown tier is treated as a free-tier key. If
    /// this is wrong, the operator only has to add a line to the settings, whereas the opposite mistake would leak
    /// private code.
    pub fn may_read_private(&self, key: &GeminiKey) -> bool {
        self.free_for_private || key.tier == Some(GeminiTier::Paid)
    }
}

#[derive(Debug, Clone)]
pub struct GeminiKey {
    pub name: String,
    /// Google project to which the key belongs. All keys of a project share the project's quota.
    pub project: String,
    pub tier: Option<GeminiTier>,
    pub secret: SecretString,
}

impl GeminiKey {
    /// Returns a key without a tier. The key's name is also used as the name of its project.
    pub fn without_details(name: &str, secret: SecretString) -> Self {
        Self { name: name.to_owned(), project: name.to_owned(), tier: None, secret }
    }
}

/// Billing tier of a Gemini key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeminiTier {
    Paid,
    /// Free tier, on which Google may train on the prompts.
    Free,
}

#[derive(Debug, Clone)]
pub struct OllamaSettings {
    pub base_url: Url,
}

/// Settings of an endpoint that offers OpenAI's chat completions API.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// Base URL, which includes the API version. `/chat/completions` is appended to it.
    pub base_url: Url,
    /// API key; `None` for an endpoint that needs no key, such as one on this machine.
    pub api_key: Option<SecretString>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassetteSettings {
    pub dir: PathBuf,
    pub mode: CassetteMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CassetteMode {
    /// Models are called, and their responses are recorded.
    Record,
    /// Recorded responses are returned instead of calling models.
    Replay,
}

#[derive(Debug, Clone, Default)]
pub struct StubSettings {
    /// Script that contains the responses; `None` for the built-in rehearsal.
    pub script: Option<PathBuf>,
}

impl ModelSettings {
    /// Returns the model that drafts for this role.
    pub fn drafter_of(&self, role: &str) -> &str {
        self.roles.get(role).unwrap_or(&self.drafter)
    }

    /// Returns all models that draft, without duplicates, each with the first role that uses the model.
    pub fn drafters(&self) -> impl Iterator<Item = (&str, &String)> {
        let mut known = BTreeSet::new();
        let roles = self.roles.iter().map(|(role, spec)| (role.as_str(), spec));
        std::iter::once(("drafter", &self.drafter)).chain(roles).filter(move |(_, spec)| known.insert(*spec))
    }

    /// Returns settings with a scripted drafter and a scripted reviewer, which need neither a key nor a network.
    pub fn rehearsal(data_dir: &Path) -> Self {
        Self {
            drafter: "stub:drafter".into(),
            reviewer: "stub:reviewer".into(),
            ..Self::with_real_models(data_dir, None, None)
        }
    }

    /// Returns the default settings, in which the Claude program drafts and Gemini reviews.
    pub fn with_real_models(
        data_dir: &Path,
        gemini_key: Option<SecretString>,
        anthropic_key: Option<SecretString>,
    ) -> Self {
        Self {
            drafter: file::DRAFTER.into(),
            roles: BTreeMap::new(),
            reviewer: file::REVIEWER.into(),
            table: Vec::new(),
            successors: BTreeMap::new(),
            names: Names::default(),
            claude: ProgramSettings::with_config_dir(data_dir.join("claude")),
            anthropic: AnthropicSettings {
                base_url: Url::parse(file::ANTHROPIC_URL).expect("a constant that parses"),
                api_key: anthropic_key,
            },
            gemini: GeminiSettings::from_keys(
                Url::parse(file::GEMINI_URL).expect("a constant that parses"),
                gemini_key
                    .map(|secret| GeminiKey::without_details(secrets::ONLY_KEY, secret))
                    .into_iter()
                    .collect(),
            ),
            ollama: OllamaSettings {
                base_url: Url::parse(file::OLLAMA_URL).expect("a constant that parses"),
            },
            openai: OpenAiSettings {
                base_url: Url::parse(file::OPENAI_URL).expect("a constant that parses"),
                api_key: None,
            },
            opencode: ProgramSettings::with_config_dir(data_dir.join("opencode")),
            attest_opencode: false,
            stub: StubSettings::default(),
            workers: WorkerSettings::new(data_dir),
            timeouts: Timeouts::default(),
            cassettes: None,
            ours: vec![data_dir.to_owned()],
        }
    }

    /// Returns all API keys, so that callers can redact them from texts.
    pub fn secrets(&self) -> Vec<SecretString> {
        let apis = [&self.anthropic.api_key, &self.openai.api_key].into_iter().flatten();
        apis.chain(self.gemini.keys.iter().map(|key| &key.secret)).cloned().collect()
    }
}

impl Settings {
    /// Returns one warning each for the private key file and for `.env` if other users can access the file.
    pub fn exposed_secrets(&self) -> Vec<String> {
        let env = self.file.with_file_name(".env");
        let open = |path: &&PathBuf| {
            std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
        };
        let files = [&self.app.private_key_file, &env].into_iter().filter(open);
        files.map(|path| format!("{0} is open to other users; run: chmod 600 {0}", path.display())).collect()
    }

    /// Returns the server's settings for a workflow.
    pub fn workflow(&self, name: &str) -> &WorkflowSettings {
        self.workflows.get(name).expect("every workflow has settings")
    }

    /// Returns the settings of the router, or `None` if no workflow routes requests.
    pub fn routing(&self) -> Option<&Routing> {
        self.workflows.values().find_map(|workflow| workflow.routing.as_ref())
    }

    /// Reads and checks the settings in the file `path` and the secrets in `.env` in the same directory. `workflows`
    /// lists the workflow tables that the file may contain.
    pub fn load(path: &Path, workflows: &[WorkflowDefaults]) -> Result<Self, ConfigError> {
        Self::load_in(path, workflows, |name| std::env::var_os(name).is_some())
    }

    fn load_in(
        path: &Path,
        workflows: &[WorkflowDefaults],
        in_environment: impl Fn(&str) -> bool,
    ) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError {
            file: shown.clone(),
            line: None,
            message: match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "there is no such file; run `countersign setup` to make one, or name yours with --config"
                        .into()
                }
                _ => format!("can't be read: {error}"),
            },
        })?;
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Child processes run in other directories, where relative paths would not resolve.
        let directory = &std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let secrets = Secrets::load(&directory.join(".env"))?;
        let webhook_secrets = secrets.webhook_secrets()?;
        let mut settings =
            file::parse(&text, &shown, directory, secrets.gemini_keys, secrets.local.as_ref(), workflows)?;
        settings.models.anthropic.api_key = secrets.anthropic_api_key;
        // A key is sent only to the address it was configured for.
        let base_url = &settings.models.openai.base_url;
        let local = secrets.local.filter(|local| local.provider == "openai" && local.has_address(base_url));
        settings.models.openai.api_key = match (local, secrets.openai_api_key) {
            (Some(_), Some(_)) => {
                let message = "LOCAL_LLM_API and OPENAI_API_KEY configure two endpoints, but only one is supported; remove one of them, or set \
                               base_url under [providers.openai]";
                return Err(secrets::env_file_error(&directory.join(".env"), None, message.to_owned()));
            }
            (Some(local), None) => local.key,
            (None, key) => key,
        };
        settings.webhook_secrets = webhook_secrets;
        let file = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        settings.models.ours.extend([directory.join(".env"), file]);
        settings.models.ours.extend(secrets.files);
        settings.file = path.to_owned();
        settings.ignored_environment = secrets::secret_names().filter(|name| in_environment(name)).collect();
        Ok(settings)
    }
}

/// Whether the URL points to this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// Returns the line number, counted from 1, of the byte at offset `at` in `text`.
fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// Converts an error of the TOML parser. The message is truncated because it quotes the file, and a repository's file
/// is untrusted input.
fn from_toml(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    ConfigError {
        file: file.to_owned(),
        line: error.span().map(|span| line_of(text, span.start)),
        message: shorten_message(&error.message().lines().collect::<Vec<_>>().join("; ")),
    }
}

fn shorten_message(message: &str) -> String {
    const LONGEST: usize = 450;
    let printable = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    match message.chars().nth(LONGEST) {
        None => printable.collect(),
        Some(_) => printable.take(LONGEST - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests;
