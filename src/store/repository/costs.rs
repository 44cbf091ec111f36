//! Reads the rows of the cost ledger and settles calls of unknown cost.

use crate::store::sql::{SqlArguments, SqlRow, Transaction};
use rusqlite::params;

use super::{RepositoryDatabase, ledgers::insert_record, run_reader::parse_json};
use crate::{
    store::{
        CostRow, LedgerRecord, StoreError,
        database::{to_signed, to_unsigned},
        error::TransactionError,
        pending_writes::PendingRecord,
    },
    types::{Cause, InstallationId, IssueNo, MicroUsd, RepoId, RunId, Timestamp, UserId},
};

const COST_ROWS_QUERY: &str =
    "SELECT call.run, call.visit, call.key, call.body, call.at, run.workflow, run.issue,
        CAST(run.request ->> 'installation' AS BIGINT)
    FROM call JOIN run ON run.seq = call.run";

impl RepositoryDatabase {
    /// Returns every call since `since`, in the order in which the calls were first recorded. `run` restricts the
    /// result to one run.
    pub async fn call_costs(&self, run: Option<RunId>, since: Timestamp) -> Result<Vec<CostRow>, StoreError> {
        let repo = self.repo;
        self.read(move |tx| read_call_costs(tx, repo, run, since)).await
    }

    /// Returns the number of runs that this person started since `since`, except the run with cause `but`. Also returns
    /// the total amount by which the person's runs count against limits. A follow-up run that was started by another
    /// run does not count as started by the person.
    pub async fn spend_of_person(
        &self,
        person: UserId,
        since: Timestamp,
        but: &Cause,
    ) -> Result<(u64, MicroUsd), StoreError> {
        let (repo, but) = (self.repo, but.0.clone());
        self.read(move |tx| {
            const STARTED_BY_PERSON: &str = "CAST(run.request ->> '$.actor.id' AS BIGINT) = ?1";
            let begun = format!(
                "SELECT COUNT(*) FROM run WHERE {STARTED_BY_PERSON} AND started_at >= ?2 AND cause <> ?3
                     AND cause NOT LIKE '%{}'",
                Cause::FOLLOW_UP_SUFFIX
            );
            let runs = tx.query_row(&begun, params![to_signed(person.0), since.0, but], |row| row.get(0))?;
            let sql = format!("{COST_ROWS_QUERY} WHERE {STARTED_BY_PERSON} AND call.at >= ?2");
            let calls = query_cost_rows(tx, repo, &sql, params![to_signed(person.0), since.0])?;
            let spent = calls.iter().fold(MicroUsd(0), |sum, row| sum.plus(row.call.shared_cap_amount()));
            Ok((to_unsigned(runs), spent))
        })
        .await
    }

    /// Returns the costs of every call that was made for an issue.
    pub async fn costs_of_issue(&self, issue: IssueNo) -> Result<Vec<CostRow>, StoreError> {
        let repo = self.repo;
        self.read(move |tx| {
            let sql = format!("{COST_ROWS_QUERY} WHERE run.issue = ?1 ORDER BY call.rowid");
            query_cost_rows(tx, repo, &sql, params![to_signed(issue.0)])
        })
        .await
    }

    /// Settles the finished calls whose cost is unknown, either of one run or of all runs. `billed` is what these calls
    /// cost in total; costs that are already recorded are not part of it. Returns the updated rows and the amount that
    /// had been reserved for these calls.
    pub async fn settle_calls(
        &self,
        run: Option<RunId>,
        billed: MicroUsd,
        by: String,
    ) -> Result<(Vec<CostRow>, MicroUsd), StoreError> {
        let (repo, now) = (self.repo, self.clock.now().0);
        self.write(move |tx| {
            let which = if run.is_some() { "call.run = ?1" } else { "CAST(?1 AS BIGINT) IS NULL" };
            let sql = format!(
                "{COST_ROWS_QUERY} WHERE {which} AND CAST(call.body ->> 'held_microusd' AS BIGINT) > 0
                     AND (call.status <> 'reserved' OR run.status IN ('done', 'failed', 'stopped'))
                 ORDER BY call.rowid"
            );
            let mut found = query_cost_rows(tx, repo, &sql, params![run.map(|run| to_signed(run.seq))])?;
            let (mut rest, mut held) = (billed, MicroUsd(0));
            for CostRow { run, visit, key, call, .. } in &mut found {
                held = held.plus(MicroUsd(call.held_microusd.unwrap_or(0)));
                *call = call.clone().settle(std::mem::take(&mut rest), by.clone());
                let (key, record) = (key.clone(), LedgerRecord::Call(call.clone()));
                insert_record(tx, *run, &PendingRecord { visit: *visit, key, record }, now)?;
            }
            Ok((found, held))
        })
        .await
    }

    /// Returns the costs of the last `most` completed runs of a workflow. Each pair consists of the billed cost and of
    /// the list price of unbilled calls.
    pub async fn past_run_costs(
        &self,
        workflow: &str,
        most: u32,
    ) -> Result<Vec<(MicroUsd, MicroUsd)>, StoreError> {
        let workflow = workflow.to_owned();
        self.read(move |tx| {
            let mut statement = tx.prepare(
                "SELECT CAST(SUM(CASE WHEN billed = 1 THEN cost ELSE 0 END) AS BIGINT),
                        CAST(SUM(CASE WHEN billed = 1 THEN 0 ELSE cost END) AS BIGINT)
                 FROM (SELECT done.seq, CAST(body ->> 'billed' AS BIGINT) AS billed,
                           COALESCE(CAST(body ->> 'cost_microusd' AS BIGINT), 0) AS cost
                       FROM (SELECT seq FROM run WHERE workflow = ?1 AND status = 'done' ORDER BY seq DESC LIMIT ?2) AS done
                       JOIN call ON call.run = done.seq) AS costs
                 GROUP BY seq",
            )?;
            let sums = statement.query_map(params![workflow, most], |row| {
                Ok((MicroUsd(to_unsigned(row.get(0)?)), MicroUsd(to_unsigned(row.get(1)?))))
            })?;
            sums.collect::<Result<_, _>>()
        })
        .await
    }
}

/// Reads the costs of calls; see [`RepositoryDatabase::call_costs`].
pub(in crate::store) fn read_call_costs(
    tx: &Transaction<'_>,
    repo: RepoId,
    run: Option<RunId>,
    since: Timestamp,
) -> Result<Vec<CostRow>, TransactionError> {
    let which = match run {
        Some(_) => "call.run = ?1",
        None => "CAST(?1 AS BIGINT) IS NULL",
    };
    let sql = format!("{COST_ROWS_QUERY} WHERE {which} AND call.at >= ?2 ORDER BY call.rowid");
    query_cost_rows(tx, repo, &sql, params![run.map(|run| to_signed(run.seq)), since.0])
}

fn query_cost_rows(
    tx: &Transaction<'_>,
    repo: RepoId,
    sql: &str,
    with: impl SqlArguments,
) -> Result<Vec<CostRow>, TransactionError> {
    let mut statement = tx.prepare(sql)?;
    let rows = statement.query_map(with, |row| Ok(read_cost_row(repo, row)))?;
    rows.map(|row| row?).collect()
}

fn read_cost_row(repo: RepoId, row: &SqlRow<'_>) -> Result<CostRow, TransactionError> {
    Ok(CostRow {
        run: RunId { repo, seq: to_unsigned(row.get(0)?) },
        visit: to_unsigned(row.get(1)?),
        key: row.get(2)?,
        call: parse_json(&row.get::<_, String>(3)?)?,
        at: Timestamp(row.get(4)?),
        workflow: row.get(5)?,
        issue: IssueNo(to_unsigned(row.get(6)?)),
        installation: InstallationId(to_unsigned(row.get(7)?)),
    })
}
