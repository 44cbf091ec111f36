//! Construction of the HTTP client, and of octocrab clients for REST and GraphQL.

use octocrab::Octocrab;
use url::Url;

use super::error::GitHubClientError;
use crate::types::with_causes;

/// Creates the HTTP client, which uses the proxy of the environment if there is one. The client does not follow
/// redirects, so that callers can check the targets first.
pub(super) fn http_client(api_url: &Url) -> Result<reqwest::Client, GitHubClientError> {
    // Another module may have installed a provider first; either way one is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    // Settings allow plain HTTP to this machine only; a proxy would carry tokens off it.
    let http = if api_url.scheme() == "http" { http.no_proxy() } else { http };
    http.build().map_err(|e| GitHubClientError::Client(error_chain(&e)))
}

/// Creates an octocrab client for one base URL of the API.
pub(super) fn octocrab_client(api_url: &Url, http: reqwest::Client) -> Result<Octocrab, GitHubClientError> {
    let address = |why: String| GitHubClientError::Address {
        what: "the URL of GitHub's API",
        url: api_url.to_string(),
        why,
    };
    if !matches!(api_url.scheme(), "https" | "http") || api_url.host().is_none() {
        return Err(address("it must be an http or https URL".into()));
    }
    let builder = Octocrab::builder().base_uri(api_url.as_str()).map_err(|e| address(error_chain(&e)))?;
    builder.build_with_reqwest(http).map_err(|e| GitHubClientError::Client(error_chain(&e)))
}

/// Returns the error with its causes. The text of a reqwest error itself is skipped, because it contains the URL, which
/// may hold a secret.
pub(super) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let behind = causes.filter(|error| error.is::<reqwest::Error>()).last().map(|sent| sent.source());
    behind.unwrap_or(Some(error)).map_or_else(|| "the request could not be sent".to_owned(), with_causes)
}

/// Returns the URL of the GraphQL API. On GitHub Enterprise Server it is `https://HOST/api/graphql` for
/// `https://HOST/api/v3/`.
pub(super) fn graphql_url(api_url: &Url) -> Url {
    let mut url = api_url.clone();
    if let Some(path) = api_url.path().trim_end_matches('/').strip_suffix("/v3") {
        url.set_path(path);
    }
    url
}
