//! Moves the databases of a data directory to PostgreSQL in one transaction. All data is read back and compared before
//! the commit. If the move is interrupted before the commit, nothing is moved. In the data directory itself, only a
//! marker file is created.

use std::{
    fs::{self, File},
    path::Path,
    sync::Arc,
};

use rusqlite::types::{ToSqlOutput, ValueRef};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    DatabaseSource, PostgresServer, Store, StoreError,
    backup::sync_directory,
    database::{Database, to_unsigned},
    delivery_sweep::SWEEP_POSITION_KEY,
    error::TransactionError,
    integrity_check::{check_databases, read_snapshot},
    postgres_backend::{self, ConnectionPool, PostgresScope},
    repository::{self, verify_chain},
    sql::{SqlRow, Transaction},
};
use crate::types::RepoId;

/// Result of moving a data directory to PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresMoveSummary {
    pub repositories: usize,
    pub rows: u64,
    /// Number of audit links that were verified after the move.
    pub links: usize,
    /// Whether an earlier move had already copied all data.
    pub was_already_there: bool,
}

/// Name of the marker file in a data directory that was moved. A server refuses to open a directory with this file;
/// otherwise two servers could work on the same runs.
pub(super) const MOVED_MARK_FILE: &str = "moved-to-postgres";

/// Tables that are not moved: those needed only for files (wake hints, boot number, row counters) and SQLite's own
/// tables.
const FILE_ONLY_TABLES: [&str; 4] = ["hint", "boot", "sqlite_sequence", "sqlite_stat1"];

/// Tables that must be filled first, because other tables reference them.
const PARENT_TABLES: [&str; 3] = ["cancel", "run", "gate"];

/// Moves the data of `from` to an empty database. The caller must have the store open, so that nobody else changes the
/// data. Calls `report_done` after each repository.
///
/// # Errors
/// Returns an error if data in `from` is damaged, if the comparison fails, or if the target database contains other
/// data or is used by a server.
pub fn move_to_postgres(
    from: &Store,
    server: &PostgresServer,
    mut report_done: impl FnMut(RepoId, u64),
) -> Result<PostgresMoveSummary, StoreError> {
    let root = &from.root;
    if let Some(unsound) = check_databases(&DatabaseSource::Files(root.clone()))?
        .into_iter()
        .find(|file| !file.problems.is_empty())
    {
        return Err(StoreError::Damaged {
            file: root.join(unsound.place),
            detail: unsound.problems.join("; "),
        });
    }
    let repos = repositories_to_move(root)?;
    let pool = Arc::new(ConnectionPool::new(server.address.expose_secret())?);
    pool.migrate()?;
    let (part, mut moved) = (
        PostgresScope::new(pool, None),
        PostgresMoveSummary { repositories: repos.len(), rows: 0, links: 0, was_already_there: false },
    );
    let fill = |to: &Transaction<'_>| {
        // The transaction's lock blocks any server that starts meanwhile, so no timeout applies.
        to.execute_batch(
            "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0",
        )?;
        let count = |sql: &str| to.query_row(sql, [], |row| row.get::<_, i64>(0));
        if count("SELECT COUNT(*) FROM node WHERE until > now()")? > 0 {
            return Err(refusal("a server serves from there; stop all of them first"));
        }
        moved.was_already_there =
            count("SELECT COUNT(*) FROM inbox")? + count("SELECT COUNT(*) FROM all_run")? > 0;
        let mut others = to.prepare("SELECT DISTINCT repo FROM all_run")?;
        for other in others.query_map([], |row| Ok(RepoId(to_unsigned(row.get(0)?))))? {
            let other = other?;
            if !repos.contains(&other) {
                return Err(refusal(&format!("the database has runs of another repository, {other}")));
            }
        }
        let mut last = 0;
        for repo in &repos {
            to.execute_batch(&format!("SET LOCAL countersign.repo = '{repo}'"))?;
            let file = root.join("repos").join(repo.to_string()).join(repository::CHECKPOINTS_FILE);
            let copied =
                read_snapshot(&file, |from| copy_tables(from, to, Some(*repo), moved.was_already_there))?;
            let walked = verify_chain(to, *repo, |_, _| ())?;
            if !walked.is_sound() {
                return Err(refusal(&format!("the audit chain of repository {repo} does not hold there")));
            }
            moved.rows += copied.rows;
            moved.links += walked.links;
            last = last.max(copied.highest_number);
            report_done(*repo, copied.rows);
        }
        let main = read_snapshot(&root.join("main.db"), |from| {
            copy_tables(from, to, None, moved.was_already_there)
        })?;
        moved.rows += main.rows;
        if !moved.was_already_there {
            // New rows get numbers above the moved ones.
            to.query_row("SELECT setval('numbers', ?1)", [last + 1], |_| Ok(()))?;
            let inbox = "SELECT setval(pg_get_serial_sequence('inbox', 'seq'), (SELECT COALESCE(MAX(seq), 0) + 1 FROM inbox))";
            to.query_row(inbox, [], |_| Ok(()))?;
        }
        // Write the mark before the commit, so that a crash never leaves both places in use.
        let mark = root.join(MOVED_MARK_FILE);
        let marked = File::create(&mark).and_then(|mark| mark.sync_all());
        marked.map_err(|error| refusal(&format!("{} cannot be written: {error}", mark.display())))?;
        sync_directory(root).map_err(|error| refusal(&error.to_string()))?;
        Ok(true)
    };
    part.transact(fill).map_err(|fault| fault.with_path(&part.name()))?;
    Ok(moved)
}

/// Returns the repositories to move. Fails if a repository has lost its database or cannot be read, because such a
/// repository must not be skipped silently.
fn repositories_to_move(root: &Path) -> Result<Vec<RepoId>, StoreError> {
    for (_, directory) in super::folders_in(root)? {
        fs::read_dir(&directory).map_err(|source| StoreError::Io { path: directory.clone(), source })?;
        super::refuse_lost_database(&directory)?;
    }
    super::repositories_in(root)
}

/// Error code of a refused move. The reason is in the error message.
pub(super) const REFUSED_CODE: &str = "moved";

fn refusal(why: &str) -> TransactionError {
    TransactionError::Server { code: Some(REFUSED_CODE.to_owned()), said: why.to_owned() }
}

/// Result of copying the tables of one database.
#[derive(Default)]
struct CopyCount {
    rows: u64,
    /// Highest row number that was copied.
    highest_number: i64,
}

/// Copies the tables and compares the copies with the sources. If `before` is set, an earlier move has already copied
/// the tables, so they are only compared.
fn copy_tables(
    from: &Transaction<'_>,
    to: &Transaction<'_>,
    repo: Option<RepoId>,
    before: bool,
) -> Result<CopyCount, TransactionError> {
    let mut all = CopyCount::default();
    for table in movable_tables(from)? {
        let columns = movable_columns(from, to, &table, repo)?;
        let (read, insert) = copy_statements(&table, &columns);
        let mut insert = to.prepare(&insert)?;
        let (mut here, mut there) = (RowChecksum::default(), RowChecksum::default());
        if !before {
            // The only row that a former server leaves in an empty database.
            if table == "meta" {
                to.execute("DELETE FROM meta WHERE key = ?1", [SWEEP_POSITION_KEY])?;
            }
            let held = format!("SELECT EXISTS ({read})");
            if to.query_row(&held, [], |row| row.get(0))? {
                return Err(refusal(&format!(
                    "the database is not empty: there are rows in its table {table}"
                )));
            }
        }
        from.for_each_row(&read, [], |row| {
            let values = movable_values(&table, &columns, row)?;
            if !before {
                insert.execute(borrowed_values(&values))?;
            }
            here.add_row(&values);
            for (column, value) in columns.iter().zip(&values) {
                if let (true, ValueRef::Integer(number)) =
                    (repo.is_some() && ["rowid", "seq", "id"].contains(&column.as_str()), value)
                {
                    all.highest_number = all.highest_number.max(*number);
                }
            }
            Ok(())
        })?;
        to.for_each_row(&read, [], |row| {
            there.add_row(&movable_values(&table, &columns, row)?);
            Ok(())
        })?;
        if here != there {
            let whose = repo.map_or_else(|| "the server".to_owned(), |repo| format!("repository {repo}"));
            return Err(refusal(&format!(
                "the table {table} of {whose} is not the same there ({} rows here, {} there); a database that holds anything \
                 else takes no data directory",
                here.rows, there.rows
            )));
        }
        all.rows += here.rows;
    }
    Ok(all)
}

/// Copies the tables of the server or of one repository from PostgreSQL into a new database file. Does not compare the
/// copies with the sources.
pub(super) fn fetch_tables(
    from: &DatabaseSource,
    repo: Option<RepoId>,
    to: &Database,
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    let filled = |from: &Transaction<'_>| {
        Ok(to.write_blocking(|to| {
            for table in movable_tables(to)? {
                let columns = movable_columns(to, from, &table, repo)?;
                let (read, insert) = copy_statements(&table, &columns);
                let mut insert = to.prepare(&insert)?;
                from.for_each_row(&read, [], |row| {
                    if stop.is_cancelled() {
                        return Err(TransactionError::Closing);
                    }
                    insert.execute(borrowed_values(&movable_values(&table, &columns, row)?)).map(drop)
                })?;
            }
            Ok(())
        }))
    };
    from.read_database(repo, filled)?
}

/// Returns the SELECT statement and the INSERT statement that copy a table.
fn copy_statements(table: &str, columns: &[String]) -> (String, String) {
    let list = columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>().join(", ");
    let places = (1..=columns.len()).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
    // Files keep the boot number in `meta`, PostgreSQL its schema version; neither is copied.
    let own = if table == "meta" { " WHERE key NOT IN ('epoch', 'schema')" } else { "" };
    let read = format!("SELECT {list} FROM \"{table}\"{own}");
    (read, format!("INSERT INTO \"{table}\" ({list}) VALUES ({places})"))
}

fn borrowed_values<'a>(values: &[ValueRef<'a>]) -> Vec<ToSqlOutput<'a>> {
    values.iter().map(|value| ToSqlOutput::Borrowed(*value)).collect()
}

/// Returns the tables to move, ordered such that a table comes after the tables that it references.
fn movable_tables(from: &Transaction<'_>) -> Result<Vec<String>, TransactionError> {
    let mut names = from.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")?;
    let mut names =
        names.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, TransactionError>>()?;
    names.retain(|name| !FILE_ONLY_TABLES.contains(&name.as_str()));
    names.sort_by_key(|name| {
        PARENT_TABLES.iter().position(|first| first == name).unwrap_or(PARENT_TABLES.len())
    });
    Ok(names)
}

/// Returns the columns of a PostgreSQL table, except generated columns. Fails if the SQLite table has a column that the
/// PostgreSQL table lacks.
fn movable_columns(
    from: &Transaction<'_>,
    to: &Transaction<'_>,
    table: &str,
    repo: Option<RepoId>,
) -> Result<Vec<String>, TransactionError> {
    let name = if repo.is_some() { format!("all_{table}") } else { table.to_owned() };
    let mut columns = to.prepare(
        "SELECT CAST(column_name AS TEXT) FROM information_schema.columns WHERE table_schema = current_schema()
             AND CAST(table_name AS TEXT) = ?1 AND is_generated = 'NEVER' ORDER BY ordinal_position",
    )?;
    let columns = columns.query_map([name], |row| row.get::<_, String>(0))?;
    let mut columns = columns.collect::<Result<Vec<_>, TransactionError>>()?;
    columns.retain(|column| repo.is_none() || column != "repo");
    let mut held = from.prepare("SELECT name FROM pragma_table_info(?1)")?;
    for column in held.query_map([table], |row| row.get::<_, String>(0))? {
        let column = column?;
        if !columns.contains(&column) {
            return Err(refusal(&format!("there is no place for {table}.{column}")));
        }
    }
    Ok(columns)
}

/// Returns the values of a row in the form in which PostgreSQL stores them. For a run, resets the claim and the number
/// of the boot that parked the run, so that any node can take the run.
fn movable_values<'a>(
    table: &str,
    columns: &[String],
    row: &'a SqlRow<'_>,
) -> Result<Vec<ValueRef<'a>>, TransactionError> {
    let value = |(at, column): (usize, &String)| {
        let value = row.get_ref(at)?;
        Ok(match (table, &**column) {
            ("run", "parked") if value != ValueRef::Null => ValueRef::Integer(0),
            ("run", "taken") => ValueRef::Null,
            _ => value,
        })
    };
    columns.iter().enumerate().map(value).collect()
}

/// Checksum of rows that does not depend on their order.
#[derive(Default, PartialEq, Eq)]
struct RowChecksum {
    rows: u64,
    hashes: u128,
}

impl RowChecksum {
    fn add_row(&mut self, values: &[ValueRef<'_>]) {
        let mut hash = Sha256::new();
        let mut part = |kind: u8, bytes: &[u8]| {
            hash.update([kind]);
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        };
        for value in values {
            match value {
                ValueRef::Null => part(0, &[]),
                ValueRef::Integer(number) => part(1, &number.to_le_bytes()),
                ValueRef::Real(number) => part(2, &number.to_le_bytes()),
                ValueRef::Text(text) => part(3, postgres_backend::postgres_text(text).as_bytes()),
                ValueRef::Blob(bytes) => part(4, bytes),
            }
        }
        let half = hash.finalize()[..16].try_into().map_or(0, u128::from_le_bytes);
        (self.rows, self.hashes) = (self.rows + 1, self.hashes.wrapping_add(half));
    }
}
