//! A reviewer that never stops finding things: the loop ends at its cap, with the best version there was and a person asked.

use countersign::{
    engine::{CallRow, Status},
    limits,
};
use serde_json::json;

use crate::{
    random::say,
    script::{Script, design, finding, review},
    world::{Setting, World},
};

const ROUNDS: usize = 5;

/// Each round something new is objected to, and as much as before; the second has least to object to. Each draft answers what
/// was said and grows by a paragraph.
fn script() -> Script {
    let goal = |round: usize| "The goal of a real design".to_owned() + &" is to be said again".repeat(round);
    (0..ROUNDS).fold(Script::default(), |script, round| {
        let script = match round {
            0 => script.drafts(&design()),
            _ => script.edits(&goal(round - 1), &goal(round)),
        };
        let many = if round == 1 { 2 } else { 6 };
        let objection = |nth| {
            let mut found = finding(&format!("Objection {nth} of round {round}"), None);
            // What is new where nothing changed is advice, unless it is grave.
            found["category"] = json!("security");
            found
        };
        let resolved: Vec<String> = (1..40).map(|n| format!("F{n}")).collect();
        let resolved: Vec<&str> = resolved.iter().map(String::as_str).collect();
        let findings: Vec<_> = (0..many).map(objection).collect();
        script.reviews(&review("REVISE", &findings, &resolved))
    })
}

/// How long the prompts of a role were, in tokens, a round each.
fn prompts(calls: &[CallRow], role: &str) -> Vec<u64> {
    calls.iter().filter(|call| call.role == role).map(|call| call.input_tokens).collect()
}

#[tokio::test]
async fn a_reviewer_that_never_stops_is_stopped_with_the_best_version() {
    let setting = Setting {
        script: Some(script().toml()),
        toml: format!("[lld]\nmax_rounds = {ROUNDS}\n"),
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.stands(Status::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("REVISE: the LLD waits for a person (2 open findings)"), "{gate}");
    assert!(gate.contains("Objection 1 of round 1") && !gate.contains("Objection 1 of round 4"), "{gate}");
    let design = w.hub.branch_file(w.repo, &w.branch(), "docs/lld/LLD-1.md").unwrap();
    let best = String::from_utf8(design).unwrap();
    assert_eq!(best.matches("is to be said again").count(), 1, "the second version is the best");
    let status = w.status().body;
    assert!(status.contains("<details><summary>Rounds 1 to 2</summary>"), "{status}");
    assert_eq!(w.notifying(), 2, "{}", w.thread());
    assert_eq!(w.lines_to_paste(), [""; 0], "nothing passes it but a reason");

    let run = w.run().await.unwrap().id;
    let calls = w.app.store.repo(w.repo).await.unwrap().ledger(run).await.unwrap().calls;
    assert_eq!(calls.len(), 2 * ROUNDS);
    let tokens: u64 = calls.iter().map(|call| call.input_tokens + call.output_tokens).sum();
    say(&format!("never approved: {ROUNDS} rounds, {} calls, {tokens} tokens", calls.len()));
    for role in ["drafter", "reviewer"] {
        let prompts = prompts(&calls, role);
        say(&format!("  prompts of the {role}, in tokens: {prompts:?}"));
        // What is known of a finding is a line or two, and what was settled is told to nobody but the reviewer.
        let (second, last) = (prompts[1], prompts[ROUNDS - 1]);
        assert!(last * 4 <= second * 5, "{role}: {prompts:?}");
        assert!(last < limits::CONTEXT_TOKENS as u64 * 2, "{role}: {prompts:?}");
    }
    w.comment("max", "/override what is left is for the code review").await;
    w.stands(Status::Done).await;
    w.pull();
}
