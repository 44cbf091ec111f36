//! Where runs are kept: one narrow trait, so that the engine could run over something else.
//!
//! Values cross it as bytes and rows, never as types of a workflow. [`Store`] is the backing of the
//! server; [`Memory`](super::memory::Memory) is one whose journal knows entries by their order.

use std::{collections::HashSet, future::ready};

use futures_util::future::BoxFuture;

use crate::{
    store::{
        Answer, AuditEntry, Begun, Booked, CallRow, CancelRow, Checkpoint, Filter, GateRow, Lease, Ledger,
        NewRun, Opened, Pause, PauseScope, Record, Rerun, RunRow, Store, StoreError,
    },
    types::{Cause, Hash, IssueNo, RepoId, RunId, Timestamp},
};

/// A future of a backing.
pub type Kept<'a, V> = BoxFuture<'a, Result<V, StoreError>>;

/// What the engine needs kept. Each call is atomic; `save`, `begin` and `done` refuse a lease that
/// is not the run's last with [`StoreError::Fenced`].
pub trait Backing: Send + Sync + 'static {
    fn start(&self, new: NewRun) -> Kept<'_, Opened>;
    /// Books the answer only if `gate` is still open and asks about the same subject.
    fn answer(&self, gate: GateRow, answer: Answer) -> Kept<'_, Booked>;
    fn has_answer<'a>(&'a self, repo: RepoId, cause: &'a Cause) -> Kept<'a, bool>;
    fn cancel(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Kept<'_, Vec<RunId>>;
    fn retry(&self, run: RunId, cause: Cause, by: String) -> Kept<'_, Rerun>;
    fn run(&self, id: RunId) -> Kept<'_, Option<RunRow>>;
    fn runs(&self, filter: Filter) -> Kept<'_, Vec<RunRow>>;

    /// What must be done before some runs can be claimed: to be driven side by side by whoever claims.
    fn looks(&self, now: Timestamp) -> Vec<BoxFuture<'_, ()>>;
    /// Is there a look that is due and not begun?
    fn looks_due(&self, now: Timestamp) -> bool;
    /// Takes a run that is due (a cancelled one always is) and not among `except`. Never waits for a look.
    fn claim<'a>(&'a self, now: Timestamp, except: &'a HashSet<RunId>) -> Kept<'a, Option<Lease>>;
    fn save<'a>(&'a self, lease: &'a Lease, left: Checkpoint) -> Kept<'a, ()>;
    /// Gives a run back as it was taken.
    fn release<'a>(&'a self, lease: &'a Lease) -> Kept<'a, ()>;
    /// When something will be due, or may be: it may name an earlier time than there is need for.
    fn next_due(&self) -> Kept<'_, Option<Timestamp>>;

    fn begin<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Begun>;
    fn done<'a>(&'a self, lease: &'a Lease, key: &'a str, value: Vec<u8>) -> Kept<'a, ()>;
    /// Readable at once through the same lease, and kept with the next `done`, `record`, `audit` or `save` of it:
    /// nothing that refers to it is kept without it.
    fn put<'a>(&'a self, lease: &'a Lease, bytes: &'a [u8]) -> Kept<'a, Hash>;
    fn get<'a>(&'a self, lease: &'a Lease, hash: Hash) -> Kept<'a, Vec<u8>>;
    fn record<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()>;
    /// As `record`, and kept with the next `done`, `record`, `audit` or `save` of this lease, or not at all.
    fn book<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()>;
    /// The row of a paid call of this visit, if one is kept.
    fn booked<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Option<CallRow>>;
    fn ledger(&self, run: RunId) -> Kept<'_, Ledger>;
    fn audit<'a>(&'a self, lease: &'a Lease, entry: AuditEntry) -> Kept<'a, Hash>;

    /// Nothing of this scope is claimed until it is resumed.
    fn pause(&self, pause: Pause) -> Kept<'_, ()>;
    fn resume(&self, scope: PauseScope) -> Kept<'_, bool>;
    fn pauses(&self) -> Kept<'_, Vec<Pause>>;
}

impl Backing for Store {
    fn start(&self, new: NewRun) -> Kept<'_, Opened> {
        Box::pin(self.start_run(new))
    }

    fn answer(&self, gate: GateRow, answer: Answer) -> Kept<'_, Booked> {
        Box::pin(self.book_answer(gate, answer))
    }

    fn has_answer<'a>(&'a self, repo: RepoId, cause: &'a Cause) -> Kept<'a, bool> {
        Box::pin(async move {
            match self.repo_if_any(repo).await? {
                Some(db) => db.has_answer(cause).await,
                None => Ok(false),
            }
        })
    }

    fn cancel(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Kept<'_, Vec<RunId>> {
        Box::pin(self.cancel_runs(repo, issue, run, cancel))
    }

    fn retry(&self, run: RunId, cause: Cause, by: String) -> Kept<'_, Rerun> {
        Box::pin(self.retry_run(run, cause, by))
    }

    fn run(&self, id: RunId) -> Kept<'_, Option<RunRow>> {
        Box::pin(self.run_row(id))
    }

    fn runs(&self, filter: Filter) -> Kept<'_, Vec<RunRow>> {
        Box::pin(async move {
            if let Some(repo) = filter.repo {
                return self.run_rows(repo, filter).await;
            }
            let mut all = Vec::new();
            for repo in self.repos()? {
                match self.run_rows(repo, filter).await {
                    Ok(runs) => all.extend(runs),
                    Err(error) => tracing::error!(%repo, %error, "left out of a list of runs"),
                }
            }
            Ok(all)
        })
    }

    fn looks(&self, now: Timestamp) -> Vec<BoxFuture<'_, ()>> {
        self.looks(now)
    }

    fn looks_due(&self, now: Timestamp) -> bool {
        self.looks_due(now)
    }

    fn claim<'a>(&'a self, now: Timestamp, except: &'a HashSet<RunId>) -> Kept<'a, Option<Lease>> {
        Box::pin(self.claim_run(now, except))
    }

    fn save<'a>(&'a self, lease: &'a Lease, left: Checkpoint) -> Kept<'a, ()> {
        Box::pin(self.save_step(lease, left))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Kept<'a, ()> {
        Box::pin(ready(self.release_run(lease)))
    }

    fn next_due(&self) -> Kept<'_, Option<Timestamp>> {
        Box::pin(ready(Ok(self.next_due())))
    }

    fn begin<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Begun> {
        Box::pin(async move { self.held(lease).await?.journal_begin(lease, key).await })
    }

    fn done<'a>(&'a self, lease: &'a Lease, key: &'a str, value: Vec<u8>) -> Kept<'a, ()> {
        Box::pin(async move { self.held(lease).await?.journal_done(lease, key, value).await })
    }

    fn put<'a>(&'a self, lease: &'a Lease, bytes: &'a [u8]) -> Kept<'a, Hash> {
        Box::pin(ready(self.put_document(lease, bytes)))
    }

    fn get<'a>(&'a self, lease: &'a Lease, hash: Hash) -> Kept<'a, Vec<u8>> {
        Box::pin(self.get_document(lease, hash))
    }

    fn record<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()> {
        Box::pin(async move { self.repo(lease.run.id.repo).await?.record(lease, key, record).await })
    }

    fn book<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()> {
        lease.gathered.book(lease.run.visit, key, record);
        Box::pin(ready(Ok(())))
    }

    fn booked<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Option<CallRow>> {
        Box::pin(async move { self.repo(lease.run.id.repo).await?.booked(lease, key).await })
    }

    fn ledger(&self, run: RunId) -> Kept<'_, Ledger> {
        Box::pin(async move { self.repo(run.repo).await?.ledger(run).await })
    }

    fn audit<'a>(&'a self, lease: &'a Lease, entry: AuditEntry) -> Kept<'a, Hash> {
        Box::pin(async move { self.repo(lease.run.id.repo).await?.audit(&lease.gathered, entry).await })
    }

    fn pause(&self, pause: Pause) -> Kept<'_, ()> {
        Box::pin(self.pause(pause))
    }

    fn resume(&self, scope: PauseScope) -> Kept<'_, bool> {
        Box::pin(self.resume(scope))
    }

    fn pauses(&self) -> Kept<'_, Vec<Pause>> {
        Box::pin(self.pauses())
    }
}
