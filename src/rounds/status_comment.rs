//! The one status comment of an issue: made by its first run, edited in place ever after.

use serde::{Deserialize, Serialize};

use super::{StepContext, github_error};
use crate::{
    engine::StepError,
    github::{Comment, GitHubApiError, GitHubRepo, LabelChange, OutboundBody, none_if_refused},
    limits, messages,
    store::ActivePause,
    types::{CommentId, Timestamp},
};

/// Ends an issue's status comment. Earlier versions made one a run, whose marker begins so.
pub const STATUS_MARKER: &str = "status";

/// Where a run's status comment is and when it was last touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusComment {
    id: Option<CommentId>,
    /// As GraphQL knows it; none where an earlier version made it.
    #[serde(default)]
    node: Option<String>,
    pub url: Option<String>,
    touched: Option<Timestamp>,
    /// A visit of which nothing was kept may have made it.
    #[serde(skip)]
    in_doubt: bool,
}

/// May this edit be left out when the last one was a moment ago?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusUrgency {
    /// Progress: the next edit will say it too.
    Progress,
    /// A person is being waited for, or the run is over: nothing later says it.
    TurningPoint,
}

impl StatusComment {
    /// One that may have been made by a visit of which nothing was kept: it is looked for before another is made.
    pub fn marked_uncertain(self) -> Self {
        Self { in_doubt: true, ..self }
    }

    /// From when on progress may be shown.
    pub fn next_edit_at(&self) -> Option<Timestamp> {
        self.touched.map(|touched| touched.plus(limits::STATUS_EDIT_GAP))
    }

    /// Shows `body`, as a new comment the first time.
    pub async fn show(
        &mut self,
        cx: &StepContext,
        key: &str,
        body: &OutboundBody,
        urgency: StatusUrgency,
    ) -> Result<(), StepError> {
        self.show_and_label(cx, key, body, urgency, None).await.map(drop)
    }

    /// As [`show`](Self::show), and changes the issue's state label where that takes no write of its own. Returns whether it
    /// changed.
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
    /// The label with it.
    #[serde(default)]
    moved: bool,
}

impl From<Comment> for PostedStatusComment {
    fn from(comment: Comment) -> Self {
        let node = Some(comment.node).filter(|node| !node.is_empty());
        Self { id: comment.id, node, url: comment.url, moved: false }
    }
}

/// None: the conversation is locked, and what shows stays as it is.
async fn write_comment(
    cx: &StepContext,
    repo: &GitHubRepo,
    before: &StatusComment,
    body: &OutboundBody,
    change: Option<&LabelChange<'_>>,
    interrupted: bool,
) -> Result<Option<PostedStatusComment>, StepError> {
    // This step may have been under way when the pause began.
    let pauses = cx.tools().store.pauses().await.map_err(|error| StepError::Bug(error.into()))?;
    let body = &messages::with_pause_line(body.as_str(), ActivePause::since(&pauses, repo.id()));
    let as_it_was = |id: CommentId, moved| {
        let (node, url) = (before.node.clone(), before.url.clone().unwrap_or_default());
        PostedStatusComment { id, node, url, moved }
    };
    if let (StatusComment { id: Some(id), node: Some(node), .. }, Some(change)) = (before, change) {
        // Where the comment was deleted or the conversation locked, what can be done is done one after the other.
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
        // By an earlier run of the issue, perhaps.
        None => repo
            .read_comment(issue, STATUS_MARKER)
            .await
            .map_err(github_error)?
            .map(|(comment, _)| comment.into()),
    };
    if let Some(made) = made {
        match repo.edit_comment(made.id, STATUS_MARKER, body).await {
            // Somebody deleted it: people shall still see where the run stands.
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
        // There is no pull request yet to show it on.
        Err(GitHubApiError::Forbidden { .. }) if repo.issue(issue).await.map_err(github_error)?.locked => {
            Ok(None)
        }
        shown => shown.map(|comment| Some(comment.into())).map_err(github_error),
    }
}
