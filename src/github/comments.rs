//! Comments and reactions. Each of our comments ends in a hidden marker, by which a retried step recognises the comment
//! that an earlier attempt wrote.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    api::{ApiRequest, ApiResponse},
    error::GitHubApiError,
    graphql::GraphQlField,
    manifest::{
        COMMENTS, DELETE_COMMENT, EDIT_AND_LABEL, EDIT_COMMENT, POST_COMMENT, REACT_COMMENT, REACT_ISSUE,
    },
    outbound::OutboundBody,
    repo::{GitHubRepo, LabelChange, parse_time},
    wire::GitHubUser,
    write_pacing::WritePriority,
};
use crate::{
    limits,
    types::{CommentId, IssueNo, Timestamp, UserId},
};

/// Maximum number of pages of comments that are searched, newest first. The search looks for a comment of ours that a
/// crash left unrecorded.
const COMMENT_SEARCH_PAGES: usize = 10;

/// Maximum number of characters of a marker. With this length, the marker's line fits into the space that
/// [`OutboundBody::pieces`] leaves.
const MARKER_CHARS: usize = 150;

/// One of our comments. Its times are by GitHub's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    pub id: CommentId,
    /// GraphQL node id.
    #[serde(default)]
    pub node: String,
    pub url: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// One of our comments, and whether this call wrote it.
struct EnsuredComment {
    comment: Comment,
    written: bool,
}

/// Target of a reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReactionTarget {
    Issue(IssueNo),
    Comment(CommentId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    Eyes,
    ThumbsDown,
}

impl Reaction {
    fn as_str(self) -> &'static str {
        match self {
            Self::Eyes => "eyes",
            Self::ThumbsDown => "-1",
        }
    }
}

#[derive(Debug, Deserialize)]
struct CommentResponse {
    id: u64,
    #[serde(default)]
    node_id: String,
    user: Option<GitHubUser>,
    body: Option<String>,
    #[serde(default)]
    html_url: String,
    created_at: String,
    updated_at: String,
}

impl CommentResponse {
    fn to_comment(&self) -> Result<Comment, GitHubApiError> {
        Ok(Comment {
            id: CommentId(self.id),
            node: self.node_id.clone(),
            url: self.html_url.clone(),
            created_at: parse_time(&COMMENTS, &self.created_at)?,
            updated_at: parse_time(&COMMENTS, &self.updated_at)?,
        })
    }

    /// Returns whether our account wrote this comment and the comment ends in this marker line. The author is checked
    /// too, because anyone can copy a marker.
    fn is_ours_with_marker(&self, by: UserId, line: &str) -> bool {
        self.is_written_by(by) && self.body.as_deref().is_some_and(|body| body.trim_end().ends_with(line))
    }

    fn is_written_by(&self, author: UserId) -> bool {
        self.user.as_ref().is_some_and(|user| user.id == author.0)
    }

    /// Splits the comment's body into its text and its marker.
    fn split_marker(&self) -> Option<(String, &str)> {
        let body = self.body.as_deref()?.trim_end().strip_suffix(" -->")?;
        let (text, marker) = body.rsplit_once("<!-- countersign:")?;
        Some((text.trim_end().to_owned(), marker))
    }
}

impl GitHubRepo {
    /// Posts a comment and returns it. A body over GitHub's limit becomes several comments, of which the first is
    /// returned. If the issue is locked, the comment goes to its open pull request.
    ///
    /// With `interrupted`, an earlier attempt may have posted the comment, so the comment is looked up first and kept
    /// if found. This can take several calls. Each call returns [`GitHubApiError::Transient`] until it is certain that
    /// exactly one such comment exists.
    pub async fn ensure_comment(
        &self,
        issue: IssueNo,
        marker: &str,
        body: &OutboundBody,
        interrupted: bool,
    ) -> Result<Comment, GitHubApiError> {
        match self.ensure_comment_on(issue, marker, body, interrupted).await {
            Err(refused @ GitHubApiError::Forbidden { .. }) => match self.unlocked_conversation(issue).await?
            {
                Some(pull) => self.ensure_comment_on(pull, marker, body, interrupted).await,
                None => Err(refused),
            },
            written => written,
        }
    }

    async fn ensure_comment_on(
        &self,
        issue: IssueNo,
        marker: &str,
        body: &OutboundBody,
        interrupted: bool,
    ) -> Result<Comment, GitHubApiError> {
        let mut first = None;
        for (index, piece) in body.pieces().iter().enumerate() {
            let line = marker_line(marker, index)?;
            let text = format!("{piece}\n\n{line}");
            let comment = match interrupted && !self.was_refused(issue, &line) {
                true => self.find_or_post(issue, &line, &text).await?.comment,
                false => self.post_unless_refused_before(issue, &line, &text).await?,
            };
            first.get_or_insert(comment);
        }
        first.ok_or_else(|| GitHubApiError::Invalid("a comment without text".into()))
    }

    /// Posts a comment that cannot exist yet. If GitHub refuses the comment, the refusal is remembered, so that a retry
    /// knows that the comment still does not exist.
    async fn post_unless_refused_before(
        &self,
        issue: IssueNo,
        line: &str,
        text: &str,
    ) -> Result<Comment, GitHubApiError> {
        let (doubts, refused) = (self.github().uncertain_writes(), self.refusal_key(issue, line));
        let posted = self.post_comment(issue, text).await;
        match &posted {
            Err(fault) if !fault.may_have_taken_effect() => {
                doubts.record(&refused, self.github().now(), None)
            }
            _ => doubts.resolve(&refused),
        }
        posted
    }

    /// Returns whether GitHub has refused this comment at every attempt so far.
    fn was_refused(&self, issue: IssueNo, line: &str) -> bool {
        self.github().uncertain_writes().lookup(&self.refusal_key(issue, line), self.github().now()).is_some()
    }

    fn refusal_key(&self, issue: IssueNo, line: &str) -> String {
        format!("{} {issue} {line} refused", self.id())
    }

    /// Returns the conversation to use instead of a locked issue: the open pull request of the issue's branch or of a
    /// later branch. Returns `None` if the issue is not locked or has no such pull request.
    ///
    /// No App can comment in a locked conversation, whatever its permissions, and nobody can react there. A pull
    /// request is a separate conversation.
    pub async fn unlocked_conversation(&self, issue: IssueNo) -> Result<Option<IssueNo>, GitHubApiError> {
        if !self.issue(issue).await?.locked {
            return Ok(None);
        }
        for nth in 1.. {
            let pulls = self.pulls_of_branch(&issue.branch(nth)).await?;
            let open = pulls.iter().find(|pull| pull.open).map(|pull| pull.number);
            if open.is_some() || pulls.is_empty() {
                return Ok(open);
            }
        }
        Ok(None)
    }

    /// Like [`ensure_comment`](Self::ensure_comment) with `interrupted`, but replaces the text of an existing comment
    /// with this marker. Text that does not fit into one comment is dropped.
    pub async fn replace_comment(
        &self,
        issue: IssueNo,
        marker: &str,
        body: &OutboundBody,
    ) -> Result<Comment, GitHubApiError> {
        let line = marker_line(marker, 0)?;
        let text = format!("{}\n\n{line}", first_piece(body));
        let there = self.find_or_post(issue, &line, &text).await?;
        if there.written {
            return Ok(there.comment);
        }
        match self.edit_comment(there.comment.id, marker, body).await {
            Err(GitHubApiError::NotFound { call } | GitHubApiError::Gone { what: call }) => {
                Err(GitHubApiError::transient(&call, "GitHub still lists a deleted comment"))
            }
            edited => edited,
        }
    }

    /// Finds our comment, or posts it again after two lookups have not found it. If both posts took effect, the older
    /// comment is kept, no matter which one GitHub lists first. If the response to the second post is lost too, the id
    /// of the possible duplicate is unknown. In that case, later calls wait until GitHub's reads have surely caught up.
    async fn find_or_post(
        &self,
        issue: IssueNo,
        line: &str,
        text: &str,
    ) -> Result<EnsuredComment, GitHubApiError> {
        let (doubts, now) = (self.github().uncertain_writes(), self.github().now());
        let [looking, again] =
            ["looking", "again"].map(|what| format!("{} {issue} {line} {what}", self.id()));
        let unsure = |why| Err(GitHubApiError::transient(&format!("a comment on issue {issue}"), why));
        let found = self.keep_oldest(&self.newest_comments(issue).await?, line).await?;
        let settled = |comment, written| {
            doubts.resolve(&looking);
            doubts.resolve(&again);
            Ok(EnsuredComment { comment, written })
        };
        match (found, doubts.lookup(&again, now)) {
            (_, Some((age, None))) if age < limits::GITHUB_LAG => {
                return unsure("two attempts may have posted it; waiting until GitHub lists both");
            }
            (Some(found), Some((_, Some(second)))) => {
                self.delete_duplicate(second, &found).await?;
                return settled(found, false);
            }
            (Some(found), _) => return settled(found, false),
            (None, Some((age, Some(_)))) if age < limits::GITHUB_LAG => {
                return unsure("GitHub does not list the second attempt yet");
            }
            (None, Some(_)) => {}
            (None, None) if doubts.start_or_age(&looking, now) < limits::LOOKUP_INTERVAL => {
                return unsure("an earlier attempt may have posted it; will look once more");
            }
            (None, None) => {}
        }
        doubts.record(&again, now, None);
        let posted = self.post_comment(issue, text).await.inspect_err(|fault| {
            if !fault.may_have_taken_effect() {
                doubts.resolve(&again);
            }
        })?;
        doubts.record(&again, now, Some(posted.id.0));
        match self.keep_oldest(&self.newest_comments(issue).await?, line).await? {
            Some(found) => {
                self.delete_duplicate(posted.id.0, &found).await?;
                let written = found.id == posted.id;
                settled(found, written)
            }
            None => unsure("GitHub does not list the second attempt yet"),
        }
    }

    /// Deletes a duplicate of our comment by its id, because GitHub may not list the duplicate yet.
    async fn delete_duplicate(&self, second: u64, kept: &Comment) -> Result<(), GitHubApiError> {
        if second == kept.id.0 {
            return Ok(());
        }
        match self.write(self.request(&DELETE_COMMENT, &[&second.to_string()])).await {
            Ok(_) | Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Replaces the text of our comment with this marker. Does nothing if the comment is not among the newest comments
    /// or already has this text.
    pub async fn edit_marked(
        &self,
        issue: IssueNo,
        marker: &str,
        body: &OutboundBody,
    ) -> Result<(), GitHubApiError> {
        for comment in self.our_comments(issue).await? {
            let shown = comment.split_marker().filter(|(_, own)| *own == marker);
            if shown.is_none_or(|(text, _)| text == first_piece(body)) {
                continue;
            }
            match self.edit_comment(CommentId(comment.id), marker, body).await {
                Ok(_) | Err(GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Returns the current texts of those of our newest comments that are older than `before`.
    pub async fn our_comment_texts(
        &self,
        issue: IssueNo,
        before: CommentId,
    ) -> Result<Vec<String>, GitHubApiError> {
        let ours = self.our_comments(issue).await?.into_iter().filter(|comment| comment.id < before.0);
        Ok(ours.filter_map(|comment| comment.body).collect())
    }

    async fn our_comments(&self, issue: IssueNo) -> Result<Vec<CommentResponse>, GitHubApiError> {
        let mut comments = self.newest_comments(issue).await?;
        let bot = self.github().bot_for_installation(self.installation()).await?.id;
        comments.retain(|comment| comment.is_written_by(bot));
        Ok(comments)
    }

    /// Returns the comment with this marker, and its text without the marker.
    pub async fn read_comment(
        &self,
        issue: IssueNo,
        marker: &str,
    ) -> Result<Option<(Comment, String)>, GitHubApiError> {
        let (there, line) = (self.newest_comments(issue).await?, marker_line(marker, 0)?);
        let Some(kept) = self.keep_oldest(&there, &line).await? else { return Ok(None) };
        let listed = there.iter().find(|listed| listed.id == kept.id.0);
        let text = listed.and_then(CommentResponse::split_marker).map(|(text, _)| text).unwrap_or_default();
        Ok(Some((kept, text)))
    }

    /// Replaces the text of one of our comments and keeps the comment's marker. Text that does not fit into one comment
    /// is dropped, because an edit cannot add a second comment.
    pub async fn edit_comment(
        &self,
        id: CommentId,
        marker: &str,
        body: &OutboundBody,
    ) -> Result<Comment, GitHubApiError> {
        let text = format!("{}\n\n{}", first_piece(body), marker_line(marker, 0)?);
        let edit = self.request(&EDIT_COMMENT, &[&id.to_string()]).body(json!({ "body": text }));
        let edit = edit.priority(WritePriority::StatusUpdate);
        self.write(edit).await?.json::<CommentResponse>()?.to_comment()
    }

    /// Replaces the text of our comment and changes the issue's labels in one write. Returns whether the labels
    /// changed. The comment is edited even if they did not.
    ///
    /// # Errors
    /// [`GitHubApiError::NotFound`] if the comment was deleted.
    pub async fn edit_and_label(
        &self,
        comment: &str,
        marker: &str,
        body: &OutboundBody,
        change: &LabelChange<'_>,
    ) -> Result<bool, GitHubApiError> {
        let mut fields = self.label_mutations(change).await?;
        let text = format!("{}\n\n{}", first_piece(body), marker_line(marker, 0)?);
        fields.push(GraphQlField {
            alias: "edit",
            mutation: "updateIssueComment",
            input_type: "UpdateIssueCommentInput",
            selection: "clientMutationId",
            input: json!({ "id": comment, "body": text }),
        });
        let done = self.mutate(&EDIT_AND_LABEL, &fields, WritePriority::StatusUpdate).await?;
        done.field(&EDIT_AND_LABEL, "edit")?;
        Ok(self.finish_label_change(&EDIT_AND_LABEL, &done, &fields, change).await.is_ok())
    }

    /// Adds a reaction. GitHub ignores a reaction that already exists.
    pub async fn react(&self, on: ReactionTarget, reaction: Reaction) -> Result<(), GitHubApiError> {
        let react = match on {
            ReactionTarget::Issue(number) => self.request(&REACT_ISSUE, &[&number.to_string()]),
            ReactionTarget::Comment(id) => self.request(&REACT_COMMENT, &[&id.to_string()]),
        };
        let priority = if reaction == Reaction::ThumbsDown {
            WritePriority::Rejection
        } else {
            WritePriority::Acknowledgement
        };
        self.write(react.body(json!({ "content": reaction.as_str() })).priority(priority)).await.map(drop)
    }

    async fn post_comment(&self, issue: IssueNo, text: &str) -> Result<Comment, GitHubApiError> {
        let post = self.request(&POST_COMMENT, &[&issue.to_string()]).body(json!({ "body": text }));
        self.write(post.priority(WritePriority::NewComment)).await?.json::<CommentResponse>()?.to_comment()
    }

    /// Returns our oldest comment that ends in `line`, and deletes all newer comments that end in it. Such duplicates
    /// arise because GitHub can omit a new comment from a listing.
    async fn keep_oldest(
        &self,
        there: &[CommentResponse],
        line: &str,
    ) -> Result<Option<Comment>, GitHubApiError> {
        if there.is_empty() {
            return Ok(None);
        }
        let bot = self.github().bot_for_installation(self.installation()).await?.id;
        let mut ours: Vec<&CommentResponse> =
            there.iter().filter(|c| c.is_ours_with_marker(bot, line)).collect();
        ours.sort_by_key(|comment| comment.id);
        let Some((keep, doubles)) = ours.split_first() else {
            return Ok(None);
        };
        let kept = keep.to_comment()?;
        for double in doubles {
            self.delete_duplicate(double.id, &kept).await?;
        }
        Ok(Some(kept))
    }

    /// Returns the last pages of an issue's comments. GitHub lists the oldest comments first and offers no other order
    /// for this listing.
    async fn newest_comments(&self, issue: IssueNo) -> Result<Vec<CommentResponse>, GitHubApiError> {
        let page = |page: usize| -> ApiRequest {
            self.request(&COMMENTS, &[&issue.to_string()]).query("per_page", 100).query("page", page)
        };
        let first: ApiResponse = self.send(page(1)).await?;
        let last = self.page_count(&first, page).await?;
        let oldest = last.saturating_sub(COMMENT_SEARCH_PAGES - 1).max(1);
        let mut comments = if oldest == 1 { first.items(None)? } else { Vec::new() };
        for number in oldest.max(2)..=last {
            comments.extend(self.send(page(number)).await?.items::<CommentResponse>(None)?);
        }
        Ok(comments)
    }
}

/// Returns the first piece of a body, for targets that can hold only one piece of text.
pub(super) fn first_piece(body: &OutboundBody) -> String {
    body.pieces().into_iter().next().unwrap_or_default()
}

/// Returns the hidden marker line of a comment. If a body is split into several pieces, the marker of each piece after
/// the first ends in the piece's number.
pub(super) fn marker_line(marker: &str, piece: usize) -> Result<String, GitHubApiError> {
    let sound = (1..=MARKER_CHARS).contains(&marker.len())
        && !marker.contains("--")
        && marker.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:/#".contains(&b));
    if !sound {
        return Err(GitHubApiError::Invalid(format!("`{marker}` cannot be a comment's marker")));
    }
    Ok(match piece {
        0 => format!("<!-- countersign:{marker} -->"),
        n => format!("<!-- countersign:{marker}/{} -->", n + 1),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_with_html_comment_end_is_refused() {
        assert_eq!(marker_line("8123-4/gate:2", 0).unwrap(), "<!-- countersign:8123-4/gate:2 -->");
        assert_eq!(marker_line("a", 1).unwrap(), "<!-- countersign:a/2 -->");
        for bad in ["", "a-->b", "a\nb", "a b", "a--b"] {
            assert!(matches!(marker_line(bad, 0), Err(GitHubApiError::Invalid(_))), "{bad:?}");
        }
    }

    fn comment_response(id: u64, body: &str) -> CommentResponse {
        CommentResponse {
            id: 1,
            node_id: String::new(),
            user: Some(GitHubUser { id, login: "x".into(), kind: String::new() }),
            body: Some(body.into()),
            html_url: String::new(),
            created_at: String::new(),
            updated_at: String::new(),
        }
    }

    #[test]
    fn marker_is_accepted_only_on_the_last_line_of_our_own_comment() {
        let line = marker_line("m", 0).unwrap();
        assert!(
            comment_response(5, &format!("text\r\n\r\n{line}\r\n")).is_ours_with_marker(UserId(5), &line)
        );
        assert!(
            !comment_response(6, &format!("text\n\n{line}")).is_ours_with_marker(UserId(5), &line),
            "a stranger's copy"
        );
        assert!(
            !comment_response(5, &format!("{line}\nquoted")).is_ours_with_marker(UserId(5), &line),
            "not the last line"
        );
    }
}
