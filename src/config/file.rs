//! Parser of `countersign.toml`: its tables, default values, and checks of the values.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::RangeInclusive,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use secrecy::SecretString;
use serde::Deserialize;
use toml::Spanned;
use url::Url;

use super::{
    AnthropicSettings, AppSettings, CassetteMode, CassetteSettings, ConfigError, FetchSettings, GeminiKey,
    GeminiSettings, GeminiTier, GitHubSettings, ModelSettings, Names, OllamaSettings, OpenAiSettings,
    PostgresSettings, SandboxSettings, ServerSettings, Settings, StubSettings, Timeouts, WorkerSettings,
    WorkflowDefaults, WorkflowSettings, budget::BudgetTable, from_toml, is_loopback, line_of,
    local_models::LocalModelSettings, models::ModelTableRow, people::PeopleTable, pools, program, timeouts,
    workers, workflows,
};
use crate::{limits, types::InstallationId};

pub(super) const DRAFTER: &str = "claude:opus";
pub(super) const REVIEWER: &str = "gemini:pro";
pub(super) const ANTHROPIC_URL: &str = "https://api.anthropic.com";
pub(super) const GEMINI_URL: &str = "https://generativelanguage.googleapis.com";
pub(super) const OLLAMA_URL: &str = "http://127.0.0.1:11434";
pub(super) const OPENAI_URL: &str = "https://api.openai.com/v1";
const LISTEN: &str = "127.0.0.1:8008";
const PRIVATE_LISTEN: &str = "127.0.0.1:8009";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerSettingsFile {
    app: AppTable,
    #[serde(default)]
    github: GitHubTable,
    #[serde(default)]
    server: ServerTable,
    data: DataTable,
    #[serde(default)]
    installations: InstallationsTable,
    #[serde(default)]
    models: ModelsTable,
    /// Rows from the `[[model]]` tables.
    #[serde(default)]
    model: Vec<ModelTableRow>,
    #[serde(default)]
    providers: ProvidersTable,
    #[serde(default)]
    pools: BTreeMap<String, pools::PoolTable>,
    #[serde(default)]
    retry: BTreeMap<String, pools::RetryTable>,
    #[serde(default)]
    capabilities: pools::CapabilitiesTable,
    #[serde(default)]
    roles: pools::RolesTable,
    #[serde(default)]
    presets: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    timeouts: timeouts::TimeoutsTable,
    #[serde(default)]
    workers: workers::WorkersTable,
    #[serde(default)]
    budget: BudgetTable,
    #[serde(default)]
    people: PeopleTable,
    #[serde(default)]
    sandbox: SandboxSettings,
    #[serde(default)]
    fetch: FetchSettings,
    #[serde(default)]
    telemetry: TelemetryTable,
}

impl ServerSettingsFile {
    /// Uses the local models from `.env` for all settings that the file leaves unset.
    fn apply_local_models<'t>(
        &mut self,
        local: &LocalModelSettings,
        routing: impl Iterator<Item = &'t mut workflows::WorkflowSettingsTable>,
    ) {
        let url = Some(Spanned::new(0..0, local.url.clone()));
        let endpoint = match local.provider {
            "ollama" => &mut self.providers.ollama,
            _ => &mut self.providers.openai,
        };
        endpoint.base_url = endpoint.base_url.take().or(url);
        let address = endpoint.base_url.as_ref().and_then(|url| Url::parse(url.as_ref()).ok());
        let free = address.is_some_and(|url| is_loopback(&url));
        for (preset, model) in local.presets() {
            if !self.model.iter().any(|row| row.id.as_ref() == model) {
                self.model.push(local.model_table_row(model, free));
            }
            let spec = format!("{}:{model}", local.provider);
            self.presets.entry(preset).or_insert_with(|| Spanned::new(0..0, spec));
        }
        self.models.drafter = self.models.drafter.take().or_else(|| local.preset_for_role("architect"));
        self.models.reviewer = self.models.reviewer.take().or_else(|| local.preset_for_role("reviewer"));
        self.roles.apply_local_models(local);
        for table in routing {
            table.model = table.model.take().or_else(|| local.preset_for_role("narrator"));
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppTable {
    id: Spanned<u64>,
    private_key_file: PathBuf,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GitHubTable {
    api_url: Option<Spanned<String>>,
    git_url: Option<Spanned<String>>,
    web_url: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ServerTable {
    listen: Option<Spanned<String>>,
    private_listen: Option<Spanned<String>>,
    public_url: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct TelemetryTable {
    otlp: Option<Spanned<String>>,
}

/// Range of allowed values of `lease_seconds`. A shorter lease would expire during every database failover. A longer
/// lease would delay the runs of a node that died.
const LEASE_SECONDS: RangeInclusive<u64> = 8..=600;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataTable {
    dir: Spanned<PathBuf>,
    postgres_file: Option<Spanned<PathBuf>>,
    lease_seconds: Option<Spanned<u64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct InstallationsTable {
    allow: Vec<u64>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ModelsTable {
    drafter: Option<Spanned<String>>,
    reviewer: Option<Spanned<String>>,
    allow_gemini_drafts: bool,
    attest_opencode: bool,
    successors: BTreeMap<String, Vec<Spanned<String>>>,
    cassettes: Option<CassettesTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CassettesTable {
    dir: Spanned<PathBuf>,
    mode: CassetteMode,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ProvidersTable {
    claude: program::ProgramTable,
    anthropic: AnthropicTable,
    gemini: GeminiTable,
    ollama: EndpointTable,
    openai: EndpointTable,
    opencode: program::ProgramTable,
    stub: StubTable,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct AnthropicTable {
    base_url: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct GeminiTable {
    base_url: Option<Spanned<String>>,
    allow_free_tier_for_private: bool,
    /// Rows from the `[[providers.gemini.key]]` tables.
    key: Vec<GeminiKeyTable>,
}

/// Details of a Gemini key. The key itself is stored in `.env`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeminiKeyTable {
    name: Spanned<String>,
    project: Option<String>,
    tier: Option<GeminiTier>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct EndpointTable {
    base_url: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct StubTable {
    script: Option<PathBuf>,
}

/// Parses the settings file. The Gemini keys, which the file only describes, are passed in `gemini_keys`; all other
/// secrets are added later. Relative paths are resolved against `directory`, which contains the file.
pub(super) fn parse(
    text: &str,
    name: &str,
    directory: &Path,
    gemini_keys: Vec<(String, SecretString)>,
    local: Option<&LocalModelSettings>,
    workflows: &[WorkflowDefaults],
) -> Result<Settings, ConfigError> {
    let (mut file, mut tables) = workflows::split_workflow_tables::<ServerSettingsFile>(
        text,
        workflows.iter().map(|table| table.name),
    )
    .map_err(|error| explain_error(from_toml(name, text, &error)))?;
    if let Some(local) = local {
        file.apply_local_models(
            local,
            tables.iter_mut().zip(workflows).filter(|(_, row)| row.routes).map(|((_, table), _)| table),
        );
    }
    let check = SettingsChecker { text, name };
    let refused =
        |(at, message)| ConfigError { file: name.to_owned(), line: Some(line_of(text, at)), message };
    let data_dir = directory.join(check.require_path(&file.data.dir, "dir")?);
    if *file.app.id.as_ref() == 0 {
        return Err(
            check.refuse(&file.app.id, "id must be the App ID, shown at the top of its settings page".into())
        );
    }
    let mut models = check.models(&file.models, &file.model, &file.providers, directory, &data_dir)?;
    models.gemini.keys = check.gemini_keys(&file.providers.gemini.key, gemini_keys)?;
    let ServerSettingsFile { pools, retry, capabilities, roles, presets, .. } = file;
    let named = pools::ModelNameTables { pools, retry, capabilities, roles: &roles, presets };
    models.names = pools::build_model_names(named, &check)?;
    for (role, given) in roles.models() {
        let spec = check.check_drafter(role, given, &file.models)?;
        models.names.resolve(given.as_ref()).map_err(|why| check.refuse(given, why))?;
        models.roles.insert(role.to_owned(), spec);
    }
    for given in [&file.models.drafter, &file.models.reviewer].into_iter().flatten() {
        models.names.resolve(given.as_ref()).map_err(|why| check.refuse(given, why))?;
    }
    for given in tables.iter().filter_map(|(_, table)| table.model.as_ref()) {
        check.parse_model_spec("model", given)?;
        models.names.resolve(given.as_ref()).map_err(|why| check.refuse(given, why))?;
    }
    models.timeouts = file.timeouts.to_settings(&check)?;
    models.workers = file.workers.to_settings(&check, &data_dir)?;
    models.ours.push(directory.join(&file.app.private_key_file));
    let postgres = check.postgres(&file.data, directory)?;
    models.ours.extend(postgres.iter().map(|postgres| postgres.file.clone()));
    let document_paths: Vec<_> =
        tables.iter().filter_map(|(name, table)| Some((*name, table.document_path()?))).collect();
    let workflows: workflows::SettingsByWorkflow = workflows
        .iter()
        .zip(tables)
        .map(|(defaults, (name, table))| Ok((name, table.into_settings(defaults).map_err(refused)?)))
        .collect::<Result<_, ConfigError>>()?;
    for (name, at) in document_paths {
        let path = &workflows[name].document_path;
        let same = |(other, settings): &(&&str, &WorkflowSettings)| {
            **other != name && settings.document_path == *path
        };
        if let Some((other, _)) = workflows.iter().find(same) {
            let message = format!(
                "document_path is also the path of [{other}]; the documents would overwrite each other"
            );
            return Err(refused((at, message)));
        }
    }
    let budget = file.budget.into_settings().map_err(refused)?;
    let warnings = if budget.has_spending_cap() { check.unpriced_warnings(&file.model) } else { Vec::new() };
    Ok(Settings {
        file: PathBuf::new(),
        app: AppSettings {
            id: *file.app.id.as_ref(),
            private_key_file: directory.join(file.app.private_key_file),
        },
        github: check.github(&file.github)?,
        server: check.server(&file.server)?,
        allowed_installations: file.installations.allow.into_iter().map(InstallationId).collect(),
        models,
        postgres,
        data_dir,
        budget,
        people: file.people.into_settings().map_err(refused)?,
        sandbox: file.sandbox,
        fetch: file.fetch,
        collector: file.telemetry.otlp.as_ref().map(|otlp| check.url("otlp", Some(otlp), "")).transpose()?,
        workflows,
        webhook_secrets: Vec::new(),
        ignored_environment: Vec::new(),
        warnings,
    })
}

/// Appends the fix to the error message of the TOML parser.
fn explain_error(mut error: ConfigError) -> ConfigError {
    let fix = match error.message.as_str() {
        "missing field `app`" => "; add [app] with id and private_key_file, or run `countersign setup`",
        "missing field `data`" => "; add [data] with dir = \"the directory for databases\"",
        m if m.starts_with("missing field") => "; add it",
        m if m.starts_with("unknown field") => "; remove it or correct its spelling",
        _ => "",
    };
    error.message.push_str(fix);
    error
}

/// Parses a duration such as `90s` or `2m`. Returns `None` if the text is invalid or the duration is outside `within`,
/// a range in seconds.
pub(super) fn parse_seconds(text: &str, within: &RangeInclusive<u64>) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let of_one = ["s", "m"].into_iter().zip([1, 60]).find(|(name, _)| *name == unit)?.1;
    let seconds = number.parse::<u64>().ok()?.checked_mul(of_one)?;
    within.contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// Checks values of the settings file. Each error contains the line number of the value.
pub(super) struct SettingsChecker<'a> {
    pub(super) text: &'a str,
    pub(super) name: &'a str,
}

impl SettingsChecker<'_> {
    pub(super) fn refuse<T>(&self, at: &Spanned<T>, message: String) -> ConfigError {
        ConfigError { file: self.name.to_owned(), line: Some(line_of(self.text, at.span().start)), message }
    }

    /// Parses a duration such as `90s` or `2m`, which must be within a range of seconds. Returns `usual` if `given` is
    /// `None`.
    pub(super) fn time(
        &self,
        key: &str,
        given: Option<&Spanned<String>>,
        usual: Duration,
        within: RangeInclusive<u64>,
    ) -> Result<Duration, ConfigError> {
        let Some(given) = given else { return Ok(usual) };
        parse_seconds(given.as_ref(), &within).ok_or_else(|| {
            let least = within.start();
            let most = match within.end() {
                most @ ..60 => format!("{most}s"),
                most => format!("{}m", most / 60),
            };
            let message = format!(
                "{key} = {:?} is not a duration; write seconds or minutes, {least}s to {most}",
                given.as_ref()
            );
            self.refuse(given, message)
        })
    }

    fn require_path<'p>(&self, path: &'p Spanned<PathBuf>, key: &str) -> Result<&'p Path, ConfigError> {
        if path.as_ref().as_os_str().is_empty() {
            return Err(self.refuse(path, format!("{key} is empty; name a path")));
        }
        Ok(path.as_ref())
    }

    /// Parses an http or https URL without user, query or fragment. Plain http is allowed only for loopback addresses.
    fn url(&self, key: &str, given: Option<&Spanned<String>>, default: &str) -> Result<Url, ConfigError> {
        let Some(given) = given else {
            return Ok(Url::parse(default).expect("a default that parses"));
        };
        let refuse = |why: &str| self.refuse(given, format!("{key} = {:?} {why}", given.as_ref()));
        let url = Url::parse(given.as_ref()).map_err(|_| refuse("is not a URL; write https://HOST"))?;
        let loopback = is_loopback(&url);
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => return Err(refuse("would send secrets in clear text; write https://")),
            _ => return Err(refuse("is not a web address; write https://HOST")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            let message = format!("{key} must not hold a user or password; remove the part before the @");
            return Err(self.refuse(given, message));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("must end after the path; remove what follows ? or #"));
        }
        Ok(url)
    }

    fn github(&self, table: &GitHubTable) -> Result<GitHubSettings, ConfigError> {
        let usual = GitHubSettings::from_web_url(&self.url(
            "web_url",
            table.web_url.as_ref(),
            "https://github.com",
        )?);
        Ok(GitHubSettings {
            api_url: self.url("api_url", table.api_url.as_ref(), usual.api_url.as_str())?,
            git_url: self.url("git_url", table.git_url.as_ref(), usual.git_url.as_str())?,
            web_url: usual.web_url,
        })
    }

    fn address(
        &self,
        key: &str,
        given: Option<&Spanned<String>>,
        default: &str,
    ) -> Result<SocketAddr, ConfigError> {
        let Some(given) = given else {
            return Ok(default.parse().expect("a constant that parses"));
        };
        given.as_ref().parse().map_err(|_| {
            let message =
                format!("{key} = {:?} is not an address; write IP:PORT such as {default}", given.as_ref());
            self.refuse(given, message)
        })
    }

    fn server(&self, table: &ServerTable) -> Result<ServerSettings, ConfigError> {
        let listen = self.address("listen", table.listen.as_ref(), LISTEN)?;
        let private_listen = self.address("private_listen", table.private_listen.as_ref(), PRIVATE_LISTEN)?;
        let at = table.private_listen.as_ref().or(table.listen.as_ref());
        if let Some(at) = at {
            if !private_listen.ip().is_loopback() {
                let message = "private_listen shows runs to anyone who can connect; use an address of this machine only, \
                               such as 127.0.0.1:8009";
                return Err(self.refuse(at, message.into()));
            }
            if listen == private_listen && listen.port() != 0 {
                let message =
                    format!("listen and private_listen are both {listen}; use another port for one of them");
                return Err(self.refuse(at, message));
            }
        }
        let public_url =
            table.public_url.as_ref().map(|given| self.origin("public_url", given)).transpose()?;
        Ok(ServerSettings { listen, private_listen, public_url })
    }

    /// Parses an https origin, which is a URL without a path. Plain http is allowed only for loopback addresses,
    /// because login tokens are sent to this origin.
    fn origin(&self, key: &str, given: &Spanned<String>) -> Result<Url, ConfigError> {
        let url = Url::parse(given.as_ref()).ok().filter(|url| url.path() == "/" && url.query().is_none());
        let plain =
            |url: &Url| url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        let safe = |url: &Url| url.scheme() == "https" || url.scheme() == "http" && is_loopback(url);
        url.filter(plain).filter(safe).ok_or_else(|| {
            let message = format!(
                "{key} = {:?} is not an https origin; write one such as https://countersign.example.org",
                given.as_ref()
            );
            self.refuse(given, message)
        })
    }

    /// Returns the setting as `provider:model`, or `default` if `given` is `None`. The module `providers` checks later
    /// that the model exists.
    fn model(&self, key: &str, given: Option<Spanned<String>>, default: &str) -> Result<String, ConfigError> {
        given.map_or_else(|| Ok(default.to_owned()), |given| self.parse_model_spec_like(key, &given, default))
    }

    pub(super) fn parse_model_spec(&self, key: &str, given: &Spanned<String>) -> Result<String, ConfigError> {
        self.parse_model_spec_like(key, given, DRAFTER)
    }

    fn parse_model_spec_like(
        &self,
        key: &str,
        given: &Spanned<String>,
        example: &str,
    ) -> Result<String, ConfigError> {
        let (provider, model) = given.as_ref().split_once(':').unwrap_or_default();
        if provider.is_empty() || model.is_empty() || given.as_ref().contains(char::is_whitespace) {
            let message = format!(
                "{key} = {:?} is not a model; write PROVIDER:MODEL such as {example}",
                given.as_ref()
            );
            return Err(self.refuse(given, message));
        }
        if !matches!(provider, "pool" | "capability" | "role" | "preset") {
            self.check_provider(key, given, provider)?;
        }
        Ok(given.as_ref().clone())
    }

    fn drafter(&self, names: &ModelsTable) -> Result<String, ConfigError> {
        names
            .drafter
            .as_ref()
            .map_or_else(|| Ok(DRAFTER.to_owned()), |given| self.check_drafter("drafter", given, names))
    }

    fn check_drafter(
        &self,
        key: &str,
        given: &Spanned<String>,
        names: &ModelsTable,
    ) -> Result<String, ConfigError> {
        if given.as_ref().starts_with("gemini:") && !names.allow_gemini_drafts {
            let message = "Gemini only reviews; choose a drafter of another family such as claude:opus, or set \
                           allow_gemini_drafts = true under [models]";
            return Err(self.refuse(given, message.into()));
        }
        self.parse_model_spec(key, given)
    }

    fn reviewer(&self, names: &ModelsTable) -> Result<String, ConfigError> {
        if let Some(given) = &names.reviewer
            && given.as_ref().starts_with("opencode:")
        {
            let message = "OpenCode only drafts: it does not report which model answered; choose a reviewer such as \
                           gemini:pro";
            return Err(self.refuse(given, message.into()));
        }
        self.model("reviewer", names.reviewer.clone(), REVIEWER)
    }

    /// Returns the Gemini keys. The keys that the file describes come first, in the file's order, followed by all other
    /// keys.
    fn gemini_keys(
        &self,
        described: &[GeminiKeyTable],
        mut secrets: Vec<(String, SecretString)>,
    ) -> Result<Vec<GeminiKey>, ConfigError> {
        let mut keys = Vec::new();
        for GeminiKeyTable { name, project, tier } in described {
            let own = name.as_ref().to_lowercase();
            let Some(at) = secrets.iter().position(|(known, _)| *known == own) else {
                let message = format!(
                    "there is no key called {own:?}; put it into .env as GEMINI_API_KEY_{}, and describe it once",
                    own.to_uppercase()
                );
                return Err(self.refuse(name, message));
            };
            let bare = GeminiKey::without_details(&own, secrets.remove(at).1);
            let project = project.clone().unwrap_or_else(|| bare.project.clone());
            keys.push(GeminiKey { project, tier: *tier, ..bare });
        }
        keys.extend(secrets.into_iter().map(|(name, secret)| GeminiKey::without_details(&name, secret)));
        Ok(keys)
    }

    /// Reads the Postgres address from its file. Fails if other users can access the file.
    fn postgres(&self, data: &DataTable, directory: &Path) -> Result<Option<PostgresSettings>, ConfigError> {
        let Some(given) = &data.postgres_file else {
            return match &data.lease_seconds {
                Some(lease) => {
                    Err(self.refuse(lease, "lease_seconds needs postgres_file, which is not set".into()))
                }
                None => Ok(None),
            };
        };
        let file = directory.join(self.require_path(given, "postgres_file")?);
        let refused = |why: String| self.refuse(given, format!("postgres_file {}: {why}", file.display()));
        let io = |error: std::io::Error| {
            refused(format!("{error}; write the address into it: postgres://user:password@host/database"))
        };
        let mode = std::fs::metadata(&file).map_err(io)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(refused(format!("it is open to other users; run: chmod 600 {}", file.display())));
        }
        let address = std::fs::read_to_string(&file).map_err(io)?;
        let lease = match &data.lease_seconds {
            Some(given) if !LEASE_SECONDS.contains(given.as_ref()) => {
                let (least, most) = (LEASE_SECONDS.start(), LEASE_SECONDS.end());
                return Err(self.refuse(given, format!("lease_seconds must be from {least} to {most}")));
            }
            Some(given) => Duration::from_secs(*given.as_ref()),
            None => limits::NODE_LEASE,
        };
        Ok(Some(PostgresSettings { file, address: address.trim().to_owned().into(), lease }))
    }

    fn successors(
        &self,
        given: &BTreeMap<String, Vec<Spanned<String>>>,
    ) -> Result<BTreeMap<String, Vec<String>>, ConfigError> {
        let mut successors = BTreeMap::new();
        for (spec, ids) in given {
            if let Some(at) = ids.first() {
                self.check_provider("successors", at, spec.split(':').next().unwrap_or_default())?;
            }
            successors.insert(spec.clone(), ids.iter().map(|id| id.as_ref().clone()).collect());
        }
        Ok(successors)
    }

    fn cassettes(&self, table: &CassettesTable, directory: &Path) -> Result<CassetteSettings, ConfigError> {
        Ok(CassetteSettings { dir: directory.join(self.require_path(&table.dir, "dir")?), mode: table.mode })
    }

    fn models(
        &self,
        names: &ModelsTable,
        table: &[ModelTableRow],
        providers: &ProvidersTable,
        directory: &Path,
        data_dir: &Path,
    ) -> Result<ModelSettings, ConfigError> {
        let program = |table: &program::ProgramTable, name: &str| {
            let base_url = table.base_url.as_ref();
            let base_url = base_url.map(|url| self.url("base_url", Some(url), "")).transpose()?;
            Ok(table.settings(directory, data_dir.join(name), base_url))
        };
        Ok(ModelSettings {
            drafter: self.drafter(names)?,
            roles: BTreeMap::new(),
            reviewer: self.reviewer(names)?,
            table: self.model_rows(table)?,
            successors: self.successors(&names.successors)?,
            names: Names::default(),
            claude: program(&providers.claude, "claude")?,
            opencode: program(&providers.opencode, "opencode")?,
            attest_opencode: names.attest_opencode,
            anthropic: AnthropicSettings {
                base_url: self.url("base_url", providers.anthropic.base_url.as_ref(), ANTHROPIC_URL)?,
                api_key: None,
            },
            gemini: GeminiSettings {
                base_url: self.url("base_url", providers.gemini.base_url.as_ref(), GEMINI_URL)?,
                keys: Vec::new(),
                free_for_private: providers.gemini.allow_free_tier_for_private,
                drafts: names.allow_gemini_drafts,
            },
            ollama: OllamaSettings {
                base_url: self.url("base_url", providers.ollama.base_url.as_ref(), OLLAMA_URL)?,
            },
            openai: OpenAiSettings {
                base_url: self.url("base_url", providers.openai.base_url.as_ref(), OPENAI_URL)?,
                api_key: None,
            },
            cassettes: names.cassettes.as_ref().map(|given| self.cassettes(given, directory)).transpose()?,
            workers: WorkerSettings::new(data_dir),
            timeouts: Timeouts::default(),
            stub: StubSettings { script: providers.stub.script.as_ref().map(|path| directory.join(path)) },
            ours: vec![data_dir.to_owned()],
        })
    }
}
