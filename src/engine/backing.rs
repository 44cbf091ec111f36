//! Where runs are kept: one narrow trait, so that the engine could run over something else.
//!
//! Values cross it as bytes and rows, never as types of a workflow. [`Store`] is the backing of the
//! server; [`Memory`](super::memory::Memory) is one whose journal knows entries by their order.

use std::{collections::HashSet, future::ready};

use futures_util::future::BoxFuture;

use crate::{
    store::{
        Answer, AuditEntry, Begun, Booked, CallRow, CancelRow, Checkpoint, Filter, GateRow, Lease, Ledger,
        NewRun, News, Opened, Pause, PauseScope, Record, Remark, Rerun, RunRow, Store, StoreError,
    },
    types::{Cause, Hash, IssueNo, RepoId, RunId, Timestamp},
};

/// A future of a backing.
pub type Kept<'a, V> = BoxFuture<'a, Result<V, StoreError>>;

/// What the engine needs kept. Each call is atomic; `save`, `begin` and `done` refuse a lease that
/// is not the run's last with [`StoreError::Fenced`].
pub trait Backing: Send + Sync + 'static {
    /// Keeps a new run with its first checkpoint, or says which run the same cause or issue has already.
    ///
    /// # Errors
    /// Those of the databases; nothing was begun then.
    fn start(&self, new: NewRun) -> Kept<'_, Opened>;
    /// Books the answer only if `gate` is still open and asks about the same subject.
    ///
    /// # Errors
    /// Those of the databases; the answer is not booked then.
    fn answer(&self, gate: GateRow, answer: Answer) -> Kept<'_, Booked>;
    /// Was an answer of this cause booked?
    ///
    /// # Errors
    /// Those of the repository's database.
    fn has_answer<'a>(&'a self, repo: RepoId, cause: &'a Cause) -> Kept<'a, bool>;
    /// Keeps what was said of a finding of a run that lives. One that waits for people runs its step again.
    ///
    /// # Errors
    /// Those of the repository's database; the remark is not kept then.
    fn remark(&self, run: RunId, remark: Remark) -> Kept<'_, Booked>;
    /// The remarks that the lease may read, but for the first so many.
    ///
    /// # Errors
    /// Those of the repository's database; [`StoreError::Row`] for a row that cannot be read.
    fn remarks<'a>(&'a self, lease: &'a Lease, after: u64) -> Kept<'a, Vec<Remark>>;
    /// Notes that the live runs of an issue, or one of them, are to end; which they are.
    ///
    /// # Errors
    /// Those of the repository's database; no run was told then.
    fn cancel(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Kept<'_, Vec<RunId>>;
    /// Makes a failed run live again.
    ///
    /// # Errors
    /// Those of the databases; the run is as it was then.
    fn retry(&self, run: RunId, cause: Cause, by: String) -> Kept<'_, Rerun>;
    /// One run, as it is kept.
    ///
    /// # Errors
    /// Those of its repository's database.
    fn run(&self, id: RunId) -> Kept<'_, Option<RunRow>>;
    /// Runs that the filter lets through.
    ///
    /// # Errors
    /// Those of the one repository asked for. Of all, one that cannot be read is left out and logged.
    fn runs(&self, filter: Filter) -> Kept<'_, Vec<RunRow>>;

    /// What must be done before some runs can be claimed: to be driven side by side by whoever claims.
    fn looks(&self, now: Timestamp) -> Vec<BoxFuture<'_, ()>>;
    /// Is there a look that is due and not begun?
    fn looks_due(&self, now: Timestamp) -> bool;
    /// Takes a run that is due (a cancelled one always is) and not among `except`. Never waits for a look.
    ///
    /// # Errors
    /// Those of `main.db`. A repository that cannot be read is logged and passed over.
    fn claim<'a>(&'a self, now: Timestamp, except: &'a HashSet<RunId>) -> Kept<'a, Option<Lease>>;
    /// Keeps the step's outcome and gives the run back.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] for a late one; those of the repository's database.
    fn save<'a>(&'a self, lease: &'a Lease, left: Checkpoint) -> Kept<'a, ()>;
    /// Gives a run back as it was taken.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] for a late one; a database elsewhere may fail to be reached.
    fn release<'a>(&'a self, lease: &'a Lease) -> Kept<'a, ()>;
    /// When something will be due, or may be: it may name an earlier time than there is need for.
    ///
    /// # Errors
    /// None as it is kept now; a backing elsewhere may fail to be reached.
    fn next_due(&self) -> Kept<'_, Option<Timestamp>>;

    /// Notes that the work under this key begins, unless it is done already.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Journal`] for a key that is out of order; those of the database.
    fn begin<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Begun>;
    /// Keeps what the work under this key came to.
    ///
    /// # Errors
    /// [`StoreError::Fenced`]; [`StoreError::Journal`] for a key that was not begun; those of the database.
    fn done<'a>(&'a self, lease: &'a Lease, key: &'a str, value: Vec<u8>) -> Kept<'a, ()>;
    /// Readable at once through the same lease, and kept with the next `done`, `record`, `audit` or `save` of it:
    /// nothing that refers to it is kept without it.
    ///
    /// # Errors
    /// When it cannot be packed.
    fn put<'a>(&'a self, lease: &'a Lease, bytes: &'a [u8]) -> Kept<'a, Hash>;
    /// The bytes of this hash.
    ///
    /// # Errors
    /// [`StoreError::Missing`] where nothing of it was put; those of the repository's database.
    fn get<'a>(&'a self, lease: &'a Lease, hash: Hash) -> Kept<'a, Vec<u8>>;
    /// Keeps a row of evidence.
    ///
    /// # Errors
    /// Those of the repository's database.
    fn record<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()>;
    /// As `record`, and kept with the next `done`, `record`, `audit` or `save` of this lease, or not at all.
    ///
    /// # Errors
    /// None as it is kept now: it fails with the write that takes it along.
    fn book<'a>(&'a self, lease: &'a Lease, key: &'a str, record: Record) -> Kept<'a, ()>;
    /// The row of a paid call of this visit, if one is kept.
    ///
    /// # Errors
    /// Those of the repository's database.
    fn booked<'a>(&'a self, lease: &'a Lease, key: &'a str) -> Kept<'a, Option<CallRow>>;
    /// All rows of evidence of a run.
    ///
    /// # Errors
    /// Those of the repository's database; [`StoreError::Row`] for a row that cannot be read.
    fn ledger(&self, run: RunId) -> Kept<'_, Ledger>;
    /// Adds a link to the audit chain; its hash.
    ///
    /// # Errors
    /// Those of the repository's database.
    fn audit<'a>(&'a self, lease: &'a Lease, entry: AuditEntry) -> Kept<'a, Hash>;

    /// Comes back with what another process did, as long as there are others.
    fn news(&self) -> BoxFuture<'_, News> {
        Box::pin(std::future::pending())
    }

    /// Nothing of this scope is claimed until it is resumed.
    ///
    /// # Errors
    /// Those of `main.db`; nothing is paused then.
    fn pause(&self, pause: Pause) -> Kept<'_, ()>;
    /// Ends a pause; false: there was none.
    ///
    /// # Errors
    /// Those of `main.db`; the pause goes on then.
    fn resume(&self, scope: PauseScope) -> Kept<'_, bool>;
    /// The pauses there are.
    ///
    /// # Errors
    /// Those of `main.db`.
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

    fn remark(&self, run: RunId, remark: Remark) -> Kept<'_, Booked> {
        Box::pin(self.book_remark(run, remark))
    }

    fn remarks<'a>(&'a self, lease: &'a Lease, after: u64) -> Kept<'a, Vec<Remark>> {
        let (run, upto) = (lease.run.id, lease.run.remarks);
        Box::pin(async move { self.repo(run.repo).await?.remarks(run, after, upto).await })
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
            for repo in self.repos().await? {
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
        Box::pin(self.release_run(lease))
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

    fn news(&self) -> BoxFuture<'_, News> {
        Box::pin(self.news())
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
