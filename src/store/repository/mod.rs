//! One repository's database: its runs and everything they leave behind.
//!
//! What wakes a run (a start, an answer, a cancel, a saved step) is reached only through
//! [`Store`](super::Store), which commits the wake hint first.

mod journal;
mod ledger;
mod read;
mod requests;
mod steps;

pub(super) use ledger::audit_row;

use std::path::Path;

use super::{
    StoreError,
    database::{Database, Schema, Watch},
};
use crate::{clock::SharedClock, types::RepoId};

const REPOSITORY: Schema = Schema {
    mark: 0x4353_7231,
    migrations: &[
        include_str!("../migrations/repository-1.sql"),
        include_str!("../migrations/repository-2.sql"),
    ],
};

/// The database of one repository.
pub struct RepoDb {
    repo: RepoId,
    epoch: i64,
    db: Database,
    clock: SharedClock,
    /// Held from a hint to its truth, and from looking for work to settling the hint.
    pub(super) wake: tokio::sync::Mutex<()>,
}

impl RepoDb {
    pub(super) fn open(
        directory: &Path,
        repo: RepoId,
        epoch: i64,
        clock: SharedClock,
        watch: Watch,
    ) -> Result<Self, StoreError> {
        let db = Database::open(&directory.join("checkpoints.db"), &REPOSITORY, watch)?;
        Ok(Self { repo, epoch, db, clock, wake: tokio::sync::Mutex::default() })
    }
}
