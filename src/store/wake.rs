//! Everything that wakes a run, with its hint first.

use std::collections::HashSet;

use super::{
    Answer, Booked, CancelRow, Checkpoint, GateRow, Hint, Lease, NewRun, Opened, Rerun, Rest, Store,
    StoreError,
};
use crate::{
    limits,
    types::{Cause, IssueNo, RepoId, RunId, Timestamp},
};

impl Store {
    pub async fn start_run(&self, new: NewRun) -> Result<Opened, StoreError> {
        let repo = self.repo(new.trigger.repo)?;
        let _wake = repo.wake.lock().await;
        self.hint(new.trigger.repo, self.clock.now()).await?;
        repo.start(new).await
    }

    pub async fn book_answer(&self, gate: GateRow, answer: Answer) -> Result<Booked, StoreError> {
        let repo = self.repo(gate.run.repo)?;
        let _wake = repo.wake.lock().await;
        self.hint(gate.run.repo, self.clock.now()).await?;
        repo.answer(gate, answer).await
    }

    pub async fn cancel_runs(
        &self,
        repo: RepoId,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Result<Vec<RunId>, StoreError> {
        let Some(db) = self.repo_if_any(repo)? else { return Ok(Vec::new()) };
        let _wake = db.wake.lock().await;
        self.hint(repo, self.clock.now()).await?;
        db.cancel(issue, run, cancel).await
    }

    /// Takes a run whose time has come. A repository that cannot be read is logged, looked at again
    /// later and keeps nobody else waiting.
    pub async fn claim_run(
        &self,
        now: Timestamp,
        except: &HashSet<RunId>,
    ) -> Result<Option<Lease>, StoreError> {
        for hint in self.hints_due(now).await? {
            match self.claim_in(hint, now, except).await {
                Ok(Some(lease)) => return Ok(Some(lease)),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(repo = %hint.repo, %error, "cannot look into a repository's database");
                    self.hint_settle(hint, Rest::At(now.plus(limits::DAMAGED_RETRY))).await?;
                }
            }
        }
        Ok(None)
    }

    async fn claim_in(
        &self,
        hint: Hint,
        now: Timestamp,
        except: &HashSet<RunId>,
    ) -> Result<Option<Lease>, StoreError> {
        let repo = self.repo(hint.repo)?;
        let _wake = repo.wake.lock().await;
        let lease = repo.claim(now, except.clone()).await?;
        if lease.is_none() {
            self.hint_settle(hint, repo.rest().await?).await?;
        }
        Ok(lease)
    }

    /// Saves what a step left and gives the run back.
    pub async fn save_step(&self, lease: &Lease, left: Checkpoint) -> Result<(), StoreError> {
        let repo = self.repo(lease.run.id.repo)?;
        let _wake = repo.wake.lock().await;
        // Now, whenever the run is due: an answer or a cancel may have come while the step ran.
        self.hint(lease.run.id.repo, self.clock.now()).await?;
        repo.save(lease, left).await
    }

    /// Gives a run back as it was taken.
    pub async fn release_run(&self, lease: &Lease) -> Result<(), StoreError> {
        let repo = self.repo(lease.run.id.repo)?;
        let _wake = repo.wake.lock().await;
        self.hint(lease.run.id.repo, self.clock.now()).await?;
        repo.release(lease).await
    }

    pub async fn retry_run(&self, run: RunId, cause: Cause, by: String) -> Result<Rerun, StoreError> {
        let Some(db) = self.repo_if_any(run.repo)? else { return Ok(Rerun::NoRun) };
        let _wake = db.wake.lock().await;
        self.hint(run.repo, self.clock.now()).await?;
        db.retry(run, cause, by).await
    }
}
