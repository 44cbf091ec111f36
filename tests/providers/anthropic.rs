//! Small imitation of Anthropic's Messages API, with and without streaming.

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
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};

/// Token count that the imitation returns for every prompt.
const COUNTED: u64 = 2000;

/// The way in which the imitation responds to every request.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Responds with a fixed text. The response names the requested model, or `served` if that is set.
    Text {
        served: Option<&'static str>,
    },
    /// Responds with a call of the structured output tool with this input.
    Structured(Value),
    /// Responds with this error status, error type and `Retry-After` in seconds.
    Error(u16, &'static str, Option<u32>),
    /// Responds with this text.
    Says(&'static str),
    MaxTokens,
    Refusal,
    Empty,
    /// Closes the connection in the middle of the message.
    Cut,
    /// Reports an overload error in the middle of the streamed message.
    GivesUp,
    /// Stops sending in the middle of the streamed message, but keeps the connection open.
    Stall,
    /// Sends the complete message, but keeps the connection open.
    StaysOpen,
    /// Starts a second message in the middle of the first one.
    Twice,
    /// Never responds.
    Hang,
}

pub(crate) struct Api {
    behaviour: Behaviour,
    requests: Mutex<Vec<Value>>,
    headers: Mutex<Vec<HeaderMap>>,
}

impl Api {
    pub(crate) fn headers(&self) -> Vec<HeaderMap> {
        self.headers.lock().unwrap().clone()
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) async fn start(behaviour: Behaviour) -> (url::Url, Arc<Api>) {
    let api = Arc::new(Api { behaviour, requests: Mutex::default(), headers: Mutex::default() });
    let count = || async { Json(json!({"input_tokens": COUNTED})) };
    let router = Router::new()
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count))
        .with_state(Arc::clone(&api));
    (crate::serve(router).await, api)
}

async fn messages(State(api): State<Arc<Api>>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    api.headers.lock().unwrap().push(headers);
    api.requests.lock().unwrap().push(request.clone());
    let text = |text: &str| json!({"type": "text", "text": text});
    let (content, stop) = match &api.behaviour {
        Behaviour::Hang => return std::future::pending().await,
        Behaviour::Error(status, kind, retry_after) => {
            let status = StatusCode::from_u16(*status).unwrap();
            let body = json!({"type": "error", "error": {"type": kind, "message": "as the test wants"}});
            let mut response = (status, [("request-id", "req_7")], Json(body)).into_response();
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, (*seconds).into());
            }
            return response;
        }
        Behaviour::Text { .. }
        | Behaviour::Cut
        | Behaviour::GivesUp
        | Behaviour::Stall
        | Behaviour::StaysOpen
        | Behaviour::Twice => (Some(text("It is sound.")), "end_turn"),
        Behaviour::Says(words) => (Some(text(words)), "end_turn"),
        Behaviour::Refusal => (Some(text("I had rather not.")), "refusal"),
        Behaviour::MaxTokens => (Some(text("It is so")), "max_tokens"),
        Behaviour::Empty => (None, "end_turn"),
        Behaviour::Structured(input) => {
            let tool =
                json!({"type": "tool_use", "id": "toolu_1", "name": "StructuredOutput", "input": input});
            (Some(tool), "tool_use")
        }
    };
    let served = match &api.behaviour {
        Behaviour::Text { served: Some(served) } => json!(served),
        _ => request["model"].clone(),
    };
    let message = json!({
        "id": format!("msg_{}", api.requests.lock().unwrap().len()),
        "type": "message", "role": "assistant", "model": served,
        "content": content.iter().collect::<Vec<_>>(),
        "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": 1000, "output_tokens": 50, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    });
    if request["stream"] == true { events(message, &api.behaviour) } else { Json(message).into_response() }
}

/// Returns a response that sends the message as a stream of events.
fn events(mut message: Value, behaviour: &Behaviour) -> Response {
    let content = message["content"].take();
    let stop = message["stop_reason"].take();
    let usage = message["usage"].clone();
    message["content"] = json!([]);
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in content.as_array().into_iter().flatten().enumerate() {
        let (start, delta) = if block["type"] == "text" {
            (json!({"type": "text", "text": ""}), json!({"type": "text_delta", "text": block["text"]}))
        } else {
            let mut start = block.clone();
            start["input"] = json!({});
            (start, json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}))
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage}));
    events.push(json!({"type": "message_stop"}));
    match behaviour {
        Behaviour::Cut | Behaviour::Stall => events.truncate(3),
        Behaviour::Twice => {
            let (begun, all) = (events[..3].to_vec(), std::mem::take(&mut events));
            events.extend(begun.into_iter().chain(all));
        }
        Behaviour::GivesUp => {
            events.truncate(3);
            events.push(
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
            );
        }
        _ => {}
    }
    let body: String = events
        .iter()
        .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
        .collect();
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::HeaderName::from_static("request-id"), "req_7"),
    ];
    if matches!(behaviour, Behaviour::Stall | Behaviour::StaysOpen) {
        let begun = stream::once(async { Ok::<_, Infallible>(body) }).chain(stream::pending());
        return (headers, Body::from_stream(begun)).into_response();
    }
    (headers, body).into_response()
}
