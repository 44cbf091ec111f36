//! The operator's pages: drawn here from what the store and the engine say, readable without a script, and kept fresh by a
//! few lines of one.
//!
//! Who may see them is decided in [`page_sessions`], before any page is asked. Whatever a page shows of models, people and
//! repositories is text: the templates escape it, and the filter `plain` takes out what turns or hides the rest.

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

/// What the pages are drawn from.
pub(super) struct PagesContext {
    operator: Arc<OperatorContext>,
    streams: Arc<Semaphore>,
}

type PagesState = axum::extract::State<Arc<PagesContext>>;

/// Every page, stream and form. All of them are behind the guard, and so is whatever is not here.
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

/// The paths of the table, for whoever knocks at each of them.
pub fn paths() -> Vec<&'static str> {
    page_routes().into_iter().map(|(path, _)| path).collect()
}

/// All of them, and the two that a stranger may see.
pub(super) fn router(operator: Arc<OperatorContext>) -> Router {
    let room = Arc::new(PagesContext { operator, streams: Arc::new(Semaphore::new(events::STREAMS)) });
    let guarded =
        page_routes().into_iter().fold(Router::new(), |router, (path, method)| router.route(path, method));
    guarded
        .fallback(async || OperatorPageError::Missing)
        .layer(from_fn_with_state(Arc::clone(&room), page_sessions::require_session))
        .route("/enter", get(page_sessions::show_entry).post(page_sessions::open_session))
        .route("/style.css", get(async || asset_response("text/css", include_str!("style.css"))))
        .route("/icon.svg", get(async || asset_response("image/svg+xml", include_str!("icon.svg"))))
        .with_state(room)
}

fn asset_response(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// What every page has around it. A template has it as its field `page` and extends `layout.html`.
struct PageFrame {
    title: String,
    /// The value that each form sends along; none for whoever may only read, who sees no forms.
    key: Option<String>,
    /// False for whoever is not in: there is nowhere to go.
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

/// A page, or why there is none.
type OperatorPageResult = Result<Response, OperatorPageError>;

fn render_page(template: &impl Template) -> OperatorPageResult {
    Ok(Html(template.render()?).into_response())
}

/// Why a page is not shown, or a wish not granted.
#[derive(Debug)]
enum OperatorPageError {
    Missing,
    Refused(StatusCode, String),
    /// For the log; the page says no more than that it is there.
    Broken(String),
}

#[derive(Template)]
#[template(path = "said.html")]
struct MessagePage<'a> {
    page: PageFrame,
    text: &'a str,
}

impl IntoResponse for OperatorPageError {
    fn into_response(self) -> Response {
        let (status, title, text) = match self {
            Self::Missing => {
                let text = "There is no such page, or what it showed is not kept any more.";
                (StatusCode::NOT_FOUND, "Not here", text.to_owned())
            }
            Self::Refused(status, text) => (status, "Not done", text),
            Self::Broken(why) => {
                tracing::error!(why, "a page cannot be shown");
                let text = "This cannot be read now; the server's log says why.".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, "Cannot be read", text)
            }
        };
        message_page(status, PageFrame { inside: true, ..PageFrame::without_session(title) }, &text)
    }
}

/// A page of one sentence.
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

/// The control socket's refusals are sentences, but for those that are our own fault.
impl From<ControlError> for OperatorPageError {
    fn from(ControlError(status, why): ControlError) -> Self {
        if status.is_server_error() { Self::Broken(why) } else { Self::Refused(status, why) }
    }
}

/// `3 h`: how long ago that was.
fn relative_age(now: Timestamp, at: Timestamp) -> String {
    match now.since(at).as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds @ ..3600 => format!("{} min", seconds / 60),
        seconds @ ..86_400 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Filters of the templates.
mod filters {
    #![allow(unreachable_pub, reason = "what the attribute writes is public")]

    use std::fmt::Display;

    /// Text of others without what hides or turns what stands around it.
    #[askama::filter_fn]
    pub(super) fn plain(text: impl Display, _: &dyn askama::Values) -> askama::Result<String> {
        let shown = |c: char| {
            if c.is_control() && !matches!(c, '\n' | '\t') || super::is_invisible(c) { '\u{FFFD}' } else { c }
        };
        Ok(text.to_string().chars().map(shown).collect())
    }
}
