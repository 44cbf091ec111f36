//! The context of one attempt at a step: tools, journal, gate answer, ledgers.

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

/// Maximum size of one journalled value, in bytes. Longer texts go through `AttemptContext::put`, which stores them by
/// hash.
const JOURNAL_VALUE_BYTES: usize = 64 * 1024;

/// Maximum total size of the journalled values of one visit, in bytes.
const JOURNAL_VISIT_BYTES: usize = 1024 * 1024;

#[derive(Debug, Clone)]
pub struct RunInfo {
    pub id: RunId,
    pub workflow: String,
    pub trigger: RunTrigger,
}

/// Information that [`once`](AttemptContext::once) passes to its work closure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectAttempt {
    /// Whether an earlier attempt may already have performed the effect. The step may use this flag only to check
    /// whether the effect already exists; the flag must not otherwise change what the step does.
    pub interrupted: bool,
}

/// Context of one attempt at one visit. A step may depend only on its state, the gate answer and this context, because
/// the next attempt sees nothing else.
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

/// Signals that reach a running step from outside.
#[derive(Clone)]
pub(super) struct StopSignals {
    /// Cancelled when somebody asks to stop the run.
    pub(super) cancelled: CancellationToken,
    /// Cancelled when the server begins to shut down.
    pub(super) stopping: CancellationToken,
}

#[derive(Default)]
struct JournalUsage {
    keys: HashSet<String>,
    /// Key of the `once` call that is running.
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

    pub(super) fn version(&self) -> u32 {
        self.lease.run.version
    }

    /// Returns the counter of the GitHub API calls of this attempt. The counter is stored with the run.
    pub fn github_call_counter(&self) -> &Arc<GitHubCallCounter> {
        self.lease.pending_writes.github_calls()
    }

    /// Number of this visit in the run's trail, from 1. A transition to another step starts a new visit. A repeated
    /// attempt, an answer or a wait does not.
    pub fn visit(&self) -> u64 {
        self.lease.run.visit
    }

    /// Returns a token that is cancelled when somebody asks to stop the run. Work in flight should then return soon.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.signals.cancelled
    }

    /// Returns the oldest unprocessed answer to this visit's gate. The step's transition decides about the answer:
    /// `Transition::Go` consumes it, `Ask` refuses it, and `Wait` keeps it.
    pub fn answer(&self) -> Option<&GateAnswer> {
        self.lease.run.answer.as_ref().map(|row| &row.answer)
    }

    /// Returns the last edit or deletion that somebody made to the comment of this visit's open gate.
    pub fn gate_comment_edit(&self) -> Option<&RunRemark> {
        self.lease.run.gate.as_ref()?.comment_edit.as_ref()
    }

    /// Returns people's remarks on the run's findings, without the first `after` remarks. All attempts between two
    /// checkpoints see the same remarks.
    ///
    /// # Errors
    /// Returns `Bug` if the store cannot read the remarks.
    pub async fn remarks(&self, after: u64) -> Result<Vec<RunRemark>, StepError> {
        if self.lease.run.remarks <= after {
            return Ok(Vec::new());
        }
        self.store.remarks(&self.lease, after).await.map_err(StepError::from_store)
    }

    /// Sends a remark to another run. If that run is waiting for people, it reads the remark at once. The remark is
    /// ignored if that run has ended or already has a remark with the same cause.
    ///
    /// # Errors
    /// Returns `Bug` if the store cannot write the remark.
    pub async fn send_remark(&self, run: RunId, remark: RunRemark) -> Result<(), StepError> {
        self.store.record_remark(run, remark).await.map(drop).map_err(StepError::from_store)
    }

    /// Starts a run of another workflow. The new run's cause is the [`follow_up`](crate::types::Cause::follow_up) of
    /// this run's cause, so a second call does not start another run. The new run may take its first step before this
    /// step is saved.
    ///
    /// # Errors
    /// Returns `User` if the workflow does not exist, and `Bug` if the store cannot write the run.
    pub async fn begin_run(&self, workflow: &str, trigger: RunTrigger) -> Result<StartDecision, StepError> {
        let trigger = RunTrigger { cause: self.run.trigger.cause.follow_up(), ..trigger };
        let known = self.workflows.iter().find(|known| known.name() == workflow);
        let known =
            known.ok_or_else(|| StepError::User(format!("There is no workflow called {workflow} here.")))?;
        open_run(&self.store, *known, trigger).await.map_err(|error| StepError::Bug(error.into()))
    }

    /// Returns the workflow that continues with this run's result, if the trigger asked for it.
    pub fn next_workflow(&self) -> Option<&'static str> {
        let run = &self.run;
        follow_up_workflow(self.workflows, &run.workflow, &run.trigger).map(AnyWorkflow::name)
    }

    /// Runs `work` once per visit and journals its value. A later attempt at the visit reads the value back from the
    /// journal. Calls must come in a fixed order, each with its own key, and may not be nested or concurrent. An error
    /// ends the attempt and is not journalled. After the server begins to shut down, no `work` is started, but the
    /// server waits for one that is running.
    ///
    /// # Errors
    /// Returns the errors of `work`. Returns `Later` when the server is stopping, and `Bug` for a key used twice, a
    /// nested call, or a value above `JOURNAL_VALUE_BYTES`.
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
                    StepError::Bug(anyhow!("the journal entry `{key}` has another type: {error}"))
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

    /// Runs long work that costs no money as a background job. Returns the job's result, or `None` while the job runs;
    /// in that case the step waits and calls again after [`limits::JOB_POLL_INTERVAL`]. The job exists only in this
    /// process. If the run or the server stops, the job's token is cancelled, and the next call starts the job again.
    /// The result is journalled as by [`once`](Self::once). It may have any size, because it is stored by hash.
    ///
    /// # Errors
    /// Returns the errors of `work`, after which the next call starts the job again. Returns `Bug` if the job panicked,
    /// and the errors of `once`.
    pub async fn run_job<V, W, Fut>(&self, key: &str, work: W) -> Result<Option<V>, StepError>
    where
        V: Serialize + DeserializeOwned,
        W: FnOnce(CancellationToken) -> Fut + Send + 'static,
        Fut: Future<Output = Result<V, StepError>> + Send + 'static,
    {
        let name = (self.run.id, self.visit(), key.to_owned());
        let stop = self.signals.stopping.child_token();
        let work = move |stop| async move {
            let result = work(stop).await?;
            serde_json::to_vec(&result).map_err(|error| StepError::Bug(error.into()))
        };
        let mut finished = true;
        let journalled = self.once(key, |_| async {
            match self.jobs.poll(name.clone(), stop, work).await {
                Some(result) => self.put(&result?).await,
                None => {
                    finished = false;
                    Err(StepError::Later { why: "a job is running".into(), after: limits::JOB_POLL_INTERVAL })
                }
            }
        });
        match journalled.await {
            Err(_) if !finished => Ok(None),
            journalled => {
                let hash: Hash = journalled?;
                let bytes = self.get(&hash).await?;
                self.jobs.discard(&name);
                serde_json::from_slice(&bytes).map(Some).map_err(|error| StepError::Bug(error.into()))
            }
        }
    }

    /// Returns whether a background job of this visit is running. A step that waits only for this job can then wait
    /// again at once.
    pub fn is_job_running(&self) -> bool {
        self.jobs.is_running(self.run.id, self.visit())
    }

    /// Stores bytes of any size by their hash, together with the next write of this attempt. If the attempt ends
    /// without a further write, the bytes are not stored.
    pub async fn put(&self, bytes: &[u8]) -> Result<Hash, StepError> {
        self.store.put_document(&self.lease, bytes).map_err(StepError::from_store)
    }

    pub async fn get(&self, hash: &Hash) -> Result<Vec<u8>, StepError> {
        self.store.get_document(&self.lease, *hash).await.map_err(StepError::from_store)
    }

    /// Returns the current time. Later attempts at the same visit get the same time.
    pub async fn now(&self, key: &str) -> Result<Timestamp, StepError> {
        self.once(key, |_| async { Ok(self.clock.now()) }).await
    }

    /// Returns eight random lower-case letters and digits. Later attempts at the same visit get the same characters.
    pub async fn nonce(&self, key: &str) -> Result<String, StepError> {
        self.once(key, |_| async { random_nonce() }).await
    }

    /// Writes a ledger row. A second call with the same key in the same visit replaces the row. May be called inside
    /// `once`, because the row of a paid call is written before the call.
    pub async fn record(&self, key: &str, record: LedgerRecord) -> Result<(), StepError> {
        self.store.record(&self.lease, key, record).await.map_err(StepError::from_store)
    }

    /// Like [`record`](Self::record), but writes the row together with the next write of this attempt. Therefore the
    /// value of the enclosing `once` is never stored without the row.
    pub async fn record_later(&self, key: &str, record: LedgerRecord) -> Result<(), StepError> {
        self.lease.pending_writes.add_record(self.visit(), key, record);
        Ok(())
    }

    /// Returns the ledger row of a paid call of this visit.
    pub async fn call_row(&self, key: &str) -> Result<Option<CallRow>, StepError> {
        self.store.booked(&self.lease, key).await.map_err(StepError::from_store)
    }

    /// Returns all ledger rows of this run, including those of this visit.
    pub async fn ledger(&self) -> Result<RunLedger, StepError> {
        self.store.ledger(self.run.id).await.map_err(StepError::from_store)
    }

    /// Appends a link to the repository's audit chain and returns the link's hash. A second call with the same key and
    /// visit appends nothing and returns the same hash.
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

    /// Proves that `document` may be published. `proofs` are the lesser proofs that the workflow declares.
    ///
    /// # Errors
    /// Returns `Bug` if the stored rows do not prove that the document may be published. Only gates lead to a publish
    /// step, so missing rows are a bug of ours.
    pub async fn require_countersignature(
        &self,
        document: Hash,
        proofs: &[LesserProof],
    ) -> Result<Countersignature, StepError> {
        let ledger = self.ledger().await?;
        countersignature::prove_countersigned(document, &ledger, proofs)
            .map_err(|missing| StepError::Bug(missing.into()))
    }

    /// Returns the valid approvals of `subject` so far, and whether they satisfy the subject's gate.
    ///
    /// # Errors
    /// Returns `Bug` if the store cannot read the approvals.
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
            return Err(StepError::Bug(anyhow!(
                "once(`{key}`) was called while once(`{outer}`) was running"
            )));
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
                "once(`{key}`) returned {bytes} bytes, {} in this visit; store texts with `put` and return the hash",
                attempt.bytes
            )));
        }
        Ok(())
    }
}

/// Marks a `once` call as running until this guard is dropped.
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
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow!("could not read random bytes from the system: {error}"))?;
    // An alphabet of 32 letters divides 256, so all are equally likely.
    Ok(bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}
