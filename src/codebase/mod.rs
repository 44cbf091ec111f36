//! What of a repository a model is shown, and what a document may ask about it.
//!
//! One file here reads a repository (`reading`, which makes the index of a commit); the rest is bytes in, values out. The
//! same commit and issue always give the same excerpt. Secrets are left out twice: files that look like
//! holding them are not opened, and what looks like one in any other file is blacked out.

mod attributes;
mod digest;
mod excerpt;
mod files;
mod index;
mod language;
mod reading;
mod summary;
mod tree;
mod words;

pub use digest::Digest;
pub use excerpt::{Excerpt, Shown, excerpt};
pub use files::Why;
pub use index::{File, Index, LeftOut};
pub use language::Language;
pub use summary::{Detail, Import, Item, Kind, Summary, summarize};
pub use tree::TreeIndex;

/// A file of the repository at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// From the root, without a leading slash.
    pub path: String,
    /// In bytes.
    pub size: u64,
}
