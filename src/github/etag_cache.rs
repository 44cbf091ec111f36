//! Cache of responses with their ETags. GitHub does not count a request against the rate limit if it responds 304
//! (unchanged); the cached response is then up to date.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::types::InstallationId;

/// Maximum number of cached responses. Each may have up to [`MAX_CACHED_RESPONSE_BYTES`] bytes, which is enough for an
/// issue with its body, but not for a listing.
const MAX_CACHED_RESPONSES: usize = 512;
const MAX_CACHED_RESPONSE_BYTES: usize = 64 * 1024;

/// A cached response and its ETag.
#[derive(Debug, Clone)]
pub(crate) struct CachedApiResponse {
    pub(crate) tag: String,
    pub(crate) body: Bytes,
}

/// Cache key: installation and request target. The installation is included because each installation may get a
/// different response.
type EtagCacheKey = (InstallationId, String);

/// Least recently used cache of up to [`MAX_CACHED_RESPONSES`] responses.
#[derive(Default)]
pub(crate) struct EtagCache(Mutex<EtagCacheEntries>);

#[derive(Default)]
struct EtagCacheEntries {
    kept: HashMap<EtagCacheKey, (CachedApiResponse, u64)>,
    /// Counter of cache accesses; its value at an entry's last use orders the entries.
    clock: u64,
}

impl EtagCache {
    pub(crate) fn get(&self, by: InstallationId, target: &str) -> Option<CachedApiResponse> {
        let mut inner = self.lock();
        inner.clock += 1;
        let now = inner.clock;
        let (kept, used) = inner.kept.get_mut(&(by, target.to_owned()))?;
        *used = now;
        Some(kept.clone())
    }

    pub(crate) fn insert(&self, by: InstallationId, target: &str, answer: CachedApiResponse) {
        if answer.body.len() > MAX_CACHED_RESPONSE_BYTES {
            return;
        }
        let mut inner = self.lock();
        inner.clock += 1;
        let now = inner.clock;
        inner.kept.insert((by, target.to_owned()), (answer, now));
        if inner.kept.len() > MAX_CACHED_RESPONSES {
            let oldest = inner.kept.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(question) = oldest.map(|(question, _)| question.clone()) {
                inner.kept.remove(&question);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, EtagCacheEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_response_is_evicted() {
        let answers = EtagCache::default();
        let (me, you) = (InstallationId(1), InstallationId(2));
        let kept = |n: usize| CachedApiResponse { tag: n.to_string(), body: Bytes::new() };
        for n in 0..MAX_CACHED_RESPONSES {
            answers.insert(me, &n.to_string(), kept(n));
        }
        assert!(answers.get(me, "0").is_some() && answers.get(you, "0").is_none());
        answers.insert(me, "one more", kept(0));
        assert!(answers.get(me, "0").is_some() && answers.get(me, "1").is_none());
        let large =
            CachedApiResponse { tag: String::new(), body: vec![0; MAX_CACHED_RESPONSE_BYTES + 1].into() };
        answers.insert(me, "large", large);
        assert!(answers.get(me, "large").is_none());
    }
}
