//! The inbox: every delivery that was acknowledged, until what it asks for has been done.
//!
//! What may be taken next, and in which order, is said in [`claim`]; how long what is kept in [`retention`].

mod body;
mod claim;
mod delivery_list;
mod retention;

use std::sync::atomic::{AtomicBool, Ordering};

use crate::store::sql::{SqlRow, Transaction};
use rusqlite::params;

pub use self::delivery_list::DeliveryRow;
use self::{
    body::PackedBody,
    claim::{AWAKE_CONDITION, SUSPECT_CONDITION},
};
use super::{
    Store, StoreError,
    cluster::{ClusterNotice, living_node_condition},
    database::{to_signed, to_unsigned},
    error::TransactionError,
};
use crate::{
    limits,
    types::{Cause, DeliveryId, InstallationId, IssueNo, RepoId, Timestamp},
};

/// A verified delivery, about to be acknowledged.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub event: String,
    pub subject: DeliverySubject,
    /// Found in the delivery log; no webhook brought it.
    pub swept: bool,
    pub body: Vec<u8>,
}

/// What a delivery is about: it decides what must not overtake what.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DeliverySubject {
    pub installation: Option<InstallationId>,
    pub repository: Option<RepoId>,
    /// An issue or a pull request; they share their numbers.
    pub issue: Option<IssueNo>,
    /// It changes what the others mean (a repository is renamed, an installation suspended): nothing of the
    /// same repository, or where it names none of the same installation, passes it in either direction.
    pub fence: bool,
}

/// What became of a delivery that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryReceipt {
    New,
    /// This id is here already; nothing was changed.
    Duplicate,
    /// It had been given up; this copy takes its place and is tried again.
    Rearmed,
}

/// A delivery someone is working on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    pub id: DeliveryId,
    pub event: String,
    pub subject: DeliverySubject,
    /// How often it was taken since it was last put off, this time included.
    pub attempts: u32,
    /// It was taken before, whatever came of that: some of its effects may be there already.
    pub taken_before: bool,
    /// It comes late: it was found in the delivery log.
    pub swept: bool,
    /// When it came here; a redelivery of what had been given up counts anew.
    pub received_at: Timestamp,
    packed_body: PackedBody,
}

impl ClaimedDelivery {
    /// One that never came, for whoever asks what would be if it did.
    pub fn simulated(id: DeliveryId, received_at: Timestamp) -> Self {
        let stored = PackedBody { packing: body::BodyPacking::Dropped, bytes: Vec::new() };
        let (event, subject) = (String::new(), DeliverySubject::default());
        Self {
            id,
            event,
            subject,
            attempts: 1,
            taken_before: false,
            swept: false,
            received_at,
            packed_body: stored,
        }
    }

    /// The body as GitHub sent it. Unpacked at each call, so that what waits for its turn stays small.
    pub fn body(&self) -> Result<Vec<u8>, StoreError> {
        self.packed_body.unpack().map_err(|fault| fault.with_path(std::path::Path::new("main.db")))
    }
}

/// What became of a delivery that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryDisposition {
    /// It has had its effect; the note says which, for the operator.
    Done(String),
    /// It can have no effect; only a redelivery will be tried again.
    Dead(String),
    /// Put back, to be taken again at `at`. Whoever puts it back is alive, so its attempts begin anew. Until
    /// `holds` it keeps back later ones about the same.
    PutOff { why: String, at: Timestamp, holds: Timestamp },
    /// Nobody came to it; it lies as it lay.
    Released,
}

/// Why a delivery is given up that was taken too often.
const CRASHED_NOTE: &str = "our own fault: each time it was taken the process ended before it was dealt with";

/// How many deliveries are in which state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct InboxCounts {
    pub new: u64,
    pub taken: u64,
    pub done: u64,
    pub dead: u64,
}

/// What one process knows of its inbox.
#[derive(Default)]
pub(super) struct InboxState {
    /// Some deliveries were in hand when a process ended: one of them may be why it did.
    suspects: AtomicBool,
}

impl InboxState {
    /// From now on each claim looks for suspects, until none is left.
    pub(super) fn flag_suspects(&self) {
        self.suspects.store(true, Ordering::Relaxed);
    }
}

/// At boot: what an earlier process had taken is free, and what was put off is tried at once. Says whether there are
/// suspects.
pub(super) fn release_at_boot(tx: &Transaction<'_>, now: Timestamp) -> Result<bool, TransactionError> {
    release_dead_claims(tx, now)?;
    tx.execute("UPDATE inbox SET due = 0, asleep = 0 WHERE state = 'new' AND due > 0", [])?;
    has_suspects(tx)
}

/// Is anything here that was in hand when a process ended?
pub(super) fn has_suspects(tx: &Transaction<'_>) -> Result<bool, TransactionError> {
    let sql = format!("SELECT EXISTS (SELECT 1 FROM inbox WHERE {AWAKE_CONDITION} AND {SUSPECT_CONDITION})");
    tx.query_row(&sql, [], |row| row.get(0))
}

/// Frees what processes had in hand that live no more, and says how many. One that was in hand each time its process
/// ended is given up.
pub(super) fn release_dead_claims(tx: &Transaction<'_>, now: Timestamp) -> Result<usize, TransactionError> {
    let orphaned = match tx {
        // One process has the file, and has just begun.
        Transaction::File(_) => "state = 'taken'".to_owned(),
        Transaction::Server(_) => format!("state = 'taken' AND NOT {}", living_node_condition("inbox.epoch")),
    };
    let buried = tx.execute(
        &format!(
            "UPDATE inbox SET state = 'dead', epoch = NULL, note = ?2, ended_at = ?1
             WHERE {orphaned} AND attempts >= ?3"
        ),
        params![now.0, CRASHED_NOTE, limits::DELIVERY_CRASHES],
    )?;
    if buried > 0 {
        tracing::error!(buried, "deliveries were given up: {CRASHED_NOTE}");
    }
    tx.execute(&format!("UPDATE inbox SET state = 'new', epoch = NULL, due = 0 WHERE {orphaned}"), [])
}

/// The inbox of one store.
pub struct Inbox<'a> {
    pub(super) store: &'a Store,
}

impl Inbox<'_> {
    /// Commits a delivery to disk. After this it may be acknowledged.
    pub async fn accept_delivery(&self, new: NewDelivery) -> Result<DeliveryReceipt, StoreError> {
        let now = self.store.clock.now();
        let body = PackedBody::pack(new.body);
        let (id, event, subject, swept) = (new.id, new.event, new.subject, new.swept);
        let insert = move |tx: &Transaction<'_>| {
            let accepted = insert_delivery(tx, now, &id, &event, &subject, swept, &body)?;
            if accepted != DeliveryReceipt::Duplicate {
                ClusterNotice::Deliveries.notify(tx)?;
            }
            Ok(accepted)
        };
        self.store.main.write(insert).await
    }

    /// Comes back when another process left something here to be taken.
    pub async fn wait_for_remote_delivery(&self) {
        match &self.store.cluster {
            Some(cluster) => cluster.deliveries.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Writes down what became of deliveries, all at once.
    pub async fn record_dispositions(
        &self,
        endings: Vec<(DeliveryId, DeliveryDisposition)>,
    ) -> Result<(), StoreError> {
        let at = (self.store.clock.now(), self.store.epoch);
        self.store
            .main
            .write(move |tx| {
                endings.iter().try_for_each(|(id, ending)| record_disposition(tx, at, id, ending))
            })
            .await
    }

    /// Takes what GitHub numbers for this delivery; false when another one has it, because two hooks told of
    /// one thing. One that was given up leaves it to others.
    pub async fn claim_cause(&self, id: &DeliveryId, cause: &Cause) -> Result<bool, StoreError> {
        let (id, cause) = (id.0.clone(), cause.0.clone());
        self.store
            .main
            .write(move |tx| {
                let changed = tx
                    .prepare_cached(
                        "UPDATE inbox SET cause = ?2 WHERE id = ?1 AND NOT EXISTS (
                             SELECT 1 FROM inbox WHERE cause = ?2 AND cause IS NOT NULL AND id <> ?1 AND state <> 'dead')",
                    )?
                    .execute([id, cause])?;
                Ok(changed == 1)
            })
            .await
    }

    /// What was put off because this installation was suspended is ready.
    pub async fn resume_installation(&self, installation: InstallationId) -> Result<(), StoreError> {
        self.store
            .main
            .write(move |tx| {
                tx.execute(
                    "UPDATE inbox SET due = 0, asleep = 0 WHERE state = 'new' AND due > 0 AND installation = ?1",
                    [to_signed(installation.0)],
                )?;
                Ok(())
            })
            .await
    }

    /// When one that was put off becomes ready or lets others pass. What is ready already waits only for what is
    /// in hand.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.main.read_small(next_due).await
    }

    /// When the oldest came that is neither ended nor put off.
    pub async fn oldest_waiting(&self) -> Result<Option<Timestamp>, StoreError> {
        let sql =
            "SELECT MIN(received_at) FROM inbox WHERE state IN ('new', 'taken') AND asleep = 0 AND due = 0";
        let read = self.store.main.read(move |tx| tx.query_row(sql, [], |row| row.get(0))).await?;
        Ok(Option::<i64>::map(read, Timestamp))
    }

    pub async fn counts(&self) -> Result<InboxCounts, StoreError> {
        self.store
            .main
            .read(|tx| {
                // Each part can be answered from an index alone: the bodies are not touched.
                let count = |which: &str| -> Result<u64, TransactionError> {
                    let sql = format!("SELECT COUNT(*) FROM inbox WHERE {which}");
                    Ok(to_unsigned(tx.query_row(&sql, [], |row| row.get(0))?))
                };
                let ended = |state: &str| -> Result<u64, TransactionError> {
                    let ended = format!("state = '{state}' AND ended_at IS NOT NULL AND packing");
                    Ok(count(&format!("{ended} <> 'dropped'"))? + count(&format!("{ended} = 'dropped'"))?)
                };
                let (awake, taken) =
                    (count("state IN ('new', 'taken') AND asleep = 0")?, count("state = 'taken'")?);
                let asleep =
                    count("state = 'new' AND due > 0")? - count("state = 'new' AND due > 0 AND asleep = 0")?;
                let new = awake - taken + asleep;
                let counts = InboxCounts { new, taken, done: ended("done")?, dead: ended("dead")? };
                Ok(counts)
            })
            .await
    }
}

fn next_due(tx: &Transaction<'_>) -> Result<Option<Timestamp>, TransactionError> {
    let mut next = None;
    for sql in [
        "SELECT MIN(due) FROM inbox INDEXED BY inbox_put_off WHERE state = 'new' AND due > 0",
        "SELECT MIN(holds_until) FROM inbox INDEXED BY inbox_holding
         WHERE state = 'new' AND due > 0 AND asleep = 0",
    ] {
        let at: Option<i64> = tx.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        next = next.into_iter().chain(at.map(Timestamp)).min();
    }
    Ok(next)
}

/// Of a row whose third column is the installation, before the repository and the issue.
fn read_subject(row: &SqlRow<'_>, fence: bool) -> Result<DeliverySubject, TransactionError> {
    let number = |at: usize| Ok::<_, TransactionError>(row.get::<_, Option<i64>>(at)?.map(to_unsigned));
    Ok(DeliverySubject {
        installation: number(2)?.map(InstallationId),
        repository: number(3)?.map(RepoId),
        issue: number(4)?.map(IssueNo),
        fence,
    })
}

fn insert_delivery(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: &DeliveryId,
    event: &str,
    subject: &DeliverySubject,
    swept: bool,
    body: &PackedBody,
) -> Result<DeliveryReceipt, TransactionError> {
    let row = params![
        id.0,
        event,
        subject.installation.map(|id| to_signed(id.0)),
        subject.repository.map(|id| to_signed(id.0)),
        subject.issue.map(|number| to_signed(number.0)),
        subject.fence,
        swept,
        body.packing.as_str(),
        body.bytes,
        now.0
    ];
    let inserted = tx
        .prepare_cached(
            "INSERT INTO inbox (id, event, installation, repository, issue, fence, swept, packing, body, state, due,
                 received_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'new', 0, ?10) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(row)?;
    if inserted == 1 {
        return Ok(DeliveryReceipt::New);
    }
    let rearmed = tx
        .prepare_cached(
            "UPDATE inbox SET event = ?2, installation = ?3, repository = ?4, issue = ?5, fence = ?6, swept = ?7,
                 packing = ?8, body = ?9, state = 'new', attempts = 0, due = 0, asleep = 0, received_at = ?10, epoch = NULL,
                 ended_at = NULL
             WHERE id = ?1 AND state = 'dead'",
        )?
        .execute(row)?;
    Ok(if rearmed == 1 { DeliveryReceipt::Rearmed } else { DeliveryReceipt::Duplicate })
}

/// What another took since, or GitHub delivered anew, is left to whoever has it.
fn record_disposition(
    tx: &Transaction<'_>,
    (now, epoch): (Timestamp, i64),
    id: &DeliveryId,
    ending: &DeliveryDisposition,
) -> Result<(), TransactionError> {
    let over = "UPDATE inbox SET state = ?2, epoch = NULL, note = ?3, ended_at = ?4
                WHERE id = ?1 AND state = 'taken' AND epoch = ?5";
    match ending {
        DeliveryDisposition::Done(note) => tx.prepare_cached(over)?.execute(params![id.0, "done", note, now.0, epoch])?,
        DeliveryDisposition::Dead(note) => tx.prepare_cached(over)?.execute(params![id.0, "dead", note, now.0, epoch])?,
        DeliveryDisposition::PutOff { why, at, holds } => tx
            .prepare_cached(
                "UPDATE inbox SET state = 'new', attempts = 0, epoch = NULL, note = ?2, due = ?3, holds_until = ?4,
                     put_at = ?5, asleep = CASE WHEN CAST(?4 AS BIGINT) <= ?5 THEN 1 ELSE 0 END
                 WHERE id = ?1 AND state = 'taken' AND epoch = ?6",
            )?
            .execute(params![id.0, why, at.0, holds.0, now.0, epoch])?,
        DeliveryDisposition::Released => tx
            .prepare_cached(
                "UPDATE inbox SET state = 'new', attempts = attempts - 1, epoch = NULL
                 WHERE id = ?1 AND state = 'taken' AND epoch = ?2",
            )?
            .execute(params![id.0, epoch])?,
    };
    Ok(())
}

#[cfg(test)]
mod tests;
