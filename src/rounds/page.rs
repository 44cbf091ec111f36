//! The one status comment of a run: made once, edited in place ever after.

use serde::{Deserialize, Serialize};

use super::{Cx, fault};
use crate::{
    engine::StepError,
    github::{Body, Comment, Fault, LabelSwap},
    limits,
    types::{CommentId, Timestamp},
};

/// A status comment's marker begins with this.
pub(super) const MARKER: &str = "status-";

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
pub enum Urgency {
    /// Progress: the next edit will say it too.
    Progress,
    /// A person is being waited for, or the run is over: nothing later says it.
    Turning,
}

impl StatusComment {
    /// One that may have been made by a visit of which nothing was kept: it is looked for before another is made.
    pub fn in_doubt(self) -> Self {
        Self { in_doubt: true, ..self }
    }

    /// From when on progress may be shown.
    pub fn rests_until(&self) -> Option<Timestamp> {
        self.touched.map(|touched| touched.plus(limits::STATUS_EDIT_GAP))
    }

    /// Shows `body`, as a new comment the first time.
    pub async fn show(&mut self, cx: &Cx, key: &str, body: &Body, urgency: Urgency) -> Result<(), StepError> {
        self.turn(cx, key, body, urgency, None).await
    }

    /// As [`show`](Self::show), and moves the issue's state label with it.
    pub async fn turn(
        &mut self,
        cx: &Cx,
        key: &str,
        body: &Body,
        urgency: Urgency,
        swap: Option<LabelSwap<'_>>,
    ) -> Result<(), StepError> {
        let now = cx.now(&format!("{key}-at")).await?;
        let fresh = self.touched.is_some_and(|t| now.since(t) < limits::STATUS_EDIT_GAP);
        if fresh && urgency == Urgency::Progress {
            return Ok(());
        }
        let before = &*self;
        let shown: Shown =
            cx.once(key, |entry| write(cx, before, body, swap.as_ref(), entry.interrupted)).await?;
        self.id = Some(shown.id);
        self.node = shown.node;
        self.url = Some(shown.url);
        self.touched = Some(now);
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Shown {
    id: CommentId,
    #[serde(default)]
    node: Option<String>,
    url: String,
}

impl From<Comment> for Shown {
    fn from(comment: Comment) -> Self {
        let node = Some(comment.node).filter(|node| !node.is_empty());
        Self { id: comment.id, node, url: comment.url }
    }
}

async fn write(
    cx: &Cx,
    before: &StatusComment,
    body: &Body,
    swap: Option<&LabelSwap<'_>>,
    interrupted: bool,
) -> Result<Shown, StepError> {
    let repo = cx.tools().repo(cx).await?;
    let marker = format!("{MARKER}{}", cx.run().id);
    if let (StatusComment { id: Some(id), node: Some(node), url: Some(url), .. }, Some(swap)) = (before, swap)
    {
        match repo.edit_and_swap(node, &marker, body, swap).await {
            Ok(()) => return Ok(Shown { id: *id, node: Some(node.clone()), url: url.clone() }),
            // The comment or the old label was deleted: one after the other, what can be done is done.
            Err(Fault::NotFound { .. } | Fault::Gone { .. }) => {}
            Err(other) => return Err(fault(other)),
        }
    }
    if let Some(swap) = swap {
        repo.swap_label(swap).await.map_err(fault)?;
    }
    let issue = cx.run().trigger.issue;
    if let Some(id) = before.id {
        match repo.edit_comment(id, &marker, body).await {
            Ok(comment) => return Ok(comment.into()),
            // Somebody deleted it: people shall still see where the run stands.
            Err(Fault::NotFound { .. } | Fault::Gone { .. }) => {}
            Err(other) => return Err(fault(other)),
        }
    }
    let shown = match before.in_doubt {
        true => repo.renew_comment(issue, &marker, body).await,
        false => repo.ensure_comment(issue, &marker, body, interrupted).await,
    };
    shown.map(Shown::from).map_err(fault)
}
