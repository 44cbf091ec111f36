//! For proofs that nothing is lost: who hears of commits, and what the disk is made to do.

use std::{
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use rusqlite::Connection;

use crate::store::error::Fault;

/// Told of every commit, with the file it went to, before whoever asked for it hears of it.
type Told = Box<dyn Fn(&Path) + Send + Sync>;

/// Shared by all databases of a store.
#[derive(Default)]
pub(in crate::store) struct Proof {
    pub(in crate::store) told: OnceLock<Told>,
    /// None: never asked for, and connections are left as they are.
    disk: Mutex<Option<Disk>>,
}

/// What a disk does to a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    Sound,
    /// No file can grow.
    Full,
    ReadOnly,
}

/// SQLite's own limit.
const MOST_PAGES: u32 = 4_294_967_294;

impl Proof {
    pub(in crate::store) fn pretend(&self, disk: Disk) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = Some(disk);
    }

    /// Before each write.
    pub(super) fn apply(&self, connection: &Connection) -> Result<(), Fault> {
        let Some(disk) = *self.disk.lock().unwrap_or_else(PoisonError::into_inner) else { return Ok(()) };
        // SQLite takes any number below the file's own length for that length.
        let most = if disk == Disk::Full { 1 } else { MOST_PAGES };
        connection.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?;
        connection.pragma_update(None, "query_only", disk == Disk::ReadOnly)?;
        Ok(())
    }
}
