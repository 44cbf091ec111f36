//! Copies of databases, made before an upgrade migrates them. An older program cannot open a migrated database, so
//! going back to that program needs the copy.
//!
//! The copies are in the data directory's `backups/`; the newest [`COPIES_KEPT`] of each database are kept. A database
//! that cannot be copied is not migrated. If an upgrade fails after copying, every start tries the upgrade again. The
//! copies made then are identical to the first one, so they do not push out an older copy.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;

use super::{
    StoreError,
    backup::{copy_database, sync_directory},
    create_directory,
    database::read_through,
    forget_repository,
};
use crate::types::{RepoId, Timestamp};

const COPIES_DIRECTORY: &str = "backups";

/// Maximum number of copies kept per database. Going back one version needs one copy. The second copy helps if a faulty
/// upgrade is noticed only after the next upgrade.
const COPIES_KEPT: usize = 2;

/// A database and the directory that contains its copies.
#[derive(Debug, Clone)]
pub(super) struct UpgradeCopies {
    directory: PathBuf,
    /// File name prefix of this database's copies. No other database uses the same prefix.
    name: String,
    now: Timestamp,
}

impl UpgradeCopies {
    pub(super) fn for_main(root: &Path, now: Timestamp) -> Self {
        Self { directory: root.join(COPIES_DIRECTORY), name: "main-v".to_owned(), now }
    }

    pub(super) fn for_repository(root: &Path, repo: RepoId, now: Timestamp) -> Self {
        Self { directory: root.join(COPIES_DIRECTORY), name: format!("{repo}-v"), now }
    }

    /// Copies a database file. `version` is the older schema version that the file has.
    ///
    /// # Errors
    /// [`StoreError::NoUpgradeCopy`]; in that case the file is unchanged.
    pub(super) fn copy(&self, file: &Path, version: u32) -> Result<(), StoreError> {
        let copy = self.try_copy(file, version).map_err(|why| StoreError::NoUpgradeCopy {
            file: file.to_owned(),
            directory: self.directory.clone(),
            why: why.to_string(),
        })?;
        tracing::warn!(
            file = %file.display(), copy = %copy.display(), version,
            "upgrading a database written by an older countersign; restore the copy to go back to that version"
        );
        self.remove_surplus();
        Ok(())
    }

    fn try_copy(&self, file: &Path, version: u32) -> Result<PathBuf, StoreError> {
        create_directory(&self.directory)?;
        self.require_room(file)?;
        // A directory of our own, so that removing it also removes SQLite's leftovers of a failed copy.
        let half = self.partial_path();
        let (made, io) = (half.join("copy.db"), |source| StoreError::Io { path: half.clone(), source });
        drop(fs::remove_dir_all(&half));
        let done = || {
            create_directory(&half)?;
            copy_database(file, &made, &CancellationToken::new())?;
            fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).map_err(io)?;
            verify_copy(&made, version)?;
            if let Some(same) = self.identical_copy(&made, version).map_err(io)? {
                return Ok(same);
            }
            let copy =
                self.directory.join(format!("{}{version}-{}.db", self.name, compact_timestamp(self.now)));
            fs::rename(&made, &copy).map_err(io)?;
            sync_directory(&self.directory)?;
            Ok(copy)
        };
        let done = done();
        drop(fs::remove_dir_all(&half));
        done
    }

    /// Returns the path of the newest kept copy of this version if that copy is identical to `made`, otherwise `None`.
    fn identical_copy(&self, made: &Path, version: u32) -> std::io::Result<Option<PathBuf>> {
        let newest = self.copies().into_iter().rfind(|(found, _)| *found == version);
        let Some(newest) = newest.map(|(_, name)| self.directory.join(name)) else { return Ok(None) };
        let [made, kept] = [made, &newest].map(fs::File::open);
        let (made, kept) = (made?, kept?);
        let same = made.metadata()?.len() == kept.metadata()?.len() && are_equal(made, kept)?;
        Ok(same.then_some(newest))
    }

    fn partial_path(&self) -> PathBuf {
        self.directory.join(format!("{}half-done", self.name))
    }

    /// Checks that the disk has room for the copy. Otherwise a copy that fails halfway would fill the disk until its
    /// removal.
    fn require_room(&self, file: &Path) -> Result<(), StoreError> {
        let io = |source| StoreError::Io { path: self.directory.clone(), source };
        let disk = rustix::fs::statvfs(&self.directory).map_err(|errno| io(errno.into()))?;
        let size = fs::metadata(file).map_err(io)?.len();
        if disk.f_bavail.saturating_mul(disk.f_frsize) < size {
            return Err(StoreError::Full { file: self.directory.clone() });
        }
        Ok(())
    }

    /// Returns the newest copy that a program with the schema version `known` can open.
    pub(super) fn newest_readable(&self, known: u32) -> Option<PathBuf> {
        let (_, name) = self.copies().into_iter().rfind(|(version, _)| *version <= known)?;
        Some(self.directory.join(name))
    }

    /// Returns the schema version and file name of every copy, oldest copy first.
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

    /// Deletes surplus copies. Failures to delete are ignored, because a remaining copy only takes up space.
    fn remove_surplus(&self) {
        let copies = self.copies();
        for (_, name) in &copies[..copies.len().saturating_sub(COPIES_KEPT)] {
            drop(remove_file(&self.directory.join(name)));
        }
    }

    /// Deletes all copies of a forgotten repository's database.
    pub(super) fn remove_all(&self) -> Result<(), StoreError> {
        for (_, name) in self.copies() {
            let path = self.directory.join(name);
            remove_file(&path).map_err(|source| StoreError::Io { path, source })?;
        }
        // Leftovers of an interrupted copy.
        forget_repository::remove_directory(&self.partial_path())
    }
}

/// Returns whether two files of equal length have equal contents.
fn are_equal(one: fs::File, other: fs::File) -> std::io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let most = left.len().min(right.len());
        if most == 0 || left[..most] != right[..most] {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(most);
        other.consume(most);
    }
}

/// Formats a time as `20260302T090000Z`, which sorts chronologically.
pub(super) fn compact_timestamp(at: Timestamp) -> String {
    at.to_string().chars().filter(|c| c.is_ascii_alphanumeric()).collect()
}

fn verify_copy(copy: &Path, version: u32) -> Result<(), StoreError> {
    match read_through(copy).map_err(|fault| fault.with_path(copy))? {
        (_, found, said) if found == version && said == "ok" => Ok(()),
        (.., said) => Err(StoreError::Damaged { file: copy.to_owned(), detail: said }),
    }
}

fn remove_file(file: &Path) -> std::io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
