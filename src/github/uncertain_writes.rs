//! Writes of which nobody knows whether they took effect.
//!
//! An answer that was lost leaves a doubt, and GitHub's reads may lag the write by seconds. So one look that
//! finds nothing proves nothing: it takes two, apart; and a refusal that what is shown does not explain is
//! not believed at once. What GitHub refused surely did not happen, and leaves none. All of this is memory alone: a process that ends forgets its looks and begins them
//! again, which costs time and no more.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::types::Timestamp;

/// A doubt about a write that nobody came back to is forgotten after this long.
const UNCERTAIN_WRITE_TTL: Duration = Duration::from_secs(3600);

/// Doubts in this process, by what they are about.
#[derive(Default)]
pub(crate) struct UncertainWrites(Mutex<HashMap<String, UncertainWrite>>);

struct UncertainWrite {
    since: Timestamp,
    /// The number of what was written, where its answer said so.
    written: Option<u64>,
}

impl UncertainWrites {
    /// How long this has been in doubt; the first time it is asked, no time at all.
    pub(crate) fn start_or_age(&self, about: &str, now: Timestamp) -> Duration {
        let mut doubts = self.lock();
        // What nobody came back to: its run has ended, or its delivery was given up.
        doubts.retain(|_, doubt| now.since(doubt.since) < UNCERTAIN_WRITE_TTL);
        now.since(
            doubts.entry(about.to_owned()).or_insert(UncertainWrite { since: now, written: None }).since,
        )
    }

    /// Something was written again, now.
    pub(crate) fn record(&self, about: &str, now: Timestamp, written: Option<u64>) {
        self.lock().insert(about.to_owned(), UncertainWrite { since: now, written });
    }

    /// For how long, and what was noted with it.
    pub(crate) fn lookup(&self, about: &str, now: Timestamp) -> Option<(Duration, Option<u64>)> {
        self.lock().get(about).map(|doubt| (now.since(doubt.since), doubt.written))
    }

    /// It is known now.
    pub(crate) fn resolve(&self, about: &str) {
        self.lock().remove(about);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, UncertainWrite>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
