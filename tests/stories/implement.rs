//! Stories from an approved spec to a pull request with code. The tests of the change really run.

use std::{path::Path, process::Command, time::Duration};

use serde_json::Value;

use countersign::{engine::RunViewStatus, sandbox::Sandbox};
use tempfile::TempDir;

use crate::{
    looks::without_details,
    money::PRICES,
    operator::typed,
    script::{Script, approved, attack, finding, review, small, to_a_pull},
    world::{Setting, World},
};

const LABEL: &str = "countersign:implement";
const REPORT: &str = "docs/reports/IMPLEMENT-1.md";

/// Beginning of the commit message for the small repository's change.
pub(crate) const CHANGE: &str = "Stop a sum at the largest number";
const WEEKS: &str = "Print a total for each week";

/// Returns whether tests can run in a sandbox on this machine. Prints the reason if they cannot.
pub(crate) async fn can_run() -> bool {
    let executable = Path::new(env!("CARGO_BIN_EXE_countersign"));
    let Err(error) = Sandbox::detect(executable, None).await else { return true };
    assert!(
        std::env::var_os("COUNTERSIGN_TEST_SANDBOX").is_none(),
        "COUNTERSIGN_TEST_SANDBOX demands a sandbox, but {error}"
    );
    eprintln!("skipped: {error}");
    false
}

/// Creates a test environment with the small repository and an approved spec. `implement` adds the models' responses
/// for everything after the spec.
pub(crate) async fn specified(toml: &str, implement: impl FnOnce(Script, [String; 2]) -> Script) -> World {
    let (texts, files) = small();
    specified_in(texts, Setting { toml: toml.to_owned(), files, bare: true, ..Setting::default() }, implement)
        .await
}

pub(crate) async fn specified_in(
    [design, spec, tests, code]: [String; 4],
    setting: Setting,
    implement: impl FnOnce(Script, [String; 2]) -> Script,
) -> World {
    let script = Script::default().drafts(&design).reviews(&approved());
    let script = script.drafts(&spec).of("spec").reviews(&approved()).of("spec");
    // Unless the script says otherwise, the reviewer's model writes no tests against the code.
    let script = implement(script, [tests, code]).attacks(&[]).toml();
    let script = format!("billed = {}\n{script}", setting.toml.contains("price = "));
    let mut w = World::new(Setting { script: Some(script), ..setting }).await;
    w.label("maya", "countersign:lld").await;
    w.approved_by("sam").await;
    w.label("maya", "countersign:spec").await;
    w.stands(RunViewStatus::Done).await;
    w
}

/// Creates a test environment like [`specified`], with one more file in the repository.
async fn specified_with_file(
    (path, bytes): (&str, Vec<u8>),
    implement: impl FnOnce(Script, [String; 2]) -> Script,
) -> World {
    let (texts, mut files) = small();
    files.push((path.to_owned(), bytes));
    specified_in(texts, Setting { files, bare: true, ..Setting::default() }, implement).await
}

/// Adds to the script the tests, the code, and reviews that approve both.
pub(crate) fn plain(script: Script, [tests, code]: [String; 2]) -> Script {
    let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
    script.drafts(&code).of("implement").reviews(&approved()).of("implement")
}

fn git(place: &Path, args: &[&str]) -> String {
    let of = ["-c", "user.name=sam", "-c", "user.email=sam@example.invalid"];
    let out = Command::new("git").arg("-C").arg(place).args(of).args(args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

impl World {
    /// Waits until no tests are running. Tests run in real time, independent of the test clock.
    pub(crate) async fn tried(&mut self) {
        while self.run().await.is_some_and(|run| run.status == RunViewStatus::Waiting) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            self.pass(10);
            self.settle().await;
        }
    }

    /// Waits until the run is in this step and waits for running tests.
    pub(crate) async fn wait_for_tests_in(&mut self, step: &str) {
        while self
            .run()
            .await
            .is_none_or(|run| (run.status, run.step_id.as_str()) != (RunViewStatus::Waiting, step))
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.pass(10);
            self.step(1).await;
        }
    }

    pub(crate) async fn implement(&mut self) {
        self.label("maya", LABEL).await;
        self.tried().await;
    }

    /// Asserts that the code gate waits for a person. Also asserts that the models were called in this order; `d` is
    /// the drafter and `r` the reviewer. Returns the text of the gate.
    async fn assert_gate_after(&mut self, order: &str) -> String {
        self.stands(RunViewStatus::Asking).await;
        let roles: String = self.calls().await.iter().map(|call| &call.role[..1]).collect();
        assert_eq!(roles, order, "{}", self.thread());
        self.gate().replace('\\', "")
    }

    pub(crate) fn file_on_branch(&self, path: &str) -> Option<String> {
        let bytes = self.hub.branch_file(self.repo, &self.branch(), path)?;
        Some(String::from_utf8(bytes).unwrap())
    }

    /// Asserts that no code, test or report was pushed.
    #[track_caller]
    pub(crate) fn nothing_is_pushed(&self) {
        let runs = |commit: &String| commit.starts_with(CHANGE) || commit.starts_with(WEEKS);
        assert!(!self.commits().iter().any(runs), "{:?}", self.commits());
        let made = ["tests/weeks.rs", "tests/new.rs", REPORT];
        assert!(made.iter().all(|path| self.file_on_branch(path).is_none()));
    }

    /// Merges the default branch into the issue's branch.
    pub(crate) fn merge_main_into_branch(&self) {
        let (place, branch) = (self.checked_out(), self.branch());
        git(place.path(), &["merge", "--quiet", "--no-edit", "origin/main"]);
        git(place.path(), &["push", "--quiet", "origin", "HEAD:refs/heads/merged"]);
        let head = git(place.path(), &["rev-parse", "HEAD"]).trim().parse().unwrap();
        self.hub.move_branch(self.repo, &branch, self.user("sam"), &head).unwrap();
    }

    /// Clones the issue's branch into a temporary directory and returns that directory.
    pub(crate) fn checked_out(&self) -> TempDir {
        let place = tempfile::tempdir().unwrap();
        let hub = self.hub.git_dir(self.repo).display().to_string();
        git(place.path(), &["clone", "--quiet", "--branch", &self.branch(), &hub, "."]);
        place
    }

    /// Runs `cargo test` on a clone of the branch. Returns the names of the tests that pass, and of the tests that fail
    /// after the files `undo` are reset to their state on main.
    fn cargo_test_results(&self, undo: &[&str]) -> [Vec<String>; 2] {
        let place = self.checked_out();
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
        let passed = tested(" ... ok");
        git(place.path(), &[["checkout", "--quiet", "origin/main", "--"].as_slice(), undo].concat());
        [passed, tested(" ... FAILED")]
    }
}

#[tokio::test]
async fn pull_request_for_a_spec_has_tests_that_fail_without_the_new_code() {
    if !can_run().await {
        return;
    }
    let mut w = specified_in(to_a_pull(), Setting::default(), plain).await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    w.nothing_is_pushed();
    let gate = w.gate();
    assert!(gate.contains("APPROVED: the change waits for a person"), "{gate}");
    assert!(
        gate.contains("\n/approve implement ")
            && gate.contains("\n+    if calendar::week(date).is_none() {\n"),
        "{gate}"
    );
    assert!(
        gate.contains("4 tests fail by an assertion") && gate.contains("5 tests of the change and 11 others"),
        "{gate}"
    );
    assert_eq!(gate.matches("# 1 - Change").count(), 0, "{gate}");
    let run = w.run().await.unwrap().id.to_string();
    let (code, diff) = typed(&w, &["diff", &run]).await;
    assert!(code == Some(0) && diff.starts_with("--- /dev/null\n+++ b/tests/weeks.rs\n@@ "), "{diff}");
    let (code, output) = typed(&w, &["diff", &format!("{}-999", w.repo)]).await;
    assert!(code == Some(1) && output.contains("has not reached a code gate yet"), "{output}");
    let shown = |w: &World| {
        let status = without_details(&w.plain(&w.status().body));
        status.split(" · updated on ").next().unwrap().to_owned()
    };
    assert!(w.pulls().is_empty(), "no pull request before there is code");
    insta::assert_snapshot!(without_details(&w.plain(&w.gate())), @r#"
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✅ APPROVED: the change waits for a person

    **The reviewer's reason**

    A reason in one sentence.

    **Print a total for each week**

    - **Before the change:** 4 tests fail by an assertion, 1 test passes (it guards existing behaviour).
    - **After the change:** 5 tests of the change and 11 others that passed before pass three times.

    **For your review**

    - Reverting `src/report.rs:37-39` breaks no test.

    ▸ More evidence

    ▸ Summary of the change

    ▸ The change

    To accept it, someone with write access writes:

    ```
    /approve implement HASH
    ```

    To send it back to the drafter instead: `/revise TEXT`, or `/revise tests TEXT` if its locked tests must change.

    Drafted by `stub-drafter`, reviewed by `stub-reviewer`, round 2.

    [Status](HUB/maya/tally/issues/1#issuecomment-1020)

    <sub>Run 1002-3 · the hash covers the document, the files it names and this gate's policy</sub>

    <!-- countersign:gate-1002-3-16 -->
    "#);
    insta::assert_snapshot!(shown(&w), @r#"
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✋ implement: waiting for you

    - ✅ **Design**: approved by sam, 1 round ([result](HUB/maya/tally/issues/1#issuecomment-1022))
    - ✅ **Spec**: approved by the reviewer, 1 round ([result](HUB/maya/tally/issues/1#issuecomment-1047))
    - Step 16 of 18: code gate

    **Waits for someone with write access** to answer the [gate comment](HUB/maya/tally/issues/1#issuecomment-1065).

    ▸ Details

    <sub>`/status` · `/stop` · `/help` · run `1002-3`, requested by maya
    "#);
    w.approved_by("sam").await;
    assert_eq!(w.commits(), [WEEKS, "Initial commit"]);
    assert_eq!(w.pulls().len(), 1);
    assert_eq!(w.pull().title, WEEKS);
    insta::assert_snapshot!(shown(&w), @r#"
    > **Rehearsal**: the answers are scripted; no model was called.

    ### ✅ implement: done

    - ✅ **Design**: approved by sam, 1 round ([result](HUB/maya/tally/issues/1#issuecomment-1022))
    - ✅ **Spec**: approved by the reviewer, 1 round ([result](HUB/maya/tally/issues/1#issuecomment-1047))
    - ✅ **Implement**: approved by sam, 2 rounds ([result](HUB/maya/tally/pull/2))

    **Waits for the merge.** Failing CI, `/revise TEXT` or a review by someone with write access starts work on the change again.

    ▸ Details

    <sub>`/status` · `/stop` · `/help` · run `1002-3`, requested by maya
    "#);
    let body = w.pull().body;
    let seen = body.split("<details>").next().unwrap();
    insta::assert_snapshot!(seen.replace('\\', ""), @r#"
    > **Rehearsal**: the answers are scripted; no model was called.

    **This is a rehearsal.** No language model wrote this change: it is a fixed text for the sample repository.

    `tally --by week` prints a total for each ISO week. Invoices are by week, and until now the sheet had to be split by hand, which cost an hour last month.

    - A calendar of its own knows which dates exist, so a date like `2026-02-30` is reported with its line.
    - Sums by project stay the default, and their output does not change.

    Closes #1

    ### Evidence

    - **Before the change:** 4 tests fail by an assertion, 1 test passes (it guards existing behaviour).
    - **After the change:** 5 tests of the change and 11 others that passed before pass three times.
    - **Mutation check:** with each part of the code reverted in turn, a test fails for 1 of 2 parts; 10 more could not be reverted alone.
    - **Formatter:** `cargo fmt --check` has no new complaint.
    - **Linter:** `cargo clippy --offline --all-targets` has no new complaint.
    - **Not shown:** Coverage was not measured: this repository's test runner has no coverage that we can read. The tests run together with the code, so code that fakes their results cannot be ruled out.

    ### For your review

    - Reverting `src/report.rs:37-39` breaks no test.
    "#);
    assert!(body.contains("approved by sam"), "{body}");
    let check = w.checks().into_iter().rfind(|check| check.name == "countersign / change").unwrap();
    assert!(check.summary.starts_with(seen), "{}", check.summary);
    let message = w.hub.log(w.repo, &w.branch())[0].message.clone();
    assert!(message.contains("\nApproved-by: sam <") && !message.contains("Co-authored-by"), "{message}");
    assert!(!message.contains("skip ci"), "{message}");
    let shown = "(REQ-1) | `weeks_are_summed_from_monday` | `tests/weeks.rs` | fails by an assertion |";
    assert!(body.contains(shown), "{body}");
    let [passed, failed] =
        w.cargo_test_results(&["src/lib.rs", "src/main.rs", "src/parse.rs", "src/report.rs"]);
    assert_eq!((passed.len(), failed.len()), (16, 4), "{passed:?} {failed:?}");
    let files = git(w.checked_out().path(), &["diff", "--name-only", "HEAD~1", "HEAD"]);
    let code =
        ["src/calendar.rs", "src/lib.rs", "src/main.rs", "src/parse.rs", "src/report.rs", "tests/weeks.rs"];
    assert_eq!(files.lines().collect::<Vec<_>>(), code);
}

#[tokio::test]
#[ignore = "takes long"]
async fn tests_that_pass_without_code_are_sent_back_and_proven_tests_are_locked() {
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
        // First without an assertion, then with a test that already passes, then correct.
        let hollow = tests.replace(GUARDS, "").replace(SHOWS, "sums::sum(200, 100)");
        let script = script.drafts(&hollow).of("implement");
        let script = script.edits("sums::sum(200, 100);", &format!("{SHOWS};")).of("implement");
        let script = script.edits(PROVES, &format!("{PROVES}{GUARDS}")).of("implement");
        // The review of the tests is answered before they are locked.
        let script = script.reviews(&review("REVISE", &[finding("Say what is summed", None)], &[]));
        let script = script.of("implement").edits("Sums that do not fit.", "Sums of two numbers.").of("implement");
        let script = script.reviews(&review("APPROVED", &[], &["F1"])).of("implement");
        let script = script.drafts(&code.replace("## Code\n", weaker)).of("implement");
        script.reviews(&approved()).of("implement")
    })
    .await;
    let maya = w.user("maya");
    w.hub.label(w.repo, w.issue, maya, LABEL).unwrap();
    w.wait_for_tests_in("N3").await;
    // The server restarts during a test run, and the next server runs the tests again.
    w = w.restart().await;
    w.settle().await;
    w.tried().await;
    w.assert_gate_after("dddrdrdrr").await;
    w.nothing_is_pushed();
    w.approved_by("sam").await;
    let ([_, _, tests, _], _) = small();
    let locked = tests.split("```rust\n").nth(1).unwrap().split("```").next().unwrap();
    assert_eq!(w.file_on_branch("tests/new.rs").unwrap(), locked);
    w.pull();
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn code_that_fails_its_tests_is_sent_back_and_never_pushed() {
    if !can_run().await {
        return;
    }
    let mut w = specified("[implement]\nmax_rounds = 2\n", |script, [tests, code]| {
        let wrong = code.replace("left.saturating_add(right)", "right.wrapping_add(left)");
        // The reviewer objects to the tests twice; its next chance is the review of the code.
        let objects = |known| review("REVISE", &[finding("Too few", known)], &[]);
        let script = script.drafts(&tests).of("implement").reviews(&objects(None)).of("implement");
        let script = script.edits("Sums that", "All sums that").of("implement");
        let script = script.reviews(&objects(Some("F1"))).of("implement").drafts(&wrong).of("implement");
        let script = script.edits("The sum stops at", "Each sum stops at").of("implement");
        // A person has it tried again.
        let script = script.edits("right.wrapping_add(left)", "left.saturating_add(right)").of("implement");
        script.reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(
        halt.contains("Check that the tests pass") && halt.contains("`/retry` allows one more"),
        "{halt}"
    );
    assert!(halt.contains("write `/spec`"), "{halt}");
    assert!(halt.contains("what_does_not_fit_is_the_largest") && halt.contains("left: 44"), "{halt}");
    let roles: Vec<_> = w.calls().await.into_iter().map(|call| call.role).collect();
    assert_eq!(roles, ["drafter", "reviewer", "drafter", "reviewer", "drafter", "drafter"]);
    w.nothing_is_pushed();
    w.comment("sam", "/retry").await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
}

/// A dependency that only an unapproved manifest contains must not be fetched. The drafter and people must be told so.
#[tokio::test]
#[ignore = "takes long"]
async fn new_dependencies_in_a_changed_manifest_are_not_fetched() {
    if !can_run().await {
        return;
    }
    let ([design, spec, tests, code], files) = small();
    let row = "| `src/lib.rs` | Modify | The sum stops at the largest number |";
    let rows = format!("{row}\n| `Cargo.toml` | Modify | A crate for it |");
    let design = design.replace(row, &rows);
    let state = "### Cargo.toml\n\n```toml\ndoctest = false\n```\n\n## Data";
    let spec = spec.replace(row, &rows).replace("## Data", state);
    let spec = spec.replace("### tests/new.rs", "### Cargo.toml\n\nName the crate.\n\n### tests/new.rs");
    let named = "### `Cargo.toml` (Modify)\n\n```toml\n<<<<<<< SEARCH\ndoctest = false\n=======\ndoctest = false\n\n\
                 [dependencies]\nnot-of-this-machine = \"1\"\n>>>>>>> REPLACE\n```\n";
    let code = format!("{}\n\n{named}", code.trim_end());
    let toml = "[implement]\nmax_rounds = 1\n".to_owned();
    let setting = Setting { files, toml, bare: true, ..Setting::default() };
    let mut w = specified_in([design, spec, tests, code], setting, plain).await;
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(
        halt.contains("`Cargo.toml` is changed; new dependencies in it are not fetched in this run"),
        "{halt}"
    );
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn revise_at_the_code_gate_never_overwrites_commits_by_people() {
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
    w.assert_gate_after("drddrr").await;
    w.comment("sam", "/revise the other way round").await;
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("+    right.saturating_add(left)"), "{}", w.gate());
    let (branch, max, line) = (w.branch(), w.user("max"), w.approve_line());
    w.hub.push_commit(w.repo, &branch, max, &[("src/lib.rs", b"// mine\n")], "Mine").unwrap();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.last("Nothing was approved yet").body.contains("- `src/lib.rs`"), "{}", w.thread());
    let line = w.approve_line();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("Somebody changed `src/lib.rs` on the issue's branch"), "{halt}");
    assert_eq!(w.commits()[0], "Mine");
    assert!(w.file_on_branch("tests/new.rs").is_none());
    // A new run halts for the same reason before any model call.
    w.comment("sam", "/restart implement").await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("Somebody changed `src/lib.rs` on the issue's branch"), "{halt}");
    assert!(w.calls().await.is_empty(), "no model call in this run");
}

/// Code that is correct only for the input used in its own tests.
const SPECIAL_CASE: &str =
    "if left == 200 {\n        255\n    } else {\n        left.wrapping_add(right)\n    }";
fn special_case(code: &str) -> String {
    code.replace("left.saturating_add(right)", SPECIAL_CASE)
}

fn overflow_test() -> Value {
    attack("tests/full.rs", "REQ-1", "nothing_goes_beyond_the_largest", "assert_eq!(sums::sum(255, 1), 255);")
}

#[tokio::test]
#[ignore = "takes long"]
async fn code_that_fails_only_a_reviewer_test_is_fixed_and_the_test_is_kept() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", |script, [tests, code]| {
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let script = script.drafts(&special_case(&code)).of("implement");
        let zero = attack("tests/zero.rs", "REQ-2", "nothing_and_nothing", "assert_eq!(sums::sum(0, 0), 0);");
        let stray = |path, of, name, body| attack(path, of, name, body);
        let script = script.attacks(&[
            overflow_test(),
            zero,
            stray("tests/unasked.rs", "REQ-9", "unasked", "assert_eq!(sums::sum(1, 1), 3);"),
            stray("src/lib.rs", "REQ-1", "elsewhere", "assert_eq!(sums::sum(1, 1), 3);"),
            stray("tests/unbuilt.rs", "REQ-1", "unbuilt", "assert_eq!(sums::product(1, 1), 1);"),
        ]);
        let script = script.edits(SPECIAL_CASE, "left.saturating_add(right)");
        script.of("implement").reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    let gate = w.assert_gate_after("drdrdr").await;
    assert!(
        gate.contains("5 by `stub-reviewer`; 2 pass and were added to the change, 3 were left out."),
        "{gate}"
    );
    assert!(gate.contains("4 tests of the change and "), "{gate}");
    let unreviewed =
        "The reviewer's model wrote `tests/zero.rs`, `tests/full.rs`; no other model reviewed it.";
    assert!(gate.contains(unreviewed), "{gate}");
    for left_out in [
        "`tests/unasked.rs` was left out: it cites no requirement of the spec",
        "`src/lib.rs` was left out: it has the path of another file of the change",
        "`tests/unbuilt.rs` was left out: it cannot be built",
    ] {
        assert!(gate.contains(left_out), "{left_out}: {gate}");
    }
    assert!(
        gate.contains("+    left.saturating_add(right)") && gate.contains("+++ b/tests/full.rs"),
        "{gate}"
    );
    w.nothing_is_pushed();
    w.approved_by("sam").await;
    for (path, there) in [("full", true), ("zero", true), ("unasked", false), ("unbuilt", false)] {
        assert_eq!(w.file_on_branch(&format!("tests/{path}.rs")).is_some(), there, "{path}");
    }
    let body = w.pull().body;
    assert!(
        body.contains("- The reviewer's model wrote `tests/zero.rs`, `tests/full.rs`; no other"),
        "{body}"
    );
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn finding_stays_open_when_its_test_no_longer_builds() {
    if !can_run().await {
        return;
    }
    let mut w = specified("[implement]\nmax_rounds = 2\n", |script, [tests, code]| {
        let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
        let most = format!("{SPECIAL_CASE}\n}}\n\n/// The largest.\npub fn most() -> u8 {{\n    255");
        let script =
            script.drafts(&code.replace("left.saturating_add(right)", &most)).of("implement").attacks(&[
                attack("tests/full.rs", "REQ-1", "full", "assert_eq!(sums::sum(255, 1), sums::most());"),
            ]);
        let script = script.edits("pub fn most()", "pub fn top()").of("implement");
        script.reviews(&review("REVISE", &[finding("It wraps", Some("F1"))], &[])).of("implement")
    })
    .await;
    w.implement().await;
    let gate = w.assert_gate_after("drdrdr").await;
    assert!(gate.contains("1 fails: `tests/full.rs` (F1)"), "{gate}");
    assert!(gate.contains("proves nothing about this version: it cannot be built"), "{gate}");
    assert!(!gate.contains("its test passes now"), "{gate}");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn reviewer_test_that_fails_only_in_the_full_suite_is_dropped() {
    if !can_run().await {
        return;
    }
    let seen = |what: &str| what.replace("SEEN", r#"concat!(env!("CARGO_TARGET_TMPDIR"), "/seen")"#);
    let zero = seen("assert!(std::fs::read(SEEN).is_err() && sums::sum(0, 0) == 0);");
    let zero = attack("tests/zero.rs", "REQ-2", "nothing_and_nothing", &zero);
    let mut w = specified("", |script, [tests, code]| {
        let five = "    assert_eq!(sums::sum(2, 3), 5);";
        let tests = tests.replace(five, &seen(&format!("    std::fs::write(SEEN, \"\").unwrap();\n{five}")));
        plain(script, [tests, code]).attacks(std::slice::from_ref(&zero))
    })
    .await;
    w.implement().await;
    let gate = w.assert_gate_after("drdrr").await;
    assert!(
        gate.contains("`tests/zero.rs` was left out: it does not always pass together with all other tests"),
        "{gate}"
    );
    assert!(gate.contains("1 by `stub-reviewer`; 1 was left out."), "{gate}");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn gate_shows_the_reviewers_ruling_on_a_rebutted_test() {
    if !can_run().await {
        return;
    }
    for (upheld, verdict) in [(false, "APPROVED"), (true, "REVISE")] {
        let mut w = specified("[implement]\nmax_rounds = 2\n", |script, [tests, code]| {
            let script = script.drafts(&tests).of("implement").reviews(&approved()).of("implement");
            let script = script.drafts(&special_case(&code)).of("implement").attacks(&[overflow_test()]);
            let script = script.rebuts("F1", "The spec speaks of 200 and 100 alone.").of("implement");
            let ruling = match upheld {
                true => review("REVISE", &[finding("It has to hold for all", Some("F1"))], &[]),
                false => review("APPROVED", &[], &["F1"]),
            };
            script.reviews(&ruling).of("implement")
        })
        .await;
        w.implement().await;
        let gate = w.assert_gate_after("drdrdr").await;
        assert!(gate.contains(verdict) && gate.contains("1 fails: `tests/full.rs` (F1)"), "{gate}");
        assert_eq!(gate.contains("the author's answer was not accepted"), upheld, "{gate}");
        w.nothing_is_pushed();
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn end_to_end_check_must_pass_before_the_review() {
    if !can_run().await {
        return;
    }
    let toml = b"[test]\nend_to_end = '! grep -rn perhaps src'\nfull_seconds = 0\n".to_vec();
    let mut w = specified_with_file((".github/countersign.toml", toml), |script, [tests, code]| {
        let perhaps = code.replace("    left.saturating", "    // perhaps\n    left.saturating");
        let script = script
            .drafts(&tests)
            .of("implement")
            .reviews(&approved())
            .of("implement")
            .drafts(&perhaps)
            .of("implement");
        let script = script.edits("    // perhaps\n", "").of("implement");
        script.reviews(&approved()).of("implement")
    })
    .await;
    w.implement().await;
    let gate = w.assert_gate_after("drddrr").await;
    for line in [
        "**Formatter:** `cargo fmt --check` has no new complaint.",
        "**Linter:** `cargo clippy --offline --all-targets` has no new complaint.",
        "**End-to-end run:** `",
    ] {
        assert!(gate.contains(line), "{line}: {gate}");
    }
    let slow = "The whole suite is slow here and ran once: 1 more test passes.";
    assert!(gate.contains(slow), "{gate}");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn reviewer_tests_are_added_despite_an_overload_a_budget_pause_and_a_restart() {
    if !can_run().await {
        return;
    }
    let zero = attack("tests/zero.rs", "REQ-2", "nothing_and_nothing", "assert_eq!(sums::sum(0, 0), 0);");
    let prices = PRICES.replace("max_output = 32000", "max_output = 16000");
    let toml = format!("{prices}[budget]\nrun = \"$1.05\"\n");
    let mut w = specified(&toml, |script, texts| {
        plain(script, texts).attack_fails("capacity").attacks(std::slice::from_ref(&zero))
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    w.find("### ✋ Paused before Write adversarial tests");
    let max = w.user("max");
    w.hub.comment(w.repo, w.issue, max, "/budget +3").unwrap();
    w.wait_for_tests_in("N7.5b").await;
    w = w.restart().await;
    w.settle().await;
    w.tried().await;
    let gate = w.assert_gate_after("drdrrr").await;
    assert!(gate.contains("1 passes and was added to the change"), "{gate}");
    w.nothing_is_pushed();
}

#[tokio::test]
#[ignore = "takes long"]
async fn tests_of_new_functions_run_against_stubs_before_the_change() {
    if !can_run().await {
        return;
    }
    const SUM: &str = "pub fn sum(left: u8, right: u8) -> u8";
    for (place, red) in [
        ("// src/lib.rs", "weak red: fails only because of a stub for the code"),
        ("// somewhere", "red by compile: does not build without the code"),
    ] {
        let ([design, spec, tests, code], files) = small();
        let declared =
            |text: String| text.replace("// src/lib.rs", place).replace(SUM, &SUM.replace("sum", "capped"));
        let spec = declared(spec).replace("### sum", "### capped");
        let tests = tests.replace("sum(200, 100)", "capped(200, 100)");
        let whole = format!(
            "    left.wrapping_add(right)\n}}\n\n/// The same, up to the largest.\n{} {{\n",
            SUM.replace("sum", "capped")
        );
        let code = code
            .replace("    left.saturating_add(right)\n", &format!("{whole}    left.saturating_add(right)\n"));
        let setting = Setting { files, bare: true, ..Setting::default() };
        let mut w = specified_in([declared(design), spec, tests, code], setting, plain).await;
        w.implement().await;
        w.stands(RunViewStatus::Asking).await;
        w.approved_by("sam").await;
        let report = w.pull().body;
        assert!(
            report
                .contains(&format!("(REQ-1) | `what_does_not_fit_is_the_largest` | `tests/new.rs` | {red}")),
            "{report}"
        );
        let weak = "1 test fails before the change only because of a stub for the code (weak red).";
        assert_eq!(report.contains(weak), place.contains("lib.rs"), "{report}");
        w.commits();
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn workflow_file_is_offered_as_a_patch_and_never_committed() {
    if !can_run().await {
        return;
    }
    const ROW: &str = "| `tests/new.rs` | Add | The tests of it |";
    const CI: &str = ".github/workflows/ci.yml";
    let ([design, spec, tests, code], mut files) = small();
    files.push((".github/workflows/other.yml".to_owned(), b"on: push\n".to_vec()));
    let rows = format!("| `{CI}` | Add | Runs them |\n{ROW}");
    let design = design.replace(ROW, &rows);
    let spec = spec
        .replace(ROW, &rows)
        .replace("### tests/new.rs", &format!("### {CI}\n\nRun the tests.\n\n### tests/new.rs"));
    let code = format!("{}\n\n### `{CI}` (Add)\n\n```yaml\non: push\n```\n", code.trim_end());
    let setting = Setting { as_files: true, files, bare: true, ..Setting::default() };
    let mut w = specified_in([design, spec, tests, code], setting, plain).await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let gate = w.gate().replace('\\', "");
    let notice = format!("`{CI}` is a GitHub Actions workflow");
    assert!(gate.contains(&notice) && gate.contains("+on: push"), "{gate}");
    w.approved_by("sam").await;
    assert!(w.file_on_branch("src/lib.rs").unwrap().contains("saturating") && w.file_on_branch(CI).is_none());
    let report = w.file_on_branch(REPORT).unwrap();
    assert!(report.contains(&notice) && !report.contains(&format!("| Add | `{CI}`")), "{report}");
    let body = w.pull().body;
    let patch = format!("--- /dev/null\n+++ b/{CI}\n@@ -0,0 +1,1 @@\n+on: push\n");
    assert!(body.contains("apply this patch yourself") && body.contains(&patch), "{body}");
    // The first commit holds tests and code, the second the report and its review.
    let place = w.checked_out();
    let files = |of: &str| git(place.path(), &["diff", "--name-only", &format!("{of}~1"), of]);
    let [code, reports] = ["HEAD~1", "HEAD"].map(files);
    assert_eq!(code, "src/lib.rs\ntests/new.rs\n");
    assert_eq!(reports, format!("{REPORT}\ndocs/reports/IMPLEMENT-1.review.md\n"));
    w.commits();
}

#[tokio::test]
#[ignore = "takes long"]
async fn response_without_reviewer_tests_is_reported_and_does_not_halt_the_run() {
    if !can_run().await {
        return;
    }
    let toml = b"[test]\nend_to_end = 'false'\n".to_vec();
    let mut w = specified_with_file((".github/countersign.toml", toml), |script, texts| {
        let script = plain(script, texts);
        script.attacks_as_text("I found nothing wrong.").attacks_as_text("{}")
    })
    .await;
    w.implement().await;
    w.stands(RunViewStatus::Asking).await;
    let checked = "End-to-end run `false` was not checked: it fails without the change too";
    assert!(w.gate().contains(checked), "{}", w.gate());
    assert!(w.gate().contains("The reviewer's model wrote no adversarial tests: "), "{}", w.gate());
    assert_eq!(w.calls().await.len(), 6, "one repeated call for tests");
    // main now has another version of the changed file: the gate shows the difference, and the old approval pushes
    // nothing.
    let (line, mut theirs) = (w.approve_line(), w.hub.branch_file(w.repo, "main", "src/lib.rs").unwrap());
    theirs.extend(b"// theirs\n");
    w.hub.push_commit(w.repo, "main", w.user("max"), &[("src/lib.rs", &theirs)], "Theirs").unwrap();
    w.comment("sam", &line).await;
    w.stands(RunViewStatus::Asking).await;
    let answer = w.last("Nothing was approved yet").body;
    assert!(answer.contains("+++ b/src/lib.rs\n") && answer.contains("\n+// theirs\n"), "{answer}");
    assert_ne!(w.approve_line(), line);
    w.nothing_is_pushed();
}

#[tokio::test]
async fn existing_tests_that_do_not_build_halt_the_run_before_any_model_call() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", plain).await;
    let maya = w.user("maya");
    w.hub
        .push_commit(w.repo, "main", maya, &[("tests/broken.rs", b"#[test]\nfn broken( {}\n")], "Late")
        .unwrap();
    w.comment("tess", "/implement").await;
    assert_eq!(w.run().await.unwrap().workflow, "spec", "the triage role may not run code");
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    assert!(halt.contains("The existing tests on `main` do not run") && halt.contains("broken"), "{halt}");
    assert_eq!(w.calls().await.len(), 0);
    w.nothing_is_pushed();
    let run = w.run().await.unwrap().id;
    w.comment("tess", "/restart implement").await;
    assert_eq!(w.run().await.unwrap().id, run);
}

#[tokio::test]
#[ignore = "takes long"]
async fn spec_that_the_new_default_branch_makes_impossible_halts_before_any_model_call() {
    if !can_run().await {
        return;
    }
    let mut w = specified("", plain).await;
    let maya = w.user("maya");
    w.hub.push_commit(w.repo, "main", maya, &[("tests/New.rs", b"// theirs\n")], "Late").unwrap();
    w.implement().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    let why = "The approved spec cannot be built: `tests/new.rs` differs from another path only by case";
    assert!(halt.contains(why) && halt.contains("Write `/lld` to revise its design"), "{halt}");
    assert_eq!(w.calls().await.len(), 0);
}
