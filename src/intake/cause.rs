//! Cause of an engine request, named so that the same cause is recognised again.
//!
//! GitHub may deliver one comment twice: from two hooks, or once lost and later found in the delivery log. So a cause
//! is named by its GitHub id if it has one, and otherwise by its delivery.

use crate::{
    store::ClaimedDelivery,
    types::{Actor, Cause, CommentId, IssueNo, RepoId, Timestamp},
};

/// Cause of a comment. The causes of its commands are the [`nth`] causes of this one.
pub(super) fn comment(id: CommentId) -> Cause {
    Cause(format!("comment-{id}"))
}

pub(super) fn review(id: u64) -> Cause {
    Cause(format!("review-{id}"))
}

/// Cause of a label event. GitHub omits the event's id from the payload, so the cause contains repository, issue,
/// label, person and time. The time has whole seconds, in which one person may label issues of the same number in
/// several repositories.
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
