//! A repository that lies on this machine already, wherever that is: a work tree or a bare one.
//!
//! It may be anybody's. Three commands read it, none of which runs a hook, a filter or a monitor that its config
//! names, and what it lacks is not fetched.

use std::path::{Path, PathBuf};

use super::{GitError, Snapshot, command};

/// What a commit of the repository at `path` holds; `revision` is whatever git understands. A work tree's own files are
/// not looked at.
pub async fn open(path: &Path, revision: &str) -> Result<Snapshot, GitError> {
    let find = command::within(path).args(["rev-parse", "--absolute-git-dir"]);
    let found = match command::read("rev-parse", find).await {
        Ok(found) => found,
        Err(GitError::Failed { stderr, .. }) if stderr.contains("dubious ownership") => {
            return Err(GitError::NotOurs { path: path.to_owned() });
        }
        Err(GitError::Failed { .. }) => return Err(GitError::NoRepository { path: path.to_owned() }),
        Err(error) => return Err(error),
    };
    let repository = directory(&found);
    match command::commit(&repository, revision).await? {
        Some(commit) => Snapshot::of(repository, commit).await,
        None => Err(GitError::NoSuchRevision {
            path: path.to_owned(),
            revision: revision.chars().take(200).collect(),
        }),
    }
}

/// A path as git prints it: bytes up to the end of the line.
fn directory(printed: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let path = printed.strip_suffix(b"\n").unwrap_or(printed);
    std::ffi::OsStr::from_bytes(path).into()
}
