//! Routing decisions for free-text requests.

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;

use super::{RepositoryDatabase, run_reader::parse_json};
use crate::{
    store::{
        DatabaseSource, PastRoute, RouteRow, StoreError,
        database::{to_signed, to_unsigned},
    },
    types::{Cause, Hash, IssueNo, RepoId, RunId, Timestamp, UserId},
};

/// Time within which a person may correct a wrong routing decision, in milliseconds.
const CORRECTION_WINDOW_MS: i64 = 24 * 3600 * 1000;

impl RepositoryDatabase {
    /// Returns the newest routing decision since `since` that a model made for the input with hash `key`.
    pub async fn cached_route(&self, key: Hash, since: Timestamp) -> Result<Option<RouteRow>, StoreError> {
        self.read(move |tx| {
            let body: Option<String> = tx
                .prepare_cached(
                    "SELECT body FROM route WHERE body ->> 'key' = ?1 AND at >= ?2
                         AND body ->> '$.decision.method' = 'model' ORDER BY at DESC LIMIT 1",
                )?
                .query_row(params![key.to_string(), since.0], |row| row.get(0))
                .optional()?;
            body.map(|body| parse_json(&body)).transpose()
        })
        .await
    }

    /// Returns the newest routing decision for this person on this issue that was made before `run`, and the time of
    /// the decision.
    pub async fn previous_route(
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
                .query_row(params![to_signed(issue.0), to_signed(run.seq), to_signed(person.0)], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            found.map(|(body, at)| Ok((parse_json(&body)?, Timestamp(at)))).transpose()
        })
        .await
    }

    /// Returns the times at which this person's questions were routed, oldest first, up to the question of `run`.
    /// Includes only questions that were answered or whose run is still live.
    pub async fn question_times(&self, person: UserId, run: RunId) -> Result<Vec<Timestamp>, StoreError> {
        self.read(move |tx| {
            let mut statement = tx.prepare_cached(
                "SELECT route.at FROM route JOIN run ON run.seq = route.run
                     WHERE CAST(route.body ->> 'by' AS BIGINT) = ?1 AND route.body ->> 'lead' = 'answer'
                     AND (run.outcome ->> 'url' IS NOT NULL OR run.status NOT IN ('done', 'failed', 'stopped'))
                     AND route.rowid <= (SELECT MAX(rowid) FROM route WHERE run = ?2) ORDER BY route.rowid",
            )?;
            let times = statement.query_map(params![to_signed(person.0), to_signed(run.seq)], |row| row.get(0))?;
            times.map(|at| at.map(Timestamp)).collect::<Result<_, _>>()
        })
        .await
    }

    /// Returns the costs in micro-dollars of the last `most` requests for which a model was called, newest first.
    pub async fn route_costs(&self, most: u32) -> Result<Vec<u64>, StoreError> {
        self.read(move |tx| {
            let mut statement = tx.prepare(
                "SELECT CAST(body ->> 'cost_microusd' AS BIGINT) FROM route WHERE CAST(body ->> 'calls' AS BIGINT) > 0 ORDER BY rowid DESC LIMIT ?1",
            )?;
            let costs = statement.query_map([most], |row| Ok(to_unsigned(row.get(0)?)))?;
            costs.collect::<Result<_, _>>()
        })
        .await
    }
}

/// Returns the routing decisions of a repository, oldest first. Takes no lock, so it works while a server is running.
pub fn read_routes(place: &DatabaseSource, repo: RepoId) -> Result<Vec<PastRoute>, StoreError> {
    place.read_repository(repo, |tx| {
        if let Transaction::File(_) = tx {
            let there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'route')";
            // No version that routes free text has opened this database yet.
            if !tx.query_row(there, [], |row| row.get::<_, bool>(0))? {
                return Ok(Vec::new());
            }
        }
        let mut statement = tx.prepare(&format!(
            "SELECT route.run, route.body, route.at, run.issue, begun.seq,
                 begun.seq IS NOT NULL AND (
                     (begun.status = 'stopped' AND begun.updated_at < route.at + {CORRECTION_WINDOW_MS})
                     OR EXISTS (SELECT 1 FROM run AS other WHERE other.issue = run.issue AND other.seq > begun.seq
                         AND other.workflow <> begun.workflow AND other.started_at < route.at + {CORRECTION_WINDOW_MS}
                         AND (begun.status <> 'done' OR other.started_at < begun.updated_at)))
             FROM route JOIN run ON run.seq = route.run
             LEFT JOIN run AS begun ON begun.cause = run.cause || '{}' ORDER BY route.rowid",
            Cause::FOLLOW_UP_SUFFIX
        ))?;
        let mut rows = statement.query([])?;
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            let run = |seq: i64| RunId { repo, seq: to_unsigned(seq) };
            lines.push(PastRoute {
                run: run(row.get(0)?),
                route: parse_json(&row.get::<_, String>(1)?)?,
                at: Timestamp(row.get(2)?),
                issue: IssueNo(to_unsigned(row.get(3)?)),
                started_run: row.get::<_, Option<i64>>(4)?.map(run),
                changed: row.get(5)?,
            });
        }
        Ok(lines)
    })
}
