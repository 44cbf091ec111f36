//! Who may open the operator's pages. Of a link's and of a session's secret only the hash comes here.

use std::time::Duration;

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;

use super::{Store, StoreError};
use crate::types::Hash;

/// How long a link waits for the visit it is good for.
const LINK_LIFETIME: Duration = Duration::from_secs(600);

/// What whoever has a session may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionScope {
    Read,
    /// Also what changes something.
    Act,
}

impl SessionScope {
    fn from_acts(acts: bool) -> Self {
        if acts { Self::Act } else { Self::Read }
    }
}

impl Store {
    /// Keeps a link for a while; the session that comes of it lasts so long.
    pub async fn make_link(
        &self,
        link: Hash,
        scope: SessionScope,
        lasts: Duration,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        let lasts = now.plus(lasts).0 - now.0;
        self.main
            .write(move |tx| {
                for table in ["page_link", "page_session"] {
                    tx.execute(&format!("DELETE FROM {table} WHERE until <= ?1"), [now.0])?;
                }
                tx.execute(
                    "INSERT INTO page_link (hash, acts, until, lasts) VALUES (?1, ?2, ?3, ?4)",
                    params![link.to_string(), scope == SessionScope::Act, now.plus(LINK_LIFETIME).0, lasts],
                )?;
                Ok(())
            })
            .await
    }

    /// Makes a session of a link, which is gone then. None: there is no such link, or no more. Says how long the
    /// session lasts.
    pub async fn redeem_link(&self, link: Hash, session: Hash) -> Result<Option<Duration>, StoreError> {
        let now = self.clock.now();
        self.main
            .write(move |tx| {
                let sql = "DELETE FROM page_link WHERE hash = ?1 RETURNING acts, until, lasts";
                let read = |row: &SqlRow<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                let spent: Option<(bool, i64, i64)> =
                    tx.query_row(sql, [link.to_string()], read).optional()?;
                let Some((acts, _, lasts)) = spent.filter(|(_, until, _)| now.0 < *until) else {
                    return Ok(None);
                };
                tx.execute(
                    "INSERT INTO page_session (hash, acts, made_at, until) VALUES (?1, ?2, ?3, ?4)",
                    params![session.to_string(), acts, now.0, now.0.saturating_add(lasts)],
                )?;
                Ok(Some(Duration::from_millis(lasts.unsigned_abs())))
            })
            .await
    }

    /// What a session is good for, while it is.
    pub async fn session_scope(&self, session: Hash) -> Result<Option<SessionScope>, StoreError> {
        let now = self.clock.now();
        self.main
            .read_small(move |tx| {
                let sql = "SELECT acts FROM page_session WHERE hash = ?1 AND until > ?2";
                let found = tx
                    .prepare_cached(sql)?
                    .query_row(params![session.to_string(), now.0], |row| row.get(0))
                    .optional()?;
                Ok(found.map(SessionScope::from_acts))
            })
            .await
    }

    /// Ends every session and takes back every link; says how many there were.
    pub async fn revoke_sessions(&self) -> Result<(usize, usize), StoreError> {
        let revoke = |tx: &Transaction<'_>| {
            Ok((tx.execute("DELETE FROM page_session", [])?, tx.execute("DELETE FROM page_link", [])?))
        };
        self.main.write(revoke).await
    }
}
