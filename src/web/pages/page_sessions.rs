//! Sessions of the pages. `countersign open` prints a single-use link, which opens a session. A cookie identifies the
//! session.
//!
//! The cookie alone does not allow changes. For a change, the session must have permission, the request must come from
//! one of our pages, and the request must carry a form token that only our pages know.

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

/// Maximum size of a submitted form, in bytes. Our forms contain only a few words.
const FORM_BYTES: usize = 16 * 1024;

const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // With `no-referrer` browsers also hide the origin of our own forms.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Host name under which a request reached us. Always one of our own host names.
#[derive(Clone)]
pub(super) struct PageHost {
    /// Origin that a browser sends for pages fetched under this host name.
    origin: String,
    /// Whether this is the public host name rather than a local one.
    public: bool,
}

/// Refuses requests for host names other than our own. Otherwise a page of another site could read our pages through a
/// DNS name that points to this server (DNS rebinding).
pub(in crate::web) async fn require_known_host(
    State(operator): State<Arc<OperatorContext>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut answer = match match_host(&operator, header_text(request.headers(), &header::HOST)) {
        Some(name) => {
            request.extensions_mut().insert(name);
            next.run(request).await
        }
        None => {
            let why = "Request this page at 127.0.0.1, localhost or the host of public_url under [server]; a proxy in front \
                       must pass on the Host header.\n";
            (StatusCode::MISDIRECTED_REQUEST, why).into_response()
        }
    };
    for (name, value) in HEADERS {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn match_host(operator: &OperatorContext, host: &str) -> Option<PageHost> {
    // A request through a tunnel has another port. The colons in `[::1]` do not start one.
    let port = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let bare = host.rsplit_once(':').filter(|(_, end)| port(end)).map_or(host, |(name, _)| name);
    let own = match operator.control.at.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    if ["127.0.0.1", "localhost", "[::1]", &own].contains(&bare) {
        return Some(PageHost { origin: format!("http://{host}"), public: false });
    }
    let url = operator.settings.server.public_url.as_ref()?;
    let ours = &url[url::Position::BeforeHost..url::Position::AfterPort];
    host.eq_ignore_ascii_case(ours)
        .then(|| PageHost { origin: url.origin().ascii_serialization(), public: true })
}

/// A session with access to the pages.
#[derive(Clone)]
pub(super) struct PageSession {
    pub(super) session: Hash,
    /// Form token of the session; `None` for a read-only session.
    pub(super) key: Option<String>,
    /// Whether the server is paused. Each page shows this.
    pub(super) paused: bool,
}

/// Requires a session. Requests that change something must also come from a form on our own pages, and the session must
/// be allowed to make changes.
pub(super) async fn require_session(
    State(pages): PagesState,
    Extension(name): Extension<PageHost>,
    mut request: Request,
    next: Next,
) -> Response {
    let visit = match find_session(&pages, &name, request.headers()).await {
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
    pages: &PagesContext,
    name: &PageHost,
    headers: &HeaderMap,
) -> Result<Option<PageSession>, StoreError> {
    let control = &pages.operator.control;
    let cookie = cookie_name(name);
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    for (_, secret) in pairs.filter(|(name, _)| *name == cookie).take(2) {
        let session = Hash::digest(secret.as_bytes());
        if let Some(scope) = control.store.session_scope(session).await? {
            // Derived from the cookie's secret: unknown without the cookie, and the same on every node behind one name.
            let key = (scope == SessionScope::Act)
                .then(|| Hash::digest_parts([b"form", secret.as_bytes()]).to_string());
            let pauses = control.store.pauses().await?;
            let paused = pauses.iter().any(|pause| pause.scope == PauseScope::Server);
            return Ok(Some(PageSession { session, key, paused }));
        }
    }
    Ok(None)
}

/// Returns the name of the session cookie. The name includes the port, because browsers send a host's cookies to all
/// its ports and several servers may run on one host.
fn cookie_name(name: &PageHost) -> String {
    let port = name.origin.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok());
    format!("countersign_{}", port.unwrap_or("https"))
}

/// Checks that this session may send this form. Returns the request with its body still readable.
async fn check_form(name: &PageHost, visit: &PageSession, request: Request) -> Result<Request, &'static str> {
    check_origin(name, request.headers())?;
    let key = visit.key.as_deref();
    let key =
        key.ok_or("This session is read-only; changing something needs a link of `countersign open --act`.")?;
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, FORM_BYTES)
        .await
        .map_err(|_| "This is not one of our forms; send it from the page.")?;
    let mut fields = url::form_urlencoded::parse(&body);
    if !fields.any(|(name, value)| name == "key" && constant_time_eq(&value, key)) {
        return Err(
            "This form belongs to an earlier session or server; load the page again and send it from there.",
        );
    }
    Ok(Request::from_parts(parts, Body::from(body)))
}

/// Checks the `Origin` header, which browsers set and pages cannot fake.
fn check_origin(name: &PageHost, headers: &HeaderMap) -> Result<(), &'static str> {
    let from = header_text(headers, &header::ORIGIN);
    let why = "This form was sent by a page of another site; open ours and send it from there.";
    if from.eq_ignore_ascii_case(&name.origin) { Ok(()) } else { Err(why) }
}

/// Returns the response to a request without a session. Under a local host name, the response explains how to get a
/// session; under the public name, it is a plain 404.
fn no_session_response(name: &PageHost, headers: &HeaderMap) -> Response {
    let mut answer = if name.public {
        (StatusCode::NOT_FOUND, "Not found.\n").into_response()
    } else {
        let how = "Only the operator of this server can see these pages. Run `countersign open` on it and open the link that it prints; \
                   with `--act` you can also make changes.";
        message_page(StatusCode::UNAUTHORIZED, PageFrame::without_session("Not signed in"), how)
    };
    // Browsers omit a strict cookie when the user follows a link on another site. A refresh from our own page includes
    // it.
    if header_text(headers, &HeaderName::from_static("sec-fetch-site")) == "cross-site" {
        answer.headers_mut().insert(header::REFRESH, HeaderValue::from_static("0"));
    }
    answer
}

/// Query parameters of the single-use link that opens a session.
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

/// Shows the entry page without using up the single-use link, because mail programs and browsers prefetch links.
pub(super) async fn show_entry(Query(EntryLink { link }): Query<EntryLink>) -> OperatorPageResult {
    render_page(&EntryPage { page: PageFrame::without_session("Sign in"), link: &link })
}

pub(super) async fn open_session(
    State(pages): PagesState,
    Extension(name): Extension<PageHost>,
    headers: HeaderMap,
    Form(EntryLink { link }): Form<EntryLink>,
) -> OperatorPageResult {
    let refused =
        |why: &str| Ok(message_page(StatusCode::FORBIDDEN, PageFrame::without_session("Not signed in"), why));
    if let Err(why) = check_origin(&name, &headers) {
        return refused(why);
    }
    let secret = random_hex().map_err(|error| OperatorPageError::Broken(error.to_string()))?;
    let (link, session) = (Hash::digest(link.as_bytes()), Hash::digest(secret.as_bytes()));
    let Some(lasts) = pages.operator.control.store.redeem_link(link, session).await? else {
        return refused(
            "This link was used before or is older than ten minutes; `countersign open` prints a new one.",
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
