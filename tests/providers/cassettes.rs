//! Cassettes: recorded calls that can be replayed without a network and contain no secret.

use std::path::Path;

use countersign::{
    config::{CassetteMode, CassetteSettings, ModelSettings},
    providers::{
        CallAttempt, CallError, CallErrorKind, ModelCall, ModelProviders, ModelReply, read_cassettes,
    },
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    anthropic, ask,
    claude_api::served,
    fallback::with_broken_program,
    openai::{at, text_stream},
    providers, question, schema,
    streaming::{Behaviour, start},
};

fn with_cassettes(mut settings: ModelSettings, dir: &Path, mode: CassetteMode) -> ModelSettings {
    settings.cassettes = Some(CassetteSettings { dir: dir.into(), mode });
    settings
}

fn unreachable_service() -> ModelSettings {
    at("http://127.0.0.1:1".parse().unwrap())
}

/// Returns a reviewer's call whose response must repeat the random nonce.
fn call_with_nonce(nonce: &str) -> ModelCall {
    let mut call = question("openai");
    call.prompt = format!("Is this sound? Say {nonce}. My key is sk-TheKeyOfThisTest.");
    call.facts.insert("nonce".into(), nonce.into());
    call
}

#[tokio::test]
async fn replayed_response_equals_the_recorded_one_with_secrets_removed() {
    let dir = tempfile::tempdir().unwrap();
    let text = "aaaa1111: sound. You sent sk-TheKeyOfThisTest.";
    let (url, api) = start("/chat/completions", Behaviour::Stream(text_stream(text, "stop"))).await;
    let recording = with_cassettes(at(url), dir.path(), CassetteMode::Record);
    let recorded = ask(&recording, "openai:gpt-x", call_with_nonce("aaaa1111")).await.unwrap();
    assert_eq!((recorded.text.as_str(), recorded.usage.billed), (text, true));

    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let written = std::fs::read_to_string(file).unwrap();
    assert!(!written.contains("TheKeyOfThisTest") && written.contains("[secret]"), "{written}");
    assert!(!written.contains("Bearer") && !written.contains("aaaa1111"), "{written}");

    let replay = with_cassettes(unreachable_service(), dir.path(), CassetteMode::Replay);
    let replayed = |call| ask(&replay, "openai:gpt-x", call);
    let ModelReply { text, usage, .. } = replayed(call_with_nonce("bbbb2222")).await.unwrap();
    assert_eq!(text, "bbbb2222: sound. You sent [secret].");
    assert!(!usage.billed, "a replay is not billed");
    assert_eq!(usage.cost_microusd, recorded.usage.cost_microusd);
    assert_eq!(usage.served, recorded.usage.served);
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn replay_returns_the_recorded_structured_output_and_error_kind() {
    let dir = tempfile::tempdir().unwrap();
    let mut with_schema = call_with_nonce("aaaa1111");
    with_schema.schema = Some(schema());
    let refusal = json!({"error": {"code": "content_filter", "message": "no"}});
    let behaviours = [
        (with_schema, Behaviour::Stream(text_stream("{\"verdict\":\"REVISE\"}", "stop"))),
        (call_with_nonce("aaaa1111"), Behaviour::Status(400, refusal, None)),
    ];
    for (call, behaviour) in behaviours {
        let (url, _) = start("/chat/completions", behaviour).await;
        let recording = with_cassettes(at(url), dir.path(), CassetteMode::Record);
        let replay = with_cassettes(unreachable_service(), dir.path(), CassetteMode::Replay);
        let recorded = ask(&recording, "openai:gpt-x", call.clone()).await;
        let replayed = ask(&replay, "openai:gpt-x", call).await;
        match (recorded, replayed) {
            (Ok(recorded), Ok(replayed)) => {
                assert_eq!((recorded.text, recorded.value), (replayed.text, replayed.value))
            }
            (Err(recorded), Err(replayed)) => {
                assert_eq!((recorded.kind, recorded.message), (replayed.kind, replayed.message));
            }
            (recorded, replayed) => panic!("{recorded:?} is not {replayed:?}"),
        }
    }
}

#[tokio::test]
async fn missing_and_edited_cassettes_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let replay = with_cassettes(unreachable_service(), dir.path(), CassetteMode::Replay);
    let error = ask(&replay, "openai:gpt-x", call_with_nonce("aaaa1111")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
    assert!(error.to_string().contains(".json in ") && error.to_string().contains("record"), "{error}");

    let (url, _) = start("/chat/completions", Behaviour::Stream(text_stream("Yes.", "stop"))).await;
    ask(&with_cassettes(at(url), dir.path(), CassetteMode::Record), "openai:gpt-x", call_with_nonce("a"))
        .await
        .unwrap();
    let (name, good) = read_cassettes(dir.path()).unwrap().remove(0);
    assert_eq!(good.unwrap().request.model, "gpt-x");
    let file = dir.path().join(name);
    let changed = std::fs::read_to_string(&file).unwrap().replace("Is this sound?", "Is that sound?");
    std::fs::write(&file, changed).unwrap();
    let why = read_cassettes(dir.path()).unwrap().remove(0).1.unwrap_err();
    assert!(why.contains("record it again"), "{why}");
}

/// Returns the provider and the outcome of each attempt, in order.
fn attempts(outcome: &Result<ModelReply, CallError>) -> Vec<(String, String)> {
    let (before, usage, end) = match outcome {
        Ok(reply) => (&reply.earlier_attempts, &reply.usage, reply.text.clone()),
        Err(error) => (&error.earlier_attempts, error.usage.as_ref(), format!("{:?} {error}", error.kind)),
    };
    let tried = |attempt: &CallAttempt| {
        (attempt.usage.provider.clone(), format!("{:?} {}", attempt.kind, attempt.message))
    };
    before.iter().map(tried).chain([(usage.provider.clone(), end)]).collect()
}

async fn call_model(
    providers: &ModelProviders,
    spec: &str,
    call: &ModelCall,
) -> Result<ModelReply, CallError> {
    let (provider, id) = providers.resolve(spec).unwrap();
    provider.call(&ModelCall { model: id.model, ..call.clone() }, &CancellationToken::new()).await
}

#[tokio::test]
async fn replay_repeats_fallback_attempts_in_order() {
    let (dir, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut settings, api) = served(anthropic::Behaviour::Text { served: None }).await;
    with_broken_program(&mut settings, directory.path());
    let recording = providers(&with_cassettes(settings.clone(), dir.path(), CassetteMode::Record));
    let recorded = call_model(&recording, "claude:opus", &question("claude")).await;
    assert_eq!(recorded.as_ref().unwrap().earlier_attempts[0].usage.provider, "claude");

    settings.anthropic.base_url = "http://127.0.0.1:1".parse().unwrap();
    let replay = providers(&with_cassettes(settings, dir.path(), CassetteMode::Replay));
    let replayed = call_model(&replay, "claude:opus", &question("claude")).await;
    assert_eq!(attempts(&replayed), attempts(&recorded));
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn repeated_request_replays_its_recordings_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let turns = vec![
        Behaviour::Status(503, json!({"error": {"message": "busy"}}), None),
        Behaviour::Stream(text_stream("Yes.", "stop")),
        Behaviour::Stream(text_stream("No.", "stop")),
    ];
    let (url, api) = start("/chat/completions", Behaviour::InTurn(turns)).await;
    let call = question("openai");
    let recording = providers(&with_cassettes(at(url.clone()), dir.path(), CassetteMode::Record));
    let mut recorded = Vec::new();
    for _ in 0..3 {
        recorded.push(attempts(&call_model(&recording, "openai:gpt-x", &call).await));
    }
    let replay = providers(&with_cassettes(unreachable_service(), dir.path(), CassetteMode::Replay));
    for recorded in [&recorded[0], &recorded[1], &recorded[2], &recorded[2]] {
        assert_eq!(&attempts(&call_model(&replay, "openai:gpt-x", &call).await), recorded);
    }
    // A new recording replaces the old one.
    let recording = providers(&with_cassettes(at(url), dir.path(), CassetteMode::Record));
    call_model(&recording, "openai:gpt-x", &call).await.unwrap();
    let (_, cassette) = read_cassettes(dir.path()).unwrap().remove(0);
    assert_eq!(cassette.unwrap().takes.len(), 1);
    assert_eq!(api.requests().len(), 4);
}

#[test]
fn replay_command_lists_calls_and_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let kind = CallErrorKind::Quota { reset: None };
    let usage = |served: &str| {
        json!({"input_tokens": 1, "output_tokens": 1, "cache_read_tokens": 0, "cache_written_tokens": 0,
        "family": null, "cost_microusd": null, "billed": false, "provider": "gemini", "asked": "gemini-2.5-pro",
        "served": served, "elapsed": {"secs": 1, "nanos": 0}, "attempts": 1})
    };
    let tried = json!({"kind": kind, "message": "gemini: used up", "usage": usage("a")});
    let cassette = json!({
        "request": {"provider": "gemini", "role": "reviewer", "model": "gemini-2.5-pro", "effort": null, "schema": null,
            "system": "", "prompt": "p"},
        "takes": [{"before": [tried], "outcome": {"answer": {"text": "four", "value": null}}, "usage": usage("b")}],
    });
    // The file name depends on the content, so we read the expected name from the error.
    std::fs::write(dir.path().join("x.json"), cassette.to_string()).unwrap();
    let why = read_cassettes(dir.path()).unwrap().remove(0).1.unwrap_err();
    let name = why.split_whitespace().find(|word| word.contains(".json")).unwrap().trim_end_matches(';');
    std::fs::rename(dir.path().join("x.json"), dir.path().join(name)).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"))
        .arg("replay")
        .arg(dir.path())
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    let rows: Vec<Vec<_>> = printed.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    assert_eq!(
        rows[1],
        ["reviewer", "gemini:gemini-2.5-pro", "a", "tried", "first:", "gemini:", "used", "up"]
    );
    assert_eq!(rows[2], ["reviewer", "gemini:gemini-2.5-pro", "b", "4", "bytes"]);
}

#[tokio::test]
async fn cancelled_call_is_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (url, _) = start("/chat/completions", Behaviour::Hang).await;
    let recording = providers(&with_cassettes(at(url), dir.path(), CassetteMode::Record));
    let (provider, id) = recording.resolve("openai:gpt-x").unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = provider.call(&question(&id.model), &cancel).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Cancelled);
    assert!(read_cassettes(dir.path()).unwrap().is_empty());
}
