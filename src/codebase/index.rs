//! Index of one commit: every file that a model may see, with its language and digest.

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

/// Files of a commit that may be shown to a model, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    files: Vec<IndexedFile>,
    left_out: Vec<ExcludedFile>,
    past: Vec<CommitWords>,
}

/// Words in the subject line of an earlier commit, and the files that it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitWords {
    /// Words, sorted and unique.
    pub(super) words: Vec<String>,
    /// Positions of the changed files in `Index::files`.
    pub(super) files: Vec<usize>,
}

/// Maximum files changed by an earlier commit that is used. A larger commit says little about each file.
const PAST_COMMIT_FILES: usize = 20;

/// An indexed file with its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedFile {
    pub path: String,
    pub size: u64,
    pub language: Language,
    pub digest: Arc<Digest>,
}

/// A file that is never shown to a model, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedFile {
    /// Path with characters that could break a line replaced by U+FFFD, so that it is safe to print.
    pub path: String,
    pub why: ExclusionReason,
}

impl Index {
    /// Returns the files, sorted by path.
    pub fn files(&self) -> &[IndexedFile] {
        &self.files
    }

    pub fn file(&self, path: &str) -> Option<&IndexedFile> {
        self.position(path).map(|at| &self.files[at])
    }

    pub(super) fn position(&self, path: &str) -> Option<usize> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok()
    }

    /// Returns the excluded files, sorted by path.
    pub fn excluded(&self) -> &[ExcludedFile] {
        &self.left_out
    }

    /// Builds the index of a commit. Reads digests from the cache and stores new ones there. If the cache fails, all
    /// digests are computed.
    pub async fn read(
        snapshot: &Snapshot,
        cache: AnalysisCache,
        cancel: &CancellationToken,
    ) -> Result<Self, GitError> {
        index_builder::build_index(snapshot, Some(cache), cancel).await
    }

    /// Builds the index of a commit without a cache.
    pub async fn read_uncached(snapshot: &Snapshot, cancel: &CancellationToken) -> Result<Self, GitError> {
        index_builder::build_index(snapshot, None, cancel).await
    }

    /// Builds an index from in-memory texts, given as path and text.
    pub fn from_texts<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut index = Self::default();
        let filter = FileFilter::default();
        for (path, text) in texts {
            let size = text.len() as u64;
            match filter.classify_file(path, EntryMode::File, size) {
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

    /// Earlier commits that changed indexed files, newest first.
    pub(super) fn past_commits(&self) -> &[CommitWords] {
        &self.past
    }

    /// Adds the words of earlier commits. The index must already be sorted.
    pub(super) fn with_past_commits(mut self, past: &[PastCommit]) -> Self {
        let few = past.iter().filter(|commit| commit.paths.len() <= PAST_COMMIT_FILES);
        let commits = few.map(|commit| CommitWords {
            words: words::word_set(&commit.subject)
                .into_iter()
                .filter(|word| !words::is_common(word))
                .collect(),
            files: commit.paths.iter().filter_map(|path| self.position(path)).collect(),
        });
        self.past = commits.filter(|commit| !commit.files.is_empty()).collect();
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
