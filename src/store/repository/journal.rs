//! What a visit did: values by key, documents by hash.

use rusqlite::{OptionalExtension, params};

use super::RepoDb;
use crate::{
    store::{
        Begun, Lease, StoreError,
        database::{signed, unsigned},
        error::Fault,
    },
    types::Hash,
};

impl RepoDb {
    /// Notes that `key` is begun, or reads back what it came to.
    pub async fn journal_begin(&self, lease: &Lease, key: &str) -> Result<Begun, StoreError> {
        let (at, now, lease, key) = (self.at(), self.clock.now().0, lease.clone(), key.to_owned());
        self.db
            .write(move |tx| {
                at.fenced(tx, &lease)?;
                let (run, visit) = (signed(lease.run.id.seq), signed(lease.run.visit));
                let found: Option<Option<Vec<u8>>> = tx
                    .prepare_cached("SELECT value FROM journal WHERE run = ?1 AND visit = ?2 AND key = ?3")?
                    .query_row(params![run, visit, key], |row| row.get(0))
                    .optional()?;
                Ok(match found {
                    Some(Some(value)) => Begun::Done(value),
                    Some(None) => Begun::Fresh { interrupted: true },
                    None => {
                        tx.execute(
                            "INSERT INTO journal (run, visit, key, begun_at) VALUES (?1, ?2, ?3, ?4)",
                            params![run, visit, key, now],
                        )?;
                        Begun::Fresh { interrupted: false }
                    }
                })
            })
            .await
    }

    pub async fn journal_done(&self, lease: &Lease, key: &str, value: Vec<u8>) -> Result<(), StoreError> {
        let (at, now, lease, key) = (self.at(), self.clock.now().0, lease.clone(), key.to_owned());
        self.db
            .write(move |tx| {
                at.fenced(tx, &lease)?;
                tx.execute(
                    "UPDATE journal SET value = ?4, done_at = ?5 WHERE run = ?1 AND visit = ?2 AND key = ?3",
                    params![signed(lease.run.id.seq), signed(lease.run.visit), key, value, now],
                )?;
                Ok(())
            })
            .await
    }

    /// Keeps bytes under their hash.
    pub async fn put(&self, bytes: Vec<u8>) -> Result<Hash, StoreError> {
        let now = self.clock.now().0;
        self.db
            .write(move |tx| {
                let hash = Hash::of(&bytes);
                let packed = zstd::encode_all(bytes.as_slice(), zstd::DEFAULT_COMPRESSION_LEVEL)
                    .map_err(|error| Fault::Row(format!("document {hash} cannot be compressed: {error}")))?;
                tx.execute(
                    "INSERT INTO document (hash, bytes, zstd, created_at) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (hash) DO NOTHING",
                    params![hash.to_string(), signed(bytes.len() as u64), packed, now],
                )?;
                Ok(hash)
            })
            .await
    }

    /// The bytes under this hash, checked against it.
    pub async fn get(&self, hash: Hash) -> Result<Vec<u8>, StoreError> {
        self.db
            .read(move |tx| {
                let found: Option<(i64, Vec<u8>)> = tx
                    .query_row(
                        "SELECT bytes, zstd FROM document WHERE hash = ?1",
                        [hash.to_string()],
                        |row| Ok((row.get(0)?, row.get(1)?)),
                    )
                    .optional()?;
                let (size, packed) = found.ok_or_else(|| Fault::Missing(format!("document {hash}")))?;
                let size = usize::try_from(unsigned(size)).unwrap_or(usize::MAX);
                let bytes = zstd::bulk::decompress(&packed, size)
                    .map_err(|error| Fault::Row(format!("document {hash} cannot be unpacked: {error}")))?;
                if Hash::of(&bytes) == hash {
                    Ok(bytes)
                } else {
                    Err(Fault::Row(format!("document {hash} does not hash to its name")))
                }
            })
            .await
    }
}
