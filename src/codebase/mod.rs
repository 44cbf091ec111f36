//! What of a repository a model is shown, and what a document may ask about it.
//!
//! One file here reads a repository (`reading`, which makes the index of a commit); the rest is bytes in, values out. The
//! same commit and issue always give the same excerpt. Secrets are left out twice: files that look like
//! holding them are not opened, and what looks like one in any other file is blacked out.

mod attributes;
mod dependencies;
mod digest;
mod excerpt;
mod files;
mod imports;
mod index;
mod language;
mod reading;
mod similar;
mod summary;
mod surroundings;
mod tree;
mod words;

pub use dependencies::dependencies;
pub use digest::Digest;
pub use excerpt::{Excerpt, Shown, excerpt};
pub use files::Why;
pub use imports::{Resolved, Resolver};
pub use index::{File, Index, LeftOut};
pub use language::Language;
pub use similar::{Alike, Neighbours, Offer, Reason, Request, alike, neighbours, rank};
pub use summary::{Detail, Import, Item, Kind, Summary, summarize};
pub use surroundings::{Surroundings, surroundings};
pub use tree::TreeIndex;

/// A file of the repository at one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// From the root, without a leading slash.
    pub path: String,
    /// In bytes.
    pub size: u64,
}
