//! HTTP listener for the API, Git and the pages, dispatched by path. Requests are read completely and handled on a
//! blocking thread, because Git runs as a separate process.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::{Request as Incoming, State},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use tokio::net::TcpListener;

use super::{Hub, pages, rest, smart_http};
use crate::types::Timestamp;

/// Maximum size of a request body. GitHub accepts blobs up to 100 MB, but a rehearsal posts far less.
const BODY_BYTES: usize = 40 * 1024 * 1024;

/// Root path of the API, the same as on GitHub Enterprise Server.
const API: &str = "/api/v3";

const GRAPHQL: &str = "/api/graphql";

/// First path segments of API routes that also work without the prefix [`API`]. No page uses these segments.
const ROOT_API_SEGMENTS: [&str; 9] = [
    "app",
    "app-manifests",
    "graphql",
    "installation",
    "meta",
    "rate_limit",
    "repos",
    "repositories",
    "users",
];

pub(super) struct HubRequest {
    pub(super) method: Method,
    /// Path of the request, still percent-encoded. For API requests, it is relative to the API's root.
    pub(super) path: String,
    pub(super) segments: Vec<String>,
    pub(super) query: BTreeMap<String, String>,
    pub(super) raw_query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

pub(super) struct HubReply {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) sent: ReplyTiming,
}

/// Timing with which a response is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ReplyTiming {
    #[default]
    Whole,
    Late(Duration),
    /// No response is ever sent; the connection is closed instead.
    Never,
}

impl HubRequest {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|v| v.to_str().ok())
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }
}

impl HubReply {
    pub(super) fn new(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        Self { status, headers, body, sent: ReplyTiming::Whole }
    }

    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        Self::new(status, "application/json; charset=utf-8", body.to_string().into_bytes())
    }

    pub(super) fn text(status: StatusCode, body: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", body.as_bytes().to_vec())
    }

    pub(super) fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Vec::new(), sent: ReplyTiming::Whole }
    }

    /// Adds a header. Does nothing if the value is not valid in a header.
    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }
}

pub(super) async fn serve(hub: Hub, listener: TcpListener) {
    let stop = hub.0.stop.clone();
    let service = Router::new().fallback(answer).with_state(Arc::new(hub));
    let served = axum::serve(listener, service).with_graceful_shutdown(async move { stop.cancelled().await });
    if let Err(error) = served.await {
        tracing::error!(%error, "localhub stopped listening");
    }
}

async fn answer(State(hub): State<Arc<Hub>>, incoming: Incoming) -> Response {
    let (parts, body) = incoming.into_parts();
    if !is_our_host(&hub, &parts.headers) {
        let text = "localhub answers only to 127.0.0.1 and localhost, with its own port.\n";
        return into_response(HubReply::text(StatusCode::MISDIRECTED_REQUEST, text));
    }
    let Ok(body) = axum::body::to_bytes(body, BODY_BYTES).await else {
        return into_response(HubReply::text(StatusCode::PAYLOAD_TOO_LARGE, "The request is too large.\n"));
    };
    let path = parts.uri.path();
    let path = if path == GRAPHQL { "/graphql" } else { path };
    let api = path.strip_prefix(API).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let bare = path.split('/').nth(1).is_some_and(|first| ROOT_API_SEGMENTS.contains(&first));
    let is_api = api.is_some() || bare;
    let path = api.unwrap_or(path).to_owned();
    let raw_query = parts.uri.query().unwrap_or_default().to_owned();
    let request = HubRequest {
        method: parts.method,
        segments: path
            .split('/')
            .filter(|s| !s.is_empty())
            .map(|s| percent_decode_str(s).decode_utf8_lossy().into_owned())
            .collect(),
        query: url::form_urlencoded::parse(raw_query.as_bytes()).into_owned().collect(),
        raw_query,
        path,
        headers: parts.headers,
        body,
    };
    if !is_api && pages::is_event_stream_request(&request) {
        return pages::event_stream(&hub, &request);
    }
    let date = http_date((hub.0.now)());
    let answered = tokio::task::spawn_blocking(move || {
        if is_api {
            rest::answer(&hub, &request)
        } else if request.segments.first().is_some_and(|first| first == "_logs") {
            hub.0.serve_log(&request)
        } else if smart_http::is_git(&request) {
            smart_http::answer(&hub, &request)
        } else {
            pages::answer(&hub, &request)
        }
    });
    let reply = answered
        .await
        .unwrap_or_else(|_| HubReply::text(StatusCode::INTERNAL_SERVER_ERROR, "localhub failed.\n"));
    if let ReplyTiming::Late(by) = reply.sent {
        tokio::time::sleep(by).await;
    }
    into_response(reply.with_header("date", &date))
}

/// Formats a time for the `Date` header. The hub's own time is used, because clients compare their clocks with it.
fn http_date(now: Timestamp) -> String {
    let format = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let now = time::OffsetDateTime::from_unix_timestamp(now.0.div_euclid(1000)).ok();
    now.and_then(|now| now.format(format).ok()).unwrap_or_default()
}

/// Whether the `Host` header names our address. A foreign web page can make a browser send requests to the hub, but not
/// with the hub's host name.
fn is_our_host(hub: &Hub, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or_default();
    let port = hub.0.address.port();
    host == hub.0.address.to_string()
        || host == format!("localhost:{port}")
        || host == format!("127.0.0.1:{port}")
}

fn into_response(reply: HubReply) -> Response {
    if reply.sent == ReplyTiming::Never {
        // A body that fails before its first byte: nothing has been sent by then, not even the status.
        let broken = futures_util::stream::once(async { Err::<Bytes, _>(io::Error::other("dropped")) });
        return Response::new(Body::from_stream(broken));
    }
    let mut response = Response::new(Body::from(reply.body));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}
