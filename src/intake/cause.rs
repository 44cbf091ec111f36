//! Cause of an engine request, named so that the same cause is recognised again.
//!
//! GitHub may deliver one comment twice: from two hooks, or once lost and later found in the delivery log. So anything
//! that has a GitHub id is named by that id, and only the rest by its delivery.

use crate::{
    store::ClaimedDelivery,
    types::{Actor, Cause, CommentId, IssueNo, RepoId, Timestamp},
};

/// Cause of a comment; its commands are the [`nth`] of it.
pub(super) fn comment(id: CommentId) -> Cause {
    Cause(format!("comment-{id}"))
}

pub(super) fn review(id: u64) -> Cause {
    Cause(format!("review-{id}"))
}

/// Cause of a label event. GitHub has an id for the event but omits it from the payload. Its timestamp has whole
/// seconds, and one person may label issues of the same number in several repositories within a second.
pub(super) fn label(repo: RepoId, issue: IssueNo, label: &str, by: &Actor, at: Timestamp) -> Cause {
    Cause(format!("label-{repo}-{issue}-{label}-{}-{}", by.id, at.0))
}

/// Cause of an event without an id of its own.
pub(super) fn delivery(taken: &ClaimedDelivery) -> Cause {
    Cause(taken.id.0.clone())
}

/// Cause of the `index`-th request from one cause.
pub(super) fn nth(cause: &Cause, index: u64) -> Cause {
    Cause(format!("{cause}.{index}"))
}
