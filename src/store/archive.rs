//! Archiving of runs that ended long ago: their data is written to a file, then pruned from the database.
//!
//! First we write all data of these runs to a file and read the file back to verify it. Then we prune one run per
//! transaction: its trail, its journal, and its texts, except texts that are evidence or that another run references.
//! Rows and audit links are kept, so the audit chain remains valid, and a new audit link of the run names the file. A
//! crash leaves at worst an extra file. A damaged text is reported and not pruned, so that an operator can repair it
//! from a backup. The database file does not shrink, but SQLite reuses its free pages.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::store::sql::{OptionalRow, Transaction};
use rusqlite::{params, types::ValueRef};
use serde_json::{Map, Value, json};

use super::{
    DatabaseSource, Store, StoreError,
    backup::sync_directory,
    compression,
    database::{to_signed, to_unsigned},
    error::TransactionError,
    referenced_texts::{LASTING_REFERENCE_QUERIES, REFERENCE_QUERIES, for_each_reference},
    run_blocking,
    upgrade_copies::compact_timestamp,
};
use crate::types::{Hash, RepoId, RunId, Timestamp};

/// Description of the audit link about archiving.
pub const ARCHIVED_LINK_TEXT: &str = "texts were archived";

/// SQL condition for a run that ended before `?1` and has not changed since, except by archiving.
const ENDED_RUN_CONDITION: &str =
    "status IN ('done', 'failed', 'stopped') AND updated_at < ?1 AND NOT EXISTS (
    SELECT 1 FROM audit WHERE audit.run = run.seq AND what = 'texts were archived' AND at >= updated_at)";

/// All tables that hold data of a run, except the table of documents. Each entry names the table, its run column and
/// its order column. A table comes before the tables that reference it.
pub(super) const ARCHIVED_TABLES: [(&str, &str, &str); 17] = [
    ("run", "seq", "seq"),
    ("trail", "run", "visit"),
    ("journal", "run", "rowid"),
    ("gate", "run", "id"),
    ("answer", "run", "id"),
    ("remark", "run", "rowid"),
    ("retry", "run", "rowid"),
    ("call", "run", "rowid"),
    ("verdict", "run", "rowid"),
    ("finding", "run", "rowid"),
    ("approval", "run", "rowid"),
    ("raise", "run", "rowid"),
    ("own_commit", "run", "rowid"),
    ("pull_section", "run", "rowid"),
    ("artifact", "run", "rowid"),
    ("route", "run", "rowid"),
    ("audit", "run", "seq"),
];

/// Result of archiving a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSummary {
    pub file: PathBuf,
    pub runs: usize,
    /// Number of texts that were pruned and now exist only in the file.
    pub documents: usize,
    /// Hashes of the texts whose content does not match their hash.
    pub damaged: Vec<String>,
}

/// File name suffix of archive files that are not complete yet.
const PARTIAL_SUFFIX: &str = ".half-done";

/// Runs to archive and the documents that they reference, read from one snapshot.
struct ArchivePlan {
    at: Timestamp,
    before: Timestamp,
    /// Runs to archive, each with the hashes of the documents that it references.
    runs: Vec<(u64, HashSet<String>)>,
    /// Hashes of documents that stay in the database, because other runs reference them or because they are kept
    /// forever.
    needed: HashSet<String>,
}

/// Checksum over the lines of the file, in order.
#[derive(Debug, Default, PartialEq, Eq)]
struct ArchiveChecksum {
    lines: u64,
    documents: u64,
    hash: Option<Hash>,
}

impl ArchiveChecksum {
    fn add_line(&mut self, line: &[u8]) {
        self.lines += 1;
        let before = self.hash.map(|hash| hash.to_string()).unwrap_or_default();
        self.hash = Some(Hash::digest_parts([before.as_bytes(), line]));
    }
}

impl Store {
    /// Returns the default directory for archive files.
    pub fn archive_directory(root: &Path) -> PathBuf {
        root.join("archives")
    }

    /// Archives the repository's runs that ended before a given time into a new file in `to`. Returns `None` if there
    /// are no such runs.
    pub async fn archive_runs(
        &self,
        repo: RepoId,
        before: Timestamp,
        to: &Path,
    ) -> Result<Option<ArchiveSummary>, StoreError> {
        // One archiving at a time, and no repository may be forgotten meanwhile, since its file would remain. The lock
        // also outlives a caller that stops waiting.
        let turn = Arc::clone(&self.archive_lock).lock_owned().await;
        let Some(db) = self.existing_repository_database(repo).await? else { return Ok(None) };
        let (source, now) = (self.database_source(), self.clock.now());
        let to = std::path::absolute(to).map_err(|source| StoreError::Io { path: to.to_owned(), source })?;
        let (exported, _turn) = run_blocking(move || {
            let plan = source.read_repository(repo, |tx| plan_archive(tx, before, now))?;
            let export = |plan: ArchivePlan| Ok((export_runs(&source, (&to, repo), &plan)?, plan));
            Ok((plan.map(export).transpose()?, turn))
        })
        .await?;
        let Some(((file, damaged), ArchivePlan { at, before, runs, mut needed })) = exported else {
            return Ok(None);
        };
        needed.extend(damaged.iter().cloned());
        let mut left: HashMap<String, usize> = HashMap::new();
        for hash in runs.iter().flat_map(|(_, named)| named) {
            *left.entry(hash.clone()).or_default() += 1;
        }
        let mut archived = ArchiveSummary { file: file.clone(), runs: 0, documents: 0, damaged };
        for (seq, named) in runs {
            // A text that several archived runs reference is pruned with the last of them.
            let alone = |hash: &String| !needed.contains(hash) && left.get(hash) == Some(&1);
            let gone: Vec<String> = named.iter().filter(|hash| alone(hash)).cloned().collect();
            let (run, name) = (RunId { repo, seq }, file.clone());
            let pruned = db.prune_archived_run(run, (at, before), gone, name).await?;
            let Some(documents) = pruned else { continue };
            named.iter().for_each(|hash| *left.entry(hash.clone()).or_default() -= 1);
            archived.runs += 1;
            archived.documents += documents;
        }
        Ok(Some(archived))
    }
}

fn plan_archive(
    tx: &Transaction<'_>,
    before: Timestamp,
    at: Timestamp,
) -> Result<Option<ArchivePlan>, TransactionError> {
    let mut statement =
        tx.prepare(&format!("SELECT seq FROM run WHERE {ENDED_RUN_CONDITION} ORDER BY seq"))?;
    let over = statement.query_map([before.0], |row| row.get::<_, i64>(0))?;
    let over: Vec<u64> = over.map(|seq| seq.map(to_unsigned)).collect::<Result<_, _>>()?;
    if over.is_empty() {
        return Ok(None);
    }
    let mut runs: HashMap<u64, HashSet<String>> = over.iter().map(|seq| (*seq, HashSet::new())).collect();
    let (gone, mut needed) = (previously_archived_runs(tx)?, HashSet::new());
    for_each_reference(tx, &REFERENCE_QUERIES, None, |run, hash| match runs.get_mut(&run) {
        Some(named) => {
            named.insert(hash.to_owned());
        }
        None if gone.contains(&run) => {}
        None => {
            needed.insert(hash.to_owned());
        }
    })?;
    for_each_reference(tx, &LASTING_REFERENCE_QUERIES, None, |_, hash| {
        needed.insert(hash.to_owned());
    })?;
    let mut runs: Vec<_> = runs.into_iter().collect();
    runs.sort_unstable_by_key(|(seq, _)| *seq);
    Ok(Some(ArchivePlan { at, before, runs, needed }))
}

/// Returns the runs that were archived earlier. Texts that only these runs reference are no longer in the database.
fn previously_archived_runs(tx: &Transaction<'_>) -> Result<HashSet<u64>, TransactionError> {
    let sql = "SELECT run FROM audit JOIN run ON run.seq = audit.run WHERE what = ?1 AND audit.at >= run.updated_at";
    let mut statement = tx.prepare(sql)?;
    let runs = statement.query_map([ARCHIVED_LINK_TEXT], |row| row.get::<_, i64>(0))?;
    runs.map(|run| run.map(to_unsigned)).collect::<Result<_, _>>()
}

/// Writes all data of the planned runs to a new file and reads the file back to verify it. The file gets its final name
/// only when it is complete. Returns the path of the file and the damaged texts.
fn export_runs(
    source: &DatabaseSource,
    (to, repo): (&Path, RepoId),
    plan: &ArchivePlan,
) -> Result<(PathBuf, Vec<String>), StoreError> {
    let io = |source| StoreError::Io { path: to.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(io)?;
    // Remove leftovers of an interrupted archiving.
    remove_files(to, repo, PARTIAL_SUFFIX)?;
    let half = to.join(format!("{repo}-{}{PARTIAL_SUFFIX}", compact_timestamp(plan.at)));
    let io = |source| StoreError::Io { path: half.clone(), source };
    let out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half).map_err(io)?;
    let made = write_archive(source, (repo, &half), out, plan).and_then(|(written, damaged)| {
        if read_checksum(&half).map_err(io)? != written {
            let detail = "the archive reads back differently than it was written".to_owned();
            return Err(StoreError::Damaged { file: half.clone(), detail });
        }
        // A hard link never replaces an existing file.
        let file = to.join(format!("{repo}-{}.jsonl.zst", compact_timestamp(plan.at)));
        fs::hard_link(&half, &file).map_err(|source| StoreError::Io { path: file.clone(), source })?;
        sync_directory(to)?;
        Ok((file, damaged))
    });
    drop(fs::remove_file(&half));
    made
}

fn write_archive(
    source: &DatabaseSource,
    (repo, half): (RepoId, &Path),
    file: File,
    plan: &ArchivePlan,
) -> Result<(ArchiveChecksum, Vec<String>), StoreError> {
    let io = |source| StoreError::Io { path: half.to_owned(), source };
    let mut out = zstd::Encoder::new(BufWriter::new(file), 0).map_err(io)?;
    out.include_checksum(true).map_err(io)?;
    let (mut sum, mut damaged) = (ArchiveChecksum::default(), Vec::new());
    // A full disk is a failure of the archive file, not of the database.
    let mut failed = None;
    let read = source.read_repository(repo, |tx| {
        let mut line = |value: &Value| {
            let line = value.to_string();
            sum.add_line(line.as_bytes());
            sum.documents += u64::from(value.get("document").is_some());
            let written = out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n"));
            written.map_err(|error| {
                failed = Some(error);
                TransactionError::Missing("room for the archive".to_owned())
            })
        };
        for (seq, named) in &plan.runs {
            for table in ARCHIVED_TABLES {
                write_rows(tx, table, *seq, &mut line)?;
            }
            let mut named: Vec<&String> = named.iter().collect();
            named.sort_unstable();
            for hash in named {
                match read_document(tx, hash)? {
                    Some(Some(text)) => line(&json!({ "document": hash, "run": seq, "text": text }))?,
                    Some(None) => {
                        line(&json!({ "damaged": hash, "run": seq }))?;
                        damaged.push(hash.clone());
                    }
                    None => {}
                }
            }
        }
        Ok(())
    });
    if let Some(error) = failed {
        return Err(io(error));
    }
    read?;
    let file =
        out.finish().and_then(|buffered| buffered.into_inner().map_err(io::IntoInnerError::into_error));
    file.and_then(|file| file.sync_all()).map_err(io)?;
    damaged.sort_unstable();
    damaged.dedup();
    Ok((sum, damaged))
}

fn write_rows(
    tx: &Transaction<'_>,
    (table, column, order): (&str, &str, &str),
    seq: u64,
    line: &mut impl FnMut(&Value) -> Result<(), TransactionError>,
) -> Result<(), TransactionError> {
    let mut statement = tx.prepare(&format!("SELECT * FROM {table} WHERE {column} = ?1 ORDER BY {order}"))?;
    let names: Vec<String> = statement.column_names();
    let mut rows = statement.query([to_signed(seq)])?;
    while let Some(row) = rows.next()? {
        let mut fields = Map::new();
        for (at, name) in names.iter().enumerate() {
            fields.insert(name.clone(), json_value(row.get_ref(at)?));
        }
        line(&json!({ "table": table, "row": fields }))?;
    }
    Ok(())
}

fn json_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => json_text(bytes),
    }
}

/// Encodes valid UTF-8 as a JSON string, and any other bytes as hex.
fn json_text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => json!({ "hex": hex::encode(bytes) }),
    }
}

/// Returns the text with this hash, or `None` if the text is not stored. The inner `None` means that the stored text
/// does not match the hash.
fn read_document(tx: &Transaction<'_>, hash: &str) -> Result<Option<Option<Value>>, TransactionError> {
    let found: Option<(i64, Vec<u8>)> = tx
        .prepare_cached("SELECT bytes, zstd FROM document WHERE hash = ?1")?
        .query_row([hash], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let text = |(size, packed): (i64, Vec<u8>)| {
        let bytes = compression::unpack(&packed, usize::try_from(size).unwrap_or(0)).ok()?;
        (Hash::digest(&bytes).to_string() == hash).then(|| json_text(&bytes))
    };
    Ok(found.map(text))
}

/// Returns the checksum of an archive file. Documents that do not match their hash are not counted.
fn read_checksum(file: &Path) -> io::Result<ArchiveChecksum> {
    let mut sum = ArchiveChecksum::default();
    for line in BufReader::new(zstd::Decoder::new(File::open(file)?)?).split(b'\n') {
        let line = line?;
        sum.add_line(&line);
        let value: Value = serde_json::from_slice(&line)?;
        let Some(hash) = value["document"].as_str() else { continue };
        let bytes = match value["text"].as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => hex::decode(value["text"]["hex"].as_str().unwrap_or_default()).unwrap_or_default(),
        };
        sum.documents += u64::from(Hash::digest(&bytes).to_string() == hash);
    }
    Ok(sum)
}

/// Prunes a run and adds an audit link that names the archive file. If the run changed since it was exported, changes
/// nothing and returns `None`.
pub(super) fn prune_run(
    tx: &Transaction<'_>,
    run: RunId,
    (at, before): (Timestamp, Timestamp),
    gone: &[String],
) -> Result<Option<usize>, TransactionError> {
    let seq = to_signed(run.seq);
    let rests = format!("SELECT EXISTS (SELECT 1 FROM run WHERE seq = ?2 AND {ENDED_RUN_CONDITION})");
    if !tx.query_row(&rests, [before.0, seq], |row| row.get::<_, bool>(0))? {
        return Ok(None);
    }
    // Runs that changed since the snapshot may reference more documents.
    let mut statement = tx.prepare(
        "SELECT seq FROM run WHERE seq <> ?2 AND (updated_at >= ?1
         OR status NOT IN ('done', 'failed', 'stopped'))",
    )?;
    let moved = statement.query_map([at.0, seq], |row| row.get::<_, i64>(0))?;
    let moved: Vec<u64> = moved.map(|seq| seq.map(to_unsigned)).collect::<Result<_, _>>()?;
    let mut needed = HashSet::new();
    for_each_reference(tx, &REFERENCE_QUERIES, Some(&moved), |_, hash| {
        needed.insert(hash.to_owned());
    })?;
    let mut documents = 0;
    for hash in gone.iter().filter(|hash| !needed.contains(*hash)) {
        // A running step references its documents only when it ends; storing a document again renews its creation time.
        documents += tx
            .prepare_cached("DELETE FROM document WHERE hash = ?1 AND created_at < ?2")?
            .execute(params![hash, before.0])?;
    }
    for table in ["journal", "trail"] {
        tx.execute(&format!("DELETE FROM {table} WHERE run = ?1"), [seq])?;
    }
    Ok(Some(documents))
}

/// Deletes the archives of a removed repository from the data directory.
pub(super) fn remove_archives(root: &Path, repo: RepoId) -> Result<(), StoreError> {
    remove_files(&Store::archive_directory(root), repo, "")
}

/// Deletes the files of a repository whose names end with this suffix.
fn remove_files(directory: &Path, repo: RepoId, ends: &str) -> Result<(), StoreError> {
    let io = |source| StoreError::Io { path: directory.to_owned(), source };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io)?,
    };
    let begins = format!("{repo}-");
    for entry in entries {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&begins) && name.ends_with(ends) {
            fs::remove_file(entry.path()).map_err(|source| StoreError::Io { path: entry.path(), source })?;
        }
    }
    Ok(())
}

/// Returns the name, description and detail of the audit link that records an archiving.
pub(super) fn archive_link(file: &Path, documents: usize) -> (String, &'static str, Value) {
    (
        "archive".to_owned(),
        ARCHIVED_LINK_TEXT,
        json!({ "file": file.to_string_lossy(), "documents": documents }),
    )
}
