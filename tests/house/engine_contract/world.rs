//! A manual clock, a toy workflow, and an engine that can be shut down and reopened.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use countersign::{
    clock::Clock,
    commands::CommandSpec,
    engine::{
        AnyWorkflow, ApprovalKind, ApprovalRow, Approvers, AttemptContext, CallRow, CallStatus,
        CancelRunsRequest, Engine, EnginePort, GateAnswer, GateAnswerOutcome, GateAnswerRequest, GateSpec,
        LedgerRecord, RemarkKind, RunCompletion, RunFilter, RunHalt, RunRemark, RunTrigger, RunView,
        StartDecision, StartRunRequest, StepError, StepInfo, StepKind, Transition, VerdictRow, Workflow,
        WorkflowStep,
    },
    limits,
    store::{PostgresServer, Store},
    types::{
        Actor, Cause, CommentId, Family, Hash, InstallationId, IssueNo, RepoId, Role, RunId, Timestamp,
        UserId, Verb, Verdict,
    },
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::postgres;

pub(super) const REPO: RepoId = RepoId(8123);
pub(super) const ISSUE: IssueNo = IssueNo(42);
pub(super) const BEGINNING: Timestamp = Timestamp(1_770_000_000_000);

/// Clock that advances only when the test advances it.
pub(super) struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(BEGINNING)))
    }

    pub(super) fn advance(&self, by: Duration) {
        self.0.send_modify(|now| *now = now.plus(by));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let (until, mut time) = (self.now().plus(duration), self.0.subscribe());
        Box::pin(async move {
            let _ = time.wait_for(|now| *now >= until).await;
        })
    }
}

/// Services for the steps of the toy workflow, and counters for the tests.
#[derive(Default)]
pub(super) struct Toys {
    /// Number of paid effects that were performed. Each paid effect must be performed only once.
    pub(super) paid: AtomicU32,
    pub(super) attempts: AtomicU32,
    /// Notified when a step starts to wait forever.
    pub(super) entered: Notify,
    /// Notified by the test to let a waiting effect return.
    pub(super) leave: Notify,
    /// Whether mode `half` waits forever inside an effect.
    pub(super) stuck: Mutex<bool>,
    /// Events recorded by the steps, in order.
    pub(super) events: Mutex<Vec<String>>,
    /// Halts that were reported.
    pub(super) halts: Mutex<Vec<RunHalt>>,
    /// Number of halt reports that fail before a report succeeds.
    pub(super) failing_reports: AtomicU32,
    pub(super) long: Arc<LongJob>,
}

/// A job that takes twenty minutes.
#[derive(Default)]
pub(super) struct LongJob {
    pub(super) begun: AtomicU32,
    pub(super) stopped: AtomicU32,
    /// Clock of the test environment.
    clock: Mutex<Option<Arc<ManualClock>>>,
}

impl LongJob {
    async fn work(self: Arc<Self>, stop: CancellationToken) -> Result<String, StepError> {
        self.begun.fetch_add(1, SeqCst);
        let clock = self.clock.lock().unwrap().clone().unwrap();
        tokio::select! {
            () = clock.sleep(Duration::from_secs(20 * 60)) => Ok("green".to_owned()),
            () = stop.cancelled() => {
                self.stopped.fetch_add(1, SeqCst);
                Err(StepError::Later { why: "stopped".into(), after: Duration::from_secs(1) })
            }
        }
    }
}

impl Toys {
    fn record_event(&self, what: impl Into<String>) {
        self.events.lock().unwrap().push(what.into());
    }

    pub(super) fn events(&self) -> Vec<String> {
        self.events.lock().unwrap().clone()
    }

    async fn wait_if_stuck(&self) {
        if *self.stuck.lock().unwrap() {
            self.entered.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// Toy workflow with the steps draft, review, gate and publish. The arguments of the command select the way in which
/// the workflow misbehaves.
pub(super) struct Toy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) enum At {
    Draft,
    Review,
    Gate,
    Publish,
}

impl WorkflowStep for At {
    fn info(self) -> StepInfo {
        let (id, title, kind) = match self {
            Self::Draft => ("N1", "Draft", StepKind::Draft),
            Self::Review => ("N1.5", "Review", StepKind::Review),
            Self::Gate => ("N2", "Human gate", StepKind::Gate),
            Self::Publish => ("N3", "Publish", StepKind::Publish),
        };
        StepInfo { id, title, kind }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    mode: String,
    drafts: u32,
}

pub(super) fn document() -> Hash {
    Hash::digest(b"the design")
}

/// Returns the subject to which approvals at the toy's gate are bound.
pub(super) fn subject() -> Hash {
    Hash::digest(b"the design and its policy")
}

impl Workflow<Toys> for Toy {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 3;
    type Step = At;
    type State = State;
    const GRAPH: &'static [(At, &'static [At])] = &[
        (At::Draft, &[At::Review]),
        (At::Review, &[At::Draft, At::Gate]),
        (At::Gate, &[At::Draft, At::Publish]),
        (At::Publish, &[]),
    ];
    const COMMANDS: &'static [CommandSpec] = &[];

    fn max_iterations() -> u32 {
        2
    }

    fn start(&self, trigger: &RunTrigger) -> State {
        State { mode: trigger.args.clone(), drafts: 0 }
    }

    async fn run(
        &self,
        at: At,
        state: &mut State,
        cx: &AttemptContext<Toys>,
    ) -> Result<Transition<At>, StepError> {
        match at {
            At::Draft => draft(state, cx).await,
            At::Review if state.mode == "loop" => Ok(Transition::Go(At::Draft)),
            At::Review => review(state, cx).await,
            At::Gate => gate(state, cx).await,
            At::Publish => publish(cx).await,
        }
    }

    async fn report_halt(
        &self,
        _at: At,
        _state: &State,
        halt: &RunHalt,
        cx: &AttemptContext<Toys>,
    ) -> Result<Option<RunCompletion>, StepError> {
        let toys = cx.tools();
        if cx.run().trigger.args == "there" {
            return Ok(Some(RunCompletion { summary: "published before".into(), url: None }));
        }
        if toys.failing_reports.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(StepError::Later { why: "GitHub is down".into(), after: Duration::from_secs(30) });
        }
        if cx.run().trigger.args == "mute" {
            return Err(anyhow::anyhow!("cannot speak").into());
        }
        cx.once("tell", |_| async {
            toys.halts.lock().unwrap().push(halt.clone());
            Ok(None)
        })
        .await
    }
}

async fn draft(state: &mut State, cx: &AttemptContext<Toys>) -> Result<Transition<At>, StepError> {
    let toys = cx.tools();
    toys.attempts.fetch_add(1, SeqCst);
    state.drafts += 1;
    let pay = |_| async {
        toys.paid.fetch_add(1, SeqCst);
        Ok(())
    };
    match state.mode.as_str() {
        "panic" | "mute" => panic!("the toy broke"),
        "user" => return Err(StepError::User("the issue is empty: write what you want".into())),
        "stray" => return Ok(Transition::Go(At::Publish)),
        "later" if toys.attempts.load(SeqCst) == 1 => {
            return Err(StepError::Later { why: "rate limit".into(), after: Duration::from_secs(30) });
        }
        "later" => toys.record_event(format!("draft {}", state.drafts)),
        "idle" => {
            state.drafts = 0;
            let until = cx.clock().now().plus(Duration::from_secs(60));
            return Ok(Transition::Wait { until, why: "nobody is there".into() });
        }
        "job" => {
            let long = Arc::clone(&toys.long);
            let Some(green) = cx.run_job("tests", move |stop| long.work(stop)).await? else {
                let until = cx.clock().now().plus(limits::JOB_POLL_INTERVAL);
                return Ok(Transition::Wait { until, why: "tests run".into() });
            };
            toys.record_event(green);
        }
        "wait" if state.drafts == 1 => {
            cx.once("paid", pay).await?;
            let until = cx.clock().now().plus(Duration::from_secs(90));
            return Ok(Transition::Wait { until, why: "checks run".into() });
        }
        "wait" => {
            cx.once("paid", pay).await?;
            toys.record_event(format!("draft {} visit {}", state.drafts, cx.visit()));
        }
        "twice" => {
            cx.once("paid", pay).await?;
            cx.once("paid", pay).await?;
        }
        "two" => {
            cx.once("first", |_| async {
                toys.entered.notify_one();
                toys.leave.notified().await;
                toys.paid.fetch_add(1, SeqCst);
                Ok(())
            })
            .await?;
            cx.once("paid", pay).await?;
        }
        "nested" => {
            cx.once("outer", |_| async { cx.once("inner", pay).await }).await?;
        }
        "big" => {
            cx.once("big", |_| async { Ok("x".repeat(70_000)) }).await?;
        }
        "listen" => {
            toys.entered.notify_one();
            cx.cancellation().cancelled().await;
            return Err(anyhow::anyhow!("the call was cut").into());
        }
        "half" => {
            cx.once("paid", pay).await?;
            let nonce = cx.nonce("nonce").await?;
            let now = cx.now("now").await?;
            toys.record_event(format!("{nonce} {now}"));
            cx.once("second", |entry| async move {
                toys.record_event(format!("interrupted {}", entry.interrupted));
                toys.wait_if_stuck().await;
                Ok(())
            })
            .await?;
        }
        "refuse" => {
            let attempt = toys.attempts.load(SeqCst);
            let value: u32 = cx
                .once("flaky", |entry| async move {
                    toys.record_event(format!("interrupted {}", entry.interrupted));
                    if attempt == 1 { Err(anyhow::anyhow!("no answer").into()) } else { Ok(attempt) }
                })
                .await?;
            toys.record_event(format!("value {value}"));
        }
        "bill" => {
            let attempt = toys.attempts.load(SeqCst);
            cx.once("bill", |_| async move {
                let before = cx.call_row("bill").await?.map(|row| row.attempts);
                toys.record_event(format!("booked {before:?}"));
                cx.record_later("bill", LedgerRecord::Call(bill(attempt))).await?;
                if attempt == 1 { Err(anyhow::anyhow!("the answer was lost").into()) } else { Ok(()) }
            })
            .await?;
            toys.record_event(format!("{} row", cx.ledger().await?.calls.len()));
        }
        _ => cx.once("paid", pay).await?,
    }
    Ok(Transition::Go(At::Review))
}

/// Returns a ledger row for a paid call with this number of attempts.
pub(super) fn bill(attempts: u32) -> CallRow {
    CallRow {
        role: "drafter".into(),
        provider: "claude".into(),
        asked: "claude:opus".into(),
        served: None,
        accepted_by: None,
        family: None,
        prompt: Hash::digest(b"prompt"),
        cut: Vec::new(),
        status: CallStatus::Done,
        input_tokens: 1000,
        output_tokens: 500,
        cache_read: 0,
        cache_written: 0,
        cost_microusd: Some(42),
        billed: true,
        held_microusd: None,
        likely_microusd: None,
        settled: None,
        elapsed_ms: 1,
        attempts,
        error: None,
    }
}

async fn review(state: &State, cx: &AttemptContext<Toys>) -> Result<Transition<At>, StepError> {
    let verdict = match state.mode.as_str() {
        "blocked" | "waived" | "shrugged" => Verdict::Blocked,
        _ => Verdict::Approved,
    };
    let reviewer = if state.mode == "inbred" { "claude" } else { "gemini" };
    let document = if state.mode == "other" { Hash::digest(b"another design") } else { document() };
    let row = VerdictRow {
        document,
        round: 1,
        verdict,
        reviewer_served: Some(format!("{reviewer}-1")),
        reviewer_family: Some(Family(reviewer.into())),
        drafter_served: Some("claude-1".into()),
        drafter_family: Some(Family("claude".into())),
        prompt: Hash::digest(b"prompt"),
        nonce: cx.nonce("nonce").await?,
        why: "because".into(),
    };
    cx.record("verdict", LedgerRecord::Verdict(row)).await?;
    Ok(Transition::Go(At::Gate))
}

async fn gate(state: &State, cx: &AttemptContext<Toys>) -> Result<Transition<At>, StepError> {
    let toys = cx.tools();
    let shown_at = cx
        .once("show", |_| async {
            toys.paid.fetch_add(100, SeqCst);
            cx.github_call_counter().count_call(false);
            cx.github_call_counter().count_call(true);
            Ok(BEGINNING)
        })
        .await?;
    let verbs = vec![
        (Verb::Approve, Role::Write.into()),
        (Verb::Revise, Role::Write.into()),
        (Verb::Override, Role::Maintain.into()),
    ];
    let expires = (state.mode == "expire").then(|| BEGINNING.plus(Duration::from_secs(600)));
    let mut spec = GateSpec {
        stage: "lld".into(),
        subject: subject(),
        verbs,
        shown_at,
        approvers: Approvers::default(),
        expires,
        options: Vec::new(),
    };
    let Some(answer) = cx.answer() else {
        toys.record_event("asked");
        return Ok(Transition::Ask(spec));
    };
    toys.record_event(format!("{} by {}", answer.verb, answer.by.login));
    if answer.text == "unclear" {
        let key = format!("refuse-{}", answer.cause);
        cx.once(&key, |_| async { Ok(()) }).await?;
        if state.mode == "shift" {
            spec.subject = Hash::digest(b"the design, edited meanwhile");
        }
        return Ok(Transition::Ask(spec));
    }
    let kind = match answer.verb {
        Verb::Revise => return Ok(Transition::Go(At::Draft)),
        Verb::Override => ApprovalKind::Override,
        _ => ApprovalKind::Approve,
    };
    let mut row = ApprovalRow {
        document: document(),
        subject: subject(),
        answer: Some(answer.clone()),
        kind,
        with: Vec::new(),
    };
    match state.mode.as_str() {
        "unrecorded" => return Ok(Transition::Go(At::Publish)),
        "misbound" => row.document = Hash::digest(b"another design"),
        "forged" => row.answer.as_mut().unwrap().by.id = UserId(1),
        "elsewhere" => row.subject = Hash::digest(b"another gate"),
        _ => {}
    }
    cx.record("approval", LedgerRecord::Approval(row)).await?;
    Ok(Transition::Go(At::Publish))
}

async fn publish(cx: &AttemptContext<Toys>) -> Result<Transition<At>, StepError> {
    let proof = cx.require_countersignature(document(), &[]).await;
    let text = match proof {
        Ok(proof) => format!(
            "{} {:?} by {}",
            proof.verdict().unwrap().verdict,
            proof.approval().kind,
            proof.approval().answer.as_ref().unwrap().by.login
        ),
        Err(error) => error.to_string(),
    };
    let head = cx.append_audit_link("proof", "publish", serde_json::json!({ "proof": text })).await?;
    let again = cx.append_audit_link("proof", "publish", serde_json::json!({})).await?;
    assert_eq!(head, again, "an audit key adds one link");
    cx.tools().record_event(text);
    Ok(Transition::Done(RunCompletion { summary: "published".into(), url: None }))
}

pub(super) static TOYS: &[&dyn AnyWorkflow<Toys>] = &[&Toy];

/// Test environment: an engine with a store on SQLite or Postgres.
pub(super) struct World {
    directory: tempfile::TempDir,
    /// The Postgres server to use; `None` for SQLite.
    server: Option<PostgresServer>,
    store: Option<Arc<Store>>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) toys: Arc<Toys>,
    engine: Option<Arc<Engine<Toys>>>,
}

impl World {
    pub(super) fn sqlite() -> Self {
        Self::on(None)
    }

    /// Creates a test environment on Postgres. Prints a note and returns `None` if Postgres is not installed.
    pub(super) fn postgres() -> Option<Self> {
        let address = postgres::database()?.into();
        let server = PostgresServer { address, lease: Duration::from_secs(30) };
        Some(Self::on(Some(server)))
    }

    fn on(server: Option<PostgresServer>) -> Self {
        let mut world = Self {
            directory: tempfile::tempdir().unwrap(),
            server,
            store: None,
            clock: ManualClock::new(),
            toys: Arc::default(),
            engine: None,
        };
        world.open(TOYS);
        world
    }

    fn open(&mut self, workflows: &'static [&'static dyn AnyWorkflow<Toys>]) {
        *self.toys.long.clock.lock().unwrap() = Some(self.clock.clone());
        let (directory, clock) = (self.directory.path(), self.clock.clone());
        let store = match &self.server {
            Some(server) => Store::join_postgres(server, directory, clock),
            None => Store::open(directory, clock),
        };
        let store = store.unwrap();
        self.store = Some(store.clone());
        let engine = Engine::new(store, workflows, self.toys.clone(), self.clock.clone());
        self.engine = Some(engine.unwrap());
    }

    /// Simulates a kill and a restart of the process. The new process knows these workflows.
    pub(super) fn restart(&mut self, workflows: &'static [&'static dyn AnyWorkflow<Toys>]) {
        self.engine = None;
        self.store = None;
        self.open(workflows);
    }

    pub(super) fn store(&self) -> Arc<Store> {
        self.store.clone().unwrap()
    }

    /// Opens another connection to the repository's database file.
    pub(super) fn checkpoints(&self) -> rusqlite::Connection {
        assert!(self.server.is_none(), "Postgres has no database file");
        let file = self.directory.path().join(format!("repos/{REPO}/checkpoints.db"));
        rusqlite::Connection::open(file).unwrap()
    }

    /// Locks the database file so that no other connection can even read it. Waits until all other connections are
    /// closed.
    pub(super) fn lock_exclusively(&self) -> rusqlite::Connection {
        let file = self.checkpoints();
        let alone = || file.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
        while alone().ok().as_deref() != Some("delete") {
            std::thread::yield_now();
        }
        file.execute_batch("BEGIN EXCLUSIVE").unwrap();
        file
    }

    pub(super) fn engine(&self) -> &Arc<Engine<Toys>> {
        self.engine.as_ref().unwrap()
    }

    pub(super) async fn start(&self, mode: &str, cause: &str) -> StartDecision<RunView> {
        self.start_on(ISSUE, mode, cause).await
    }

    pub(super) async fn start_on(&self, issue: IssueNo, mode: &str, cause: &str) -> StartDecision<RunView> {
        self.start_in(REPO, issue, mode, cause).await
    }

    pub(super) fn trigger(repo: RepoId, issue: IssueNo, mode: &str, cause: &str) -> RunTrigger {
        RunTrigger {
            command: "toy".into(),
            args: mode.into(),
            repo,
            installation: InstallationId(5),
            issue,
            actor: person("ada", 1001),
            role: Role::Triage,
            cause: Cause(cause.into()),
            at: BEGINNING,
            comment: Some(CommentId(9)),
            request: None,
        }
    }

    pub(super) async fn start_in(
        &self,
        repo: RepoId,
        issue: IssueNo,
        mode: &str,
        cause: &str,
    ) -> StartDecision<RunView> {
        let trigger = Self::trigger(repo, issue, mode, cause);
        self.engine().port().start(StartRunRequest { workflow: "toy".into(), trigger }).await.unwrap()
    }

    /// Starts a run and runs its steps until the run waits for something.
    pub(super) async fn start_and_settle(&self, mode: &str) -> RunId {
        let StartDecision::New(run) = self.start(mode, "delivery-1#0").await else { panic!("not new") };
        self.settle().await;
        run
    }

    pub(super) async fn settle(&self) {
        for _ in 0..200 {
            if self.engine().tick().await.unwrap() == 0 {
                return;
            }
        }
        panic!("the engine does not settle");
    }

    /// Runs all due steps and advances the clock to each next due time, until no more steps become due.
    pub(super) async fn settle_in_time(&self) {
        self.settle().await;
        while let Some(due) = self.engine().next_due().await.unwrap() {
            self.clock.advance(due.since(self.clock.now()));
            self.settle().await;
        }
    }

    pub(super) async fn view(&self, run: RunId) -> RunView {
        self.engine().inspect(run).await.unwrap().unwrap()
    }

    pub(super) async fn live(&self) -> Vec<RunView> {
        let filter = RunFilter { repo: Some(REPO), issue: Some(ISSUE), live_only: true };
        self.engine().list(filter).await.unwrap()
    }

    /// Reports that somebody edited the comment of the run's open gate.
    pub(super) async fn edit_gate_comment(&self, run: RunId) {
        let remark = RunRemark {
            cause: Cause("touched".into()),
            kind: RemarkKind::CommentEdited,
            finding: self.view(run).await.visit.to_string(),
            text: "7".into(),
            by: person("grace", 1002),
            role: Role::None,
            at: BEGINNING,
        };
        self.engine.as_ref().unwrap().remark(run, remark).await.unwrap();
    }

    pub(super) async fn signal(&self, answer: GateAnswer) -> GateAnswerOutcome {
        self.signal_on(ISSUE, answer).await
    }

    pub(super) async fn signal_on(&self, issue: IssueNo, answer: GateAnswer) -> GateAnswerOutcome {
        self.engine().signal(GateAnswerRequest { repo: REPO, issue, answer, late: false }).await.unwrap()
    }

    /// Sends `answer` to the gate, marked as late.
    pub(super) async fn signal_late(&self, answer: GateAnswer) -> GateAnswerOutcome {
        self.engine()
            .signal(GateAnswerRequest { repo: REPO, issue: ISSUE, answer, late: true })
            .await
            .unwrap()
    }

    pub(super) async fn cancel(&self, cause: &str) -> Vec<RunId> {
        let cancel = CancelRunsRequest {
            repo: REPO,
            issue: ISSUE,
            run: None,
            cause: Cause(cause.into()),
            by: person("ada", 1001),
            why: "wrong issue".into(),
        };
        self.engine().cancel(cancel).await.unwrap()
    }

    /// Runs steps until one of them waits forever inside an effect. Then abandons that step, like a crash would.
    pub(super) async fn tick_until_stuck(&self) {
        tokio::select! {
            _ = self.engine().tick() => panic!("nothing got stuck"),
            () = self.toys.entered.notified() => {}
        }
    }
}

pub(super) fn person(login: &str, id: u64) -> Actor {
    Actor { id: UserId(id), login: login.into(), bot: false }
}

/// Returns an answer by Grace, who has the Maintain role. The answer is given a minute after the gate was shown.
pub(super) fn answer_by_grace(verb: Verb, cause: &str) -> GateAnswer {
    GateAnswer {
        cause: Cause(cause.into()),
        verb,
        stage: None,
        hash: None,
        way: None,
        text: String::new(),
        by: person("grace", 1002),
        role: Role::Maintain,
        at: BEGINNING.plus(Duration::from_secs(60)),
        url: None,
        commit: None,
        review: None,
    }
}
