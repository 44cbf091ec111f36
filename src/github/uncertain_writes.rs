//! Writes that may or may not have taken effect because their response was lost.
//!
//! GitHub's reads may lag a write by seconds. So one lookup without a result proves nothing; a caller looks twice, some
//! time apart. Likewise, a refusal that GitHub's current state does not explain is retried first. A write that GitHub
//! refused surely did not happen and is not recorded. The records are in memory only: after a restart the lookups start
//! over, which only costs time.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::types::Timestamp;

/// Time after which an abandoned record is dropped.
const UNCERTAIN_WRITE_TTL: Duration = Duration::from_secs(3600);

/// This process's uncertain writes, by subject.
#[derive(Default)]
pub(crate) struct UncertainWrites(Mutex<HashMap<String, UncertainWrite>>);

struct UncertainWrite {
    since: Timestamp,
    /// Id of the object written, if the response was received.
    written: Option<u64>,
}

impl UncertainWrites {
    /// Returns how long this write has been uncertain; a new record starts at age zero.
    pub(crate) fn start_or_age(&self, about: &str, now: Timestamp) -> Duration {
        let mut doubts = self.lock();
        // Drop abandoned records: their run ended, or their delivery was given up.
        doubts.retain(|_, doubt| now.since(doubt.since) < UNCERTAIN_WRITE_TTL);
        now.since(
            doubts.entry(about.to_owned()).or_insert(UncertainWrite { since: now, written: None }).since,
        )
    }

    /// Records a write of the object at `now`, in place of an earlier record.
    pub(crate) fn record(&self, about: &str, now: Timestamp, written: Option<u64>) {
        self.lock().insert(about.to_owned(), UncertainWrite { since: now, written });
    }

    /// Returns the record's age and the id of the object written.
    pub(crate) fn lookup(&self, about: &str, now: Timestamp) -> Option<(Duration, Option<u64>)> {
        self.lock().get(about).map(|doubt| (now.since(doubt.since), doubt.written))
    }

    /// Drops the record.
    pub(crate) fn resolve(&self, about: &str) {
        self.lock().remove(about);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, UncertainWrite>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
