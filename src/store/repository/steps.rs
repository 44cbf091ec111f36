//! Claims a run for a step, and saves the run's checkpoint after the step.

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;

use super::{
    RepositoryDatabase,
    audit_chain::NewAuditLink,
    run_reader::{LIVE_RUN_CONDITION, RunReader, count_remarks, status_text},
};
use crate::{
    limits,
    store::{
        Checkpoint, GateSpec, RunLease, RunRow, RunStatus, StartDecision, StoreError,
        agenda::RunUpdate,
        cluster::living_node_condition,
        database::{to_signed, to_unsigned},
        error::TransactionError,
    },
    types::{RunId, Timestamp},
};

impl RepositoryDatabase {
    /// Returns a run that is about to execute a step, and the run's lease number. Returns `None` if the run is not
    /// live. Writes nothing, because only this process uses the directory, and it keeps its claims in memory.
    pub(in crate::store) async fn claim_run(&self, run: RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let at = self.run_reader();
        if self.db.is_shared() {
            return self.claim_run_in_cluster(run).await;
        }
        self.read_small(move |tx| {
            let number: Option<i64> = tx
                .prepare_cached(&format!("SELECT lease FROM run WHERE seq = ?1 AND {LIVE_RUN_CONDITION}"))?
                .query_row([to_signed(run.seq)], |row| row.get(0))
                .optional()?;
            let Some(number) = number else { return Ok(None) };
            Ok(Some((at.existing_run(tx, run.seq)?, to_unsigned(number))))
        })
        .await
    }

    /// Claims a due run that no other live node has claimed. Fails if the lease of our own node has expired, because
    /// other nodes could then also claim the run.
    async fn claim_run_in_cluster(&self, run: RunId) -> Result<Option<(RunRow, u64)>, StoreError> {
        let (at, now) = (self.run_reader(), self.clock.now().0);
        self.write_here(move |tx| {
            let sql = format!(
                "UPDATE run SET taken = ?2, lease = lease + 1 WHERE seq = ?1 AND {LIVE_RUN_CONDITION}
                     AND (due <= ?3 OR cancel IS NOT NULL AND status <> 'halting')
                     AND (taken IS NULL OR taken = ?2 OR NOT {}) AND {} RETURNING lease",
                living_node_condition("run.taken"),
                living_node_condition("?2")
            );
            let number: Option<i64> = tx
                .prepare_cached(&sql)?
                .query_row([to_signed(run.seq), at.epoch, now], |row| row.get(0))
                .optional()?;
            let Some(number) = number else { return Ok(None) };
            Ok(Some((at.existing_run(tx, run.seq)?, to_unsigned(number))))
        })
        .await
    }

    /// Releases the lease and leaves the run unchanged. If `until` is set, the run becomes due only at that time,
    /// unless it has a new answer, remark or cancel request.
    pub(in crate::store) async fn release_run(
        &self,
        lease: &RunLease,
        until: Option<Timestamp>,
    ) -> Result<Vec<RunUpdate>, StoreError> {
        let (at, held, now) = (self.run_reader(), lease.clone(), self.clock.now());
        self.write(move |tx| {
            at.check_lease(tx, &held)?;
            let seq = to_signed(held.run.id.seq);
            let sql = "UPDATE run SET taken = ?4, due = CASE
                           WHEN CAST(?2 AS BIGINT) IS NULL OR cancel IS NOT NULL OR remarks < ?3
                               OR EXISTS (SELECT 1 FROM answer WHERE answer.run = run.seq AND state = 'waiting')
                           THEN due ELSE ?2 END
                       WHERE seq = ?1";
            let remarks = to_signed(count_remarks(tx, held.run.id)?);
            let taken = until.and_then(|until| at.waiting_holder(tx, until, now));
            tx.prepare_cached(sql)?.execute(params![seq, until.map(|until| until.0), remarks, taken])?;
            Ok(vec![at.run_update(tx, seq)?])
        })
        .await
    }

    /// Saves the checkpoint of a step and releases the run.
    pub(in crate::store) async fn save_checkpoint(
        &self,
        lease: &RunLease,
        left: Checkpoint,
    ) -> Result<Vec<RunUpdate>, StoreError> {
        let (at, now, held) = (self.run_reader(), self.clock.now(), lease.clone());
        let seq = to_signed(lease.run.id.seq);
        if !left.has_state() {
            lease.pending_writes.drop_documents();
        }
        self.write_with_pending(&lease.pending_writes, lease.run.id, move |tx| {
            at.check_lease(tx, &held)?;
            let follow_up = CheckpointSave { reader: at, tx, lease: &held, now }.apply_checkpoint(left)?;
            follow_up.into_iter().chain([seq]).map(|seq| at.run_update(tx, seq)).collect()
        })
        .await
    }
}

impl RunReader {
    /// Returns the current node if the run is due again soon, so that the node keeps its claim. The claim is kept
    /// because the run's background job exists only in this process.
    fn waiting_holder(self, tx: &Transaction<'_>, until: Timestamp, now: Timestamp) -> Option<i64> {
        let soon = until <= now.plus(limits::JOB_POLL_INTERVAL);
        (soon && matches!(tx, Transaction::Server(_))).then_some(self.epoch)
    }

    /// Refuses a lease that was issued by an older boot or before the run's last save.
    pub(super) fn check_lease(self, tx: &Transaction<'_>, lease: &RunLease) -> Result<(), TransactionError> {
        let number: Option<i64> = tx
            .prepare_cached("SELECT lease FROM run WHERE seq = ?1")?
            .query_row([to_signed(lease.run.id.seq)], |row| row.get(0))
            .optional()?;
        if number.map(to_unsigned) != Some(lease.number) {
            return Err(TransactionError::Fenced);
        }
        if let Transaction::Server(_) = tx {
            // Every claim raises the lease number, so that check suffices.
            return Ok(());
        }
        let epoch: i64 = tx.prepare_cached("SELECT epoch FROM boot")?.query_row([], |row| row.get(0))?;
        if epoch > lease.epoch {
            return Err(TransactionError::Fenced);
        }
        if epoch < lease.epoch {
            // First write of this boot in this database; from now on it refuses older boots.
            tx.execute("UPDATE boot SET epoch = ?1", [lease.epoch])?;
        }
        Ok(())
    }
}

/// Saves one checkpoint within one transaction.
struct CheckpointSave<'a> {
    reader: RunReader,
    tx: &'a Transaction<'a>,
    lease: &'a RunLease,
    now: Timestamp,
}

/// Values to write to the columns of a run's row. A save starts from the claimed row and overrides some of the values.
struct RunColumns<'a> {
    status: RunStatus,
    step: &'a str,
    state: &'a [u8],
    visit: u64,
    moves: u32,
    attempts: u32,
    due: Option<Timestamp>,
    parked: Option<i64>,
    halt: Option<&'a str>,
    why: Option<&'a str>,
    outcome: Option<String>,
    remarks: u64,
    /// Node that keeps its claim on the run; `None` if the run is released.
    taken: Option<i64>,
}

impl CheckpointSave<'_> {
    /// Applies the checkpoint. If the checkpoint starts a follow-up run, returns the number of that run.
    fn apply_checkpoint(&self, left: Checkpoint) -> Result<Option<i64>, TransactionError> {
        let run = &self.lease.run;
        let unchanged = RunColumns {
            status: run.status,
            step: &run.step,
            state: &run.state,
            visit: run.visit,
            moves: run.moves,
            attempts: 0,
            due: run.due,
            parked: None,
            halt: run.halt.as_deref(),
            why: None,
            outcome: None,
            remarks: run.remarks,
            taken: None,
        };
        let remarks = count_remarks(self.tx, run.id)?;
        let (now, next) = (Some(self.now), run.visit + 1);
        let mut follow_up = None;
        match left {
            Checkpoint::Go { step, state, moves } => {
                self.close_gate()?;
                let (step, state) = (step.as_str(), state.as_slice());
                self.next_visit("go", step, state)?;
                let status = RunStatus::Ready;
                self.update_run(RunColumns {
                    status,
                    step,
                    state,
                    visit: next,
                    moves,
                    due: now,
                    remarks,
                    ..unchanged
                })
            }
            Checkpoint::Ask { state, gate } => {
                let (status, state, mut due) = (RunStatus::Asking, state.as_slice(), self.open_gate(&gate)?);
                if remarks > run.remarks {
                    due = now;
                }
                self.update_run(RunColumns { status, state, due, remarks, ..unchanged })
            }
            Checkpoint::Wait { state, until, why } => {
                let due = if self.has_new_answer()? { now } else { Some(until) };
                let (status, state) = (RunStatus::Waiting, state.as_slice());
                let taken = self.reader.waiting_holder(self.tx, until, self.now);
                self.update_run(RunColumns {
                    status,
                    state,
                    due,
                    why: Some(&why),
                    remarks,
                    taken,
                    ..unchanged
                })
            }
            Checkpoint::Done { state, outcome, then } => {
                self.close_gate()?;
                self.leave_visit("done")?;
                let (status, state) = (RunStatus::Done, state.as_slice());
                let outcome = serde_json::to_string(&outcome)?;
                self.add_end_link(RunStatus::Done, &outcome)?;
                let outcome = Some(outcome);
                // A cancel of this run covers its follow-up run as well.
                let stopped = self.reader.existing_run(self.tx, run.id.seq)?.cancel.is_some();
                self.update_run(RunColumns { status, state, due: None, outcome, ..unchanged })?;
                if let Some(new) = then.filter(|_| !stopped)
                    && let StartDecision::New(run) = self.reader.open_run(self.tx, &new, self.now.0)?
                {
                    follow_up = Some(to_signed(run.seq));
                }
                Ok(())
            }
            Checkpoint::Halt { halt, why } => {
                self.close_gate()?;
                self.next_visit("halt", &run.step, &run.state)?;
                let detail = serde_json::json!({ "halt": halt, "why": why });
                let name = "halt".to_owned();
                NewAuditLink { run: run.id, visit: run.visit, name, what: "the run was halted", detail }
                    .append_if_changed(self.tx, self.now.0)?;
                let (status, halt, why) = (RunStatus::Halting, Some(halt.as_str()), Some(why.as_str()));
                self.update_run(RunColumns { status, visit: next, due: now, halt, why, ..unchanged })
            }
            Checkpoint::Ended { status, why } => {
                // PostgreSQL cannot store NUL characters, and the chain seals this text, so replace them.
                let why = why.replace('\0', "\u{fffd}");
                self.close_gate()?;
                self.leave_visit("ended")?;
                self.add_end_link(status, &why)?;
                self.update_run(RunColumns { status, due: None, why: Some(&why), ..unchanged })
            }
            Checkpoint::Retry { attempts, due, why } => {
                let taken = self.reader.waiting_holder(self.tx, due, self.now);
                let (due, why) = (Some(due), Some(why.as_str()));
                self.update_run(RunColumns { attempts, due, why, taken, ..unchanged })
            }
            Checkpoint::Park { why } => {
                let parked = Some(self.reader.epoch);
                self.update_run(RunColumns { parked, why: Some(&why), ..unchanged })
            }
        }?;
        Ok(follow_up)
    }

    /// Writes the run's row and increases its lease number, so that any older lease is refused.
    fn update_run(&self, to: RunColumns<'_>) -> Result<(), TransactionError> {
        self.tx
            .prepare_cached(
                "UPDATE run SET status = ?2, step = ?3, state = ?4, visit = ?5, moves = ?6, attempts = ?7, due = ?8,
                     parked = ?9, halt = ?10, why = ?11, outcome = ?12, updated_at = ?13, remarks = ?14, lease = lease + 1,
                     taken = ?15
                 WHERE seq = ?1",
            )?
            .execute(params![
                to_signed(self.lease.run.id.seq),
                status_text(to.status),
                to.step,
                to.state,
                to_signed(to.visit),
                to.moves,
                to.attempts,
                to.due.map(|due| due.0),
                to.parked,
                to.halt,
                to.why,
                to.outcome,
                self.now.0,
                to_signed(to.remarks),
                to.taken
            ])?;
        Ok(())
    }

    fn add_end_link(&self, status: RunStatus, why: &str) -> Result<(), TransactionError> {
        let run = &self.lease.run;
        NewAuditLink::for_run_end(run.id, run.visit, status_text(status), why)
            .append_if_changed(self.tx, self.now.0)
    }

    fn leave_visit(&self, how: &str) -> Result<(), TransactionError> {
        let run = &self.lease.run;
        self.tx
            .prepare_cached("UPDATE trail SET left_at = ?3, how = ?4 WHERE run = ?1 AND visit = ?2")?
            .execute(params![to_signed(run.id.seq), to_signed(run.visit), self.now.0, how])?;
        Ok(())
    }

    fn next_visit(&self, how: &str, step: &str, state: &[u8]) -> Result<(), TransactionError> {
        self.leave_visit(how)?;
        let (seq, visit) = (to_signed(self.lease.run.id.seq), to_signed(self.lease.run.visit + 1));
        self.tx
            .prepare_cached(
                "INSERT INTO trail (run, visit, step, state, entered_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![seq, visit, step, state, self.now.0])?;
        Ok(())
    }

    /// Marks the answer that was passed to the step as consumed.
    fn consume_answer(&self) -> Result<(), TransactionError> {
        if let Some(answer) = &self.lease.run.answer {
            self.tx.execute("UPDATE answer SET state = 'consumed' WHERE id = ?1", [to_signed(answer.id)])?;
        }
        Ok(())
    }

    fn close_gate(&self) -> Result<(), TransactionError> {
        self.consume_answer()?;
        let Some(gate) = &self.lease.run.gate else { return Ok(()) };
        let id = to_signed(gate.id);
        self.tx.execute("UPDATE answer SET state = 'late' WHERE gate = ?1 AND state = 'waiting'", [id])?;
        self.tx.execute("UPDATE gate SET closed_at = ?2 WHERE id = ?1", params![id, self.now.0])?;
        Ok(())
    }

    /// Opens the gate, or updates it if it is already open. Returns the time at which the step is due again.
    fn open_gate(&self, spec: &GateSpec) -> Result<Option<Timestamp>, TransactionError> {
        self.consume_answer()?;
        let text = serde_json::to_string(spec)?;
        let Some(open) = &self.lease.run.gate else {
            self.tx.execute(
                "INSERT INTO gate (run, visit, spec, opened_at) VALUES (?1, ?2, ?3, ?4)",
                params![to_signed(self.lease.run.id.seq), to_signed(self.lease.run.visit), text, self.now.0],
            )?;
            return Ok(self.next_expiry(spec));
        };
        let id = to_signed(open.id);
        self.tx.execute("UPDATE gate SET spec = ?2 WHERE id = ?1", params![id, text])?;
        // An answer about another subject does not count for this one.
        self.tx.execute(
            "UPDATE answer SET state = 'late' WHERE gate = ?1 AND state = 'waiting' AND subject <> ?2",
            params![id, spec.subject.to_string()],
        )?;
        Ok(if self.has_waiting_answer(open.id)? { Some(self.now) } else { self.next_expiry(spec) })
    }

    fn has_waiting_answer(&self, gate: u64) -> Result<bool, TransactionError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM answer WHERE gate = ?1 AND state = 'waiting')";
        self.tx.query_row(sql, [to_signed(gate)], |row| row.get(0))
    }

    /// Returns whether a person answered the open gate while the step was running. Always returns `false` if the step
    /// itself received an answer, because the step already knows that answer.
    fn has_new_answer(&self) -> Result<bool, TransactionError> {
        match (&self.lease.run.gate, &self.lease.run.answer) {
            (Some(open), None) => self.has_waiting_answer(open.id),
            _ => Ok(false),
        }
    }

    /// Returns the time at which the gate expires, or `None` if that time has passed. A step that asks again after the
    /// expiry waits only for people.
    fn next_expiry(&self, spec: &GateSpec) -> Option<Timestamp> {
        spec.expires.filter(|at| *at > self.now)
    }
}
