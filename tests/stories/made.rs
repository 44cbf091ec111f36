//! Workflows made of the document stage alone: from a label to what was countersigned, asked and unasked, halted and
//! killed on the way.

use countersign::engine::Status;

use crate::{
    resumed::answer_lost,
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

async fn with(toml: &str, script: Script) -> World {
    let (toml, script) = (toml.to_owned(), Some(script.toml()));
    World::new(Setting { as_files: true, toml, script, toys: true, ..Setting::default() }).await
}

fn sound() -> Script {
    Script::default().drafts(&design()).reviews(&approved())
}

fn filed(w: &World) -> usize {
    w.bots().into_iter().filter(|c| c.body.starts_with("Filed:")).map(|c| w.look_at(c.id)).count()
}

fn nothing_on_a_branch(w: &World) {
    assert!(w.hub.pulls(w.repo).is_empty());
    assert_eq!(w.hub.branches(w.repo).len(), 1, "{:?}", w.hub.branches(w.repo));
}

#[tokio::test]
async fn a_note_is_approved_then_reviewed_then_filed() {
    let mut w = with("", sound()).await;
    w.label("maya", "countersign:note").await;
    w.stands(Status::Asking).await;
    assert!(w.find("waits for a person, before it goes to review").body.contains("/approve text "));
    assert!(w.find("Rehearsal").body.contains(": ask\n"), "{}", w.thread());
    w.approved_by("sam").await;
    w.find("Filed:");
    assert!(w.find("note: done").body.contains("APPROVED"));
    nothing_on_a_branch(&w);
}

#[tokio::test]
async fn a_note_that_nobody_is_asked_about_is_filed_where_its_review_approves_it() {
    let mut w = with("[note]\nverdict_gate = false\n", sound()).await;
    w.label("maya", "countersign:note").await;
    w.stands(Status::Done).await;
    w.find("Filed:");
    w.find("note: done");

    let mut w = with("[note]\nverdict_gate = false\n", sound()).await;
    w.issue = w.hub.open_issue(w.repo, w.user("stranger"), "A wish", "It is done when it is done.").unwrap();
    w.label("maya", "countersign:note").await;
    w.stands(Status::Asking).await;
    assert_eq!(filed(&w), 0, "{}", w.thread());
    w.approved_by("sam").await;
    assert_eq!(filed(&w), 1, "{}", w.thread());
}

#[tokio::test]
async fn a_note_that_its_review_refuses_is_filed_by_nobody() {
    let refuses = review("BLOCKED", &[finding("No", None)], &[]);
    for toml in ["[note]\nmax_rounds = 1\n", "[note]\nmax_rounds = 1\nverdict_gate = false\n"] {
        let mut w = with(toml, Script::default().drafts(&design()).reviews(&refuses)).await;
        w.label("maya", "countersign:note").await;
        if !toml.contains("verdict_gate") {
            let line = w.approve_line();
            w.comment("sam", &line).await;
        }
        w.stands(Status::Asking).await;
        assert_eq!(filed(&w), 0, "{}", w.thread());
        for answer in ["/approve", "/override I know better"] {
            w.comment("max", answer).await;
            assert!(w.newest().contains("does not pass what waits here"), "{answer}\n{}", w.thread());
            w.stands(Status::Asking).await;
            assert_eq!(filed(&w), 0, "{answer}\n{}", w.thread());
        }
        w.comment("max", "/stop").await;
        w.stands(Status::Stopped).await;
        assert_eq!(filed(&w), 0);
    }
}

#[tokio::test]
async fn a_note_is_filed_once_however_often_the_bot_ends() {
    let mut w = with("[note]\nverdict_gate = false\n", sound()).await;
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, "countersign:note").unwrap();
    for _ in 0..60 {
        w.step(1).await;
        w = w.restart().await;
        if w.run().await.is_some_and(|run| run.status == Status::Done) {
            break;
        }
    }
    w.settle().await;
    w.stands(Status::Done).await;
    assert_eq!(filed(&w), 1, "{}", w.thread());
}

#[tokio::test]
async fn a_note_that_is_filed_when_the_run_is_stopped_is_filed() {
    let mut w = with("[note]\nverdict_gate = false\n", sound()).await;
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, "countersign:note").unwrap();
    while w.run().await.is_none_or(|run| run.step_id != "A5") {
        w.step(1).await;
    }
    w.hub.fault(answer_lost("POST", "/comments"));
    w.settle().await;
    assert_eq!((w.run().await.unwrap().status, filed(&w)), (Status::Ready, 1), "its answer was lost");
    w.comment("maya", "/stop").await;
    w.stands(Status::Done).await;
    assert_eq!(filed(&w), 1, "{}", w.thread());
    w.find("Filed:");
}

#[tokio::test]
#[ignore = "takes long"]
async fn each_stage_has_its_part_of_the_pull_request() {
    let mut w = with("", sound().reviews(&approved())).await;
    for (stage, workflow) in [("LLD", "lld"), ("pages", "pages")] {
        w.label("maya", &format!("countersign:{workflow}")).await;
        w.approved_by("sam").await;
        assert!(w.pull().body.contains(&format!("### {stage}\n")), "{}", w.pull().body);
        // Nobody else's words live there longer than to our next edit.
        let (pull, sam) = (w.hub.pulls(w.repo)[0].number, w.user("sam"));
        w.hub.edit_issue(w.repo, pull, sam, None, Some("Nothing to see here.")).unwrap();
    }
    w.label("maya", "countersign:pages").await;
    w.approved_by("sam").await;
    let body = w.pull().body;
    let at = |text: &str| body.find(text).unwrap_or_else(|| panic!("{text}: {body}"));
    assert!(at("### LLD\n") < at("### pages\n"));
    assert_eq!(body.matches("The document is accepted").count(), 2, "{body}");
    assert!(!body.contains("Nothing to see"));
    // A branch that begins anew holds nothing of what was said on the one before.
    w.git(&["update-ref", "-d", &format!("refs/heads/{}", w.branch())]);
    w.label("maya", "countersign:pages").await;
    w.stands(Status::Asking).await;
    assert!(!w.pull().body.contains("### LLD"), "{}", w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn pages_are_published_together() {
    for asks in [true, false] {
        let mut w = with(&format!("[pages]\nverdict_gate = {asks}\n"), sound()).await;
        w.label("maya", "countersign:pages").await;
        if asks {
            w.stands(Status::Asking).await;
            let line = w.approve_line();
            assert!(line.starts_with("/approve pages "), "{line}");
            w.comment("sam", &line).await;
        }
        w.stands(Status::Done).await;
        let branch = format!("countersign/issue-{}", w.issue);
        let there = |path: &str| w.hub.branch_file(w.repo, &branch, path).is_some();
        let index = format!("docs/pages/{}/index.md", w.issue);
        assert!(there(&index) && there("docs/pages/1.md") && there("docs/pages/2.md"), "{}", w.thread());
        let body = w.pull().body;
        assert!(!body.contains("1.md`"), "what is made from the text is ours:\n{body}");
    }
}

#[tokio::test]
async fn a_page_that_somebody_changed_is_named_and_kept() {
    let mut w = with("", sound()).await;
    w.label("maya", "countersign:pages").await;
    let branch = format!("countersign/issue-{}", w.issue);
    let sam = w.user("sam");
    w.hub.push_commit(w.repo, &branch, sam, &[("docs/pages/1.md", b"# Mine")], "Mine").unwrap();
    w.comment("sam", "/approve").await;
    w.stands(Status::Asking).await;
    assert!(w.newest().contains("- `docs/pages/1.md`"), "{}", w.thread());
    w.approved_by("sam").await;
    assert_eq!(w.hub.branch_file(w.repo, &branch, "docs/pages/1.md").unwrap(), b"# Mine");
}

#[tokio::test]
async fn a_halt_names_the_step_and_the_command_of_its_own_workflow() {
    let mut w = with("", Script::default().drafts("")).await;
    w.label("maya", "countersign:pages").await;
    w.stands(Status::Failed).await;
    let halt = w.find("Halted at Draft").body;
    assert!(halt.contains("/pages"), "{halt}");
}

#[tokio::test]
async fn what_is_published_unasked_is_what_was_approved_last() {
    let refuses = review("BLOCKED", &[finding("No", None)], &[]);
    let script = Script::default().drafts(&design()).reviews(&refuses).edits("The goal of", "The aim of");
    let mut w = with("[pages]\nmax_rounds = 1\nverdict_gate = false\n", script.reviews(&approved())).await;
    w.label("maya", "countersign:pages").await;
    w.stands(Status::Asking).await;
    w.comment("sam", "/revise say what is demanded").await;
    w.stands(Status::Done).await;
    let branch = format!("countersign/issue-{}", w.issue);
    let at = |path: &str| String::from_utf8(w.hub.branch_file(w.repo, &branch, path).unwrap()).unwrap();
    let index = at(&format!("docs/pages/{}/index.md", w.issue));
    assert!(index.contains("The aim of"), "{index}");
    let pages: Vec<_> = index.split("\n## ").skip(1).take(2).map(|part| format!("# {part}\n")).collect();
    assert_eq!([at("docs/pages/1.md"), at("docs/pages/2.md")].as_slice(), pages, "they are made of it");
}
