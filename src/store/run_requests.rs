//! Everything that wakes, takes or leaves a run, so that the agenda hears of it.

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

    /// A gate is a live run's, so the hint stands already.
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

    /// A run that lives has its hint already.
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

    /// Looks into the repositories of which it is not known what lives in them: all that are due, and for each one to
    /// drive, so that a file that is slow keeps nobody else waiting. What cannot be read is logged and looked at again
    /// later.
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
            tracing::error!(%repo, %error, "cannot look into a repository's database");
            self.agenda.schedule_scan(repo, self.clock.now().plus(limits::DAMAGED_RETRY));
        }
    }

    /// Takes a run whose time has come; nothing is written for it, and no database is opened: of one that is closed, or
    /// was found damaged, a run is taken after the next look.
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
                // It ended, and the agenda missed it.
                Ok(None) => {
                    self.agenda.update_runs(run.repo, &[(run.seq, None)]);
                    continue;
                }
                Err(error) => {
                    tracing::error!(%run, %error, "cannot read a run that is due");
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

    /// Saves what a step left and gives the run back.
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

    /// Keeps bytes under their hash, with whatever the lease's holder writes next.
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

    /// How many live runs stand where; of repositories that this boot has not looked into yet none.
    pub fn count_run_positions(&self) -> HashMap<RunPosition, u64> {
        self.agenda.count_positions()
    }

    /// Gives a run back as it was taken.
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
                // Another one's by now.
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

    /// When something will be due, or may be.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.agenda.next_due()
    }

    /// The database of a run whose holder still is its holder.
    pub(crate) async fn leased_database(
        &self,
        lease: &RunLease,
    ) -> Result<Arc<RepositoryDatabase>, StoreError> {
        if lease.epoch != self.epoch || !self.agenda.is_held_by(run_claim(lease)) {
            return Err(StoreError::Fenced);
        }
        self.repository_database(lease.run.id.repo).await
    }

    /// Reads a run, and whether somebody takes a step of it right now.
    pub async fn run_row(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        let Some(db) = self.existing_repository_database(id.repo).await? else { return Ok(None) };
        let row = db.run(id).await?;
        Ok(row.map(|row| RunRow { taken: row.taken || self.agenda.is_held(id), ..row }))
    }

    /// Runs that the filter lets through, read in the same way.
    ///
    /// # Errors
    /// Those of the one repository asked for. Of all, one that cannot be read is left out and logged.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        if let Some(repo) = filter.repo {
            return self.runs_of(repo, filter).await;
        }
        let mut all = Vec::new();
        for repo in self.repositories().await? {
            match self.runs_of(repo, filter).await {
                Ok(runs) => all.extend(runs),
                Err(error) => tracing::error!(%repo, %error, "left out of a list of runs"),
            }
        }
        Ok(all)
    }

    async fn runs_of(&self, repo: RepoId, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let Some(db) = self.existing_repository_database(repo).await? else { return Ok(Vec::new()) };
        let rows = db.runs(filter).await?.into_iter();
        Ok(rows.map(|row| RunRow { taken: row.taken || self.agenda.is_held(row.id), ..row }).collect())
    }

    /// Was an answer of this cause booked?
    pub async fn has_answer(&self, repo: RepoId, cause: &Cause) -> Result<bool, StoreError> {
        match self.existing_repository_database(repo).await? {
            Some(db) => db.has_answer(cause).await,
            None => Ok(false),
        }
    }

    /// The remarks that the lease may read, but for the first so many.
    pub async fn remarks(&self, lease: &RunLease, after: u64) -> Result<Vec<RunRemark>, StoreError> {
        let (run, upto) = (lease.run.id, lease.run.remarks);
        self.repository_database(run.repo).await?.remarks(run, after, upto).await
    }

    /// Notes that the work under this key begins, unless it is done already.
    pub async fn journal_begin(&self, lease: &RunLease, key: &str) -> Result<JournalLookup, StoreError> {
        self.leased_database(lease).await?.journal_begin(lease, key).await
    }

    /// Keeps what the work under this key came to.
    pub async fn journal_done(&self, lease: &RunLease, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.leased_database(lease).await?.journal_done(lease, key, value).await
    }

    /// Keeps a row of evidence.
    pub async fn record(&self, lease: &RunLease, key: &str, record: LedgerRecord) -> Result<(), StoreError> {
        self.repository_database(lease.run.id.repo).await?.record(lease, key, record).await
    }

    /// The row of a paid call of this visit, if one is kept.
    pub async fn booked(&self, lease: &RunLease, key: &str) -> Result<Option<CallRow>, StoreError> {
        self.repository_database(lease.run.id.repo).await?.call_row(lease, key).await
    }

    /// All rows of evidence of a run.
    pub async fn ledger(&self, run: RunId) -> Result<RunLedger, StoreError> {
        self.repository_database(run.repo).await?.ledger(run).await
    }

    /// Adds a link to the audit chain; its hash.
    pub async fn audit(&self, lease: &RunLease, entry: AuditEntry) -> Result<Hash, StoreError> {
        self.repository_database(lease.run.id.repo)
            .await?
            .append_audit_link(&lease.pending_writes, entry)
            .await
    }

    /// Learns from its database what lives in `repo`.
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

/// Lets go of a picked run unless it is kept.
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
