//! Causes of engine requests, named so that a repeated cause is recognised.
//!
//! GitHub may deliver one comment twice: through two hooks, or because a lost delivery was later found in the delivery
//! log. So the name of a cause contains its GitHub id if it has one, and otherwise its delivery id.

use crate::{
    store::ClaimedDelivery,
    types::{Actor, Cause, CommentId, IssueNo, RepoId, Timestamp},
};

/// Returns the cause for a comment. Each command in the comment gets an [`nth`] cause of this one.
pub(super) fn comment(id: CommentId) -> Cause {
    Cause(format!("comment-{id}"))
}

/// Returns the cause for a person's first comment without a command on a pull request of ours.
pub(super) fn plain_comment(repo: RepoId, pull: IssueNo, by: &Actor) -> Cause {
    Cause(format!("plain-comment-{repo}-{pull}-{}", by.id))
}

pub(super) fn review(id: u64) -> Cause {
    Cause(format!("review-{id}"))
}

/// Returns the cause for a label event. GitHub omits the event's id from the payload, so the cause contains repository,
/// issue, label, person and time. The repository is needed because the time has whole seconds: within one second, a
/// person may label issues with the same number in several repositories.
pub(super) fn label(repo: RepoId, issue: IssueNo, label: &str, by: &Actor, at: Timestamp) -> Cause {
    Cause(format!("label-{repo}-{issue}-{label}-{}-{}", by.id, at.0))
}

/// Returns the cause for an event without an id of its own.
pub(super) fn delivery(taken: &ClaimedDelivery) -> Cause {
    Cause(taken.id.0.clone())
}

/// Returns the cause for the `index`-th request that results from `cause`.
pub(super) fn nth(cause: &Cause, index: u64) -> Cause {
    Cause(format!("{cause}.{index}"))
}
