//! All files of one commit, with what is known of each.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    Digest, Language,
    file_filter::{ExclusionReason, FileFilter, is_unprintable},
    index_builder, words,
};
use crate::{
    git::{EntryMode, GitError, PastCommit, Snapshot},
    store::AnalysisCache,
};

/// The files of a commit that a model may be shown, in the order of their paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    files: Vec<IndexedFile>,
    left_out: Vec<ExcludedFile>,
    past: Vec<CommitWords>,
}

/// What one earlier commit said of some of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitWords {
    /// In order, each once.
    pub(super) words: Vec<String>,
    /// Their places in the index.
    pub(super) files: Vec<usize>,
}

/// A commit that changed more files says little of each.
const TOLD_FILES: usize = 20;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedFile {
    pub path: String,
    /// In bytes.
    pub size: u64,
    pub language: Language,
    pub digest: Arc<Digest>,
}

/// A file no model is shown, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedFile {
    /// Safe to print: what could break a line stands as U+FFFD.
    pub path: String,
    pub why: ExclusionReason,
}

impl Index {
    /// By path.
    pub fn files(&self) -> &[IndexedFile] {
        &self.files
    }

    pub fn file(&self, path: &str) -> Option<&IndexedFile> {
        self.position(path).map(|at| &self.files[at])
    }

    /// Where a file stands among [`Self::files`].
    pub(super) fn position(&self, path: &str) -> Option<usize> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()
    }

    /// By path.
    pub fn excluded(&self) -> &[ExcludedFile] {
        &self.left_out
    }

    /// Of a commit. What the cache knows is not read again, and what it does not know is kept there. A cache that
    /// fails costs time and nothing else.
    pub async fn read(
        snapshot: &Snapshot,
        cache: AnalysisCache,
        cancel: &CancellationToken,
    ) -> Result<Self, GitError> {
        index_builder::build_index(snapshot, Some(cache), cancel).await
    }

    /// Of a commit, with every file read anew.
    pub async fn read_uncached(snapshot: &Snapshot, cancel: &CancellationToken) -> Result<Self, GitError> {
        index_builder::build_index(snapshot, None, cancel).await
    }

    /// Of texts at hand.
    pub fn from_texts<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut index = Self::default();
        let sieve = FileFilter::default();
        for (path, text) in texts {
            let size = text.len() as u64;
            match sieve.classify_file(path, EntryMode::File, size) {
                Ok(_) => {
                    let language = Language::from_path_and_text(path, text);
                    let digest = Arc::new(Digest::new(language, text));
                    index.files.push(IndexedFile { path: path.to_owned(), size, language, digest });
                }
                Err(why) => index.exclude(path, why),
            }
        }
        index.sorted()
    }

    /// What earlier commits said of the files, the newest first.
    pub(super) fn past_commits(&self) -> &[CommitWords] {
        &self.past
    }

    /// With what commits before it said of its files. It must be sorted.
    pub(super) fn with_past_commits(mut self, past: &[PastCommit]) -> Self {
        let few = past.iter().filter(|commit| commit.paths.len() <= TOLD_FILES);
        let told = few.map(|commit| CommitWords {
            words: words::word_set(&commit.subject)
                .into_iter()
                .filter(|word| !words::is_common(word))
                .collect(),
            files: commit.paths.iter().filter_map(|path| self.position(path)).collect(),
        });
        self.past = told.filter(|told| !told.files.is_empty()).collect();
        self
    }

    pub(super) fn add_file(&mut self, file: IndexedFile) {
        self.files.push(file);
    }

    pub(super) fn exclude(&mut self, path: &str, why: ExclusionReason) {
        let path = path.replace(is_unprintable, "\u{fffd}");
        self.left_out.push(ExcludedFile { path, why });
    }

    pub(super) fn sorted(mut self) -> Self {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.left_out.sort_by(|a, b| (&a.path, a.why).cmp(&(&b.path, b.why)));
        self
    }
}
