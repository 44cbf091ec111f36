//! Builds the index of a commit. Digests that are not in the cache are computed from git's blobs, on up to four
//! threads.
//!
//! Files are read in batches, and each batch is processed while the next batch is read. A file's bytes are dropped once
//! the file's digest has been computed. Memory use therefore depends on the size of the digests, not on the size of the
//! files.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use foldhash::fast::RandomState;
use rayon::prelude::*;
use rustix::time::{ClockId, clock_gettime};
use tokio_util::sync::CancellationToken;

use super::{
    Digest, Index, Language,
    digest::{self, DIGEST_VERSION, DigestResult},
    file_filter::{self, ExclusionReason, FileFilter, FileTreatment},
    index::IndexedFile,
};
use crate::{
    git::{CommitEntry, GitAttributes, GitError, Snapshot},
    proc::ProcError,
    store::{AnalysisCache, CacheKey, PackedValue, StoreError},
    types::Oid,
};

/// Maximum number of files of one commit that are indexed, which is enough for two large repositories. The number is
/// limited because the digests stay in memory while a prompt is built.
const INDEX_FILES: usize = 25_000;
const INDEX_BYTES: u64 = 160 * 1024 * 1024;

/// Maximum number of bytes in one batch read from git. A large batch reduces the cost of starting git; a small batch
/// arrives sooner and needs less memory.
const INDEX_BATCH_BYTES: u64 = 2 * 1024 * 1024;
const INDEX_BATCH_FILES: usize = 2_000;

/// Number of earlier commits whose subject lines are used. Subjects of older commits mostly describe code that no
/// longer exists.
const PAST_COMMITS: usize = 1_000;

/// Maximum CPU time for the files of one commit, summed over all threads. The largest real repositories need less. Once
/// the time is used up, the remaining files get a digest of their words only; the next indexing computes their full
/// digests.
const INDEX_TIME: Duration = Duration::from_secs(30);

/// Maximum number of threads that compute digests; the runtime's own threads stay free for other tasks. The number is
/// small because a hostile file can make each thread hold a syntax tree of hundreds of megabytes.
const INDEX_THREADS: usize = 4;

static POOL: LazyLock<Option<rayon::ThreadPool>> = LazyLock::new(|| {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(INDEX_THREADS);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.thread_name(|at| format!("index-{at}")).build().ok()
});

type SharedDigest = Result<(Language, Arc<Digest>), ExclusionReason>;

/// A blob with the settings for reading it. The same blob can appear twice if it is read in two languages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct IndexedBlob {
    oid: Oid,
    size: u64,
    language: Language,
    /// Whether the file is a `.h` header. If so, the file's text decides whether the language is C or C++.
    header: bool,
    by_hand: bool,
}

impl IndexedBlob {
    fn new(entry: &CommitEntry, kept: FileTreatment) -> Self {
        let CommitEntry { oid, size, path, .. } = entry;
        let header = path.ends_with(".h");
        Self { oid: oid.clone(), size: *size, language: kept.language, header, by_hand: kept.by_hand }
    }

    fn key(&self) -> CacheKey {
        let taken = format!("{:?} {} {}", self.language, self.header, self.by_hand);
        CacheKey::from_parts([DIGEST_VERSION.as_bytes(), self.oid.as_str().as_bytes(), taken.as_bytes()])
    }

    fn digest(&self, bytes: &[u8], in_time: bool) -> DigestResult {
        let text = file_filter::decode_text(bytes, self.by_hand)?;
        let language = self.language.refine_by_text(self.header, text);
        Ok((language, if in_time { Digest::new(language, text) } else { Digest::without_structure(text) }))
    }
}

fn share_digest(known: DigestResult) -> SharedDigest {
    known.map(|(language, digest)| (language, Arc::new(digest)))
}

/// The files and blobs of one commit that are to be indexed.
struct IndexPlan {
    snapshot: Snapshot,
    /// Unique blobs. Several files may share the same blob.
    contents: Vec<IndexedBlob>,
    files: Vec<PlannedFile>,
    left_out: Vec<(usize, ExclusionReason)>,
}

/// A file to index: the position of its entry in the commit, and the position of its blob in `contents`. The file may
/// still be excluded because of its content.
struct PlannedFile {
    entry: usize,
    content: usize,
}

/// Positions of the batch's blobs in [`IndexPlan::contents`].
type BlobBatch = Vec<usize>;

pub(super) async fn build_index(
    snapshot: &Snapshot,
    cache: Option<AnalysisCache>,
    cancel: &CancellationToken,
) -> Result<Index, GitError> {
    build_index_within(INDEX_TIME, snapshot, cache, cancel).await
}

async fn build_index_within(
    time: Duration,
    snapshot: &Snapshot,
    cache: Option<AnalysisCache>,
    cancel: &CancellationToken,
) -> Result<Index, GitError> {
    let attributes = snapshot.attributes(file_filter::ATTRIBUTES).await?;
    let (snapshot, cancel) = (snapshot.clone(), cancel.clone());
    let (plan, work, batches) = run_blocking(move || {
        let plan = IndexPlan::new(snapshot, attributes);
        let (cache, known) = load_cached_digests(cache, &plan.contents);
        let batches = plan.batches(&known);
        (Arc::new(plan), IndexProgress { cache, known, time, cancel }, batches)
    })
    .await?;
    let learn = Box::pin(compute_digests(&plan, work, batches));
    let (known, past) = tokio::try_join!(learn, Box::pin(plan.snapshot.past_commits(PAST_COMMITS)))?;
    run_blocking(move || plan.assemble_index(&known).with_past_commits(&past)).await
}

impl IndexPlan {
    fn new(snapshot: Snapshot, attributes: GitAttributes<3>) -> Self {
        let entries = snapshot.entries();
        let filter = FileFilter::new(entries.iter().map(|entry| entry.path.as_str()), attributes);
        let (mut files, mut left_out) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            match filter.classify_file(&entry.path, entry.mode, entry.size) {
                Ok(kept) => files.push((at, kept)),
                Err(why) => left_out.push((at, why)),
            }
        }
        left_out.extend(cut_to_limits(&mut files, entries).map(|at| (at, ExclusionReason::TooMany)));
        let (mut contents, mut numbers) = (Vec::new(), HashMap::<_, _, RandomState>::default());
        let files = files.into_iter().map(|(at, kept)| {
            let content = IndexedBlob::new(&entries[at], kept);
            let number = *numbers.entry(content).or_insert_with_key(|content| {
                contents.push(content.clone());
                contents.len() - 1
            });
            PlannedFile { entry: at, content: number }
        });
        Self { files: files.collect(), contents, left_out, snapshot }
    }

    /// Groups the blobs without a cached digest into batches.
    fn batches(&self, known: &[Option<SharedDigest>]) -> Vec<BlobBatch> {
        let (mut batches, mut batch, mut bytes) = (Vec::new(), BlobBatch::new(), 0);
        for (at, content) in self.contents.iter().enumerate().filter(|(at, _)| known[*at].is_none()) {
            let full = bytes + content.size > INDEX_BATCH_BYTES || batch.len() == INDEX_BATCH_FILES;
            if full && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += content.size;
            batch.push(at);
        }
        batches.extend((!batch.is_empty()).then_some(batch));
        batches
    }

    /// Reads the blobs of a batch. The largest blobs come first, so that the slowest work does not start last.
    async fn read_batch(&self, mut batch: BlobBatch) -> Result<Vec<(usize, Option<Bytes>)>, GitError> {
        batch.sort_by_key(|at| Reverse(self.contents[*at].size));
        let oids: Vec<Oid> = batch.iter().map(|at| self.contents[*at].oid.clone()).collect();
        Ok(batch.into_iter().zip(self.snapshot.read(&oids).await?).collect())
    }

    fn assemble_index(&self, known: &[Option<SharedDigest>]) -> Index {
        let (mut index, entries) = (Index::default(), self.snapshot.entries());
        for (at, why) in &self.left_out {
            index.exclude(&entries[*at].path, *why);
        }
        for PlannedFile { entry, content } in &self.files {
            let CommitEntry { path, size, .. } = &entries[*entry];
            match known[*content].as_ref().expect("every blob has a digest by now") {
                Ok((language, digest)) => index.add_file(IndexedFile {
                    path: path.clone(),
                    size: *size,
                    language: *language,
                    digest: Arc::clone(digest),
                }),
                Err(why) => index.exclude(path, *why),
            }
        }
        index.sorted()
    }
}

/// Removes the files that exceed the index limits from `files`. Code files and files near the root are kept with
/// priority. Returns the positions of the removed entries.
fn cut_to_limits(
    files: &mut Vec<(usize, FileTreatment)>,
    entries: &[CommitEntry],
) -> impl Iterator<Item = usize> + use<> {
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

/// Loads the cached digests. Also returns the cache for later writes, unless reading from it failed.
fn load_cached_digests(
    cache: Option<AnalysisCache>,
    contents: &[IndexedBlob],
) -> (Option<AnalysisCache>, Vec<Option<SharedDigest>>) {
    let nothing = || contents.iter().map(|_| None).collect();
    let Some(mut cache) = cache else { return (None, nothing()) };
    let keys: Vec<CacheKey> = contents.iter().map(IndexedBlob::key).collect();
    match cache.get(&keys) {
        Ok(kept) => {
            let read = |(packed, key): (Option<PackedValue>, &CacheKey)| {
                digest::unpack(&packed?.unpack(key)?).map(share_digest)
            };
            let known = in_parallel(|| kept.into_par_iter().zip(&keys).map(read).collect());
            (Some(cache), known)
        }
        Err(error) => {
            warn_cache_unusable(&error);
            (None, nothing())
        }
    }
}

/// Computes the missing digests and stores them in the cache. While one batch is processed, the next batch is read.
async fn compute_digests(
    plan: &Arc<IndexPlan>,
    mut work: IndexProgress,
    batches: Vec<BlobBatch>,
) -> Result<Vec<Option<SharedDigest>>, GitError> {
    let mut batches = batches.into_iter();
    let mut batch = plan.read_batch(batches.next().unwrap_or_default()).await?;
    while !batch.is_empty() {
        let shared_plan = Arc::clone(plan);
        let done = run_blocking(move || work.process_batch(&shared_plan.contents, batch));
        let next = plan.read_batch(batches.next().unwrap_or_default());
        let (done, read) = tokio::try_join!(done, next)?;
        (work, batch) = (done.ok_or_else(cancelled_error)?, read);
    }
    Ok(work.known)
}

struct IndexProgress {
    cache: Option<AnalysisCache>,
    known: Vec<Option<SharedDigest>>,
    time: Duration,
    cancel: CancellationToken,
}

impl IndexProgress {
    /// Computes the digests of a batch. Returns `None` if the work was cancelled.
    fn process_batch(mut self, contents: &[IndexedBlob], batch: Vec<(usize, Option<Bytes>)>) -> Option<Self> {
        let (spent, time, cancel) = (AtomicU64::new(0), self.time, &self.cancel);
        let keeps = self.cache.is_some();
        let compute = |(at, bytes): (usize, Option<Bytes>)| {
            if cancel.is_cancelled() {
                return None;
            }
            let Some(bytes) = bytes else { return Some((at, Err(ExclusionReason::Absent), None)) };
            let in_time = Duration::from_nanos(spent.load(Ordering::Relaxed)) < time;
            let before = thread_cpu_time();
            let known = contents[at].digest(&bytes, in_time);
            let took = thread_cpu_time().saturating_sub(before).as_nanos();
            spent.fetch_add(u64::try_from(took).unwrap_or(u64::MAX), Ordering::Relaxed);
            let kept = (keeps && (in_time || known.is_err())).then(|| {
                let key = contents[at].key();
                (key, PackedValue::pack(&key, &digest::pack(&known)))
            });
            Some((at, share_digest(known), kept))
        };
        // Hand out single files, so that the slowest does not start last.
        let done: Option<Vec<_>> =
            in_parallel(|| batch.into_par_iter().with_max_len(1).map(compute).collect());
        let mut kept = Vec::new();
        for (at, known, packed) in done? {
            self.known[at] = Some(known);
            kept.extend(packed);
        }
        self.time = self.time.saturating_sub(Duration::from_nanos(spent.into_inner()));
        if let Some(Err(error)) = self.cache.as_mut().map(|cache| cache.put(kept)) {
            warn_cache_unusable(&error);
            self.cache = None;
        }
        Some(self)
    }
}

fn thread_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

pub(super) fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match &*POOL {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

fn warn_cache_unusable(error: &StoreError) {
    tracing::warn!(%error, "index cache failed; indexing the repository without it");
}

pub(crate) async fn run_blocking<V: Send + 'static>(
    work: impl FnOnce() -> V + Send + 'static,
) -> Result<V, GitError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Ok(value),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(cancelled_error()), // the runtime is shutting down
        },
    }
}

fn cancelled_error() -> GitError {
    GitError::Process { what: "index", source: ProcError::Cancelled }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::ffi::OsStrExt, path::Path};

    use super::*;
    use crate::{
        clock::SystemClock,
        git::{self, testing::git},
        proc::ChildCommand,
        store::Store,
        types::RepoId,
    };

    const REPO: RepoId = RepoId(7);

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
        git::open_local(work, "HEAD").await.unwrap()
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
        Index::read_uncached(snapshot, &CancellationToken::new()).await.unwrap()
    }

    /// Deletes the blobs of these files from the git repository.
    fn forget(work: &Path, snapshot: &Snapshot, paths: &[&str]) {
        for path in paths {
            let blob = snapshot.entry(path).unwrap().oid.as_str();
            std::fs::remove_file(work.join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn index_built_with_a_cache_reads_only_changed_files_and_equals_one_without() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        let store = Store::open(&root.path().join("data"), Arc::new(SystemClock)).unwrap();
        store.repository_database(REPO).await.unwrap();
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
        assert_eq!(indexed(&second, &store).await, bare_second, "only changed files are read");
        forget(&work, &second, &["a.rs", "new/b.rs"]);
        assert_eq!(indexed(&second, &store).await, bare_second, "no file is read");
        let paths: Vec<_> = bare_second.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a.rs", "list.h", "new/b.rs", "same.py", "same.rs"]);
        let absent = without_cache(&second).await;
        let absent: Vec<_> = absent.excluded().iter().map(|file| (file.path.as_str(), file.why)).collect();
        let all = ["a.rs", "list.h", "made.rs", "new/b.rs", "same.py", "same.rs"];
        assert_eq!(
            absent,
            all.map(|path| (path, ExclusionReason::Absent)),
            "the rest of a commit is read without them"
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn file_gets_a_word_digest_when_parsing_times_out_and_is_parsed_later() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        let store = Store::open(&root.path().join("data"), Arc::new(SystemClock)).unwrap();
        store.repository_database(REPO).await.unwrap();
        write(&work, &[("a.rs", b"fn one() {}\n"), ("b.rs", b"// @generated\n")]);
        let snapshot = commit(&work).await;
        let cache = store.cache(REPO).await.unwrap();
        let hasty = build_index_within(Duration::ZERO, &snapshot, Some(cache), &CancellationToken::new())
            .await
            .unwrap();
        let digest = &hasty.file("a.rs").unwrap().digest;
        assert!(digest.timed_out() && digest.count("one") == 1 && digest.summary().items.is_empty());
        let whole = indexed(&snapshot, &store).await;
        assert!(!whole.file("a.rs").unwrap().digest.timed_out());
        assert_eq!(whole, without_cache(&snapshot).await);
        // A digest whose parser timed out is cached: it would time out again.
        let oid = snapshot.entry("a.rs").unwrap().oid.clone();
        let content = IndexedBlob { oid, size: 12, language: Language::Rust, header: false, by_hand: false };
        let cut = digest::pack(&Ok((Language::Rust, Digest::without_structure("fn one() {}\n"))));
        let kept = vec![(content.key(), PackedValue::pack(&content.key(), &cut))];
        store.cache(REPO).await.unwrap().put(kept).unwrap();
        assert!(indexed(&snapshot, &store).await.file("a.rs").unwrap().digest.timed_out());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_file_is_indexed_or_excluded_with_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        write(
            &work,
            &[
                (".gitattributes", b"api.ts linguist-generated\nmade.rs -linguist-generated\n"),
                (".gitignore", b"ignored.rs\n"),
                ("api.ts", b"let a;\n"),
                ("made.rs", b"// @generated, and kept by hand since\n"),
                ("ignored.rs", b"fn tracked() {}\n"),
                ("bom.cs", b"\xef\xbb\xbfclass A {}\r\n"),
                ("huge.min.txt", &b"x".repeat(10 * 1024 * 1024)),
                ("big.psd.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
                ("a \"quoted\" name.rs", b"fn quoted() {}\n"),
                ("empty.rs", b""),
            ],
        );
        std::fs::write(work.join(std::ffi::OsStr::from_bytes(b"latin-\xe9.rs")), "x").unwrap();
        std::os::unix::fs::symlink("loop", work.join("loop")).unwrap();
        git(&work, &["add", "--all", "--force", "."]).await;
        let submodule = format!("160000,{},module", "1".repeat(40));
        git(&work, &["update-index", "--add", "--cacheinfo", &submodule]).await;
        git(&work, &["commit", "--quiet", "-m", "all"]).await;
        let snapshot = git::open_local(&work, "HEAD").await.unwrap();
        let index = Index::read_uncached(&snapshot, &CancellationToken::new()).await.unwrap();
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
                "made.rs"
            ]
        );
        let left_out: Vec<_> = index.excluded().iter().map(|file| (file.path.as_str(), file.why)).collect();
        assert_eq!(
            left_out,
            [
                ("api.ts", ExclusionReason::Generated),
                ("big.psd.txt", ExclusionReason::LfsPointer),
                ("huge.min.txt", ExclusionReason::TooLarge),
                ("latin-\u{fffd}.rs", ExclusionReason::Name),
                ("loop", ExclusionReason::Symlink),
                ("module", ExclusionReason::Submodule),
            ]
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn cancelled_index_build_returns_transient_error() {
        let root = tempfile::tempdir().unwrap();
        let work = repository(root.path()).await;
        write(&work, &[("a.rs", b"fn one() {}\n")]);
        let cancel = CancellationToken::new();
        cancel.cancel();
        let error = Index::read_uncached(&commit(&work).await, &cancel).await.unwrap_err();
        assert!(error.is_transient(), "{error}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "takes long"]
    async fn index_over_the_file_limit_keeps_the_code_files_nearest_the_root() {
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
        let import = ChildCommand::new("git").args(["fast-import", "--quiet"]).current_dir(&work);
        let output = import.stdin(stream.into_bytes()).run(&CancellationToken::new()).await.unwrap();
        assert!(output.success(), "{}", output.stderr_text());
        let index = without_cache(&git::open_local(&work, "main").await.unwrap()).await;
        assert_eq!(index.files().len(), INDEX_FILES);
        assert_eq!(index.excluded().len(), 100_002 - INDEX_FILES);
        assert!(index.file("z.rs").is_some() && index.file("z.txt").is_none());
        assert!(index.excluded().iter().all(|file| file.why == ExclusionReason::TooMany));
    }
}
