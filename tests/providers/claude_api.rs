//! Tests of Claude through our imitation of Anthropic's API, without the Claude program.

use std::{sync::Arc, time::Duration};

use countersign::{
    clock::{SharedClock, SystemClock},
    config::ModelSettings,
    providers::{CallError, CallErrorKind, ModelCall, ModelProviders, ModelReply},
    store::Store,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    FastClock,
    anthropic::{self, Api, Behaviour},
    question, schema, settings,
    streaming::{Behaviour as Streamed, start},
    tools,
};

pub(crate) const KEY: &str = "sk-ant-the-key-of-this-test";

pub(crate) async fn served(behaviour: Behaviour) -> (ModelSettings, Arc<Api>) {
    let (url, api) = anthropic::start(behaviour).await;
    let mut settings = settings("/nowhere".as_ref());
    settings.anthropic.base_url = url;
    settings.anthropic.api_key = Some(KEY.into());
    (settings, api)
}

async fn ask(
    settings: &ModelSettings,
    clock: SharedClock,
    mut call: ModelCall,
) -> Result<ModelReply, CallError> {
    let providers = ModelProviders::new(settings, clock).unwrap();
    let (provider, id) = providers.resolve("anthropic:opus").unwrap();
    call.model = id.model;
    let outcome = provider.call(&call, &CancellationToken::new()).await;
    assert!(!format!("{outcome:?}").contains(KEY), "{outcome:?}");
    outcome
}

async fn failure(behaviour: Behaviour) -> CallError {
    let (settings, _) = served(behaviour).await;
    let error = ask(&settings, Arc::new(SystemClock), question("claude")).await.unwrap_err();
    assert!(error.usage.billed && error.usage.attempts == 1);
    error
}

#[tokio::test]
async fn tools_and_tool_calls_are_translated() {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let input = |index, json: &str| delta(index, json!({"type": "input_json_delta", "partial_json": json}));
    let usage = json!({"input_tokens": 9, "output_tokens": 1});
    let start_of = json!({"type": "message_start", "message": {"model": "claude-opus-5-5", "usage": usage}});
    let events = [
        start_of,
        block(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "# I look first."})),
        block(1, json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}})),
        input(1, ""),
        input(1, "{\"path\": \"src"),
        input(1, "/lib.rs\"}"),
        block(2, json!({"type": "tool_use", "id": "toolu_2", "name": "list", "input": {}})),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let (url, api) = start("/v1/messages", Streamed::Stream(body)).await;
    let mut settings = settings("/nowhere".as_ref());
    settings.anthropic.base_url = url;
    settings.anthropic.api_key = Some(KEY.into());
    let call = ModelCall { tools: Some(tools()), ..question("claude") };
    let reply = ask(&settings, Arc::new(SystemClock), call).await.unwrap();
    let expected = json!({"toolCalls": [
        {"name": "read", "arguments": {"path": "src/lib.rs"}}, {"name": "list", "arguments": {}},
    ]});
    assert_eq!(serde_json::from_str::<Value>(&reply.text).unwrap(), expected);
    let sent = &api.requests()[0].1["tools"];
    let tool = &tools()[0];
    let own = json!({"name": "read", "description": "a file", "input_schema": tool["parameters"]});
    assert_eq!(sent, &json!([own]));
    let unasked = ask(&settings, Arc::new(SystemClock), question("claude")).await.unwrap_err();
    assert_eq!(
        unasked.kind,
        CallErrorKind::InvalidOutput,
        "a call of a tool that was not offered is rejected"
    );
}

#[tokio::test]
async fn claude_request_and_response_match_the_messages_api() {
    let (settings, api) = served(Behaviour::Says("{\"verdict\": \"REVISE\"}")).await;
    let mut call = question("claude");
    call.schema = Some(schema());
    let reply = ask(&settings, Arc::new(SystemClock), call).await.unwrap();
    assert_eq!(reply.value, Some(json!({"verdict": "REVISE"})));
    let usage = &reply.usage;
    assert_eq!(usage.served.as_deref(), Some("claude-opus-5-5"));
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.billed), (1000, 50, true));
    assert_eq!(usage.cost_microusd, Some(1000 * 4 + 50 * 20));

    assert_eq!(api.headers()[0]["x-api-key"], KEY);
    assert_eq!(api.headers()[0]["anthropic-version"], "2023-06-01");
    let request = &api.requests()[0];
    assert_eq!((&request["stream"], &request["max_tokens"]), (&json!(true), &json!(100_000)));
    let system = json!([{"type": "text", "text": "Answer briefly.", "cache_control": {"type": "ephemeral"}}]);
    assert_eq!(request["system"], system);
    assert_eq!(request["messages"], json!([{"role": "user", "content": "Is this sound?"}]));
    let format = json!({"type": "json_schema", "schema": schema()});
    assert_eq!(request["output_config"], json!({"format": format}));
}

#[tokio::test]
async fn error_statuses_map_to_error_kinds() {
    for (status, name, wait, expected) in [
        (401, "authentication_error", None, CallErrorKind::Auth),
        (402, "billing_error", None, CallErrorKind::Quota { reset: None }),
        (413, "request_too_large", None, CallErrorKind::TooLong),
        (
            429,
            "rate_limit_error",
            Some(7),
            CallErrorKind::RateLimited { reset: Some(Duration::from_secs(7)) },
        ),
        (529, "overloaded_error", None, CallErrorKind::Capacity),
        (500, "api_error", None, CallErrorKind::Unavailable),
    ] {
        let error = failure(Behaviour::Error(status, name, wait)).await;
        assert_eq!(error.kind, expected);
        assert!(
            error.to_string().contains("request req_7: ") && error.to_string().ends_with("as the test wants"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn unusable_responses_map_to_error_kinds_and_keep_token_counts() {
    for (behaviour, expected) in [
        (Behaviour::MaxTokens, CallErrorKind::Truncated),
        (Behaviour::Refusal, CallErrorKind::Refused),
        (Behaviour::Empty, CallErrorKind::Empty),
        (Behaviour::Says("  \n"), CallErrorKind::Empty),
        (Behaviour::Cut, CallErrorKind::Unavailable),
        (Behaviour::GivesUp, CallErrorKind::Capacity),
        (
            Behaviour::Text { served: Some("claude-haiku-4-5-20251001") },
            CallErrorKind::WrongModel { served: Some("claude-haiku-4-5-20251001".into()) },
        ),
    ] {
        let error = failure(behaviour).await;
        assert_eq!(error.kind, expected);
        assert_eq!(error.usage.input_tokens, 1000, "{error}: it may be billed");
        assert!(error.to_string().contains("request req_7: "), "{error}");
    }
}

#[tokio::test]
async fn response_that_ignores_the_schema_is_rejected() {
    for words in
        ["It is sound.", "{\"verdict\": \"MAYBE\"}", "{\"verdict\": \"REVISE\", \"verdict\": \"APPROVED\"}"]
    {
        let (settings, _) = served(Behaviour::Says(words)).await;
        let mut call = question("claude");
        call.schema = Some(schema());
        let error = ask(&settings, Arc::new(SystemClock), call).await.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::InvalidOutput, "{words}");
    }
}

#[tokio::test]
async fn silent_or_stalled_claude_api_response_times_out() {
    let (settings, _) = served(Behaviour::Hang).await;
    let mut call = question("claude");
    call.deadline = Duration::from_secs(200);
    let error = ask(&settings, Arc::new(FastClock(Duration::MAX)), call.clone()).await.unwrap_err();
    let CallErrorKind::Timeout { idle: false, elapsed } = error.kind else { panic!("{error:?}") };
    assert!(elapsed >= call.deadline);

    let (settings, _) = served(Behaviour::Stall).await;
    call.deadline = Duration::from_secs(1_000_000);
    let error = ask(&settings, Arc::new(FastClock(Duration::MAX)), call).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { idle: true, .. }), "{error:?}");
    assert_eq!(error.usage.served.as_deref(), Some("claude-opus-5-5"));
}

#[tokio::test]
async fn call_without_a_key_sends_nothing() {
    let (mut settings, api) = served(Behaviour::Empty).await;
    settings.anthropic.api_key = None;
    let error = ask(&settings, Arc::new(SystemClock), question("claude")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Auth);
    assert!(error.to_string().contains("ANTHROPIC_API_KEY") && api.requests().is_empty(), "{error}");
}

#[tokio::test]
async fn message_stop_ends_a_call_and_a_message_start_inside_a_message_is_an_error() {
    let (settings, _) = served(Behaviour::StaysOpen).await;
    let reply = ask(&settings, Arc::new(SystemClock), question("claude")).await.unwrap();
    assert_eq!(reply.text, "It is sound.");
    assert_eq!(failure(Behaviour::Twice).await.kind, CallErrorKind::InvalidOutput);
}

#[tokio::test]
async fn exhausted_quota_is_stored_per_key() {
    let data = tempfile::tempdir().unwrap();
    let (mut settings, api) = served(Behaviour::Error(402, "billing_error", Some(3600))).await;
    let requests_after_call = async |settings: &ModelSettings| {
        let clock: SharedClock = Arc::new(SystemClock);
        let store = Store::open(data.path(), Arc::clone(&clock)).unwrap();
        let providers = ModelProviders::with_store(settings, store, clock).unwrap();
        let (provider, id) = providers.resolve("anthropic:opus").unwrap();
        let error = provider.call(&question(&id.model), &CancellationToken::new()).await.unwrap_err();
        assert!(matches!(error.kind, CallErrorKind::Quota { .. }), "{error:?}");
        api.requests().len()
    };
    assert_eq!(requests_after_call(&settings).await, 1);
    assert_eq!(requests_after_call(&settings).await, 1, "the used-up account is not called again");
    settings.anthropic.api_key = Some("sk-ant-another-key".into());
    assert_eq!(requests_after_call(&settings).await, 2);
    for file in std::fs::read_dir(data.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(6).any(|window| window == b"sk-ant"));
    }
}
