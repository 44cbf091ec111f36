//! Imitation of an API that streams lines, with a behaviour set by the test.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use futures_util::{StreamExt, stream};
use serde_json::Value;

/// Response of the imitation to every request.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// The body, in pieces split at arbitrary bytes.
    Stream(String),
    /// Part of a body; then the connection stays open without data.
    Stall(String),
    /// Part of a body; then the connection breaks.
    Break(String),
    /// Error status, its body and `Retry-After` in seconds.
    Status(u16, Value, Option<u32>),
    /// No response at all.
    Hang,
    /// Each behaviour once, in order; the last one repeats.
    InTurn(Vec<Behaviour>),
}

pub(crate) struct Api {
    behaviour: Behaviour,
    requests: Mutex<Vec<(HeaderMap, Value)>>,
}

impl Api {
    pub(crate) fn requests(&self) -> Vec<(HeaderMap, Value)> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) async fn start(path: &str, behaviour: Behaviour) -> (url::Url, Arc<Api>) {
    let api = Arc::new(Api { behaviour, requests: Mutex::default() });
    let router = Router::new().route(path, post(answer)).with_state(Arc::clone(&api));
    (crate::serve(router).await, api)
}

async fn answer(State(api): State<Arc<Api>>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    let number = {
        let mut requests = api.requests.lock().unwrap();
        requests.push((headers, request));
        requests.len()
    };
    let behaviour = match &api.behaviour {
        Behaviour::InTurn(all) => &all[number.min(all.len()) - 1],
        one => one,
    };
    match behaviour.clone() {
        Behaviour::Stream(text) => {
            let pieces: Vec<_> = text.into_bytes().chunks(7).map(<[u8]>::to_vec).collect();
            Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>))).into_response()
        }
        Behaviour::Stall(text) => {
            let begun = stream::iter([Ok::<_, Infallible>(text)]);
            Body::from_stream(begun.chain(stream::pending())).into_response()
        }
        Behaviour::Break(text) => {
            let broken = std::io::Error::other("as the test wants");
            Body::from_stream(stream::iter([Ok(text), Err(broken)])).into_response()
        }
        Behaviour::Status(status, body, retry_after) => {
            let mut response = (StatusCode::from_u16(status).unwrap(), Json(body)).into_response();
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
        Behaviour::Hang | Behaviour::InTurn(_) => std::future::pending().await,
    }
}
