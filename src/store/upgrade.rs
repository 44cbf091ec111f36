//! Before a database of an older version is migrated, it is copied: an older program does not open what a newer one
//! migrated, so the copy is the way back.
//!
//! Copies lie in `backups/` of the data directory, the newest [`KEPT`] of each database. A database that cannot be copied
//! is not migrated.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};

use super::{
    StoreError,
    backup::{copy_database, sync_directory},
    create_directory,
    error::Fault,
};
use crate::{
    limits,
    types::{RepoId, Timestamp},
};

const DIRECTORY: &str = "backups";

/// Of each database: one more than the upgrade that went wrong, for whoever notices only after the next one.
const KEPT: usize = 2;

/// A database, and where its copies go.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    directory: PathBuf,
    /// Begins the names of its copies; no other database's do so.
    name: String,
    now: Timestamp,
}

impl Kept {
    pub(super) fn main(root: &Path, now: Timestamp) -> Self {
        Self { directory: root.join(DIRECTORY), name: "main-v".to_owned(), now }
    }

    pub(super) fn repo(root: &Path, repo: RepoId, now: Timestamp) -> Self {
        Self { directory: root.join(DIRECTORY), name: format!("{repo}-v"), now }
    }

    /// Copies a file of this older version.
    ///
    /// # Errors
    /// [`StoreError::NotKept`]; the file is as it was.
    pub(super) fn copy(&self, file: &Path, version: u32) -> Result<(), StoreError> {
        let copy = self.directory.join(format!("{}{version}-{}.db", self.name, compact(self.now)));
        self.try_copy(file, &copy, version).map_err(|why| StoreError::NotKept {
            file: file.to_owned(),
            directory: self.directory.clone(),
            why: why.to_string(),
        })?;
        tracing::warn!(
            file = %file.display(), copy = %copy.display(), version,
            "written by an older countersign, and is upgraded now; the copy is the way back to that version"
        );
        self.tidy();
        Ok(())
    }

    fn try_copy(&self, file: &Path, copy: &Path, version: u32) -> Result<(), StoreError> {
        create_directory(&self.directory)?;
        self.must_have_room(file)?;
        // A directory of its own, which goes with whatever SQLite left beside a copy that failed.
        let half = self.half();
        let (made, io) = (half.join("copy.db"), |source| StoreError::Io { path: copy.to_owned(), source });
        drop(fs::remove_dir_all(&half));
        let done = create_directory(&half)
            .and_then(|()| copy_database(file, &made).map(drop))
            .and_then(|()| fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).map_err(io))
            .and_then(|()| must_be_sound(&made, version))
            .and_then(|()| fs::rename(&made, copy).map_err(io))
            .and_then(|()| sync_directory(&self.directory));
        drop(fs::remove_dir_all(&half));
        done
    }

    fn half(&self) -> PathBuf {
        self.directory.join(format!("{}half-done", self.name))
    }

    /// So that a copy which would not fit does not take the last of the disk for a while.
    fn must_have_room(&self, file: &Path) -> Result<(), StoreError> {
        let io = |source| StoreError::Io { path: self.directory.clone(), source };
        let disk = rustix::fs::statvfs(&self.directory).map_err(|errno| io(errno.into()))?;
        let size = fs::metadata(file).map_err(io)?.len();
        if disk.f_bavail.saturating_mul(disk.f_frsize) < size {
            return Err(StoreError::Full { file: self.directory.clone() });
        }
        Ok(())
    }

    /// The newest copy that a program which knows this version can open.
    pub(super) fn newest(&self, known: u32) -> Option<PathBuf> {
        let (_, name) = self.copies().into_iter().rfind(|(version, _)| *version <= known)?;
        Some(self.directory.join(name))
    }

    /// Every copy with its version, by when it was made.
    fn copies(&self) -> Vec<(u32, String)> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut copies: Vec<(String, u32, String)> = names
            .filter_map(|name| {
                let (version, at) = name.strip_prefix(&self.name)?.strip_suffix(".db")?.split_once('-')?;
                Some((at.to_owned(), version.parse().ok()?, name))
            })
            .collect();
        copies.sort_unstable();
        copies.into_iter().map(|(_, version, name)| (version, name)).collect()
    }

    /// What stays only takes room.
    fn tidy(&self) {
        let copies = self.copies();
        for (_, name) in &copies[..copies.len().saturating_sub(KEPT)] {
            drop(remove(&self.directory.join(name)));
        }
    }

    /// Its copies go with a repository that is forgotten.
    pub(super) fn forget(&self) -> Result<(), StoreError> {
        for (_, name) in self.copies() {
            let path = self.directory.join(name);
            remove(&path).map_err(|source| StoreError::Io { path, source })?;
        }
        // What a copy left that was cut short.
        match fs::remove_dir_all(self.half()) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::Io { path: self.half(), source })
            }
            _ => Ok(()),
        }
    }
}

/// `20260302T090000Z`, which sorts as times do.
pub(super) fn compact(at: Timestamp) -> String {
    at.to_string().chars().filter(|c| c.is_ascii_alphanumeric()).collect()
}

fn must_be_sound(copy: &Path, version: u32) -> Result<(), StoreError> {
    let read = || -> Result<(u32, String), Fault> {
        let connection = Connection::open_with_flags(copy, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(limits::FILE_LOCK)?;
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((version, connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?))
    };
    match read().map_err(|fault| fault.at(copy))? {
        (found, said) if found == version && said == "ok" => Ok(()),
        (_, said) => Err(StoreError::Damaged { file: copy.to_owned(), detail: said }),
    }
}

fn remove(file: &Path) -> std::io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
