//! Database errors. Each message names the file and suggests a fix.

use std::path::PathBuf;

use rusqlite::ffi::{SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE};

use super::move_to_postgres::REFUSED_CODE;
use crate::types::with_causes;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "the data directory {} is in use by another countersign; stop that one or choose another directory with --data",
        .directory.display()
    )]
    InUse { directory: PathBuf },
    #[error(
        "{} was written by a newer countersign (schema {found}, this one knows {known}); run that version, {}",
        .file.display(), downgrade_hint(.file, .copy.as_deref())
    )]
    Newer {
        file: PathBuf,
        found: u32,
        known: u32,
        /// Newest copy made before an upgrade that the running version can still read.
        copy: Option<PathBuf>,
    },
    #[error(
        "{} was written by an older countersign and is not upgraded, because no copy of it could be made in {} ({why}); \
         nothing was changed: free some space there, or run the version that wrote it",
        .file.display(), .directory.display()
    )]
    NoUpgradeCopy { file: PathBuf, directory: PathBuf, why: String },
    #[error(
        "{} is not an intact countersign database ({detail}); nothing was changed: {}",
        .file.display(), repair_hint(.file)
    )]
    Damaged { file: PathBuf, detail: String },
    #[error(
        "{} is missing although its folder was in use; restore it from a backup, or remove the whole folder to forget this repository's runs",
        .file.display()
    )]
    Lost { file: PathBuf },
    #[error("{}: {source}; check that the path exists, is writable and has space", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the disk is full: {} could not grow; free some space. Stored data is intact", .file.display())]
    Full { file: PathBuf },
    #[error(
        "{} is not writable; let this user write to it and its directory, or mount its disk for writing",
        .file.display()
    )]
    ReadOnly { file: PathBuf },
    #[error("{}: {source}", .file.display())]
    Sql { file: PathBuf, source: rusqlite::Error },
    #[error("{}: a stored row cannot be read ({detail}); it may have been written by another version", .file.display())]
    Row { file: PathBuf, detail: String },
    #[error(
        "{} holds databases in files. To move them into Postgres, set [data] dir to another directory and run \
         countersign move --from {}; to keep using the files, remove postgres_file from the settings", .directory.display(),
        .directory.display()
    )]
    HasFiles { directory: PathBuf },
    #[error(
        "the databases in {} were moved into Postgres, where a server may be using them; to return to the old \
         files, make sure that none does, and remove {}", .mark.parent().unwrap_or(.mark).display(), .mark.display()
    )]
    Moved { mark: PathBuf },
    #[error("Postgres ({}): {said}; {mend}", .place.display())]
    Server { place: PathBuf, said: String, mend: &'static str },
    /// A later claim has taken over the run, so the result of this writer is dropped.
    #[error("the lease on this run was lost to a later claim; its late result was dropped")]
    Fenced,
    #[error("the store does not have {what}")]
    Missing { what: String },
    #[error("the process is shutting down")]
    Closing,
}

impl StoreError {
    /// Returns whether the error concerns a file in this directory.
    pub(super) fn is_about(&self, directory: &std::path::Path) -> bool {
        match self {
            Self::Full { file } | Self::ReadOnly { file } | Self::Sql { file, .. } => {
                file.starts_with(directory)
            }
            Self::Io { path, .. } => path.starts_with(directory),
            _ => false,
        }
    }
}

/// Returns a suggested fix for a damaged file. If the whole folder of a repository is removed, the repository is
/// treated as new. A folder that lacks only its database is refused.
fn repair_hint(file: &std::path::Path) -> &'static str {
    if file.ends_with("main.db") {
        "stop the server and restore it from a backup, or move it away: runs go on without it, deliveries not yet dealt with are lost"
    } else {
        "restore it from a backup, or remove the whole folder it lies in to forget this repository's runs"
    }
}

/// Pseudo error code for an invalid server certificate, which we use alongside PostgreSQL's own codes.
const UNTRUSTED_CERTIFICATE: &str = "certificate";

/// Returns a suggested fix for an error with this PostgreSQL error code.
pub(super) fn postgres_hint(code: Option<&str>) -> &'static str {
    match code {
        Some("28P01" | "28000") => {
            "put a role and password that the server accepts into the file named by [data] postgres_file, or add \
             a rule for them to its pg_hba.conf"
        }
        Some("3D000") => "create that database, or name another in the file named by [data] postgres_file",
        Some("42501") => {
            "make the role the owner of the database and of its schema countersign, or GRANT CREATE ON DATABASE"
        }
        Some("53100") => "free some space on the server's disk. Stored data is intact",
        Some("55P03") => {
            "a move or an upgrade may be running there; wait until it has ended, and start again"
        }
        Some(REFUSED_CODE) => "nothing was moved",
        Some(UNTRUSTED_CERTIFICATE) => {
            "make this system trust the authority of its certificate, and use the certificate's host name in the \
             address"
        }
        Some("53300") => "raise max_connections, or the role's CONNECTION LIMIT, or run fewer nodes",
        _ => "check the server and the address in the file named by [data] postgres_file",
    }
}

/// Returns instructions for returning to an older version. The upgrade copy `copy` lacks all changes made since the
/// upgrade.
fn downgrade_hint(file: &std::path::Path, copy: Option<&std::path::Path>) -> String {
    match copy {
        Some(copy) => format!(
            "or stop the server, move {} with its -wal and -shm aside and copy {} there: it lacks everything \
             stored since the upgrade",
            file.display(),
            copy.display()
        ),
        None => "or restore a backup".to_owned(),
    }
}

/// Error inside a transaction, before the file name is added to it.
#[derive(Debug)]
pub(super) enum TransactionError {
    Sql(rusqlite::Error),
    /// Error from PostgreSQL, or from the attempt to connect to it.
    Server {
        code: Option<String>,
        said: String,
    },
    Row(String),
    Fenced,
    Missing(String),
    Closing,
}

impl TransactionError {
    /// Duplicates the error for another write of the same failed commit.
    pub(super) fn duplicate(&self) -> Self {
        match self {
            Self::Sql(rusqlite::Error::SqliteFailure(code, text)) => {
                Self::Sql(rusqlite::Error::SqliteFailure(*code, text.clone()))
            }
            Self::Sql(other) => Self::Row(other.to_string()),
            Self::Server { code, said } => Self::Server { code: code.clone(), said: said.clone() },
            Self::Row(detail) => Self::Row(detail.clone()),
            Self::Fenced => Self::Fenced,
            Self::Closing => Self::Closing,
            Self::Missing(what) => Self::Missing(what.clone()),
        }
    }

    /// Returns whether the error is a failed write to disk.
    pub(super) fn is_write_failure(&self) -> bool {
        let Self::Sql(rusqlite::Error::SqliteFailure(error, _)) = self else { return false };
        error.code == rusqlite::ErrorCode::DiskFull
            || [SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC, SQLITE_IOERR_TRUNCATE].contains(&error.extended_code)
    }

    pub(super) fn with_path(self, file: &std::path::Path) -> StoreError {
        let file = file.to_owned();
        match self {
            Self::Sql(source) => match source.sqlite_error_code() {
                Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => {
                    StoreError::Damaged { file, detail: source.to_string() }
                }
                Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { file },
                Some(rusqlite::ErrorCode::ReadOnly) => StoreError::ReadOnly { file },
                _ => StoreError::Sql { file, source },
            },
            Self::Server { code, said } => {
                StoreError::Server { place: file, said, mend: postgres_hint(code.as_deref()) }
            }
            Self::Row(detail) => StoreError::Row { file, detail },
            Self::Fenced => StoreError::Fenced,
            Self::Closing => StoreError::Closing,
            Self::Missing(what) => StoreError::Missing { what },
        }
    }
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<postgres::Error> for TransactionError {
    fn from(error: postgres::Error) -> Self {
        let said = with_causes(&error);
        let untrusted = said.contains("invalid peer certificate").then_some(UNTRUSTED_CERTIFICATE);
        let code = error.code().map(|code| code.code()).or(untrusted).map(str::to_owned);
        Self::Server { code, said }
    }
}

impl From<serde_json::Error> for TransactionError {
    fn from(error: serde_json::Error) -> Self {
        Self::Row(error.to_string())
    }
}

impl From<crate::types::MalformedValue> for TransactionError {
    fn from(error: crate::types::MalformedValue) -> Self {
        Self::Row(error.to_string())
    }
}
