//! Names for models (pools, capability levels, roles and presets), and the retry policy of a pool.
//!
//! Names are resolved from the settings alone. `providers` checks that a model exists and can be called.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, file::SettingsChecker, local_models::LocalModelSettings};

/// Capability level of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    High,
    Medium,
    Low,
}

impl Level {
    const ALL: [Self; 3] = [Self::High, Self::Medium, Self::Low];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// Order in which a pool tries its models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Start each call with the model that follows the first model of the previous call.
    #[default]
    RoundRobin,
    /// Use the first available model in the list.
    Priority,
    /// Try the model with the lowest price first, and models without a price last.
    Cheapest,
    /// Try the model with the highest capability level first, and models without a level last.
    Capability,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "round robin",
            Self::Priority => "by priority",
            Self::Cheapest => "cheapest first",
            Self::Capability => "most capable first",
        })
    }
}

/// Retry policy after a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Delay before a retry if the provider's response does not specify one.
    pub wait: Duration,
    /// Whether the delay doubles with each consecutive rate limit.
    pub doubled: bool,
    /// Maximum number of retries of the same model before the pool tries another model.
    pub same_model: u32,
}

/// Retry policy of a pool without a `retry` setting. Its delay of 30 s intentionally differs from the 60 s of the retry
/// preset `default`.
const DEFAULT_RETRY: Retry = Retry { wait: Duration::from_secs(30), doubled: false, same_model: 1 };

impl Retry {
    /// Returns the delay after `times` consecutive rate limits, for responses that specify no delay.
    pub fn wait_after(&self, times: u32) -> Duration {
        let factor = if self.doubled { 1 << times.saturating_sub(1).min(8) } else { 1 };
        self.wait.saturating_mul(factor)
    }
}

/// A `[pools.NAME]` table. Model names are stored as written in the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSettings {
    pub primary: Vec<String>,
    /// Models that are used when a primary model's quota is exhausted, or when no primary model responds.
    pub fallback: Vec<String>,
    pub strategy: Strategy,
    pub retry: Retry,
}

/// All names for models: pools, capability levels, roles and presets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    pub pools: BTreeMap<String, PoolSettings>,
    pub capabilities: BTreeMap<Level, String>,
    pub roles: BTreeMap<String, Level>,
    pub presets: BTreeMap<String, String>,
}

/// Result of resolving a name: a model or a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedModelName<'a> {
    /// A model, as `provider:model`.
    Model(&'a str),
    Pool(&'a str, &'a PoolSettings),
}

/// Primary models of the pool `default`. The `opencode` models in this list are skipped until the operator sets
/// `attest_opencode`.
const DEFAULT_PRIMARY: [&str; 3] = [
    "claude:sonnet",
    "opencode:google/antigravity-claude-sonnet-4-5",
    "opencode:google/antigravity-gemini-3-flash",
];
const DEFAULT_FALLBACK: [&str; 2] = ["claude:opus", "opencode:google/antigravity-gemini-3-pro"];

impl Default for Names {
    fn default() -> Self {
        let owned = |specs: &[&str]| specs.iter().map(|spec| (*spec).to_owned()).collect();
        let usual = PoolSettings {
            primary: owned(&DEFAULT_PRIMARY),
            fallback: owned(&DEFAULT_FALLBACK),
            strategy: Strategy::default(),
            retry: DEFAULT_RETRY,
        };
        let presets = [
            ("claude-sonnet", "claude:sonnet"),
            ("claude-opus", "claude:opus"),
            ("claude-haiku", "claude:haiku"),
            ("gemini-flash", "gemini:flash"),
            ("gemini-pro", "gemini:pro"),
        ];
        let roles = [("architect", Level::High), ("engineer", Level::Medium), ("junior", Level::Low)];
        let models = ["claude:opus", "claude:sonnet", "claude:haiku"].map(str::to_owned);
        Self {
            pools: BTreeMap::from([("default".to_owned(), usual)]),
            capabilities: Level::ALL.into_iter().zip(models).collect(),
            roles: roles.map(|(role, level)| (role.to_owned(), level)).into(),
            presets: presets.map(|(name, spec)| (name.to_owned(), spec.to_owned())).into(),
        }
    }
}

impl Names {
    /// Resolves `pool:NAME`, `capability:LEVEL`, `role:ROLE`, `preset:NAME` or a plain `provider:model`.
    ///
    /// # Errors
    /// Returns a sentence for the user if the name is unknown.
    pub fn resolve<'a>(&'a self, spec: &'a str) -> Result<ResolvedModelName<'a>, String> {
        let (kind, name) = spec.split_once(':').unwrap_or(("", spec));
        let none = |known: Vec<&str>| {
            let name: String = name.chars().take(80).collect();
            Err(format!("there is no {kind} called {name:?}; there are {}", known.join(", ")))
        };
        let spec = match kind {
            "pool" => {
                return match self.pools.get_key_value(name) {
                    Some((name, pool)) => Ok(ResolvedModelName::Pool(name, pool)),
                    None => none(self.pools.keys().map(String::as_str).collect()),
                };
            }
            "role" => match self.roles.get(name) {
                Some(level) => &self.capabilities[level],
                None => return none(self.roles.keys().map(String::as_str).collect()),
            },
            "capability" => match Level::ALL.into_iter().find(|level| level.as_str() == name) {
                Some(level) => &self.capabilities[&level],
                None => return none(Level::ALL.map(Level::as_str).into()),
            },
            "preset" => match self.presets.get(name) {
                Some(spec) => spec,
                None => return none(self.presets.keys().map(String::as_str).collect()),
            },
            _ => return Ok(ResolvedModelName::Model(spec)),
        };
        // This ends: a capability never names a role or a capability, and a preset names a model.
        self.resolve(spec)
    }

    /// Returns every `provider:model` that a call to `spec` may use.
    pub fn models<'a>(&'a self, spec: &'a str) -> Vec<&'a str> {
        match self.resolve(spec) {
            Ok(ResolvedModelName::Model(spec)) => vec![spec],
            Ok(ResolvedModelName::Pool(_, pool)) => {
                pool.members().filter_map(|member| self.resolve(member).ok()?.model()).collect()
            }
            Err(_) => Vec::new(),
        }
    }
}

impl<'a> ResolvedModelName<'a> {
    pub fn model(self) -> Option<&'a str> {
        match self {
            Self::Model(spec) => Some(spec),
            Self::Pool(..) => None,
        }
    }
}

impl PoolSettings {
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.primary.iter().chain(&self.fallback).map(String::as_str)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolTable {
    primary: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    fallback: Vec<Spanned<String>>,
    #[serde(default)]
    strategy: Strategy,
    retry: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetryTable {
    wait: Option<Spanned<String>>,
    backoff: Backoff,
    same_model: Option<Spanned<u32>>,
}

#[derive(Deserialize, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Backoff {
    #[default]
    Fixed,
    Exponential,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CapabilitiesTable {
    high: Option<Spanned<String>>,
    medium: Option<Spanned<String>>,
    low: Option<Spanned<String>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RolesTable {
    /// A capability level or a model. In contrast, the fields from `implementer` on accept only a model.
    architect: Option<Spanned<String>>,
    engineer: Option<Level>,
    junior: Option<Level>,
    implementer: Option<Spanned<String>>,
    tester: Option<Spanned<String>>,
    maintainer: Option<Spanned<String>>,
    ingestor: Option<Spanned<String>>,
}

impl RolesTable {
    /// Applies the local models from `.env` to the roles that the settings file does not set.
    pub(super) fn apply_local_models(&mut self, local: &LocalModelSettings) {
        for (role, given) in [
            ("implementer", &mut self.implementer),
            ("tester", &mut self.tester),
            ("maintainer", &mut self.maintainer),
            ("ingestor", &mut self.ingestor),
        ] {
            *given = given.take().or_else(|| local.preset_for_role(role));
        }
    }

    fn level_of_architects(&self) -> Option<Level> {
        let given = self.architect.as_ref()?;
        Level::ALL.into_iter().find(|level| level.as_str() == given.as_ref())
    }

    /// Returns each drafting role that has its own model, together with the model.
    pub(super) fn models(&self) -> impl Iterator<Item = (&'static str, &Spanned<String>)> {
        let architect = self.architect.as_ref().filter(|_| self.level_of_architects().is_none());
        [
            ("architect", architect),
            ("implementer", self.implementer.as_ref()),
            ("tester", self.tester.as_ref()),
            ("maintainer", self.maintainer.as_ref()),
            ("ingestor", self.ingestor.as_ref()),
        ]
        .into_iter()
        .filter_map(|(role, given)| Some((role, given?)))
    }
}

pub(super) struct ModelNameTables<'a> {
    pub(super) pools: BTreeMap<String, PoolTable>,
    pub(super) retry: BTreeMap<String, RetryTable>,
    pub(super) capabilities: CapabilitiesTable,
    pub(super) roles: &'a RolesTable,
    pub(super) presets: BTreeMap<String, Spanned<String>>,
}

/// Builds the names for models: the built-in names, extended and overridden by the settings.
pub(super) fn build_model_names(
    tables: ModelNameTables<'_>,
    check: &SettingsChecker<'_>,
) -> Result<Names, ConfigError> {
    let retries = build_retry_policies(&tables.retry, check)?;
    let mut names = Names::default();
    for (name, given) in tables.presets {
        check.parse_model_spec(&name, &given)?;
        if is_name(given.as_ref()) {
            let message =
                format!("{name} = {:?} is not a model; a preset must be PROVIDER:MODEL", given.as_ref());
            return Err(check.refuse(&given, message));
        }
        names.presets.insert(name, given.into_inner());
    }
    let roles = tables.roles;
    for (role, level) in
        [("architect", roles.level_of_architects()), ("engineer", roles.engineer), ("junior", roles.junior)]
    {
        names.roles.extend(level.map(|level| (role.to_owned(), level)));
    }
    let pools =
        tables.pools.iter().map(|(name, table)| Ok((name.clone(), build_pool(table, &retries, check)?)));
    names.pools.extend(pools.collect::<Result<Vec<_>, _>>()?);
    let CapabilitiesTable { high, medium, low } = tables.capabilities;
    for (level, given) in Level::ALL.into_iter().zip([high, medium, low]) {
        let Some(given) = given else { continue };
        check.parse_model_spec(level.as_str(), &given)?;
        if given.as_ref().starts_with("capability:") || given.as_ref().starts_with("role:") {
            let message = format!("{} = {:?} is circular; name a model", level.as_str(), given.as_ref());
            return Err(check.refuse(&given, message));
        }
        names.resolve(given.as_ref()).map_err(|why| check.refuse(&given, why))?;
        names.capabilities.insert(level, given.into_inner());
    }
    let members = tables.pools.values().flat_map(|pool| pool.primary.as_ref().iter().chain(&pool.fallback));
    for member in members {
        let meaning = names.resolve(member.as_ref()).map_err(|why| check.refuse(member, why))?;
        if meaning.model().is_none() {
            let message = format!(
                "{:?} is a pool; list its models instead: a pool cannot contain pools",
                member.as_ref()
            );
            return Err(check.refuse(member, message));
        }
    }
    Ok(names)
}

/// Returns whether `spec` is a name such as `pool:NAME`, and not a plain `provider:model`.
fn is_name(spec: &str) -> bool {
    ["pool:", "capability:", "role:", "preset:"].iter().any(|kind| spec.starts_with(kind))
}

fn build_pool(
    table: &PoolTable,
    retries: &BTreeMap<String, Retry>,
    check: &SettingsChecker<'_>,
) -> Result<PoolSettings, ConfigError> {
    if table.primary.as_ref().is_empty() {
        return Err(check.refuse(&table.primary, "primary is empty; name a model".to_owned()));
    }
    let specs = |given: &[Spanned<String>]| -> Result<Vec<String>, ConfigError> {
        given.iter().map(|spec| check.parse_model_spec("a member", spec)).collect()
    };
    let retry = match &table.retry {
        None => DEFAULT_RETRY,
        Some(given) => *retries.get(given.as_ref()).ok_or_else(|| {
            let known = retries.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            check.refuse(given, format!("there is no retry called {:?}; there are {known}", given.as_ref()))
        })?,
    };
    Ok(PoolSettings {
        primary: specs(table.primary.as_ref())?,
        fallback: specs(&table.fallback)?,
        strategy: table.strategy,
        retry,
    })
}

fn build_retry_policies(
    given: &BTreeMap<String, RetryTable>,
    check: &SettingsChecker<'_>,
) -> Result<BTreeMap<String, Retry>, ConfigError> {
    let seconds = Duration::from_secs;
    let mut retries = BTreeMap::from([
        ("default".to_owned(), Retry { wait: seconds(60), doubled: false, same_model: 1 }),
        // Three retries within two minutes: rate limits are per minute, so one of them falls into the next minute.
        ("aggressive".to_owned(), Retry { wait: seconds(15), doubled: true, same_model: 3 }),
        ("gentle".to_owned(), Retry { wait: seconds(120), doubled: false, same_model: 0 }),
    ]);
    for (name, RetryTable { wait, backoff, same_model }) in given {
        let same_model = same_model.as_ref().map(|given| match *given.as_ref() {
            times @ 0..=4 => Ok(times),
            times => Err(check.refuse(given, format!("same_model = {times} is outside 0 to 4"))),
        });
        let retry = Retry {
            wait: check.time("wait", wait.as_ref(), DEFAULT_RETRY.wait, 1..=3600)?,
            doubled: *backoff == Backoff::Exponential,
            same_model: same_model.transpose()?.unwrap_or(DEFAULT_RETRY.same_model),
        };
        retries.insert(name.clone(), retry);
    }
    Ok(retries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Names, String> {
        let text = format!("[app]\nid = 1\nprivate_key_file = \"k\"\n[data]\ndir = \"d\"\n{lines}");
        super::super::file::parse(&text, "c.toml", std::path::Path::new("/x"), Vec::new(), None, &[])
            .map(|settings| settings.models.names)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn default_names_of_capabilities_roles_and_presets_resolve_to_models() {
        let names = Names::default();
        for (name, model) in [
            ("capability:high", "claude:opus"),
            ("capability:medium", "claude:sonnet"),
            ("capability:low", "claude:haiku"),
            ("role:architect", "claude:opus"),
            ("role:engineer", "claude:sonnet"),
            ("role:junior", "claude:haiku"),
            ("preset:claude-sonnet", "claude:sonnet"),
            ("preset:claude-opus", "claude:opus"),
            ("preset:claude-haiku", "claude:haiku"),
            ("preset:gemini-flash", "gemini:flash"),
            ("preset:gemini-pro", "gemini:pro"),
            ("ollama:qwen3:32b", "ollama:qwen3:32b"),
        ] {
            assert_eq!(names.resolve(name), Ok(ResolvedModelName::Model(model)), "{name}");
        }
        assert_eq!(names.models("pool:default").len(), 5);
        let error = names.resolve("role:boss").unwrap_err();
        assert_eq!(error, "there is no role called \"boss\"; there are architect, engineer, junior");
    }

    #[test]
    fn each_retry_preset_sets_its_own_delays_and_number_of_retries() {
        let policy = |name: &str| {
            let lines = format!("[pools.p]\nprimary = [\"claude:opus\"]\nretry = \"{name}\"\n");
            let retry = read(&lines).unwrap().pools["p"].retry;
            ([1, 2, 3].map(|times| retry.wait_after(times).as_secs()), retry.same_model)
        };
        assert_eq!(policy("default"), ([60, 60, 60], 1));
        assert_eq!(policy("aggressive"), ([15, 30, 60], 3));
        assert_eq!(policy("gentle"), ([120, 120, 120], 0));
        assert_eq!(Names::default().pools["default"].retry.wait_after(1).as_secs(), 30);
    }

    #[test]
    fn settings_can_override_all_default_model_names() {
        let names = read(
            "[pools.default]\nprimary = [\"role:junior\"]\nfallback = [\"preset:quick\"]\nstrategy = \"priority\"\n\
             retry = \"mine\"\n[retry.mine]\nwait = \"2m\"\nbackoff = \"exponential\"\nsame_model = 2\n\
             [capabilities]\nlow = \"pool:x\"\n[roles]\njunior = \"high\"\n[presets]\nquick = \"gemini:flash\"\n\
             [pools.x]\nprimary = [\"claude:haiku\"]\n",
        )
        .unwrap();
        let pool = &names.pools["default"];
        assert_eq!(names.models("pool:default"), ["claude:opus", "gemini:flash"]);
        assert_eq!((pool.strategy, pool.retry.same_model), (Strategy::Priority, 2));
        assert_eq!(pool.retry.wait_after(2), Duration::from_secs(240));
        assert!(matches!(names.resolve("capability:low"), Ok(ResolvedModelName::Pool("x", _))));
    }

    #[test]
    fn invalid_setting_is_refused_with_its_line() {
        for (lines, expected) in [
            ("[pools.p]\nprimary = []\n", "c.toml:7: primary is empty; name a model"),
            ("[pools.p]\nprimary = [\"opus\"]\n", "c.toml:7: a member = \"opus\" is not a model"),
            (
                "[pools.p]\nprimary = [\"pool:default\"]\n",
                "c.toml:7: \"pool:default\" is a pool; list its models",
            ),
            ("[pools.p]\nprimary = [\"role:boss\"]\n", "c.toml:7: there is no role called \"boss\""),
            (
                "[pools.p]\nprimary = [\"claude:b\"]\nretry = \"x\"\n",
                "c.toml:8: there is no retry called \"x\"",
            ),
            ("[pools.p]\nprimary = [\"claude:b\"]\nstrategy = \"x\"\n", "c.toml:8: unknown variant `x`"),
            ("[pools.p]\nfallback = [\"claude:b\"]\n", "c.toml:6: missing field `primary`"),
            ("[retry.p]\nwait = \"soon\"\n", "c.toml:7: wait = \"soon\" is not a duration"),
            (
                "[retry.p]\nwait = \"0s\"\n",
                "c.toml:7: wait = \"0s\" is not a duration; write seconds or minutes, 1s to 60m",
            ),
            (
                "[timeouts]\ncall = \"61m\"\n",
                "c.toml:7: call = \"61m\" is not a duration; write seconds or minutes, 1s to 60m",
            ),
            ("[timeouts]\nfirst_leg = \"0s\"\n", "c.toml:7: first_leg = \"0s\" is not a duration"),
            (
                "[workers]\nkill_delay = \"11s\"\n",
                "c.toml:7: kill_delay = \"11s\" is not a duration; write seconds or minutes, 0s to 10s",
            ),
            ("[retry.p]\nsame_model = 9\n", "c.toml:7: same_model = 9 is outside 0 to 4"),
            (
                "[capabilities]\nhigh = \"role:architect\"\n",
                "c.toml:7: high = \"role:architect\" is circular",
            ),
            ("[capabilities]\nhighest = \"claude:b\"\n", "c.toml:7: unknown field `highest`"),
            ("[presets]\nx = \"pool:default\"\n", "c.toml:7: x = \"pool:default\" is not a model"),
            (
                "[models]\ndrafter = \"pool:none\"\n",
                "c.toml:7: there is no pool called \"none\"; there are default",
            ),
        ] {
            let error = read(lines).unwrap_err();
            assert!(error.starts_with(expected), "{lines}: {error}");
        }
    }
}
