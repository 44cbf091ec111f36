//! Read-only access to databases without taking the data directory's lock, so a server may be running.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use secrecy::ExposeSecret;

use super::{
    PostgresServer, Store, StoreError,
    error::TransactionError,
    integrity_check::read_snapshot,
    postgres_backend::{ConnectionPool, PostgresScope, run_on_own_thread},
    repository::CHECKPOINTS_FILE,
    sql::Transaction,
};
use crate::types::RepoId;

/// A data directory or PostgreSQL database to read from.
pub enum DatabaseSource {
    Files(PathBuf),
    Server(PostgresReader),
}

/// Connection pool for reading only.
pub struct PostgresReader(Arc<ConnectionPool>);

impl From<&Path> for DatabaseSource {
    fn from(root: &Path) -> Self {
        Self::Files(root.to_owned())
    }
}

impl DatabaseSource {
    /// # Errors
    /// If the address is malformed.
    pub fn from_postgres(server: &PostgresServer) -> Result<Self, StoreError> {
        Ok(Self::Server(PostgresReader(Arc::new(ConnectionPool::new(server.address.expose_secret())?))))
    }

    /// Returns whether a server has ever used this data directory or database. If not, there is nothing to read.
    ///
    /// # Errors
    /// If the database does not respond.
    pub fn is_initialized(&self) -> Result<bool, StoreError> {
        match self {
            Self::Files(root) => Ok(super::was_initialized(root)),
            Self::Server(_) => self
                .read_main(|tx| tx.query_row("SELECT to_regclass('meta') IS NOT NULL", [], |row| row.get(0))),
        }
    }

    /// Returns the repositories that have data in this source.
    pub(super) fn repositories(&self) -> Result<Vec<RepoId>, StoreError> {
        match self {
            Self::Files(root) => super::repositories_in(root),
            Self::Server(_) => self.read_main(super::repositories_with_runs),
        }
    }

    /// Returns a readable name for a repository's database, or for the server's own database if `repo` is `None`.
    pub(super) fn display_name(&self, repo: Option<RepoId>) -> String {
        match self {
            Self::Files(_) => database_file(Path::new(""), repo).display().to_string(),
            Self::Server(PostgresReader(pool)) => {
                PostgresScope::new(Arc::clone(pool), repo).name().display().to_string()
            }
        }
    }

    /// Returns whether this source may contain data of a repository. A missing database file means that it does not.
    pub(super) fn may_hold(&self, repo: RepoId) -> bool {
        match self {
            Self::Files(root) => database_file(root, Some(repo)).exists(),
            Self::Server(_) => true,
        }
    }

    /// Reads one snapshot of the server's own tables.
    pub(super) fn read_main<R: Send>(
        &self,
        inside: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send,
    ) -> Result<R, StoreError> {
        self.read_database(None, inside)
    }

    /// Reads one snapshot of a repository's tables.
    pub(super) fn read_repository<R: Send>(
        &self,
        repo: RepoId,
        inside: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send,
    ) -> Result<R, StoreError> {
        self.read_database(Some(repo), inside)
    }

    pub(super) fn read_database<R: Send>(
        &self,
        repo: Option<RepoId>,
        inside: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send,
    ) -> Result<R, StoreError> {
        match self {
            Self::Files(root) => {
                let file = database_file(root, repo);
                read_snapshot(&file, inside).map_err(|fault| fault.with_path(&file))
            }
            Self::Server(PostgresReader(pool)) => {
                let part = PostgresScope::new(Arc::clone(pool), repo);
                run_on_own_thread(|| part.snapshot(inside)).map_err(|fault| fault.with_path(&part.name()))
            }
        }
    }
}

impl Store {
    /// Returns a source that reads through separate connections, so that no step waits for readers.
    pub(super) fn database_source(&self) -> DatabaseSource {
        match &self.cluster {
            None => DatabaseSource::Files(self.root.clone()),
            Some(cluster) => DatabaseSource::Server(PostgresReader(Arc::clone(&cluster.pool))),
        }
    }
}

/// Returns the path of a repository's database in a data directory, or of the server's own database if `repo` is
/// `None`.
pub(super) fn database_file(root: &Path, repo: Option<RepoId>) -> PathBuf {
    match repo {
        None => root.join("main.db"),
        Some(repo) => root.join("repos").join(repo.to_string()).join(CHECKPOINTS_FILE),
    }
}
