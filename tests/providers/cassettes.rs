//! What is recorded is given again, without a network and without a secret.

use std::path::Path;

use countersign::{
    config::{CassetteMode, CassetteSettings, ModelSettings},
    providers::{Call, CallErrorKind, Reply, cassettes},
};
use serde_json::json;

use crate::{
    ask,
    openai::{at, says},
    question, schema,
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
fn asking(nonce: &str) -> Call {
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
    let Reply { text, usage, .. } = again(asking("bbbb2222")).await.unwrap();
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
    let (name, good) = cassettes(dir.path()).unwrap().remove(0);
    assert_eq!(good.unwrap().request.model, "gpt-x");
    let file = dir.path().join(name);
    let changed = std::fs::read_to_string(&file).unwrap().replace("Is this sound?", "Is that sound?");
    std::fs::write(&file, changed).unwrap();
    let why = cassettes(dir.path()).unwrap().remove(0).1.unwrap_err();
    assert!(why.contains("record it again"), "{why}");
}
