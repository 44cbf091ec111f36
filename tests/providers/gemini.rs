//! Tests of Gemini, against our imitation of `generateContent`.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use countersign::{
    clock::SystemClock,
    config::{GeminiKey, ModelSettings},
    providers::{CallError, CallErrorKind, ModelCall, ModelProviders, ModelReply},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{FixedClock, ask, ask_with_clock, question, schema, serve, settings};

const KEY: &str = "AIzaTheKeyOfThisTest";

struct Api {
    status: StatusCode,
    answer: Value,
    requests: Mutex<Vec<(String, HeaderMap, Value)>>,
}

async fn generate(
    State(api): State<Arc<Api>>,
    Path(target): Path<String>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Response {
    api.requests.lock().unwrap().push((target, headers, request));
    (api.status, Json(api.answer.clone())).into_response()
}

async fn start(status: u16, answer: Value) -> (ModelSettings, Arc<Api>) {
    let status = StatusCode::from_u16(status).unwrap();
    let api = Arc::new(Api { status, answer, requests: Mutex::default() });
    let router = Router::new().route("/v1beta/models/{target}", post(generate)).with_state(Arc::clone(&api));
    let mut settings = settings("/nowhere".as_ref());
    settings.gemini.base_url = serve(router).await;
    settings.gemini.keys = vec![GeminiKey::without_details("default", KEY.into())];
    (settings, api)
}

async fn call(status: u16, answer: Value, with_schema: bool) -> (Result<ModelReply, CallError>, Arc<Api>) {
    let (settings, api) = start(status, answer).await;
    let mut call = question("gemini");
    call.schema = with_schema.then(schema);
    (ask_with_clock(Arc::new(FixedClock), &settings, "gemini:pro", call).await, api)
}

async fn kind(status: u16, answer: Value) -> CallErrorKind {
    let (outcome, _) = call(status, answer, false).await;
    let error = outcome.unwrap_err();
    assert!(!error.to_string().contains(KEY) && !format!("{error:?}").contains(KEY), "{error:?}");
    error.kind
}

fn good(text: &str) -> Value {
    json!({
        "candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": text}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "cachedContentTokenCount": 200, "candidatesTokenCount": 40, "thoughtsTokenCount": 10},
        "modelVersion": "gemini-3.1-pro-preview",
    })
}

fn with(mut answer: Value, path: &str, value: Value) -> Value {
    *answer.pointer_mut(path).unwrap() = value;
    answer
}

#[tokio::test]
async fn gemini_request_and_response_match_the_generate_content_api() {
    let (outcome, api) = call(200, good("{\"verdict\":\"APPROVED\"}"), true).await;
    let reply = outcome.unwrap();
    assert_eq!(reply.value, Some(json!({"verdict": "APPROVED"})));
    let usage = &reply.usage;
    assert_eq!(usage.served.as_deref(), Some("gemini-3.1-pro-preview"));
    assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (800, 200, 50));
    assert_eq!(usage.cost_microusd, Some(800 * 2 + 200 / 5 + 50 * 12));

    let requests = api.requests.lock().unwrap();
    let (target, headers, body) = &requests[0];
    assert_eq!(target, "gemini-3.1-pro-preview:generateContent");
    assert_eq!(headers["x-goog-api-key"], KEY);
    assert_eq!(body["systemInstruction"]["parts"][0]["text"], "Answer briefly.");
    assert_eq!(body["contents"], json!([{"role": "user", "parts": [{"text": "Is this sound?"}]}]));
    let wanted = json!({
        "responseMimeType": "application/json", "responseJsonSchema": schema(), "maxOutputTokens": 65_536,
    });
    assert_eq!(body["generationConfig"], wanted);
}

#[tokio::test]
async fn prompt_token_count_comes_from_the_gemini_count_tokens_endpoint() {
    for (status, answer, counted) in
        [(200, json!({"totalTokens": 700}), Some(700)), (500, json!({}), None), (200, json!([]), None)]
    {
        let (settings, api) = start(status, answer).await;
        let providers = ModelProviders::new(&settings, Arc::new(FixedClock)).unwrap();
        let (provider, id) = providers.resolve("gemini:pro").unwrap();
        let call = ModelCall { model: id.model, ..question("gemini") };
        assert_eq!(provider.count_tokens(&call).await, counted);
        let requests = api.requests.lock().unwrap();
        let (target, _, body) = &requests[0];
        assert_eq!(target, &format!("{}:countTokens", call.model));
        assert_eq!(body["generateContentRequest"]["contents"][0]["parts"][0]["text"], "Is this sound?");
    }
}

#[tokio::test]
async fn response_by_another_model_is_rejected() {
    let downgraded = with(good("fine"), "/modelVersion", json!("gemini-2.5-flash"));
    let served = Some("gemini-2.5-flash".to_owned());
    assert_eq!(kind(200, downgraded).await, CallErrorKind::WrongModel { served });
    let unnamed = with(good("fine"), "/modelVersion", Value::Null);
    assert_eq!(kind(200, unnamed).await, CallErrorKind::WrongModel { served: None });
}

#[tokio::test]
async fn unusable_gemini_responses_map_to_error_kinds() {
    let ended = |reason: &str| with(good("part"), "/candidates/0/finishReason", json!(reason));
    assert_eq!(kind(200, ended("MAX_TOKENS")).await, CallErrorKind::Truncated);
    assert_eq!(kind(200, ended("SAFETY")).await, CallErrorKind::Refused);
    assert_eq!(kind(200, ended("MALFORMED_FUNCTION_CALL")).await, CallErrorKind::InvalidOutput);
    assert_eq!(kind(200, good("  ")).await, CallErrorKind::Empty);
    assert_eq!(kind(200, ended("RECITATION")).await, CallErrorKind::Empty);
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "gemini-3.1-pro-preview"});
    assert_eq!(kind(200, blocked).await, CallErrorKind::Refused);
    for text in ["APPROVED", "{\"verdict\":\"MAYBE\"}", "{\"verdict\":\"APPR"] {
        let (outcome, _) = call(200, good(text), true).await;
        assert_eq!(outcome.unwrap_err().kind, CallErrorKind::InvalidOutput, "{text}");
    }
}

#[tokio::test]
async fn error_statuses_map_to_error_kinds() {
    let error = |message: &str, details: Value| json!({"error": {"message": message, "details": details}});
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "45s"});
    let violation = |id: &str| json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]});
    let minute = json!([violation("GenerateRequestsPerMinutePerProjectPerModel"), retry]);
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let slow_down = kind(429, error("slow down", minute)).await;
    assert_eq!(slow_down, CallErrorKind::RateLimited { reset: seconds(45) });
    let day = json!([violation("GenerateRequestsPerDayPerProjectPerModel-FreeTier"), retry]);
    let used_up = kind(429, error("used up; it will reset after 45m10s", day)).await;
    assert_eq!(used_up, CallErrorKind::Quota { reset: seconds(2710) });
    assert_eq!(kind(429, json!(null)).await, CallErrorKind::RateLimited { reset: seconds(60) });
    let full = json!([{"reason": "MODEL_CAPACITY_EXHAUSTED"}]);
    assert_eq!(kind(429, error("No capacity available for the model", full)).await, CallErrorKind::Capacity);
    assert_eq!(kind(503, error("overloaded", json!([]))).await, CallErrorKind::Capacity);
    assert_eq!(kind(500, error("oops", json!([]))).await, CallErrorKind::Unavailable);
    assert_eq!(kind(403, error(&format!("bad key {KEY}"), json!([]))).await, CallErrorKind::Auth);
    let invalid = json!([{"reason": "API_KEY_INVALID"}]);
    assert_eq!(kind(400, error("API key not valid", invalid)).await, CallErrorKind::Auth);
    let invalid = json!({"error": {"message": "no such field", "status": "INVALID_ARGUMENT"}});
    assert_eq!(kind(400, invalid).await, CallErrorKind::Rejected { code: "INVALID_ARGUMENT".into() });
    assert_eq!(kind(404, json!({"error": {"status": "NOT_FOUND"}})).await, CallErrorKind::NoSuchModel);
    let long = "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).";
    assert_eq!(kind(400, error(long, json!([]))).await, CallErrorKind::TooLong);
}

#[tokio::test]
async fn missing_key_is_auth_error_and_unreachable_server_is_unavailable() {
    let mut settings = settings("/nowhere".as_ref());
    settings.gemini.base_url = "http://127.0.0.1:1".parse().unwrap();
    let error = ask(&settings, "gemini:pro", question("gemini")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Auth);
    assert!(error.to_string().contains("GEMINI_API_KEY"), "{error}");
    settings.gemini.keys = vec![GeminiKey::without_details("default", KEY.into())];
    let error = ask(&settings, "gemini:pro", question("gemini")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
}

#[tokio::test]
async fn call_ends_at_the_deadline_or_when_cancelled() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings("/nowhere".as_ref());
    settings.gemini.base_url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    settings.gemini.keys = vec![GeminiKey::without_details("default", KEY.into())];
    let mut silent = question("gemini");
    silent.deadline = Duration::from_millis(300);
    let error = ask(&settings, "gemini:pro", silent).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { idle: false, .. }), "{error:?}");

    let providers = ModelProviders::new(&settings, Arc::new(SystemClock)).unwrap();
    let (provider, _) = providers.resolve("gemini:pro").unwrap();
    let cancel = CancellationToken::new();
    let (call, soon) = (question("gemini-3.1-pro-preview"), tokio::time::sleep(Duration::from_millis(50)));
    let (outcome, ()) = tokio::join!(provider.call(&call, &cancel), async {
        soon.await;
        cancel.cancel();
    });
    assert_eq!(outcome.unwrap_err().kind, CallErrorKind::Cancelled);
}

#[tokio::test]
async fn implausible_token_counts_are_capped() {
    let mut absurd = good("fine");
    for name in ["promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"] {
        absurd["usageMetadata"][name] = json!(u64::MAX);
    }
    let usage = call(200, absurd, false).await.0.unwrap().usage;
    let bytes = ("Answer briefly.".len() + "Is this sound?".len()) as u64 + 256;
    assert_eq!(
        (usage.input_tokens, usage.output_tokens),
        (bytes, 65_536),
        "capped by the prompt's bytes and the model's output limit"
    );
    assert!(usage.cost_microusd.is_some_and(|cost| cost < 800_000), "{usage:?}");
}

#[tokio::test]
async fn gemini_402_maps_to_quota_and_oversized_response_to_invalid_output() {
    let unpaid = kind(402, json!({"error": {"message": "pay"}})).await;
    assert!(matches!(unpaid, CallErrorKind::Quota { .. }), "{unpaid:?}");
    assert_eq!(kind(200, good(&"x".repeat(9 << 20))).await, CallErrorKind::InvalidOutput);
}
