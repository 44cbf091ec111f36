//! History of a run, and the run's texts, for the operator's page.

use std::sync::Arc;

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;
use serde::Serialize;

use super::{
    ApprovalRow, AuditChainReport, CallRow, CommitRow, FindingRow, GateAnswer, GateSpec, Store, StoreError,
    TextRow, VerdictRow,
    database::{to_signed, to_unsigned},
    error::TransactionError,
    repository::{VISITS, parse_json, read_text, verify_chain, visit_row},
    run_blocking,
};
use crate::types::{Hash, RepoId, RunId, Timestamp};

/// Maximum number of visits shown, newest first. There may be more, because a run that watches its pushed change
/// continues for weeks.
const MAX_VISITS: i64 = 200;

/// Maximum number of links of an audit chain that a page verifies. Verifying this many takes a few tenths of a second.
const MAX_CHAIN_LINKS: usize = 20_000;

/// Visit of a run.
#[derive(Debug, Serialize)]
pub struct VisitRow {
    pub visit: u64,
    /// Serde name of the step.
    pub step: String,
    pub entered_at: Timestamp,
    pub left_at: Option<Timestamp>,
    pub how: Option<String>,
}

/// Work that a visit recorded in its journal, either finished or in progress.
#[derive(Debug, Serialize)]
pub struct JournalEntry {
    pub visit: u64,
    pub key: String,
    pub begun_at: Timestamp,
    pub done_at: Option<Timestamp>,
    /// Hashes of the stored texts that the result of the work references.
    pub texts: Vec<Hash>,
}

/// A gate with all its answers.
#[derive(Debug, Serialize)]
pub struct GateHistory {
    pub visit: u64,
    pub spec: GateSpec,
    pub opened_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    pub answers: Vec<GateAnswer>,
}

/// A ledger row, with its visit and key.
#[derive(Debug, Serialize)]
pub struct VisitRecord<R> {
    pub visit: u64,
    pub key: String,
    pub row: R,
}

/// All data shown on the page of a run.
#[derive(Debug, Default, Serialize)]
pub struct RunHistory {
    pub visits: Vec<VisitRow>,
    /// Number of older visits that are not shown.
    pub more_visits: u64,
    pub entries: Vec<JournalEntry>,
    pub calls: Vec<VisitRecord<CallRow>>,
    pub texts: Vec<VisitRecord<TextRow>>,
    pub verdicts: Vec<VisitRecord<VerdictRow>>,
    pub gates: Vec<GateHistory>,
    /// Findings with their current status.
    pub findings: Vec<FindingRow>,
    pub approvals: Vec<VisitRecord<ApprovalRow>>,
    pub commits: Vec<VisitRecord<CommitRow>>,
    /// Number of ledger rows that could not be read.
    pub unreadable: usize,
    /// Serialized state of the workflow.
    #[serde(skip)]
    pub state: Vec<u8>,
}

impl Store {
    /// Returns a run's history, or `None` if the run does not exist.
    pub async fn run_history(self: &Arc<Self>, run: RunId) -> Result<Option<RunHistory>, StoreError> {
        self.read_beside(run.repo, move |tx| read_history(tx, run)).await.map(Option::flatten)
    }

    /// Returns a text that this run references. Returns `None` for texts that only other runs reference.
    pub async fn run_text(self: &Arc<Self>, run: RunId, hash: Hash) -> Result<Option<String>, StoreError> {
        self.read_beside(
            run.repo,
            move |tx| if names_text(tx, run, hash)? { read_text(tx, hash) } else { Ok(None) },
        )
        .await
        .map(Option::flatten)
    }

    /// Verifies the audit chain of a repository. Returns `None` if the chain is too long to be verified for a page.
    pub async fn verify_audit_chain(
        self: &Arc<Self>,
        repo: RepoId,
    ) -> Result<Option<AuditChainReport>, StoreError> {
        let look = move |tx: &Transaction<'_>| {
            let links = tx.query_row("SELECT COUNT(*) FROM audit", [], |row| row.get(0))?;
            if to_unsigned(links) > MAX_CHAIN_LINKS as u64 {
                Ok(None)
            } else {
                verify_chain(tx, repo, |_, _| ()).map(Some)
            }
        };
        self.read_beside(repo, look).await.map(Option::flatten)
    }

    /// Returns the last code excerpt of a repository that a model saw: the run, the time, and the stored excerpt.
    pub async fn last_excerpt(
        self: &Arc<Self>,
        repo: RepoId,
    ) -> Result<Option<(RunId, Timestamp, String)>, StoreError> {
        let look = move |tx: &Transaction<'_>| {
            let found: Option<(i64, i64, Vec<u8>)> = tx
                .query_row(
                    "SELECT run, done_at, value FROM journal WHERE key = 'excerpt' AND value IS NOT NULL
                     ORDER BY run DESC, visit DESC LIMIT 1",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
                )
                .optional()?;
            let Some((seq, at, value)) = found else { return Ok(None) };
            let run = RunId { repo, seq: to_unsigned(seq) };
            let stored =
                text_hashes(&value).into_iter().next().map(|hash| read_text(tx, hash)).transpose()?.flatten();
            Ok(stored.map(|stored| (run, Timestamp(at), stored)))
        };
        self.read_beside(repo, look).await.map(Option::flatten)
    }

    /// Reads a repository's database through a separate connection, so that steps need not wait for a page.
    async fn read_beside<V: Send + 'static>(
        self: &Arc<Self>,
        repo: RepoId,
        inside: impl FnOnce(&Transaction<'_>) -> Result<V, TransactionError> + Send + 'static,
    ) -> Result<Option<V>, StoreError> {
        let beside = self.database_source();
        run_blocking(move || {
            if beside.may_hold(repo) { beside.read_repository(repo, inside).map(Some) } else { Ok(None) }
        })
        .await
    }
}

fn read_history(tx: &Transaction<'_>, run: RunId) -> Result<Option<RunHistory>, TransactionError> {
    let seq = to_signed(run.seq);
    let found: Option<(Vec<u8>, i64)> = tx
        .query_row("SELECT state, visit FROM run WHERE seq = ?1", [seq], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((state, last)) = found else { return Ok(None) };
    let since = (last - MAX_VISITS + 1).max(1);
    let mut story = RunHistory { state, more_visits: to_unsigned(since - 1), ..RunHistory::default() };
    let unreadable = &mut story.unreadable;
    story.visits = readable_rows(
        tx,
        &format!("{VISITS} AND visit >= ?2 ORDER BY visit"),
        (seq, since),
        |row| visit_row(row).map(Some),
        unreadable,
    )?;
    let entries = "SELECT visit, key, begun_at, done_at, value FROM journal WHERE run = ?1 AND visit >= ?2
                   ORDER BY visit, begun_at, rowid";
    let mut named = Vec::new();
    story.entries = readable_rows(
        tx,
        entries,
        (seq, since),
        |row| {
            named.push(text_hashes(&row.get::<_, Option<Vec<u8>>>(4)?.unwrap_or_default()));
            Ok(Some(JournalEntry {
                visit: to_unsigned(row.get(0)?),
                key: row.get(1)?,
                begun_at: Timestamp(row.get(2)?),
                done_at: row.get::<_, Option<i64>>(3)?.map(Timestamp),
                texts: Vec::new(),
            }))
        },
        unreadable,
    )?;
    let mut stored = tx.prepare("SELECT EXISTS (SELECT 1 FROM document WHERE hash = ?1)")?;
    for (entry, named) in story.entries.iter_mut().zip(named) {
        for hash in named {
            if stored.query_row([hash.to_string()], |row| row.get(0))? {
                entry.texts.push(hash);
            }
        }
    }
    story.calls = ledger_records(tx, "call", (seq, since), unreadable)?;
    story.verdicts = ledger_records(tx, "verdict", (seq, 0), unreadable)?;
    story.approvals = ledger_records(tx, "approval", (seq, 0), unreadable)?;
    story.commits = ledger_records(tx, "own_commit", (seq, 0), unreadable)?;
    // Each review rewrites all findings, so the last row of each counts.
    for VisitRecord { row, .. } in ledger_records::<FindingRow>(tx, "finding", (seq, 0), unreadable)? {
        match story.findings.iter_mut().find(|known| known.id == row.id) {
            Some(known) => *known = row,
            None => story.findings.push(row),
        }
    }
    let texts = "SELECT visit, key, detail FROM audit WHERE run = ?1 AND visit >= ?2 AND key LIKE 'text/%'
                 ORDER BY seq";
    story.texts = readable_rows(tx, texts, (seq, since), read_record, unreadable)?;
    let gates =
        "SELECT visit, spec, opened_at, closed_at, id FROM gate WHERE run = ?1 AND visit >= ?2 ORDER BY id";
    let mut ids = Vec::<i64>::new();
    story.gates = readable_rows(
        tx,
        gates,
        (seq, since),
        |row| {
            let Ok(spec) = parse_json(&row.get::<_, String>(1)?) else { return Ok(None) };
            ids.push(row.get(4)?);
            Ok(Some(GateHistory {
                visit: to_unsigned(row.get(0)?),
                spec,
                opened_at: Timestamp(row.get(2)?),
                closed_at: row.get::<_, Option<i64>>(3)?.map(Timestamp),
                answers: Vec::new(),
            }))
        },
        unreadable,
    )?;
    for (gate, id) in story.gates.iter_mut().zip(ids) {
        let answers = "SELECT body FROM answer WHERE run = ?1 AND gate = ?2 ORDER BY id";
        gate.answers = readable_rows(
            tx,
            answers,
            (seq, id),
            |row| Ok(parse_json(&row.get::<_, String>(0)?).ok()),
            unreadable,
        )?;
    }
    Ok(Some(story))
}

/// Returns the rows that `read` accepts, and the number of rows that could not be read.
fn readable_rows<R>(
    tx: &Transaction<'_>,
    sql: &str,
    of: (i64, i64),
    mut read: impl FnMut(&SqlRow<'_>) -> Result<Option<R>, TransactionError>,
    unreadable: &mut usize,
) -> Result<Vec<R>, TransactionError> {
    let mut statement = tx.prepare(sql)?;
    let mut rows = statement.query(params![of.0, of.1])?;
    let mut kept = Vec::new();
    while let Some(row) = rows.next()? {
        match read(&row)? {
            Some(row) => kept.push(row),
            None => *unreadable += 1,
        }
    }
    Ok(kept)
}

fn ledger_records<R: serde::de::DeserializeOwned>(
    tx: &Transaction<'_>,
    table: &str,
    of: (i64, i64),
    unreadable: &mut usize,
) -> Result<Vec<VisitRecord<R>>, TransactionError> {
    let sql = format!("SELECT visit, key, body FROM {table} WHERE run = ?1 AND visit >= ?2 ORDER BY rowid");
    readable_rows(tx, &sql, of, read_record, unreadable)
}

fn read_record<R: serde::de::DeserializeOwned>(
    row: &SqlRow<'_>,
) -> Result<Option<VisitRecord<R>>, TransactionError> {
    let read = parse_json(&row.get::<_, String>(2)?).ok();
    let (visit, key) = (to_unsigned(row.get(0)?), row.get(1)?);
    Ok(read.map(|read| VisitRecord { visit, key, row: read }))
}

/// Returns all hashes that are a complete string within a JSON value. A hash inside a longer string is ignored.
fn text_hashes(value: &[u8]) -> Vec<Hash> {
    let text = String::from_utf8_lossy(value);
    let mut found: Vec<Hash> = Vec::new();
    for hash in text.split('"').filter(|part| part.len() == 64).filter_map(|part| part.parse().ok()) {
        if !found.contains(&hash) {
            found.push(hash);
        }
    }
    found
}

/// Returns whether any row of this run references the text.
fn names_text(tx: &Transaction<'_>, run: RunId, hash: Hash) -> Result<bool, TransactionError> {
    // With quotes, so that only a complete string matches: inside a longer text the quotes would be escaped.
    let quoted = format!("\"{hash}\"");
    let sql = "SELECT EXISTS (SELECT 1 FROM audit WHERE run = ?1 AND instr(detail, ?2) > 0)
        OR EXISTS (SELECT 1 FROM journal WHERE run = ?1 AND instr(value, ?3) > 0)
        OR EXISTS (SELECT 1 FROM trail WHERE run = ?1 AND instr(state, ?3) > 0)
        OR EXISTS (SELECT 1 FROM run WHERE seq = ?1 AND instr(state, ?3) > 0)";
    tx.query_row(sql, params![to_signed(run.seq), quoted, quoted.as_bytes()], |row| row.get(0))
}
