//! Cooldowns of model API keys, and outages of model routes. The store knows the keys only by their hashes.

use crate::store::sql::Transaction;
use rusqlite::params;

use super::{
    DatabaseSource, Store, StoreError,
    cluster::ClusterNotice,
    database::{to_signed, to_unsigned},
    error::TransactionError,
};
use crate::types::{Hash, Timestamp};

/// Cooldown of an API key for one model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKeyCooldown {
    /// Hash of the key. The key itself is never stored.
    pub key: Hash,
    pub model: String,
    pub why: KeyCooldownReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyCooldownReason {
    /// The key is rate-limited.
    Rate { until: Timestamp },
    /// The key's quota is exhausted.
    Quota { until: Timestamp },
    /// The key is valid but may not be used for this model.
    Denied { until: Timestamp },
    /// The provider rejects the key, until an operator fixes the problem.
    Refused,
}

impl KeyCooldownReason {
    /// Returns the time at which the cooldown ends, or `None` if only an operator can end the cooldown.
    pub fn until(self) -> Option<Timestamp> {
        match self {
            Self::Rate { until } | Self::Quota { until } | Self::Denied { until } => Some(until),
            Self::Refused => None,
        }
    }

    /// Returns whether the cooldown applies to all keys of the same project.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Rate { .. } | Self::Quota { .. })
    }
}

/// Consecutive failures of calls through a model route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteOutage {
    pub failures: u32,
    /// Time until which the route is skipped. It applies only after a sufficient number of failures, or if `failures`
    /// is 0, which marks a cooldown.
    pub until: Timestamp,
}

impl Store {
    pub async fn outages(&self) -> Result<Vec<(String, RouteOutage)>, StoreError> {
        self.main
            .read(|tx| {
                let mut statement = tx.prepare("SELECT way, failures, until FROM outage")?;
                let rows = statement.query_map([], |row| {
                    let failures = u32::try_from(to_unsigned(row.get(1)?)).unwrap_or(u32::MAX);
                    Ok((row.get(0)?, RouteOutage { failures, until: Timestamp(row.get(2)?) }))
                })?;
                rows.collect::<Result<_, _>>()
            })
            .await
    }

    /// Stores the outage of a route. If `outage` is `None`, deletes the stored outage.
    pub async fn set_outage(&self, way: &str, outage: Option<RouteOutage>) -> Result<(), StoreError> {
        let way = way.to_owned();
        self.main
            .write(move |tx| {
                match outage {
                    Some(RouteOutage { failures, until }) => tx.execute(
                        "INSERT INTO outage (way, failures, until) VALUES (?1, ?2, ?3) \
                         ON CONFLICT (way) DO UPDATE SET failures = excluded.failures, until = excluded.until",
                        (&way, to_signed(failures.into()), until.0),
                    )?,
                    None => tx.execute("DELETE FROM outage WHERE way = ?1", [&way])?,
                };
                ClusterNotice::Settings.notify(tx)
            })
            .await
    }

    /// Stores the cooldown of a key. It replaces the key's previous cooldown for the same model.
    pub async fn set_key_cooldown(&self, row: StoredKeyCooldown) -> Result<(), StoreError> {
        let why = match row.why {
            KeyCooldownReason::Rate { .. } => "rate",
            KeyCooldownReason::Quota { .. } => "quota",
            // `Denied` and `Refused` share a text; only `Denied` has an end.
            KeyCooldownReason::Denied { .. } | KeyCooldownReason::Refused => "refused",
        };
        self.main
            .write(move |tx| {
                tx.execute(
                    "INSERT INTO resting_key (key, model, why, until) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (key, model) DO UPDATE SET why = excluded.why, until = excluded.until",
                    params![row.key.to_string(), row.model, why, row.why.until().map(|until| until.0)],
                )?;
                ClusterNotice::Settings.notify(tx)
            })
            .await
    }

    /// Deletes the cooldown of a key, because a call with the key succeeded.
    pub async fn clear_key_cooldown(&self, key: Hash, model: String) -> Result<(), StoreError> {
        self.main
            .write(move |tx| {
                let sql = "DELETE FROM resting_key WHERE key = ?1 AND model = ?2";
                if tx.execute(sql, params![key.to_string(), model])? > 0 {
                    ClusterNotice::Settings.notify(tx)?;
                }
                Ok(())
            })
            .await
    }

    pub async fn key_cooldowns(&self) -> Result<Vec<StoredKeyCooldown>, StoreError> {
        self.main.read(read_key_cooldowns).await
    }
}

/// Returns all cooldowns of API keys. A server may be running at the same time.
pub fn resting_keys(place: &DatabaseSource) -> Result<Vec<StoredKeyCooldown>, StoreError> {
    place.read_main(|tx| {
        // The file may have an older schema that this version has not migrated yet.
        let known = match tx {
            Transaction::File(_) => {
                tx.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'resting_key'")?.exists([])?
            }
            Transaction::Server(_) => true,
        };
        if known { read_key_cooldowns(tx) } else { Ok(Vec::new()) }
    })
}

fn read_key_cooldowns(tx: &Transaction<'_>) -> Result<Vec<StoredKeyCooldown>, TransactionError> {
    let mut statement = tx.prepare("SELECT key, model, why, until FROM resting_key ORDER BY key, model")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key: String = row.get(0)?;
        let why: String = row.get(2)?;
        let until: Option<i64> = row.get(3)?;
        let why = match (why.as_str(), until.map(Timestamp)) {
            ("rate", Some(until)) => KeyCooldownReason::Rate { until },
            ("quota", Some(until)) => KeyCooldownReason::Quota { until },
            ("refused", Some(until)) => KeyCooldownReason::Denied { until },
            ("refused", None) => KeyCooldownReason::Refused,
            _ => return Err(TransactionError::Row(format!("a key rests by {why} until {until:?}"))),
        };
        let key = key.parse().map_err(|_| TransactionError::Row("a resting key has no hash".to_owned()))?;
        found.push(StoredKeyCooldown { key, model: row.get(1)?, why });
    }
    Ok(found)
}
