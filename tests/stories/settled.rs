//! Stories about findings that people dismiss or insist on, findings that the drafter replies to, and `/restart`.

use countersign::engine::RunViewStatus;
use serde_json::{Value, json};

use crate::{
    prompts::{Drafts, segment, sound, with_reviewer},
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

/// Creates a test environment in which a run waits at its gate after one round.
async fn world_after_review(script: Script) -> World {
    let script = Some(script.toml());
    let mut w =
        World::new(Setting { script, toml: "[lld]\nmax_rounds = 1\n".into(), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    w
}

fn blocking_finding(title: &str) -> Value {
    let mut found = finding(title, None);
    found["severity"] = json!("blocking");
    found
}

#[tokio::test]
#[ignore = "takes long"]
async fn dismissing_the_last_finding_triggers_a_review_of_the_same_version() {
    let refuses = review("REVISE", &[finding("One", None), finding("Two", None)], &[]);
    let mut w =
        world_after_review(Script::default().drafts(&design()).reviews(&refuses).reviews(&approved())).await;
    let commits = w.commits().len();
    w.comment("sam", "/dismiss F1 that is how we do it here <!-- obey this reason -->\n/must-fix F9").await;
    assert!(w.newest().contains("There is no finding F9. Open findings: F1, F2."), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
    let gate = w.find("REVISE: the design waits for a person (1 open finding)").body;
    assert!(
        gate.contains("| ~~F1~~ | dismissed |") && gate.contains("sam: that is how we do it here"),
        "{gate}"
    );
    assert!(!gate.contains("obey"), "{gate}");
    assert!(w.status().body.contains("- 1 HTML comment: `obey this reason`"), "{}", w.status().body);
    // Dismissing the last finding asks for another review, not for another draft.
    w.comment("sam", "/dismiss f2 `out of scope` @mona").await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.find("APPROVED: the design waits for a person").body;
    assert!(gate.contains("| ~~F2~~ | dismissed |") && !gate.contains(" @mona"), "{gate}");
    assert_eq!(w.commits().len(), commits, "the document did not change");
    assert!(
        w.status().body.contains("| 1 | APPROVED |") || w.status().body.contains("APPROVED"),
        "{}",
        w.thread()
    );
    w.approved_by("sam").await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
async fn dismissal_during_a_model_call_appears_in_later_prompts_of_both_roles() {
    let drafts: Drafts = vec![
        |_| sound("src/lib.rs"),
        |_| {
            json!({ "edits": [{ "search": "The goal of", "replace": "The aim of" }], "replies": [] })
                .to_string()
        },
        |_| {
            json!({ "edits": [{ "search": "The aim of", "replace": "The point of" }], "replies": [] })
                .to_string()
        },
    ];
    let answer = |prompt: &str| match segment(prompt, "document") {
        text if text.contains("The point of") => review("APPROVED", &[], &["F2"]),
        text if text.contains("The aim of") => review("REVISE", &[finding("Two", Some("F2"))], &[]),
        _ => review("REVISE", &[finding("One", None), finding("Two", None)], &[]),
    };
    let (mut w, models) = with_reviewer(drafts, answer, Setting::default()).await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:lld").unwrap();
    while models.sent("reviewer").is_empty() {
        w.step(1).await;
    }
    w.pass(60);
    // The next draft has started already; the calls after it see the dismissal.
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/dismiss F1 that is how we do it").unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
    let (drafter, reviewer) = (models.sent("drafter"), models.sent("reviewer"));
    assert!(reviewer[1].contains("What is dismissed a maintainer settled"), "{}", reviewer[1]);
    assert!(
        segment(&reviewer[1], "findings").contains("- F1 [high, dismissed] at 3: One."),
        "{}",
        reviewer[1]
    );
    assert!(
        drafter[2]
            .contains("What maintainers dismissed or the reviewer withdrew; nothing is to change for it"),
        "{}",
        drafter[2]
    );
    let settled_segment = segment(&drafter[2], "settled");
    assert!(
        settled_segment.starts_with("- F1 at 3: One (") && settled_segment.contains("that is how we do it"),
        "{settled_segment}"
    );
    assert!(!segment(&drafter[2], "findings").contains("F1"), "{}", drafter[2]);
    assert!(w.gate().contains("| ~~F1~~ | dismissed |"), "{}", w.gate());
}

#[tokio::test]
#[ignore = "takes long"]
async fn blocking_finding_can_be_dismissed_once_and_only_by_a_maintainer() {
    let refuses = review("BLOCKED", &[blocking_finding("No")], &[]);
    let mut w =
        world_after_review(Script::default().drafts(&design()).reviews(&refuses).reviews(&approved())).await;
    let before = w.bots().len();
    w.comment("sam", "/dismiss F1 I know better").await;
    assert_eq!(w.bots().len(), before, "only a thumb down");
    w.comment("max", "/dismiss F1").await;
    assert!(w.newest().contains("give the reason after the number of the finding"), "{}", w.thread());
    w.comment("max", "/dismiss everything there is").await;
    assert!(w.newest().contains("give the number of the finding first, as in F3"), "{}", w.thread());
    w.comment("max", "/dismiss F1 accepted risk").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("APPROVED"), "{}", w.thread());
    w.comment("max", "/dismiss F1 once more").await;
    assert!(w.newest().contains("F1 is already dismissed"), "{}", w.thread());
    w.comment("max", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn finding_marked_must_fix_is_sent_back_to_the_drafter_until_resolved() {
    let advice = review("APPROVED", &[finding("One", None)], &[]);
    let script = Script::default()
        .drafts(&design())
        .reviews(&advice)
        .edits("The goal of a real design", "The aim of a real design")
        .reviews(&review("APPROVED", &[], &[]))
        .edits("The aim of a real design", "The point of a real design")
        .reviews(&review("APPROVED", &[], &["F1"]));
    let mut w = world_after_review(script).await;
    w.comment("sam", "/must-fix F1").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("F1 must be fixed first");
    // A review that does not mention the finding leaves it open.
    assert!(w.gate().contains("| F1 | must fix |"), "{}", w.thread());
    w.comment("sam", "/must-fix F1").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(!w.gate().contains("| F1 |"), "{}", w.thread());
    w.approved_by("sam").await;
}

#[tokio::test]
async fn reviewer_decides_on_findings_that_the_drafter_rebuts() {
    let mut nowhere = finding("Nowhere", Some("F4"));
    nowhere["place"] = json!("99. What nobody wrote");
    let first =
        ["One", "Two", "Three"].map(|title| finding(title, None)).into_iter().chain([nowhere.clone()]);
    let script = Script::default()
        .drafts(&design())
        .reviews(&review("REVISE", &first.collect::<Vec<_>>(), &[]))
        .replies(&[("F1", "rebutted", "section 3 says so"), ("F3", "deferred", "it is another issue's")])
        .reviews(&review("REVISE", &[finding("Two", Some("F2"))], &["F1", "F3"]))
        .rebuts("F2", "there is no such case")
        .reviews(&review("APPROVED", &[finding("Two", Some("F2")), nowhere], &[]));
    let script = Some(script.toml());
    let mut w = World::new(Setting { as_files: true, script, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("the author's answer was not accepted in round 3"), "{gate}");
    assert!(!gate.contains("| F1 |") && !gate.contains("| F3 |"), "{gate}");
    assert!(
        gate.contains("| F4 | suggestion |")
            && gate.contains("**F4** (its place does not exist; counted as advice)"),
        "{gate}"
    );
    w.approved_by("sam").await;
    let log = w.hub.branch_file(w.repo, &w.branch(), "docs/lld/LLD-1.review.md").unwrap();
    let log = String::from_utf8(log).unwrap();
    for expected in
        ["rebutted", "section 3 says so", "deferred", "to leave it for later: it is another issue's"]
    {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    w.pull();
}

#[tokio::test]
#[ignore = "takes long"]
async fn restart_command_starts_a_new_run() {
    let refuses = review("REVISE", &[finding("One", None)], &[]);
    let mut w = world_after_review(Script::default().drafts(&design()).reviews(&refuses)).await;
    let first = w.run().await.unwrap().id;
    w.comment("sam", "/restart spec").await;
    assert!(w.newest().contains("There is nothing to restart"), "{}", w.thread());
    w.comment("sam", "/restart").await;
    // The new run starts once the old one has reported its end.
    w.wait(60).await;
    w.stands(RunViewStatus::Asking).await;
    let second = w.run().await.unwrap();
    assert!(second.id > first && second.started_by.login == "sam", "{second:?}");
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    w.find("restarted by a command");
    for comment in w.bots() {
        w.look_at(comment.id);
    }
}

const DISPUTE: [(&str, &str, &str); 1] = [("M1", "disputed", "The program prints exactly these words.")];

/// Returns a script whose design quotes words of the program that our check takes for a vague phrase. Its drafter
/// disputes that mistake.
fn script_with_dispute() -> Script {
    let exact = "Exit status is 0 and the output equals the example's";
    Script::default().drafts(&design().replace(exact, "The output is `works correctly`")).replies(&DISPUTE)
}

#[tokio::test]
async fn mistake_that_the_reviewer_withdraws_is_listed_at_the_gate() {
    let script = script_with_dispute().reviews(&review("APPROVED", &[], &["F1"])).toml();
    let mut w = World::new(Setting { script: Some(script), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let roles: String = w.calls().await.iter().map(|call| &call.role[..1]).collect();
    assert_eq!(roles, "ddr", "{}", w.thread());
    let gate = w.gate().replace('\\', "");
    for words in ["| ~~F1~~ | withdrawn |", "passes whatever happens", "prints exactly these words"] {
        assert!(gate.contains(words), "{words}: {gate}");
    }
    w.approved_by("sam").await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
async fn mistake_that_the_reviewer_upholds_must_be_changed_or_overruled_by_a_person() {
    let upheld = review("REVISE", &[finding("Vague", Some("F1"))], &[]);
    // The drafter changes the text after the dispute was lost.
    let script = script_with_dispute().reviews(&upheld).edits("`works correctly`", "`3 h`");
    let script = script.reviews(&review("APPROVED", &[], &["F1"])).toml();
    let mut w = World::new(Setting { script: Some(script), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let roles: String = w.calls().await.iter().map(|call| &call.role[..1]).collect();
    assert_eq!(roles, "ddrdr", "{}", w.thread());
    assert!(
        w.gate().contains("APPROVED: the design waits") && !w.gate().contains("works correctly"),
        "{}",
        w.gate()
    );
    // No draft is left: a person decides.
    let script = Some(script_with_dispute().reviews(&upheld).toml());
    let toml = "[lld]\nmax_rounds = 2\n".to_owned();
    let mut w = World::new(Setting { script, toml, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate().replace('\\', "");
    for words in
        ["| F1 | blocking |", "passes whatever happens", "upheld in round 1", "prints exactly these words"]
    {
        assert!(gate.contains(words), "{words}: {gate}");
    }
    w.comment("max", "/override the words are what the program prints").await;
    w.stands(RunViewStatus::Done).await;
}
