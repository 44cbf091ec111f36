//! `LOCAL_LLM_…` in `.env`: a model on a machine of one's own by the names that other tools of the kind read as well. They come
//! to the same as lines of `countersign.toml`, and whatever that says itself wins.

use std::{collections::BTreeMap, path::Path};

use secrecy::{ExposeSecret, SecretString};
use toml::Spanned;
use url::Url;

use super::{ConfigError, secrets::mistake};

const BEGINS: &str = "LOCAL_LLM_";
const MODEL_OF: &str = "LOCAL_LLM_MODEL_";

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
const WITHOUT_EFFECT: [&str; 3] = ["TEMPERATURE", "TIMEOUT_MS", "ERROR_MODE"];

const MODEL: &str = "llama3.1:8b";
const URL: &str = "http://localhost:11434";
const HOSTS: &str = "localhost,127.0.0.1,0.0.0.0,::1";
const MAX_TOKENS: u64 = 800;

/// What such a model reads; Ollama's window is asked for by the prompt and no larger than this.
const CONTEXT: u64 = 32_768;

/// What the names say.
#[derive(Debug, Clone)]
pub(super) struct Local {
    pub(super) provider: &'static str,
    pub(super) url: String,
    pub(super) key: Option<SecretString>,
    model: String,
    /// Of each role that has one of its own.
    roles: BTreeMap<String, String>,
    max_tokens: u64,
}

impl Local {
    /// Takes these names out of a `.env`; none where there are none.
    pub(super) fn take(
        file: &Path,
        values: &mut BTreeMap<String, SecretString>,
    ) -> Result<Option<Self>, ConfigError> {
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in values.extract_if(.., |name, _| name.starts_with(BEGINS)) {
            let value = value.expose_secret().trim().to_owned();
            if !value.is_empty() {
                given.insert(name, value);
            }
        }
        if given.is_empty() {
            return Ok(None);
        }
        let refuse = |message: String| mistake(file, None, message);
        let mut take = |name: &str| given.remove(&format!("{BEGINS}{name}"));
        let provider = match take("API").as_deref() {
            None | Some("ollama") => "ollama",
            Some("openai" | "openai-compatible") => "openai",
            Some(other) => {
                return Err(refuse(format!(
                    "LOCAL_LLM_API = {other:?} is neither ollama nor openai-compatible"
                )));
            }
        };
        let hosts = take("ALLOWED_HOSTS").unwrap_or_else(|| HOSTS.to_owned());
        let mut url = take("URL").unwrap_or_else(|| URL.to_owned());
        let host = Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.ok_or_else(|| refuse("LOCAL_LLM_URL is no address with a host".to_owned()))?;
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
        let (key, model) = (take("API_KEY").map(SecretString::from), take("MODEL"));
        WITHOUT_EFFECT.iter().for_each(|name| drop(take(name)));
        let mut roles = BTreeMap::new();
        for (name, model) in given {
            match name.strip_prefix(MODEL_OF).filter(|role| ROLES.contains(role)) {
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

    /// Each model with the preset that stands for it.
    pub(super) fn presets(&self) -> impl Iterator<Item = (String, &str)> {
        let roles = self.roles.iter().map(|(role, model)| (format!("local-{role}"), model.as_str()));
        std::iter::once(("local".to_owned(), self.model.as_str())).chain(roles)
    }

    /// What stands for the model of a role that has one of its own.
    pub(super) fn of(&self, role: &str) -> Option<Spanned<String>> {
        self.roles.contains_key(role).then(|| Spanned::new(0..0, format!("preset:local-{role}")))
    }

    /// Its row in the table of models. Whose family it is, its name says: that of `llama3.1:8b` is `llama`.
    pub(super) fn row(&self, model: &str) -> super::file::ModelTable {
        let name = model.rsplit('/').next().unwrap_or(model);
        let family: String = name.chars().take_while(|c| c.is_ascii_alphabetic()).collect();
        let family = if family.is_empty() { "local".to_owned() } else { family.to_lowercase() };
        super::file::ModelTable::free(self.provider, model, family, CONTEXT, self.max_tokens)
    }
}
