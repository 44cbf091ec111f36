//! Cache of analysis results, keyed by the hash of the analysed content.
//!
//! It is a separate file next to the repository's database. All its data can be computed again. Therefore backups leave
//! it out, writes to it do not wait for the disk, and it delays no step. A crash may corrupt it. Therefore each value
//! includes its key and a checksum, and an unreadable file is emptied. The cache contains code in plain text, as does
//! the mirror next to it.

use std::{collections::HashSet, path::PathBuf};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, config::DbConfig, params};

use super::{
    Store, StoreError, compression, create_directory,
    database::{to_signed, to_unsigned},
    error::TransactionError,
    repository, run_blocking,
};
use crate::{
    limits,
    types::{Hash, RepoId},
};

/// Maximum size of the cache in bytes, enough for several commits of a large repository.
const CACHE_BYTES: u64 = 256 * 1024 * 1024;

/// Name of the cache file, which is next to the repository's database.
const FILE: &str = "cache.db";

/// Maximum size of a cached value in bytes, so that a damaged row cannot make us allocate more memory.
const MAX_VALUE_BYTES: usize = 64 * 1024 * 1024;

/// Open cache of a repository. Its methods block on disk access, so they must be called only on blocking threads.
#[derive(Debug)]
pub struct AnalysisCache {
    connection: Connection,
    file: PathBuf,
    /// IDs of values that were requested or stored through this handle. Eviction keeps these values.
    requested: HashSet<i64>,
}

/// Hash of the analysed content and of all other inputs of the analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheKey(Hash);

impl CacheKey {
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(Hash::digest_parts(parts))
    }

    /// Returns the row ID, which is a part of the hash. If two keys have the same row ID, the value stored later
    /// replaces the earlier one.
    fn id(&self) -> i64 {
        let first = self.0.bytes().first_chunk().expect("it has 32 bytes");
        i64::from_be_bytes(*first)
    }
}

/// A compressed value together with its key and a checksum.
#[derive(Debug, Clone)]
pub struct PackedValue {
    plain_bytes: usize,
    zstd: Vec<u8>,
}

impl PackedValue {
    pub fn pack(key: &CacheKey, bytes: &[u8]) -> Self {
        let sealed = [key.0.bytes().as_slice(), bytes].concat();
        // A value that cannot be compressed reads as damaged and is computed again.
        Self { plain_bytes: sealed.len(), zstd: compression::pack(&sealed).unwrap_or_default() }
    }

    /// Returns the decompressed value; `None` if the value is damaged or belongs to another key.
    pub fn unpack(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let mut sealed = compression::unpack(&self.zstd, self.plain_bytes).ok()?;
        (sealed.len() == self.plain_bytes && sealed.starts_with(key.0.bytes())).then(|| {
            sealed.drain(..key.0.bytes().len());
            sealed
        })
    }
}

impl Store {
    /// Opens the analysis cache of a repository that has a database.
    pub async fn cache(&self, repo: RepoId) -> Result<AnalysisCache, StoreError> {
        let (directory, served) = (self.repo_dir(repo), self.cluster.is_some());
        run_blocking(move || {
            if served {
                create_directory(&directory)?;
            // A folder with only a cache would look like one that lost its database.
            } else if !directory.join(repository::CHECKPOINTS_FILE).exists() {
                return Err(StoreError::Missing { what: format!("a database of repository {repo}") });
            }
            AnalysisCache::open(directory.join(FILE))
        })
        .await
    }
}

impl AnalysisCache {
    fn open(file: PathBuf) -> Result<Self, StoreError> {
        let at = |fault: TransactionError| fault.with_path(&file);
        let connection = Connection::open(&file).map_err(|error| at(error.into()))?;
        match prepare_connection(&connection).map_err(at) {
            Err(StoreError::Damaged { .. }) => {
                empty_cache(&connection).and_then(|()| prepare_connection(&connection)).map_err(at)?;
            }
            prepared => prepared?,
        }
        Ok(Self { connection, file, requested: HashSet::new() })
    }

    /// Returns the cached value of each key, in the order of `keys`.
    pub fn get(&mut self, keys: &[CacheKey]) -> Result<Vec<Option<PackedValue>>, StoreError> {
        self.requested.extend(keys.iter().map(CacheKey::id));
        self.run(TransactionBehavior::Deferred, |tx, _| get(tx, keys))
    }

    /// Stores these values. If the cache is too large afterwards, evicts all values that were not requested or stored
    /// through this handle.
    pub fn put(
        &mut self,
        entries: impl IntoIterator<Item = (CacheKey, PackedValue)>,
    ) -> Result<(), StoreError> {
        self.run(TransactionBehavior::Immediate, |tx, requested| {
            for (key, packed) in entries {
                requested.insert(key.id());
                put(tx, &key, &packed)?;
            }
            evict_unrequested(tx, requested, CACHE_BYTES)
        })
    }

    fn run<R>(
        &mut self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>, &mut HashSet<i64>) -> Result<R, TransactionError>,
    ) -> Result<R, StoreError> {
        let run = || -> Result<R, TransactionError> {
            let tx = self.connection.transaction_with_behavior(behavior)?;
            let result = work(&tx, &mut self.requested)?;
            tx.commit()?;
            Ok(result)
        };
        run().map_err(|fault| {
            let error = fault.with_path(&self.file);
            if matches!(error, StoreError::Damaged { .. }) {
                // The next opening starts with an empty cache.
                drop(empty_cache(&self.connection));
            }
            error
        })
    }
}

fn prepare_connection(connection: &Connection) -> Result<(), TransactionError> {
    connection.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
    // Most values have a few kilobytes and are read by the thousand.
    connection.pragma_update(None, "page_size", 16_384)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.execute_batch(include_str!("migrations/cache.sql"))?;
    Ok(())
}

/// Empties the file in place instead of deleting it, because other connections may have the file open.
fn empty_cache(connection: &Connection) -> Result<(), TransactionError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, true)?;
    let emptied = connection.execute_batch("VACUUM");
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, false)?;
    Ok(emptied?)
}

fn get(tx: &Transaction<'_>, keys: &[CacheKey]) -> Result<Vec<Option<PackedValue>>, TransactionError> {
    // Read in file order.
    let mut wanted: Vec<(i64, usize)> = keys.iter().map(CacheKey::id).zip(0..).collect();
    wanted.sort_unstable();
    let mut found: Vec<Option<PackedValue>> = vec![None; keys.len()];
    let mut statement = tx.prepare_cached("SELECT plain, zstd FROM answer WHERE id = ?1")?;
    for (id, at) in wanted {
        let read = |row: &rusqlite::Row<'_>| {
            let plain = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(0).min(MAX_VALUE_BYTES);
            Ok(PackedValue { plain_bytes: plain, zstd: row.get(1)? })
        };
        found[at] = statement.query_row([id], read).optional()?;
    }
    Ok(found)
}

fn put(tx: &Transaction<'_>, key: &CacheKey, packed: &PackedValue) -> Result<(), TransactionError> {
    tx.prepare_cached("INSERT OR REPLACE INTO answer (id, plain, zstd) VALUES (?1, ?2, ?3)")?
        .execute(params![key.id(), to_signed(packed.plain_bytes as u64), packed.zstd])?;
    Ok(())
}

fn evict_unrequested(
    tx: &Transaction<'_>,
    requested: &HashSet<i64>,
    most: u64,
) -> Result<(), TransactionError> {
    let number = |pragma| tx.pragma_query_value(None, pragma, |row| row.get(0)).map(to_unsigned);
    let pages = number("page_count")?.saturating_sub(number("freelist_count")?);
    if pages.saturating_mul(number("page_size")?) <= most {
        return Ok(());
    }
    let mut statement = tx.prepare_cached("SELECT id FROM answer")?;
    let kept: Vec<i64> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut statement = tx.prepare_cached("DELETE FROM answer WHERE id = ?1")?;
    for id in kept.iter().filter(|id| !requested.contains(id)) {
        statement.execute([id])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn key(blob: u32) -> CacheKey {
        CacheKey::from_parts([blob.to_be_bytes().as_slice()])
    }

    fn open(directory: &Path) -> AnalysisCache {
        AnalysisCache::open(directory.join(FILE)).unwrap()
    }

    fn keep(cache: &mut AnalysisCache, entries: &[(u32, &[u8])]) {
        cache
            .put(entries.iter().map(|(blob, bytes)| (key(*blob), PackedValue::pack(&key(*blob), bytes))))
            .unwrap();
    }

    fn kept(cache: &mut AnalysisCache, blob: u32) -> Option<Vec<u8>> {
        cache.get(&[key(blob)]).unwrap().pop().unwrap().and_then(|packed| packed.unpack(&key(blob)))
    }

    #[test]
    fn cached_values_survive_reopening_the_cache() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path());
        keep(&mut cache, &[(1, b"one"), (2, b"")]);
        keep(&mut cache, &[(1, b"another")]);
        drop(cache);
        let keys = [2, 3, 1].map(key);
        let all = open(directory.path()).get(&keys).unwrap().into_iter().zip(&keys);
        let all: Vec<_> = all.map(|(packed, key)| packed.and_then(|packed| packed.unpack(key))).collect();
        assert_eq!(all, [Some(Vec::new()), None, Some(b"another".to_vec())]);
    }

    #[test]
    fn cached_value_stored_under_the_id_of_another_key_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path());
        keep(&mut cache, &[(1, b"one"), (2, b"two"), (3, b"three")]);
        let [one, two] = [1, 2].map(|blob| key(blob).id());
        for (from, to) in [(one, 0), (two, one), (0, two)] {
            cache.connection.execute("UPDATE answer SET id = ?2 WHERE id = ?1", [from, to]).unwrap();
        }
        assert_eq!([1, 2, 3].map(|blob| kept(&mut cache, blob)), [None, None, Some(b"three".to_vec())]);
    }

    #[test]
    fn damaged_cache_drops_damaged_values_and_stores_new_ones() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path());
        keep(&mut cache, &[(1, &[7; 999]), (2, b"two")]);
        let spoil = "UPDATE answer SET zstd = CAST(substr(zstd, 1, length(zstd) - 1) || x'00' AS BLOB) \
                     WHERE id = ?1";
        cache.connection.execute(spoil, [key(1).id()]).unwrap();
        assert_eq!((kept(&mut cache, 1), kept(&mut cache, 2)), (None, Some(b"two".to_vec())));
        keep(&mut cache, &[(1, b"mended")]);
        assert_eq!(kept(&mut cache, 1).as_deref(), Some(&b"mended"[..]));
        drop(cache);

        std::fs::write(directory.path().join(FILE), [1; 8192]).unwrap();
        let (mut cache, mut another) = (open(directory.path()), open(directory.path()));
        assert_eq!(kept(&mut cache, 2), None);
        keep(&mut cache, &[(2, b"two")]);
        keep(&mut another, &[(3, b"three")]);
        drop((cache, another));
        let mut cache = open(directory.path());
        assert_eq!([2, 3].map(|blob| kept(&mut cache, blob).is_some()), [true, true]);
    }

    #[test]
    fn full_cache_evicts_values_not_requested_since_it_was_opened() {
        let directory = tempfile::tempdir().unwrap();
        let noise =
            |blob: u32| -> Vec<u8> { (0..999_u32).flat_map(|n| *key(blob * 999 + n).0.bytes()).collect() };
        let mut cache = open(directory.path());
        for blob in 0..9 {
            keep(&mut cache, &[(blob, &noise(blob))]);
        }
        let mut cache = open(directory.path());
        assert!(kept(&mut cache, 3).is_some());
        let make_room = |cache: &mut AnalysisCache, most| {
            cache
                .run(TransactionBehavior::Immediate, |tx, requested| evict_unrequested(tx, requested, most))
                .unwrap();
        };
        make_room(&mut cache, 9 * 100_000);
        let there = |cache: &mut AnalysisCache| -> u32 {
            cache.connection.query_row("SELECT COUNT(*) FROM answer", [], |row| row.get(0)).unwrap()
        };
        assert_eq!(there(&mut cache), 9, "there is room");
        make_room(&mut cache, 9 * 20_000);
        assert_eq!(there(&mut cache), 1);
        assert!(kept(&mut cache, 3).is_some());
    }
}
