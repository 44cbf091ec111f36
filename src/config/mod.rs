//! Settings: the server's `countersign.toml`, the secrets in the `.env` beside it, and what a
//! repository may tighten in its own `.github/countersign.toml`.
//!
//! Everything is checked here, once, and refused with the file, the line and the fix; past this
//! room a setting is good. Secrets never come from the process environment and never reach a
//! `Debug` or an error text. Whether the two models are of different families is not known here:
//! `providers` checks it.

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

/// Where the settings are looked for without a flag.
pub const DEFAULT_FILE: &str = "countersign.toml";

/// The words that may stand before the colon of a model.
const PROVIDERS: [&str; 7] = ["claude", "anthropic", "gemini", "ollama", "openai", "opencode", "stub"];

/// Where a repository keeps its own settings, on its default branch.
pub const REPOSITORY_FILE: &str = ".github/countersign.toml";

/// A setting that can't be used: where it stands and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file as the reader knows it.
    pub file: String,
    /// Counted from 1, where the mistake has a place.
    pub line: Option<usize>,
    /// One sentence with the fix; never a secret.
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

/// The server's settings, checked, with every path made absolute.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file they were read from.
    pub file: PathBuf,
    pub app: AppSettings,
    pub github: GitHubSettings,
    pub server: ServerSettings,
    /// Where databases and mirrors live.
    pub data_dir: PathBuf,
    /// None: databases are files in `data_dir`.
    pub postgres: Option<PostgresSettings>,
    /// Installations that are served; the others are answered and ignored.
    pub allowed_installations: Vec<InstallationId>,
    pub models: ModelSettings,
    pub budget: BudgetSettings,
    pub people: PeopleSettings,
    pub sandbox: SandboxSettings,
    pub fetch: FetchSettings,
    /// Where traces are sent, as OTLP over HTTP; none: nowhere.
    pub collector: Option<Url>,
    workflows: SettingsByWorkflow,
    /// One to sign with, or two while a secret is being changed; the current one first.
    pub webhook_secrets: Vec<SecretString>,
    /// Names of secrets found in the process environment, where they are not read. To be named at
    /// start.
    pub ignored_environment: Vec<String>,
    /// Settings that are allowed but probably a mistake: one sentence each, with its line.
    pub warnings: Vec<String>,
}

/// A Postgres that several servers share.
#[derive(Debug, Clone)]
pub struct PostgresSettings {
    /// Where its address stands.
    pub file: PathBuf,
    pub address: SecretString,
    /// How long a server that is not heard of has what it had in hand.
    pub lease: std::time::Duration,
}

#[derive(Debug, Clone)]
pub struct AppSettings {
    pub id: u64,
    /// The App's private key, PEM.
    pub private_key_file: PathBuf,
}

/// The three faces of one GitHub; each ends without a slash unless it is a bare host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubSettings {
    pub api_url: Url,
    pub git_url: Url,
    pub web_url: Url,
}

impl GitHubSettings {
    /// From the face that people know. GitHub's own hosts have the API beside them, a GitHub Enterprise Server has it
    /// below.
    pub fn from_web_url(web: &Url) -> Self {
        let hosted = web.host_str().filter(|host| *host == "github.com" || host.ends_with(".ghe.com"));
        let api = match hosted {
            Some(host) => format!("https://api.{host}/"),
            None => format!("{}/api/v3", web.as_str().trim_end_matches('/')),
        };
        let api_url = api.parse().expect("what a path is put behind stays an address");
        Self { api_url, git_url: web.clone(), web_url: web.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// `/webhook` and `/healthz`.
    pub listen: SocketAddr,
    /// Pages, metrics and readiness; loopback only.
    pub private_listen: SocketAddr,
    /// What a proxy serves the pages as, if one does: an origin.
    pub public_url: Option<Url>,
}

impl ServerSettings {
    /// Where the page of a run is, for whoever is elsewhere.
    pub fn run_page(&self, run: RunId) -> Option<String> {
        self.public_url.as_ref().map(|url| format!("{url}runs/{}/{}", run.repo, run.seq))
    }
}

/// What `providers` needs to know; buildable without a file, for rehearsals.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// `provider:model` of who writes, where the role has no model of its own.
    pub drafter: String,
    /// Those of roles that have.
    pub roles: BTreeMap<String, String>,
    /// `provider:model` of who reviews.
    pub reviewer: String,
    /// Corrections of the built-in table of models, and additions to it.
    pub table: Vec<Model>,
    /// The ids that may answer in place of the model asked, by its `provider:model`.
    pub successors: BTreeMap<String, Vec<String>>,
    /// Pools, capabilities, roles and presets.
    pub names: Names,
    pub claude: ProgramSettings,
    pub anthropic: AnthropicSettings,
    pub gemini: GeminiSettings,
    pub ollama: OllamaSettings,
    pub openai: OpenAiSettings,
    pub opencode: ProgramSettings,
    /// The operator's word that OpenCode asks the model it is told to.
    pub attest_opencode: bool,
    pub stub: StubSettings,
    pub workers: WorkerSettings,
    pub timeouts: Timeouts,
    /// Keep what models answer, or answer from what was kept.
    pub cassettes: Option<CassetteSettings>,
    /// Files and directories of ours that no program of others may read.
    pub ours: Vec<PathBuf>,
}

/// One model as its maker sells it: a `[[model]]` of the settings, or a row of the built-in table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The id asked for on the wire.
    pub id: String,
    /// What people write after `provider:`.
    pub aliases: Vec<String>,
    /// Those that serve it, as written before the colon; the usual one first.
    pub providers: Vec<String>,
    pub family: Family,
    /// Tokens of input and output together.
    pub context: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// The usual price, then the tiers; the last that applies counts. Empty: nobody knows a price.
    pub prices: Vec<Price>,
    /// When its maker ends it.
    pub retires: Option<Timestamp>,
    /// The model that its maker names in its place.
    pub successor: Option<String>,
    /// The page that all of this stands on, and the day it was read.
    pub source: Option<String>,
}

impl Model {
    /// The price of a call whose prompt has so many tokens.
    pub fn price(&self, prompt: u64, now: Timestamp) -> Option<Price> {
        let applies = |price: &&Price| {
            (price.above == 0 || prompt > price.above) && price.from.is_none_or(|from| from <= now)
        };
        self.prices.iter().rev().find(applies).copied()
    }
}

/// Micro-dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    /// Only of calls whose prompt has more tokens than this, its cached ones included; 0: of all.
    pub above: u64,
    /// Only from this time on.
    pub from: Option<Timestamp>,
}

impl Price {
    /// Reading the cache costs a tenth of the input's price, writing it a quarter more: Anthropic's rule, for what
    /// nobody says otherwise of.
    pub fn per_million(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: input / 10, cache_write: input / 4 * 5, above: 0, from: None }
    }
}

/// Claude without the program.
#[derive(Debug, Clone)]
pub struct AnthropicSettings {
    pub base_url: Url,
    pub api_key: Option<SecretString>,
}

#[derive(Debug, Clone)]
pub struct GeminiSettings {
    pub base_url: Url,
    /// In the order they are to be used.
    pub keys: Vec<GeminiKey>,
    /// May a key of the free tier be used for what is private?
    pub free_for_private: bool,
    /// May it draft, too?
    pub drafts: bool,
}

impl GeminiSettings {
    fn from_keys(base_url: Url, keys: Vec<GeminiKey>) -> Self {
        Self { base_url, keys, free_for_private: false, drafts: false }
    }

    /// Does it matter to any of the keys whether a repository is private?
    pub fn depends_on_privacy(&self) -> bool {
        self.keys.iter().any(|key| !self.may_read_private(key))
    }

    /// May what is private be sent with this key? One whose tier nobody named counts as free: a wrong guess then costs a
    /// line of settings, where the other would have given the code away for good.
    pub fn may_read_private(&self, key: &GeminiKey) -> bool {
        self.free_for_private || key.tier == Some(GeminiTier::Paid)
    }
}

#[derive(Debug, Clone)]
pub struct GeminiKey {
    pub name: String,
    /// Its project at Google. Quota is the project's, whichever of its keys uses it up.
    pub project: String,
    pub tier: Option<GeminiTier>,
    pub secret: SecretString,
}

impl GeminiKey {
    /// A key of which nothing but itself is known.
    pub fn without_details(name: &str, secret: SecretString) -> Self {
        Self { name: name.to_owned(), project: name.to_owned(), tier: None, secret }
    }
}

/// How Google is paid for what a key asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GeminiTier {
    Paid,
    /// With what it is sent: Google may train on that.
    Free,
}

#[derive(Debug, Clone)]
pub struct OllamaSettings {
    pub base_url: Url,
}

/// Any endpoint that speaks OpenAI's chat completions.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// What stands before `/chat/completions`, the version included.
    pub base_url: Url,
    /// Not needed by an endpoint on this machine.
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
    /// Models are asked, and what they answer is kept.
    Record,
    /// No model is asked: what was kept is the answer.
    Replay,
}

#[derive(Debug, Clone, Default)]
pub struct StubSettings {
    /// A script to answer from; the built-in rehearsal where it is not set.
    pub script: Option<PathBuf>,
}

impl ModelSettings {
    /// Who writes in this role.
    pub fn drafter_of(&self, role: &str) -> &str {
        self.roles.get(role).unwrap_or(&self.drafter)
    }

    /// Everybody who writes, each once, with the first role in which they do.
    pub fn drafters(&self) -> impl Iterator<Item = (&str, &String)> {
        let mut known = BTreeSet::new();
        let roles = self.roles.iter().map(|(role, spec)| (role.as_str(), spec));
        std::iter::once(("drafter", &self.drafter)).chain(roles).filter(move |(_, spec)| known.insert(*spec))
    }

    /// Scripted answers from both sides: no key, no network, no company receives anything.
    pub fn rehearsal(data_dir: &Path) -> Self {
        Self {
            drafter: "stub:drafter".into(),
            reviewer: "stub:reviewer".into(),
            ..Self::with_real_models(data_dir, None, None)
        }
    }

    /// Claude drafts through its program, Gemini reviews; everything at its default.
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

    /// Every key in here, for who must keep them out of something.
    pub fn secrets(&self) -> Vec<SecretString> {
        let apis = [&self.anthropic.api_key, &self.openai.api_key].into_iter().flatten();
        apis.chain(self.gemini.keys.iter().map(|key| &key.secret)).cloned().collect()
    }
}

impl Settings {
    /// What is wrong with the modes of the key and the `.env`: both are for their owner's eyes. A sentence each.
    pub fn exposed_secrets(&self) -> Vec<String> {
        let env = self.file.with_file_name(".env");
        let open = |path: &&PathBuf| {
            std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
        };
        let files = [&self.app.private_key_file, &env].into_iter().filter(open);
        files.map(|path| format!("{0} is open to other users; run: chmod 600 {0}", path.display())).collect()
    }

    /// How a workflow goes, unless a repository tightens it.
    pub fn workflow(&self, name: &str) -> &WorkflowSettings {
        self.workflows.get(name).expect("a workflow that runs is one that has settings")
    }

    /// How a request in free words is read, where there is a workflow for that.
    pub fn routing(&self) -> Option<&Routing> {
        self.workflows.values().find_map(|workflow| workflow.routing.as_ref())
    }

    /// Reads and checks `path`, which may have a table for each of these workflows, and the `.env` beside it.
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
        // Children run in directories of their own, where a relative path would mean another place.
        let directory = &std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let secrets = Secrets::load(&directory.join(".env"))?;
        let webhook_secrets = secrets.webhook_secrets()?;
        let mut settings =
            file::parse(&text, &shown, directory, secrets.gemini_keys, secrets.local.as_ref(), workflows)?;
        settings.models.anthropic.api_key = secrets.anthropic_api_key;
        // A key goes to the address that it was given for.
        let base_url = &settings.models.openai.base_url;
        let local = secrets.local.filter(|local| local.provider == "openai" && local.has_address(base_url));
        settings.models.openai.api_key = match (local, secrets.openai_api_key) {
            (Some(_), Some(_)) => {
                let message = "LOCAL_LLM_API and OPENAI_API_KEY name two endpoints, and there is one; remove one of them, or say \
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

/// Does the URL lead to this machine and nowhere else?
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    }
}

/// The line, counted from 1, on which byte `at` of `text` stands.
fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// A mistake the TOML reader found, in our form. The reader quotes keys and values as written, and a
/// repository's file is anybody's, so it is cut.
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
