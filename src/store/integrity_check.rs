//! Is what lies in a data directory, or in a Postgres, sound? Reads only, on connections of its own, so that a server may be
//! at work on it: each database is looked at as it was at one moment.

use std::{collections::HashSet, path::Path};

use crate::store::sql::Transaction;
use rusqlite::{Connection, OpenFlags};

use super::{
    DatabaseSource, StoreError, compression, database::must_not_be_empty, database_source,
    error::TransactionError, folders_in, installation_registry, refuse_loss, repository::walk, wake_hints,
};
use crate::{
    limits,
    types::{Hash, RepoId, count},
};

/// What was found in one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseCheck {
    /// A file below the data directory; in a Postgres, whose tables.
    pub place: String,
    /// What it holds, for people.
    pub holds: String,
    /// What is wrong with it; nothing when it is sound.
    pub wrong: Vec<String>,
}

/// Of each kind of damage this many are named; the rest is counted.
const NAMED: usize = 5;

/// Looks at everything there.
///
/// # Errors
/// When it cannot be told which repositories there are. What cannot be read is wrong with what was found.
pub fn check(source: &DatabaseSource) -> Result<Vec<DatabaseCheck>, StoreError> {
    let mut all = vec![check_part(source, None)];
    let repos = source.repositories()?;
    all.extend(repos.iter().map(|repo| check_part(source, Some(*repo))));
    if let DatabaseSource::Files(root) = source {
        all.extend(without_database(source, root, &repos)?);
    }
    Ok(all)
}

/// Reports repositories that have a folder or a row but no database.
fn without_database(
    source: &DatabaseSource,
    root: &Path,
    repos: &[RepoId],
) -> Result<Vec<DatabaseCheck>, StoreError> {
    let said = |repo, holds, wrong: Option<String>| DatabaseCheck {
        place: source.name(Some(repo)),
        holds,
        wrong: wrong.into_iter().collect(),
    };
    // What is wrong with main.db was said. Read before the folders, so that one made meanwhile is seen.
    let rows = source.main(|tx| Ok((installation_registry::all(tx)?, wake_hints::all(tx)?)));
    let (rows, live) = rows.unwrap_or_default();
    let folders = folders_in(root)?;
    let mut all = Vec::new();
    for (repo, folder) in &folders {
        if let Err(lost) = refuse_loss(folder) {
            all.push(said(*repo, String::new(), Some(lost.to_string())));
        }
    }
    for row in rows {
        if !repos.contains(&row.id) && !folders.iter().any(|(repo, _)| *repo == row.id) {
            let wrong = format!("{} has unfinished runs, and no folder; restore it from a backup", row.name);
            let holds = format!("{} has no folder, and no runs are known", row.name);
            all.push(said(row.id, holds, live.contains(&row.id).then_some(wrong)));
        }
    }
    Ok(all)
}

/// Reads a database as it is at one moment, on a connection of its own.
pub(super) fn glimpse<R>(
    file: &Path,
    inside: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
) -> Result<R, TransactionError> {
    let mut connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(limits::FILE_LOCK)?;
    let tx = connection.transaction()?;
    inside(&Transaction::File(&tx))
}

fn check_part(source: &DatabaseSource, repo: Option<RepoId>) -> DatabaseCheck {
    let whole = match source {
        DatabaseSource::Files(root) => must_not_be_empty(&database_source::file(root, repo)).map(drop),
        DatabaseSource::Server(_) => Ok(()),
    };
    let read = whole.and_then(|()| {
        source.look(repo, |tx| {
            // What SQLite itself cannot read says nothing about what we wrote into it.
            let mut wrong = if let Transaction::File(_) = tx { sqlites_own(tx)? } else { Vec::new() };
            let holds = match repo {
                _ if !wrong.is_empty() => String::new(),
                None => main(tx)?,
                Some(repo) => repository(tx, repo, &mut wrong)?,
            };
            Ok((holds, wrong))
        })
    });
    let (holds, wrong) = read.unwrap_or_else(|error| (String::new(), vec![error.to_string()]));
    DatabaseCheck { place: source.name(repo), holds, wrong }
}

fn sqlites_own(tx: &Transaction<'_>) -> Result<Vec<String>, TransactionError> {
    let mut wrong = Vec::new();
    let mut statement = tx.prepare("PRAGMA integrity_check(5)")?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    for line in lines {
        let line = line?;
        if line != "ok" {
            wrong.push(line);
        }
    }
    let mut statement = tx.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    let mut dangling = DamageSummary::new("rows point to something that is not there");
    while let Some(row) = rows.next()? {
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        dangling.add(format!("{table} to {parent}"));
    }
    wrong.extend(dangling.line());
    Ok(wrong)
}

fn main(tx: &Transaction<'_>) -> Result<String, TransactionError> {
    let [deliveries, repositories] = [rows(tx, "inbox")?, rows(tx, "repository")?];
    let repositories = count(repositories, "repository", "repositories");
    Ok(format!("{}, {repositories}", count(deliveries, "delivery", "deliveries")))
}

fn repository(
    tx: &Transaction<'_>,
    repo: RepoId,
    wrong: &mut Vec<String>,
) -> Result<String, TransactionError> {
    let runs = count(rows(tx, "run")?, "run", "runs");
    let (documents, damaged) = documents(tx)?;
    wrong.extend(damaged.line());
    wrong.extend(missing(tx, &documents)?.line());
    let walked = walk(tx, repo, |_, _| ())?;
    for (what, examples) in [
        ("links of the audit chain do not hold", walked.broken),
        ("rows are not what the audit chain says", walked.altered),
    ] {
        let mut named = DamageSummary::new(what);
        examples.into_iter().for_each(|example| named.add(example));
        wrong.extend(named.line());
    }
    let documents = count(documents.len(), "document", "documents");
    Ok(format!("{runs}, {documents}, {}", count(walked.links, "audit link", "audit links")))
}

fn rows(tx: &Transaction<'_>, table: &str) -> Result<usize, TransactionError> {
    let sql = format!("SELECT COUNT(*) FROM {table}");
    tx.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(|n| usize::try_from(n).unwrap_or(0))
}

/// The names of all documents, and which of them do not hold what their name says.
fn documents(tx: &Transaction<'_>) -> Result<(HashSet<String>, DamageSummary), TransactionError> {
    let (mut names, mut damaged) =
        (HashSet::new(), DamageSummary::new("documents are not what their hash says"));
    tx.sweep("SELECT hash, bytes, zstd FROM document", [], |row| {
        let (name, bytes, packed): (String, i64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let size = usize::try_from(bytes).unwrap_or(0);
        let text = compression::unpack(&packed, size);
        if text.map_or(true, |text| text.len() != size || Hash::of(&text).to_string() != name) {
            damaged.add(name.clone());
        }
        names.insert(name);
        Ok(())
    })?;
    Ok((names, damaged))
}

/// Verdicts and approvals are of a document, and are worth nothing without it.
fn missing(tx: &Transaction<'_>, documents: &HashSet<String>) -> Result<DamageSummary, TransactionError> {
    let mut missing = DamageSummary::new("documents are missing that were reviewed or approved");
    let mut statement = tx.prepare(
        "SELECT document FROM verdict WHERE document IS NOT NULL
         UNION SELECT document FROM approval WHERE document IS NOT NULL",
    )?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    for name in names {
        let name = name?;
        if !documents.contains(&name) {
            missing.add(name);
        }
    }
    Ok(missing)
}

/// A kind of damage, with some examples of it.
struct DamageSummary {
    what: &'static str,
    examples: Vec<String>,
    count: usize,
}

impl DamageSummary {
    fn new(what: &'static str) -> Self {
        Self { what, examples: Vec::new(), count: 0 }
    }

    fn add(&mut self, example: String) {
        if self.examples.len() < NAMED {
            self.examples.push(example);
        }
        self.count += 1;
    }

    fn line(self) -> Option<String> {
        let more = self.count - self.examples.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (self.count > 0).then(|| format!("{} {}: {}{more}", self.count, self.what, self.examples.join(", ")))
    }
}
