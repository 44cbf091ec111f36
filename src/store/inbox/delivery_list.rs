//! Lists deliveries for an operator, and retries deliveries that were given up.

use crate::store::sql::{SqlRow, Transaction};

use super::{Inbox, read_subject};
use crate::{
    store::{DeliverySubject, StoreError, error::TransactionError},
    types::{DeliveryId, Timestamp},
};

/// Maximum number of deliveries that are listed at once.
const MAX_LISTED: u32 = 100;

/// A delivery without its body.
#[derive(Debug, Clone)]
pub struct DeliveryRow {
    pub id: DeliveryId,
    pub event: String,
    pub subject: DeliverySubject,
    /// State of the delivery: `new`, `taken`, `done` or `dead`.
    pub state: String,
    pub attempts: u32,
    pub swept: bool,
    /// Whether the delivery's body is still stored.
    pub has_body: bool,
    /// Note on the latest outcome of the delivery; empty before the first outcome.
    pub note: String,
    pub received_at: Timestamp,
}

impl Inbox<'_> {
    /// Returns the newest hundred deliveries. If `given_up` is set, returns the hundred deliveries that were given up
    /// last.
    pub async fn list_deliveries(&self, given_up: bool) -> Result<Vec<DeliveryRow>, StoreError> {
        let columns =
            "id, event, installation, repository, issue, state, attempts, swept, packing <> 'dropped',
             COALESCE(note, ''), received_at, ended_at";
        // Each query follows an index, so SQLite reads no more rows than it returns.
        let sql = if given_up {
            let dead = |body| {
                format!(
                    "SELECT * FROM (SELECT {columns} FROM inbox WHERE state = 'dead' AND ended_at IS NOT NULL AND packing {body}
                     'dropped' ORDER BY ended_at DESC LIMIT {MAX_LISTED}) AS shown"
                )
            };
            format!("{} UNION ALL {} ORDER BY ended_at DESC LIMIT {MAX_LISTED}", dead("<>"), dead("="))
        } else {
            format!("SELECT {columns} FROM inbox ORDER BY seq DESC LIMIT {MAX_LISTED}")
        };
        self.store
            .main
            .read(move |tx| {
                let mut statement = tx.prepare_cached(&sql)?;
                let rows = statement.query_map([], read_delivery)?;
                rows.collect::<Result<_, _>>()
            })
            .await
    }

    /// Schedules a given-up delivery to be processed again. Returns `false` if the delivery was not given up or its
    /// body has been deleted.
    pub async fn retry_given_up(&self, id: &DeliveryId) -> Result<bool, StoreError> {
        let (id, now) = (id.0.clone(), self.store.clock.now().0);
        let rearm = move |tx: &Transaction<'_>| -> Result<bool, TransactionError> {
            let sql = "UPDATE inbox SET state = 'new', attempts = 0, due = 0, asleep = 0, received_at = ?2, epoch = NULL,
                           ended_at = NULL
                       WHERE id = ?1 AND state = 'dead' AND packing <> 'dropped'";
            Ok(tx.execute(sql, (id, now))? == 1)
        };
        self.store.main.write(rearm).await
    }
}

fn read_delivery(row: &SqlRow<'_>) -> Result<DeliveryRow, TransactionError> {
    Ok(DeliveryRow {
        id: DeliveryId(row.get(0)?),
        event: row.get(1)?,
        subject: read_subject(row, false)?,
        state: row.get(5)?,
        attempts: row.get(6)?,
        swept: row.get(7)?,
        has_body: row.get(8)?,
        note: row.get(9)?,
        received_at: Timestamp(row.get(10)?),
    })
}
