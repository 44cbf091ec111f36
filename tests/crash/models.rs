//! Two paid models that count every call on arrival. A response depends only on the prompt, so a retried call gets the
//! same response.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path as InPath, State},
    http::HeaderMap,
    routing::post,
};
use serde_json::{Value, json};
use url::Url;

use crate::script;

/// API key, which identifies a test environment.
pub(crate) type Key = String;

type Callback = Arc<dyn Fn() + Send + Sync>;

/// Vague sentence in the first draft, to which the review objects.
const WEAK: &str = "2. Invalid input is handled appropriately.";
const STRONG: &str =
    "2. An invalid input ends with exit status 2 and one line on standard error; no file is changed.";
/// Heading that every version of the document contains, so that any version can be revised at this place.
const ANCHOR: &str = "### Open Questions";

/// Response of the drafter's model that routes a free-text request.
const ROUTED: &str = r#"{"skill": "feature-brief", "confidence": 0.8, "intent": "work"}"#;

/// Number of input tokens that the models report for every call.
pub(crate) const READ: u64 = 1000;

/// List price of one review in micro-dollars, for `READ` input and `ANSWERED` output tokens.
pub(crate) const REVIEW: u64 = READ * 2 + ANSWERED * 12;
const ANSWERED: u64 = 100;

/// Both models. All test environments share them.
pub(crate) struct Models {
    reviewer: Arc<Reviewer>,
    url: Url,
    drafter: tempfile::TempDir,
}

#[derive(Default)]
struct Reviewer {
    thinking: Duration,
    calls: Mutex<HashMap<Key, usize>>,
    /// Callbacks by API key. The callback is called for each review before the response is sent.
    on_review: Mutex<HashMap<Key, Callback>>,
}

impl Models {
    /// Starts the models. The reviewer serves on its own thread until the process ends, because it outlives the
    /// individual test environments. Each response takes the time `thinking`.
    pub(crate) fn start(thinking: Duration) -> Self {
        let reviewer = Arc::new(Reviewer { thinking, ..Reviewer::default() });
        let router = Router::new().route("/v1beta/models/{call}", post(review)).with_state(reviewer.clone());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await.unwrap();
            });
        });
        let drafter = tempfile::tempdir().unwrap();
        let program = PROGRAM.replace("THINKING", &thinking.as_secs_f64().to_string());
        let package = package(&drafter);
        fs::create_dir(&package).unwrap();
        fs::write(package.join("claude"), program).unwrap();
        fs::set_permissions(package.join("claude"), fs::Permissions::from_mode(0o755)).unwrap();
        let better = json!({ "edits": [{ "search": WEAK, "replace": STRONG }], "replies": [] });
        let asked = format!("A maintainer asked for more.\n\n{ANCHOR}");
        let revised = json!({ "edits": [{ "search": ANCHOR, "replace": asked }], "replies": [] });
        let look = json!({ "toolCalls": [{ "name": "read", "arguments": { "path": "src/lib.rs" } }] });
        for (name, text, value) in [
            ("first", design(), None),
            ("issue", rehearsed("issue"), None),
            ("spec", rehearsed("spec"), None),
            ("scout", rehearsed("scout"), None),
            ("questions", question().to_string(), Some(question())),
            ("route", ROUTED.to_owned(), None),
            ("question", ROUTED.replace("work", "question"), None),
            (
                "answered",
                r#"{"answer": "It adds up by project.", "places": [{"path": "src/lib.rs"}]}"#.to_owned(),
                None,
            ),
            ("plan", r#"{"queries": ["weeks"]}"#.to_owned(), None),
            ("further", r#"{"queries": ["hours"]}"#.to_owned(), None),
            // Both as text and as a value: with tools, a call has no schema.
            ("better", better.to_string(), Some(better)),
            ("revised", revised.to_string(), Some(revised)),
            ("look", look.to_string(), None),
        ] {
            fs::write(package.join(name), transcript(&text, value)).unwrap();
        }
        // The final response has only the heading, because the tool call wrote the file.
        let code = &script::small().0[3];
        let (heading, block) = code.split_once("```rust\n").unwrap();
        let with = json!({ "path": "src/lib.rs", "text": block.split("```").next().unwrap() });
        let writes = json!({ "toolCalls": [{ "name": "write", "arguments": with }] }).to_string();
        fs::write(package.join("writes"), transcript(&writes, None)).unwrap();
        let title = countersign::localhub::embedded_sample().issues[0].0;
        let heading = heading.replace("{{issue}}", "1").replace("{{title}}", title);
        fs::write(package.join("written-code"), transcript(&heading, None)).unwrap();
        let names = ["small-design", "small-spec", "small-tests", "small-code"];
        for (name, text) in names.iter().zip(script::small().0) {
            let text = text.replace("{{issue}}", "1").replace("{{title}}", title);
            fs::write(package.join(name), transcript(&text, None)).unwrap();
        }
        Self { reviewer, url, drafter }
    }

    /// Starts models whose drafter never responds, ignores SIGTERM and has a child process in another session. The
    /// drafter writes both PIDs and its home directory to a file in its configuration directory.
    pub(crate) fn hanging() -> Self {
        let models = Self::start(Duration::ZERO);
        fs::write(package(&models.drafter).join("claude"), HANGING).unwrap();
        models
    }

    /// Returns the lines of `countersign.toml` that make a test environment use these models. The drafter's calls are
    /// counted in a file in the environment's own data directory. So a copy of the environment starts with the count at
    /// the time of the copy.
    pub(crate) fn toml(&self) -> String {
        format!(
            "[providers.claude]\npath = {:?}\nbase_url = \"{1}\"\n[providers.gemini]\nbase_url = \"{1}\"\n",
            package(&self.drafter).join("claude"),
            self.url
        )
    }

    pub(crate) fn env(key: &str) -> String {
        format!("GEMINI_API_KEY={key}\n")
    }

    /// Returns the number of all calls that the test environment in `directory` with this API key has made.
    pub(crate) fn calls(&self, directory: &Path, key: &str) -> usize {
        let drafts = fs::read_to_string(counter(directory)).map_or(0, |text| text.lines().count());
        drafts + self.reviews(key)
    }

    /// Returns the number of billed calls, which are the calls of the reviewer.
    pub(crate) fn reviews(&self, key: &str) -> usize {
        self.reviewer.calls.lock().unwrap().get(key).copied().unwrap_or(0)
    }

    /// Calls `on_review` during each review.
    pub(crate) fn watch(&self, key: &str, on_review: impl Fn() + Send + Sync + 'static) {
        self.reviewer.on_review.lock().unwrap().insert(key.to_owned(), Arc::new(on_review));
    }
}

/// Returns the directory of the drafter's program. It is laid out like an npm package, because the sandbox lets npm
/// packages read files next to the program.
fn package(drafter: &tempfile::TempDir) -> PathBuf {
    drafter.path().join("node_modules")
}

/// Returns the file in which the drafter counts its calls. It is in the drafter's configuration directory.
fn counter(directory: &Path) -> PathBuf {
    directory.join("bot/data/claude/calls")
}

/// Script that acts as the drafter. It runs with a clean environment and reads the prompt from standard input.
const PROGRAM: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo 2.1.329; exit; fi
echo called >>"$CLAUDE_CONFIG_DIR/calls"
prompt="$(cat)"
case "$prompt" in
'Find what issue'*) answer=questions ;;
*'Write the code that makes the tests pass'*) answer=small-code ;;
*'Write the tests alone'*) answer=small-tests ;;
'Write the implementation spec'*'pub fn sum'*) answer=small-spec ;;
'Write the'*'pub fn sum'*) answer=small-design ;;
'Write the issue'*) answer=issue ;;
'Write the implementation spec'*) answer=spec ;;
'Write the brief'*) answer=scout ;;
'## What you are to do'*'Answer the question'*) answer=answered ;;
'## What you are to do'*'how does it add up'*) answer=question ;;
'## What you are to do'*'Say what to search for'*) answer=plan ;;
'## What you are to do'*'Say what else to search for'*) answer=further ;;
'## What you are to do'*) answer=route ;;
'Write the'*) answer=first ;;
*'What a maintainer asks for'*) answer=revised ;;
*) answer=better ;;
esac
case "$prompt" in
*'What your calls found, the 2. time'*) ;;
*'Write the code'*'What your calls found'*) answer=written-code ;;
*'Write the code'*'What you may look at'*) answer=writes ;;
*'What you may look at'*) answer=look ;;
esac
sleep THINKING
exec cat "${0%/*}/$answer"
"#;

const HANGING: &str = r#"#!/bin/sh
if [ "$1" = --version ]; then echo 2.1.329; exit; fi
trap '' TERM
setsid sleep 300 &
printf '%s\n' $$ $! "$HOME" >"$CLAUDE_CONFIG_DIR/running.new"
mv "$CLAUDE_CONFIG_DIR/running.new" "$CLAUDE_CONFIG_DIR/running"
while :; do sleep 300; done
"#;

fn transcript(text: &str, value: Option<Value>) -> String {
    let usage = json!({ "input_tokens": READ, "output_tokens": 500 });
    let message = json!({ "id": "m", "model": "claude-opus-5-5", "usage": usage });
    let assistant = json!({ "type": "assistant", "message": message });
    let result = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "structured_output": value,
        "usage": usage,
    });
    format!("{assistant}\n{result}\n")
}

/// Returns the first draft from the rehearsal script of a workflow that has its own scripted responses.
fn rehearsed(workflow: &str) -> String {
    let text = script::rehearsed(workflow).replace("{{issue}}", "1").replace("{{title}}", "weeks");
    let sample = countersign::localhub::embedded_sample();
    let (path, bytes) = sample.files.iter().find(|(path, _)| *path == "src/lib.rs").unwrap();
    let line = std::str::from_utf8(bytes).unwrap().lines().next().unwrap();
    text.replace("{{path}}", path).replace("{{line}}", line)
}

/// Returns a model's question about the first issue of the sample.
fn question() -> Value {
    let quote = "its output does not change by a byte";
    json!({ "questions": [{ "quote": quote, "question": "Both are given: which holds?", "default": "The first." }] })
}

/// Returns the first draft from the rehearsal script for the first issue of the sample.
fn design() -> String {
    let rehearsal: toml::Value =
        toml::from_str(include_str!("../../fixtures/models/rehearsal.toml")).unwrap();
    let text = rehearsal["answer"][0]["text"].as_str().unwrap();
    assert!(text.contains(WEAK) && text.contains(ANCHOR));
    let title = countersign::localhub::embedded_sample().issues[0].0;
    text.replace("{{issue}}", "1").replace("{{title}}", title).replace("{{path}}", "src/lib.rs")
}

async fn review(
    State(reviewer): State<Arc<Reviewer>>,
    InPath(call): InPath<String>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> Json<Value> {
    if call.ends_with(":countTokens") {
        return Json(json!({ "totalTokens": READ }));
    }
    let key = headers["x-goog-api-key"].to_str().unwrap().to_owned();
    *reviewer.calls.lock().unwrap().entry(key.clone()).or_default() += 1;
    let on_review = reviewer.on_review.lock().unwrap().get(&key).cloned();
    if let Some(on_review) = on_review {
        tokio::task::spawn_blocking(move || on_review()).await.unwrap();
    }
    tokio::time::sleep(reviewer.thinking).await;
    let prompt = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
    if prompt.starts_with("Write tests against the code") {
        return gemini(&json!({ "tests": [] }));
    }
    let nonce = prompt.split("Put the word `").nth(1).unwrap().split('`').next().unwrap();
    let findings = json!([{
        "severity": "high", "category": "tests", "place": "3", "title": "Requirement 2 can't be tested as written",
        "detail": "Say what is observed.", "repeats": null,
    }]);
    // The changes since the last review come earlier in the prompt.
    let document = prompt.rsplit("<<<document ").next().unwrap();
    let (verdict, findings, resolved) = if document.contains(WEAK) {
        ("REVISE", findings, json!([]))
    } else {
        ("APPROVED", json!([]), json!(["F1"]))
    };
    let review = json!({
        "nonce": nonce, "verdict": verdict, "rationale": "A reason in one sentence.", "findings": findings,
        "resolved": resolved,
    });
    gemini(&review)
}

fn gemini(answer: &Value) -> Json<Value> {
    let parts = json!([{ "text": answer.to_string() }]);
    Json(json!({
        "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": READ, "candidatesTokenCount": ANSWERED },
        "modelVersion": "gemini-3.1-pro-preview",
    }))
}
