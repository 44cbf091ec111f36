//! The mirrors: where they are, how they are brought up to date.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use secrecy::SecretString;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{
    GitError, Snapshot,
    command::{self, FETCH, Source},
    is_branch_name,
};
use crate::{
    limits,
    types::{Oid, RepoId, RepoName},
};

/// One bare repository for each GitHub repository, at `<root>/<repository id>/mirror.git`.
#[derive(Debug)]
pub struct Mirrors {
    root: PathBuf,
    git_url: Url,
    /// git locks each ref it moves and fails where another holds the lock, so one fetch at a time.
    fetching: Mutex<HashMap<RepoId, Arc<tokio::sync::Mutex<()>>>>,
}

impl Mirrors {
    /// `root` is the store's `repos` directory, `git_url` what comes before `OWNER/NAME.git`.
    pub fn new(root: PathBuf, git_url: Url) -> Self {
        Self { root, git_url, fetching: Mutex::default() }
    }

    pub fn path(&self, repo: RepoId) -> PathBuf {
        self.root.join(repo.to_string()).join("mirror.git")
    }

    /// Brings these branches, and nothing else, to where they are on the server now.
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
        let source = Source::of(&self.git_url, name)?;
        let lock = self.lock(repo);
        let _alone = lock.lock().await;
        let mirror = self.made(repo, cancel).await?;
        let command = command::fetch(&mirror, &source, branches, token);
        command::run(FETCH, command, limits::GIT_FETCH, cancel)
            .await
            .map(drop)
            .map_err(|error| no_such_branch(error, branches))
    }

    fn lock(&self, repo: RepoId) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(repo).or_default())
    }

    /// The mirror's path, once it is there. `git init` on one that exists changes nothing, and mends
    /// one that a crash left half made.
    async fn made(&self, repo: RepoId, cancel: &CancellationToken) -> Result<PathBuf, GitError> {
        let mirror = self.path(repo);
        tokio::fs::create_dir_all(&mirror)
            .await
            .map_err(|source| GitError::Directory { path: mirror.clone(), source })?;
        command::run("init", command::init(&mirror), limits::GIT_READ, cancel).await?;
        Ok(mirror)
    }

    /// What a fetched branch, or a commit by its id, holds. Later fetches do not change it.
    pub async fn snapshot(&self, repo: RepoId, branch_or_commit: &str) -> Result<Snapshot, GitError> {
        let revision = match branch_or_commit.parse::<Oid>() {
            Ok(oid) => oid.to_string(),
            Err(_) if is_branch_name(branch_or_commit) => format!("refs/heads/{branch_or_commit}"),
            Err(_) => return Err(GitError::Name { name: branch_or_commit.to_owned() }),
        };
        let mirror = self.path(repo);
        let parse = command::on(&mirror)
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
            .arg(format!("{revision}^{{commit}}"));
        let found = match command::read("rev-parse", parse).await {
            Ok(found) => found,
            Err(GitError::Failed { .. }) => {
                return Err(GitError::NotFetched { repo, what: branch_or_commit.to_owned() });
            }
            Err(error) => return Err(error),
        };
        let commit = String::from_utf8_lossy(&found)
            .trim()
            .parse::<Oid>()
            .map_err(|e| GitError::Unreadable { what: "rev-parse", why: e.to_string() })?;
        Snapshot::of(mirror, commit).await
    }
}

/// git has one status for every failure; that a branch is missing shows only in what it says, in a
/// language we have fixed.
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
