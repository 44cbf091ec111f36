//! Read-only access to databases. It does not take the lock of the data directory, so that a server may be running.

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

/// The data directory or PostgreSQL database from which data is read.
pub enum DatabaseSource {
    Files(PathBuf),
    Server(PostgresReader),
}

/// Connection pool that is used only for reading.
pub struct PostgresReader(Arc<ConnectionPool>);

impl From<&Path> for DatabaseSource {
    fn from(root: &Path) -> Self {
        Self::Files(root.to_owned())
    }
}

impl DatabaseSource {
    /// Creates a source that reads from a PostgreSQL server.
    ///
    /// # Errors
    /// Returns an error if the address is malformed.
    pub fn from_postgres(server: &PostgresServer) -> Result<Self, StoreError> {
        Ok(Self::Server(PostgresReader(Arc::new(ConnectionPool::new(server.address.expose_secret())?))))
    }

    /// Returns whether a server has ever used this data directory or database. If not, it contains nothing to read.
    ///
    /// # Errors
    /// Returns an error if the database does not respond.
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

    /// Returns the name of a database for messages. `repo` is the repository, or `None` for the server's own database.
    pub(super) fn display_name(&self, repo: Option<RepoId>) -> String {
        match self {
            Self::Files(_) => database_file(Path::new(""), repo).display().to_string(),
            Self::Server(PostgresReader(pool)) => {
                PostgresScope::new(Arc::clone(pool), repo).name().display().to_string()
            }
        }
    }

    /// Returns whether this source may contain data of a repository. It does not if the repository's database file is
    /// missing.
    pub(super) fn may_hold(&self, repo: RepoId) -> bool {
        match self {
            Self::Files(root) => database_file(root, Some(repo)).exists(),
            Self::Server(_) => true,
        }
    }

    /// Runs a read on one snapshot of the server's own tables.
    pub(super) fn read_main<R: Send>(
        &self,
        inside: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError> + Send,
    ) -> Result<R, StoreError> {
        self.read_database(None, inside)
    }

    /// Runs a read on one snapshot of a repository's tables.
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
    /// Returns a source that reads through separate connections, so that steps need not wait for these reads.
    pub(super) fn database_source(&self) -> DatabaseSource {
        match &self.cluster {
            None => DatabaseSource::Files(self.root.clone()),
            Some(cluster) => DatabaseSource::Server(PostgresReader(Arc::clone(&cluster.pool))),
        }
    }
}

/// Returns the path of a database file in a data directory. `repo` is the repository, or `None` for the server's own
/// database.
pub(super) fn database_file(root: &Path, repo: Option<RepoId>) -> PathBuf {
    match repo {
        None => root.join("main.db"),
        Some(repo) => root.join("repos").join(repo.to_string()).join(CHECKPOINTS_FILE),
    }
}
