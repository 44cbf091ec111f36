//! Stories with toy workflows that use only the document stage: publication with and without gates, halts, and edited
//! pages.

use countersign::engine::RunViewStatus;

use crate::{
    script::{Script, approved, design, finding, review},
    world::{Setting, World},
};

async fn toy_world(toml: &str, script: Script) -> World {
    let (toml, script) = (toml.to_owned(), Some(script.toml()));
    World::new(Setting { as_files: true, toml, script, toys: true, ..Setting::default() }).await
}

fn sound_script() -> Script {
    Script::default().drafts(&design()).reviews(&approved())
}

#[tokio::test]
#[ignore = "takes long"]
async fn pull_request_has_one_section_per_stage() {
    let mut w = toy_world("", sound_script().reviews(&approved())).await;
    for (stage, workflow) in [("Design", "lld"), ("Pages", "Pages")] {
        w.label("maya", &format!("countersign:{workflow}")).await;
        w.approved_by("sam").await;
        assert!(w.pull().body.contains(&format!("### {stage}\n")), "{}", w.pull().body);
        // The bot's next edit overwrites what others write there.
        let (pull, sam) = (w.hub.pulls(w.repo)[0].number, w.user("sam"));
        w.hub.edit_issue(w.repo, pull, sam, None, Some("Nothing to see here.")).unwrap();
    }
    w.label("maya", "countersign:pages").await;
    w.approved_by("sam").await;
    let body = w.pull().body;
    let at = |text: &str| body.find(text).unwrap_or_else(|| panic!("{text}: {body}"));
    assert!(at("### Design\n") < at("### Pages\n"));
    assert_eq!(body.matches("The document is accepted").count(), 2, "{body}");
    assert!(!body.contains("Nothing to see"));
    // A new branch starts without the sections of the deleted one.
    w.git(&["update-ref", "-d", &format!("refs/heads/{}", w.branch())]);
    w.label("maya", "countersign:pages").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(!w.pull().body.contains("### Design"), "{}", w.pull().body);
}

#[tokio::test]
#[ignore = "takes long"]
async fn pages_workflow_publishes_index_and_pages_together() {
    for asks in [true, false] {
        let mut w = toy_world(&format!("[pages]\nverdict_gate = {asks}\n"), sound_script()).await;
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
        assert!(!body.contains("1.md`"), "derived pages are not listed as foreign files:\n{body}");
    }
}

#[tokio::test]
async fn page_changed_by_a_person_is_listed_and_kept_at_approval() {
    let mut w = toy_world("", sound_script()).await;
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
async fn halt_comment_names_the_step_and_the_command_of_the_workflow() {
    let mut w = toy_world("", Script::default().drafts("")).await;
    w.label("maya", "countersign:pages").await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.find("Halted at Draft").body;
    assert!(halt.contains("/pages"), "{halt}");
}

#[tokio::test]
async fn run_without_a_gate_publishes_the_last_approved_version() {
    let refuses = review("BLOCKED", &[finding("No", None)], &[]);
    let script = Script::default().drafts(&design()).reviews(&refuses).edits("The goal of", "The aim of");
    let mut w =
        toy_world("[pages]\nmax_rounds = 1\nverdict_gate = false\n", script.reviews(&approved())).await;
    w.label("maya", "countersign:pages").await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/revise say what is demanded").await;
    w.stands(RunViewStatus::Done).await;
    let branch = format!("countersign/issue-{}", w.issue);
    let at = |path: &str| String::from_utf8(w.hub.branch_file(w.repo, &branch, path).unwrap()).unwrap();
    let index = at(&format!("docs/pages/{}/index.md", w.issue));
    assert!(index.contains("The aim of"), "{index}");
    let pages: Vec<_> = index.split("\n## ").skip(1).take(2).map(|part| format!("# {part}\n")).collect();
    assert_eq!(
        [at("docs/pages/1.md"), at("docs/pages/2.md")].as_slice(),
        pages,
        "the pages are derived from the approved text"
    );
}
