//! From an approved spec to a pull request with code, told as people see it. The tests are really run.

use std::{path::Path, process::Command, time::Duration};

use countersign::{engine::Status, limits::SEEN_BEFORE_APPROVAL, sandbox::Sandbox};

use crate::{
    operator::typed,
    script::{Script, approved, finding, review, small, to_a_pull},
    world::{Setting, World},
};

const LABEL: &str = "countersign:implement";
const REPORT: &str = "docs/reports/IMPLEMENT-1.md";

/// May tests be run on this machine? A line where they may not.
pub(crate) async fn can_run() -> bool {
    let own = Path::new(env!("CARGO_BIN_EXE_countersign"));
    let Err(error) = Sandbox::of_this_machine(own, None).await else { return true };
    assert!(std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(), "must be tried here, but {error}");
    eprintln!("skipped: {error}");
    false
}

/// A world in which the spec of a small repository's issue was approved, and models that say this then.
pub(crate) async fn specified(toml: &str, implement: impl FnOnce(Script, [String; 2]) -> Script) -> World {
    let (texts, files) = small();
    specified_in(texts, Setting { toml: toml.to_owned(), files, bare: true, ..Setting::default() }, implement)
        .await
}

async fn specified_in(
    [design, spec, tests, code]: [String; 4],
    setting: Setting,
    implement: impl FnOnce(Script, [String; 2]) -> Script,
) -> World {
    let script = Script::default().drafts(&design).reviews(&approved());
    let script = script.drafts(&spec).of("spec").reviews(&approved()).of("spec");
    let script = implement(script, [tests, code]).toml();
    let mut w = World::new(Setting { script: Some(script), ..setting }).await;
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", "countersign:spec").await;
    w.stands(Status::Done).await;
    w
}

/// Tests, code, and a review that approves both.
fn plain(script: Script, [tests, code]: [String; 2]) -> Script {
    let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
    script.drafts(&code).of("implement").reviews(&approved()).of("implement")
}

impl World {
    /// Until no tests run any more. They run beside the world's clock.
    pub(crate) async fn tried(&mut self) {
        while self.run().await.is_some_and(|run| run.status == Status::Waiting) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.pass(10);
            self.settle().await;
        }
    }

    pub(crate) async fn implement(&mut self) {
        self.label("maya", LABEL).await;
        self.tried().await;
    }

    fn on_branch(&self, path: &str) -> Option<String> {
        let bytes = self.hub.branch_file(self.repo, &self.branch(), path)?;
        Some(String::from_utf8(bytes).unwrap())
    }

    /// Nothing that can be run has left the server.
    #[track_caller]
    fn nothing_is_pushed(&self) {
        assert!(!self.commits().iter().any(|c| c.starts_with("feat: ")), "{:?}", self.commits());
        let made = ["tests/weeks.rs", "tests/new.rs", REPORT];
        assert!(made.iter().all(|path| self.on_branch(path).is_none()));
    }

    /// The default branch merged into that of the issue.
    fn branch_is_updated(&self) {
        let place = tempfile::tempdir().unwrap();
        let (hub, branch) = (self.hub.git_dir(self.repo).display().to_string(), self.branch());
        let git = |args: &[&str]| {
            let of = ["-c", "user.name=sam", "-c", "user.email=sam@example.invalid"];
            let out = Command::new("git").arg("-C").arg(place.path()).args(of).args(args).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()
        };
        git(&["clone", "--quiet", "--branch", &branch, &hub, "."]);
        git(&["merge", "--quiet", "--no-edit", "origin/main"]);
        git(&["push", "--quiet", "origin", "HEAD:refs/heads/merged"]);
        let head = git(&["rev-parse", "HEAD"]).trim().parse().unwrap();
        self.hub.move_branch(self.repo, &branch, self.user("sam"), &head).unwrap();
    }

    /// The branch checked out: the tests that pass there; then without some of its files, those that fail.
    fn cargo_says(&self, undo: &[&str]) -> [Vec<String>; 2] {
        let place = tempfile::tempdir().unwrap();
        let hub = self.hub.git_dir(self.repo);
        let git = |args: &[&str]| {
            let out = Command::new("git").arg("-C").arg(place.path()).args(args).output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        };
        let tested = |end: &str| -> Vec<String> {
            let out = Command::new("cargo")
                .args(["test", "--offline", "--no-fail-fast", "--tests", "--target-dir"])
                .arg(place.path().join("built"))
                .current_dir(place.path())
                .env("CARGO_PROFILE_TEST_DEBUG", "0")
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            let lines = text.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(end));
            lines.map(str::to_owned).collect()
        };
        git(&["clone", "--quiet", "--branch", &self.branch(), &hub.display().to_string(), "."]);
        let passed = tested(" ... ok");
        git(&[["checkout", "--quiet", "origin/main", "--"].as_slice(), undo].concat());
        [passed, tested(" ... FAILED")]
    }
}

#[tokio::test]
async fn a_spec_becomes_a_pull_request_whose_tests_pass_with_its_code_and_fail_without() {
    if !can_run().await {
        return;
    }
    let mut w = specified_in(to_a_pull(), Setting::default(), plain).await;
    w.implement().await;
    w.stands(Status::Asking).await;
    w.nothing_is_pushed();
    let gate = w.gate();
    assert!(gate.contains("APPROVED: the change waits for a person"), "{gate}");
    assert!(
        gate.contains("\n/approve implement ")
            && gate.contains("\n+    if calendar::week(date).is_none() {\n"),
        "{gate}"
    );
    assert!(
        gate.contains("4 new tests fail by an assertion") && gate.contains("all 5 tests of the change pass"),
        "{gate}"
    );
    assert_eq!(gate.matches("# 1 - Change").count(), 0, "{gate}");
    let run = w.run().await.unwrap().id.to_string();
    let (code, diff) = typed(&w, &["diff", &run]).await;
    assert!(code == Some(0) && diff.starts_with("--- /dev/null\n+++ b/tests/weeks.rs\n@@ "), "{diff}");
    let (code, said) = typed(&w, &["diff", &format!("{}-999", w.repo)]).await;
    assert!(code == Some(1) && said.contains("has asked nobody about code yet"), "{said}");
    // Whoever approves the design's pull request has not seen what is asked about.
    let pull = w.pulls()[0].number;
    w.clock.pass(SEEN_BEFORE_APPROVAL);
    w.hub.review(w.repo, pull, w.user("sam"), "APPROVED", "").unwrap();
    w.settle().await;
    w.stands(Status::Asking).await;
    assert!(w.last("that was a review").body.contains("\n/approve implement "), "{}", w.thread());
    w.nothing_is_pushed();
    w.approved_by("sam").await;
    assert_eq!(
        w.commits()[..3],
        [
            "docs: accept change for #1",
            "feat: make change for #1 [skip ci]",
            "docs: accept spec for #1 [skip ci]"
        ]
    );
    assert_eq!(w.pulls().len(), 1);
    let body = w.pull().body;
    assert!(
        body.contains("### change\n") && body.contains("\nCloses #1.\n") && body.contains("approved by sam"),
        "{body}"
    );
    let report = w.on_branch(REPORT).unwrap();
    assert!(
        report.contains(
            "| REQ-1 | `weeks_are_summed_from_monday` | `tests/weeks.rs` | fails by an assertion |"
        ),
        "{report}"
    );
    assert!(report.contains("Undone one at a time, "), "{report}");
    assert!(w.on_branch("docs/reports/IMPLEMENT-1.review.md").unwrap().contains("APPROVED"));
    let [passed, failed] = w.cargo_says(&["src/lib.rs", "src/main.rs", "src/parse.rs", "src/report.rs"]);
    assert_eq!((passed.len(), failed.len()), (16, 4), "{passed:?} {failed:?}");
}

#[tokio::test]
#[ignore = "takes long"]
async fn tests_that_pass_are_sent_back_and_once_they_failed_nobody_edits_them() {
    if !can_run().await {
        return;
    }
    const PROVES: &str = "Proves: REQ-1, REQ-2\n";
    const GUARDS: &str = "\nGuards: what_fits_is_as_before\n";
    const SHOWS: &str = "assert_eq!(sums::sum(200, 100), 255)";
    let mut w = specified("[implement]\nmax_rounds = 4\n", |script, [tests, code]| {
        let weaker =
            "## Tests\n\n### `tests/new.rs` (Add)\n\nProves: REQ-1\n\n```rust\n#[test]\nfn what_does_not_fit_is_the_largest() {\n    \
             assert!(true);\n}\n```\n\n## Code\n";
        // Without an assertion, then with what passes already, then as it should be.
        let hollow = tests.replace(GUARDS, "").replace(SHOWS, "sums::sum(200, 100)");
        let script = script.drafts(&hollow).of("implement");
        let script = script.edits("sums::sum(200, 100);", &format!("{SHOWS};")).of("implement");
        let script = script.edits(PROVES, &format!("{PROVES}{GUARDS}")).of("implement");
        // What the review of the tests asks for is done before they are locked.
        let script = script.reviews(&review("REVISE", &[finding("Say what is summed", None)], &[]));
        let script = script.of("implement").edits("Sums that do not fit.", "Sums of two numbers.").of("implement");
        let script = script.reviews(&review("APPROVED", &[], &["F1"])).of("implement");
        let script = script.drafts(&code.replace("## Code\n", weaker)).of("implement");
        script.reviews(&approved()).of("implement")
    })
    .await;
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, LABEL).unwrap();
    while w.run().await.is_none_or(|run| (run.status, run.step_id.as_str()) != (Status::Waiting, "N3")) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        w.pass(10);
        w.step(1).await;
    }
    // The server ends in the middle of a run of tests, and the next one begins it anew.
    w = w.restart().await;
    w.settle().await;
    w.tried().await;
    w.stands(Status::Asking).await;
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(
        roles,
        [&["drafter"; 3][..], &["reviewer", "drafter", "reviewer", "drafter", "reviewer"]].concat(),
        "{}",
        w.thread()
    );
    w.nothing_is_pushed();
    w.approved_by("sam").await;
    let ([_, _, tests, _], _) = small();
    let locked = tests.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(w.on_branch("tests/new.rs").unwrap(), locked);
    w.pull();
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn code_that_fails_its_tests_is_sent_back_with_what_fails_and_never_pushed() {
    if !can_run().await {
        return;
    }
    let mut w = specified("[implement]\nmax_rounds = 2\n", |script, [tests, code]| {
        let wrong = code.replace("left.saturating_add(right)", "right.wrapping_add(left)");
        // What it objects to in the tests twice, it may object to once more where there is code.
        let objects = |known| review("REVISE", &[finding("Too few", known)], &[]);
        let script = script.drafts(&tests).of("implement").reviews(&objects(None)).of("implement");
        let script = script.edits("Sums that", "All sums that").of("implement");
        let script = script.reviews(&objects(Some("F1"))).of("implement").drafts(&wrong).of("implement");
        script.edits("The sum stops at", "Each sum stops at").of("implement")
    })
    .await;
    w.implement().await;
    w.stands(Status::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("See the tests pass") && halt.contains("no more drafts are allowed"), "{halt}");
    assert!(halt.contains("what_does_not_fit_is_the_largest") && halt.contains("left: 44"), "{halt}");
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(roles, ["drafter", "reviewer", "drafter", "reviewer", "drafter", "drafter"]);
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn what_people_say_at_the_gate_counts_and_nothing_of_theirs_is_written_over() {
    if !can_run().await {
        return;
    }
    const STRAY: &str = "\n### `src/stray.rs` (Add)\n\n```rust\npub fn stray() {}\n```\n";
    let mut w = specified("", |script, [tests, code]| {
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let script = script.drafts(&(code + STRAY)).of("implement");
        let script = script.edits(STRAY, "").of("implement").reviews(&approved()).of("implement");
        script.edits("left.saturating_add(right)", "right.saturating_add(left)").of("implement")
    })
    .await;
    w.implement().await;
    w.stands(Status::Asking).await;
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(
        roles,
        ["drafter", "reviewer", "drafter", "drafter", "reviewer"],
        "a path outside of the spec is sent back"
    );
    w.comment("sam", "/revise the other way round").await;
    w.tried().await;
    w.stands(Status::Asking).await;
    assert!(w.gate().contains("+    right.saturating_add(left)"), "{}", w.gate());
    let (branch, max, line) = (w.branch(), w.user("max"), w.approve_line());
    w.hub.push_commit(w.repo, &branch, max, &[("src/lib.rs", b"// mine\n")], "Mine").unwrap();
    w.comment("sam", &line).await;
    w.stands(Status::Asking).await;
    assert!(w.last("Nothing was approved yet").body.contains("- `src/lib.rs`"), "{}", w.thread());
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.stands(Status::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("Somebody changed `src/lib.rs` on the issue's branch"), "{halt}");
    assert_eq!(w.commits()[0], "Mine");
    assert!(w.on_branch("tests/new.rs").is_none());
}

#[tokio::test]
async fn where_the_tests_do_not_build_as_they_are_nothing_is_paid_for() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", plain).await;
    let maya = w.user("maya");
    w.hub
        .push_commit(w.repo, "main", maya, &[("tests/broken.rs", b"#[test]\nfn broken( {}\n")], "Late")
        .unwrap();
    w.implement().await;
    w.stands(Status::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("Merge `main` into it"), "{halt}");
    assert_eq!(w.calls().await.len(), 0);
    w.branch_is_updated();
    w.comment("tess", "/implement").await;
    assert_eq!(w.run().await.unwrap().status, Status::Failed, "whoever may only triage has no code run");
    w.implement().await;
    w.stands(Status::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("The tests on `main` do not run as they are") && halt.contains("broken"), "{halt}");
    assert_eq!(w.calls().await.len(), 0);
    w.nothing_is_pushed();
    let run = w.run().await.unwrap().id;
    w.comment("tess", "/restart implement").await;
    assert_eq!(w.run().await.unwrap().id, run);
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_spec_that_cannot_be_built_is_refused_before_anything_is_paid_for() {
    if !can_run().await {
        return;
    }
    let ([design, spec, ..], files) = small();
    let among = spec.replace("_largest | `tests/new.rs` |", "_largest | `src/lib.rs` |");
    let clash = |text: &str| {
        text.replace(
            "| `tests/new.rs` | Add | The",
            "| `tests/Old.rs` | Add | x |\n| `tests/new.rs` | Add | The",
        )
    };
    let other = clash(&spec).replace("### tests/new.rs", "### tests/Old.rs\n\nAnother.\n\n### tests/new.rs");
    for (design, spec, why) in [
        (design.clone(), among, "stands among the code"),
        (clash(&design), other, "`tests/Old.rs` differs from another path only by case"),
    ] {
        let setting = Setting { files: files.clone(), bare: true, ..Setting::default() };
        let mut w =
            specified_in([design, spec, String::new(), String::new()], setting, |script, _| script).await;
        w.implement().await;
        w.stands(Status::Failed).await;
        let halt = w.last("Halted at").body.replace('\\', "");
        assert!(halt.contains("The approved spec cannot be built: ") && halt.contains(why), "{halt}");
        assert_eq!(w.calls().await.len(), 0);
    }
}
