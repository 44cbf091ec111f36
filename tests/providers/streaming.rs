//! Imitation of an API that streams lines. The test sets its behaviour.

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

/// The way in which the imitation responds to every request.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Sends this body, in pieces that are split at arbitrary bytes.
    Stream(String),
    /// Sends this part of a body; then keeps the connection open without sending more.
    Stall(String),
    /// Sends this part of a body; then breaks the connection.
    Break(String),
    /// Responds with this error status, this body and this `Retry-After` in seconds.
    Status(u16, Value, Option<u32>),
    /// Never responds.
    Hang,
    /// Behaves in each of these ways once, in order, and then repeats the last one.
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
