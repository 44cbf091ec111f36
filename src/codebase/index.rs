//! Index of one commit. The index contains every file that a model may see, with the file's language and digest.

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

/// Words in the subject line of an earlier commit, and the files that the commit changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitWords {
    /// Words, sorted and unique.
    pub(super) words: Vec<String>,
    /// Positions of the changed files in the list `Index::files`.
    pub(super) files: Vec<usize>,
}

/// The index ignores earlier commits that changed more files than this, because a large commit says little about each
/// of its files.
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
    /// Path of the file, safe to print. Characters that could break a line are replaced by U+FFFD.
    pub path: String,
    pub why: ExclusionReason,
}

impl Index {
    /// Returns the indexed files, sorted by path.
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

    /// Builds the index of a commit. Reads known digests from the cache and stores new digests in it. If the cache
    /// fails, all digests are computed.
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

    /// Builds an index from texts in memory, given as pairs of path and text.
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

    /// Returns the earlier commits that changed indexed files, newest first.
    pub(super) fn past_commits(&self) -> &[CommitWords] {
        &self.past
    }

    /// Adds the subject words of earlier commits. The index must already be sorted.
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
