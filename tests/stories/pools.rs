//! Stories about model pools, as seen on the issue, in the ledger and on the command line.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use axum::{Router, http::StatusCode, routing::post};
use countersign::engine::{CallRow, CallStatus, RunViewStatus};
use serde_json::json;

use crate::{
    apis::reviewing,
    operator::typed,
    script::{Script, approved, design},
    world::{Setting, World},
};

/// Settings with a pool of two drafters and a pool of two reviewers. The first reviewer is of the same family as one of
/// the drafters.
const POOLS: &str = r#"
[pools.writers]
primary = ["stub:ann", "stub:bob"]
fallback = ["openai:gpt-y", "ollama:nobody-lists-it"]

[pools.readers]
primary = ["stub:bobs-brother", "stub:reviewer"]
strategy = "priority"

[[model]]
id = "gpt-y"
providers = ["openai"]
family = "gpt"
context = 1000000
max_output = 8192
price = { input = 1.5, output = 6 }
retires = "2027-05-01"
successor = "gpt-z"

[[model]]
id = "ann"
providers = ["stub"]
family = "a"
context = 1000000
max_output = 8192

[[model]]
id = "bob"
providers = ["stub"]
family = "b"
context = 1000000
max_output = 8192

[[model]]
id = "bobs-brother"
providers = ["stub"]
family = "b"
context = 1000000
max_output = 8192
"#;

async fn pool_world(script: &Script) -> World {
    let setting = Setting {
        script: Some(script.toml()),
        models: Some(("pool:writers", "pool:readers")),
        toml: POOLS.to_owned(),
        ..Setting::default()
    };
    World::new(setting).await
}

/// Returns the role, the model and the success of each call, sorted.
fn call_summaries(rows: &[CallRow]) -> Vec<(&str, &str, bool)> {
    let calls =
        rows.iter().map(|row| (row.role.as_str(), row.asked.as_str(), row.status == CallStatus::Done));
    let mut calls: Vec<_> = calls.collect();
    calls.sort_unstable();
    calls
}

#[tokio::test]
async fn exhausted_drafter_is_replaced_and_a_third_model_reviews() {
    let script = Script::default()
        .fails("drafter", "quota")
        .only("ann")
        .drafts(&design())
        .only("bob")
        .reviews(&approved());
    let mut w = pool_world(&script).await;
    w.comes_to_the_gate().await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED") && gate.contains("Drafted by `bob`"), "{gate}");
    let rows = w.calls().await;
    let expected = [
        ("drafter", "stub:ann", false),
        ("drafter", "stub:bob", true),
        ("reviewer", "stub:stub-reviewer", true),
    ];
    assert_eq!(call_summaries(&rows), expected);
    assert!(rows.iter().all(|row| row.provider == "stub"), "{rows:?}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_waits_when_all_models_are_exhausted() {
    let mut script = Script::default();
    for model in ["ann", "bob"] {
        script = script.fails("drafter", "quota").only(model).drafts(&design()).only(model);
    }
    let mut w = pool_world(&script.reviews(&approved())).await;
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    assert_eq!((run.status, run.step_id.as_str()), (RunViewStatus::Waiting, "N1"), "{}", w.thread());
    assert_eq!(
        call_summaries(&w.calls().await),
        [("drafter", "stub:ann", false), ("drafter", "stub:bob", false)]
    );
    w.wait(30).await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.calls().await.len(), 4, "two failed calls, a draft and a review");
}

#[tokio::test]
async fn call_ledger_lists_each_provider_route_that_was_tried() {
    let refuses = || async { (StatusCode::UNAUTHORIZED, "{}") };
    let api = Router::new().route("/v1/messages", post(refuses));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, api).await });
    // /bin/false exists and fails at once.
    let toml = format!(
        "[providers.claude]\npath = \"/bin/false\"\nbase_url = \"http://127.0.0.1:1\"\n[providers.anthropic]\nbase_url = \
         \"http://{address}\"\n"
    );
    let setting = Setting {
        models: Some(("claude:opus", "stub:reviewer")),
        toml,
        env: "ANTHROPIC_API_KEY=sk-ant-the-key-of-this-story\n".to_owned(),
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    assert!(w.status().body.contains("does not accept this server's key or login"), "{}", w.status().body);
    assert_eq!(w.labels(), ["countersign:needs-you"]);
    let rows = w.calls().await;
    let named: Vec<_> =
        rows.iter().map(|row| (row.provider.as_str(), row.asked.as_str(), row.billed)).collect();
    assert!(named.contains(&("claude", "claude:opus", false)), "{named:?}");
    assert!(named.contains(&("anthropic", "claude:opus", true)), "{named:?}");
    assert_eq!(named.len(), 2, "{named:?}");
}

#[tokio::test]
async fn models_and_doctor_commands_list_pool_members_and_skipped_models() {
    let w = pool_world(&Script::default()).await;
    let (code, output) = typed(&w, &["models"]).await;
    assert_eq!(code, Some(0), "{output}");
    let rows: Vec<Vec<_>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [
        "openai gpt-y gpt 1000000 8192 1.50 6.00 0.15 1.88 ends 2027-05-01, then gpt-z",
        "stub ann a 1000000 8192 - - - -",
        "stub drafter stub-drafter stub-drafter any any - - - -",
        "pool:writers round robin",
        "stub:ann",
        "fallback: openai:gpt-y openai lacks something, see below",
        "fallback: ollama:nobody-lists-it skipped: no [[model]] lists it",
        "pool:readers by priority",
    ] {
        assert!(rows.contains(&row.split(' ').collect()), "{row}\n{output}");
    }
    let lacks: Vec<_> = output.lines().filter(|line| line.starts_with("openai: ")).collect();
    assert!(
        matches!(lacks[..], [one] if one.contains("OPENAI_API_KEY")),
        "the missing key is reported once:\n{output}"
    );

    let (_, output) = typed(&w, &["doctor"]).await;
    for line in [
        "pool:writers has stub:ann",
        "pool:writers has stub:bob",
        "pool:writers skips openai:gpt-y: there is no OPENAI_API_KEY",
        "pool:writers skips ollama:nobody-lists-it: ",
        "pool:readers has stub:stub-reviewer",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
}

/// Writes a script that responds like OpenCode, with a design for the first issue. Returns the script's path.
pub(crate) fn drafting_opencode(place: &Path) -> PathBuf {
    let text =
        design().replace("{{path}}", "src/lib.rs").replace("{{issue}}", "1").replace("{{title}}", "A title");
    let tokens = json!({"input": 1000, "output": 50});
    let events = [
        json!({"type": "step_start"}),
        json!({"type": "text", "part": {"text": text}}),
        json!({"type": "step_finish", "part": {"reason": "stop", "tokens": tokens}}),
    ];
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 1.18.33; exit; }}\ncat > /dev/null\ncat <<'END'\n{lines}END\n"
    );
    let path = place.join("opencode");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
#[ignore = "takes long"]
async fn default_pool_drafts_with_opencode_and_reviews_with_gemini() {
    let place = tempfile::tempdir().unwrap();
    let (opencode, (gemini, _)) = (drafting_opencode(place.path()), reviewing(None).await);
    let setting = Setting {
        models: Some(("pool:default", "gemini:pro")),
        toml: format!(
            "attest_opencode = true\n[providers.claude]\npath = \"/no/claude\"\n[providers.opencode]\npath = {opencode:?}\n\
             base_url = \"http://127.0.0.1:1\"\n[providers.gemini]\nbase_url = \"{gemini}\"\n"
        ),
        env: "GEMINI_API_KEY=AIzaSyTheKeyOfThisStory\n".to_owned(),
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    let (_, output) = typed(&w, &["doctor"]).await;
    for line in [
        "pool:default skips claude:sonnet: ",
        "pool:default has opencode:google/antigravity-claude-sonnet-4-5",
        "pool:default skips opencode:google/antigravity-gemini-3-flash: the gemini family is reserved for review",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("APPROVED: the design"), "{}", w.gate());
    let rows = w.calls().await;
    let drafter = rows.iter().find(|row| row.role == "drafter" && row.status == CallStatus::Done).unwrap();
    assert_eq!(drafter.asked, "opencode:google/antigravity-claude-sonnet-4-5");
    assert_eq!((drafter.family.as_ref().unwrap().0.as_str(), drafter.cost_microusd), ("claude", Some(0)));
    let reviewer = rows.iter().find(|row| row.role == "reviewer").unwrap();
    assert_eq!(reviewer.family.as_ref().unwrap().0, "gemini");
}
