//! Group commit: requests that arrive during a commit share the next commit.
//!
//! A commit costs one disk flush, whatever its size. Therefore requests are queued. The first request at an idle queue
//! starts one blocking task, which processes the queue until it is empty and then ends. Databases thus need no timer
//! and no thread of their own. A single writer gets a separate transaction; many concurrent writers share commits.
//!
//! Switching threads twice takes as long as a commit. Therefore a caller that may block commits the queued batch itself
//! and leaves later requests to a blocking task.
//!
//! Each write runs in its own savepoint, so that a failing or panicking write does not affect the others. A write gets
//! its result, or the error of the commit, only after the commit.

use std::{
    any::Any,
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
    task::{block_in_place, spawn_blocking},
};

use super::DatabaseInner;
use crate::store::{error::TransactionError, sql::Transaction};

/// Maximum number of writes per commit. `COMMIT_TIME` is the maximum duration of a batch. Both are limited because the
/// first write of a batch gets its result only after the last write.
const COMMIT_WRITES: usize = 256;
const COMMIT_TIME: Duration = Duration::from_millis(5);

/// Result of a queued transaction, or the payload of its panic.
pub(super) type TransactionOutcome<R> = Result<Result<R, TransactionError>, Box<dyn Any + Send>>;

/// A job to run in a transaction.
trait TransactionJob: Send {
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), TransactionError>;
    /// Sends the result to the caller. `lost` is the error if the transaction was not committed.
    fn send_outcome(self: Box<Self>, lost: Option<TransactionError>);
}

type BoxedTransactionJob = Box<dyn TransactionJob>;

#[derive(Default)]
pub(super) struct CommitQueue {
    reads: Vec<BoxedTransactionJob>,
    writes: VecDeque<BoxedTransactionJob>,
    /// Whether a leader is currently processing the queue.
    has_leader: bool,
}

fn lock(queue: &Mutex<CommitQueue>) -> MutexGuard<'_, CommitQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionKind {
    Read,
    Write,
    /// A write that runs on the calling thread if the queue is idle. Only for tasks that may block.
    WriteHere,
}

struct QueuedTransaction<W, R> {
    work: Option<W>,
    outcome: Option<TransactionOutcome<R>>,
    answer: oneshot::Sender<TransactionOutcome<R>>,
}

impl<R: Send, W: FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send> TransactionJob
    for QueuedTransaction<W, R>
{
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), TransactionError> {
        let Some(work) = self.work.take() else { return Ok(()) };
        // A failed job's writes are rolled back and its borrowed data is dropped, so unwinding is safe.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(tx)));
        let kept = match &outcome {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(fault)) => Err(fault.duplicate()),
            Err(_) => Err(TransactionError::Row("a panic".to_owned())),
        };
        self.outcome = Some(outcome);
        kept
    }

    fn send_outcome(self: Box<Self>, lost: Option<TransactionError>) {
        let outcome = match (self.outcome, lost) {
            (Some(Ok(Ok(_))) | None, Some(fault)) => Ok(Err(fault)),
            (Some(outcome), _) => outcome,
            (None, None) => return, // never run and never refused: it is asked again or the process ends
        };
        // The receiver may be gone.
        drop(self.answer.send(outcome));
    }
}

/// Queues `work`, and starts a leader if the queue has no leader.
pub(super) fn enqueue<R: Send + 'static>(
    shared: &Arc<DatabaseInner>,
    kind: TransactionKind,
    work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
) -> oneshot::Receiver<TransactionOutcome<R>> {
    let (answer, outcome) = oneshot::channel();
    let job = Box::new(QueuedTransaction { work: Some(work), outcome: None, answer });
    let led = {
        let mut queue = lock(&shared.queue);
        match kind {
            TransactionKind::Read => queue.reads.push(job),
            TransactionKind::Write | TransactionKind::WriteHere => queue.writes.push_back(job),
        }
        mem::replace(&mut queue.has_leader, true)
    };
    if !led {
        let leader = CommitLeader {
            queue: Arc::clone(&shared.queue),
            shared: Arc::downgrade(shared),
            has_stepped_down: false,
        };
        // In a single-threaded runtime, blocking here would stop all other tasks.
        let others = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if kind == TransactionKind::WriteHere && others() {
            block_in_place(|| leader.run_one_batch());
        } else {
            drop(spawn_blocking(|| leader.run_until_idle()));
        }
    }
    outcome
}

/// Processes a queue until it is empty. If the leader is dropped early because the runtime shuts down, it refuses the
/// queued jobs, and the next request starts a new leader.
///
/// The leader opens the database only for each batch and drops it before it sends the results. A caller that has its
/// result can therefore close the file without a connection remaining in use.
struct CommitLeader {
    queue: Arc<Mutex<CommitQueue>>,
    shared: Weak<DatabaseInner>,
    has_stepped_down: bool,
}

impl CommitLeader {
    fn run_until_idle(mut self) {
        loop {
            while let Some(batch) = self.next_batch() {
                self.run_batch(batch);
            }
            // The callers that just got results may queue more; yielding once costs less than starting a new leader.
            thread::yield_now();
            if self.step_down() {
                return;
            }
        }
    }

    /// Runs one batch on the calling thread. If requests remain, leaves them to a blocking task.
    fn run_one_batch(mut self) {
        if let Some(batch) = self.next_batch() {
            self.run_batch(batch);
        }
        if !self.step_down() {
            drop(spawn_blocking(|| self.run_until_idle()));
        }
    }

    fn next_batch(&self) -> Option<(Vec<BoxedTransactionJob>, VecDeque<BoxedTransactionJob>)> {
        let mut queue = lock(&self.queue);
        let reads = mem::take(&mut queue.reads);
        let most = queue.writes.len().min(COMMIT_WRITES);
        let writes: VecDeque<_> = queue.writes.drain(..most).collect();
        (!reads.is_empty() || !writes.is_empty()).then_some((reads, writes))
    }

    fn run_batch(&self, (reads, writes): (Vec<BoxedTransactionJob>, VecDeque<BoxedTransactionJob>)) {
        // Upgrade the reference only for a non-empty batch: otherwise we could hold the database open after the last
        // result.
        if !reads.is_empty() {
            self.with_database(|shared| reads.into_iter().map(|read| run_read(shared, read)).collect());
        }
        if !writes.is_empty() {
            self.with_database(|shared| commit_batch(shared, writes));
        }
    }

    /// Runs `work` on the database, drops the database, and then sends the results. Does nothing if the database is
    /// closed, because in that case no caller is waiting.
    fn with_database(&self, work: impl FnOnce(&DatabaseInner) -> Vec<FinishedTransaction>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let done = work(&shared);
        drop(shared);
        for (job, lost) in done {
            job.send_outcome(lost);
        }
    }

    /// Stops being the leader if the queue is empty. Returns `true` if the queue was empty.
    fn step_down(&mut self) -> bool {
        let mut queue = lock(&self.queue);
        let idle = queue.reads.is_empty() && queue.writes.is_empty();
        queue.has_leader = !idle;
        self.has_stepped_down = idle;
        idle
    }
}

impl Drop for CommitLeader {
    fn drop(&mut self) {
        if !self.has_stepped_down {
            let mut queue = lock(&self.queue);
            queue.has_leader = false;
            let refused = (mem::take(&mut queue.reads), mem::take(&mut queue.writes));
            drop(queue);
            drop(refused);
        }
    }
}

/// A job that was run, and the error if its transaction was not committed.
type FinishedTransaction = (BoxedTransactionJob, Option<TransactionError>);

/// Runs a read on one snapshot. Any writes of the job are discarded.
fn run_read(shared: &DatabaseInner, mut read: BoxedTransactionJob) -> FinishedTransaction {
    let lost = shared.snapshot(|tx| {
        // The job's outcome carries its error.
        let _ = read.run(tx);
        Ok(())
    });
    (read, lost.err())
}

/// Commits as many of `writes` as fit into one batch. Puts the remaining ones back at the front of the queue.
fn commit_batch(
    shared: &DatabaseInner,
    mut writes: VecDeque<BoxedTransactionJob>,
) -> Vec<FinishedTransaction> {
    let mut run = Vec::with_capacity(writes.len());
    let committed = shared.transact(|tx| run_writes(tx, &mut writes, &mut run));
    if run.is_empty() {
        // The transaction could not start.
        run.extend(writes.drain(..));
    }
    let mut queue = lock(&shared.queue);
    while let Some(job) = writes.pop_back() {
        queue.writes.push_front(job);
    }
    drop(queue);
    if let Ok(true) = committed {
        shared.watch.change_signal.send_replace(());
        if let Some(tell) = shared.watch.on_commit.get() {
            tell(&shared.file);
        }
    }
    let lost = committed.err();
    run.into_iter().map(|job| (job, lost.as_ref().map(TransactionError::duplicate))).collect()
}

/// Runs as many of `writes` as fit into one batch, and moves them to `run`. Returns whether there is anything to
/// commit.
fn run_writes(
    tx: &Transaction<'_>,
    writes: &mut VecDeque<BoxedTransactionJob>,
    run: &mut Vec<BoxedTransactionJob>,
) -> Result<bool, TransactionError> {
    // Measures elapsed time only, so it does not use the store's clock.
    let begun = Instant::now();
    let alone = writes.len() == 1;
    let mut any = false;
    while let Some(mut job) = writes.pop_front() {
        let kept = if alone { Ok(job.run(tx)) } else { run_in_savepoint(tx, job.as_mut()) };
        run.push(job);
        match kept? {
            Ok(()) => any = true,
            // SQLite rolled back the whole transaction, including the earlier jobs.
            Err(fault) if tx.is_rolled_back() => return Err(fault),
            Err(_) if alone => return Ok(false),
            Err(_) => {}
        }
        if begun.elapsed() > COMMIT_TIME {
            break;
        }
    }
    Ok(any)
}

/// Runs a job in a savepoint, so that a failure undoes only this job. The outer error is an error of the savepoint
/// itself. After an outer error, the state of the transaction is unknown, so nothing may be committed.
fn run_in_savepoint(
    tx: &Transaction<'_>,
    job: &mut dyn TransactionJob,
) -> Result<Result<(), TransactionError>, TransactionError> {
    tx.execute_batch("SAVEPOINT job")?;
    let kept = job.run(tx);
    if kept.is_err() && !tx.is_rolled_back() {
        tx.execute_batch("ROLLBACK TO job")?;
    }
    if !tx.is_rolled_back() {
        tx.execute_batch("RELEASE job")?;
    }
    Ok(kept)
}
