//! Reads secrets from a `.env` file. Each secret is given either as a value or as the path of a file that contains the
//! value.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};

use super::{ConfigError, local_models::LocalModelSettings};

const WEBHOOK: &str = "COUNTERSIGN_WEBHOOK_SECRET";
const WEBHOOK_PREVIOUS: &str = "COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS";
const GEMINI: &str = "GEMINI_API_KEY";
/// Prefix of the variables of named Gemini keys.
const GEMINI_NAMED: &str = "GEMINI_API_KEY_";
const ANTHROPIC: &str = "ANTHROPIC_API_KEY";
pub(super) const LOCAL_KEY: &str = "LOCAL_LLM_API_KEY";
const OPENAI: &str = "OPENAI_API_KEY";
const NAMES: [&str; 6] = [WEBHOOK, WEBHOOK_PREVIOUS, GEMINI, ANTHROPIC, OPENAI, LOCAL_KEY];

/// Name given to the key in `GEMINI_API_KEY`.
pub(super) const ONLY_KEY: &str = "default";

/// Returns all fixed names of secret variables, including the `…_FILE` variants.
pub(super) fn secret_names() -> impl Iterator<Item = String> {
    NAMES.iter().flat_map(|name| [(*name).to_owned(), format!("{name}_FILE")])
}

fn is_secret(name: &str) -> bool {
    name.starts_with(GEMINI_NAMED) || secret_names().any(|known| known == name)
}

/// Secrets of a `.env` file; empty if the file does not exist.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    pub webhook: Option<SecretString>,
    pub webhook_previous: Option<SecretString>,
    /// Gemini keys with their names; the key of `GEMINI_API_KEY` comes first.
    pub gemini_keys: Vec<(String, SecretString)>,
    pub anthropic_api_key: Option<SecretString>,
    pub openai_api_key: Option<SecretString>,
    pub(super) local: Option<LocalModelSettings>,
    /// Files named by `…_FILE` variables.
    pub files: Vec<PathBuf>,
    file: PathBuf,
}

impl Secrets {
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let mut values = read_env_file(file)?;
        let named = values.iter().filter(|(name, _)| is_secret(name) && name.ends_with("_FILE"));
        let files = named.map(|(_, path)| file.with_file_name(path.expose_secret())).collect();
        let gemini_keys = gemini_keys(file, &mut values)?;
        let local = LocalModelSettings::take_from_env(file, &mut values)?;
        let mut take = |name: &str| take_secret(file, &mut values, name);
        Ok(Self {
            local,
            webhook: take(WEBHOOK)?,
            webhook_previous: take(WEBHOOK_PREVIOUS)?,
            gemini_keys,
            anthropic_api_key: take(ANTHROPIC)?,
            openai_api_key: take(OPENAI)?,
            files,
            file: file.to_owned(),
        })
    }

    /// Returns the secrets with which a delivery may be signed, the current secret first. A missing secret is an error;
    /// otherwise the server would accept unsigned deliveries.
    pub(super) fn webhook_secrets(&self) -> Result<Vec<SecretString>, ConfigError> {
        let current = self.webhook.clone().ok_or_else(|| {
            env_file_error(
                &self.file,
                None,
                format!(
                    "no {WEBHOOK}; add the secret set in the App's webhook settings \
                 (`openssl rand -hex 32` makes one), or {WEBHOOK}_FILE with the path of a file that holds it"
                ),
            )
        })?;
        Ok([Some(current), self.webhook_previous.clone()].into_iter().flatten().collect())
    }
}

pub(super) fn env_file_error(file: &Path, line: Option<usize>, message: String) -> ConfigError {
    ConfigError { file: file.display().to_string(), line, message }
}

fn read_env_file(file: &Path) -> Result<BTreeMap<String, SecretString>, ConfigError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(env_file_error(file, None, format!("can't be read: {error}"))),
    };
    refuse_expansion(file, &text)?;
    let mut values = BTreeMap::new();
    for item in dotenvy::from_read_iter(text.as_bytes()) {
        // The parser's own error quotes the line, and so the secret.
        let (name, value) = item.map_err(|error| {
            let at = match &error {
                dotenvy::Error::LineParse(line, _) => text.lines().position(|l| l.trim() == line.trim()),
                _ => None,
            };
            env_file_error(
                file,
                at.map(|l| l + 1),
                "is not NAME=value; put values with spaces in single quotes".into(),
            )
        })?;
        let double = values.insert(name.clone(), SecretString::from(value)).is_some();
        if double && is_secret(&name) {
            return Err(env_file_error(file, None, format!("{name} is set twice; remove one")));
        }
    }
    Ok(values)
}

/// Refuses a secret that contains `$` outside single quotes. The parser would replace the variable with its value from
/// the process environment, from which we never read secrets.
fn refuse_expansion(file: &Path, text: &str) -> Result<(), ConfigError> {
    for (index, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches("export ");
        let Some((name, value)) = line.split_once('=') else { continue };
        if is_secret(name.trim()) && value.contains('$') && !value.trim().starts_with('\'') {
            let message = format!("{} holds a `$`; put its value in single quotes", name.trim());
            return Err(env_file_error(file, Some(index + 1), message));
        }
    }
    Ok(())
}

/// Removes `GEMINI_API_KEY` and every `GEMINI_API_KEY_<NAME>` from `values` and returns the keys.
fn gemini_keys(
    file: &Path,
    values: &mut BTreeMap<String, SecretString>,
) -> Result<Vec<(String, SecretString)>, ConfigError> {
    let named: BTreeSet<String> = values
        .keys()
        .map(|name| name.strip_suffix("_FILE").unwrap_or(name))
        .filter(|name| name.starts_with(GEMINI_NAMED))
        .map(str::to_owned)
        .collect();
    let mut keys: Vec<(String, SecretString)> = Vec::new();
    if let Some(key) = take_secret(file, values, GEMINI)? {
        keys.push((ONLY_KEY.to_owned(), key));
    }
    for variable in named {
        let name = variable[GEMINI_NAMED.len()..].to_lowercase();
        if name.is_empty() {
            return Err(env_file_error(
                file,
                None,
                format!("{variable} lacks its key's name after the last _"),
            ));
        }
        let Some(key) = take_secret(file, values, &variable)? else { continue };
        if keys.iter().any(|(known, _)| *known == name) {
            return Err(env_file_error(file, None, format!("two keys are called {name}; rename {variable}")));
        }
        keys.push((name, key));
    }
    Ok(keys)
}

pub(super) fn take_secret(
    file: &Path,
    values: &mut BTreeMap<String, SecretString>,
    name: &str,
) -> Result<Option<SecretString>, ConfigError> {
    let filled = |secret: Option<SecretString>| secret.filter(|s| !s.expose_secret().trim().is_empty());
    let by_file = format!("{name}_FILE");
    match (filled(values.remove(name)), filled(values.remove(&by_file))) {
        (Some(_), Some(_)) => {
            Err(env_file_error(file, None, format!("both {name} and {by_file} are set; remove one")))
        }
        (Some(value), None) => Ok(Some(SecretString::from(value.expose_secret().trim()))),
        (None, None) => Ok(None),
        (None, Some(path)) => {
            let path = file.parent().unwrap_or(Path::new(".")).join(path.expose_secret().trim());
            let text = std::fs::read_to_string(&path).map_err(|error| {
                env_file_error(
                    file,
                    None,
                    format!("{by_file} names {}, which can't be read: {error}", path.display()),
                )
            })?;
            if text.trim().is_empty() {
                return Err(env_file_error(
                    file,
                    None,
                    format!("{by_file} names {}, which is empty", path.display()),
                ));
            }
            Ok(Some(SecretString::from(text.trim())))
        }
    }
}
