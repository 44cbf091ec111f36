//! Measures the cost of a checkpoint for a workflow of ten nodes with a 50 KB document. The document is rewritten by
//! each node, or written only once. Peers are LangGraph's `SqliteSaver` and a bare commit of the same bytes. Also
//! measures database growth, resuming, and eight repositories at once.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use countersign::{
    clock::SystemClock,
    commands::CommandSpec,
    engine::{
        AnyWorkflow, AttemptContext, Engine, EnginePort, RunCompletion, RunHalt, RunTrigger, StartDecision,
        StartRunRequest, StepError, StepInfo, StepKind, Transition, Workflow, WorkflowStep,
    },
    store::Store,
    types::{Actor, Cause, Hash, InstallationId, IssueNo, RepoId, Role, Timestamp, UserId},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    measure::{Ms, Samples, Sorted, database_bytes, head, ms, row, say, sized},
    site::{block_on, peer, scratch},
};

pub(crate) const NODES: usize = 10;
pub(crate) const RUNS: usize = sized(200, 16);
const REPOSITORIES: usize = 8;
const RESUMED: usize = sized(30, 2);
const DOCUMENT: usize = 50_000;

/// Workflow whose ten nodes run one after another.
struct Row;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Node(u8);

impl WorkflowStep for Node {
    fn info(self) -> StepInfo {
        let id = ["N0", "N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8", "N9"][usize::from(self.0)];
        StepInfo { id, title: "Write", kind: StepKind::Work }
    }
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    document: Option<Hash>,
    count: usize,
}

/// The document that the nodes write, and the number of finished runs.
pub(crate) struct Tools {
    text: String,
    rewrite: AtomicBool,
    ended: AtomicUsize,
    wanted: AtomicUsize,
    all: tokio::sync::Notify,
}

impl Workflow<Tools> for Row {
    const NAME: &'static str = "row";
    const VERSION: u32 = 1;
    type Step = Node;
    type State = State;
    const GRAPH: &'static [(Node, &'static [Node])] = &[
        (Node(0), &[Node(1)]),
        (Node(1), &[Node(2)]),
        (Node(2), &[Node(3)]),
        (Node(3), &[Node(4)]),
        (Node(4), &[Node(5)]),
        (Node(5), &[Node(6)]),
        (Node(6), &[Node(7)]),
        (Node(7), &[Node(8)]),
        (Node(8), &[Node(9)]),
        (Node(9), &[]),
    ];
    const COMMANDS: &'static [CommandSpec] = &[];

    fn max_iterations() -> u32 {
        1
    }

    fn start(&self, _trigger: &RunTrigger) -> State {
        State::default()
    }

    async fn run<'a>(
        &'a self,
        at: Node,
        state: &'a mut State,
        cx: &'a AttemptContext<Tools>,
    ) -> Result<Transition<Node>, StepError> {
        let tools = cx.tools();
        if at.0 == 0 || tools.rewrite.load(SeqCst) {
            // Different in every run and node, so that no document is stored already.
            let text = format!("{} {} {}", cx.run().id, at.0, tools.text);
            state.document = Some(cx.put(text.as_bytes()).await?);
        }
        state.count += 1;
        if usize::from(at.0) + 1 < NODES {
            return Ok(Transition::Go(Node(at.0 + 1)));
        }
        if tools.ended.fetch_add(1, SeqCst) + 1 == tools.wanted.load(SeqCst) {
            tools.all.notify_one();
        }
        Ok(Transition::Done(RunCompletion { summary: "written".to_owned(), url: None }))
    }

    async fn report_halt<'a>(
        &'a self,
        _at: Node,
        _state: &'a State,
        _halt: &'a RunHalt,
        _cx: &'a AttemptContext<Tools>,
    ) -> Result<Option<RunCompletion>, StepError> {
        Ok(None)
    }
}

static ROWS: &[&dyn AnyWorkflow<Tools>] = &[&Row];

/// Engine with the ten-node workflow on one store.
pub(crate) struct Bench {
    pub(crate) engine: Arc<Engine<Tools>>,
    tools: Arc<Tools>,
}

impl Bench {
    fn open(data: &Path, text: &str, rewrite: bool) -> Self {
        Self::over(Store::open(data, Arc::new(SystemClock)).expect("the data directory"), text, rewrite)
    }

    pub(crate) fn over(store: Arc<Store>, text: &str, rewrite: bool) -> Self {
        let tools = Arc::new(Tools {
            text: text.to_owned(),
            rewrite: AtomicBool::new(rewrite),
            ended: AtomicUsize::default(),
            wanted: AtomicUsize::new(usize::MAX),
            all: tokio::sync::Notify::new(),
        });
        let engine = Engine::new(store, ROWS, tools.clone(), Arc::new(SystemClock)).expect("a sound graph");
        Self { engine, tools }
    }

    pub(crate) async fn start(&self, repo: u64, issue: u64) {
        let trigger = RunTrigger {
            command: "row".to_owned(),
            args: String::new(),
            repo: RepoId(repo),
            installation: InstallationId(1),
            issue: IssueNo(issue),
            actor: Actor { id: UserId(1), login: "maya".to_owned(), bot: false },
            role: Role::Write,
            cause: Cause(format!("bench-{repo}-{issue}")),
            at: Timestamp(0),
            comment: None,
            request: None,
        };
        let start = StartRunRequest { workflow: Row::NAME.to_owned(), trigger };
        let started = self.engine.start(start).await.expect("a start");
        assert!(matches!(started, StartDecision::New(_)));
    }

    /// Executes `count` steps, and panics unless exactly one run is live before each step.
    async fn steps(&self, count: usize) {
        for _ in 0..count {
            assert_eq!(self.engine.tick().await.expect("a step"), 1);
        }
    }
}

pub(crate) fn main() {
    let text = words();
    let directory = scratch();
    std::fs::write(directory.path().join("text"), &text).expect("the text");
    say(format_args!(
        "{NODES} nodes, a document of {DOCUMENT} bytes, {RUNS} runs; default settings of the peer\n"
    ));
    let theirs = langgraph(&directory.path().join("text"), directory.path());
    if theirs.is_none() {
        say("(no LangGraph here: benches/README.md says how to install it)\n");
    }
    let peer = |name: &str| theirs.as_ref().and_then(|t| t[name].as_f64());
    let bare = bare_commit(directory.path(), &text);
    head(&["", "countersign p50", "p99", "LangGraph p50", "share of it", "times a bare commit"]);
    for (title, rewrite, key) in
        [("a step, rewritten by each node", true, "rewritten"), ("a step, written once", false, "once")]
    {
        let data = directory.path().join(key);
        let store = Store::open(&data, Arc::new(SystemClock)).expect("the data directory");
        let steps = block_on(one_after_the_other(store, text.clone(), rewrite));
        step_row(title, &steps, peer(key), Some(bare));
        if rewrite {
            let file = data.join("repos/1/checkpoints.db");
            let grown = database_bytes(&file) as f64 / RUNS as f64 / 1e6;
            let theirs = peer("growth").map(|bytes| bytes / 1e6);
            say(format_args!(
                "| growth a run, {key} | {grown:.3} MB | | {} | {} | |",
                theirs.map_or_else(|| "–".to_owned(), |t| format!("{t:.3} MB")),
                ratio(Some(grown), theirs)
            ));
        }
    }
    let resumed = block_on(resume(&directory.path().join("resumed"), &text));
    step_row("resume at node 9 of 10", &resumed, peer("resume"), None);
    say(format_args!("| a bare commit of those bytes, compressed | {} | | | | 1 |", Ms(bare)));
    let rate = block_on(at_once(&directory.path().join("eight"), &text));
    say(format_args!("\n{REPOSITORIES} repositories at once: {rate:.0} steps/s"));
    for (name, key) in [("8 threads", "threads"), ("8 processes", "processes")] {
        if let Some(theirs) = peer(key) {
            say(format_args!(
                "LangGraph, {name}, a database each: {theirs:.0} steps/s; times it: {:.1}",
                rate / theirs
            ));
        }
    }
}

fn step_row(title: &str, samples: &Sorted, theirs: Option<f64>, bare: Option<f64>) {
    let p50 = samples.at(0.5);
    row(&[
        &title,
        &Ms(p50),
        &Ms(samples.at(0.99)),
        &theirs.map_or_else(|| "–".to_owned(), |t| Ms(t).to_string()),
        &ratio(Some(p50), theirs),
        &ratio(Some(p50), bare),
    ]);
}

fn ratio(ours: Option<f64>, other: Option<f64>) -> String {
    ours.zip(other).map_or_else(String::new, |(a, b)| format!("{:.2}", a / b))
}

/// Executes the runs one after another on a runtime thread, as `serve` does. Returns the milliseconds per step; each
/// value includes a share of the time to start the run.
pub(crate) async fn one_after_the_other(store: Arc<Store>, text: String, rewrite: bool) -> Sorted {
    let walking = tokio::spawn(async move {
        let bench = Bench::over(store, &text, rewrite);
        let mut samples = Samples::default();
        for run in 0..RUNS as u64 {
            let started = Instant::now();
            bench.start(1, run + 1).await;
            bench.steps(NODES).await;
            samples.add(ms(started.elapsed()) / NODES as f64);
        }
        samples.sorted()
    });
    walking.await.expect("the runs")
}

/// Returns the time, in milliseconds, to open the database and finish a run that has one node left.
async fn resume(data: &Path, text: &str) -> Sorted {
    let mut samples = Samples::default();
    for run in 0..RESUMED as u64 {
        let bench = Bench::open(data, text, true);
        bench.start(1, run + 1).await;
        bench.steps(NODES - 1).await;
        drop(bench);
        let started = Instant::now();
        let bench = Bench::open(data, text, true);
        bench.steps(1).await;
        samples.add(ms(started.elapsed()));
        assert_eq!(bench.tools.ended.load(SeqCst), 1);
    }
    samples.sorted()
}

/// Returns the steps per second that the engine's loop reaches with runs in eight repositories at once.
async fn at_once(data: &Path, text: &str) -> f64 {
    let bench = Bench::open(data, text, true);
    let runs = RUNS / REPOSITORIES;
    bench.tools.wanted.store(runs * REPOSITORIES, SeqCst);
    for issue in 0..runs as u64 {
        for repo in 0..REPOSITORIES as u64 {
            bench.start(repo + 1, issue + 1).await;
        }
    }
    let stop = CancellationToken::new();
    let started = Instant::now();
    let engine = bench.engine.clone();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { engine.run(stop).await }
    });
    bench.tools.all.notified().await;
    let seconds = started.elapsed().as_secs_f64();
    stop.cancel();
    running.await.expect("the engine");
    (runs * REPOSITORIES * NODES) as f64 / seconds
}

/// Returns the median time to insert the compressed document into a table with our commit settings.
fn bare_commit(directory: &Path, text: &str) -> f64 {
    let database = rusqlite::Connection::open(directory.join("bare.db")).expect("a database");
    database
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE kept (id INTEGER PRIMARY KEY, bytes BLOB)",
        )
        .expect("a table");
    let mut insert = database.prepare("INSERT INTO kept (bytes) VALUES (?1)").expect("a statement");
    let samples = (0..RUNS * NODES).map(|count| {
        let bytes = zstd::encode_all(format!("{count} {text}").as_bytes(), 1).expect("compression");
        let started = Instant::now();
        insert.execute([bytes]).expect("a commit");
        ms(started.elapsed())
    });
    samples.collect::<Samples>().sorted().at(0.5)
}

/// Returns pseudorandom prose from a fixed word list and seed. The prose compresses about as well as designs do.
pub(crate) fn words() -> String {
    const WORDS: [&str; 32] = [
        "the",
        "delivery",
        "is",
        "committed",
        "before",
        "acknowledged",
        "a",
        "run",
        "waits",
        "for",
        "gate",
        "and",
        "reviewer",
        "finds",
        "what",
        "drafter",
        "missed",
        "document",
        "hash",
        "covers",
        "section",
        "requirement",
        "test",
        "must",
        "fail",
        "when",
        "broken",
        "database",
        "`store`",
        "returns",
        "error",
        "named",
    ];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut text = String::with_capacity(DOCUMENT + 16);
    while text.len() < DOCUMENT {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        text += WORDS[(seed % 32) as usize];
        // Some numbers, as designs have sizes and line numbers.
        if seed >> 60 == 0 {
            text += &format!(" {}", (seed >> 20) % 100_000);
        }
        text.push(if seed >> 40 & 15 == 0 { '\n' } else { ' ' });
    }
    text.truncate(DOCUMENT);
    text
}

fn langgraph(text: &Path, scratch: &Path) -> Option<Value> {
    let directory = peer("langgraph");
    let python = directory.join(".venv/bin/python");
    if !python.exists() {
        return None;
    }
    let output = Command::new(python)
        .arg(directory.join("bench.py"))
        .args([text, scratch])
        .env("LANGSMITH_TRACING", "false")
        .output()
        .ok()?;
    if !output.status.success() {
        say(format_args!("(LangGraph failed: {})", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).ok()
}
