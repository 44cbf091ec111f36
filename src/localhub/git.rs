//! Real Git objects, created by the system's `git` in bare repositories. Each command runs with a cleared environment,
//! so that no user configuration or hooks apply.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use super::HubError;
use crate::types::{Oid, Timestamp};

/// A failed git command.
#[derive(Debug, thiserror::Error)]
#[error("localhub: git {command} failed: {message}")]
pub struct HubGitError {
    pub command: String,
    pub message: String,
}

#[derive(Clone)]
pub(super) struct BareRepository {
    dir: PathBuf,
}

#[derive(Debug, Clone)]
pub(super) struct TreeEntry {
    pub(super) mode: String,
    pub(super) kind: String,
    pub(super) oid: Oid,
    pub(super) size: Option<u64>,
    pub(super) path: String,
}

/// A changed path of a tree. If it has no object, the path is removed.
pub(super) struct TreeChange {
    pub(super) path: String,
    pub(super) mode: String,
    pub(super) oid: Option<Oid>,
}

#[derive(Debug, Clone)]
pub(super) struct GitSignature {
    pub(super) name: String,
    pub(super) email: String,
    pub(super) at: Timestamp,
}

#[derive(Debug, Clone)]
pub(super) struct HubCommit {
    pub(super) oid: Oid,
    pub(super) tree: Oid,
    pub(super) parents: Vec<Oid>,
    pub(super) author: GitSignature,
    pub(super) committer: GitSignature,
    pub(super) message: String,
}

/// A changed file of a comparison.
#[derive(Debug, Clone)]
pub(super) struct FileDiff {
    pub(super) path: String,
    /// Kind of change, such as `added`, `removed` or `modified`.
    pub(super) status: &'static str,
    pub(super) additions: usize,
    pub(super) deletions: usize,
    /// The diff hunks without the file header; `None` for binary files.
    pub(super) patch: Option<String>,
}

/// Returns a Git command with a clean environment.
pub(super) fn git_command(dir: &Path) -> Command {
    // By absolute path: with a bare name the standard library forks instead of spawning, and copying a large process's
    // page tables is most of the cost of a small git command.
    static GIT: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|directory| directory.join("git")).find(|g| g.is_file());
        found.unwrap_or_else(|| "git".into())
    });
    let mut command = Command::new(&*GIT);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
        .env("HOME", "/nonexistent")
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_DIR", dir)
        .current_dir(dir);
    command
}

impl BareRepository {
    pub(super) fn open(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(super) fn init(dir: PathBuf, default_branch: &str) -> Result<Self, HubGitError> {
        std::fs::create_dir_all(&dir).map_err(|e| HubGitError {
            command: "init".into(),
            message: format!("{}: {e}", dir.display()),
        })?;
        let git = Self { dir };
        git.run(["init", "--bare", "--quiet", &format!("--initial-branch={default_branch}")], None)?;
        Ok(git)
    }

    /// Copies the history of `HEAD` from a working repository with Git's own transport, which neither links to that
    /// repository nor writes to it. Returns the branch name.
    pub(super) fn fetch_head(&self, source: &Path, scratch: &Path) -> Result<String, HubError> {
        let complaint = |message: String| HubGitError { command: "fetch".into(), message };
        // The source may belong to another user; git accepts `safe.directory` only from a file.
        let config = scratch.join("clone.gitconfig");
        std::fs::write(&config, "[safe]\n\tdirectory = *\n").map_err(|e| complaint(e.to_string()))?;
        let source = std::fs::canonicalize(source)
            .map_err(|e| complaint(format!("{} cannot be read: {e}", source.display())))?;
        let look = |arguments: &[&str]| {
            let mut command = git_command(&source);
            command.env_remove("GIT_DIR").env("GIT_CONFIG_GLOBAL", &config).args(arguments);
            run_command(command, arguments[0], None).ok()
        };
        let refuse = |why: &str| Err(HubError::Refused(format!("{} {why}", source.display())));
        if look(&["rev-parse", "--git-dir"]).is_none() {
            return refuse("is no git repository; name the folder of one");
        }
        if look(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).is_none() {
            return refuse("has no commit to work on yet; commit something there first");
        }
        let head = look(&["symbolic-ref", "--short", "--quiet", "HEAD"]).unwrap_or_default();
        let branch = match String::from_utf8_lossy(&head).trim() {
            "" => "main".to_owned(),
            name => name.to_owned(),
        };
        let refspec = format!("HEAD:refs/heads/{branch}");
        let mut command = git_command(&self.dir);
        command
            .env("GIT_CONFIG_GLOBAL", &config)
            .args(["fetch", "--quiet", "--no-tags", "--update-shallow", "--"])
            .arg(&source)
            .arg(&refspec);
        run_command(command, "fetch", None)?;
        self.run(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")], None)?;
        Ok(branch)
    }

    fn run<I, S>(&self, args: I, stdin: Option<&[u8]>) -> Result<Vec<u8>, HubGitError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = git_command(&self.dir);
        let mut name = String::new();
        for arg in args {
            if name.is_empty() {
                name = arg.as_ref().to_string_lossy().into_owned();
            }
            command.arg(arg);
        }
        run_command(command, &name, stdin)
    }

    fn run_line<I, S>(&self, args: I, stdin: Option<&[u8]>) -> Result<String, HubGitError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        Ok(String::from_utf8_lossy(&self.run(args, stdin)?).trim_end().to_owned())
    }

    fn run_oid<I, S>(&self, args: I, stdin: Option<&[u8]>) -> Result<Oid, HubGitError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let line = self.run_line(args, stdin)?;
        line.parse().map_err(|_| HubGitError {
            command: "plumbing".into(),
            message: format!("`{line}` is not an object id"),
        })
    }

    pub(super) fn write_blob(&self, bytes: &[u8]) -> Result<Oid, HubGitError> {
        self.run_oid(["hash-object", "-w", "--stdin"], Some(bytes))
    }

    /// Returns the type of an object: `blob`, `tree`, `commit` or `tag`; `None` if the object does not exist.
    pub(super) fn object_kind(&self, oid: &str) -> Option<String> {
        oid.parse::<Oid>().ok()?;
        self.run_line(["cat-file", "-t", oid], None).ok()
    }

    pub(super) fn blob(&self, oid: &Oid) -> Result<Vec<u8>, HubGitError> {
        self.run(["cat-file", "blob", oid.as_str()], None)
    }

    /// Returns the commit that a revision names; `None` if no such commit exists. The revision may be untrusted input.
    pub(super) fn commit_at(&self, revision: &str) -> Option<Oid> {
        let named = |r: String| {
            self.run_oid(
                ["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{r}^{{commit}}")],
                None,
            )
            .ok()
        };
        let plain = revision.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b));
        if !plain || revision.contains("..") || revision.is_empty() {
            return None;
        }
        named(format!("refs/heads/{revision}"))
            .or_else(|| named(format!("refs/tags/{revision}")))
            .or_else(|| named(revision.to_owned()))
    }

    /// Returns the object that a full ref name, such as `refs/heads/main`, points to.
    pub(super) fn reference(&self, name: &str) -> Option<Oid> {
        self.run_oid(["show-ref", "--verify", "--hash", "--", name], None).ok()
    }

    pub(super) fn branch(&self, name: &str) -> Option<Oid> {
        self.reference(&format!("refs/heads/{name}"))
    }

    /// Returns all branches with their head commits, sorted by name.
    pub(super) fn branches(&self) -> Vec<(String, Oid)> {
        let format = "--format=%(refname:lstrip=2) %(objectname)";
        let text = self.run_line(["for-each-ref", format, "refs/heads/"], None).unwrap_or_default();
        let branch = |line: &str| {
            let (name, oid) = line.split_once(' ')?;
            Some((name.to_owned(), oid.parse().ok()?))
        };
        text.lines().filter_map(branch).collect()
    }

    pub(super) fn set_reference(&self, name: &str, to: &Oid) -> Result<(), HubGitError> {
        self.run(["update-ref", name, to.as_str()], None).map(drop)
    }

    pub(super) fn delete_branch(&self, name: &str) -> Result<(), HubGitError> {
        self.run(["update-ref", "-d", &format!("refs/heads/{name}")], None).map(drop)
    }

    pub(super) fn merge_base(&self, a: &Oid, b: &Oid) -> Option<Oid> {
        self.run_oid(["merge-base", a.as_str(), b.as_str()], None).ok()
    }

    /// Returns the tree that results from merging two commits; `None` if they conflict.
    pub(super) fn merge_trees(&self, ours: &Oid, theirs: &Oid) -> Option<Oid> {
        self.run_oid(["merge-tree", "--write-tree", ours.as_str(), theirs.as_str()], None).ok()
    }

    pub(super) fn tree_of(&self, treeish: &str) -> Option<Oid> {
        treeish.parse::<Oid>().ok()?;
        self.run_oid(["rev-parse", "--verify", "--quiet", &format!("{treeish}^{{tree}}")], None).ok()
    }

    pub(super) fn tree(&self, treeish: &Oid) -> Result<Vec<TreeEntry>, HubGitError> {
        Ok(parse_tree(&self.run(["ls-tree", "-z", "-l", treeish.as_str()], None)?))
    }

    /// Returns the tree entry at `path` in a commit.
    pub(super) fn entry(&self, commit: &Oid, path: &str) -> Option<TreeEntry> {
        let out = self.run(["ls-tree", "-z", "-l", "--full-tree", commit.as_str(), "--", path], None).ok()?;
        parse_tree(&out).into_iter().find(|e| e.path == path)
    }

    pub(super) fn file(&self, commit: &Oid, path: &str) -> Option<Vec<u8>> {
        let entry = self.entry(commit, path).filter(|e| e.kind == "blob")?;
        self.blob(&entry.oid).ok()
    }

    /// Creates a tree from `base` in which some paths are set or removed.
    pub(super) fn make_tree(&self, base: Option<&Oid>, entries: &[TreeChange]) -> Result<Oid, HubGitError> {
        let scratch = tempfile::tempdir_in(&self.dir)
            .map_err(|e| HubGitError { command: "write-tree".into(), message: e.to_string() })?;
        let index = scratch.path().join("index");
        let indexed = |args: &[&str], stdin: Option<&[u8]>| {
            let mut command = git_command(&self.dir);
            command.env("GIT_INDEX_FILE", &index).args(args);
            run_command(command, args[0], stdin)
        };
        match base {
            Some(base) => indexed(&["read-tree", base.as_str()], None)?,
            None => indexed(&["read-tree", "--empty"], None)?,
        };
        let mut lines = Vec::new();
        for entry in entries {
            match &entry.oid {
                Some(oid) => write!(lines, "{} {oid}\t{}\0", entry.mode, entry.path),
                None => write!(lines, "0 {}\t{}\0", "0".repeat(40), entry.path),
            }
            .map_err(|e| HubGitError { command: "update-index".into(), message: e.to_string() })?;
        }
        indexed(&["update-index", "-z", "--index-info"], Some(&lines))?;
        let out = indexed(&["write-tree"], None)?;
        String::from_utf8_lossy(&out)
            .trim()
            .parse()
            .map_err(|_| HubGitError { command: "write-tree".into(), message: "no tree was written".into() })
    }

    /// Creates a commit by writing the raw commit object, so that its message is kept byte for byte.
    pub(super) fn commit(
        &self,
        tree: &Oid,
        parents: &[Oid],
        author: &GitSignature,
        committer: &GitSignature,
        message: &str,
    ) -> Result<Oid, HubGitError> {
        let mut text = format!("tree {tree}\n");
        for parent in parents {
            text.push_str(&format!("parent {parent}\n"));
        }
        text.push_str(&format!(
            "author {}\ncommitter {}\n\n{message}",
            author.to_line(),
            committer.to_line()
        ));
        self.run_oid(["hash-object", "-t", "commit", "-w", "--stdin"], Some(text.as_bytes()))
    }

    pub(super) fn read_commit(&self, oid: &Oid) -> Result<HubCommit, HubGitError> {
        let raw = self.run(["cat-file", "commit", oid.as_str()], None)?;
        parse_commit(oid, &String::from_utf8_lossy(&raw)).ok_or_else(|| HubGitError {
            command: "cat-file".into(),
            message: format!("{oid} is not a commit this can read"),
        })
    }

    /// Returns the commits of a range, such as `main` or `a..b`, newest first.
    pub(super) fn log(&self, range: &str, most: usize) -> Result<Vec<HubCommit>, HubGitError> {
        self.run_line(["rev-list", &format!("--max-count={most}"), range, "--"], None)?
            .lines()
            .filter_map(|line| line.parse().ok())
            .map(|oid| self.read_commit(&oid))
            .collect()
    }

    /// Returns the paths of text files in a commit that contain all of these words, ignoring case.
    pub(super) fn grep(&self, commit: &Oid, words: &[&str]) -> Vec<String> {
        let words = words.iter().flat_map(|word| ["-e", word]);
        let args = ["grep", "-I", "-l", "-i", "-F", "--all-match"].into_iter().chain(words);
        let found = self.run_line(args.chain([commit.as_str(), "--"]), None).unwrap_or_default();
        found.lines().filter_map(|line| Some(line.split_once(':')?.1.to_owned())).collect()
    }

    pub(super) fn count(&self, range: &str) -> usize {
        self.run_line(["rev-list", "--count", range, "--"], None)
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0)
    }

    /// Returns the changes from `base` to `head`.
    pub(super) fn diff(&self, base: &Oid, head: &Oid) -> Result<Vec<FileDiff>, HubGitError> {
        let out = self.run(
            [
                "diff-tree",
                "-r",
                "-p",
                "--raw",
                "--no-renames",
                "--no-ext-diff",
                "--no-abbrev",
                "--no-textconv",
                base.as_str(),
                head.as_str(),
            ],
            None,
        )?;
        Ok(parse_diff(&String::from_utf8_lossy(&out)))
    }
}

impl GitSignature {
    fn to_line(&self) -> String {
        let plain = |s: &str| s.replace(['\n', '<', '>', '\0'], "");
        format!("{} <{}> {} +0000", plain(&self.name), plain(&self.email), self.at.0.div_euclid(1000))
    }
}

/// Runs a command to its end. Its standard input is written by another thread, which avoids a deadlock.
fn run_command(mut command: Command, name: &str, stdin: Option<&[u8]>) -> Result<Vec<u8>, HubGitError> {
    let failed = |message: String| HubGitError { command: name.to_owned(), message };
    let mut child = command
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("it could not be started ({e}); is git installed?")))?;
    let pipe = child.stdin.take();
    let output = std::thread::scope(|scope| {
        if let (Some(mut pipe), Some(bytes)) = (pipe, stdin) {
            // A command that stops reading early reports why through its exit status.
            scope.spawn(move || drop(pipe.write_all(bytes)));
        }
        child.wait_with_output()
    })
    .map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

fn parse_tree(out: &[u8]) -> Vec<TreeEntry> {
    out.split(|b| *b == 0)
        .filter_map(|line| {
            let line = String::from_utf8_lossy(line);
            let (meta, path) = line.split_once('\t')?;
            let mut words = meta.split_ascii_whitespace();
            Some(TreeEntry {
                mode: words.next()?.to_owned(),
                kind: words.next()?.to_owned(),
                oid: words.next()?.parse().ok()?,
                size: words.next().and_then(|s| s.parse().ok()),
                path: path.to_owned(),
            })
        })
        .collect()
}

fn parse_commit(oid: &Oid, raw: &str) -> Option<HubCommit> {
    let (head, message) = raw.split_once("\n\n")?;
    let (mut tree, mut parents, mut author, mut committer) = (None, Vec::new(), None, None);
    for line in head.lines() {
        match line.split_once(' ') {
            Some(("tree", v)) => tree = v.parse().ok(),
            Some(("parent", v)) => parents.extend(v.parse().ok()),
            Some(("author", v)) => author = parse_signature(v),
            Some(("committer", v)) => committer = parse_signature(v),
            _ => {}
        }
    }
    Some(HubCommit {
        oid: oid.clone(),
        tree: tree?,
        parents,
        author: author?,
        committer: committer?,
        message: message.to_owned(),
    })
}

fn parse_signature(line: &str) -> Option<GitSignature> {
    let (name, rest) = line.split_once('<')?;
    let (email, when) = rest.split_once('>')?;
    let seconds: i64 = when.split_ascii_whitespace().next()?.parse().ok()?;
    Some(GitSignature {
        name: name.trim().to_owned(),
        email: email.to_owned(),
        at: Timestamp(seconds * 1000),
    })
}

fn parse_diff(text: &str) -> Vec<FileDiff> {
    let mut files: Vec<FileDiff> = Vec::new();
    let mut patch: Option<usize> = None;
    let mut in_hunks = false;
    for line in text.split_inclusive('\n') {
        if let Some(raw) = line.strip_prefix(':').filter(|_| patch.is_none()) {
            files.extend(parse_raw_line(raw.trim_end()));
        } else if line.starts_with("diff --git ") {
            patch = Some(patch.map_or(0, |n| n + 1));
            in_hunks = false;
        } else if let Some(file) = patch.and_then(|n| files.get_mut(n)) {
            in_hunks |= line.starts_with("@@");
            if in_hunks {
                file.additions += usize::from(line.starts_with('+'));
                file.deletions += usize::from(line.starts_with('-'));
                file.patch.get_or_insert_default().push_str(line);
            }
        }
    }
    for file in &mut files {
        if let Some(patch) = &mut file.patch {
            patch.truncate(patch.trim_end_matches('\n').len());
        }
    }
    files
}

fn parse_raw_line(raw: &str) -> Option<FileDiff> {
    let (meta, path) = raw.split_once('\t')?;
    let words: Vec<&str> = meta.split(' ').collect();
    let status = match *words.get(4)? {
        "A" => "added",
        "D" => "removed",
        "T" => "changed",
        _ => "modified",
    };
    Some(FileDiff { path: path.to_owned(), status, additions: 0, deletions: 0, patch: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> (tempfile::TempDir, BareRepository) {
        let dir = tempfile::tempdir().unwrap();
        let git = BareRepository::init(dir.path().join("r.git"), "main").unwrap();
        (dir, git)
    }

    #[test]
    fn committed_message_and_files_can_be_read_back() {
        let (_dir, git) = repository();
        let who = GitSignature { name: "A".into(), email: "a@x".into(), at: Timestamp(1_700_000_000_000) };
        let put = |path: &str, text: &str| TreeChange {
            path: path.into(),
            mode: "100644".into(),
            oid: Some(git.write_blob(text.as_bytes()).unwrap()),
        };
        let first = git.make_tree(None, &[put("src/a.rs", "one\n"), put("b", "two\n")]).unwrap();
        let root = git.commit(&first, &[], &who, &who, "first").unwrap();
        let gone = TreeChange { path: "b".into(), mode: String::new(), oid: None };
        let second = git.make_tree(Some(&first), &[put("src/a.rs", "one\nmore\n"), gone]).unwrap();
        let next = git
            .commit(&second, std::slice::from_ref(&root), &who, &who, "second\n\nno final newline")
            .unwrap();

        assert_eq!(git.read_commit(&next).unwrap().message, "second\n\nno final newline");
        assert_eq!(git.file(&next, "src/a.rs").unwrap(), b"one\nmore\n");
        assert!(git.file(&next, "b").is_none());
        let diff = git.diff(&root, &next).unwrap();
        let seen: Vec<_> =
            diff.iter().map(|f| (f.path.as_str(), f.status, f.additions, f.deletions)).collect();
        assert_eq!(seen, [("b", "removed", 0, 1), ("src/a.rs", "modified", 1, 0)]);
    }

    #[test]
    fn untrusted_revision_cannot_be_an_option_or_range() {
        let (_dir, git) = repository();
        for bad in ["--all", "a..b", "HEAD@{1}", "", "x:y"] {
            assert!(git.commit_at(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn paths_outside_the_tree_are_refused() {
        let (_dir, git) = repository();
        for path in ["../x", ".git/hooks/post-update", "/etc/passwd", "a//b"] {
            let entry = TreeChange {
                path: path.into(),
                mode: "100644".into(),
                oid: Some(git.write_blob(b"x").unwrap()),
            };
            let made = git.make_tree(None, &[entry]);
            assert!(made.is_err() || git.tree(&made.unwrap()).unwrap().is_empty(), "{path}");
        }
    }
}
