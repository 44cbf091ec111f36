//! Commit callbacks, commit durations, and the disk that tests simulate.

use std::{
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use prometheus_client::metrics::histogram::Histogram;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::store::error::TransactionError;

/// Callback that is called with the database file after every commit, before the writer gets its result.
type CommitCallback = Box<dyn Fn(&Path) + Send + Sync>;

/// Commit state shared by all databases of a store.
pub(in crate::store) struct CommitWatch {
    pub(in crate::store) on_commit: OnceLock<CommitCallback>,
    /// Signals to subscribers that something was committed.
    pub(in crate::store) change_signal: watch::Sender<()>,
    /// Simulated disk. `None` if no test has set one; connections are then left unchanged.
    disk: Mutex<Option<SimulatedDisk>>,
    /// Duration of commits in seconds.
    pub(in crate::store) commit_seconds: Histogram,
}

/// Histogram buckets in seconds. They range from a disk with a write cache to a failing disk.
const COMMIT_SECONDS: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

impl Default for CommitWatch {
    fn default() -> Self {
        Self {
            on_commit: OnceLock::new(),
            change_signal: watch::Sender::default(),
            disk: Mutex::default(),
            commit_seconds: Histogram::new(COMMIT_SECONDS),
        }
    }
}

/// State of the disk that tests simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedDisk {
    Healthy,
    /// The disk is full, so files cannot grow.
    Full,
    ReadOnly,
}

/// Maximum number of pages of an SQLite database.
const MAX_PAGES: u32 = 4_294_967_294;

impl CommitWatch {
    pub(in crate::store) fn simulate_disk(&self, disk: SimulatedDisk) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(disk);
    }

    /// Applies the state of the simulated disk to the connection. Called before each write.
    pub(super) fn apply_disk(&self, connection: &Connection) -> Result<(), TransactionError> {
        let Some(disk) = *self.disk.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        // SQLite raises a value below the file's current length to that length.
        let most = if disk == SimulatedDisk::Full { 1 } else { MAX_PAGES };
        connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
        connection.pragma_update(None, "query_only", disk == SimulatedDisk::ReadOnly)?;
        Ok(())
    }
}
