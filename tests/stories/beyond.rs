//! Stories about changes that go beyond the approved plan, with extra files or other tests, and about the ways in which
//! people allow them. The tests of the change really run.

use std::time::Duration;

use countersign::{engine::RunViewStatus, limits::SEEN_BEFORE_APPROVAL};

use crate::{
    implement::{CHANGE, can_run, specified},
    script::{Script, approved, finding, review},
    world::World,
};

const ONE_ROUND: &str = "[implement]\nmax_rounds = 1\n";

const LIMIT_FILE: &str =
    "\n### `src/limit.rs` (Add)\n\n```rust\n//! The largest number.\n\npub const MOST: u8 = 255;\n```\n";

/// Adds responses to the script in which the code contains a file that the spec does not list.
fn extra_file(script: Script, texts: [String; 2]) -> Script {
    extra_file_as(script, texts, LIMIT_FILE)
}

fn extra_file_as(script: Script, [tests, code]: [String; 2], limit: &str) -> Script {
    let code = code.replace("left.saturating_add(right)", "left.checked_add(right).unwrap_or(limit::MOST)");
    let named = "<<<<<<< SEARCH\n//! Sums.\n=======\n//! Sums.\n\nmod limit;\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    left";
    let code = code.replacen("<<<<<<< SEARCH\n    left", named, 1) + limit;
    let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
    script.drafts(&code).of("implement").reviews(&approved()).of("implement")
}

/// Adds responses to the script in which the tests contradict the spec and the code comes with corrected tests.
fn corrected_tests(script: Script, texts: [String; 2]) -> Script {
    let script = tests_with_code(script, texts, |section| section);
    let script = script.reviews(&review("REVISE", &[finding("It is one alone", None)], &[])).of("implement");
    script.reviews(&review("APPROVED", &[], &["F1"])).of("implement")
}

fn tests_with_code(script: Script, [tests, code]: [String; 2], change: impl Fn(String) -> String) -> Script {
    let section = change(tests[tests.find("## Tests").unwrap()..].to_owned());
    let code = code.replace("## Code\n", &format!("{section}\n## Code\n"));
    let wrong = tests.replace("200, 100), 255", "200, 100), 254");
    let script = script.drafts(&wrong).of("implement").reviews(&approved()).of("implement");
    script.drafts(&code).of("implement")
}

impl World {
    /// Asserts that the run waits for an exception (step `NL`). Returns the gate's approve command that starts with
    /// `/approve` and `word`.
    async fn assert_scope_gate(&mut self, word: &str) -> String {
        let run = self.run().await.unwrap();
        let at = (run.status, run.step_id.as_str());
        assert_eq!(at, (RunViewStatus::Asking, "NL"), "{:?}\n{}", run.why, self.thread());
        self.nothing_is_pushed();
        let status = self.status().body;
        assert!(
            status.contains("**Waits for someone with write access** to answer the [gate comment]"),
            "{status}"
        );
        self.labels();
        self.checks();
        let prefix = format!("/approve {word} ");
        let gate = self.last(&format!("\n{prefix}")).body;
        gate.lines().find(|line| line.starts_with(&prefix)).unwrap().to_owned()
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn file_outside_the_spec_is_added_to_the_change_after_human_approval() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE_ROUND, extra_file).await;
    w.implement().await;
    let line = w.assert_scope_gate("scope").await;
    assert!(line.starts_with("/approve scope +src/limit.rs "), "{line}");
    w.clock.pass(SEEN_BEFORE_APPROVAL);
    // tess may not approve, and sam's answers name another file or another stage.
    w.comment("tess", "/approve scope +src/limit.rs").await;
    w.comment("sam", "/approve scope +src/Limit.rs").await;
    assert!(w.last("these files are accepted together or not at all").body.contains(&line));
    w.comment("sam", "/approve implement").await;
    assert!(w.last("No decision is open at stage `implement`").body.contains(&line));
    w.comment("sam", "/approve").await;
    assert!(w.last("these files are accepted together or not at all").body.contains(&line));
    assert_eq!(w.run().await.unwrap().step_id, "NL");
    w = w.restart().await;
    w.comment("sam", "/approve scope +src/limit.rs").await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    assert!(
        w.last("needs files that the approved spec does not list").body.contains("**Allowed by `sam`**"),
        "{}",
        w.thread()
    );
    let gate = w.gate().replace('\\', "");
    assert!(gate.contains("+pub const MOST: u8 = 255;"), "{gate}");
    assert!(
        gate.contains("`sam` allowed a change of `src/limit.rs`, which the approved spec does not list ("),
        "{gate}"
    );
    w.approved_by("sam").await;
    assert!(w.file_on_branch("src/limit.rs").is_some());
    let body = w.pull().body;
    assert!(
        body.contains("- `sam` allowed a change of `src/limit.rs`, which the approved spec does not list ("),
        "{body}"
    );
    // The pull request shows the evidence and who approved; nobody has to open a file.
    for expected in [
        "(REQ-1) | `what_does_not_fit_is_the_largest` | `tests/new.rs` | fails by an assertion |",
        "\n- **After the change:** 2 tests of the change and 1 other that passed before pass three times.",
        "\n- **Mutation check:** ",
        "was not measured",
        "| Approved hash | `",
        "\nCloses #1\n",
    ] {
        assert!(body.contains(expected), "{expected}: {body}");
    }
    let log = w.hub.log(w.repo, &w.branch());
    let by =
        |commit: &str| log.iter().find(|known| known.message.starts_with(commit)).unwrap().message.clone();
    assert!(by(CHANGE).contains("\nApproved-by: sam <") && !by(CHANGE).contains("maya"), "{log:?}");
    w.commits();
}

#[tokio::test]
async fn revise_at_the_scope_gate_drops_the_extra_file() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE_ROUND, |script, [tests, code]| {
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let script = script.drafts(&(code + LIMIT_FILE)).of("implement");
        script.edits(LIMIT_FILE.trim(), "").of("implement").reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    let line = w.assert_scope_gate("scope").await;
    // Somebody edited the comment, so `/approve` there may be about other text.
    let (gate, max) = (w.find("does not list"), w.user("max"));
    w.hub.edit_comment(w.repo, gate.id, max, "### Nothing to see.").unwrap();
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/approve scope +src/limit.rs").unwrap();
    w.wait(30).await;
    assert!(w.last("`max` edited the gate comment, so you may have read changed text").body.contains(&line));
    assert!(w.last("does not list").body.contains(&line));
    assert_eq!(w.run().await.unwrap().step_id, "NL");
    // One objection outweighs one permission.
    w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/revise Do without.").unwrap();
    w.settle().await;
    w.tried().await;
    let run = w.run().await.unwrap();
    assert_eq!(
        (run.status, run.step_id.as_str()),
        (RunViewStatus::Asking, "N7"),
        "{:?}\n{}",
        run.why,
        w.thread()
    );
    assert!(w.last("does not list").body.contains("**Sent back to the drafter by sam**"), "{}", w.thread());
    assert!(!w.gate().contains("Allowed besides"), "{}", w.thread());
    w.status();
    w.labels();
    w.checks();
}

#[tokio::test]
#[ignore = "takes long"]
async fn stop_command_at_the_scope_gate_closes_the_gate() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE_ROUND, extra_file).await;
    w.implement().await;
    let line = w.assert_scope_gate("scope").await;
    // The approver has not seen the edited issue: the answer shows it, and nothing is allowed.
    w.hub.edit_issue(w.repo, w.issue, w.user("maya"), None, Some("Stop at 255, and at 0.")).unwrap();
    w.pass(60);
    w.comment("sam", "/approve scope +src/limit.rs").await;
    let answer = w.last("The issue was edited after this document was posted").body;
    assert!(answer.contains("+Stop at 255, and at 0.") && answer.contains(&line), "{answer}");
    w.assert_scope_gate("scope").await;
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    let over = w.last("does not list").body;
    assert!(over.contains("Nobody needs to answer this any more") && !over.contains(&line), "{over}");
    w.comment("sam", &line).await;
    w.last("No decision is open here any more");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn unanswered_scope_gate_sends_one_reminder_and_then_ends_the_run() {
    if !can_run().await {
        return;
    }
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let mut w = specified(&format!("{ONE_ROUND}remind_days = 3\nexpire_days = 5\n"), extra_file).await;
    w.implement().await;
    let line = w.assert_scope_gate("scope").await;
    for _ in 0..2 {
        w.clock.pass(days(2));
        w.settle().await;
    }
    assert!(w.last("still waits for a person").body.contains(&line), "{}", w.thread());
    w.clock.pass(days(2));
    w.settle().await;
    w.stands(RunViewStatus::Failed).await;
    assert!(w.last("Halted at").body.contains("Nobody decided within 5 days"), "{}", w.thread());
    assert!(w.last("does not list").body.contains("Nobody needs to answer this any more"), "{}", w.thread());
    w.nothing_is_pushed();
}

#[tokio::test]
async fn extra_file_that_is_missing_or_changed_by_a_person_opens_no_scope_gate() {
    if !can_run().await {
        return;
    }
    // The file has another mistake, or somebody else added it on the branch.
    for (kind, theirs, why) in
        [("Modify", false, "`src/limit.rs` is not there"), ("Add", true, "Somebody changed `src/limit.rs`")]
    {
        let limit = LIMIT_FILE.replace("(Add)", &format!("({kind})"));
        let mut w = specified(ONE_ROUND, |script, texts| extra_file_as(script, texts, &limit)).await;
        if theirs {
            let (branch, max) = (w.branch(), w.user("max"));
            w.hub.push_commit(w.repo, &branch, max, &[("src/limit.rs", b"// mine\n")], "Mine").unwrap();
        }
        w.implement().await;
        w.stands(RunViewStatus::Failed).await;
        let halt = w.last("Halted at").body.replace('\\', "");
        assert!(halt.contains(why), "{halt}");
        w.commits();
    }
}

#[tokio::test]
async fn run_with_unproven_replacement_tests_halts_and_shows_its_code_in_the_status() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE_ROUND, |script, texts| {
        tests_with_code(script, texts, |section| {
            section.replace("what_does_not_fit_is_the_largest", "it_is_the_largest")
        })
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    for expected in [
        "the drafter's new tests cannot replace them: `tests/new.rs` has no test `what_does_not",
        "the limit of drafts is reached; `/retry` allows one more. Code: ",
    ] {
        assert!(halt.contains(expected), "{expected}: {halt}");
    }
    assert!(w.status().body.contains("saturating_add"), "people continue from the code");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn proven_tests_replace_the_locked_tests_after_human_approval() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE_ROUND, corrected_tests).await;
    w.implement().await;
    let line = w.assert_scope_gate("tests").await;
    let gate_comment = w.last("asks to replace the locked tests").body;
    assert!(
        gate_comment.contains(
            "\n-    assert_eq!(sums::sum(200, 100), 254);\n+    assert_eq!(sums::sum(200, 100), 255);\n"
        ),
        "{gate_comment}"
    );
    w.comment("sam", "/approve tests 0123456789ab").await;
    assert!(w.last("/approve tests ").body.contains(&line));
    w.comment("sam", &line).await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate().replace('\\', "");
    assert!(
        gate.contains("+    assert_eq!(sums::sum(200, 100), 255);") && !gate.contains(", 254)"),
        "{gate}"
    );
    assert!(gate.contains("`sam` allowed the tests of version `"), "{gate}");
    assert!(gate.contains("2 tests of the change and "), "{gate}");
    w.approved_by("sam").await;
    let body = w.pull().body;
    assert!(body.contains("- `sam` allowed the tests of version `"), "{body}");
    w.last("asks to replace the locked tests");
    w.commits();
}
