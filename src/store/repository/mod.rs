//! The database of one repository, with its runs and everything that the runs record.
//!
//! Code outside the store starts or claims a run only through [`Store`](super::Store), which commits the wake hint
//! first and updates the agenda.

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
pub(super) use audit_chain::verify_chain;
pub(super) use costs::read_call_costs;
pub(super) use past_runs::read_text;
pub use routes::read_routes;
pub(super) use run_reader::{LIVE_RUN_CONDITION, VISITS, parse_json, parse_status, status_text, visit_row};

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
    database::{Database, DatabaseSchema, DatabaseTraffic, SharedCommitWatch, to_signed},
    error::TransactionError,
    open_databases::DatabaseOpening,
    pending_writes::WriteBatch,
    upgrade_copies::UpgradeCopies,
};
use crate::{
    clock::SharedClock,
    types::{RepoId, RunId, Timestamp},
};

/// Maximum size of the page cache per open repository database, in KiB.
const REPOSITORY_CACHE_KIB: u32 = 256;

/// Name of the database file, which is next to the mirror in the repository's folder.
pub(super) const CHECKPOINTS_FILE: &str = "checkpoints.db";

pub(super) const REPOSITORY_SCHEMA: DatabaseSchema = DatabaseSchema {
    application_id: 0x4353_7231,
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

/// Returns the schema version that this binary writes.
pub(super) fn schema_version() -> u32 {
    REPOSITORY_SCHEMA.version()
}

/// Called when a process opens the database for the first time. This process holds the directory's lock, so the
/// previous owner is dead. If the stored boot number is not below ours, it was assigned by another `main.db`, which was
/// lost or replaced. In that case our number is stored, and runs that the previous process parked are retried.
fn adopt_database(tx: &Transaction<'_>, epoch: i64) -> Result<(), TransactionError> {
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
    /// Whether a read or write has detected that the file is damaged.
    found_damaged: AtomicBool,
}

impl RepositoryDatabase {
    pub(super) fn open(
        (directory, repo, epoch): (&Path, RepoId, i64),
        clock: SharedClock,
        watch: SharedCommitWatch,
        DatabaseOpening { check, first }: DatabaseOpening,
        kept: &UpgradeCopies,
    ) -> Result<Self, StoreError> {
        let db = Database::open_checked(
            &directory.join(CHECKPOINTS_FILE),
            &REPOSITORY_SCHEMA,
            watch,
            check,
            Some(kept),
        )?;
        if first {
            db.write_blocking(|tx| adopt_database(tx, epoch))?;
        }
        db.limit_page_cache(REPOSITORY_CACHE_KIB);
        Ok(Self { repo, epoch, db, clock, found_damaged: AtomicBool::new(false) })
    }

    /// Creates the database of a repository on a PostgreSQL server.
    pub(super) fn from_postgres(repo: RepoId, node: i64, db: Database, clock: SharedClock) -> Self {
        Self { repo, epoch: node, db, clock, found_damaged: AtomicBool::new(false) }
    }

    /// Returns whether a read or write has detected damage in the file since it was opened.
    pub(super) fn is_damaged(&self) -> bool {
        self.found_damaged.load(Relaxed)
    }

    /// Returns the live runs. Executed as a write, so that it sees every change that is already queued.
    pub(super) async fn live_runs(&self) -> Result<Vec<ScheduledRun>, StoreError> {
        let at = self.run_reader();
        self.write(move |tx| at.live_runs(tx)).await
    }

    /// Deletes the documents of a run that ended long ago, except those still needed. Returns the number of deleted
    /// documents.
    pub(super) async fn prune_archived_run(
        &self,
        run: RunId,
        times: (Timestamp, Timestamp),
        gone: Vec<String>,
        file: PathBuf,
    ) -> Result<Option<usize>, StoreError> {
        let now = self.clock.now().0;
        self.write(move |tx| {
            let Some(documents) = archive::prune_run(tx, run, times, &gone)? else { return Ok(None) };
            let (name, what, detail) = archive::archive_link(&file, documents);
            audit_chain::NewAuditLink { run, visit: audit_chain::NO_VISIT, name, what, detail }
                .append_if_changed(tx, now)?;
            Ok(Some(documents))
        })
        .await
    }

    async fn write<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.note_damage(self.db.write(work).await)
    }

    /// Writes on the calling task, which the write may block. Used for steps of runs, because each run has its own
    /// task.
    async fn write_here<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.note_damage(self.db.write_here(work).await)
    }

    async fn read<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.note_damage(self.db.read(work).await)
    }

    async fn read_small<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.note_damage(self.db.read_small(work).await)
    }

    /// In one transaction, writes the pending rows of a step of `run` and then runs `work`.
    async fn write_with_pending<R: Send + 'static>(
        &self,
        gathered: &PendingWrites,
        run: RunId,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let (load, now) = (gathered.batch(), self.clock.now().0);
        let along = load.clone();
        let result = self
            .write_here(move |tx| {
                insert_pending(tx, run, &along, now)?;
                work(tx)
            })
            .await;
        match &result {
            Ok(_) => gathered.remove_written(&load),
            Err(_) => gathered.restore_counts(&load),
        }
        result
    }

    fn note_damage<R>(&self, result: Result<R, StoreError>) -> Result<R, StoreError> {
        if matches!(result, Err(StoreError::Damaged { .. })) {
            self.found_damaged.store(true, Relaxed);
        }
        result
    }
}

fn insert_pending(
    tx: &Transaction<'_>,
    run: RunId,
    load: &WriteBatch,
    now: i64,
) -> Result<(), TransactionError> {
    for (hash, document) in &load.documents {
        tx.prepare_cached(
            "INSERT INTO document (hash, bytes, zstd, created_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (hash) DO UPDATE SET created_at = excluded.created_at",
        )?
        .execute(params![hash.to_string(), to_signed(document.bytes as u64), document.zstd, now])?;
    }
    for booking in &load.records {
        ledgers::insert_record(tx, run, booking, now)?;
    }
    let GitHubCallCount { calls, writes } = load.calls;
    if calls > 0 {
        tx.prepare_cached(
            "UPDATE run SET api_calls = api_calls + ?2, api_writes = api_writes + ?3 WHERE seq = ?1",
        )?
        .execute([run.seq, calls, writes].map(to_signed))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
