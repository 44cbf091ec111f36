//! Stories about the spec workflow: from an approved design to its implementation spec, and on to the code.

use countersign::{engine::RunViewStatus, types::Hash};

use crate::{
    script::{Script, approved, design, finding, rehearsed, review, small},
    world::{Setting, World, world},
};

const LABEL: &str = "countersign:spec";

/// Creates a test environment with an approved design.
async fn world_with_design(setting: Setting) -> World {
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w
}

/// Returns a script whose design adds `files` new files.
fn script_adding_files(files: usize) -> String {
    let rows: String = (0..files).map(|n| format!("| `src/new_{n}.rs` | Add | x |\n")).collect();
    let design = design().replacen("beside it |\n", &format!("beside it |\n{rows}"), 1);
    Script::default().drafts(&design).reviews(&approved()).toml()
}

async fn scripted(toml: &str, spec: impl Fn(Script) -> Script) -> World {
    let script = spec(Script::default().drafts(&design()).reviews(&approved()));
    world_with_design(Setting {
        as_files: true,
        script: Some(script.toml()),
        toml: toml.to_owned(),
        ..Setting::default()
    })
    .await
}

impl World {
    fn file(&self, path: &str) -> String {
        let bytes = self.hub.branch_file(self.repo, &self.branch(), path);
        String::from_utf8(bytes.unwrap_or_else(|| panic!("no {path}:\n{}", self.thread()))).unwrap()
    }

    /// Asserts that the halt comment gives this reason.
    #[track_caller]
    fn assert_halt_says(&self, why: &str) {
        let halt = self.last("Halted at");
        assert!(halt.body.replace('\\', "").contains(why), "{}", halt.body);
    }

    async fn assert_spec_refused(&mut self, why: &str) {
        self.label("maya", LABEL).await;
        self.stands(RunViewStatus::Failed).await;
        self.assert_halt_says(why);
        assert_eq!(self.calls().await.len(), 0, "{}", self.thread());
    }
}

#[tokio::test]
async fn spec_is_added_to_branch_and_pull_request_of_its_approved_design() {
    let mut w = world_with_design(Setting { as_files: true, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let accepted = |stage: &str| format!("docs: accept {stage} for #1");
    let proposed = |stage: &str| format!("docs: propose {stage} for #1");
    let commits = [accepted("spec"), proposed("spec"), accepted("design"), proposed("design")];
    assert_eq!(w.commits(), [&commits[..], &["Initial commit".to_owned()]].concat());
    let spec = w.file("docs/spec/SPEC-1.md");
    assert!(spec.starts_with("# 1 - Implementation: Report time by week"), "{spec}");
    assert!(spec.contains("```text\n//! Adds up the hours in a plain-text time sheet.\n```"), "{spec}");
    assert!(w.file("docs/spec/SPEC-1.review.md").contains("APPROVED"));
    assert_eq!(w.pulls().len(), 1);
    let pull = w.pull();
    assert_eq!(pull.title, "Spec for #1: Report time by week as well as by project");
    let (design, spec_part) = pull.body.split_once("### Spec\n").unwrap();
    assert!(design.contains("approved by sam"), "{design}");
    assert!(spec_part.contains(&format!("| sha256 | `{}` |", Hash::digest(spec.as_bytes()))), "{spec_part}");
    assert!(spec_part.contains("accepted after the reviewer's verdict APPROVED"), "{spec_part}");
    assert_eq!(w.notifying(), 2, "the spec sends no mail:\n{}", w.thread());
    let status = w.plain(&w.status().body);
    let pull = "([result](HUB/maya/tally/pull/2))";
    let lines = [
        format!("\n- ✅ **Design**: approved by sam, 2 rounds {pull}\n"),
        format!("\n- ✅ **Spec**: approved by the reviewer, 2 rounds {pull}\n"),
    ];
    assert!(status.contains(&lines.concat().replace("\n\n", "\n")), "{status}");
}

#[tokio::test]
async fn spec_run_without_an_approved_design_halts_before_any_model_call() {
    let mut w = world().await;
    w.comment("maya", "/spec").await;
    w.stands(RunViewStatus::Failed).await;
    w.assert_halt_says("The approved design is missing. Write `/lld` first");
    assert!(w.hub.pulls(w.repo).is_empty() && w.calls().await.is_empty());
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_run_refuses_a_design_changed_after_its_approval() {
    let mut w = world_with_design(Setting { as_files: true, ..Setting::default() }).await;
    let (branch, sam, path) = (w.branch(), w.user("sam"), "docs/lld/LLD-1.md");
    let approved = w.file(path);
    let changed = approved.replace("**This is a rehearsal.**", "**This is mine.**");
    w.hub.push_commit(w.repo, &branch, sam, &[(path, changed.as_bytes())], "Mine").unwrap();
    let why =
        format!("The approved design is not on `{branch}` as approved: `{path}` was changed or removed");
    w.assert_spec_refused(&why).await;
    w.hub.push_commit(w.repo, &branch, sam, &[(path, approved.as_bytes())], "As it was").unwrap();
    w.pass(60);
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_run_reads_the_default_branch_when_the_design_branch_is_gone() {
    let mut w = world_with_design(Setting { as_files: true, ..Setting::default() }).await;
    let (path, maya) = ("docs/lld/LLD-1.md", w.user("maya"));
    let approved = w.file(path);
    w.git(&["update-ref", "-d", &format!("refs/heads/{}", w.branch())]);
    w.comment("maya", "/spec").await;
    assert_eq!(w.run_status().await, RunViewStatus::Failed);
    w.assert_halt_says("The approved design is not on `main` as approved");
    w.status();
    w.labels();
    w.checks();
    w.hub.push_commit(w.repo, "main", maya, &[(path, approved.as_bytes())], "Merged").unwrap();
    w.comment("maya", "/spec").await;
    assert_eq!(w.run_status().await, RunViewStatus::Done, "{}", w.thread());
    assert!(w.file("docs/spec/SPEC-1.md").starts_with("# 1 - Implementation"));
    w.status();
    w.labels();
    w.checks();
    w.commits();
    w.pull();
}

/// After a pull request is closed, no more work is done on it. The result of a spec requested later must still be
/// visible, so a new pull request is opened.
#[tokio::test]
#[ignore = "takes long"]
async fn spec_run_opens_a_new_pull_request_when_the_old_one_is_closed() {
    let mut w = world_with_design(Setting { as_files: true, ..Setting::default() }).await;
    let (first, maya) = (w.pull_number(), w.user("maya"));
    w.hub.close_issue(w.repo, first, maya).unwrap();
    w.settle().await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let states: Vec<String> = w.hub.pulls(w.repo).into_iter().map(|pull| pull.state).collect();
    assert_eq!(states, ["closed", "open"]);
    assert!(w.file("docs/spec/SPEC-1.md").starts_with("# 1 - Implementation"));
    let body = w.pull_at(1).body;
    assert!(body.contains("### Spec") && body.contains("approved by sam"), "{body}");
    w.pull_at(0);
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_run_refuses_a_design_that_no_longer_fits_the_code() {
    let mut w =
        world_with_design(Setting { script: Some(script_adding_files(1)), ..Setting::default() }).await;
    let maya = w.user("maya");
    w.hub.push_commit(w.repo, "main", maya, &[("src/new_0.rs", b"// theirs")], "Faster").unwrap();
    w.assert_spec_refused("The approved design no longer fits the code: `src/new_0.rs` exists already").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_run_refuses_a_design_with_too_many_files() {
    let mut w =
        world_with_design(Setting { script: Some(script_adding_files(70)), ..Setting::default() }).await;
    w.assert_spec_refused("The approved design changes 71 files, but a spec may change at most 60.").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_that_does_not_quote_the_code_to_change_is_sent_back_before_review() {
    let excerpt = "```text\n{{line}}\n```";
    let bare = rehearsed("spec").replace(excerpt, "As it is today.");
    let script = |script: Script| {
        let script = script.drafts(&bare).of("spec");
        let made_up = script.edits("As it is today.", "```text\nfn made_up() {}\n```").of("spec");
        let mended = "```text\n//! Adds up the hours in a plain-text time sheet.\n```";
        made_up.edits("```text\nfn made_up() {}\n```", mended).of("spec").reviews(&approved()).of("spec")
    };
    let mut w = scripted("", script).await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(roles, ["drafter", "drafter", "drafter", "reviewer"]);
    assert!(w.file("docs/spec/SPEC-1.md").contains("//! Adds up the hours"));
}

/// Without this check, the code run would refuse the approved spec.
#[tokio::test]
async fn spec_with_a_test_where_the_runner_finds_none_is_sent_back_before_review() {
    let ([design, spec, ..], files) = small();
    let add_file = |text: &str| {
        let row = "| `tests/new.rs` | Add | The";
        let text = text.replace(row, &format!("| `src/more.rs` | Add | x |\n{row}"));
        text.replace("### tests/new.rs", "### src/more.rs\n\nAnother.\n\n### tests/new.rs")
    };
    let (right, wrong) = ("_largest | `tests/new.rs` |", "_largest | `src/more.rs` |");
    let script = Script::default().drafts(&add_file(&design)).reviews(&approved());
    let script = script.drafts(&add_file(&spec).replace(right, wrong)).of("spec");
    let script = script.edits(wrong, right).of("spec").reviews(&approved()).of("spec").toml();
    let mut w = World::new(Setting { script: Some(script), files, bare: true, ..Setting::default() }).await;
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(roles, ["drafter", "drafter", "reviewer"], "{}", w.thread());
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_rejected_at_the_round_cap_waits_for_a_human_decision() {
    let refuses = review("REVISE", &[finding("No", None)], &[]);
    let mut w = scripted("[spec]\nmax_rounds = 1\n", |script| {
        let script = script.drafts(&rehearsed("spec")).of("spec").reviews(&refuses).of("spec");
        let script = script.edits("## Overview", "## Overview\n\nSaid better.").of("spec");
        script.reviews(&review("APPROVED", &[], &["F1"])).of("spec")
    })
    .await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("REVISE: the spec waits for a person") && !gate.contains("/override"), "{gate}");
    for answer in ["/approve", "/override I know better"] {
        w.comment("max", answer).await;
        assert!(w.newest().contains("does not work at this gate"), "{answer}\n{}", w.thread());
        w.stands(RunViewStatus::Asking).await;
    }
    assert!(w.commits()[0].starts_with("docs: propose spec"));
    w.comment("sam", "/revise say it better").await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.file("docs/spec/SPEC-1.md").contains("Said better."));
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_draft_gate_asks_for_approval_before_each_review() {
    let mut w = world_with_design(Setting {
        as_files: true,
        toml: "[spec]\ndraft_gate = true\n".to_owned(),
        ..Setting::default()
    })
    .await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate();
    assert!(gate.contains("before it goes to review") && gate.contains("\n/approve spec "), "{gate}");
    assert!(gate.contains("- Modify `src/lib.rs`") && gate.contains("Tests: 3."), "{gate}");
    w.comment("sam", "/revise say more").await;
    w.stands(RunViewStatus::Asking).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    // The review had findings, so the next draft waits at the gate too.
    w.stands(RunViewStatus::Asking).await;
    w.approved_by("sam").await;
    assert!(
        w.pull().body.split("### Spec\n").nth(1).unwrap().contains("approved by sam"),
        "{}",
        w.pull().body
    );
}

#[tokio::test]
async fn spec_rejected_in_review_after_draft_approval_is_not_shown_as_accepted() {
    let refuses = review("REVISE", &[finding("No", None)], &[]);
    let mut w = scripted("[spec]\ndraft_gate = true\nmax_rounds = 1\n", |script| {
        script.drafts(&rehearsed("spec")).of("spec").reviews(&refuses).of("spec")
    })
    .await;
    w.label("maya", LABEL).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("REVISE: the spec waits for a person"), "{}", w.gate());
    let body = w.pull().body;
    let section = body.split("### Spec\n").nth(1).unwrap();
    assert!(section.contains("People accept or reject it on #1."), "{section}");
    assert!(!section.contains("approved by") && !section.contains("Approved hash"), "{section}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_run_finishes_without_a_gate_when_the_reviewer_accepts_a_rebuttal() {
    let refuses = review("REVISE", &[finding("No", None)], &[]);
    let mut w = scripted("", |script| {
        let script = script.drafts(&rehearsed("spec")).of("spec").reviews(&refuses).of("spec");
        script
            .rebuts("F1", "section 4 says so")
            .of("spec")
            .reviews(&review("APPROVED", &[], &["F1"]))
            .of("spec")
    })
    .await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(roles, ["drafter", "reviewer", "drafter", "reviewer"]);
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_for_an_issue_by_an_outsider_needs_approval_but_no_second_review() {
    let mut w = World::new(Setting {
        script: Some(
            Script::default()
                .drafts(&design())
                .reviews(&approved())
                .drafts(&rehearsed("spec"))
                .of("spec")
                .reviews(&approved())
                .of("spec")
                .toml(),
        ),
        ..Setting::default()
    })
    .await;
    let body = "Read the settings from a file. It is done when the tests show it.";
    w.issue = w.hub.open_issue(w.repo, w.user("stranger"), "Settings", body).unwrap();
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("written or edited by `stranger`, who has no write access"), "{}", w.gate());
    w.approved_by("sam").await;
    assert_eq!(w.calls().await.len(), 2, "one draft and one review:\n{}", w.thread());
}

#[tokio::test]
async fn auto_label_starts_spec_and_code_after_the_design() {
    // The code run halts because nothing can be built; this test only checks that it started.
    let files = vec![("Cargo.toml".to_owned(), b"[package]\n".to_vec())];
    let mut w = World::new(Setting { files, ..Setting::default() }).await;
    w.label("maya", "countersign:auto").await;
    w.stands(RunViewStatus::Asking).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.assert_code_started().await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn hotfix_skips_design_and_spec_gates_and_records_the_waiver() {
    let files = vec![("Cargo.toml".to_owned(), b"[package]\n".to_vec())];
    let mut w = World::new(Setting { as_files: true, files, ..Setting::default() }).await;
    w.comment("sam", "/hotfix the shop is down").await;
    assert!(w.run().await.is_none(), "/hotfix takes the maintain role");
    w.comment("maya", "/hotfix the *shop* is down").await;
    w.assert_code_started().await;
    let expected = "**hotfix**: accepted after the reviewer's verdict APPROVED; maya waived human approval: the \\*shop\\* is down";
    assert_eq!(w.pull().body.matches(expected).count(), 2, "{}", w.pull().body);
    let status = w.status().body;
    assert!(
        status
            .contains("Hotfix, requested by maya: the \\*shop\\* is down. Design and spec need no approval"),
        "{status}"
    );
}

impl World {
    async fn workflows(&self) -> Vec<String> {
        let mut runs = self.runs().await;
        runs.sort_by_key(|run| run.id);
        runs.iter().map(|run| format!("{} {}", run.workflow, run.status)).collect()
    }

    /// Asserts that the design and the spec are done, and that the run for the code started. That run halts because the
    /// repository cannot be built.
    async fn assert_code_started(&mut self) {
        let w = self;
        w.tried().await;
        assert_eq!(w.workflows().await, ["lld done", "spec done", "implement failed"]);
        assert!(w.runs().await.iter().all(|run| run.started_by.login == "maya"));
        w.stands(RunViewStatus::Failed).await;
        let states = ["working", "needs-you", "done", "stopped"].map(|state| format!("countersign:{state}"));
        let moves = w.view().timeline.into_iter().filter(|event| {
            event.event.ends_with("labeled")
                && event.detail.as_ref().is_some_and(|label| states.contains(label))
        });
        let moves: Vec<_> = moves.map(|event| (event.event, event.detail)).collect();
        assert!(moves.len() <= 4, "{moves:?}");
        w.last("Halted at Run the existing tests");
        w.commits();
    }
}

#[tokio::test]
async fn auto_label_starts_no_spec_run_after_the_design_run_is_stopped() {
    let mut w = world().await;
    w.label("maya", "countersign:auto").await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.run().await.unwrap().workflow, "lld");
}

/// `/implement` on an approved design must first run the whole spec workflow. The code must then follow without another
/// command.
#[tokio::test]
#[ignore = "takes long"]
async fn implement_run_that_starts_from_a_design_writes_the_spec_first() {
    let files = vec![("Cargo.toml".to_owned(), b"[package]\n".to_vec())];
    let toml = "[implement]\nfrom = \"lld\"\n".to_owned();
    let mut w = world_with_design(Setting { files, toml, ..Setting::default() }).await;
    w.comment("tess", "/implement").await;
    assert_eq!(w.run().await.unwrap().workflow, "lld", "/implement takes the write role");
    w.comment("sam", "/implement").await;
    w.tried().await;
    assert_eq!(w.workflows().await, ["lld done", "implement done", "spec done", "implement failed"]);
    w.stands(RunViewStatus::Failed).await;
    w.last("Halted at Run the existing tests");
    // An existing spec is built at once, until the design changes.
    w.pass(60);
    w.comment("sam", "/implement").await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    assert_eq!(w.workflows().await.len(), 5, "{:?}", w.workflows().await);
    w.last("Halted at Run the existing tests");
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", "countersign:implement").await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    w.last("Halted at Run the existing tests");
    let all = w.workflows().await;
    assert_eq!(all[5..], ["lld done", "implement done", "spec done", "implement failed"], "{all:?}");
    w.commits();
}

#[tokio::test]
async fn halt_comment_of_an_implement_run_from_a_design_names_the_next_command() {
    let toml = "[implement]\nfrom = \"lld\"\n[spec]\ndraft_gate = true\nexpire_days = 1\n".to_owned();
    let mut w = World::new(Setting { toml: toml.clone(), ..Setting::default() }).await;
    w.comment("sam", "/implement").await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("The approved design is missing").body;
    assert!(halt.contains("/lld") && !halt.contains("/spec"), "{halt}");

    let mut w = world_with_design(Setting { toml, ..Setting::default() }).await;
    w.comment("sam", "/implement").await;
    w.stands(RunViewStatus::Asking).await;
    w.clock.pass(std::time::Duration::from_secs(2 * 24 * 3600));
    w.settle().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body;
    assert!(halt.contains("\n/implement\n") && !halt.contains("\n/spec\n"), "{halt}");
    w.gate();
    w.checks();
    w.commits();
}

#[tokio::test]
async fn auto_command_reports_that_an_active_spec_run_blocks_the_next_workflow() {
    let toml = "[spec]\ndraft_gate = true\n".to_owned();
    let mut w = world_with_design(Setting { toml, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("maya", "/auto").await;
    assert_eq!(w.workflows().await, ["lld done", "spec asking", "lld asking"]);
    let line = w.last("/approve lld ").body;
    let line = line.lines().find(|line| line.starts_with("/approve lld ")).unwrap().to_owned();
    w.comment("sam", &line).await;
    let status = w.last("lld: done").body;
    assert!(
        status.contains("This run ends here, because another spec run is active on this issue"),
        "{status}"
    );
    assert_eq!(w.workflows().await, ["lld done", "spec asking", "lld done"]);
    w.last("the design was accepted");
    w.checks();
    w.commits();
}
