//! Stories about gates that the settings turn off. Only an APPROVED verdict by a reviewer of another family may replace
//! a person's approval.

use countersign::engine::RunViewStatus;

use crate::{
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

async fn world_without_gate() -> World {
    world_without_gate_with(Setting { as_files: true, ..Setting::default() }).await
}

async fn world_without_gate_with(setting: Setting) -> World {
    let toml = format!("[lld]\nverdict_gate = false\n{}", setting.toml);
    World::new(Setting { toml, ..setting }).await
}

#[tokio::test]
async fn design_approved_in_review_is_published_at_once_when_the_gate_is_disabled() {
    let mut w = world_without_gate().await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Done).await;
    let status = w.find("Rehearsal").body;
    assert!(status.contains("lld: done"), "{status}");
    assert_eq!(w.notifying(), 1, "only the status comment:\n{}", w.thread());
    let body = w.pull().body;
    assert!(
        body.contains(
            "| Decision | accepted after the reviewer's verdict APPROVED; the settings require no human approval |"
        ),
        "{body}"
    );
    let log = w.hub.log(w.repo, &format!("countersign/issue-{}", w.issue));
    let messages: Vec<_> = log.iter().take(2).map(|commit| commit.message.clone()).collect();
    assert!(messages[0].contains("Accepted after the review"), "{messages:?}");
    assert!(messages[1].starts_with("docs: propose design"), "{messages:?}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn design_rejected_in_review_waits_for_a_human_decision() {
    for verdict in ["REVISE", "BLOCKED"] {
        let script =
            Script::default().drafts(&design()).reviews(&review(verdict, &[finding("No", None)], &[]));
        let toml = "max_rounds = 1\n".to_owned();
        let setting = Setting { script: Some(script.toml()), toml, ..Setting::default() };
        let mut w = world_without_gate_with(setting).await;
        w.label("maya", "countersign:lld").await;
        w.stands(RunViewStatus::Asking).await;
        w.find("Rehearsal");
        let gate = w.find("waits for a person").body;
        assert!(gate.contains(verdict) && gate.contains("/override"), "{gate}");
    }
}

#[tokio::test]
async fn design_with_a_malformed_verdict_waits_for_a_human_decision() {
    let script = Script::default().drafts(&design()).reviews_as_text("APPROVED");
    let mut w = world_without_gate_with(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    assert!(w.find("waits for a person").body.contains("INCONCLUSIVE"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn design_needs_human_approval_if_issue_author_or_editor_lacks_write_access() {
    // Author, last editor of the text, last editor of the title; each of them counts.
    for (opens, text, title, named) in [
        ("stranger", None, None, Some("stranger")),
        ("stranger", Some("maya"), Some("maya"), Some("stranger")),
        ("maya", Some("tess"), None, Some("tess")),
        ("maya", None, Some("tess"), Some("tess")),
        ("maya", Some("sam"), Some("max"), None),
    ] {
        let mut w = world_without_gate().await;
        let id = |login| w.user(login);
        let body = "Read the settings from a file. It is done when the tests show it.";
        let issue = w.hub.open_issue(w.repo, id(opens), "Settings", body).unwrap();
        if let Some(who) = text {
            w.hub.edit_issue(w.repo, issue, id(who), None, Some(&format!("{body} Soon."))).unwrap();
        }
        if let Some(who) = title {
            w.hub.edit_issue(w.repo, issue, id(who), Some("Settings from a file"), None).unwrap();
        }
        w.issue = issue;
        w.label("maya", "countersign:lld").await;
        let Some(named) = named else {
            w.stands(RunViewStatus::Done).await;
            continue;
        };
        w.stands(RunViewStatus::Asking).await;
        let gate = w.find("waits for a person").body;
        assert!(gate.contains(&format!("written or edited by `{named}`, who has no write access")), "{gate}");
        w.approved_by("sam").await;
        assert!(w.pull().body.contains("approved by sam"), "{}", w.pull().body);
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn design_needs_human_approval_if_someone_else_committed_to_its_branch() {
    let mut w = world_without_gate().await;
    let sam = w.user("sam");
    let branch = format!("countersign/issue-{}", w.issue);
    w.hub.push_commit(w.repo, &branch, sam, &[("src/lib.rs", b"// theirs")], "Mine").unwrap();
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    w.find("Rehearsal");
    assert!(w.find("waits for a person").body.contains("- `src/lib.rs`"), "{}", w.thread());
    w.approved_by("sam").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn repository_settings_can_add_a_gate_but_not_remove_one() {
    let files = |text: &str| vec![(".github/countersign.toml".to_owned(), text.as_bytes().to_vec())];
    let script = || Some(Script::default().drafts(&design()).reviews(&approved()).toml());
    let setting =
        Setting { script: script(), files: files("[lld]\nverdict_gate = true\n"), ..Setting::default() };
    let mut w = world_without_gate_with(setting).await;
    w.comes_to_the_gate().await;
    let gate = w.find("waits for a person").body;
    assert!(!gate.contains("The settings require no human approval"), "{gate}");

    let loosens = files("[lld]\nverdict_gate = false\n");
    let mut w = World::new(Setting { script: script(), files: loosens, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    assert!(w.find("Rehearsal").body.contains("would remove a gate"), "{}", w.thread());
}

/// Returns a well-formed design that differs from the one in the script.
async fn other_design() -> Vec<u8> {
    let mut w = world_without_gate().await;
    w.label("maya", "countersign:lld").await;
    let path = format!("docs/lld/LLD-{}.md", w.issue);
    w.stands(RunViewStatus::Done).await;
    let ours = w.hub.branch_file(w.repo, &format!("countersign/issue-{}", w.issue), &path).unwrap();
    String::from_utf8(ours).unwrap().replace("**This is a rehearsal.**", "**This is mine.**").into_bytes()
}

#[tokio::test]
#[ignore = "takes long"]
async fn design_pushed_by_a_person_is_not_redrafted_after_a_rejecting_review() {
    let refuses = review("REVISE", &[finding("No", None)], &[]);
    let script = Script::default().drafts(&design()).reviews(&approved()).reviews(&refuses).toml();
    let toml = "max_rounds = 1\n".to_owned();
    let mut w =
        world_without_gate_with(Setting { as_files: true, script: Some(script), toml, ..Setting::default() })
            .await;
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    let (sam, mine) = (w.user("sam"), other_design().await);
    w.hub.push_commit(w.repo, &branch, sam, &[(&path, &mine)], "Mine").unwrap();
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.find("waits for a person").body.contains("REVISE"), "{}", w.thread());
    assert_eq!(w.hub.branch_file(w.repo, &branch, &path).unwrap(), mine);
}

#[tokio::test]
#[ignore = "takes long"]
async fn design_needs_human_approval_if_branch_or_issue_changed_after_draft_approval() {
    let toml = || "draft_gate = true\n".to_owned();
    let script = || Some(Script::default().drafts(&design()).reviews(&approved()).toml());
    for what in ["nothing", "branch", "issue"] {
        let as_files = what == "branch";
        let setting = Setting { as_files, script: script(), toml: toml(), ..Setting::default() };
        let mut w = world_without_gate_with(setting).await;
        w.label("maya", "countersign:lld").await;
        let line = w.approve_line();
        let (maya, sam) = (w.user("maya"), w.user("sam"));
        let branch = format!("countersign/issue-{}", w.issue);
        if what == "issue" {
            w.hub.edit_issue(w.repo, w.issue, maya, Some("Quite another title"), None).unwrap();
        }
        let user = w.user("sam");
        w.hub.comment(w.repo, w.issue, user, &line).unwrap();
        // Process the approval, then change something before the review.
        while w.run().await.is_none_or(|run| run.step_id == "N2") {
            w.pass(60);
            w.step(1).await;
        }
        if what == "branch" {
            w.hub.push_commit(w.repo, &branch, sam, &[("src/lib.rs", b"// theirs")], "Mine").unwrap();
        }
        w.settle().await;
        let expected = if what == "nothing" { RunViewStatus::Done } else { RunViewStatus::Asking };
        w.stands(expected).await;
        match what {
            "branch" => assert!(w.newest().contains("- `src/lib.rs`"), "{}", w.thread()),
            "issue" => {
                assert!(w.newest().contains("was edited after the draft was written"), "{}", w.thread())
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn disabled_gate_still_opens_when_repository_settings_are_invalid() {
    let files = vec![(".github/countersign.toml".to_owned(), b"[lld]\nmax_round = 2\n".to_vec())];
    let mut w = world_without_gate_with(Setting { files, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
}
