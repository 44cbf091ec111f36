//! Posts comments about which GitHub notifies people by mail.

use super::{StepContext, github_error};
use crate::{
    engine::StepError,
    github::{Comment, OutboundBody},
    types::{IssueNo, Timestamp},
};

/// Returns the marker that identifies the comment with this key and visit.
pub fn comment_marker(cx: &StepContext, key: &str, visit: u64) -> String {
    format!("{key}-{}-{visit}", cx.run().id)
}

/// Posts a comment about which GitHub sends notifications, such as a gate comment.
pub async fn post_announcement(
    cx: &StepContext,
    key: &str,
    body: &OutboundBody,
) -> Result<(String, Timestamp), StepError> {
    post_announcement_on(cx, cx.run().trigger.issue, key, body).await
}

/// Posts a comment like [`post_announcement`], on this issue or pull request.
pub async fn post_announcement_on(
    cx: &StepContext,
    place: IssueNo,
    key: &str,
    body: &OutboundBody,
) -> Result<(String, Timestamp), StepError> {
    let repo = cx.tools().repository(cx).await?.with_question_priority();
    let marker = &comment_marker(cx, key, cx.visit());
    let repo = &repo;
    cx.once(key, |entry| async move {
        let posted: Comment =
            repo.ensure_comment(place, marker, body, entry.interrupted).await.map_err(github_error)?;
        Ok((posted.url, posted.updated_at))
    })
    .await
}
