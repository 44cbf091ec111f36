//! Position of the sweep through GitHub's delivery log, and records of the labelings that were processed.

use std::time::Duration;

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;

use super::{
    Store, StoreError, database::to_signed, error::TransactionError, installation_registry::set_meta,
};
use crate::types::{DeliveryId, IssueNo, RepoId, Timestamp, UserId};

/// Maximum difference between the times that a webhook and the issue's history report for the same labeling. They
/// differ because the webhook has the update time of the issue, but the history has the time of the event.
const SAME_LABELING: Duration = Duration::from_secs(5);

pub(super) const SWEEP_POSITION_KEY: &str = "swept_to";

/// Identity of one labeling. GitHub gives each labeling an ID in the issue's history, but not in the webhook. Therefore
/// a labeling is identified by its actor and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelingKey {
    pub repo: RepoId,
    pub issue: IssueNo,
    pub label: String,
    pub actor: UserId,
    pub at: Timestamp,
}

/// Sets the sweep position to `now` when the server starts for the first time, so that the sweep ignores earlier
/// deliveries.
pub(super) fn begin_sweeping(tx: &Transaction<'_>, now: Timestamp) -> Result<(), TransactionError> {
    tx.execute(
        "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING",
        params![SWEEP_POSITION_KEY, now.0.to_string()],
    )?;
    Ok(())
}

impl Store {
    /// Returns the time up to which all deliveries of GitHub have reached the inbox.
    pub async fn sweep_position(&self) -> Result<Timestamp, StoreError> {
        self.main
            .read(|tx| {
                let text: String =
                    tx.query_row("SELECT value FROM meta WHERE key = ?1", [SWEEP_POSITION_KEY], |row| {
                        row.get(0)
                    })?;
                let at = text.parse().map_err(|_| {
                    TransactionError::Row(format!("{SWEEP_POSITION_KEY} is {text}, not a time"))
                })?;
                Ok(Timestamp(at))
            })
            .await
    }

    pub async fn set_sweep_position(&self, at: Timestamp) -> Result<(), StoreError> {
        self.main.write(move |tx| set_meta(tx, SWEEP_POSITION_KEY, &at.0.to_string())).await
    }

    /// Returns those of `ids` that the inbox has never received, in unchanged order.
    pub async fn missing_deliveries(&self, ids: Vec<DeliveryId>) -> Result<Vec<DeliveryId>, StoreError> {
        self.main
            .read(move |tx| {
                let mut known = tx.prepare("SELECT 1 FROM inbox WHERE id = ?1")?;
                let mut unheard = Vec::new();
                for id in ids {
                    if !known.exists([&id.0])? {
                        unheard.push(id);
                    }
                }
                Ok(unheard)
            })
            .await
    }

    /// Returns the note that was stored for a labeling when it was processed, if it was. If `found_only` is set,
    /// considers only labelings that the sweep of issues found.
    pub async fn labeling_note(
        &self,
        key: &LabelingKey,
        found_only: bool,
    ) -> Result<Option<String>, StoreError> {
        let key = key.clone();
        let slack = i64::try_from(SAME_LABELING.as_millis()).unwrap_or(0);
        self.main
            .read_small(move |tx| {
                let sql =
                    "SELECT note FROM labeling WHERE repo = ?1 AND issue = ?2 AND label = ?3 AND actor = ?4
                               AND at BETWEEN ?5 AND ?6 AND found >= ?7";
                let (repo, issue, actor) =
                    (to_signed(key.repo.0), to_signed(key.issue.0), to_signed(key.actor.0));
                let values =
                    params![repo, issue, key.label, actor, key.at.0 - slack, key.at.0 + slack, found_only];
                tx.query_row(sql, values, |row| row.get(0)).optional()
            })
            .await
    }

    pub async fn record_labeling(
        &self,
        key: &LabelingKey,
        found: bool,
        note: &str,
    ) -> Result<(), StoreError> {
        let (key, note) = (key.clone(), note.to_owned());
        self.main
            .write(move |tx| {
                let (repo, issue, actor) =
                    (to_signed(key.repo.0), to_signed(key.issue.0), to_signed(key.actor.0));
                tx.execute(
                    "INSERT INTO labeling (repo, issue, label, actor, at, found, note)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
                    params![repo, issue, key.label, actor, key.at.0, found, note],
                )?;
                Ok(())
            })
            .await
    }
}
