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

fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match &*POOL {
        Some(pool) => pool.install(work),
        None => work(),
    }
}

fn cannot_use(error: &StoreError) {
    tracing::warn!(%error, "what is known of a repository's files cannot be kept; it is worked out anew each time");
}

async fn off_thread<V: Send + 'static>(work: impl FnOnce() -> V + Send + 'static) -> Result<V, GitError> {
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
