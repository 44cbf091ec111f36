//! What of a repository a model is shown, and what a document may ask about it.
//!
//! Nothing here reads a repository: paths and sizes come in, contents through a closure. The same
//! commit and issue always give the same excerpt. Secrets are left out twice: files that look like
//! holding them are not opened, and what looks like one in any other file is blacked out.

mod budget;
mod context;
mod imports;
mod index;
mod language;
mod similar;
mod skip;
mod summary;
mod tokens;
mod tree;
mod words;

pub use context::{Asked, Context, Included, Plan, Report, Shown, gather, plan};
pub use imports::{Resolved, Resolver};
pub use index::{Digest, File, Index, LeftOut};
pub use language::Language;
pub use similar::{Offer, Reason, Request, rank};
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
