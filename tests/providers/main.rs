//! Providers against what they will meet: the real Claude and OpenCode programs before an imitation of
//! Anthropic's API, and an imitation of Gemini's. Both imitations are ours and live on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod anthropic;
mod cassettes;
mod claude;
mod claude_api;
mod fallback;
mod gemini;
mod gemini_keys;
mod ollama;
mod openai;
mod opencode;
mod rehearsal;
mod streaming;

use std::{path::Path, sync::Arc, time::Duration};

use countersign::{
    clock::SystemClock,
    config::ModelSettings,
    providers::{Call, CallError, CallRole, Providers, Reply},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Serves a router on a free port of this machine until the test's runtime ends.
async fn serve(router: axum::Router) -> url::Url {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}").parse().unwrap()
}

fn settings(data_dir: &Path) -> ModelSettings {
    ModelSettings::real(data_dir, None, None)
}

fn question(model: &str) -> Call {
    Call {
        role: if model.starts_with("claude") { CallRole::Drafter } else { CallRole::Reviewer },
        system: "Answer briefly.".into(),
        prompt: "Is this sound?".into(),
        schema: None,
        model: model.into(),
        effort: None,
        deadline: Duration::from_secs(30),
        budget: None,
        private: false,
        facts: Default::default(),
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"verdict": {"type": "string", "enum": ["APPROVED", "REVISE"]}},
        "required": ["verdict"],
        "additionalProperties": false,
    })
}

fn providers(settings: &ModelSettings) -> Providers {
    Providers::new(settings, Arc::new(SystemClock)).unwrap()
}

/// Asks the provider that `spec` names, with the call as given but for the model's id.
async fn ask(settings: &ModelSettings, spec: &str, mut call: Call) -> Result<Reply, CallError> {
    let (provider, id) = providers(settings).resolve(spec).unwrap();
    call.model = id.model;
    provider.call(&call, &CancellationToken::new()).await
}
