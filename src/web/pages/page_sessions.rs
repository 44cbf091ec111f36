//! Who gets in. `countersign open` prints a link that is good for one visit; the visit makes a session, which a cookie names.
//!
//! The cookie alone is not enough to act: the session must be for acting, the request must come from a page of ours, and
//! it must bring a value that only such a page could be told.

use std::{net::IpAddr, sync::Arc};

use askama::Template;
use axum::{
    Extension, Form,
    body::{Body, to_bytes},
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::{
    OperatorPageError, OperatorPageResult, PageFrame, PagesContext, PagesState, filters, message_page,
    render_page,
};
use crate::{
    store::{PauseScope, SessionScope, StoreError},
    types::Hash,
    web::{
        OperatorContext,
        server_token::{constant_time_eq, header_text, random_hex},
    },
};

/// Our forms hold a few words.
const FORM_BYTES: usize = 16 * 1024;

const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With `no-referrer` a browser hides the origin of our own forms, too.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// The name that a request was sent to, as far as it is one of ours.
#[derive(Clone)]
pub(super) struct PageHost {
    /// Of a page that was fetched by this name.
    origin: String,
    /// The world's name for us, and not this machine's.
    public: bool,
}

/// Answers to our own names only, so that a page of another site can't read ours through a name that leads here.
pub(in crate::web) async fn require_known_host(
    State(room): State<Arc<OperatorContext>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut answer = match match_host(&room, header_text(request.headers(), &header::HOST)) {
        Some(name) => {
            request.extensions_mut().insert(name);
            next.run(request).await
        }
        None => {
            let why = "Ask for this page at 127.0.0.1, localhost or the host of public_url under [server]; a proxy in front \
                       must hand on the Host that it was asked for.\n";
            (StatusCode::MISDIRECTED_REQUEST, why).into_response()
        }
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn match_host(room: &OperatorContext, host: &str) -> Option<PageHost> {
    // Whoever comes through a tunnel has another port. The colons of `[::1]` are not before one.
    let port = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let bare = host.rsplit_once(':').filter(|(_, end)| port(end)).map_or(host, |(name, _)| name);
    let own = match room.control.at.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    if ["127.0.0.1", "localhost", "[::1]", &own].contains(&bare) {
        return Some(PageHost { origin: format!("http://{host}"), public: false });
    }
    let url = room.settings.server.public_url.as_ref()?;
    let ours = &url[url::Position::BeforeHost..url::Position::AfterPort];
    host.eq_ignore_ascii_case(ours)
        .then(|| PageHost { origin: url.origin().ascii_serialization(), public: true })
}

/// Somebody who may see the pages.
#[derive(Clone)]
pub(super) struct PageSession {
    pub(super) session: Hash,
    /// What each form brings; none for whoever may only read.
    pub(super) key: Option<String>,
    /// Is the server paused? Each page says so.
    pub(super) paused: bool,
}

/// Lets only those through who have a session; and to what changes something, only those who may, from our own pages.
pub(super) async fn require_session(
    State(room): PagesState,
    Extension(name): Extension<PageHost>,
    mut request: Request,
    next: Next,
) -> Response {
    let visit = match find_session(&room, &name, request.headers()).await {
        Ok(Some(visit)) => visit,
        Ok(None) => return no_session_response(&name, request.headers()),
        Err(error) => return OperatorPageError::from(error).into_response(),
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        request = match check_form(&name, &visit, request).await {
            Ok(request) => request,
            Err(why) => {
                return OperatorPageError::Refused(StatusCode::FORBIDDEN, why.to_owned()).into_response();
            }
        };
    }
    request.extensions_mut().insert(visit);
    next.run(request).await
}

async fn find_session(
    room: &PagesContext,
    name: &PageHost,
    headers: &HeaderMap,
) -> Result<Option<PageSession>, StoreError> {
    let control = &room.operator.control;
    let cookie = cookie_name(name);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    for (_, secret) in pairs.filter(|(name, _)| *name == cookie).take(2) {
        let session = Hash::digest(secret.as_bytes());
        if let Some(scope) = control.store.session_scope(session).await? {
            // Whoever has no cookie cannot know it, and each node behind one name does.
            let key = (scope == SessionScope::Act)
                .then(|| Hash::digest_parts([b"form", secret.as_bytes()]).to_string());
            let pauses = control.store.pauses().await?;
            let paused = pauses.iter().any(|pause| pause.scope == PauseScope::Server);
            return Ok(Some(PageSession { session, key, paused }));
        }
    }
    Ok(None)
}

/// A browser sends a host's cookies to all its ports, and several servers may be there.
fn cookie_name(name: &PageHost) -> String {
    let port = name.origin.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
    format!("countersign_{}", port.unwrap_or("https"))
}

/// May this visitor send this form? The request comes back whole.
async fn check_form(name: &PageHost, visit: &PageSession, request: Request) -> Result<Request, &'static str> {
    check_origin(name, request.headers())?;
    let key = visit.key.as_deref();
    let key =
        key.ok_or("You may read here and change nothing; that needs a link of `countersign open --act`.")?;
    let (parts, body) = request.into_parts();
    let body =
        to_bytes(body, FORM_BYTES).await.map_err(|_| "This is no form of ours; send it from the page.")?;
    let mut fields = url::form_urlencoded::parse(&body);
    if !fields.any(|(name, value)| name == "key" && constant_time_eq(&value, key)) {
        return Err(
            "This form is of an earlier session or server; load the page again and send it from there.",
        );
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Does the request come from a page of ours? A browser says so and lets no page lie.
fn check_origin(name: &PageHost, headers: &HeaderMap) -> Result<(), &'static str> {
    let from = header_text(headers, &header::ORIGIN);
    let why = "This form was sent by a page of another site; open ours and send it from there.";
    if from.eq_ignore_ascii_case(&name.origin) { Ok(()) } else { Err(why) }
}

/// What is said to whoever has no session. At this machine, how to get one; to the world nothing, whatever was asked.
fn no_session_response(name: &PageHost, headers: &HeaderMap) -> Response {
    let mut answer = if name.public {
        (StatusCode::NOT_FOUND, "Not found.\n").into_response()
    } else {
        let how = "These pages are for whoever runs this server. Run `countersign open` there, and open the link that it prints; \
                   `--act` lets you change something, too.";
        message_page(StatusCode::UNAUTHORIZED, PageFrame::without_session("Who are you?"), how)
    };
    // A strict cookie stays away when a link on another site was followed. What this page then asks for itself brings it.
    if header_text(headers, &HeaderName::from_static("sec-fetch-site")) == "cross-site" {
        answer.headers_mut().insert(header::REFRESH, HeaderValue::from_static("0"));
    }
    answer
}

/// What a link carries.
#[derive(Deserialize)]
pub(super) struct EntryLink {
    link: String,
}

#[derive(Template)]
#[template(path = "enter.html")]
struct EntryPage<'a> {
    page: PageFrame,
    link: &'a str,
}

/// A link that is only looked at, as mail programs and browsers do ahead of a person, is not spent.
pub(super) async fn show_entry(Query(EntryLink { link }): Query<EntryLink>) -> OperatorPageResult {
    render_page(&EntryPage { page: PageFrame::without_session("Come in"), link: &link })
}

pub(super) async fn open_session(
    State(room): PagesState,
    Extension(name): Extension<PageHost>,
    headers: HeaderMap,
    Form(EntryLink { link }): Form<EntryLink>,
) -> OperatorPageResult {
    let refused =
        |why: &str| Ok(message_page(StatusCode::FORBIDDEN, PageFrame::without_session("Not in"), why));
    if let Err(why) = check_origin(&name, &headers) {
        return refused(why);
    }
    let secret = random_hex().map_err(|error| OperatorPageError::Broken(error.to_string()))?;
    let (link, session) = (Hash::digest(link.as_bytes()), Hash::digest(secret.as_bytes()));
    let Some(lasts) = room.operator.control.store.redeem_link(link, session).await? else {
        return refused(
            "This link was used before, or is older than ten minutes; `countersign open` prints another.",
        );
    };
    let secure = if name.origin.starts_with("https:") { "; Secure" } else { "" };
    let cookie = format!(
        "{}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}{secure}",
        cookie_name(&name),
        lasts.as_secs()
    );
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response())
}
