//! Workflows made of the document stage alone: from a label to what was countersigned, asked and unasked, halted and
//! killed on the way.

use countersign::engine::RunViewStatus;

use crate::{
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
    w.stands(RunViewStatus::Asking).await;
    assert!(!w.pull().body.contains("### LLD"), "{}", w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn pages_are_published_together() {
    for asks in [true, false] {
        let mut w = with(&format!("[pages]\nverdict_gate = {asks}\n"), sound()).await;
        w.label("maya", "countersign:pages").await;
        if asks {
            w.stands(RunViewStatus::Asking).await;
            let line = w.approve_line();
            assert!(line.starts_with("/approve pages "), "{line}");
            w.comment("sam", &line).await;
        }
        w.stands(RunViewStatus::Done).await;
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
    w.stands(RunViewStatus::Asking).await;
    assert!(w.newest().contains("- `docs/pages/1.md`"), "{}", w.thread());
    w.approved_by("sam").await;
    assert_eq!(w.hub.branch_file(w.repo, &branch, "docs/pages/1.md").unwrap(), b"# Mine");
}

#[tokio::test]
async fn a_halt_names_the_step_and_the_command_of_its_own_workflow() {
    let mut w = with("", Script::default().drafts("")).await;
    w.label("maya", "countersign:pages").await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.find("Halted at Draft").body;
    assert!(halt.contains("/pages"), "{halt}");
}

#[tokio::test]
async fn what_is_published_unasked_is_what_was_approved_last() {
    let refuses = review("BLOCKED", &[finding("No", None)], &[]);
    let script = Script::default().drafts(&design()).reviews(&refuses).edits("The goal of", "The aim of");
    let mut w = with("[pages]\nmax_rounds = 1\nverdict_gate = false\n", script.reviews(&approved())).await;
    w.label("maya", "countersign:pages").await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/revise say what is demanded").await;
    w.stands(RunViewStatus::Done).await;
    let branch = format!("countersign/issue-{}", w.issue);
    let at = |path: &str| String::from_utf8(w.hub.branch_file(w.repo, &branch, path).unwrap()).unwrap();
    let index = at(&format!("docs/pages/{}/index.md", w.issue));
    assert!(index.contains("The aim of"), "{index}");
    let pages: Vec<_> = index.split("\n## ").skip(1).take(2).map(|part| format!("# {part}\n")).collect();
    assert_eq!([at("docs/pages/1.md"), at("docs/pages/2.md")].as_slice(), pages, "they are made of it");
}
