//! People's own hands on the pull request of a change, at each step of it; and the default branch going on meanwhile.

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
pub(crate) enum Act {
    Edits,
    Retargets,
    Rewrites,
    Converts,
    Merges,
    Closes,
    /// One of their own, from the same branch into another.
    ClosesTheirs,
    CommitsOurFile,
    CommitsAnother,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// The tests run with the code.
    Work,
    /// The code gate waits.
    Gate,
    /// It was approved, and is not pushed yet.
    Push,
    /// It waits for the merge.
    Merge,
    /// A fix of what CI said waits at its gate.
    Fix,
}

impl At {
    /// Whether documents are files there: by default there is no pull request before the push.
    fn has_files(self) -> bool {
        matches!(self, Self::Work | Self::Gate | Self::Push)
    }
}

impl World {
    /// Somebody who maintains the repository does it.
    pub(crate) fn does(&self, act: Act) -> Result<(), HubError> {
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

    pub(crate) fn line_if_any(&self) -> Option<String> {
        let texts = self.bots().into_iter().rev().map(|comment| comment.body).collect::<Vec<_>>();
        texts
            .iter()
            .flat_map(|text| text.lines())
            .find(|line| line.starts_with("/approve implement "))
            .map(str::to_owned)
    }

    pub(crate) fn look_everywhere(&self) {
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

/// A world that stands there, to be copied.
pub(crate) struct Standing {
    place: TempDir,
    known: Known,
    now: Timestamp,
}

impl Standing {
    /// `then` is what the models say after the change itself.
    pub(crate) async fn at(at: At, then: impl FnOnce(Script) -> Script) -> Self {
        let (texts, files) = small();
        let setting = Setting { as_files: at.has_files(), files, bare: true, ..Setting::default() };
        let mut w = specified_in(texts, setting, |script, texts| then(plain(script, texts))).await;
        if at == At::Work {
            w.hub.label(w.repo, w.issue, w.user("maya"), "countersign:implement").unwrap();
            w.tried_until("N5").await;
        } else {
            w.implement().await;
        }
        if matches!(at, At::Push | At::Merge | At::Fix) {
            let line = w.approve_line();
            w.pass(60);
            w.hub.comment(w.repo, w.issue, w.user("sam"), &line).unwrap();
            match at {
                At::Push => {
                    while w.run().await.unwrap().step_id != "N7b" {
                        w.step(1).await
                    }
                }
                _ => w.settle().await,
            }
        }
        if at == At::Fix {
            let head = w.head();
            w.job(&head, "build", "failure");
            w.settle().await;
            w.wait(30).await;
            w.tried().await;
        }
        w.look_everywhere();
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

/// How the run stands after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// At the code gate.
    Asks,
    WaitsForMerge,
    Stopped,
    Halted,
    Done,
}
use Act::*;
use Ends::*;

async fn stands(w: &World) -> Ends {
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

/// The further change.
fn turned(script: Script) -> Script {
    let script = script.edits("left.saturating_add(right)", "right.saturating_add(left)").of("implement");
    script.reviews(&approved()).of("implement")
}

/// Each act, or of a sample one in three, in a world of its own; then somebody approves what waits, or where it waits for the merge asks for a change. How
/// the run stands then, and what people are told on the issue or the pull request.
async fn each(at: At, told: &[(Act, Ends, &str)]) {
    if !can_run().await {
        return;
    }
    let mut chance = Random::seeded("people's hands");
    let (first, step) = if all() { (0, 1) } else { (chance.below(3), 3) };
    let standing = Standing::at(at, turned).await;
    let mut wrong = Vec::new();
    for (act, ends, says) in told.iter().skip(first).step_by(step) {
        let mut w = standing.world().await;
        w.does(*act).unwrap();
        let theirs = w.head();
        w.settle().await;
        w.wait(30).await;
        w.tried().await;
        match stands(&w).await {
            Asks => {
                let line = w.line_if_any().unwrap();
                w.comment("sam", &line).await;
            }
            WaitsForMerge if at == At::Merge => w.comment("sam", "/revise the other way round").await,
            _ => {}
        }
        w.tried().await;
        let stands = stands(&w).await;
        let pulls = w.pulls();
        let threads = pulls.iter().flat_map(|pull| w.on_thread(pull.number)).collect::<Vec<_>>();
        let said = w.bots().into_iter().map(|comment| comment.body).chain(threads).collect::<String>();
        if stands != *ends || !said.replace('\\', "").contains(says) {
            wrong.push(format!("{at:?} {act:?}: {stands:?}, {says}\n{said}"));
        }
        // What is theirs stays: commits, base, readiness; and there is no second pull request beside an open one.
        let holds = w.hub.log(w.repo, &w.branch()).iter().any(|commit| commit.oid == theirs);
        let first = &pulls[0];
        let base = if *act == Retargets { "next" } else { "main" };
        let open = pulls.iter().filter(|pull| pull.state == "open").count();
        let draft = if at.has_files() { !matches!(act, Converts | Merges) } else { *act == Converts };
        let ready = first.draft == draft && !first.title.starts_with("[WIP]");
        if !holds
            || first.base != base
            || !ready
            || open > 1
            || (pulls.len() > 1 && !matches!(act, Rewrites | Merges | ClosesTheirs))
        {
            wrong.push(format!("{at:?} {act:?}: {pulls:#?}"));
        }
        w.look_everywhere();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

const WAITS: &str = "**Waits for the merge.**";
const MERGED: &str = "its pull request was merged";
const CLOSED: &str = "its pull request was closed";
const FOLLOWED: &str = "countersign/issue-1-2";
const OURS: &str = "Somebody changed `src/lib.rs` on the issue's branch, which this changes as well";
const OTHERS: &str = "**Others have files on the document's branch.**";
const NOT_YET: &str = "Nothing was approved yet";

/// What comes of each act while nothing is pushed yet.
const BEFORE_THE_PUSH: &[(Act, Ends, &str)] = &[
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
async fn people_act_on_the_pull_request_while_the_code_is_tested() {
    each(At::Work, BEFORE_THE_PUSH).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn people_act_on_the_pull_request_while_the_code_gate_waits() {
    each(
        At::Gate,
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
async fn people_act_on_the_pull_request_between_approval_and_push() {
    each(At::Push, BEFORE_THE_PUSH).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn people_act_on_the_pull_request_that_waits_for_its_merge() {
    each(
        At::Merge,
        &[
            (Edits, Asks, "the change waits for a person"),
            (Retargets, Asks, "the change waits for a person"),
            (
                Rewrites,
                WaitsForMerge,
                "Somebody rewrote countersign/issue-1, and what was pushed is not on it any more",
            ),
            (Converts, Asks, "the change waits for a person"),
            (Merges, Done, "implement: done"),
            (Closes, Stopped, CLOSED),
            (CommitsOurFile, WaitsForMerge, "Somebody changed src/lib.rs on the branch since it was pushed"),
            (CommitsAnother, Asks, OTHERS),
        ],
    )
    .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn people_act_on_the_pull_request_while_a_fix_waits_at_its_gate() {
    each(
        At::Fix,
        &[
            (Edits, WaitsForMerge, WAITS),
            (Retargets, WaitsForMerge, WAITS),
            (Rewrites, WaitsForMerge, FOLLOWED),
            (Converts, WaitsForMerge, WAITS),
            (Merges, Done, "merged while a further change was at work"),
            (Closes, Stopped, CLOSED),
            (CommitsOurFile, Asks, NOT_YET),
            (CommitsAnother, Asks, NOT_YET),
        ],
    )
    .await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_default_branch_that_goes_on_elsewhere_has_the_change_tried_there() {
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
    w.tried_until("N5").await;
    let more = "#[test]\nfn two_and_two_are_four() {\n    assert_eq!(sums::sum(2, 2), 4);\n}\n";
    let moved = theirs(&w, "tests/more.rs", more);
    w.tried().await;
    w.stands(RunViewStatus::Asking).await;
    let (gate, calls) = (w.gate().replace('\\', ""), w.calls().await.len());
    let said = format!(
        "The change was tried on `{moved}` as well, which was `main` then and changes no file of this: with it on top \
                        all pass, 2 tests of the change and 2 others."
    );
    assert!(gate.contains(&said), "{gate}");
    // While people look at it it goes on to where the change breaks something.
    let moved = theirs(&w, "tests/wraps.rs", &wraps(44));
    w.comment("sam", &w.approve_line()).await;
    w.tried().await;
    w.stands(RunViewStatus::Failed).await;
    let halt = w.last("Halted at").body.replace('\\', "");
    let said = format!(
        "The change was tried on `{moved}` as well, which was `main` then and changes no file of this: with it on top \
                        not all tests pass: `sums::wraps wraps`"
    );
    assert!(
        halt.contains(&said)
            && halt.contains("The change is not pushed. Merge `main`")
            && halt.contains("mend it on `main`"),
        "{halt}"
    );
    w.nothing_is_pushed();
    // Somebody mends that there.
    let moved = theirs(&w, "tests/wraps.rs", &wraps(255));
    w.comment("sam", "/retry").await;
    w.tried().await;
    w.stands(RunViewStatus::Done).await;
    assert!(w.on_branch("src/lib.rs").unwrap().contains("saturating_add"));
    let said = w.status().body.replace('\\', "");
    assert!(said.contains(&format!("tried on `{moved}` as well, which was `main` then")), "{said}");
    assert_eq!(w.calls().await.len(), calls, "nobody is asked for anything but to run it");
    w.commits();
    w.pull();
    w.checks();
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_further_change_that_fails_on_the_default_branch_leaves_what_was_pushed() {
    if !can_run().await {
        return;
    }
    let standing = Standing::at(At::Fix, turned).await;
    let wraps = "#[test]\nfn wraps() {\n    assert_eq!(sums::sum(200, 100), 44);\n}\n";
    let settings = "[test\n";
    for (path, text, says, pushed) in [
        ("tests/wraps.rs", wraps, "### ✋ The further change is not pushed", false),
        (REPOSITORY_FILE, settings, "where the change is untried, because nothing can be run there: ", true),
    ] {
        let mut w = standing.world().await;
        w.hub.push_commit(w.repo, "main", w.user("maya"), &[(path, text.as_bytes())], "Theirs").unwrap();
        let (head, line) = (w.head(), w.line_if_any().unwrap());
        w.comment("sam", &line).await;
        w.tried().await;
        w.wait(3700).await;
        let said = w.bots().into_iter().map(|comment| comment.body).collect::<String>();
        assert_eq!(stands(&w).await, WaitsForMerge, "{said}");
        assert!(said.contains(says), "{said}");
        assert_eq!(w.head() != head, pushed, "{said}");
        w.look_everywhere();
    }
}
