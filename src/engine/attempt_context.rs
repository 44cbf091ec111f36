//! What a step may touch: its tools, its journal, the answer that woke it, the ledgers.

use std::{
    collections::HashSet,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::anyhow;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::{
    background_jobs::BackgroundJobs,
    countersignature::{self, Countersignature},
    scheduler::{WorkflowRef, open_run},
    workflow::{AnyWorkflow, LesserProof, StepError, follow_up_workflow},
};
use crate::{
    clock::{Clock, SharedClock},
    limits,
    store::{
        AuditEntry, CallRow, GateAnswer, GitHubCallCounter, JournalLookup, LedgerRecord, RunLease, RunLedger,
        RunRemark, RunTrigger, StartDecision, Store,
    },
    types::{Hash, RunId, Timestamp},
};

/// One journalled value; longer texts go through `AttemptContext::put`, which stores them by hash.
const JOURNAL_VALUE_BYTES: usize = 64 * 1024;

/// All journalled values of one visit to a step.
const JOURNAL_VISIT_BYTES: usize = 1024 * 1024;

/// The run a step belongs to.
#[derive(Debug, Clone)]
pub struct RunInfo {
    pub id: RunId,
    pub workflow: String,
    pub trigger: RunTrigger,
}

/// How an effect is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectAttempt {
    /// An earlier attempt may have had the effect already. It steers only the look inside the
    /// effect, never a branch.
    pub interrupted: bool,
}

/// One attempt at one visit. What a step learns elsewhere than from its state, the answer or here
/// is lost to the next attempt.
pub struct AttemptContext<T: 'static> {
    run: RunInfo,
    tools: Arc<T>,
    clock: SharedClock,
    signals: StopSignals,
    lease: RunLease,
    store: Arc<Store>,
    workflows: &'static [WorkflowRef<T>],
    jobs: Arc<BackgroundJobs>,
    journal_usage: Mutex<JournalUsage>,
}

/// What a step may hear from outside while it runs.
#[derive(Clone)]
pub(super) struct StopSignals {
    /// Someone asked that the run end.
    pub(super) cancelled: CancellationToken,
    /// The server is about to stop.
    pub(super) stopping: CancellationToken,
}

/// What this attempt asked of the journal so far.
#[derive(Default)]
struct JournalUsage {
    keys: HashSet<String>,
    /// The `once` that is running.
    running_key: Option<String>,
    bytes: usize,
}

impl<T: Send + Sync + 'static> AttemptContext<T> {
    pub(super) fn new(
        lease: RunLease,
        store: Arc<Store>,
        tools: Arc<T>,
        clock: SharedClock,
        signals: StopSignals,
        workflows: &'static [WorkflowRef<T>],
        jobs: Arc<BackgroundJobs>,
    ) -> Self {
        let run = RunInfo {
            id: lease.run.id,
            workflow: lease.run.workflow.clone(),
            trigger: lease.run.trigger.clone(),
        };
        Self { run, tools, clock, signals, lease, store, workflows, jobs, journal_usage: Mutex::default() }
    }

    pub fn run(&self) -> &RunInfo {
        &self.run
    }

    pub fn tools(&self) -> &T {
        &self.tools
    }

    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The workflow's version when the run started.
    pub(super) fn version(&self) -> u32 {
        self.lease.run.version
    }

    /// Counts what this attempt asks of GitHub; kept with the run.
    pub fn github_call_counter(&self) -> &Arc<GitHubCallCounter> {
        self.lease.pending_writes.github_calls()
    }

    /// The number of this visit in the run's trail, from 1. Every move begins a new one; a repeated
    /// attempt, an answer and a wait do not.
    pub fn visit(&self) -> u64 {
        self.lease.run.visit
    }

    /// Trips when someone asks that the run end; whatever is in flight should come back soon.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.signals.cancelled
    }

    /// The oldest answer to this visit's gate that no attempt has dealt with. Going on uses it up,
    /// asking again refuses it, waiting keeps it.
    pub fn answer(&self) -> Option<&GateAnswer> {
        self.lease.run.answer.as_ref().map(|row| &row.answer)
    }

    /// What somebody did last to the comment of this visit's open gate.
    pub fn gate_comment_edit(&self) -> Option<&RunRemark> {
        self.lease.run.gate.as_ref()?.comment_edit.as_ref()
    }

    /// What people said of the run's findings, but for the first so many: the same at every attempt between two saves.
    ///
    /// # Errors
    /// `Bug` when they cannot be read.
    pub async fn remarks(&self, after: u64) -> Result<Vec<RunRemark>, StepError> {
        if self.lease.run.remarks <= after {
            return Ok(Vec::new());
        }
        self.store.remarks(&self.lease, after).await.map_err(StepError::from_store)
    }

    /// Leaves a remark for another run, by which it looks again where it waits for people; the same cause again adds nothing,
    /// and to a run that is over nothing is said.
    ///
    /// # Errors
    /// `Bug` when it cannot be written.
    pub async fn send_remark(&self, run: RunId, remark: RunRemark) -> Result<(), StepError> {
        self.store.record_remark(run, remark).await.map(drop).map_err(StepError::from_store)
    }

    /// Begins a run of another workflow, for the cause [`onward`](crate::types::Cause::follow_up) from this run's: said twice, it
    /// is begun once. It takes its first step when this one is saved, or before.
    ///
    /// # Errors
    /// `User` where there is no such workflow; `Bug` when it cannot be written.
    pub async fn begin_run(&self, workflow: &str, trigger: RunTrigger) -> Result<StartDecision, StepError> {
        let trigger = RunTrigger { cause: self.run.trigger.cause.follow_up(), ..trigger };
        let known = self.workflows.iter().find(|known| known.name() == workflow);
        let known =
            known.ok_or_else(|| StepError::User(format!("There is no workflow called {workflow} here.")))?;
        open_run(&self.store, *known, trigger).await.map_err(|error| StepError::Bug(error.into()))
    }

    /// The workflow that is to go on from what this run makes, if its people asked for that.
    pub fn next_workflow(&self) -> Option<&'static str> {
        let run = &self.run;
        follow_up_workflow(self.workflows, &run.workflow, &run.trigger).map(AnyWorkflow::name)
    }

    /// Does `work` once per visit: a later attempt reads back the value that was reached. Calls
    /// come in a fixed order, each with a key of its own, and never one inside another (nor
    /// side by side). An error ends the attempt and is never read back. None begins once the server is told to
    /// stop: what is under way is awaited, and the next boot goes on after it.
    ///
    /// # Errors
    /// Those of `work`; `Later` when the server is stopping; `Bug` for a key used twice, nesting, or a value above
    /// `JOURNAL_VALUE_BYTES`.
    pub async fn once<V, F, Fut>(&self, key: &str, work: F) -> Result<V, StepError>
    where
        V: Serialize + DeserializeOwned,
        F: FnOnce(EffectAttempt) -> Fut,
        Fut: Future<Output = Result<V, StepError>>,
    {
        let _inside = self.enter_once(key)?;
        if self.signals.stopping.is_cancelled() {
            return Err(StepError::Later { why: "the server is restarting".into(), after: Duration::ZERO });
        }
        match self.store.journal_begin(&self.lease, key).await.map_err(StepError::from_store)? {
            JournalLookup::Done(bytes) => {
                self.count_journal_bytes(key, bytes.len())?;
                serde_json::from_slice(&bytes).map_err(|error| {
                    StepError::Bug(anyhow!(
                        "what the journal holds under `{key}` is of another type: {error}"
                    ))
                })
            }
            JournalLookup::Begun { interrupted } => {
                let value = work(EffectAttempt { interrupted }).await?;
                let bytes = serde_json::to_vec(&value).map_err(|error| StepError::Bug(error.into()))?;
                self.count_journal_bytes(key, bytes.len())?;
                self.store.journal_done(&self.lease, key, bytes).await.map_err(StepError::from_store)?;
                Ok(value)
            }
        }
    }

    /// What long work came to that costs no money, or none while it is going on: the step then waits and asks again
    /// after [`limits::JOB_POLL_INTERVAL`]. It goes on beside the steps, in this process alone: a stop of the run or of the
    /// server ends it by its token, and where there is none, it is begun. The result is kept as that of a
    /// [`once`](Self::once) is, and may be as long as any text.
    ///
    /// # Errors
    /// Those of `work`, after which it is begun anew; `Bug` where it panicked; and those of `once`.
    pub async fn run_job<V, W, Fut>(&self, key: &str, work: W) -> Result<Option<V>, StepError>
    where
        V: Serialize + DeserializeOwned,
        W: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<V, StepError>> + Send + 'static,
    {
        let name = (self.run.id, self.visit(), key.to_owned());
        let stop = self.signals.stopping.child_token();
        let work = move |stop| async move {
            let left = work(stop).await?;
            serde_json::to_vec(&left).map_err(|error| StepError::Bug(error.into()))
        };
        let mut over = true;
        let kept = self.once(key, |_| async {
            match self.jobs.poll(name.clone(), stop, work).await {
                Some(left) => self.put(&left?).await,
                None => {
                    over = false;
                    Err(StepError::Later { why: "a job goes on".into(), after: limits::JOB_POLL_INTERVAL })
                }
            }
        });
        match kept.await {
            Err(_) if !over => Ok(None),
            kept => {
                let hash: Hash = kept?;
                let bytes = self.get(&hash).await?;
                self.jobs.discard(&name);
                serde_json::from_slice(&bytes).map(Some).map_err(|error| StepError::Bug(error.into()))
            }
        }
    }

    /// Does a job of this visit go on? A step that waits for nothing else may then wait on without a further look.
    pub fn is_job_running(&self) -> bool {
        self.jobs.is_running(self.run.id, self.visit())
    }

    /// Keeps bytes of any size by their hash, with whatever is kept next: a text that nothing refers to when the
    /// attempt ends is not kept.
    pub async fn put(&self, bytes: &[u8]) -> Result<Hash, StepError> {
        self.store.put_document(&self.lease, bytes).map_err(StepError::from_store)
    }

    pub async fn get(&self, hash: &Hash) -> Result<Vec<u8>, StepError> {
        self.store.get_document(&self.lease, *hash).await.map_err(StepError::from_store)
    }

    /// The time, the same at every attempt.
    pub async fn now(&self, key: &str) -> Result<Timestamp, StepError> {
        self.once(key, |_| async { Ok(self.clock.now()) }).await
    }

    /// Eight lower-case letters and digits nobody can guess, the same at every attempt.
    pub async fn nonce(&self, key: &str) -> Result<String, StepError> {
        self.once(key, |_| async { random_nonce() }).await
    }

    /// Writes a ledger row; the same key in the same visit again replaces it. May be called inside
    /// `once`: the row of a paid call is written before the call.
    pub async fn record(&self, key: &str, record: LedgerRecord) -> Result<(), StepError> {
        self.store.record(&self.lease, key, record).await.map_err(StepError::from_store)
    }

    /// As [`record`](Self::record), and kept with the next write of this attempt, or not at all: the value of the
    /// `once` it is called in is never kept without it.
    pub async fn record_later(&self, key: &str, record: LedgerRecord) -> Result<(), StepError> {
        self.lease.pending_writes.add_record(self.visit(), key, record);
        Ok(())
    }

    /// What the books hold of a paid call of this visit.
    pub async fn call_row(&self, key: &str) -> Result<Option<CallRow>, StepError> {
        self.store.booked(&self.lease, key).await.map_err(StepError::from_store)
    }

    /// Everything the ledgers hold about this run, this visit's rows included.
    pub async fn ledger(&self) -> Result<RunLedger, StepError> {
        self.store.ledger(self.run.id).await.map_err(StepError::from_store)
    }

    /// Puts something on the repository's audit chain and returns the hash of its link; the same
    /// key in the same visit again adds nothing and returns that hash.
    pub async fn append_audit_link(
        &self,
        key: &str,
        what: &str,
        detail: serde_json::Value,
    ) -> Result<Hash, StepError> {
        let entry = AuditEntry {
            run: self.run.id,
            visit: self.visit(),
            key: key.to_owned(),
            what: what.to_owned(),
            detail,
        };
        self.store.audit(&self.lease, entry).await.map_err(StepError::from_store)
    }

    /// The proof that `document` may be published; `proofs` are the lesser ones that the workflow declares.
    ///
    /// # Errors
    /// `Bug` when the stored rows do not prove it: a publish step is reached only through gates, so
    /// being here without the rows is our fault.
    pub async fn require_countersignature(
        &self,
        document: Hash,
        proofs: &[LesserProof],
    ) -> Result<Countersignature, StepError> {
        let ledger = self.ledger().await?;
        countersignature::prove_countersigned(document, &ledger, proofs)
            .map_err(|missing| StepError::Bug(missing.into()))
    }

    /// The people's approvals of `subject` that count at its gate so far, and whether they are enough.
    ///
    /// # Errors
    /// `Bug` when they cannot be read.
    pub async fn counted_approvers(
        &self,
        document: Hash,
        subject: Hash,
    ) -> Result<(Vec<GateAnswer>, bool), StepError> {
        Ok(countersignature::counted_approvers(document, subject, &self.ledger().await?))
    }

    fn enter_once(&self, key: &str) -> Result<OnceGuard<'_>, StepError> {
        let mut attempt = lock(&self.journal_usage);
        if let Some(outer) = &attempt.running_key {
            return Err(StepError::Bug(anyhow!("once(`{key}`) was called inside or beside once(`{outer}`)")));
        }
        if !attempt.keys.insert(key.to_owned()) {
            return Err(StepError::Bug(anyhow!("once(`{key}`) was called twice in one attempt at a visit")));
        }
        attempt.running_key = Some(key.to_owned());
        Ok(OnceGuard(&self.journal_usage))
    }

    fn count_journal_bytes(&self, key: &str, bytes: usize) -> Result<(), StepError> {
        let mut attempt = lock(&self.journal_usage);
        attempt.bytes += bytes;
        if bytes > JOURNAL_VALUE_BYTES || attempt.bytes > JOURNAL_VISIT_BYTES {
            return Err(StepError::Bug(anyhow!(
                "once(`{key}`) came to {bytes} bytes, {} in this visit; put texts away with `put` and keep the hash",
                attempt.bytes
            )));
        }
        Ok(())
    }
}

/// Says that a `once` is running, for as long as it lives.
struct OnceGuard<'a>(&'a Mutex<JournalUsage>);

impl Drop for OnceGuard<'_> {
    fn drop(&mut self) {
        lock(self.0).running_key = None;
    }
}

fn lock(attempt: &Mutex<JournalUsage>) -> MutexGuard<'_, JournalUsage> {
    attempt.lock().unwrap_or_else(PoisonError::into_inner)
}

fn random_nonce() -> Result<String, StepError> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("no randomness from the system: {error}"))?;
    // 32 letters: five bits each, none likelier than another.
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}
