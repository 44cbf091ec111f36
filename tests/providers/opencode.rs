//! Contract tests with the real OpenCode program. `COUNTERSIGN_TEST_OPENCODE` names the binary. Without the variable,
//! each test is skipped.

use std::{path::Path, time::Duration};

use countersign::{
    config::{Model, ModelSettings},
    providers::{CallError, CallErrorKind, CallRole, ModelCall, ModelProviders, ModelReply, ResolveError},
    types::Family,
};
use serde_json::json;

use crate::{
    anthropic::{self, Behaviour},
    ask,
    claude::binaries,
    question, schema, settings,
};

const BINARY: &str = "COUNTERSIGN_TEST_OPENCODE";
const MODEL: &str = "opencode:anthropic/claude-opus-4-6";

fn configured(data_dir: &Path) -> ModelSettings {
    let mut settings = settings(data_dir);
    settings.table = vec![Model {
        id: MODEL.split_once(':').unwrap().1.into(),
        aliases: Vec::new(),
        providers: vec!["opencode".into()],
        family: Family("claude".into()),
        context: 200_000,
        max_output: 32_000,
        prices: Vec::new(),
        retires: None,
        successor: None,
        source: None,
    }];
    settings
}

fn with_binary(binary: &Path, data_dir: &Path, api: &url::Url) -> ModelSettings {
    let mut settings = configured(data_dir);
    settings.opencode.path = Some(binary.into());
    settings.opencode.base_url = Some(api.join("v1").unwrap());
    settings
}

struct Outcome {
    reply: Result<ModelReply, CallError>,
    requests: Vec<serde_json::Value>,
}

async fn outcomes(test: &str, behaviour: Behaviour, change: impl Fn(&mut ModelCall)) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for binary in binaries(BINARY, test) {
        let data = tempfile::tempdir().unwrap();
        let (url, api) = anthropic::start(behaviour.clone()).await;
        let mut call = question("claude");
        change(&mut call);
        let reply = ask(&with_binary(&binary, data.path(), &url), MODEL, call).await;
        outcomes.push(Outcome { reply, requests: api.requests() });
    }
    outcomes
}

#[tokio::test]
async fn opencode_response_has_token_counts_but_no_served_model() {
    for outcome in outcomes("an_answer", Behaviour::Text { served: None }, |_| {}).await {
        let reply = outcome.reply.unwrap();
        assert_eq!(reply.text, "It is sound.");
        assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (1000, 50));
        assert_eq!((reply.usage.served, reply.usage.family), (None, None));
        let [request] = outcome.requests.as_slice() else { panic!("{} requests", outcome.requests.len()) };
        assert_eq!(request["model"], "claude-opus-4-6");
        assert!(request.get("tools").is_none_or(|tools| *tools == json!([])), "no tool is offered");
        assert!(request["system"].to_string().contains("Answer briefly."));
        assert!(request["messages"].to_string().contains("Is this sound?"));
    }
}

#[tokio::test]
async fn opencode_failures_map_to_error_kinds() {
    for (behaviour, expected) in [
        (Behaviour::Error(401, "authentication_error", None), CallErrorKind::Auth),
        (Behaviour::MaxTokens, CallErrorKind::Truncated),
        (Behaviour::Refusal, CallErrorKind::Refused),
        (Behaviour::Empty, CallErrorKind::Empty),
    ] {
        for outcome in outcomes("an_ending", behaviour, |_| {}).await {
            assert_eq!(outcome.reply.unwrap_err().kind, expected);
        }
    }
}

#[tokio::test]
async fn structured_output_must_match_the_schema() {
    let with_schema = |call: &mut ModelCall| call.schema = Some(schema());
    for outcome in outcomes("structured", Behaviour::Says("{\"verdict\": \"REVISE\"}"), with_schema).await {
        assert_eq!(outcome.reply.unwrap().value, Some(json!({"verdict": "REVISE"})));
    }
    for outcome in outcomes("schema_ignored", Behaviour::Text { served: None }, with_schema).await {
        assert_eq!(outcome.reply.unwrap_err().kind, CallErrorKind::InvalidOutput);
    }
}

/// After overload errors and rate limits, OpenCode retries forever. It also waits forever for a response. The call's
/// deadline must end both.
#[tokio::test]
async fn endless_retries_by_opencode_end_at_the_deadline() {
    let short = |call: &mut ModelCall| call.deadline = Duration::from_secs(8);
    for behaviour in [
        Behaviour::Error(429, "rate_limit_error", Some(1)),
        Behaviour::Error(529, "overloaded_error", None),
        Behaviour::Hang,
        Behaviour::Stall,
    ] {
        for outcome in outcomes("silence", behaviour, short).await {
            let error = outcome.reply.unwrap_err();
            assert!(matches!(error.kind, CallErrorKind::Timeout { .. }), "{error:?}");
        }
    }
}

#[tokio::test]
async fn file_mentioned_in_the_prompt_is_not_read() {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "the-operators-secret").unwrap();
    let mention = format!("Please see @{}.", secret.path().display());
    let named = |call: &mut ModelCall| call.prompt.clone_from(&mention);
    for outcome in outcomes("a_file_named", Behaviour::Text { served: None }, named).await {
        let sent = serde_json::to_string(&outcome.requests).unwrap();
        assert!(sent.contains("Please see @") && !sent.contains("the-operators-secret"));
    }
}

#[tokio::test]
async fn opencode_is_rejected_as_reviewer() {
    let settings = configured("/nowhere".as_ref());
    let mut call = question("claude");
    call.role = CallRole::Reviewer;
    let error = ask(&settings, MODEL, call).await.unwrap_err();
    assert!(error.to_string().contains("it only drafts"), "{error}");
    let providers: ModelProviders = crate::providers(&settings);
    let error = providers.check_pair("gemini:pro", MODEL).unwrap_err();
    assert!(matches!(error, ResolveError::Unfit { .. }), "{error}");
    assert!(providers.check_pair(MODEL, "gemini:pro").is_ok());
}
