//! Stories about knowledge of the repository in prompts: names that exist, and results of earlier runs.

use countersign::{engine::RunViewStatus, types::IssueNo};
use serde_json::{Value, json};

use crate::{
    prompts::{Drafts, segment, sound, with_reviewer},
    script::{approved, finding, review},
    world::Setting,
};

const FIRST_STEP: &str = "1. Read the input and check it before anything is changed.";
const WRONG_NAMES: &str = "1. `duratoin()` in `src/parse.rs` reads each time.\n2. `src/reports.rs` prints it.\n\
                     3. Then it calls `parse_span()`, and `durationn()` of what is generated.\n\n\
                     ```rust\nuse crate::reprot::table;\n```";

fn corrected_names() -> String {
    WRONG_NAMES.replace("duratoin()", "duration()").replace("src/reports.rs", "src/report.rs")
}

fn design_about(words: &str) -> String {
    sound("src/lib.rs").replacen("of issue 1, ", "of this issue, ", 1).replacen(FIRST_STEP, words, 1)
}

fn edit(search: &str, replace: &str) -> String {
    json!({ "edits": [{ "search": search, "replace": replace }], "replies": [] }).to_string()
}

#[tokio::test]
async fn unknown_names_are_reported_to_the_drafter_with_suggestions() {
    let drafts: Drafts = vec![|_| design_about(WRONG_NAMES), |_| edit(WRONG_NAMES, &corrected_names())];
    let (mut w, models) = with_reviewer(drafts, |_| approved(), Setting::default()).await;
    let made: (&str, &[u8]) = ("src/made.pb.go", b"func durationn() {}\n");
    w.hub.push_commit(w.repo, "main", w.user("maya"), &[made], "Generate it").unwrap();
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.find("waits for a person").body;
    assert!(gate.contains("APPROVED"), "{gate}");

    let prompts = models.sent("drafter");
    let reviews = models.sent("reviewer");
    assert_eq!((prompts.len(), reviews.len()), (2, 1));
    let first = segment(&prompts[1], "mistakes");
    for expected in [
        "`src/reports.rs` is named here, but it neither exists nor is in Files Changed; did you mean `src/report.rs`",
        "`duratoin` is not in this repository: no file has the word `duratoin`; did you mean `duration (src/parse.rs:",
        "`crate::reprot` is imported, but it neither exists nor is added in Files Changed; did you mean `crate::report`?",
    ] {
        assert!(first.contains(expected), "{expected}\n{first}");
    }
    assert!(!first.contains("durationn") && !first.contains("parse_span"), "{first}");
    let left = segment(&reviews[0], "warnings");
    for expected in
        ["`crate::reprot` is imported", "no file has the word `parse_span`; name one that is there."]
    {
        assert!(left.contains(expected) && left.lines().count() == 2, "{expected}\n{left}");
    }
}

#[tokio::test]
async fn design_run_reaches_its_gate_in_a_repository_with_an_oversized_file() {
    let (mut w, models) =
        with_reviewer(vec![|_| design_about(FIRST_STEP)], |_| approved(), Setting::default()).await;
    let large = vec![b'\n'; 9 << 20];
    w.hub.push_commit(w.repo, "main", w.user("maya"), &[("src/made.pb.go", &large)], "Generate it").unwrap();
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(models.sent("drafter").len(), 1);
}

/// Returns the number of the issue that a prompt is about.
fn issue(prompt: &str) -> String {
    let number = prompt.split("for issue #").nth(1).unwrap();
    number.split(|c: char| !c.is_ascii_digit()).next().unwrap().to_owned()
}

#[tokio::test]
#[ignore = "takes long"]
async fn finding_repeated_in_three_designs_is_shown_to_the_fourth_drafter() {
    fn drafts(prompt: &str) -> String {
        if prompt.starts_with("Revise") {
            return edit("Behaviour that the issue does not mention", "Behaviour the issue does not mention");
        }
        design_about(FIRST_STEP).replacen("# 1 - ", &format!("# {} - ", issue(prompt)), 1)
    }
    fn reviews(prompt: &str) -> Value {
        if prompt.contains("## Findings of earlier rounds") {
            return review("APPROVED", &[], &["F1"]);
        }
        let title = format!("Requirement {} names no exit status", issue(prompt));
        review("REVISE", &[finding(&title, None)], &[])
    }
    let (mut w, models) = with_reviewer(vec![drafts], reviews, Setting::default()).await;
    let maya = w.user("maya");
    let mut numbers: Vec<IssueNo> = Vec::new();
    for (title, body) in [
        ("Weekly totals", "Add up the hours by week."),
        ("Colours", "Show totals over eight hours in red."),
        ("Rounding", "In `src/lib.rs`, round spans to quarters."),
    ] {
        w.issue = w.hub.open_issue(w.repo, maya, title, body).unwrap();
        numbers.push(w.issue);
        w.comes_to_the_gate().await;
        let line = w.approve_line();
        w.comment("sam", &line).await;
        w.stands(RunViewStatus::Done).await;
    }
    let before = models.sent("drafter");
    assert!(before.iter().all(|prompt| !prompt.contains(" designs (#")), "two designs make no pattern");

    w.issue =
        w.hub.open_issue(w.repo, maya, "Negative spans", "`src/lib.rs` takes none; refuse them.").unwrap();
    w.comes_to_the_gate().await;
    let first = models.sent("drafter").swap_remove(before.len());
    let rule = format!(
        "- In 3 designs (#{}, #{}, #{}), section “requirements”: Requirement {} names no exit status. Say what is observed.",
        numbers[2], numbers[1], numbers[0], numbers[2]
    );
    assert_eq!(segment(&first, "rules"), rule);
    let designs = segment(&first, "designs");
    for number in numbers {
        let mut heading = designs.lines().skip_while(|line| !line.starts_with(&format!("## #{number} ")));
        assert_eq!(heading.nth(2), Some("Approved."), "{designs}");
    }
    assert!(designs.contains("It changes files that the issue names: src/lib.rs."), "{designs}");
}
