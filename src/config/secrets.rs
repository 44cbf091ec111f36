//! Secrets from a `.env` file: as values, or as paths of files that hold them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use secrecy::{ExposeSecret, SecretString};

use super::ConfigError;

const WEBHOOK: &str = "COUNTERSIGN_WEBHOOK_SECRET";
const WEBHOOK_PREVIOUS: &str = "COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS";
const GEMINI: &str = "GEMINI_API_KEY";
const ANTHROPIC: &str = "ANTHROPIC_API_KEY";
const OPENAI: &str = "OPENAI_API_KEY";
const NAMES: [&str; 5] = [WEBHOOK, WEBHOOK_PREVIOUS, GEMINI, ANTHROPIC, OPENAI];

/// Every name a secret may have, `…_FILE` included.
pub(super) fn names() -> impl Iterator<Item = String> {
    NAMES.iter().flat_map(|name| [(*name).to_owned(), format!("{name}_FILE")])
}

/// What a `.env` file holds. One that is not there holds nothing.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    pub webhook: Option<SecretString>,
    pub webhook_previous: Option<SecretString>,
    pub gemini_api_key: Option<SecretString>,
    pub anthropic_api_key: Option<SecretString>,
    pub openai_api_key: Option<SecretString>,
    file: PathBuf,
}

impl Secrets {
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let mut values = read(file)?;
        let mut take = |name: &str| one(file, &mut values, name);
        Ok(Self {
            webhook: take(WEBHOOK)?,
            webhook_previous: take(WEBHOOK_PREVIOUS)?,
            gemini_api_key: take(GEMINI)?,
            anthropic_api_key: take(ANTHROPIC)?,
            openai_api_key: take(OPENAI)?,
            file: file.to_owned(),
        })
    }

    /// The secrets a delivery may be signed with. None is an error: an unsigned webhook is an open
    /// door.
    pub(super) fn webhook_secrets(&self) -> Result<Vec<SecretString>, ConfigError> {
        let current = self.webhook.clone().ok_or_else(|| {
            mistake(
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

fn mistake(file: &Path, line: Option<usize>, message: String) -> ConfigError {
    ConfigError { file: file.display().to_string(), line, message }
}

fn read(file: &Path) -> Result<BTreeMap<String, SecretString>, ConfigError> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(mistake(file, None, format!("can't be read: {error}"))),
    };
    refuse_expansion(file, &text)?;
    let mut values = BTreeMap::new();
    for item in dotenvy::from_read_iter(text.as_bytes()) {
        // The reader's own error quotes the line, and with it the secret.
        let (name, value) = item.map_err(|error| {
            let at = match &error {
                dotenvy::Error::LineParse(line, _) => text.lines().position(|l| l.trim() == line.trim()),
                _ => None,
            };
            mistake(
                file,
                at.map(|l| l + 1),
                "is not NAME=value; put values with spaces in single quotes".into(),
            )
        })?;
        let double = values.insert(name.clone(), SecretString::from(value)).is_some();
        if double && names().any(|known| known == name) {
            return Err(mistake(file, None, format!("{name} is set twice; remove one")));
        }
    }
    Ok(values)
}

/// Outside single quotes a `$` is replaced by what the process environment holds, which is the one
/// place no secret may come from.
fn refuse_expansion(file: &Path, text: &str) -> Result<(), ConfigError> {
    for (index, line) in text.lines().enumerate() {
        let line = line.trim().trim_start_matches("export ");
        let Some((name, value)) = line.split_once('=') else { continue };
        if names().any(|known| known == name.trim()) && value.contains('$') && !value.trim().starts_with('\'')
        {
            let message = format!("{} holds a `$`; put its value in single quotes", name.trim());
            return Err(mistake(file, Some(index + 1), message));
        }
    }
    Ok(())
}

fn one(
    file: &Path,
    values: &mut BTreeMap<String, SecretString>,
    name: &str,
) -> Result<Option<SecretString>, ConfigError> {
    let filled = |secret: Option<SecretString>| secret.filter(|s| !s.expose_secret().trim().is_empty());
    let by_file = format!("{name}_FILE");
    match (filled(values.remove(name)), filled(values.remove(&by_file))) {
        (Some(_), Some(_)) => {
            Err(mistake(file, None, format!("both {name} and {by_file} are set; remove one")))
        }
        (Some(value), None) => Ok(Some(SecretString::from(value.expose_secret().trim()))),
        (None, None) => Ok(None),
        (None, Some(path)) => {
            let path = file.parent().unwrap_or(Path::new(".")).join(path.expose_secret().trim());
            let text = std::fs::read_to_string(&path).map_err(|error| {
                mistake(
                    file,
                    None,
                    format!("{by_file} names {}, which can't be read: {error}", path.display()),
                )
            })?;
            if text.trim().is_empty() {
                return Err(mistake(
                    file,
                    None,
                    format!("{by_file} names {}, which is empty", path.display()),
                ));
            }
            Ok(Some(SecretString::from(text.trim())))
        }
    }
}
