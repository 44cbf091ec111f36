//! Opens local repositories for benchmarks. The user names their directories on the command line after the name of the
//! part, because this project contains no repositories.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use countersign::{codebase::Language, git, git::Snapshot};

use crate::measure::say;

/// A local repository, bare or not. Nothing is written to it.
pub(crate) struct Repository {
    pub(crate) dir: PathBuf,
    /// Name of the repository, taken from its directory.
    pub(crate) name: String,
}

/// Returns the repositories named on the command line. Prints a usage message if no directory was named.
pub(crate) fn given(part: &str) -> Vec<Repository> {
    let repositories: Vec<_> = words().filter(|word| is_directory(word)).map(Repository::at).collect();
    if repositories.is_empty() {
        say(format_args!(
            "needs real repositories: `cargo bench -- {part} DIR...`; README.md says which were measured"
        ));
    }
    repositories
}

/// Returns the command-line arguments without those that Cargo adds.
pub(crate) fn words() -> impl Iterator<Item = String> {
    std::env::args().skip(1).filter(|word| !word.starts_with('-'))
}

pub(crate) fn is_directory(word: &str) -> bool {
    word.contains('/') && Path::new(word).is_dir()
}

impl Repository {
    pub(crate) fn at(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let parts = dir.components().rev().map(|part| part.as_os_str().to_string_lossy());
        let name = parts.map(|part| part.trim_end_matches(".git").to_owned());
        let name = name.into_iter().find(|name| !matches!(name.as_str(), "" | "repo")).unwrap_or_default();
        Self { dir, name }
    }

    /// Returns git's output without the final line break; `None` if git fails.
    pub(crate) fn try_git(&self, args: &[&str]) -> Option<String> {
        let output = Command::new("git").arg("-C").arg(&self.dir).args(args).stderr(Stdio::null()).output();
        let output = output.expect("git runs");
        let text = String::from_utf8_lossy(&output.stdout);
        output.status.success().then(|| text.trim_end_matches('\n').to_owned())
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.try_git(args).unwrap_or_else(|| panic!("git {args:?} fails in {}", self.dir.display()))
    }

    pub(crate) async fn snapshot(&self, revision: &str) -> Snapshot {
        git::open_local(&self.dir, revision).await.expect("a commit")
    }

    /// Returns the paths of a commit's regular files, without links and submodules.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        let listing = self.git(&["ls-tree", "-r", "-z", "--full-tree", commit]);
        let file = |entry: &str| {
            let (head, path) = entry.split_once('\t')?;
            head.starts_with("100").then(|| path.to_owned())
        };
        listing.split('\0').filter_map(file).collect()
    }
}

/// A work tree that is switched from commit to commit. Files that are identical in both commits keep their modification
/// time.
pub(crate) struct Tree<'r> {
    repository: &'r Repository,
    home: tempfile::TempDir,
}

impl<'r> Tree<'r> {
    pub(crate) fn of(repository: &'r Repository) -> Self {
        let home = crate::site::scratch();
        std::fs::create_dir(home.path().join("tree")).expect("a directory");
        Self { repository, home }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.home.path().join("tree")
    }

    pub(crate) fn turn_to(&self, commit: &str) {
        let directory = self.repository.git(&["rev-parse", "--absolute-git-dir"]);
        let status = Command::new("git")
            .env("GIT_INDEX_FILE", self.home.path().join("index"))
            .args(["-c", "core.bare=false", "-c", "core.hooksPath=/dev/null"])
            .args(["--git-dir", &directory, "--work-tree"])
            .arg(self.path())
            .args(["read-tree", "--reset", "-u", commit])
            .stderr(Stdio::null())
            .current_dir(self.path())
            .status();
        assert!(status.expect("git runs").success(), "the files of {commit} could not be written");
    }
}

/// Returns whether the path is code rather than a document or settings.
pub(crate) fn is_source(path: &str) -> bool {
    Language::from_path(path).is_code()
}

/// Returns the first line of a program's version output; `None` if the program cannot be run.
pub(crate) fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .map(|line| line.split([',', '(']).next().unwrap_or_default().trim().to_owned())
}

/// Prints a performance target and whether it was met.
pub(crate) fn target(what: impl Display, met: bool) {
    say(format_args!("- {what}: {}", if met { "met" } else { "MISSED" }));
}
