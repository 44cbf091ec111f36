//! What was worked out from the contents of a repository's files, kept by their hash.
//!
//! In a file of its own beside the repository's database: nothing in it is a truth, so it is in no backup, its writes are
//! not waited for by the disk, they hold up no step, and when it is damaged or of another version it is removed.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::{
    Store, StoreError,
    database::{signed, unsigned},
    error::Fault,
    off_thread, packer, repository,
};
use crate::{
    limits,
    types::{RepoId, Timestamp},
};

/// Beside the repository's database.
const FILE: &str = "cache.db";

/// Changes with its tables.
const LAYOUT: &str = "1";

/// Nothing larger is kept, whatever a damaged row says of itself.
const MOST_PLAIN: usize = 64 * 1024 * 1024;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A repository's cache, open. Its calls wait for the disk: they are for threads that may.
#[derive(Debug)]
pub struct Cache {
    connection: Connection,
    file: PathBuf,
    today: i64,
}

/// What something is known by: the content, and in which way it was worked out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheKey {
    pub blob: String,
    pub form: String,
}

/// Bytes as they are kept, with a sum that shows damage.
#[derive(Debug, Clone)]
pub struct Packed {
    plain: usize,
    zstd: Vec<u8>,
}

impl Packed {
    pub fn of(bytes: &[u8]) -> Self {
        // What cannot be packed reads as damaged, and is worked out again.
        Self { plain: bytes.len(), zstd: packer::pack(bytes).unwrap_or_default() }
    }

    /// None: they are damaged.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        packer::unpack(&self.zstd, self.plain).ok().filter(|bytes| bytes.len() == self.plain)
    }
}

impl Store {
    /// The cache of a repository that has a database; what another `version` of the program kept there is gone.
    pub async fn cache(&self, repo: RepoId, version: &str) -> Result<Cache, StoreError> {
        let (directory, now) = (self.repo_dir(repo), self.clock.now());
        let version = format!("{LAYOUT} {version}");
        off_thread(move || {
            // A folder with nothing but a cache would seem to have lost its database.
            if !directory.join(repository::FILE).exists() {
                return Err(StoreError::Missing { what: format!("a database of repository {repo}") });
            }
            Cache::open(directory.join(FILE), &version, now)
        })
        .await
    }
}

impl Cache {
    fn open(file: PathBuf, version: &str, now: Timestamp) -> Result<Self, StoreError> {
        let today = now.0 / DAY_MS;
        let connect = || connect(&file, version).map_err(|fault| fault.at(&file));
        let connection = match connect() {
            Ok(Some(connection)) => connection,
            Ok(None) | Err(StoreError::Damaged { .. }) => {
                remove(&file)?;
                let again =
                    || StoreError::Damaged { file: file.clone(), detail: "it was just replaced".to_owned() };
                connect()?.ok_or_else(again)?
            }
            Err(error) => return Err(error),
        };
        Ok(Self { connection, file, today })
    }

    /// What is kept under each of these, in their order.
    pub fn get(&mut self, keys: &[CacheKey]) -> Result<Vec<Option<Packed>>, StoreError> {
        let today = self.today;
        self.run(|tx| get(tx, keys, today))
    }

    /// Keeps these from now on; what was asked for longest ago goes when it becomes too much.
    pub fn put(&mut self, entries: impl IntoIterator<Item = (CacheKey, Packed)>) -> Result<(), StoreError> {
        let today = self.today;
        self.run(|tx| {
            for (key, packed) in entries {
                put(tx, &key, &packed, today)?;
            }
            make_room(tx)
        })
    }

    fn run<R>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<R, Fault>) -> Result<R, StoreError> {
        let run = || -> Result<R, Fault> {
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = work(&tx)?;
            tx.commit()?;
            Ok(result)
        };
        run().map_err(|fault| {
            let error = fault.at(&self.file);
            if matches!(error, StoreError::Damaged { .. }) {
                // The next one begins anew.
                drop(remove(&self.file));
            }
            error
        })
    }
}

/// None: it was made by another version.
fn connect(file: &Path, version: &str) -> Result<Option<Connection>, Fault> {
    let connection = Connection::open(file)?;
    connection.busy_timeout(limits::FILE_LOCK)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.execute_batch(include_str!("migrations/cache.sql"))?;
    connection
        .execute("INSERT INTO made (version) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM made)", [version])?;
    let made: String = connection.query_row("SELECT version FROM made", [], |row| row.get(0))?;
    Ok((made == version).then_some(connection))
}

/// Whoever has it open goes on with what nobody sees any more.
fn remove(file: &Path) -> Result<(), StoreError> {
    for ending in ["", "-wal", "-shm"] {
        let mut path = file.as_os_str().to_owned();
        path.push(ending);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::Io { path: path.into(), source });
            }
            _ => {}
        }
    }
    Ok(())
}

fn get(tx: &Transaction<'_>, keys: &[CacheKey], today: i64) -> Result<Vec<Option<Packed>>, Fault> {
    // Most of what is kept is asked for each time, and one reading is faster than as many searches.
    let mut known: HashMap<(String, String), (i64, i64)> = HashMap::new();
    let mut statement = tx.prepare_cached("SELECT blob, form, id, used FROM content")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        known.insert((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?));
    }
    let mut found: Vec<Option<Packed>> = vec![None; keys.len()];
    let mut wanted: Vec<(i64, usize)> = Vec::new();
    let mut touch = tx.prepare_cached("UPDATE content SET used = ?2 WHERE id = ?1")?;
    for (at, key) in keys.iter().enumerate() {
        if let Some((id, used)) = known.get(&(key.blob.clone(), key.form.clone())) {
            wanted.push((*id, at));
            if *used != today {
                touch.execute([*id, today])?;
            }
        }
    }
    // As they lie in the file.
    wanted.sort_unstable();
    let mut statement = tx.prepare_cached("SELECT plain, zstd FROM body WHERE id = ?1")?;
    for (id, at) in wanted {
        let mut rows = statement.query([id])?;
        if let Some(row) = rows.next()? {
            let plain = usize::try_from(row.get::<_, i64>(0)?).unwrap_or(0).min(MOST_PLAIN);
            found[at] = Some(Packed { plain, zstd: row.get(1)? });
        }
    }
    Ok(found)
}

fn put(tx: &Transaction<'_>, key: &CacheKey, packed: &Packed, today: i64) -> Result<(), Fault> {
    let id: i64 = tx
        .prepare_cached(
            "INSERT INTO content (blob, form, bytes, used) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (blob, form) DO UPDATE SET bytes = excluded.bytes, used = excluded.used RETURNING id",
        )?
        .query_row(params![key.blob, key.form, signed(packed.zstd.len() as u64), today], |row| row.get(0))?;
    tx.prepare_cached("INSERT OR REPLACE INTO body (id, plain, zstd) VALUES (?1, ?2, ?3)")?
        .execute(params![id, signed(packed.plain as u64), packed.zstd])?;
    Ok(())
}

/// Down to half, lest it be done each time.
fn make_room(tx: &Transaction<'_>) -> Result<(), Fault> {
    let (rows, bytes): (i64, i64) = tx
        .prepare_cached("SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM content")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if unsigned(rows) <= limits::CACHE_ROWS && unsigned(bytes) <= limits::CACHE_BYTES {
        return Ok(());
    }
    tx.execute(
        "DELETE FROM content WHERE id IN (SELECT id FROM content ORDER BY used, id LIMIT ?1)",
        [rows / 2],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(blob: u32) -> CacheKey {
        CacheKey { blob: format!("{blob:040}"), form: "Rust".into() }
    }

    fn open(directory: &Path, version: &str, day: i64) -> Cache {
        Cache::open(directory.join(FILE), version, Timestamp(day * DAY_MS)).unwrap()
    }

    fn kept(cache: &mut Cache, blob: u32) -> Option<Vec<u8>> {
        cache.get(&[key(blob)]).unwrap().pop().unwrap().and_then(|packed| packed.bytes())
    }

    #[test]
    fn what_was_put_is_there_at_the_next_opening_of_the_same_version() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), "1", 0);
        cache.put([(key(1), Packed::of(b"one")), (key(2), Packed::of(b""))]).unwrap();
        cache.put([(key(1), Packed::of(b"another"))]).unwrap();
        drop(cache);
        let mut cache = open(directory.path(), "1", 0);
        let all = cache.get(&[key(2), key(3), key(1), CacheKey { form: "Go".into(), ..key(1) }]).unwrap();
        let all: Vec<_> = all.into_iter().map(|packed| packed.and_then(|packed| packed.bytes())).collect();
        assert_eq!(all, [Some(Vec::new()), None, Some(b"another".to_vec()), None]);
        drop(cache);
        assert_eq!(kept(&mut open(directory.path(), "2", 0), 1), None);
    }

    #[test]
    fn damage_costs_what_it_hit_or_the_whole_and_never_lasts() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = open(directory.path(), "1", 0);
        cache.put([(key(1), Packed::of(&[7; 999])), (key(2), Packed::of(b"two"))]).unwrap();
        let spoil =
            "UPDATE body SET zstd = CAST(substr(zstd, 1, length(zstd) - 1) || x'00' AS BLOB) WHERE id = 1";
        cache.connection.execute(spoil, []).unwrap();
        assert_eq!((kept(&mut cache, 1), kept(&mut cache, 2)), (None, Some(b"two".to_vec())));
        cache.put([(key(1), Packed::of(b"mended"))]).unwrap();
        assert_eq!(kept(&mut cache, 1).as_deref(), Some(&b"mended"[..]));
        drop(cache);

        std::fs::write(directory.path().join(FILE), [1; 8192]).unwrap();
        let mut cache = open(directory.path(), "1", 0);
        assert_eq!(kept(&mut cache, 2), None);
        cache.put([(key(2), Packed::of(b"two"))]).unwrap();
        drop(cache);
        assert_eq!(kept(&mut open(directory.path(), "1", 0), 2), Some(b"two".to_vec()));
    }

    #[test]
    fn what_was_asked_for_longest_ago_goes_first() {
        let directory = tempfile::tempdir().unwrap();
        let rows = u32::try_from(limits::CACHE_ROWS).unwrap();
        let none = Packed::of(b"");
        open(directory.path(), "1", 0).put((0..rows).map(|blob| (key(blob), none.clone()))).unwrap();
        let mut cache = open(directory.path(), "1", 1);
        assert!(kept(&mut cache, 0).is_some() && kept(&mut cache, rows - 1).is_some());
        cache.put([(key(rows), none)]).unwrap();
        assert!(kept(&mut cache, 0).is_some() && kept(&mut cache, rows).is_some(), "used today");
        assert!(kept(&mut cache, 1).is_none() && kept(&mut cache, rows - 2).is_some());
        let bodies: i64 =
            cache.connection.query_row("SELECT COUNT(*) FROM body", [], |row| row.get(0)).unwrap();
        assert_eq!(unsigned(bodies), limits::CACHE_ROWS + 1 - limits::CACHE_ROWS.div_ceil(2));
    }
}
