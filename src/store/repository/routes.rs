//! How requests in free words were read.

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;

use super::{RepositoryDatabase, run_reader::json};
use crate::{
    store::{
        DatabaseSource, PastRoute, RouteRow, StoreError,
        database::{signed, unsigned},
    },
    types::{Cause, Hash, IssueNo, RepoId, RunId, Timestamp, UserId},
};

/// Whoever finds a decision wrong says so within this, in milliseconds.
const DAY: i64 = 24 * 3600 * 1000;

impl RepositoryDatabase {
    /// What a model decided of the same words since then.
    pub async fn decided(&self, key: Hash, since: Timestamp) -> Result<Option<RouteRow>, StoreError> {
        self.read(move |tx| {
            let body: Option<String> = tx
                .prepare_cached(
                    "SELECT body FROM route WHERE body ->> 'key' = ?1 AND at >= ?2
                         AND body ->> '$.decision.method' = 'model' ORDER BY at DESC LIMIT 1",
                )?
                .query_row(params![key.to_string(), since.0], |row| row.get(0))
                .optional()?;
            body.map(|body| json(&body)).transpose()
        })
        .await
    }

    /// The newest decision before that run's on what this person asked on this issue, and when it was made.
    pub async fn decided_before(
        &self,
        run: RunId,
        issue: IssueNo,
        person: UserId,
    ) -> Result<Option<(RouteRow, Timestamp)>, StoreError> {
        self.read(move |tx| {
            let found: Option<(String, i64)> = tx
                .prepare_cached(
                    "SELECT route.body, route.at FROM route JOIN run ON run.seq = route.run
                     WHERE run.issue = ?1 AND route.run < ?2 AND CAST(route.body ->> 'by' AS BIGINT) = ?3
                     ORDER BY route.run DESC LIMIT 1",
                )?
                .query_row(params![signed(issue.0), signed(run.seq), signed(person.0)], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            found.map(|(body, at)| Ok((json(&body)?, Timestamp(at)))).transpose()
        })
        .await
    }

    /// When this person's questions were read that were answered or still may be, up to that of this run, the oldest first.
    pub async fn questions_of(&self, person: UserId, run: RunId) -> Result<Vec<Timestamp>, StoreError> {
        self.read(move |tx| {
            let mut statement = tx.prepare_cached(
                "SELECT route.at FROM route JOIN run ON run.seq = route.run
                     WHERE CAST(route.body ->> 'by' AS BIGINT) = ?1 AND route.body ->> 'lead' = 'answer'
                     AND (run.outcome ->> 'url' IS NOT NULL OR run.status NOT IN ('done', 'failed', 'stopped'))
                     AND route.rowid <= (SELECT MAX(rowid) FROM route WHERE run = ?2) ORDER BY route.rowid",
            )?;
            let times = statement.query_map(params![signed(person.0), signed(run.seq)], |row| row.get(0))?;
            times.map(|at| at.map(Timestamp)).collect::<Result<_, _>>()
        })
        .await
    }

    /// What the last requests cost for which a model was asked, at most so many, the newest first; in micro-dollars.
    pub async fn costs_of_routes(&self, most: u32) -> Result<Vec<u64>, StoreError> {
        self.read(move |tx| {
            let mut statement = tx.prepare(
                "SELECT CAST(body ->> 'cost_microusd' AS BIGINT) FROM route WHERE CAST(body ->> 'calls' AS BIGINT) > 0 ORDER BY rowid DESC LIMIT ?1",
            )?;
            let costs = statement.query_map([most], |row| Ok(unsigned(row.get(0)?)))?;
            costs.collect::<Result<_, _>>()
        })
        .await
    }
}

/// The decisions of a repository, the oldest first, read without the lock, beside a server at work.
pub fn routes(place: &DatabaseSource, repo: RepoId) -> Result<Vec<PastRoute>, StoreError> {
    place.repository(repo, |tx| {
        if let Transaction::File(_) = tx {
            let there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'route')";
            // Otherwise nobody has opened it since such requests are read.
            if !tx.query_row(there, [], |row| row.get::<_, bool>(0))? {
                return Ok(Vec::new());
            }
        }
        let mut statement = tx.prepare(&format!(
            "SELECT route.run, route.body, route.at, run.issue, begun.seq,
                 begun.seq IS NOT NULL AND (
                     (begun.status = 'stopped' AND begun.updated_at < route.at + {DAY})
                     OR EXISTS (SELECT 1 FROM run AS other WHERE other.issue = run.issue AND other.seq > begun.seq
                         AND other.workflow <> begun.workflow AND other.started_at < route.at + {DAY}
                         AND (begun.status <> 'done' OR other.started_at < begun.updated_at)))
             FROM route JOIN run ON run.seq = route.run
             LEFT JOIN run AS begun ON begun.cause = run.cause || '{}' ORDER BY route.rowid",
            Cause::ONWARD
        ))?;
        let mut rows = statement.query([])?;
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            let run = |seq: i64| RunId { repo, seq: unsigned(seq) };
            lines.push(PastRoute {
                run: run(row.get(0)?),
                route: json(&row.get::<_, String>(1)?)?,
                at: Timestamp(row.get(2)?),
                issue: IssueNo(unsigned(row.get(3)?)),
                begun: row.get::<_, Option<i64>>(4)?.map(run),
                changed: row.get(5)?,
            });
        }
        Ok(lines)
    })
}
