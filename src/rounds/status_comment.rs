//! The single status comment of an issue. The issue's first run posts the comment, and all runs edit it in place.

use serde::{Deserialize, Serialize};

use super::{StepContext, github_error};
use crate::{
    engine::StepError,
    github::{Comment, GitHubApiError, GitHubRepo, LabelChange, OutboundBody, none_if_refused},
    limits, messages,
    store::ActivePause,
    types::{CommentId, Timestamp},
};

/// Marker of an issue's status comment. Earlier versions posted one comment per run; the markers of those comments also
/// start with this word.
pub const STATUS_MARKER: &str = "status";

/// Ids and URL of the status comment, and the time of its last edit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusComment {
    id: Option<CommentId>,
    /// GraphQL id of the comment. `None` if an earlier version of the bot posted the comment.
    #[serde(default)]
    node: Option<String>,
    pub url: Option<String>,
    touched: Option<Timestamp>,
    /// Whether an earlier attempt of the visit may have posted the comment without saving its state.
    #[serde(skip)]
    in_doubt: bool,
}

/// Whether an edit of the status comment may be skipped because the last edit was moments ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusUrgency {
    /// The edit shows progress. It may be skipped, because the next edit shows the progress, too.
    Progress,
    /// The run waits for a person or is over. The edit must not be skipped, because no later edit follows.
    TurningPoint,
}

impl StatusComment {
    /// Marks the comment as possibly posted by an attempt whose state was not saved. The next write therefore looks for
    /// an existing comment before it posts one.
    pub fn marked_uncertain(self) -> Self {
        Self { in_doubt: true, ..self }
    }

    /// Returns the earliest time at which the next progress edit is allowed. `None` if the comment was never written.
    pub fn next_edit_at(&self) -> Option<Timestamp> {
        self.touched.map(|touched| touched.plus(limits::STATUS_EDIT_GAP))
    }

    /// Shows `body` in the status comment. The first call posts the comment, and later calls edit it.
    pub async fn show(
        &mut self,
        cx: &StepContext,
        key: &str,
        body: &OutboundBody,
        urgency: StatusUrgency,
    ) -> Result<(), StepError> {
        self.show_and_label(cx, key, body, urgency, None).await.map(drop)
    }

    /// Shows `body` like [`show`](Self::show), and also sets the issue's state label if one request can do both.
    /// Returns whether the label was changed.
    pub async fn show_and_label(
        &mut self,
        cx: &StepContext,
        key: &str,
        body: &OutboundBody,
        urgency: StatusUrgency,
        change: Option<LabelChange<'_>>,
    ) -> Result<bool, StepError> {
        let now = cx.now(&format!("{key}-at")).await?;
        let fresh = self.touched.is_some_and(|t| now.since(t) < limits::STATUS_EDIT_GAP);
        if fresh && urgency == StatusUrgency::Progress {
            return Ok(false);
        }
        let before = &*self;
        let repo = cx.tools().repository(cx).await?;
        let repo = if urgency == StatusUrgency::TurningPoint { repo.with_question_priority() } else { repo };
        let shown: Option<PostedStatusComment> = cx
            .once(key, |entry| write_comment(cx, &repo, before, body, change.as_ref(), entry.interrupted))
            .await?;
        self.touched = Some(now);
        let Some(shown) = shown else { return Ok(false) };
        self.id = Some(shown.id);
        self.node = shown.node;
        self.url = Some(shown.url);
        Ok(shown.moved)
    }
}

#[derive(Serialize, Deserialize)]
struct PostedStatusComment {
    id: CommentId,
    #[serde(default)]
    node: Option<String>,
    url: String,
    /// Whether the label was changed in the same request.
    #[serde(default)]
    moved: bool,
}

impl From<Comment> for PostedStatusComment {
    fn from(comment: Comment) -> Self {
        let node = Some(comment.node).filter(|node| !node.is_empty());
        Self { id: comment.id, node, url: comment.url, moved: false }
    }
}

/// Edits or posts the comment. If the conversation is locked, leaves the comment unchanged and returns `None`.
async fn write_comment(
    cx: &StepContext,
    repo: &GitHubRepo,
    before: &StatusComment,
    body: &OutboundBody,
    change: Option<&LabelChange<'_>>,
    interrupted: bool,
) -> Result<Option<PostedStatusComment>, StepError> {
    // This step may have started before the pause.
    let pauses = cx.tools().store.pauses().await.map_err(|error| StepError::Bug(error.into()))?;
    let body = &messages::with_pause_line(body.as_str(), ActivePause::since(&pauses, repo.id()));
    let as_it_was = |id: CommentId, moved| {
        let (node, url) = (before.node.clone(), before.url.clone().unwrap_or_default());
        PostedStatusComment { id, node, url, moved }
    };
    if let (StatusComment { id: Some(id), node: Some(node), .. }, Some(change)) = (before, change) {
        // If the comment was deleted or the conversation locked, fall back to separate writes.
        if let Some(moved) = none_if_refused(repo.edit_and_label(node, STATUS_MARKER, body, change).await)
            .map_err(github_error)?
        {
            return Ok(Some(as_it_was(*id, moved)));
        }
    }
    let issue = cx.run().trigger.issue;
    let made = match before.id {
        Some(id) => Some(as_it_was(id, false)),
        None if before.in_doubt => None,
        // An earlier run of the issue may have posted it.
        None => repo
            .read_comment(issue, STATUS_MARKER)
            .await
            .map_err(github_error)?
            .map(|(comment, _)| comment.into()),
    };
    if let Some(made) = made {
        match repo.edit_comment(made.id, STATUS_MARKER, body).await {
            // Somebody deleted it; people still need to see the run's state.
            Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => {}
            edited => {
                return Ok(Some(
                    none_if_refused(edited).map_err(github_error)?.map_or(made, PostedStatusComment::from),
                ));
            }
        }
    }
    let shown = match before.in_doubt {
        true => repo.replace_comment(issue, STATUS_MARKER, body).await,
        false => repo.ensure_comment(issue, STATUS_MARKER, body, interrupted).await,
    };
    match shown {
        // A locked issue, and no pull request yet to show it on.
        Err(GitHubApiError::Forbidden { .. }) if repo.issue(issue).await.map_err(github_error)?.locked => {
            Ok(None)
        }
        shown => shown.map(|comment| Some(comment.into())).map_err(github_error),
    }
}
