//! From a label to a countersigned design, told as people see it.

use countersign::{engine::RunViewStatus, types::IssueNo};
use serde_json::json;

use crate::{
    script::{Script, approved, design, finding, review},
    world::{Setting, World, world, world_of_files},
};

/// The design on the branch.
fn committed(w: &World) -> String {
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    String::from_utf8(w.hub.branch_file(w.repo, &branch, &path).expect("the design is on its branch"))
        .unwrap()
}

/// What stands on these threads, comment by comment, and the labels as they moved.
pub(crate) fn threads(w: &World, numbers: &[IssueNo]) -> String {
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
            // The design is a file, which others tell of.
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
async fn a_label_ends_in_an_approved_design() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.approved_by("sam").await;
    assert!(
        w.hub.pulls(w.repo).is_empty(),
        "a design is a comment: there is no pull request before there is code"
    );
    assert!(w.hub.log(w.repo, &w.branch()).is_empty(), "and no branch");
    assert_eq!(w.notifying(), 2, "a design costs its readers two mails:\n{}", w.thread());
    let gate = w.gate();
    let whole = gate.split("<summary>The whole LLD</summary>").nth(1).expect("the gate holds the design");
    assert!(
        whole.contains("# 1 - Feature: Report time by week") && whole.contains("### Test Scenarios"),
        "{gate}"
    );
    insta::assert_snapshot!(threads(&w, &[w.issue]), @r##"
    ## #1 Report time by week as well as by project ["countersign:done"]
    labeled by maya: countersign:lld
    unlabeled by countersign[bot]: countersign:lld
    labeled by countersign[bot]: countersign:needs-you
    labeled by countersign[bot]: countersign:done
    unlabeled by countersign[bot]: countersign:needs-you
    eyes by countersign[bot]

    --- countersign[bot], edited 2x []
    > **Rehearsal**: scripted answers, no model was asked.

    ### ✅ lld: done

    - ✅ **LLD**: approved by sam, 2 rounds ([result](HUB/maya/tally/issues/1#issuecomment-1022))

    Next: `/spec` writes the implementation spec of it.



    <sub>`/status` · `/stop` · `/help` · run `1002-1`, asked for by maya · updated on 2026-03-02 09:01 UTC</sub>

    <!-- countersign:status -->

    --- countersign[bot], edited 1x []
    > **Rehearsal**: scripted answers, no model was asked.

    ### ✅ APPROVED: the LLD was accepted

    **The reviewer's reason**

    This is a rehearsal: a fixed text, not a model's opinion. Requirement 2 now says what is observed, and scenario 020 checks exactly that.



    **Accepted by sam** on 2026-03-02 09:01 UTC.

    Drafted by `stub-drafter`, reviewed by `stub-reviewer`, round 2.

    [Status](HUB/maya/tally/issues/1#issuecomment-1020)

    <sub>Run 1002-1 · the hash to approve covers the document, the files it names and this gate's rules</sub>

    <!-- countersign:gate-1002-1-15 -->

    --- sam, edited 0x [("countersign[bot]", "eyes")]
    /approve lld HASH
    "##);
}

#[tokio::test]
async fn the_status_comment_tells_the_rounds() {
    let mut w = world().await;
    w.comment("tess", "/lld").await;
    let status = w.status().body;
    let rounds: Vec<_> = status.lines().filter(|l| l.contains("REVISE") || l.contains("APPROVED")).collect();
    assert!(rounds.len() == 2 && rounds[0].contains("REVISE") && rounds[1].contains("APPROVED"), "{status}");
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn numbers_that_a_model_puts_before_headings_are_taken_off() {
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
async fn what_an_ended_run_leaves_is_shown_with_its_own_review() {
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
async fn who_may_say_it_is_asked_of_github_at_that_moment() {
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
    // triage does not approve
    w.stands(RunViewStatus::Asking).await;
    let tess = w.user("tess");
    w.hub.set_role(w.repo, tess, countersign::types::Role::Write).unwrap();
    w.comment("tess", &line).await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
async fn words_that_are_not_commands_do_nothing() {
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
async fn an_edited_comment_never_acts() {
    let mut w = world().await;
    let maya = w.user("maya");
    let id = w.hub.comment(w.repo, w.issue, maya, "nothing yet").unwrap();
    w.settle().await;
    w.hub.edit_comment(w.repo, id, maya, "/lld").unwrap();
    w.settle().await;
    assert!(w.run().await.is_none());
}

#[tokio::test]
async fn an_issue_edited_after_the_gate_blocks_a_bare_approve() {
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
    // A pasted line is a person's mistake, and the bare word may be another bot's.
    w.comment("sam", &line).await;
    let said = w.newest();
    assert!(
        said.contains("Nothing waits for a decision here any more") && said.contains("the issue was closed"),
        "{said}"
    );
    w.hub.reopen(w.repo, w.issue, maya).unwrap();
    w.settle().await;
    w.comment("sam", "/approve").await;
    w.stands(RunViewStatus::Stopped).await;
}

#[tokio::test]
async fn a_plan_without_drafts_gets_a_normal_pull_request() {
    let mut w = world_of_files().await;
    w.hub.refuse_draft_pulls(w.repo, true).unwrap();
    w.comes_to_the_gate().await;
    let pulls = w.hub.pulls(w.repo);
    assert!(!pulls[0].draft);
    assert!(pulls[0].title.starts_with("[WIP]"), "{}", pulls[0].title);
    w.stands(RunViewStatus::Asking).await;
}

/// Someone's own version of the design, pushed to its branch.
fn push_theirs(w: &World, text: &str) {
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    w.hub.push_commit(w.repo, &branch, w.user("sam"), &[(&path, text.as_bytes())], "Mine").unwrap();
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_version_pushed_while_we_draft_is_not_overwritten() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let theirs = committed(&w) + "\nA sentence by a person.\n";
    w.pass(60);
    w.hub.comment(w.repo, w.issue, w.user("sam"), "/revise say more").unwrap();
    // The gate has heard it and the drafter is at work when sam's own version comes.
    w.step(3).await;
    assert_eq!(w.run().await.unwrap().step_id, "NP");
    push_theirs(&w, &theirs);
    w.settle().await;
    assert_eq!(committed(&w), theirs, "theirs is what is reviewed and asked about");
    w.stands(RunViewStatus::Asking).await;
    w.approved_by("sam").await;
    assert_eq!(committed(&w), theirs);
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_version_left_on_the_branch_is_not_overwritten_by_the_next_run() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let theirs = committed(&w) + "\nA sentence by a person.\n";
    w.comment("tess", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    push_theirs(&w, &theirs);
    w.comment("tess", "/lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert_eq!(committed(&w), theirs);
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_is_edited_into_the_issue_is_what_the_next_draft_is_from() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let maya = w.user("maya");
    w.hub.edit_issue(w.repo, w.issue, maya, Some("Quite another title"), None).unwrap();
    w.comment("sam", "/revise for the title as it is now").await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/approve").await;
    // nothing changed since it was drafted anew
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_person_can_have_their_own_version_revised() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let theirs = committed(&w) + "\nA sentence by a person.\n";
    push_theirs(&w, &theirs);
    w.comment("sam", "/revise say it shorter").await;
    w.stands(RunViewStatus::Asking).await;
    let revised = committed(&w);
    assert_ne!(revised, theirs, "the revision they asked for is what they are asked about");
    assert!(revised.contains("A sentence by a person."), "and it is a revision of theirs:\n{revised}");
    w.approved_by("sam").await;
}

#[tokio::test]
async fn a_run_that_ends_before_it_began_replaces_the_last_ones_label() {
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
async fn a_later_round_opens_nothing_that_could_have_been_said_before() {
    let of = |title: &str, place: &str, category: &str| {
        let mut found = finding(title, None);
        (found["place"], found["category"]) = (json!(place), json!(category));
        found
    };
    let late = [
        of("The title could be longer", "11", "style"),
        of("A secret is logged", "11", "security"),
        of("The new words say too little", "020", "scope"),
    ];
    let script = Script::default()
        .drafts(&design())
        .reviews(&review("REVISE", &[of("Nothing is observed", "020", "tests")], &[]))
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
