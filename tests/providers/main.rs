//! Provider tests with the real Claude and OpenCode programs, and with imitations of the services' APIs. Our own
//! imitations of the APIs of Anthropic, Gemini, Ollama and OpenAI listen on loopback.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail right there")]

mod aimock;
mod anthropic;
mod cassettes;
mod claude;
mod claude_api;
mod fallback;
mod gemini;
mod gemini_keys;
mod metering;
mod model_lists;
mod ollama;
mod openai;
mod opencode;
mod rehearsal;
mod streaming;
mod workers;

use std::{future::Future, path::Path, pin::Pin, sync::Arc, time::Duration};

use countersign::{
    clock::{Clock, SharedClock, SystemClock},
    config::ModelSettings,
    providers::{CallError, CallErrorKind, CallRole, ModelCall, ModelProviders, ModelReply},
    types::Timestamp,
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
    ModelSettings::with_real_models(data_dir, None, None)
}

fn question(model: &str) -> ModelCall {
    ModelCall {
        role: if model.starts_with("claude") { CallRole::Drafter } else { CallRole::Reviewer },
        system: "Answer briefly.".into(),
        prompt: "Is this sound?".into(),
        schema: None,
        tools: None,
        model: model.into(),
        deadline: Duration::from_secs(300),
        max_output_tokens: u64::MAX,
        counted_prompt_tokens: None,
        budget: None,
        private: false,
        excluded_families: Vec::new(),
        successors: Vec::new(),
        workers: Default::default(),
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

/// Returns the tools that are offered to the model in a call.
fn tools() -> Value {
    let parameters =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    json!([{"name": "read", "description": "a file", "parameters": parameters}])
}

fn providers(settings: &ModelSettings) -> ModelProviders {
    ModelProviders::new(settings, Arc::new(SystemClock)).unwrap()
}

/// Clock that runs 1000 times faster. Sleeps up to the given duration are shortened by the same factor. Longer sleeps
/// take their real time, so that they never end too early on a slow machine.
struct FastClock(Duration);

impl Clock for FastClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 * 1000)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        SystemClock.sleep(if duration <= self.0 { duration / 1000 } else { duration })
    }
}

/// Clock whose time stands still, so that a reported wait equals exactly the wait that the service requested. Sleeps
/// take real time.
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_767_225_600_000)
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        SystemClock.sleep(duration)
    }
}

/// Calls the provider that `spec` names. The model in `call` is replaced by the model in `spec`.
async fn ask(settings: &ModelSettings, spec: &str, call: ModelCall) -> Result<ModelReply, CallError> {
    ask_with_clock(Arc::new(SystemClock), settings, spec, call).await
}

async fn ask_with_clock(
    clock: SharedClock,
    settings: &ModelSettings,
    spec: &str,
    mut call: ModelCall,
) -> Result<ModelReply, CallError> {
    let providers = ModelProviders::new(settings, clock).unwrap();
    let (provider, id) = providers.resolve(spec).unwrap();
    call.model = id.model;
    provider.call(&call, &CancellationToken::new()).await
}

/// Asserts that the provider measures its timeouts by the clock that it was given. There is one timeout for the whole
/// call, tested without any response, and one for a response that stalls.
async fn assert_timeouts_use_clock(spec: &str, hanging: &ModelSettings, stalling: &ModelSettings) {
    let mut call = question("any");
    call.deadline = Duration::from_secs(200);
    let error =
        ask_with_clock(Arc::new(FastClock(Duration::MAX)), hanging, spec, call.clone()).await.unwrap_err();
    let CallErrorKind::Timeout { idle: false, elapsed } = error.kind else { panic!("{error:?}") };
    assert!(elapsed >= call.deadline, "{elapsed:?}");
    call.deadline = Duration::from_secs(1_000_000);
    let error = ask_with_clock(Arc::new(FastClock(Duration::MAX)), stalling, spec, call).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { idle: true, .. }), "{error:?}");
}
