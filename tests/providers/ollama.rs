//! Tests of Ollama, against our imitation of `/api/chat`.

use std::sync::Arc;

use countersign::{
    config::{Model, ModelSettings},
    providers::{CallError, CallErrorKind, ModelReply},
    types::Family,
};
use serde_json::{Value, json};

use crate::{
    ask, assert_timeouts_use_clock, question, schema, settings,
    streaming::{Api, Behaviour, start},
};

fn row() -> Model {
    Model {
        id: "qwen3:32b".into(),
        aliases: vec!["qwen".into()],
        providers: vec!["ollama".into()],
        family: Family("qwen".into()),
        context: 40_960,
        max_output: 8192,
        prices: Vec::new(),
        retires: None,
        successor: None,
        source: None,
    }
}

fn local(base_url: url::Url) -> ModelSettings {
    let mut settings = settings("/nowhere".as_ref());
    settings.table = vec![row()];
    settings.ollama.base_url = base_url;
    settings
}

fn line(content: &str) -> Value {
    json!({"model": "qwen3:32b", "message": {"role": "assistant", "content": content}, "done": false})
}

fn last(reason: &str, read: u64) -> Value {
    json!({"model": "qwen3:32b", "message": {"role": "assistant", "content": ""}, "done": true,
           "done_reason": reason, "prompt_eval_count": read, "eval_count": 40})
}

fn lines(events: &[Value]) -> Behaviour {
    Behaviour::Stream(events.iter().map(|event| format!("{event}\n")).collect())
}

async fn call(behaviour: Behaviour, with_schema: bool) -> (Result<ModelReply, CallError>, Arc<Api>) {
    let (url, api) = start("/api/chat", behaviour).await;
    let mut call = question("ollama");
    call.schema = with_schema.then(schema);
    (ask(&local(url), "ollama:qwen", call).await, api)
}

async fn fails(behaviour: Behaviour) -> CallError {
    call(behaviour, false).await.0.unwrap_err()
}

#[tokio::test]
async fn ollama_request_and_response_match_the_chat_api() {
    let events = [line("{\"verdict\":"), line("\"APPROVED\"}"), last("stop", 900)];
    let (outcome, api) = call(lines(&events), true).await;
    let reply = outcome.unwrap();
    assert_eq!(reply.value, Some(json!({"verdict": "APPROVED"})));
    let usage = &reply.usage;
    assert_eq!(usage.served.as_deref(), Some("qwen3:32b"));
    assert_eq!(usage.family, Some(Family("qwen".into())));
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.billed), (900, 40, false));
    let body = &api.requests()[0].1;
    assert_eq!(body["format"], schema());
    assert_eq!(body["options"], json!({"num_ctx": 12_288, "num_predict": 8192}));
    assert_eq!((&body["model"], &body["truncate"]), (&json!("qwen3:32b"), &json!(false)));
    assert_eq!(body["messages"][1]["content"], "Is this sound?");
}

#[tokio::test]
async fn context_window_grows_with_the_prompt_up_to_the_limit_of_the_model() {
    for (bytes, window) in [(20_000, Some(20_480)), (90_000, Some(40_960)), (98_000, None)] {
        let (url, api) = start("/api/chat", lines(&[line("Yes."), last("stop", 900)])).await;
        let mut call = question("ollama");
        call.prompt = "x".repeat(bytes);
        let outcome = ask(&local(url), "ollama:qwen3:32b", call).await;
        match window {
            Some(window) => {
                outcome.unwrap();
                assert_eq!(api.requests()[0].1["options"]["num_ctx"], window);
            }
            None => {
                assert_eq!(outcome.unwrap_err().kind, CallErrorKind::TooLong);
                assert!(api.requests().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn ollama_response_to_a_prompt_that_fills_the_context_maps_to_too_long() {
    let error = fails(lines(&[line("Fine."), last("stop", 12_288)])).await;
    assert_eq!(error.kind, CallErrorKind::TooLong);
    assert_eq!(error.usage.input_tokens, 12_288);
}

#[tokio::test]
async fn unusable_ollama_responses_map_to_error_kinds() {
    for (events, kind) in [
        (vec![line("Half"), last("length", 900)], CallErrorKind::Truncated),
        (vec![line(" "), last("stop", 900)], CallErrorKind::Empty),
        (vec![line("Half")], CallErrorKind::Unavailable),
        (vec![line("Half"), json!({"error": "the runner died"})], CallErrorKind::Unavailable),
    ] {
        assert_eq!(fails(lines(&events)).await.kind, kind, "{events:?}");
    }
    let mut other = last("stop", 900);
    other["model"] = json!("qwen3:0.6b");
    let served = Some("qwen3:0.6b".to_owned());
    assert_eq!(fails(lines(&[line("Fine."), other])).await.kind, CallErrorKind::WrongModel { served });
    let (outcome, _) = call(lines(&[line("{\"verdict\":\"MAYBE\"}"), last("stop", 900)]), true).await;
    assert_eq!(outcome.unwrap_err().kind, CallErrorKind::InvalidOutput);
}

#[tokio::test]
async fn missing_model_or_server_is_reported_with_its_fix() {
    let missing = json!({"error": "model 'qwen3:32b' not found"});
    let error = fails(Behaviour::Status(404, missing, None)).await;
    assert_eq!(error.kind, CallErrorKind::NoSuchModel);
    assert!(error.to_string().contains("`ollama pull qwen3:32b`"), "{error}");
    let busy = json!({"error": "server busy, please try again"});
    assert_eq!(fails(Behaviour::Status(503, busy, None)).await.kind, CallErrorKind::Capacity);

    let unreachable = local("http://127.0.0.1:1".parse().unwrap());
    let error = ask(&unreachable, "ollama:qwen", question("ollama")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
    assert!(error.to_string().contains("`ollama serve`"), "{error}");
}

#[tokio::test]
async fn silent_or_stalled_ollama_response_times_out() {
    let (hanging, _) = start("/api/chat", Behaviour::Hang).await;
    let (stalling, _) = start("/api/chat", Behaviour::Stall(format!("{}\n", line("Well,")))).await;
    assert_timeouts_use_clock("ollama:qwen", &local(hanging), &local(stalling)).await;
}

#[tokio::test]
async fn ollama_context_length_error_maps_to_too_long() {
    let body = json!({"error": "the input exceeds the available context length"});
    assert_eq!(fails(Behaviour::Status(400, body, None)).await.kind, CallErrorKind::TooLong);
}
