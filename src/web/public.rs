//! `POST /webhook` and a bare `GET /healthz`.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Notify;

use crate::{
    clock::SharedClock,
    github::webhook,
    limits,
    store::{Accepted, NewDelivery, Store},
    types::InstallationId,
};

/// What the public door needs.
pub struct Door {
    pub store: Arc<Store>,
    /// The webhook's secret, and while it is being rotated the one before.
    pub secrets: Vec<SecretString>,
    /// Rung after each stored delivery.
    pub bell: Arc<Notify>,
    pub clock: SharedClock,
}

/// The routes the world may reach.
pub fn public(door: Door) -> Router {
    Router::new()
        .route("/webhook", post(receive))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(Arc::new(door))
}

async fn receive(State(door): State<Arc<Door>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(refused) = webhook::claimed_digest(&parts.headers) {
        return answer(refused.status, refused.sentence);
    }
    let read = tokio::select! {
        read = read(&parts.headers, body) => read,
        () = door.clock.sleep(limits::WEBHOOK_READ) => {
            let seconds = limits::WEBHOOK_READ.as_secs();
            let sentence = format!("The body did not arrive within {seconds} seconds; send it again.");
            Err(answer(StatusCode::REQUEST_TIMEOUT, &sentence))
        }
    };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let verified = match webhook::verify(&door.secrets, &parts.headers, &bytes) {
        Ok(verified) => verified,
        Err(refused) => return answer(refused.status, refused.sentence),
    };
    let delivery = NewDelivery {
        id: verified.id,
        event: verified.event,
        installation: installation(&bytes),
        body: bytes.to_vec(),
    };
    let id = delivery.id.clone();
    match door.store.inbox().accept(delivery).await {
        Ok(accepted) => {
            door.bell.notify_one();
            let said = match accepted {
                Accepted::New => "stored",
                Accepted::Duplicate => "stored before",
                Accepted::Rearmed => "stored before; will be tried again",
            };
            (StatusCode::ACCEPTED, Json(json!({ "delivery": id, "message": said }))).into_response()
        }
        Err(error) => {
            tracing::error!(delivery = %id, %error, "a delivery could not be stored");
            answer(StatusCode::SERVICE_UNAVAILABLE, "The delivery could not be stored; redeliver it later.")
        }
    }
}

/// The whole body, or the refusal: 413 above GitHub's own limit, 400 when it breaks off.
async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, Response> {
    let too_large = || {
        let limit = limits::WEBHOOK_BODY_BYTES / 1024 / 1024;
        answer(StatusCode::PAYLOAD_TOO_LARGE, &format!("The body is above {limit} MB, GitHub's own limit."))
    };
    let announced =
        headers.get("content-length").and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limits::WEBHOOK_BODY_BYTES) {
        return Err(too_large());
    }
    match Limited::new(body, limits::WEBHOOK_BODY_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(answer(StatusCode::BAD_REQUEST, "The body broke off.")),
    }
}

/// The installation, where the body is JSON that names one. A body that is not JSON is stored all the same
/// and found dead later, with its reason.
fn installation(body: &[u8]) -> Option<InstallationId> {
    #[derive(Deserialize)]
    struct Named {
        installation: Option<Numbered>,
    }
    #[derive(Deserialize)]
    struct Numbered {
        id: u64,
    }
    serde_json::from_slice::<Named>(body).ok()?.installation.map(|i| InstallationId(i.id))
}

fn answer(status: StatusCode, sentence: &str) -> Response {
    (status, Json(json!({ "message": sentence }))).into_response()
}
