//! Results of the repository's earlier runs: designs and their verdicts, findings, and lessons.

use crate::store::sql::{OptionalRow, SqlRow, Transaction};
use rusqlite::params;

use super::{RepositoryDatabase, run_reader::parse_json};
use crate::{
    store::{
        ApprovalRow, ArtifactRow, FindingRow, PastDesign, PastFinding, StoreError, VerdictRow,
        database::{to_signed, to_unsigned},
        error::TransactionError,
        pending_writes::PackedDocument,
    },
    types::{Hash, IssueNo, RunId},
};

/// SQL condition for a completed run whose design a person had approved.
const APPROVED_CONDITION: &str =
    "(run.status = 'done' AND EXISTS (SELECT 1 FROM approval WHERE approval.run = run.seq))";

/// SQL condition for a run without stub calls. Rehearsals use such calls; later runs ignore their results, because no
/// model produced them.
const NOT_REHEARSED_CONDITION: &str = "NOT EXISTS (SELECT 1 FROM call WHERE call.run = run.seq
    AND CASE WHEN json_valid(call.body) THEN call.body ->> 'provider' = 'stub' END)";

impl RepositoryDatabase {
    /// Returns the last document of each of the last `most` runs of a workflow that started before this run, newest
    /// first. Includes only runs whose design was approved, and all runs of `issue`.
    pub async fn past_designs(
        &self,
        before: RunId,
        workflow: &str,
        issue: IssueNo,
        most: u32,
    ) -> Result<Vec<PastDesign>, StoreError> {
        let workflow = workflow.to_owned();
        self.read(move |tx| {
            let mut statement = tx.prepare(&format!(
                "SELECT seq, issue, {APPROVED_CONDITION},
                        (SELECT body FROM approval WHERE approval.run = seq ORDER BY rowid DESC LIMIT 1),
                        (SELECT body FROM verdict WHERE verdict.run = seq ORDER BY rowid DESC LIMIT 1)
                 FROM run WHERE workflow = ?1 AND seq < ?2 AND (issue = ?3 OR {APPROVED_CONDITION}) AND {NOT_REHEARSED_CONDITION}
                 ORDER BY seq DESC LIMIT ?4"
            ))?;
            let mut rows = statement.query(params![workflow, to_signed(before.seq), to_signed(issue.0), most])?;
            let mut designs = Vec::new();
            while let Some(row) = rows.next()? {
                designs.extend(skip_unreadable(row.get(0)?, read_design(tx, &row))?.flatten());
            }
            Ok(designs)
        })
        .await
    }

    /// Returns the lessons from the last changes that were pushed before this run, newest first.
    pub async fn past_lessons(&self, before: RunId, most: u32) -> Result<Vec<String>, StoreError> {
        self.read(move |tx| {
            // For a run that ended twice, only its newest lesson counts.
            let mut statement = tx.prepare(&format!(
                "SELECT run.seq, body ->> 'hash' FROM artifact JOIN run ON run.seq = artifact.run
                 WHERE artifact.rowid = (SELECT MAX(rowid) FROM artifact WHERE run = run.seq AND body ->> 'kind' = ?1)
                     AND run.seq < ?2 AND {NOT_REHEARSED_CONDITION}
                 ORDER BY artifact.rowid DESC LIMIT ?3"
            ))?;
            let mut rows = statement.query(params![ArtifactRow::LESSON, to_signed(before.seq), most])?;
            let mut lessons = Vec::new();
            while let Some(row) = rows.next()? {
                let hash: Option<Hash> = row.get::<_, String>(1)?.parse().ok();
                let read = hash.map_or(Ok(None), |hash| read_text(tx, hash));
                lessons.extend(skip_unreadable(row.get(0)?, read)?.flatten());
            }
            Ok(lessons)
        })
        .await
    }

    /// Returns the findings, with their final status, of earlier runs of a workflow, newest run first. Includes only
    /// runs whose design was approved, and all runs of `issue`.
    pub async fn past_findings(
        &self,
        before: RunId,
        workflow: &str,
        issue: IssueNo,
        most: u32,
    ) -> Result<Vec<PastFinding>, StoreError> {
        let workflow = workflow.to_owned();
        self.read(move |tx| {
            let mut statement = tx.prepare(&format!(
                "SELECT run.seq, issue, {APPROVED_CONDITION}, body FROM finding JOIN run ON run.seq = finding.run
                 WHERE workflow = ?1 AND run.seq < ?2 AND (issue = ?3 OR {APPROVED_CONDITION}) AND {NOT_REHEARSED_CONDITION}
                 ORDER BY run.seq DESC, finding.visit DESC, finding.rowid LIMIT ?4"
            ))?;
            let mut rows = statement.query(params![workflow, to_signed(before.seq), to_signed(issue.0), most])?;
            let mut findings: Vec<PastFinding> = Vec::new();
            while let Some(row) = rows.next()? {
                let Some(past) = skip_unreadable(row.get(0)?, read_finding(&row))? else { continue };
                // Each review rewrites all findings, so only the newest row of each counts.
                let of_its_run = findings.iter().rev().take_while(|known| known.run == past.run);
                if !of_its_run.into_iter().any(|known| known.finding.id == past.finding.id) {
                    findings.push(past);
                }
            }
            Ok(findings)
        })
        .await
    }
}

/// Converts an unreadable row to `None`, because no run depends on the rows of older runs.
fn skip_unreadable<V>(run: i64, read: Result<V, TransactionError>) -> Result<Option<V>, TransactionError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(TransactionError::Row(detail)) => {
            tracing::warn!(run, %detail, "could not read a row of an earlier run; skipping it");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

fn read_design(tx: &Transaction<'_>, row: &SqlRow<'_>) -> Result<Option<PastDesign>, TransactionError> {
    let (issue, approved) = (IssueNo(to_unsigned(row.get(1)?)), row.get(2)?);
    let (approval, verdict): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
    let Some(verdict) = verdict else { return Ok(None) };
    let verdict: VerdictRow = parse_json(&verdict)?;
    let document = match approval.filter(|_| approved) {
        Some(approval) => parse_json::<ApprovalRow>(&approval)?.document,
        None => verdict.document,
    };
    let text = read_text(tx, document)?;
    Ok(text.map(|text| PastDesign { issue, verdict: verdict.verdict, approved, text }))
}

fn read_finding(row: &SqlRow<'_>) -> Result<PastFinding, TransactionError> {
    let finding: FindingRow = parse_json(&row.get::<_, String>(3)?)?;
    let (run, issue) = (to_unsigned(row.get(0)?), IssueNo(to_unsigned(row.get(1)?)));
    Ok(PastFinding { run, issue, approved: row.get(2)?, finding })
}

/// Returns the text stored under this hash, or `None` if nothing is stored.
pub(in crate::store) fn read_text(
    tx: &Transaction<'_>,
    hash: Hash,
) -> Result<Option<String>, TransactionError> {
    let found: Option<(i64, Vec<u8>)> = tx
        .prepare_cached("SELECT bytes, zstd FROM document WHERE hash = ?1")?
        .query_row([hash.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((size, zstd)) = found else { return Ok(None) };
    let bytes = usize::try_from(to_unsigned(size)).unwrap_or(usize::MAX);
    Ok(String::from_utf8(PackedDocument { bytes, zstd }.unpack(hash)?).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::Connection;

    use super::*;
    use crate::{
        clock::SystemClock,
        store::{ApprovalKind, GateAnswer, Store, compression, tests::new_run},
        types::{Actor, Cause, Family, RepoId, Role, Timestamp, UserId, Verb, Verdict},
    };

    const REPO: RepoId = RepoId(3);

    fn approval(document: Hash) -> String {
        let by = Actor { id: UserId(1), login: "ada".into(), bot: false };
        let answer = GateAnswer {
            cause: Cause("c".into()),
            verb: Verb::Approve,
            stage: None,
            hash: None,
            way: None,
            text: String::new(),
            by,
            role: Role::Write,
            at: Timestamp(0),
            url: None,
            commit: None,
            review: None,
        };
        let row = ApprovalRow {
            document,
            subject: document,
            answer: Some(answer),
            kind: ApprovalKind::Approve,
            with: Vec::new(),
        };
        serde_json::to_string(&row).unwrap()
    }

    fn verdict(document: Hash) -> String {
        let row = VerdictRow {
            document,
            round: 1,
            verdict: Verdict::Approved,
            reviewer_served: None,
            reviewer_family: None::<Family>,
            drafter_served: None,
            drafter_family: None,
            prompt: document,
            nonce: String::new(),
            why: String::new(),
        };
        serde_json::to_string(&row).unwrap()
    }

    /// Inserts the rows of an earlier run for issue `n`.
    fn insert_past_run(old: &Connection, n: u64, status: &str, provider: &str) {
        let (run, text) = (to_signed(n), format!("# {n} - Feature: x"));
        let hash = Hash::digest(text.as_bytes());
        let zstd = compression::pack(text.as_bytes()).unwrap();
        let document = "INSERT INTO document (hash, bytes, zstd, created_at) VALUES (?1, ?2, ?3, 0)";
        old.execute(document, params![hash.to_string(), to_signed(text.len() as u64), zstd]).unwrap();
        let finding = FindingRow {
            id: "F1".into(),
            round: 1,
            severity: "high".into(),
            place: "3".into(),
            title: "x".into(),
            detail: String::new(),
            status: "fixed".into(),
            why: String::new(),
        };
        for (table, body) in [
            ("approval", approval(hash)),
            ("verdict", verdict(hash)),
            ("finding", serde_json::to_string(&finding).unwrap()),
            ("call", format!("{{\"status\": \"done\", \"provider\": \"{provider}\"}}")),
        ] {
            let insert =
                format!("INSERT INTO {table} (run, visit, key, body, at) VALUES (?1, 1, 'k', ?2, 0)");
            old.execute(&insert, params![run, body]).unwrap();
        }
        old.execute("UPDATE run SET status = ?2 WHERE seq = ?1", params![run, status]).unwrap();
        for visit in [1, 2] {
            let lesson = ArtifactRow { issue: IssueNo(n), kind: ArtifactRow::LESSON.into(), hash };
            let insert = "INSERT INTO artifact (run, visit, key, body, at) VALUES (?1, ?2, 'lesson', ?3, 0)";
            old.execute(insert, params![run, visit, serde_json::to_string(&lesson).unwrap()]).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn list_of_past_runs_omits_unpublished_and_unreadable_runs() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path(), Arc::new(SystemClock)).unwrap();
        for issue in 1..=7 {
            store.start_run(new_run(REPO, issue)).await.unwrap();
        }
        drop(store);
        let old = Connection::open(root.path().join(format!("repos/{REPO}/checkpoints.db"))).unwrap();
        for (n, status, provider) in [
            (1, "done", "anthropic"),
            (2, "done", "stub"),
            (3, "stopped", "anthropic"),
            (4, "done", "anthropic"),
            (5, "done", "anthropic"),
            (6, "done", "anthropic"),
        ] {
            insert_past_run(&old, n, status, provider);
        }
        let four = Hash::digest(b"# 4 - Feature: x").to_string();
        old.execute("UPDATE document SET zstd = x'00' WHERE hash = ?1", [four]).unwrap();
        old.execute_batch("UPDATE approval SET body = '{}' WHERE run = 5").unwrap();
        old.execute_batch("UPDATE finding SET body = '{}' WHERE run = 6").unwrap();
        drop(old);

        let store = Store::open(root.path(), Arc::new(SystemClock)).unwrap();
        let db = store.repository_database(REPO).await.unwrap();
        let now = RunId { repo: REPO, seq: 7 };
        let designs = async |issue| {
            let past = db.past_designs(now, "lld", IssueNo(issue), 60).await.unwrap();
            past.into_iter().map(|past| (past.issue.0, past.approved)).collect::<Vec<_>>()
        };
        assert_eq!(designs(7).await, [(6, true), (1, true)]);
        assert_eq!(
            designs(3).await,
            [(6, true), (3, false), (1, true)],
            "runs of the issue itself count even without approval"
        );
        let findings = async |issue| {
            let past = db.past_findings(now, "lld", IssueNo(issue), 60).await.unwrap();
            past.into_iter().map(|past| (past.run, past.approved)).collect::<Vec<_>>()
        };
        assert_eq!(findings(7).await, [(5, true), (4, true), (1, true)]);
        assert_eq!(findings(3).await, [(5, true), (4, true), (3, false), (1, true)]);
        let lessons = db.past_lessons(now, 3).await.unwrap();
        assert_eq!(lessons, ["# 6 - Feature: x", "# 5 - Feature: x"], "the third newest cannot be read");
    }
}
