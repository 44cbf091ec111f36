//! Settings: the server's `countersign.toml`, the secrets in `.env` next to it, and a repository's
//! `.github/countersign.toml`, which may only tighten them.
//!
//! Settings are checked here, when they are loaded; an error names the file, the line and the fix. Secrets are never
//! read from the process environment and never appear in a `Debug` or error text. `providers` checks that drafter and
//! reviewer are of different model families.

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

/// Path of a repository's own settings, read from its default branch.
pub const REPOSITORY_FILE: &str = ".github/countersign.toml";

/// An invalid setting: its location and the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the file as shown to the user.
    pub file: String,
    /// Line number from 1, if the error has a location.
    pub line: Option<usize>,
    /// One sentence with the fix; never contains a secret.
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
    /// File the settings were read from.
    pub file: PathBuf,
    pub app: AppSettings,
    pub github: GitHubSettings,
    pub server: ServerSettings,
    /// Directory of databases and mirrors.
    pub data_dir: PathBuf,
    /// Shared Postgres; if `None`, databases are files in `data_dir`.
    pub postgres: Option<PostgresSettings>,
    /// Installations that we serve. Deliveries of other installations are acknowledged and ignored.
    pub allowed_installations: Vec<InstallationId>,
    pub models: ModelSettings,
    pub budget: BudgetSettings,
    pub people: PeopleSettings,
    pub sandbox: SandboxSettings,
    pub fetch: FetchSettings,
    /// Endpoint that receives traces as OTLP over HTTP; if `None`, no traces are sent.
    pub collector: Option<Url>,
    workflows: SettingsByWorkflow,
    /// Secrets for verifying signatures. During a rotation there are two, the current one first.
    pub webhook_secrets: Vec<SecretString>,
    /// Names of secrets found in the process environment, from which we never read secrets. Reported at start.
    pub ignored_environment: Vec<String>,
    /// Warnings about settings that are valid but probably wrong. Each is one sentence and names the line.
    pub warnings: Vec<String>,
}

/// A Postgres database shared by several servers.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// File that holds the address.
    pub file: PathBuf,
    pub address: SecretString,
    /// Duration of a lease. If a server does not renew its lease for this long, other servers take over its runs.
    pub lease: std::time::Duration,
}

#[derive(Debug, Clone)]
pub struct AppSettings {
    pub id: u64,
    /// File with the App's private key in PEM format.
    pub private_key_file: PathBuf,
}

/// Base URLs of a GitHub instance. A URL ends with a slash only if it has no path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubSettings {
    pub api_url: Url,
    pub git_url: Url,
    pub web_url: Url,
}

impl GitHubSettings {
    /// Derives the URLs from the web URL. On GitHub's own hosts the API has its own host (`api.…`); on GitHub
    /// Enterprise Server it has the path `/api/v3`.
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
    /// Address of the operator listener, which serves pages, metrics and readiness; loopback only.
    pub private_listen: SocketAddr,
    /// Public origin of the operator's pages, if a proxy makes them public.
    pub public_url: Option<Url>,
}

impl ServerSettings {
    /// Returns the public URL of a run's page, if the pages are public.
    pub fn run_page(&self, run: RunId) -> Option<String> {
        self.public_url.as_ref().map(|url| format!("{url}runs/{}/{}", run.repo, run.seq))
    }
}

/// Settings of models and providers. Rehearsals build them without a file.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// Drafter as `provider:model`, for roles that have no model of their own.
    pub drafter: String,
    /// Models as `provider:model`, for roles that have their own model.
    pub roles: BTreeMap<String, String>,
    /// Reviewer as `provider:model`.
    pub reviewer: String,
    /// Rows that correct or extend the built-in model table.
    pub table: Vec<Model>,
    /// Model ids accepted in a response instead of the requested one, by requested `provider:model`.
    pub successors: BTreeMap<String, Vec<String>>,
    /// Names for models: pools, capabilities, roles and presets.
    pub names: Names,
    pub claude: ProgramSettings,
    pub anthropic: AnthropicSettings,
    pub gemini: GeminiSettings,
    pub ollama: OllamaSettings,
    pub openai: OpenAiSettings,
    pub opencode: ProgramSettings,
    /// Whether the operator attests that OpenCode calls the model that we request.
    pub attest_opencode: bool,
    pub stub: StubSettings,
    pub workers: WorkerSettings,
    pub timeouts: Timeouts,
    /// Recording or replaying of model responses; `None` for neither.
    pub cassettes: Option<CassetteSettings>,
    /// Files and directories of the server that model programs may not read.
    pub ours: Vec<PathBuf>,
}

/// One model: a `[[model]]` of the settings, or a row of the built-in table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Model id sent to the API.
    pub id: String,
    /// Names accepted after `provider:`.
    pub aliases: Vec<String>,
    /// Providers that serve the model, as written before the colon; the default one first.
    pub providers: Vec<String>,
    pub family: Family,
    /// Context window in tokens, input and output together.
    pub context: u64,
    /// Maximum tokens of one response.
    pub max_output: u64,
    /// Base price, then the tiers. The last price that applies to a call is used. Empty if the price is unknown.
    pub prices: Vec<Price>,
    /// Retirement date announced by its vendor.
    pub retires: Option<Timestamp>,
    /// Replacement named by its vendor.
    pub successor: Option<String>,
    /// Page the data comes from, and the day it was read.
    pub source: Option<String>,
}

impl Model {
    /// Returns the price of a call whose prompt has `prompt` tokens.
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
    /// Number of prompt tokens, including cached ones, above which the price applies; 0 for all prompts.
    pub above: u64,
    /// Time from which the price applies; `None` for always.
    pub from: Option<Timestamp>,
}

impl Price {
    /// Returns a price with Anthropic's usual cache prices: a read costs a tenth of the input price, and a write costs
    /// 1.25 times the input price.
    pub fn per_million(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: input / 10, cache_write: input / 4 * 5, above: 0, from: None }
    }
}

/// Settings of the Anthropic API, which we call without the Claude program.
#[derive(Debug, Clone)]
pub struct AnthropicSettings {
    pub base_url: Url,
    pub api_key: Option<SecretString>,
}

#[derive(Debug, Clone)]
pub struct GeminiSettings {
    pub base_url: Url,
    /// Keys in the order in which they are used.
    pub keys: Vec<GeminiKey>,
    /// Whether free-tier keys may be used for private repositories.
    pub free_for_private: bool,
    /// Whether Gemini may also draft. By default it only reviews.
    pub drafts: bool,
}

impl GeminiSettings {
    fn from_keys(base_url: Url, keys: Vec<GeminiKey>) -> Self {
        Self { base_url, keys, free_for_private: false, drafts: false }
    }

    /// Whether some key may be used for public repositories only.
    pub fn depends_on_privacy(&self) -> bool {
        self.keys.iter().any(|key| !self.may_read_private(key))
    }

    /// Returns whether private code may be sent with this key. A key of unknown tier is treated as a free one: if that
    /// is wrong, the operator adds a line of settings, whereas the opposite mistake would leak code.
    pub fn may_read_private(&self, key: &GeminiKey) -> bool {
        self.free_for_private || key.tier == Some(GeminiTier::Paid)
    }
}

#[derive(Debug, Clone)]
pub struct GeminiKey {
    pub name: String,
    /// Google project of the key. All keys of a project share its quota.
    pub project: String,
    pub tier: Option<GeminiTier>,
    pub secret: SecretString,
}

impl GeminiKey {
    /// Returns a key without a tier. Its name is also used as its project.
    pub fn without_details(name: &str, secret: SecretString) -> Self {
        Self { name: name.to_owned(), project: name.to_owned(), tier: None, secret }
    }
}

/// Billing tier of a Gemini key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeminiTier {
    Paid,
    /// Free tier: Google may train on the prompts.
    Free,
}

#[derive(Debug, Clone)]
pub struct OllamaSettings {
    pub base_url: Url,
}

/// Settings of an endpoint that offers OpenAI's chat completions API.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// Base URL up to the API version; `/chat/completions` is appended.
    pub base_url: Url,
    /// API key. An endpoint on this machine may need none.
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
    /// Call models and record their responses.
    Record,
    /// Return recorded responses instead of calling models.
    Replay,
}

#[derive(Debug, Clone, Default)]
pub struct StubSettings {
    /// Script with the responses; `None` for the built-in rehearsal.
    pub script: Option<PathBuf>,
}

impl ModelSettings {
    /// Returns the drafter's model for this role.
    pub fn drafter_of(&self, role: &str) -> &str {
        self.roles.get(role).unwrap_or(&self.drafter)
    }

    /// Returns the distinct drafting models, each with the first role that uses it.
    pub fn drafters(&self) -> impl Iterator<Item = (&str, &String)> {
        let mut known = BTreeSet::new();
        let roles = self.roles.iter().map(|(role, spec)| (role.as_str(), spec));
        std::iter::once(("drafter", &self.drafter)).chain(roles).filter(move |(_, spec)| known.insert(*spec))
    }

    /// Returns settings whose drafter and reviewer are scripted: they need no key and no network.
    pub fn rehearsal(data_dir: &Path) -> Self {
        Self {
            drafter: "stub:drafter".into(),
            reviewer: "stub:reviewer".into(),
            ..Self::with_real_models(data_dir, None, None)
        }
    }

    /// Default settings: the Claude program drafts and Gemini reviews.
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

    /// Returns all API keys, so that they can be redacted from texts.
    pub fn secrets(&self) -> Vec<SecretString> {
        let apis = [&self.anthropic.api_key, &self.openai.api_key].into_iter().flatten();
        apis.chain(self.gemini.keys.iter().map(|key| &key.secret)).cloned().collect()
    }
}

impl Settings {
    /// Returns a warning for the private key file and for `.env` if other users can access it.
    pub fn exposed_secrets(&self) -> Vec<String> {
        let env = self.file.with_file_name(".env");
        let open = |path: &&PathBuf| {
            std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
        };
        let files = [&self.app.private_key_file, &env].into_iter().filter(open);
        files.map(|path| format!("{0} is open to other users; run: chmod 600 {0}", path.display())).collect()
    }

    /// Returns the server's settings of a workflow.
    pub fn workflow(&self, name: &str) -> &WorkflowSettings {
        self.workflows.get(name).expect("every workflow has settings")
    }

    /// Returns the router's settings, or `None` if no workflow routes requests.
    pub fn routing(&self) -> Option<&Routing> {
        self.workflows.values().find_map(|workflow| workflow.routing.as_ref())
    }

    /// Reads and checks the settings in `path` and the `.env` next to it. `workflows` lists the workflow tables that
    /// the file may contain.
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

/// Line number, from 1, of byte `at` in `text`.
fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// Converts an error of the TOML parser. Truncates the message, because it quotes the file, and a repository's file can
/// be written by anybody.
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
