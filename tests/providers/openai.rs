//! Tests of OpenAI-compatible endpoints, against our imitation.

use std::{sync::Arc, time::Duration};

use countersign::{
    clock::SystemClock,
    config::{Model, ModelSettings, Price},
    providers::{CallError, CallErrorKind, ModelCall, ModelProviders, ModelReply},
    types::Family,
};
use serde_json::{Value, json};

use crate::{
    FastClock, ask, ask_with_clock, assert_timeouts_use_clock, question, schema, settings,
    streaming::{Api, Behaviour, start},
    tools,
};

const KEY: &str = "sk-TheKeyOfThisTest";

fn row(price: Option<Price>) -> Model {
    Model {
        id: "gpt-x".into(),
        aliases: Vec::new(),
        providers: vec!["openai".into()],
        family: Family("gpt".into()),
        context: 100_000,
        max_output: 10_000,
        prices: price.into_iter().collect(),
        retires: None,
        successor: None,
        source: None,
    }
}

pub(crate) fn at(base_url: url::Url) -> ModelSettings {
    let price = Price::per_million(2_000_000, 8_000_000);
    let mut settings = settings("/nowhere".as_ref());
    settings.table = vec![row(Some(price))];
    settings.openai.base_url = base_url;
    settings.openai.api_key = Some(KEY.into());
    settings
}

fn event(delta: Value, finish: Option<&str>) -> Value {
    json!({"model": "gpt-x-2026-01-02", "choices": [{"delta": delta, "finish_reason": finish}]})
}

pub(crate) fn events(events: &[Value]) -> String {
    let usage = json!({"model": "gpt-x-2026-01-02", "choices": [], "usage": {
        "prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 200}}});
    let events = events.iter().chain([&usage]).map(|event| format!("data: {event}\r\n\r\n"));
    [": hello\r\n".to_owned()].into_iter().chain(events).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

pub(crate) fn text_stream(text: &str, finish: &str) -> String {
    let (first, second) = text.split_at(text.len() / 2);
    events(&[
        event(json!({"role": "assistant", "content": first}), None),
        event(json!({"content": second}), None),
        event(json!({}), Some(finish)),
    ])
}

async fn call(behaviour: Behaviour, with_schema: bool) -> (Result<ModelReply, CallError>, Arc<Api>) {
    let (url, api) = start("/chat/completions", behaviour).await;
    let mut call = question("openai");
    call.schema = with_schema.then(schema);
    (ask(&at(url), "openai:gpt-x", call).await, api)
}

async fn kind(behaviour: Behaviour) -> CallErrorKind {
    let error = call(behaviour, false).await.0.unwrap_err();
    assert!(!format!("{error:?}").contains(KEY), "{error:?}");
    error.kind
}

#[tokio::test]
async fn openai_request_and_response_match_the_chat_completions_api() {
    let (outcome, api) =
        call(Behaviour::Stream(text_stream("{\"verdict\":\"APPROVED\"}", "stop")), true).await;
    let reply = outcome.unwrap();
    assert_eq!(reply.value, Some(json!({"verdict": "APPROVED"})));
    let usage = &reply.usage;
    assert_eq!(usage.served.as_deref(), Some("gpt-x-2026-01-02"));
    assert_eq!(usage.family, Some(Family("gpt".into())));
    assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (800, 200, 50));
    assert_eq!((usage.billed, usage.cost_microusd), (true, Some(800 * 2 + 200 / 5 + 50 * 8)));
    let (headers, body) = &api.requests()[0];
    assert_eq!(headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(body["max_tokens"], 10_000, "the limit from the model table");
    assert_eq!(body["stream_options"], json!({"include_usage": true}));
    assert_eq!(body["response_format"]["json_schema"]["schema"], schema());
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "Answer briefly."}));
}

#[tokio::test]
async fn tools_and_tool_calls_are_translated() {
    let piece = |index: u64, function: Value| {
        event(json!({"tool_calls": [{"index": index, "function": function}]}), None)
    };
    let calls = |ended: &str| {
        events(&[
            event(json!({"role": "assistant", "content": "I look first."}), None),
            event(
                json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "read", "arguments": ""}}]}),
                None,
            ),
            piece(0, json!({"arguments": "{\"path\": \"src"})),
            piece(0, json!({"arguments": "/lib.rs\"}"})),
            // Some endpoints repeat the name in every piece, and some send a constant index.
            event(json!({"tool_calls": [{"index": 0, "id": "call_2", "function": {"name": "list"}}]}), None),
            event(json!({"tool_calls": [{"index": 0, "id": "call_2", "function": {"name": "list"}}]}), None),
            piece(2, json!({"name": "curl", "arguments": "{\"url\""})),
            event(json!({}), Some(ended)),
        ])
    };
    let expected = json!({"toolCalls": [
        {"name": "read", "arguments": {"path": "src/lib.rs"}},
        {"name": "list", "arguments": {}},
        {"name": "curl", "arguments": "{\"url\""},
    ]});
    // Some endpoints end a response with tool calls by `stop`.
    for ended in ["tool_calls", "stop"] {
        let (url, api) = start("/chat/completions", Behaviour::Stream(calls(ended))).await;
        let call = || ModelCall { tools: Some(tools()), ..question("openai") };
        let reply = ask(&at(url.clone()), "openai:gpt-x", call()).await.unwrap();
        assert_eq!(serde_json::from_str::<Value>(&reply.text).unwrap(), expected);
        let sent = &api.requests()[0].1["tools"];
        assert_eq!(sent, &json!([{"type": "function", "function": tools()[0]}]));
        // Without tools in the call, the same response is rejected or read as text.
        let without_tools = ask(&at(url), "openai:gpt-x", question("openai")).await;
        assert_eq!(without_tools.is_ok(), ended == "stop", "{without_tools:?}");
        assert!(api.requests()[1].1.get("tools").is_none());
    }
}

#[tokio::test]
async fn server_without_tool_support_is_called_again_without_tools() {
    for (status, message) in [
        (500, "tools param requires --jinja flag"),
        (400, "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"),
        (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
    ] {
        let refusal = Behaviour::Status(status, json!({"error": {"message": message}}), None);
        let answers = Behaviour::InTurn(vec![refusal.clone(), Behaviour::Stream(text_stream("# 1", "stop"))]);
        let (url, api) = start("/chat/completions", answers).await;
        let call = ModelCall { tools: Some(tools()), ..question("openai") };
        let reply = ask(&at(url), "openai:gpt-x", call.clone()).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.usage.attempts), ("# 1", 2));
        let has_tools = |n: usize| api.requests()[n].1.get("tools").is_some();
        assert!(has_tools(0) && !has_tools(1));
        let (url, api) = start("/chat/completions", refusal).await;
        assert!(ask(&at(url), "openai:gpt-x", call).await.is_err());
        assert_eq!(api.requests().len(), 2);
    }
    for (status, message) in [(400, "no such parameter"), (500, "the tool server is down")] {
        let other = Behaviour::Status(status, json!({"error": {"message": message}}), None);
        let (url, api) = start("/chat/completions", other).await;
        let call = ModelCall { tools: Some(tools()), ..question("openai") };
        assert!(ask(&at(url), "openai:gpt-x", call).await.is_err());
        assert_eq!(api.requests().len(), 1);
    }
}

#[tokio::test]
async fn self_hosted_endpoint_needs_no_key_and_is_not_billed() {
    let (url, api) = start("/chat/completions", Behaviour::Stream(text_stream("Yes.", "stop"))).await;
    let mut settings = at(url);
    settings.table = vec![row(None)];
    settings.openai.api_key = None;
    let reply = ask(&settings, "openai:gpt-x", question("openai")).await.unwrap();
    assert_eq!((reply.usage.billed, reply.usage.cost_microusd), (false, None));
    assert!(!api.requests()[0].0.contains_key("authorization"));

    settings.openai.base_url = "https://api.openai.com/v1".parse().unwrap();
    let error = ask(&settings, "openai:gpt-x", question("openai")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Auth);
    assert!(error.to_string().contains("OPENAI_API_KEY"), "{error}");
}

#[tokio::test]
async fn error_statuses_map_to_error_kinds() {
    let reset = Some(Duration::from_secs(30));
    for (status, code, kind_wanted) in [
        (401, "invalid_api_key", CallErrorKind::Auth),
        (402, "", CallErrorKind::Quota { reset }),
        (429, "insufficient_quota", CallErrorKind::Quota { reset }),
        (429, "rate_limit_exceeded", CallErrorKind::RateLimited { reset }),
        (400, "context_length_exceeded", CallErrorKind::TooLong),
        (400, "content_filter", CallErrorKind::Refused),
        (400, "no_such_parameter", CallErrorKind::Rejected { code: "no_such_parameter".into() }),
        (422, "words, not a code", CallErrorKind::Rejected { code: "422".into() }),
        (404, "model_not_found", CallErrorKind::NoSuchModel),
        (408, "", CallErrorKind::Unavailable),
        (500, "", CallErrorKind::Unavailable),
        (503, "", CallErrorKind::Capacity),
        (529, "", CallErrorKind::Capacity),
    ] {
        let body = json!({"error": {"code": code, "message": format!("no, {KEY}")}});
        assert_eq!(kind(Behaviour::Status(status, body, Some(30))).await, kind_wanted, "{status} {code}");
    }
    let body = json!({"error": {"message": "This model's maximum context length is 8192 tokens."}});
    assert_eq!(kind(Behaviour::Status(400, body, None)).await, CallErrorKind::TooLong);
}

#[tokio::test]
async fn unusable_openai_responses_map_to_error_kinds() {
    for (body, wanted) in [
        (text_stream("Half", "length"), CallErrorKind::Truncated),
        (text_stream("Half", "content_filter"), CallErrorKind::Refused),
        (text_stream("Half", "tool_calls"), CallErrorKind::InvalidOutput),
        (text_stream("  ", "stop"), CallErrorKind::Empty),
        (events(&[event(json!({"refusal": "I'd rather not."}), None)]), CallErrorKind::Refused),
        (events(&[event(json!({"content": "Half"}), None)]), CallErrorKind::Unavailable),
        (
            format!("data: {}\n", json!({"error": {"code": 429, "message": "slow"}})),
            CallErrorKind::RateLimited { reset: None },
        ),
        ("data: {\"model\n".into(), CallErrorKind::InvalidOutput),
        (
            text_stream("Fine.", "stop").replace("gpt-x-", "gpt-x-mini-"),
            CallErrorKind::WrongModel { served: Some("gpt-x-mini-2026-01-02".into()) },
        ),
        (
            text_stream("Fine.", "stop").replace("\"model\"", "\"x\""),
            CallErrorKind::WrongModel { served: None },
        ),
    ] {
        assert_eq!(kind(Behaviour::Stream(body.clone())).await, wanted, "{body}");
    }
    assert_eq!(kind(Behaviour::Break(events(&[])[..60].into())).await, CallErrorKind::Unavailable);
    let (outcome, _) = call(Behaviour::Stream(text_stream("{\"verdict\":\"MAYBE\"}", "stop")), true).await;
    assert_eq!(outcome.unwrap_err().kind, CallErrorKind::InvalidOutput);
}

#[tokio::test]
async fn silent_or_stalled_openai_response_times_out() {
    let (hanging, _) = start("/chat/completions", Behaviour::Hang).await;
    let begun = format!("data: {}\n\n", event(json!({"content": "Well,"}), None));
    let (stalling, _) = start("/chat/completions", Behaviour::Stall(begun)).await;
    assert_timeouts_use_clock("openai:gpt-x", &at(hanging), &at(stalling.clone())).await;

    // A response that started may stall for half the deadline at most.
    let mut call = question("openai");
    call.deadline = Duration::from_secs(60);
    let half = Arc::new(FastClock(call.deadline / 2));
    let error = ask_with_clock(half, &at(stalling), "openai:gpt-x", call.clone()).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { idle: true, .. }), "{error:?}");
    // Before the first token, only the deadline limits the wait.
    let (reading, _) = start("/chat/completions", Behaviour::Stall(String::new())).await;
    call.deadline = Duration::from_secs(400);
    let hurried = Arc::new(FastClock(Duration::MAX));
    let error = ask_with_clock(hurried, &at(reading), "openai:gpt-x", call).await.unwrap_err();
    assert!(matches!(error.kind, CallErrorKind::Timeout { idle: false, .. }), "{error:?}");
}

#[test]
fn error_for_an_unknown_model_shows_the_model_entry_to_add() {
    let providers = ModelProviders::new(&settings("/nowhere".as_ref()), Arc::new(SystemClock)).unwrap();
    for (spec, id) in [("ollama:llama4:8b", "llama4:8b"), ("openai:gpt-x", "gpt-x")] {
        let error = providers.model(spec).unwrap_err().to_string();
        assert!(error.contains(&format!("[[model]]\nid = \"{id}\"\n")), "{error}");
    }
}

#[tokio::test]
async fn served_model_name_is_truncated_and_sanitised() {
    let name = format!("gpt-x\u{1b}[2J\u{202e}\n{}", "y".repeat(10_000));
    let body =
        text_stream("Fine.", "stop").replace("gpt-x-2026-01-02", &json!(name).to_string()[1..][..name.len()]);
    let error = call(Behaviour::Stream(body), false).await.0.unwrap_err();
    let CallErrorKind::WrongModel { served: Some(served) } = &error.kind else { panic!("{:?}", error.kind) };
    assert!(served.starts_with("gpt-x[2J yyy") && served.chars().count() == 101, "{served}");
    assert_eq!((error.usage.served.as_ref(), &error.usage.family), (Some(served), &None));
    assert!(error.message.len() < 500 && !error.message.contains('\u{1b}'), "{:?}", error.message);
}

#[tokio::test]
async fn response_by_two_models_is_rejected() {
    let other = json!({"model": "gpt-x-mini", "choices": [{"delta": {"content": "Approved. "}}]});
    for body in [
        format!("data: {other}\n\n{}", text_stream("Fine.", "stop")),
        text_stream("Fine.", "stop").replace("data: [DONE]", &format!("data: {other}\n\ndata: [DONE]")),
    ] {
        let served = Some("gpt-x-mini".into());
        assert_eq!(kind(Behaviour::Stream(body)).await, CallErrorKind::WrongModel { served });
    }
}

#[tokio::test]
async fn deeply_nested_json_is_rejected() {
    let nest = format!("data: {}\n\n", "[".repeat(10_000));
    assert_eq!(kind(Behaviour::Stream(nest)).await, CallErrorKind::InvalidOutput);
    let nest = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let (outcome, _) = call(Behaviour::Stream(text_stream(&nest, "stop")), true).await;
    assert_eq!(outcome.unwrap_err().kind, CallErrorKind::InvalidOutput);
}

#[tokio::test]
async fn model_name_is_kept_when_a_later_event_has_none() {
    let body =
        text_stream("Fine.", "stop").replace("data: [DONE]", "data: {\"model\": \"\"}\n\ndata: [DONE]");
    let reply = call(Behaviour::Stream(body), false).await.0.unwrap();
    assert_eq!(reply.usage.served.as_deref(), Some("gpt-x-2026-01-02"));
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let (elsewhere, api) = start("/chat/completions", Behaviour::Stream(text_stream("Fine.", "stop"))).await;
    let target = elsewhere.join("chat/completions").unwrap().to_string();
    let to = axum::routing::post(async move || axum::response::Redirect::temporary(&target));
    let url = crate::serve(axum::Router::new().route("/chat/completions", to)).await;
    let error = ask(&at(url), "openai:gpt-x", question("openai")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
    assert!(api.requests().is_empty());
}
