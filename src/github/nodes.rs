//! Node ids of labels and issues, and git tokens, kept for a while: each saves a request of a run.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use secrecy::SecretString;

use crate::types::Timestamp;

/// How long a node id is used. A label that somebody deletes and makes again has another.
pub(crate) const NODE_HOLDS: Duration = Duration::from_secs(3600);

/// Entries kept at most.
const KEPT: usize = 4096;

/// Values by name, each until a time.
pub(crate) struct Expiring<T>(Mutex<HashMap<String, (T, Timestamp)>>);

/// Node ids by `8123 label NAME` and `8123 issue 42`.
pub(crate) type Nodes = Expiring<String>;

/// Tokens that read one repository's code, by installation and repository.
pub(crate) type GitTokens = Expiring<SecretString>;

impl<T> Default for Expiring<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Expiring<T> {
    pub(crate) fn get(&self, name: &str, now: Timestamp) -> Option<T> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(name).filter(|(_, until)| now < *until).map(|(value, _)| value.clone())
    }

    pub(crate) fn keep(&self, name: String, value: T, until: Timestamp) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(name, (value, until));
    }

    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}
