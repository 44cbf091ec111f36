//! Gates that the settings switch off: an APPROVED by another family is enough then, and nothing less.

use countersign::engine::RunViewStatus;

use crate::{
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

async fn asks_nobody() -> World {
    asks_nobody_with(Setting { as_files: true, ..Setting::default() }).await
}

async fn asks_nobody_with(setting: Setting) -> World {
    let toml = format!("[lld]\nverdict_gate = false\n{}", setting.toml);
    World::new(Setting { toml, ..setting }).await
}

#[tokio::test]
async fn an_approved_design_is_published_and_nobody_is_asked() {
    let mut w = asks_nobody().await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Done).await;
    let status = w.find("Rehearsal").body;
    assert!(status.contains("lld: done"), "{status}");
    assert_eq!(w.notifying(), 1, "the status comment alone:\n{}", w.thread());
    let body = w.pull().body;
    assert!(
        body.contains("| Decision | the reviewer's APPROVED is enough by the settings; nobody was asked |"),
        "{body}"
    );
    let log = w.hub.log(w.repo, &format!("countersign/issue-{}", w.issue));
    let messages: Vec<_> = log.iter().take(2).map(|commit| commit.message.clone()).collect();
    assert!(messages[0].contains("Accepted by its review alone"), "{messages:?}");
    assert!(messages[1].starts_with("docs: propose LLD"), "{messages:?}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_was_not_approved_is_for_a_person() {
    for verdict in ["REVISE", "BLOCKED"] {
        let script =
            Script::default().drafts(&design()).reviews(&review(verdict, &[finding("No", None)], &[]));
        let toml = "max_rounds = 1\n".to_owned();
        let setting = Setting { script: Some(script.toml()), toml, ..Setting::default() };
        let mut w = asks_nobody_with(setting).await;
        w.label("maya", "countersign:lld").await;
        w.stands(RunViewStatus::Asking).await;
        w.find("Rehearsal");
        let gate = w.find("waits for a person").body;
        assert!(gate.contains(verdict) && gate.contains("/override"), "{gate}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_verdict_is_for_a_person() {
    let script = Script::default().drafts(&design()).reviews_as_text("APPROVED");
    let mut w = asks_nobody_with(Setting { script: Some(script.toml()), ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.find("Rehearsal");
    assert!(w.find("waits for a person").body.contains("INCONCLUSIVE"), "{}", w.thread());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn an_issue_of_somebody_who_may_not_write_is_asked_about() {
    // Opened, its text edited, its title edited; the last of each counts, and so does who opened it.
    for (opens, text, title, asked) in [
        ("stranger", None, None, Some("stranger")),
        ("stranger", Some("maya"), Some("maya"), Some("stranger")),
        ("maya", Some("tess"), None, Some("tess")),
        ("maya", None, Some("tess"), Some("tess")),
        ("maya", Some("sam"), Some("max"), None),
    ] {
        let mut w = asks_nobody().await;
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
        let Some(asked) = asked else {
            w.stands(RunViewStatus::Done).await;
            continue;
        };
        w.stands(RunViewStatus::Asking).await;
        let gate = w.find("waits for a person").body;
        assert!(gate.contains(&format!("written or edited by `{asked}`, who may not write")), "{gate}");
        w.approved_by("sam").await;
        assert!(w.pull().body.contains("approved by sam"), "{}", w.pull().body);
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_others_have_on_the_branch_is_asked_about() {
    let mut w = asks_nobody().await;
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
async fn a_repository_may_ask_where_the_server_does_not_and_never_the_other_way() {
    let files = |text: &str| vec![(".github/countersign.toml".to_owned(), text.as_bytes().to_vec())];
    let script = || Some(Script::default().drafts(&design()).reviews(&approved()).toml());
    let setting =
        Setting { script: script(), files: files("[lld]\nverdict_gate = true\n"), ..Setting::default() };
    let mut w = asks_nobody_with(setting).await;
    w.comes_to_the_gate().await;
    let gate = w.find("waits for a person").body;
    assert!(!gate.contains("The settings ask nobody"), "{gate}");

    let loosens = files("[lld]\nverdict_gate = false\n");
    let mut w = World::new(Setting { script: script(), files: loosens, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    assert!(w.find("Rehearsal").body.contains("would take away a gate"), "{}", w.thread());
}

/// A design in form for the usual world, and not the script's.
async fn theirs() -> Vec<u8> {
    let mut w = asks_nobody().await;
    w.label("maya", "countersign:lld").await;
    let path = format!("docs/lld/LLD-{}.md", w.issue);
    w.stands(RunViewStatus::Done).await;
    let ours = w.hub.branch_file(w.repo, &format!("countersign/issue-{}", w.issue), &path).unwrap();
    String::from_utf8(ours).unwrap().replace("**This is a rehearsal.**", "**This is mine.**").into_bytes()
}

#[tokio::test]
#[ignore = "takes long"]
async fn ours_never_takes_the_place_of_a_persons_version_that_was_refused() {
    let refuses = review("REVISE", &[finding("No", None)], &[]);
    let script = Script::default().drafts(&design()).reviews(&approved()).reviews(&refuses).toml();
    let toml = "max_rounds = 1\n".to_owned();
    let mut w =
        asks_nobody_with(Setting { as_files: true, script: Some(script), toml, ..Setting::default() }).await;
    let (branch, path) = (format!("countersign/issue-{}", w.issue), format!("docs/lld/LLD-{}.md", w.issue));
    let (sam, mine) = (w.user("sam"), theirs().await);
    w.hub.push_commit(w.repo, &branch, sam, &[(&path, &mine)], "Mine").unwrap();
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.find("waits for a person").body.contains("REVISE"), "{}", w.thread());
    assert_eq!(w.hub.branch_file(w.repo, &branch, &path).unwrap(), mine);
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_changed_since_the_draft_was_agreed_to_is_asked_about() {
    let toml = || "draft_gate = true\n".to_owned();
    let script = || Some(Script::default().drafts(&design()).reviews(&approved()).toml());
    for what in ["nothing", "branch", "issue"] {
        let as_files = what == "branch";
        let setting = Setting { as_files, script: script(), toml: toml(), ..Setting::default() };
        let mut w = asks_nobody_with(setting).await;
        w.label("maya", "countersign:lld").await;
        let line = w.approve_line();
        let (maya, sam) = (w.user("maya"), w.user("sam"));
        let branch = format!("countersign/issue-{}", w.issue);
        if what == "issue" {
            w.hub.edit_issue(w.repo, w.issue, maya, Some("Quite another title"), None).unwrap();
        }
        let user = w.user("sam");
        w.hub.comment(w.repo, w.issue, user, &line).unwrap();
        // The answer is heard, and then somebody pushes before the review is.
        while w.run().await.is_none_or(|run| run.step_id == "N2") {
            w.pass(60);
            w.step(1).await;
        }
        if what == "branch" {
            w.hub.push_commit(w.repo, &branch, sam, &[("src/lib.rs", b"// theirs")], "Mine").unwrap();
        }
        w.settle().await;
        let asked = if what == "nothing" { RunViewStatus::Done } else { RunViewStatus::Asking };
        w.stands(asked).await;
        match what {
            "branch" => assert!(w.newest().contains("- `src/lib.rs`"), "{}", w.thread()),
            "issue" => assert!(w.newest().contains("was edited since this was drafted"), "{}", w.thread()),
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_repositorys_file_that_cannot_be_read_switches_no_gate_off() {
    let files = vec![(".github/countersign.toml".to_owned(), b"[lld]\nmax_round = 2\n".to_vec())];
    let mut w = asks_nobody_with(Setting { files, ..Setting::default() }).await;
    w.comes_to_the_gate().await;
}
