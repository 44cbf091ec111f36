//! Taking a step of a run and saving what it left.

use std::{collections::HashSet, sync::Arc};

use rusqlite::{Transaction, params};

use super::{
    RepoDb,
    read::{Reader, status_text},
};
use crate::{
    store::{
        Calls, Checkpoint, GateSpec, Lease, Rest, RunStatus, StoreError,
        database::{signed, unsigned},
        error::Fault,
    },
    types::{RunId, Timestamp},
};

/// Runs this boot (`?1`) may take, whenever they are due. A cancel does not wait for the due time,
/// nor for someone who can read the run.
const FREE: &str = "status IN ('ready', 'asking', 'waiting', 'halting')
     AND (taken IS NULL OR taken < ?1)
     AND ((cancel IS NOT NULL AND status <> 'halting')
          OR (due IS NOT NULL AND (parked IS NULL OR parked < ?1)))";

/// When a free run is due: a cancelled one at once.
const DUE: &str = "CASE WHEN cancel IS NOT NULL AND status <> 'halting' THEN 0 ELSE due END";

impl RepoDb {
    /// Takes the longest overdue run that is not among `except`.
    pub(in crate::store) async fn claim(
        &self,
        now: Timestamp,
        except: HashSet<RunId>,
    ) -> Result<Option<Lease>, StoreError> {
        let at = self.at();
        self.db
            .write(move |tx| {
                let sql = format!("SELECT seq FROM run WHERE {FREE} AND {DUE} <= ?2 ORDER BY {DUE}, seq");
                let ready = tx
                    .prepare_cached(&sql)?
                    .query_map(params![at.epoch, now.0], |row| row.get(0))?
                    .collect::<Result<Vec<i64>, _>>()?;
                let next = ready
                    .into_iter()
                    .map(|seq| RunId { repo: at.repo, seq: unsigned(seq) })
                    .find(|id| !except.contains(id));
                let Some(id) = next else { return Ok(None) };
                let number = tx.query_row(
                    "UPDATE run SET taken = ?2, lease = lease + 1 WHERE seq = ?1 RETURNING lease",
                    params![signed(id.seq), at.epoch],
                    |row| row.get(0),
                )?;
                Ok(Some(Lease {
                    run: at.known(tx, id.seq)?,
                    number: unsigned(number),
                    tally: Arc::default(),
                }))
            })
            .await
    }

    /// When this repository wants to be looked at again.
    pub(in crate::store) async fn rest(&self) -> Result<Rest, StoreError> {
        let at = self.at();
        self.db
            .read(move |tx| {
                let sql = format!("SELECT MIN({DUE}) FROM run WHERE {FREE}");
                let due: Option<i64> = tx.query_row(&sql, [at.epoch], |row| row.get(0))?;
                if let Some(due) = due {
                    return Ok(Rest::At(Timestamp(due)));
                }
                let held: bool = tx.query_row(
                    "SELECT EXISTS (SELECT 1 FROM run WHERE status IN ('ready', 'asking', 'waiting', 'halting')
                         AND (taken = ?1 OR parked = ?1))",
                    [at.epoch],
                    |row| row.get(0),
                )?;
                Ok(if held { Rest::AtBoot } else { Rest::Never })
            })
            .await
    }

    /// Saves what a step left and gives the run back.
    pub(in crate::store) async fn save(&self, lease: &Lease, left: Checkpoint) -> Result<(), StoreError> {
        let (at, now, lease) = (self.at(), self.clock.now(), lease.clone());
        self.db
            .write(move |tx| {
                at.fenced(tx, &lease)?;
                let Calls { calls, writes } = lease.tally.take();
                tx.execute(
                    "UPDATE run SET api_calls = api_calls + ?2, api_writes = api_writes + ?3 WHERE seq = ?1",
                    params![signed(lease.run.id.seq), signed(calls), signed(writes)],
                )?;
                Save { at, tx, lease: &lease, now }.apply(left)
            })
            .await
    }

    /// Gives a run back as it was taken.
    pub(in crate::store) async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        let (at, lease) = (self.at(), lease.clone());
        self.db
            .write(move |tx| {
                at.fenced(tx, &lease)?;
                let sql = "UPDATE run SET taken = NULL, lease = lease + 1 WHERE seq = ?1";
                tx.execute(sql, [signed(lease.run.id.seq)])?;
                Ok(())
            })
            .await
    }
}

impl Reader {
    /// Refuses whoever is not the last to have taken the run.
    pub(super) fn fenced(self, tx: &Transaction<'_>, lease: &Lease) -> Result<(), Fault> {
        let holds: bool = tx
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM run WHERE seq = ?1 AND taken = ?2 AND lease = ?3)")?
            .query_row(params![signed(lease.run.id.seq), self.epoch, signed(lease.number)], |row| {
                row.get(0)
            })?;
        if holds { Ok(()) } else { Err(Fault::Fenced) }
    }
}

/// One save, in one transaction.
struct Save<'a> {
    at: Reader,
    tx: &'a Transaction<'a>,
    lease: &'a Lease,
    now: Timestamp,
}

/// The columns of a run that a save changes, besides those it always does.
struct Columns<'a> {
    status: RunStatus,
    state: &'a [u8],
    due: Option<Timestamp>,
    why: Option<&'a str>,
}

impl Save<'_> {
    fn apply(&self, left: Checkpoint) -> Result<(), Fault> {
        let (run, seq) = (&self.lease.run, signed(self.lease.run.id.seq));
        let now = Some(self.now);
        match left {
            Checkpoint::Go { step, state, moves } => {
                self.close_gate()?;
                self.update(Columns { status: RunStatus::Ready, state: &state, due: now, why: None })?;
                self.next_visit("go", &step, &state)?;
                self.tx.execute("UPDATE run SET moves = ?2 WHERE seq = ?1", params![seq, moves])?;
            }
            Checkpoint::Ask { state, gate } => {
                let due = self.open_gate(&gate)?;
                self.update(Columns { status: RunStatus::Asking, state: &state, due, why: None })?;
            }
            Checkpoint::Wait { state, until, why } => {
                let due = Some(until);
                self.update(Columns { status: RunStatus::Waiting, state: &state, due, why: Some(&why) })?;
            }
            Checkpoint::Done { state, outcome } => {
                self.close_gate()?;
                self.update(Columns { status: RunStatus::Done, state: &state, due: None, why: None })?;
                self.leave("done")?;
                let outcome = serde_json::to_string(&outcome)?;
                self.tx.execute("UPDATE run SET outcome = ?2 WHERE seq = ?1", params![seq, outcome])?;
            }
            Checkpoint::Halt { halt, why } => {
                self.close_gate()?;
                let state = &run.state;
                self.update(Columns { status: RunStatus::Halting, state, due: now, why: Some(&why) })?;
                self.next_visit("halt", &run.step, state)?;
                self.tx.execute("UPDATE run SET halt = ?2 WHERE seq = ?1", params![seq, halt])?;
            }
            Checkpoint::Ended { status, why } => {
                self.close_gate()?;
                self.update(Columns { status, state: &run.state, due: None, why: Some(&why) })?;
                self.leave("ended")?;
            }
            Checkpoint::Retry { attempts, due, why } => {
                let (status, state) = (run.status, &run.state);
                self.update(Columns { status, state, due: Some(due), why: Some(&why) })?;
                self.tx.execute("UPDATE run SET attempts = ?2 WHERE seq = ?1", params![seq, attempts])?;
            }
            Checkpoint::Park { why } => {
                let (status, state, due) = (run.status, &run.state, run.due);
                self.update(Columns { status, state, due, why: Some(&why) })?;
                self.tx.execute("UPDATE run SET parked = ?2 WHERE seq = ?1", params![seq, self.at.epoch])?;
            }
        }
        Ok(())
    }

    /// Every save gives the run back and forgets earlier failures and parking.
    fn update(&self, to: Columns<'_>) -> Result<(), Fault> {
        self.tx.execute(
            "UPDATE run SET status = ?2, state = ?3, due = ?4, why = ?5, updated_at = ?6,
                 taken = NULL, lease = lease + 1, attempts = 0, parked = NULL
             WHERE seq = ?1",
            params![
                signed(self.lease.run.id.seq),
                status_text(to.status),
                to.state,
                to.due.map(|due| due.0),
                to.why,
                self.now.0
            ],
        )?;
        Ok(())
    }

    fn leave(&self, how: &str) -> Result<(), Fault> {
        let run = &self.lease.run;
        self.tx.execute(
            "UPDATE trail SET left_at = ?3, how = ?4 WHERE run = ?1 AND visit = ?2",
            params![signed(run.id.seq), signed(run.visit), self.now.0, how],
        )?;
        Ok(())
    }

    fn next_visit(&self, how: &str, step: &str, state: &[u8]) -> Result<(), Fault> {
        self.leave(how)?;
        let (seq, visit) = (signed(self.lease.run.id.seq), signed(self.lease.run.visit + 1));
        self.tx.execute(
            "INSERT INTO trail (run, visit, step, state, entered_at) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![seq, visit, step, state, self.now.0],
        )?;
        self.tx.execute("UPDATE run SET step = ?2, visit = ?3 WHERE seq = ?1", params![seq, step, visit])?;
        Ok(())
    }

    /// The answer the step was given has had its effect.
    fn consume_answer(&self) -> Result<(), Fault> {
        if let Some(answer) = &self.lease.run.answer {
            self.tx.execute("UPDATE answer SET state = 'consumed' WHERE id = ?1", [signed(answer.id)])?;
        }
        Ok(())
    }

    fn close_gate(&self) -> Result<(), Fault> {
        self.consume_answer()?;
        let Some(gate) = &self.lease.run.gate else { return Ok(()) };
        let id = signed(gate.id);
        self.tx.execute("UPDATE answer SET state = 'late' WHERE gate = ?1 AND state = 'waiting'", [id])?;
        self.tx.execute("UPDATE gate SET closed_at = ?2 WHERE id = ?1", params![id, self.now.0])?;
        Ok(())
    }

    /// Opens the gate, or brings the open one up to date; says when the step wants to run again.
    fn open_gate(&self, spec: &GateSpec) -> Result<Option<Timestamp>, Fault> {
        self.consume_answer()?;
        let text = serde_json::to_string(spec)?;
        let Some(open) = &self.lease.run.gate else {
            self.tx.execute(
                "INSERT INTO gate (run, visit, spec, opened_at) VALUES (?1, ?2, ?3, ?4)",
                params![signed(self.lease.run.id.seq), signed(self.lease.run.visit), text, self.now.0],
            )?;
            return Ok(self.expiry(spec));
        };
        let id = signed(open.id);
        self.tx.execute("UPDATE gate SET spec = ?2 WHERE id = ?1", params![id, text])?;
        // An answer to another subject is no answer to this one.
        self.tx.execute(
            "UPDATE answer SET state = 'late' WHERE gate = ?1 AND state = 'waiting' AND subject <> ?2",
            params![id, spec.subject.to_string()],
        )?;
        let more: bool = self.tx.query_row(
            "SELECT EXISTS (SELECT 1 FROM answer WHERE gate = ?1 AND state = 'waiting')",
            [id],
            |row| row.get(0),
        )?;
        Ok(if more { Some(self.now) } else { self.expiry(spec) })
    }

    /// A step that asks again after its own expiry waits for people only.
    fn expiry(&self, spec: &GateSpec) -> Option<Timestamp> {
        spec.expires.filter(|at| *at > self.now)
    }
}
