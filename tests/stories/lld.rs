//! Stories from a label to an approved design.

use countersign::{engine::RunViewStatus, types::IssueNo};
use serde_json::json;

use crate::{
    script::{Script, approved, design, finding, review},
    world::{Setting, World, world, world_of_files},
};

/// Returns the design that is committed on the issue's branch.
fn committed_design(w: &World) -> String {
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    String::from_utf8(w.hub.branch_file(w.repo, &branch, &path).expect("the design is on its branch"))
        .unwrap()
}

/// Returns these threads as text: title, labels and their changes, reactions, and comments without folded parts.
pub(crate) fn thread_text(w: &World, numbers: &[IssueNo]) -> String {
    let mut out = String::new();
    for number in numbers.iter().copied() {
        let view = w.hub.issue(w.repo, number).unwrap();
        out += &format!("## #{number} {} {:?}\n", view.title, view.labels);
        for event in view.timeline {
            out += &format!("{} by {}: {}\n", event.event, event.actor, event.detail.unwrap_or_default());
        }
        for (who, what) in &view.reactions {
            out += &format!("{what} by {who}\n");
        }
        if view.author != "maya" {
            out += &format!("\n--- {}\n{}\n", view.author, w.plain(&view.body));
        }
        for comment in view.comments {
            let (body, edits) = (w.plain(&comment.body), comment.edits);
            // The folded parts are left out.
            let (before, folded) = body.split_once("<details>").unwrap_or((&body, ""));
            let after = folded.rsplit_once("</details>").map_or("", |(_, after)| after);
            out += &format!(
                "\n--- {}, edited {edits}x {:?}\n{before}{after}\n",
                comment.author, comment.reactions
            );
        }
    }
    out
}

#[tokio::test]
async fn design_run_started_by_a_label_ends_with_an_approved_design() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;
    assert!(w.hub.pulls(w.repo).is_empty(), "a design is a comment; no pull request before there is code");
    assert!(w.hub.log(w.repo, &w.branch()).is_empty(), "and no branch");
    assert_eq!(w.notifying(), 2, "a design sends two mails:\n{}", w.thread());
    let gate = w.gate();
    let whole = gate.split("<summary>The whole design</summary>").nth(1).expect("the gate holds the design");
    assert!(
        whole.contains("# 1 - Feature: Report time by week") && whole.contains("### Test Scenarios"),
        "{gate}"
    );
    insta::assert_snapshot!(thread_text(&w, &[w.issue]), @r##"
    ## #1 Report time by week as well as by project ["countersign:done"]
    labeled by maya: countersign:lld
    unlabeled by countersign[bot]: countersign:lld
    labeled by countersign[bot]: countersign:needs-you
    labeled by countersign[bot]: countersign:done
    unlabeled by countersign[bot]: countersign:needs-you
    eyes by countersign[bot]

    --- countersign[bot], edited 2x []
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✅ lld: done

    - ✅ **Design**: approved by sam, 2 rounds ([result](HUB/maya/tally/issues/1#issuecomment-1022))

    Next: `/spec` writes the implementation spec.



    <sub>`/status` · `/stop` · `/help` · run `1002-1`, requested by maya · updated on 2026-03-02 09:01 UTC</sub>

    <!-- countersign:status -->

    --- countersign[bot], edited 1x []
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✅ APPROVED: the design was accepted

    **The reviewer's reason**

    This is a rehearsal: a fixed text, not a model's opinion. Requirement 2 now says what is observed, and scenario 020 checks exactly that.



    **Accepted by sam** on 2026-03-02 09:01 UTC.

    Drafted by `stub-drafter`, reviewed by `stub-reviewer`, round 2.

    [Status](HUB/maya/tally/issues/1#issuecomment-1020)

    <sub>Run 1002-1 · the hash covers the document, the files it names and this gate's policy</sub>

    <!-- countersign:gate-1002-1-15 -->

    --- sam, edited 0x [("countersign[bot]", "eyes")]
    /approve lld HASH
    "##);
}

#[tokio::test]
async fn status_comment_lists_the_verdict_of_each_review_round() {
    let mut w = world().await;
    w.comment("tess", "/lld").await;
    let status = w.status().body;
    let rounds: Vec<_> = status.lines().filter(|l| l.contains("REVISE") || l.contains("APPROVED")).collect();
    assert!(rounds.len() == 2 && rounds[0].contains("REVISE") && rounds[1].contains("APPROVED"), "{status}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn heading_numbers_written_by_a_model_are_removed() {
    let numbered = design().replace("## Requirements", "## 3. Requirements");
    let numbered = numbered.replace("### Test Scenarios", "### 10.1 Test Scenarios");
    let script = Script::default().drafts(&numbered).reviews(&approved());
    let setting = Setting { script: Some(script.toml()), ..Setting::default() };
    let mut w = World::new(setting).await;
    w.comes_to_the_gate().await;
    let gate = w.gate();
    for heading in ["\n## Requirements\n", "\n### Test Scenarios\n"] {
        assert!(gate.contains(heading), "{heading:?}: {gate}");
    }
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn pull_request_still_shows_the_last_verdict_when_a_later_revision_halts() {
    let refuses = review("REVISE", &[finding("No test", None)], &[]);
    let script = Script::default().drafts(&design()).reviews(&approved());
    let script = script.edits("The goal of", "The aim of").reviews(&refuses).drafts("");
    let mut w =
        World::new(Setting { as_files: true, script: Some(script.toml()), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.comment("sam", "/revise say it better").await;
    w.stands(RunViewStatus::Failed).await;
    w.find("Halted at Draft the design");
    assert!(w.pull().body.contains("| Verdict | ✅ APPROVED |"), "{}", w.pull().body);
}

#[tokio::test]
async fn permissions_are_read_from_github_at_each_command() {
    let mut w = world().await;
    w.label("stranger", "countersign:lld").await;
    assert!(w.run().await.is_none(), "a stranger starts nothing");
    assert!(w.view().reactions.iter().any(|(_, r)| r == "-1"));
    w.comment("stranger", "/lld").await;
    assert!(w.run().await.is_none());

    w.comment("tess", "/lld").await;
    w.find("Rehearsal");
    w.find("waits for a person");
    let line = w.approve_line();
    w.comment("tess", &line).await;
    // the triage role may not approve
    w.stands(RunViewStatus::Asking).await;
    let tess = w.user("tess");
    w.hub.set_role(w.repo, tess, countersign::types::Role::Write).unwrap();
    w.comment("tess", &line).await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
async fn quoted_or_embedded_commands_are_ignored() {
    let mut w = world().await;
    for text in [
        "`/lld`",
        "> /lld",
        "```\n/lld\n```",
        "please /lld this",
        "<!-- /lld -->",
        "[/lld](https://example.org)",
        "    /lld",
        "/approve",
        "/hold",
    ] {
        w.comment("maya", text).await;
    }
    assert!(w.run().await.is_none());
    assert_eq!(w.notifying(), 0, "{}", w.thread());
}

#[tokio::test]
async fn edited_comment_never_triggers_a_command() {
    let mut w = world().await;
    let maya = w.user("maya");
    let id = w.hub.comment(w.repo, w.issue, maya, "nothing yet").unwrap();
    w.settle().await;
    w.hub.edit_comment(w.repo, id, maya, "/lld").unwrap();
    w.settle().await;
    assert!(w.run().await.is_none());
}

#[tokio::test]
async fn issue_edit_after_the_gate_blocks_a_bare_approve() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let (maya, title) = (w.user("maya"), w.view().title);
    w.hub.edit_issue(w.repo, w.issue, maya, Some(&title), Some("Something else entirely.")).unwrap();
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.newest().contains("Something else entirely."), "the difference is shown");
    let line = w.approve_line();
    w.comment("sam", &line).await;
    // the full line still passes
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
async fn closing_the_issue_stops_the_run() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let (maya, line) = (w.user("maya"), w.approve_line());
    w.hub.close_issue(w.repo, w.issue, maya).unwrap();
    w.settle().await;
    w.stands(RunViewStatus::Stopped).await;
    // A pasted full line is a mistake and gets an answer; a bare `/approve` may be for another bot.
    w.comment("sam", &line).await;
    let answer = w.newest();
    assert!(
        answer.contains("No decision is open here any more") && answer.contains("the issue was closed"),
        "{answer}"
    );
    w.hub.reopen(w.repo, w.issue, maya).unwrap();
    w.settle().await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn wip_pull_request_is_opened_if_the_github_plan_has_no_drafts() {
    let mut w = world_of_files().await;
    w.hub.refuse_draft_pulls(w.repo, true).unwrap();
    w.comes_to_the_gate().await;
    let pulls = w.hub.pulls(w.repo);
    assert!(!pulls[0].draft);
    assert!(pulls[0].title.starts_with("[WIP]"), "{}", pulls[0].title);
    w.stands(RunViewStatus::Asking).await;
}

/// Pushes a version of the design by a person to the design's branch.
fn push_own_version(w: &World, text: &str) {
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    w.hub.push_commit(w.repo, &branch, w.user("sam"), &[(&path, text.as_bytes())], "Mine").unwrap();
}

#[tokio::test]
#[ignore = "takes long"]
async fn version_pushed_during_drafting_is_not_overwritten() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let theirs = committed_design(&w) + "\nA sentence by a person.\n";
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/revise say more").unwrap();
    // The gate has taken the command, and the drafter works when sam pushes.
    w.step(3).await;
    assert_eq!(w.run().await.unwrap().step_id, "NP");
    push_own_version(&w, &theirs);
    w.settle().await;
    assert_eq!(committed_design(&w), theirs, "the person's version is reviewed and waits at the gate");
    w.stands(RunViewStatus::Asking).await;
    w.approved_by("sam").await;
    assert_eq!(committed_design(&w), theirs);
}

#[tokio::test]
#[ignore = "takes long"]
async fn version_pushed_by_a_person_after_a_stop_is_kept_by_the_next_run() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let theirs = committed_design(&w) + "\nA sentence by a person.\n";
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    push_own_version(&w, &theirs);
    w.comment("tess", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(committed_design(&w), theirs);
}

#[tokio::test]
#[ignore = "takes long"]
async fn next_draft_uses_the_edited_issue() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let maya = w.user("maya");
    w.hub.edit_issue(w.repo, w.issue, maya, Some("Quite another title"), None).unwrap();
    w.comment("sam", "/revise for the title as it is now").await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/approve").await;
    // nothing has changed since the new draft
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn revise_command_applies_to_a_version_pushed_by_a_person() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let theirs = committed_design(&w) + "\nA sentence by a person.\n";
    push_own_version(&w, &theirs);
    w.comment("sam", "/revise say it shorter").await;
    w.stands(RunViewStatus::Asking).await;
    let revised = committed_design(&w);
    assert_ne!(revised, theirs, "the gate is about the requested revision");
    assert!(revised.contains("A sentence by a person."), "it revises the person's version:\n{revised}");
    w.approved_by("sam").await;
}

#[tokio::test]
async fn run_that_halts_at_its_start_replaces_the_previous_status_label() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;
    w.hub.close_issue(w.repo, w.issue, w.user("maya")).unwrap();
    w.label("maya", "countersign:lld").await;
    assert_eq!((w.runs_begun(), w.run_status().await), (2, RunViewStatus::Failed));
    assert_eq!(w.labels(), ["countersign:stopped"], "{}", w.thread());
    assert!(w.status().body.contains("lld: halted"), "{}", w.thread());
    w.find("### ❌ Halted at Load the issue");
}

#[tokio::test]
async fn late_findings_on_unchanged_text_become_suggestions() {
    let finding_at = |title: &str, place: &str, category: &str| {
        let mut found = finding(title, None);
        (found["place"], found["category"]) = (json!(place), json!(category));
        found
    };
    let late = [
        finding_at("The title could be longer", "11", "style"),
        finding_at("A secret is logged", "11", "security"),
        finding_at("The new words say too little", "020", "scope"),
    ];
    let script = Script::default()
        .drafts(&design())
        .reviews(&review("REVISE", &[finding_at("Nothing is observed", "020", "tests")], &[]))
        .edits("An empty input | A message", "An empty input | One line on standard error")
        .reviews(&review("APPROVED", &late, &["F1"]));
    let mut w = World::new(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    let gate = w.find("waits for a person").body;
    let line =
        |title: &str| gate.lines().find(|line| line.contains(title)).unwrap_or_else(|| panic!("{gate}"));
    assert!(line("The title could be longer").contains("suggestion"), "{gate}");
    assert!(line("A secret is logged").contains("high"), "{gate}");
    assert!(line("The new words say too little").contains("high"), "{gate}");
    w.stands(RunViewStatus::Asking).await;
}
