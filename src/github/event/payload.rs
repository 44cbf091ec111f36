//! Access to fields of webhook payloads. Errors name the full path of the missing field.

use serde_json::Value;

use crate::{
    github::wire::ghost,
    types::{Actor, InstallationId, IssueNo, Oid, RepoId, RepoName, Timestamp, UserId},
};

use super::{PayloadError, RepoRef};

/// Parsed JSON body of a delivery, with its event name.
#[derive(Clone, Copy)]
pub(super) struct WebhookPayload<'a> {
    pub(super) event: &'a str,
    pub(super) value: &'a Value,
}

type PayloadResult<T> = Result<T, PayloadError>;

impl<'a> WebhookPayload<'a> {
    /// Returns the value at a path such as `issue.user.id`; `None` if it is missing or `null`.
    pub(super) fn value_at(self, path: &str) -> Option<&'a Value> {
        path.split('.').try_fold(self.value, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    fn missing_field(self, path: &str, expected: &'static str) -> PayloadError {
        PayloadError::Field { event: self.event.to_owned(), path: path.to_owned(), expected }
    }

    pub(super) fn text(self, path: &str) -> PayloadResult<&'a str> {
        self.value_at(path).and_then(Value::as_str).ok_or_else(|| self.missing_field(path, "a text"))
    }

    /// Returns the string at `path`, or an empty string if it is missing or `null`.
    pub(super) fn text_or_empty(self, path: &str) -> &'a str {
        self.value_at(path).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn optional_text(self, path: &str) -> Option<String> {
        self.value_at(path).and_then(Value::as_str).map(str::to_owned)
    }

    pub(super) fn flag(self, path: &str) -> bool {
        self.value_at(path).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(super) fn number(self, path: &str) -> PayloadResult<u64> {
        self.value_at(path).and_then(Value::as_u64).ok_or_else(|| self.missing_field(path, "a number"))
    }

    pub(super) fn issue_no(self, path: &str) -> PayloadResult<IssueNo> {
        self.number(path).map(IssueNo)
    }

    pub(super) fn oid(self, path: &str) -> PayloadResult<Oid> {
        self.text(path)?.parse().map_err(|_| self.missing_field(path, "a commit id"))
    }

    pub(super) fn time(self, path: &str) -> PayloadResult<Timestamp> {
        Timestamp::parse(self.text(path)?).map_err(|_| self.missing_field(path, "a time"))
    }

    /// Returns the user who caused the event, from the field `sender` that GitHub adds to every payload.
    pub(super) fn sender(self) -> PayloadResult<Actor> {
        self.actor("sender")
    }

    pub(super) fn actor(self, path: &str) -> PayloadResult<Actor> {
        Ok(Actor {
            id: UserId(self.number(&format!("{path}.id"))?),
            login: self.text(&format!("{path}.login"))?.to_owned(),
            bot: self.text_or_empty(&format!("{path}.type")) == "Bot",
        })
    }

    /// Returns the author at `path`. Returns the user `ghost` if GitHub sends `null` because the account was deleted.
    pub(super) fn author(self, path: &str) -> PayloadResult<Actor> {
        if self.value_at(path).is_some() { self.actor(path) } else { Ok(ghost()) }
    }

    pub(super) fn repo(self) -> PayloadResult<RepoRef> {
        let name = self.text("repository.full_name")?;
        Ok(RepoRef {
            id: RepoId(self.number("repository.id")?),
            name: name.parse().map_err(|_| self.missing_field("repository.full_name", "OWNER/NAME"))?,
            private: self.flag("repository.private"),
            default_branch: self.optional_text("repository.default_branch"),
            user_owned: self.text_or_empty("repository.owner.type") == "User",
        })
    }

    pub(super) fn installation(self) -> PayloadResult<InstallationId> {
        self.number("installation.id").map(InstallationId)
    }

    /// Returns the repositories listed in an installation's payload. Skips malformed entries, because no run could use
    /// them.
    pub(super) fn repositories(self, path: &str) -> Vec<(RepoId, RepoName)> {
        let listed = self.value_at(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let known = |repo: &Value| {
            Some((RepoId(repo.get("id")?.as_u64()?), repo.get("full_name")?.as_str()?.parse().ok()?))
        };
        listed.iter().filter_map(known).collect()
    }
}
