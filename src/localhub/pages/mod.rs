//! localhub's pages. They are plain HTML that works without JavaScript; a small script reloads a page after events.
//! Access requires the random token of the printed URL, which is then kept in a `SameSite=Strict` cookie. A form is
//! accepted only if it comes from our own origin and has the right CSRF token.

mod apps;
mod code;
mod issues;
mod layout;
mod markdown;
mod thread;

use std::{collections::BTreeMap, convert::Infallible};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::stream;
use http::{Method, StatusCode};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::{
    Hub, HubError,
    git::{BareRepository, HubGitError},
    model::{HubRepository, HubState},
    server::{HubReply, HubRequest},
};
use crate::types::{Hash, RepoId, Role, UserId};

const COOKIE: &str = "localhub";
const ACTING_COOKIE: &str = "localhub_as";

type HubPageResult = Result<HubReply, HubPageError>;

struct HubPageError {
    status: StatusCode,
    sentence: String,
}

impl HubPageError {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "There is nothing here. It may have been renamed or deleted.")
    }
}

impl From<HubError> for HubPageError {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Missing(_) => Self::not_found(),
            HubError::Refused(sentence) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, sentence),
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, other.to_string()),
        }
    }
}

impl From<HubGitError> for HubPageError {
    fn from(error: HubGitError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

/// A request for a page, made by someone who acts as a user of the hub.
struct HubPageRequest<'a> {
    hub: &'a Hub,
    request: &'a HubRequest,
    acting: Option<UserId>,
    /// Nonce in the content security policy. It allows our own script but no injected one.
    nonce: String,
    csrf: String,
}

pub(super) fn answer(hub: &Hub, request: &HubRequest) -> HubReply {
    if let Some(token) = request.query("token") {
        return exchange_page_token(hub, request, token);
    }
    if cookie(request, COOKIE).is_none_or(|c| !is_same_secret(&c, &hub.0.page_token)) {
        let text = "Open localhub by the address it printed: it ends in ?token=….\n";
        return HubReply::text(StatusCode::FORBIDDEN, text);
    }
    let acting = hub.read(|s| {
        let named = cookie(request, ACTING_COOKIE).and_then(|login| s.account_named(&login).map(|a| a.id));
        named.or_else(|| s.accounts.values().find(|a| a.app.is_none()).map(|a| a.id))
    });
    let Ok(nonce) = super::random_hex(16) else {
        return HubReply::text(StatusCode::INTERNAL_SERVER_ERROR, "No random numbers.\n");
    };
    let csrf = Hash::digest_parts([b"form".as_slice(), hub.0.page_token.as_bytes()]).to_string();
    let visit = HubPageRequest { hub, request, acting, nonce, csrf };
    let reply = visit.dispatch().unwrap_or_else(|oops| visit.error_page(&oops));
    add_security_headers(reply, &visit.nonce)
}

/// Exchanges the access token of the printed URL for a cookie, and redirects to the URL without the token.
fn exchange_page_token(hub: &Hub, request: &HubRequest, token: &str) -> HubReply {
    if !is_same_secret(token, &hub.0.page_token) {
        return HubReply::text(
            StatusCode::FORBIDDEN,
            "This address is of an earlier start; use the one printed last.\n",
        );
    }
    // Only a local path: `//elsewhere` would leave this site.
    let path = format!("/{}", request.path.trim_start_matches('/'));
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict");
    HubReply::empty(StatusCode::SEE_OTHER).with_header("location", &path).with_header("set-cookie", &cookie)
}

/// Whether two secrets are equal. Compares their hashes, so that the timing does not reveal where they differ.
fn is_same_secret(a: &str, b: &str) -> bool {
    Hash::digest(a.as_bytes()) == Hash::digest(b.as_bytes())
}

fn cookie(request: &HubRequest, name: &str) -> Option<String> {
    let all = request.header("cookie")?;
    let mut pairs = all.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(n, _)| *n == name).map(|(_, value)| value.to_owned())
}

fn add_security_headers(reply: HubReply, nonce: &str) -> HubReply {
    // A form may redirect to the local program that asked for an App.
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; img-src 'self' data:; \
         connect-src 'self'; form-action 'self' http://127.0.0.1:* http://localhost:*; \
         base-uri 'none'; frame-ancestors 'none'"
    );
    reply
        .with_header("content-security-policy", &policy)
        .with_header("x-content-type-options", "nosniff")
        .with_header("x-frame-options", "DENY")
        .with_header("referrer-policy", "same-origin")
        .with_header("cache-control", "no-store")
}

fn redirect(to: &str) -> HubReply {
    HubReply::empty(StatusCode::SEE_OTHER).with_header("location", to)
}

impl HubPageRequest<'_> {
    fn dispatch(&self) -> HubPageResult {
        let segments: Vec<&str> = self.request.segments.iter().map(String::as_str).collect();
        let posting = self.request.method == Method::POST;
        if !posting && self.request.method != Method::GET && self.request.method != Method::HEAD {
            return Err(HubPageError::new(StatusCode::METHOD_NOT_ALLOWED, "Pages take GET and POST."));
        }
        match segments.as_slice() {
            // A manifest comes from another page by design; this route only shows a preview.
            ["settings", "apps", "new"] => self.new_app(),
            _ if posting => self.handle_form(&segments),
            [] => self.home(),
            ["avatars", id] => self.avatar(id),
            ["apps", slug] | ["apps", slug, "installations", "new"] => self.choose_repositories(slug),
            [_] | ["settings", "installations", _] => self.home(),
            [owner, name, rest @ ..] => {
                let repo = self.find_repo(owner, name)?;
                self.show_page(repo, rest)
            }
        }
    }

    fn show_page(&self, repo: RepoId, rest: &[&str]) -> HubPageResult {
        match rest {
            // The bot links to a branch, whose files are in its pull request.
            [] | ["issues"] | ["tree", ..] => self.issue_list(repo, false),
            ["issues", "new"] => self.new_issue_form(repo),
            ["issues", number] => self.thread(repo, number, false),
            ["pulls"] => self.issue_list(repo, true),
            ["pull", number] => self.thread(repo, number, true),
            ["pull", number, "commits"] => self.pull_commits(repo, number),
            ["pull", number, "files"] => self.pull_files(repo, number),
            ["blob", rest @ ..] => self.blob(repo, rest),
            _ => Err(HubPageError::not_found()),
        }
    }

    fn handle_form(&self, segments: &[&str]) -> HubPageResult {
        let form = self.form()?;
        match segments {
            ["act-as"] => self.switch_user(&form),
            ["settings", "apps", "create"] => self.create_app(&form),
            ["apps", slug, "installations", "new"] => self.install(slug),
            [owner, name, "issues"] => self.open_issue(self.find_repo(owner, name)?, &form),
            [owner, name, kind @ ("issues" | "pull"), number, action] => {
                let repo = self.find_repo(owner, name)?;
                let back = format!("/{owner}/{name}/{kind}/{number}");
                self.act_on_issue(repo, number, action, &form, &back)
            }
            _ => Err(HubPageError::not_found()),
        }
    }

    /// Returns the fields of a form after checking its origin and CSRF token.
    fn form(&self) -> Result<BTreeMap<String, String>, HubPageError> {
        let origin = self.request.header("origin");
        let port = self.hub.0.address.port();
        let ours =
            [self.hub.0.base.clone(), format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}")];
        if !origin.is_some_and(|o| ours.iter().any(|own| own == o)) {
            return Err(HubPageError::new(
                StatusCode::FORBIDDEN,
                "That form was not sent from a page of localhub.",
            ));
        }
        let form = self.fields();
        if !form.get("csrf").is_some_and(|sent| is_same_secret(sent, &self.csrf)) {
            return Err(HubPageError::new(
                StatusCode::FORBIDDEN,
                "That form is of an earlier start; go back, reload, try again.",
            ));
        }
        Ok(form)
    }

    fn fields(&self) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(&self.request.body).into_owned().collect()
    }

    fn switch_user(&self, form: &BTreeMap<String, String>) -> HubPageResult {
        let login = form.get("login").map(String::as_str).unwrap_or_default();
        let known =
            self.hub.read(|s| s.account_named(login).filter(|a| a.app.is_none()).map(|a| a.login.clone()));
        let login = known.ok_or_else(HubPageError::not_found)?;
        let back = form.get("back").map(|b| format!("/{}", b.trim_start_matches('/')));
        let cookie = format!("{ACTING_COOKIE}={login}; Path=/; HttpOnly; SameSite=Strict");
        Ok(redirect(&back.unwrap_or_else(|| "/".into())).with_header("set-cookie", &cookie))
    }

    fn find_repo(&self, owner: &str, name: &str) -> Result<RepoId, HubPageError> {
        let id = self.hub.read(|s| {
            let moved = || s.renamed.get(&format!("{owner}/{name}").to_ascii_lowercase()).copied();
            s.repository_named(owner, name).map(|r| r.id).or_else(moved)
        });
        id.filter(|id| self.role(*id) > Role::None).ok_or_else(HubPageError::not_found)
    }

    fn role(&self, repo: RepoId) -> Role {
        self.acting.map_or(Role::None, |user| self.hub.role(repo, user))
    }

    fn user(&self) -> Result<UserId, HubPageError> {
        self.acting.ok_or_else(|| HubPageError::new(StatusCode::FORBIDDEN, "There is no user to act as yet."))
    }

    fn git(&self, repo: RepoId) -> BareRepository {
        self.hub.0.git(repo)
    }

    fn with_repo<T>(
        &self,
        repo: RepoId,
        look: impl FnOnce(&HubState, &HubRepository) -> T,
    ) -> Result<T, HubPageError> {
        self.hub.read(|s| s.repositories.get(&repo).map(|r| look(s, r))).ok_or_else(HubPageError::not_found)
    }
}

/// Whether the request asks for the event stream.
pub(super) fn is_event_stream_request(request: &HubRequest) -> bool {
    request.path == "/_events"
}

/// Returns an event stream that reports when a page is outdated. The page then reloads itself.
pub(super) fn event_stream(hub: &Hub, request: &HubRequest) -> Response {
    if cookie(request, COOKIE).is_none_or(|c| !is_same_secret(&c, &hub.0.page_token)) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let repo = request.query("repo").and_then(|r| r.parse().ok()).map(RepoId);
    let state = (hub.subscribe(), hub.0.stop.clone(), repo);
    let stream = stream::unfold(state, |(mut events, stop, repo)| async move {
        tokio::select! {
            () = stop.cancelled() => None,
            () = wait_for_repo_event(&mut events, repo) => {
                Some((Ok::<_, Infallible>(Event::default().data("changed")), (events, stop, repo)))
            }
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::default()).into_response()
}

/// Waits for the next event in the repository. Also returns if events were missed.
async fn wait_for_repo_event(events: &mut Receiver<super::HubEvent>, repo: Option<RepoId>) {
    loop {
        match events.recv().await {
            Ok(event) if repo.is_none_or(|r| r == event.repo) => return,
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
