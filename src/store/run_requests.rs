//! Operations that start, claim or change a run and then update the agenda.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures_util::future::BoxFuture;

use super::{
    AnswerReceipt, AuditEntry, CallRow, CancelRow, Checkpoint, GateAnswer, GateRow, JournalLookup,
    LedgerRecord, NewRun, PendingWrites, RepositoryDatabase, RetryDecision, RunFilter, RunLease, RunLedger,
    RunRemark, RunRow, StartDecision, Store, StoreError,
    agenda::{LiveRunScanGuard, RunClaim, RunPosition},
    pending_writes::PackedDocument,
};
use crate::{
    limits,
    types::{Cause, Hash, IssueNo, RepoId, RunId, Timestamp},
};

impl Store {
    pub async fn start_run(&self, new: NewRun) -> Result<StartDecision, StoreError> {
        let repo = new.trigger.repo;
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        let db = self.repository_database(repo).await?;
        self.add_wake_hint(repo).await?;
        let doubt = self.agenda.begin_change(repo);
        let (opened, runs) = db.start_run(new).await?;
        doubt.commit(&runs);
        Ok(opened)
    }

    /// Records an answer to a gate. Needs no wake hint: the gate belongs to a live run, and the repository of a live
    /// run already has a hint.
    pub async fn record_answer(
        &self,
        gate: GateRow,
        answer: GateAnswer,
    ) -> Result<AnswerReceipt, StoreError> {
        let repo = gate.run.repo;
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        let db = self.repository_database(repo).await?;
        let doubt = self.agenda.begin_change(repo);
        let (booked, runs) = db.record_answer(gate, answer).await?;
        doubt.commit(&runs);
        Ok(booked)
    }

    /// Records a remark on a run. Needs no wake hint, because the repository of a live run already has one.
    pub async fn record_remark(&self, run: RunId, remark: RunRemark) -> Result<AnswerReceipt, StoreError> {
        let order = self.agenda.repository_lock(run.repo);
        let _order = order.lock().await;
        let Some(db) = self.existing_repository_database(run.repo).await? else {
            return Ok(AnswerReceipt::Changed);
        };
        let doubt = self.agenda.begin_change(run.repo);
        let (booked, runs) = db.record_remark(run, remark).await?;
        doubt.commit(&runs);
        Ok(booked)
    }

    pub async fn cancel_runs(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Result<Vec<RunId>, StoreError> {
        let Some(db) = self.existing_repository_database(repo).await? else { return Ok(Vec::new()) };
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        let doubt = self.agenda.begin_change(repo);
        let (marked, runs) = db.cancel_runs(issue, run, cancel).await?;
        doubt.commit(&runs);
        Ok(marked)
    }

    pub async fn retry_run(&self, run: RunId, cause: Cause, by: String) -> Result<RetryDecision, StoreError> {
        let repo = run.repo;
        let Some(db) = self.existing_repository_database(repo).await? else {
            return Ok(RetryDecision::NoRun);
        };
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        self.add_wake_hint(repo).await?;
        let doubt = self.agenda.begin_change(repo);
        let (became, runs) = db.retry_run(run, cause, by).await?;
        doubt.commit(&runs);
        Ok(became)
    }

    /// Starts all due scans of repositories whose live runs are not known yet. Each future scans one repository, so
    /// that a slow file does not delay the other scans. A failed scan is logged and tried again later.
    pub fn live_run_scans(&self, now: Timestamp) -> Vec<BoxFuture<'_, ()>> {
        let begun = self.agenda.begin_due_scans(now).into_iter();
        begun.map(|looking| Box::pin(self.scan_or_retry(looking)) as BoxFuture<'_, ()>).collect()
    }

    pub fn is_live_run_scan_due(&self, now: Timestamp) -> bool {
        self.agenda.is_scan_due(now)
    }

    async fn scan_or_retry(&self, looking: LiveRunScanGuard<'_>) {
        let repo = looking.repo;
        if let Err(error) = self.load_live_runs(repo).await {
            tracing::error!(%repo, %error, "could not scan a repository's database; will retry");
            self.agenda.schedule_scan(repo, self.clock.now().plus(limits::DAMAGED_RETRY));
        }
    }

    /// Claims a due run. Writes nothing and opens no database. Therefore a run whose database is closed or damaged is
    /// claimed only after the next scan.
    pub async fn claim_run(
        &self,
        now: Timestamp,
        except: &HashSet<RunId>,
    ) -> Result<Option<RunLease>, StoreError> {
        while let Some(picked) = self.agenda.claim_next(now, except) {
            let run = picked.run;
            let Some(db) = self.repositories.get_open(run.repo) else {
                self.agenda.release_for_scan(picked);
                continue;
            };
            let hold = RunClaimGuard { store: self, picked: Some(picked) };
            let (row, number) = match db.claim_run(run).await {
                Ok(Some(found)) => found,
                // The run ended, and the agenda missed it.
                Ok(None) => {
                    self.agenda.update_runs(run.repo, &[(run.seq, None)]);
                    continue;
                }
                Err(error) => {
                    tracing::error!(%run, %error, "could not read a due run");
                    let again = now.plus(limits::DAMAGED_RETRY);
                    match error {
                        StoreError::Row { .. } => self.agenda.postpone(run, again),
                        _ => self.agenda.schedule_scan(run.repo, again),
                    }
                    continue;
                }
            };
            hold.keep_claim();
            let run = RunRow { taken: true, ..row };
            let gathered = Arc::new(PendingWrites::default());
            return Ok(Some(RunLease {
                run,
                number,
                epoch: self.epoch,
                claim: picked.claim,
                pending_writes: gathered,
            }));
        }
        Ok(None)
    }

    /// Saves the checkpoint of a step and releases the run.
    pub async fn save_step(&self, lease: &RunLease, left: Checkpoint) -> Result<(), StoreError> {
        let repo = lease.run.id.repo;
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        let db = self.leased_database(lease).await?;
        if let Some(until) = lease.unchanged_wait(&left) {
            if self.cluster.is_some() {
                let doubt = self.agenda.begin_change(repo);
                let runs = db.release_run(lease, Some(until)).await?;
                doubt.commit_and_release(&runs, run_claim(lease));
                return Ok(());
            }
            self.agenda.release_until(run_claim(lease), until);
            return Ok(());
        }
        let doubt = self.agenda.begin_change(repo);
        let runs = db.save_checkpoint(lease, left).await?;
        doubt.commit_and_release(&runs, run_claim(lease));
        Ok(())
    }

    /// Stores bytes under their hash. They are written together with the next write of this lease.
    pub fn put_document(&self, lease: &RunLease, bytes: &[u8]) -> Result<Hash, StoreError> {
        let hash = Hash::digest(bytes);
        if !lease.pending_writes.has_document(hash) {
            let packed = PackedDocument::pack(hash, bytes);
            let document = packed.map_err(|fault| fault.with_path(&self.repo_dir(lease.run.id.repo)))?;
            lease.pending_writes.add_document(hash, document);
        }
        Ok(hash)
    }

    pub async fn get_document(&self, lease: &RunLease, hash: Hash) -> Result<Vec<u8>, StoreError> {
        let repo = lease.run.id.repo;
        match lease.pending_writes.document(hash) {
            Some(document) => document.unpack(hash).map_err(|fault| fault.with_path(&self.repo_dir(repo))),
            None => self.repository_database(repo).await?.get_document(hash).await,
        }
    }

    /// Returns the number of live runs per position. Repositories that were not scanned since the server started are
    /// not included.
    pub fn count_run_positions(&self) -> HashMap<RunPosition, u64> {
        self.agenda.count_positions()
    }

    /// Gives up the lease on a run without changing the run.
    pub async fn release_run(&self, lease: &RunLease) -> Result<(), StoreError> {
        if self.cluster.is_some() {
            let repo = lease.run.id.repo;
            let order = self.agenda.repository_lock(repo);
            let _order = order.lock().await;
            let doubt = self.agenda.begin_change(repo);
            let given = match self.leased_database(lease).await {
                Ok(db) => db.release_run(lease, None).await,
                Err(error) => Err(error),
            };
            return match given {
                Ok(runs) => {
                    doubt.commit_and_release(&runs, run_claim(lease));
                    Ok(())
                }
                // Another node has claimed it.
                Err(StoreError::Fenced) => {
                    self.agenda.release(run_claim(lease));
                    Err(StoreError::Fenced)
                }
                Err(error) => Err(error),
            };
        }
        let ours = lease.epoch == self.epoch && self.agenda.release(run_claim(lease));
        if ours { Ok(()) } else { Err(StoreError::Fenced) }
    }

    /// Returns the time at which the next run or scan is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.agenda.next_due()
    }

    /// Returns the database of the run that the lease is for. Fails if the lease is outdated.
    pub(crate) async fn leased_database(
        &self,
        lease: &RunLease,
    ) -> Result<Arc<RepositoryDatabase>, StoreError> {
        if lease.epoch != self.epoch || !self.agenda.is_held_by(run_claim(lease)) {
            return Err(StoreError::Fenced);
        }
        self.repository_database(lease.run.id.repo).await
    }

    /// Returns a run, including whether a worker has claimed it.
    pub async fn run_row(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        let Some(db) = self.existing_repository_database(id.repo).await? else { return Ok(None) };
        let row = db.run(id).await?;
        Ok(row.map(|row| RunRow { taken: row.taken || self.agenda.is_held(id), ..row }))
    }

    /// Returns the runs that match the filter. Like [`run_row`](Self::run_row), the result includes whether a worker
    /// has claimed each run.
    ///
    /// # Errors
    /// Returns an error if the filter names a repository and that repository cannot be read. Without a repository
    /// filter, unreadable repositories are logged and skipped.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        if let Some(repo) = filter.repo {
            return self.runs_of(repo, filter).await;
        }
        let mut all = Vec::new();
        for repo in self.repositories().await? {
            match self.runs_of(repo, filter).await {
                Ok(runs) => all.extend(runs),
                Err(error) => {
                    tracing::error!(%repo, %error, "could not read a repository; leaving it out of the list of runs")
                }
            }
        }
        Ok(all)
    }

    async fn runs_of(&self, repo: RepoId, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let Some(db) = self.existing_repository_database(repo).await? else { return Ok(Vec::new()) };
        let rows = db.runs(filter).await?.into_iter();
        Ok(rows.map(|row| RunRow { taken: row.taken || self.agenda.is_held(row.id), ..row }).collect())
    }

    /// Returns whether an answer with this cause was already recorded.
    pub async fn has_answer(&self, repo: RepoId, cause: &Cause) -> Result<bool, StoreError> {
        match self.existing_repository_database(repo).await? {
            Some(db) => db.has_answer(cause).await,
            None => Ok(false),
        }
    }

    /// Returns the remarks that the holder of this lease may read, without the first `after` remarks.
    pub async fn remarks(&self, lease: &RunLease, after: u64) -> Result<Vec<RunRemark>, StoreError> {
        let (run, upto) = (lease.run.id, lease.run.remarks);
        self.repository_database(run.repo).await?.remarks(run, after, upto).await
    }

    /// Records that the work for `key` has begun. If the work is already done, returns its stored result instead.
    pub async fn journal_begin(&self, lease: &RunLease, key: &str) -> Result<JournalLookup, StoreError> {
        self.leased_database(lease).await?.journal_begin(lease, key).await
    }

    /// Stores the result of the work for `key`.
    pub async fn journal_done(&self, lease: &RunLease, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.leased_database(lease).await?.journal_done(lease, key, value).await
    }

    /// Stores a ledger row.
    pub async fn record(&self, lease: &RunLease, key: &str, record: LedgerRecord) -> Result<(), StoreError> {
        self.repository_database(lease.run.id.repo).await?.record(lease, key, record).await
    }

    /// Returns the stored row of a paid call of the current visit.
    pub async fn booked(&self, lease: &RunLease, key: &str) -> Result<Option<CallRow>, StoreError> {
        self.repository_database(lease.run.id.repo).await?.call_row(lease, key).await
    }

    /// Returns all ledger rows of a run.
    pub async fn ledger(&self, run: RunId) -> Result<RunLedger, StoreError> {
        self.repository_database(run.repo).await?.ledger(run).await
    }

    /// Appends a link to the audit chain and returns its hash.
    pub async fn audit(&self, lease: &RunLease, entry: AuditEntry) -> Result<Hash, StoreError> {
        self.repository_database(lease.run.id.repo)
            .await?
            .append_audit_link(&lease.pending_writes, entry)
            .await
    }

    /// Loads the live runs of `repo` from its database into the agenda.
    async fn load_live_runs(&self, repo: RepoId) -> Result<(), StoreError> {
        let order = self.agenda.repository_lock(repo);
        let _order = order.lock().await;
        let live = match self.existing_repository_database(repo).await? {
            Some(db) => db.live_runs().await?,
            None => Vec::new(), // the machine stopped between the hint and the run
        };
        self.agenda.set_live_runs(repo, live);
        self.remove_stale_hint(repo).await;
        Ok(())
    }
}

fn run_claim(lease: &RunLease) -> RunClaim {
    RunClaim { run: lease.run.id, claim: lease.claim }
}

/// Guard of a claimed run. Dropping the guard releases the run, unless the claim was kept.
struct RunClaimGuard<'a> {
    store: &'a Store,
    picked: Option<RunClaim>,
}

impl RunClaimGuard<'_> {
    fn keep_claim(mut self) {
        self.picked = None;
    }
}

impl Drop for RunClaimGuard<'_> {
    fn drop(&mut self) {
        if let Some(picked) = self.picked {
            self.store.agenda.release(picked);
        }
    }
}
