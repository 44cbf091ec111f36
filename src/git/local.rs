//! Opens a repository anywhere on this machine: a work tree or a bare one.
//!
//! The repository's config is not trusted. Our read commands run no hook, filter or monitor from it, and fetch no
//! missing objects.

use std::path::{Path, PathBuf};

use super::{GitError, Snapshot, command};

/// Opens the commit named by `revision` in the repository at `path`. `revision` may be anything that git understands.
/// Uncommitted changes are ignored.
pub async fn open_local(path: &Path, revision: &str) -> Result<Snapshot, GitError> {
    let find = command::in_directory(path).args(["rev-parse", "--absolute-git-dir"]);
    let found = match command::read_output("rev-parse", find).await {
        Ok(found) => found,
        Err(GitError::Failed { stderr, .. }) if stderr.contains("dubious ownership") => {
            return Err(GitError::NotOurs { path: path.to_owned() });
        }
        Err(GitError::Failed { stderr, .. })
            if ["not a git repository", "cannot change to"].iter().any(|none| stderr.contains(none)) =>
        {
            return Err(GitError::NoRepository { path: path.to_owned() });
        }
        Err(error) => return Err(error),
    };
    let repository = parse_directory(&found);
    match command::resolve_commit(&repository, revision).await? {
        Some(commit) => Snapshot::load(repository, commit).await,
        None => Err(GitError::NoSuchRevision {
            path: path.to_owned(),
            revision: revision.chars().take(200).collect(),
        }),
    }
}

/// Parses a path that git printed: the bytes up to the end of the line.
fn parse_directory(printed: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let path = printed.strip_suffix(b"\n").unwrap_or(printed);
    std::ffi::OsStr::from_bytes(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::testing::git;

    async fn repository(root: &Path) -> PathBuf {
        let work = root.join("work");
        std::fs::create_dir_all(work.join("src")).unwrap();
        git(&work, &["init", "--quiet", "--initial-branch=main"]).await;
        std::fs::write(work.join("src/a.rs"), "fn a() {}\n").unwrap();
        git(&work, &["add", "."]).await;
        git(&work, &["commit", "--quiet", "-m", "first"]).await;
        work
    }

    #[tokio::test]
    async fn open_local_accepts_work_trees_subfolders_and_bare_repositories() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        git(root.path(), &["clone", "--quiet", "--bare", "work", "bare.git"]).await;
        git(&work, &["worktree", "add", "--quiet", "../other"]).await;
        std::fs::write(work.join("src/a.rs"), "not committed").unwrap();
        for path in ["work", "work/src", "bare.git", "other"] {
            let snapshot = open_local(&root.path().join(path), "HEAD").await.unwrap();
            let read = snapshot.read_path("src/a.rs").await.unwrap();
            assert_eq!(read.as_deref(), Some(&b"fn a() {}\n"[..]), "{path}");
        }
    }

    #[tokio::test]
    async fn open_local_error_says_why_a_repository_cannot_be_opened() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        for none in [root.path().to_owned(), root.path().join("missing")] {
            assert!(
                matches!(open_local(&none, "HEAD").await, Err(GitError::NoRepository { .. })),
                "{none:?}"
            );
        }
        let broken = root.path().join("broken");
        git(root.path(), &["clone", "--quiet", "--bare", "work", "broken"]).await;
        std::fs::write(broken.join("config"), "[core").unwrap();
        assert!(matches!(open_local(&broken, "HEAD").await, Err(GitError::Failed { .. })));
        for revision in ["other", "--all", "main\nx", ":(glob)**", ""] {
            let error = open_local(&work, revision).await.unwrap_err();
            assert!(matches!(error, GitError::NoSuchRevision { .. }), "{revision}: {error}");
        }
    }

    #[tokio::test]
    async fn programs_named_in_repository_config_are_never_run() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        std::fs::write(work.join(".gitattributes"), "* diff=x filter=x\n").unwrap();
        git(&work, &["add", "."]).await;
        git(&work, &["commit", "--quiet", "-m", "second"]).await;
        let trace = root.path().join("trace");
        let run = format!("touch {}", trace.display());
        for name in [
            "core.fsmonitor",
            "core.sshCommand",
            "core.pager",
            "core.alternateRefsCommand",
            "diff.x.textconv",
            "filter.x.smudge",
            "filter.x.clean",
            "uploadpack.packObjectsHook",
            "remote.origin.uploadpack",
        ] {
            git(&work, &["config", name, &run]).await;
        }
        std::fs::write(work.join(".git/hooks/post-checkout"), format!("#!/bin/sh\n{run}\n")).unwrap();
        // A partial clone asks its remote for missing objects.
        let url = format!("ext::sh -c {}", run.replace(' ', "% "));
        for (name, value) in [
            ("remote.origin.url", url.as_str()),
            ("remote.origin.promisor", "true"),
            ("extensions.partialClone", "origin"),
            ("core.repositoryFormatVersion", "1"),
            ("protocol.ext.allow", "always"),
        ] {
            git(&work, &["config", name, value]).await;
        }
        let snapshot = open_local(&work, "HEAD").await.unwrap();
        assert!(snapshot.read_path("src/a.rs").await.unwrap().is_some());
        let blob = &snapshot.entry("src/a.rs").unwrap().oid.as_str().to_owned();
        std::fs::remove_file(work.join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
        assert!(snapshot.read_path("src/a.rs").await.is_err());
        let again = open_local(&work, "HEAD").await.unwrap();
        assert!(
            again.read_path("src/a.rs").await.is_err(),
            "what is lacking keeps nothing else from being read"
        );
        assert_eq!(again.attributes(["diff"]).await.unwrap().len(), 2);
        assert!(!trace.exists(), "something was run");
    }
}
