//! `LOCAL_LLM_…` in `.env`: a model on a machine of one's own by the names that other tools of the kind read as well. They come
//! to the same as lines of `countersign.toml`, and whatever that says itself wins.

use std::{collections::BTreeMap, path::Path};

use secrecy::{ExposeSecret, SecretString};
use toml::Spanned;
use url::Url;

use super::{
    ConfigError, is_loopback,
    models::ModelTableRow,
    secrets::{LOCAL_KEY, env_file_error, take_secret},
};

const PREFIX: &str = "LOCAL_LLM_";
const ROLE_MODEL_PREFIX: &str = "LOCAL_LLM_MODEL_";

/// Whose model may be another one. Which of them work here stands in `docs/roles.md`.
const ROLES: [&str; 10] = [
    "ARCHITECT",
    "IMPLEMENTER",
    "REVIEWER",
    "TESTER",
    "MAINTAINER",
    "NARRATOR",
    "INGESTOR",
    "CRAWLER",
    "HUNTER",
    "CATCHER",
];

/// What there is nothing here to set by.
const IGNORED_VARIABLES: [&str; 3] = ["TEMPERATURE", "TIMEOUT_MS", "ERROR_MODE"];

const MODEL: &str = "llama3.1:8b";
const URL: &str = "http://localhost:11434";
const HOSTS: &str = "localhost,127.0.0.1,::1";
const MAX_TOKENS: u64 = 800;

/// What such a model reads; Ollama's window is asked for by the prompt and no larger than this.
const CONTEXT: u64 = 32_768;

/// What the names say.
#[derive(Debug, Clone)]
pub(super) struct LocalModelSettings {
    pub(super) provider: &'static str,
    pub(super) url: String,
    /// For that address and no other.
    pub(super) key: Option<SecretString>,
    model: String,
    /// Of each role that has one of its own.
    roles: BTreeMap<String, String>,
    max_tokens: u64,
}

impl LocalModelSettings {
    /// Takes these names out of a `.env`; none where there are none.
    pub(super) fn take_from_env(
        file: &Path,
        values: &mut BTreeMap<String, SecretString>,
    ) -> Result<Option<Self>, ConfigError> {
        let key = take_secret(file, values, LOCAL_KEY)?;
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in values.extract_if(.., |name, _| name.starts_with(PREFIX)) {
            let value = value.expose_secret().trim().to_owned();
            if !value.is_empty() {
                given.insert(name, value);
            }
        }
        if given.is_empty() {
            return Ok(None);
        }
        let refuse = |message: String| env_file_error(file, None, message);
        let mut take = |name: &str| given.remove(&format!("{PREFIX}{name}"));
        let provider = match take("API").as_deref() {
            None | Some("ollama") => "ollama",
            Some("openai" | "openai-compatible") => "openai",
            Some(_) => {
                return Err(refuse("LOCAL_LLM_API is neither ollama nor openai-compatible".to_owned()));
            }
        };
        let hosts = take("ALLOWED_HOSTS").unwrap_or_else(|| HOSTS.to_owned());
        let mut url = take("URL").unwrap_or_else(|| URL.to_owned());
        let parsed =
            Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let parsed = parsed.ok_or_else(|| refuse("LOCAL_LLM_URL is no address with a host".to_owned()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(refuse(
                "LOCAL_LLM_URL must not hold a user or password; write LOCAL_LLM_API_KEY".to_owned(),
            ));
        }
        if parsed.scheme() == "http" && !is_loopback(&parsed) {
            return Err(refuse(
                "LOCAL_LLM_URL would send texts in clear; write https, or an address of this machine"
                    .to_owned(),
            ));
        }
        let host = parsed.host_str().unwrap_or_default().to_owned();
        let host = host.trim_matches(['[', ']']);
        if !hosts.split(',').any(|allowed| allowed.trim() == host) {
            return Err(refuse(format!(
                "LOCAL_LLM_URL leads to {host}, which LOCAL_LLM_ALLOWED_HOSTS does not name; add it there"
            )));
        }
        // The others of these tools add what is below the host themselves.
        if provider == "openai" && !url.trim_end_matches('/').ends_with("/v1") {
            url = format!("{}/v1", url.trim_end_matches('/'));
        }
        let max_tokens = match take("MAX_TOKENS").map(|given| given.parse()) {
            None => MAX_TOKENS,
            Some(Ok(tokens)) if (1..CONTEXT).contains(&tokens) => tokens,
            Some(_) => return Err(refuse(format!("LOCAL_LLM_MAX_TOKENS is no number from 1 to {CONTEXT}"))),
        };
        let model = take("MODEL");
        IGNORED_VARIABLES.iter().for_each(|name| drop(take(name)));
        let mut roles = BTreeMap::new();
        for (name, model) in given {
            match name.strip_prefix(ROLE_MODEL_PREFIX).filter(|role| ROLES.contains(role)) {
                Some(role) => drop(roles.insert(role.to_lowercase(), model)),
                None => {
                    return Err(refuse(format!(
                        "there is no {name}; see docs/settings.md for those there are"
                    )));
                }
            }
        }
        let model = model.unwrap_or_else(|| MODEL.to_owned());
        Ok(Some(Self { provider, url, key, model, roles, max_tokens }))
    }

    /// Is this its address?
    pub(super) fn has_address(&self, address: &Url) -> bool {
        Url::parse(&self.url).is_ok_and(|url| url == *address)
    }

    /// Each model with the preset that stands for it.
    pub(super) fn presets(&self) -> impl Iterator<Item = (String, &str)> {
        let roles = self.roles.iter().map(|(role, model)| (format!("local-{role}"), model.as_str()));
        std::iter::once(("local".to_owned(), self.model.as_str())).chain(roles)
    }

    /// What stands for the model of a role that has one of its own.
    pub(super) fn preset_for_role(&self, role: &str) -> Option<Spanned<String>> {
        self.roles.contains_key(role).then(|| Spanned::new(0..0, format!("preset:local-{role}")))
    }

    /// Its row in the table of models. All of these are one family, for a name says nothing of that: who wants one of them to
    /// review another writes a `[[model]]` for each. `free`: nobody is paid for it.
    pub(super) fn model_table_row(&self, model: &str, free: bool) -> ModelTableRow {
        ModelTableRow::local_model(self.provider, model, [CONTEXT, self.max_tokens], free)
    }
}
