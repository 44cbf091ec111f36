//! Makes the index of a commit: asks the cache, reads from git only what it lacks, and works that out on all processors.
//!
//! Contents come in batches: while one is worked out the next is read and the last one's digests are kept. They go when
//! their digest is made; so memory is bounded by what is known of the files, not by the files.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use rayon::prelude::*;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Digest, Index, Language,
    attributes::{self, Attributes},
    digest::{self, DIGEST_VERSION, Known},
    files::{self, Kept, Sieve, Why},
    index::File,
    tree::file_name,
};
use crate::{
    git::{Entry, GitError, Snapshot},
    proc::ProcError,
    store::{Cache, CacheKey, Packed, StoreError},
    types::Oid,
};

/// Of a commit's `.gitattributes`, how many are read and how large each may be.
const ATTRIBUTE_FILES: usize = 200;
const ATTRIBUTE_FILE_BYTES: u64 = 64 * 1024;

/// Files and bytes of one commit that are indexed: two large repositories' worth. What is known of them is held in
/// memory while a prompt is put together.
const INDEX_FILES: usize = 25_000;
const INDEX_BYTES: u64 = 160 * 1024 * 1024;

/// Bytes and files read from git at a time while an index is made: large enough that starting git does not count, small
/// enough that three such batches do not count in memory. And of the first, which all processors wait for.
const INDEX_BATCH_BYTES: u64 = 4 * 1024 * 1024;
const INDEX_BATCH_FILES: usize = 2_000;
const INDEX_FIRST_BATCH_BYTES: u64 = 256 * 1024;

/// Earlier commits whose messages tell of the files they changed: what is older tells of what is no more.
const PAST_COMMITS: usize = 1_000;

/// Threads that work out digests, as many as there are processors; those of the runtime go on serving.
static POOL: LazyLock<Option<rayon::ThreadPool>> =
    LazyLock::new(|| rayon::ThreadPoolBuilder::new().thread_name(|at| format!("index-{at}")).build().ok());

type Shared = Result<(Language, Arc<Digest>), Why>;

/// A blob, and how it is to be taken: the same bytes may be of two languages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Content {
    oid: Oid,
    size: u64,
    /// By the name.
    language: Language,
    /// The text decides whose.
    header: bool,
    by_hand: bool,
}

impl Content {
    fn of(entry: &Entry, kept: Kept) -> Self {
        let Entry { oid, size, path, .. } = entry;
        let header = path.ends_with(".h");
        Self { oid: oid.clone(), size: *size, language: kept.language, header, by_hand: kept.by_hand }
    }

    fn key(&self) -> CacheKey {
        let taken = format!("{:?} {} {}", self.language, self.header, self.by_hand);
        CacheKey::of([DIGEST_VERSION.as_bytes(), self.oid.as_str().as_bytes(), taken.as_bytes()])
    }

    fn known(&self, bytes: &[u8]) -> Known {
        let text = files::text(bytes, self.by_hand)?;
        let language = self.language.told_by(self.header, text);
        Ok((language, Digest::of(language, text)))
    }
}

fn shared(known: Known) -> Shared {
    known.map(|(language, digest)| (language, Arc::new(digest)))
}

/// What an index of this commit needs.
struct Plan {
    snapshot: Snapshot,
    /// Each once: several files may hold the same.
    contents: Vec<Content>,
    files: Vec<Planned>,
    left_out: Vec<(usize, Why)>,
}

/// An entry that is for a model unless its content is not, and its content; by their numbers.
struct Planned {
    entry: usize,
    content: usize,
}

/// Numbers of contents.
type Batch = Vec<usize>;

pub(super) async fn index(
    snapshot: &Snapshot,
    cache: Option<Cache>,
    cancel: &CancellationToken,
) -> Result<Index, GitError> {
    let (snapshot, attributes) = (snapshot.clone(), attributes(snapshot).await?);
    let (plan, cache, mut known, batches) = off_thread(move || {
        let plan = Plan::new(snapshot, &attributes);
        let (cache, known) = recall(cache, &plan.contents);
        let batches = plan.batches(&known);
        (Arc::new(plan), cache, known, batches)
    })
    .await?;
    let learn = Box::pin(learn(&plan, cache, batches, cancel));
    let (learnt, past) = tokio::try_join!(learn, Box::pin(plan.snapshot.past(PAST_COMMITS)))?;
    off_thread(move || {
        for (at, learnt) in learnt {
            known[at] = Some(learnt);
        }
        plan.index(&known).told(&past)
    })
    .await
}

/// The commit's `.gitattributes`, by path.
async fn attributes(snapshot: &Snapshot) -> Result<Vec<(String, String)>, GitError> {
    let files: Vec<&Entry> = snapshot
        .entries()
        .iter()
        .filter(|entry| entry.mode.is_file() && file_name(&entry.path) == attributes::FILE)
        .filter(|entry| entry.size <= ATTRIBUTE_FILE_BYTES)
        .take(ATTRIBUTE_FILES)
        .collect();
    snapshot.texts(&files).await
}

impl Plan {
    fn new(snapshot: Snapshot, attributes: &[(String, String)]) -> Self {
        let attributes = attributes.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let entries = snapshot.entries();
        let sieve = Sieve::new(entries.iter().map(|entry| entry.path.as_str()), Attributes::new(attributes));
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            match sieve.judge(&entry.path, entry.mode, entry.size) {
                Ok(kept) => files.push((at, kept)),
                Err(why) => left_out.push((at, why)),
            }
        }
        left_out.extend(cut(&mut files, entries).map(|at| (at, Why::TooMany)));
        let (mut contents, mut numbers) = (Vec::new(), HashMap::<_, _, RandomState>::default());
        let files = files.into_iter().map(|(at, kept)| {
            let content = Content::of(&entries[at], kept);
            let number = *numbers.entry(content).or_insert_with_key(|content| {
                contents.push(content.clone());
                contents.len() - 1
            });
            Planned { entry: at, content: number }
        });
        Self { files: files.collect(), contents, left_out, snapshot }
    }

    /// What is not known yet, to be read a batch at a time. The first are small, so that nobody waits long for work.
    fn batches(&self, known: &[Option<Shared>]) -> Vec<Batch> {
        let (mut batches, mut batch, mut bytes) = (Vec::new(), Batch::new(), 0);
        let mut most = INDEX_FIRST_BATCH_BYTES;
        for (at, content) in self.contents.iter().enumerate().filter(|(at, _)| known[*at].is_none()) {
            let full = bytes + content.size > most || batch.len() == INDEX_BATCH_FILES;
            if full && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
                most = (most * 2).min(INDEX_BATCH_BYTES);
            }
            bytes += content.size;
            batch.push(at);
        }
        batches.extend((!batch.is_empty()).then_some(batch));
        batches
    }

    /// The contents of a batch, the largest first: what takes longest must not be begun last.
    async fn read(&self, mut batch: Batch) -> Result<Vec<(usize, Bytes)>, GitError> {
        batch.sort_by_key(|at| Reverse(self.contents[*at].size));
        let oids: Vec<Oid> = batch.iter().map(|at| self.contents[*at].oid.clone()).collect();
        Ok(batch.into_iter().zip(self.snapshot.read(&oids).await?).collect())
    }

    fn index(&self, known: &[Option<Shared>]) -> Index {
        let (mut index, entries) = (Index::default(), self.snapshot.entries());
        for (at, why) in &self.left_out {
            index.leave_out(&entries[*at].path, *why);
        }
        for Planned { entry, content } in &self.files {
            let Entry { path, size, .. } = &entries[*entry];
            match known[*content].as_ref().expect("what was not known was learnt") {
                Ok((language, digest)) => index.add(File {
                    path: path.clone(),
                    size: *size,
                    language: *language,
                    digest: Arc::clone(digest),
                }),
                Err(why) => index.leave_out(path, *why),
            }
        }
        index.sorted()
    }
}

/// Of more files than are indexed: code before anything else, and what lies near the root before what lies deep. Gives
/// the others.
fn cut(files: &mut Vec<(usize, Kept)>, entries: &[Entry]) -> impl Iterator<Item = usize> + use<> {
    let bytes: u64 = files.iter().map(|(at, _)| entries[*at].size).sum();
    let mut fits = files.len();
    if fits > INDEX_FILES || bytes > INDEX_BYTES {
        files.sort_by_cached_key(|(at, kept)| {
            let path = &entries[*at].path;
            (!kept.language.is_code(), path.matches('/').count(), path.clone())
        });
        let mut bytes = 0;
        fits = files
            .iter()
            .take(INDEX_FILES)
            .take_while(|(at, _)| {
                bytes += entries[*at].size;
                bytes <= INDEX_BYTES
            })
            .count();
    }
    files.split_off(fits).into_iter().map(|(at, _)| at)
}

/// What the cache knows of these contents; the cache, if it may be used further.
fn recall(cache: Option<Cache>, contents: &[Content]) -> (Option<Cache>, Vec<Option<Shared>>) {
    let nothing = || contents.iter().map(|_| None).collect();
    let Some(mut cache) = cache else { return (None, nothing()) };
    let keys: Vec<CacheKey> = contents.iter().map(Content::key).collect();
    match cache.get(&keys) {
        Ok(kept) => {
            let read =
                |(packed, key): (Option<Packed>, &CacheKey)| digest::unpack(&packed?.bytes(key)?).map(shared);
            let known = in_parallel(|| kept.into_par_iter().zip(&keys).map(read).collect());
            (Some(cache), known)
        }
        Err(error) => {
            cannot_use(&error);
            (None, nothing())
        }
    }
}

/// Reads what is lacking, works it out and keeps it: three batches at a time, each at another place.
async fn learn(
    plan: &Arc<Plan>,
    cache: Option<Cache>,
    batches: Vec<Batch>,
    cancel: &CancellationToken,
) -> Result<Vec<(usize, Shared)>, GitError> {
    let (hand_on, mut to_work_out) = mpsc::channel(1);
    let (put_by, mut to_keep) = mpsc::channel(1);
    let reading = async move {
        for batch in batches {
            if hand_on.send(plan.read(batch).await?).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    let (worked_on, cancel) = (Arc::clone(plan), cancel.clone());
    let keeps = cache.is_some();
    let working = off_thread(move || {
        let mut learnt = Vec::new();
        while let Some(batch) = to_work_out.blocking_recv() {
            let (known, kept) = work_out(&worked_on.contents, batch, keeps, &cancel)?;
            learnt.extend(known);
            // What cannot be kept is known all the same.
            let _ = put_by.blocking_send(kept);
        }
        Some(learnt)
    });
    let keeping = off_thread(move || {
        let Some(mut cache) = cache else { return };
        while let Some(batch) = to_keep.blocking_recv() {
            if let Err(error) = cache.put(batch) {
                return cannot_use(&error);
            }
        }
    });
    let ((), learnt, ()) = tokio::try_join!(reading, working, keeping)?;
    learnt.ok_or_else(cancelled)
}

type WorkedOut = (Vec<(usize, Shared)>, Vec<(CacheKey, Packed)>);

/// None: it was called off.
fn work_out(
    contents: &[Content],
    batch: Vec<(usize, Bytes)>,
    keeps: bool,
    cancel: &CancellationToken,
) -> Option<WorkedOut> {
    let work_out = |(at, bytes): (usize, Bytes)| {
        if cancel.is_cancelled() {
            return None;
        }
        let content: &Content = &contents[at];
        let known = content.known(&bytes);
        // What a clock cut short is another day's other answer.
        let whole = !known.as_ref().is_ok_and(|(_, digest)| digest.summary().timed_out);
        let kept = (keeps && whole).then(|| {
            let key = content.key();
            (key, Packed::of(&key, &digest::pack(&known)))
        });
        Some(((at, shared(known)), kept))
    };
    let done: Option<Vec<_>> = in_parallel(|| batch.into_par_iter().with_max_len(1).map(work_out).collect());
    let (learnt, kept): (Vec<_>, Vec<_>) = done?.into_iter().unzip();
    Some((learnt, kept.into_iter().flatten().collect()))
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
        let cache = store.cache(REPO).await.unwrap();
        Index::read(snapshot, cache, &CancellationToken::new()).await.unwrap()
    }

    async fn without_cache(snapshot: &Snapshot) -> Index {
        Index::without_cache(snapshot, &CancellationToken::new()).await.unwrap()
    }

    /// Takes the contents of these files away from git.
    fn forget(work: &Path, snapshot: &Snapshot, paths: &[&str]) {
        for path in paths {
            let blob = snapshot.entry(path).unwrap().oid.as_str();
            std::fs::remove_file(work.join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
        }
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
        write(&work, &[("a.rs", b"fn two() {}\n"), ("new/b.rs", b"fn three() {}\n")]);
        let second = commit(&work).await;
        let (bare_first, bare_second) = (without_cache(&first).await, without_cache(&second).await);

        let cold = indexed(&first, &store).await;
        assert_eq!(cold, bare_first);
        assert_eq!(cold.file("list.h").unwrap().language, Language::Cpp);
        forget(&work, &second, &["same.rs", "list.h", "made.rs"]);
        assert_eq!(indexed(&second, &store).await, bare_second, "only what changed is read");
        forget(&work, &second, &["a.rs", "new/b.rs"]);
        assert_eq!(indexed(&second, &store).await, bare_second, "nothing is");
        let paths: Vec<_> = bare_second.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a.rs", "list.h", "new/b.rs", "same.py", "same.rs"]);
        assert!(Index::without_cache(&second, &CancellationToken::new()).await.is_err());
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
                ("latin.py", Why::Encoding),
                ("loop", Why::Symlink),
                ("minified.js", Why::Minified),
                ("module", Why::Submodule),
                ("two\u{fffd}lines.rs", Why::Name),
            ]
        );
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_too_many_files_code_near_the_root_is_read() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        let long = "long".repeat(60);
        let mut stream =
            "blob\nmark :1\ndata 3\na;\n\ncommit refs/heads/main\ncommitter a <a> 0 +0000\ndata 0\n\n"
                .to_owned();
        let deep = (0..100_000).map(|n| format!("{long}/{}/{n}.rs", n / 300));
        for path in deep.chain(["z.rs", "z.txt"].map(str::to_owned)) {
            stream.push_str(&format!("M 100644 :1 {path}\n"));
        }
        let import = Command::new("git").args(["fast-import", "--quiet"]).current_dir(&work);
        let output = import.stdin(stream.into_bytes()).run(&CancellationToken::new()).await.unwrap();
        assert!(output.success(), "{}", output.stderr_text());
        let index = without_cache(&git::open(&work, "main").await.unwrap()).await;
        assert_eq!(index.files().len(), INDEX_FILES);
        assert_eq!(index.left_out().len(), 100_002 - INDEX_FILES);
        assert!(index.file("z.rs").is_some() && index.file("z.txt").is_none());
        assert!(index.left_out().iter().all(|file| file.why == Why::TooMany));
    }
}
