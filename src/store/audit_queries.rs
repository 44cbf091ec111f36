//! Reads audit chains and the rows that their links cover. Needs no lock, so it works while a server is running, or on
//! a copy.

use std::{collections::HashMap, path::Path};

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::params;
use serde_json::Value;

use super::{
    AuditChainReport, AuditRow, DatabaseSource, StoreError,
    database::to_signed,
    error::TransactionError,
    installation_registry,
    repository::{parse_json, read_text, verify_chain},
    rows::TextKind,
};
use crate::types::{Hash, IssueNo, RepoId, RepoName, RunId};

/// An audit link that belongs to a run of an issue.
#[derive(Debug, Clone)]
pub struct IssueAuditLink {
    /// Position of the link in the repository's audit chain, counted from 1.
    pub ordinal: usize,
    pub link: AuditRow,
    /// The row that the link covers; `None` if a later link covers the same row.
    pub row: Option<Value>,
    /// The text that the link covers.
    pub text: Option<String>,
}

/// Tables whose rows are covered by audit links. The name of such a link starts with the table's name.
const LINKED_TABLES: [&str; 9] =
    ["call", "verdict", "finding", "approval", "raise", "own_commit", "pull_section", "artifact", "route"];

/// Returns the repository that had this name when the server last saw it.
pub fn repository_named(place: &DatabaseSource, name: &RepoName) -> Result<Option<RepoId>, StoreError> {
    Ok(place.read_main(|tx| installation_registry::repository_by_name(tx, name))?.map(|row| row.id))
}

/// Returns whether a server has ever used this data directory.
pub fn was_initialized(root: &Path) -> bool {
    root.join("main.db").exists()
}

/// Returns every repository with data in this source, with its name.
pub fn repositories(place: &DatabaseSource) -> Result<Vec<(RepoId, RepoName)>, StoreError> {
    let (rows, left) = (place.read_main(installation_registry::known_repositories)?, place.repositories()?);
    Ok(rows.into_iter().filter(|row| left.contains(&row.id)).map(|row| (row.id, row.name)).collect())
}

/// Verifies the audit chain of a repository. Calls `each` with every link and its position in the chain.
pub fn walk_audit_chain(
    place: &DatabaseSource,
    repo: RepoId,
    each: impl FnMut(usize, AuditRow) + Send,
) -> Result<AuditChainReport, StoreError> {
    place.read_repository(repo, |tx| verify_chain(tx, repo, each))
}

/// Returns all audit links of an issue's runs, oldest first, with the rows and texts that they cover.
pub fn issue_audit_links(
    place: &DatabaseSource,
    repo: RepoId,
    issue: IssueNo,
) -> Result<(AuditChainReport, Vec<IssueAuditLink>), StoreError> {
    place.read_repository(repo, |tx| {
        let mut told = Vec::new();
        let walked = verify_chain(tx, repo, |ordinal, link| told.push((ordinal, link)))?;
        let mut runs = tx.prepare("SELECT seq FROM run WHERE issue = ?1")?;
        let runs = runs.query_map([to_signed(issue.0)], |row| row.get::<_, i64>(0))?;
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        told.retain(|(_, link)| runs.contains(&to_signed(link.run.seq)));
        let name = |link: &AuditRow| Some((link.run, link.visit, link.detail["row"].as_str()?.to_owned()));
        let last: HashMap<_, _> =
            told.iter().filter_map(|(ordinal, link)| Some((name(link)?, *ordinal))).collect();
        let told = told.into_iter().map(|(ordinal, link)| {
            let newest = name(&link).filter(|name| last.get(name) == Some(&ordinal));
            let row = match newest {
                Some((.., name)) => linked_row_body(tx, &link, &name)?,
                None => None,
            };
            let hash = link.detail["text"].as_str().map(str::parse::<Hash>).transpose()?;
            let text = hash.map(|hash| read_text(tx, hash)).transpose()?.flatten();
            Ok(IssueAuditLink { ordinal, link, row, text })
        });
        Ok((walked, told.collect::<Result<_, TransactionError>>()?))
    })
}

/// Returns the last code change that the run submitted for approval.
pub fn last_diff(place: &DatabaseSource, run: RunId) -> Result<Option<String>, StoreError> {
    place.read_repository(run.repo, |tx| {
        let last =
            "SELECT detail ->> '$.text' FROM audit WHERE run = ?1 AND what = ?2 ORDER BY seq DESC LIMIT 1";
        let what = TextKind::Diff.audit_text();
        let last: Option<String> =
            tx.query_row(last, params![to_signed(run.seq), what], |row| row.get(0)).optional()?;
        let hash = last.map(|hash| hash.parse::<Hash>()).transpose()?;
        hash.map(|hash| read_text(tx, hash)).transpose().map(Option::flatten)
    })
}

/// Returns the body of the row that an audit link covers.
fn linked_row_body(
    tx: &Transaction<'_>,
    link: &AuditRow,
    name: &str,
) -> Result<Option<Value>, TransactionError> {
    let (table, key) = name.split_once('/').unwrap_or((name, ""));
    let (run, visit) = (to_signed(link.run.seq), to_signed(link.visit));
    let found: Option<String> = match LINKED_TABLES.iter().find(|known| **known == table) {
        Some(table) => tx
            .prepare_cached(&format!("SELECT body FROM {table} WHERE run = ?1 AND visit = ?2 AND key = ?3"))?
            .query_row(params![run, visit, key], |row| row.get(0))
            .optional()?,
        None if table == "answer" => tx
            .prepare_cached("SELECT body FROM answer WHERE run = ?1 AND cause = ?2")?
            .query_row(params![run, key], |row| row.get(0))
            .optional()?,
        None => None,
    };
    found.map(|body| parse_json(&body)).transpose()
}
