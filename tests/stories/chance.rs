//! Random sequences of events by people and CI, starting at the code gate. The invariants are checked after each event.

use std::{collections::BTreeMap, time::Instant};

use countersign::{
    engine::{ApprovalRow, EnginePort as _, RunFilter, RunView, RunViewStatus},
    localhub::ActionsJob,
    types::{Oid, RepoId},
};

use crate::{
    hands::{Phase, PullAction, SavedWorld},
    implement::{CHANGE, can_run},
    random::{Random, say},
    script::{Script, approved},
    unseen::BOT,
    world::World,
};

/// A random event. An event that is impossible in the current state has no effect.
#[derive(Debug, Clone, Copy)]
enum Move {
    PullAction(PullAction),
    Comment(&'static str, &'static str),
    /// This person pastes the approve command of the newest gate.
    Approve(&'static str),
    Review(&'static str, &'static str),
    /// A CI job ends with this conclusion. `true`: the job belongs to a fork, not to our repository.
    Job(&'static str, bool),
    /// A commit changes this file on the default branch.
    Base(&'static str),
    /// GitHub redelivers an earlier webhook.
    Redeliver(usize),
    Wait(u64),
    Kill,
}

const COMMENTS: &[&str] = &[
    "/revise the other way round",
    "/retry",
    "/restart implement",
    "/implement",
    "/auto",
    "/approve",
    "/stop",
    "/approve implement 000000000000",
    "/must-fix F1",
    "Looks good.",
];
const PEOPLE: &[&str] = &["sam", "sam", "max", "maya", "tess", "stranger"];

fn random_move(random: &mut Random) -> Move {
    use PullAction::*;
    const ACTIONS: &[PullAction] = &[
        Edits,
        Retargets,
        Rewrites,
        Converts,
        Merges,
        Closes,
        CommitsOurFile,
        CommitsAnother,
        CommitsAnother,
    ];
    match random.below(100) {
        0..14 => Move::PullAction(random.one_of(ACTIONS)),
        14..38 => Move::Approve(random.one_of(PEOPLE)),
        38..54 => Move::Comment(random.one_of(PEOPLE), random.one_of(COMMENTS)),
        54..64 => Move::Review(
            random.one_of(PEOPLE),
            random.one_of(&["COMMENTED", "CHANGES_REQUESTED", "APPROVED"]),
        ),
        64..80 => Move::Job(
            random.one_of(&["failure", "failure", "success", "cancelled", ""]),
            random.below(4) == 0,
        ),
        80..87 => Move::Base(random.one_of(&["NEWS.md", "NEWS.md", "src/lib.rs"])),
        87..91 => Move::Redeliver(random.below(1000)),
        91..97 => Move::Wait(random.one_of(&[30, 60, 3700])),
        _ => Move::Kill,
    }
}

/// Record of people's commits to the branches so far. The invariants are checked against this record.
#[derive(Default)]
struct BranchState {
    /// Contents that people gave to files, by branch and path.
    theirs: BTreeMap<(String, String), Vec<u8>>,
    /// Latest commit that a person made on each branch. The branch must always contain that commit.
    heads: BTreeMap<String, Oid>,
}

impl BranchState {
    /// Returns one line for each violated invariant.
    async fn violations(&mut self, w: &World) -> Vec<String> {
        let (mut violations, repo) = (Vec::new(), w.repo);
        let (runs, latest) = (w.all_runs().await, w.run().await.unwrap().id);
        let comments: String = w.bots().into_iter().map(|comment| comment.body).collect();
        // Only internal errors tell the operator to run `countersign retry`.
        if comments.contains("countersign retry ") {
            violations.push("a run ended by an internal error".to_owned());
        }
        for run in runs.iter().filter(|run| !run.status.is_live()) {
            let why = run.why.as_deref().or(run.outcome.as_ref().map(|outcome| outcome.summary.as_str()));
            // A later run of the issue takes over the status comment.
            let shown = run.id != latest || comments.contains(&format!("un `{}`", run.id));
            if why.is_none_or(|why| !why.contains(' ')) || !shown {
                violations.push(format!("nothing says why {} is {:?}: {why:?}", run.id, run.status));
            }
        }
        let db = w.app.store.repository_database(repo).await.unwrap();
        let mut approved = Vec::new();
        for run in &runs {
            approved.extend(db.ledger(run.id).await.unwrap().approvals);
        }
        for (branch, _) in w.hub.branches(repo) {
            let log = w.hub.log(repo, &branch);
            let ours = log.iter().filter(|commit| commit.author == BOT && commit.message.starts_with(CHANGE));
            for commit in ours {
                let covers = |row: &ApprovalRow| {
                    commit.message.contains(&format!("Countersign-Document: {}", row.document))
                };
                if !approved.iter().any(covers) {
                    violations.push(format!("{branch} has code that nobody approved: {}", commit.message));
                }
            }
            if branch == "main"
                && log.iter().any(|commit| commit.author == BOT)
                && !w.pulls().iter().any(|pull| pull.merged)
            {
                violations.push("main has a commit of ours".to_owned());
            }
            if self.heads.get(&branch).is_some_and(|head| !log.iter().any(|commit| commit.oid == *head)) {
                violations.push(format!("{branch} lost a person's commit"));
            }
        }
        for ((branch, path), text) in &self.theirs {
            if w.hub.branch_file(repo, branch, path).is_some_and(|now| now != *text) {
                violations.push(format!("{path} on {branch} is not as a person left it"));
            }
        }
        let pulls = w.hub.pulls(repo);
        let open = pulls.iter().filter(|pull| pull.state == "open" && pull.author == BOT).count();
        if open > 1 {
            violations.push(format!("{open} pull requests of ours are open: {pulls:#?}"));
        }
        let live = runs.iter().filter(|run| run.status.is_live()).count();
        if live > 1 {
            violations.push(format!("{live} runs are alive"));
        }
        violations
    }

    /// Records that a person committed to the issue's branch or rewrote the branch.
    fn record(&mut self, w: &World, act: PullAction) {
        let branch = w.branch();
        let Some((_, head)) = w.hub.branches(w.repo).into_iter().find(|(name, _)| *name == branch) else {
            return;
        };
        let path = match act {
            PullAction::CommitsOurFile => "src/lib.rs",
            PullAction::CommitsAnother => "OTHER.md",
            PullAction::Rewrites => {
                self.theirs.retain(|(of, _), _| *of != branch);
                self.heads.insert(branch, head);
                return;
            }
            _ => return,
        };
        let text = w.hub.branch_file(w.repo, &branch, path).unwrap();
        self.theirs.insert((branch.clone(), path.to_owned()), text);
        self.heads.insert(branch, head);
    }
}

impl World {
    async fn all_runs(&self) -> Vec<RunView> {
        let filter = RunFilter { repo: Some(self.repo), issue: None, live_only: false };
        let mut runs = self.app.engine.list(filter).await.unwrap();
        runs.retain(|run| run.workflow == "implement");
        runs
    }

    fn apply(&self, next: Move) {
        let (repo, user) = (self.repo, |who: &str| self.user(who));
        let pull = self.pull_number();
        // GitHub may refuse the event; then it did not happen.
        let _ = match next {
            Move::PullAction(act) => self.perform(act),
            Move::Comment(who, words) => self.hub.comment(repo, self.issue, user(who), words).map(drop),
            Move::Approve(who) => match self.find_approve_line() {
                Some(line) => self.hub.comment(repo, self.issue, user(who), &line).map(drop),
                None => Ok(()),
            },
            Move::Review(who, state) => {
                let at = [("src/lib.rs", 5, "Why this?")];
                self.hub.review_lines(repo, pull, user(who), state, "Have a look.", &at).map(drop)
            }
            Move::Job(conclusion, of_fork) => {
                let head = self.head();
                let conclusion = Some(conclusion.to_owned()).filter(|word| !word.is_empty());
                let fork = of_fork.then_some(RepoId(77));
                self.hub
                    .report_job(
                        repo,
                        &head,
                        ActionsJob { name: "build".into(), conclusion, fork, ..ActionsJob::default() },
                    )
                    .map(drop)
            }
            Move::Base(path) => {
                let before = self.hub.branch_file(repo, "main", path).unwrap_or_default();
                let text = [&before[..], b"// more\n"].concat();
                self.hub.push_commit(repo, "main", user("maya"), &[(path, &text)], "Theirs").map(drop)
            }
            Move::Redeliver(nth) => {
                let all = self.hub.deliveries();
                self.hub.redeliver(&all[nth % all.len()].guid)
            }
            Move::Wait(_) | Move::Kill => Ok(()),
        };
    }

    /// Lets the bot work until the run has left the status `Waiting`. Gives up after 400 rounds, because the run may
    /// wait for an event that never comes.
    async fn wait_until_idle(&mut self) {
        self.settle().await;
        for _ in 0..400 {
            if self.run().await.is_none_or(|run| run.status != RunViewStatus::Waiting) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            self.pass(10);
            self.settle().await;
        }
    }
}

async fn play(standing: &SavedWorld, moves: &[Move]) -> (Vec<String>, RunViewStatus) {
    let (mut w, mut branches) = (standing.world().await, BranchState::default());
    for (n, next) in moves.iter().enumerate() {
        w.pass(11);
        if matches!(next, Move::Kill) {
            w = w.restart().await;
        }
        w.apply(*next);
        if let Move::PullAction(act) = next {
            branches.record(&w, *act);
        }
        // Every third event is followed by the next before it is fully processed.
        if n % 3 == 2 {
            w.step(2).await;
        } else {
            w.settle().await;
        }
        if let Move::Wait(seconds) = next {
            w.pass(*seconds);
        }
        w.wait_until_idle().await;
        let failures = branches.violations(&w).await;
        if !failures.is_empty() {
            let report = failures.into_iter().chain([format!("after {n}: {next:?}"), w.thread()]).collect();
            w.mark_everything_seen();
            return (report, w.run().await.unwrap().status);
        }
    }
    w.hub.comment(w.repo, w.issue, w.user("maya"), "/stop").unwrap();
    w.wait_until_idle().await;
    let status = w.run().await.unwrap().status;
    let mut failures = branches.violations(&w).await;
    if w.all_runs().await.iter().any(|run| run.status.is_live()) {
        failures.push(format!("the run does not end: {status:?}\n{}", w.thread()));
    }
    let counts = w.app.store.inbox().counts().await.unwrap();
    if counts.new + counts.taken + counts.dead > 0 {
        failures.push(format!("the inbox still has {counts:?}"));
    }
    if !failures.is_empty() {
        failures.push(w.thread());
    }
    w.mark_everything_seen();
    (failures, status)
}

#[tokio::test]
#[ignore = "takes long"]
async fn random_events_never_push_unapproved_code_or_overwrite_human_commits() {
    if !can_run().await {
        return;
    }
    let (started, mut chance) = (Instant::now(), Random::seeded("sequences on the pull request"));
    let (many, moves) = if crate::world::all() { (40, 14) } else { (2, 8) };
    let turns = |script: Script| {
        (0..9).fold(script, |script, n| {
            let (from, to) = ("left.saturating_add(right)", "right.saturating_add(left)");
            let (from, to) = if n % 2 == 0 { (from, to) } else { (to, from) };
            script.edits(from, to).of("implement").reviews(&approved()).of("implement")
        })
    };
    let gate = SavedWorld::at(Phase::Gate, turns).await;
    let mut ends = Vec::new();
    for n in 0..many {
        let mut random = chance.fork();
        let pushed = (n % 2 == 0).then_some(Move::Approve("sam"));
        let moves: Vec<_> = pushed.into_iter().chain((0..moves).map(|_| random_move(&mut random))).collect();
        let (failures, status) = play(&gate, &moves).await;
        assert!(failures.is_empty(), "sequence {n}: {moves:#?}\n{}", failures.join("\n"));
        ends.push(status);
    }
    say(&format!("{many} sequences of {moves} moves ended {ends:?}, {} s", started.elapsed().as_secs()));
}
