//! Mirrors: where they are stored, and how they are updated.

use std::{
    collections::HashMap,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    GitError, Snapshot,
    command::{self, FETCH, FetchSource},
    is_branch_name,
};
use crate::{
    limits,
    types::{Oid, RepoId, RepoName},
};

/// Timeout of a fetch. It is long, because the first fetch of a large repository is our slowest git command.
const GIT_FETCH: Duration = Duration::from_secs(600);

/// One bare repository per GitHub repository, at `<root>/<repository id>/mirror.git`.
#[derive(Debug)]
pub struct Mirrors {
    root: PathBuf,
    git_url: Url,
    /// Locks that allow one fetch at a time per repository. git locks each ref that it moves, so a concurrent second
    /// fetch would fail.
    fetching: Mutex<HashMap<RepoId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Mirrors {
    /// Creates the set of mirrors. `root` is the store's `repos` directory, and `git_url` is the part of a repository's
    /// URL before `OWNER/NAME.git`.
    pub fn new(root: PathBuf, git_url: Url) -> Self {
        Self { root, git_url, fetching: Mutex::default() }
    }

    pub fn path(&self, repo: RepoId) -> PathBuf {
        self.root.join(repo.to_string()).join("mirror.git")
    }

    /// Updates these branches of the mirror, and no others, to their state on the server.
    pub async fn fetch(
        &self,
        repo: RepoId,
        name: &RepoName,
        branches: &[String],
        token: &SecretString,
        cancel: &CancellationToken,
    ) -> Result<(), GitError> {
        if let Some(bad) = branches.iter().find(|branch| !is_branch_name(branch)) {
            return Err(GitError::Name { name: bad.clone() });
        }
        if branches.is_empty() {
            // With no branch named, git would fetch the default one.
            return Ok(());
        }
        let source = FetchSource::new(&self.git_url, name)?;
        let lock = self.lock(repo);
        let _alone = lock.lock().await;
        let mirror = self.path(repo);
        self.break_locks(&mirror, branches).await?;
        self.create(&mirror, cancel).await?;
        let command = command::fetch_branches(&mirror, &source, branches, token);
        command::run_git(FETCH, command, GIT_FETCH, cancel)
            .await
            .map(drop)
            .map_err(|error| no_such_branch(error, branches))
    }

    fn lock(&self, repo: RepoId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(repo).or_default())
    }

    /// Removes lock files that a killed git process left behind, because they would block every later fetch. These
    /// locks cannot be in use: only one process opens the store, and it runs one fetch at a time per repository.
    async fn break_locks(&self, mirror: &Path, branches: &[String]) -> Result<(), GitError> {
        let files = ["config", "HEAD", "packed-refs", "shallow"].map(str::to_owned);
        for file in files.into_iter().chain(branches.iter().map(|branch| format!("refs/heads/{branch}"))) {
            let path = mirror.join(format!("{file}.lock"));
            match tokio::fs::remove_file(&path).await {
                Err(source) if !is_absent(&source) => return Err(GitError::Directory { path, source }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates the mirror. `git init` does nothing on an existing mirror, and completes one that a crash left
    /// incomplete.
    async fn create(&self, mirror: &Path, cancel: &CancellationToken) -> Result<(), GitError> {
        tokio::fs::create_dir_all(mirror)
            .await
            .map_err(|source| GitError::Directory { path: mirror.to_owned(), source })?;
        command::run_git("init", command::init_mirror(mirror), limits::GIT_READ, cancel).await.map(drop)
    }

    /// Opens the commit of a fetched branch, or a commit by id. Later fetches do not change the returned snapshot.
    pub async fn snapshot(&self, repo: RepoId, branch_or_commit: &str) -> Result<Snapshot, GitError> {
        let revision = match branch_or_commit.parse::<Oid>() {
            Ok(oid) => oid.to_string(),
            Err(_) if is_branch_name(branch_or_commit) => format!("refs/heads/{branch_or_commit}"),
            Err(_) => return Err(GitError::Name { name: branch_or_commit.to_owned() }),
        };
        let mirror = self.path(repo);
        let commit = command::resolve_commit(&mirror, &revision)
            .await?
            .ok_or_else(|| GitError::NotFetched { repo, what: branch_or_commit.to_owned() })?;
        Snapshot::load(mirror, commit).await
    }
}

/// Returns whether the error means that the file does not exist. This includes the case that a parent of the path is a
/// file.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Converts git's failure into [`GitError::NoSuchBranch`] if the message says that the branch does not exist. git uses
/// one exit status for all failures, so only the message tells them apart; we fix its language.
fn no_such_branch(error: GitError, branches: &[String]) -> GitError {
    if let GitError::Failed { stderr, .. } = &error {
        let missing =
            |branch: &&String| stderr.contains(&format!("couldn't find remote ref refs/heads/{branch}"));
        if let Some(name) = branches.iter().find(missing) {
            return GitError::NoSuchBranch { name: name.clone() };
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn fetch_removes_lock_files_left_by_a_killed_git_process() {
        let root = tempfile::tempdir().unwrap();
        // A closed port: the fetch fails, but only after it has passed the locks.
        let mirrors = Mirrors::new(root.path().to_owned(), "http://127.0.0.1:9/".parse().unwrap());
        let fetch = async || {
            let (name, branches) = ("o/r".parse().unwrap(), ["a/b".to_owned()]);
            mirrors.fetch(RepoId(7), &name, &branches, &"t".into(), &CancellationToken::new()).await
        };
        assert!(matches!(fetch().await, Err(GitError::Failed { what: FETCH, .. })));
        let mirror = mirrors.path(RepoId(7));
        std::fs::create_dir_all(mirror.join("refs/heads/a")).unwrap();
        let locks = ["config.lock", "refs/heads/a/b.lock"].map(|lock| mirror.join(lock));
        for lock in &locks {
            std::fs::write(lock, "").unwrap();
        }
        assert!(matches!(fetch().await, Err(GitError::Failed { what: FETCH, .. })));
        assert!(locks.iter().all(|lock| !lock.exists()));
    }

    #[tokio::test]
    async fn invalid_branch_name_never_reaches_git() {
        let mirrors = Mirrors::new("/nowhere".into(), "https://github.com/".parse().unwrap());
        for bad in ["--upload-pack=x", "main:refs/heads/x", "../x"] {
            let (name, branches) = ("o/r".parse().unwrap(), [bad.to_owned()]);
            let result =
                mirrors.fetch(RepoId(7), &name, &branches, &"t".into(), &CancellationToken::new()).await;
            assert!(matches!(result, Err(GitError::Name { .. })), "{bad}");
        }
    }

    #[test]
    fn missing_branch_error_is_distinct_from_other_fetch_failures() {
        let failed = |stderr: &str| GitError::Failed { what: FETCH, stderr: stderr.into() };
        let branches = ["main".to_owned(), "x".to_owned()];
        let missing = no_such_branch(failed("fatal: couldn't find remote ref refs/heads/x"), &branches);
        assert!(matches!(missing, GitError::NoSuchBranch { name } if name == "x"));
        assert!(matches!(
            no_such_branch(failed("fatal: unable to access"), &branches),
            GitError::Failed { .. }
        ));
    }
}
