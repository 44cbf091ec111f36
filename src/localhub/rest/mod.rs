//! The REST API: authentication, routing and responses. Each route names the permission that GitHub's documentation
//! lists for it, and refuses callers without that permission.

mod apps;
pub(super) mod auth;
mod checks;
mod git_data;
mod graphql;
mod issues;
mod pulls;
mod repos;
mod search;

use std::sync::Arc;

use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    Hub, HubError,
    faults::{FaultEffect, FaultTarget, HubSnapshot},
    git::{BareRepository, HubGitError},
    json::JsonRenderer,
    lock,
    model::{HubIssue, HubRepository, HubState},
    random_hex,
    server::{HubReply, HubRequest, ReplyTiming},
    views::HubRequestView,
};
use crate::types::{Hash, IssueNo, RepoId, RepoName, UserId};
use auth::{HubPermissionLevel, RestCaller};

const DOCS: &str = "https://docs.github.com/rest";

/// Maximum number of requests per token and hour.
const HOURLY: u64 = 5000;

/// Maximum number of characters of an issue or comment body on GitHub.
const BODY_CHARS: usize = 65_536;

/// Maximum number of requests kept for [`Hub::requests`].
const REQUESTS_KEPT: usize = 50_000;

type RestResult = Result<HubReply, RestError>;

pub(super) struct RestError {
    pub(super) status: u16,
    message: String,
    errors: Option<Value>,
    headers: Vec<(&'static str, String)>,
    url: Option<String>,
}

impl RestError {
    fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), errors: None, headers: vec![], url: None }
    }

    fn not_found() -> Self {
        Self::new(404, "Not Found")
    }

    /// Returns a 422 error with GitHub's list of validation errors.
    fn invalid(resource: &str, field: &str, code: &str, message: Option<&str>) -> Self {
        let mut error = json!({ "resource": resource, "field": field, "code": code });
        if let Some(message) = message {
            error["message"] = json!(message);
        }
        Self { errors: Some(json!([error])), ..Self::new(422, "Validation Failed") }
    }

    fn reply(&self) -> HubReply {
        let mut body = json!({
            "message": self.message, "documentation_url": DOCS, "status": self.status.to_string(),
        });
        if let Some(errors) = &self.errors {
            body["errors"] = errors.clone();
        }
        if let Some(url) = &self.url {
            body["url"] = json!(url);
        }
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reply = HubReply::json(status, &body);
        self.headers.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value))
    }
}

impl From<HubError> for RestError {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Missing(_) => Self::not_found(),
            HubError::Refused(message) => Self::new(422, message),
            other => Self::new(500, other.to_string()),
        }
    }
}

impl From<HubGitError> for RestError {
    fn from(error: HubGitError) -> Self {
        Self::new(422, error.to_string())
    }
}

struct RestCall<'a> {
    hub: &'a Hub,
    request: &'a HubRequest,
    caller: RestCaller,
    /// Earlier state that this request reads, if reads lag.
    lagged_state: Option<Arc<HubSnapshot>>,
}

pub(super) fn answer(hub: &Hub, request: &HubRequest) -> HubReply {
    let installation = request.header("authorization").is_some_and(|value| value.contains("ghs_"));
    let (method, path, now) = (request.method.as_str(), request.path.as_str(), (hub.0.now)());
    let hit = hub.next_fault_effect(&FaultTarget { method, path, installation, now });
    let lag = match &hit {
        Some(FaultEffect::Lag(by)) => hub.lagged_snapshot(*by).filter(|_| may_lag(&request.segments)),
        _ => None,
    };
    let (caller, reply) = match hit.as_ref().and_then(fault_reply) {
        Some(reply) => (RestCaller::Anonymous, reply),
        None => {
            let (caller, reply) = route(hub, request, lag);
            (caller, apply_etag(request, reply))
        }
    };
    record_request(hub, request, &caller, reply.status.as_u16());
    let reply = match &hit {
        Some(FaultEffect::LoseAnswer) => {
            HubReply::json(StatusCode::BAD_GATEWAY, &json!({ "message": "Server Error" }))
        }
        Some(FaultEffect::Slow(by)) => HubReply { sent: ReplyTiming::Late(*by), ..reply },
        Some(FaultEffect::Drop { .. }) => HubReply { sent: ReplyTiming::Never, ..reply },
        _ => reply,
    };
    match hit {
        // This response sets its own rate limit headers.
        Some(FaultEffect::PrimaryLimit { .. }) => reply,
        _ => add_common_headers(hub, &caller, reply),
    }
}

/// Returns the response of a fault that replaces the route's response; `None` for other faults. With such a fault, the
/// request has no effect.
fn fault_reply(hit: &FaultEffect) -> Option<HubReply> {
    let asked_for = "A fault that was asked for";
    let refusal = match hit {
        FaultEffect::Status(status) => RestError::new(*status, asked_for),
        FaultEffect::Unprocessable { field, code } => RestError::invalid("Resource", field, code, None),
        FaultEffect::Refused { status, message } => RestError::new(*status, *message),
        FaultEffect::RetryAfter(wait) => RestError {
            headers: vec![("retry-after", wait.as_secs().to_string())],
            ..RestError::new(403, "You have exceeded a secondary rate limit.")
        },
        FaultEffect::PrimaryLimit { status, until } => RestError {
            headers: vec![
                ("x-ratelimit-limit", HOURLY.to_string()),
                ("x-ratelimit-remaining", "0".to_owned()),
                ("x-ratelimit-reset", until.0.div_euclid(1000).to_string()),
            ],
            ..RestError::new(*status, "API rate limit exceeded for installation.")
        },
        FaultEffect::Drop { after_effect: false } => RestError::new(503, asked_for),
        FaultEffect::Drop { after_effect: true }
        | FaultEffect::LoseAnswer
        | FaultEffect::Slow(_)
        | FaultEffect::Lag(_) => return None,
    };
    Some(refusal.reply())
}

/// Whether GitHub serves this path from replicas, whose state may lag.
fn may_lag(segments: &[String]) -> bool {
    let kind = match segments.first().map(String::as_str) {
        Some("repos") => segments.get(3),
        Some("repositories") => segments.get(2),
        _ => None,
    };
    kind.is_some_and(|kind| matches!(kind.as_str(), "issues" | "labels" | "pulls" | "git" | "commits"))
}

/// Adds an ETag to the response. Returns 304 instead if the caller already has this response.
fn apply_etag(request: &HubRequest, reply: HubReply) -> HubReply {
    if request.method != Method::GET || reply.status != StatusCode::OK {
        return reply;
    }
    let tag = format!("W/\"{}\"", Hash::digest(&reply.body));
    let known = request.header("if-none-match").is_some_and(|known| known == tag);
    let reply = if known { HubReply::empty(StatusCode::NOT_MODIFIED) } else { reply };
    reply.with_header("etag", &tag)
}

fn route(hub: &Hub, request: &HubRequest, then: Option<Arc<HubSnapshot>>) -> (RestCaller, HubReply) {
    if request.header("user-agent").is_none() {
        let text = "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.";
        return (RestCaller::Anonymous, RestError::new(403, text).reply());
    }
    let caller = match auth::authenticate(hub, request) {
        Ok(caller) => caller,
        Err(refusal) => return (RestCaller::Anonymous, refusal.reply()),
    };
    let call = RestCall { hub, request, caller, lagged_state: then };
    let reply = call.dispatch().unwrap_or_else(|refusal| refusal.reply());
    (call.caller, reply)
}

/// Records the request. If it was a successful write to visible state, also counts it and calls the watcher.
fn record_request(hub: &Hub, request: &HubRequest, caller: &RestCaller, status: u16) {
    let query = if request.raw_query.is_empty() { String::new() } else { format!("?{}", request.raw_query) };
    let view = HubRequestView {
        method: request.method.to_string(),
        path: format!("{}{query}", request.path),
        status,
        actor: hub.read(|s| caller.name(s)),
    };
    if let Some(watcher) = hub.0.write_watch.get().filter(|_| is_write(request, status)) {
        watcher(&view);
    }
    let visible =
        request.segments.first().is_some_and(|s| matches!(s.as_str(), "repos" | "repositories" | "graphql"));
    if is_write(request, status) && visible {
        hub.0.writes.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
    let mut requests = lock(&hub.0.requests);
    if requests.len() >= REQUESTS_KEPT {
        requests.remove(0);
    }
    requests.push(view);
}

fn is_write(request: &HubRequest, status: u16) -> bool {
    request.method != Method::GET && (200..300).contains(&status)
}

fn add_common_headers(hub: &Hub, caller: &RestCaller, reply: HubReply) -> HubReply {
    let now = (hub.0.now)().0.div_euclid(1000);
    let (hour, used) = {
        let mut all = lock(&hub.0.used);
        let entry = all.entry(caller.key()).or_insert((now / 3600, 0));
        if entry.0 != now / 3600 {
            *entry = (now / 3600, 0);
        }
        // 304 responses do not count against the limit.
        if reply.status != StatusCode::NOT_MODIFIED {
            entry.1 += 1;
        }
        *entry
    };
    let id = random_hex(16).unwrap_or_else(|_| "0".repeat(32)).to_ascii_uppercase();
    let id = [&id[..4], &id[4..10], &id[10..17], &id[17..24], &id[24..]].join(":");
    reply
        .with_header("x-github-request-id", &id)
        .with_header("x-github-media-type", "github.v3; format=json")
        .with_header("x-github-api-version-selected", "2022-11-28")
        .with_header("x-ratelimit-limit", &HOURLY.to_string())
        .with_header("x-ratelimit-remaining", &HOURLY.saturating_sub(used).to_string())
        .with_header("x-ratelimit-used", &used.to_string())
        .with_header("x-ratelimit-reset", &((hour + 1) * 3600).to_string())
        .with_header("x-ratelimit-resource", "core")
        .with_header("x-content-type-options", "nosniff")
        .with_header("cache-control", "private, max-age=60, s-maxage=60")
}

impl RestCall<'_> {
    fn dispatch(&self) -> RestResult {
        let segments: Vec<&str> = self.request.segments.iter().map(String::as_str).collect();
        match (self.request.method.as_str(), segments.as_slice()) {
            (method, ["repos", owner, name, rest @ ..]) => self.in_repository(method, owner, name, rest),
            (method, ["repositories", id, rest @ ..]) => {
                let id = id.parse().map_err(|_| RestError::not_found())?;
                let name = self.state(|s| s.repositories.get(&RepoId(id)).map(|r| s.name_of(r)));
                let name: RepoName = name.ok_or_else(RestError::not_found)?;
                self.in_repository(method, &name.owner, &name.name, rest)
            }
            ("GET", ["users", login]) => self.user(login),
            ("GET", ["search", "repositories"]) => self.search(),
            ("GET", ["search", "code"]) => self.search_code(),
            ("POST", ["graphql"]) => self.graphql(),
            (method, segments) => self.app_route(method, segments),
        }
    }

    fn in_repository(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        self.follow_rename(owner, name, rest)?;
        match rest {
            ["issues" | "labels", ..] => self.issue_route(method, owner, name, rest),
            ["git", rest @ ..] => self.git_route(method, owner, name, rest),
            ["check-runs", ..] | ["commits", _, "check-runs"] => self.check_route(method, owner, name, rest),
            ["commits", revision, "status"] if method == "GET" => self.combined_status(owner, name, revision),
            ["actions", "runs"] if method == "GET" => self.workflow_runs(owner, name),
            ["actions", "runs", run, "jobs"] if method == "GET" => self.jobs(owner, name, run),
            ["actions", "jobs", job, "logs"] if method == "GET" => self.job_log(owner, name, job),
            ["pulls", rest @ ..] => self.pull_route(method, owner, name, rest),
            _ => self.repo_route(method, owner, name, rest),
        }
    }

    /// If the repository was renamed, redirects to the route with the repository's id, as GitHub does.
    fn follow_rename(&self, owner: &str, name: &str, rest: &[&str]) -> Result<(), RestError> {
        let moved = self.state(|s| {
            let known = s.repository_named(owner, name).is_some();
            let old = format!("{owner}/{name}").to_ascii_lowercase();
            s.renamed.get(&old).copied().filter(|_| !known)
        });
        let Some(id) = moved else { return Ok(()) };
        // The former name reveals nothing to callers without access.
        self.require_permission(id, &[("metadata", HubPermissionLevel::Read)])?;
        let tail: String = rest.iter().map(|s| format!("/{}", super::json::encode_segment(s))).collect();
        let query = if self.request.raw_query.is_empty() { "" } else { "?" };
        let url =
            format!("{}/api/v3/repositories/{id}{tail}{query}{}", self.hub.0.base, self.request.raw_query);
        let (status, message) = match self.request.method {
            Method::GET | Method::HEAD => (301, "Moved Permanently"),
            _ => (307, "Temporary Redirect"),
        };
        let headers = vec![("location", url.clone())];
        Err(RestError { headers, url: Some(url), ..RestError::new(status, message) })
    }

    fn unknown_route(&self) -> RestResult {
        let (method, path) = (&self.request.method, &self.request.path);
        Err(RestError::new(404, format!("localhub has no route {method} {path}")))
    }

    fn state<T>(&self, look: impl FnOnce(&HubState) -> T) -> T {
        match &self.lagged_state {
            Some(then) => look(&then.state),
            None => self.hub.read(look),
        }
    }

    fn json<'s>(&'s self, state: &'s HubState) -> JsonRenderer<'s> {
        JsonRenderer { state, hub: &self.hub.0 }
    }

    fn git(&self, repo: RepoId) -> BareRepository {
        self.hub.0.git(repo)
    }

    fn ok(&self, body: &Value) -> HubReply {
        HubReply::json(StatusCode::OK, body)
    }

    fn created(&self, body: &Value) -> HubReply {
        let location = body["url"].as_str().unwrap_or_default();
        HubReply::json(StatusCode::CREATED, body).with_header("location", location)
    }

    /// Parses the request body into the type that GitHub documents for it.
    fn body<T: DeserializeOwned>(&self) -> Result<T, RestError> {
        let value: Value = serde_json::from_slice(&self.request.body)
            .map_err(|_| RestError::new(400, "Problems parsing JSON"))?;
        if !value.is_object() && !value.is_array() {
            return Err(RestError::new(400, "Body should be a JSON object"));
        }
        serde_json::from_value(value).map_err(|e| RestError::new(422, format!("Invalid request.\n\n{e}.")))
    }

    /// Returns the repository with this name after checking the caller's permission. Like GitHub, responds 404 if the
    /// repository is not visible, and otherwise 403 naming the missing permission.
    fn repo(
        &self,
        owner: &str,
        name: &str,
        need: &[(&str, HubPermissionLevel)],
    ) -> Result<RepoId, RestError> {
        let id = self.state(|s| s.repository_named(owner, name).map(|r| r.id));
        let id = id.ok_or_else(RestError::not_found)?;
        self.require_permission(id, need)?;
        Ok(id)
    }

    /// Returns the account to which the caller's writes are attributed.
    fn actor(&self) -> Result<UserId, RestError> {
        let RestCaller::Installation { app, .. } = &self.caller else {
            return Err(RestError::new(401, "Requires authentication"));
        };
        self.state(|s| s.apps.get(app).map(|a| a.bot)).ok_or_else(|| RestError::new(401, "Bad credentials"))
    }

    /// Reads an issue. Fails with 410 if the issue was deleted, and with 404 if it never existed.
    fn with_issue<T>(
        &self,
        repo: RepoId,
        number: &str,
        look: impl FnOnce(&HubState, &HubRepository, &HubIssue) -> T,
    ) -> Result<T, RestError> {
        let number: u64 = number.parse().map_err(|_| RestError::not_found())?;
        self.state(|s| {
            let row = s.repositories.get(&repo).ok_or_else(RestError::not_found)?;
            if row.deleted.contains(&number) {
                return Err(RestError::new(410, "This issue was deleted"));
            }
            let issue = row.issues.get(&number).ok_or_else(RestError::not_found)?;
            Ok(look(s, row, issue))
        })
    }

    fn require_issue(&self, repo: RepoId, number: &str) -> Result<IssueNo, RestError> {
        self.with_issue(repo, number, |_, _, issue| IssueNo(issue.number))
    }

    /// Refuses a text that is too long, or empty although it is required, as GitHub does.
    fn check_text(&self, resource: &str, text: Option<&str>, required: bool) -> Result<(), RestError> {
        let text = text.unwrap_or_default();
        if required && text.trim().is_empty() {
            return Err(RestError::invalid(resource, "body", "missing_field", None));
        }
        if text.chars().count() > BODY_CHARS {
            let message = format!("body is too long (maximum is {BODY_CHARS} characters)");
            return Err(RestError::invalid(resource, "body", "custom", Some(&message)));
        }
        Ok(())
    }

    /// Returns the requested page number and page size.
    fn page(&self) -> (usize, usize) {
        let number = |name: &str| self.request.query(name).and_then(|v| v.parse::<usize>().ok());
        (number("page").unwrap_or(1).max(1), number("per_page").unwrap_or(30).clamp(1, 100))
    }

    /// Returns one page of a list, with a `Link` header.
    fn list(&self, all: Vec<Value>) -> HubReply {
        let (links, items) = self.paginate(all);
        let reply = self.ok(&Value::Array(items));
        if links.is_empty() { reply } else { reply.with_header("link", &links) }
    }

    /// Returns one page of a list as a field of an object.
    fn list_in_object(&self, field: &str, mut around: Value, all: Vec<Value>) -> HubReply {
        around["total_count"] = json!(all.len());
        let (links, items) = self.paginate(all);
        around[field] = Value::Array(items);
        let reply = self.ok(&around);
        if links.is_empty() { reply } else { reply.with_header("link", &links) }
    }

    fn paginate(&self, all: Vec<Value>) -> (String, Vec<Value>) {
        let (page, size) = self.page();
        let last = all.len().div_ceil(size).max(1);
        let link = |to: usize, rel: &str| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            for (name, value) in self.request.query.iter().filter(|(n, _)| *n != "page") {
                query.append_pair(name, value);
            }
            query.append_pair("page", &to.to_string());
            format!("<{}/api/v3{}?{}>; rel=\"{rel}\"", self.hub.0.base, self.request.path, query.finish())
        };
        let mut links = Vec::new();
        if page > 1 {
            links.push(link((page - 1).min(last), "prev"));
        }
        if page < last {
            links.push(link(page + 1, "next"));
            links.push(link(last, "last"));
        }
        if page > 1 {
            links.push(link(1, "first"));
        }
        (links.join(", "), all.into_iter().skip((page - 1) * size).take(size).collect())
    }

    fn user(&self, login: &str) -> RestResult {
        let body = self.state(|s| s.account_named(login).map(|a| self.json(s).account(a.id)));
        body.map(|b| self.ok(&b)).ok_or_else(RestError::not_found)
    }
}
