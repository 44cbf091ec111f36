//! Writes a commit's files into a directory. The files contain the plain bytes of the git objects: the repository's
//! attributes, filters and hooks have no effect. The `.git` that tests may get knows this one commit and nothing else.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Component, Path},
};

use super::{CommitEntry, EntryMode, GitError, Snapshot, command};
use crate::limits;

/// Maximum number of bytes read and written per batch.
const BATCH_BYTES: u64 = 64 << 20;

/// A path of the commit that was not written, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedPath {
    pub path: String,
    pub why: &'static str,
}

impl Snapshot {
    /// Writes every file, and every link whose target stays inside the directory, into `directory`, which must be
    /// empty. Paths for which `unwanted` returns true are skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if git cannot read the objects, the directory cannot be written, or the files exceed `most`
    /// bytes in total.
    pub async fn check_out(
        &self,
        directory: &Path,
        most: u64,
        unwanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<SkippedPath>, GitError> {
        let (wanted, mut left_out) =
            split_entries(self.entries().iter().filter(|entry| !unwanted(&entry.path)));
        let size = wanted.iter().map(|entry| entry.size).sum();
        if size > most {
            return Err(GitError::TooMuch { size, limit: most });
        }
        let mut bytes = 0;
        let fits = |_: &&CommitEntry, next: &&CommitEntry| {
            bytes += next.size;
            let fits = bytes <= BATCH_BYTES;
            if !fits {
                bytes = next.size;
            }
            fits
        };
        for batch in wanted.chunk_by(fits) {
            let oids: Vec<_> = batch.iter().map(|entry| entry.oid.clone()).collect();
            for (entry, bytes) in batch.iter().zip(self.read(&oids).await?) {
                let path = directory.join(&entry.path);
                let written = bytes.map(|bytes| write_entry(&path, entry, &bytes)).transpose();
                let why = match written.map_err(|source| GitError::Directory { path, source })? {
                    Some(true) => continue,
                    Some(false) => "it is a link that leads elsewhere",
                    None => "the repository lacks it",
                };
                left_out.push(SkippedPath { path: entry.path.clone(), why });
            }
        }
        Ok(left_out)
    }

    /// Gives the checked-out files a `.git` with this one commit: no history, remotes, tags or hooks. Leaves it out if
    /// the repository lacks objects.
    pub async fn add_git_folder(&self, directory: &Path) {
        let folder = directory.join(".git");
        if let Err(error) = self.write_git_folder(directory, &folder).await {
            tracing::debug!(%error, "tests get no .git");
            let _ = fs::remove_dir_all(folder);
        }
    }

    async fn write_git_folder(&self, directory: &Path, folder: &Path) -> Result<(), GitError> {
        let run = |what, command| command::read_output(what, command);
        run("init", command::in_directory(directory).args(["init", "--quiet", "--template="])).await?;
        let list = ["rev-list", "--objects", "--no-object-names", "--max-count=1", self.commit.as_str()];
        let objects = run("rev-list", command::in_mirror(&self.mirror).args(list)).await?;
        let pack = command::in_mirror(&self.mirror).args(["pack-objects", "--quiet"]);
        run("pack-objects", pack.arg(folder.join("objects/pack/pack")).stdin(objects)).await?;
        for (name, text) in [("HEAD", &self.commit), ("shallow", &self.commit)] {
            let path = folder.join(name);
            fs::write(&path, format!("{text}\n")).map_err(|source| GitError::Directory { path, source })?;
        }
        run("read-tree", command::in_mirror(folder).args(["read-tree", self.commit.as_str()])).await.map(drop)
    }
}

/// Splits entries into those to write and those to skip. Links come last, so that no file is written through a link.
/// Entries below a path that is not a folder are skipped, because a tree may contain a link and a folder of the same
/// name.
fn split_entries<'e>(
    entries: impl Iterator<Item = &'e CommitEntry> + Clone,
) -> (Vec<&'e CommitEntry>, Vec<SkippedPath>) {
    let paths: HashSet<&str> = entries.clone().map(|entry| entry.path.as_str()).collect();
    let below = |path: &str| path.match_indices('/').any(|(at, _)| paths.contains(&path[..at]));
    let (mut wanted, mut left_out) = (Vec::new(), Vec::new());
    for entry in entries {
        let why = match entry.mode {
            _ if !is_safe_path(&entry.path) => "its name is none for a file",
            _ if below(&entry.path) => "it lies below what is no folder",
            EntryMode::Submodule => "it is another repository",
            _ if entry.size > limits::BLOB_BYTES => "it is too large",
            EntryMode::Symlink | EntryMode::File | EntryMode::Executable => {
                wanted.push(entry);
                continue;
            }
        };
        left_out.push(SkippedPath { path: entry.path.clone(), why });
    }
    wanted.sort_by_key(|entry| entry.mode == EntryMode::Symlink);
    (wanted, left_out)
}

/// Returns whether the path names a file below the root and outside `.git`.
fn is_safe_path(path: &str) -> bool {
    let parts = || path.split('/');
    !path.contains(['\0', char::REPLACEMENT_CHARACTER])
        && parts().all(|part| !matches!(part, "" | "." | "..") && !part.eq_ignore_ascii_case(".git"))
}

fn write_entry(path: &Path, entry: &CommitEntry, bytes: &[u8]) -> io::Result<bool> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    if entry.mode == EntryMode::Symlink {
        let target = std::str::from_utf8(bytes).unwrap_or_default();
        let stays = stays_within(entry.path.split('/').count() - 1, Path::new(target));
        if stays {
            symlink(target, path)?;
        }
        return Ok(stays);
    }
    let mode = if entry.mode == EntryMode::Executable { 0o755 } else { 0o644 };
    fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?.write_all(bytes)?;
    Ok(true)
}

/// Returns whether the target of a link in a folder at this depth stays below the root. All `..` must come first in the
/// target, because `a/..` leads elsewhere if `a` is a link.
pub fn stays_within(depth: usize, target: &Path) -> bool {
    let up = target.components().take_while(|part| *part == Component::ParentDir).count();
    let down = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    target.components().next().is_some() && up <= depth && target.components().skip(up).all(down)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkout_rejects_unsafe_paths_and_symlinks_that_leave_the_root() {
        for bad in ["../a", "a/../b", "/a", "a//b", ".git/config", "a/.GIT/hooks/x", "", "latin-\u{fffd}"] {
            assert!(!is_safe_path(bad), "{bad}");
        }
        assert!(is_safe_path("a/.github/b c") && is_safe_path(".gitignore"));
        for (depth, target, stays) in [
            (1, "../b", true),
            (1, "../../b", false),
            (0, "a/../b", false),
            (0, "./a", true),
            (2, "../../c/d", true),
            (0, "/etc/passwd", false),
            (0, "", false),
        ] {
            assert_eq!(stays_within(depth, Path::new(target)), stays, "{depth} -> {target}");
        }
    }

    #[test]
    fn checkout_writes_symlinks_last_and_never_writes_through_a_symlink() {
        let modes =
            [("q", "120000"), ("q.x", "100644"), ("q/a", "100644"), ("q/b/c", "120000"), ("sub", "160000")];
        let oid = "1".repeat(40);
        let listing: String = modes.map(|(path, mode)| format!("{mode} blob {oid} 3\t{path}\0")).concat();
        let entries = crate::git::snapshot::parse_tree(listing.as_bytes()).unwrap();
        let (wanted, left_out) = split_entries(entries.iter());
        let paths: Vec<&str> = wanted.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["q.x", "q"]);
        let left_out: Vec<&str> = left_out.iter().map(|left| left.path.as_str()).collect();
        assert_eq!(left_out, ["q/a", "q/b/c", "sub"]);
    }
}
