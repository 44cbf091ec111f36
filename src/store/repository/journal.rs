//! Journal of a visit: stores values by key and documents by hash.

use crate::store::sql::OptionalRow;
use rusqlite::params;

use super::RepositoryDatabase;
use crate::{
    store::{
        JournalLookup, RunLease, StoreError,
        database::{to_signed, to_unsigned},
        error::TransactionError,
        pending_writes::PackedDocument,
    },
    types::Hash,
};

impl RepositoryDatabase {
    /// Records that the work for `key` has begun. If the work is already done, returns the journaled value.
    pub async fn journal_begin(&self, lease: &RunLease, key: &str) -> Result<JournalLookup, StoreError> {
        let (at, now, lease, key) = (self.run_reader(), self.clock.now().0, lease.clone(), key.to_owned());
        self.write_here(move |tx| {
            at.check_lease(tx, &lease)?;
            let (run, visit) = (to_signed(lease.run.id.seq), to_signed(lease.run.visit));
            let found: Option<Option<Vec<u8>>> = tx
                .prepare_cached("SELECT value FROM journal WHERE run = ?1 AND visit = ?2 AND key = ?3")?
                .query_row(params![run, visit, key], |row| row.get(0))
                .optional()?;
            Ok(match found {
                Some(Some(value)) => JournalLookup::Done(value),
                Some(None) => JournalLookup::Begun { interrupted: true },
                None => {
                    tx.prepare_cached(
                        "INSERT INTO journal (run, visit, key, begun_at) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![run, visit, key, now])?;
                    JournalLookup::Begun { interrupted: false }
                }
            })
        })
        .await
    }

    pub async fn journal_done(&self, lease: &RunLease, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let (at, now, key) = (self.run_reader(), self.clock.now().0, key.to_owned());
        let (held, run, visit) = (lease.clone(), lease.run.id, to_signed(lease.run.visit));
        self.write_with_pending(&lease.pending_writes, run, move |tx| {
            at.check_lease(tx, &held)?;
            tx.prepare_cached(
                "UPDATE journal SET value = ?4, done_at = ?5 WHERE run = ?1 AND visit = ?2 AND key = ?3",
            )?
            .execute(params![to_signed(run.seq), visit, key, value, now])?;
            Ok(())
        })
        .await
    }

    /// Returns the bytes stored under this hash, after verifying that the bytes match the hash.
    pub async fn get_document(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        self.read(move |tx| {
            let found = tx
                .prepare_cached("SELECT bytes, zstd FROM document WHERE hash = ?1")?
                .query_row([hash.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let (size, zstd) = found.ok_or_else(|| TransactionError::Missing(format!("document {hash}")))?;
            let bytes = usize::try_from(to_unsigned(size)).unwrap_or(usize::MAX);
            PackedDocument { bytes, zstd }.unpack(hash)
        })
        .await
    }
}
