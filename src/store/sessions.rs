//! Links and sessions for the operator's pages. The store contains only hashes of their secrets.

use std::time::Duration;

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;

use super::{Store, StoreError};
use crate::types::Hash;

/// Time after which an unused link expires.
const LINK_LIFETIME: Duration = Duration::from_secs(600);

/// Permission that a session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionScope {
    Read,
    /// The session may read and also make changes.
    Act,
}

impl SessionScope {
    fn from_acts(acts: bool) -> Self {
        if acts { Self::Act } else { Self::Read }
    }
}

impl Store {
    /// Stores a link to the operator's pages. A session created by the link is valid for `lasts`.
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

    /// Exchanges a link for a session, and returns the lifetime of the session. Returns `None` if the link is unknown
    /// or has expired.
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

    /// Returns the permission of a session, or `None` if the session is unknown or has expired.
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

    /// Deletes all sessions and links. Returns the number of deleted sessions and the number of deleted links.
    pub async fn revoke_sessions(&self) -> Result<(usize, usize), StoreError> {
        let revoke = |tx: &Transaction<'_>| {
            Ok((tx.execute("DELETE FROM page_session", [])?, tx.execute("DELETE FROM page_link", [])?))
        };
        self.main.write(revoke).await
    }
}
