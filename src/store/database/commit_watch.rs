//! What is known of commits beside their files: who hears of them, how long they took, and, for proofs that nothing is
//! lost, what the disk is made to do.

use std::{
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use prometheus_client::metrics::histogram::Histogram;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::store::error::TransactionError;

/// Told of every commit, with the file it went to, before whoever asked for it hears of it.
type CommitCallback = Box<dyn Fn(&Path) + Send + Sync>;

/// Shared by all databases of a store.
pub(in crate::store) struct CommitWatch {
    pub(in crate::store) on_commit: OnceLock<CommitCallback>,
    /// For whoever wants to look again.
    pub(in crate::store) change_signal: watch::Sender<()>,
    /// None: never asked for, and connections are left as they are.
    disk: Mutex<Option<SimulatedDisk>>,
    /// Seconds.
    pub(in crate::store) commit_seconds: Histogram,
}

/// From a disk that keeps what it is given in memory of its own to one that is in trouble.
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

/// What a disk does to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedDisk {
    Healthy,
    /// No file can grow.
    Full,
    ReadOnly,
}

/// SQLite's own limit.
const MAX_PAGES: u32 = 4_294_967_294;

impl CommitWatch {
    pub(in crate::store) fn simulate_disk(&self, disk: SimulatedDisk) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(disk);
    }

    /// Before each write.
    pub(super) fn apply_disk(&self, connection: &Connection) -> Result<(), TransactionError> {
        let Some(disk) = *self.disk.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        // SQLite takes any number below the file's own length for that length.
        let most = if disk == SimulatedDisk::Full { 1 } else { MAX_PAGES };
        connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
        connection.pragma_update(None, "query_only", disk == SimulatedDisk::ReadOnly)?;
        Ok(())
    }
}
