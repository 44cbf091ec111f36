//! Backups: copies of a data directory or PostgreSQL database as files, made while a server runs. The backup command
//! reads the databases itself, without the server's help.
//!
//! Each database is copied as one snapshot, `main.db` first. The copy may therefore contain a run whose delivery is
//! still unprocessed in the copied `main.db`. A restored server processes that delivery again and recognises it by its
//! ID. In the opposite order, the delivery would be lost. The copy has a wake hint for every repository in it. Mirrors
//! are not copied, because a restored server fetches them again.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rusqlite::{Connection, OpenFlags};
use tokio_util::sync::CancellationToken;

use super::{
    DatabaseSource, MAIN_SCHEMA, StoreError, create_directory,
    database::{Database, SharedCommitWatch, must_not_be_empty, vacuum_into},
    database_source,
    error::TransactionError,
    forget_repository, move_to_postgres,
    repository::REPOSITORY_SCHEMA,
    sql::Transaction,
    wake_hints,
};
use crate::{limits, types::RepoId};

/// Result of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSummary {
    pub repositories: usize,
    pub bytes: u64,
    /// Databases that could not be copied, each with the reason for the failure.
    pub missing: Vec<String>,
}

/// Copies all data except mirrors to the directory `to`, which must be empty or must not exist. The files appear in
/// `to` only when the copy is complete.
///
/// # Errors
/// [`StoreError::Closing`] if `stop` was cancelled. After any failure, no files remain.
pub fn create_backup(
    from: &DatabaseSource,
    to: &Path,
    stop: &CancellationToken,
) -> Result<BackupSummary, StoreError> {
    require_empty_target(to)?;
    let half = partial_backup_path(to)?;
    let done = fill_backup(from, &half, stop).and_then(|done| {
        let io = |source| StoreError::Io { path: to.to_owned(), source };
        fs::rename(&half, to).map_err(io)?;
        sync_directory(to.parent().unwrap_or(to))?;
        Ok(done)
    });
    if done.is_err() {
        drop(fs::remove_dir_all(&half));
    }
    done
}

/// Copies the server's own tables into a database in the empty directory `to`. If `repo` is set, also copies the tables
/// of that repository. Used to try out an operation on a copy.
///
/// # Errors
/// Returns an error if a database cannot be read or `to` cannot be written.
pub fn copy_databases(from: &DatabaseSource, repo: Option<RepoId>, to: &Path) -> Result<(), StoreError> {
    for part in [None].into_iter().chain(repo.filter(|repo| from.may_hold(*repo)).map(Some)) {
        copy_one_database(from, part, to, &CancellationToken::new())?;
    }
    Ok(())
}

/// Copies the tables of a repository, or the server's own tables if `part` is `None`, to a database file below `to`.
/// Returns the file size.
fn copy_one_database(
    from: &DatabaseSource,
    part: Option<RepoId>,
    to: &Path,
    stop: &CancellationToken,
) -> Result<u64, StoreError> {
    let file = database_source::database_file(to, part);
    let directory = file.parent().unwrap_or(to);
    create_directory(directory)?;
    match from {
        DatabaseSource::Files(root) => {
            copy_database(&database_source::database_file(root, part), &file, stop)
        }
        DatabaseSource::Server(_) => {
            let io = |source| StoreError::Io { path: directory.to_owned(), source };
            let filled = tempfile::tempdir_in(directory).map_err(io)?;
            let filled = filled.path().join("filled.db");
            let schema = if part.is_some() { &REPOSITORY_SCHEMA } else { &MAIN_SCHEMA };
            move_to_postgres::fetch_tables(
                from,
                part,
                &Database::open(&filled, schema, SharedCommitWatch::default(), None)?,
                stop,
            )?;
            copy_database(&filled, &file, stop)
        }
    }
}

fn require_empty_target(to: &Path) -> Result<(), StoreError> {
    let taken = |what: &str| StoreError::Io {
        path: to.to_owned(),
        source: io::Error::new(io::ErrorKind::AlreadyExists, what.to_owned()),
    };
    match fs::read_dir(to).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(taken("a backup goes into a new directory, and this one holds something")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(StoreError::Io { path: to.to_owned(), source }),
    }
}

/// Returns a temporary path in the target's parent directory. Renaming the directory at this path to the target
/// completes the backup. Every call returns a different path, so that concurrent backups do not interfere.
fn partial_backup_path(to: &Path) -> Result<PathBuf, StoreError> {
    let nameless = || StoreError::Io {
        path: to.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "a backup needs a directory with a name"),
    };
    let mut name = to.file_name().ok_or_else(nameless)?.to_owned();
    static MADE: AtomicU64 = AtomicU64::new(0);
    name.push(format!(".{}-{}.half-done", std::process::id(), MADE.fetch_add(1, Relaxed)));
    Ok(to.with_file_name(name))
}

fn fill_backup(
    from: &DatabaseSource,
    half: &Path,
    stop: &CancellationToken,
) -> Result<BackupSummary, StoreError> {
    create_directory(half)?;
    let main = half.join("main.db");
    let mut bytes = copy_one_database(from, None, half, stop)?;
    let (mut copied, mut missing) = (Vec::new(), Vec::new());
    // Listed after main.db was copied, so the copy includes repositories created meanwhile.
    for repo in from.repositories()? {
        let place = half.join("repos").join(repo.to_string());
        match copy_one_database(from, Some(repo), half, stop) {
            Ok(size) => bytes += size,
            // The repository was forgotten since the listing.
            Err(_) if !from.may_hold(repo) => {
                forget_repository::remove_directory(&place)?;
                continue;
            }
            Err(StoreError::Closing) => return Err(StoreError::Closing),
            Err(error) if error.is_about(half) => return Err(error),
            Err(error) => {
                tracing::error!(%repo, %error, "could not copy a repository's database; continuing without it");
                missing.push(error.to_string());
                forget_repository::remove_directory(&place)?;
                continue;
            }
        }
        sync_directory(&place)?;
        copied.push(repo);
    }
    reset_copy(&main, &copied).map_err(|fault| fault.with_path(&main))?;
    sync_file(&main)?;
    if half.join("repos").exists() {
        sync_directory(&half.join("repos"))?;
    }
    sync_directory(half)?;
    Ok(BackupSummary { repositories: copied.len(), bytes, missing })
}

/// Number of SQLite instructions between two checks for cancellation. Copying a row takes only a few instructions,
/// whatever the row's size.
const PROGRESS_STEPS: i32 = 1_000;

/// Copies a snapshot of a database, without its free pages, and returns the file size. Writers are not blocked.
pub(super) fn copy_database(from: &Path, to: &Path, stop: &CancellationToken) -> Result<u64, StoreError> {
    must_not_be_empty(from)?;
    let run = || -> Result<(), TransactionError> {
        let mut connection = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
        let stopped = stop.clone();
        connection.progress_handler(PROGRESS_STEPS, Some(move || stopped.is_cancelled()))?;
        Ok(vacuum_into(&connection, to)?)
    };
    let copied = run();
    if stop.is_cancelled() {
        return Err(StoreError::Closing);
    }
    // A write failure concerns the target, since the source is only read.
    copied.map_err(
        |fault| if fault.is_write_failure() { fault.with_path(to) } else { fault.with_path(from) },
    )?;
    sync_file(to)?;
    let size = fs::metadata(to).map_err(|source| StoreError::Io { path: to.to_owned(), source })?;
    Ok(size.len())
}

/// Adds a wake hint for every repository and removes the boot number. Without a boot number, a server that starts on
/// the copy scans all repositories, including those that the copy does not know.
fn reset_copy(main: &Path, repositories: &[RepoId]) -> Result<(), TransactionError> {
    let mut connection = Connection::open(main)?;
    let tx = connection.transaction()?;
    wake_hints::insert_hints(&Transaction::File(&tx), repositories)?;
    tx.execute("DELETE FROM meta WHERE key = 'epoch'", [])?;
    Ok(tx.commit()?)
}

fn sync_file(file: &Path) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: file.to_owned(), source };
    File::open(file).and_then(|file| file.sync_all()).map_err(io)
}

pub(super) fn sync_directory(directory: &Path) -> Result<(), StoreError> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    sync_file(directory)
}
