//! What those hear of runs who watch: how their time goes, and which visits are over. Nobody is waited for.

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

/// Visits that are kept for who watches; of more the oldest are lost to them.
const BUFFERED_VISITS: usize = 1024;

/// Seconds, by workflow and by what they went to.
pub type RunSecondsCounter = Family<[(&'static str, &'static str); 2], Counter<f64, AtomicU64>>;

/// Runs that ended, by workflow and by how.
pub type RunEndsCounter = Family<[(&'static str, &'static str); 2], Counter>;

/// A visit that is over.
#[derive(Debug, Clone)]
pub struct FinishedVisit {
    pub run: RunId,
    pub cause: Cause,
    pub issue: IssueNo,
    pub workflow: String,
    pub started_at: Timestamp,
    pub visit: u64,
    pub step: Option<StepInfo>,
    /// It told people why the run ended.
    pub reports_halt: bool,
    /// How the run ended with it, if it did.
    pub end_status: Option<RunStatus>,
}

impl FinishedVisit {
    pub(super) fn from_checkpoint(run: &RunRow, step: Option<StepInfo>, left: &Checkpoint) -> Option<Self> {
        let ended = match left {
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

/// What an engine tells.
pub struct RunTelemetry {
    /// What went on before was counted, if at all, by another process.
    started: Timestamp,
    run_seconds: RunSecondsCounter,
    ends: RunEndsCounter,
    /// When this process saved a live run last: what people say to one that waits touches its row.
    last_saves: Mutex<HashMap<RunId, Timestamp>>,
    /// None: nobody ever asked.
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

    /// Where the time of runs went since this server started, each counted when it was saved.
    pub fn run_seconds(&self) -> &RunSecondsCounter {
        &self.run_seconds
    }

    /// How runs ended since this server started.
    pub fn run_ends(&self) -> &RunEndsCounter {
        &self.ends
    }

    /// Visits from now on.
    pub fn subscribe_visits(&self) -> broadcast::Receiver<Arc<FinishedVisit>> {
        self.visits.get_or_init(|| broadcast::channel(BUFFERED_VISITS).0).subscribe()
    }

    /// A step of `run`, as it was when it was taken, was saved.
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
            // What came to nothing before waits for whatever kept it.
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
            // Whoever asked may have gone.
            drop(watchers.send(Arc::new(visit)));
        }
    }
}
