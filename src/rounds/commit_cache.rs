//! Cache of values computed from commits. Each value is computed only once. Each repository computes one value at a
//! time, and only the newest values are kept.
//!
//! Every step of a run needs its commit's index, and all runs of a repository need the same index until the base commit
//! changes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::types::{Oid, RepoId};

/// Number of indexes kept: enough for two busy repositories, or for one repository whose base commit changes.
const INDEXES_KEPT: usize = 2;

/// Cache with one value per commit. The most recently used value is last.
#[derive(Debug)]
pub struct CommitCache<V> {
    kept: Mutex<VecDeque<(RepoId, Oid, Arc<V>)>>,
    making: Mutex<HashMap<RepoId, Arc<tokio::sync::Mutex<()>>>>,
}

impl<V> Default for CommitCache<V> {
    fn default() -> Self {
        Self { kept: Mutex::default(), making: Mutex::default() }
    }
}

impl<V: Send + Sync + 'static> CommitCache<V> {
    pub(super) fn get(&self, repo: RepoId, commit: &Oid) -> Option<Arc<V>> {
        let mut kept = lock(&self.kept);
        let at = kept.iter().position(|(of, at, _)| *of == repo && at == commit)?;
        let found = kept.remove(at)?;
        let value = Arc::clone(&found.2);
        kept.push_back(found);
        Some(value)
    }

    /// Returns the cached value, or computes it with `make`. Concurrent callers wait until the first caller has
    /// computed the value.
    pub(super) async fn get_or_make<E>(
        &self,
        repo: RepoId,
        commit: &Oid,
        make: impl Future<Output = Result<V, E>>,
    ) -> Result<Arc<V>, E> {
        let lane = Arc::clone(lock(&self.making).entry(repo).or_default());
        let _alone = lane.lock().await;
        if let Some(known) = self.get(repo, commit) {
            return Ok(known);
        }
        let made = Arc::new(make.await?);
        let gone = {
            let mut kept = lock(&self.kept);
            kept.push_back((repo, commit.clone(), Arc::clone(&made)));
            if kept.len() > INDEXES_KEPT { kept.pop_front() } else { None }
        };
        // Dropping an index frees about a million allocations, so do it off the async threads.
        tokio::task::spawn_blocking(move || drop(gone));
        Ok(made)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn sample_commit(n: usize) -> Oid {
        format!("{n:040}").parse().unwrap()
    }

    #[tokio::test]
    async fn concurrent_requests_compute_each_cached_value_once() {
        let (recent, made) = (CommitCache::default(), Cell::new(0));
        let ask = async |n: usize| {
            let make = async {
                tokio::task::yield_now().await;
                made.set(made.get() + 1);
                Ok::<_, ()>(n)
            };
            *recent.get_or_make(RepoId(1), &sample_commit(n), make).await.unwrap()
        };
        assert_eq!(tokio::join!(ask(1), ask(1), ask(2), ask(1)), (1, 1, 2, 1));
        assert_eq!(made.get(), 2);
        assert!(recent.get(RepoId(2), &sample_commit(1)).is_none(), "another repository's commit");
    }

    #[tokio::test]
    async fn cache_evicts_least_recently_used_values_and_never_stores_failures() {
        let recent = CommitCache::default();
        let commits = 0..=INDEXES_KEPT;
        for n in commits.clone() {
            recent.get_or_make(RepoId(1), &sample_commit(n), async { Ok::<_, ()>(n) }).await.unwrap();
            assert!(recent.get(RepoId(1), &sample_commit(0)).is_some(), "used each time, so never evicted");
        }
        let kept = |n: &usize| recent.get(RepoId(1), &sample_commit(*n)).is_some();
        assert_eq!(commits.filter(kept).count(), INDEXES_KEPT);
        let failed = recent.get_or_make(RepoId(2), &sample_commit(1), async { Err::<usize, _>("no") }).await;
        assert_eq!(failed, Err("no"));
        assert!(recent.get(RepoId(2), &sample_commit(1)).is_none());
        assert!(recent.get_or_make(RepoId(2), &sample_commit(1), async { Ok::<_, ()>(3) }).await.is_ok());
    }
}
