//! Reading code: a bare mirror for each repository, fetched with the system's git and read as
//! objects. git checks nothing out, so no attribute, filter or hook of a repository does anything here; where tests
//! need files, their bytes are written as they are. Nothing is ever pushed: writing is `github`'s, through its API.

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

/// Why git could not do what was asked. Says nothing a token could be in.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    #[error("git was not found in PATH; install git {} or newer", command::OLDEST)]
    Missing,
    #[error(
        "git has no git-remote-https here, so it cannot fetch; install the whole of git, with its support for HTTPS"
    )]
    NoHttps,
    #[error("git {found} is too old; install git {} or newer", command::OLDEST)]
    TooOld { found: String },
    #[error("`{name}` is not a branch name")]
    Name { name: String },
    #[error("branch `{name}` does not exist on the server")]
    NoSuchBranch { name: String },
    #[error("the mirror of repository {repo} has no {what}; fetch it first")]
    NotFetched { repo: RepoId, what: String },
    #[error("{}: no git repository is there; give the path of one", path.display())]
    NoRepository { path: PathBuf },
    #[error("{} belongs to another user, and git reads no such repository; clone it, or run this as its owner", path.display())]
    NotOurs { path: PathBuf },
    #[error("{} has no commit `{revision}`; `git log --all` lists those it has, if it has any", path.display())]
    NoSuchRevision { path: PathBuf, revision: String },
    #[error("object {oid} is missing from the repository, as in a partial clone")]
    NoSuchObject { oid: Oid },
    #[error("file {oid} has {size} bytes, more than the {limit} that are read")]
    TooLarge { oid: Oid, size: u64, limit: u64 },
    #[error("the commit's files have {size} bytes together, more than the {limit} that are written")]
    TooMuch { size: u64, limit: u64 },
    #[error("git could not do its part of the work ({what}); it says: {stderr}")]
    Failed { what: &'static str, stderr: String },
    #[error("git {what} printed what could not be read: {why}")]
    Unreadable { what: &'static str, why: String },
    #[error("git {what}: {source}")]
    Process { what: &'static str, source: ProcError },
    #[error("`{}` could not be written: {source}; check who owns the data directory", path.display())]
    Directory { path: PathBuf, source: std::io::Error },
}

impl GitError {
    /// May the same call work later, with nothing changed by anyone?
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

/// Is this a name that git takes for a branch, and that means nothing else to it?
///
/// Narrower than `git check-ref-format` in one thing: printable characters only.
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

    /// Runs git as some person, and gives its output.
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
    fn names_that_git_reads_otherwise_are_no_branches() {
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
