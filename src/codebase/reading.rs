//! Makes the index of a commit: asks the cache, reads from git only what it lacks, and works that out on all processors.
//!
//! Contents come in batches, the next one while the last is worked out, and go when their digest is made; so memory is
//! bounded by what is known of the files, not by the files.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock},
};

use rayon::prelude::*;
use tokio_util::sync::CancellationToken;

use super::{
    Digest, Index, Language,
    attributes::{self, Attributes},
    digest::{self, Known},
    files::{self, Kept, Sieve, Why},
    index::File,
    tree::file_name,
};
use crate::{
    git::{Entry, GitError, Snapshot},
    limits,
    proc::ProcError,
    store::{Cache, CacheKey, Packed, StoreError},
    types::Oid,
};

/// Threads that work out digests; those of the runtime go on serving.
static POOL: LazyLock<Option<rayon::ThreadPool>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(processors).thread_name(|at| format!("index-{at}"));
    pool.build().ok()
});

/// What is known of contents so far. By content, not by path: several files may hold the same.
type Digests = HashMap<Content, Shared>;
type Shared = Result<(Language, Arc<Digest>), Why>;

/// A blob, and how it is to be taken: the same bytes may be of two languages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Content {
    oid: Oid,
    /// By the name.
    language: Language,
    /// The text decides whose.
    header: bool,
    by_hand: bool,
}

impl Content {
    fn of(entry: &Entry, kept: Kept) -> Self {
        let header = entry.path.ends_with(".h");
        Self { oid: entry.oid.clone(), language: kept.language, header, by_hand: kept.by_hand }
    }

    fn key(&self) -> CacheKey {
        let header = if self.header { ".h" } else { "" };
        let by_hand = if self.by_hand { "!" } else { "" };
        CacheKey { blob: self.oid.as_str().to_owned(), form: format!("{:?}{header}{by_hand}", self.language) }
    }

    fn known(&self, bytes: Vec<u8>) -> Known {
        let text = files::text(bytes, self.by_hand)?;
        // Of a name only this much says anything more.
        let language = match self.language {
            Language::C if !self.header => Language::C,
            Language::C => Language::of_file("x.h", &text),
            Language::Other => Language::of_file("x", &text),
            known => known,
        };
        Ok((language, Digest::of(language, &text)))
    }
}

fn shared(known: Known) -> Shared {
    known.map(|(language, digest)| (language, Arc::new(digest)))
}

/// What an index of this commit needs.
struct Plan {
    /// Entries that are for a model unless their content is not, by their number.
    files: Vec<(usize, Kept)>,
    left_out: Vec<(usize, Why)>,
}

pub(super) async fn index(
    snapshot: &Snapshot,
    cache: Option<Cache>,
    cancel: &CancellationToken,
) -> Result<Index, GitError> {
    let attributes = attributes(snapshot).await?;
    let listed = snapshot.clone();
    let (plan, cache, mut digests) = off_thread(move || {
        let plan = Plan::new(listed.entries(), attributes);
        let (cache, digests) = recall(cache, plan.contents(listed.entries()));
        (plan, cache, digests)
    })
    .await?;
    learn(snapshot, cache, plan.batches(snapshot.entries(), &digests), &mut digests, cancel).await?;
    Ok(plan.index(snapshot.entries(), &digests))
}

/// What the commit's `.gitattributes` say.
async fn attributes(snapshot: &Snapshot) -> Result<Attributes, GitError> {
    let files: Vec<&Entry> = snapshot
        .entries()
        .iter()
        .filter(|entry| entry.mode.is_file() && file_name(&entry.path) == attributes::FILE)
        .filter(|entry| entry.size <= limits::ATTRIBUTE_FILE_BYTES)
        .take(limits::ATTRIBUTE_FILES)
        .collect();
    let oids: Vec<Oid> = files.iter().map(|entry| entry.oid.clone()).collect();
    let texts = snapshot.read(&oids).await?;
    let texts: Vec<_> = texts.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    Ok(Attributes::new(files.iter().zip(&texts).map(|(file, text)| (file.path.as_str(), &**text)).collect()))
}

impl Plan {
    fn new(entries: &[Entry], attributes: Attributes) -> Self {
        let sieve = Sieve::new(entries.iter().map(|entry| entry.path.as_str()), attributes);
        let mut plan = Self { files: Vec::new(), left_out: Vec::new() };
        for (at, entry) in entries.iter().enumerate() {
            match sieve.judge(&entry.path, entry.mode, entry.size) {
                Ok(kept) => plan.files.push((at, kept)),
                Err(why) => plan.left_out.push((at, why)),
            }
        }
        plan.cut(entries);
        plan
    }

    /// Of more files than are indexed: code before anything else, and what lies near the root before what lies deep.
    fn cut(&mut self, entries: &[Entry]) {
        let rank = |(at, kept): &(usize, Kept)| {
            let path = entries[*at].path.as_str();
            (!files::is_code(kept.language), path.matches('/').count(), path)
        };
        let bytes: u64 = self.files.iter().map(|(at, _)| entries[*at].size).sum();
        if self.files.len() <= limits::INDEX_FILES && bytes <= limits::INDEX_BYTES {
            return;
        }
        self.files.sort_by(|a, b| rank(a).cmp(&rank(b)));
        let mut bytes = 0;
        let fits = self.files.iter().take(limits::INDEX_FILES).take_while(|(at, _)| {
            bytes += entries[*at].size;
            bytes <= limits::INDEX_BYTES
        });
        let fits = fits.count();
        let beyond = self.files.drain(fits..);
        self.left_out.extend(beyond.map(|(at, _)| (at, Why::TooMany)));
    }

    fn contents(&self, entries: &[Entry]) -> Vec<Content> {
        self.files.iter().map(|(at, kept)| Content::of(&entries[*at], *kept)).collect()
    }

    /// What is not known yet, each once, in batches to be read at a time.
    fn batches(&self, entries: &[Entry], known: &Digests) -> Vec<Vec<Content>> {
        let mut asked = HashSet::new();
        let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (at, kept) in &self.files {
            let (content, size) = (Content::of(&entries[*at], *kept), entries[*at].size);
            if known.contains_key(&content) || !asked.insert(content.clone()) {
                continue;
            }
            let full = bytes + size > limits::INDEX_BATCH_BYTES || batch.len() == limits::INDEX_BATCH_FILES;
            if full && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += size;
            batch.push(content);
        }
        batches.extend((!batch.is_empty()).then_some(batch));
        batches
    }

    fn index(&self, entries: &[Entry], digests: &Digests) -> Index {
        let mut index = Index::default();
        for (at, why) in &self.left_out {
            index.leave_out(&entries[*at].path, *why);
        }
        for (at, kept) in &self.files {
            let Entry { path, size, .. } = &entries[*at];
            match &digests[&Content::of(&entries[*at], *kept)] {
                Ok((language, digest)) => index.add(File {
                    path: path.clone(),
                    size: *size,
                    language: *language,
                    documentation: kept.documentation,
                    digest: Arc::clone(digest),
                }),
                Err(why) => index.leave_out(path, *why),
            }
        }
        index.sorted()
    }
}

/// What the cache knows of these contents; the cache, if it may be used further.
fn recall(cache: Option<Cache>, contents: Vec<Content>) -> (Option<Cache>, Digests) {
    let Some(mut cache) = cache else { return Default::default() };
    let keys: Vec<CacheKey> = contents.iter().map(Content::key).collect();
    match cache.get(&keys) {
        Ok(kept) => {
            let read = |(content, packed): (Content, Option<Packed>)| {
                let known = digest::unpack(&packed?.bytes()?)?;
                Some((content, shared(known)))
            };
            let found: Vec<_> = in_parallel(|| contents.into_par_iter().zip(kept).filter_map(read).collect());
            (Some(cache), found.into_iter().collect())
        }
        Err(error) => {
            cannot_use(&error);
            Default::default()
        }
    }
}

/// Reads what is lacking, works it out and keeps it.
async fn learn(
    snapshot: &Snapshot,
    mut cache: Option<Cache>,
    batches: Vec<Vec<Content>>,
    digests: &mut Digests,
    cancel: &CancellationToken,
) -> Result<(), GitError> {
    let mut batches = batches.into_iter();
    let mut read = read(snapshot, batches.next()).await?;
    while let Some(batch) = read.take() {
        let (held, token) = (cache.take(), cancel.clone());
        let work = off_thread(move || work_out(batch, held, &token));
        let (worked_out, next) = tokio::join!(work, self::read(snapshot, batches.next()));
        let (learnt, kept) = worked_out?.ok_or_else(cancelled)?;
        digests.extend(learnt);
        (cache, read) = (kept, next?);
    }
    Ok(())
}

async fn read(
    snapshot: &Snapshot,
    batch: Option<Vec<Content>>,
) -> Result<Option<Vec<(Content, Vec<u8>)>>, GitError> {
    let Some(batch) = batch else { return Ok(None) };
    let oids: Vec<Oid> = batch.iter().map(|content| content.oid.clone()).collect();
    Ok(Some(batch.into_iter().zip(snapshot.read(&oids).await?).collect()))
}

type Learnt = Vec<(Content, Shared)>;

/// None: it was called off.
fn work_out(
    batch: Vec<(Content, Vec<u8>)>,
    cache: Option<Cache>,
    cancel: &CancellationToken,
) -> Option<(Learnt, Option<Cache>)> {
    let keeps = cache.is_some();
    let digest = |(content, bytes): (Content, Vec<u8>)| {
        if cancel.is_cancelled() {
            return None;
        }
        let known = content.known(bytes);
        let kept = keeps.then(|| (content.key(), Packed::of(&digest::pack(&known))));
        Some(((content, shared(known)), kept))
    };
    let done: Option<Vec<_>> = in_parallel(|| batch.into_par_iter().map(digest).collect());
    let (learnt, kept): (Learnt, Vec<_>) = done?.into_iter().unzip();
    let cache = cache.and_then(|mut cache| match cache.put(kept.into_iter().flatten()) {
        Ok(()) => Some(cache),
        Err(error) => {
            cannot_use(&error);
            None
        }
    });
    Some((learnt, cache))
}

pub(super) fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match &*POOL {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

fn cannot_use(error: &StoreError) {
    tracing::warn!(%error, "what is known of a repository's files cannot be kept; it is worked out anew each time");
}

pub(super) async fn off_thread<V: Send + 'static>(
    work: impl FnOnce() -> V + Send + 'static,
) -> Result<V, GitError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Ok(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(cancelled()), // the runtime is shutting down
        },
    }
}

fn cancelled() -> GitError {
    GitError::Process { what: "index", source: ProcError::Cancelled }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::ffi::OsStrExt, path::Path};

    use super::*;
    use crate::{clock::SystemClock, git, proc::Command, store::Store, types::RepoId};

    const REPO: RepoId = RepoId(7);

    async fn git(at: &Path, args: &[&str]) {
        let output = Command::new("git")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.com"])
            .args(args)
            .current_dir(at)
            .run(&CancellationToken::new())
            .await
            .unwrap();
        assert!(output.success(), "git {args:?}: {}", output.stderr_text());
    }

    fn write(work: &Path, files: &[(&str, &[u8])]) {
        for (path, bytes) in files {
            let path = work.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    async fn commit(work: &Path) -> Snapshot {
        git(work, &["add", "--all", "--force", "."]).await;
        git(work, &["commit", "--quiet", "--allow-empty", "-m", "a commit"]).await;
        git::open(work, "HEAD").await.unwrap()
    }

    async fn repository(root: &Path) -> std::path::PathBuf {
        let work = root.join("work");
        std::fs::create_dir(&work).unwrap();
        git(&work, &["init", "--quiet", "--initial-branch=main"]).await;
        work
    }

    async fn indexed(snapshot: &Snapshot, store: &Store) -> Index {
        let cache = store.cache(REPO, Index::VERSION).await.unwrap();
        Index::read(snapshot, cache, &CancellationToken::new()).await.unwrap()
    }

    /// What would be read from git now.
    async fn lacking(snapshot: &Snapshot, store: &Store) -> usize {
        let plan = Plan::new(snapshot.entries(), Attributes::default());
        let cache = store.cache(REPO, Index::VERSION).await.unwrap();
        let (_, known) = recall(Some(cache), plan.contents(snapshot.entries()));
        plan.batches(snapshot.entries(), &known).concat().len()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_second_commit_reads_what_changed_and_the_cache_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        let store = Store::open(&root.path().join("data"), Arc::new(SystemClock)).unwrap();
        store.repo(REPO).await.unwrap();
        write(
            &work,
            &[
                ("a.rs", b"fn one() {}\n"),
                ("same.rs", b"fn one() {}\n"),
                ("same.py", b"fn one() {}\n"),
                ("list.h", b"class A { public: int a; };\n"),
                ("made.rs", b"// @generated\nfn made() {}\n"),
            ],
        );
        let first = commit(&work).await;
        assert_eq!(lacking(&first, &store).await, 4, "one content in one language is read once");
        let cold = indexed(&first, &store).await;
        let bare = Index::without_cache(&first, &CancellationToken::new()).await.unwrap();
        assert_eq!((&cold, &indexed(&first, &store).await), (&bare, &bare));
        assert_eq!(lacking(&first, &store).await, 0, "also that a content is left out is kept");
        assert_eq!(cold.file("list.h").unwrap().language, Language::Cpp);

        write(&work, &[("a.rs", b"fn two() {}\n"), ("new/b.rs", b"fn three() {}\n")]);
        let second = commit(&work).await;
        assert_eq!(lacking(&second, &store).await, 2);
        let index = indexed(&second, &store).await;
        assert_eq!(index, Index::without_cache(&second, &CancellationToken::new()).await.unwrap());
        let paths: Vec<_> = index.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a.rs", "list.h", "new/b.rs", "same.py", "same.rs"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn whatever_lies_in_a_repository_is_indexed_or_left_out_by_name() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        let token = format!("const KEY: &str = \"ghp_{}\";\n", "a1B2".repeat(9));
        write(
            &work,
            &[
                (".gitattributes", b"api.ts linguist-generated\nmade.rs -linguist-generated\n"),
                (".gitignore", b"ignored.rs\n"),
                ("api.ts", b"let a;\n"),
                ("made.rs", b"// @generated, and kept by hand since\n"),
                ("ignored.rs", b"fn tracked() {}\n"),
                ("bom.cs", b"\xef\xbb\xbfclass A {}\r\n"),
                ("latin.py", b"# \xe9t\xe9\n"),
                ("huge.min.txt", &b"x".repeat(10 * 1024 * 1024)),
                ("minified.js", &b"a=1;".repeat(50_000)),
                ("big.psd.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
                ("key.rs", token.as_bytes()),
                ("a \"quoted\" name.rs", b"fn quoted() {}\n"),
                ("two\nlines.rs", b"fn two() {}\n"),
                ("empty.rs", b""),
                (".env", b"A=b\n"),
            ],
        );
        std::fs::write(work.join(std::ffi::OsStr::from_bytes(b"latin-\xe9.rs")), "x").unwrap();
        std::os::unix::fs::symlink("loop", work.join("loop")).unwrap();
        git(&work, &["add", "--all", "--force", "."]).await;
        let submodule = format!("160000,{},module", "1".repeat(40));
        git(&work, &["update-index", "--add", "--cacheinfo", &submodule]).await;
        git(&work, &["commit", "--quiet", "-m", "all"]).await;
        let snapshot = git::open(&work, "HEAD").await.unwrap();
        let index = Index::without_cache(&snapshot, &CancellationToken::new()).await.unwrap();
        let files: Vec<_> = index.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            files,
            [
                ".gitattributes",
                ".gitignore",
                "a \"quoted\" name.rs",
                "bom.cs",
                "empty.rs",
                "ignored.rs",
                "key.rs",
                "made.rs"
            ]
        );
        let left_out: Vec<_> = index.left_out().iter().map(|file| (file.path.as_str(), file.why)).collect();
        assert_eq!(
            left_out,
            [
                (".env", Why::Secret),
                ("api.ts", Why::Generated),
                ("big.psd.txt", Why::LfsPointer),
                ("huge.min.txt", Why::TooLarge),
                ("latin-\u{fffd}.rs", Why::Name),
                ("latin.py", Why::Binary),
                ("loop", Why::Symlink),
                ("minified.js", Why::Minified),
                ("module", Why::Submodule),
                ("two\u{fffd}lines.rs", Why::Name),
            ]
        );
        assert_eq!(index.file("key.rs").unwrap().digest.secrets(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_no_longer_waits_ends_it() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        write(&work, &[("a.rs", b"fn one() {}\n")]);
        let cancel = CancellationToken::new();
        cancel.cancel();
        let error = Index::without_cache(&commit(&work).await, &cancel).await.unwrap_err();
        assert!(error.passes(), "{error}");
    }

    #[test]
    fn of_too_many_files_code_near_the_root_is_read() {
        let oid: Oid = "1".repeat(40).parse().unwrap();
        let entry = |path: String| Entry::file(path, oid.clone(), 10);
        let deep = (0..100_000).map(|n| entry(format!("a/b/{n}.rs")));
        let entries: Vec<_> = deep.chain(["z.rs", "z.txt"].map(|path| entry(path.to_owned()))).collect();
        let plan = Plan::new(&entries, Attributes::default());
        assert_eq!(plan.files.len(), limits::INDEX_FILES);
        assert_eq!(plan.left_out.len(), 100_002 - limits::INDEX_FILES);
        let read = |at| plan.files.iter().any(|(file, _)| *file == at);
        assert!(read(100_000) && !read(100_001));
        assert!(plan.left_out.iter().all(|(_, why)| *why == Why::TooMany));
    }
}
