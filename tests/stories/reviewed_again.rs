//! Stories about gates without a verdict. `/retry` makes the reviewer review the same version again, without another
//! draft.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::{Json, Router, extract::State, routing::post};
use countersign::{engine::RunViewStatus, types::Verdict};
use serde_json::{Value, json};

use crate::{
    implement::{can_run, specified},
    script::{Script, approved, design, finding, rehearsed, review},
    world::{Setting, World},
};

const OFFER: &str = "- `/retry` (requires triage access) reviews the same version again.";

async fn scripted(script: &Script, toml: &str) -> World {
    let (script, toml) = (Some(script.toml()), toml.to_owned());
    World::new(Setting { script, toml, ..Setting::default() }).await
}

impl World {
    /// Posts `/retry` as a user with triage access. Asserts that the gate offers the command and that nothing is
    /// drafted.
    async fn retry_gate(&mut self) {
        self.stands(RunViewStatus::Asking).await;
        let gate = self.gate();
        assert!(gate.contains("INCONCLUSIVE: the ") && gate.contains(OFFER), "{gate}");
        let before = self.drafts().await;
        self.comment("tess", "/retry").await;
        self.tried().await;
        assert_eq!(self.drafts().await, before, "nothing is drafted: {}", self.thread());
    }

    async fn drafts(&self) -> usize {
        self.calls().await.iter().filter(|call| call.role == "drafter").count()
    }

    /// Returns the verdicts of the newest run, oldest first.
    async fn verdicts(&self) -> Vec<Verdict> {
        let (db, run) =
            (self.app.store.repository_database(self.repo).await.unwrap(), self.run().await.unwrap().id);
        let rows = db.ledger(run).await.unwrap().verdicts;
        assert!(
            rows.iter().all(|row| row.document == rows[0].document),
            "all verdicts are on the same version"
        );
        rows.iter().map(|row| row.verdict).collect()
    }
}

#[tokio::test]
async fn retry_at_a_gate_without_a_verdict_reviews_the_same_version_again() {
    let script =
        Script::default().drafts(&design()).fails("reviewer", "refused").fails("reviewer", "refused");
    let mut w =
        scripted(&script.reviews(&review("REVISE", &[finding("One", None)], &[])), "[lld]\nmax_rounds = 1\n")
            .await;
    w.label("maya", "countersign:lld").await;
    w.comment("stranger", "/retry").await;
    w.retry_gate().await;
    w.retry_gate().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("REVISE: the design waits") && !gate.contains("/retry"), "{gate}");
    assert_eq!(w.verdicts().await, [Verdict::Inconclusive, Verdict::Inconclusive, Verdict::Revise]);
    w.comment("tess", "/retry").await;
    assert!(w.newest().contains("There is nothing to retry"), "{}", w.newest());
    for comment in w.bots() {
        w.look_at(comment.id);
    }
}

#[tokio::test]
async fn retry_at_an_issue_or_spec_gate_reviews_the_document_again() {
    let script = Script::default().no_questions();
    let script = script.drafts(&rehearsed("issue")).of("issue").fails("reviewer", "refused").of("issue");
    let script = script.reviews(&approved()).of("issue");
    let script = script.drafts(&design()).of("lld").reviews(&approved()).of("lld");
    let script = script.drafts(&rehearsed("spec")).of("spec").fails("reviewer", "refused").of("spec");
    let mut w = scripted(&script.reviews(&approved()).of("spec"), "").await;
    w.label("maya", "countersign:issue").await;
    w.retry_gate().await;
    assert!(w.gate().contains("APPROVED: the issue waits"), "{}", w.gate());
    assert_eq!(w.verdicts().await, [Verdict::Inconclusive, Verdict::Approved]);
    w.comment("sam", "/stop").await;
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", "countersign:spec").await;
    w.retry_gate().await;
    w.stands(RunViewStatus::Done).await;
    assert_eq!(w.verdicts().await, [Verdict::Inconclusive, Verdict::Approved]);
    for comment in w.bots() {
        w.look_at(comment.id);
    }
    w.labels();
    w.commits();
    w.checks();
}

#[tokio::test]
#[ignore = "takes long"]
async fn retry_at_the_code_gate_reviews_the_change_again() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", |script, [tests, code]| {
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let script = script.drafts(&code).of("implement").fails("reviewer", "refused").of("implement");
        script.reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    w.retry_gate().await;
    let gate = w.gate();
    assert!(gate.contains("APPROVED: the change waits"), "{gate}");
    w.approved_by("sam").await;
    w.commits();
    w.pull();
}

#[tokio::test]
async fn override_sent_moments_after_the_gate_opened_is_answered_with_a_line_to_paste() {
    let script = Script::default().drafts(&design()).fails("reviewer", "refused");
    let script = script.edits("The goal of", "The aim of").fails("reviewer", "refused");
    let mut w = scripted(&script, "").await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.gate();
    w.comment_at_once("max", "/approve").await;
    let comment = w.newest();
    assert!(!comment.contains("\n/approve") && comment.contains("`/retry`"), "{comment}");
    w.comment_at_once("max", "/override I read every line").await;
    let comment = w.last("only moments before").body;
    let earlier = comment.lines().find(|line| line.starts_with("/override ")).expect(&comment).to_owned();
    assert!(earlier.ends_with(" I read every line") && !comment.contains("/approve"), "{comment}");
    w.comment("max", "/revise say it better").await;
    w.stands(RunViewStatus::Asking).await;
    w.gate();
    // The reason starts with a commit id, which must not be taken for the gate's hash.
    w.comment_at_once("max", "/override 20261127accede fixes it upstream").await;
    let comment = w.last("only moments before").body;
    let line = comment.lines().find(|line| line.starts_with("/override ")).expect(&comment).to_owned();
    assert!(line.ends_with(" 20261127accede fixes it upstream"), "{comment}");
    // A line with the current hash counts at once; one with an older hash never does.
    w.comment_at_once("max", &earlier).await;
    let comment = w.last("that hash belongs to another version").body;
    let hash = line.split(' ').nth(1).unwrap();
    assert!(comment.contains(&format!("/override {hash} I read every line")), "{comment}");
    w.comment_at_once("max", &line).await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.gate().contains("**Accepted against the review by max**"), "{}", w.gate());
    assert!(w.status().body.contains("verdict overridden by max"), "{}", w.status().body);
}

/// Handler of an imitated Gemini API. It gives three empty responses, in two forms, and then a verdict.
async fn empty_answers_then_verdict(
    State(calls): State<Arc<AtomicU32>>,
    Json(request): Json<Value>,
) -> Json<Value> {
    let prompt = request.pointer("/contents/0/parts/0/text").and_then(Value::as_str).unwrap();
    let nonce = prompt.split("Put the word `").nth(1).unwrap().split('`').next().unwrap();
    let verdict = approved().to_string().replace("{{nonce}}", nonce);
    let (parts, ended) = match calls.fetch_add(1, Ordering::Relaxed) {
        0 => (json!([]), "RECITATION"),
        1 => (json!([{ "text": "" }]), "STOP"),
        2 => (json!([]), "RECITATION"),
        _ => (json!([{ "text": verdict }]), "STOP"),
    };
    Json(json!({
        "candidates": [{ "content": { "parts": parts }, "finishReason": ended }],
        "usageMetadata": { "promptTokenCount": 1000, "candidatesTokenCount": 10 },
        "modelVersion": "gemini-3.1-pro-preview",
    }))
}

#[tokio::test]
async fn review_is_requested_once_more_when_the_response_is_empty() {
    let calls = Arc::new(AtomicU32::new(0));
    let router = Router::new().route("/v1beta/models/{target}", post(empty_answers_then_verdict));
    let url = crate::serve(router.with_state(calls.clone())).await;
    let mut w = World::new(Setting {
        script: Some(Script::default().drafts(&design()).toml()),
        models: Some(("stub:drafter", "gemini:pro")),
        toml: format!("[providers.gemini]\nbase_url = \"{url}\"\n"),
        env: "GEMINI_API_KEY=AIzaSyTheKeyOfThisStory\n".to_owned(),
        ..Setting::default()
    })
    .await;
    w.label("maya", "countersign:lld").await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    let gate = w.gate();
    assert!(gate.contains("The reviewer gave an empty answer, twice."), "{gate}");
    w.retry_gate().await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    assert!(w.gate().contains("APPROVED: the design waits"), "{}", w.gate());
    assert_eq!(w.verdicts().await, [Verdict::Inconclusive, Verdict::Approved]);
}

#[tokio::test]
async fn gate_without_a_verdict_offers_a_review_by_the_newly_configured_reviewer() {
    let script = Script::default().drafts(&design()).fails("reviewer", "refused").only("stub-reviewer");
    let critic = "[[model]]\nid = \"critic\"\nproviders = [\"stub\"]\nfamily = \"critics\"\ncontext = 1000000\n\
                  max_output = 64000\nprice = { input = 0, output = 0 }\n";
    let mut w = scripted(&script.reviews(&approved()).only("critic"), critic).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let file = w.directory().join("bot/countersign.toml");
    let toml = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, toml.replace("\"stub:reviewer\"", "\"stub:critic\"")).unwrap();
    let message = w.app.reload().await.unwrap();
    let expected = "in use now: the reviewer stub:critic (1 gate waits without a verdict: `/retry` there asks this reviewer)";
    assert!(message.starts_with(expected), "{message}");
    w.settle().await;
    let gate = w.gate();
    assert!(gate.contains(&format!("{OFFER} The reviewer is now `stub:critic`.")), "{gate}");
    w.retry_gate().await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("APPROVED: the design waits"), "{}", w.gate());
    assert_eq!(w.calls().await.last().unwrap().asked, "stub:critic");
}
