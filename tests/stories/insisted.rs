//! Stories about names in a draft that the check does not find in the repository, but that the drafter insists on. The
//! check may be wrong, so such names do not end the run.

use countersign::engine::RunViewStatus;
use serde_json::json;

use crate::{
    prompts::{Drafts, segment, sound, with_reviewer},
    script::{approved, finding, review},
    world::{Setting, World},
};

const FIRST_STEP: &str = "1. Read the input and check it before anything is changed.";
const UNKNOWN_NAME: &str = "1. `src/reports.rs` reads the input.";
const OBJECTION: &str = "`src/reports.rs` is named here, but it neither exists nor is in Files Changed";
const OTHER: &str = "2. If the check fails, `src/reporting.rs` says so.";

fn draft_with_unknown_name() -> String {
    sound("src/lib.rs").replacen(FIRST_STEP, UNKNOWN_NAME, 1)
}

fn edit(search: &str, replace: &str) -> String {
    json!({ "edits": [{ "search": search, "replace": replace }], "replies": [] }).to_string()
}

/// Returns the list of mistakes in a drafter's prompt; empty if the prompt has none.
fn mistakes(prompt: &str) -> &str {
    if prompt.contains("Mistakes found mechanically") { segment(prompt, "mistakes") } else { "" }
}

/// Asserts that the run waits at its gate and that `warned` of the review prompts warn of the unknown name.
async fn assert_gate_with_warnings(w: &mut World, warned: usize, reviews: &[String]) {
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(reviews.iter().filter(|prompt| prompt.contains(OBJECTION)).count(), warned);
    assert!(w.find("waits for a person").body.contains("APPROVED"), "{}", w.thread());
}

#[tokio::test]
async fn draft_with_an_unknown_name_is_sent_back_only_once() {
    let drafts: Drafts = vec![
        |_| draft_with_unknown_name().replacen("`src/lib.rs` | Modify", "`src/absent.rs` | Modify", 1),
        |_| edit("`src/absent.rs` | Modify", "`src/lib.rs` | Modify"),
        |_| edit("The goal of a real design", "The aim of a real design"),
    ];
    let (mut w, models) = with_reviewer(
        drafts,
        |prompt| match prompt.contains("## Findings of earlier rounds") {
            true => review("APPROVED", &[], &["F1"]),
            false => review("REVISE", &[finding("The goal is no goal", None)], &[]),
        },
        Setting::default(),
    )
    .await;
    w.comes_to_the_gate().await;
    assert_gate_with_warnings(&mut w, 2, &models.sent("reviewer")).await;
    let prompts = models.sent("drafter");
    assert_eq!(prompts.len(), 3, "one for the path, one for the review");
    assert!(mistakes(&prompts[1]).contains(OBJECTION) && mistakes(&prompts[1]).contains("src/absent.rs"));
    assert_eq!(mistakes(&prompts[2]), "", "the reviewer, who saw it, did not object");
}

#[tokio::test]
async fn unknown_name_and_test_plan_gap_are_reported_separately() {
    let drafts: Drafts = vec![
        |_| draft_with_unknown_name().replacen("result (REQ-1)", "result", 1),
        |_| edit("The goal of a real design", "The aim of a real design"),
        |_| edit("gives the described result", "gives the described result (REQ-1)"),
    ];
    let (mut w, models) = with_reviewer(drafts, |_| approved(), Setting::default()).await;
    w.comes_to_the_gate().await;
    assert_gate_with_warnings(&mut w, 1, &models.sent("reviewer")).await;
    let prompts = models.sent("drafter");
    assert!(mistakes(&prompts[1]).contains(OBJECTION), "{}", prompts[1]);
    let mistakes_found = mistakes(&prompts[2]);
    assert!(
        mistakes_found.contains("coverage.uncovered") && !mistakes_found.contains(OBJECTION),
        "{mistakes_found}"
    );
}

#[tokio::test]
async fn unknown_names_in_the_last_draft_are_reported_to_the_reviewer() {
    let drafts: Drafts =
        vec![|_| draft_with_unknown_name(), |_| edit("2. If the check fails, stop there.", OTHER), |_| {
            edit("3. Make the change", "3. In `src/reporter.rs`, make the change")
        }];
    let (mut w, models) = with_reviewer(drafts, |_| approved(), Setting::default()).await;
    w.comes_to_the_gate().await;
    assert_gate_with_warnings(&mut w, 1, &models.sent("reviewer")).await;
    let prompts = models.sent("drafter");
    assert_eq!(prompts.len(), 3);
    assert!(
        mistakes(&prompts[2]).contains("`src/reporting.rs`") && !mistakes(&prompts[2]).contains(OBJECTION)
    );
    let reviews = models.sent("reviewer");
    assert_eq!(segment(&reviews[0], "warnings").lines().count(), 3, "{}", reviews[0]);
}

#[tokio::test]
async fn unknown_names_in_a_design_pushed_by_a_person_are_reported_to_the_reviewer() {
    let setting =
        Setting { as_files: true, toml: "[lld]\nmax_rounds = 1\n".to_owned(), ..Setting::default() };
    let (mut w, models) = with_reviewer(vec![|_| sound("src/lib.rs")], |_| approved(), setting).await;
    w.comes_to_the_gate().await;
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    let theirs = w.hub.branch_file(w.repo, &branch, &path).unwrap();
    let theirs = String::from_utf8(theirs).unwrap().replacen(FIRST_STEP, UNKNOWN_NAME, 1);
    w.hub.push_commit(w.repo, &branch, w.user("sam"), &[(&path, theirs.as_bytes())], "Mine").unwrap();
    let line = w.approve_line();
    w.comment("sam", &line).await;
    assert_gate_with_warnings(&mut w, 1, &models.sent("reviewer")).await;
    assert_eq!(models.sent("drafter").len(), 1, "the drafter is not called again");
    assert_eq!(w.hub.branch_file(w.repo, &branch, &path).unwrap(), theirs.as_bytes());
}
