//! HTTP for all API back ends: one pair of clients, bounded responses, and errors without addresses or secrets. Each
//! back end interprets the responses of its own service.

use std::time::Duration;

use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{HeaderMap, HeaderValue, RETRY_AFTER},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc2822};
use url::Url;

use super::{CallError, CallErrorKind, Metering, ResolveError, Usage, quote_text};
use crate::{
    limits,
    types::{Hash, Timestamp, with_causes},
};

/// Connect timeout, so that a host that is down does not use up the call's deadline.
const MODEL_CONNECT: Duration = Duration::from_secs(10);

/// Timeout of a token count request. If it expires, the tokens are estimated.
const COUNT_TIME: Duration = Duration::from_secs(10);

/// Maximum length of a service's error code. A longer value is treated as a message instead of a code.
const ERROR_CODE: usize = 60;

/// HTTP clients shared by the back ends. They are shared because building a client reads the system's certificates,
/// which is slow.
pub(super) struct HttpClients {
    anywhere: Client,
    this_machine: Client,
}

impl HttpClients {
    pub(super) fn new() -> Result<Self, ResolveError> {
        // An error means that a provider is already installed; it is always this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = || {
            Client::builder()
                .connect_timeout(MODEL_CONNECT)
                .redirect(reqwest::redirect::Policy::none())
                .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")))
        };
        let failed = |error: reqwest::Error| ResolveError::Client(error.to_string());
        Ok(Self {
            anywhere: client().build().map_err(failed)?,
            this_machine: client().no_proxy().build().map_err(failed)?,
        })
    }

    pub(super) fn for_url(&self, base: &Url) -> Client {
        // Settings allow plain HTTP only on loopback; a proxy would send prompts and key to another machine.
        if base.scheme() == "http" { self.this_machine.clone() } else { self.anywhere.clone() }
    }
}

/// A failure whose message may quote the service at any length. The key is redacted before the message is shortened for
/// callers, because truncating first could leave a part of the key.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct CallFault(pub(super) CallErrorKind, pub(super) String);

impl CallFault {
    pub(super) fn new(kind: CallErrorKind, why: &str) -> Self {
        Self(kind, why.to_owned())
    }

    /// Converts the fault to a `CallError` and redacts the key, which the service may quote.
    pub(super) fn into_call_error(
        self,
        back_end: &str,
        key: Option<&SecretString>,
        usage: Usage,
    ) -> CallError {
        let Self(mut kind, mut why) = self;
        if let CallErrorKind::Timeout { elapsed, .. } = &mut kind {
            *elapsed = usage.elapsed;
        }
        if let Some(key) = key {
            why = why.replace(key.expose_secret(), "[key]");
        }
        CallError::new(kind, format!("{back_end}: {}", quote_text(&why)), usage)
    }
}

impl From<reqwest::Error> for CallFault {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let kind = if error.is_timeout() && !error.is_connect() {
            CallErrorKind::Timeout { idle: false, elapsed: Duration::ZERO }
        } else {
            CallErrorKind::Unavailable
        };
        Self(kind, with_causes(&error))
    }
}

/// Status and relevant headers of a response.
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    /// Request id that the operator can quote to the service's support.
    request_id: Option<String>,
}

impl ResponseHead {
    /// Builds a fault from the service's error message.
    pub(super) fn fault(&self, kind: CallErrorKind, message: &str) -> CallFault {
        CallFault(kind, self.with_request_id(format!("{}: {message}", self.status)))
    }

    pub(super) fn with_request_id(&self, why: String) -> String {
        match &self.request_id {
            Some(id) => format!("request {id}: {why}"),
            None => why,
        }
    }
}

/// Sends the request and reads the response head. Marks the usage as unknown until token counts are read from the
/// response. The usage is not marked if no connection was made or if the status shows that nothing was billed.
pub(super) async fn send(
    request: RequestBuilder,
    now: Timestamp,
    usage: &mut Usage,
) -> Result<(ResponseHead, Response), CallFault> {
    (usage.attempts, usage.metered) = (usage.attempts + 1, Metering::Unknown);
    let sent = request.send().await;
    let nothing_done = match &sent {
        Ok(response) => is_unbilled_status(response.status().as_u16()),
        Err(error) => error.is_connect(),
    };
    if nothing_done {
        usage.metered = Metering::Known;
    }
    let response = sent?;
    let headers = response.headers();
    let id = ["request-id", "x-request-id"].into_iter().find_map(|name| headers.get(name)?.to_str().ok());
    let head = ResponseHead {
        status: response.status(),
        retry_after: parse_retry_after(headers, now),
        request_id: id.map(str::to_owned),
    };
    Ok((head, response))
}

/// Requests a token count, which is free. Returns `None` if the request fails or takes too long.
pub(super) async fn count_tokens(request: RequestBuilder, name: &str) -> Option<u64> {
    let response = request.timeout(COUNT_TIME).send().await.ok()?;
    let answer: Value = serde_json::from_slice(&read_body(response).await.ok()?).ok()?;
    answer[name].as_u64().filter(|count| *count > 0)
}

/// Whether this status shows that the service has billed nothing. Excludes statuses that a proxy may send without
/// knowing whether the service did the work (408, 502, 504 …).
pub(super) fn is_unbilled_status(status: u16) -> bool {
    matches!(status, 300..=407 | 409..=500 | 503 | 529)
}

/// Classifies an error status when nothing more is known about the error. `named` is the service's error code.
pub(super) fn failure_kind(status: u16, named: &Value) -> CallErrorKind {
    let is_code = |name: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        !name.is_empty() && name.len() <= ERROR_CODE && name.bytes().all(plain)
    };
    match status {
        404 => CallErrorKind::NoSuchModel,
        408 | 409 | 425 => CallErrorKind::Unavailable,
        400..=499 => {
            let code = named.as_str().filter(is_code).map_or_else(|| status.to_string(), str::to_owned);
            CallErrorKind::Rejected { code }
        }
        _ => CallErrorKind::Unavailable,
    }
}

/// Reads the whole body, up to a limit.
pub(super) async fn read_body(mut response: Response) -> Result<Vec<u8>, CallFault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limits::MODEL_ANSWER_BYTES {
            return Err(CallFault::new(CallErrorKind::InvalidOutput, "the answer is too long"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns `value` as a header value that is hidden from logs. `name` is the setting's name, for the error message.
pub(super) fn secret_header(name: &str, value: &str) -> Result<HeaderValue, CallFault> {
    let mut header = HeaderValue::from_str(value)
        .map_err(|_| CallFault(CallErrorKind::Auth, format!("{name} contains characters that no key has")))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Returns a short hash that identifies a key.
pub(super) fn key_fingerprint(key: &SecretString) -> String {
    Hash::digest_parts([key.expose_secret().as_bytes()]).short()
}

/// Parses the `Retry-After` header, which holds seconds or a date.
fn parse_retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = OffsetDateTime::parse(text, &Rfc2822).ok()?.unix_timestamp();
    Some(Timestamp(at.saturating_mul(1000)).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_parsed_as_seconds_or_date() {
        let now = Timestamp::parse("2026-02-19T10:00:00Z").unwrap();
        for (text, seconds) in [
            ("30", Some(30)),
            (" 0 ", Some(0)),
            ("Thu, 19 Feb 2026 10:01:30 GMT", Some(90)),
            ("Thu, 19 Feb 2026 09:00:00 GMT", Some(0)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e300", None),
            ("NaN", None),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(parse_retry_after(&headers, now), seconds.map(Duration::from_secs), "{text}");
        }
        assert_eq!(parse_retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn provider_error_never_contains_the_api_key() {
        let key = SecretString::from("sk-the-key");
        let fault = CallFault::new(CallErrorKind::Auth, "no such key: sk-the-key");
        let error = fault.into_call_error("service", Some(&key), Usage::for_model("model"));
        assert_eq!(error.to_string(), "service: no such key: [key]");
        let long = CallFault::new(CallErrorKind::Auth, &format!("{} sk-the-key", "x".repeat(293)));
        let error = long.into_call_error("service", Some(&key), Usage::for_model("model"));
        assert!(!error.to_string().contains("sk-"), "{error}");
        let header = secret_header("KEY", "sk-the-key").unwrap();
        assert!(!format!("{header:?}").contains("the-key"));
        assert_eq!(secret_header("KEY", "two\nlines").unwrap_err().0, CallErrorKind::Auth);
    }
}
