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
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        let db = self.repo(repo).await?;
        self.hint(repo).await?;
        let doubt = self.agenda.doubt(repo);
        let (opened, runs) = db.start(new).await?;
        doubt.settle(&runs);
        Ok(opened)
    }

    /// A gate is a live run's, so the hint stands already.
    pub async fn book_answer(&self, gate: GateRow, answer: GateAnswer) -> Result<AnswerReceipt, StoreError> {
        let repo = gate.run.repo;
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        let db = self.repo(repo).await?;
        let doubt = self.agenda.doubt(repo);
        let (booked, runs) = db.answer(gate, answer).await?;
        doubt.settle(&runs);
        Ok(booked)
    }

    /// A run that lives has its hint already.
    pub async fn book_remark(&self, run: RunId, remark: RunRemark) -> Result<AnswerReceipt, StoreError> {
        let order = self.agenda.order(run.repo);
        let _order = order.lock().await;
        let Some(db) = self.repo_if_any(run.repo).await? else { return Ok(AnswerReceipt::Changed) };
        let doubt = self.agenda.doubt(run.repo);
        let (booked, runs) = db.remark(run, remark).await?;
        doubt.settle(&runs);
        Ok(booked)
    }

    pub async fn cancel_runs(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Result<Vec<RunId>, StoreError> {
        let Some(db) = self.repo_if_any(repo).await? else { return Ok(Vec::new()) };
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        let doubt = self.agenda.doubt(repo);
        let (marked, runs) = db.cancel(issue, run, cancel).await?;
        doubt.settle(&runs);
        Ok(marked)
    }

    pub async fn retry_run(&self, run: RunId, cause: Cause, by: String) -> Result<RetryDecision, StoreError> {
        let repo = run.repo;
        let Some(db) = self.repo_if_any(repo).await? else { return Ok(RetryDecision::NoRun) };
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        self.hint(repo).await?;
        let doubt = self.agenda.doubt(repo);
        let (became, runs) = db.retry(run, cause, by).await?;
        doubt.settle(&runs);
        Ok(became)
    }

    /// Looks into the repositories of which it is not known what lives in them: all that are due, and for each one to
    /// drive, so that a file that is slow keeps nobody else waiting. What cannot be read is logged and looked at again
    /// later.
    pub fn looks(&self, now: Timestamp) -> Vec<BoxFuture<'_, ()>> {
        let begun = self.agenda.begin_looks(now).into_iter();
        begun.map(|looking| Box::pin(self.load_or_retry(looking)) as BoxFuture<'_, ()>).collect()
    }

    pub fn looks_due(&self, now: Timestamp) -> bool {
        self.agenda.looks_due(now)
    }

    async fn load_or_retry(&self, looking: LiveRunScanGuard<'_>) {
        let repo = looking.repo;
        if let Err(error) = self.load_live(repo).await {
            tracing::error!(%repo, %error, "cannot look into a repository's database");
            self.agenda.recheck_at(repo, self.clock.now().plus(limits::DAMAGED_RETRY));
        }
    }

    /// Takes a run whose time has come; nothing is written for it, and no database is opened: of one that is closed, or
    /// was found damaged, a run is taken after the next look.
    pub async fn claim_run(
        &self,
        now: Timestamp,
        except: &HashSet<RunId>,
    ) -> Result<Option<RunLease>, StoreError> {
        while let Some(picked) = self.agenda.pick(now, except) {
            let run = picked.run;
            let Some(db) = self.repositories.at_hand(run.repo) else {
                self.agenda.open_first(picked);
                continue;
            };
            let hold = RunClaimGuard { store: self, picked: Some(picked) };
            let (row, number) = match db.claim(run).await {
                Ok(Some(found)) => found,
                // It ended, and the agenda missed it.
                Ok(None) => {
                    self.agenda.became(run.repo, &[(run.seq, None)]);
                    continue;
                }
                Err(error) => {
                    tracing::error!(%run, %error, "cannot read a run that is due");
                    let again = now.plus(limits::DAMAGED_RETRY);
                    match error {
                        StoreError::Row { .. } => self.agenda.postpone(run, again),
                        _ => self.agenda.recheck_at(run.repo, again),
                    }
                    continue;
                }
            };
            hold.keep();
            let run = RunRow { taken: true, ..row };
            let gathered = Arc::new(PendingWrites::default());
            return Ok(Some(RunLease { run, number, epoch: self.epoch, claim: picked.claim, gathered }));
        }
        Ok(None)
    }

    /// Saves what a step left and gives the run back.
    pub async fn save_step(&self, lease: &RunLease, left: Checkpoint) -> Result<(), StoreError> {
        let repo = lease.run.id.repo;
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        let db = self.held(lease).await?;
        if let Some(until) = lease.waits_on(&left) {
            if self.cluster.is_some() {
                let doubt = self.agenda.doubt(repo);
                let runs = db.give_back(lease, Some(until)).await?;
                doubt.settle_and_release(&runs, picked(lease));
                return Ok(());
            }
            self.agenda.rest(picked(lease), until);
            return Ok(());
        }
        let doubt = self.agenda.doubt(repo);
        let runs = db.save(lease, left).await?;
        doubt.settle_and_release(&runs, picked(lease));
        Ok(())
    }

    /// Keeps bytes under their hash, with whatever the lease's holder writes next.
    pub fn put_document(&self, lease: &RunLease, bytes: &[u8]) -> Result<Hash, StoreError> {
        let hash = Hash::of(bytes);
        if !lease.gathered.has(hash) {
            let packed = PackedDocument::pack(hash, bytes);
            let document = packed.map_err(|fault| fault.at(&self.repo_dir(lease.run.id.repo)))?;
            lease.gathered.add(hash, document);
        }
        Ok(hash)
    }

    pub async fn get_document(&self, lease: &RunLease, hash: Hash) -> Result<Vec<u8>, StoreError> {
        let repo = lease.run.id.repo;
        match lease.gathered.document(hash) {
            Some(document) => document.unpack(hash).map_err(|fault| fault.at(&self.repo_dir(repo))),
            None => self.repo(repo).await?.get(hash).await,
        }
    }

    /// How many live runs stand where; of repositories that this boot has not looked into yet none.
    pub fn places(&self) -> HashMap<RunPosition, u64> {
        self.agenda.places()
    }

    /// Gives a run back as it was taken.
    pub async fn release_run(&self, lease: &RunLease) -> Result<(), StoreError> {
        if self.cluster.is_some() {
            let repo = lease.run.id.repo;
            let order = self.agenda.order(repo);
            let _order = order.lock().await;
            let doubt = self.agenda.doubt(repo);
            let given = match self.held(lease).await {
                Ok(db) => db.give_back(lease, None).await,
                Err(error) => Err(error),
            };
            return match given {
                Ok(runs) => {
                    doubt.settle_and_release(&runs, picked(lease));
                    Ok(())
                }
                // Another one's by now.
                Err(StoreError::Fenced) => {
                    self.agenda.release(picked(lease));
                    Err(StoreError::Fenced)
                }
                Err(error) => Err(error),
            };
        }
        let ours = lease.epoch == self.epoch && self.agenda.release(picked(lease));
        if ours { Ok(()) } else { Err(StoreError::Fenced) }
    }

    /// When something will be due, or may be.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.agenda.next_due()
    }

    /// The database of a run whose holder still is its holder.
    pub(crate) async fn held(&self, lease: &RunLease) -> Result<Arc<RepositoryDatabase>, StoreError> {
        if lease.epoch != self.epoch || !self.agenda.holds(picked(lease)) {
            return Err(StoreError::Fenced);
        }
        self.repo(lease.run.id.repo).await
    }

    /// Reads a run, and whether somebody takes a step of it right now.
    pub async fn run_row(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        let Some(db) = self.repo_if_any(id.repo).await? else { return Ok(None) };
        let row = db.run(id).await?;
        Ok(row.map(|row| RunRow { taken: row.taken || self.agenda.held(id), ..row }))
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
        for repo in self.repos().await? {
            match self.runs_of(repo, filter).await {
                Ok(runs) => all.extend(runs),
                Err(error) => tracing::error!(%repo, %error, "left out of a list of runs"),
            }
        }
        Ok(all)
    }

    async fn runs_of(&self, repo: RepoId, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let Some(db) = self.repo_if_any(repo).await? else { return Ok(Vec::new()) };
        let rows = db.runs(filter).await?.into_iter();
        Ok(rows.map(|row| RunRow { taken: row.taken || self.agenda.held(row.id), ..row }).collect())
    }

    /// Was an answer of this cause booked?
    pub async fn has_answer(&self, repo: RepoId, cause: &Cause) -> Result<bool, StoreError> {
        match self.repo_if_any(repo).await? {
            Some(db) => db.has_answer(cause).await,
            None => Ok(false),
        }
    }

    /// The remarks that the lease may read, but for the first so many.
    pub async fn remarks(&self, lease: &RunLease, after: u64) -> Result<Vec<RunRemark>, StoreError> {
        let (run, upto) = (lease.run.id, lease.run.remarks);
        self.repo(run.repo).await?.remarks(run, after, upto).await
    }

    /// Notes that the work under this key begins, unless it is done already.
    pub async fn journal_begin(&self, lease: &RunLease, key: &str) -> Result<JournalLookup, StoreError> {
        self.held(lease).await?.journal_begin(lease, key).await
    }

    /// Keeps what the work under this key came to.
    pub async fn journal_done(&self, lease: &RunLease, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        self.held(lease).await?.journal_done(lease, key, value).await
    }

    /// Keeps a row of evidence.
    pub async fn record(&self, lease: &RunLease, key: &str, record: LedgerRecord) -> Result<(), StoreError> {
        self.repo(lease.run.id.repo).await?.record(lease, key, record).await
    }

    /// The row of a paid call of this visit, if one is kept.
    pub async fn booked(&self, lease: &RunLease, key: &str) -> Result<Option<CallRow>, StoreError> {
        self.repo(lease.run.id.repo).await?.booked(lease, key).await
    }

    /// All rows of evidence of a run.
    pub async fn ledger(&self, run: RunId) -> Result<RunLedger, StoreError> {
        self.repo(run.repo).await?.ledger(run).await
    }

    /// Adds a link to the audit chain; its hash.
    pub async fn audit(&self, lease: &RunLease, entry: AuditEntry) -> Result<Hash, StoreError> {
        self.repo(lease.run.id.repo).await?.audit(&lease.gathered, entry).await
    }

    /// Learns from its database what lives in `repo`.
    async fn load_live(&self, repo: RepoId) -> Result<(), StoreError> {
        let order = self.agenda.order(repo);
        let _order = order.lock().await;
        let live = match self.repo_if_any(repo).await? {
            Some(db) => db.live().await?,
            None => Vec::new(), // the machine stopped between the hint and the run
        };
        self.agenda.looked(repo, live);
        self.settle_hint(repo).await;
        Ok(())
    }
}

fn picked(lease: &RunLease) -> RunClaim {
    RunClaim { run: lease.run.id, claim: lease.claim }
}

/// Lets go of a picked run unless it is kept.
struct RunClaimGuard<'a> {
    store: &'a Store,
    picked: Option<RunClaim>,
}

impl RunClaimGuard<'_> {
    fn keep(mut self) {
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
