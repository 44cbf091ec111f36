//! What caused a request to the engine, named so that the same cause is known again.
//!
//! GitHub may tell of one comment in two deliveries: two hooks, or one that was lost and found again in the
//! delivery log. So whatever GitHub numbers is named by its number, and only the rest by its delivery.

use crate::{
    store::ClaimedDelivery,
    types::{Actor, Cause, CommentId, IssueNo, RepoId, Timestamp},
};

/// A comment; its commands are [`nth`] of it.
pub(super) fn comment(id: CommentId) -> Cause {
    Cause(format!("comment-{id}"))
}

pub(super) fn review(id: u64) -> Cause {
    Cause(format!("review-{id}"))
}

/// A label that was set. GitHub numbers the event and does not tell the number in the payload.
/// Its time is in whole seconds, in which one person may label issues of the same number in several repositories.
pub(super) fn label(repo: RepoId, issue: IssueNo, label: &str, by: &Actor, at: Timestamp) -> Cause {
    Cause(format!("label-{repo}-{issue}-{label}-{}-{}", by.id, at.0))
}

/// Something without a number of its own.
pub(super) fn delivery(taken: &ClaimedDelivery) -> Cause {
    Cause(taken.id.0.clone())
}

/// One of several things that one cause asks for.
pub(super) fn nth(cause: &Cause, index: u64) -> Cause {
    Cause(format!("{cause}.{index}"))
}
