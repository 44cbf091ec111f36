//! The audit chain: a repository's events in order. Each link contains the hash of the previous link.
//!
//! Every row that is evidence has a link with the hash of the row's body. Row and link are written in one transaction,
//! so no workflow has to remember to add the link, and no crash can separate the two. Writing the same body again adds
//! no link; writing a changed body adds another link.

use std::collections::HashMap;

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;
use serde_json::{Value, json};

use super::{RepositoryDatabase, run_reader::parse_json};
use crate::{
    store::{
        AuditEntry, AuditRow, PendingWrites, StoreError,
        database::{to_signed, to_unsigned},
        error::TransactionError,
    },
    types::{Hash, RepoId, RunId, Timestamp},
};

/// Visit number of links that do not belong to a visit.
pub(super) const NO_VISIT: u64 = 0;

/// Maximum number of characters copied from a row's field into a link. The row keeps the full text, and the link
/// contains the row's hash.
const MAX_FACT_CHARS: usize = 1000;

/// Name of the audit link that records a run's end.
const RUN_END_LINK: &str = "end";

/// SQL query for every row that must have a link. It returns the run, the visit, the name of the link, and the body
/// whose hash the link contains.
const LINKED_ROWS_QUERY: &str = "SELECT run, visit, 'call/' || key, body FROM call
    UNION ALL SELECT run, visit, 'verdict/' || key, body FROM verdict
    UNION ALL SELECT run, visit, 'finding/' || key, body FROM finding
    UNION ALL SELECT run, visit, 'approval/' || key, body FROM approval
    UNION ALL SELECT run, visit, 'raise/' || key, body FROM raise
    UNION ALL SELECT run, visit, 'own_commit/' || key, body FROM own_commit
    UNION ALL SELECT run, visit, 'pull_section/' || key, body FROM pull_section
    UNION ALL SELECT run, visit, 'artifact/' || key, body FROM artifact
    UNION ALL SELECT run, visit, 'route/' || key, body FROM route
    UNION ALL SELECT run, 0, 'answer/' || cause, subject || ' ' || body FROM answer
    UNION ALL SELECT run, 0, 'remark/' || cause, body FROM remark
    UNION ALL SELECT run.seq, 0, 'stop/' || cancel.cause, cancel.actor || ' ' || cancel.why
        FROM run JOIN cancel ON cancel.id = run.cancel
    UNION ALL SELECT run, 0, 'retry/' || cause, by FROM retry
    UNION ALL SELECT seq, 0, 'run', request FROM run
    UNION ALL SELECT seq, visit, 'end', status || ' ' || COALESCE(outcome, why, '') FROM run
        WHERE status IN ('done', 'failed', 'stopped')";

/// JSON pointers to the fields of a row that are copied into a link.
type FactFields = &'static [&'static str];

/// Returns the description of links for a ledger, and the fields that are copied into these links.
fn link_fields(table: &str) -> (&'static str, FactFields) {
    match table {
        "call" => (
            "a model was asked",
            &[
                "/role",
                "/provider",
                "/asked",
                "/served",
                "/prompt",
                "/status",
                "/input_tokens",
                "/output_tokens",
                "/cost_microusd",
                "/held_microusd",
                "/settled",
            ],
        ),
        "verdict" => (
            "a verdict was given",
            &["/document", "/round", "/verdict", "/prompt", "/reviewer_served", "/drafter_served"],
        ),
        "finding" => ("a finding stands so", &["/id", "/round", "/severity", "/status"]),
        "approval" => {
            ("a document was accepted", &["/document", "/subject", "/kind", "/answer/verb", "/answer/by/id"])
        }
        "raise" => ("the budget of a run was raised", &["/by/id", "/amount", "/at"]),
        "own_commit" => ("a commit of ours", &["/branch", "/commit", "/files"]),
        "pull_section" => ("a section of the pull request", &["/branch", "/stage"]),
        "answer" => ("a person answered", &["/verb", "/by/id", "/by/login", "/role", "/hash", "/at"]),
        "artifact" => ("something was left for later stages", &["/issue", "/kind", "/hash"]),
        "route" => (
            "a request was read",
            &[
                "/by",
                "/comment",
                "/decision/method",
                "/decision/skill",
                "/decision/confidence",
                "/lead",
                "/model",
            ],
        ),
        "remark" => {
            ("a person spoke of a finding", &["/verb", "/finding", "/by/id", "/by/login", "/role", "/at"])
        }
        "run" => (
            "a run was started",
            &["/command", "/issue", "/actor/id", "/actor/login", "/cause", "/at", "/args"],
        ),
        _ => ("", &[]),
    }
}

/// A link to append, which either covers a row or stands alone.
pub(super) struct NewAuditLink<'a> {
    pub(super) run: RunId,
    pub(super) visit: u64,
    /// Name of the link within the visit: the ledger's table and the key of the row.
    pub(super) name: String,
    pub(super) what: &'a str,
    pub(super) detail: Value,
}

impl NewAuditLink<'_> {
    /// Builds a link that covers a row whose body is JSON.
    pub(super) fn for_row(
        (run, visit): (RunId, u64),
        table: &str,
        key: &str,
        body: &str,
    ) -> Result<NewAuditLink<'static>, TransactionError> {
        let (what, facts) = link_fields(table);
        let parsed: Value = parse_json(body)?;
        let fact = |at: &&str| {
            let value = match parsed.pointer(at)? {
                Value::String(text) => text.chars().take(MAX_FACT_CHARS).collect::<String>().into(),
                other => other.clone(),
            };
            Some((at.trim_start_matches('/').to_owned(), value))
        };
        let detail = Value::Object(facts.iter().filter_map(fact).collect());
        let name = if key.is_empty() { table.to_owned() } else { format!("{table}/{key}") };
        Ok(NewAuditLink { run, visit, name, what, detail }.with_body_hash(body))
    }

    /// Builds the link that records the end of a run, from the status and reason in the run's row.
    pub(super) fn for_run_end(run: RunId, visit: u64, status: &str, why: &str) -> NewAuditLink<'static> {
        let detail = json!({ "status": status, "why": why });
        let link = NewAuditLink { run, visit, name: RUN_END_LINK.to_owned(), what: "the run ended", detail };
        link.with_body_hash(&format!("{status} {why}"))
    }

    /// Adds the hash of the covered row's body to the link.
    pub(super) fn with_body_hash(mut self, body: &str) -> Self {
        self.detail["row"] = json!(self.name);
        self.detail["sha256"] = json!(Hash::digest(body.as_bytes()));
        self
    }

    /// Appends the link, unless the last link with the same name has the same detail.
    pub(super) fn append_if_changed(self, tx: &Transaction<'_>, now: i64) -> Result<(), TransactionError> {
        let NewAuditLink { run, visit, name, what, detail } = self;
        let before: Option<(i64, String)> = tx
            .prepare_cached(
                "SELECT COUNT(*) OVER (), detail FROM audit WHERE run = ?1 AND visit = ?2
                     AND (key = ?3 OR substr(key, 1, length(?3) + 2) = ?3 || ' (') ORDER BY seq DESC LIMIT 1",
            )?
            .query_row(params![to_signed(run.seq), to_signed(visit), name], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        let key = match before {
            Some((_, previous)) if parse_json::<Value>(&previous)? == detail => return Ok(()),
            Some((count, _)) => format!("{name} ({})", count + 1),
            None => name,
        };
        let entry = AuditEntry { run, visit, key, what: what.to_owned(), detail };
        append_link(tx, entry, Timestamp(now))?;
        Ok(())
    }
}

fn append_link(tx: &Transaction<'_>, entry: AuditEntry, now: Timestamp) -> Result<Hash, TransactionError> {
    let head: Option<String> = tx
        .prepare_cached("SELECT hash FROM audit ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let row = AuditRow::link_after(head.map(|text| text.parse()).transpose()?, entry, now);
    tx.prepare_cached(
        "INSERT INTO audit (run, visit, key, what, detail, at, previous, hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        to_signed(row.run.seq),
        to_signed(row.visit),
        row.key,
        row.what,
        row.detail.to_string(),
        row.at.0,
        row.previous.to_string(),
        row.hash.to_string()
    ])?;
    Ok(row.hash)
}

impl RepositoryDatabase {
    /// Appends a link and returns its hash. If a link with the same run, visit and key already exists, returns the hash
    /// of that link instead.
    pub async fn append_audit_link(
        &self,
        gathered: &PendingWrites,
        entry: AuditEntry,
    ) -> Result<Hash, StoreError> {
        let (repo, now) = (self.repo, self.clock.now());
        self.write_with_pending(gathered, entry.run, move |tx| {
            let known = tx
                .query_row(
                    "SELECT * FROM audit WHERE run = ?1 AND visit = ?2 AND key = ?3",
                    params![to_signed(entry.run.seq), to_signed(entry.visit), entry.key],
                    |row| Ok(read_audit_row(repo, row)),
                )
                .optional()?;
            match known {
                Some(known) => Ok(known?.hash),
                None => append_link(tx, entry, now),
            }
        })
        .await
    }

    /// Returns the repository's whole audit chain, oldest link first.
    pub async fn audit_chain(&self) -> Result<Vec<AuditRow>, StoreError> {
        let repo = self.repo;
        self.read(move |tx| {
            let mut statement = tx.prepare("SELECT * FROM audit ORDER BY seq")?;
            let rows = statement.query_map([], |row| Ok(read_audit_row(repo, row)))?;
            rows.map(|row| row?).collect()
        })
        .await
    }
}

fn read_audit_row(repo: RepoId, row: &SqlRow<'_>) -> Result<AuditRow, TransactionError> {
    Ok(AuditRow {
        run: RunId { repo, seq: to_unsigned(row.get("run")?) },
        visit: to_unsigned(row.get("visit")?),
        key: row.get("key")?,
        what: row.get("what")?,
        detail: parse_json(&row.get::<_, String>("detail")?)?,
        at: Timestamp(row.get("at")?),
        previous: row.get::<_, String>("previous")?.parse()?,
        hash: row.get::<_, String>("hash")?.parse()?,
    })
}

/// Result of verifying an audit chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditChainReport {
    pub links: usize,
    /// Hash of the last link. For an empty chain, the hash of the empty string.
    pub head: Hash,
    /// Descriptions of links whose own hash, or whose hash of the previous link, is wrong.
    pub broken: Vec<String>,
    /// Descriptions of rows that differ from what their links record.
    pub altered: Vec<String>,
    /// Number of rows that cannot be verified, because their runs started before the first run with links.
    pub uncovered: usize,
}

impl AuditChainReport {
    pub fn is_sound(&self) -> bool {
        self.broken.is_empty() && self.altered.is_empty()
    }
}

/// Verifies the whole chain, and compares the rows with their links. Calls `each` with every link and its position in
/// the chain.
pub(in crate::store) fn verify_chain(
    tx: &Transaction<'_>,
    repo: RepoId,
    mut each: impl FnMut(usize, AuditRow),
) -> Result<AuditChainReport, TransactionError> {
    let (mut links, mut head, mut broken) = (0, Hash::digest(b""), Vec::new());
    let mut last: HashMap<(u64, u64, String), (usize, String)> = HashMap::new();
    tx.for_each_row("SELECT * FROM audit ORDER BY seq", [], |row| {
        links += 1;
        let Ok(link) = read_audit_row(repo, row) else {
            broken.push(format!("link {links} (unreadable)"));
            return Ok(());
        };
        let named = || format!("link {links} (`{}` of run {}, {})", link.what, link.run, link.key);
        if !link.has_valid_hash() {
            broken.push(format!("{} is not what its hash says", named()));
        } else if link.previous != head {
            broken.push(format!("{} does not follow the one before it", named()));
        }
        head = link.hash;
        if let (Some(name), Some(body)) = (link.detail["row"].as_str(), link.detail["sha256"].as_str()) {
            last.insert((link.run.seq, link.visit, name.to_owned()), (links, body.to_owned()));
        }
        each(links, link);
        Ok(())
    })?;
    let (altered, uncovered) = altered_rows(tx, repo, last)?;
    Ok(AuditChainReport { links, head, broken, altered, uncovered })
}

/// Returns the rows that differ from their last link. Also returns the number of rows whose runs started before the
/// first run with links.
fn altered_rows(
    tx: &Transaction<'_>,
    repo: RepoId,
    mut last: HashMap<(u64, u64, String), (usize, String)>,
) -> Result<(Vec<String>, usize), TransactionError> {
    // Starting a run writes its first link, so every run after the first linked one must have links.
    let first = last.keys().filter(|(.., name)| name == "run").map(|(run, ..)| *run).min();
    let (mut altered, mut uncovered) = (Vec::new(), 0);
    tx.for_each_row(LINKED_ROWS_QUERY, [], |row| {
        let (run, visit, name) =
            (to_unsigned(row.get(0)?), to_unsigned(row.get(1)?), row.get::<_, String>(2)?);
        let body: String = row.get(3)?;
        let (of, key) = (RunId { repo, seq: run }, (run, visit, name));
        match last.remove(&key) {
            Some((_, sha256)) if sha256 == Hash::digest(body.as_bytes()).to_string() => {}
            Some((link, _)) => altered.push(format!("{} of run {of} is not what link {link} says", key.2)),
            None if first.is_none_or(|first| run < first) => uncovered += 1,
            None => altered.push(format!("{} of run {of} has no link", key.2)),
        }
        Ok(())
    })?;
    // A retried run no longer has the end that its link records.
    let mut gone: Vec<_> = last.into_iter().filter(|((.., name), _)| name != RUN_END_LINK).collect();
    gone.sort_by_key(|(_, (link, _))| *link);
    altered.extend(gone.into_iter().map(|((seq, _, name), (link, _))| {
        format!("{name} of run {} is gone, and link {link} knows of it", RunId { repo, seq })
    }));
    Ok((altered, uncovered))
}
