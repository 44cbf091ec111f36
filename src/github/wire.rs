//! Types that occur in several of GitHub's responses, with only the fields that we read.

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::{
    documents::unix_lines,
    types::{Actor, UserId},
};

/// Account `ghost`, which GitHub shows in place of deleted accounts.
const GHOST: UserId = UserId(10_137);

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct GitHubUser {
    pub(crate) id: u64,
    pub(crate) login: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
}

impl From<GitHubUser> for Actor {
    fn from(user: GitHubUser) -> Self {
        Self { id: UserId(user.id), bot: user.kind == "Bot", login: user.login }
    }
}

/// Returns the author. Returns `ghost` if GitHub sent `null` because the account was deleted.
pub(crate) fn author_or_ghost(user: Option<GitHubUser>) -> Actor {
    user.map_or_else(ghost, Actor::from)
}

pub(crate) fn ghost() -> Actor {
    Actor { id: GHOST, login: "ghost".into(), bot: false }
}

/// Returns JSON from GitHub with all line ends in its strings converted to LF. Browsers send CRLF, and other clients
/// may send any line end.
pub(crate) fn with_unix_lines(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(unix_lines(text)),
        Value::Array(items) => items.into_iter().map(with_unix_lines).collect(),
        Value::Object(fields) => fields.into_iter().map(|(k, v)| (k, with_unix_lines(v))).collect(),
        other => other,
    }
}

/// A secret from a response. It is wrapped as soon as it is deserialized, so that it cannot be logged by accident.
pub(crate) struct SecretField(pub(crate) SecretString);

impl<'de> Deserialize<'de> for SecretField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}
