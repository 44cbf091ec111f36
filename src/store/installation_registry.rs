//! Installations and repositories with their current names, as reported by GitHub. Also stores a few facts about the
//! server itself.

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;

use super::{
    Store, StoreError,
    cluster::ClusterNotice,
    database::{to_signed, to_unsigned},
    error::TransactionError,
};
use crate::types::{InstallationId, RepoId, RepoName, Timestamp};

/// Last known state of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryRow {
    pub id: RepoId,
    pub installation: InstallationId,
    pub name: RepoName,
}

/// Last known state of an installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallationRow {
    pub id: InstallationId,
    pub account: String,
    pub suspended: bool,
}

/// Access to the registry of a store.
pub struct InstallationRegistry<'a> {
    pub(super) store: &'a Store,
}

impl InstallationRegistry<'_> {
    /// Records the current name and state of the repository. Writes only if something changed.
    pub async fn record_repository(&self, row: RepositoryRow) -> Result<(), StoreError> {
        let known = row.clone();
        let main = &self.store.main;
        let same = main
            .read_small(move |tx| {
                Ok(repository_by_id(tx, known.id)? == Some(known.clone())
                    && repository_by_name(tx, &known.name)? == Some(known))
            })
            .await?;
        if same {
            return Ok(());
        }
        main.write(move |tx| {
            tx.execute(
                "INSERT INTO repository (id, installation, owner, name, seen)
                 VALUES (?1, ?2, ?3, ?4, (SELECT COALESCE(MAX(seen), 0) + 1 FROM repository))
                 ON CONFLICT (id) DO UPDATE SET installation = excluded.installation, owner = excluded.owner,
                     name = excluded.name, seen = excluded.seen, gone_at = NULL",
                params![to_signed(row.id.0), to_signed(row.installation.0), row.name.owner, row.name.name],
            )?;
            Ok(())
        })
        .await
    }

    pub async fn repository(&self, id: RepoId) -> Result<Option<RepositoryRow>, StoreError> {
        self.store.main.read_small(move |tx| repository_by_id(tx, id)).await
    }

    /// Returns the repository that most recently had this name.
    pub async fn repository_named(&self, name: &RepoName) -> Result<Option<RepositoryRow>, StoreError> {
        let name = name.clone();
        self.store.main.read_small(move |tx| repository_by_name(tx, &name)).await
    }

    pub async fn record_installation(
        &self,
        id: InstallationId,
        account: &str,
        suspended: bool,
    ) -> Result<(), StoreError> {
        let account = account.to_owned();
        self.store
            .main
            .write(move |tx| {
                tx.execute(
                    "INSERT INTO installation (id, account, suspended) VALUES (?1, ?2, ?3)
                     ON CONFLICT (id) DO UPDATE SET account = excluded.account, suspended = excluded.suspended",
                    params![to_signed(id.0), account, suspended],
                )?;
                ClusterNotice::Settings.notify(tx)
            })
            .await?;
        self.store.agenda.set_suspended(id, suspended);
        Ok(())
    }

    pub async fn installation(&self, id: InstallationId) -> Result<Option<InstallationRow>, StoreError> {
        self.store
            .main
            .read_small(move |tx| {
                let row = tx
                    .prepare_cached("SELECT account, suspended FROM installation WHERE id = ?1")?
                    .query_row([to_signed(id.0)], |row| {
                        Ok(InstallationRow { id, account: row.get(0)?, suspended: row.get(1)? })
                    })
                    .optional()?;
                Ok(row)
            })
            .await
    }

    /// Removes an installation after the App was uninstalled. Returns the installation's repositories, which we may no
    /// longer access.
    pub async fn remove_installation(&self, id: InstallationId) -> Result<Vec<RepoId>, StoreError> {
        let now = self.store.clock.now().0;
        let lost = self
            .store
            .main
            .write(move |tx| {
                tx.execute("DELETE FROM installation WHERE id = ?1", [to_signed(id.0)])?;
                tx.execute(
                    "UPDATE repository SET gone_at = ?2 WHERE installation = ?1 AND gone_at IS NULL",
                    params![to_signed(id.0), now],
                )?;
                let mut statement =
                    tx.prepare("SELECT id FROM repository WHERE installation = ?1 ORDER BY id")?;
                let ids =
                    statement.query_map([to_signed(id.0)], |row| Ok(RepoId(to_unsigned(row.get(0)?))))?;
                ids.collect::<Result<_, _>>()
            })
            .await?;
        // Its runs must be claimed once more to end them, so lift a suspension.
        self.store.agenda.set_suspended(id, false);
        Ok(lost)
    }

    /// Marks a repository as deleted or as removed from the App. Its data is kept for a while.
    pub async fn mark_repository_removed(&self, id: RepoId) -> Result<(), StoreError> {
        let now = self.store.clock.now().0;
        self.store
            .main
            .write(move |tx| {
                tx.execute(
                    "UPDATE repository SET gone_at = ?2 WHERE id = ?1 AND gone_at IS NULL",
                    params![to_signed(id.0), now],
                )?;
                Ok(())
            })
            .await
    }

    /// Returns the time at which this repository was marked as removed, or `None` if it is not marked.
    pub async fn repository_removed_at(&self, id: RepoId) -> Result<Option<Timestamp>, StoreError> {
        self.store
            .main
            .read_small(move |tx| {
                let at: Option<Option<i64>> = tx
                    .prepare_cached("SELECT gone_at FROM repository WHERE id = ?1")?
                    .query_row([to_signed(id.0)], |row| row.get(0))
                    .optional()?;
                Ok(at.flatten().map(Timestamp))
            })
            .await
    }

    /// Returns the repositories that were marked as removed at `then` or earlier.
    pub async fn repositories_removed_before(&self, then: Timestamp) -> Result<Vec<RepoId>, StoreError> {
        self.store
            .main
            .read(move |tx| {
                let mut statement =
                    tx.prepare("SELECT id FROM repository WHERE gone_at <= ?1 ORDER BY id")?;
                let ids = statement.query_map([then.0], |row| Ok(RepoId(to_unsigned(row.get(0)?))))?;
                ids.collect::<Result<_, _>>()
            })
            .await
    }
}

pub(super) fn set_meta(tx: &Transaction<'_>, key: &str, value: &str) -> Result<(), TransactionError> {
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [key, value],
    )?;
    Ok(())
}

/// Returns the installations whose runs are suspended.
pub(super) fn suspended_installations(tx: &Transaction<'_>) -> Result<Vec<InstallationId>, TransactionError> {
    let mut statement = tx.prepare("SELECT id FROM installation WHERE suspended = 1")?;
    let ids = statement.query_map([], |row| Ok(InstallationId(to_unsigned(row.get(0)?))))?;
    ids.collect::<Result<_, _>>()
}

fn repository_by_id(tx: &Transaction<'_>, id: RepoId) -> Result<Option<RepositoryRow>, TransactionError> {
    let sql = "SELECT id, installation, owner, name FROM repository WHERE id = ?1 AND gone_at IS NULL";
    tx.prepare_cached(sql)?.query_row([to_signed(id.0)], read_repository_row).optional()
}

pub(super) fn repository_by_name(
    tx: &Transaction<'_>,
    name: &RepoName,
) -> Result<Option<RepositoryRow>, TransactionError> {
    let sql = "SELECT id, installation, owner, name FROM repository
               WHERE owner = ?1 AND name = ?2 AND gone_at IS NULL ORDER BY seen DESC LIMIT 1";
    tx.prepare_cached(sql)?.query_row([&name.owner, &name.name], read_repository_row).optional()
}

/// Returns every repository that is not marked as removed, ordered by name.
pub(super) fn known_repositories(tx: &Transaction<'_>) -> Result<Vec<RepositoryRow>, TransactionError> {
    let sql =
        "SELECT id, installation, owner, name FROM repository WHERE gone_at IS NULL ORDER BY owner, name";
    let mut statement = tx.prepare_cached(sql)?;
    let rows = statement.query_map([], read_repository_row)?;
    rows.collect::<Result<_, _>>()
}

fn read_repository_row(row: &SqlRow<'_>) -> Result<RepositoryRow, TransactionError> {
    Ok(RepositoryRow {
        id: RepoId(to_unsigned(row.get(0)?)),
        installation: InstallationId(to_unsigned(row.get(1)?)),
        name: RepoName { owner: row.get(2)?, name: row.get(3)? },
    })
}
