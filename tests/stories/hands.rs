//! Stories about people's actions on the pull request of a change, in each phase of the run. Meanwhile the default
//! branch gets commits, too.

use std::process::Command;

use countersign::{
    clock::Clock as _, config::REPOSITORY_FILE, engine::RunViewStatus, localhub::HubError, types::Timestamp,
};
use tempfile::TempDir;

use crate::{
    implement::{can_run, plain, specified, specified_in},
    random::Random,
    script::{Script, approved, small},
    unseen,
    world::{Known, Setting, World, all, directory},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullAction {
    Edits,
    Retargets,
    Rewrites,
    Converts,
    Merges,
    Closes,
    /// Opens a second pull request, from the issue's branch into another branch, and closes it.
    ClosesTheirs,
    CommitsOurFile,
    CommitsAnother,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The tests are running with the code.
    Work,
    /// The code gate waits for a person.
    Gate,
    /// The change is approved but not pushed yet.
    Push,
    /// The run waits for the merge of its pull request.
    Merge,
    /// The gate of a fix for a CI failure waits for a person.
    Fix,
}

impl Phase {
    /// Returns whether documents are published as files in this phase. Without files, no pull request exists before the
    /// push.
    fn has_files(self) -> bool {
        matches!(self, Self::Work | Self::Gate | Self::Push)
    }
}

impl World {
    /// Performs the action as the user max, who maintains the repository.
    pub(crate) fn perform(&self, act: PullAction) -> Result<(), HubError> {
        let (repo, pull, max, branch) = (self.repo, self.pull_number(), self.user("max"), self.branch());
        let commit =
            |path: &str| self.hub.push_commit(repo, &branch, max, &[(path, b"// mine\n")], "Mine").map(drop);
        match act {
            Edits => self.hub.edit_issue(repo, pull, max, Some("My title"), Some("My own words.")),
            Retargets => {
                let main = self.hub.branches(repo).into_iter().find(|(name, _)| name == "main").unwrap().1;
                self.hub.move_branch(repo, "next", max, &main)?;
                self.hub.retarget(repo, pull, max, "next")
            }
            Rewrites => {
                let before = self.hub.log(repo, &branch)[1].oid.clone();
                self.hub.move_branch(repo, &branch, max, &before)
            }
            Converts => self.hub.set_draft(repo, pull, max, !self.pull().draft),
            Merges => {
                self.hub.set_draft(repo, pull, max, false)?;
                self.hub.merge(repo, pull, max)
            }
            ClosesTheirs => {
                let main = self.hub.branches(repo).into_iter().find(|(name, _)| name == "main").unwrap().1;
                self.hub.move_branch(repo, "next", max, &main)?;
                let theirs = self.hub.open_pull(repo, max, &branch, "next")?;
                self.hub.close_issue(repo, theirs, max)
            }
            Closes => self.hub.close_issue(repo, pull, max),
            CommitsOurFile => commit("src/lib.rs"),
            CommitsAnother => commit("OTHER.md"),
        }
    }

    pub(crate) fn find_approve_line(&self) -> Option<String> {
        let texts = self.bots().into_iter().rev().map(|comment| comment.body).collect::<Vec<_>>();
        texts
            .iter()
            .flat_map(|text| text.lines())
            .find(|line| line.starts_with("/approve implement "))
            .map(str::to_owned)
    }

    pub(crate) fn mark_everything_seen(&self) {
        self.bots().into_iter().for_each(|comment| self.look_at(comment.id));
        self.labels();
        self.commits();
        self.checks();
        for n in 0..self.pulls().len() {
            let pull = self.pull_at(n);
            self.on_thread(pull.number);
            self.unseen.saw(self.repo, unseen::Act::Branch(pull.head));
        }
    }
}

/// A test environment saved in one phase. Each case works on a copy.
pub(crate) struct SavedWorld {
    place: TempDir,
    known: Known,
    now: Timestamp,
}

impl SavedWorld {
    /// Creates a test environment in the phase `at` and saves it. `then` appends model responses to the script after
    /// those for the change.
    pub(crate) async fn at(at: Phase, then: impl FnOnce(Script) -> Script) -> Self {
        let (texts, files) = small();
        let setting = Setting { as_files: at.has_files(), files, bare: true, ..Setting::default() };
        let mut w = specified_in(texts, setting, |script, texts| then(plain(script, texts))).await;
        if at == Phase::Work {
            w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:implement").unwrap();
            w.wait_for_tests_in("N5").await;
        } else {
            w.implement().await;
        }
        if matches!(at, Phase::Push | Phase::Merge | Phase::Fix) {
            let line = w.approve_line();
            w.pass(60);
            w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
            match at {
                Phase::Push => {
                    while w.run().await.unwrap().step_id != "N7b" {
                        w.step(1).await
                    }
                }
                _ => w.settle().await,
            }
        }
        if at == Phase::Fix {
            let head = w.head();
            w.job(&head, "build", "failure");
            w.settle().await;
            w.wait(30).await;
            w.tried().await;
        }
        w.mark_everything_seen();
        let (known, now) = (w.known(), w.clock.now());
        Self { place: w.leave().await, known, now }
    }

    pub(crate) async fn world(&self) -> World {
        let directory = directory();
        let from = self.place.path().join(".");
        let copied = Command::new("cp").arg("-a").arg(from).arg(directory.path()).status().unwrap();
        assert!(copied.success());
        World::go_on(directory, self.known, self.now).await
    }
}

/// State of the run at the end of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunState {
    /// The run waits for a person at the code gate.
    Asks,
    WaitsForMerge,
    Stopped,
    Halted,
    Done,
}
use PullAction::*;
use RunState::*;

async fn run_state(w: &World) -> RunState {
    let run = w.run().await.unwrap();
    match (run.status, run.step_id.as_str()) {
        (RunViewStatus::Asking, "N7") => Asks,
        (RunViewStatus::Asking, "N9") => WaitsForMerge,
        (RunViewStatus::Stopped, _) => Stopped,
        (RunViewStatus::Failed, _) => Halted,
        (RunViewStatus::Done, _) => Done,
        other => panic!("{other:?}: {:?}\n{}", run.why, w.thread()),
    }
}

/// Adds to the script a further change that swaps the operands, and its approving review.
fn swap_operands(script: Script) -> Script {
    let script = script.edits("left.saturating_add(right)", "right.saturating_add(left)").of("implement");
    script.reviews(&approved()).of("implement")
}

/// Performs each action in a copy of the test environment. Then a person approves the gate or, in phase `Merge`, writes
/// `/revise`. Asserts the state of the run, and that the issue or a pull request contains the expected text. Unless all
/// tests are requested, only every third action is tried.
async fn assert_outcomes(at: Phase, cases: &[(PullAction, RunState, &str)]) {
    if !can_run().await {
        return;
    }
    let mut chance = Random::seeded("people's hands");
    let (first, step) = if all() { (0, 1) } else { (chance.below(3), 3) };
    let standing = SavedWorld::at(at, swap_operands).await;
    let mut failures = Vec::new();
    for (act, end, expected) in cases.iter().skip(first).step_by(step) {
        let mut w = standing.world().await;
        w.perform(*act).unwrap();
        let theirs = w.head();
        w.settle().await;
        w.wait(30).await;
        w.tried().await;
        match run_state(&w).await {
            Asks => {
                let line = w.find_approve_line().unwrap();
                w.comment("sam", &line).await;
            }
            WaitsForMerge if at == Phase::Merge => w.comment("sam", "/revise the other way round").await,
            _ => {}
        }
        w.tried().await;
        let state = run_state(&w).await;
        let pulls = w.pulls();
        let threads = pulls.iter().flat_map(|pull| w.on_thread(pull.number)).collect::<Vec<_>>();
        let comments = w.bots().into_iter().map(|comment| comment.body).chain(threads).collect::<String>();
        if state != *end || !comments.replace('\\', "").contains(expected) {
            failures.push(format!("{at:?} {act:?}: {state:?}, {expected}\n{comments}"));
        }
        // People's commits, base branch and draft state must stay, with at most one open pull request.
        let contains_theirs = w.hub.log(w.repo, &w.branch()).iter().any(|commit| commit.oid == theirs);
        let first = &pulls[0];
        let base = if *act == Retargets { "next" } else { "main" };
        let open = pulls.iter().filter(|pull| pull.state == "open").count();
        let draft = if at.has_files() { !matches!(act, Converts | Merges) } else { *act == Converts };
        let ready = first.draft == draft && !first.title.starts_with("[WIP]");
        if !contains_theirs
            || first.base != base
            || !ready
            || open > 1
            || (pulls.len() > 1 && !matches!(act, Rewrites | Merges | ClosesTheirs))
        {
            failures.push(format!("{at:?} {act:?}: {pulls:#?}"));
        }
        w.mark_everything_seen();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

const WAITS: &str = "**Waits for the merge.**";
const MERGED: &str = "its pull request was merged";
const CLOSED: &str = "its pull request was closed";
const FOLLOWED: &str = "countersign/issue-1-2";
const OURS: &str = "Somebody changed `src/lib.rs` on the issue's branch, and this change touches it, too";
const OTHERS: &str = "**Other people changed files on the document's branch.**";
const NOT_YET: &str = "Nothing was approved yet";

/// Expected outcome of each action before the push.
const BEFORE_THE_PUSH: &[(PullAction, RunState, &str)] = &[
    (Edits, WaitsForMerge, WAITS),
    (Retargets, WaitsForMerge, WAITS),
    (Rewrites, WaitsForMerge, FOLLOWED),
    (Converts, WaitsForMerge, WAITS),
    (Merges, WaitsForMerge, WAITS),
    (Closes, Stopped, CLOSED),
    (ClosesTheirs, WaitsForMerge, WAITS),
    (CommitsOurFile, Halted, OURS),
    (CommitsAnother, WaitsForMerge, OTHERS),
];

#[tokio::test]
#[ignore = "takes long"]
async fn run_keeps_pull_request_changes_by_people_made_during_the_tests() {
    assert_outcomes(Phase::Work, BEFORE_THE_PUSH).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_keeps_pull_request_changes_by_people_made_at_the_code_gate() {
    assert_outcomes(
        Phase::Gate,
        &[
            (Edits, WaitsForMerge, WAITS),
            (Retargets, WaitsForMerge, WAITS),
            (Rewrites, WaitsForMerge, FOLLOWED),
            (Converts, WaitsForMerge, WAITS),
            (Merges, Stopped, MERGED),
            (Closes, Stopped, CLOSED),
            (CommitsOurFile, Asks, NOT_YET),
            (CommitsAnother, Asks, NOT_YET),
        ],
    )
    .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_keeps_pull_request_changes_by_people_made_before_the_push() {
    assert_outcomes(Phase::Push, BEFORE_THE_PUSH).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_keeps_pull_request_changes_by_people_made_before_the_merge() {
    assert_outcomes(
        Phase::Merge,
        &[
            (Edits, Asks, "the change waits for a person"),
            (Retargets, Asks, "the change waits for a person"),
            (
                Rewrites,
                WaitsForMerge,
                "Somebody rewrote countersign/issue-1, and the pushed commit is no longer on it",
            ),
            (Converts, Asks, "the change waits for a person"),
            (Merges, Done, "implement: done"),
            (Closes, Stopped, CLOSED),
            (CommitsOurFile, WaitsForMerge, "Somebody changed src/lib.rs on the branch after the push"),
            (CommitsAnother, Asks, OTHERS),
        ],
    )
    .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_keeps_pull_request_changes_by_people_made_at_a_fix_gate() {
    assert_outcomes(
        Phase::Fix,
        &[
            (Edits, WaitsForMerge, WAITS),
            (Retargets, WaitsForMerge, WAITS),
            (Rewrites, WaitsForMerge, FOLLOWED),
            (Converts, WaitsForMerge, WAITS),
            (Merges, Done, "merged while a new change was in progress"),
            (Closes, Stopped, CLOSED),
            (CommitsOurFile, Asks, NOT_YET),
            (CommitsAnother, Asks, NOT_YET),
        ],
    )
    .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn change_is_tested_on_the_new_default_branch_head_when_it_moves_during_the_run() {
    if !can_run().await {
        return;
    }
    let wraps =
        |sum: u8| format!("#[test]\nfn wraps() {{\n    assert_eq!(sums::sum(200, 100), {sum});\n}}\n");
    let mut w = specified("", plain).await;
    let maya = w.user("maya");
    let theirs = |w: &World, path: &str, text: &str| {
        let pushed = w.hub.push_commit(w.repo, "main", maya, &[(path, text.as_bytes())], "Theirs");
        pushed.unwrap().short().to_owned()
    };
    w.hub.label(w.repo, w.issue, maya, "countersign:implement").unwrap();
    w.wait_for_tests_in("N5").await;
    let more = "#[test]\nfn two_and_two_are_four() {\n    assert_eq!(sums::sum(2, 2), 4);\n}\n";
    let moved = theirs(&w, "tests/more.rs", more);
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let (gate, calls) = (w.gate().replace('\\', ""), w.calls().await.len());
    let expected = format!(
        "The change also passes on `{moved}`, a newer commit of `main` that changes none of the files of this change: 2 tests of the \
         change and 2 others."
    );
    assert!(gate.contains(&expected), "{gate}");
    // While the gate waits, main moves to a commit on which the change breaks a test.
    let moved = theirs(&w, "tests/wraps.rs", &wraps(44));
    w.comment("sam", &w.approve_line()).await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    let expected = format!(
        "The change fails tests on `{moved}`, a newer commit of `main` that changes none of the files of this change: `sums::wraps wraps`"
    );
    assert!(
        halt.contains(&expected)
            && halt.contains("The change was not pushed. Merge `main`")
            && halt.contains("fix the failure on `main`"),
        "{halt}"
    );
    w.nothing_is_pushed();
    // Somebody fixes the test on main.
    let moved = theirs(&w, "tests/wraps.rs", &wraps(255));
    w.comment("sam", "/retry").await;
    w.tried().await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.file_on_branch("src/lib.rs").unwrap().contains("saturating_add"));
    let status = w.status().body.replace('\\', "");
    assert!(status.contains(&format!("also passes on `{moved}`, a newer commit of `main`")), "{status}");
    assert_eq!(w.calls().await.len(), calls, "no further model calls");
    w.commits();
    w.pull();
    w.checks();
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_keeps_waiting_for_the_merge_when_default_branch_changes_break_a_fix() {
    if !can_run().await {
        return;
    }
    let standing = SavedWorld::at(Phase::Fix, swap_operands).await;
    let wraps = "#[test]\nfn wraps() {\n    assert_eq!(sums::sum(200, 100), 44);\n}\n";
    let settings = "[test\n";
    for (path, text, expected, pushed) in [
        ("tests/wraps.rs", wraps, "### ✋ The new change was not pushed", false),
        (REPOSITORY_FILE, settings, "because tests cannot be run: ", true),
    ] {
        let mut w = standing.world().await;
        w.hub.push_commit(w.repo, "main", w.user("maya"), &[(path, text.as_bytes())], "Theirs").unwrap();
        let (head, line) = (w.head(), w.find_approve_line().unwrap());
        w.comment("sam", &line).await;
        w.tried().await;
        w.wait(3700).await;
        let comments = w.bots().into_iter().map(|comment| comment.body).collect::<String>();
        assert_eq!(run_state(&w).await, WaitsForMerge, "{comments}");
        assert!(comments.contains(expected), "{comments}");
        assert_eq!(w.head() != head, pushed, "{comments}");
        w.mark_everything_seen();
    }
}
