//! Telemetry of runs: the activities on which they spend time, and the visits that have finished. Telemetry never
//! delays a run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::metrics::{counter::Counter, family::Family};
use tokio::sync::broadcast;

use super::{graph::StepInfo, scheduler::lock};
use crate::{
    store::{Checkpoint, RunRow, RunStatus},
    types::{Cause, IssueNo, RunId, Timestamp},
};

/// Maximum number of finished visits that are buffered for subscribers. Beyond this limit, the oldest visits are
/// dropped.
const BUFFERED_VISITS: usize = 1024;

/// Counter of seconds that runs spent, by workflow and by activity.
pub type RunSecondsCounter = Family<[(&'static str, &'static str); 2], Counter<f64, AtomicU64>>;

/// Counter of ended runs, by workflow and by kind of end.
pub type RunEndsCounter = Family<[(&'static str, &'static str); 2], Counter>;

#[derive(Debug, Clone)]
pub struct FinishedVisit {
    pub run: RunId,
    pub cause: Cause,
    pub issue: IssueNo,
    pub workflow: String,
    pub started_at: Timestamp,
    pub visit: u64,
    pub step: Option<StepInfo>,
    /// Whether this visit reported a halt to people.
    pub reports_halt: bool,
    /// Outcome of the run, if this visit ended it.
    pub end_status: Option<RunStatus>,
}

impl FinishedVisit {
    pub(super) fn from_checkpoint(
        run: &RunRow,
        step: Option<StepInfo>,
        checkpoint: &Checkpoint,
    ) -> Option<Self> {
        let ended = match checkpoint {
            Checkpoint::Go { .. } | Checkpoint::Halt { .. } => None,
            Checkpoint::Done { .. } => Some(RunStatus::Done),
            Checkpoint::Ended { status, .. } => Some(*status),
            _ => return None,
        };
        Some(Self {
            run: run.id,
            cause: run.trigger.cause.clone(),
            issue: run.trigger.issue,
            workflow: run.workflow.clone(),
            started_at: run.started_at,
            visit: run.visit,
            step,
            reports_halt: run.status == RunStatus::Halting,
            end_status: ended,
        })
    }
}

/// Counters and visit events of an engine.
pub struct RunTelemetry {
    /// Time at which this process started. Time that runs spent before is not counted here.
    started: Timestamp,
    run_seconds: RunSecondsCounter,
    ends: RunEndsCounter,
    /// Time at which this process last saved each live run. The time in the run's row is not used, because it also
    /// changes when people comment on a waiting run.
    last_saves: Mutex<HashMap<RunId, Timestamp>>,
    /// Channel of finished visits; created by the first subscription.
    visits: OnceLock<broadcast::Sender<Arc<FinishedVisit>>>,
}

impl RunTelemetry {
    pub(super) fn new(started: Timestamp) -> Self {
        Self {
            started,
            run_seconds: RunSecondsCounter::default(),
            ends: RunEndsCounter::default(),
            last_saves: Mutex::default(),
            visits: OnceLock::new(),
        }
    }

    /// Returns the counter of seconds that runs have spent since this server started. A run's time is counted when the
    /// run is saved.
    pub fn run_seconds(&self) -> &RunSecondsCounter {
        &self.run_seconds
    }

    /// Returns the counter of runs that have ended since this server started.
    pub fn run_ends(&self) -> &RunEndsCounter {
        &self.ends
    }

    /// Subscribes to visits that finish from now on.
    pub fn subscribe_visits(&self) -> broadcast::Receiver<Arc<FinishedVisit>> {
        self.visits.get_or_init(|| broadcast::channel(BUFFERED_VISITS).0).subscribe()
    }

    /// Counts the time of a saved step, and the time of the wait before the step. `run` is the run's row before the
    /// step.
    pub(super) fn count_step_time(
        &self,
        workflow: &'static str,
        run: &RunRow,
        taken: Timestamp,
        saved: Timestamp,
    ) {
        let waited_for = match run.status {
            RunStatus::Asking => "people",
            RunStatus::Waiting => "others",
            // After a failed attempt the run waits for whatever blocked it.
            _ if run.why.is_some() => "others",
            _ => "queue",
        };
        let add = |on, time: Duration| {
            let seconds = self.run_seconds.get_or_create(&[("workflow", workflow), ("on", on)]);
            seconds.inc_by(time.as_secs_f64());
        };
        let shown = run.gate.as_ref().map_or(run.updated_at, |gate| gate.spec.shown_at);
        let since = lock(&self.last_saves).insert(run.id, saved).unwrap_or(shown.max(self.started));
        add(waited_for, taken.since(since));
        add("work", saved.since(taken));
    }

    pub(super) fn count_end(&self, workflow: &'static str, run: RunId, how: &'static str) {
        self.ends.get_or_create(&[("workflow", workflow), ("end", how)]).inc();
        lock(&self.last_saves).remove(&run);
    }

    pub(super) fn publish_visit(&self, visit: Option<FinishedVisit>) {
        if let (Some(visit), Some(watchers)) = (visit, self.visits.get()) {
            // An error only means that all subscribers are gone.
            drop(watchers.send(Arc::new(visit)));
        }
    }
}
