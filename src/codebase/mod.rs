//! What of a repository a model is shown, and what a document may ask about it.
//!
//! Two rooms here read a repository: `reading`, which makes the index of a commit, and `context`, which reads what it
//! shows; the rest is bytes in, values out. The same commit and issue give the same context. Secrets are left
//! out twice: files that look like holding them are not opened, and what looks like one in any other file is blacked
//! out.

mod bm25;
mod budget;
mod code_pieces;
mod context;
mod digest;
mod file_filter;
mod history;
mod index;
mod index_builder;
mod language;
pub mod mutation_units;
mod names;
mod ranking;
mod similar_texts;
mod summary;
mod tokens;
mod tree;
mod words;

pub use code_pieces::{CodePiece, in_pieces, is_comment, says_something};
pub use context::{
    CodebaseContext, ContextPlan, ContextReport, ContextRequest, ContextSections, ExclusionGroup,
    IncludedFile, as_shown, fenced, gather, plan,
};
pub use digest::Digest;
pub use file_filter::{ExclusionReason, is_secret};
pub use history::{History, history};
pub use index::{ExcludedFile, Index, IndexedFile};
pub(crate) use index_builder::off_thread;
pub use language::Language;
pub use names::{CodebaseNames, unread};
pub use ranking::{RankedFile, RankingRequest, rank};
pub use similar_texts::alike;
pub use summary::{CodeItem, CodeItemKind, Detail, Import, Summary, TestAudit, summarize, tests};
pub(crate) use tokens::estimate;
pub use tree::TreeIndex;
