//! The App itself: construction of its client, its identity and its installations.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::OnceCell;
use url::Url;

use super::{
    api::{ApiIdentity, ApiRequest, GitHubApi, RemainingRateLimits, SuppressedWrite, send_anonymously},
    error::{GitHubApiError, GitHubClientError},
    event::RepoRef,
    manifest::{
        APP, CONVERT_MANIFEST, HOOK_CONFIG, INSTALLATION, INSTALLATION_REPOSITORIES, INSTALLATIONS, USER,
    },
    repo::{GitHubRepo, RepoInfo},
    uncertain_writes::UncertainWrites,
    wire::{GitHubUser, SecretField},
    write_pacing::Pacing,
};
use crate::{
    clock::SharedClock,
    config::GitHubSettings,
    store::Store,
    types::{Actor, InstallationId, RepoId, RepoName, Timestamp, UserId},
};

/// Time for which a repository's cached name and id are used without a new check. The writes of one step come in a
/// burst; without the cache, each write would check them again.
const REPO_INFO_TTL: Duration = Duration::from_secs(10);

/// Minimum remaining lifetime of a git token that is reused. A fetch of a large repository takes minutes.
const GIT_TOKEN_MARGIN: Duration = Duration::from_secs(600);

/// Lifetime of a cached node id. It is limited, because a label that somebody deletes and creates again gets another
/// id.
const NODE_HOLDS: Duration = Duration::from_secs(3600);

/// Maximum number of entries per cache.
const KEPT: usize = 4096;

/// Values by name, each with an expiry.
struct ExpiringMap<T>(Mutex<HashMap<String, (T, Timestamp)>>);

/// Node ids by keys such as `8123 label NAME` and `8123 issue 42`.
type NodeIdCache = ExpiringMap<String>;

/// Tokens that can read one repository's code, by installation and repository.
type GitTokenCache = ExpiringMap<SecretString>;

impl<T> Default for ExpiringMap<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> ExpiringMap<T> {
    fn get(&self, name: &str, now: Timestamp) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(name).filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    fn keep(&self, name: String, value: T, until: Timestamp) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(name, (value, until));
    }

    fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// Configuration of a [`GitHub`] client.
#[derive(Clone)]
pub struct GitHubOptions {
    /// Base URL of the API: `https://api.github.com/`, or `https://HOST/api/v3/` on GitHub Enterprise Server.
    pub api_url: Url,
    /// Base URL of pages for people: `https://github.com/`.
    pub web_url: Url,
    pub app_id: u64,
    /// The App's RSA key in PEM form, as downloaded from GitHub.
    pub private_key: SecretString,
    /// Write pacing of the client. It is [`Pacing::for_api`] of the URL, unless a test or benchmark measures the pace.
    pub pacing: Pacing,
    pub clock: SharedClock,
}

/// Client of GitHub for this App. Clones share tokens and connections.
#[derive(Clone)]
pub struct GitHub {
    inner: Arc<GitHubInner>,
}

struct GitHubInner {
    api: GitHubApi,
    web_url: Url,
    app_id: u64,
    bot: OnceCell<Actor>,
    /// Repository info as fetched last, with the time of the fetch; see [`REPO_INFO_TTL`].
    described: Mutex<HashMap<RepoId, (RepoName, RepoInfo, Timestamp)>>,
    doubts: UncertainWrites,
    nodes: NodeIdCache,
    git_tokens: GitTokenCache,
    clock: SharedClock,
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHub").field("app_id", &self.inner.app_id).finish_non_exhaustive()
    }
}

/// The App's registration on GitHub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppInfo {
    pub id: u64,
    pub slug: String,
    pub name: String,
    /// URL of the App's page.
    pub url: String,
    pub owner: Option<Actor>,
    pub permissions: BTreeMap<String, String>,
    pub events: Vec<String>,
}

/// An installation of the App.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallationInfo {
    pub id: InstallationId,
    /// Login of the user or organization that installed the App.
    pub account: String,
    pub suspended: bool,
}

/// GitHub's configuration of the App's webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    pub url: Option<String>,
    pub content_type: Option<String>,
    pub insecure: bool,
}

/// A new App with its secrets. GitHub returns them once, in exchange for the registration's code.
#[derive(Debug, Clone)]
pub struct NewApp {
    pub id: u64,
    pub name: String,
    /// URL of the App's page, from which people install the App.
    pub url: String,
    pub private_key: SecretString,
    pub webhook_secret: Option<SecretString>,
}

#[derive(Deserialize)]
struct InstallationAccount {
    // An enterprise account has a slug instead of a login.
    login: Option<String>,
    slug: Option<String>,
}

#[derive(Deserialize)]
struct InstallationResponse {
    id: u64,
    account: Option<InstallationAccount>,
    suspended_at: Option<String>,
}

impl From<InstallationResponse> for InstallationInfo {
    fn from(found: InstallationResponse) -> Self {
        Self {
            id: InstallationId(found.id),
            account: found.account.and_then(|a| a.login.or(a.slug)).unwrap_or_default(),
            suspended: found.suspended_at.is_some(),
        }
    }
}

impl GitHub {
    /// Creates a client for a few calls, without write pacing.
    pub fn without_pacing(
        at: &GitHubSettings,
        app_id: u64,
        private_key: SecretString,
        clock: SharedClock,
    ) -> Result<Self, GitHubClientError> {
        let GitHubSettings { api_url, web_url, .. } = at.clone();
        Self::new(GitHubOptions { api_url, web_url, app_id, private_key, pacing: Pacing::Off, clock })
    }

    /// Creates a client without sending anything. Must be called inside a tokio runtime.
    pub fn new(options: GitHubOptions) -> Result<Self, GitHubClientError> {
        let GitHubOptions { api_url, web_url, app_id, private_key, pacing, clock } = options;
        let api = GitHubApi::new(&api_url, app_id, &private_key, pacing, clock.clone())?;
        let (bot, described, doubts) = (OnceCell::new(), Mutex::default(), UncertainWrites::default());
        let (nodes, git_tokens) = (NodeIdCache::default(), GitTokenCache::default());
        let inner = GitHubInner { api, web_url, app_id, bot, described, doubts, nodes, git_tokens, clock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the cached node id of a label or issue.
    pub(super) fn node_id(&self, name: &str) -> Option<String> {
        self.inner.nodes.get(name, self.now())
    }

    pub(super) fn cache_node_id(&self, name: String, id: &str) {
        if id.is_empty() {
            return;
        }
        self.inner.nodes.keep(name, id.to_owned(), self.now().plus(NODE_HOLDS));
    }

    pub(super) fn forget_node_id(&self, name: &str) {
        self.inner.nodes.forget(name);
    }

    /// Returns the cached repository info if it was fetched under this name within [`REPO_INFO_TTL`].
    pub(super) fn cached_repo_info(&self, id: RepoId, name: &RepoName) -> Option<RepoInfo> {
        let described = self.inner.described.lock().unwrap_or_else(PoisonError::into_inner);
        let (under, info, at) = described.get(&id)?;
        let fresh = self.inner.clock.now().since(*at) < REPO_INFO_TTL;
        (fresh && under == name).then(|| info.clone())
    }

    pub(super) fn cache_repo_info(&self, name: &RepoName, info: &RepoInfo) {
        let mut described = self.inner.described.lock().unwrap_or_else(PoisonError::into_inner);
        described.insert(info.id, (name.clone(), info.clone(), self.inner.clock.now()));
    }

    pub fn web_url(&self) -> &Url {
        &self.inner.web_url
    }

    /// Replaces the App's signing key. Tokens that GitHub issued earlier stay valid until they expire.
    pub fn replace_key(&self, key: &SecretString) -> Result<(), GitHubClientError> {
        self.api().replace_key(key)
    }

    /// Shares the write pace with the other processes of this App. Also stops writes when this process's lease ends.
    pub fn share_pace(&self, store: Arc<Store>) {
        self.inner.api.share_pace(store);
    }

    /// Suppresses all writes from now on.
    pub fn set_read_only(&self) {
        self.inner.api.set_read_only();
    }

    /// Returns the writes suppressed since [`set_read_only`](Self::set_read_only).
    pub fn suppressed_writes(&self) -> Vec<SuppressedWrite> {
        self.inner.api.suppressed_writes()
    }

    pub fn app_id(&self) -> u64 {
        self.inner.app_id
    }

    pub(crate) fn api(&self) -> &GitHubApi {
        &self.inner.api
    }

    pub(super) fn uncertain_writes(&self) -> &UncertainWrites {
        &self.inner.doubts
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Returns the App's registration. This is also the cheapest check that the App id and the key belong together.
    pub async fn app(&self) -> Result<AppInfo, GitHubApiError> {
        #[derive(Deserialize)]
        struct AppResponse {
            id: u64,
            #[serde(default)]
            slug: String,
            name: String,
            #[serde(default)]
            html_url: String,
            owner: Option<GitHubUser>,
            #[serde(default)]
            permissions: BTreeMap<String, String>,
            #[serde(default)]
            events: Vec<String>,
        }
        let app: AppResponse = self.api().send(ApiIdentity::App, ApiRequest::new(&APP, &[])).await?.json()?;
        Ok(AppInfo {
            id: app.id,
            slug: app.slug,
            name: app.name,
            url: app.html_url,
            owner: app.owner.map(Actor::from),
            permissions: app.permissions,
            events: app.events,
        })
    }

    /// Returns the App's bot account, which is the author of our comments. The account's id differs from the App's id.
    /// The account is cached after the first call.
    pub async fn bot(&self) -> Result<Actor, GitHubApiError> {
        // GitHub answers user lookups to an installation, not to the App's own key.
        let who = || async {
            let installed = self.installations().await?.into_iter().find(|i| !i.suspended);
            Ok(installed.map_or(ApiIdentity::Anonymous, |i| ApiIdentity::Installation(i.id)))
        };
        match self.inner.bot.get() {
            Some(bot) => Ok(bot.clone()),
            None => self.find_bot(who().await?).await,
        }
    }

    /// Same as [`bot`](Self::bot), but the call is made through the given installation.
    pub(crate) async fn bot_for_installation(
        &self,
        installation: InstallationId,
    ) -> Result<Actor, GitHubApiError> {
        let who = ApiIdentity::Installation(installation);
        match self.inner.bot.get() {
            Some(bot) => Ok(bot.clone()),
            None => self.find_bot(who).await,
        }
    }

    /// Looks up the bot account and caches it if it was found.
    async fn find_bot(&self, who: ApiIdentity) -> Result<Actor, GitHubApiError> {
        let bot = self.look_up_bot(who).await?;
        if bot.id != UserId(0) {
            // A concurrent call may have cached the same account already.
            let _ = self.inner.bot.set(bot.clone());
        }
        Ok(bot)
    }

    async fn look_up_bot(&self, who: ApiIdentity) -> Result<Actor, GitHubApiError> {
        let login = format!("{}[bot]", self.app().await?.slug);
        match self.api().send(who, ApiRequest::new(&USER, &[&login])).await {
            Ok(answer) => Ok(Actor { bot: true, ..answer.json::<GitHubUser>()?.into() }),
            // Some servers show no user page for a bot. No comment is by account 0, so a search for our comments finds
            // none. Webhooks still identify ours by the sender's type and name.
            Err(GitHubApiError::NotFound { .. }) => {
                tracing::warn!(
                    login,
                    "GitHub does not show our bot account, so we cannot find our own comments"
                );
                Ok(Actor { id: UserId(0), login, bot: true })
            }
            Err(fault) => Err(fault),
        }
    }

    pub async fn installations(&self) -> Result<Vec<InstallationInfo>, GitHubApiError> {
        let found: Vec<InstallationResponse> =
            self.api().list_all(ApiIdentity::App, ApiRequest::new(&INSTALLATIONS, &[]), None).await?;
        Ok(found.into_iter().map(InstallationInfo::from).collect())
    }

    /// Returns an installation; `None` if the App was uninstalled there.
    pub async fn installation(&self, id: InstallationId) -> Result<Option<InstallationInfo>, GitHubApiError> {
        let request = ApiRequest::new(&INSTALLATION, &[&id.to_string()]);
        match self.api().send(ApiIdentity::App, request).await {
            Ok(answer) => Ok(Some(answer.json::<InstallationResponse>()?.into())),
            Err(GitHubApiError::NotFound { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the repositories that an installation can access.
    pub async fn repositories(&self, installation: InstallationId) -> Result<Vec<RepoRef>, GitHubApiError> {
        #[derive(Deserialize)]
        struct InstallationRepository {
            id: u64,
            full_name: String,
            #[serde(default)]
            private: bool,
            default_branch: Option<String>,
            owner: Option<InstallationRepositoryOwner>,
        }
        #[derive(Deserialize)]
        struct InstallationRepositoryOwner {
            #[serde(rename = "type", default)]
            kind: String,
        }
        let request = ApiRequest::new(&INSTALLATION_REPOSITORIES, &[]);
        let shown = INSTALLATION_REPOSITORIES.to_string();
        let found: Vec<InstallationRepository> = self
            .api()
            .list_all(ApiIdentity::Installation(installation), request, Some("repositories"))
            .await?;
        let known = |repo: InstallationRepository| {
            Ok(RepoRef {
                id: RepoId(repo.id),
                name: repo.full_name.parse().map_err(|e| GitHubApiError::unexpected(&shown, e))?,
                private: repo.private,
                default_branch: repo.default_branch,
                user_owned: repo.owner.is_some_and(|owner| owner.kind == "User"),
            })
        };
        found.into_iter().map(known).collect()
    }

    pub async fn hook_config(&self) -> Result<WebhookConfig, GitHubApiError> {
        #[derive(Deserialize)]
        struct WebhookConfigResponse {
            url: Option<String>,
            content_type: Option<String>,
            // GitHub has sent this as "0", 0 and false.
            #[serde(default)]
            insecure_ssl: serde_json::Value,
        }
        let config: WebhookConfigResponse =
            self.api().send(ApiIdentity::App, ApiRequest::new(&HOOK_CONFIG, &[])).await?.json()?;
        let insecure = matches!(config.insecure_ssl.to_string().trim_matches('"'), "1" | "true");
        Ok(WebhookConfig { url: config.url, content_type: config.content_type, insecure })
    }

    /// Returns a token for `git fetch` that can only read one repository's code. The flag is true for a cached token,
    /// which may have been revoked.
    pub async fn git_token(
        &self,
        installation: InstallationId,
        repo: RepoId,
    ) -> Result<(SecretString, bool), GitHubApiError> {
        let name = format!("{installation} {repo}");
        if let Some(token) = self.inner.git_tokens.get(&name, self.now()) {
            return Ok((token, true));
        }
        let scope = json!({ "repository_ids": [repo.0], "permissions": { "contents": "read" } });
        let minted = self.api().create_token(installation, scope).await?;
        self.inner.git_tokens.keep(name, minted.token.clone(), minted.expires.minus(GIT_TOKEN_MARGIN));
        Ok((minted.token, false))
    }

    /// Drops the cached git token, so that the next call creates one.
    pub fn forget_git_token(&self, installation: InstallationId, repo: RepoId) {
        self.inner.git_tokens.forget(&format!("{installation} {repo}"));
    }

    /// Returns the number of milliseconds by which GitHub's clock was ahead of ours at its last response. The number is
    /// negative if GitHub's clock was behind; `None` before the first response.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.api().clock_ahead()
    }

    /// Returns the remaining rate limits of each installation, as reported in its last response.
    pub fn remaining_rate_limits(&self) -> &RemainingRateLimits {
        self.api().remaining_rate_limits()
    }

    /// Returns a handle for one repository without sending anything.
    pub fn repo(&self, installation: InstallationId, id: RepoId, name: RepoName) -> GitHubRepo {
        GitHubRepo::new(self.clone(), installation, id, name)
    }
}

/// Exchanges the code from GitHub's registration page for the new App and its secrets.
pub async fn convert_manifest(
    api_url: &Url,
    code: &str,
    clock: SharedClock,
) -> Result<NewApp, GitHubApiError> {
    #[derive(Deserialize)]
    struct ManifestConversionResponse {
        id: u64,
        name: String,
        html_url: String,
        pem: SecretField,
        webhook_secret: Option<SecretField>,
    }
    let request = ApiRequest::new(&CONVERT_MANIFEST, &[code]).with_secret_route();
    let answer = send_anonymously(api_url, request, clock).await?;
    let app: ManifestConversionResponse = serde_json::from_slice(&answer.body).map_err(|_| {
        GitHubApiError::unexpected(&CONVERT_MANIFEST.to_string(), "it contains no App with a key")
    })?;
    Ok(NewApp {
        id: app.id,
        name: app.name,
        url: app.html_url,
        private_key: app.pem.0,
        webhook_secret: app.webhook_secret.map(|secret| secret.0),
    })
}
