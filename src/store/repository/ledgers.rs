//! Ledgers of the evidence that runs record: calls, verdicts, findings, approvals.

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;
use serde::de::DeserializeOwned;

use super::{
    RepositoryDatabase,
    audit_chain::NewAuditLink,
    run_reader::{parse_json, read_answer},
};
use crate::{
    store::{
        AnswerRow, Approvers, ArtifactRow, CallRow, CallStatus, CommitRow, GateSpec, LedgerRecord, RunLease,
        RunLedger, SectionRow, StoreError, database::to_signed, error::TransactionError,
        pending_writes::PendingRecord,
    },
    types::{IssueNo, RunId},
};

impl RepositoryDatabase {
    /// Writes a ledger row of the visit. A row with the same key is replaced. A writer with an outdated lease may still
    /// record costs already incurred, but may not reserve a new call.
    pub async fn record(&self, lease: &RunLease, key: &str, record: LedgerRecord) -> Result<(), StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        let (run, visit, held) = (lease.run.id, lease.run.visit, lease.clone());
        let pending = PendingRecord { visit, key: key.to_owned(), record };
        self.write_with_pending(&lease.pending_writes, run, move |tx| {
            if matches!(&pending.record, LedgerRecord::Call(call) if call.status == CallStatus::Reserved) {
                at.check_lease(tx, &held)?;
            }
            insert_record(tx, run, &pending, now)
        })
        .await
    }

    /// Returns the stored row of a paid call of the current visit.
    pub async fn call_row(&self, lease: &RunLease, key: &str) -> Result<Option<CallRow>, StoreError> {
        let (run, visit, key) = (to_signed(lease.run.id.seq), to_signed(lease.run.visit), key.to_owned());
        self.read(move |tx| {
            let body: Option<String> = tx
                .prepare_cached("SELECT body FROM call WHERE run = ?1 AND visit = ?2 AND key = ?3")?
                .query_row(params![run, visit, key], |row| row.get(0))
                .optional()?;
            body.map(|body| parse_json(&body)).transpose()
        })
        .await
    }

    /// Returns all ledger rows of a run.
    pub async fn ledger(&self, run: RunId) -> Result<RunLedger, StoreError> {
        self.read(move |tx| {
            Ok(RunLedger {
                calls: rows_of_run(tx, "call", run)?,
                verdicts: rows_of_run(tx, "verdict", run)?,
                findings: rows_of_run(tx, "finding", run)?,
                approvals: rows_of_run(tx, "approval", run)?,
                raises: rows_of_run(tx, "raise", run)?,
                commits: rows_of_run(tx, "own_commit", run)?,
                answers: read_answers(tx, run)?,
            })
        })
        .await
    }

    /// Returns all commits that runs of an issue made on its branches, oldest first.
    pub async fn commits_of_issue(&self, issue: IssueNo) -> Result<Vec<CommitRow>, StoreError> {
        self.read(move |tx| rows_of_issue(tx, "own_commit", issue)).await
    }

    /// Returns all pull request sections that runs of an issue wrote, oldest first.
    pub async fn sections_of_issue(&self, issue: IssueNo) -> Result<Vec<SectionRow>, StoreError> {
        self.read(move |tx| rows_of_issue(tx, "pull_section", issue)).await
    }

    /// Returns the artifacts that runs saved for later stages of this issue, oldest first.
    pub async fn artifacts_of_issue(&self, issue: IssueNo) -> Result<Vec<ArtifactRow>, StoreError> {
        self.read(move |tx| {
            let mut statement =
                tx.prepare_cached("SELECT body FROM artifact WHERE body ->> 'issue' = ?1 ORDER BY rowid")?;
            let rows = statement.query_map([to_signed(issue.0)], |row| row.get::<_, String>(0))?;
            rows.map(|text| parse_json(&text?)).collect()
        })
        .await
    }
}

/// Inserts or replaces a ledger row. A call's cost is assigned to the day on which it was reserved, even if the
/// response arrives after midnight.
pub(super) fn insert_record(
    tx: &Transaction<'_>,
    run: RunId,
    pending: &PendingRecord,
    now: i64,
) -> Result<(), TransactionError> {
    let PendingRecord { visit, key, record } = pending;
    let (table, body) = match record {
        LedgerRecord::Call(row) => ("call", serde_json::to_string(row)?),
        LedgerRecord::Verdict(row) => ("verdict", serde_json::to_string(row)?),
        LedgerRecord::Finding(row) => ("finding", serde_json::to_string(row)?),
        LedgerRecord::Approval(row) => ("approval", serde_json::to_string(row)?),
        LedgerRecord::Raise(row) => ("raise", serde_json::to_string(row)?),
        LedgerRecord::Commit(row) => ("own_commit", serde_json::to_string(row)?),
        LedgerRecord::Section(row) => ("pull_section", serde_json::to_string(row)?),
        LedgerRecord::Artifact(row) => ("artifact", serde_json::to_string(row)?),
        LedgerRecord::Route(row) => ("route", serde_json::to_string(row)?),
        LedgerRecord::Text(row) => {
            let (name, detail) = (format!("text/{key}"), serde_json::to_value(row)?);
            return NewAuditLink { run, visit: *visit, name, what: row.kind.audit_text(), detail }
                .append_if_changed(tx, now);
        }
    };
    tx.prepare_cached(&format!(
        "INSERT INTO {table} (run, visit, key, body, at) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (run, visit, key) DO UPDATE SET body = excluded.body,
             at = CASE WHEN excluded.body ->> 'status' = 'reserved' THEN excluded.at ELSE \"{table}\".at END"
    ))?
    .execute(params![to_signed(run.seq), to_signed(*visit), key, body, now])?;
    NewAuditLink::for_row((run, *visit), table, key, &body)?.append_if_changed(tx, now)
}

fn rows_of_run<V: DeserializeOwned>(
    tx: &Transaction<'_>,
    table: &str,
    run: RunId,
) -> Result<Vec<V>, TransactionError> {
    let mut statement = tx.prepare(&format!("SELECT body FROM {table} WHERE run = ?1 ORDER BY rowid"))?;
    let rows = statement.query_map([to_signed(run.seq)], |row| row.get::<_, String>(0))?;
    rows.map(|text| parse_json(&text?)).collect()
}

fn rows_of_issue<V: DeserializeOwned>(
    tx: &Transaction<'_>,
    table: &str,
    issue: IssueNo,
) -> Result<Vec<V>, TransactionError> {
    let mut statement = tx.prepare(&format!(
        "SELECT body FROM {table} AS t JOIN run ON run.seq = t.run WHERE issue = ?1 ORDER BY t.rowid"
    ))?;
    let rows = statement.query_map([to_signed(issue.0)], |row| row.get::<_, String>(0))?;
    rows.map(|text| parse_json(&text?)).collect()
}

fn read_answers(tx: &Transaction<'_>, run: RunId) -> Result<Vec<(AnswerRow, Approvers)>, TransactionError> {
    let mut statement = tx.prepare(
        "SELECT answer.id, gate, subject, body, gate.spec FROM answer JOIN gate ON gate.id = answer.gate
         WHERE answer.run = ?1 ORDER BY answer.id",
    )?;
    let rows =
        statement.query_map([to_signed(run.seq)], |row| Ok((read_answer(row), row.get::<_, String>(4)?)))?;
    rows.map(|row| {
        let (answer, spec) = row?;
        Ok((answer?, parse_json::<GateSpec>(&spec)?.approvers))
    })
    .collect()
}
