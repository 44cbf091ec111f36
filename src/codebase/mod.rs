//! What of a repository a model is shown, and what a document may ask about it.
//!
//! Two rooms here read a repository: `reading`, which makes the index of a commit, and `context`, which reads what it
//! shows; the rest is bytes in, values out. The same commit and issue give the same context. Secrets are left
//! out twice: files that look like holding them are not opened, and what looks like one in any other file is blacked
//! out.

mod alike;
mod bm25;
mod budget;
mod context;
mod digest;
mod files;
mod history;
mod index;
mod language;
mod names;
mod pieces;
mod reading;
mod similar;
mod summary;
mod tokens;
mod tree;
pub mod units;
mod words;

pub use alike::alike;
pub use context::{
    Asked, Context, Included, NeverShown, Plan, Report, Shown, as_shown, fenced, gather, plan,
};
pub use digest::Digest;
pub use files::{Why, is_secret};
pub use history::{History, history};
pub use index::{File, Index, LeftOut};
pub use language::Language;
pub use names::{Names, unread};
pub use pieces::{Piece, in_pieces, is_comment, says_something};
pub(crate) use reading::off_thread;
pub use similar::{Offer, Request, rank};
pub use summary::{Detail, Import, Item, Kind, Summary, Tests, summarize, tests};
pub(crate) use tokens::estimate;
pub use tree::TreeIndex;
