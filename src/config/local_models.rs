//! Reads the `LOCAL_LLM_…` variables in `.env`, which set up a self-hosted model. Similar tools use the same variable
//! names. Each variable is equivalent to certain lines of `countersign.toml`; if the file contains such lines, they
//! override the variable.

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

/// Roles for which `LOCAL_LLM_MODEL_…` variables are accepted. `docs/roles.md` lists the roles that Countersign uses.
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

/// Endings of `LOCAL_LLM_…` variables that are accepted but ignored.
const IGNORED_VARIABLES: [&str; 3] = ["TEMPERATURE", "TIMEOUT_MS", "ERROR_MODE"];

const MODEL: &str = "llama3.1:8b";
const URL: &str = "http://localhost:11434";
const HOSTS: &str = "localhost,127.0.0.1,::1";
const MAX_TOKENS: u64 = 800;

/// Context window of a local model, in tokens. For Ollama, this is the maximum: we request a window that fits the
/// prompt.
const CONTEXT: u64 = 32_768;

#[derive(Debug, Clone)]
pub(super) struct LocalModelSettings {
    pub(super) provider: &'static str,
    pub(super) url: String,
    /// API key, which is sent only to `url`.
    pub(super) key: Option<SecretString>,
    model: String,
    /// Models by role, for roles that have a model of their own.
    roles: BTreeMap<String, String>,
    max_tokens: u64,
}

impl LocalModelSettings {
    /// Removes the `LOCAL_LLM_…` variables from `values` and parses them. Returns `None` if no such variable is set.
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
        let parsed = parsed.ok_or_else(|| refuse("LOCAL_LLM_URL is not a URL with a host".to_owned()))?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(refuse(
                "LOCAL_LLM_URL must not hold a user or password; write LOCAL_LLM_API_KEY".to_owned(),
            ));
        }
        if parsed.scheme() == "http" && !is_loopback(&parsed) {
            return Err(refuse(
                "LOCAL_LLM_URL would send prompts unencrypted; use https or an address of this machine"
                    .to_owned(),
            ));
        }
        let host = parsed.host_str().unwrap_or_default().to_owned();
        let host = host.trim_matches(['[', ']']);
        if !hosts.split(',').any(|allowed| allowed.trim() == host) {
            return Err(refuse(format!(
                "LOCAL_LLM_URL points to {host}, which is not in LOCAL_LLM_ALLOWED_HOSTS; add it there"
            )));
        }
        // Tools that read these variables append the API path themselves.
        if provider == "openai" && !url.trim_end_matches('/').ends_with("/v1") {
            url = format!("{}/v1", url.trim_end_matches('/'));
        }
        let max_tokens = match take("MAX_TOKENS").map(|given| given.parse()) {
            None => MAX_TOKENS,
            Some(Ok(tokens)) if (1..CONTEXT).contains(&tokens) => tokens,
            Some(_) => {
                return Err(refuse(format!("LOCAL_LLM_MAX_TOKENS is not a number from 1 to {CONTEXT}")));
            }
        };
        let model = take("MODEL");
        IGNORED_VARIABLES.iter().for_each(|name| drop(take(name)));
        let mut roles = BTreeMap::new();
        for (name, model) in given {
            match name.strip_prefix(ROLE_MODEL_PREFIX).filter(|role| ROLES.contains(role)) {
                Some(role) => drop(roles.insert(role.to_lowercase(), model)),
                None => {
                    return Err(refuse(format!(
                        "unknown variable {name}; docs/settings.md lists the known ones"
                    )));
                }
            }
        }
        let model = model.unwrap_or_else(|| MODEL.to_owned());
        Ok(Some(Self { provider, url, key, model, roles, max_tokens }))
    }

    pub(super) fn has_address(&self, address: &Url) -> bool {
        Url::parse(&self.url).is_ok_and(|url| url == *address)
    }

    /// Returns the names of the presets, each with its model.
    pub(super) fn presets(&self) -> impl Iterator<Item = (String, &str)> {
        let roles = self.roles.iter().map(|(role, model)| (format!("local-{role}"), model.as_str()));
        std::iter::once(("local".to_owned(), self.model.as_str())).chain(roles)
    }

    /// Returns the reference to a role's preset, or `None` if the role has no model of its own.
    pub(super) fn preset_for_role(&self, role: &str) -> Option<Spanned<String>> {
        self.roles.contains_key(role).then(|| Spanned::new(0..0, format!("preset:local-{role}")))
    }

    /// Returns a model table row for `model`. All local models get the same family, because the name of a model does
    /// not reveal its family. If one local model is to review another, the settings need a `[[model]]` table for each.
    /// `free` means that calls cost nothing.
    pub(super) fn model_table_row(&self, model: &str, free: bool) -> ModelTableRow {
        ModelTableRow::local_model(self.provider, model, [CONTEXT, self.max_tokens], free)
    }
}
