//! One database: an SQLite file with a single writing connection, or a scope of a PostgreSQL database (the server's own
//! tables, or those of one repository).

mod commit_queue;
mod commit_watch;

use std::{
    fs,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, TransactionBehavior, config::DbConfig};
use tokio::sync::oneshot;

use self::commit_queue::{CommitQueue, TransactionKind, TransactionOutcome};
use super::{
    backup::sync_directory,
    error::{StoreError, TransactionError},
    postgres_backend::PostgresScope,
    sql::Transaction,
    upgrade_copies::UpgradeCopies,
};
use crate::limits;

/// Maximum number of prepared statements cached per open database. The busiest database uses about thirty.
const CACHED_STATEMENTS: usize = 40;

/// Migrations, application ID and access pattern of one type of database.
pub(super) struct DatabaseSchema {
    /// SQLite's `application_id` for this type of database. We never write to a file with another ID.
    pub(super) application_id: i32,
    pub(super) migrations: &'static [&'static str],
    pub(super) traffic: DatabaseTraffic,
}

/// Access pattern of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatabaseTraffic {
    /// The file is rarely accessed concurrently. Many such files are open at the same time.
    Quiet,
    /// The file has many concurrent accesses. Short reads use a second connection, so that they never wait for a
    /// commit.
    Busy,
}

impl DatabaseSchema {
    pub(super) fn version(&self) -> u32 {
        u32::try_from(self.migrations.len()).unwrap_or(u32::MAX)
    }
}

pub use commit_watch::SimulatedDisk;

/// Commit callback, change signal and commit durations, shared by all databases of a store.
pub(super) type SharedCommitWatch = Arc<commit_watch::CommitWatch>;

/// Policy for verifying the whole file when it is opened. The duration of the check is proportional to the file size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpeningCheck {
    /// The file is verified only after an unclean shutdown, which leaves a non-empty log.
    IfUnclean,
    Whole,
}

/// A database. Clones share one connection.
#[derive(Clone)]
pub(super) struct Database {
    shared: Arc<DatabaseInner>,
}

struct DatabaseInner {
    /// File name that is used in error messages and commit callbacks.
    file: PathBuf,
    backend: DatabaseBackend,
    queue: Arc<Mutex<CommitQueue>>,
    watch: SharedCommitWatch,
}

#[allow(clippy::large_enum_variant, reason = "nearly all are files")]
enum DatabaseBackend {
    SqliteFile {
        connection: Mutex<Connection>,
        /// Second connection for short reads. Set only for busy files.
        reader: Option<Mutex<Connection>>,
    },
    Postgres(PostgresScope),
}

impl DatabaseInner {
    /// Runs `work` in a transaction, and commits the transaction if `work` returns `true`. Transactions on one database
    /// are serialized across all processes.
    fn transact(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<bool, TransactionError>,
    ) -> Result<bool, TransactionError> {
        match &self.backend {
            DatabaseBackend::SqliteFile { connection, .. } => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                self.watch.apply_disk(&connection)?;
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                if !work(&Transaction::File(&tx))? {
                    return Ok(false);
                }
                let begun = Instant::now();
                let committed = tx.commit();
                // A failing disk may take long to report the error, so failed commits count too.
                self.watch.commit_seconds.observe(begun.elapsed().as_secs_f64());
                committed?;
                Ok(true)
            }
            DatabaseBackend::Postgres(part) => {
                let begun = Instant::now();
                let committed = part.transact(work);
                self.watch.commit_seconds.observe(begun.elapsed().as_secs_f64());
                committed
            }
        }
    }

    /// Runs `work` on one snapshot. Any writes of `work` are discarded.
    fn snapshot<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
    ) -> Result<R, TransactionError> {
        match &self.backend {
            DatabaseBackend::SqliteFile { connection, .. } => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let tx = connection.transaction()?;
                work(&Transaction::File(&tx))
            }
            DatabaseBackend::Postgres(part) => part.snapshot(work),
        }
    }

    /// Like `snapshot`, but returns `work` without running it if it would have to wait for a commit or for the network.
    fn try_snapshot<R, W>(&self, work: W) -> Result<Result<R, TransactionError>, W>
    where
        W: FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
    {
        let DatabaseBackend::SqliteFile { connection, reader } = &self.backend else { return Err(work) };
        let free = match reader {
            Some(reader) => Some(reader.lock().unwrap_or_else(PoisonError::into_inner)),
            None => connection.try_lock().ok(),
        };
        let Some(mut connection) = free else { return Err(work) };
        Ok(match connection.transaction() {
            Ok(tx) => work(&Transaction::File(&tx)),
            Err(error) => Err(error.into()),
        })
    }
}

impl Drop for DatabaseInner {
    /// Checkpoints and truncates the log instead of letting SQLite delete it. Otherwise the next opening would have to
    /// create a new log file, which is its most expensive part.
    fn drop(&mut self) {
        let DatabaseBackend::SqliteFile { connection, .. } = &mut self.backend else { return };
        let connection = connection.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Do not wait for readers. A log that stays non-empty only makes the next opening verify the file.
        let _ = connection.busy_timeout(Duration::ZERO);
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }
}

impl Database {
    /// Opens or creates `file`. Refuses a file that is damaged or empty, or that belongs to another program or a newer
    /// version. A refused file is left unchanged.
    pub(super) fn open(
        file: &Path,
        schema: &DatabaseSchema,
        watch: SharedCommitWatch,
        kept: Option<&UpgradeCopies>,
    ) -> Result<Self, StoreError> {
        Self::open_checked(file, schema, watch, OpeningCheck::IfUnclean, kept)
    }

    /// Like [`open`](Self::open), but the caller decides when the whole file is verified.
    pub(super) fn open_checked(
        file: &Path,
        schema: &DatabaseSchema,
        watch: SharedCommitWatch,
        check: OpeningCheck,
        kept: Option<&UpgradeCopies>,
    ) -> Result<Self, StoreError> {
        if !must_not_be_empty(file)? {
            create_database(file, schema)?;
        }
        let version = inspect_file(file, schema, check, kept)?;
        if let Some(kept) = kept.filter(|_| (1..schema.version()).contains(&version)) {
            kept.copy(file, version)?;
        }
        let open = || -> Result<Connection, TransactionError> {
            let mut connection = Connection::open(file)?;
            connection.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "foreign_keys", true)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
            migrate_database(&mut connection, schema)?;
            Ok(connection)
        };
        let read = || -> Result<Connection, TransactionError> {
            let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
            connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
            Ok(connection)
        };
        let at = |fault: TransactionError| fault.with_path(file);
        let connection = Mutex::new(open().map_err(at)?);
        let reader =
            (schema.traffic == DatabaseTraffic::Busy).then(read).transpose().map_err(at)?.map(Mutex::new);
        Ok(Self::with_backend(file.to_owned(), DatabaseBackend::SqliteFile { connection, reader }, watch))
    }

    /// Creates a database from a scope of a PostgreSQL database.
    pub(super) fn from_postgres(part: PostgresScope, watch: SharedCommitWatch) -> Self {
        Self::with_backend(part.name(), DatabaseBackend::Postgres(part), watch)
    }

    fn with_backend(file: PathBuf, home: DatabaseBackend, watch: SharedCommitWatch) -> Self {
        Self { shared: Arc::new(DatabaseInner { file, backend: home, queue: Arc::default(), watch }) }
    }

    /// Runs `work` as if in its own transaction, and returns when its changes are on disk. Concurrent writes share one
    /// commit, but each of them succeeds or fails independently.
    pub(super) async fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.await_outcome(commit_queue::enqueue(&self.shared, TransactionKind::Write, work)).await
    }

    /// Like [`write`](Self::write), but runs on the calling thread if no other write is running, which saves two thread
    /// switches. Because it blocks the whole task, only code in its own task may call it.
    pub(super) async fn write_here<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.await_outcome(commit_queue::enqueue(&self.shared, TransactionKind::WriteHere, work)).await
    }

    /// Returns whether other processes also write to this database.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.shared.backend, DatabaseBackend::Postgres(_))
    }

    /// Limits the size of the page cache, because many databases are open at the same time.
    pub(super) fn limit_page_cache(&self, cache_kib: u32) {
        let DatabaseBackend::SqliteFile { connection, .. } = &self.shared.backend else { return };
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        // Not worth an error: the default cache size works as well.
        let _ = connection.pragma_update(None, "cache_size", -i64::from(cache_kib));
    }

    /// Runs `work` on one snapshot. Any writes of `work` are discarded. Waits for at most one commit.
    pub(super) async fn read<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.await_outcome(commit_queue::enqueue(&self.shared, TransactionKind::Read, work)).await
    }

    /// Like [`read`](Self::read), but for reading only a few rows. Runs on the calling thread if no commit is running,
    /// which saves two thread switches.
    pub(super) async fn read_small<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        match self.shared.try_snapshot(work) {
            Ok(read) => read.map_err(|fault| fault.with_path(&self.shared.file)),
            Err(work) => self.read(work).await,
        }
    }

    /// Writes on the calling thread. Used while the store is being opened.
    pub(super) fn write_blocking<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
    ) -> Result<R, StoreError> {
        let mut result = None;
        let written = self.shared.transact(|tx| {
            result = Some(work(tx)?);
            Ok(true)
        });
        written.map_err(|fault| fault.with_path(&self.shared.file))?;
        result.ok_or(StoreError::Closing)
    }

    /// Reads on the calling thread, which must be allowed to block.
    pub(super) fn read_blocking<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
    ) -> Result<R, StoreError> {
        self.shared.snapshot(work).map_err(|fault| fault.with_path(&self.shared.file))
    }

    async fn await_outcome<R>(
        &self,
        answer: oneshot::Receiver<TransactionOutcome<R>>,
    ) -> Result<R, StoreError> {
        match answer.await {
            Ok(Ok(result)) => result.map_err(|fault| fault.with_path(&self.shared.file)),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closing),
        }
    }
}

/// Page size of our SQLite files in bytes. A shorter file cannot be a database, but SQLite would treat it as an empty
/// one.
const MIN_FILE_BYTES: u64 = 4096;

/// Returns whether the file exists.
///
/// # Errors
/// [`StoreError::Damaged`] if the file is shorter than one page, or if the file is missing although its log exists. In
/// both cases, SQLite would create a new database.
pub(super) fn must_not_be_empty(file: &Path) -> Result<bool, StoreError> {
    let damaged = |detail: &str| StoreError::Damaged { file: file.to_owned(), detail: detail.to_owned() };
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() == 0 => Err(damaged("it is empty")),
        Ok(metadata) if metadata.len() < MIN_FILE_BYTES => Err(damaged("it is cut short")),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if is_unclean(file) {
                Err(damaged("it is missing, and its log is not"))
            } else {
                Ok(false)
            }
        }
        Err(source) => Err(StoreError::Io { path: file.to_owned(), source }),
    }
}

/// File name suffix of a database that is still being created.
pub(super) const UNFINISHED_SUFFIX: &str = "-new";

/// Creates a database without rows under a temporary name, syncs it to disk and renames it. As a result, a file with
/// the final name is never empty.
fn create_database(file: &Path, schema: &DatabaseSchema) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: file.to_owned(), source };
    let mut half = file.as_os_str().to_owned();
    half.push(UNFINISHED_SUFFIX);
    let half = PathBuf::from(half);
    drop(fs::remove_file(&half));
    let write = || -> Result<(), TransactionError> {
        let mut blank = Connection::open_in_memory()?;
        migrate_database(&mut blank, schema)?;
        Ok(vacuum_into(&blank, &half)?)
    };
    let written = write().map_err(|fault| fault.with_path(file)).and_then(|()| {
        fs::File::open(&half).and_then(|half| half.sync_all()).map_err(io)?;
        fs::rename(&half, file).map_err(io)
    });
    if written.is_err() {
        drop(fs::remove_file(&half));
    }
    written?;
    sync_directory(file.parent().unwrap_or(file))
}

/// Writes a copy of a database that leaves out free pages.
pub(super) fn vacuum_into(database: &Connection, to: &Path) -> rusqlite::Result<()> {
    // Paths are bytes and need not be UTF-8.
    database.execute("VACUUM INTO CAST(?1 AS TEXT)", [to.as_os_str().as_bytes()]).map(drop)
}

/// Checks a file before anything is written to it, and returns its schema version.
fn inspect_file(
    file: &Path,
    schema: &DatabaseSchema,
    check: OpeningCheck,
    kept: Option<&UpgradeCopies>,
) -> Result<u32, StoreError> {
    let io = |source| StoreError::Io { path: file.to_owned(), source };
    let damaged = |detail: String| StoreError::Damaged { file: file.to_owned(), detail };
    let (mark, version) = if check == OpeningCheck::Whole || is_unclean(file) {
        let (mark, version, check) = read_through(file).map_err(|fault| fault.with_path(file))?;
        if check != "ok" {
            return Err(damaged(check));
        }
        (mark, version)
    } else {
        read_header(file).map_err(io)?.ok_or_else(|| damaged("it is not an SQLite file".to_owned()))?
    };
    if version > schema.version() {
        let known = schema.version();
        let copy = kept.and_then(|kept| kept.newest_readable(known));
        return Err(StoreError::Newer { file: file.to_owned(), found: version, known, copy });
    }
    if mark != schema.application_id {
        return Err(damaged(format!(
            "it carries the mark {mark:#x} instead of {:#x}",
            schema.application_id
        )));
    }
    Ok(version)
}

/// Verifies a whole file and its log through a read-only connection. Returns the application ID, the schema version,
/// and the result of SQLite's integrity check.
pub(super) fn read_through(file: &Path) -> Result<(i32, u32, String), TransactionError> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
    let mark = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((mark, version, check))
}

/// Reads the application ID and schema version from the header of a file whose log is empty. Returns `None` if the file
/// is too short or not an SQLite file.
fn read_header(file: &Path) -> std::io::Result<Option<(i32, u32)>> {
    let mut bytes = [0; 72];
    match fs::File::open(file)?.read_exact(&mut bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let number = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let ours = bytes.starts_with(b"SQLite format 3\0");
    Ok(ours.then(|| (i32::from_be_bytes(number(68)), u32::from_be_bytes(number(60)))))
}

/// Returns whether the log is non-empty. A clean shutdown empties or removes the log.
fn is_unclean(file: &Path) -> bool {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    fs::metadata(log).is_ok_and(|log| log.len() > 0)
}

fn migrate_database(connection: &mut Connection, schema: &DatabaseSchema) -> Result<(), TransactionError> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for (number, migration) in (1_u32..).zip(schema.migrations).skip(version as usize) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "application_id", schema.application_id)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Converts an ID of GitHub or one of our counters to SQLite's integer type.
pub(super) fn to_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn to_unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests;
