//! Reads runs and their visits.

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;
use serde::de::DeserializeOwned;

use super::RepositoryDatabase;
use crate::{
    store::{
        AnswerRow, CancelRow, GateRow, GitHubCallCount, RemarkKind, RunFilter, RunRow, RunStatus, StoreError,
        VisitRow, VisitSpan,
        agenda::{RunPosition, RunPriority, RunUpdate, ScheduledRun},
        cluster::{ClusterNotice, living_node_condition},
        database::{to_signed, to_unsigned},
        error::TransactionError,
    },
    types::{Cause, InstallationId, RepoId, RunId, Timestamp},
};

impl RepositoryDatabase {
    pub async fn run(&self, id: RunId) -> Result<Option<RunRow>, StoreError> {
        let at = self.run_reader();
        self.read(move |tx| at.run(tx, id.seq)).await
    }

    /// Returns the matching runs in the order in which they were started.
    pub async fn runs(&self, filter: RunFilter) -> Result<Vec<RunRow>, StoreError> {
        let at = self.run_reader();
        self.read(move |tx| at.runs(tx, filter)).await
    }

    /// Returns the visits of a run, oldest first.
    pub async fn trail(&self, run: RunId) -> Result<Vec<VisitRow>, StoreError> {
        self.read(move |tx| {
            let mut statement = tx.prepare_cached(&format!("{VISITS} ORDER BY visit"))?;
            let rows = statement.query_map([to_signed(run.seq)], visit_row)?;
            rows.collect()
        })
        .await
    }

    /// Returns one visit of a run, including at most `most` calls and at most `most` journal entries.
    pub async fn visit(&self, run: RunId, visit: u64, most: u32) -> Result<Option<VisitSpan>, StoreError> {
        self.read(move |tx| {
            let (of, many) = ([to_signed(run.seq), to_signed(visit)], [to_signed(run.seq), to_signed(visit), most.into()]);
            let times = tx
                .prepare_cached("SELECT entered_at, left_at, how FROM trail WHERE run = ?1 AND visit = ?2")?
                .query_row(of, |row| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?, row.get(2)?)))
                .optional()?;
            let Some((entered, left, how)) = times else { return Ok(None) };
            let (again, after_retry) = tx
                .prepare_cached(
                    "SELECT (SELECT entered_at FROM trail WHERE run = ?1 AND visit = 1 +
                             (SELECT MAX(visit) FROM trail WHERE run = ?1 AND visit < ?2 AND how = 'ended')),
                         EXISTS (SELECT 1 FROM trail WHERE run = ?1 AND visit = ?2 - 1 AND how = 'retry')",
                )?
                .query_row(of, |row| Ok((row.get::<_, Option<i64>>(0)?.map(Timestamp), row.get(1)?)))?;
            let calls = tx
                .prepare_cached(
                    "SELECT key, at, body FROM call WHERE run = ?1 AND visit = ?2 ORDER BY rowid LIMIT ?3",
                )?
                .query_map(many, |row| Ok((row.get(0)?, Timestamp(row.get(1)?), row.get::<_, String>(2)?)))?
                .map(|row| row.and_then(|(key, at, body)| Ok((key, at, parse_json(&body)?))))
                .collect::<Result<_, _>>()?;
            let entries = tx
                .prepare_cached(
                    "SELECT key, begun_at, done_at FROM journal WHERE run = ?1 AND visit = ?2
                         AND key NOT IN (SELECT key FROM call WHERE run = ?1 AND visit = ?2) ORDER BY rowid LIMIT ?3",
                )?
                .query_map(many, |row| {
                    let done = row.get::<_, Option<i64>>(2)?.map(Timestamp);
                    Ok((row.get(0)?, Timestamp(row.get(1)?), done))
                })?
                .collect::<Result<_, _>>()?;
            let (entered_at, left_at) = (Timestamp(entered), left.map(Timestamp));
            Ok(Some(VisitSpan { entered_at, left_at, how, retried_at: again, after_retry, calls, entries }))
        })
        .await
    }

    pub(super) fn run_reader(&self) -> RunReader {
        RunReader { repo: self.repo, epoch: self.epoch }
    }
}

/// SQL query for the visits of a run. [`visit_row`] reads the resulting rows.
pub(in crate::store) const VISITS: &str =
    "SELECT visit, step, entered_at, left_at, how FROM trail WHERE run = ?1";

pub(in crate::store) fn visit_row(row: &SqlRow<'_>) -> Result<VisitRow, TransactionError> {
    Ok(VisitRow {
        visit: to_unsigned(row.get(0)?),
        step: row.get(1)?,
        entered_at: Timestamp(row.get(2)?),
        left_at: row.get::<_, Option<i64>>(3)?.map(Timestamp),
        how: row.get(4)?,
    })
}

/// SQL condition for a run that may still execute a step.
pub(in crate::store) const LIVE_RUN_CONDITION: &str = "status IN ('ready', 'asking', 'waiting', 'halting')";

/// Reads runs of one repository on behalf of a server, which is identified by its boot number or node ID.
#[derive(Clone, Copy)]
pub(super) struct RunReader {
    pub(super) repo: RepoId,
    pub(super) epoch: i64,
}

impl RunReader {
    pub(super) fn run(self, tx: &Transaction<'_>, seq: u64) -> Result<Option<RunRow>, TransactionError> {
        let raw = tx
            .prepare_cached("SELECT * FROM run WHERE seq = ?1")?
            .query_row([to_signed(seq)], |row| Ok(self.read_run_row(row)))
            .optional()?;
        let Some(raw) = raw else { return Ok(None) };
        let (mut run, cancel) = raw?;
        if run.taken {
            // A claim by a dead node does not count.
            let lives = format!(
                "SELECT EXISTS (SELECT 1 FROM run WHERE seq = ?1 AND {})",
                living_node_condition("run.taken")
            );
            run.taken = tx.prepare_cached(&lives)?.query_row([to_signed(seq)], |row| row.get(0))?;
        }
        run.cancel = cancel.map(|id| read_cancel(tx, id)).transpose()?;
        run.gate = self.open_gate(tx, run.id)?;
        if let Some(gate) = &run.gate {
            run.answer = oldest_waiting_answer(tx, gate.id)?;
        }
        Ok(Some(run))
    }

    /// Returns a run. The caller's transaction must have checked that the run exists.
    pub(super) fn existing_run(self, tx: &Transaction<'_>, seq: u64) -> Result<RunRow, TransactionError> {
        let id = RunId { repo: self.repo, seq };
        self.run(tx, seq)?.ok_or_else(|| TransactionError::Missing(format!("run {id}")))
    }

    fn runs(self, tx: &Transaction<'_>, filter: RunFilter) -> Result<Vec<RunRow>, TransactionError> {
        // Two separate conditions, so SQLite can use an index for each.
        let of_issue = if filter.issue.is_some() { "issue = ?1" } else { "CAST(?1 AS BIGINT) IS NULL" };
        let of_status = if filter.live_only { LIVE_RUN_CONDITION } else { "TRUE" };
        let seqs = tx
            .prepare_cached(&format!("SELECT seq FROM run WHERE {of_issue} AND {of_status} ORDER BY seq"))?
            .query_map(params![filter.issue.map(|issue| to_signed(issue.0))], |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        seqs.into_iter().map(|seq| self.existing_run(tx, to_unsigned(seq))).collect()
    }

    /// Returns the run in this row and the ID of the request that cancelled it, if any.
    fn read_run_row(self, row: &SqlRow<'_>) -> Result<(RunRow, Option<i64>), TransactionError> {
        let time = |column: &str| -> Result<Timestamp, TransactionError> { Ok(Timestamp(row.get(column)?)) };
        let status = parse_status(&row.get::<_, String>("status")?)?;
        let run = RunRow {
            id: RunId { repo: self.repo, seq: to_unsigned(row.get("seq")?) },
            workflow: row.get("workflow")?,
            version: row.get("version")?,
            trigger: parse_json(&row.get::<_, String>("request")?)?,
            status,
            step: row.get("step")?,
            state: row.get("state")?,
            visit: to_unsigned(row.get("visit")?),
            moves: row.get("moves")?,
            attempts: row.get("attempts")?,
            due: row.get::<_, Option<i64>>("due")?.map(Timestamp),
            // Taken by another process; the agenda knows our own claims. A waiting run keeps its holder without being
            // at work.
            taken: row.get::<_, Option<i64>>("taken")?.is_some_and(|by| by != self.epoch)
                && status != RunStatus::Waiting,
            parked: row.get::<_, Option<i64>>("parked")?.is_some_and(|by| by >= self.epoch),
            halt: row.get("halt")?,
            why: row.get("why")?,
            outcome: row.get::<_, Option<String>>("outcome")?.map(|text| parse_json(&text)).transpose()?,
            calls: GitHubCallCount {
                calls: to_unsigned(row.get("api_calls")?),
                writes: to_unsigned(row.get("api_writes")?),
            },
            cancel: None,
            gate: None,
            answer: None,
            remarks: to_unsigned(row.get("remarks")?),
            started_at: time("started_at")?,
            updated_at: time("updated_at")?,
        };
        Ok((run, row.get("cancel")?))
    }

    fn open_gate(self, tx: &Transaction<'_>, run: RunId) -> Result<Option<GateRow>, TransactionError> {
        let found = tx
            .prepare_cached(
                "SELECT id, spec, (SELECT COUNT(*) FROM answer WHERE answer.gate = gate.id),
                     (SELECT body FROM remark WHERE remark.run = gate.run AND body ->> 'verb' = ?2
                          AND body ->> 'finding' = CAST(visit AS TEXT) ORDER BY number DESC LIMIT 1)
                 FROM gate WHERE run = ?1 AND closed_at IS NULL",
            )?
            .query_row(params![to_signed(run.seq), RemarkKind::COMMENT_EDITED], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    row.get(2)?,
                    row.get::<_, Option<String>>(3)?,
                ))
            })
            .optional()?;
        let Some((id, spec, answers, touched)) = found else { return Ok(None) };
        let (spec, touched) = (parse_json(&spec)?, touched.map(|body| parse_json(&body)).transpose()?);
        Ok(Some(GateRow { id: to_unsigned(id), run, spec, answers, comment_edit: touched }))
    }
}

impl RunReader {
    /// Returns the new agenda entry of a run. Also notifies the other nodes, because they may be able to claim the run.
    pub(super) fn run_update(self, tx: &Transaction<'_>, seq: i64) -> Result<RunUpdate, TransactionError> {
        ClusterNotice::Runs(self.repo).notify(tx)?;
        let mut statement = tx.prepare_cached(&self.scheduled_runs_query(tx, "seq = ?2"))?;
        let slot = statement.query_row([self.epoch, seq], |row| Ok(read_scheduled_run(row))).optional()?;
        Ok((to_unsigned(seq), slot.transpose()?))
    }

    /// Returns the agenda entries of all live runs.
    pub(super) fn live_runs(self, tx: &Transaction<'_>) -> Result<Vec<ScheduledRun>, TransactionError> {
        let mut statement = tx.prepare_cached(&self.scheduled_runs_query(tx, "TRUE"))?;
        let slots = statement.query_map([self.epoch], |row| Ok(read_scheduled_run(row)))?;
        slots.map(|slot| slot?).collect()
    }

    /// Returns the SQL query for live runs, as seen by this server, whose boot number or node ID is `?1`. A cancelled
    /// run is due immediately, even if it is parked.
    fn scheduled_runs_query(self, tx: &Transaction<'_>, which: &str) -> String {
        // A run that another live node holds is not due here.
        let elsewhere = match tx {
            Transaction::File(_) => String::new(),
            Transaction::Server(_) => {
                format!("WHEN taken <> {} AND {} THEN NULL", self.epoch, living_node_condition("run.taken"))
            }
        };
        format!(
        "SELECT seq,
             CASE {elsewhere} WHEN cancel IS NOT NULL AND status <> 'halting' THEN 0 WHEN parked >= ?1 THEN NULL ELSE due END,
             (cancel IS NOT NULL AND status <> 'halting') OR EXISTS (
                 SELECT 1 FROM answer WHERE state = 'waiting'
                 AND gate = (SELECT id FROM gate WHERE gate.run = run.seq AND closed_at IS NULL)),
             status = 'ready' AND why IS NOT NULL,
             CAST(request ->> 'installation' AS BIGINT), workflow, step, status
         FROM run WHERE {which} AND {LIVE_RUN_CONDITION}"
    )
    }
}

fn read_scheduled_run(row: &SqlRow<'_>) -> Result<ScheduledRun, TransactionError> {
    let (spoken, again): (bool, bool) = (row.get(2)?, row.get(3)?);
    let rank = match (spoken, again) {
        (true, _) => RunPriority::PersonWaiting,
        (false, false) => RunPriority::Normal,
        (false, true) => RunPriority::AfterFailure,
    };
    Ok(ScheduledRun {
        seq: to_unsigned(row.get(0)?),
        due: row.get::<_, Option<i64>>(1)?.map(Timestamp),
        priority: rank,
        installation: InstallationId(to_unsigned(row.get(4)?)),
        position: RunPosition {
            workflow: row.get(5)?,
            step: row.get(6)?,
            status: parse_status(&row.get::<_, String>(7)?)?,
        },
    })
}

/// Returns the number of remarks that were made on a run so far.
pub(super) fn count_remarks(tx: &Transaction<'_>, run: RunId) -> Result<u64, TransactionError> {
    let newest = tx
        .prepare_cached("SELECT COALESCE(MAX(number), 0) FROM remark WHERE run = ?1")?
        .query_row([to_signed(run.seq)], |row| row.get(0))?;
    Ok(to_unsigned(newest))
}

fn oldest_waiting_answer(tx: &Transaction<'_>, gate: u64) -> Result<Option<AnswerRow>, TransactionError> {
    tx.prepare_cached(
        "SELECT id, gate, subject, body FROM answer WHERE gate = ?1 AND state = 'waiting' ORDER BY id LIMIT 1",
    )?
    .query_row([to_signed(gate)], |row| Ok(read_answer(row)))
    .optional()?
    .transpose()
}

/// Reads an answer from a row with the columns id, gate, subject, body.
pub(super) fn read_answer(row: &SqlRow<'_>) -> Result<AnswerRow, TransactionError> {
    Ok(AnswerRow {
        id: to_unsigned(row.get(0)?),
        gate: to_unsigned(row.get(1)?),
        subject: row.get::<_, String>(2)?.parse()?,
        answer: parse_json(&row.get::<_, String>(3)?)?,
    })
}

fn read_cancel(tx: &Transaction<'_>, id: i64) -> Result<CancelRow, TransactionError> {
    let (cause, actor, why, at) = tx
        .prepare_cached("SELECT cause, actor, why, at FROM cancel WHERE id = ?1")?
        .query_row([id], |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?)))?;
    Ok(CancelRow { cause: Cause(cause), by: parse_json(&actor)?, why, at: Timestamp(at) })
}

pub(in crate::store) fn parse_json<V: DeserializeOwned>(text: &str) -> Result<V, TransactionError> {
    Ok(serde_json::from_str(text)?)
}

pub(in crate::store) fn parse_status(text: &str) -> Result<RunStatus, TransactionError> {
    Ok(serde_json::from_value(text.into())?)
}

pub(in crate::store) fn status_text(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Ready => "ready",
        RunStatus::Asking => "asking",
        RunStatus::Waiting => "waiting",
        RunStatus::Halting => "halting",
        RunStatus::Done => "done",
        RunStatus::Failed => "failed",
        RunStatus::Stopped => "stopped",
    }
}
