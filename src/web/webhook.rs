//! `POST /webhook` and a bare `GET /healthz`.

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

/// A webhook's whole body, from its first byte; GitHub itself gives up after ten seconds.
const WEBHOOK_READ: Duration = Duration::from_secs(15);

/// When a sender who was turned away may come again.
const WEBHOOK_RETRY_AFTER: Duration = Duration::from_secs(5);

/// What the public door needs.
pub struct WebhookContext {
    pub store: Arc<Store>,
    /// The webhook's secret, and while it is being rotated the one before.
    pub secrets: ReloadableValue<Vec<SecretString>>,
    /// Rung after each stored delivery.
    pub bell: Arc<Notify>,
    pub clock: SharedClock,
    pub refusals: Arc<WebhookRefusalLog>,
    pub deliveries: DeliveryOutcomeCounter,
}

/// Requests to the webhook since this server started, by what was answered.
pub type DeliveryOutcomeCounter = Family<[(&'static str, &'static str); 1], Counter>;

/// Requests that were turned away as no delivery of GitHub's. A wrong secret shows nowhere else, and anybody may send
/// any number of them, so all are counted and a few are logged.
#[derive(Default)]
pub struct WebhookRefusalLog(LogThrottle);

impl WebhookRefusalLog {
    /// Since this server started.
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

/// The door and how much may stand in it.
struct WebhookState {
    door: WebhookContext,
    /// What waits to be written is in it too, so that it bounds the writer's queue.
    room: BodyBuffer,
}

/// The routes the world may reach.
pub fn webhook_router(door: WebhookContext) -> Router {
    let room = BodyBuffer::new(limits::PENDING_DELIVERY_BYTES);
    Router::new()
        .route("/webhook", post(receive))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(Arc::new(WebhookState { door, room }))
}

async fn receive(State(entrance): State<Arc<WebhookState>>, request: Request) -> Response {
    let door = &entrance.door;
    let (parts, body) = request.into_parts();
    let turn_away = |refused: WebhookRefusal| {
        door.count("refused");
        door.refusals.record(&parts.headers, &refused, door.clock.now());
        text_response(refused.status, refused.sentence)
    };
    if let Err(refused) = webhook::claimed_digest(&parts.headers) {
        return turn_away(refused);
    }
    let read = tokio::select! {
        read = read_body(&entrance.room, &parts.headers, body) => read,
        () = door.clock.sleep(WEBHOOK_READ) => {
            let seconds = WEBHOOK_READ.as_secs();
            let sentence = format!("The body did not arrive within {seconds} seconds; send it again.");
            Err(text_response(StatusCode::REQUEST_TIMEOUT, &sentence))
        }
    };
    // The share of the room is given back when the answer is ready.
    let (bytes, _share) = match read {
        Ok(read) => read,
        Err(refusal) => {
            door.count("unread");
            return refusal;
        }
    };
    let verified = match webhook::verify(&door.secrets.get(), &parts.headers, &bytes) {
        Ok(verified) => verified,
        Err(refused) => return turn_away(refused),
    };
    store_delivery(door, verified, bytes).await
}

async fn store_delivery(door: &WebhookContext, verified: VerifiedDelivery, body: Vec<u8>) -> Response {
    let VerifiedDelivery { id, event } = verified;
    let subject = WebhookEvent::subject(&event, &body);
    let delivery = NewDelivery { id: id.clone(), event, subject, swept: false, body };
    match door.store.inbox().accept_delivery(delivery).await {
        Ok(accepted) => {
            door.bell.notify_one();
            let (outcome, message) = match accepted {
                DeliveryReceipt::New => ("stored", "stored"),
                DeliveryReceipt::Duplicate => ("duplicate", "stored before"),
                DeliveryReceipt::Rearmed => ("rearmed", "stored before; will be tried again"),
            };
            door.count(outcome);
            (StatusCode::ACCEPTED, Json(DeliveryResponseBody { delivery: &id, message })).into_response()
        }
        Err(error) => {
            door.count("failed");
            tracing::error!(delivery = %id, %error, "a delivery could not be stored");
            retry_later("The delivery could not be stored; redeliver it later.")
        }
    }
}

#[derive(Serialize)]
struct DeliveryResponseBody<'a> {
    delivery: &'a DeliveryId,
    message: &'static str,
}

/// The whole body and its share of the room, or the refusal: 413 above GitHub's own limit, 400 when it breaks
/// off, 503 when there is no room or it had to give way.
async fn read_body(
    room: &BodyBuffer,
    headers: &HeaderMap,
    mut body: Body,
) -> Result<(Vec<u8>, OwnedSemaphorePermit), Response> {
    let announced =
        headers.get("content-length").and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<usize>().ok());
    let longest = announced.unwrap_or(limits::WEBHOOK_BODY_BYTES);
    if longest > limits::WEBHOOK_BODY_BYTES {
        return Err(too_large());
    }
    let full = |_: BufferFull| retry_later("Too much is arriving at once; redeliver it later.");
    let mut arriving = room.begin_body(longest).map_err(full)?;
    let mut came = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = arriving.wait_until_evicted() => return Err(full(BufferFull)),
        };
        let Some(frame) = frame else { return arriving.finish().map_err(full) };
        let frame = frame.map_err(|_| text_response(StatusCode::BAD_REQUEST, "The body broke off."))?;
        let Some(part) = frame.data_ref() else { continue };
        came += part.len();
        if came > limits::WEBHOOK_BODY_BYTES {
            return Err(too_large());
        }
        arriving.add(part).map_err(full)?;
    }
}

fn too_large() -> Response {
    let limit = limits::WEBHOOK_BODY_BYTES / 1024 / 1024;
    text_response(
        StatusCode::PAYLOAD_TOO_LARGE,
        &format!("The body is above {limit} MB, GitHub's own limit."),
    )
}

/// Not now. GitHub does not come again by itself; the sweep of its delivery log does.
fn retry_later(sentence: &str) -> Response {
    let mut response = text_response(StatusCode::SERVICE_UNAVAILABLE, sentence);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(WEBHOOK_RETRY_AFTER.as_secs()));
    response
}

fn text_response(status: StatusCode, sentence: &str) -> Response {
    (status, Json(json!({ "message": sentence }))).into_response()
}
