//! Checks API keys by requesting the list of models, which is free.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{anthropic, http};
use crate::config::ModelSettings;

/// Timeout of a key check. It is short, because a person is waiting at a prompt.
const PATIENCE: Duration = Duration::from_secs(15);

/// A service whose keys can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiService {
    Anthropic,
    Gemini,
}

/// Result of a key check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyCheck {
    Accepted,
    /// The key is invalid; holds the reason.
    Refused(String),
    /// The service could not be reached, or its response does not tell whether the key is valid. Holds the reason.
    Unknown(String),
}

/// Checks a key against the service, at the address in these settings.
pub async fn check_key(service: ApiService, settings: &ModelSettings, key: &SecretString) -> KeyCheck {
    let (base, path, header) = match service {
        ApiService::Anthropic => (&settings.anthropic.base_url, "v1/models?limit=1", "x-api-key"),
        ApiService::Gemini => (&settings.gemini.base_url, "v1beta/models?pageSize=1", "x-goog-api-key"),
    };
    match send_get(base, path, header, key).await.map(|answer| answer.status()) {
        Ok(StatusCode::OK) => KeyCheck::Accepted,
        // Google answers an unknown key with 400.
        Ok(StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            KeyCheck::Refused(format!("{} does not accept this key", base.host_str().unwrap_or_default()))
        }
        Ok(status) => KeyCheck::Unknown(format!("{base} answers {status}")),
        Err(why) => KeyCheck::Unknown(why),
    }
}

/// Sends a GET request to a free endpoint.
pub(super) async fn send_get(
    base: &Url,
    path: &str,
    header: &str,
    key: &SecretString,
) -> Result<Response, String> {
    let client = http::HttpClients::new().map_err(|error| error.to_string())?.for_url(base);
    let secret = http::secret_header("it", key.expose_secret()).map_err(|fault| fault.to_string())?;
    let request = client
        .get(format!("{}/{path}", base.as_str().trim_end_matches('/')))
        .header(header, secret)
        .header("anthropic-version", anthropic::VERSION)
        .timeout(PATIENCE);
    request.send().await.map_err(|error| http::CallFault::from(error).to_string())
}
