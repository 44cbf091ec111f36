//! Retention of deliveries. Bodies are deleted first. IDs are kept much longer, because a delivery whose ID was deleted
//! could be processed a second time.

use std::time::Duration;

use crate::store::sql::Transaction;
use rusqlite::params;

use super::Inbox;
use crate::{
    limits,
    store::{StoreError, database::to_signed, error::TransactionError},
    types::{RepoId, Timestamp},
};

/// Time for which the bodies of processed deliveries are kept for debugging. `BODY_KEPT_DEAD` is the time for given-up
/// deliveries.
const BODY_KEPT_DONE: Duration = Duration::from_secs(7 * 24 * 3600);
const BODY_KEPT_DEAD: Duration = Duration::from_secs(30 * 24 * 3600);

/// Time for which delivery IDs are kept: 90 days. This is long enough for GitHub's redeliveries (up to three days) and
/// for a sweep of a month after an operator restores a backup.
const DELIVERY_KEPT: Duration = Duration::from_secs(90 * 24 * 3600);

impl Inbox<'_> {
    /// Deletes a bounded number of expired bodies and rows, and returns the number of changed rows. Must be called
    /// repeatedly until it returns 0.
    pub async fn delete_expired(&self) -> Result<usize, StoreError> {
        let now = self.store.clock.now();
        self.store.main.write(move |tx| delete_expired_rows(tx, now)).await
    }

    /// Deletes the bodies of all deliveries of this repository. Closes its unfinished deliveries without processing
    /// them.
    pub(in crate::store) async fn forget_repository(&self, repo: RepoId) -> Result<(), StoreError> {
        let now = self.store.clock.now().0;
        let mut from = 0;
        loop {
            // Works through ranges of rows: no index finds a repository's finished deliveries, and reading the whole
            // inbox at once would block other writers.
            let last = self
                .store
                .main
                .write(move |tx| {
                    tx.execute(
                        "UPDATE inbox SET body = ?5, packing = 'dropped', ended_at = COALESCE(ended_at, ?3), epoch = NULL,
                             note = CASE WHEN state IN ('new', 'taken') THEN 'its repository was forgotten' ELSE note END,
                             state = CASE WHEN state IN ('new', 'taken') THEN 'done' ELSE state END
                         WHERE seq > ?1 AND seq <= ?1 + ?4 AND repository = ?2",
                        params![from, to_signed(repo.0), now, to_signed(limits::TIDY_ROWS), [0_u8; 0]],
                    )?;
                    let last: Option<i64> = tx.query_row("SELECT MAX(seq) FROM inbox", [], |row| row.get(0))?;
                    Ok(last.unwrap_or(0))
                })
                .await?;
            from += to_signed(limits::TIDY_ROWS);
            if from >= last {
                return Ok(());
            }
        }
    }
}

fn delete_expired_rows(tx: &Transaction<'_>, now: Timestamp) -> Result<usize, TransactionError> {
    let drop_bodies = "UPDATE inbox SET body = ?4, packing = 'dropped' WHERE seq IN (
         SELECT seq FROM inbox WHERE state = ?1 AND ended_at < ?2 AND ended_at IS NOT NULL AND packing <> 'dropped'
         ORDER BY ended_at LIMIT ?3)";
    let most = to_signed(limits::TIDY_ROWS);
    let mut gone = 0;
    for (state, kept) in [("done", BODY_KEPT_DONE), ("dead", BODY_KEPT_DEAD)] {
        gone +=
            tx.prepare_cached(drop_bodies)?.execute(params![state, now.minus(kept).0, most, [0_u8; 0]])?;
        gone += tx
            .prepare_cached(
                "DELETE FROM inbox WHERE seq IN (
                     SELECT seq FROM inbox WHERE state = ?1 AND ended_at < ?2 AND ended_at IS NOT NULL AND packing = 'dropped'
                     ORDER BY ended_at LIMIT ?3)",
            )?
            .execute(params![state, now.minus(DELIVERY_KEPT).0, most])?;
    }
    Ok(gone)
}
