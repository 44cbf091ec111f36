//! One SQLite file: opened with care, migrated, and written by one connection.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::error::{Fault, StoreError};

/// The steps from an empty file to what this version expects, and the mark our files carry.
pub(super) struct Schema {
    /// SQLite's `application_id`, so that a foreign database in our place is not written to.
    pub(super) mark: i32,
    pub(super) migrations: &'static [&'static str],
}

impl Schema {
    fn version(&self) -> u32 {
        u32::try_from(self.migrations.len()).unwrap_or(u32::MAX)
    }
}

/// Shared by all databases of a store, for proofs: who hears of commits, and what the disk is made to do.
pub(super) type Watch = Arc<Proof>;

/// Told of every commit, with the file it went to, before whoever asked for it hears of it.
type Told = Box<dyn Fn(&Path) + Send + Sync>;

#[derive(Default)]
pub(super) struct Proof {
    pub(super) told: OnceLock<Told>,
    /// None: never asked for, and connections are left as they are.
    pub(super) disk: Mutex<Option<Disk>>,
}

/// What a disk does to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Sound,
    /// No file can grow.
    Full,
    ReadOnly,
}

impl Proof {
    fn apply(&self, connection: &Connection) -> Result<(), Fault> {
        let Some(disk) = *self.disk.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        // SQLite takes any number below the file's own length for that length.
        let most: u32 = if disk == Disk::Full { 1 } else { MOST_PAGES };
        connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
        connection.pragma_update(None, "query_only", disk == Disk::ReadOnly)?;
        Ok(())
    }
}

/// SQLite's own limit.
const MOST_PAGES: u32 = 4_294_967_294;

/// A database file with its one writer. Clones share the connection.
#[derive(Clone)]
pub(super) struct Database {
    file: PathBuf,
    connection: Arc<Mutex<Connection>>,
    watch: Watch,
}

impl Database {
    /// Opens or creates `file`. A damaged, foreign or newer file is refused and left as it is.
    pub(super) fn open(file: &Path, schema: &Schema, watch: Watch) -> Result<Self, StoreError> {
        inspect(file, schema)?;
        let open = || -> Result<Connection, Fault> {
            let mut connection = Connection::open(file)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            migrate(&mut connection, schema)?;
            Ok(connection)
        };
        let connection = open().map_err(|fault| fault.at(file))?;
        Ok(Self { file: file.to_owned(), connection: Arc::new(Mutex::new(connection)), watch })
    }

    /// Runs `work` in one transaction (`BEGIN IMMEDIATE`) and commits it to disk.
    pub(super) async fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (file, watch) = (self.file.clone(), Arc::clone(&self.watch));
        self.blocking(move |connection| {
            watch.apply(connection)?;
            let result = commit(connection, work)?;
            if let Some(tell) = watch.told.get() {
                tell(&file);
            }
            Ok(result)
        })
        .await
    }

    /// The same on the calling thread, for opening.
    pub(super) fn write_now<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Fault>,
    ) -> Result<R, StoreError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        commit(&mut connection, work).map_err(|fault| fault.at(&self.file))
    }

    /// Runs `work` on one snapshot; nothing it writes is kept.
    pub(super) async fn read<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.blocking(move |connection| work(&connection.transaction()?)).await
    }

    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, StoreError> {
        let connection = Arc::clone(&self.connection);
        let task = tokio::task::spawn_blocking(move || {
            // A panic while the lock was held rolled its transaction back: the connection is sound.
            work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        match task.await {
            Ok(result) => result.map_err(|fault| fault.at(&self.file)),
            Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
            Err(_) => Err(StoreError::Closing),
        }
    }
}

fn commit<R>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<R, Fault>,
) -> Result<R, Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = work(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// Looks at an existing file through a read-only connection before anything may write to it.
fn inspect(file: &Path, schema: &Schema) -> Result<(), StoreError> {
    let size = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(StoreError::Io { path: file.to_owned(), source }),
    };
    if size == 0 {
        return Ok(()); // created, and the machine stopped before the first migration
    }
    let damaged = |detail: String| StoreError::Damaged { file: file.to_owned(), detail };
    let look = || -> Result<(i32, u32, String), Fault> {
        let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        let mark = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((mark, version, check))
    };
    let (mark, version, check) = look().map_err(|fault| fault.at(file))?;
    if check != "ok" {
        return Err(damaged(check));
    }
    if version > schema.version() {
        return Err(StoreError::Newer { file: file.to_owned(), found: version, known: schema.version() });
    }
    // An untouched header (WAL mode set, nothing migrated yet) has neither mark nor version.
    if mark != schema.mark && (mark, version) != (0, 0) {
        return Err(damaged(format!("it carries the mark {mark:#x} instead of {:#x}", schema.mark)));
    }
    Ok(())
}

fn migrate(connection: &mut Connection, schema: &Schema) -> Result<(), Fault> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (number, migration) in (1_u32..).zip(schema.migrations).skip(version as usize) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "application_id", schema.mark)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// GitHub's numbers and our counters as SQLite keeps them.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
