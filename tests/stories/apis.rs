//! Imitations of the HTTP APIs of models, for stories about real providers.

use std::sync::{Arc, Mutex};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};

use crate::{
    anthropic::{self, Api, Behaviour},
    script::design,
    serve,
};

/// Cost in micro-dollars of a complete response of Anthropic's API.
pub(crate) const DRAFT: u64 = 1000 * 4 + 50 * 20;
/// Cost in micro-dollars of the partial response of `dying-claude.sh`.
pub(crate) const BEGUN: u64 = 900 * 4 + 7 * 20;
/// Cost in micro-dollars of a response of Gemini's API.
pub(crate) const REVIEW: u64 = 1000 * 2 + 50 * 12;

/// Starts an imitation of Anthropic's API that responds with a design for the first issue.
pub(crate) async fn drafting() -> (url::Url, Arc<Api>) {
    let text = design()
        .replace("{{path}}", "src/lib.rs")
        .replace("{{issue}}", "1")
        .replace("{{title}}", "Something to be built");
    anthropic::start(Behaviour::Says(text.leak())).await
}

/// Imitation of Gemini's API that approves every prompt, unless the key's quota is exhausted.
#[derive(Default)]
pub(crate) struct Gemini {
    /// Key whose project has exhausted its daily quota.
    used_up: Option<&'static str>,
    asked: Mutex<Vec<String>>,
}

impl Gemini {
    /// Returns the key of each request, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) async fn reviewing(used_up: Option<&'static str>) -> (url::Url, Arc<Gemini>) {
    let api = Arc::new(Gemini { used_up, ..Gemini::default() });
    let router = Router::new().route("/v1beta/models/{target}", post(generate)).with_state(Arc::clone(&api));
    (serve(router).await, api)
}

async fn generate(
    State(api): State<Arc<Gemini>>,
    Path(target): Path<String>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response {
    let key = headers["x-goog-api-key"].to_str().unwrap().to_owned();
    api.asked.lock().unwrap().push(key.clone());
    if api.used_up == Some(key.as_str()) {
        let day = json!([{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}]);
        let error = json!({"error": {"message": "You exceeded your current quota", "details": day}});
        return (StatusCode::TOO_MANY_REQUESTS, Json(error)).into_response();
    }
    let prompt = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
    let nonce = prompt.split("Put the word `").nth(1).unwrap().split('`').next().unwrap();
    let review = json!({
        "nonce": nonce, "verdict": "APPROVED", "rationale": "It is sound.", "findings": [], "resolved": [],
    });
    Json(json!({
        "candidates": [{"content": {"parts": [{"text": review.to_string()}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 50},
        "modelVersion": target.split(':').next().unwrap(),
    }))
    .into_response()
}
