//! One commit's files, read as objects.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes};
use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{GitError, command};
use crate::{limits, types::Oid};

/// Maximum size of the output of `git ls-tree`, in bytes. It is enough for half a million files with long paths.
const TREE_BYTES: usize = 128 * 1024 * 1024;

/// Maximum total size of the blobs requested from one `cat-file`, in bytes. It is well below the output limit of a
/// child process.
const BATCH_BYTES: u64 = limits::CHILD_OUTPUT_BYTES as u64 / 2;

/// Timeout of `git check-attr` over all files of a commit. Real repositories need about a hundredth of this time. A
/// large `.gitattributes` can take much longer, because git matches each of its lines against each path.
const ATTRIBUTES_TIME: Duration = Duration::from_secs(10);

/// Kind of a tree entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryMode {
    File,
    Executable,
    /// A symbolic link. Its content is a path, which we never follow.
    Symlink,
    /// A submodule: a commit of another repository, which we never fetch.
    Submodule,
}

impl EntryMode {
    fn parse(mode: &str) -> Option<Self> {
        match mode {
            // Old repositories contain group-writable files.
            "100644" | "100664" => Some(Self::File),
            "100755" => Some(Self::Executable),
            "120000" => Some(Self::Symlink),
            "160000" => Some(Self::Submodule),
            _ => None,
        }
    }

    pub fn is_file(self) -> bool {
        matches!(self, Self::File | Self::Executable)
    }
}

/// One path of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitEntry {
    /// Path relative to the root, with `/` as separator. Bytes that are not UTF-8 become U+FFFD; the file cannot be
    /// read by such a path.
    pub path: String,
    pub mode: EntryMode,
    pub oid: Oid,
    /// Size in bytes; 0 for a submodule and for an object that the repository lacks.
    pub size: u64,
    readable: bool,
    absent: bool,
}

/// A path that differs between two commits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangedPath {
    /// Path in the form of [`CommitEntry::path`].
    pub path: String,
    /// Entry in the later commit; `None` if the path was removed.
    pub now: Option<(EntryMode, Oid)>,
}

impl ChangedPath {
    fn from_entry(entry: &CommitEntry) -> Self {
        Self { path: entry.path.clone(), now: Some((entry.mode, entry.oid.clone())) }
    }
}

/// An earlier commit: its subject line and the paths it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastCommit {
    pub subject: String,
    pub paths: Vec<String>,
}

/// Attribute values by path. The values of a path are in the order of the requested attribute names.
pub type GitAttributes<const N: usize> = HashMap<String, [Option<bool>; N], RandomState>;

/// The files of one commit. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub commit: Oid,
    pub(super) mirror: PathBuf,
    listing: Arc<TreeListing>,
}

#[derive(Debug)]
struct TreeListing {
    entries: Vec<CommitEntry>,
    /// Sizes of readable files; objects not listed here are never read.
    sizes: HashMap<Oid, u64, RandomState>,
    by_path: HashMap<String, usize, RandomState>,
}

impl Snapshot {
    pub(super) async fn load(mirror: PathBuf, commit: Oid) -> Result<Self, GitError> {
        let list = command::in_mirror(&mirror)
            .args(["ls-tree", "-r", "-l", "-z", "--full-tree"])
            .arg(commit.as_str())
            .output_limit(TREE_BYTES);
        let entries = parse_tree(&command::read_output("ls-tree", list).await?)?;
        let sizes = entries
            .iter()
            .filter(|entry| entry.mode != EntryMode::Submodule && !entry.absent)
            .map(|entry| (entry.oid.clone(), entry.size))
            .collect();
        let by_path = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.readable)
            .map(|(index, entry)| (entry.path.clone(), index))
            .collect();
        Ok(Self { commit, mirror, listing: Arc::new(TreeListing { entries, sizes, by_path }) })
    }

    /// Returns the full commit message.
    pub async fn commit_message(&self) -> Result<String, GitError> {
        let log =
            command::in_mirror(&self.mirror).args(["log", "-1", "--format=%B"]).arg(self.commit.as_str());
        let message = command::read_output("log", log).await?;
        Ok(String::from_utf8_lossy(&message).into_owned())
    }

    /// Returns a version for a build of this commit: that of its tag, or a development version after the nearest tag
    /// that we know.
    pub async fn build_version(&self) -> String {
        let describe = ["describe", "--tags", "--long", "--abbrev=4", "--match=*[0-9]*"];
        let describe = command::in_mirror(&self.mirror).args(describe).arg(self.commit.as_str());
        let known = command::read_output("describe", describe).await.unwrap_or_default();
        version_from(String::from_utf8_lossy(&known).trim()).unwrap_or_else(|| "0.0.0".to_owned())
    }

    /// Returns every file, link and submodule, in git's order.
    pub fn entries(&self) -> &[CommitEntry] {
        &self.listing.entries
    }

    pub fn entry(&self, path: &str) -> Option<&CommitEntry> {
        self.listing.by_path.get(path).map(|index| &self.listing.entries[*index])
    }

    /// Returns a file's bytes; `None` if the path is missing, a link or a submodule.
    pub async fn read_path(&self, path: &str) -> Result<Option<Bytes>, GitError> {
        let Some(entry) = self.entry(path).filter(|entry| entry.mode.is_file()) else { return Ok(None) };
        let read = self.read(std::slice::from_ref(&entry.oid)).await?.pop().flatten();
        read.map(Some).ok_or_else(|| GitError::NoSuchObject { oid: entry.oid.clone() })
    }

    /// Returns the bytes of several files, in the requested order. An entry is `None` if the repository lacks the
    /// object (partial clone) or the object is not a file of this commit. The results share memory, so that keeping one
    /// result keeps the memory of all.
    pub async fn read(&self, oids: &[Oid]) -> Result<Vec<Option<Bytes>>, GitError> {
        let mut contents = HashMap::<&Oid, Option<Bytes>, RandomState>::default();
        let mut batch: Vec<&Oid> = Vec::new();
        let mut bytes = 0;
        for oid in oids {
            let Some(&size) = self.listing.sizes.get(oid) else { continue };
            if size > limits::BLOB_BYTES {
                return Err(GitError::TooLarge { oid: oid.clone(), size, limit: limits::BLOB_BYTES });
            }
            if !batch.is_empty() && bytes + size > BATCH_BYTES {
                contents.extend(self.read_batch(&batch).await?);
                batch.clear();
                bytes = 0;
            }
            batch.push(oid);
            bytes += size;
        }
        if !batch.is_empty() {
            contents.extend(self.read_batch(&batch).await?);
        }
        Ok(oids.iter().map(|oid| contents.get(oid).cloned().flatten()).collect())
    }

    /// Returns (path, text) for each entry, with U+FFFD for invalid UTF-8. Skips entries that the repository lacks.
    pub async fn read_texts(&self, entries: &[&CommitEntry]) -> Result<Vec<(String, String)>, GitError> {
        let oids: Vec<Oid> = entries.iter().map(|entry| entry.oid.clone()).collect();
        let texts = self.read(&oids).await?.into_iter().zip(entries);
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        Ok(texts.filter_map(|(bytes, entry)| Some((entry.path.clone(), text(bytes?)))).collect())
    }

    /// Returns the values that the commit's `.gitattributes` files set for these attributes. `-name` and `name=false`
    /// give false, and any other value gives true. The result is empty if git times out or fails, as versions before
    /// 2.40 do.
    pub async fn attributes<const N: usize>(&self, names: [&str; N]) -> Result<GitAttributes<N>, GitError> {
        let mut found = GitAttributes::default();
        let files = || self.entries().iter().filter(|entry| entry.readable && entry.mode.is_file());
        let says = |entry: &CommitEntry| entry.path.rsplit('/').next() == Some(".gitattributes");
        if !files().any(says) {
            return Ok(found);
        }
        let paths: String = files().map(|entry| format!("{}\0", entry.path)).collect();
        let ask = command::in_mirror(&self.mirror)
            .env("GIT_ATTR_NOSYSTEM", "1")
            // A program from the repository's own config would run otherwise.
            .args(["-c", "core.fsmonitor=false", "-c", "core.attributesFile=/dev/null", "check-attr"])
            .arg(format!("--source={}", self.commit))
            .args(["--stdin", "-z"])
            .args(names)
            .stdin(paths.into_bytes())
            .output_limit(TREE_BYTES);
        let output = match command::run_git("check-attr", ask, ATTRIBUTES_TIME, &CancellationToken::new())
            .await
        {
            Err(error @ (GitError::Failed { .. } | GitError::Process { .. })) => {
                tracing::warn!(%error, "ignoring .gitattributes: git is older than 2.40, or it timed out");
                return Ok(found);
            }
            output => output?.stdout,
        };
        let output = String::from_utf8_lossy(&output);
        let mut fields = output.split('\0');
        while let (Some(path), Some(name), Some(value)) = (fields.next(), fields.next(), fields.next()) {
            let at = names.iter().position(|known| *known == name).filter(|_| value != "unspecified");
            if let Some(at) = at {
                let set = !matches!(value, "unset" | "false");
                found.entry(path.to_owned()).or_insert([None; N])[at] = Some(set);
            }
        }
        Ok(found)
    }

    /// Returns the best common ancestors of this commit and another. After criss-cross merges there are several. The
    /// list is empty if the histories are unrelated or the mirror lacks the other commit.
    pub async fn merge_bases(&self, other: &Oid) -> Result<Vec<Oid>, GitError> {
        if command::resolve_commit(&self.mirror, other.as_str()).await?.is_none() {
            return Ok(Vec::new());
        }
        let find = ["merge-base", "--all", self.commit.as_str(), other.as_str()];
        let found =
            match command::read_output("merge-base", command::in_mirror(&self.mirror).args(find)).await {
                // An exit code without a message means "no common ancestor".
                Err(GitError::Failed { stderr, .. }) if stderr.is_empty() => Vec::new(),
                found => found?,
            };
        let found = String::from_utf8_lossy(&found);
        found
            .lines()
            .map(|line| line.parse().map_err(|_| unreadable_error("merge-base", line.as_bytes())))
            .collect()
    }

    /// Returns the paths that differ between this commit and at least one of the bases, in path order. Returns every
    /// path if `bases` is empty. A rename appears as one removed and one added path.
    pub async fn changed_since(&self, bases: &[Oid]) -> Result<Vec<ChangedPath>, GitError> {
        let all = |of: &Self| of.entries().iter().map(ChangedPath::from_entry).collect::<BTreeSet<_>>();
        let now = all(self);
        let mut changed = if bases.is_empty() { now.clone() } else { BTreeSet::new() };
        for base in bases {
            let then = all(&Self::load(self.mirror.clone(), base.clone()).await?);
            let added: BTreeSet<_> = now.difference(&then).cloned().collect();
            let paths: HashSet<&str> = added.iter().map(|changed| changed.path.as_str()).collect();
            let gone = then.difference(&now).filter(|old| !paths.contains(old.path.as_str()));
            changed.extend(gone.map(|old| ChangedPath { path: old.path.clone(), now: None }));
            changed.extend(added);
        }
        Ok(changed.into_iter().collect())
    }

    /// Returns the newest commits up to and including this one, at most `most`, without merges. The list is empty if
    /// the repository lacks the commits' trees. Paths that git must quote are skipped.
    pub async fn past_commits(&self, most: usize) -> Result<Vec<PastCommit>, GitError> {
        let log = command::in_mirror(&self.mirror)
            // Verifying a signature would run a program from the repository's own config.
            .args([
                "-c",
                "core.quotePath=false",
                "-c",
                "log.showSignature=false",
                "log",
                "--no-show-signature",
            ])
            .args([
                "--no-merges",
                "--name-only",
                "--no-renames",
                "--no-relative",
                "--no-ext-diff",
                "--no-textconv",
            ])
            .args(["--root", "--encoding=UTF-8", "--format=%x00%s", &format!("--max-count={most}")])
            .arg(self.commit.as_str())
            .output_limit(TREE_BYTES);
        let log = match command::read_output("log", log).await {
            Err(GitError::Failed { .. }) => return Ok(Vec::new()),
            log => log?,
        };
        let log = String::from_utf8_lossy(&log);
        let commits = log.split('\0').skip(1).map(|commit| {
            let (subject, paths) = commit.split_once('\n').unwrap_or((commit, ""));
            let paths = paths.lines().filter(|path| !path.is_empty() && !path.starts_with('"'));
            PastCommit { subject: subject.to_owned(), paths: paths.map(str::to_owned).collect() }
        });
        Ok(commits.collect())
    }

    async fn read_batch<'o>(&self, oids: &[&'o Oid]) -> Result<Vec<(&'o Oid, Option<Bytes>)>, GitError> {
        let input: String = oids.iter().map(|oid| format!("{oid}\n")).collect();
        let cat = command::in_mirror(&self.mirror)
            .args(["cat-file", "--batch", "--buffer"])
            .stdin(input.into_bytes());
        parse_batch(command::read_output("cat-file", cat).await?.into(), oids)
    }
}

/// Reads a version from `git describe --long`, such as `v1.2.3-4-gabcd`, which is 4 commits after a tag.
fn version_from(described: &str) -> Option<String> {
    let (described, _) = described.rsplit_once('-')?;
    let (tag, commits) = described.rsplit_once('-')?;
    let tag = &tag[tag.find(|c: char| c.is_ascii_digit())?..];
    let release = tag.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.trim_end_matches('.');
    match commits {
        "0" => Some(release.to_owned()),
        _ => {
            let (before, last) = release.rsplit_once('.').unwrap_or(("", release));
            let next = format!("{before}.{}", last.parse::<u64>().ok()? + 1);
            Some(format!("{}.dev{commits}", next.trim_start_matches('.')))
        }
    }
}

fn unreadable_error(what: &'static str, bytes: &[u8]) -> GitError {
    let why = String::from_utf8_lossy(bytes).chars().take(120).collect();
    GitError::Unreadable { what, why }
}

/// Parses `<mode> <type> <oid> <padded size>\t<path>\0` entries.
pub(super) fn parse_tree(listing: &[u8]) -> Result<Vec<CommitEntry>, GitError> {
    let lines = listing.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    lines.map(|line| parse_entry(line).ok_or_else(|| unreadable_error("ls-tree", line))).collect()
}

fn parse_entry(line: &[u8]) -> Option<CommitEntry> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (head, path) = (std::str::from_utf8(&line[..tab]).ok()?, &line[tab + 1..]);
    let mut fields = head.split_ascii_whitespace();
    let mode = EntryMode::parse(fields.next()?)?;
    let oid = fields.nth(1)?.parse().ok()?;
    let size = fields.next()?;
    // git prints `BAD` as the size of a missing object.
    let absent = size == "BAD";
    let size = if matches!(size, "-" | "BAD") { 0 } else { size.parse().ok()? };
    let readable = std::str::from_utf8(path).is_ok();
    Some(CommitEntry { path: String::from_utf8_lossy(path).into_owned(), mode, oid, size, readable, absent })
}

/// Parses `<oid> <type> <size>\n<bytes>\n`, or `<oid> missing\n`, in the requested order.
fn parse_batch<'o>(mut output: Bytes, oids: &[&'o Oid]) -> Result<Vec<(&'o Oid, Option<Bytes>)>, GitError> {
    let mut contents = Vec::with_capacity(oids.len());
    for oid in oids {
        let end = output.iter().position(|byte| *byte == b'\n').unwrap_or(output.len());
        let head = String::from_utf8_lossy(&output[..end]).into_owned();
        let mut rest = output.split_off((end + 1).min(output.len()));
        let size = head.strip_prefix(&format!("{oid} blob ")).and_then(|size| size.parse::<usize>().ok());
        let content = match size {
            Some(size) if rest.len() > size => Some(rest.split_to(size)),
            None if head == format!("{oid} missing") => None,
            _ => return Err(unreadable_error("cat-file", head.as_bytes())),
        };
        rest.advance(usize::from(content.is_some()));
        contents.push((*oid, content));
        output = rest;
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::ffi::OsStrExt, path::Path};

    use super::*;
    use crate::{
        git::{Mirrors, testing::git},
        types::RepoId,
    };

    /// Creates the mirror of repository 7, with one file of each kind.
    async fn mirrors(root: &Path) -> Mirrors {
        let work = root.join("work");
        std::fs::create_dir_all(work.join("src")).unwrap();
        git(&work, &["init", "--quiet", "--initial-branch=main"]).await;
        std::fs::write(work.join("README.md"), "hello\nworld\n").unwrap();
        std::fs::write(work.join("empty"), "").unwrap();
        std::fs::write(work.join("src/bytes with space"), [0, b'\n', 255, b'\n']).unwrap();
        std::fs::write(work.join(".gitattributes"), "* text eol=crlf\n").unwrap();
        std::fs::write(work.join(std::ffi::OsStr::from_bytes(b"latin-\xe9")), "x").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", work.join("link")).unwrap();
        git(&work, &["add", "."]).await;
        let submodule = format!("160000,{},vendored", "1".repeat(40));
        git(&work, &["update-index", "--add", "--chmod=+x", "README.md", "--cacheinfo", &submodule]).await;
        git(&work, &["commit", "--quiet", "-m", "first"]).await;
        let mirrors = Mirrors::new(root.join("repos"), "https://github.com/".parse().unwrap());
        std::fs::create_dir_all(mirrors.path(RepoId(7)).parent().unwrap()).unwrap();
        let to = mirrors.path(RepoId(7)).display().to_string();
        git(root, &["clone", "--quiet", "--bare", "work", &to]).await;
        mirrors
    }

    #[test]
    fn build_version_follows_the_nearest_tag() {
        for (described, version) in [
            ("v1.2.3-0-gabcd", Some("1.2.3")),
            ("release-1.9-4-gabcd", Some("1.10.dev4")),
            ("v2-1-gabcd", Some("3.dev1")),
            ("1.0rc1-0-gabcd", Some("1.0")),
            ("", None),
        ] {
            assert_eq!(version_from(described).as_deref(), version, "{described}");
        }
    }

    #[tokio::test]
    async fn snapshot_lists_entries_and_reads_exact_bytes() {
        let root = tempfile::tempdir().unwrap();
        let mirrors = mirrors(root.path()).await;
        let snapshot = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        let kinds: Vec<_> = snapshot.entries().iter().map(|e| (e.path.as_str(), e.mode, e.size)).collect();
        assert_eq!(
            kinds,
            [
                (".gitattributes", EntryMode::File, 16),
                ("README.md", EntryMode::Executable, 12),
                ("empty", EntryMode::File, 0),
                ("latin-\u{fffd}", EntryMode::File, 1),
                ("link", EntryMode::Symlink, 11),
                ("src/bytes with space", EntryMode::File, 4),
                ("vendored", EntryMode::Submodule, 0),
            ]
        );
        let read = async |path| snapshot.read_path(path).await.unwrap();
        assert_eq!(read("README.md").await.as_deref(), Some(&b"hello\nworld\n"[..]));
        assert_eq!(read("empty").await.as_deref(), Some(&b""[..]));
        assert_eq!(read("src/bytes with space").await.as_deref(), Some(&[0, b'\n', 255, b'\n'][..]));
        for unreadable in ["link", "vendored", "latin-\u{fffd}", "src", "../work/README.md", "nothing"] {
            assert_eq!(read(unreadable).await, None, "{unreadable}");
        }
        let oids: Vec<Oid> =
            snapshot.entries().iter().filter(|e| e.mode.is_file()).map(|e| e.oid.clone()).collect();
        let all = snapshot.read(&oids).await.unwrap();
        assert_eq!(all.iter().flatten().map(Bytes::len).collect::<Vec<_>>(), [16, 12, 0, 1, 4]);
    }

    #[tokio::test]
    async fn gitattributes_are_read_from_the_commit_of_the_snapshot() {
        let root = tempfile::tempdir().unwrap();
        let mirrors = mirrors(root.path()).await;
        let (work, mirror) = (root.path().join("work"), mirrors.path(RepoId(7)));
        std::fs::write(
            work.join(".gitattributes"),
            "[attr]made a -b\n*.md made\nempty b=false\nsrc/** b=x\n",
        )
        .unwrap();
        std::fs::write(work.join("src/.gitattributes"), "* !b a\n").unwrap();
        git(&work, &["add", "."]).await;
        git(&work, &["commit", "--quiet", "-m", "second"]).await;
        let before = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        assert!(before.attributes(["a", "b"]).await.unwrap().is_empty());
        git(&mirror, &["fetch", "--quiet", work.to_str().unwrap(), "+main:main"]).await;
        let after = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        let values = after.attributes(["a", "b"]).await.unwrap();
        let values: BTreeSet<_> = values.iter().map(|(path, values)| (path.as_str(), *values)).collect();
        assert_eq!(
            values.into_iter().collect::<Vec<_>>(),
            [
                ("README.md", [Some(true), Some(false)]),
                ("empty", [None, Some(false)]),
                ("src/.gitattributes", [Some(true), None]),
                ("src/bytes with space", [Some(true), None]),
            ]
        );
    }

    #[tokio::test]
    async fn snapshot_is_unchanged_when_its_branch_moves() {
        let root = tempfile::tempdir().unwrap();
        let mirrors = mirrors(root.path()).await;
        let before = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        let work = root.path().join("work");
        std::fs::write(work.join("README.md"), "changed").unwrap();
        git(&work, &["commit", "--quiet", "-am", "second"]).await;
        git(&mirrors.path(RepoId(7)), &["fetch", "--quiet", work.to_str().unwrap(), "+main:main"]).await;
        let after = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        assert_ne!(before.commit, after.commit);
        assert_eq!(before.read_path("README.md").await.unwrap().unwrap(), "hello\nworld\n");
        assert_eq!(after.read_path("README.md").await.unwrap().unwrap(), "changed");
        let again = mirrors.snapshot(RepoId(7), before.commit.as_str()).await.unwrap();
        assert_eq!(again.entries(), before.entries());
    }

    #[tokio::test]
    async fn changed_since_lists_exactly_the_changed_paths() {
        let root = tempfile::tempdir().unwrap();
        let mirrors = mirrors(root.path()).await;
        let (work, mirror) = (root.path().join("work"), mirrors.path(RepoId(7)));
        let base: Oid = git(&work, &["rev-parse", "HEAD"]).await.parse().unwrap();
        git(&work, &["mv", "README.md", "READ.md"]).await;
        git(&work, &["update-index", "--chmod=+x", "empty"]).await;
        let moved = format!("160000,{},vendored", "2".repeat(40));
        git(&work, &["update-index", "--cacheinfo", &moved]).await;
        git(&work, &["rm", "--quiet", "--cached", "link"]).await;
        git(&work, &["commit", "--quiet", "-m", "theirs"]).await;
        let alone: Oid = git(&work, &["commit-tree", "-m", "orphan", "HEAD^{tree}"]).await.parse().unwrap();
        git(&mirror, &["fetch", "--quiet", work.to_str().unwrap(), "+main:main", alone.as_str()]).await;
        let head = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        assert_eq!(head.merge_bases(&base).await.unwrap(), std::slice::from_ref(&base));
        for stranger in [alone, "3".repeat(40).parse().unwrap()] {
            assert_eq!(head.merge_bases(&stranger).await.unwrap(), []);
        }
        let changed = head.changed_since(&[base]).await.unwrap();
        let kinds: Vec<_> =
            changed.iter().map(|c| (c.path.as_str(), c.now.as_ref().map(|(m, _)| *m))).collect();
        assert_eq!(
            kinds,
            [
                ("READ.md", Some(EntryMode::Executable)),
                ("README.md", None),
                ("empty", Some(EntryMode::Executable)),
                ("link", None),
                ("vendored", Some(EntryMode::Submodule)),
            ]
        );
        assert_eq!(head.changed_since(&[]).await.unwrap().len(), head.entries().len());
    }

    #[tokio::test]
    async fn missing_branch_error_names_the_branch_and_missing_object_reads_as_none() {
        let root = tempfile::tempdir().unwrap();
        let mirrors = mirrors(root.path()).await;
        let missing = mirrors.snapshot(RepoId(7), "other").await.unwrap_err();
        assert_eq!(missing.to_string(), "the mirror of repository 7 has no other; fetch it first");
        assert!(matches!(mirrors.snapshot(RepoId(8), "main").await, Err(GitError::NotFetched { .. })));
        assert!(matches!(mirrors.snapshot(RepoId(7), "--all").await, Err(GitError::Name { .. })));
        let snapshot = mirrors.snapshot(RepoId(7), "main").await.unwrap();
        let foreign: Oid = "2".repeat(40).parse().unwrap();
        assert_eq!(snapshot.read(&[foreign]).await.unwrap(), [None]);
    }
}
