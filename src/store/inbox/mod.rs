//! The inbox: every acknowledged delivery is kept here at least until its effects are complete.
//!
//! [`claim`] defines which deliveries can be claimed and in which order. [`retention`] defines how long deliveries are
//! kept.

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

/// A verified delivery that is about to be acknowledged.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub event: String,
    pub subject: DeliverySubject,
    /// Whether the sweep found the delivery in GitHub's delivery log, because the webhook never arrived.
    pub swept: bool,
    pub body: Vec<u8>,
}

/// Subject of a delivery. It determines which other deliveries must not overtake the delivery.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DeliverySubject {
    pub installation: Option<InstallationId>,
    pub repository: Option<RepoId>,
    /// Number of the issue or pull request. GitHub numbers both in the same sequence.
    pub issue: Option<IssueNo>,
    /// Whether the delivery changes the meaning of other deliveries, such as a repository rename or the suspension of
    /// an installation. Deliveries of the same repository neither overtake such a fence nor are overtaken by it. A
    /// fence without a repository applies to its whole installation.
    pub fence: bool,
}

/// Result of accepting a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryReceipt {
    New,
    /// The inbox already contains the ID, so nothing was changed.
    Duplicate,
    /// The delivery with this ID had been given up. The new copy replaces it and is processed again.
    Rearmed,
}

/// A delivery that a worker is processing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDelivery {
    pub id: DeliveryId,
    pub event: String,
    pub subject: DeliverySubject,
    /// Number of claims since the delivery was last put off, including the current claim.
    pub attempts: u32,
    /// Whether the delivery was claimed before, so that some of its effects may already exist.
    pub taken_before: bool,
    /// Whether the sweep found the delivery in the delivery log, so that it is processed late.
    pub swept: bool,
    /// Time at which the delivery was received. If a given-up delivery is redelivered, the time is updated.
    pub received_at: Timestamp,
    packed_body: PackedBody,
}

impl ClaimedDelivery {
    /// Creates a delivery that GitHub never sent. Used for simulations.
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

    /// Returns the body as GitHub sent it. Each call decompresses the body, so that queued deliveries use little
    /// memory.
    pub fn body(&self) -> Result<Vec<u8>, StoreError> {
        self.packed_body.unpack().map_err(|fault| fault.with_path(std::path::Path::new("main.db")))
    }
}

/// Outcome of a claimed delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryDisposition {
    /// The delivery was processed. The note describes the effect for the operator.
    Done(String),
    /// The delivery was given up, because it can have no effect. It is processed again only after a redelivery or an
    /// operator's retry.
    Dead(String),
    /// The delivery is returned to the inbox until `at`. Its count of attempts starts again at zero, because the worker
    /// did not crash. Until `holds`, the delivery blocks later deliveries about the same subject.
    PutOff { why: String, at: Timestamp, holds: Timestamp },
    /// The delivery is returned unprocessed, in the state that it had before the claim.
    Released,
}

/// Note on a delivery that was given up because the process crashed too often while the delivery was claimed.
const CRASHED_NOTE: &str = "our fault: the process ended each time before this delivery was handled";

/// Number of deliveries in each state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct InboxCounts {
    pub new: u64,
    pub taken: u64,
    pub done: u64,
    pub dead: u64,
}

/// In-memory state of the inbox in one process.
#[derive(Default)]
pub(super) struct InboxState {
    /// Whether some deliveries were claimed when a process died, so that one of them may have caused the crash.
    suspects: AtomicBool,
}

impl InboxState {
    /// Makes every claim check for suspects first, until no suspects remain.
    pub(super) fn flag_suspects(&self) {
        self.suspects.store(true, Ordering::Relaxed);
    }
}

/// Releases all claims of earlier processes, and makes put-off deliveries due. Called when the server starts. Returns
/// whether there are suspects.
pub(super) fn release_at_boot(tx: &Transaction<'_>, now: Timestamp) -> Result<bool, TransactionError> {
    release_dead_claims(tx, now)?;
    tx.execute("UPDATE inbox SET due = 0, asleep = 0 WHERE state = 'new' AND due > 0", [])?;
    has_suspects(tx)
}

/// Returns whether any unfinished delivery was claimed when a process died.
pub(super) fn has_suspects(tx: &Transaction<'_>) -> Result<bool, TransactionError> {
    let sql = format!("SELECT EXISTS (SELECT 1 FROM inbox WHERE {AWAKE_CONDITION} AND {SUSPECT_CONDITION})");
    tx.query_row(&sql, [], |row| row.get(0))
}

/// Releases the claims of dead processes and returns the number of released claims. Gives up deliveries that were
/// claimed during too many crashes.
pub(super) fn release_dead_claims(tx: &Transaction<'_>, now: Timestamp) -> Result<usize, TransactionError> {
    let orphaned = match tx {
        // Only one process uses the file, and it has just started.
        Transaction::File(_) => "state = 'taken'".to_owned(),
        Transaction::Server(_) => format!("state = 'taken' AND NOT {}", living_node_condition("inbox.epoch")),
    };
    let given_up = tx.execute(
        &format!(
            "UPDATE inbox SET state = 'dead', epoch = NULL, note = ?2, ended_at = ?1
             WHERE {orphaned} AND attempts >= ?3"
        ),
        params![now.0, CRASHED_NOTE, limits::DELIVERY_CRASHES],
    )?;
    if given_up > 0 {
        tracing::error!(
            given_up,
            "gave up on deliveries: the process ended each time before they were handled"
        );
    }
    tx.execute(&format!("UPDATE inbox SET state = 'new', epoch = NULL, due = 0 WHERE {orphaned}"), [])
}

/// Access to the inbox of a store.
pub struct Inbox<'a> {
    pub(super) store: &'a Store,
}

impl Inbox<'_> {
    /// Commits a delivery to disk. The caller may acknowledge the delivery as soon as this function returns.
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

    /// Waits until another node has added a delivery. Without a cluster, waits forever.
    pub async fn wait_for_remote_delivery(&self) {
        match &self.store.cluster {
            Some(cluster) => cluster.deliveries.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Records the outcomes of several deliveries in one transaction.
    pub async fn record_dispositions(
        &self,
        outcomes: Vec<(DeliveryId, DeliveryDisposition)>,
    ) -> Result<(), StoreError> {
        let at = (self.store.clock.now(), self.store.epoch);
        self.store
            .main
            .write(move |tx| {
                outcomes.iter().try_for_each(|(id, outcome)| record_disposition(tx, at, id, outcome))
            })
            .await
    }

    /// Reserves a GitHub event ID for this delivery. Returns `false` if another delivery has already reserved the ID,
    /// because two webhooks reported the same event. A delivery that was given up loses its reservation.
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

    /// Makes the put-off deliveries of this installation due, because the installation's suspension has ended.
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

    /// Returns the next time at which a put-off delivery becomes due or stops blocking later deliveries. Ignores
    /// deliveries that are already due, because these wait only for claimed deliveries.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store.main.read_small(next_due).await
    }

    /// Returns the time at which the oldest delivery was received that is neither finished nor put off.
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
                // SQLite answers each part from an index alone, without reading bodies.
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

/// Reads the subject of a delivery from a row whose columns 2 to 4 contain the installation, repository and issue.
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

/// Records the outcome of a delivery. Changes nothing if another process has since claimed the delivery, or if GitHub
/// has redelivered it.
fn record_disposition(
    tx: &Transaction<'_>,
    (now, epoch): (Timestamp, i64),
    id: &DeliveryId,
    outcome: &DeliveryDisposition,
) -> Result<(), TransactionError> {
    let over = "UPDATE inbox SET state = ?2, epoch = NULL, note = ?3, ended_at = ?4
                WHERE id = ?1 AND state = 'taken' AND epoch = ?5";
    match outcome {
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
