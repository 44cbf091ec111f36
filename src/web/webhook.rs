//! `POST /webhook`, and `GET /healthz`, which only answers `ok`.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http_body_util::BodyExt;
use prometheus_client::metrics::{counter::Counter, family::Family};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::{
    body_buffer::{BodyBuffer, BufferFull},
    listener::LogThrottle,
};
use crate::{
    clock::SharedClock,
    config::ReloadableValue,
    github::{
        WebhookEvent,
        webhook::{self, VerifiedDelivery, WebhookRefusal},
    },
    limits,
    store::{DeliveryReceipt, NewDelivery, Store},
    types::{DeliveryId, Timestamp},
};

/// Timeout for reading a whole request body. GitHub itself gives up after ten seconds.
const WEBHOOK_READ: Duration = Duration::from_secs(15);

/// Value of the `Retry-After` header when the server cannot take a delivery now.
const WEBHOOK_RETRY_AFTER: Duration = Duration::from_secs(5);

/// State of the public listener's routes.
pub struct WebhookContext {
    pub store: Arc<Store>,
    /// The webhook secret. During a rotation, also the previous secret.
    pub secrets: ReloadableValue<Vec<SecretString>>,
    /// Notified after each stored delivery.
    pub bell: Arc<Notify>,
    pub clock: SharedClock,
    pub refusals: Arc<WebhookRefusalLog>,
    pub deliveries: DeliveryOutcomeCounter,
}

/// Number of webhook requests since the server's start, by kind of response.
pub type DeliveryOutcomeCounter = Family<[(&'static str, &'static str); 1], Counter>;

/// Counts and logs requests that were refused because they are not from GitHub. A wrong webhook secret shows up nowhere
/// else. Anybody can send invalid requests at will, so all of them are counted but only few are logged.
#[derive(Default)]
pub struct WebhookRefusalLog(LogThrottle);

impl WebhookRefusalLog {
    /// Returns the number of refused requests since the server's start.
    pub fn count(&self) -> u64 {
        self.0.total()
    }

    fn record(&self, headers: &HeaderMap, refused: &WebhookRefusal, now: Timestamp) {
        if self.0.record(now).is_some() {
            let count = self.count();
            let delivery = webhook::delivery_id(headers).unwrap_or_else(|| "none".to_owned());
            tracing::warn!(delivery, status = refused.status.as_u16(), count, "webhook refused: {refused}");
        }
    }
}

impl WebhookContext {
    fn count(&self, outcome: &'static str) {
        self.deliveries.get_or_create(&[("outcome", outcome)]).inc();
    }
}

/// Context and body buffer of the webhook route.
struct WebhookState {
    context: WebhookContext,
    /// Buffer for request bodies. Bodies that wait to be written to disk stay in the buffer, so it also limits the
    /// length of the writer's queue.
    buffer: BodyBuffer,
}

/// Returns the routes of the public listener.
pub fn webhook_router(context: WebhookContext) -> Router {
    let buffer = BodyBuffer::new(limits::PENDING_DELIVERY_BYTES);
    Router::new()
        .route("/webhook", post(receive))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(Arc::new(WebhookState { context, buffer }))
}

async fn receive(State(state): State<Arc<WebhookState>>, request: Request) -> Response {
    let context = &state.context;
    let (parts, body) = request.into_parts();
    let refuse = |refused: WebhookRefusal| {
        context.count("refused");
        context.refusals.record(&parts.headers, &refused, context.clock.now());
        text_response(refused.status, refused.sentence)
    };
    if let Err(refused) = webhook::claimed_digest(&parts.headers) {
        return refuse(refused);
    }
    let read = tokio::select! {
        read = read_body(&state.buffer, &parts.headers, body) => read,
        () = context.clock.sleep(WEBHOOK_READ) => {
            let seconds = WEBHOOK_READ.as_secs();
            let sentence = format!("The body did not arrive within {seconds} seconds; send it again.");
            Err(text_response(StatusCode::REQUEST_TIMEOUT, &sentence))
        }
    };
    // The permit is released when the response is ready.
    let (bytes, _share) = match read {
        Ok(read) => read,
        Err(refusal) => {
            context.count("unread");
            return refusal;
        }
    };
    let verified = match webhook::verify(&context.secrets.get(), &parts.headers, &bytes) {
        Ok(verified) => verified,
        Err(refused) => return refuse(refused),
    };
    store_delivery(context, verified, bytes).await
}

async fn store_delivery(context: &WebhookContext, verified: VerifiedDelivery, body: Vec<u8>) -> Response {
    let VerifiedDelivery { id, event } = verified;
    let subject = WebhookEvent::subject(&event, &body);
    let delivery = NewDelivery { id: id.clone(), event, subject, swept: false, body };
    match context.store.inbox().accept_delivery(delivery).await {
        Ok(accepted) => {
            context.bell.notify_one();
            let (outcome, message) = match accepted {
                DeliveryReceipt::New => ("stored", "stored"),
                DeliveryReceipt::Duplicate => ("duplicate", "stored before"),
                DeliveryReceipt::Rearmed => ("rearmed", "stored before; will be tried again"),
            };
            context.count(outcome);
            (StatusCode::ACCEPTED, Json(DeliveryResponseBody { delivery: &id, message })).into_response()
        }
        Err(error) => {
            context.count("failed");
            tracing::error!(delivery = %id, %error, "could not store a delivery; the sender should retry");
            retry_later("The delivery could not be stored; redeliver it later.")
        }
    }
}

#[derive(Serialize)]
struct DeliveryResponseBody<'a> {
    delivery: &'a DeliveryId,
    message: &'static str,
}

/// Reads the whole body and returns it with its buffer permit. Otherwise returns the error response. The status is 413
/// if the body exceeds GitHub's own limit, 400 if the body ends early, and 503 if the buffer is full or the body was
/// evicted.
async fn read_body(
    buffer: &BodyBuffer,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Response> {
    let announced =
        headers.get("content-length").and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<usize>().ok());
    let longest = announced.unwrap_or(limits::WEBHOOK_BODY_BYTES);
    if longest > limits::WEBHOOK_BODY_BYTES {
        return Err(too_large());
    }
    let full = |_: BufferFull| retry_later("Too many deliveries are arriving at once; redeliver it later.");
    let mut arriving = buffer.begin_body(longest).map_err(full)?;
    let mut received = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = arriving.wait_until_evicted() => return Err(full(BufferFull)),
        };
        let Some(frame) = frame else { return arriving.finish().map_err(full) };
        let frame = frame.map_err(|_| text_response(StatusCode::BAD_REQUEST, "The body ended early."))?;
        let Some(part) = frame.data_ref() else { continue };
        received += part.len();
        if received > limits::WEBHOOK_BODY_BYTES {
            return Err(too_large());
        }
        arriving.add(part).map_err(full)?;
    }
}

fn too_large() -> Response {
    let limit = limits::WEBHOOK_BODY_BYTES / 1024 / 1024;
    text_response(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("The body is larger than {limit} MB, GitHub's own limit."),
    )
}

/// Returns a 503 response with this sentence. GitHub does not retry by itself, but the sweep of GitHub's delivery log
/// finds the delivery later.
fn retry_later(sentence: &str) -> Response {
    let mut response = text_response(StatusCode::SERVICE_UNAVAILABLE, sentence);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(WEBHOOK_RETRY_AFTER.as_secs()));
    response
}

fn text_response(status: StatusCode, sentence: &str) -> Response {
    (status, Json(json!({ "message": sentence }))).into_response()
}
