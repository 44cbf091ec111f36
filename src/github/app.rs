//! The App itself: how it is built, who it is, where it is installed.

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

/// A repository's name is taken to mean the same repository this long after GitHub said so: the writes of
/// one step come in a burst, and each would ask again.
const REPO_INFO_TTL: Duration = Duration::from_secs(10);

/// A git token is used until so long before its end: one fetch of a large repository takes minutes.
const GIT_TOKEN_MARGIN: Duration = Duration::from_secs(600);

/// Lifetime of a cached node id: a label that somebody deletes and creates again gets another id.
const NODE_HOLDS: Duration = Duration::from_secs(3600);

/// Entries kept at most.
const KEPT: usize = 4096;

/// Values by name, each until a time.
struct ExpiringMap<T>(Mutex<HashMap<String, (T, Timestamp)>>);

/// Node ids by `8123 label NAME` and `8123 issue 42`.
type NodeIdCache = ExpiringMap<String>;

/// Tokens that read one repository's code, by installation and repository.
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

/// What is needed to be an App somewhere.
#[derive(Clone)]
pub struct GitHubOptions {
    /// `https://api.github.com/`, or `https://HOST/api/v3/` on GitHub Enterprise Server.
    pub api_url: Url,
    /// Where people look: `https://github.com/`.
    pub web_url: Url,
    pub app_id: u64,
    /// The RSA key in PEM form, as GitHub hands it out.
    pub private_key: SecretString,
    /// [`Pacing::for_api`] the address, but where a test or a benchmark wants to see the pace.
    pub pacing: Pacing,
    pub clock: SharedClock,
}

/// GitHub, as this App sees it. Clones share tokens and connections.
#[derive(Clone)]
pub struct GitHub {
    inner: Arc<GitHubInner>,
}

struct GitHubInner {
    api: GitHubApi,
    web_url: Url,
    app_id: u64,
    bot: OnceCell<Actor>,
    /// Repositories as GitHub described them, and when; see [`REPO_INFO_TTL`].
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

/// The App as GitHub has it registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppInfo {
    pub id: u64,
    pub slug: String,
    pub name: String,
    /// Its page.
    pub url: String,
    /// The account that registered the App.
    pub owner: Option<Actor>,
    pub permissions: BTreeMap<String, String>,
    pub events: Vec<String>,
}

/// Where the App is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallationInfo {
    pub id: InstallationId,
    /// The login of the user or organization.
    pub account: String,
    pub suspended: bool,
}

/// Where GitHub sends the App's webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    pub url: Option<String>,
    pub content_type: Option<String>,
    pub insecure: bool,
}

/// A new App, as the exchange of the registration's code hands it out, once.
#[derive(Debug, Clone)]
pub struct NewApp {
    pub id: u64,
    pub name: String,
    /// The App's page, where it is installed from.
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
    /// For a few questions to this GitHub, which need no pace.
    pub fn without_pacing(
        at: &GitHubSettings,
        app_id: u64,
        private_key: SecretString,
        clock: SharedClock,
    ) -> Result<Self, GitHubClientError> {
        let GitHubSettings { api_url, web_url, .. } = at.clone();
        Self::new(GitHubOptions { api_url, web_url, app_id, private_key, pacing: Pacing::Off, clock })
    }

    /// Sends nothing yet. Must be called inside a tokio runtime.
    pub fn new(options: GitHubOptions) -> Result<Self, GitHubClientError> {
        let GitHubOptions { api_url, web_url, app_id, private_key, pacing, clock } = options;
        let api = GitHubApi::new(&api_url, app_id, &private_key, pacing, clock.clone())?;
        let (bot, described, doubts) = (OnceCell::new(), Mutex::default(), UncertainWrites::default());
        let (nodes, git_tokens) = (NodeIdCache::default(), GitTokenCache::default());
        let inner = GitHubInner { api, web_url, app_id, bot, described, doubts, nodes, git_tokens, clock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The node id of a label or issue, if it is known.
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

    /// What GitHub said of the repository under this name a moment ago.
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

    /// Signs with another of the App's keys from now on; tokens that GitHub gave hold on to their end.
    pub fn replace_key(&self, key: &SecretString) -> Result<(), GitHubClientError> {
        self.api().replace_key(key)
    }

    /// From now on writes share their pace with the other processes that work for this App, and end with this one's lease.
    pub fn share_pace(&self, store: Arc<Store>) {
        self.inner.api.share_pace(store);
    }

    /// From now on nothing is asked of it that would change anything there.
    pub fn set_read_only(&self) {
        self.inner.api.set_read_only();
    }

    /// What would have changed something since then.
    pub fn suppressed_writes(&self) -> Vec<SuppressedWrite> {
        self.inner.api.suppressed_writes()
    }

    /// The App's own number.
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

    /// Who we are; also the cheapest proof that id and key belong together.
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

    /// The account that our comments are by. Its id is not the App's; asked for once.
    pub async fn bot(&self) -> Result<Actor, GitHubApiError> {
        // An App's own key opens no user's page, so the look is made by an installation.
        let who = || async {
            let installed = self.installations().await?.into_iter().find(|i| !i.suspended);
            Ok(installed.map_or(ApiIdentity::Anonymous, |i| ApiIdentity::Installation(i.id)))
        };
        match self.inner.bot.get() {
            Some(bot) => Ok(bot.clone()),
            None => self.find_bot(who().await?).await,
        }
    }

    /// As [`bot`](Self::bot), where an installation is at hand.
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

    /// Kept once it is known; where it is not, it is asked for again the next time.
    async fn find_bot(&self, who: ApiIdentity) -> Result<Actor, GitHubApiError> {
        let bot = self.look_up_bot(who).await?;
        if bot.id != UserId(0) {
            // Another call may have been first with the same answer.
            let _ = self.inner.bot.set(bot.clone());
        }
        Ok(bot)
    }

    async fn look_up_bot(&self, who: ApiIdentity) -> Result<Actor, GitHubApiError> {
        let login = format!("{}[bot]", self.app().await?.slug);
        match self.api().send(who, ApiRequest::new(&USER, &[&login])).await {
            Ok(answer) => Ok(Actor { bot: true, ..answer.json::<GitHubUser>()?.into() }),
            // Some servers show no page for a bot. Nothing is by account 0, so no comment is taken for ours
            // when one is looked for; ours are still told by their sender's type and name.
            Err(GitHubApiError::NotFound { .. }) => {
                tracing::warn!(login, "our own account cannot be looked up here");
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

    /// One installation; none when the App was removed there.
    pub async fn installation(&self, id: InstallationId) -> Result<Option<InstallationInfo>, GitHubApiError> {
        let request = ApiRequest::new(&INSTALLATION, &[&id.to_string()]);
        match self.api().send(ApiIdentity::App, request).await {
            Ok(answer) => Ok(Some(answer.json::<InstallationResponse>()?.into())),
            Err(GitHubApiError::NotFound { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// The repositories that an installation was given.
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

    /// A token that can read the code of one repository and nothing else, for `git fetch`; and whether it was minted earlier,
    /// so that it may have been revoked since.
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

    /// Drops the kept git token: the next call mints one.
    pub fn forget_git_token(&self, installation: InstallationId, repo: RepoId) {
        self.inner.git_tokens.forget(&format!("{installation} {repo}"));
    }

    /// How far GitHub's clock was ahead of ours at its last answer, in milliseconds; negative when it was
    /// behind, none before the first answer.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.api().clock_ahead()
    }

    /// What GitHub leaves each installation of its limits, as of the last answer.
    pub fn remaining_rate_limits(&self) -> &RemainingRateLimits {
        self.api().remaining_rate_limits()
    }

    /// A handle on one repository; nothing is sent yet.
    pub fn repo(&self, installation: InstallationId, id: RepoId, name: RepoName) -> GitHubRepo {
        GitHubRepo::new(self.clone(), installation, id, name)
    }
}

/// Exchanges the code that GitHub's registration page hands back for the new App and its secrets.
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
        GitHubApiError::unexpected(&CONVERT_MANIFEST.to_string(), "no App with its key in it")
    })?;
    Ok(NewApp {
        id: app.id,
        name: app.name,
        url: app.html_url,
        private_key: app.pem.0,
        webhook_secret: app.webhook_secret.map(|secret| secret.0),
    })
}
