//! What is recorded is given again, without a network and without a secret.

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
    openai::{at, says},
    providers, question, schema,
    streaming::{Behaviour, start},
};

fn kept(mut settings: ModelSettings, dir: &Path, mode: CassetteMode) -> ModelSettings {
    settings.cassettes = Some(CassetteSettings { dir: dir.into(), mode });
    settings
}

fn nobody() -> ModelSettings {
    at("http://127.0.0.1:1".parse().unwrap())
}

/// A reviewer's question, with the random word it must echo.
fn asking(nonce: &str) -> ModelCall {
    let mut call = question("openai");
    call.prompt = format!("Is this sound? Say {nonce}. My key is sk-TheKeyOfThisTest.");
    call.facts.insert("nonce".into(), nonce.into());
    call
}

#[tokio::test]
async fn a_replay_equals_its_recording_and_holds_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let text = "aaaa1111: sound. You sent sk-TheKeyOfThisTest.";
    let (url, api) = start("/chat/completions", Behaviour::Stream(says(text, "stop"))).await;
    let recording = kept(at(url), dir.path(), CassetteMode::Record);
    let said = ask(&recording, "openai:gpt-x", asking("aaaa1111")).await.unwrap();
    assert_eq!((said.text.as_str(), said.usage.billed), (text, true));

    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let written = std::fs::read_to_string(file).unwrap();
    assert!(!written.contains("TheKeyOfThisTest") && written.contains("[secret]"), "{written}");
    assert!(!written.contains("Bearer") && !written.contains("aaaa1111"), "{written}");

    let replay = kept(nobody(), dir.path(), CassetteMode::Replay);
    let again = |call| ask(&replay, "openai:gpt-x", call);
    let ModelReply { text, usage, .. } = again(asking("bbbb2222")).await.unwrap();
    assert_eq!(text, "bbbb2222: sound. You sent [secret].");
    assert!(!usage.billed, "nobody is paid twice");
    assert_eq!(usage.cost_microusd, said.usage.cost_microusd);
    assert_eq!(usage.served, said.usage.served);
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn values_and_typed_errors_are_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut with_schema = asking("aaaa1111");
    with_schema.schema = Some(schema());
    let refusal = json!({"error": {"code": "content_filter", "message": "no"}});
    let behaviours = [
        (with_schema, Behaviour::Stream(says("{\"verdict\":\"REVISE\"}", "stop"))),
        (asking("aaaa1111"), Behaviour::Status(400, refusal, None)),
    ];
    for (call, behaviour) in behaviours {
        let (url, _) = start("/chat/completions", behaviour).await;
        let recording = kept(at(url), dir.path(), CassetteMode::Record);
        let replay = kept(nobody(), dir.path(), CassetteMode::Replay);
        let said = ask(&recording, "openai:gpt-x", call.clone()).await;
        let again = ask(&replay, "openai:gpt-x", call).await;
        match (said, again) {
            (Ok(said), Ok(again)) => assert_eq!((said.text, said.value), (again.text, again.value)),
            (Err(said), Err(again)) => {
                assert_eq!((said.kind, said.message), (again.kind, again.message));
            }
            (said, again) => panic!("{said:?} is not {again:?}"),
        }
    }
}

#[tokio::test]
async fn a_missing_one_is_named_and_a_changed_one_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let replay = kept(nobody(), dir.path(), CassetteMode::Replay);
    let error = ask(&replay, "openai:gpt-x", asking("aaaa1111")).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Unavailable);
    assert!(error.to_string().contains(".json in ") && error.to_string().contains("record"), "{error}");

    let (url, _) = start("/chat/completions", Behaviour::Stream(says("Yes.", "stop"))).await;
    ask(&kept(at(url), dir.path(), CassetteMode::Record), "openai:gpt-x", asking("a")).await.unwrap();
    let (name, good) = read_cassettes(dir.path()).unwrap().remove(0);
    assert_eq!(good.unwrap().request.model, "gpt-x");
    let file = dir.path().join(name);
    let changed = std::fs::read_to_string(&file).unwrap().replace("Is this sound?", "Is that sound?");
    std::fs::write(&file, changed).unwrap();
    let why = read_cassettes(dir.path()).unwrap().remove(0).1.unwrap_err();
    assert!(why.contains("record it again"), "{why}");
}

/// What was tried, by whom, and how it ended.
fn told(outcome: &Result<ModelReply, CallError>) -> Vec<(String, String)> {
    let (before, usage, end) = match outcome {
        Ok(reply) => (&reply.earlier_attempts, &reply.usage, reply.text.clone()),
        Err(error) => (&error.earlier_attempts, error.usage.as_ref(), format!("{:?} {error}", error.kind)),
    };
    let tried = |attempt: &CallAttempt| {
        (attempt.usage.provider.clone(), format!("{:?} {}", attempt.kind, attempt.message))
    };
    before.iter().map(tried).chain([(usage.provider.clone(), end)]).collect()
}

async fn put(providers: &ModelProviders, spec: &str, call: &ModelCall) -> Result<ModelReply, CallError> {
    let (provider, id) = providers.resolve(spec).unwrap();
    provider.call(&ModelCall { model: id.model, ..call.clone() }, &CancellationToken::new()).await
}

#[tokio::test]
async fn two_ways_to_one_model_are_gone_again_in_their_order() {
    let (dir, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut settings, api) = served(anthropic::Behaviour::Text { served: None }).await;
    with_broken_program(&mut settings, place.path());
    let recording = providers(&kept(settings.clone(), dir.path(), CassetteMode::Record));
    let said = put(&recording, "claude:opus", &question("claude")).await;
    assert_eq!(said.as_ref().unwrap().earlier_attempts[0].usage.provider, "claude");

    settings.anthropic.base_url = "http://127.0.0.1:1".parse().unwrap();
    let replay = providers(&kept(settings, dir.path(), CassetteMode::Replay));
    let again = put(&replay, "claude:opus", &question("claude")).await;
    assert_eq!(told(&again), told(&said));
    assert_eq!(api.requests().len(), 1);
}

#[tokio::test]
async fn a_request_made_again_is_answered_as_it_was_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let turns = vec![
        Behaviour::Status(503, json!({"error": {"message": "busy"}}), None),
        Behaviour::Stream(says("Yes.", "stop")),
        Behaviour::Stream(says("No.", "stop")),
    ];
    let (url, api) = start("/chat/completions", Behaviour::InTurn(turns)).await;
    let call = question("openai");
    let recording = providers(&kept(at(url.clone()), dir.path(), CassetteMode::Record));
    let mut said = Vec::new();
    for _ in 0..3 {
        said.push(told(&put(&recording, "openai:gpt-x", &call).await));
    }
    let replay = providers(&kept(nobody(), dir.path(), CassetteMode::Replay));
    for said in [&said[0], &said[1], &said[2], &said[2]] {
        assert_eq!(&told(&put(&replay, "openai:gpt-x", &call).await), said);
    }
    // Another recording begins anew.
    let recording = providers(&kept(at(url), dir.path(), CassetteMode::Record));
    put(&recording, "openai:gpt-x", &call).await.unwrap();
    let (_, cassette) = read_cassettes(dir.path()).unwrap().remove(0);
    assert_eq!(cassette.unwrap().takes.len(), 1);
    assert_eq!(api.requests().len(), 4);
}

#[test]
fn the_command_lists_who_was_asked_and_what_was_tried() {
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
    // Its own name is told by whoever looks for it.
    std::fs::write(dir.path().join("x.json"), cassette.to_string()).unwrap();
    let why = read_cassettes(dir.path()).unwrap().remove(0).1.unwrap_err();
    let name = why.split_whitespace().find(|word| word.contains(".json")).unwrap().trim_end_matches(';');
    std::fs::rename(dir.path().join("x.json"), dir.path().join(name)).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_countersign"))
        .arg("replay")
        .arg(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let rows: Vec<Vec<_>> = said.lines().map(|line| line.split_whitespace().skip(1).collect()).collect();
    assert_eq!(
        rows[1],
        ["reviewer", "gemini:gemini-2.5-pro", "a", "tried", "first:", "gemini:", "used", "up"]
    );
    assert_eq!(rows[2], ["reviewer", "gemini:gemini-2.5-pro", "b", "4", "bytes"]);
}

#[tokio::test]
async fn a_call_that_was_called_off_is_nobodys_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (url, _) = start("/chat/completions", Behaviour::Hang).await;
    let recording = providers(&kept(at(url), dir.path(), CassetteMode::Record));
    let (provider, id) = recording.resolve("openai:gpt-x").unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = provider.call(&question(&id.model), &cancel).await.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Cancelled);
    assert!(read_cassettes(dir.path()).unwrap().is_empty());
}
