//! One repository's database: its runs and everything they leave behind.
//!
//! What wakes or takes a run is reached only through [`Store`](super::Store), which commits the wake hint first
//! and keeps the agenda.

mod audit_chain;
mod costs;
mod journal;
mod ledgers;
mod past_runs;
mod requests;
mod routes;
mod run_reader;
mod steps;

pub use audit_chain::AuditChainReport;
pub(super) use audit_chain::walk;
pub(super) use costs::costs;
pub(super) use past_runs::text;
pub use routes::routes;
pub(super) use run_reader::{LIVE, VISITS, json, status, status_text, visit_row};

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::store::sql::Transaction;
use rusqlite::params;

use super::{
    GitHubCallCount, PendingWrites, StoreError,
    agenda::ScheduledRun,
    archive,
    database::{Database, DatabaseSchema, DatabaseTraffic, SharedCommitWatch, signed},
    error::TransactionError,
    open_databases::DatabaseOpening,
    pending_writes::WriteBatch,
    upgrade_copies::UpgradeCopies,
};
use crate::{
    clock::SharedClock,
    types::{RepoId, RunId, Timestamp},
};

/// What one open repository database may keep in memory of its pages.
const REPOSITORY_CACHE_KIB: u32 = 256;

/// Beside the mirror in the repository's folder.
pub(super) const FILE: &str = "checkpoints.db";

pub(super) const REPOSITORY: DatabaseSchema = DatabaseSchema {
    mark: 0x4353_7231,
    migrations: &[
        include_str!("../migrations/repository-1.sql"),
        include_str!("../migrations/repository-2.sql"),
        include_str!("../migrations/repository-3.sql"),
        include_str!("../migrations/repository-4.sql"),
        include_str!("../migrations/repository-5.sql"),
        include_str!("../migrations/repository-6.sql"),
        include_str!("../migrations/repository-7.sql"),
        include_str!("../migrations/repository-8.sql"),
    ],
    traffic: DatabaseTraffic::Quiet,
};

/// What this version writes.
pub(super) fn version() -> u32 {
    REPOSITORY.version()
}

/// At the first opening in a boot. Whoever had the directory before is dead, or we would not have its lock; so a boot
/// that seems not to be older than ours was counted by another `main.db`, which was lost or replaced. Ours counts from
/// now on, and what that boot could not read is tried again.
fn take_over(tx: &Transaction<'_>, epoch: i64) -> Result<(), TransactionError> {
    let before: i64 = tx.query_row("SELECT epoch FROM boot", [], |row| row.get(0))?;
    if before >= epoch {
        tx.execute("UPDATE boot SET epoch = ?1", [epoch])?;
        tx.execute("UPDATE run SET parked = NULL WHERE parked IS NOT NULL", [])?;
    }
    Ok(())
}

/// The database of one repository.
pub struct RepositoryDatabase {
    repo: RepoId,
    epoch: i64,
    db: Database,
    clock: SharedClock,
    /// A call found the file damaged.
    damaged: AtomicBool,
}

impl RepositoryDatabase {
    pub(super) fn open(
        (directory, repo, epoch): (&Path, RepoId, i64),
        clock: SharedClock,
        watch: SharedCommitWatch,
        DatabaseOpening { check, first }: DatabaseOpening,
        kept: &UpgradeCopies,
    ) -> Result<Self, StoreError> {
        let db = Database::open_checked(&directory.join(FILE), &REPOSITORY, watch, check, Some(kept))?;
        if first {
            db.write_now(|tx| take_over(tx, epoch))?;
        }
        db.lean(REPOSITORY_CACHE_KIB);
        Ok(Self { repo, epoch, db, clock, damaged: AtomicBool::new(false) })
    }

    /// What a server has of a repository.
    pub(super) fn served(repo: RepoId, node: i64, db: Database, clock: SharedClock) -> Self {
        Self { repo, epoch: node, db, clock, damaged: AtomicBool::new(false) }
    }

    /// Did a call find the file damaged since it was opened?
    pub(super) fn damaged(&self) -> bool {
        self.damaged.load(Relaxed)
    }

    /// What lives here. As a write it comes after every change that is under way.
    pub(super) async fn live(&self) -> Result<Vec<ScheduledRun>, StoreError> {
        let at = self.at();
        self.write(move |tx| at.live(tx)).await
    }

    /// Takes out what a run that ended long ago needs no more: how many documents, and how many bytes.
    pub(super) async fn archived(
        &self,
        run: RunId,
        times: (Timestamp, Timestamp),
        gone: Vec<String>,
        file: PathBuf,
    ) -> Result<Option<usize>, StoreError> {
        let now = self.clock.now().0;
        self.write(move |tx| {
            let Some(documents) = archive::prune(tx, run, times, &gone)? else { return Ok(None) };
            let (name, what, detail) = archive::link(&file, documents);
            audit_chain::NewAuditLink { run, visit: audit_chain::NO_VISIT, name, what, detail }
                .add(tx, now)?;
            Ok(Some(documents))
        })
        .await
    }

    async fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.heard(self.db.write(work).await)
    }

    /// For the steps of runs, each of which has a task of its own.
    async fn write_here<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.heard(self.db.write_here(work).await)
    }

    async fn read<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.heard(self.db.read(work).await)
    }

    async fn glance<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.heard(self.db.glance(work).await)
    }

    /// Writes what a step of `run` gathered, and then `work`, in one transaction.
    async fn write_with<R: Send + 'static>(
        &self,
        gathered: &PendingWrites,
        run: RunId,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (load, now) = (gathered.load(), self.clock.now().0);
        let along = load.clone();
        let result = self
            .write_here(move |tx| {
                unload(tx, run, &along, now)?;
                work(tx)
            })
            .await;
        match &result {
            Ok(_) => gathered.written(&load),
            Err(_) => gathered.not_written(&load),
        }
        result
    }

    fn heard<R>(&self, result: Result<R, StoreError>) -> Result<R, StoreError> {
        if matches!(result, Err(StoreError::Damaged { .. })) {
            self.damaged.store(true, Relaxed);
        }
        result
    }
}

fn unload(tx: &Transaction<'_>, run: RunId, load: &WriteBatch, now: i64) -> Result<(), TransactionError> {
    for (hash, document) in &load.documents {
        tx.prepare_cached(
            "INSERT INTO document (hash, bytes, zstd, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (hash) DO UPDATE SET created_at = excluded.created_at",
        )?
        .execute(params![hash.to_string(), signed(document.bytes as u64), document.zstd, now])?;
    }
    for booking in &load.bookings {
        ledgers::book(tx, run, booking, now)?;
    }
    let GitHubCallCount { calls, writes } = load.calls;
    if calls > 0 {
        tx.prepare_cached(
            "UPDATE run SET api_calls = api_calls + ?2, api_writes = api_writes + ?3 WHERE seq = ?1",
        )?
        .execute([run.seq, calls, writes].map(signed))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
