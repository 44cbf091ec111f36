//! Pauses, stored as rows of `meta`, so that they survive restarts.

use crate::store::sql::Transaction;
use serde::{Deserialize, Serialize};

use super::{
    ActivePause, PauseScope, Store, StoreError, cluster::ClusterNotice, error::TransactionError,
    installation_registry::set_meta,
};
use crate::types::{RepoId, Timestamp};

const SERVER_PAUSE_KEY: &str = "paused";
/// Key in `meta` that is set while an issue thread may still show a notice about a pause. A notice can still be shown
/// after the pause has ended and after a restart.
const PAUSE_NOTICES_KEY: &str = "pauses told";

#[derive(Serialize, Deserialize)]
struct PauseRecord {
    by: String,
    why: String,
    at: i64,
}

impl Store {
    pub async fn set_pause(&self, pause: ActivePause) -> Result<(), StoreError> {
        let ActivePause { scope, by, why, at } = pause;
        self.main
            .write(move |tx| {
                let line = serde_json::to_string(&PauseRecord { by, why, at: at.0 })?;
                set_meta(tx, PAUSE_NOTICES_KEY, "")?;
                set_meta(tx, &pause_key(scope), &line)?;
                ClusterNotice::Settings.notify(tx)
            })
            .await?;
        self.agenda.pause(scope);
        Ok(())
    }

    /// Ends a pause. Returns `false` if `scope` was not paused.
    pub async fn remove_pause(&self, scope: PauseScope) -> Result<bool, StoreError> {
        let key = pause_key(scope);
        let ended = self
            .main
            .write(move |tx| {
                ClusterNotice::Settings.notify(tx)?;
                Ok(tx.execute("DELETE FROM meta WHERE key = ?1", [key])? > 0)
            })
            .await?;
        self.agenda.resume(scope);
        Ok(ended)
    }

    /// Returns whether an issue thread may still show a notice about a pause.
    pub async fn has_pause_notices(&self) -> Result<bool, StoreError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM meta WHERE key = ?1)";
        self.main.read(|tx| tx.query_row(sql, [PAUSE_NOTICES_KEY], |row| row.get(0))).await
    }

    /// Records that no issue thread shows a notice about a pause. Does nothing if a new pause has begun.
    pub async fn clear_pause_notices(&self) -> Result<(), StoreError> {
        let forget = |tx: &Transaction<'_>| {
            if read_pauses(tx)?.is_empty() {
                tx.execute("DELETE FROM meta WHERE key = ?1", [PAUSE_NOTICES_KEY])?;
            }
            Ok(())
        };
        self.main.write(forget).await
    }

    pub async fn pauses(&self) -> Result<Vec<ActivePause>, StoreError> {
        self.main.read(read_pauses).await
    }
}

pub(super) fn read_pauses(tx: &Transaction<'_>) -> Result<Vec<ActivePause>, TransactionError> {
    let mut statement = tx.prepare(
        "SELECT key, value FROM meta WHERE key = 'paused' OR key LIKE 'paused:%' ORDER BY length(key), key",
    )?;
    let lines = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    lines
        .map(|line| {
            let (key, value) = line?;
            let PauseRecord { by, why, at } = serde_json::from_str(&value)?;
            Ok(ActivePause { scope: pause_scope(&key)?, by, why, at: Timestamp(at) })
        })
        .collect()
}

fn pause_key(scope: PauseScope) -> String {
    match scope {
        PauseScope::Server => SERVER_PAUSE_KEY.to_owned(),
        PauseScope::Repo(repo) => format!("{SERVER_PAUSE_KEY}:{repo}"),
    }
}

fn pause_scope(key: &str) -> Result<PauseScope, TransactionError> {
    let Some(repo) = key.strip_prefix("paused:") else { return Ok(PauseScope::Server) };
    let unreadable = || TransactionError::Row(format!("{key} names no repository"));
    Ok(PauseScope::Repo(RepoId(repo.parse().map_err(|_| unreadable())?)))
}
