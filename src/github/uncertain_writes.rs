//! Writes that may or may not have taken effect because their response was lost.
//!
//! GitHub's reads may lag a write by seconds. So one lookup without a result proves nothing; the caller must look
//! twice, some time apart. Likewise, a refusal that GitHub's current state does not explain is retried before it is
//! reported. A write that GitHub refused certainly did not take effect and is not recorded. The records are kept only
//! in memory. After a restart, the lookups start over, which only costs time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::types::Timestamp;

/// Time after which an abandoned record is dropped.
const UNCERTAIN_WRITE_TTL: Duration = Duration::from_secs(3600);

/// Uncertain writes of this process, by a description of the object written.
#[derive(Default)]
pub(crate) struct UncertainWrites(Mutex<HashMap<String, UncertainWrite>>);

struct UncertainWrite {
    since: Timestamp,
    /// Id of the object written; `None` if the response was lost.
    written: Option<u64>,
}

impl UncertainWrites {
    /// Returns the time for which this write has been uncertain. If there was no record yet, creates one and returns
    /// zero.
    pub(crate) fn start_or_age(&self, about: &str, now: Timestamp) -> Duration {
        let mut doubts = self.lock();
        // Drop abandoned records: their run ended, or their delivery was given up.
        doubts.retain(|_, doubt| now.since(doubt.since) < UNCERTAIN_WRITE_TTL);
        now.since(
            doubts.entry(about.to_owned()).or_insert(UncertainWrite { since: now, written: None }).since,
        )
    }

    /// Records that the object was written at `now`. Replaces an earlier record of the same object.
    pub(crate) fn record(&self, about: &str, now: Timestamp, written: Option<u64>) {
        self.lock().insert(about.to_owned(), UncertainWrite { since: now, written });
    }

    /// Returns the age of the object's record and the id of the object written; `None` if no record exists.
    pub(crate) fn lookup(&self, about: &str, now: Timestamp) -> Option<(Duration, Option<u64>)> {
        self.lock().get(about).map(|doubt| (now.since(doubt.since), doubt.written))
    }

    /// Removes the record, because the outcome of the write is now known.
    pub(crate) fn resolve(&self, about: &str) {
        self.lock().remove(about);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, UncertainWrite>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
