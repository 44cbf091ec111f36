//! People, CI and fate in whatever order, from a code gate on: some things hold whatever happens.

use std::{collections::BTreeMap, time::Instant};

use countersign::{
    engine::{ApprovalRow, EnginePort as _, RunFilter, RunView, RunViewStatus},
    localhub::ActionsJob,
    types::{Oid, RepoId},
};

use crate::{
    hands::{Act, At, Standing},
    implement::{CHANGE, can_run},
    random::{Random, say},
    script::{Script, approved},
    unseen::BOT,
    world::World,
};

/// What somebody does. What makes no sense as things stand is left out.
#[derive(Debug, Clone, Copy)]
enum Move {
    Hand(Act),
    Say(&'static str, &'static str),
    /// The line of the newest gate.
    Approve(&'static str),
    Review(&'static str, &'static str),
    /// A job says this, of our repository or of a fork.
    Job(&'static str, bool),
    /// The default branch gets a file, ours or another.
    Base(&'static str),
    /// GitHub delivers again what it delivered.
    Redeliver(usize),
    Wait(u64),
    Kill,
}

const WORDS: &[&str] = &[
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

fn next(random: &mut Random) -> Move {
    use Act::*;
    const HANDS: &[Act] = &[
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
        0..14 => Move::Hand(random.one_of(HANDS)),
        14..38 => Move::Approve(random.one_of(PEOPLE)),
        38..54 => Move::Say(random.one_of(PEOPLE), random.one_of(WORDS)),
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

/// What holds at every moment, as far as it was seen so far.
#[derive(Default)]
struct Seen {
    /// Files as people left them on a branch, each with the commit that did.
    theirs: BTreeMap<(String, String), Vec<u8>>,
    /// What people moved branches to last, or committed: it stays below whatever follows.
    heads: BTreeMap<String, Oid>,
}

impl Seen {
    /// Each line is something that does not hold.
    async fn wrong(&mut self, w: &World) -> Vec<String> {
        let (mut wrong, repo) = (Vec::new(), w.repo);
        let (runs, latest) = (w.all_runs().await, w.run().await.unwrap().id);
        let said: String = w.bots().into_iter().map(|comment| comment.body).collect();
        // Only faults of ours are for whoever runs the server.
        if said.contains("countersign retry ") {
            wrong.push("a run ended by a fault of ours".to_owned());
        }
        for run in runs.iter().filter(|run| !run.status.is_live()) {
            let why = run.why.as_deref().or(run.outcome.as_ref().map(|outcome| outcome.summary.as_str()));
            // A later run of the issue, of whichever workflow, takes the status comment.
            let shown = run.id != latest || said.contains(&format!("un `{}`", run.id));
            if why.is_none_or(|why| !why.contains(' ')) || !shown {
                wrong.push(format!("nobody can tell why {} is {:?}: {why:?}", run.id, run.status));
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
                let of = |row: &ApprovalRow| {
                    commit.message.contains(&format!("Countersign-Document: {}", row.document))
                };
                if !approved.iter().any(of) {
                    wrong.push(format!("{branch} has code that nobody approved: {}", commit.message));
                }
            }
            if branch == "main"
                && log.iter().any(|commit| commit.author == BOT)
                && !w.pulls().iter().any(|pull| pull.merged)
            {
                wrong.push("main has a commit of ours".to_owned());
            }
            if self.heads.get(&branch).is_some_and(|head| !log.iter().any(|commit| commit.oid == *head)) {
                wrong.push(format!("{branch} does not hold what somebody left there"));
            }
        }
        for ((branch, path), text) in &self.theirs {
            if w.hub.branch_file(repo, branch, path).is_some_and(|now| now != *text) {
                wrong.push(format!("{path} on {branch} is not as somebody left it"));
            }
        }
        let pulls = w.hub.pulls(repo);
        let open = pulls.iter().filter(|pull| pull.state == "open" && pull.author == BOT).count();
        if open > 1 {
            wrong.push(format!("{open} pull requests of ours are open: {pulls:#?}"));
        }
        let live = runs.iter().filter(|run| run.status.is_live()).count();
        if live > 1 {
            wrong.push(format!("{live} runs are alive"));
        }
        wrong
    }

    /// What people left on the branches, after one of them did something there.
    fn note(&mut self, w: &World, act: Act) {
        let branch = w.branch();
        let Some((_, head)) = w.hub.branches(w.repo).into_iter().find(|(name, _)| *name == branch) else {
            return;
        };
        let path = match act {
            Act::CommitsOurFile => "src/lib.rs",
            Act::CommitsAnother => "OTHER.md",
            Act::Rewrites => {
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

    fn moved(&self, next: Move) {
        let (repo, user) = (self.repo, |who: &str| self.user(who));
        let pull = self.pull_number();
        // What GitHub refuses was never done.
        let _ = match next {
            Move::Hand(act) => self.does(act),
            Move::Say(who, words) => self.hub.comment(repo, self.issue, user(who), words).map(drop),
            Move::Approve(who) => match self.line_if_any() {
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

    /// Until no tests run any more, or it waits for something that does not come.
    async fn at_rest(&mut self) {
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

async fn played(standing: &Standing, moves: &[Move]) -> (Vec<String>, RunViewStatus) {
    let (mut w, mut seen) = (standing.world().await, Seen::default());
    for (n, next) in moves.iter().enumerate() {
        w.pass(11);
        if matches!(next, Move::Kill) {
            w = w.restart().await;
        }
        w.moved(*next);
        if let Move::Hand(act) = next {
            seen.note(&w, *act);
        }
        // Sometimes the next one comes before anything was done about this.
        if n % 3 == 2 {
            w.step(2).await;
        } else {
            w.settle().await;
        }
        if let Move::Wait(seconds) = next {
            w.pass(*seconds);
        }
        w.at_rest().await;
        let wrong = seen.wrong(&w).await;
        if !wrong.is_empty() {
            let told = wrong.into_iter().chain([format!("after {n}: {next:?}"), w.thread()]).collect();
            w.look_everywhere();
            return (told, w.run().await.unwrap().status);
        }
    }
    w.hub.comment(w.repo, w.issue, w.user("maya"), "/stop").unwrap();
    w.at_rest().await;
    let status = w.run().await.unwrap().status;
    let mut wrong = seen.wrong(&w).await;
    if w.all_runs().await.iter().any(|run| run.status.is_live()) {
        wrong.push(format!("it does not end: {status:?}\n{}", w.thread()));
    }
    let counts = w.app.store.inbox().counts().await.unwrap();
    if counts.new + counts.taken + counts.dead > 0 {
        wrong.push(format!("the inbox still has {counts:?}"));
    }
    if !wrong.is_empty() {
        wrong.push(w.thread());
    }
    w.look_everywhere();
    (wrong, status)
}

#[tokio::test]
#[ignore = "takes long"]
async fn whatever_people_and_ci_do_nothing_unseen_is_pushed_and_nothing_of_theirs_is_written_over() {
    if !can_run().await {
        return;
    }
    let (begun, mut chance) = (Instant::now(), Random::seeded("sequences on the pull request"));
    let (many, moves) = if crate::world::all() { (40, 14) } else { (2, 8) };
    let turns = |script: Script| {
        (0..9).fold(script, |script, n| {
            let (from, to) = ("left.saturating_add(right)", "right.saturating_add(left)");
            let (from, to) = if n % 2 == 0 { (from, to) } else { (to, from) };
            script.edits(from, to).of("implement").reviews(&approved()).of("implement")
        })
    };
    let gate = Standing::at(At::Gate, turns).await;
    let mut ends = Vec::new();
    for n in 0..many {
        let mut random = chance.fork();
        let pushed = (n % 2 == 0).then_some(Move::Approve("sam"));
        let moves: Vec<_> = pushed.into_iter().chain((0..moves).map(|_| next(&mut random))).collect();
        let (wrong, status) = played(&gate, &moves).await;
        assert!(wrong.is_empty(), "sequence {n}: {moves:#?}\n{}", wrong.join("\n"));
        ends.push(status);
    }
    say(&format!("{many} sequences of {moves} moves ended {ends:?}, {} s", begun.elapsed().as_secs()));
}
