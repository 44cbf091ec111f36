//! From an approved design to its implementation spec, told as people see it.

use countersign::{engine::RunViewStatus, types::Hash};

use crate::{
    script::{Script, approved, design, finding, rehearsed, review},
    world::{Setting, World, world},
};

const LABEL: &str = "countersign:spec";

/// A world in which the design was approved.
async fn designed(setting: Setting) -> World {
    let mut w = World::new(setting).await;
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w
}

/// A script whose design adds so many files.
fn adding(files: usize) -> String {
    let rows: String = (0..files).map(|n| format!("| `src/new_{n}.rs` | Add | x |\n")).collect();
    let design = design().replacen("beside it |\n", &format!("beside it |\n{rows}"), 1);
    Script::default().drafts(&design).reviews(&approved()).toml()
}

async fn scripted(toml: &str, spec: impl Fn(Script) -> Script) -> World {
    let script = spec(Script::default().drafts(&design()).reviews(&approved()));
    designed(Setting {
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

    /// It ended before anything was paid for, and says why.
    #[track_caller]
    fn says_and_spent_nothing(&self, why: &str) {
        let halt = self.last("Halted at");
        assert!(halt.body.replace('\\', "").contains(why), "{}", halt.body);
    }

    async fn spec_is_refused(&mut self, why: &str) {
        self.label("maya", LABEL).await;
        self.stands(RunViewStatus::Failed).await;
        self.says_and_spent_nothing(why);
        assert_eq!(self.calls().await.len(), 0, "{}", self.thread());
    }
}

#[tokio::test]
async fn an_approved_design_becomes_a_spec_on_its_branch_and_in_its_pull_request() {
    let mut w = designed(Setting { as_files: true, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let accepted = |stage: &str| format!("docs: accept {stage} for #1");
    let proposed = |stage: &str| format!("docs: propose {stage} for #1");
    let commits = [accepted("spec"), proposed("spec"), accepted("LLD"), proposed("LLD")];
    assert_eq!(w.commits(), [&commits[..], &["Initial commit".to_owned()]].concat());
    let spec = w.file("docs/spec/SPEC-1.md");
    assert!(spec.starts_with("# 1 - Implementation: Report time by week"), "{spec}");
    assert!(spec.contains("```text\n//! Adds up the hours in a plain-text time sheet.\n```"), "{spec}");
    assert!(w.file("docs/spec/SPEC-1.review.md").contains("APPROVED"));
    assert_eq!(w.pulls().len(), 1);
    let pull = w.pull();
    assert_eq!(pull.title, "spec for #1: Report time by week as well as by project");
    let (design, spec_part) = pull.body.split_once("### spec\n").unwrap();
    assert!(design.contains("approved by sam"), "{design}");
    assert!(spec_part.contains(&format!("| sha256 | `{}` |", Hash::digest(spec.as_bytes()))), "{spec_part}");
    assert!(spec_part.contains("the reviewer's APPROVED is enough by the settings"), "{spec_part}");
    assert_eq!(w.notifying(), 2, "the spec costs its readers no mail:\n{}", w.thread());
    let status = w.plain(&w.status().body);
    let pull = "([result](HUB/maya/tally/pull/2))";
    let lines = [
        format!("\n- ✅ **LLD**: approved by sam, 2 rounds {pull}\n"),
        format!("\n- ✅ **Spec**: approved by its review, 2 rounds {pull}\n"),
    ];
    assert!(status.contains(&lines.concat().replace("\n\n", "\n")), "{status}");
}

#[tokio::test]
async fn without_an_approved_design_there_is_nothing_to_begin_with() {
    let mut w = world().await;
    w.comment("maya", "/spec").await;
    w.stands(RunViewStatus::Failed).await;
    w.says_and_spent_nothing(
        "The approved design is missing, and there is nothing to begin with. Write `/lld` first",
    );
    assert!(w.hub.pulls(w.repo).is_empty() && w.calls().await.is_empty());
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_design_that_somebody_changed_since_is_not_built_on() {
    let mut w = designed(Setting { as_files: true, ..Setting::default() }).await;
    let (branch, sam, path) = (w.branch(), w.user("sam"), "docs/lld/LLD-1.md");
    let approved = w.file(path);
    let theirs = approved.replace("**This is a rehearsal.**", "**This is mine.**");
    w.hub.push_commit(w.repo, &branch, sam, &[(path, theirs.as_bytes())], "Mine").unwrap();
    let why = format!(
        "The approved design is not on `{branch}` as it was approved: `{path}` was changed or removed"
    );
    w.spec_is_refused(&why).await;
    w.hub.push_commit(w.repo, &branch, sam, &[(path, approved.as_bytes())], "As it was").unwrap();
    w.pass(60);
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn once_the_branch_is_gone_the_default_branch_counts() {
    let mut w = designed(Setting { as_files: true, ..Setting::default() }).await;
    let (path, maya) = ("docs/lld/LLD-1.md", w.user("maya"));
    let approved = w.file(path);
    w.git(&["update-ref", "-d", &format!("refs/heads/{}", w.branch())]);
    w.comment("maya", "/spec").await;
    assert_eq!(w.run_status().await, RunViewStatus::Failed);
    w.says_and_spent_nothing("The approved design is not on `main` as it was approved");
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

/// Who closes it ends the work that waits there. Who then asks for a spec wants it all the same, and to see it somewhere.
#[tokio::test]
#[ignore = "takes long"]
async fn a_spec_that_is_asked_for_after_the_pull_request_was_closed_opens_another() {
    let mut w = designed(Setting { as_files: true, ..Setting::default() }).await;
    let (first, maya) = (w.pull_number(), w.user("maya"));
    w.hub.close_issue(w.repo, first, maya).unwrap();
    w.settle().await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Done).await;
    let states: Vec<String> = w.hub.pulls(w.repo).into_iter().map(|pull| pull.state).collect();
    assert_eq!(states, ["closed", "open"]);
    assert!(w.file("docs/spec/SPEC-1.md").starts_with("# 1 - Implementation"));
    let body = w.pull_at(1).body;
    assert!(body.contains("### spec") && body.contains("approved by sam"), "{body}");
    w.pull_at(0);
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_design_that_does_not_fit_the_code_any_more_is_for_people() {
    let mut w = designed(Setting { script: Some(adding(1)), ..Setting::default() }).await;
    let maya = w.user("maya");
    w.hub.push_commit(w.repo, "main", maya, &[("src/new_0.rs", b"// theirs")], "Faster").unwrap();
    w.spec_is_refused("The approved design does not fit the code any more: `src/new_0.rs` exists already")
        .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_design_of_very_many_files_is_for_several_issues() {
    let mut w = designed(Setting { script: Some(adding(70)), ..Setting::default() }).await;
    w.spec_is_refused("The approved design changes 71 files, and a spec is of at most 60.").await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_spec_that_lacks_the_lines_it_changes_is_sent_back_unreviewed() {
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

#[tokio::test]
#[ignore = "takes long"]
async fn at_the_cap_people_decide_and_nothing_refused_is_published() {
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
        assert!(w.newest().contains("does not pass what waits here"), "{answer}\n{}", w.thread());
        w.stands(RunViewStatus::Asking).await;
    }
    assert!(w.commits()[0].starts_with("docs: propose spec"));
    w.comment("sam", "/revise say it better").await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.file("docs/spec/SPEC-1.md").contains("Said better."));
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_gate_that_is_on_asks_before_each_review() {
    let mut w = designed(Setting {
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
    // The review found something, so there is another draft, and they are asked about that.
    w.stands(RunViewStatus::Asking).await;
    w.approved_by("sam").await;
    assert!(
        w.pull().body.split("### spec\n").nth(1).unwrap().contains("approved by sam"),
        "{}",
        w.pull().body
    );
}

#[tokio::test]
async fn a_spec_approved_before_a_review_that_refuses_it_is_not_called_accepted() {
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
    let section = body.split("### spec\n").nth(1).unwrap();
    assert!(section.contains("Whether it is accepted is decided on #1."), "{section}");
    assert!(!section.contains("approved by") && !section.contains("Approved hash"), "{section}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_a_drafter_only_rebuts_is_reviewed_again_and_nobody_is_asked() {
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
async fn a_strangers_issue_takes_a_person_and_no_second_review() {
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
    assert!(w.gate().contains("written or edited by `stranger`, who may not write"), "{}", w.gate());
    w.approved_by("sam").await;
    assert_eq!(w.calls().await.len(), 2, "one draft and one review:\n{}", w.thread());
}

#[tokio::test]
async fn asked_for_at_once_the_spec_and_the_code_follow_the_design() {
    // What cannot be built ends the code before it begins; that it was come to is what is told here.
    let files = vec![("Cargo.toml".to_owned(), b"[package]\n".to_vec())];
    let mut w = World::new(Setting { files, ..Setting::default() }).await;
    w.label("maya", "countersign:auto").await;
    w.stands(RunViewStatus::Asking).await;
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.comes_to_its_code().await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_hotfix_asks_nobody_about_design_and_spec_and_says_so() {
    let files = vec![("Cargo.toml".to_owned(), b"[package]\n".to_vec())];
    let mut w = World::new(Setting { as_files: true, files, ..Setting::default() }).await;
    w.comment("sam", "/hotfix the shop is down").await;
    assert!(w.run().await.is_none(), "it takes the role maintain");
    w.comment("maya", "/hotfix the *shop* is down").await;
    w.comes_to_its_code().await;
    let said = "**hotfix**: the reviewer's APPROVED is enough, and maya waived people's approval: the \\*shop\\* is down";
    assert_eq!(w.pull().body.matches(said).count(), 2, "{}", w.pull().body);
    let status = w.status().body;
    assert!(
        status.contains(
            "Hotfix, asked for by maya: the \\*shop\\* is down. Nobody is asked about design and spec"
        ),
        "{status}"
    );
}

impl World {
    async fn workflows(&self) -> Vec<String> {
        let mut runs = self.runs().await;
        runs.sort_by_key(|run| run.id);
        runs.iter().map(|run| format!("{} {}", run.workflow, run.status)).collect()
    }

    /// Design and spec are done and the code was begun, of a repository in which nothing can be built.
    async fn comes_to_its_code(&mut self) {
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
        w.last("Halted at Run the tests there are");
        w.commits();
    }
}

#[tokio::test]
async fn a_design_that_is_stopped_is_followed_by_nothing() {
    let mut w = world().await;
    w.label("maya", "countersign:auto").await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("sam", "/stop").await;
    w.stands(RunViewStatus::Stopped).await;
    assert_eq!(w.run().await.unwrap().workflow, "lld");
}

/// What is built is the spec all the same: it is written first, with all that it goes through, and the code follows by the
/// same word.
#[tokio::test]
#[ignore = "takes long"]
async fn where_code_is_made_of_the_design_its_spec_is_written_first() {
    let files = vec![("Cargo.toml".to_owned(), b"[package]\n".to_vec())];
    let toml = "[implement]\nfrom = \"lld\"\n".to_owned();
    let mut w = designed(Setting { files, toml, ..Setting::default() }).await;
    w.comment("tess", "/implement").await;
    assert_eq!(w.run().await.unwrap().workflow, "lld", "it takes the role write");
    w.comment("sam", "/implement").await;
    w.tried().await;
    assert_eq!(w.workflows().await, ["lld done", "implement done", "spec done", "implement failed"]);
    w.stands(RunViewStatus::Failed).await;
    w.last("Halted at Run the tests there are");
    // What is there is built at once, until the design is another one.
    w.pass(60);
    w.comment("sam", "/implement").await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    assert_eq!(w.workflows().await.len(), 5, "{:?}", w.workflows().await);
    w.last("Halted at Run the tests there are");
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", "countersign:implement").await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    w.last("Halted at Run the tests there are");
    let all = w.workflows().await;
    assert_eq!(all[5..], ["lld done", "implement done", "spec done", "implement failed"], "{all:?}");
    w.commits();
}

#[tokio::test]
async fn where_code_is_made_of_the_design_each_end_names_what_brings_it_on() {
    let toml = "[implement]\nfrom = \"lld\"\n[spec]\ndraft_gate = true\nexpire_days = 1\n".to_owned();
    let mut w = World::new(Setting { toml: toml.clone(), ..Setting::default() }).await;
    w.comment("sam", "/implement").await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("The approved design is missing").body;
    assert!(halt.contains("/lld") && !halt.contains("/spec"), "{halt}");

    let mut w = designed(Setting { toml, ..Setting::default() }).await;
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
async fn where_the_next_part_is_alive_already_it_is_said_that_nothing_follows() {
    let toml = "[spec]\ndraft_gate = true\n".to_owned();
    let mut w = designed(Setting { toml, ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    w.stands(RunViewStatus::Asking).await;
    w.comment("maya", "/auto").await;
    assert_eq!(w.workflows().await, ["lld done", "spec asking", "lld asking"]);
    let line = w.last("/approve lld ").body;
    let line = line.lines().find(|line| line.starts_with("/approve lld ")).unwrap().to_owned();
    w.comment("sam", &line).await;
    let status = w.last("lld: done").body;
    assert!(status.contains("It ends here: a run of spec is alive on this issue"), "{status}");
    assert_eq!(w.workflows().await, ["lld done", "spec asking", "lld done"]);
    w.last("the LLD was accepted");
    w.checks();
    w.commits();
}
