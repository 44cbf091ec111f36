//! What runs share: how much a repository has spent today, and an installation this month.
//!
//! The truth is each repository's own ledger. Here is a copy of this month's rows, in one file, so that "is there enough
//! left?" and "then this much is taken" are one transaction, whoever asks at the same time. A reservation is committed
//! here before the ledger's row is, and brought down to what the ledger says only after that row is settled on disk: in
//! between, and after a crash in between, too much is held here and never too little. What a crash left open is read
//! again from its ledger before the next reservation, as is everything when `main.db` is not the one that was here last.

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

/// What a call may cost, to be held back for it.
#[derive(Debug, Clone)]
pub struct Reservation {
    pub run: RunId,
    pub visit: u64,
    /// The ledger row's; asked again, it replaces what was held under it.
    pub key: String,
    pub installation: InstallationId,
    pub amount: MicroUsd,
    /// Caps; none: no cap.
    pub repository_day: Option<MicroUsd>,
    pub installation_month: Option<MicroUsd>,
}

/// A cap on what several runs spend together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedCap {
    RepositoryDay,
    InstallationMonth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReservationOutcome {
    Granted,
    /// Nothing is held: with it, more than `cap` would be spent. So much is already, or held.
    OverCap {
        cap: SharedCap,
        spent: MicroUsd,
    },
}

impl Store {
    /// Holds an amount back if the caps leave room for it.
    pub async fn reserve_budget(&self, asked: Reservation) -> Result<ReservationOutcome, StoreError> {
        self.reload_stale_ledgers(asked.run.repo).await?;
        let now = self.clock.now();
        self.main.write(move |tx| reserve_in(tx, &asked, now)).await
    }

    /// What counts against the shared caps now: the repository's today, and its installation's this month. A copy of
    /// `main.db` is enough to ask.
    pub async fn shared_spend(
        &self,
        repo: RepoId,
        installation: InstallationId,
    ) -> Result<[(SharedCap, MicroUsd); 2], StoreError> {
        let now = self.clock.now();
        self.main.read(move |tx| shared_sums(tx, (repo, installation), None, now)).await
    }

    /// What counts against the caps of this month, of everybody together.
    pub async fn spent_this_month(&self) -> Result<MicroUsd, StoreError> {
        let since = self.clock.now().month_start().0;
        let sum = "SELECT CAST(COALESCE(SUM(microusd), 0) AS BIGINT) FROM spend WHERE at >= ?1";
        self.main
            .read(move |tx| Ok(MicroUsd(to_unsigned(tx.query_row(sum, [since], |row| row.get(0))?))))
            .await
    }

    /// Brings what is held for a run to what its ledger says, once that is on disk.
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

    /// Brings these calls to what their ledger says, and nothing else of their runs: a call that is held for may have no row
    /// there yet.
    pub async fn sync_settled_calls(&self, rows: Vec<CostRow>) -> Result<(), StoreError> {
        let each = move |tx: &Transaction<'_>| {
            rows.iter().try_for_each(|row| remove_call(tx, row.run, row.visit, &row.key))?;
            copy_calls(tx, &rows)
        };
        self.main.write(each).await
    }

    /// Reads again what may differ from its ledger. A repository that cannot be read keeps what is held for it. If it is the
    /// one that `asks`, this is an error.
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
                    tracing::error!(%repo, %error, "what a repository has spent cannot be read; what is held for it stays");
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

/// Reads from the ledgers what was spent, for a `main.db` that was not here at the last boot. A ledger that cannot be
/// read is tried again before the next reservation.
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
            Err(error) => tracing::error!(%repo, %error, "cannot read what a repository has spent"),
        }
    }
    Ok(())
}

fn replace_spend(tx: &Transaction<'_>, repo: RepoId, rows: &[CostRow]) -> Result<(), TransactionError> {
    // Whoever read it meanwhile may have reserved something since, of which these rows know nothing.
    if tx.execute("DELETE FROM spend_behind WHERE repo = ?1", [to_signed(repo.0)])? == 0 {
        return Ok(());
    }
    tx.execute("DELETE FROM spend WHERE repo = ?1", [to_signed(repo.0)])?;
    copy_calls(tx, rows)
}

/// What a repository without a ledger has spent stays spent until the month is over; nothing can be read again.
pub(super) fn close_spend(tx: &Transaction<'_>, repo: RepoId) -> Result<(), TransactionError> {
    tx.execute("DELETE FROM spend_behind WHERE repo = ?1", [to_signed(repo.0)])?;
    tx.execute("UPDATE spend SET open = 0 WHERE repo = ?1", [to_signed(repo.0)]).map(drop)
}

/// Notes what may differ from its ledger: what was open when the last boot ended, and `strangers`.
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

/// Notes which repositories have calls that whoever made them did not live to settle.
pub(super) fn mark_unsettled(tx: &Transaction<'_>) -> Result<usize, TransactionError> {
    let orphaned = match tx {
        Transaction::File(_) => "open = 1",
        // Of a repository where somebody is at work more may be held than its ledger knows yet.
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

/// How long a month's sums are kept after it.
const SUMS_RETENTION: Duration = Duration::from_secs(31 * 24 * 3600);

fn reserve_in(
    tx: &Transaction<'_>,
    asked: &Reservation,
    now: Timestamp,
) -> Result<ReservationOutcome, TransactionError> {
    // Kept for a while: another node's clock may say that the month is not over yet.
    tx.execute("DELETE FROM spend WHERE at < ?1", [now.month_start().minus(SUMS_RETENTION).0])?;
    for (cap, spent) in shared_sums(tx, (asked.run.repo, asked.installation), Some(asked), now)? {
        let most = match cap {
            SharedCap::RepositoryDay => asked.repository_day,
            SharedCap::InstallationMonth => asked.installation_month,
        };
        if most.is_some_and(|most| spent.plus(asked.amount) > most) {
            return Ok(ReservationOutcome::OverCap { cap, spent });
        }
    }
    remove_call(tx, asked.run, asked.visit, &asked.key)?;
    insert_call(tx, asked, now, true)?;
    Ok(ReservationOutcome::Granted)
}

/// Removes what is counted for a call.
fn remove_call(tx: &Transaction<'_>, run: RunId, visit: u64, key: &str) -> Result<(), TransactionError> {
    let call = params![to_signed(run.repo.0), to_signed(run.seq), to_signed(visit), key];
    tx.prepare_cached("DELETE FROM spend WHERE repo = ?1 AND run = ?2 AND visit = ?3 AND key = ?4")?
        .execute(call)
        .map(drop)
}

/// What is spent or held by all; what is held for one call counts not, where it asks for itself again.
fn shared_sums(
    tx: &Transaction<'_>,
    (repo, installation): (RepoId, InstallationId),
    except: Option<&Reservation>,
    now: Timestamp,
) -> Result<[(SharedCap, MicroUsd); 2], TransactionError> {
    let except = except.map(|asked| (to_signed(asked.run.seq), to_signed(asked.visit), asked.key.as_str()));
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
