//! Errors of GitHub calls, classified by what the caller should do.
//!
//! Every unsuccessful response becomes a [`GitHubApiError`] here. The status and the headers decide its variant. The
//! message is used only where GitHub gives no other indication ([`TEMPORARY_REFUSALS`] and
//! [`SECONDARY_LIMIT_MESSAGE`]).

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::{limits, types::Timestamp};

/// An error while building the client. No request was sent.
#[derive(Debug, thiserror::Error)]
pub enum GitHubClientError {
    #[error(
        "the App's private key is not a readable RSA key ({why}); download a new one from the App's settings page"
    )]
    Key { why: String },
    #[error("`{url}` cannot be used as {what}: {why}")]
    Address { what: &'static str, url: String, why: String },
    #[error("the HTTP client could not be created: {0}")]
    Client(String),
}

/// One validation error reported by GitHub: the name of the invalid field and an error code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubValidationError {
    /// Name of the invalid field; `it` if GitHub names no field.
    pub field: String,
    pub code: String,
}

/// The reason why a call to GitHub failed. `call` contains the method and route, never a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GitHubApiError {
    /// The rate limit is used up. No call of this installation succeeds before `until`.
    #[error("GitHub's rate limit is used up until {until}")]
    RateLimited { until: Timestamp },
    /// GitHub or the network failed. A write may have taken effect.
    #[error("{call} failed in transit or inside GitHub: {why}")]
    Transient { call: String, why: String },
    /// GitHub refused the call for a temporary reason; nothing took effect.
    #[error("GitHub temporarily refuses {call}: {why}")]
    TemporarilyRefused { call: String, why: String },
    #[error("GitHub answered 404 to {call}: it does not exist, or this App cannot see it")]
    NotFound { call: String },
    /// The object existed and was removed, such as a deleted issue, or a repository replaced by another one with the
    /// same name.
    #[error("gone: {what}")]
    Gone { what: String },
    /// The App lacks a permission. `accepted_permissions` lists the permissions that GitHub accepts for the call.
    #[error("{}", forbidden_message(call, accepted_permissions.as_deref(), message))]
    Forbidden { call: String, accepted_permissions: Option<String>, message: String },
    /// GitHub refused our credentials, even with a new token.
    #[error(
        "GitHub does not accept this App's credentials for {call} ({message}); check the App's id, its private key and this machine's clock"
    )]
    Unauthorized { call: String, message: String },
    /// The object has changed in the meantime: for example, the branch moved or the pull request can no longer be
    /// merged.
    #[error("{call} conflicts with the current state: {message}")]
    Conflict { call: String, message: String },
    /// GitHub refused the request itself; a retry will not help.
    #[error("GitHub refused {call} with status {status}: {message}")]
    Rejected { call: String, status: u16, message: String, problems: Vec<GitHubValidationError> },
    /// A rule of the repository or its organization does not allow us to create or change this branch.
    #[error("GitHub does not let this App create the branch {branch}: {why}")]
    BranchForbidden { branch: String, why: String },
    /// The repository or issue has a new URL.
    #[error("{call} has moved to {location}")]
    Moved { call: String, location: String },
    /// The response does not have the documented format.
    #[error("GitHub's answer to {call} could not be read: {why}")]
    Unexpected { call: String, why: String },
    /// Our own check rejected the call. No request was sent.
    #[error("not sent to GitHub: {0}")]
    Invalid(String),
}

impl GitHubApiError {
    /// Returns whether a later retry may succeed although nobody fixes anything.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Transient { .. } | Self::TemporarilyRefused { .. })
    }

    /// Returns whether no retry can succeed. Refused credentials are not final, because the operator can fix them. An
    /// unexpected response is not final, because an outage can cause it.
    pub fn is_final(&self) -> bool {
        !self.is_temporary() && !matches!(self, Self::Unauthorized { .. } | Self::Unexpected { .. })
    }

    /// Returns whether a write that failed with this error may still have taken effect. All other errors are reported
    /// before GitHub writes anything.
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

/// Converts a final error into `Ok(None)` and logs it. Used for optional calls, such as setting a label. Other errors
/// are returned, so that the caller retries the call.
pub fn none_if_refused<T>(done: Result<T, GitHubApiError>) -> Result<Option<T>, GitHubApiError> {
    done.map(Some).or_else(|fault| match fault.is_final() {
        false => Err(fault),
        true => {
            tracing::warn!(%fault, "GitHub refused an optional call; continuing without it");
            Ok(None)
        }
    })
}

fn forbidden_message(call: &str, accepted: Option<&str>, message: &str) -> String {
    match accepted.filter(|a| !a.is_empty()) {
        Some(accepted) => {
            // GitHub separates alternatives by `;` and permissions needed together by `,`.
            let wanted = accepted.replace("; ", ";").replace(';', " or ");
            format!("GitHub refused {call}: it requires {wanted}; give the App that permission ({message})")
        }
        None => format!("GitHub refused {call}: {message}"),
    }
}

/// Body of an error response.
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

    /// Returns the error's message and details in one line.
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

/// Messages of temporary refusals, which end by themselves or after an owner acts. GitHub gives them the same status
/// (or GraphQL type) as final refusals and no error code, so only the message tells them apart. In order: writes sent
/// too fast; lagging replicas of GitHub; an IP address missing from an organization's allow list; an installation
/// suspended while its token is still valid (two wordings).
const TEMPORARY_REFUSALS: [&str; 5] = [
    "submitted too quickly",
    "could not resolve to a node",
    "ip allow list",
    "installation has been suspended",
    "suspended your access",
];

/// Message of a secondary rate limit. GitHub sometimes sends this message without a `Retry-After` header, and in
/// GraphQL without an error type.
const SECONDARY_LIMIT_MESSAGE: &str = "secondary rate limit";

pub(super) fn is_rate_limit_message(message: &str) -> bool {
    message.to_ascii_lowercase().contains(SECONDARY_LIMIT_MESSAGE)
}

/// Returns whether this message belongs to a temporary refusal, although the status or type of the error is usually
/// final.
pub(super) fn is_temporary_refusal(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    TEMPORARY_REFUSALS.iter().any(|words| message.contains(words))
}

/// Converts an unsuccessful response into an error.
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

/// Returns the reset time of the primary rate limit if the response's headers say that it is used up.
pub(crate) fn rate_limit_reset(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let number = |name| header_text(headers, name).and_then(|value| value.parse::<i64>().ok());
    if number("x-ratelimit-remaining") != Some(0) {
        return None;
    }
    // Add a second: the reset is in whole seconds of GitHub's clock, not ours.
    let reset = number("x-ratelimit-reset").map(|s| Timestamp(s.saturating_add(1).saturating_mul(1000)));
    let (shortest, longest) = (now.plus(Duration::from_secs(1)), now.plus(limits::RATE_WAIT));
    Some(reset.unwrap_or(now.plus(limits::RATE_PAUSE)).clamp(shortest, longest))
}

/// Returns the time at which the rate limit behind a 403 or 429 response ends; `None` if the response has another
/// cause. As GitHub documents, `retry-after` takes precedence, then the reset time of a used-up primary limit, then one
/// minute.
fn limited_until(
    status: StatusCode,
    headers: &HeaderMap,
    refusal: &GitHubErrorBody,
    now: Timestamp,
) -> Option<Timestamp> {
    let slow_down = status == StatusCode::TOO_MANY_REQUESTS || refusal.mentions_rate_limit();
    wait_until(headers, now).or_else(|| slow_down.then(|| now.plus(limits::RATE_PAUSE)))
}

/// Returns the time until which the headers of a refusal ask us to wait; `None` if they name no time.
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
    fn forbidden_error_names_the_missing_permission() {
        let fault = fault(
            403,
            &[("x-accepted-github-permissions", "issues=write; pull_requests=write")],
            r#"{"message":"Resource not accessible by integration"}"#,
        );
        assert_eq!(
            fault.to_string(),
            "GitHub refused POST /repos/o/r/labels: it requires issues=write or pull_requests=write; \
             give the App that permission (Resource not accessible by integration)"
        );
    }

    #[test]
    fn rate_limit_end_is_read_from_the_response_headers() {
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
    fn each_response_status_maps_to_its_error_variant() {
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
