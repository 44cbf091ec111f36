//! The door through which every API back end goes out: one pair of clients, answers read up to a bound, and faults
//! told without an address or a secret in them. What an answer means is for the back end to say.

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

/// Connecting to a model's API; a host that is down should not cost a whole call's time.
const MODEL_CONNECT: Duration = Duration::from_secs(10);

/// A count of tokens; without one the prompt is estimated.
const COUNT_TIME: Duration = Duration::from_secs(10);

/// Characters of the word that a service has for an error; what is longer is prose.
const ERROR_CODE: usize = 60;

/// Shared by the back ends: making a client reads the system's certificates.
pub(super) struct HttpClients {
    anywhere: Client,
    this_machine: Client,
}

impl HttpClients {
    pub(super) fn new() -> Result<Self, ResolveError> {
        // An error means that one is installed already: the same one, for there is no other here.
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

    /// The client for what is below `base`.
    pub(super) fn for_url(&self, base: &Url) -> Client {
        // Settings allow plain HTTP to this machine only; a proxy would carry prompts and key off it.
        if base.scheme() == "http" { self.this_machine.clone() } else { self.anywhere.clone() }
    }
}

/// Why there is no answer, in words that may quote the service at any length; the caller gets them shortened, after the
/// key was taken out of them: a cut in the middle of one would leave the rest of it.
#[derive(Debug, thiserror::Error)]
#[error("{1}")]
pub(super) struct CallFault(pub(super) CallErrorKind, pub(super) String);

impl CallFault {
    pub(super) fn new(kind: CallErrorKind, why: &str) -> Self {
        Self(kind, why.to_owned())
    }

    /// As the caller gets it. A service may quote its key back at us.
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

/// What stands above an answer's body.
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<Duration>,
    /// What the service's people find the call by.
    request_id: Option<String>,
}

impl ResponseHead {
    /// A fault that the service told of.
    pub(super) fn fault(&self, kind: CallErrorKind, message: &str) -> CallFault {
        CallFault(kind, self.with_request_id(format!("{}: {message}", self.status)))
    }

    /// Adds the call's id, where the service gave one.
    pub(super) fn with_request_id(&self, why: String) -> String {
        match &self.request_id {
            Some(id) => format!("request {id}: {why}"),
            None => why,
        }
    }
}

/// Sends, and reads what stands above the body. From here on nobody knows what the call costs, until the tokens are read
/// that the answer counts: unless no request left this machine, or the service itself answered that it did nothing.
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

/// Asks for a free count of tokens; `None` where it does not come soon, whatever the reason.
pub(super) async fn count_tokens(request: RequestBuilder, name: &str) -> Option<u64> {
    let response = request.timeout(COUNT_TIME).send().await.ok()?;
    let answer: Value = serde_json::from_slice(&read_body(response).await.ok()?).ok()?;
    answer[name].as_u64().filter(|count| *count > 0)
}

/// Is an answer with this status a service's own word that it did nothing? What stands before a service and lost sight
/// of it, or of us, cannot know (408, 502, 504 …).
pub(super) fn is_unbilled_status(status: u16) -> bool {
    matches!(status, 300..=407 | 409..=500 | 503 | 529)
}

/// A status that says that our request is at fault, where nothing more is known of it. `named`: what the service calls it.
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

/// The whole body, unless it is longer than any honest one.
pub(super) async fn read_body(mut response: Response) -> Result<Vec<u8>, CallFault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > limits::MODEL_ANSWER_BYTES {
            return Err(CallFault::new(CallErrorKind::InvalidOutput, "the answer is too long to be one"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// `value` as a header that no log shows; `name` is what the operator calls it.
pub(super) fn secret_header(name: &str, value: &str) -> Result<HeaderValue, CallFault> {
    let mut header = HeaderValue::from_str(value)
        .map_err(|_| CallFault(CallErrorKind::Auth, format!("{name} holds characters no key has")))?;
    header.set_sensitive(true);
    Ok(header)
}

/// What the books know a key by.
pub(super) fn key_fingerprint(key: &SecretString) -> String {
    Hash::digest_parts([key.expose_secret().as_bytes()]).short()
}

/// `Retry-After` in either of its forms: seconds, or the time itself.
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
    fn a_wait_is_read_in_seconds_and_as_a_date() {
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
    fn a_fault_shows_no_key_however_the_service_quotes_it() {
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
