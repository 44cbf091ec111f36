//! What a drafter of code wants beyond what people approved, and how they let it have that. The tests are really run.

use std::time::Duration;

use countersign::{engine::RunViewStatus, limits::SEEN_BEFORE_APPROVAL};

use crate::{
    implement::{CHANGE, can_run, specified},
    script::{Script, approved, finding, review},
    world::World,
};

const ONE: &str = "[implement]\nmax_rounds = 1\n";

const LIMIT: &str =
    "\n### `src/limit.rs` (Add)\n\n```rust\n//! The largest number.\n\npub const MOST: u8 = 255;\n```\n";

/// Code that takes a file which the spec does not list.
fn further(script: Script, texts: [String; 2]) -> Script {
    taking(script, texts, LIMIT)
}

fn taking(script: Script, [tests, code]: [String; 2], limit: &str) -> Script {
    let code = code.replace("left.saturating_add(right)", "left.checked_add(right).unwrap_or(limit::MOST)");
    let named = "<<<<<<< SEARCH\n//! Sums.\n=======\n//! Sums.\n\nmod limit;\n>>>>>>> REPLACE\n\n<<<<<<< SEARCH\n    left";
    let code = code.replacen("<<<<<<< SEARCH\n    left", named, 1) + limit;
    let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
    script.drafts(&code).of("implement").reviews(&approved()).of("implement")
}

/// Tests of which one wants what the spec does not, and code whose drafter says what it should want.
fn other_tests(script: Script, texts: [String; 2]) -> Script {
    let script = others(script, texts, |section| section);
    let script = script.reviews(&review("REVISE", &[finding("It is one alone", None)], &[])).of("implement");
    script.reviews(&review("APPROVED", &[], &["F1"])).of("implement")
}

fn others(script: Script, [tests, code]: [String; 2], change: impl Fn(String) -> String) -> Script {
    let section = change(tests[tests.find("## Tests").unwrap()..].to_owned());
    let code = code.replace("## Code\n", &format!("{section}\n## Code\n"));
    let wrong = tests.replace("200, 100), 255", "200, 100), 254");
    let script = script.drafts(&wrong).of("implement").reviews(&approved()).of("implement");
    script.drafts(&code).of("implement")
}

impl World {
    /// The run waits for leave; the line by which somebody gives it.
    async fn wants(&mut self, word: &str) -> String {
        let run = self.run().await.unwrap();
        let at = (run.status, run.step_id.as_str());
        assert_eq!(at, (RunViewStatus::Asking, "NL"), "{:?}\n{}", run.why, self.thread());
        self.nothing_is_pushed();
        let status = self.status().body;
        assert!(status.contains("**Waits for someone with write access**: [what to decide]"), "{status}");
        self.labels();
        self.checks();
        let begins = format!("/approve {word} ");
        let asked = self.last(&format!("\n{begins}")).body;
        asked.lines().find(|line| line.starts_with(&begins)).unwrap().to_owned()
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_file_that_the_spec_lacks_is_in_the_change_once_somebody_allowed_it() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE, further).await;
    w.implement().await;
    let line = w.wants("scope").await;
    assert!(line.starts_with("/approve scope +src/limit.rs "), "{line}");
    w.clock.pass(SEEN_BEFORE_APPROVAL);
    // Who may not write is not heard, and nobody is about another file or about the change.
    w.comment("tess", "/approve scope +src/limit.rs").await;
    w.comment("sam", "/approve scope +src/Limit.rs").await;
    assert!(w.last("it is all of these files, or none").body.contains(&line));
    w.comment("sam", "/approve implement").await;
    assert!(w.last("Nothing waits at stage `implement`").body.contains(&line));
    w.comment("sam", "/approve").await;
    assert!(w.last("it is all of these files, or none").body.contains(&line));
    assert_eq!(w.run().await.unwrap().step_id, "NL");
    w = w.restart().await;
    w.comment("sam", "/approve scope +src/limit.rs").await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.last("does not list").body.contains("**Allowed by `sam`**"), "{}", w.thread());
    let gate = w.gate().replace('\\', "");
    assert!(gate.contains("+pub const MOST: u8 = 255;"), "{gate}");
    assert!(
        gate.contains("Allowed beyond the plan: `src/limit.rs`, not listed by the approved spec: `sam` at "),
        "{gate}"
    );
    w.approved_by("sam").await;
    assert!(w.on_branch("src/limit.rs").is_some());
    let body = w.pull().body;
    assert!(
        body.contains(
            "- Allowed beyond the plan: `src/limit.rs`, not listed by the approved spec: `sam` at "
        ),
        "{body}"
    );
    // What was tried and who stands for it is there, and no file has to be opened for it.
    for said in [
        "(REQ-1) | `what_does_not_fit_is_the_largest` | `tests/new.rs` | fails by an assertion |",
        "\n- **After the change:** 2 tests of the change and 1 other that passed before pass three times.",
        "\n- **Mutation check:** ",
        "was not measured",
        "| Approved hash | `",
        "\nCloses #1\n",
    ] {
        assert!(body.contains(said), "{said}: {body}");
    }
    let log = w.hub.log(w.repo, &w.branch());
    let by =
        |commit: &str| log.iter().find(|known| known.message.starts_with(commit)).unwrap().message.clone();
    assert!(by(CHANGE).contains("\nApproved-by: sam <") && !by(CHANGE).contains("maya"), "{log:?}");
    w.commits();
}

#[tokio::test]
async fn who_wants_no_further_file_sends_the_code_back_without() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE, |script, [tests, code]| {
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let script = script.drafts(&(code + LIMIT)).of("implement");
        script.edits(LIMIT.trim(), "").of("implement").reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    let line = w.wants("scope").await;
    // Whoever read another's words has not read ours.
    let (asked, max) = (w.find("does not list"), w.user("max"));
    w.hub.edit_comment(w.repo, asked.id, max, "### Nothing to see.").unwrap();
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/approve scope +src/limit.rs").unwrap();
    w.wait(30).await;
    assert!(w.last("was changed by `max`, so what you read may not have been ours").body.contains(&line));
    assert!(w.last("does not list").body.contains(&line));
    assert_eq!(w.run().await.unwrap().step_id, "NL");
    // One who objects outweighs who allows it.
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
async fn a_run_that_is_stopped_while_it_wants_a_file_wants_it_no_more() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE, further).await;
    w.implement().await;
    let line = w.wants("scope").await;
    // Who has not read what the issue says by now is shown that, and nothing is allowed.
    w.hub.edit_issue(w.repo, w.issue, w.user("maya"), None, Some("Stop at 255, and at 0.")).unwrap();
    w.pass(60);
    w.comment("sam", "/approve scope +src/limit.rs").await;
    let said = w.last("The issue was edited after this document was posted").body;
    assert!(said.contains("+Stop at 255, and at 0.") && said.contains(&line), "{said}");
    w.wants("scope").await;
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    let over = w.last("does not list").body;
    assert!(over.contains("Nobody needs to answer this any more") && !over.contains(&line), "{over}");
    w.comment("sam", &line).await;
    w.last("Nothing waits for a decision here any more");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn of_a_wish_that_nobody_answers_people_are_reminded_once_and_then_it_ends() {
    if !can_run().await {
        return;
    }
    let days = |days: u64| Duration::from_secs(days * 24 * 3600);
    let mut w = specified(&format!("{ONE}remind_days = 3\nexpire_days = 5\n"), further).await;
    w.implement().await;
    let line = w.wants("scope").await;
    for _ in 0..2 {
        w.clock.pass(days(2));
        w.settle().await;
    }
    assert!(w.last("still waits for a person").body.contains(&line), "{}", w.thread());
    w.clock.pass(days(2));
    w.settle().await;
    w.stands(RunViewStatus::Failed).await;
    assert!(w.last("Halted at").body.contains("Nobody decided for 5 days"), "{}", w.thread());
    assert!(w.last("does not list").body.contains("Nobody needs to answer this any more"), "{}", w.thread());
    w.nothing_is_pushed();
}

#[tokio::test]
async fn nobody_is_asked_about_a_file_that_could_not_be_in_it_all_the_same() {
    if !can_run().await {
        return;
    }
    // Another mistake in it, and one that somebody else has on the branch.
    for (kind, theirs, why) in
        [("Modify", false, "`src/limit.rs` is not there"), ("Add", true, "Somebody changed `src/limit.rs`")]
    {
        let limit = LIMIT.replace("(Add)", &format!("({kind})"));
        let mut w = specified(ONE, |script, texts| taking(script, texts, &limit)).await;
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
async fn other_tests_that_show_nothing_leave_the_code_and_why_it_came_to_nothing() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE, |script, texts| {
        others(script, texts, |section| {
            section.replace("what_does_not_fit_is_the_largest", "it_is_the_largest")
        })
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    for said in [
        "in their place show nothing: `tests/new.rs` has no test `what_does_not",
        "no more drafts are allowed. Code: ",
    ] {
        assert!(halt.contains(said), "{said}: {halt}");
    }
    assert!(w.status().body.contains("saturating_add"), "the code is what people go on from");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn locked_tests_give_way_to_others_once_these_were_proven_and_somebody_allowed_them() {
    if !can_run().await {
        return;
    }
    let mut w = specified(ONE, other_tests).await;
    w.implement().await;
    let line = w.wants("tests").await;
    let asked = w.last("wants other tests than those that are locked").body;
    assert!(
        asked.contains(
            "\n-    assert_eq!(sums::sum(200, 100), 254);\n+    assert_eq!(sums::sum(200, 100), 255);\n"
        ),
        "{asked}"
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
    assert!(gate.contains("in the place of those that were locked before: `sam` at "), "{gate}");
    assert!(gate.contains("2 tests of the change and "), "{gate}");
    w.approved_by("sam").await;
    let body = w.pull().body;
    assert!(body.contains("- Allowed beyond the plan: The tests of `"), "{body}");
    w.last("wants other tests");
    w.commits();
}
