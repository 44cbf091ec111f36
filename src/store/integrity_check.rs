//! Integrity check of a data directory or PostgreSQL database. It reads snapshots through separate connections, so that
//! a server may be running.

use std::{collections::HashSet, path::Path};

use crate::store::sql::Transaction;
use rusqlite::{Connection, OpenFlags};

use super::{
    DatabaseSource, StoreError, compression, database::must_not_be_empty, database_source,
    error::TransactionError, folders_in, installation_registry, refuse_lost_database,
    repository::verify_chain, wake_hints,
};
use crate::{
    limits,
    types::{Hash, RepoId, count},
};

/// Result of checking one database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseCheck {
    /// Path of the file relative to the data directory, or the name of the PostgreSQL scope.
    pub place: String,
    /// Readable summary of the database's contents.
    pub contents: String,
    /// Problems that were found; empty if all checks passed.
    pub problems: Vec<String>,
}

/// Maximum number of examples that are listed per type of damage. Further examples are only counted.
const EXAMPLES_SHOWN: usize = 5;

/// Checks all databases.
///
/// # Errors
/// Returns an error if the repositories cannot be listed. If a single database cannot be read, its result contains this
/// as a problem.
pub fn check_databases(source: &DatabaseSource) -> Result<Vec<DatabaseCheck>, StoreError> {
    let mut all = vec![check_database(source, None)];
    let repos = source.repositories()?;
    all.extend(repos.iter().map(|repo| check_database(source, Some(*repo))));
    if let DatabaseSource::Files(root) = source {
        all.extend(repositories_without_database(source, root, &repos)?);
    }
    Ok(all)
}

/// Reports each repository that has no database although it has a folder, or although the server's own database lists
/// unfinished runs for it.
fn repositories_without_database(
    source: &DatabaseSource,
    root: &Path,
    repos: &[RepoId],
) -> Result<Vec<DatabaseCheck>, StoreError> {
    let entry = |repo, contents, problems: Option<String>| DatabaseCheck {
        place: source.display_name(Some(repo)),
        contents,
        problems: problems.into_iter().collect(),
    };
    // Problems of main.db are reported already. Read it before the folders, so that a folder created meanwhile is seen.
    let rows = source.read_main(|tx| {
        Ok((installation_registry::known_repositories(tx)?, wake_hints::hinted_repositories(tx)?))
    });
    let (rows, live) = rows.unwrap_or_default();
    let folders = folders_in(root)?;
    let mut all = Vec::new();
    for (repo, folder) in &folders {
        if let Err(lost) = refuse_lost_database(folder) {
            all.push(entry(*repo, String::new(), Some(lost.to_string())));
        }
    }
    for row in rows {
        if !repos.contains(&row.id) && !folders.iter().any(|(repo, _)| *repo == row.id) {
            let wrong = format!("{} has unfinished runs, and no folder; restore it from a backup", row.name);
            let holds = format!("{} has no folder, and no runs are known", row.name);
            all.push(entry(row.id, holds, live.contains(&row.id).then_some(wrong)));
        }
    }
    Ok(all)
}

/// Reads one snapshot of a database through a separate connection.
pub(super) fn read_snapshot<R>(
    file: &Path,
    inside: impl FnOnce(&Transaction<'_>) -> Result<R, TransactionError>,
) -> Result<R, TransactionError> {
    let mut connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(limits::SQLITE_BUSY_TIMEOUT)?;
    let tx = connection.transaction()?;
    inside(&Transaction::File(&tx))
}

fn check_database(source: &DatabaseSource, repo: Option<RepoId>) -> DatabaseCheck {
    let whole = match source {
        DatabaseSource::Files(root) => {
            must_not_be_empty(&database_source::database_file(root, repo)).map(drop)
        }
        DatabaseSource::Server(_) => Ok(()),
    };
    let read = whole.and_then(|()| {
        source.read_database(repo, |tx| {
            // If SQLite cannot read the file, checking our own data makes no sense.
            let mut wrong = if let Transaction::File(_) = tx { sqlite_problems(tx)? } else { Vec::new() };
            let holds = match repo {
                _ if !wrong.is_empty() => String::new(),
                None => check_main(tx)?,
                Some(repo) => check_repository(tx, repo, &mut wrong)?,
            };
            Ok((holds, wrong))
        })
    });
    let (holds, wrong) = read.unwrap_or_else(|error| (String::new(), vec![error.to_string()]));
    DatabaseCheck { place: source.display_name(repo), contents: holds, problems: wrong }
}

fn sqlite_problems(tx: &Transaction<'_>) -> Result<Vec<String>, TransactionError> {
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
        dangling.add_example(format!("{table} to {parent}"));
    }
    wrong.extend(dangling.summary());
    Ok(wrong)
}

fn check_main(tx: &Transaction<'_>) -> Result<String, TransactionError> {
    let [deliveries, repositories] = [count_rows(tx, "inbox")?, count_rows(tx, "repository")?];
    let repositories = count(repositories, "repository", "repositories");
    Ok(format!("{}, {repositories}", count(deliveries, "delivery", "deliveries")))
}

fn check_repository(
    tx: &Transaction<'_>,
    repo: RepoId,
    wrong: &mut Vec<String>,
) -> Result<String, TransactionError> {
    let runs = count(count_rows(tx, "run")?, "run", "runs");
    let (documents, damaged) = check_documents(tx)?;
    wrong.extend(damaged.summary());
    wrong.extend(missing_documents(tx, &documents)?.summary());
    let walked = verify_chain(tx, repo, |_, _| ())?;
    for (what, examples) in [
        ("links of the audit chain do not hold", walked.broken),
        ("rows are not what the audit chain says", walked.altered),
    ] {
        let mut named = DamageSummary::new(what);
        examples.into_iter().for_each(|example| named.add_example(example));
        wrong.extend(named.summary());
    }
    let documents = count(documents.len(), "document", "documents");
    Ok(format!("{runs}, {documents}, {}", count(walked.links, "audit link", "audit links")))
}

fn count_rows(tx: &Transaction<'_>, table: &str) -> Result<usize, TransactionError> {
    let sql = format!("SELECT COUNT(*) FROM {table}");
    tx.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(|n| usize::try_from(n).unwrap_or(0))
}

/// Returns the hashes of all documents, and a summary of the documents that do not match their hash.
fn check_documents(tx: &Transaction<'_>) -> Result<(HashSet<String>, DamageSummary), TransactionError> {
    let (mut names, mut damaged) =
        (HashSet::new(), DamageSummary::new("documents are not what their hash says"));
    tx.for_each_row("SELECT hash, bytes, zstd FROM document", [], |row| {
        let (name, bytes, packed): (String, i64, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let size = usize::try_from(bytes).unwrap_or(0);
        let text = compression::unpack(&packed, size);
        if text.map_or(true, |text| text.len() != size || Hash::digest(&text).to_string() != name) {
            damaged.add_example(name.clone());
        }
        names.insert(name);
        Ok(())
    })?;
    Ok((names, damaged))
}

/// Returns the documents that are missing although a verdict or approval refers to them. Without its document, a
/// verdict or approval proves nothing.
fn missing_documents(
    tx: &Transaction<'_>,
    documents: &HashSet<String>,
) -> Result<DamageSummary, TransactionError> {
    let mut missing = DamageSummary::new("documents are missing that were reviewed or approved");
    let mut statement = tx.prepare(
        "SELECT document FROM verdict WHERE document IS NOT NULL
         UNION SELECT document FROM approval WHERE document IS NOT NULL",
    )?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    for name in names {
        let name = name?;
        if !documents.contains(&name) {
            missing.add_example(name);
        }
    }
    Ok(missing)
}

/// One type of damage, with examples and a count.
struct DamageSummary {
    what: &'static str,
    examples: Vec<String>,
    count: usize,
}

impl DamageSummary {
    fn new(what: &'static str) -> Self {
        Self { what, examples: Vec::new(), count: 0 }
    }

    fn add_example(&mut self, example: String) {
        if self.examples.len() < EXAMPLES_SHOWN {
            self.examples.push(example);
        }
        self.count += 1;
    }

    fn summary(self) -> Option<String> {
        let more = self.count - self.examples.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (self.count > 0).then(|| format!("{} {}: {}{more}", self.count, self.what, self.examples.join(", ")))
    }
}
