//! Shared spend: the spend of a repository today, and of an installation this month.
//!
//! Each repository's own ledger is authoritative. This module keeps a copy of the month's rows in one file, so that
//! checking a limit and reserving an amount are one transaction. A reservation is committed here before the ledger row
//! is written. It is reduced to the ledger's amount only after the ledger row is final on disk. A crash in between
//! therefore leaves too much reserved here, never too little. Amounts that a crash left unsettled are reloaded from
//! their ledger before the next reservation. If `main.db` was replaced, all ledgers are reloaded.

use crate::store::sql::Transaction;
use std::{path::Path, time::Duration};

use rusqlite::params;

use super::{
    CallStatus, CostRow, DatabaseSource, Store, StoreError,
    database::{Database, to_signed, to_unsigned},
    error::TransactionError,
    repository::read_call_costs,
};
use crate::types::{InstallationId, MicroUsd, RepoId, RunId, Timestamp};

/// Request to reserve the maximum cost of a model call.
#[derive(Debug, Clone)]
pub struct Reservation {
    pub run: RunId,
    pub visit: u64,
    /// Key of the ledger row. A repeated reservation with the same key replaces the earlier reserved amount.
    pub key: String,
    pub installation: InstallationId,
    pub amount: MicroUsd,
    /// Limit on the repository's spend per day; `None` for no limit. `installation_month` is the limit on the
    /// installation's spend per month.
    pub repository_day: Option<MicroUsd>,
    pub installation_month: Option<MicroUsd>,
}

/// A limit on the total spend of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedCap {
    RepositoryDay,
    InstallationMonth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationOutcome {
    Granted,
    /// Nothing is reserved, because the amount would exceed the limit `cap`. `spent` is the amount already spent or
    /// reserved under that limit.
    OverCap {
        cap: SharedCap,
        spent: MicroUsd,
    },
}

impl Store {
    /// Reserves an amount, unless a limit would be exceeded.
    pub async fn reserve_budget(&self, reservation: Reservation) -> Result<ReservationOutcome, StoreError> {
        self.reload_stale_ledgers(reservation.run.repo).await?;
        let now = self.clock.now();
        self.main.write(move |tx| reserve_in(tx, &reservation, now)).await
    }

    /// Returns the amounts that currently count against the shared limits: those of the repository today, and those of
    /// its installation this month. Also works on a copy of `main.db`.
    pub async fn shared_spend(
        &self,
        repo: RepoId,
        installation: InstallationId,
    ) -> Result<[(SharedCap, MicroUsd); 2], StoreError> {
        let now = self.clock.now();
        self.main.read(move |tx| shared_sums(tx, (repo, installation), None, now)).await
    }

    /// Returns the total amount of all installations that counts against monthly limits.
    pub async fn spent_this_month(&self) -> Result<MicroUsd, StoreError> {
        let since = self.clock.now().month_start().0;
        let sum = "SELECT CAST(COALESCE(SUM(microusd), 0) AS BIGINT) FROM spend WHERE at >= ?1";
        self.main
            .read(move |tx| Ok(MicroUsd(to_unsigned(tx.query_row(sum, [since], |row| row.get(0))?))))
            .await
    }

    /// Replaces the amounts reserved for a run by the amounts in its ledger, which must already be on disk.
    pub async fn sync_run_spend(&self, run: RunId) -> Result<(), StoreError> {
        let since = self.clock.now().month_start();
        let rows = self.repository_database(run.repo).await?.call_costs(Some(run), since).await?;
        self.main
            .write(move |tx| {
                tx.prepare_cached("DELETE FROM spend WHERE repo = ?1 AND run = ?2")?
                    .execute([to_signed(run.repo.0), to_signed(run.seq)])?;
                copy_calls(tx, &rows)
            })
            .await
    }

    /// Sets the amounts of these calls to the amounts in their ledger rows. Amounts of other calls are kept, because a
    /// running call may not have a ledger row yet.
    pub async fn sync_settled_calls(&self, rows: Vec<CostRow>) -> Result<(), StoreError> {
        let each = move |tx: &Transaction<'_>| {
            rows.iter().try_for_each(|row| remove_call(tx, row.run, row.visit, &row.key))?;
            copy_calls(tx, &rows)
        };
        self.main.write(each).await
    }

    /// Reloads the spend of repositories whose spend may differ from their ledger. If a repository is unreadable, its
    /// reserved amounts are kept. This is an error only for the repository `asks`.
    async fn reload_stale_ledgers(&self, asks: RepoId) -> Result<(), StoreError> {
        let behind: Vec<RepoId> = self
            .main
            .read(|tx| {
                let mut statement = tx.prepare_cached("SELECT repo FROM spend_behind")?;
                let repos = statement.query_map([], |row| Ok(RepoId(to_unsigned(row.get(0)?))))?;
                repos.collect::<Result<_, _>>()
            })
            .await?;
        for repo in behind {
            match self.reload_ledger(repo).await {
                Err(error) if repo == asks => return Err(error),
                Err(error) => {
                    tracing::error!(%repo, %error, "could not read a repository's spend; keeping its held amounts");
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    async fn reload_ledger(&self, repo: RepoId) -> Result<(), StoreError> {
        let since = self.clock.now().month_start();
        let Some(db) = self.existing_repository_database(repo).await? else {
            return self.main.write(move |tx| close_spend(tx, repo)).await;
        };
        let rows = db.call_costs(None, since).await?;
        self.main.write(move |tx| replace_spend(tx, repo, &rows)).await
    }
}

/// Reloads all spend from the ledgers, because `main.db` differs from the one used by the last boot. Unreadable ledgers
/// are tried again before the next reservation.
pub(super) fn rebuild_spend(
    main: &Database,
    root: &Path,
    repos: &[RepoId],
    now: Timestamp,
) -> Result<(), StoreError> {
    let ledgers = DatabaseSource::from(root);
    for repo in repos {
        match ledgers.read_repository(*repo, |tx| read_call_costs(tx, *repo, None, now.month_start())) {
            Ok(rows) => main.write_blocking(|tx| replace_spend(tx, *repo, &rows))?,
            Err(error) => {
                tracing::error!(%repo, %error, "could not read a repository's spend; will retry before the next reservation")
            }
        }
    }
    Ok(())
}

fn replace_spend(tx: &Transaction<'_>, repo: RepoId, rows: &[CostRow]) -> Result<(), TransactionError> {
    // A concurrent reload may have been followed by a reservation that these rows lack.
    if tx.execute("DELETE FROM spend_behind WHERE repo = ?1", [to_signed(repo.0)])? == 0 {
        return Ok(());
    }
    tx.execute("DELETE FROM spend WHERE repo = ?1", [to_signed(repo.0)])?;
    copy_calls(tx, rows)
}

/// Keeps the spend of a repository whose ledger no longer exists, because it can no longer be computed from the ledger.
/// The amounts continue to count until the period of each limit ends.
pub(super) fn close_spend(tx: &Transaction<'_>, repo: RepoId) -> Result<(), TransactionError> {
    tx.execute("DELETE FROM spend_behind WHERE repo = ?1", [to_signed(repo.0)])?;
    tx.execute("UPDATE spend SET open = 0 WHERE repo = ?1", [to_signed(repo.0)]).map(drop)
}

/// Marks repositories whose spend may differ from their ledger: those with amounts that were not settled when the last
/// boot ended, and those in `strangers`.
pub(super) fn mark_stale_at_boot(tx: &Transaction<'_>, strangers: &[RepoId]) -> Result<(), TransactionError> {
    mark_unsettled(tx)?;
    for repo in strangers {
        tx.execute(
            "INSERT INTO spend_behind (repo) VALUES (?1) ON CONFLICT DO NOTHING",
            [to_signed(repo.0)],
        )?;
    }
    Ok(())
}

/// Marks repositories that have unsettled calls of processes that died.
pub(super) fn mark_unsettled(tx: &Transaction<'_>) -> Result<usize, TransactionError> {
    let orphaned = match tx {
        Transaction::File(_) => "open = 1",
        // A live node may have reserved amounts that its ledger does not have yet.
        Transaction::Server(_) => {
            "open = 1 AND NOT EXISTS (SELECT 1 FROM all_run JOIN node ON node.id = all_run.taken
                 WHERE all_run.repo = spend.repo AND node.until > now())"
        }
    };
    let sql = format!(
        "INSERT INTO spend_behind SELECT DISTINCT repo FROM spend WHERE {orphaned} ON CONFLICT DO NOTHING"
    );
    tx.execute(&sql, [])
}

/// Time for which the rows of a month are kept after the end of the month.
const SUMS_RETENTION: Duration = Duration::from_secs(31 * 24 * 3600);

fn reserve_in(
    tx: &Transaction<'_>,
    reservation: &Reservation,
    now: Timestamp,
) -> Result<ReservationOutcome, TransactionError> {
    // Kept for a while, because another node's clock may still be in the previous month.
    tx.execute("DELETE FROM spend WHERE at < ?1", [now.month_start().minus(SUMS_RETENTION).0])?;
    for (cap, spent) in
        shared_sums(tx, (reservation.run.repo, reservation.installation), Some(reservation), now)?
    {
        let most = match cap {
            SharedCap::RepositoryDay => reservation.repository_day,
            SharedCap::InstallationMonth => reservation.installation_month,
        };
        if most.is_some_and(|most| spent.plus(reservation.amount) > most) {
            return Ok(ReservationOutcome::OverCap { cap, spent });
        }
    }
    remove_call(tx, reservation.run, reservation.visit, &reservation.key)?;
    insert_call(tx, reservation, now, true)?;
    Ok(ReservationOutcome::Granted)
}

/// Removes the amount that is recorded for a call.
fn remove_call(tx: &Transaction<'_>, run: RunId, visit: u64, key: &str) -> Result<(), TransactionError> {
    let call = params![to_signed(run.repo.0), to_signed(run.seq), to_signed(visit), key];
    tx.prepare_cached("DELETE FROM spend WHERE repo = ?1 AND run = ?2 AND visit = ?3 AND key = ?4")?
        .execute(call)
        .map(drop)
}

/// Returns the sum of spent and reserved amounts under each limit. The earlier amount of the reservation `except` is
/// left out, because the repeated reservation replaces it.
fn shared_sums(
    tx: &Transaction<'_>,
    (repo, installation): (RepoId, InstallationId),
    except: Option<&Reservation>,
    now: Timestamp,
) -> Result<[(SharedCap, MicroUsd); 2], TransactionError> {
    let except = except.map(|reservation| {
        (to_signed(reservation.run.seq), to_signed(reservation.visit), reservation.key.as_str())
    });
    let (run, visit, key) = except.unwrap_or((-1, -1, ""));
    let sum = |which: &str, of: u64, since: Timestamp| -> Result<MicroUsd, TransactionError> {
        let sql = format!(
            "SELECT CAST(COALESCE(SUM(microusd), 0) AS BIGINT) FROM spend WHERE {which} = ?5 AND at >= ?6
             AND NOT (repo = ?1 AND run = ?2 AND visit = ?3 AND key = ?4)"
        );
        let with = params![to_signed(repo.0), run, visit, key, to_signed(of), since.0];
        Ok(MicroUsd(to_unsigned(tx.prepare_cached(&sql)?.query_row(with, |row| row.get(0))?)))
    };
    Ok([
        (SharedCap::RepositoryDay, sum("repo", repo.0, now.day_start())?),
        (SharedCap::InstallationMonth, sum("installation", installation.0, now.month_start())?),
    ])
}

fn insert_call(
    tx: &Transaction<'_>,
    row: &Reservation,
    at: Timestamp,
    open: bool,
) -> Result<(), TransactionError> {
    tx.prepare_cached(
        "INSERT INTO spend (repo, run, visit, key, installation, microusd, at, open)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        to_signed(row.run.repo.0),
        to_signed(row.run.seq),
        to_signed(row.visit),
        row.key,
        to_signed(row.installation.0),
        to_signed(row.amount.0),
        at.0,
        open
    ])?;
    Ok(())
}

fn copy_calls(tx: &Transaction<'_>, rows: &[CostRow]) -> Result<(), TransactionError> {
    for row in rows.iter().filter(|row| row.call.shared_cap_amount() > MicroUsd(0)) {
        let held = Reservation {
            run: row.run,
            visit: row.visit,
            key: row.key.clone(),
            installation: row.installation,
            amount: row.call.shared_cap_amount(),
            repository_day: None,
            installation_month: None,
        };
        insert_call(tx, &held, row.at, row.call.status == CallStatus::Reserved)?;
    }
    Ok(())
}
