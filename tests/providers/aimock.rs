//! Contract tests with aimock, an independent imitation of the model APIs. Our own imitation and aimock must agree.
//! `COUNTERSIGN_TEST_AIMOCK` names aimock's `cli.js`, which `node` runs. Without the variable, each test is skipped.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use countersign::{
    config::{GeminiKey, Model, ModelSettings, Price},
    providers::{CallError, CallErrorKind, ModelReply},
    types::Family,
};
use serde_json::json;

use crate::{FixedClock, ask_with_clock, question, schema, settings};

const PROGRAM: &str = "COUNTERSIGN_TEST_AIMOCK";

/// A running aimock process, which is killed when this value is dropped.
struct Aimock {
    child: Child,
    url: String,
}

impl Drop for Aimock {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Aimock {
    /// Starts aimock on a free port. If the variable is not set, prints that the test is skipped and returns `None`.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    fn start(test: &str) -> Option<Self> {
        let Some(program) = std::env::var_os(PROGRAM) else {
            println!("skipped: {test} ({PROGRAM} names no program)");
            return None;
        };
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/aimock");
        let mut child = Command::new("node")
            .arg(program)
            .args(["--port", "0", "--strict", "--log-level", "info", "--fixtures"])
            .arg(fixtures)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed where aimock is");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.filter_map(|line| Some(line.split_once("listening on ")?.1.trim().to_owned())).next();
        Some(Self { child, url: url.expect("aimock says where it listens") })
    }

    fn settings(&self) -> ModelSettings {
        let at = |path: &str| format!("{}{path}", self.url).parse().unwrap();
        let mut settings = settings("/nowhere".as_ref());
        settings.anthropic.base_url = at("");
        settings.anthropic.api_key = Some("sk-any".into());
        settings.gemini.base_url = at("");
        settings.gemini.keys = vec![GeminiKey::without_details("default", "any".into())];
        settings.ollama.base_url = at("");
        settings.openai.base_url = at("/v1");
        settings.openai.api_key = Some("sk-any".into());
        settings.table = [("qwen3:32b", "ollama", None), ("gpt-x", "openai", Some(PRICE))].map(row).to_vec();
        settings
    }

    async fn ask(&self, spec: &str, prompt: &str, with_schema: bool) -> Result<ModelReply, CallError> {
        let mut call = question(spec);
        call.prompt = prompt.into();
        call.schema = with_schema.then(schema);
        ask_with_clock(Arc::new(FixedClock), &self.settings(), spec, call).await
    }
}

const PRICE: Price =
    Price { input: 2_000_000, output: 8_000_000, cache_read: 0, cache_write: 0, above: 0, from: None };

fn row((id, provider, price): (&str, &str, Option<Price>)) -> Model {
    Model {
        id: id.into(),
        aliases: Vec::new(),
        providers: vec![provider.into()],
        family: Family(provider.into()),
        context: 100_000,
        max_output: 8_000,
        prices: price.into_iter().collect(),
        retires: None,
        successor: None,
        source: None,
    }
}

const STREAMING: [&str; 3] = ["anthropic:opus", "ollama:qwen3:32b", "openai:gpt-x"];
const GEMINI: &str = "gemini:pro";

#[tokio::test]
async fn structured_response_is_read_with_its_model_name_token_counts_and_cost() {
    let Some(aimock) = Aimock::start("an_answer") else { return };
    for (spec, served, tokens, cost) in [
        ("anthropic:opus", "claude-opus-5-5", (1000, 50), Some(5000)),
        // aimock reports no token counts for Ollama.
        ("ollama:qwen3:32b", "qwen3:32b", (0, 0), None),
        ("openai:gpt-x", "gpt-x", (1000, 50), Some(2400)),
    ] {
        let reply = aimock.ask(spec, "Is this sound?", true).await.unwrap();
        assert_eq!(reply.value, Some(json!({"verdict": "REVISE"})), "{spec}");
        assert_eq!(reply.usage.served.as_deref(), Some(served), "{spec}");
        assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), tokens, "{spec}");
        assert_eq!(reply.usage.cost_microusd, cost, "{spec}");
    }
}

#[tokio::test]
async fn response_without_model_name_is_rejected() {
    let Some(aimock) = Aimock::start("no_model") else { return };
    let error = aimock.ask(GEMINI, "Is this sound?", true).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::WrongModel { served: None });
    assert_eq!(
        (error.usage.input_tokens, error.usage.output_tokens),
        (1000, 50),
        "the call is billed all the same"
    );
}

#[tokio::test]
async fn error_responses_map_to_error_kinds() {
    let Some(aimock) = Aimock::start("refusals") else { return };
    let reset = Some(Duration::from_secs(1));
    for spec in STREAMING.into_iter().chain([GEMINI]) {
        for (prompt, kind) in [
            ("too many", CallErrorKind::RateLimited { reset }),
            ("overloaded", CallErrorKind::Capacity),
            ("wrong key", CallErrorKind::Auth),
            ("broken", CallErrorKind::Unavailable),
        ] {
            assert_eq!(aimock.ask(spec, prompt, false).await.unwrap_err().kind, kind, "{spec}: {prompt}");
        }
        let garbled = aimock.ask(spec, "garbled", false).await.unwrap_err();
        // Readers of event streams ignore a malformed line, so the response counts as missing.
        let kinds = [CallErrorKind::InvalidOutput, CallErrorKind::Unavailable];
        assert!(kinds.contains(&garbled.kind), "{spec}: {garbled:?}");
    }
}

#[tokio::test]
async fn truncated_response_is_an_error() {
    let Some(aimock) = Aimock::start("half") else { return };
    for spec in STREAMING {
        let error = aimock.ask(spec, "goes away", false).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable, "{spec}");
    }
    // aimock cannot truncate an Ollama response, and for Gemini the missing model name is reported first.
    for spec in ["anthropic:opus", "openai:gpt-x"] {
        let error = aimock.ask(spec, "cut off", false).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Truncated, "{spec}");
    }
}
