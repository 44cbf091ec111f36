//! Open repository databases, up to a limit. When the limit is exceeded, the least recently used idle databases are
//! closed.
//!
//! Opening may verify the whole file, and closing checkpoints the log. Both happen on separate threads, one at a time
//! per repository but for several repositories in parallel. A slow file therefore delays only the callers that need it.
//! A database that is already open is returned immediately.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard, Semaphore};

use super::{RepositoryDatabase, StoreError, database::OpeningCheck, run_blocking};
use crate::{limits, types::RepoId};

/// Maximum number of databases that are being opened at the same time. After an unclean shutdown, each file is verified
/// completely, at the speed of the disk. With 16 openings, a few large files do not block all others, and the memory
/// for threads and page caches (2 MB each) stays negligible.
const MAX_CONCURRENT_OPENINGS: usize = 16;

pub(super) struct OpenDatabases {
    inner: Mutex<OpenDatabasesState>,
    openings: Arc<Semaphore>,
}

#[derive(Default)]
struct OpenDatabasesState {
    open: HashMap<RepoId, OpenDatabase>,
    known: HashMap<RepoId, KnownDatabase>,
    uses: u64,
}

struct OpenDatabase {
    db: Arc<RepositoryDatabase>,
    used: u64,
}

/// State of a repository's database, whether or not the database is open.
#[derive(Default)]
struct KnownDatabase {
    /// Lock that is held while the database is being opened or closed.
    opening_lock: Arc<Turn<()>>,
    /// Whether the current process has opened the database before.
    opened_before: bool,
    /// Whether the database was found to be damaged. If so, it is verified completely before it is used again.
    suspect: bool,
}

/// Parameters for opening a database.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatabaseOpening {
    pub(super) check: OpeningCheck,
    /// Whether the current process opens the database for the first time.
    pub(super) first: bool,
}

/// An evicted database, which must be closed on a thread that may block. Nobody can open the database again until it is
/// closed.
pub(super) struct EvictedDatabase {
    db: Option<Arc<RepositoryDatabase>>,
    opening_lock: OwnedMutexGuard<()>,
}

impl EvictedDatabase {
    /// Closes the database, unless somebody still uses it. Nobody can open the database again until the returned guard
    /// is dropped.
    pub(super) fn close(self) -> OwnedMutexGuard<()> {
        drop(self.db);
        self.opening_lock
    }
}

impl Default for OpenDatabases {
    fn default() -> Self {
        Self { inner: Mutex::default(), openings: Arc::new(Semaphore::new(MAX_CONCURRENT_OPENINGS)) }
    }
}

impl OpenDatabases {
    /// Returns the database of `repo` if the database is open and not damaged.
    pub(super) fn get_open(&self, repo: RepoId) -> Option<Arc<RepositoryDatabase>> {
        let mut inner = self.lock();
        inner.uses += 1;
        let used = inner.uses;
        let open = inner.open.get_mut(&repo).filter(|open| !open.db.is_damaged())?;
        open.used = used;
        Some(Arc::clone(&open.db))
    }

    /// Returns the open database of `repo`. If it is not open, opens it with `open`. The opening completes even if the
    /// caller is dropped.
    pub(super) async fn get_or_open(
        self: &Arc<Self>,
        repo: RepoId,
        open: impl FnOnce(DatabaseOpening) -> Result<RepositoryDatabase, StoreError> + Send + 'static,
    ) -> Result<Arc<RepositoryDatabase>, StoreError> {
        let turn = self.opening_lock(repo).lock_owned().await;
        if let Some(opened) = self.get_open(repo) {
            return Ok(opened);
        }
        let permit = Arc::clone(&self.openings).acquire_owned().await.map_err(|_| StoreError::Closing)?;
        let databases = Arc::clone(self);
        run_blocking(move || {
            let _until_it_is_open = (turn, permit);
            drop(databases.remove_damaged(repo));
            let opened = open(databases.next_opening(repo)).map(Arc::new);
            for other in databases.insert_opened(repo, &opened) {
                drop(other.close());
            }
            opened
        })
        .await
    }

    /// Removes the database of a repository whose data is being deleted. Code that still uses the database may
    /// continue.
    pub(super) async fn remove(&self, repo: RepoId) -> EvictedDatabase {
        let turn = self.opening_lock(repo).lock_owned().await;
        let mut inner = self.lock();
        let known = inner.known.entry(repo).or_default();
        (known.opened_before, known.suspect) = (false, false);
        EvictedDatabase { db: inner.open.remove(&repo).map(|open| open.db), opening_lock: turn }
    }

    fn opening_lock(&self, repo: RepoId) -> Arc<Turn<()>> {
        Arc::clone(&self.lock().known.entry(repo).or_default().opening_lock)
    }

    /// Removes a damaged database from the open ones, and marks it for full verification at the next opening.
    fn remove_damaged(&self, repo: RepoId) -> Option<OpenDatabase> {
        let mut inner = self.lock();
        let damaged = inner.open.remove(&repo)?;
        inner.known.entry(repo).or_default().suspect = true;
        Some(damaged)
    }

    fn next_opening(&self, repo: RepoId) -> DatabaseOpening {
        let mut inner = self.lock();
        let known = inner.known.entry(repo).or_default();
        let check = if known.suspect { OpeningCheck::Whole } else { OpeningCheck::IfUnclean };
        DatabaseOpening { check, first: !known.opened_before }
    }

    /// Stores the result of an opening. Returns the databases that must be closed to stay within the limit.
    fn insert_opened(
        &self,
        repo: RepoId,
        opened: &Result<Arc<RepositoryDatabase>, StoreError>,
    ) -> Vec<EvictedDatabase> {
        let mut inner = self.lock();
        inner.uses += 1;
        let used = inner.uses;
        let known = inner.known.entry(repo).or_default();
        match opened {
            Ok(db) => {
                (known.opened_before, known.suspect) = (true, false);
                inner.open.insert(repo, OpenDatabase { db: Arc::clone(db), used });
                inner.evict_unused()
            }
            Err(error) => {
                known.suspect |= matches!(error, StoreError::Damaged { .. });
                Vec::new()
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenDatabasesState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenDatabasesState {
    /// Removes the least recently used idle databases beyond the limit. Nobody can start to use these databases until
    /// they are closed.
    fn evict_unused(&mut self) -> Vec<EvictedDatabase> {
        let too_many = self.open.len().saturating_sub(limits::OPEN_REPOSITORIES);
        if too_many == 0 {
            return Vec::new();
        }
        let idle = self.open.iter().filter(|(_, open)| Arc::strong_count(&open.db) == 1);
        let mut by_use: Vec<_> = idle.map(|(repo, open)| (open.used, *repo)).collect();
        by_use.sort_unstable();
        let mut evicted = Vec::new();
        for (_, repo) in by_use {
            if evicted.len() == too_many {
                break;
            }
            let Some(known) = self.known.get(&repo) else { continue };
            // Somebody is about to use it.
            let Ok(turn) = Arc::clone(&known.opening_lock).try_lock_owned() else { continue };
            evicted.push(EvictedDatabase {
                db: self.open.remove(&repo).map(|open| open.db),
                opening_lock: turn,
            });
        }
        evicted
    }
}
