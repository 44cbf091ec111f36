//! Stories about reviews by Gemini, through an imitation of Gemini's API.

use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::post,
};
use countersign::{engine::RunViewStatus, store::Spending};
use futures_util::stream;
use serde_json::{Value, json};

use crate::{
    script::{Script, approved, design},
    serve,
    world::{Setting, World},
};

/// Handler of the imitated API. It approves every prompt as Gemini Flash.
async fn answer_as_flash(State(calls): State<Arc<AtomicU32>>, Json(request): Json<Value>) -> Json<Value> {
    calls.fetch_add(1, Ordering::Relaxed);
    let prompt = request.pointer("/contents/0/parts/0/text").and_then(Value::as_str).unwrap();
    let nonce = prompt.split("Put the word `").nth(1).unwrap().split('`').next().unwrap();
    let review = approved().to_string().replace("{{nonce}}", nonce);
    Json(json!({
        "candidates": [{"content": {"parts": [{"text": review}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10},
        "modelVersion": "models/gemini-2.5-flash",
    }))
}

/// Creates a test environment whose reviewer is Gemini Pro with a free-tier key. Also returns the counter of API calls.
async fn free_tier_world(private: bool, more: &str) -> (World, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let api = Router::new().route("/v1beta/models/{target}", post(answer_as_flash)).with_state(calls.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, api).await });
    let toml = format!(
        "[providers.gemini]\nbase_url = \"http://{address}\"\n[[providers.gemini.key]]\nname = \"default\"\ntier = \"free\"\n{more}"
    );
    let script =
        Script::default().drafts(&design()).edits("The goal of a real design", "The aim of a real design");
    let setting = Setting {
        script: Some(script.toml()),
        models: Some(("stub:drafter", "gemini:pro")),
        toml,
        env: "GEMINI_API_KEY=AIzaSyTheKeyOfThisStory\n".to_owned(),
        private,
        ..Setting::default()
    };
    (World::new(setting).await, calls)
}

#[tokio::test]
async fn approval_by_gemini_flash_does_not_count_when_gemini_pro_was_requested() {
    let (mut w, api_calls) = free_tier_world(false, "").await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("INCONCLUSIVE: the design waits"), "{gate}");
    let expected = "Countersign called `gemini-3.1-pro-preview` as the reviewer, but `gemini-2.5-flash` answered, so the answer does not count. \
                The operator can name `gemini:gemini-2.5-flash` in the settings, or add \
                `\"gemini:gemini-3.1-pro-preview\" = [\"gemini-2.5-flash\"]` under `[models.successors]`, and restart the server. \
                Until then, `gemini-3.1-pro-preview` is not called.";
    assert!(gate.contains(expected), "{gate}");
    assert!(!gate.contains("\n/approve"), "no line to paste: {gate}");
    assert_eq!(api_calls.load(Ordering::Relaxed), 1);
    w.stands(RunViewStatus::Asking).await;

    w.comment("max", "/revise the aim, please").await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains(expected), "{gate}");
    assert_eq!(api_calls.load(Ordering::Relaxed), 1, "no second call that would not count");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn configured_successor_model_reviews_and_is_named_at_the_gate() {
    let setting = "[models.successors]\n\"gemini:pro\" = [\"gemini-2.5-flash\"]\n";
    let (mut w, api_calls) = free_tier_world(false, setting).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("### ✅ APPROVED").body;
    let expected = "reviewed by `gemini-2.5-flash` instead of `gemini-3.1-pro-preview` (`[models.successors]` allows it for \
                `gemini:pro`";
    assert!(gate.contains(expected), "{gate}");
    assert_eq!(api_calls.load(Ordering::Relaxed), 1);
    let calls = w.calls().await;
    let review = calls.iter().find(|call| call.role == "reviewer").unwrap();
    let ids = (review.asked.as_str(), review.served.as_deref(), review.accepted_by.as_deref());
    assert_eq!(ids, ("gemini:pro", Some("gemini-2.5-flash"), Some("gemini:pro")));
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn nothing_from_a_private_repository_is_sent_with_a_free_tier_key() {
    let (mut w, api_calls) = free_tier_world(true, "").await;
    w.label("maya", "countersign:lld").await;
    let status = w.find("Rehearsal").body;
    assert!(status.contains("does not accept this server's key or login for this repository"), "{status}");
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    assert_eq!(api_calls.load(Ordering::Relaxed), 0, "{status}");
}

/// Handler of an imitated service that charges one token per byte of input, and the maximum output. The handler's state
/// is the bill in micro-dollars. The service breaks off its first response and never reports usage.
async fn answer_without_usage(State(bill): State<Arc<AtomicU64>>, Json(request): Json<Value>) -> Response {
    let text = |place: &str| request.pointer(place).and_then(Value::as_str).unwrap().to_owned();
    let (system, prompt) = (text("/systemInstruction/parts/0/text"), text("/contents/0/parts/0/text"));
    let generation = &request["generationConfig"];
    let read = system.len() + prompt.len() + generation["responseJsonSchema"].to_string().len();
    let written = generation["maxOutputTokens"].as_u64().unwrap_or(1_000_000);
    let before = bill.fetch_add(read as u64 * 2 + written * 12, Ordering::Relaxed);
    if before == 0 {
        let cut = [Ok("{\"candidates\": [{"), Err(std::io::Error::other("as the story wants"))];
        return Body::from_stream(stream::iter(cut)).into_response();
    }
    let nonce = prompt.split("Put the word `").nth(1).unwrap().split('`').next().unwrap();
    let review = approved().to_string().replace("{{nonce}}", nonce);
    Json(json!({
        "candidates": [{"content": {"parts": [{"text": review}]}, "finishReason": "STOP"}],
        "modelVersion": "gemini-3.1-pro-preview",
    }))
    .into_response()
}

#[tokio::test]
async fn recorded_cost_is_at_least_the_bill_when_usage_is_unknown() {
    let bill = Arc::new(AtomicU64::new(0));
    let url = serve(
        Router::new().route("/v1beta/models/{target}", post(answer_without_usage)).with_state(bill.clone()),
    )
    .await;
    let setting = Setting {
        script: Some(Script::default().drafts(&design()).toml()),
        models: Some(("stub:drafter", "gemini:pro")),
        toml: format!(
            "[providers.gemini]\nbase_url = \"{url}\"\n[[providers.gemini.key]]\nname = \"default\"\ntier = \"paid\"\n\
             [budget]\nrun = \"$0.50\"\n"
        ),
        env: "GEMINI_API_KEY=AIzaSyTheKeyOfThisStory\n".to_owned(),
        private: true,
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.wait(15).await;
    let status = w.find("updated on 20").body;
    assert!(status.contains("Waiting for Gemini: it was unreachable or dropped the connection"), "{status}");
    w.wait(60).await;
    let gate = w.find("### ✅ APPROVED").body;
    let billed = bill.load(Ordering::Relaxed);
    assert!(billed > 500_000, "{billed}");
    let calls = w.calls().await;
    let recorded: u64 = calls.iter().map(|row| row.shared_cap_amount().0).sum();
    // Slightly more is recorded, because cache writes cost more than reads.
    assert!((billed..billed + billed / 20).contains(&recorded), "recorded {recorded}, billed {billed}");
    let spent = Spending::from_calls(&calls);
    assert!(spent.held.0 == recorded && gate.contains("reserved"), "the real cost is unknown: {gate}");
    w.stands(RunViewStatus::Asking).await;
}
