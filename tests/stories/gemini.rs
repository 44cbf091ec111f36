//! Gemini reviews, as an imitation of its API does it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};

use crate::{
    script::{Script, design},
    world::{Setting, World},
};

/// Whatever is asked, Flash approves.
async fn flash(State(asked): State<Arc<AtomicU32>>) -> Json<Value> {
    asked.fetch_add(1, Ordering::Relaxed);
    Json(json!({
        "candidates": [{"content": {"parts": [{"text": "{\"verdict\": \"APPROVED\"}"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10},
        "modelVersion": "gemini-2.5-flash",
    }))
}

/// A repository whose designs Gemini Pro is to review by way of a key of the free tier, and how often it was asked.
async fn reviewed_for_free(private: bool) -> (World, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let api = Router::new().route("/v1beta/models/{target}", post(flash)).with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, api).await });
    let toml = format!(
        "[providers.gemini]\nbase_url = \"http://{address}\"\n[[providers.gemini.key]]\nname = \"default\"\ntier = \"free\"\n"
    );
    let setting = Setting {
        script: Some(Script::default().drafts(&design()).toml()),
        models: Some(("stub:drafter", "gemini:pro")),
        toml,
        env: "GEMINI_API_KEY=AIzaSyTheKeyOfThisStory\n".to_owned(),
        private,
        ..Setting::default()
    };
    (World::new(setting).await, asked)
}

#[tokio::test]
async fn an_approval_by_flash_is_none_by_pro() {
    let (mut w, asked) = reviewed_for_free(false).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("INCONCLUSIVE: the LLD waits"), "{gate}");
    assert!(gate.contains("another model answered than the one that was asked"), "{gate}");
    assert!(!gate.contains("\n/approve"), "no line to paste: {gate}");
    assert!(asked.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn a_key_of_the_free_tier_gets_nothing_of_a_private_repository() {
    let (mut w, asked) = reviewed_for_free(true).await;
    w.label("maya", "countersign:lld").await;
    let status = w.find("Rehearsal").body;
    assert!(status.contains("does not accept this server's key or login for this repository"), "{status}");
    assert_eq!(w.view().labels, ["countersign:needs-you"]);
    assert_eq!(asked.load(Ordering::Relaxed), 0, "{status}");
    w.nothing_else_was_said();
}
