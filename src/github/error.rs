//! What can go wrong between us and GitHub, sorted by what the caller should do about it.
//!
//! Every answer that is not a success becomes a [`GitHubApiError`] here, from its status and headers; the
//! text of an answer decides nothing, but for the few cases that GitHub marks in no other way
//! ([`TEMPORARY_REFUSALS`] and [`SECONDARY_LIMIT_MESSAGE`]).

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::{limits, types::Timestamp};

/// The client could not be built; nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum GitHubClientError {
    #[error(
        "the App's private key is not a readable RSA key ({why}); download a new one from the App's settings page"
    )]
    Key { why: String },
    #[error("`{url}` cannot be used as {what}: {why}")]
    Address { what: &'static str, url: String, why: String },
    #[error("the HTTP client could not be set up: {0}")]
    Client(String),
}

/// One thing that GitHub holds against what was sent: which field, and its code for what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubValidationError {
    /// A plain word; `it` where GitHub names none.
    pub field: String,
    pub code: String,
}

/// Why a call to GitHub has no result. `call` names the method and route, never a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitHubApiError {
    /// Nothing is wrong but the pace. No call of this installation will work before `until`.
    #[error("GitHub's rate limit is used up until {until}")]
    RateLimited { until: Timestamp },
    /// GitHub or the network failed; whether a write took effect is unknown.
    #[error("GitHub could not be reached or failed on {call}: {why}")]
    Transient { call: String, why: String },
    /// Refused for a reason that passes. Nothing took effect.
    #[error("GitHub refuses {call} for now: {why}")]
    TemporarilyRefused { call: String, why: String },
    #[error("GitHub knows nothing under {call}, or hides it from this App")]
    NotFound { call: String },
    /// It was there and is no more: a deleted issue, a repository replaced by another of its name.
    #[error("gone: {what}")]
    Gone { what: String },
    /// The App may not do this. `accepted_permissions` is GitHub's own word for what it wanted.
    #[error("{}", forbidden_message(call, accepted_permissions.as_deref(), message))]
    Forbidden { call: String, accepted_permissions: Option<String>, message: String },
    /// Our credentials were refused, also with a new token.
    #[error(
        "GitHub does not accept this App's credentials for {call} ({message}); check the App's id, its private key and this machine's clock"
    )]
    Unauthorized { call: String, message: String },
    /// The thing changed under us: a branch moved, a merge is not possible.
    #[error("{call} conflicts with what is there now: {message}")]
    Conflict { call: String, message: String },
    /// GitHub understood and refuses; repeating will not help.
    #[error("GitHub refused {call} with status {status}: {message}")]
    Rejected { call: String, status: u16, message: String, problems: Vec<GitHubValidationError> },
    /// Among the rules of the repository or its organization is one against making this branch.
    #[error("GitHub does not let this App make the branch {branch}: {why}")]
    BranchForbidden { branch: String, why: String },
    /// The repository or issue has another address now.
    #[error("{call} has moved to {location}")]
    Moved { call: String, location: String },
    /// The answer is not what GitHub's documentation says it is.
    #[error("GitHub's answer to {call} could not be read: {why}")]
    Unexpected { call: String, why: String },
    /// We were asked to write what may not be written; nothing was sent.
    #[error("not sent to GitHub: {0}")]
    Invalid(String),
}

impl GitHubApiError {
    /// Is it only a matter of waiting?
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Transient { .. } | Self::TemporarilyRefused { .. })
    }

    /// Will nothing mend it? Credentials are mended by the operator; a page instead of an answer is an outage's.
    pub fn is_final(&self) -> bool {
        !self.is_temporary() && !matches!(self, Self::Unauthorized { .. } | Self::Unexpected { .. })
    }

    /// May a write that came to this have taken effect? All else GitHub says before it does anything.
    pub(super) fn may_have_taken_effect(&self) -> bool {
        matches!(self, Self::Transient { .. } | Self::Unexpected { .. })
    }

    pub(crate) fn transient(call: &str, why: impl ToString) -> Self {
        Self::Transient { call: call.into(), why: why.to_string() }
    }

    pub(crate) fn unexpected(call: &str, why: impl ToString) -> Self {
        Self::Unexpected { call: call.into(), why: why.to_string() }
    }
}

/// What came of a decoration: a label, an edit that nobody waits for. Such a thing holds nothing up, so that what GitHub
/// refuses for good is left out. What time ends, or whoever runs the server, is waited for as anything is.
pub fn none_if_refused<T>(done: Result<T, GitHubApiError>) -> Result<Option<T>, GitHubApiError> {
    done.map(Some).or_else(|fault| match fault.is_final() {
        false => Err(fault),
        true => {
            tracing::warn!(%fault, "left out, and what it is about goes on");
            Ok(None)
        }
    })
}

fn forbidden_message(call: &str, accepted: Option<&str>, message: &str) -> String {
    match accepted.filter(|a| !a.is_empty()) {
        Some(accepted) => {
            // Alternatives are separated by `;`, what is needed together by `,`.
            let wanted = accepted.replace("; ", ";").replace(';', " or ");
            format!("GitHub refused {call}: it wanted {wanted}; give the App that permission ({message})")
        }
        None => format!("GitHub refused {call}: {message}"),
    }
}

/// What GitHub puts in the body of a refusal.
#[derive(Debug, Default, Deserialize)]
struct GitHubErrorBody {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<serde_json::Value>,
    #[serde(default)]
    documentation_url: String,
}

impl GitHubErrorBody {
    fn parse(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_else(|_| Self {
            message: String::from_utf8_lossy(body).trim().chars().take(200).collect(),
            ..Self::default()
        })
    }

    /// The message and its details in one line.
    fn summary(&self) -> String {
        let mut text =
            if self.message.is_empty() { "no reason given".to_owned() } else { self.message.clone() };
        for error in &self.errors {
            let detail = match (error.as_str(), error["message"].as_str()) {
                (Some(plain), _) | (None, Some(plain)) => plain.to_owned(),
                (None, None) => ["resource", "field", "code"]
                    .iter()
                    .filter_map(|key| error[*key].as_str())
                    .collect::<Vec<_>>()
                    .join(" "),
            };
            if !detail.is_empty() {
                text.push_str("; ");
                text.push_str(&detail);
            }
        }
        text.chars().take(500).collect()
    }

    fn problems(&self) -> Vec<GitHubValidationError> {
        let plain =
            |text: &&str| text.len() <= 40 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let word = |value: &serde_json::Value| value.as_str().filter(plain).map(str::to_owned);
        let problem = |error: &serde_json::Value| {
            let field = word(&error["field"]).unwrap_or_else(|| "it".to_owned());
            Some(GitHubValidationError { field, code: word(&error["code"])? })
        };
        self.errors.iter().filter_map(problem).collect()
    }

    fn mentions_rate_limit(&self) -> bool {
        self.documentation_url.contains("rate-limit") || is_rate_limit_message(&self.message)
    }
}

/// Refusals that time or an owner lifts, which share their status (or GraphQL's type) with final ones and have no code of
/// their own: what is written too fast, what a copy of GitHub's data does not hold yet, an address that is not on an
/// organization's list, and an installation that was suspended after it got the token it still uses.
const TEMPORARY_REFUSALS: [&str; 5] = [
    "submitted too quickly",
    "could not resolve to a node",
    "ip allow list",
    "installation has been suspended",
    "suspended your access",
];

/// GitHub sends it without a header at times, and by GraphQL without a type.
const SECONDARY_LIMIT_MESSAGE: &str = "secondary rate limit";

pub(super) fn is_rate_limit_message(message: &str) -> bool {
    message.to_ascii_lowercase().contains(SECONDARY_LIMIT_MESSAGE)
}

/// A refusal with a status (or a type) that is final otherwise.
pub(super) fn is_temporary_refusal(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    TEMPORARY_REFUSALS.iter().any(|words| message.contains(words))
}

/// Sorts an answer that is not a success.
pub(crate) fn classify(
    call: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> GitHubApiError {
    let refusal = GitHubErrorBody::parse(body);
    let message = refusal.summary();
    let call = call.to_owned();
    if matches!(status.as_u16(), 403 | 429)
        && let Some(until) = limited_until(status, headers, &refusal, now)
    {
        return GitHubApiError::RateLimited { until };
    }
    match status.as_u16() {
        301 | 302 | 307 | 308 => match header_text(headers, header::LOCATION.as_str()) {
            Some(location) => GitHubApiError::Moved { call, location: location.to_owned() },
            None => GitHubApiError::unexpected(&call, "a redirect without a location"),
        },
        401 => GitHubApiError::Unauthorized { call, message },
        403 | 422 if is_temporary_refusal(&message) => {
            GitHubApiError::TemporarilyRefused { call, why: message }
        }
        403 => GitHubApiError::Forbidden {
            call,
            accepted_permissions: header_text(headers, "x-accepted-github-permissions").map(str::to_owned),
            message,
        },
        404 => GitHubApiError::NotFound { call },
        408 => GitHubApiError::transient(&call, message),
        409 => GitHubApiError::Conflict { call, message },
        410 => GitHubApiError::Gone { what: format!("{call} ({message})") },
        500..=599 => GitHubApiError::transient(&call, format!("status {}: {message}", status.as_u16())),
        status => GitHubApiError::Rejected { call, status, message, problems: refusal.problems() },
    }
}

/// When the primary limit is used up by an answer that was still given: until its reset.
pub(crate) fn rate_limit_reset(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let number = |name| header_text(headers, name).and_then(|value| value.parse::<i64>().ok());
    if number("x-ratelimit-remaining") != Some(0) {
        return None;
    }
    // A whole second more: the reset is in whole seconds of GitHub's clock, not of ours.
    let reset = number("x-ratelimit-reset").map(|s| Timestamp(s.saturating_add(1).saturating_mul(1000)));
    let (shortest, longest) = (now.plus(Duration::from_secs(1)), now.plus(limits::RATE_WAIT));
    Some(reset.unwrap_or(now.plus(limits::RATE_PAUSE)).clamp(shortest, longest))
}

/// When a 403 or 429 is about pace: the moment it ends. GitHub's order of precedence is
/// `retry-after`, then a used-up primary limit's reset, then a minute.
fn limited_until(
    status: StatusCode,
    headers: &HeaderMap,
    refusal: &GitHubErrorBody,
    now: Timestamp,
) -> Option<Timestamp> {
    let slow_down = status == StatusCode::TOO_MANY_REQUESTS || refusal.mentions_rate_limit();
    wait_until(headers, now).or_else(|| slow_down.then(|| now.plus(limits::RATE_PAUSE)))
}

/// Until when the headers of a refusal ask us to wait.
pub(super) fn wait_until(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let seconds = header_text(headers, "retry-after").and_then(|value| value.parse::<i64>().ok());
    let Some(seconds) = seconds else { return rate_limit_reset(headers, now) };
    let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    Some(now.plus(wait).clamp(now.plus(Duration::from_secs(1)), now.plus(limits::RATE_WAIT)))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_771_500_000_000);

    fn fault(status: u16, headers: &[(&'static str, &str)], body: &str) -> GitHubApiError {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        classify(
            "POST /repos/o/r/labels",
            StatusCode::from_u16(status).unwrap(),
            &headers,
            body.as_bytes(),
            NOW,
        )
    }

    #[test]
    fn a_refusal_names_the_permission_that_github_wanted() {
        let fault = fault(
            403,
            &[("x-accepted-github-permissions", "issues=write; pull_requests=write")],
            r#"{"message":"Resource not accessible by integration"}"#,
        );
        assert_eq!(
            fault.to_string(),
            "GitHub refused POST /repos/o/r/labels: it wanted issues=write or pull_requests=write; \
             give the App that permission (Resource not accessible by integration)"
        );
    }

    #[test]
    fn a_rate_limit_ends_when_its_headers_say() {
        let until = |headers: &[(&'static str, &str)], status| match fault(status, headers, "{}") {
            GitHubApiError::RateLimited { until } => Some(until.since(NOW).as_secs()),
            _ => None,
        };
        let reset = (NOW.0 / 1000 + 90).to_string();
        assert_eq!(until(&[("retry-after", "30")], 403), Some(30));
        assert_eq!(
            until(
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", reset.as_str()),
                    ("retry-after", "5")
                ],
                429
            ),
            Some(5)
        );
        assert_eq!(
            until(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset.as_str())], 403),
            Some(91)
        );
        assert_eq!(until(&[], 429), Some(60));
        assert_eq!(until(&[("x-ratelimit-remaining", "4000")], 403), None, "a plain refusal");
        assert_eq!(until(&[("retry-after", "99999999")], 403), Some(limits::RATE_WAIT.as_secs()));
        let secondary = fault(403, &[], r#"{"message":"You have exceeded a secondary rate limit."}"#);
        assert!(matches!(secondary, GitHubApiError::RateLimited { .. }));
    }

    #[test]
    fn each_status_has_its_fault() {
        assert!(matches!(fault(404, &[], ""), GitHubApiError::NotFound { .. }));
        assert!(matches!(fault(410, &[], ""), GitHubApiError::Gone { .. }));
        assert!(matches!(fault(409, &[], ""), GitHubApiError::Conflict { .. }));
        assert!(matches!(fault(401, &[], ""), GitHubApiError::Unauthorized { .. }));
        assert!(matches!(fault(502, &[], "<html>"), GitHubApiError::Transient { .. }));
        for (status, passing) in [
            (
                403,
                "Although you appear to have the correct authorization credentials, the `acme` organization has an IP allow list enabled, and your IP address is not permitted to access this resource.",
            ),
            (422, "Could not resolve to a node with the global id of 'I_1'."),
        ] {
            let refused = fault(status, &[], &serde_json::json!({ "message": passing }).to_string());
            assert!(
                matches!(refused, GitHubApiError::TemporarilyRefused { .. }) && refused.is_temporary(),
                "{refused}"
            );
        }
        let fast = r#"{"message":"Validation Failed","errors":[{"resource":"IssueComment","code":"unprocessable","field":"data","message":"was submitted too quickly"}]}"#;
        assert!(matches!(fault(422, &[], fast), GitHubApiError::TemporarilyRefused { .. }));
        assert!(
            matches!(fault(301, &[("location", "https://x/y")], ""), GitHubApiError::Moved { location, .. } if location == "https://x/y")
        );
        let validation = fault(
            422,
            &[],
            r#"{"message":"Validation Failed","errors":[{"resource":"Label","field":"name","code":"already_exists"},"plain"]}"#,
        );
        assert!(
            validation.to_string().ends_with("422: Validation Failed; Label name already_exists; plain"),
            "{validation}"
        );
    }
}
