//! The databases: the only room that knows SQL.
//!
//! A data directory holds `main.db` (inbox, installations, repositories, wake hints) and, for each
//! repository, `repos/<id>/checkpoints.db` (runs, their journals, documents and ledgers) beside its
//! mirror. One process at a time may have the directory. Every function is one transaction on one
//! file; what must hold across files is said in [`hints`]. Nothing here decides anything: no
//! workflow, no GitHub, no rule about who may do what.

mod database;
mod directory;
mod error;
pub mod hints;
mod inbox;
mod repository;
mod rows;
mod wake;

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fs::{FlockOperation, flock};

use self::{
    database::{Database, Schema},
    error::Fault,
};
pub use self::{
    directory::{Directory, InstallationRow, RepoRow},
    error::StoreError,
    hints::{Hint, Rest},
    inbox::{Accepted, Inbox, InboxCounts, NewDelivery, Taken},
    repository::RepoDb,
    rows::*,
};
use crate::{clock::SharedClock, types::RepoId};

const MAIN: Schema = Schema { mark: 0x4353_6d31, migrations: &[include_str!("migrations/main-1.sql")] };

/// The open data directory.
pub struct Store {
    root: PathBuf,
    main: Database,
    clock: SharedClock,
    /// Counts boots; what an older boot had taken is free.
    epoch: i64,
    repositories: Mutex<HashMap<RepoId, Arc<RepoDb>>>,
    /// Locked for as long as the store is open.
    _lock: fs::File,
}

impl Store {
    /// Opens (or creates) a data directory for this process alone and counts the boot.
    pub fn open(root: &Path, clock: SharedClock) -> Result<Arc<Self>, StoreError> {
        create_directory(root)?;
        let lock_path = root.join("lock");
        let io = |source| StoreError::Io { path: lock_path.clone(), source };
        let lock =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(io)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(StoreError::InUse { directory: root.to_owned() });
            }
            Err(errno) => return Err(io(errno.into())),
        }
        let file = root.join("main.db");
        let main = Database::open(&file, &MAIN)?;
        let epoch = main.write_now(boot)?;
        Ok(Arc::new(Self {
            root: root.to_owned(),
            main,
            clock,
            epoch,
            repositories: Mutex::default(),
            _lock: lock,
        }))
    }

    pub fn inbox(&self) -> Inbox<'_> {
        Inbox { store: self }
    }

    pub fn directory(&self) -> Directory<'_> {
        Directory { store: self }
    }

    /// Where everything of a repository lies: `checkpoints.db` and `mirror.git`.
    pub fn repo_dir(&self, repo: RepoId) -> PathBuf {
        self.root.join("repos").join(repo.to_string())
    }

    /// The repository's own database, created at its first use. A damaged one is an error for this
    /// repository only, and is left as it is.
    pub fn repo(&self, repo: RepoId) -> Result<Arc<RepoDb>, StoreError> {
        let mut open = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = open.get(&repo) {
            return Ok(Arc::clone(found));
        }
        let directory = self.repo_dir(repo);
        create_directory(&directory)?;
        let opened = RepoDb::open(&directory, repo, self.epoch, Arc::clone(&self.clock))?;
        let opened = Arc::new(opened);
        open.insert(repo, Arc::clone(&opened));
        Ok(opened)
    }

    /// The same, but a repository that has no database yet is not given one.
    pub fn repo_if_any(&self, repo: RepoId) -> Result<Option<Arc<RepoDb>>, StoreError> {
        let exists = self.repo_dir(repo).join("checkpoints.db").exists();
        exists.then(|| self.repo(repo)).transpose()
    }

    /// Every repository that has a database, by number.
    pub fn repos(&self) -> Result<Vec<RepoId>, StoreError> {
        let path = self.root.join("repos");
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(StoreError::Io { path, source }),
        };
        let mut found: Vec<RepoId> = entries
            .filter_map(Result::ok)
            .filter(|entry| entry.path().join("checkpoints.db").exists())
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        found.sort_unstable();
        Ok(found)
    }
}

/// A new epoch; every repository with a hint is due for a look, whatever it had been waiting for.
fn boot(tx: &rusqlite::Transaction<'_>) -> Result<i64, Fault> {
    let before: Option<String> = rusqlite::OptionalExtension::optional(tx.query_row(
        "SELECT value FROM meta WHERE key = 'epoch'",
        [],
        |row| row.get(0),
    ))?;
    let epoch = before.and_then(|value| value.parse::<i64>().ok()).unwrap_or(0) + 1;
    directory::set_meta(tx, "epoch", &epoch.to_string())?;
    tx.execute("UPDATE hint SET seq = seq + 1, due = 0", [])?;
    Ok(epoch)
}

/// Creates a directory that only we may read; one that exists keeps its mode.
fn create_directory(path: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| StoreError::Io { path: path.to_owned(), source })
}
