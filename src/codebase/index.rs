//! All files of one commit, with what is known of each.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    Digest, Language,
    files::{Sieve, Why, is_unprintable},
    reading, words,
};
use crate::{
    git::{GitError, Mode, Past, Snapshot},
    store::Cache,
};

/// The files of a commit that a model may be shown, in the order of their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    files: Vec<File>,
    left_out: Vec<LeftOut>,
    past: Vec<Told>,
}

/// What one earlier commit said of some of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// In order, each once.
    pub(super) words: Vec<String>,
    /// Their places in the index.
    pub(super) files: Vec<usize>,
}

/// A commit that changed more files says little of each.
const TOLD_FILES: usize = 20;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub path: String,
    /// In bytes.
    pub size: u64,
    pub language: Language,
    pub digest: Arc<Digest>,
}

/// A file no model is shown, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Safe to print: what could break a line stands as U+FFFD.
    pub path: String,
    pub why: Why,
}

impl Index {
    /// By path.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.place(path).map(|at| &self.files[at])
    }

    /// Where a file stands among [`Self::files`].
    pub(super) fn place(&self, path: &str) -> Option<usize> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()
    }

    /// By path.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Of a commit. What the cache knows is not read again, and what it does not know is kept there. A cache that
    /// fails costs time and nothing else.
    pub async fn read(
        snapshot: &Snapshot,
        cache: Cache,
        cancel: &CancellationToken,
    ) -> Result<Self, GitError> {
        reading::index(snapshot, Some(cache), cancel).await
    }

    /// Of a commit, with every file read anew.
    pub async fn without_cache(snapshot: &Snapshot, cancel: &CancellationToken) -> Result<Self, GitError> {
        reading::index(snapshot, None, cancel).await
    }

    /// Of texts at hand.
    pub fn of_texts<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut index = Self::default();
        let sieve = Sieve::default();
        for (path, text) in texts {
            let size = text.len() as u64;
            match sieve.judge(path, Mode::File, size) {
                Ok(_) => {
                    let language = Language::of_file(path, text);
                    let digest = Arc::new(Digest::of(language, text));
                    index.files.push(File { path: path.to_owned(), size, language, digest });
                }
                Err(why) => index.leave_out(path, why),
            }
        }
        index.sorted()
    }

    /// What earlier commits said of the files, the newest first.
    pub(super) fn past(&self) -> &[Told] {
        &self.past
    }

    /// With what commits before it said of its files. It must be sorted.
    pub(super) fn told(mut self, past: &[Past]) -> Self {
        let few = past.iter().filter(|commit| commit.paths.len() <= TOLD_FILES);
        let told = few.map(|commit| Told {
            words: words::of(&commit.subject).into_iter().filter(|word| !words::is_common(word)).collect(),
            files: commit.paths.iter().filter_map(|path| self.place(path)).collect(),
        });
        self.past = told.filter(|told| !told.files.is_empty()).collect();
        self
    }

    pub(super) fn add(&mut self, file: File) {
        self.files.push(file);
    }

    pub(super) fn leave_out(&mut self, path: &str, why: Why) {
        let path = path.replace(is_unprintable, "\u{fffd}");
        self.left_out.push(LeftOut { path, why });
    }

    pub(super) fn sorted(mut self) -> Self {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.left_out.sort_by(|a, b| (&a.path, a.why).cmp(&(&b.path, b.why)));
        self
    }
}
