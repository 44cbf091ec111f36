//! Stories about a reviewer that never approves. The rounds end at their limit, and a person decides about the best
//! version.

use std::path::Path;

use countersign::{
    engine::{CallRow, RunViewStatus},
    limits,
};
use serde_json::json;

use crate::{
    looks::without_details,
    random::say,
    script::{Script, design, finding, review},
    world::{Setting, World},
};

/// Maximum number of rounds that the settings allow.
const ROUNDS: usize = 10;

/// Returns a script of a reviewer that raises six findings per round (two in the second) and resolves the findings of
/// the previous review. Each revision makes the document's goal longer.
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
            // A new finding on unchanged text becomes advice unless it is grave.
            found["category"] = json!("security");
            found
        };
        // Findings of the previous review.
        let before = round.saturating_sub(1);
        let first = if before > 1 { 3 + 6 * (before - 1) } else { 1 + 6 * before };
        let resolved: Vec<String> = (first..first + 6).map(|n| format!("F{n}")).collect();
        let resolved: Vec<&str> = resolved.iter().map(String::as_str).collect();
        let findings: Vec<_> = (0..many).map(objection).collect();
        script.reviews(&review("REVISE", &findings, &resolved))
    })
}

/// Returns the number of prompt tokens of each call that a role made, one call per round.
fn prompt_tokens(calls: &[CallRow], role: &str) -> Vec<u64> {
    calls.iter().filter(|call| call.role == role).map(|call| call.input_tokens).collect()
}

/// Asserts that prompts do not grow with the number of rounds, and prints their sizes. A prompt contains only a line or
/// two per finding, and only the reviewer sees resolved findings.
async fn assert_prompts_bounded(w: &World, subject: &str, rounds: usize) {
    let run = w.run().await.unwrap().id;
    let calls = w.app.store.repository_database(w.repo).await.unwrap().ledger(run).await.unwrap().calls;
    assert_eq!(calls.len(), 2 * rounds);
    let tokens: u64 = calls.iter().map(|call| call.input_tokens + call.output_tokens).sum();
    say(&format!("never approved, {subject}: {rounds} rounds, {} calls, {tokens} tokens", calls.len()));
    for role in ["drafter", "reviewer"] {
        let prompts = prompt_tokens(&calls, role);
        say(&format!("  prompts of the {role}, in tokens: {prompts:?}"));
        let (second, fifth, last) = (prompts[1], prompts[4], prompts[rounds - 1]);
        assert!(fifth * 4 <= second * 5, "{role}: {prompts:?}");
        assert!(last < limits::CONTEXT_TOKENS as u64 * 2, "{role}: {prompts:?}");
    }
}

/// Returns the source files of this project, which are several hundred.
fn own_sources() -> Vec<(String, Vec<u8>)> {
    let (root, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new());
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push((
                    path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(),
                    std::fs::read(path).unwrap(),
                )),
            }
        }
    }
    files
}

#[tokio::test]
#[ignore = "takes long"]
async fn prompts_about_a_real_repository_stay_within_a_size_limit() {
    const FIVE: usize = 5;
    let body = "The sweep of GitHub's log of deliveries asks for a page at a time. Where the installation is suspended it \
                should wait, and the `serve` log must say so once. It is done when a story shows it.";
    let setting = Setting {
        script: Some(script().toml()),
        toml: format!("[lld]\nmax_rounds = {FIVE}\n"),
        issue: Some(("Say once that the sweep waits".to_owned(), body.to_owned())),
        bare: true,
        files: own_sources(),
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    w.gate();
    assert_prompts_bounded(&w, "this repository", FIVE).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_with_endless_findings_ends_at_the_round_cap_with_the_best_version() {
    let setting = Setting {
        as_files: true,
        script: Some(script().toml()),
        toml: format!("[lld]\nmax_rounds = {ROUNDS}\n"),
        ..Setting::default()
    };
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("REVISE: the design waits for a person (2 open findings)"), "{gate}");
    assert!(gate.contains("Objection 1 of round 1") && !gate.contains("Objection 1 of round 9"), "{gate}");
    let design = w.hub.branch_file(w.repo, &w.branch(), "docs/lld/LLD-1.md").unwrap();
    let best = String::from_utf8(design).unwrap();
    assert_eq!(best.matches("is to be said again").count(), 1, "the second version is the best");
    insta::assert_snapshot!(w.bots().iter().map(|comment| without_details(&w.plain(&comment.body))).collect::<String>(), @r##"
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✋ lld: waiting for you

    - Step 8 of 9: human gate: verdict

    **Waits for a decision** (the verdict is REVISE) in the [gate comment](HUB/maya/tally/issues/1#issuecomment-1025).

    ▸ Details

    ▸ Draft docs/lld/LLD-1.md

    <sub>`/status` · `/stop` · `/help` · run `1002-1`, requested by maya · updated on 2026-03-02 09:00 UTC</sub>

    <!-- countersign:status -->
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✏️ REVISE: the design waits for a person (2 open findings)

    **The reviewer's reason**

    A reason in one sentence.

    | | Severity | Place | Finding |
    |---|---|---|---|
    | F7 | high | `3` | Objection 0 of round 1 |
    | F8 | high | `3` | Objection 1 of round 1 |

    ▸ Details of the findings

    ▸ Summary of the design

    `/approve` is not possible with this verdict.

    - `/revise TEXT` (requires write access) sends it back to the drafter.
    - `/override REASON` (requires maintain access) accepts it anyway and records the reason.

    Drafted by `stub-drafter`, reviewed by `stub-reviewer`, round 10.

    [Document](HUB/maya/tally/blob/countersign/issue-1/docs/lld/LLD-1.md) · [Pull request](HUB/maya/tally/pull/2) · [Status](HUB/maya/tally/issues/1#issuecomment-1020)

    <sub>Run 1002-1 · the hash covers the document, the files it names and this gate's policy</sub>

    <!-- countersign:gate-1002-1-63 -->
    "##);
    assert_eq!(w.notifying(), 2, "{}", w.thread());
    assert_eq!(w.lines_to_paste(), [""; 0], "only an override passes this gate");

    assert_prompts_bounded(&w, "the sample", ROUNDS).await;
    w.comment("max", "/override what is left is for the code review").await;
    w.stands(RunViewStatus::Done).await;
    w.pull();
}
