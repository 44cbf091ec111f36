//! The contract with the real Claude program. `COUNTERSIGN_TEST_CLAUDE` names the binary; without
//! it each of these says that it was skipped.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use countersign::{
    config::ModelSettings,
    proc,
    providers::{CallError, CallErrorKind, Reply},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    anthropic::{self, Behaviour},
    ask, question, schema, settings,
};

const BINARY: &str = "COUNTERSIGN_TEST_CLAUDE";

#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn binary(test: &str) -> Option<PathBuf> {
    let path = std::env::var_os(BINARY).map(PathBuf::from);
    if path.is_none() {
        println!("skipped: {test} ({BINARY} names no binary)");
    }
    path
}

fn with_binary(binary: &Path, data_dir: &Path, api: url::Url) -> ModelSettings {
    let mut settings = settings(data_dir);
    settings.claude.path = Some(binary.into());
    settings.claude.base_url = Some(api);
    settings
}

struct Outcome {
    reply: Result<Reply, CallError>,
    requests: Vec<serde_json::Value>,
    took: Duration,
}

impl Outcome {
    fn kind(&self) -> Option<&CallErrorKind> {
        self.reply.as_ref().err().map(|error| &error.kind)
    }
}

/// One call of the real program against an API that behaves so; `None` = skipped.
async fn outcome(
    test: &str,
    behaviour: Behaviour,
    change: impl FnOnce(&mut countersign::providers::Call),
) -> Option<Outcome> {
    let binary = binary(test)?;
    let data = tempfile::tempdir().unwrap();
    let (url, api) = anthropic::start(behaviour).await;
    let mut call = question("claude");
    change(&mut call);
    let started = Instant::now();
    let reply = ask(&with_binary(&binary, data.path(), url), "claude:opus", call).await;
    Some(Outcome { reply, requests: api.requests(), took: started.elapsed() })
}

#[tokio::test]
async fn an_answer_is_attested_and_counted() {
    let Some(outcome) = outcome("an_answer", Behaviour::Text { served: None }, |_| {}).await else { return };
    let reply = outcome.reply.unwrap();
    assert_eq!(reply.text, "It is sound.");
    assert_eq!(reply.usage.served.as_deref(), Some("claude-opus-4-6"));
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (1000, 50));
    assert_eq!(reply.usage.cost_microusd, Some(6250));
    let request = &outcome.requests[0];
    assert_eq!(request["tools"], json!([]), "no tool is offered");
    assert!(request["system"].to_string().contains("Answer briefly."));
}

#[tokio::test]
async fn another_model_than_the_one_asked_is_no_answer() {
    let behaviour = Behaviour::Text { served: Some("claude-haiku-4-5-20251001") };
    let Some(outcome) = outcome("another_model", behaviour, |_| {}).await else { return };
    let served = Some("claude-haiku-4-5-20251001".to_owned());
    assert_eq!(outcome.kind(), Some(&CallErrorKind::WrongModel { served }));
}

#[tokio::test]
async fn a_bad_key_costs_seconds() {
    let behaviour = Behaviour::Error(401, "authentication_error", None);
    let Some(outcome) = outcome("a_bad_key", behaviour, |_| {}).await else { return };
    assert_eq!(outcome.kind(), Some(&CallErrorKind::Auth));
    assert!(outcome.took < Duration::from_secs(15), "{:?}", outcome.took);
}

#[tokio::test]
async fn a_rate_limit_is_told_with_its_wait() {
    let behaviour = Behaviour::Error(429, "rate_limit_error", Some(2));
    let Some(outcome) = outcome("a_rate_limit", behaviour, |_| {}).await else { return };
    let Some(CallErrorKind::RateLimited { reset: Some(wait) }) = outcome.kind() else {
        panic!("{:?}", outcome.reply)
    };
    assert!((1..10).contains(&wait.as_secs()), "{wait:?}");
}

#[tokio::test]
async fn an_overload_is_capacity() {
    let behaviour = Behaviour::Error(529, "overloaded_error", None);
    let Some(outcome) = outcome("an_overload", behaviour, |_| {}).await else { return };
    assert_eq!(outcome.kind(), Some(&CallErrorKind::Capacity));
}

#[tokio::test]
async fn a_cut_and_an_empty_answer_are_none() {
    let Some(cut) = outcome("a_cut_answer", Behaviour::MaxTokens, |_| {}).await else { return };
    assert_eq!(cut.kind(), Some(&CallErrorKind::Truncated));
    let Some(empty) = outcome("an_empty_answer", Behaviour::Empty, |_| {}).await else { return };
    assert_eq!(empty.kind(), Some(&CallErrorKind::InvalidOutput));
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let short = |call: &mut countersign::providers::Call| call.deadline = Duration::from_secs(3);
    let Some(outcome) = outcome("silence", Behaviour::Hang, short).await else { return };
    assert!(
        matches!(outcome.kind(), Some(CallErrorKind::Timeout { idle: false, .. })),
        "{:?}",
        outcome.reply
    );
    assert!(outcome.took < Duration::from_secs(8), "{:?}", outcome.took);
}

#[tokio::test]
async fn structured_output_fits_the_schema_or_is_none() {
    let with_schema = |call: &mut countersign::providers::Call| call.schema = Some(schema());
    let behaviour = Behaviour::Structured(json!({"verdict": "REVISE"}));
    let Some(good) = outcome("structured_output", behaviour, with_schema).await else { return };
    assert_eq!(good.reply.unwrap().value, Some(json!({"verdict": "REVISE"})));
    let behaviour = Behaviour::Text { served: None };
    let Some(ignored) = outcome("schema_ignored", behaviour, with_schema).await else { return };
    assert_eq!(ignored.kind(), Some(&CallErrorKind::InvalidOutput));
}

/// `@/path` in a prompt makes the program read the file into it; a stranger's issue may hold that.
#[tokio::test]
async fn a_file_named_in_the_prompt_is_not_read() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "the-operators-secret").unwrap();
    let mention = format!("Please see @{} and @\"{0}\".", secret.path().display());
    let named = move |call: &mut countersign::providers::Call| call.prompt = mention;
    let Some(outcome) = outcome("a_file_named", Behaviour::Text { served: None }, named).await else {
        return;
    };
    let sent = serde_json::to_string(&outcome.requests).unwrap();
    assert!(sent.contains("Please see @"), "the prompt itself arrived");
    assert!(!sent.contains("the-operators-secret"));
}

#[tokio::test]
async fn a_prompt_that_looks_like_a_command_reaches_the_model() {
    let slash = |call: &mut countersign::providers::Call| call.prompt = "/cost".into();
    let Some(outcome) = outcome("a_slash", Behaviour::Text { served: None }, slash).await else { return };
    assert_eq!(outcome.reply.unwrap().text, "It is sound.");
}

#[tokio::test]
async fn instructions_too_long_for_an_argument_arrive() {
    let long =
        |call: &mut countersign::providers::Call| call.system = format!("{} the end", "x".repeat(200_000));
    let Some(outcome) = outcome("long_instructions", Behaviour::Text { served: None }, long).await else {
        return;
    };
    outcome.reply.unwrap();
    assert!(outcome.requests[0].to_string().contains("x the end"));
}

/// A hook in the operator's own settings runs with the operator's rights, even without tools.
#[tokio::test]
async fn a_hook_in_the_operators_settings_does_not_run() {
    let Some(binary) = binary("a_hook") else { return };
    let home = tempfile::tempdir().unwrap();
    let traces = home.path().join("ran");
    let planted = home.path().join(".claude");
    std::fs::create_dir(&planted).unwrap();
    let hook = json!({"type": "command", "command": format!("echo hooked >> {}", traces.display())});
    let settings = json!({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}});
    std::fs::write(planted.join("settings.json"), settings.to_string()).unwrap();

    // This very test program again, with the planted home as the operator's.
    let output = proc::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "claude::one_call_from_this_home"])
        .env("HOME", home.path())
        .env(BINARY, &binary)
        .run(&CancellationToken::new())
        .await
        .unwrap();
    assert!(output.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    assert!(!traces.exists(), "the operator's hook ran");

    // The trap works: with the operator's settings as configuration the hook does run.
    let (url, _) = anthropic::start(Behaviour::Text { served: None }).await;
    let mut careless = with_binary(&binary, home.path(), url);
    careless.claude.config_dir = planted;
    ask(&careless, "claude:opus", question("claude")).await.unwrap();
    assert!(traces.exists(), "the planted hook is no trap");
}

#[tokio::test]
#[ignore = "started by a_hook_in_the_operators_settings_does_not_run"]
async fn one_call_from_this_home() {
    let outcome = outcome("one_call", Behaviour::Text { served: None }, |_| {}).await.unwrap();
    outcome.reply.unwrap();
}
