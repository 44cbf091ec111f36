//! Does a key open its service? Asked without asking a model anything: the list of models is free.

use std::time::Duration;

use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::{anthropic, http};
use crate::config::ModelSettings;

/// Somebody waits at a prompt.
const PATIENCE: Duration = Duration::from_secs(15);

/// A service whose keys can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Anthropic,
    Gemini,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    Opens,
    /// Surely not, and why.
    Refused(String),
    /// The service could not be asked, or would not say.
    Unknown(String),
}

/// Tries a key where these settings have its service.
pub async fn try_key(service: Service, settings: &ModelSettings, key: &SecretString) -> Trial {
    let (base, path, header) = match service {
        Service::Anthropic => (&settings.anthropic.base_url, "v1/models?limit=1", "x-api-key"),
        Service::Gemini => (&settings.gemini.base_url, "v1beta/models?pageSize=1", "x-goog-api-key"),
    };
    match get(base, path, header, key).await.map(|answer| answer.status()) {
        Ok(StatusCode::OK) => Trial::Opens,
        // Google calls a key that it does not know a bad request.
        Ok(StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            Trial::Refused(format!("{} does not accept this key", base.host_str().unwrap_or_default()))
        }
        Ok(status) => Trial::Unknown(format!("{base} answers {status}")),
        Err(why) => Trial::Unknown(why),
    }
}

/// Sends a GET that costs nothing.
pub(super) async fn get(
    base: &Url,
    path: &str,
    header: &str,
    key: &SecretString,
) -> Result<Response, String> {
    let client = http::Clients::new().map_err(|error| error.to_string())?.of(base);
    let secret = http::secret("it", key.expose_secret()).map_err(|fault| fault.to_string())?;
    let request = client
        .get(format!("{}/{path}", base.as_str().trim_end_matches('/')))
        .header(header, secret)
        .header("anthropic-version", anthropic::VERSION)
        .timeout(PATIENCE);
    request.send().await.map_err(|error| http::Fault::from(error).to_string())
}
