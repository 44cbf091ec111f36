//! Selects the parts of a repository that a model sees, and looks up the names that a design mentions.
//!
//! Only `index_builder` and `context` read a repository; the other modules are pure. The same commit and issue give the
//! same context. Two checks keep secrets out of the context: files that probably contain secrets are not opened, and
//! credentials in other files are redacted.

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

pub use code_pieces::{CodePiece, is_comment, is_significant_line, split_into_pieces};
pub use context::{
    CodebaseContext, ContextPlan, ContextReport, ContextRequest, ContextSections, ExclusionGroup,
    IncludedFile, fence_text, gather_context, plan_context, redact_text,
};
pub use digest::Digest;
pub use file_filter::{ExclusionReason, is_secret_path};
pub use history::{History, select_history};
pub use index::{ExcludedFile, Index, IndexedFile};
pub(crate) use index_builder::run_blocking;
pub use language::Language;
pub use names::{CodebaseNames, unindexed_code};
pub use ranking::{RankedFile, RankingRequest, rank_files};
pub use similar_texts::most_similar_texts;
pub use summary::{
    CodeItem, CodeItemKind, Detail, Import, InlineTests, Summary, TestAudit, audit_tests,
    is_inline_test_line, runner_hooks, shadowed_assertion, split_inline_tests, strip_comments, summarize,
};
pub(crate) use tokens::estimate_tokens;
pub use tree::TreeIndex;
