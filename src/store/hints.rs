//! Wake hints: which repository's database to look into, and when.
//!
//! SQLite is not atomic across files, so the hint is committed before the truth it points at: it
//! may be false, it is never missing. Writers of a truth hold the repository's wake lock from the
//! hint to the truth, and whoever settles a hint holds it from looking to settling.

use rusqlite::params;

use super::{
    Store, StoreError,
    database::{signed, unsigned},
};
use crate::types::{RepoId, Timestamp};

/// A hint as it was read; a later one for the same repository has a greater `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    pub repo: RepoId,
    pub seq: u64,
}

/// When a repository that was just looked at wants to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    At(Timestamp),
    /// Something is held by this process; if it dies, the next boot must look.
    AtBoot,
    /// Not before a new hint.
    Never,
}

/// A hint for a repository whose installation is not suspended, as far as we know either.
const AWAKE: &str =
    "NOT EXISTS (SELECT 1 FROM repository JOIN installation ON installation.id = repository.installation
    WHERE repository.id = hint.repo AND installation.suspended = 1)";

impl Store {
    /// Look into `repo` at `at` or before.
    pub async fn hint(&self, repo: RepoId, at: Timestamp) -> Result<(), StoreError> {
        self.main
            .write(move |tx| {
                tx.execute(
                    "INSERT INTO hint (repo, seq, due) VALUES (?1, 1, ?2)
                     ON CONFLICT (repo) DO UPDATE SET seq = seq + 1, due = MIN(COALESCE(due, ?2), ?2)",
                    params![signed(repo.0), at.0],
                )?;
                Ok(())
            })
            .await
    }

    /// Hints whose time has come, the oldest first. Repositories of a suspended installation rest.
    pub async fn hints_due(&self, now: Timestamp) -> Result<Vec<Hint>, StoreError> {
        self.main
            .read(move |tx| {
                let mut statement = tx.prepare_cached(&format!(
                    "SELECT repo, seq FROM hint WHERE due <= ?1 AND {AWAKE} ORDER BY due, repo"
                ))?;
                let hints = statement.query_map([now.0], |row| {
                    Ok(Hint { repo: RepoId(unsigned(row.get(0)?)), seq: unsigned(row.get(1)?) })
                })?;
                Ok(hints.collect::<Result<_, _>>()?)
            })
            .await
    }

    /// The repository was looked at; does nothing when a newer hint came in meanwhile.
    pub async fn hint_settle(&self, hint: Hint, rest: Rest) -> Result<(), StoreError> {
        let (repo, seq) = (signed(hint.repo.0), signed(hint.seq));
        self.main
            .write(move |tx| {
                match rest {
                    Rest::Never => {
                        tx.execute("DELETE FROM hint WHERE repo = ?1 AND seq = ?2", params![repo, seq])?
                    }
                    Rest::AtBoot => tx.execute(
                        "UPDATE hint SET due = NULL WHERE repo = ?1 AND seq = ?2",
                        params![repo, seq],
                    )?,
                    Rest::At(at) => tx.execute(
                        "UPDATE hint SET due = ?3 WHERE repo = ?1 AND seq = ?2",
                        params![repo, seq, at.0],
                    )?,
                };
                Ok(())
            })
            .await
    }

    /// The earliest time any repository wants to be looked at.
    pub async fn next_hint(&self) -> Result<Option<Timestamp>, StoreError> {
        self.main
            .read(|tx| {
                let due: Option<i64> = tx
                    .prepare_cached(&format!("SELECT MIN(due) FROM hint WHERE {AWAKE}"))?
                    .query_row([], |row| row.get(0))?;
                Ok(due.map(Timestamp))
            })
            .await
    }
}
