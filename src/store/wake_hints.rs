//! Wake hints: which repositories may have live runs.
//!
//! SQLite is not atomic across files, so the hint is committed before the first live run it points at: it may be
//! false, it is never missing. A boot looks into every hinted repository and takes away what hints in vain; from then
//! on the [agenda](super::agenda) knows when which run is due, so that no step and no run's end costs a commit here.
//! The columns `seq` and `due` are left from the time when they did.

use crate::store::sql::Transaction;

use super::{
    Store, StoreError,
    database::{to_signed, to_unsigned},
    error::TransactionError,
    repository::LIVE_RUN_CONDITION,
};
use crate::types::RepoId;

impl Store {
    /// A run is about to live in `repo`. Its order is held.
    pub(super) async fn add_wake_hint(&self, repo: RepoId) -> Result<(), StoreError> {
        if self.agenda.is_hinted(repo) {
            return Ok(());
        }
        if self.cluster.is_some() {
            // Where a run is committed with all that tells of it, it is its own hint.
            self.agenda.set_hinted(repo, true);
            return Ok(());
        }
        self.main.write(move |tx| insert_hints(tx, &[repo])).await?;
        self.agenda.set_hinted(repo, true);
        Ok(())
    }

    /// Takes the hint away if nothing lives in `repo`. Its order is held. A hint that stays only costs a look.
    pub(super) async fn remove_stale_hint(&self, repo: RepoId) {
        if !self.agenda.has_stale_hint(repo) {
            return;
        }
        // Before it is, because whoever waits for that may go away: a hint that is written once more costs a commit.
        self.agenda.set_hinted(repo, false);
        if self.cluster.is_some() {
            return;
        }
        let gone = self
            .main
            .write(move |tx| tx.execute("DELETE FROM hint WHERE repo = ?1", [to_signed(repo.0)]))
            .await;
        if let Err(error) = gone {
            tracing::warn!(%repo, %error, "a wake hint stays behind");
        }
    }
}

/// Something may live in these: the next boot looks into each of them.
pub(super) fn insert_hints(tx: &Transaction<'_>, repos: &[RepoId]) -> Result<(), TransactionError> {
    let mut hint =
        tx.prepare("INSERT INTO hint (repo, seq, due) VALUES (?1, 1, 0) ON CONFLICT (repo) DO NOTHING")?;
    for repo in repos {
        hint.execute([to_signed(repo.0)])?;
    }
    Ok(())
}

pub(super) fn hinted_repositories(tx: &Transaction<'_>) -> Result<Vec<RepoId>, TransactionError> {
    let mut statement = match tx {
        Transaction::File(_) => tx.prepare("SELECT repo FROM hint ORDER BY repo")?,
        Transaction::Server(_) => tx.prepare(&format!(
            "SELECT DISTINCT repo FROM all_run WHERE {LIVE_RUN_CONDITION} ORDER BY repo"
        ))?,
    };
    let repos = statement.query_map([], |row| Ok(RepoId(to_unsigned(row.get(0)?))))?;
    repos.collect::<Result<_, _>>()
}
