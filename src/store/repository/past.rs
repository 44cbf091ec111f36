//! What earlier runs of the repository left: designs with how they were judged, and findings.

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::{RepoDb, read::json};
use crate::{
    store::{
        ApprovalRow, FindingRow, PastDesign, PastFinding, StoreError, VerdictRow,
        database::{signed, unsigned},
        error::Fault,
        gathered::Document,
    },
    types::{Hash, IssueNo, RunId},
};

impl RepoDb {
    /// The last document of each of the last runs of a workflow before this one, the newest first, if a person agreed with
    /// it or it is of `issue`.
    pub async fn past_designs(
        &self,
        before: RunId,
        workflow: &str,
        issue: IssueNo,
        most: u32,
    ) -> Result<Vec<PastDesign>, StoreError> {
        let workflow = workflow.to_owned();
        self.read(move |tx| {
            let mut statement = tx.prepare(
                "SELECT issue,
                        (SELECT body FROM approval WHERE run = seq ORDER BY rowid DESC LIMIT 1),
                        (SELECT body FROM verdict WHERE run = seq ORDER BY rowid DESC LIMIT 1)
                 FROM run WHERE workflow = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT ?3",
            )?;
            let rows = statement.query_map(params![workflow, signed(before.seq), most], judged)?;
            let mut designs = Vec::new();
            for row in rows {
                let (of, approval, verdict) = row?;
                let approval: Option<ApprovalRow> = approval.map(|body| json(&body)).transpose()?;
                let verdict: Option<VerdictRow> = verdict.map(|body| json(&body)).transpose()?;
                let Some(verdict) = verdict else { continue };
                let approved = approval.is_some();
                let document = approval.map_or(verdict.document, |approval| approval.document);
                if let Some(text) = text(tx, document)?.filter(|_| approved || of == issue) {
                    designs.push(PastDesign { issue: of, verdict: verdict.verdict, approved, text });
                }
            }
            Ok(designs)
        })
        .await
    }

    /// Findings of runs of a workflow before this one, as they stood in the end, those of the newest run first.
    pub async fn past_findings(
        &self,
        before: RunId,
        workflow: &str,
        most: u32,
    ) -> Result<Vec<PastFinding>, StoreError> {
        let workflow = workflow.to_owned();
        self.read(move |tx| {
            let mut statement = tx.prepare(
                "SELECT finding.run, issue, body FROM finding JOIN run ON seq = finding.run
                 WHERE workflow = ?1 AND finding.run < ?2 ORDER BY finding.run DESC, finding.visit DESC, finding.rowid LIMIT ?3",
            )?;
            let rows = statement.query_map(params![workflow, signed(before.seq), most], |row| {
                Ok((unsigned(row.get(0)?), IssueNo(unsigned(row.get(1)?)), row.get::<_, String>(2)?))
            })?;
            let mut findings: Vec<PastFinding> = Vec::new();
            for row in rows {
                let (run, issue, body) = row?;
                let finding: FindingRow = json(&body)?;
                // Each review writes all of them anew.
                let known = |past: &PastFinding| past.run == run && past.finding.id == finding.id;
                if !findings.iter().rev().take_while(|past| past.run == run).any(known) {
                    findings.push(PastFinding { run, issue, finding });
                }
            }
            Ok(findings)
        })
        .await
    }
}

/// The issue, and the bodies of the approval and the verdict.
fn judged(row: &Row<'_>) -> rusqlite::Result<(IssueNo, Option<String>, Option<String>)> {
    Ok((IssueNo(unsigned(row.get(0)?)), row.get(1)?, row.get(2)?))
}

/// A stored text, if there is one under this hash.
fn text(tx: &Transaction<'_>, hash: Hash) -> Result<Option<String>, Fault> {
    let found: Option<(i64, Vec<u8>)> = tx
        .prepare_cached("SELECT bytes, zstd FROM document WHERE hash = ?1")?
        .query_row([hash.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((size, zstd)) = found else { return Ok(None) };
    let bytes = usize::try_from(unsigned(size)).unwrap_or(usize::MAX);
    Ok(String::from_utf8(Document { bytes, zstd }.unpack(hash)?).ok())
}
