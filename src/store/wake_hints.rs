//! Wake hints: records of repositories that may have live runs.
//!
//! SQLite is not atomic across files, so the hint is committed before the first live run of its repository. A hint may
//! be stale, but a hint is never missing. After a start, the server scans every hinted repository and removes stale
//! hints. From then on, the [agenda](super::agenda) knows all due times, so steps and run ends need no commit in the
//! hints table. The columns `seq` and `due` are unused remains of an older design.

use crate::store::sql::Transaction;

use super::{
    Store, StoreError,
    database::{to_signed, to_unsigned},
    error::TransactionError,
    repository::LIVE_RUN_CONDITION,
};
use crate::types::RepoId;

impl Store {
    /// Adds a hint before a run becomes live in `repo`. The caller has locked the repository.
    pub(super) async fn add_wake_hint(&self, repo: RepoId) -> Result<(), StoreError> {
        if self.agenda.is_hinted(repo) {
            return Ok(());
        }
        if self.cluster.is_some() {
            // In PostgreSQL, the run's row itself serves as the hint.
            self.agenda.set_hinted(repo, true);
            return Ok(());
        }
        self.main.write(move |tx| insert_hints(tx, &[repo])).await?;
        self.agenda.set_hinted(repo, true);
        Ok(())
    }

    /// Removes the repository's hint if no run is live in `repo`. The caller has locked the repository. A failure is
    /// harmless, because a stale hint only costs a scan.
    pub(super) async fn remove_stale_hint(&self, repo: RepoId) {
        if !self.agenda.has_stale_hint(repo) {
            return;
        }
        // Clear the flag first, because this future may be dropped while it waits. A redundant hint costs one commit.
        self.agenda.set_hinted(repo, false);
        if self.cluster.is_some() {
            return;
        }
        let gone = self
            .main
            .write(move |tx| tx.execute("DELETE FROM hint WHERE repo = ?1", [to_signed(repo.0)]))
            .await;
        if let Err(error) = gone {
            tracing::warn!(%repo, %error, "could not remove a wake hint; the next start scans the repository needlessly");
        }
    }
}

/// Inserts wake hints for these repositories, so that the next start scans each of them.
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
