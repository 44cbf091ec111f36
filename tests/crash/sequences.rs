//! Random sequences of acts by people and GitHub. Invariants must hold at the end of each sequence. A bot that was
//! killed during the sequence must reach the same state as a bot that was not.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use countersign::{
    clock::Clock,
    engine::{EnginePort, RunFilter, RunView, RunViewStatus},
    localhub::{Hub, HubDelivery, HubError},
    types::{DeliveryId, InstallationId, IssueNo, RepoId, Timestamp},
};
use secrecy::SecretString;
use tempfile::TempDir;

use crate::{
    matrix::{runtime, setting},
    models::Models,
    points::copy,
    random::Random,
    say,
    seen::seen,
    world::{Known, SECRET, Setting, World, directory},
};

/// An act in a sequence. If the act is impossible at its turn, it is skipped.
#[derive(Debug, Clone, Copy)]
enum Act {
    Label(&'static str, &'static str),
    Unlabel(&'static str),
    Say(&'static str, Words),
    /// The newest comment of a person is edited into a command.
    EditComment,
    EditIssue,
    Close,
    Reopen,
    ClosePull,
    ReopenPull,
    Suspend,
    Lift,
    /// GitHub sends the delivery with this number again.
    Redeliver(usize),
    /// Someone requests a redelivery of every lost delivery, newest first.
    RedeliverLost,
    /// The bot sweeps GitHub's delivery log.
    Sweep,
}

#[derive(Debug, Clone, Copy)]
enum Words {
    Plain(&'static str),
    /// The approve command that the newest gate shows.
    Approve,
}

/// What happens between one action and the next: how much time passes, or how many steps the bot takes.
#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    Steps(usize),
    Settle,
    Wait(u64),
}

#[derive(Debug, Clone, Copy)]
struct Move {
    act: Act,
    /// Whether the webhook deliveries that the act causes are lost.
    lost: bool,
    then: Then,
    /// Whether the bot is killed before this act and restarted on the data that the kill left.
    killed: bool,
}

const START: &str = "countersign:lld";
const STOP: &str = "countersign:stop";
const PEOPLE: &[&str] = &["maya", "sam", "sam", "tess", "max", "stranger"];
const WRONG: &str = "/approve lld 0000000000000000000000000000000000000000000000000000000000000000";
const WORDS: &[Words] = &[
    Words::Plain("/lld"),
    Words::Approve,
    Words::Approve,
    Words::Approve,
    Words::Plain(WRONG),
    Words::Plain("/approve"),
    Words::Plain("/revise say what happens to an empty file"),
    Words::Plain("/revise Name the exit status."),
    Words::Plain("/revise"),
    Words::Plain("/override I have read it and take the blame."),
    Words::Plain("/stop"),
    Words::Plain("/retry"),
    Words::Plain("/status"),
    Words::Plain("/help\n/status"),
    Words::Plain("Looks good to me."),
];

fn act(random: &mut Random) -> Act {
    match random.below(100) {
        0..14 => Act::Label(random.one_of(&["maya", "maya", "tess", "stranger"]), START),
        14..17 => Act::Unlabel(START),
        17..21 => Act::Label(random.one_of(&["tess", "sam", "stranger"]), STOP),
        21..23 => Act::Unlabel(STOP),
        23..55 => Act::Say(random.one_of(PEOPLE), random.one_of(WORDS)),
        55..58 => Act::EditComment,
        58..63 => Act::EditIssue,
        63..67 => Act::Close,
        67..72 => Act::Reopen,
        72..75 => Act::ClosePull,
        75..78 => Act::ReopenPull,
        78..82 => Act::Suspend,
        82..87 => Act::Lift,
        87..93 => Act::Redeliver(random.below(1000)),
        93..97 => Act::RedeliverLost,
        _ => Act::Sweep,
    }
}

fn then(random: &mut Random) -> Then {
    match random.below(10) {
        0 => Then::Nothing,
        1..4 => Then::Steps(random.below(4)),
        4..8 => Then::Settle,
        _ => Then::Wait(random.one_of(&[15, 30, 60, 180])),
    }
}

/// Creates a random sequence. It starts with a label that starts a run, so that a run exists when kills happen.
fn sequence(random: &mut Random) -> Vec<Move> {
    let first = Move { act: Act::Label("maya", START), lost: false, then: then(random), killed: false };
    let mut moves = vec![first];
    for _ in 0..5 + random.below(8) {
        let (act, then) = (act(random), then(random));
        let (lost, killed) = (random.below(6) == 0, random.below(3) == 0);
        moves.push(Move { act, lost, then, killed });
    }
    moves
}

/// Returns the shortest sequence that leads to an approval, because random sequences do not always contain an approval.
fn shortest_approval() -> Vec<Move> {
    let killed = |act| Move { act, lost: false, then: Then::Settle, killed: true };
    vec![killed(Act::Label("maya", START)), killed(Act::Say("sam", Words::Approve))]
}

impl World {
    async fn apply_move(mut self, Move { act, lost, then, killed }: Move, kills: bool) -> Self {
        self.pass(7);
        self.hub.wait_for_webhooks().await;
        if killed && kills {
            let (bot, left) = (self.directory().join("bot"), self.directory().join("left"));
            copy(&bot, &left);
            // A clean shutdown empties the write-ahead log.
            assert!(
                fs::metadata(left.join("data/main.db-wal")).unwrap().len() > 0,
                "the write-ahead log is empty, so this is not the state after a kill"
            );
            let swap = |_: &Hub| {
                fs::remove_dir_all(&bot).unwrap();
                fs::rename(&left, &bot).unwrap();
            };
            self = self.restart_after(swap).await;
        }
        if killed {
            // After a kill the bot checks uncertain writes twice, seconds apart. An act within these seconds might
            // get a different reply, so both worlds wait.
            self.wait(60).await;
        }
        if lost {
            let unreachable = "http://127.0.0.1:9/".parse().unwrap();
            self.deliver_to(unreachable);
            self.apply_act(act);
            self.hub.wait_for_webhooks().await;
            self.deliver_to(self.webhook.clone());
        } else {
            self.apply_act(act);
        }
        if matches!(act, Act::Sweep) {
            self.hub.wait_for_webhooks().await;
            self.app.intake.sweep().await.unwrap();
        }
        match then {
            Then::Nothing => self.hub.wait_for_webhooks().await,
            Then::Steps(steps) => self.step(steps).await,
            Then::Settle => self.settle().await,
            Then::Wait(seconds) => self.wait(seconds).await,
        }
        self
    }

    fn deliver_to(&self, url: url::Url) {
        let app = self.app.settings.app.id;
        self.hub.set_webhook(app, Some(url), &SecretString::from(SECRET)).unwrap();
    }

    fn apply_act(&self, act: Act) {
        drop(apply_act(&self.hub, (self.repo, self.issue, self.installation), act, &self.line()));
    }

    /// Returns the approve command of the newest gate. Without a gate, returns an approve command with a wrong hash.
    fn line(&self) -> String {
        let comments = self.view().comments;
        let ours = comments.iter().rev().filter(|c| c.author == BOT);
        let line =
            |body: &str| body.lines().find(|line| line.starts_with("/approve lld ")).map(str::to_owned);
        ours.filter_map(|c| line(&c.body)).next().unwrap_or_else(|| WRONG.to_owned())
    }

    async fn runs(&self) -> Vec<RunView> {
        let filter = RunFilter { repo: Some(self.repo), issue: None, live_only: false };
        self.app.engine.list(filter).await.unwrap()
    }

    /// Lets the bot work and time pass until nothing more can happen.
    async fn wait_for_quiet(&mut self) {
        drop(self.hub.suspend(self.installation, false));
        self.settle().await;
        for _ in 0..2 {
            self.app.intake.sweep().await.unwrap();
            self.app.intake.find_missed_labels().await.unwrap();
            for _ in 0..4 {
                self.pass(300);
                self.settle().await;
            }
        }
    }
}

const BOT: &str = "countersign[bot]";

type Place = (RepoId, IssueNo, InstallationId);

fn apply_act(hub: &Hub, (repo, issue, installation): Place, act: Act, line: &str) -> Result<(), HubError> {
    let user = |login: &str| hub.user_id(login).unwrap();
    let pull = || hub.pulls(repo).last().map(|pull| pull.number).ok_or_else(|| missing("no pull request"));
    match act {
        Act::Label(who, label) => hub.label(repo, issue, user(who), label),
        Act::Unlabel(label) => hub.unlabel(repo, issue, user("maya"), label),
        Act::Say(who, words) => {
            let text = if let Words::Plain(text) = words { text } else { line };
            hub.comment(repo, issue, user(who), text).map(drop)
        }
        Act::EditComment => {
            let comments = hub.issue(repo, issue).unwrap().comments;
            let newest = comments.iter().rfind(|c| c.author != BOT).ok_or_else(|| missing("no comment"))?;
            hub.edit_comment(repo, newest.id, user(&newest.author), line)
        }
        Act::EditIssue => {
            let body = hub.issue(repo, issue).unwrap().body + "\n\nAnd it should be fast.";
            hub.edit_issue(repo, issue, user("maya"), None, Some(&body))
        }
        Act::Close => hub.close_issue(repo, issue, user("maya")),
        Act::Reopen => hub.reopen(repo, issue, user("maya")),
        Act::ClosePull => hub.close_issue(repo, pull()?, user("maya")),
        Act::ReopenPull => hub.reopen(repo, pull()?, user("maya")),
        Act::Suspend => hub.suspend(installation, true),
        Act::Lift => hub.suspend(installation, false),
        Act::Redeliver(nth) => {
            let all = hub.deliveries();
            hub.redeliver(&all[nth % all.len()].guid)
        }
        Act::RedeliverLost => {
            let lost: Vec<_> = hub.deliveries().into_iter().filter(|d| d.status == Some(0)).collect();
            lost.iter().rev().try_for_each(|d| hub.redeliver(&d.guid))
        }
        Act::Sweep => Ok(()),
    }
}

fn missing(what: &str) -> HubError {
    HubError::Missing(what.to_owned())
}

/// Returns the comments of this person as they were first posted. Text from later edits is ignored.
fn posted_comments(hub: &Hub, login: &str) -> Vec<String> {
    let created = |d: &HubDelivery| d.event == "issue_comment" && d.action.as_deref() == Some("created");
    let events = hub.deliveries().into_iter().filter(created).filter_map(|d| hub.delivery_body(&d.guid));
    let events = events.map(|body| serde_json::from_slice::<serde_json::Value>(&body).unwrap());
    let by_them = events.filter(|event| event["comment"]["user"]["login"] == login);
    by_them.map(|event| event["comment"]["body"].as_str().unwrap().to_owned()).collect()
}

/// Checks the invariants at the end of a sequence. Returns one line for each violation.
async fn wrong(w: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            wrong.push(what);
        }
    };
    let counts = w.app.store.inbox().counts().await.unwrap();
    must(counts.new + counts.taken + counts.dead == 0, format!("the inbox still has {counts:?}"));
    let sent = w.hub.deliveries().into_iter().map(|d| DeliveryId(d.guid)).collect();
    let missing_deliveries = w.app.store.missing_deliveries(sent).await.unwrap();
    must(missing_deliveries.is_empty(), format!("these never came in: {missing_deliveries:?}"));

    let view = w.view();
    let mut markers: BTreeMap<&str, usize> = BTreeMap::new();
    for body in view.comments.iter().filter(|c| c.author == BOT).map(|c| &c.body) {
        let marker = body.rsplit("<!-- countersign:").next().unwrap();
        *markers.entry(marker).or_default() += 1;
    }
    must(markers.values().all(|n| *n == 1), format!("a comment is there twice: {markers:?}"));

    let runs = w.runs().await;
    let live = runs.iter().filter(|run| run.status.is_live()).count();
    must(live <= 1, format!("{live} runs are alive on one issue"));
    let pulls = w.hub.pulls(w.repo);
    let open = pulls.iter().filter(|pull| pull.state == "open").count();
    must(open <= 1, format!("{open} pull requests are open for one issue"));
    must(pulls.iter().all(|pull| !pull.merged), "something was merged".to_owned());
    must(w.hub.log(w.repo, "main").iter().all(|c| c.author != BOT), "main has a commit of ours".to_owned());

    let expected: &[&str] = match runs.iter().max_by_key(|run| run.id).map(|run| run.status) {
        None => &[],
        Some(RunViewStatus::Asking) => &["countersign:needs-you"],
        Some(RunViewStatus::Done) => &["countersign:done"],
        Some(RunViewStatus::Stopped | RunViewStatus::Failed) => &["countersign:stopped"],
        Some(other) => {
            must(false, format!("the newest run is {other:?}"));
            &[]
        }
    };
    let labels: Vec<_> = view.labels.iter().filter(|l| ![START, STOP].contains(&l.as_str())).collect();
    must(labels == expected, format!("{labels:?} instead of {expected:?}"));
    for run in &runs {
        let approvals =
            w.app.store.repository_database(w.repo).await.unwrap().ledger(run.id).await.unwrap().approvals;
        must(
            // A run that was stopped early may already have its approval.
            approvals.len() <= 1 && (run.status != RunViewStatus::Done || approvals.len() == 1),
            format!("{} is {:?} with {approvals:?}", run.id, run.status),
        );
        for approval in approvals {
            let (by, subject) =
                (approval.answer.as_ref().unwrap().by.login.as_str(), approval.subject.to_string());
            let comments = posted_comments(&w.hub, by);
            let meant = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
                ["/approve"] | ["/override", ..] => true,
                ["/approve", "lld", hash] => subject.starts_with(hash),
                _ => false,
            };
            must(
                ["maya", "max", "sam"].contains(&by) && comments.iter().any(|text| text.lines().any(meant)),
                format!("{by} did not approve {subject}"),
            );
            let trailer = format!("Countersign-Document: {}", approval.document);
            let log = w.hub.log(w.repo, &format!("countersign/issue-{}", w.issue));
            must(log.iter().any(|c| c.message.contains(&trailer)), format!("no commit has {trailer}"));
        }
    }
    wrong
}

/// Result of a sequence.
struct End {
    seen: String,
    wrong: Vec<String>,
    statuses: BTreeSet<&'static str>,
}

/// Test environment in its initial state. Each sequence works on a copy.
struct InitialWorld {
    directory: TempDir,
    known: Known,
    now: Timestamp,
}

impl InitialWorld {
    async fn make(models: &Models) -> Self {
        // Many acts concern the branch of a design, so the design is published as files.
        let w = World::new(Setting { as_files: true, ..setting(models, "sequences") }).await;
        let (known, now) = (w.known(), w.clock.now());
        Self { directory: w.leave().await, known, now }
    }

    async fn world(&self) -> World {
        let directory = directory();
        copy(self.directory.path(), directory.path());
        World::go_on(directory, self.known, self.now).await
    }
}

async fn play_sequence(initial: &InitialWorld, moves: &[Move], kills: bool) -> End {
    let mut w = initial.world().await;
    for next in moves {
        w = w.apply_move(*next, kills).await;
    }
    w.wait_for_quiet().await;
    let mut wrong = wrong(&w).await;
    if !wrong.is_empty() {
        wrong.push(w.thread());
    }
    let statuses = w.runs().await.iter().map(|run| run.status.as_str()).collect();
    let seen = if w.run().await.is_some() { seen(&w, &[]).await } else { w.thread() };
    End { seen, wrong, statuses }
}

/// Plays a sequence once without and once with kills. Returns a report of all errors, and the final statuses of the
/// runs that were killed.
fn check_sequence(initial: &InitialWorld, moves: &[Move]) -> (String, BTreeSet<&'static str>) {
    let play = |kills| runtime().block_on(play_sequence(initial, moves, kills));
    let (calm, killed) = (play(false), play(true));
    let mut report = String::new();
    for (name, end) in [("calm", &calm), ("killed", &killed)] {
        for line in &end.wrong {
            writeln!(report, "{name}: {line}").unwrap();
        }
    }
    if calm.seen != killed.seen {
        let diff = similar::TextDiff::from_lines(&calm.seen, &killed.seen);
        writeln!(report, "with kills the final state differs:\n{}", diff.unified_diff().context_radius(2))
            .unwrap();
    }
    (report, killed.statuses)
}

#[test]
fn run_invariants_hold_after_random_sequences_of_github_events() {
    let (begun, models) = (Instant::now(), Models::start(Duration::ZERO));
    let initial = runtime().block_on(InitialWorld::make(&models));
    let mut random = Random::seeded("random sequences");
    let many = if crate::world::all() { 17 } else { 5 };
    let mut sequences: Vec<_> = (1..many).map(|_| sequence(&mut random.fork())).collect();
    sequences.push(shortest_approval());
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        // Most of the time is spent waiting for the disk.
        for _ in 0..2 * thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((number, moves)) = {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    sequences.get(number).map(|moves| (number, moves))
                } {
                    let (report, statuses) = check_sequence(&initial, moves);
                    ends.lock().unwrap().push((number, report, statuses));
                }
            });
        }
    });
    let mut ends = ends.into_inner().unwrap();
    ends.sort();
    let kills = sequences.iter().flatten().filter(|m| m.killed).count();
    let statuses: BTreeSet<_> = ends.iter().flat_map(|(_, _, statuses)| statuses).collect();
    let acts: usize = sequences.iter().map(Vec::len).sum();
    say(&format!(
        "{many} sequences of {acts} acts with {kills} kills, runs ended {statuses:?}, {} s",
        begun.elapsed().as_secs()
    ));
    let mut wrong = String::new();
    for (number, report, _) in ends.iter().filter(|(_, report, _)| !report.is_empty()) {
        writeln!(wrong, "--- sequence {number}: {:#?}\n{report}", sequences[*number]).unwrap();
    }
    assert!(wrong.is_empty(), "{wrong}");
    let wanted = [RunViewStatus::Done, RunViewStatus::Stopped, RunViewStatus::Asking];
    // Five sequences do not always reach each status.
    for status in wanted.into_iter().filter(|_| crate::world::all()) {
        assert!(statuses.contains(&status.as_str()), "no run came to be {status:?}");
    }
}
