//! Several models behind one name, seen from the issue and from the books.

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

/// Two who may draft, and reviewers of whom the first is one of them by another name.
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

async fn pooled(script: &Script) -> World {
    let setting = Setting {
        script: Some(script.toml()),
        models: Some(("pool:writers", "pool:readers")),
        toml: POOLS.to_owned(),
        ..Setting::default()
    };
    World::new(setting).await
}

/// Who was asked as what, and whether there was an answer.
fn told(rows: &[CallRow]) -> Vec<(&str, &str, bool)> {
    let told = rows.iter().map(|row| (row.role.as_str(), row.asked.as_str(), row.status == CallStatus::Done));
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    told
}

#[tokio::test]
async fn another_drafts_where_one_is_used_up_and_its_own_family_does_not_review() {
    let script = Script::default()
        .fails("drafter", "quota")
        .only("ann")
        .drafts(&design())
        .only("bob")
        .reviews(&approved());
    let mut w = pooled(&script).await;
    w.comes_to_the_gate().await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED") && gate.contains("Drafted by `bob`"), "{gate}");
    let rows = w.calls().await;
    let expected = [
        ("drafter", "stub:ann", false),
        ("drafter", "stub:bob", true),
        ("reviewer", "stub:stub-reviewer", true),
    ];
    assert_eq!(told(&rows), expected);
    assert!(rows.iter().all(|row| row.provider == "stub"), "{rows:?}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn where_all_are_used_up_the_run_waits_for_the_first_that_is_back() {
    let mut script = Script::default();
    for model in ["ann", "bob"] {
        script = script.fails("drafter", "quota").only(model).drafts(&design()).only(model);
    }
    let mut w = pooled(&script.reviews(&approved())).await;
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    assert_eq!((run.status, run.step_id.as_str()), (RunViewStatus::Waiting, "N1"), "{}", w.thread());
    assert_eq!(told(&w.calls().await), [("drafter", "stub:ann", false), ("drafter", "stub:bob", false)]);
    w.wait(30).await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(w.calls().await.len(), 4, "one drafted, and one approved");
}

#[tokio::test]
async fn the_books_name_the_leg_that_answered() {
    let refuses = || async { (StatusCode::UNAUTHORIZED, "{}") };
    let api = Router::new().route("/v1/messages", post(refuses));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, api).await });
    // A program that is there and fails at once.
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
async fn the_operator_sees_what_a_pool_has_and_what_it_skips() {
    let w = pooled(&Script::default()).await;
    let (code, said) = typed(&w, &["models"]).await;
    assert_eq!(code, Some(0), "{said}");
    let rows: Vec<Vec<_>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
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
        assert!(rows.contains(&row.split(' ').collect()), "{row}\n{said}");
    }
    let lacks: Vec<_> = said.lines().filter(|line| line.starts_with("openai: ")).collect();
    assert!(matches!(lacks[..], [one] if one.contains("OPENAI_API_KEY")), "said once:\n{said}");

    let (_, said) = typed(&w, &["doctor"]).await;
    for line in [
        "pool:writers has stub:ann",
        "pool:writers has stub:bob",
        "pool:writers skips openai:gpt-y: there is no OPENAI_API_KEY",
        "pool:writers skips ollama:nobody-lists-it: ",
        "pool:readers has stub:stub-reviewer",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

/// A program that answers as OpenCode does, with a design for the first issue.
pub(crate) fn drafting_opencode(place: &Path) -> PathBuf {
    let text =
        design().replace("{{path}}", "src/lib.rs").replace("{{issue}}", "1").replace("{{title}}", "A title");
    let tokens = json!({"input": 1000, "output": 50});
    let events = [
        json!({"type": "step_start"}),
        json!({"type": "text", "part": {"text": text}}),
        json!({"type": "step_finish", "part": {"reason": "stop", "tokens": tokens}}),
    ];
    let said: String = events.iter().map(|event| format!("{event}\n")).collect();
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 1.18.33; exit; }}\ncat > /dev/null\ncat <<'END'\n{said}END\n"
    );
    let path = place.join("opencode");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
#[ignore = "takes long"]
async fn the_usual_pool_starts_beside_the_usual_reviewer_and_what_opencode_drafts_counts() {
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
    let (_, said) = typed(&w, &["doctor"]).await;
    for line in [
        "pool:default skips claude:sonnet: ",
        "pool:default has opencode:google/antigravity-claude-sonnet-4-5",
        "pool:default skips opencode:google/antigravity-gemini-3-flash: the gemini family is left to review",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("APPROVED: the LLD"), "{}", w.gate());
    let rows = w.calls().await;
    let drafter = rows.iter().find(|row| row.role == "drafter" && row.status == CallStatus::Done).unwrap();
    assert_eq!(drafter.asked, "opencode:google/antigravity-claude-sonnet-4-5");
    assert_eq!((drafter.family.as_ref().unwrap().0.as_str(), drafter.cost_microusd), ("claude", Some(0)));
    let reviewer = rows.iter().find(|row| row.role == "reviewer").unwrap();
    assert_eq!(reviewer.family.as_ref().unwrap().0, "gemini");
}
