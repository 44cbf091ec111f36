//! The repository databases that are open: as many as fit, the one used longest ago is closed for another.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{RepoDb, StoreError, database::Check};
use crate::{limits, types::RepoId};

#[derive(Default)]
pub(super) struct Shelf {
    places: Mutex<HashMap<RepoId, Arc<Place>>>,
    uses: AtomicU64,
    /// Those that were opened in this boot, whether they still are open or not.
    met: Mutex<HashSet<RepoId>>,
}

/// How a database is to be opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    pub(super) check: Check,
    /// For the first time in this boot.
    pub(super) first: bool,
}

#[derive(Default)]
struct Place {
    used: AtomicU64,
    /// Locked while it is opened: others may open theirs meanwhile.
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    open: Option<Arc<RepoDb>>,
    /// It was found damaged: it is checked whole before it is used again.
    suspect: bool,
}

impl Shelf {
    /// The open database of `repo`, or what `open` makes of it.
    pub(super) fn get(
        &self,
        repo: RepoId,
        open: impl FnOnce(Opening) -> Result<RepoDb, StoreError>,
    ) -> Result<Arc<RepoDb>, StoreError> {
        let place = Arc::clone(lock(&self.places).entry(repo).or_default());
        place.used.store(self.uses.fetch_add(1, Relaxed), Relaxed);
        let mut book = lock(&place.book);
        if let Some(found) = book.open.take_if(|found| found.damaged()) {
            drop(found);
            book.suspect = true;
        }
        if let Some(found) = &book.open {
            return Ok(Arc::clone(found));
        }
        let check = if book.suspect { Check::Whole } else { Check::IfUnclean };
        let first = !lock(&self.met).contains(&repo);
        let opened = open(Opening { check, first }).map(Arc::new).inspect_err(|error| {
            book.suspect |= matches!(error, StoreError::Damaged { .. });
        })?;
        lock(&self.met).insert(repo);
        book.suspect = false;
        book.open = Some(Arc::clone(&opened));
        drop(book);
        self.make_room();
        Ok(opened)
    }

    /// Closes the database of a repository that is gone; whoever still uses it goes on.
    pub(super) fn forget(&self, repo: RepoId) {
        lock(&self.places).remove(&repo);
        lock(&self.met).remove(&repo);
    }

    /// Closes what was used longest ago and is not in use now.
    fn make_room(&self) {
        let mut places = lock(&self.places);
        if places.len() <= limits::OPEN_REPOSITORIES {
            return;
        }
        let mut by_use: Vec<_> =
            places.iter().map(|(repo, place)| (place.used.load(Relaxed), *repo)).collect();
        by_use.sort_unstable();
        let mut closed = Vec::new();
        let too_many = places.len() - limits::OPEN_REPOSITORIES;
        for (_, repo) in by_use {
            if closed.len() == too_many {
                break;
            }
            let Some(place) = places.get(&repo) else { continue };
            // Nobody can begin to use it while the shelf is locked.
            let Ok(book) = place.book.try_lock() else { continue };
            let in_use = Arc::strong_count(place) > 1
                || book.open.as_ref().is_some_and(|open| Arc::strong_count(open) > 1);
            let keep = in_use || book.suspect;
            drop(book);
            if !keep {
                closed.extend(places.remove(&repo));
            }
        }
        // Closing writes the log back, which takes a while. Whoever opens the file meanwhile waits for SQLite.
        drop(places);
        drop(closed);
    }
}

fn lock<V>(mutex: &Mutex<V>) -> MutexGuard<'_, V> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
