//! Requests from outside a run: start, answer, remark, cancel, retry. Each request stores its cause, so that repeating
//! the request has no effect.

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;

use super::{
    RepositoryDatabase,
    audit_chain::{NO_VISIT, NewAuditLink},
    run_reader::{RunReader, count_remarks, parse_json},
};
use crate::{
    store::{
        AnswerReceipt, CancelRow, GateAnswer, GateRow, NewRun, RetryDecision, RunRemark, RunStatus,
        StartDecision, StoreError,
        agenda::RunUpdate,
        cluster::ClusterNotice,
        database::{to_signed, to_unsigned},
        error::TransactionError,
    },
    types::{Cause, IssueNo, RunId, Timestamp},
};

impl RepositoryDatabase {
    pub(in crate::store) async fn start_run(
        &self,
        new: NewRun,
    ) -> Result<(StartDecision, Vec<RunUpdate>), StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        self.write(move |tx| {
            let opened = at.open_run(tx, &new, now)?;
            let updates = match &opened {
                StartDecision::New(run) => vec![at.run_update(tx, to_signed(run.seq))?],
                StartDecision::Duplicate(_) | StartDecision::AlreadyLive(_) => Vec::new(),
            };
            Ok((opened, updates))
        })
        .await
    }

    /// Records an answer to `gate`, provided that the gate is still open and its subject has not changed.
    pub(in crate::store) async fn record_answer(
        &self,
        gate: GateRow,
        answer: GateAnswer,
    ) -> Result<(AnswerReceipt, Vec<RunUpdate>), StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        self.write(move |tx| {
            let known: bool = tx.query_row(
                "SELECT EXISTS (SELECT 1 FROM answer WHERE cause = ?1)",
                [&answer.cause.0],
                |row| row.get(0),
            )?;
            if known {
                return Ok((AnswerReceipt::Duplicate, Vec::new()));
            }
            let run = at.existing_run(tx, gate.run.seq)?;
            let asks_the_same = run
                .gate
                .as_ref()
                .is_some_and(|open| open.id == gate.id && open.spec.subject == gate.spec.subject);
            if !asks_the_same || !run.status.is_live() {
                return Ok((AnswerReceipt::Changed, Vec::new()));
            }
            let (body, subject) = (serde_json::to_string(&answer)?, gate.spec.subject.to_string());
            let link = NewAuditLink::for_row((gate.run, NO_VISIT), "answer", &answer.cause.0, &body)?;
            link.with_body_hash(&format!("{subject} {body}")).append_if_changed(tx, now)?;
            tx.execute(
                "INSERT INTO answer (cause, gate, run, subject, body, state, received_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, 'waiting', ?6)",
                params![answer.cause.0, to_signed(gate.id), to_signed(gate.run.seq), subject, body, now],
            )?;
            tx.execute(
                "UPDATE run SET due = CASE WHEN due < ?2 THEN due ELSE ?2 END, updated_at = ?2 WHERE seq = ?1",
                params![to_signed(gate.run.seq), now],
            )?;
            Ok((AnswerReceipt::Accepted, vec![at.run_update(tx, to_signed(gate.run.seq))?]))
        })
        .await
    }

    /// Records a remark on a finding of a live run. If the run is waiting for an answer, it becomes due, so that its
    /// step reads the remark.
    pub(in crate::store) async fn record_remark(
        &self,
        run: RunId,
        remark: RunRemark,
    ) -> Result<(AnswerReceipt, Vec<RunUpdate>), StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        self.write(move |tx| {
            let sql = "SELECT EXISTS (SELECT 1 FROM remark WHERE cause = ?1)";
            if tx.query_row(sql, [&remark.cause.0], |row| row.get(0))? {
                return Ok((AnswerReceipt::Duplicate, Vec::new()));
            }
            let Some(row) = at.run(tx, run.seq)?.filter(|row| row.status.is_live()) else {
                return Ok((AnswerReceipt::Changed, Vec::new()));
            };
            let (seq, number) = (to_signed(run.seq), to_signed(count_remarks(tx, run)? + 1));
            let body = serde_json::to_string(&remark)?;
            NewAuditLink::for_row((run, NO_VISIT), "remark", &remark.cause.0, &body)?
                .append_if_changed(tx, now)?;
            tx.execute(
                "INSERT INTO remark (run, number, cause, body, at) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![seq, number, remark.cause.0, body, now],
            )?;
            if row.status == RunStatus::Asking {
                let due = Timestamp(now).plus(remark.read_within());
                tx.execute(
                    "UPDATE run SET due = CASE WHEN due < ?2 THEN due ELSE ?2 END WHERE seq = ?1",
                    [seq, due.0],
                )?;
            }
            Ok((AnswerReceipt::Accepted, vec![at.run_update(tx, seq)?]))
        })
        .await
    }

    /// Returns the remarks on a run's findings whose numbers are above `after` and at most `upto`.
    pub async fn remarks(&self, run: RunId, after: u64, upto: u64) -> Result<Vec<RunRemark>, StoreError> {
        self.read(move |tx| {
            let sql =
                "SELECT body FROM remark WHERE run = ?1 AND number > ?2 AND number <= ?3 ORDER BY number";
            let mut statement = tx.prepare_cached(sql)?;
            let keys = [to_signed(run.seq), to_signed(after), to_signed(upto)];
            let rows = statement.query_map(keys, |row| row.get::<_, String>(0))?;
            rows.map(|text| parse_json(&text?)).collect()
        })
        .await
    }

    /// Returns whether a gate of this issue has, or ever had, a subject whose hash starts with `hash`.
    pub async fn has_gate_about(&self, issue: IssueNo, hash: &str) -> Result<bool, StoreError> {
        let begins = format!("{hash}%");
        self.read(move |tx| {
            // The gate row keeps only its current subject; earlier subjects are in the answers.
            let sql = "SELECT EXISTS (
                 SELECT 1 FROM gate JOIN run ON run.seq = gate.run LEFT JOIN answer ON answer.gate = gate.id
                 WHERE run.issue = ?1 AND ((gate.spec ->> 'subject') LIKE ?2 OR answer.subject LIKE ?2))";
            tx.query_row(sql, params![to_signed(issue.0), begins], |row| row.get(0))
        })
        .await
    }

    pub async fn has_answer(&self, cause: &Cause) -> Result<bool, StoreError> {
        let cause = cause.0.clone();
        self.read(move |tx| {
            let sql = "SELECT EXISTS (SELECT 1 FROM answer WHERE cause = ?1)";
            tx.query_row(sql, [cause], |row| row.get(0))
        })
        .await
    }

    /// Marks one run, or all live runs of the issue, as cancelled. Returns the runs that were cancelled. If the request
    /// is repeated with the same cause, returns the same runs.
    pub(in crate::store) async fn cancel_runs(
        &self,
        issue: IssueNo,
        run: Option<RunId>,
        cancel: CancelRow,
    ) -> Result<(Vec<RunId>, Vec<RunUpdate>), StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        self.write(move |tx| {
                let fresh = tx.execute(
                    "INSERT INTO cancel (cause, actor, why, at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (cause) DO NOTHING",
                    params![cancel.cause.0, serde_json::to_string(&cancel.by)?, cancel.why, cancel.at.0],
                )?;
                let id: i64 =
                    tx.query_row("SELECT id FROM cancel WHERE cause = ?1", [&cancel.cause.0], |row| row.get(0))?;
                if fresh == 1 {
                    tx.execute(
                        "UPDATE run SET cancel = ?1 WHERE issue = ?2 AND (CAST(?3 AS BIGINT) IS NULL OR seq = ?3) AND cancel IS NULL
                             AND status IN ('ready', 'asking', 'waiting', 'halting')",
                        params![id, to_signed(issue.0), run.map(|run| to_signed(run.seq))],
                    )?;
                }
                let mut statement =
                    tx.prepare("SELECT seq FROM run WHERE issue = ?1 AND cancel = ?2 ORDER BY seq")?;
                let marked = statement
                    .query_map([to_signed(issue.0), id], |row| row.get(0))?
                    .collect::<Result<Vec<i64>, _>>()?;
                let runs: Vec<_> =
                    marked.iter().map(|seq| RunId { repo: at.repo, seq: to_unsigned(*seq) }).collect();
                for run in &runs {
                    ClusterNotice::Cancelled(*run).notify(tx)?;
                }
                for run in runs.iter().filter(|_| fresh == 1) {
                    let detail = serde_json::json!({ "by": cancel.by, "why": cancel.why, "at": cancel.at });
                    let body = format!("{} {}", serde_json::to_string(&cancel.by)?, cancel.why);
                    let name = format!("stop/{}", cancel.cause);
                    let what = "somebody asked that the run end";
                    NewAuditLink { run: *run, visit: NO_VISIT, name, what, detail }.with_body_hash(&body).append_if_changed(tx, now)?;
                }
                let updates = marked.iter().map(|seq| at.run_update(tx, *seq)).collect::<Result<_, _>>()?;
                Ok((runs, updates))
            })
            .await
    }

    /// Makes a failed run live again with a new visit to the step at which it failed. A waiting run is woken in the
    /// same way. A parked run is unparked and becomes due.
    pub(in crate::store) async fn retry_run(
        &self,
        run: RunId,
        cause: Cause,
        by: String,
    ) -> Result<(RetryDecision, Vec<RunUpdate>), StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        self.write(move |tx| {
            let sql = "SELECT EXISTS (SELECT 1 FROM retry WHERE cause = ?1)";
            if tx.query_row(sql, [&cause.0], |row| row.get(0))? {
                return Ok((RetryDecision::Duplicate, Vec::new()));
            }
            let Some(row) = at.run(tx, run.seq)? else { return Ok((RetryDecision::NoRun, Vec::new())) };
            let parked = row.parked && row.status.is_live();
            let waits = row.status == RunStatus::Waiting && row.gate.is_none();
            if !parked && !waits && row.status != RunStatus::Failed {
                return Ok((RetryDecision::NotFailed(Box::new(row)), Vec::new()));
            }
            let other = find_live_run(tx, &row.workflow, row.trigger.issue)?;
            if let Some(other) = other.filter(|seq| *seq != run.seq) {
                return Ok((RetryDecision::OtherRunLive(Box::new(at.existing_run(tx, other)?)), Vec::new()));
            }
            tx.execute(
                "INSERT INTO retry (cause, run, by, at) VALUES (?1, ?2, ?3, ?4)",
                params![cause.0, to_signed(run.seq), by, now],
            )?;
            let (name, what) = (format!("retry/{cause}"), "the run was tried again");
            let detail = serde_json::json!({ "by": by });
            NewAuditLink { run, visit: NO_VISIT, name, what, detail }.with_body_hash(&by).append_if_changed(tx, now)?;
            let seq = to_signed(run.seq);
            if parked {
                tx.execute("UPDATE run SET parked = NULL, due = ?2 WHERE seq = ?1", [seq, now])?;
                return Ok((RetryDecision::Resumed, vec![at.run_update(tx, seq)?]));
            }
            let visit = to_signed(row.visit + 1);
            tx.execute(
                "UPDATE trail SET left_at = ?3, how = 'retry' WHERE run = ?1 AND visit = ?2 AND left_at IS NULL",
                params![seq, to_signed(row.visit), now],
            )?;
            tx.execute(
                "UPDATE run SET status = 'ready', visit = ?2, moves = 0, attempts = 0, due = ?3, halt = NULL,
                         why = ?4, updated_at = ?3, lease = lease + 1, parked = NULL
                     WHERE seq = ?1",
                params![seq, visit, now, format!("tried again by {by}")],
            )?;
            tx.execute(
                "INSERT INTO trail (run, visit, step, state, entered_at) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![seq, visit, row.step, row.state, now],
            )?;
            Ok((RetryDecision::Resumed, vec![at.run_update(tx, seq)?]))
        })
        .await
    }
}

/// Returns the live run of this workflow on this issue.
fn find_live_run(
    tx: &Transaction<'_>,
    workflow: &str,
    issue: IssueNo,
) -> Result<Option<u64>, TransactionError> {
    let seq: Option<i64> = tx
        .prepare_cached(
            "SELECT seq FROM run WHERE workflow = ?1 AND issue = ?2
                 AND status IN ('ready', 'asking', 'waiting', 'halting')",
        )?
        .query_row(params![workflow, to_signed(issue.0)], |row| row.get(0))
        .optional()?;
    Ok(seq.map(to_unsigned))
}

impl RunReader {
    /// Creates a run, unless a run with this cause exists or this workflow already has a live run on the issue.
    pub(super) fn open_run(
        self,
        tx: &Transaction<'_>,
        new: &NewRun,
        now: i64,
    ) -> Result<StartDecision, TransactionError> {
        let trigger = &new.trigger;
        let started: Option<i64> = tx
            .query_row("SELECT seq FROM run WHERE cause = ?1", [&trigger.cause.0], |row| row.get(0))
            .optional()?;
        if let Some(seq) = started {
            return Ok(StartDecision::Duplicate(RunId { repo: self.repo, seq: to_unsigned(seq) }));
        }
        if let Some(seq) = find_live_run(tx, &new.workflow, trigger.issue)? {
            return Ok(StartDecision::AlreadyLive(Box::new(self.existing_run(tx, seq)?)));
        }
        let request = serde_json::to_string(trigger)?;
        let seq: i64 = tx.query_row(
            "INSERT INTO run (workflow, version, issue, cause, request, status, step, state, visit, moves,
                 attempts, due, lease, started_at, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5, 'ready', ?6, ?7, 1, 0, 0, ?8, 0, ?8, ?8) RETURNING seq",
            params![
                new.workflow,
                new.version,
                to_signed(trigger.issue.0),
                trigger.cause.0,
                request,
                new.step,
                new.state,
                now
            ],
            |row| row.get(0),
        )?;
        tx.execute(
            "INSERT INTO trail (run, visit, step, state, entered_at) VALUES (?1, 1, ?2, ?3, ?4)",
            params![seq, new.step, new.state, now],
        )?;
        let run = RunId { repo: self.repo, seq: to_unsigned(seq) };
        NewAuditLink::for_row((run, NO_VISIT), "run", "", &request)?.append_if_changed(tx, now)?;
        Ok(StartDecision::New(run))
    }
}
