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

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
    task::{block_in_place, spawn_blocking},
};

use super::Shared;
use crate::store::error::Fault;

/// Writes that share one commit, and how long they may gather: the first of them waits for the last.
const COMMIT_WRITES: usize = 256;
const COMMIT_TIME: Duration = Duration::from_millis(5);

/// What was asked for and what came of it, or the panic that came instead.
pub(super) type Outcome<R> = Result<Result<R, Fault>, Box<dyn Any + Send>>;

/// Something to do in a transaction.
trait Job: Send {
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), Fault>;
    /// Tells whoever asked; `lost` is why nothing of it was kept.
    fn answer(self: Box<Self>, lost: Option<Fault>);
}

type Work = Box<dyn Job>;

#[derive(Default)]
pub(super) struct Queue {
    reads: Vec<Work>,
    writes: VecDeque<Work>,
    /// Somebody works it off.
    led: bool,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// On this thread if nobody is at work: for a task that does nothing else meanwhile.
    WriteHere,
}

struct Asked<W, R> {
    work: Option<W>,
    outcome: Option<Outcome<R>>,
    answer: oneshot::Sender<Outcome<R>>,
}

impl<R: Send, W: FnOnce(&Transaction<'_>) -> Result<R, Fault> + Send> Job for Asked<W, R> {
    fn run(&mut self, tx: &Transaction<'_>) -> Result<(), Fault> {
        let Some(work) = self.work.take() else { return Ok(()) };
        // What it leaves half done is rolled back, and nobody else sees what it had borrowed.
        let outcome = catch_unwind(AssertUnwindSafe(|| work(tx)));
        let kept = match &outcome {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(fault)) => Err(fault.again()),
            Err(_) => Err(Fault::Row("a panic".to_owned())),
        };
        self.outcome = Some(outcome);
        kept
    }

    fn answer(self: Box<Self>, lost: Option<Fault>) {
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
pub(super) fn ask<R: Send + 'static>(
    shared: &Arc<Shared>,
    kind: Kind,
    work: impl FnOnce(&Transaction<'_>) -> Result<R, Fault> + Send + 'static,
) -> oneshot::Receiver<Outcome<R>> {
    let (answer, outcome) = oneshot::channel();
    let job = Box::new(Asked { work: Some(work), outcome: None, answer });
    let led = {
        let mut queue = lock(&shared.queue);
        match kind {
            Kind::Read => queue.reads.push(job),
            Kind::Write | Kind::WriteHere => queue.writes.push_back(job),
        }
        mem::replace(&mut queue.led, true)
    };
    if !led {
        let leader = Leader { queue: Arc::clone(&shared.queue), shared: Arc::downgrade(shared), over: false };
        // A runtime of one thread has nobody for its other tasks.
        let others = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if kind == Kind::WriteHere && others() {
            block_in_place(|| leader.lead_once());
        } else {
            drop(spawn_blocking(|| leader.lead()));
        }
    }
    outcome
}

/// Works a queue off. If it is dropped before (the runtime is shutting down), what is queued is refused and the
/// next one who asks finds nobody at work.
///
/// It has the file only while it uses it and lets go of it before anybody is answered, so that whoever was answered
/// can close the file: what opens it next would find a connection at work on it otherwise.
struct Leader {
    queue: Arc<Mutex<Queue>>,
    shared: Weak<Shared>,
    over: bool,
}

impl Leader {
    fn lead(mut self) {
        loop {
            while let Some(batch) = self.next() {
                self.work_off(batch);
            }
            // Those who were just answered may ask again: waiting for them costs less than starting anew.
            thread::yield_now();
            if self.step_down() {
                return;
            }
        }
    }

    /// For one who has work of its own to go back to.
    fn lead_once(mut self) {
        if let Some(batch) = self.next() {
            self.work_off(batch);
        }
        if !self.step_down() {
            drop(spawn_blocking(|| self.lead()));
        }
    }

    fn next(&self) -> Option<(Vec<Work>, VecDeque<Work>)> {
        let mut queue = lock(&self.queue);
        let reads = mem::take(&mut queue.reads);
        let most = queue.writes.len().min(COMMIT_WRITES);
        let writes: VecDeque<_> = queue.writes.drain(..most).collect();
        (!reads.is_empty() || !writes.is_empty()).then_some((reads, writes))
    }

    fn work_off(&self, (reads, writes): (Vec<Work>, VecDeque<Work>)) {
        // Not even for a moment does it take the file for nothing: that moment may be after the last answer.
        if !reads.is_empty() {
            self.with_file(|_, connection| {
                reads.into_iter().map(|read| run_read(connection, read)).collect()
            });
        }
        if !writes.is_empty() {
            self.with_file(|shared, connection| commit(shared, connection, writes));
        }
    }

    /// Answers what was done with the file after letting go of it. If it is closed, whoever asked has gone.
    fn with_file(&self, work: impl FnOnce(&Shared, &mut Connection) -> Vec<Done>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let done = work(&shared, &mut shared.connection.lock().unwrap_or_else(PoisonError::into_inner));
        drop(shared);
        for (job, lost) in done {
            job.answer(lost);
        }
    }

    /// Over, unless there is something to do.
    fn step_down(&mut self) -> bool {
        let mut queue = lock(&self.queue);
        let idle = queue.reads.is_empty() && queue.writes.is_empty();
        queue.led = !idle;
        self.over = idle;
        idle
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.over {
            let mut queue = lock(&self.queue);
            queue.led = false;
            let refused = (mem::take(&mut queue.reads), mem::take(&mut queue.writes));
            drop(queue);
            drop(refused);
        }
    }
}

/// What was run, and why nothing of it was kept.
type Done = (Work, Option<Fault>);

/// A read sees one snapshot; nothing it writes is kept.
fn run_read(connection: &mut Connection, mut read: Work) -> Done {
    let lost = match connection.transaction() {
        Ok(tx) => {
            // What it failed with is in its outcome.
            let _ = read.run(&tx);
            None
        }
        Err(error) => Some(Fault::from(error)),
    };
    (read, lost)
}

/// Commits as many of `writes` as fit; the others come first in the next commit.
fn commit(shared: &Shared, connection: &mut Connection, mut writes: VecDeque<Work>) -> Vec<Done> {
    let mut run = Vec::with_capacity(writes.len());
    let committed = match shared.watch.apply(connection) {
        Ok(()) => together(shared, connection, &mut writes, &mut run),
        Err(fault) => {
            run.extend(writes.drain(..));
            Err(fault)
        }
    };
    let mut queue = lock(&shared.queue);
    while let Some(job) = writes.pop_back() {
        queue.writes.push_front(job);
    }
    drop(queue);
    if let Ok(true) = committed {
        shared.watch.changed.send_replace(());
        if let Some(tell) = shared.watch.told.get() {
            tell(&shared.file);
        }
    }
    let lost = committed.err();
    run.into_iter().map(|job| (job, lost.as_ref().map(Fault::again))).collect()
}

/// Runs as many of `writes` as fit one transaction and commits; says whether there was anything to commit. Those
/// that were run, or that can't be, are moved to `run`.
fn together(
    shared: &Shared,
    connection: &mut Connection,
    writes: &mut VecDeque<Work>,
    run: &mut Vec<Work>,
) -> Result<bool, Fault> {
    let tx = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(error) => {
            run.extend(writes.drain(..));
            return Err(error.into());
        }
    };
    // How long it takes, not what time it is: no clock of ours has a say in it.
    let begun = Instant::now();
    let alone = writes.len() == 1;
    let mut any = false;
    while let Some(mut job) = writes.pop_front() {
        let kept = if alone { Ok(job.run(&tx)) } else { apart(&tx, job.as_mut()) };
        run.push(job);
        match kept? {
            Ok(()) => any = true,
            // SQLite itself gave up on the whole transaction, and what was written before in it is gone.
            Err(fault) if tx.is_autocommit() => return Err(fault),
            Err(_) if alone => return Ok(false),
            Err(_) => {}
        }
        if begun.elapsed() > COMMIT_TIME {
            break;
        }
    }
    if any {
        let begun = Instant::now();
        let committed = tx.commit();
        // A disk that fails may take long to say so.
        shared.watch.commits.observe(begun.elapsed().as_secs_f64());
        committed?;
    }
    Ok(any)
}

/// Runs a job in a savepoint, so that what it leaves when it fails is undone alone. The outer error is the
/// savepoint's own: what the transaction holds is not known any more, so nothing of it may be kept.
fn apart(tx: &Transaction<'_>, job: &mut dyn Job) -> Result<Result<(), Fault>, Fault> {
    tx.prepare_cached("SAVEPOINT job")?.execute([])?;
    let kept = job.run(tx);
    if kept.is_err() && !tx.is_autocommit() {
        tx.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    if !tx.is_autocommit() {
        tx.prepare_cached("RELEASE job")?.execute([])?;
    }
    Ok(kept)
}
