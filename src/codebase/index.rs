//! All files of one commit, with what is known of each.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{FileInfo, Language, Summary, skip, summary, words};
use crate::git::{GitError, Snapshot};

/// The files of a commit that a model may be shown, in the order of their paths.
#[derive(Debug, Clone, Default)]
pub struct Index {
    files: Vec<File>,
    left_out: Vec<LeftOut>,
}

/// One file.
#[derive(Debug, Clone)]
pub struct File {
    pub path: String,
    /// In bytes.
    pub size: u64,
    pub language: Language,
    pub digest: Arc<Digest>,
}

/// What is known of a file's content, whatever its path. Kept by the content's hash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digest {
    summary: Summary,
    words: Vec<(String, u32)>,
    uses: Vec<String>,
}

/// A file no model is shown, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub path: String,
    pub why: &'static str,
}

impl Index {
    /// By path.
    pub fn files(&self) -> &[File] {
        &self.files
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().map(|at| &self.files[at])
    }

    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Of texts at hand.
    pub fn of_texts<'t>(texts: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        let mut files: Vec<File> = texts
            .into_iter()
            .map(|(path, text)| {
                let language = Language::of_file(path, text);
                let digest = Arc::new(Digest::of(language, text));
                File { path: path.to_owned(), size: text.len() as u64, language, digest }
            })
            .collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self { files, left_out: Vec::new() }
    }

    /// Of a commit, with every file read anew.
    pub async fn without_cache(snapshot: &Snapshot, _cancel: &CancellationToken) -> Result<Self, GitError> {
        let mut index = Self::default();
        for entry in snapshot.entries().iter().filter(|entry| entry.mode.is_file()) {
            let info = FileInfo { path: entry.path.clone(), size: entry.size };
            let text = match skip::by_name(&info) {
                Some(why) => Err(why),
                None => skip::text(snapshot.read_path(&entry.path).await?.unwrap_or_default()),
            };
            match text {
                Ok(text) => {
                    let language = Language::of(&entry.path);
                    let digest = Arc::new(Digest::of(language, &text));
                    index.files.push(File { path: info.path, size: info.size, language, digest });
                }
                Err(why) => index.left_out.push(LeftOut { path: info.path, why }),
            }
        }
        index.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(index)
    }
}

impl Digest {
    pub fn of(language: Language, text: &str) -> Self {
        let words = words::counted(text).into_iter().collect();
        let (summary, uses) = summary::read(language, text);
        Self { summary, words, uses }
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// The words of its text with how often they occur, in order.
    pub fn words(&self) -> impl Iterator<Item = (&str, u32)> {
        self.words.iter().map(|(word, count)| (word.as_str(), *count))
    }

    /// How often a word occurs in its text.
    pub fn count(&self, word: &str) -> u32 {
        self.words.binary_search_by(|(known, _)| known.as_str().cmp(word)).map_or(0, |at| self.words[at].1)
    }

    /// Names it uses and does not define: what it calls, the types it names. In order, each once.
    pub fn uses(&self) -> impl Iterator<Item = &str> {
        self.uses.iter().map(String::as_str)
    }
}
