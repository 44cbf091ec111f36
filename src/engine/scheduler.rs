//! The scheduler: claims due runs, takes one step of each and saves the checkpoint.

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

/// Maximum time for which a step may do nothing but wait; then its run ends. Nobody keeps reading a thread that only
/// ever says "working". One day covers a provider's daily quota.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3600);

/// Interval between attempts to report a run's end, used once such attempts have failed for [`MAX_WAIT`].
const HALT_REPORT_RETRY: Duration = Duration::from_secs(3600);

pub(super) type WorkflowRef<T> = &'static dyn AnyWorkflow<T>;

/// Times of the first and the last attempt of a visit that has done nothing but wait so far.
struct WaitingVisit {
    visit: u64,
    since: Timestamp,
    last: Timestamp,
}

/// A claimed run, and the value that [`Engine::cancels`] had before the run's row was read.
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
    /// Notified when a run may have become due.
    pub(super) wake_up: Notify,
    pub(super) in_flight: Mutex<HashMap<RunId, CancellationToken>>,
    /// Number of cancellations recorded so far. If the number has grown since a run's row was read, the run's step
    /// checks whether its own run was cancelled.
    pub(super) cancels: AtomicU64,
    /// Visits that, in this process, have done nothing but wait so far. A restart forgets these visits, so their
    /// waiting time starts again.
    waiting_visits: Mutex<HashMap<RunId, WaitingVisit>>,
    /// Cancelled when the live loop is told to stop. After that, no `once` starts its work.
    stopping: CancellationToken,
    /// Cancelled by `park`, which abandons the steps in flight.
    park: CancellationToken,
    /// Counter that increases each time the lease ends; steps in flight must then be abandoned.
    lease_ends: watch::Sender<u64>,
    pub(super) jobs: Arc<BackgroundJobs>,
    telemetry: RunTelemetry,
}

impl<T: Send + Sync + 'static> Engine<T> {
    /// Returns an engine, or an error if a workflow's graph is refused.
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

    /// Returns this engine as an [`EnginePort`].
    pub fn port(self: &Arc<Self>) -> Arc<dyn EnginePort> {
        Arc::clone(self) as Arc<dyn EnginePort>
    }

    pub fn workflows(&self) -> &'static [WorkflowRef<T>] {
        self.workflows
    }

    pub fn telemetry(&self) -> &RunTelemetry {
        &self.telemetry
    }

    /// Returns the earliest time at which a run becomes due if nobody answers before. The returned time may be too
    /// early.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, EngineError> {
        Ok(self.store.next_due())
    }

    /// Takes one step of each due run, one run after the other, and returns the number of steps.
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

    /// Takes steps as they become due until `shutdown`. At most [`limits::LIVE_STEPS`] steps run at a time, and one per
    /// run. After `shutdown`, waits for the steps in flight until [`park`](Self::park) is called, and then abandons
    /// them.
    pub async fn run(self: &Arc<Self>, shutdown: CancellationToken) {
        // Events are handled even while the search for the next step waits for a database.
        let cluster_events = async {
            loop {
                self.handle_cluster_event(self.store.next_cluster_event().await);
            }
        };
        tokio::select! {
            () = self.take_steps(shutdown) => {}
            () = cluster_events => {}
        }
    }

    async fn take_steps(self: &Arc<Self>, shutdown: CancellationToken) {
        let (mut steps, mut scans) = (JoinSet::new(), FuturesUnordered::new());
        while !shutdown.is_cancelled() {
            let new_scans = self.store.live_run_scans(self.clock.now()).into_iter();
            scans.extend(new_scans.map(|scan| panics::catch_and_log_panic("repository scan", scan)));
            let sleep_time =
                panics::catch_and_log_panic("start of due steps", self.start_due_steps(&mut steps)).await;
            let sleep_time = sleep_time.unwrap_or(limits::STEP_BACKOFF);
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.wake_up.notified() => {}
                Some(_) = steps.join_next() => {}
                Some(_) = scans.next() => {}
                () = self.clock.sleep(sleep_time) => {}
            }
        }
        self.stopping.cancel();
        // A scan that nothing polls any more must not block the save of a step.
        drop(scans);
        let all = async {
            while steps.join_next().await.is_some() {}
            self.jobs.stop_all_and_wait().await;
        };
        tokio::select! {
            () = all => {}
            () = self.park.cancelled() => {}
        }
        // Each step that is still running releases its run when it sees this.
        self.park.cancel();
        while steps.join_next().await.is_some() {}
    }

    /// Handles a change that another process made or may have made.
    fn handle_cluster_event(&self, event: ClusterEvent) {
        match event {
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

    /// Abandons the steps in flight immediately. The next boot takes those steps again.
    pub fn park(&self) {
        self.park.cancel();
    }

    /// Starts due steps in the free slots. Returns the time to sleep if no event occurs before.
    async fn start_due_steps(self: &Arc<Self>, steps: &mut JoinSet<()>) -> Duration {
        while steps.len() < limits::LIVE_STEPS {
            match self.claim(&HashSet::new()).await {
                Ok(Some(claimed)) => {
                    let engine = Arc::clone(self);
                    steps.spawn(async move { engine.advance_while_due(claimed).await });
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "could not query due runs; will retry");
                    return limits::STEP_BACKOFF;
                }
            }
        }
        if steps.len() >= limits::LIVE_STEPS {
            return limits::LONGEST_SLEEP; // a task that finds no further due run wakes us
        }
        let due = self.store.next_due();
        due.map_or(limits::LONGEST_SLEEP, |due| due.since(self.clock.now()).min(limits::LONGEST_SLEEP))
    }

    async fn claim(&self, except: &HashSet<RunId>) -> Result<Option<ClaimedRun>, StoreError> {
        let cancels = self.cancels.load(SeqCst);
        // Boxed, like the other store calls here, to keep the caller's future small.
        let lease = Box::pin(self.store.claim_run(self.clock.now(), except)).await?;
        Ok(lease.map(|lease| ClaimedRun { lease, cancels }))
    }

    /// Takes the claimed step and then further due steps of any run in the same task. Thus a busy engine does not have
    /// to switch tasks.
    async fn advance_while_due(&self, first: ClaimedRun) {
        let mut claimed = Some(first);
        while let Some(step) = claimed {
            self.advance_live(step).await;
            if self.stopping.is_cancelled() {
                return;
            }
            // The live loop will hit the same error and log it.
            claimed = self.claim(&HashSet::new()).await.unwrap_or_default();
            if claimed.is_some() && self.store.is_live_run_scan_due(self.clock.now()) {
                // Only the live loop starts scans, and this task does not wake it otherwise.
                self.wake_up.notify_one();
            }
        }
    }

    /// Like [`claim`](Self::claim), but returns `None` only after all scans for live runs have completed.
    async fn claim_or_scan(&self, except: &HashSet<RunId>) -> Result<Option<ClaimedRun>, StoreError> {
        loop {
            if let Some(claimed) = self.claim(except).await? {
                return Ok(Some(claimed));
            }
            let scans = self.store.live_run_scans(self.clock.now());
            if scans.is_empty() {
                return Ok(None);
            }
            join_all(scans).await;
        }
    }

    async fn advance_live(&self, claimed: ClaimedRun) {
        let held = claimed.lease.clone();
        let mut lease_end = self.lease_ends.subscribe();
        tokio::select! {
            outcome = panics::catch_panic(self.advance(claimed)) => {
                let error = match outcome {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => with_causes(&error),
                    Err(why) => why,
                };
                tracing::error!(run = %held.run.id, error, "could not save a step; will run it again");
                lock(&self.in_flight).remove(&held.run.id);
                self.back_off().await;
            }
            _ = lease_end.changed() => {
                tracing::error!(run = %held.run.id, "lease expired during a step; dropped the result, because another process may have claimed the run");
                lock(&self.in_flight).remove(&held.run.id);
            }
            () = self.park.cancelled() => {
                lock(&self.in_flight).remove(&held.run.id);
            }
        }
        self.give_back(&held).await;
    }

    /// Releases a run whose step was not saved. Failures are retried until the engine is parked; in that case the next
    /// boot releases the run.
    async fn give_back(&self, held: &RunLease) {
        loop {
            match Box::pin(self.store.release_run(held)).await {
                Ok(()) => return self.wake_up.notify_one(),
                Err(StoreError::Fenced | StoreError::Closing) => return,
                Err(error) => {
                    tracing::error!(run = %held.run.id, %error, "could not release a run; will retry")
                }
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

    /// Takes one step and saves its checkpoint. If saving fails, the run stays claimed and the caller releases it.
    async fn advance(&self, claimed: ClaimedRun) -> Result<(), EngineError> {
        let taken_at = self.clock.now();
        let checkpoint = self.next_checkpoint(&claimed).await;
        let row = &claimed.lease.run;
        let (run, workflow) = (row.id, self.workflow(&row.workflow));
        // An unchanged wait is not written, so its time is counted with the next write.
        let is_written = claimed.lease.unchanged_wait(&checkpoint).is_none();
        let visit = FinishedVisit::from_checkpoint(
            row,
            workflow.and_then(|workflow| workflow.step(&row.step)),
            &checkpoint,
        );
        lock(&self.in_flight).remove(&run);
        self.log(&claimed.lease.run, &checkpoint);
        let end = match &checkpoint {
            Checkpoint::Done { .. } => Some("done"),
            Checkpoint::Ended { status: RunStatus::Stopped, .. } => Some("stopped"),
            Checkpoint::Ended { .. } => Some("failed"),
            _ => None,
        };
        let sets_due = matches!(
            checkpoint,
            Checkpoint::Ask { .. }
                | Checkpoint::Wait { .. }
                | Checkpoint::Retry { .. }
                | Checkpoint::Done { then: Some(_), .. }
        );
        Box::pin(self.store.save_step(&claimed.lease, checkpoint)).await?;
        if let Some(workflow) = workflow.filter(|_| is_written) {
            self.telemetry.count_step_time(workflow.name(), row, taken_at, self.clock.now());
        }
        self.telemetry.publish_visit(visit);
        if sets_due {
            // The sleeper may have to wake earlier than planned.
            self.wake_up.notify_one();
        }
        if let Some(how) = end {
            lock(&self.waiting_visits).remove(&run);
            self.telemetry.count_end(workflow.map_or("other", |workflow| workflow.name()), run, how);
            self.jobs.stop_others(run, None);
        }
        Ok(())
    }

    /// Logs each move of a run. Waits are logged at debug level, because a waiting run may poll every minute for weeks.
    fn log(&self, row: &RunRow, checkpoint: &Checkpoint) {
        let (run, issue, view) = (row.id, row.trigger.issue, self.run_view(row));
        let step = format!("{} {}", view.step_id, view.step_title);
        match checkpoint {
            Checkpoint::Go { .. } => tracing::info!(%run, %issue, step, "step done"),
            Checkpoint::Ask { gate, .. } => {
                let subject = gate.subject.short();
                tracing::info!(%run, %issue, step, stage = gate.stage, subject, "gate opened; waiting for a person");
            }
            Checkpoint::Done { outcome, .. } => {
                tracing::info!(%run, %issue, step, outcome = outcome.summary, "run done");
            }
            Checkpoint::Halt { why, .. } | Checkpoint::Ended { why, .. } => {
                tracing::info!(%run, %issue, step, why, "run ended");
            }
            Checkpoint::Wait { why, .. } | Checkpoint::Retry { why, .. } => {
                tracing::debug!(%run, %issue, step, why, "step is waiting");
            }
            Checkpoint::Park { .. } => {} // logged where it was detected
        }
    }

    async fn next_checkpoint(&self, claimed: &ClaimedRun) -> Checkpoint {
        let lease = &claimed.lease;
        let run = &lease.run;
        let workflow = self.workflow(&run.workflow);
        let continues = run.cancel.is_none() && run.status != RunStatus::Halting;
        self.jobs.stop_others(run.id, continues.then_some(run.visit));
        if let Some(cancel) = run.cancel.as_ref().filter(|_| run.status != RunStatus::Halting) {
            let stopped = RunHalt::Stopped { by: cancel.by.clone(), why: cancel.why.clone() };
            if run.parked || workflow.is_none() {
                // No step can read the run, so none can report its end. It ends all the same: somebody asked for it.
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

    async fn attempt_step(&self, workflow: WorkflowRef<T>, claimed: &ClaimedRun) -> Checkpoint {
        let lease = &claimed.lease;
        let run = &lease.run;
        let token = self.cancel_token(claimed).await;
        let cx = self.attempt_context(lease, token.clone());
        let from = saved_checkpoint(run);
        let attempt = panics::catch_panic(workflow.attempt_step(&from, &cx)).await;
        match attempt.unwrap_or_else(|why| Err(StepError::Bug(anyhow!(why)).into())) {
            Ok(outcome) => {
                lock(&self.waiting_visits).remove(&run.id);
                self.attempt_checkpoint(workflow, run, outcome)
            }
            Err(StepAttemptError::Unreadable(why)) => park_unreadable(run, &why),
            // A step that was told to stop may return any error; ignore it.
            Err(StepAttemptError::Step(_)) if token.is_cancelled() => {
                self.retry_later("stopping", Duration::ZERO, run.attempts)
            }
            Err(StepAttemptError::Step(StepError::Later { why, .. })) if self.has_waited_too_long(run) => {
                let hours = MAX_WAIT.as_secs() / 3600;
                halt_checkpoint(RunHalt::User(format!(
                    "{why}. This lasted {hours} hours, so the run was ended."
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
                self.retry_later("a bug in Countersign; will retry", backoff(run, attempts), attempts)
            }
        }
    }

    fn attempt_checkpoint(
        &self,
        workflow: WorkflowRef<T>,
        run: &RunRow,
        outcome: StepAttemptOutcome,
    ) -> Checkpoint {
        let StepAttemptOutcome { next, state } = outcome;
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

    /// Returns the new run that continues with this run's result, if the trigger asked for it.
    fn follow_up_run(&self, workflow: WorkflowRef<T>, run: &RunRow) -> Option<Box<NewRun>> {
        let next = follow_up_workflow(self.workflows, workflow.name(), &run.trigger)?;
        let trigger = RunTrigger { cause: run.trigger.cause.follow_up(), ..run.trigger.clone() };
        let new = new_run(next, trigger);
        new.inspect_err(|error| tracing::error!(run = %run.id, %error, "could not create the follow-up run"))
            .ok()
            .map(Box::new)
    }

    /// Makes one attempt to report to people the reason why the run ended.
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
        // A fresh token: a cancel of the run must not cancel its report.
        let cx = self.attempt_context(lease, CancellationToken::new());
        let from = saved_checkpoint(run);
        let reported = panics::catch_panic(workflow.attempt_halt_report(&from, &halt, &cx)).await;
        match reported.unwrap_or_else(|why| Err(StepError::Bug(anyhow!(why)).into())) {
            Ok(None) => ended(status, halt.public_reason()),
            Ok(Some(outcome)) => Checkpoint::Done { state: run.state.clone(), outcome, then: None },
            // Nothing else would tell people, so retry until it succeeds.
            Err(StepAttemptError::Step(StepError::Later { why, after })) => {
                let seldom = if self.has_waited_too_long(run) { HALT_REPORT_RETRY } else { Duration::ZERO };
                self.retry_later(&why, after.max(seldom), run.attempts)
            }
            Err(
                StepAttemptError::Step(StepError::User(why) | StepError::Stopped { why, .. })
                | StepAttemptError::Unreadable(why),
            ) => {
                tracing::error!(run = %run.id, %why, "could not tell people why the run ended; ending it anyway");
                ended(RunStatus::Failed, format!("{}; could not tell people: {why}", halt.public_reason()))
            }
            Err(StepAttemptError::Step(StepError::Bug(error))) => {
                let attempts = self.count_failure(run, &error);
                if attempts >= limits::STEP_ATTEMPTS {
                    let why =
                        format!("{}; could not tell people, see the server's log", halt.public_reason());
                    return ended(RunStatus::Failed, why);
                }
                self.retry_later(&halt.public_reason(), backoff(run, attempts), attempts)
            }
        }
    }

    /// Returns whether this visit has done nothing but wait for more than [`MAX_WAIT`]. If so, people must be told.
    fn has_waited_too_long(&self, run: &RunRow) -> bool {
        let now = self.clock.now();
        let mut waits = lock(&self.waiting_visits);
        // Drop stale entries: another process may have moved those runs meanwhile.
        waits.retain(|_, waiting| now.since(waiting.last) < MAX_WAIT);
        let waiting = waits.entry(run.id).or_insert(WaitingVisit { visit: run.visit, since: now, last: now });
        if waiting.visit != run.visit {
            (waiting.visit, waiting.since) = (run.visit, now);
        }
        waiting.last = now;
        now.since(waiting.since) > MAX_WAIT
    }

    /// Logs a failed attempt and returns the new number of attempts.
    fn count_failure(&self, run: &RunRow, error: &anyhow::Error) -> u32 {
        let attempts = run.attempts + 1;
        tracing::error!(
            run = %run.id, workflow = run.workflow, step = run.step, visit = run.visit, attempts,
            error = with_causes(&**error), "step failed"
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

    /// Registers and returns the cancellation token of this run's step. If the run was cancelled after the claim, the
    /// returned token is already cancelled.
    async fn cancel_token(&self, claimed: &ClaimedRun) -> CancellationToken {
        let (token, run) = (CancellationToken::new(), claimed.lease.run.id);
        lock(&self.in_flight).insert(run, token.clone());
        let has_new_cancels = self.cancels.load(SeqCst) != claimed.cancels;
        if has_new_cancels
            && let Ok(Some(RunRow { cancel: Some(_), .. })) = Box::pin(self.store.run_row(run)).await
        {
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

/// Stores a new run of this workflow, unless a run with the same cause or a live run of the issue exists.
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
        Err(_) => Checkpoint::Ended { status: RunStatus::Failed, why }, // cannot happen: every `RunHalt` serializes
    }
}

/// Parks a run until a version starts that can read the run's saved state. We never guess that state.
fn park_unreadable(run: &RunRow, why: &str) -> Checkpoint {
    let (workflow, version) = (&run.workflow, run.version);
    tracing::error!(run = %run.id, %why, "run parked: this version cannot read its state");
    if run.status == RunStatus::Halting {
        let why = format!("{}; could not tell people: {why}", run.why.as_deref().unwrap_or("ended"));
        return Checkpoint::Ended { status: RunStatus::Failed, why };
    }
    Checkpoint::Park {
        why: format!(
            "{why}; the run was started with {workflow} version {version}: start a countersign version that knows it, or /stop this run and start a new one"
        ),
    }
}

/// Returns the delay before the next attempt, which doubles with each attempt. Up to a quarter is added, so that runs
/// that failed together do not retry together. The added part depends only on run, visit and attempt.
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
    async fn recorded_wait_is_discarded_when_it_is_stale_or_the_run_ends() {
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

        // A stale entry: another process may have taken steps of the run between the two waits.
        let row = engine.store.run_row(run).await.unwrap().unwrap();
        let hours = |hours: u64| engine.clock.now().minus(Duration::from_secs(hours * 3600));
        for (last, over) in [(1, true), (40, false)] {
            let waiting = WaitingVisit { visit: row.visit, since: hours(48), last: hours(last) };
            lock(&engine.waiting_visits).insert(run, waiting);
            assert_eq!(engine.has_waited_too_long(&row), over, "{last} hours ago");
        }
    }
}
