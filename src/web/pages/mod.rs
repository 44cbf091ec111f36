//! The operator's pages, rendered on the server from the store and the engine. They work without JavaScript; a short
//! script keeps them current.
//!
//! [`page_sessions`] checks access before any page handler runs. Templates escape all texts by models, people and
//! repositories. The filter `plain` replaces control, direction and invisible characters.

mod actions;
mod deliveries;
mod events;
mod models;
mod page_sessions;
mod repository;
mod run;
mod runs;
mod spend;
mod svg;

use std::sync::Arc;

use askama::Template;
use axum::{
    Router,
    http::{StatusCode, header},
    middleware::from_fn_with_state,
    response::{Html, IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use tokio::sync::Semaphore;

use self::page_sessions::PageSession;
pub(super) use self::page_sessions::require_known_host;
use super::{OperatorContext, control::ControlError};
use crate::{
    documents::is_invisible,
    engine::EngineError,
    store::StoreError,
    types::{Timestamp, with_causes},
};

/// Shared state of the pages' routes.
pub(super) struct PagesContext {
    operator: Arc<OperatorContext>,
    streams: Arc<Semaphore>,
}

type PagesState = axum::extract::State<Arc<PagesContext>>;

/// Returns the routes of every page, stream and form. These routes require a session, and so does any unknown path.
fn page_routes() -> Vec<(&'static str, MethodRouter<Arc<PagesContext>>)> {
    vec![
        ("/", get(runs::page)),
        ("/runs/{repo}/{seq}", get(run::page)),
        ("/runs/{repo}/{seq}/raw", get(run::raw_json)),
        ("/runs/{repo}/{seq}/text/{hash}", get(run::stored_text)),
        ("/repositories/{repo}", get(repository::page)),
        ("/spend", get(spend::page)),
        ("/deliveries", get(deliveries::page)),
        ("/models", get(models::page)),
        ("/events", get(events::stream)),
        ("/live.js", get(async || asset_response("text/javascript", include_str!("live.js")))),
        ("/pause", post(actions::pause)),
        ("/resume", post(actions::resume)),
        ("/runs/{repo}/{seq}/retry", post(actions::retry)),
        ("/repositories/{repo}/pause", post(actions::pause_repository)),
        ("/repositories/{repo}/resume", post(actions::resume_repository)),
        ("/deliveries/{id}/replay", post(actions::replay)),
    ]
}

/// Returns the paths of all pages, streams and forms, for tests that request each of them.
pub fn paths() -> Vec<&'static str> {
    page_routes().into_iter().map(|(path, _)| path).collect()
}

/// Returns all routes, including the entry page and assets that need no session.
pub(super) fn router(operator: Arc<OperatorContext>) -> Router {
    let pages = Arc::new(PagesContext { operator, streams: Arc::new(Semaphore::new(events::STREAMS)) });
    let guarded =
        page_routes().into_iter().fold(Router::new(), |router, (path, method)| router.route(path, method));
    guarded
        .fallback(async || OperatorPageError::Missing)
        .layer(from_fn_with_state(Arc::clone(&pages), page_sessions::require_session))
        .route("/enter", get(page_sessions::show_entry).post(page_sessions::open_session))
        .route("/style.css", get(async || asset_response("text/css", include_str!("style.css"))))
        .route("/icon.svg", get(async || asset_response("image/svg+xml", include_str!("icon.svg"))))
        .with_state(pages)
}

fn asset_response(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Frame around every page. A page's template holds the frame in its field `page` and extends `layout.html`.
struct PageFrame {
    title: String,
    /// Form token of the session. `None` for read-only sessions, whose pages have no forms.
    key: Option<String>,
    /// Whether to show the navigation. False on pages for visitors without a session.
    inside: bool,
    paused: bool,
}

impl PageFrame {
    fn new(title: impl Into<String>, visit: &PageSession) -> Self {
        Self { title: title.into(), key: visit.key.clone(), inside: true, paused: visit.paused }
    }

    fn without_session(title: &str) -> Self {
        Self { title: title.to_owned(), key: None, inside: false, paused: false }
    }
}

/// A page, or an error page.
type OperatorPageResult = Result<Response, OperatorPageError>;

fn render_page(template: &impl Template) -> OperatorPageResult {
    Ok(Html(template.render()?).into_response())
}

/// Reason why a page cannot be shown or an action was refused.
#[derive(Debug)]
enum OperatorPageError {
    Missing,
    Refused(StatusCode, String),
    /// Internal error. The details go to the log; the page says only that an error occurred.
    Broken(String),
}

#[derive(Template)]
#[template(path = "message.html")]
struct MessagePage<'a> {
    page: PageFrame,
    text: &'a str,
}

impl IntoResponse for OperatorPageError {
    fn into_response(self) -> Response {
        let (status, title, text) = match self {
            Self::Missing => {
                let text = "There is no such page, or its data is no longer stored.";
                (StatusCode::NOT_FOUND, "Not found", text.to_owned())
            }
            Self::Refused(status, text) => (status, "Refused", text),
            Self::Broken(why) => {
                tracing::error!(why, "could not read the data of a page");
                let text = "This cannot be read now; the server's log says why.".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, "Error", text)
            }
        };
        message_page(status, PageFrame { inside: true, ..PageFrame::without_session(title) }, &text)
    }
}

/// Returns a page that shows one sentence.
fn message_page(status: StatusCode, page: PageFrame, text: &str) -> Response {
    let page = MessagePage { page, text }.render();
    (status, page.map(Html).map_err(|error| error.to_string())).into_response()
}

impl From<StoreError> for OperatorPageError {
    fn from(error: StoreError) -> Self {
        Self::Broken(with_causes(&error))
    }
}

impl From<EngineError> for OperatorPageError {
    fn from(error: EngineError) -> Self {
        Self::Broken(with_causes(&error))
    }
}

impl From<askama::Error> for OperatorPageError {
    fn from(error: askama::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Converts errors of the control socket. Refusals become sentences for the user; server errors go to the log.
impl From<ControlError> for OperatorPageError {
    fn from(ControlError(status, why): ControlError) -> Self {
        if status.is_server_error() { Self::Broken(why) } else { Self::Refused(status, why) }
    }
}

/// Returns the time since `at` in short form, such as `3 h`.
fn relative_age(now: Timestamp, at: Timestamp) -> String {
    match now.since(at).as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds @ ..3600 => format!("{} min", seconds / 60),
        seconds @ ..86_400 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Template filters.
mod filters {
    #![allow(unreachable_pub, reason = "what the attribute writes is public")]

    use std::fmt::Display;

    /// Replaces control, direction and invisible characters in untrusted text.
    #[askama::filter_fn]
    pub(super) fn plain(text: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
        let shown = |c: char| {
            if c.is_control() && !matches!(c, '\n' | '\t') || super::is_invisible(c) { '\u{FFFD}' } else { c }
        };
        Ok(text.to_string().chars().map(shown).collect())
    }
}
