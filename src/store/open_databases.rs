//! The repository databases that are open: as many as fit, the one used longest ago is closed for another.
//!
//! Opening one may mean reading all of it, and closing one writes its log back. Both happen on threads of their own,
//! one at a time for each repository and several side by side, so that a slow file keeps only those waiting who ask
//! for it. One that is open is handed out at once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard, Semaphore};

use super::{RepositoryDatabase, StoreError, database::OpeningCheck, run_blocking};
use crate::{limits, types::RepoId};

/// Repository databases that are being opened at the same time. After an unclean end each is read through, which is
/// the disk's work: enough that a few large ones leave room for the others, and few enough that their threads and
/// page caches (two megabytes each) are not felt.
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

/// What is known of a repository's database, open or not.
#[derive(Default)]
struct KnownDatabase {
    /// Held by whoever opens or closes it.
    opening_lock: Arc<Turn<()>>,
    /// It was opened in this boot before.
    opened_before: bool,
    /// It was found damaged: it is checked whole before it is used again.
    suspect: bool,
}

/// How a database is to be opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatabaseOpening {
    pub(super) check: OpeningCheck,
    /// For the first time in this boot.
    pub(super) first: bool,
}

/// A database that was evicted, to be closed on a thread that may wait. Nobody opens it before that.
pub(super) struct EvictedDatabase {
    db: Option<Arc<RepositoryDatabase>>,
    opening_lock: OwnedMutexGuard<()>,
}

impl EvictedDatabase {
    /// Closes it, unless somebody still uses it. Nobody opens it before what is returned is dropped.
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
    /// The database of `repo` if it is open, and nobody found it damaged.
    pub(super) fn get_open(&self, repo: RepoId) -> Option<Arc<RepositoryDatabase>> {
        let mut inner = self.lock();
        inner.uses += 1;
        let used = inner.uses;
        let open = inner.open.get_mut(&repo).filter(|open| !open.db.is_damaged())?;
        open.used = used;
        Some(Arc::clone(&open.db))
    }

    /// The open database of `repo`, or what `open` makes of it. What was begun is finished and kept, though whoever
    /// asked for it has gone.
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

    /// Takes away the database of a repository that is gone; whoever still uses it goes on.
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

    /// Takes it away if somebody found it damaged.
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

    /// Keeps what was opened, and says what is to be closed for it.
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
    /// Takes away what was used longest ago and is not in use now. Nobody can begin to use it meanwhile.
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
