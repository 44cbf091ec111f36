//! Who runs when: claiming due runs, taking one step of each, saving what it left.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::anyhow;
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    attempt_context::{AttemptContext, StopSignals},
    background_jobs::BackgroundJobs,
    port::{EngineError, EnginePort, RunView},
    telemetry::{FinishedVisit, RunTelemetry},
    workflow::{
        AnyWorkflow, RunHalt, SavedCheckpoint, StepAttemptError, StepAttemptOutcome, StepError, Transition,
        follow_up_workflow,
    },
};
use crate::{
    clock::SharedClock,
    limits, panics,
    store::{
        Checkpoint, ClusterEvent, NewRun, RunLease, RunRow, RunStatus, RunTrigger, StartDecision, Store,
        StoreError,
    },
    types::{RunId, Timestamp, with_causes},
};

/// A step that does nothing but wait for somebody else this long ends its run, because nobody reads a thread
/// that only ever says "working". A day covers a provider's daily quota.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// How often it is tried to tell people of a run's end when a day of trying has not been enough.
const HALT_REPORT_RETRY: Duration = Duration::from_secs(3600);

pub(super) type WorkflowRef<T> = &'static dyn AnyWorkflow<T>;

/// A visit that comes to nothing but waiting: since when, and when it was tried last.
struct WaitingVisit {
    visit: u64,
    since: Timestamp,
    last: Timestamp,
}

/// A run that was taken, and how many cancels there had been before it was read.
struct ClaimedRun {
    lease: RunLease,
    cancels: u64,
}

/// Runs workflows whose steps use `T`.
pub struct Engine<T: Send + Sync + 'static> {
    pub(super) store: Arc<Store>,
    workflows: &'static [WorkflowRef<T>],
    tools: Arc<T>,
    pub(super) clock: SharedClock,
    /// Something may have become due.
    pub(super) wake_up: Notify,
    /// Tokens of the steps in flight that a cancel may trip.
    pub(super) in_flight: Mutex<HashMap<RunId, CancellationToken>>,
    /// How many cancels were written down: a step that sees it grow since its run was read looks for one of its own.
    pub(super) cancels: AtomicU64,
    /// Runs whose visit came to nothing but waiting here. Forgotten by a restart, which is only more patience.
    waiting_visits: Mutex<HashMap<RunId, WaitingVisit>>,
    /// Tripped when the live loop is told to stop: no effect begins any more.
    stopping: CancellationToken,
    /// Tripped by `park`: what is in flight is given up.
    park: CancellationToken,
    /// Grows when whatever is in hand must be let go.
    lease_ends: watch::Sender<u64>,
    pub(super) jobs: Arc<BackgroundJobs>,
    telemetry: RunTelemetry,
}

impl<T: Send + Sync + 'static> Engine<T> {
    /// Refuses a workflow whose graph is not sound.
    pub fn new(
        store: Arc<Store>,
        workflows: &'static [WorkflowRef<T>],
        tools: Arc<T>,
        clock: SharedClock,
    ) -> Result<Arc<Self>, EngineError> {
        let mut names = HashSet::new();
        for workflow in workflows {
            workflow.check()?;
            if !names.insert(workflow.name()) {
                return Err(EngineError::SameName(workflow.name().to_owned()));
            }
        }
        let jobs = Arc::new(BackgroundJobs::new(clock.clone()));
        Ok(Arc::new(Self {
            jobs,
            telemetry: RunTelemetry::new(clock.now()),
            store,
            workflows,
            tools,
            clock,
            wake_up: Notify::new(),
            in_flight: Mutex::default(),
            cancels: AtomicU64::new(0),
            waiting_visits: Mutex::default(),
            stopping: CancellationToken::new(),
            park: CancellationToken::new(),
            lease_ends: watch::Sender::new(0),
        }))
    }

    /// Itself, as the rest of the house may see it.
    pub fn port(self: &Arc<Self>) -> Arc<dyn EnginePort> {
        Arc::clone(self) as Arc<dyn EnginePort>
    }

    pub fn workflows(&self) -> &'static [WorkflowRef<T>] {
        self.workflows
    }

    pub fn telemetry(&self) -> &RunTelemetry {
        &self.telemetry
    }

    /// When a run wants its next step, if nobody speaks before; possibly too early.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, EngineError> {
        Ok(self.store.next_due())
    }

    /// Takes one step of every run that is due, one after the other, and says how many.
    pub async fn tick(&self) -> Result<usize, EngineError> {
        let mut stepped = HashSet::new();
        while let Some(claimed) = self.claim_or_scan(&stepped).await? {
            stepped.insert(claimed.lease.run.id);
            let held = claimed.lease.clone();
            match self.advance(claimed).await {
                Err(EngineError::Store(StoreError::Fenced)) => self.give_back(&held).await,
                taken => taken?,
            }
        }
        Ok(stepped.len())
    }

    /// Takes steps as they become due, up to [`limits::LIVE_STEPS`] at a time and one at a time of
    /// each run, until `shutdown`. Then steps in flight are awaited until [`park`](Self::park), and given
    /// up after that.
    pub async fn run(self: &Arc<Self>, shutdown: CancellationToken) {
        // Heard also while the next step is looked for, in a database that may say nothing.
        let hear = async {
            loop {
                self.handle_cluster_event(self.store.next_cluster_event().await);
            }
        };
        tokio::select! {
            () = self.take_steps(shutdown) => {}
            () = hear => {}
        }
    }

    async fn take_steps(self: &Arc<Self>, shutdown: CancellationToken) {
        let (mut steps, mut looks) = (JoinSet::new(), FuturesUnordered::new());
        while !shutdown.is_cancelled() {
            let begun = self.store.live_run_scans(self.clock.now()).into_iter();
            looks.extend(begun.map(|look| panics::catch_and_log_panic("a repository is looked into", look)));
            let nap =
                panics::catch_and_log_panic("due runs are taken", self.start_due_steps(&mut steps)).await;
            let nap = nap.unwrap_or(limits::STEP_BACKOFF);
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.wake_up.notified() => {}
                Some(_) = steps.join_next() => {}
                Some(_) = looks.next() => {}
                () = self.clock.sleep(nap) => {}
            }
        }
        self.stopping.cancel();
        // One that nobody drives any more must not keep a step from being saved.
        drop(looks);
        let all = async {
            while steps.join_next().await.is_some() {}
            self.jobs.stop_all_and_wait().await;
        };
        tokio::select! {
            () = all => {}
            () = self.park.cancelled() => {}
        }
        // Each step that is still running gives its run back when it sees this.
        self.park.cancel();
        while steps.join_next().await.is_some() {}
    }

    /// What another process did, or may do any moment.
    fn handle_cluster_event(&self, news: ClusterEvent) {
        match news {
            ClusterEvent::Due => self.wake_up.notify_one(),
            ClusterEvent::Cancelled(run) => {
                self.cancels.fetch_add(1, SeqCst);
                if let Some(token) = lock(&self.in_flight).get(&run) {
                    token.cancel();
                }
            }
            ClusterEvent::LeaseOver => {
                self.lease_ends.send_modify(|times| *times += 1);
                self.jobs.stop_all();
            }
        }
    }

    /// Gives up what is in flight, now. The next boot takes those steps again.
    pub fn park(&self) {
        self.park.cancel();
    }

    /// Starts every step there is room for; says how long to sleep if nothing happens.
    async fn start_due_steps(self: &Arc<Self>, steps: &mut JoinSet<()>) -> Duration {
        while steps.len() < limits::LIVE_STEPS {
            match self.claim(&HashSet::new()).await {
                Ok(Some(claimed)) => {
                    let engine = Arc::clone(self);
                    steps.spawn(async move { engine.advance_while_due(claimed).await });
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "cannot look for runs that are due");
                    return limits::STEP_BACKOFF;
                }
            }
        }
        if steps.len() >= limits::LIVE_STEPS {
            return limits::LONGEST_SLEEP; // a task that finds nothing more to do wakes us
        }
        let due = self.store.next_due();
        due.map_or(limits::LONGEST_SLEEP, |due| due.since(self.clock.now()).min(limits::LONGEST_SLEEP))
    }

    async fn claim(&self, except: &HashSet<RunId>) -> Result<Option<ClaimedRun>, StoreError> {
        let cancels = self.cancels.load(SeqCst);
        // Boxed, as are the others here: what waits for a database makes no large future of whoever drives this.
        let lease = Box::pin(self.store.claim_run(self.clock.now(), except)).await?;
        Ok(lease.map(|lease| ClaimedRun { lease, cancels }))
    }

    /// Takes a step, and after it whatever is due next, so that a busy engine changes threads for none of them.
    async fn advance_while_due(&self, first: ClaimedRun) {
        let mut claimed = Some(first);
        while let Some(step) = claimed {
            self.advance_live(step).await;
            if self.stopping.is_cancelled() {
                return;
            }
            // The live loop will meet the same trouble and say so.
            claimed = self.claim(&HashSet::new()).await.unwrap_or_default();
            if claimed.is_some() && self.store.is_live_run_scan_due(self.clock.now()) {
                // Only the live loop begins looks, and this task goes on without waking it.
                self.wake_up.notify_one();
            }
        }
    }

    /// As [`claim`](Self::claim), but nothing is left to be looked into when it finds no run.
    async fn claim_or_scan(&self, except: &HashSet<RunId>) -> Result<Option<ClaimedRun>, StoreError> {
        loop {
            if let Some(claimed) = self.claim(except).await? {
                return Ok(Some(claimed));
            }
            let looks = self.store.live_run_scans(self.clock.now());
            if looks.is_empty() {
                return Ok(None);
            }
            join_all(looks).await;
        }
    }

    async fn advance_live(&self, claimed: ClaimedRun) {
        let held = claimed.lease.clone();
        let mut let_go = self.lease_ends.subscribe();
        tokio::select! {
            outcome = panics::catch_panic(self.advance(claimed)) => {
                let error = match outcome {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => with_causes(&error),
                    Err(why) => why,
                };
                tracing::error!(run = %held.run.id, error, "a step could not be saved; it will be taken again");
                lock(&self.in_flight).remove(&held.run.id);
                self.back_off().await;
            }
            _ = let_go.changed() => {
                tracing::error!(run = %held.run.id, "let go in the middle of a step: another process may have the run now; its late result was dropped");
                lock(&self.in_flight).remove(&held.run.id);
            }
            () = self.park.cancelled() => {
                lock(&self.in_flight).remove(&held.run.id);
            }
        }
        self.give_back(&held).await;
    }

    /// Lets go of a run whose step came to nothing. As long as the store refuses that, the run stays ours, and
    /// the next boot frees it if we never can.
    async fn give_back(&self, held: &RunLease) {
        loop {
            match Box::pin(self.store.release_run(held)).await {
                Ok(()) => return self.wake_up.notify_one(),
                Err(StoreError::Fenced | StoreError::Closing) => return,
                Err(error) => tracing::error!(run = %held.run.id, %error, "a run could not be given back"),
            }
            if self.park.is_cancelled() {
                return;
            }
            self.back_off().await;
        }
    }

    async fn back_off(&self) {
        tokio::select! {
            () = self.clock.sleep(limits::STEP_BACKOFF) => {}
            () = self.park.cancelled() => {}
        }
    }

    /// Takes one step and saves what it left. If that fails the run is still held, and whoever asked gives it back.
    async fn advance(&self, claimed: ClaimedRun) -> Result<(), EngineError> {
        let taken_at = self.clock.now();
        let left = self.next_checkpoint(&claimed).await;
        let row = &claimed.lease.run;
        let (run, workflow) = (row.id, self.workflow(&row.workflow));
        // Of one that waits on nothing is written, so its time counts when something is.
        let spent = claimed.lease.unchanged_wait(&left).is_none();
        let visit = FinishedVisit::from_checkpoint(
            row,
            workflow.and_then(|workflow| workflow.step(&row.step)),
            &left,
        );
        lock(&self.in_flight).remove(&run);
        self.log(&claimed.lease.run, &left);
        let over = match &left {
            Checkpoint::Done { .. } => Some("done"),
            Checkpoint::Ended { status: RunStatus::Stopped, .. } => Some("stopped"),
            Checkpoint::Ended { .. } => Some("failed"),
            _ => None,
        };
        let timed = matches!(
            left,
            Checkpoint::Ask { .. }
                | Checkpoint::Wait { .. }
                | Checkpoint::Retry { .. }
                | Checkpoint::Done { then: Some(_), .. }
        );
        Box::pin(self.store.save_step(&claimed.lease, left)).await?;
        if let Some(workflow) = workflow.filter(|_| spent) {
            self.telemetry.count_step_time(workflow.name(), row, taken_at, self.clock.now());
        }
        self.telemetry.publish_visit(visit);
        if timed {
            // Whoever sleeps until the next one is due may have to rise earlier.
            self.wake_up.notify_one();
        }
        if let Some(how) = over {
            lock(&self.waiting_visits).remove(&run);
            self.telemetry.count_end(workflow.map_or("other", |workflow| workflow.name()), run, how);
            self.jobs.stop_others(run, None);
        }
        Ok(())
    }

    /// A line for each move of a run. What only waits may do so for weeks, and look every minute.
    fn log(&self, row: &RunRow, left: &Checkpoint) {
        let (run, issue, view) = (row.id, row.trigger.issue, self.run_view(row));
        let step = format!("{} {}", view.step_id, view.step_title);
        match left {
            Checkpoint::Go { .. } => tracing::info!(%run, %issue, step, "step done"),
            Checkpoint::Ask { gate, .. } => {
                let subject = gate.subject.short();
                tracing::info!(%run, %issue, step, stage = gate.stage, subject, "a gate waits for a person");
            }
            Checkpoint::Done { outcome, .. } => {
                tracing::info!(%run, %issue, step, outcome = outcome.summary, "run done");
            }
            Checkpoint::Halt { why, .. } | Checkpoint::Ended { why, .. } => {
                tracing::info!(%run, %issue, step, why, "run ended");
            }
            Checkpoint::Wait { why, .. } | Checkpoint::Retry { why, .. } => {
                tracing::debug!(%run, %issue, step, why, "step waits");
            }
            Checkpoint::Park { .. } => {} // said where it was found out
        }
    }

    async fn next_checkpoint(&self, claimed: &ClaimedRun) -> Checkpoint {
        let lease = &claimed.lease;
        let run = &lease.run;
        let workflow = self.workflow(&run.workflow);
        let goes_on = run.cancel.is_none() && run.status != RunStatus::Halting;
        self.jobs.stop_others(run.id, goes_on.then_some(run.visit));
        if let Some(cancel) = run.cancel.as_ref().filter(|_| run.status != RunStatus::Halting) {
            let stopped = RunHalt::Stopped { by: cancel.by.clone(), why: cancel.why.clone() };
            if run.parked || workflow.is_none() {
                // Nobody can read it, so it can tell nobody; that it ends is what was asked.
                return Checkpoint::Ended { status: RunStatus::Stopped, why: stopped.public_reason() };
            }
            return halt_checkpoint(stopped);
        }
        let Some(workflow) = workflow else {
            let why = format!("this server has no workflow called {}", run.workflow);
            return park_unreadable(run, &why);
        };
        if run.status == RunStatus::Halting {
            return self.attempt_halt_report(workflow, lease).await;
        }
        self.attempt_step(workflow, claimed).await
    }

    /// One attempt at the run's step.
    async fn attempt_step(&self, workflow: WorkflowRef<T>, claimed: &ClaimedRun) -> Checkpoint {
        let lease = &claimed.lease;
        let run = &lease.run;
        let token = self.cancel_token(claimed).await;
        let cx = self.attempt_context(lease, token.clone());
        let from = saved_checkpoint(run);
        let attempt = panics::catch_panic(workflow.attempt_step(&from, &cx)).await;
        match attempt.unwrap_or_else(|why| Err(StepError::Bug(anyhow!(why)).into())) {
            Ok(moved) => {
                lock(&self.waiting_visits).remove(&run.id);
                self.attempt_checkpoint(workflow, run, moved)
            }
            Err(StepAttemptError::Unreadable(why)) => park_unreadable(run, &why),
            // Whatever a step says after it was told to stop, it is not its fault.
            Err(StepAttemptError::Step(_)) if token.is_cancelled() => {
                self.retry_later("stopping", Duration::ZERO, run.attempts)
            }
            Err(StepAttemptError::Step(StepError::Later { why, .. })) if self.has_waited_too_long(run) => {
                let hours = MAX_WAIT.as_secs() / 3600;
                halt_checkpoint(RunHalt::User(format!(
                    "{why}. That went on for {hours} hours, so the run was ended."
                )))
            }
            Err(StepAttemptError::Step(StepError::Later { why, after })) => {
                self.retry_later(&why, after, run.attempts)
            }
            Err(StepAttemptError::Step(StepError::User(text))) => halt_checkpoint(RunHalt::User(text)),
            Err(StepAttemptError::Step(StepError::Stopped { by, why })) => {
                halt_checkpoint(RunHalt::Stopped { by, why })
            }
            Err(StepAttemptError::Step(StepError::Bug(error))) => {
                let attempts = self.count_failure(run, &error);
                if attempts >= limits::STEP_ATTEMPTS {
                    return halt_checkpoint(RunHalt::Bug { attempts, error: with_causes(&*error) });
                }
                self.retry_later("failed by our own fault; trying again", backoff(run, attempts), attempts)
            }
        }
    }

    fn attempt_checkpoint(
        &self,
        workflow: WorkflowRef<T>,
        run: &RunRow,
        moved: StepAttemptOutcome,
    ) -> Checkpoint {
        let StepAttemptOutcome { next, state } = moved;
        match next {
            Transition::Go(step) => {
                let moves = if run.answer.is_some() { 0 } else { run.moves + 1 };
                if moves > workflow.recursion_limit() {
                    return halt_checkpoint(RunHalt::Limit { moves: run.moves });
                }
                Checkpoint::Go { step, state, moves }
            }
            Transition::Ask(gate) => Checkpoint::Ask { state, gate },
            Transition::Wait { until, why } => Checkpoint::Wait { state, until, why },
            Transition::Done(outcome) => {
                Checkpoint::Done { state, outcome, then: self.follow_up_run(workflow, run) }
            }
        }
    }

    /// What goes on from what this run made, if its people asked for all of it at once.
    fn follow_up_run(&self, workflow: WorkflowRef<T>, run: &RunRow) -> Option<Box<NewRun>> {
        let next = follow_up_workflow(self.workflows, workflow.name(), &run.trigger)?;
        let trigger = RunTrigger { cause: run.trigger.cause.follow_up(), ..run.trigger.clone() };
        let new = new_run(next, trigger);
        new.inspect_err(|error| tracing::error!(run = %run.id, %error, "nothing follows it"))
            .ok()
            .map(Box::new)
    }

    /// One attempt at telling people why the run ended.
    async fn attempt_halt_report(&self, workflow: WorkflowRef<T>, lease: &RunLease) -> Checkpoint {
        let run = &lease.run;
        let ended = |status, why| Checkpoint::Ended { status, why };
        let halt = match run.halt.as_deref().map(serde_json::from_str::<RunHalt>) {
            Some(Ok(halt)) => halt,
            _ => return ended(RunStatus::Failed, "ended, for a reason this version cannot read".to_owned()),
        };
        let status = match halt {
            RunHalt::Stopped { .. } => RunStatus::Stopped,
            _ => RunStatus::Failed,
        };
        // A token nobody trips: stopping a run must not stop it from saying so.
        let cx = self.attempt_context(lease, CancellationToken::new());
        let from = saved_checkpoint(run);
        let told = panics::catch_panic(workflow.attempt_halt_report(&from, &halt, &cx)).await;
        match told.unwrap_or_else(|why| Err(StepError::Bug(anyhow!(why)).into())) {
            Ok(None) => ended(status, halt.public_reason()),
            Ok(Some(outcome)) => Checkpoint::Done { state: run.state.clone(), outcome, then: None },
            // Nothing else would tell them, so this is tried until it is through.
            Err(StepAttemptError::Step(StepError::Later { why, after })) => {
                let seldom = if self.has_waited_too_long(run) { HALT_REPORT_RETRY } else { Duration::ZERO };
                self.retry_later(&why, after.max(seldom), run.attempts)
            }
            Err(
                StepAttemptError::Step(StepError::User(why) | StepError::Stopped { why, .. })
                | StepAttemptError::Unreadable(why),
            ) => {
                tracing::error!(run = %run.id, %why, "people could not be told that a run ended");
                ended(RunStatus::Failed, format!("{}; nobody could be told: {why}", halt.public_reason()))
            }
            Err(StepAttemptError::Step(StepError::Bug(error))) => {
                let attempts = self.count_failure(run, &error);
                if attempts >= limits::STEP_ATTEMPTS {
                    let why = format!("{}; nobody could be told, see the server's log", halt.public_reason());
                    return ended(RunStatus::Failed, why);
                }
                self.retry_later(&halt.public_reason(), backoff(run, attempts), attempts)
            }
        }
    }

    /// Has this visit come to nothing but waiting for so long that people must be told?
    fn has_waited_too_long(&self, run: &RunRow) -> bool {
        let now = self.clock.now();
        let mut waits = lock(&self.waiting_visits);
        // What another process made of one meanwhile is not known here.
        waits.retain(|_, waiting| now.since(waiting.last) < MAX_WAIT);
        let waiting = waits.entry(run.id).or_insert(WaitingVisit { visit: run.visit, since: now, last: now });
        if waiting.visit != run.visit {
            (waiting.visit, waiting.since) = (run.visit, now);
        }
        waiting.last = now;
        now.since(waiting.since) > MAX_WAIT
    }

    /// Counts and logs a failure of ours.
    fn count_failure(&self, run: &RunRow, error: &anyhow::Error) -> u32 {
        let attempts = run.attempts + 1;
        tracing::error!(
            run = %run.id, workflow = run.workflow, step = run.step, visit = run.visit, attempts,
            error = with_causes(&**error), "a step failed"
        );
        attempts
    }

    fn retry_later(&self, why: &str, after: Duration, attempts: u32) -> Checkpoint {
        Checkpoint::Retry { attempts, due: self.clock.now().plus(after), why: why.to_owned() }
    }

    fn attempt_context(&self, lease: &RunLease, cancelled: CancellationToken) -> AttemptContext<T> {
        let (store, tools, clock) = (&self.store, &self.tools, &self.clock);
        let signals = StopSignals { cancelled, stopping: self.stopping.clone() };
        AttemptContext::new(
            lease.clone(),
            Arc::clone(store),
            Arc::clone(tools),
            Arc::clone(clock),
            signals,
            self.workflows,
            Arc::clone(&self.jobs),
        )
    }

    /// The token a cancel of this run trips. One that came after the run was claimed and before the
    /// token was known is found in the row.
    async fn cancel_token(&self, claimed: &ClaimedRun) -> CancellationToken {
        let (token, run) = (CancellationToken::new(), claimed.lease.run.id);
        lock(&self.in_flight).insert(run, token.clone());
        let news = self.cancels.load(SeqCst) != claimed.cancels;
        if news && let Ok(Some(RunRow { cancel: Some(_), .. })) = Box::pin(self.store.run_row(run)).await {
            token.cancel();
        }
        token
    }

    pub(super) fn workflow(&self, name: &str) -> Option<WorkflowRef<T>> {
        self.workflows.iter().copied().find(|workflow| workflow.name() == name)
    }

    pub(super) fn run_view(&self, row: &RunRow) -> RunView {
        RunView::new(row, self.workflow(&row.workflow))
    }
}

/// Keeps a new run of this workflow, unless its cause or its issue has one.
pub(super) async fn open_run<T: Send + Sync + 'static>(
    store: &Store,
    workflow: WorkflowRef<T>,
    trigger: RunTrigger,
) -> Result<StartDecision, EngineError> {
    Ok(store.start_run(new_run(workflow, trigger)?).await?)
}

fn new_run<T: Send + Sync + 'static>(
    workflow: WorkflowRef<T>,
    trigger: RunTrigger,
) -> Result<NewRun, EngineError> {
    let SavedCheckpoint { step, state } =
        workflow.first_checkpoint(&trigger).map_err(|error| EngineError::Start(error.to_string()))?;
    let (name, version) = (workflow.name().to_owned(), workflow.version());
    Ok(NewRun { workflow: name, version, trigger, step, state })
}

pub(super) fn lock<V>(map: &Mutex<HashMap<RunId, V>>) -> MutexGuard<'_, HashMap<RunId, V>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

fn saved_checkpoint(run: &RunRow) -> SavedCheckpoint {
    SavedCheckpoint { step: run.step.clone(), state: run.state.clone() }
}

fn halt_checkpoint(halt: RunHalt) -> Checkpoint {
    let why = halt.public_reason();
    match serde_json::to_string(&halt) {
        Ok(halt) => Checkpoint::Halt { halt, why },
        Err(_) => Checkpoint::Ended { status: RunStatus::Failed, why }, // no value of Halt does this
    }
}

/// Left alone until a version comes that can read it, never guessed at.
fn park_unreadable(run: &RunRow, why: &str) -> Checkpoint {
    let (workflow, version) = (&run.workflow, run.version);
    tracing::error!(run = %run.id, %why, "a run is parked");
    if run.status == RunStatus::Halting {
        let why = format!("{}; nobody could be told: {why}", run.why.as_deref().unwrap_or("ended"));
        return Checkpoint::Ended { status: RunStatus::Failed, why };
    }
    Checkpoint::Park {
        why: format!(
            "{why}; the run was started with {workflow} version {version}: start a countersign that knows it, or /stop this run and start anew"
        ),
    }
}

/// Doubled each time, and up to a quarter longer: runs that failed together do not come back together. What the
/// quarter comes to depends on run and attempt alone.
fn backoff(run: &RunRow, attempts: u32) -> Duration {
    let wait = limits::STEP_BACKOFF.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1)));
    let mut hasher = DefaultHasher::new();
    (run.id, run.visit, attempts).hash(&mut hasher);
    let quarter = u32::try_from(hasher.finish() % 257).unwrap_or_default();
    wait + wait / 1024 * quarter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::SystemClock,
        store::{CancelRow, NewRun, RunTrigger, StartDecision},
        types::{Actor, Cause, InstallationId, IssueNo, RepoId, Role, UserId},
    };

    #[tokio::test]
    async fn a_run_that_ended_is_not_remembered() {
        let clock: SharedClock = Arc::new(SystemClock);
        let data = tempfile::tempdir().unwrap();
        let store = Store::open(data.path(), Arc::clone(&clock)).unwrap();
        let engine = Engine::new(store, &[], Arc::new(()), clock).unwrap();
        let (repo, issue, at) = (RepoId(1), IssueNo(2), Timestamp(0));
        let by = Actor { id: UserId(1), login: "ada".into(), bot: false };
        let trigger = RunTrigger {
            command: "lld".into(),
            args: String::new(),
            repo,
            installation: InstallationId(7),
            issue,
            actor: by.clone(),
            role: Role::Triage,
            cause: Cause("a".into()),
            at,
            comment: None,
            request: None,
        };
        let new = NewRun { workflow: "lld".into(), version: 1, trigger, step: "1".into(), state: Vec::new() };
        let StartDecision::New(run) = engine.store.start_run(new).await.unwrap() else { panic!() };
        lock(&engine.waiting_visits).insert(run, WaitingVisit { visit: 1, since: at, last: at });
        let cancel = CancelRow { cause: Cause("b".into()), by, why: "enough".into(), at };
        engine.store.cancel_runs(repo, issue, None, cancel).await.unwrap();
        assert_eq!(engine.tick().await.unwrap(), 1);
        assert_eq!(engine.store.run_row(run).await.unwrap().unwrap().status, RunStatus::Stopped);
        assert!(lock(&engine.waiting_visits).is_empty());

        // Another process may have gone on with it between two times that it came to nothing here.
        let row = engine.store.run_row(run).await.unwrap().unwrap();
        let hours = |hours: u64| engine.clock.now().minus(Duration::from_secs(hours * 3600));
        for (last, over) in [(1, true), (40, false)] {
            let waiting = WaitingVisit { visit: row.visit, since: hours(48), last: hours(last) };
            lock(&engine.waiting_visits).insert(run, waiting);
            assert_eq!(engine.has_waited_too_long(&row), over, "{last} hours ago");
        }
    }
}
