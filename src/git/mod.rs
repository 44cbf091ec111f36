//! Reads code. Each repository has one bare mirror, which is fetched with the system's git and read as objects. git
//! never checks out files, so a repository's attributes, filters and hooks have no effect; for tests, we write the
//! bytes ourselves. We never push: `github` writes through GitHub's API.

mod checkout;
mod command;
mod local;
mod mirror;
mod snapshot;

use std::path::PathBuf;

use crate::{
    proc::ProcError,
    types::{Oid, RepoId},
};

pub use checkout::{SkippedPath, stays_within};
pub use command::{GitVersion, check_git};
pub use local::open_local;
pub use mirror::Mirrors;
pub use snapshot::{ChangedPath, CommitEntry, EntryMode, GitAttributes, PastCommit, Snapshot};

/// Error of a git operation. Never contains a token.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git was not found in PATH; install git {} or newer", command::OLDEST)]
    Missing,
    #[error("git cannot fetch, because git-remote-https is missing; install git with its support for HTTPS")]
    NoHttps,
    #[error("git {found} is too old; install git {} or newer", command::OLDEST)]
    TooOld { found: String },
    #[error("`{name}` is not a branch name")]
    Name { name: String },
    #[error("branch `{name}` does not exist on the server")]
    NoSuchBranch { name: String },
    #[error("the mirror of repository {repo} has no {what}; fetch it first")]
    NotFetched { repo: RepoId, what: String },
    #[error("no git repository at {}; give the path of one", path.display())]
    NoRepository { path: PathBuf },
    #[error("{} belongs to another user, so git refuses to read it; clone it, or run this as its owner", path.display())]
    NotOurs { path: PathBuf },
    #[error("{} has no commit `{revision}`; `git log --all` lists its commits", path.display())]
    NoSuchRevision { path: PathBuf, revision: String },
    #[error("object {oid} is missing from the repository, as in a partial clone")]
    NoSuchObject { oid: Oid },
    #[error("file {oid} has {size} bytes, over the limit of {limit}")]
    TooLarge { oid: Oid, size: u64, limit: u64 },
    #[error("the commit's files have {size} bytes in total, over the limit of {limit}")]
    TooMuch { size: u64, limit: u64 },
    #[error("git {what} failed: {stderr}")]
    Failed { what: &'static str, stderr: String },
    #[error("could not parse the output of git {what}: {why}")]
    Unreadable { what: &'static str, why: String },
    #[error("git {what}: {source}")]
    Process { what: &'static str, source: ProcError },
    #[error("`{}` could not be written: {source}; check who owns the data directory", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
}

impl GitError {
    /// Returns whether the same call may succeed later without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Failed { what, .. } => *what == command::FETCH,
            Self::Process { source, .. } => {
                matches!(source, ProcError::TimedOut { .. } | ProcError::Cancelled)
            }
            _ => false,
        }
    }
}

/// Returns whether git accepts this as a branch name and cannot mistake it for an option or another revision.
///
/// Stricter than `git check-ref-format` in one point: control characters and all whitespace are refused.
pub fn is_branch_name(name: &str) -> bool {
    let forbidden = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.len() <= 240
        && !name.starts_with('-')
        && !name.ends_with('.')
        && name != "@"
        && name != "HEAD"
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(forbidden)
        && name.split('/').all(part)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::path::Path;

    use tokio_util::sync::CancellationToken;

    use crate::proc::ChildCommand;

    /// Runs git with a test author and returns its output.
    pub(crate) async fn git(at: &Path, args: &[&str]) -> String {
        let output = ChildCommand::new("git")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com"])
            .args(args)
            .current_dir(at)
            .run(&CancellationToken::new())
            .await
            .unwrap();
        assert!(output.success(), "git {args:?}: {}", output.stderr_text());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_special_meaning_for_git_are_rejected() {
        for bad in [
            "",
            "-x",
            "--upload-pack=x",
            "a..b",
            "a b",
            "a:b",
            "a~1",
            "a^",
            "@",
            "a@{1}",
            "a/",
            "/a",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a\n",
            "HEAD",
            "a.",
        ] {
            assert!(!is_branch_name(bad), "{bad:?}");
        }
        for good in ["main", "countersign/issue-42", "release-1.x", "ünï", "+a"] {
            assert!(is_branch_name(good), "{good:?}");
        }
    }
}
