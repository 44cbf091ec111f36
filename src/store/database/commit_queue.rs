//! Group commit: who asks while a commit is on its way shares the next one.
//!
//! A commit's price is the disk's, whatever is in it. So requests queue up; whoever finds nobody at work starts
//! one blocking task, which works the queue off and goes. There is no thread for each database and no timer:
//! with one writer at a time everything is as if each had its own transaction, and with many the commits are
//! shared out among them.
//!
//! Two changes of threads cost as much as a commit. So who says that nobody waits for its task takes what is queued to
//! the disk itself, and leaves only what has come meanwhile to a blocking task.
//!
//! Each write runs in a savepoint of its own, so that one that fails or panics takes nothing along. What was
//! written is answered only after the commit, and if that fails, with its failure.

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

/// Writes that share one commit, and how long they may gather: the first of them waits for the last.
const COMMIT_WRITES: usize = 256;
const COMMIT_TIME: Duration = Duration::from_millis(5);

/// What was asked for and what came of it, or the panic that came instead.
pub(super) type TransactionOutcome<R> = Result<Result<R, TransactionError>, Box<dyn Any + Send>>;

/// Something to do in a transaction.
trait TransactionJob: Send {
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), TransactionError>;
    /// Tells whoever asked; `lost` is why nothing of it was kept.
    fn send_outcome(self: Box<Self>, lost: Option<TransactionError>);
}

type BoxedTransactionJob = Box<dyn TransactionJob>;

#[derive(Default)]
pub(super) struct CommitQueue {
    reads: Vec<BoxedTransactionJob>,
    writes: VecDeque<BoxedTransactionJob>,
    /// Somebody works it off.
    has_leader: bool,
}

fn lock(queue: &Mutex<CommitQueue>) -> MutexGuard<'_, CommitQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TransactionKind {
    Read,
    Write,
    /// On this thread if nobody is at work: for a task that does nothing else meanwhile.
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
        // What it leaves half done is rolled back, and nobody else sees what it had borrowed.
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
        // Whoever asked may have gone.
        drop(self.answer.send(outcome));
    }
}

/// Queues `work` and sees to it that somebody works the queue off.
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
        // A runtime of one thread has nobody for its other tasks.
        let others = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if kind == TransactionKind::WriteHere && others() {
            block_in_place(|| leader.run_one_batch());
        } else {
            drop(spawn_blocking(|| leader.run_until_idle()));
        }
    }
    outcome
}

/// Works a queue off. If it is dropped before (the runtime is shutting down), what is queued is refused and the
/// next one who asks finds nobody at work.
///
/// It has the file only while it uses it and lets go of it before anybody is answered, so that whoever was answered
/// can close the file: what opens it next would find a connection at work on it otherwise.
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
            // Those who were just answered may ask again: waiting for them costs less than starting anew.
            thread::yield_now();
            if self.step_down() {
                return;
            }
        }
    }

    /// For one who has work of its own to go back to.
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
        // Not even for a moment does it take the database for nothing: that moment may be after the last answer.
        if !reads.is_empty() {
            self.with_database(|shared| reads.into_iter().map(|read| run_read(shared, read)).collect());
        }
        if !writes.is_empty() {
            self.with_database(|shared| commit_batch(shared, writes));
        }
    }

    /// Answers what was done with the database after letting go of it. If it is closed, whoever asked has gone.
    fn with_database(&self, work: impl FnOnce(&DatabaseInner) -> Vec<FinishedTransaction>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let done = work(&shared);
        drop(shared);
        for (job, lost) in done {
            job.send_outcome(lost);
        }
    }

    /// Over, unless there is something to do.
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

/// What was run, and why nothing of it was kept.
type FinishedTransaction = (BoxedTransactionJob, Option<TransactionError>);

/// A read sees one snapshot; nothing it writes is kept.
fn run_read(shared: &DatabaseInner, mut read: BoxedTransactionJob) -> FinishedTransaction {
    let lost = shared.snapshot(|tx| {
        // What it failed with is in its outcome.
        let _ = read.run(tx);
        Ok(())
    });
    (read, lost.err())
}

/// Commits as many of `writes` as fit; the others come first in the next commit.
fn commit_batch(
    shared: &DatabaseInner,
    mut writes: VecDeque<BoxedTransactionJob>,
) -> Vec<FinishedTransaction> {
    let mut run = Vec::with_capacity(writes.len());
    let committed = shared.transact(|tx| run_writes(tx, &mut writes, &mut run));
    if run.is_empty() {
        // It could not even be begun.
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

/// Runs as many of `writes` as fit one transaction; says whether there is anything to commit. Those that were run are
/// moved to `run`.
fn run_writes(
    tx: &Transaction<'_>,
    writes: &mut VecDeque<BoxedTransactionJob>,
    run: &mut Vec<BoxedTransactionJob>,
) -> Result<bool, TransactionError> {
    // How long it takes, not what time it is: no clock of ours has a say in it.
    let begun = Instant::now();
    let alone = writes.len() == 1;
    let mut any = false;
    while let Some(mut job) = writes.pop_front() {
        let kept = if alone { Ok(job.run(tx)) } else { run_in_savepoint(tx, job.as_mut()) };
        run.push(job);
        match kept? {
            Ok(()) => any = true,
            // The database itself gave up on the whole transaction, and what was written before in it is gone.
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

/// Runs a job in a savepoint, so that what it leaves when it fails is undone alone. The outer error is the
/// savepoint's own: what the transaction holds is not known any more, so nothing of it may be kept.
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
