//! Low-level client of GitHub's REST API. Every call goes through [`GitHubApi::send`], which signs it, limits time and
//! size, and turns failures into a [`GitHubApiError`].
//!
//! This module works around three habits of octocrab:
//! 1. Its installation clients fetch one token per clone and per concurrent first call. We fetch tokens ourselves, one
//!    at a time per installation, and pass them to access-token clients.
//! 2. It signs only requests to relative addresses. We always pass a path, also for the next page of a listing.
//! 3. Its errors lose the headers that say how long to wait. We use its raw requests.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use octocrab::Octocrab;
use secrecy::SecretString;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::{
    client::{error_chain, graphql_url, http_client, octocrab_client},
    error::{GitHubApiError, GitHubClientError, classify, rate_limit_reset},
    etag_cache::{CachedApiResponse, EtagCache},
    key::AppKey,
    manifest::{GitHubEndpoint, INSTALLATION_TOKEN},
    wire::{SecretField, with_unix_lines},
    write_pacing::{Pacing, WritePacer, WritePriority},
};
use crate::{
    clock::SharedClock,
    config, limits,
    store::Store,
    types::{InstallationId, Timestamp},
};

/// Timeout of one REST call, including the whole response.
const GITHUB_CALL: Duration = Duration::from_secs(30);

/// Minimum remaining time of the node's lease at which a write may start.
const LEAST_LEASE: Duration = Duration::from_secs(2);

/// Time before the expiry of an installation token during which the token is not used for new work.
const TOKEN_MARGIN: Duration = Duration::from_secs(120);

/// Maximum size of an API response, in bytes. Blobs are the largest responses.
const GITHUB_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Maximum size of a file that GitHub stores outside its API, such as a job log, in bytes.
const FILE_BYTES: usize = 256 * 1024 * 1024;

/// Credentials of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApiIdentity {
    Anonymous,
    /// The App itself, with a JWT that it signs.
    App,
    Installation(InstallationId),
}

/// Callback for every API call sent; its argument is true for a write. Calls with a cached (304) response are included.
/// Token requests are not included, because all runs of an installation share the tokens.
#[derive(Clone)]
pub struct ApiCallCounter(Arc<dyn Fn(bool) + Send + Sync>);

impl ApiCallCounter {
    pub fn new(count: impl Fn(bool) + Send + Sync + 'static) -> Self {
        Self(Arc::new(count))
    }
}

impl fmt::Debug for ApiCallCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counter")
    }
}

/// A call to be sent.
#[derive(Debug, Clone)]
pub(crate) struct ApiRequest {
    call: &'static GitHubEndpoint,
    route: String,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    /// Name of the call in errors and logs.
    shown: String,
    priority: WritePriority,
    /// Whether the response may be cached with its ETag. GitHub does not count a call towards the rate limit if its
    /// response is unchanged.
    cacheable: bool,
    counter: Option<ApiCallCounter>,
}

impl ApiRequest {
    /// Creates a request; `values` fill the placeholders of the endpoint's route, in order.
    pub(crate) fn new(call: &'static GitHubEndpoint, values: &[&str]) -> Self {
        let route = call.route(values);
        let shown = format!("{} {route}", call.method());
        let (query, priority) = (Vec::new(), WritePriority::Work);
        Self { call, route, query, body: None, shown, priority, cacheable: false, counter: None }
    }

    pub(crate) fn query(mut self, key: &'static str, value: impl ToString) -> Self {
        self.query.push((key, value.to_string()));
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets the priority of this write among writes that wait for their turn.
    pub(crate) fn priority(mut self, priority: WritePriority) -> Self {
        self.priority = priority;
        self
    }

    /// Allows the response to be cached. Used for reads that runs repeat.
    pub(crate) fn cacheable(mut self) -> Self {
        self.cacheable = true;
        self
    }

    pub(crate) fn with_counter(mut self, counter: Option<ApiCallCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Makes errors and logs show the route's template instead of the route itself, because a value in the route is a
    /// secret.
    pub(crate) fn with_secret_route(mut self) -> Self {
        self.shown = self.call.to_string();
        self
    }

    pub(crate) fn route(&self) -> &str {
        &self.route
    }

    /// Returns whether this is a GraphQL call, which has another base address than REST calls.
    fn is_graphql(&self) -> bool {
        self.route == "/graphql"
    }

    /// Replaces the route, to follow a redirect or a next page.
    pub(crate) fn with_route(mut self, route: String) -> Self {
        self.route = route;
        self
    }

    fn target(&self) -> String {
        if self.query.is_empty() {
            return self.route.clone();
        }
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.query).finish();
        format!("{}?{query}", self.route)
    }

    fn is_read_only(&self) -> bool {
        *self.call.method() == Method::GET
    }
}

/// A successful response with its headers.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    shown: String,
}

impl ApiResponse {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, GitHubApiError> {
        // JSON escapes `\r` in one of two ways; most responses contain neither.
        if [&b"\\r"[..], b"\\u000"]
            .iter()
            .any(|escape| self.body.windows(escape.len()).any(|at| at == *escape))
        {
            let value = with_unix_lines(self.json_verbatim()?);
            return serde_json::from_value(value).map_err(|e| GitHubApiError::unexpected(&self.shown, e));
        }
        self.json_verbatim()
    }

    /// Parses the body and keeps its line endings.
    pub(crate) fn json_verbatim<T: DeserializeOwned>(&self) -> Result<T, GitHubApiError> {
        serde_json::from_slice(&self.body).map_err(|e| GitHubApiError::unexpected(&self.shown, e))
    }

    fn etag(&self) -> Option<String> {
        Some(self.headers.get(header::ETAG)?.to_str().ok()?.to_owned())
    }

    /// Returns path and query of the `Link` header with this `rel`. Never returns the host, so that credentials cannot
    /// be sent to another server.
    fn link_target(&self, rel: &str) -> Option<String> {
        let wanted = format!("rel=\"{rel}\"");
        let links = self.headers.get(header::LINK)?.to_str().ok()?;
        let link = links.split(',').find(|link| link.split(';').skip(1).any(|p| p.trim() == wanted))?;
        let url = link.split(';').next()?.trim().strip_prefix('<')?.strip_suffix('>')?;
        path_and_query(url)
    }

    /// Returns whether the listing has another page.
    pub(crate) fn has_next_page(&self) -> bool {
        self.link_target("next").is_some()
    }

    /// Returns the number of pages of the listing to which this first page belongs; `None` if GitHub does not report
    /// it.
    pub(crate) fn page_count(&self) -> Option<usize> {
        if !self.has_next_page() {
            return Some(1);
        }
        let last = self.link_target("last")?;
        let (_, query) = last.split_once('?')?;
        form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "page")?.1.parse().ok()
    }
}

/// Returns `/path?query` of an absolute or relative URL.
pub(crate) fn path_and_query(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    Some(uri.path_and_query()?.as_str().to_owned())
}

/// State of one installation. While one caller fetches a token, concurrent callers wait for it.
#[derive(Default)]
struct InstallationSession {
    token: tokio::sync::Mutex<Option<InstallationClient>>,
    /// End of the current rate limit, in Unix milliseconds. GitHub penalises calls made before this time.
    limited_until: AtomicI64,
    /// Like `limited_until`, but for searches, which have a separate limit.
    searches_until: AtomicI64,
}

#[derive(Clone)]
struct InstallationClient {
    client: Arc<Octocrab>,
    graphql: Arc<Octocrab>,
    expires: Timestamp,
    granted: GrantedPermissions,
}

impl InstallationClient {
    fn client_for(&self, request: &ApiRequest) -> &Octocrab {
        if request.is_graphql() { &self.graphql } else { &self.client }
    }
}

pub(crate) struct GitHubApi {
    /// The App's id and private key; `None` for a client that only makes anonymous calls.
    key: Option<(u64, config::ReloadableValue<AppKey>)>,
    nobody: Octocrab,
    graphql: Octocrab,
    /// Client without credentials, for files that GitHub stores elsewhere.
    files: reqwest::Client,
    sessions: Mutex<HashMap<InstallationId, Arc<InstallationSession>>>,
    /// Path of the API's URL without its last `/`; `/api/v3` on GitHub Enterprise Server.
    base_path: String,
    clock: SharedClock,
    /// Number of milliseconds by which GitHub's clock was ahead of ours at its last response.
    ahead: Mutex<Option<i64>>,
    pace: WritePacer,
    answers: EtagCache,
    left: RemainingRateLimits,
    /// Writes that were suppressed; set only in read-only mode.
    unsent: OnceLock<Mutex<Vec<SuppressedWrite>>>,
}

/// A write that read-only mode did not send.
#[derive(Debug, Clone)]
pub struct SuppressedWrite {
    /// Method and route.
    pub call: String,
    pub body: Option<Value>,
}

/// Remaining calls of each installation, by rate limit. Each entry is valid until its limit is reset.
#[derive(Clone, Default)]
pub struct RemainingRateLimits(Arc<Mutex<RemainingByLimit>>);

type RemainingByLimit = HashMap<(InstallationId, &'static str), (i64, Timestamp)>;

impl RemainingRateLimits {
    /// Returns, for each limit, the number of remaining calls of the installation that has the fewest left. Entries
    /// past their reset are ignored.
    pub fn lowest_by_limit(&self, now: Timestamp) -> BTreeMap<&'static str, i64> {
        let mut lowest = BTreeMap::new();
        for ((_, limit), (left, until)) in self.lock().iter() {
            if *until > now {
                lowest
                    .entry(*limit)
                    .and_modify(|other: &mut i64| *other = (*left).min(*other))
                    .or_insert(*left);
            }
        }
        lowest
    }

    fn lock(&self) -> MutexGuard<'_, RemainingByLimit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// GitHub's names of the rate limits that are recorded separately. Any other limit is recorded as `other`.
const LIMITS: [&str; 3] = ["core", "graphql", "search"];

impl InstallationSession {
    /// Returns an error while one of GitHub's rate limits is in force. `shared_limit` returns the end of a limit that
    /// other processes recorded; its argument is true for the search limit. An end that is more than
    /// [`limits::RATE_WAIT`] away is ignored, because it comes from a clock that was set back.
    fn check_rate_limit(
        &self,
        now: Timestamp,
        search: bool,
        shared_limit: impl Fn(bool) -> Option<Timestamp>,
    ) -> Result<(), GitHubApiError> {
        let own = |limit: &AtomicI64| Some(Timestamp(limit.load(Ordering::Relaxed)));
        let all = [own(&self.limited_until), shared_limit(false)];
        let searches = [own(&self.searches_until), shared_limit(true)].into_iter().filter(|_| search);
        for until in all.into_iter().chain(searches).flatten() {
            if until > now && until.since(now) <= limits::RATE_WAIT {
                return Err(GitHubApiError::RateLimited { until });
            }
        }
        Ok(())
    }

    fn set_rate_limit(&self, until: Timestamp, search: bool) {
        let limit = if search { &self.searches_until } else { &self.limited_until };
        limit.store(until.0, Ordering::Relaxed);
    }
}

impl GitHubApi {
    /// Creates a client. Must be called inside a tokio runtime, because octocrab starts a worker in it.
    pub(crate) fn new(
        api_url: &Url,
        app_id: u64,
        key: &SecretString,
        pacing: Pacing,
        clock: SharedClock,
    ) -> Result<Self, GitHubClientError> {
        let key = AppKey::from_pem(key)?;
        let http = http_client(api_url)?;
        Ok(Self {
            key: Some((app_id, config::ReloadableValue::new(key))),
            nobody: octocrab_client(api_url, http.clone())?,
            graphql: octocrab_client(&graphql_url(api_url), http.clone())?,
            files: http,
            sessions: Mutex::default(),
            base_path: api_url.path().trim_end_matches('/').to_owned(),
            clock: clock.clone(),
            ahead: Mutex::default(),
            pace: WritePacer::new(pacing, clock),
            answers: EtagCache::default(),
            left: RemainingRateLimits::default(),
            unsent: OnceLock::new(),
        })
    }

    pub(crate) fn remaining_rate_limits(&self) -> &RemainingRateLimits {
        &self.left
    }

    fn record_remaining(&self, id: InstallationId, headers: &HeaderMap) {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name| text(name)?.parse::<i64>().ok();
        let Some(left) = number("x-ratelimit-remaining") else { return };
        let Some(reset) = number("x-ratelimit-reset") else { return };
        let named = |limit: &&str| text("x-ratelimit-resource") == Some(limit);
        let limit = LIMITS.into_iter().find(named).unwrap_or("other");
        self.left.lock().insert((id, limit), (left, Timestamp(reset.saturating_mul(1000))));
    }

    /// Replaces the signing key.
    pub(crate) fn replace_key(&self, key: &SecretString) -> Result<(), GitHubClientError> {
        let new = AppKey::from_pem(key)?;
        if let Some((_, key)) = &self.key {
            key.set(new);
        }
        Ok(())
    }

    /// Shares the write pace with the other processes of the App; see [`WritePacer::share_with`].
    pub(crate) fn share_pace(&self, store: Arc<Store>) {
        self.pace.share_with(store);
    }

    pub(crate) fn set_read_only(&self) {
        self.unsent.get_or_init(Mutex::default);
    }

    /// Returns the writes suppressed since [`set_read_only`](Self::set_read_only), oldest first.
    pub(crate) fn suppressed_writes(&self) -> Vec<SuppressedWrite> {
        let unsent = self.unsent.get().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner).clone());
        unsent.unwrap_or_default()
    }

    pub(crate) fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Sends a call and returns its successful response.
    ///
    /// A read that failed in transit is retried once, immediately. A write is never retried, because it may have taken
    /// effect. If GitHub refuses the installation token, the call is sent once more with a new token, because a refused
    /// call had no effect.
    pub(crate) async fn send(
        &self,
        who: ApiIdentity,
        request: ApiRequest,
    ) -> Result<ApiResponse, GitHubApiError> {
        if let Some(unsent) = self.unsent.get().filter(|_| !request.is_read_only()) {
            let (call, body) = (request.shown.clone(), request.body.clone());
            unsent.lock().unwrap_or_else(PoisonError::into_inner).push(SuppressedWrite { call, body });
            let message = "not sent: this client is read-only".to_owned();
            return Err(GitHubApiError::Forbidden {
                call: request.shown,
                accepted_permissions: None,
                message,
            });
        }
        let first = self.send_once(who, &request).await;
        match first {
            Err(GitHubApiError::Transient { why, .. }) if request.is_read_only() => {
                tracing::debug!(call = %request.shown, %why, "read failed; retrying once");
                self.send_once(who, &request).await
            }
            other => other,
        }
    }

    /// Stops all calls for this installation until the given time.
    pub(crate) fn pause_installation(&self, id: InstallationId, until: Timestamp) {
        self.session_for(id).set_rate_limit(until, false);
    }

    async fn send_once(&self, who: ApiIdentity, request: &ApiRequest) -> Result<ApiResponse, GitHubApiError> {
        let id = match who {
            ApiIdentity::Anonymous => return self.exchange(&self.nobody, request, None).await,
            ApiIdentity::App => return self.exchange(&self.app_client()?, request, None).await,
            ApiIdentity::Installation(id) => id,
        };
        let (session, search) = (self.session_for(id), request.route.starts_with("/search/"));
        let open = || {
            session.check_rate_limit(self.clock.now(), search, |search| self.pace.shared_limit(id, search))
        };
        open()?;
        if !request.is_read_only() {
            if !self.pace.wait_for_turn(id, request.priority).await {
                let why = "too many writes of higher priority are waiting".to_owned();
                return Err(GitHubApiError::TemporarilyRefused { call: request.shown.clone(), why });
            }
            // The limit may have started during the wait.
            open()?;
        }
        let sent = self.send_as_installation(id, &session, search, request);
        match self.pace.longest_write().filter(|_| !request.is_read_only()) {
            // GitHub cannot check our lease, so a write must not arrive after the lease ended.
            Some(most) => tokio::time::timeout(most, sent).await.unwrap_or_else(|_| {
                Err(GitHubApiError::Transient {
                    call: request.shown.clone(),
                    why: "this server's lease ended during the write".into(),
                })
            }),
            None => sent.await,
        }
    }

    /// Checks the lease once more just before a write. The machine may have been suspended since the last check, and
    /// timeouts do not count the time of a suspension.
    fn check_lease(&self, request: &ApiRequest) -> Result<(), GitHubApiError> {
        match self.pace.longest_write() {
            Some(most) if most < LEAST_LEASE && !request.is_read_only() => {
                Err(GitHubApiError::TemporarilyRefused {
                    call: request.shown.clone(),
                    why: "this server's lease is about to end".into(),
                })
            }
            _ => Ok(()),
        }
    }

    async fn send_as_installation(
        &self,
        id: InstallationId,
        session: &Arc<InstallationSession>,
        search: bool,
        request: &ApiRequest,
    ) -> Result<ApiResponse, GitHubApiError> {
        let target = request.target();
        let kept = self.answers.get(id, &target).filter(|_| request.cacheable);
        let live = self.installation_client(id, session, None).await?;
        self.check_lease(request)?;
        let mut result = self.exchange(live.client_for(request), request, kept.as_ref()).await;
        if matches!(result, Err(GitHubApiError::Unauthorized { .. })) {
            let renewed = self.installation_client(id, session, Some(&live)).await?;
            self.check_lease(request)?;
            result = self.exchange(renewed.client_for(request), request, kept.as_ref()).await;
        }
        if let Ok(answer) = &result {
            if let Some(tag) = answer.etag().filter(|_| request.cacheable) {
                self.answers.insert(id, &target, CachedApiResponse { tag, body: answer.body.clone() });
            }
            self.record_remaining(id, &answer.headers);
        }
        let limited = match &result {
            Ok(answer) => rate_limit_reset(&answer.headers, self.clock.now()),
            Err(GitHubApiError::RateLimited { until }) => Some(*until),
            Err(_) => None,
        };
        if let Some(until) = limited {
            session.set_rate_limit(until, search);
            self.pace.publish_limit(id, search, until);
        }
        result
    }

    /// Returns a client that authenticates as the App with a new JWT. Octocrab would sign with the machine's clock; we
    /// use our own.
    fn app_client(&self) -> Result<Octocrab, GitHubApiError> {
        #[derive(serde::Serialize)]
        struct JwtClaims {
            iss: String,
            iat: i64,
            exp: i64,
        }
        let (app_id, key) =
            self.key.as_ref().ok_or_else(|| GitHubApiError::Invalid("this client has no App key".into()))?;
        let now = self.clock.now().0.div_euclid(1000);
        // GitHub allows ten minutes in all. Starting a minute in the past and ending two minutes early tolerates clock
        // drift.
        let claims = JwtClaims { iss: app_id.to_string(), iat: now - 60, exp: now + 8 * 60 };
        let cannot_sign = || GitHubApiError::Invalid("the App's private key cannot sign".into());
        let token = key.get().sign(&claims).ok_or_else(cannot_sign)?;
        self.nobody.user_access_token(token).map_err(|e| GitHubApiError::Invalid(error_chain(&e)))
    }

    fn session_for(&self, id: InstallationId) -> Arc<InstallationSession> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sessions.entry(id).or_default())
    }

    /// Returns the installation's client, with a token that is neither `refused` nor about to expire.
    async fn installation_client(
        &self,
        id: InstallationId,
        session: &InstallationSession,
        refused: Option<&InstallationClient>,
    ) -> Result<InstallationClient, GitHubApiError> {
        let mut token = session.token.lock().await;
        let usable = |live: &&InstallationClient| {
            live.expires > self.clock.now().plus(TOKEN_MARGIN)
                && refused.is_none_or(|refused| !Arc::ptr_eq(&refused.client, &live.client))
        };
        if let Some(live) = token.as_ref().filter(usable) {
            return Ok(live.clone());
        }
        *token = None;
        let minted = self.create_token(id, serde_json::json!({})).await?;
        let client = |nobody: &Octocrab| {
            let client = nobody.user_access_token(minted.token.clone());
            client
                .map(Arc::new)
                .map_err(|e| GitHubApiError::unexpected(&INSTALLATION_TOKEN.to_string(), error_chain(&e)))
        };
        let (client, graphql) = (client(&self.nobody)?, client(&self.graphql)?);
        let live = InstallationClient { client, graphql, expires: minted.expires, granted: minted.granted };
        *token = Some(live.clone());
        Ok(live)
    }

    /// Returns the permissions granted to the installation, as listed with its token. If the permissions are not
    /// `enough`, fetches a new token first, because someone may have granted more permissions.
    pub(crate) async fn granted_permissions(
        &self,
        id: InstallationId,
        enough: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> Result<GrantedPermissions, GitHubApiError> {
        let session = self.session_for(id);
        let live = self.installation_client(id, &session, None).await?;
        match &live.granted {
            Some(granted) if !enough(granted) => {
                Ok(self.installation_client(id, &session, Some(&live)).await?.granted)
            }
            _ => Ok(live.granted),
        }
    }

    /// Creates an installation token; `scope` restricts it.
    pub(crate) async fn create_token(
        &self,
        id: InstallationId,
        scope: Value,
    ) -> Result<InstallationToken, GitHubApiError> {
        #[derive(Deserialize)]
        struct AccessTokenResponse {
            token: SecretField,
            expires_at: String,
            permissions: Option<BTreeMap<String, String>>,
        }
        let request = ApiRequest::new(&INSTALLATION_TOKEN, &[&id.to_string()]).body(scope);
        let answer =
            self.exchange(&self.app_client()?, &request, None).await.map_err(|fault| match fault {
                // GitHub knows the App here, so the account must have suspended it, which the account can lift at any
                // time.
                GitHubApiError::Forbidden { call, message, .. } => {
                    GitHubApiError::TemporarilyRefused { call, why: message }
                }
                other => other,
            })?;
        // `ApiResponse::json` is not used: a serde error may quote the token.
        let token: AccessTokenResponse = serde_json::from_slice(&answer.body)
            .map_err(|_| GitHubApiError::unexpected(&request.shown, "no token in it"))?;
        let expires =
            Timestamp::parse(&token.expires_at).map_err(|e| GitHubApiError::unexpected(&request.shown, e))?;
        Ok(InstallationToken { token: token.token.0, expires, granted: token.permissions.map(Arc::new) })
    }

    /// Sends one request and reads its response within [`GITHUB_CALL`]. If GitHub reports that the cached response has
    /// not changed, the cached response is returned.
    async fn exchange(
        &self,
        client: &Octocrab,
        request: &ApiRequest,
        kept: Option<&CachedApiResponse>,
    ) -> Result<ApiResponse, GitHubApiError> {
        let call = request.shown.as_str();
        if let Some(ApiCallCounter(count)) = &request.counter {
            count(!request.is_read_only());
        }
        let lost = |why: String| GitHubApiError::transient(call, why);
        let work = Box::pin(async {
            let builder = http::Request::builder()
                .method(request.call.method().clone())
                .uri(request.target())
                .header(header::ACCEPT, "application/vnd.github+json")
                .header("x-github-api-version", "2022-11-28");
            let builder = match kept {
                Some(kept) => builder.header(header::IF_NONE_MATCH, &kept.tag),
                None => builder,
            };
            let built = client
                .build_request(builder, request.body.as_ref())
                .map_err(|e| GitHubApiError::Invalid(format!("{call}: {}", error_chain(&e))))?;
            let response = client.execute(built).await.map_err(|e| lost(error_chain(&e)))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, GITHUB_ANSWER_BYTES)
                .collect()
                .await
                .map_err(|e| match e.is::<http_body_util::LengthLimitError>() {
                    true => GitHubApiError::unexpected(
                        call,
                        format!("the response is larger than {} MB", GITHUB_ANSWER_BYTES >> 20),
                    ),
                    false => lost(format!("the connection broke during the response: {e}")),
                })?
                .to_bytes();
            Ok((head.status, head.headers, body))
        });
        let (status, headers, body): (StatusCode, HeaderMap, Bytes) = tokio::time::timeout(GITHUB_CALL, work)
            .await
            .map_err(|_| lost(format!("no response within {} s", GITHUB_CALL.as_secs())))??;
        self.record_clock_offset(&headers);
        tracing::debug!(call, status = status.as_u16(), "called GitHub");
        let shown = request.shown.clone();
        match kept {
            _ if status.is_success() => return Ok(ApiResponse { headers, body, shown }),
            Some(kept) if status == StatusCode::NOT_MODIFIED => {
                return Ok(ApiResponse { headers, body: kept.body.clone(), shown });
            }
            _ => {}
        }
        Err(classify(call, status, &headers, &body, self.clock.now()))
    }

    /// Returns the last bytes of a file that GitHub stores outside its API. The file is fetched without credentials and
    /// within [`GITHUB_CALL`]. A file above [`FILE_BYTES`] is an error.
    pub(crate) async fn download_tail(&self, url: Url, bytes: usize) -> Result<Vec<u8>, String> {
        // Plain HTTP is allowed on this machine only, for the rehearsal server.
        if url.scheme() != "https"
            && !url.host_str().is_some_and(|host| host == "127.0.0.1" || host == "localhost")
        {
            return Err("its address is not https".to_owned());
        }
        let (mut end, mut read) = (Vec::new(), 0);
        let reading = async {
            let mut answer = self.files.get(url).send().await.map_err(|e| error_chain(&e))?;
            if !answer.status().is_success() {
                return Err(format!("status {}", answer.status().as_u16()));
            }
            while let Some(chunk) = answer.chunk().await.map_err(|e| error_chain(&e))? {
                end.extend_from_slice(&chunk);
                end.drain(..end.len().saturating_sub(bytes));
                read += chunk.len();
                if read > FILE_BYTES {
                    return Err(format!("it is longer than {FILE_BYTES} bytes"));
                }
            }
            Ok(end)
        };
        let read = tokio::time::timeout(GITHUB_CALL, reading).await;
        read.unwrap_or_else(|_| Err("reading it took too long".to_owned()))
    }

    fn record_clock_offset(&self, headers: &HeaderMap) {
        let format = time::macros::format_description!(
            "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
        );
        let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| time::PrimitiveDateTime::parse(date, format).ok());
        if let Some(date) = date {
            let theirs = date.assume_utc().unix_timestamp() * 1000;
            *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(theirs - self.clock.now().0);
        }
    }

    /// Returns the number of milliseconds by which GitHub's clock was ahead of ours at its last response; negative if
    /// it was behind.
    pub(crate) fn clock_ahead(&self) -> Option<i64> {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the route of a listing's next page; `None` after the last page.
    pub(crate) fn next_page(&self, answer: &ApiResponse) -> Option<String> {
        let link = answer.link_target("next")?;
        Some(link.strip_prefix(&self.base_path).unwrap_or(&link).to_owned())
    }

    /// Returns all items of a listing. If GitHub wraps the array in an object, `key` is the name of the array's field.
    pub(crate) async fn list_all<T: DeserializeOwned>(
        &self,
        who: ApiIdentity,
        request: ApiRequest,
        key: Option<&str>,
    ) -> Result<Vec<T>, GitHubApiError> {
        let mut items = Vec::new();
        let mut next = request.query("per_page", 100);
        for _ in 0..limits::GITHUB_PAGES {
            let answer = self.send(who, next.clone()).await?;
            items.extend(answer.items::<T>(key)?);
            let Some(route) = self.next_page(&answer) else {
                return Ok(items);
            };
            next.query.clear();
            next = next.with_route(route);
        }
        Err(GitHubApiError::unexpected(&next.shown, format!("more than {} pages", limits::GITHUB_PAGES)))
    }
}

impl ApiResponse {
    /// Returns the items of one page of a listing.
    pub(crate) fn items<T: DeserializeOwned>(&self, key: Option<&str>) -> Result<Vec<T>, GitHubApiError> {
        let page: Value = self.json()?;
        let page = match key {
            Some(key) => page.get(key).cloned().unwrap_or(Value::Null),
            None => page,
        };
        serde_json::from_value(page).map_err(|e| GitHubApiError::unexpected(&self.shown, e))
    }
}

/// An installation token with its expiry.
pub(crate) struct InstallationToken {
    pub(crate) token: SecretString,
    pub(crate) expires: Timestamp,
    granted: GrantedPermissions,
}

/// An installation's permissions by name; `None` if GitHub did not list them.
pub(crate) type GrantedPermissions = Option<Arc<BTreeMap<String, String>>>;

/// Sends a call without an App; used to create the App.
pub(crate) async fn send_anonymously(
    api_url: &Url,
    request: ApiRequest,
    clock: SharedClock,
) -> Result<ApiResponse, GitHubApiError> {
    let failed = |why: String| GitHubApiError::Invalid(format!("{}: {why}", request.shown));
    let made = http_client(api_url).and_then(|files| Ok((octocrab_client(api_url, files.clone())?, files)));
    let (nobody, files) = made.map_err(|e| failed(e.to_string()))?;
    let base_path = String::new();
    let ahead = Mutex::default();
    let (pace, answers) = (WritePacer::new(Pacing::Off, clock.clone()), EtagCache::default());
    let graphql = nobody.clone();
    let api = GitHubApi {
        key: None,
        nobody,
        graphql,
        files,
        sessions: Mutex::default(),
        base_path,
        clock,
        ahead,
        pace,
        answers,
        left: RemainingRateLimits::default(),
        unsent: OnceLock::new(),
    };
    api.send(ApiIdentity::Anonymous, request).await
}
