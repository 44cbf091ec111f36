//! The one status comment of a run: made once, edited in place ever after.

use serde::{Deserialize, Serialize};

use super::{Cx, fault};
use crate::{
    engine::StepError,
    github::{Body, Comment, Fault},
    limits,
    types::{CommentId, Timestamp},
};

/// Where a run's status comment is and when it was last touched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusComment {
    id: Option<CommentId>,
    pub url: Option<String>,
    touched: Option<Timestamp>,
}

/// May this edit be left out when the last one was a moment ago?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Progress: the next edit will say it too.
    Progress,
    /// A person is being waited for, or the run is over: nothing later says it.
    Turning,
}

impl StatusComment {
    /// Shows `body`, as a new comment the first time.
    pub async fn show(&mut self, cx: &Cx, key: &str, body: &Body, urgency: Urgency) -> Result<(), StepError> {
        let now = cx.now(&format!("{key}-at")).await?;
        let fresh = self.touched.is_some_and(|t| now.since(t) < limits::STATUS_EDIT_GAP);
        if fresh && urgency == Urgency::Progress {
            return Ok(());
        }
        let before = self.id;
        let shown: Shown = cx.once(key, |entry| write(cx, before, body, entry.interrupted)).await?;
        self.id = Some(shown.id);
        self.url = Some(shown.url);
        self.touched = Some(now);
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Shown {
    id: CommentId,
    url: String,
}

impl From<Comment> for Shown {
    fn from(comment: Comment) -> Self {
        Self { id: comment.id, url: comment.url }
    }
}

async fn write(
    cx: &Cx,
    before: Option<CommentId>,
    body: &Body,
    interrupted: bool,
) -> Result<Shown, StepError> {
    let repo = cx.tools().repo(cx).await?;
    let marker = format!("status-{}", cx.run().id);
    if let Some(id) = before {
        match repo.edit_comment(id, &marker, body).await {
            Ok(comment) => return Ok(comment.into()),
            // Somebody deleted it: people shall still see where the run stands.
            Err(Fault::NotFound { .. } | Fault::Gone { .. }) => {}
            Err(other) => return Err(fault(other)),
        }
    }
    let issue = cx.run().trigger.issue;
    repo.ensure_comment(issue, &marker, body, interrupted).await.map(Shown::from).map_err(fault)
}
