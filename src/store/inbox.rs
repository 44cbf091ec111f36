//! The inbox: every delivery that was acknowledged, until what it asks for has been done.

use rusqlite::{OptionalExtension, params};

use super::{
    Store, StoreError,
    database::{signed, unsigned},
};
use crate::{
    limits,
    types::{DeliveryId, InstallationId, Timestamp},
};

/// A verified delivery, about to be acknowledged.
#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub event: String,
    pub installation: Option<InstallationId>,
    pub body: Vec<u8>,
}

/// What became of a delivery that was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    New,
    /// This id is here already; nothing was changed.
    Duplicate,
    /// It had been given up; this copy takes its place and is tried again.
    Rearmed,
}

/// A delivery someone is working on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub id: DeliveryId,
    pub event: String,
    pub installation: Option<InstallationId>,
    pub body: Vec<u8>,
    /// How often it was taken since it was last put off, this time included.
    pub attempts: u32,
    /// It was taken before, whatever came of that: some of its effects may be there already.
    pub again: bool,
    /// When GitHub delivered it; a redelivery of what had been given up counts anew.
    pub received_at: Timestamp,
}

/// Why a delivery is given up that was taken too often.
const FATAL: &str = "our own fault: each time it was taken the process ended before it was dealt with";

/// How many deliveries are in which state.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct InboxCounts {
    pub new: u64,
    pub taken: u64,
    pub done: u64,
    pub dead: u64,
}

/// The inbox of one store.
pub struct Inbox<'a> {
    pub(super) store: &'a Store,
}

impl Inbox<'_> {
    /// Commits a delivery to disk. After this it may be acknowledged.
    pub async fn accept(&self, new: NewDelivery) -> Result<Accepted, StoreError> {
        let now = self.store.clock.now().0;
        self.store
            .main
            .write(move |tx| {
                let state: Option<String> = tx
                    .query_row("SELECT state FROM inbox WHERE id = ?1", [&new.id.0], |row| row.get(0))
                    .optional()?;
                let installation = new.installation.map(|id| signed(id.0));
                match state.as_deref() {
                    None => {
                        tx.execute(
                            "INSERT INTO inbox (id, event, installation, body, state, due, received_at)
                             VALUES (?1, ?2, ?3, ?4, 'new', ?5, ?5)",
                            params![new.id.0, new.event, installation, new.body, now],
                        )?;
                        Ok(Accepted::New)
                    }
                    Some("dead") => {
                        tx.execute(
                            "UPDATE inbox SET event = ?2, installation = ?3, body = ?4, state = 'new', attempts = 0,
                                 due = ?5, received_at = ?5, epoch = NULL, ended_at = NULL WHERE id = ?1",
                            params![new.id.0, new.event, installation, new.body, now],
                        )?;
                        Ok(Accepted::Rearmed)
                    }
                    Some(_) => Ok(Accepted::Duplicate),
                }
            })
            .await
    }

    /// Takes the oldest delivery that is ready; what an older boot had taken is ready. One that was taken
    /// again and again and neither ended nor was put off is what ends the process: it is given up.
    pub async fn claim(&self) -> Result<Option<Taken>, StoreError> {
        let (now, epoch) = (self.store.clock.now().0, self.store.epoch);
        self.store
            .main
            .write(move |tx| {
                let buried = tx.execute(
                    "UPDATE inbox SET state = 'dead', epoch = NULL, note = ?3, ended_at = ?1
                     WHERE state = 'taken' AND epoch < ?2 AND attempts >= ?4",
                    params![now, epoch, FATAL, limits::DELIVERY_CRASHES],
                )?;
                if buried > 0 {
                    tracing::error!(buried, "deliveries were given up: {FATAL}");
                }
                let taken = tx
                    .query_row(
                        "UPDATE inbox SET state = 'taken', epoch = ?2, attempts = attempts + 1
                         WHERE seq = (SELECT seq FROM inbox
                                      WHERE (state = 'new' AND due <= ?1) OR (state = 'taken' AND epoch < ?2)
                                      ORDER BY seq LIMIT 1)
                         RETURNING id, event, installation, body, attempts, received_at,
                                   attempts > 1 OR note IS NOT NULL",
                        params![now, epoch],
                        |row| {
                            Ok(Taken {
                                id: DeliveryId(row.get(0)?),
                                event: row.get(1)?,
                                installation: row
                                    .get::<_, Option<i64>>(2)?
                                    .map(|id| InstallationId(unsigned(id))),
                                body: row.get(3)?,
                                attempts: row.get(4)?,
                                received_at: Timestamp(row.get(5)?),
                                again: row.get(6)?,
                            })
                        },
                    )
                    .optional()?;
                Ok(taken)
            })
            .await
    }

    /// The delivery has had its effect; `note` says which, for the operator.
    pub async fn done(&self, id: &DeliveryId, note: &str) -> Result<(), StoreError> {
        self.end(id, "done", note).await
    }

    /// The delivery can have no effect; only a redelivery will be tried again.
    pub async fn dead(&self, id: &DeliveryId, reason: &str) -> Result<(), StoreError> {
        self.end(id, "dead", reason).await
    }

    /// Put back, to be taken again at `at`. Whoever puts it back is alive, so its attempts begin anew.
    pub async fn later(&self, id: &DeliveryId, why: &str, at: Timestamp) -> Result<(), StoreError> {
        let (id, why) = (id.0.clone(), why.to_owned());
        self.store
            .main
            .write(move |tx| {
                tx.execute(
                    "UPDATE inbox SET state = 'new', attempts = 0, epoch = NULL, due = ?2, note = ?3
                     WHERE id = ?1 AND state = 'taken'",
                    params![id, at.0, why],
                )?;
                Ok(())
            })
            .await
    }

    async fn end(&self, id: &DeliveryId, state: &'static str, note: &str) -> Result<(), StoreError> {
        let (id, note, now) = (id.0.clone(), note.to_owned(), self.store.clock.now().0);
        self.store
            .main
            .write(move |tx| {
                tx.execute(
                    "UPDATE inbox SET state = ?2, epoch = NULL, note = ?3, ended_at = ?4 WHERE id = ?1",
                    params![id, state, note, now],
                )?;
                Ok(())
            })
            .await
    }

    /// How many deliveries are not finished, those that wait for a later time included.
    pub async fn pending(&self) -> Result<usize, StoreError> {
        let counts = self.counts().await?;
        Ok(usize::try_from(counts.new + counts.taken).unwrap_or(usize::MAX))
    }

    /// When the next delivery becomes ready; in the past if one is ready now.
    pub async fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let epoch = self.store.epoch;
        self.store
            .main
            .read(move |tx| {
                let due: Option<i64> = tx.query_row(
                    "SELECT MIN(due) FROM inbox WHERE state = 'new' OR (state = 'taken' AND epoch < ?1)",
                    [epoch],
                    |row| row.get(0),
                )?;
                Ok(due.map(Timestamp))
            })
            .await
    }

    pub async fn counts(&self) -> Result<InboxCounts, StoreError> {
        self.store
            .main
            .read(|tx| {
                let mut counts = InboxCounts::default();
                let mut statement = tx.prepare("SELECT state, COUNT(*) FROM inbox GROUP BY state")?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    let count = unsigned(row.get(1)?);
                    match row.get_ref(0)?.as_str().unwrap_or_default() {
                        "new" => counts.new = count,
                        "taken" => counts.taken = count,
                        "done" => counts.done = count,
                        _ => counts.dead = count,
                    }
                }
                Ok(counts)
            })
            .await
    }
}
