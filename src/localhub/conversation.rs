//! Actions on issues: open, comment, label, react, close. The methods of [`Hub`] act as any user and check no
//! permissions; the REST API and the pages check permissions before they call them.

use serde_json::json;

use super::{
    Hub, HubError,
    model::{HubComment, HubIssue, HubLabel, HubReaction, HubTimelineEvent},
    transaction::HubTransaction,
    views::HubEventKind,
};
use crate::types::{CommentId, IssueNo, RepoId, UserId};

/// Colour that GitHub gives a new label by default.
const PLAIN_COLOR: &str = "ededed";

impl Hub {
    pub fn open_issue(
        &self,
        repo: RepoId,
        user: UserId,
        title: &str,
        body: &str,
    ) -> Result<IssueNo, HubError> {
        self.change(|c| c.open_issue(repo, user, title, Some(body.to_owned()), &[]))
    }

    /// Changes the title and the body of an issue. Each is changed only if it is `Some`.
    pub fn edit_issue(
        &self,
        repo: RepoId,
        issue: IssueNo,
        user: UserId,
        title: Option<&str>,
        body: Option<&str>,
    ) -> Result<(), HubError> {
        self.change(|c| c.edit_issue(repo, issue, user, title, body))
    }

    pub fn comment(
        &self,
        repo: RepoId,
        issue: IssueNo,
        user: UserId,
        body: &str,
    ) -> Result<CommentId, HubError> {
        self.change(|c| c.comment(repo, issue, user, body))
    }

    /// Like [`comment`](Self::comment), but the comment is posted as a reply to an email.
    pub fn comment_by_email(
        &self,
        repo: RepoId,
        issue: IssueNo,
        user: UserId,
        body: &str,
    ) -> Result<CommentId, HubError> {
        self.change(|c| {
            let id = c.comment(repo, issue, user, body)?;
            c.comment_mut(repo, id)?.1.by_email = true;
            Ok(id)
        })
    }

    pub fn edit_comment(
        &self,
        repo: RepoId,
        comment: CommentId,
        user: UserId,
        body: &str,
    ) -> Result<(), HubError> {
        self.change(|c| c.edit_comment(repo, comment, user, body))
    }

    pub fn delete_comment(&self, repo: RepoId, comment: CommentId, user: UserId) -> Result<(), HubError> {
        self.change(|c| c.delete_comment(repo, comment, user))
    }

    /// Adds a label to an issue. Creates the label if the repository does not have it.
    pub fn label(&self, repo: RepoId, issue: IssueNo, user: UserId, name: &str) -> Result<(), HubError> {
        self.change(|c| c.add_labels(repo, issue, user, &[name.to_owned()]))
    }

    pub fn unlabel(&self, repo: RepoId, issue: IssueNo, user: UserId, name: &str) -> Result<(), HubError> {
        self.change(|c| c.remove_label(repo, issue, user, name))
    }

    pub fn close_issue(&self, repo: RepoId, issue: IssueNo, user: UserId) -> Result<(), HubError> {
        self.change(|c| c.set_open(repo, issue, user, false, Some("completed")))
    }

    pub fn reopen(&self, repo: RepoId, issue: IssueNo, user: UserId) -> Result<(), HubError> {
        self.change(|c| c.set_open(repo, issue, user, true, None))
    }

    /// Locks a conversation for everyone except collaborators, or unlocks it.
    pub fn lock(&self, repo: RepoId, issue: IssueNo, user: UserId, locked: bool) -> Result<(), HubError> {
        self.change(|c| {
            c.issue_mut(repo, issue)?.locked = locked;
            c.queue_issue_webhook(repo, issue, if locked { "locked" } else { "unlocked" }, user, vec![]);
            Ok(())
        })
    }

    /// Deletes an issue permanently. Requests for the issue are then answered with 410.
    pub fn delete_issue(&self, repo: RepoId, issue: IssueNo, user: UserId) -> Result<(), HubError> {
        self.change(|c| c.delete_issue(repo, issue, user))
    }
}

impl HubTransaction<'_> {
    pub(super) fn open_issue(
        &mut self,
        repo: RepoId,
        by: UserId,
        title: &str,
        body: Option<String>,
        labels: &[String],
    ) -> Result<IssueNo, HubError> {
        self.account(by)?;
        let number = self.new_issue(repo, by, title, body)?;
        self.publish_event(repo, Some(number), by, HubEventKind::IssueOpened { title: title.to_owned() });
        self.queue_issue_webhook(repo, number, "opened", by, vec![]);
        self.add_labels(repo, number, by, labels)?;
        Ok(number)
    }

    /// Creates the row that issues and pull requests have in common.
    pub(super) fn new_issue(
        &mut self,
        repo: RepoId,
        by: UserId,
        title: &str,
        body: Option<String>,
    ) -> Result<IssueNo, HubError> {
        let (id, at) = (self.state.fresh_id(), self.at);
        let row = self.repo_mut(repo)?;
        row.last_number += 1;
        let number = row.last_number;
        let issue = HubIssue {
            id,
            number,
            title: title.to_owned(),
            body,
            author: by,
            editor: None,
            edited_at: None,
            open: true,
            locked: false,
            state_reason: None,
            closed_at: None,
            closed_by: None,
            labels: vec![],
            comments: vec![],
            reactions: vec![],
            events: vec![],
            created_at: at,
            updated_at: at,
            pull: None,
        };
        row.issues.insert(number, issue);
        Ok(IssueNo(number))
    }

    pub(super) fn edit_issue(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        title: Option<&str>,
        body: Option<&str>,
    ) -> Result<(), HubError> {
        let before = self.issue(repo, number)?;
        let (old_title, old_body) = (before.title.clone(), before.body.clone());
        let is_pull = before.pull.is_some();
        let mut changes = serde_json::Map::new();
        if let Some(title) = title.filter(|t| *t != old_title) {
            self.issue_mut(repo, number)?.title = title.to_owned();
            changes.insert("title".into(), json!({ "from": old_title }));
            let event = HubTimelineEvent {
                rename: Some((old_title, title.to_owned())),
                ..self.new_timeline_event("renamed", by)
            };
            self.add_timeline_event(repo, number, event);
        }
        if let Some(body) = body.filter(|b| Some(*b) != old_body.as_deref()) {
            let at = self.at;
            let issue = self.issue_mut(repo, number)?;
            (issue.body, issue.editor, issue.edited_at) = (Some(body.to_owned()), Some(by), Some(at));
            changes.insert("body".into(), json!({ "from": old_body.unwrap_or_default() }));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let title = self.issue(repo, number)?.title.clone();
        let what = if is_pull { HubEventKind::PullEdited { title } } else { HubEventKind::IssueEdited };
        self.publish_event(repo, Some(number), by, what);
        self.queue_issue_webhook(repo, number, "edited", by, vec![("changes", changes.into())]);
        Ok(())
    }

    pub(super) fn set_open(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        open: bool,
        reason: Option<&str>,
    ) -> Result<(), HubError> {
        if self.issue(repo, number)?.open == open {
            return Ok(());
        }
        let at = self.at;
        let issue = self.issue_mut(repo, number)?;
        issue.open = open;
        issue.state_reason = if open { Some("reopened".into()) } else { reason.map(str::to_owned) };
        issue.closed_at = (!open).then_some(at);
        issue.closed_by = (!open).then_some(by);
        let word = if open { "reopened" } else { "closed" };
        let event = self.new_timeline_event(word, by);
        self.add_timeline_event(repo, number, event);
        self.publish_event(
            repo,
            Some(number),
            by,
            if open { HubEventKind::IssueReopened } else { HubEventKind::IssueClosed },
        );
        self.queue_issue_webhook(repo, number, word, by, vec![]);
        Ok(())
    }

    fn delete_issue(&mut self, repo: RepoId, number: IssueNo, by: UserId) -> Result<(), HubError> {
        self.issue(repo, number)?;
        self.queue_issue_webhook(repo, number, "deleted", by, vec![]);
        let row = self.repo_mut(repo)?;
        row.issues.remove(&number.0);
        row.deleted.insert(number.0);
        self.publish_event(repo, Some(number), by, HubEventKind::IssueDeleted);
        Ok(())
    }

    pub(super) fn comment(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        body: &str,
    ) -> Result<CommentId, HubError> {
        self.account(by)?;
        self.issue(repo, number)?;
        let (id, at) = (CommentId(self.state.fresh_id()), self.at);
        self.issue_mut(repo, number)?.comments.push(HubComment {
            id,
            author: by,
            body: body.to_owned(),
            created_at: at,
            updated_at: at,
            edits: 0,
            reactions: vec![],
            by_email: false,
        });
        self.publish_event(repo, Some(number), by, HubEventKind::Commented { id, body: body.to_owned() });
        self.queue_comment_webhook(repo, id, "created", by, vec![]);
        Ok(id)
    }

    pub(super) fn edit_comment(
        &mut self,
        repo: RepoId,
        id: CommentId,
        by: UserId,
        body: &str,
    ) -> Result<(), HubError> {
        let at = self.at;
        let (number, comment) = self.comment_mut(repo, id)?;
        if comment.body == body {
            return Ok(());
        }
        let from = std::mem::replace(&mut comment.body, body.to_owned());
        comment.updated_at = at;
        comment.edits += 1;
        self.publish_event(repo, Some(number), by, HubEventKind::CommentEdited { id, body: body.to_owned() });
        let changes = vec![("changes", json!({ "body": { "from": from } }))];
        self.queue_comment_webhook(repo, id, "edited", by, changes);
        Ok(())
    }

    pub(super) fn delete_comment(&mut self, repo: RepoId, id: CommentId, by: UserId) -> Result<(), HubError> {
        let (number, _) = self.comment_mut(repo, id)?;
        self.queue_comment_webhook(repo, id, "deleted", by, vec![]);
        self.issue_mut(repo, number)?.comments.retain(|c| c.id != id);
        let event = self.new_timeline_event("comment_deleted", by);
        self.add_timeline_event(repo, number, event);
        self.publish_event(repo, Some(number), by, HubEventKind::CommentDeleted { id });
        Ok(())
    }

    fn comment_mut(&mut self, repo: RepoId, id: CommentId) -> Result<(IssueNo, &mut HubComment), HubError> {
        let issues = self.repo_mut(repo)?.issues.values_mut();
        let mut found = issues.flat_map(|i| {
            let number = IssueNo(i.number);
            i.comments.iter_mut().map(move |c| (number, c))
        });
        found.find(|(_, c)| c.id == id).ok_or_else(|| HubError::Missing(format!("comment {id}")))
    }

    fn queue_comment_webhook(
        &mut self,
        repo: RepoId,
        id: CommentId,
        action: &str,
        by: UserId,
        extra: Vec<(&str, serde_json::Value)>,
    ) {
        let Ok(row) = self.repo(repo) else { return };
        let Some((issue, comment)) = row.find_comment(id) else { return };
        let json = self.json();
        let mut body =
            vec![("issue", json.issue(row, issue)), ("comment", json.comment(row, issue, comment))];
        body.extend(extra);
        self.queue_webhook(repo, "issue_comment", Some(action), by, body);
    }

    /// Returns the repository's label with this name; creates the label if it does not exist.
    pub(super) fn ensure_label(
        &mut self,
        repo: RepoId,
        name: &str,
        color: Option<&str>,
        description: Option<&str>,
    ) -> Result<HubLabel, HubError> {
        if let Some(label) = self.repo(repo)?.label(name) {
            return Ok(label.clone());
        }
        let label = HubLabel {
            id: self.state.fresh_id(),
            name: name.to_owned(),
            color: color.unwrap_or(PLAIN_COLOR).to_owned(),
            description: description.map(str::to_owned),
        };
        self.repo_mut(repo)?.labels.push(label.clone());
        Ok(label)
    }

    pub(super) fn add_labels(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        names: &[String],
    ) -> Result<(), HubError> {
        self.account(by)?;
        self.issue(repo, number)?;
        for name in names {
            let label = self.ensure_label(repo, name, None, None)?;
            let issue = self.issue_mut(repo, number)?;
            if issue.labels.iter().any(|l| l.eq_ignore_ascii_case(name)) {
                continue;
            }
            issue.labels.push(label.name.clone());
            self.record_label_change(repo, number, by, "labeled", label);
        }
        Ok(())
    }

    pub(super) fn remove_label(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        name: &str,
    ) -> Result<(), HubError> {
        let missing = || HubError::Missing(format!("label `{name}` on issue {number}"));
        let on_issue = self.issue(repo, number)?.labels.iter().any(|l| l.eq_ignore_ascii_case(name));
        let label = self.repo(repo)?.label(name).filter(|_| on_issue).cloned().ok_or_else(missing)?;
        self.issue_mut(repo, number)?.labels.retain(|l| !l.eq_ignore_ascii_case(name));
        self.record_label_change(repo, number, by, "unlabeled", label);
        Ok(())
    }

    fn record_label_change(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        by: UserId,
        word: &str,
        label: HubLabel,
    ) {
        let event = HubTimelineEvent { label: Some(label.clone()), ..self.new_timeline_event(word, by) };
        self.add_timeline_event(repo, number, event);
        let name = label.name.clone();
        let what = if word == "labeled" {
            HubEventKind::Labeled { label: name }
        } else {
            HubEventKind::Unlabeled { label: name }
        };
        self.publish_event(repo, Some(number), by, what);
        let body = self.repo(repo).map(|r| self.json().label(r, &label)).unwrap_or_default();
        self.queue_issue_webhook(repo, number, word, by, vec![("label", body)]);
    }

    /// Adds a reaction to the issue or to one of its comments. Returns whether the reaction is new.
    pub(super) fn react(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        comment: Option<CommentId>,
        by: UserId,
        content: &str,
    ) -> Result<(HubReaction, bool), HubError> {
        let (id, at) = (self.state.fresh_id(), self.at);
        let row = self.state.repositories.get_mut(&repo);
        let issue = row.and_then(|r| r.issues.get_mut(&number.0));
        let issue = issue.ok_or_else(|| HubError::Missing(format!("issue {number}")))?;
        let reactions = match comment {
            None => &mut issue.reactions,
            Some(id) => {
                let found = issue.comments.iter_mut().find(|c| c.id == id);
                &mut found.ok_or_else(|| HubError::Missing(format!("comment {id}")))?.reactions
            }
        };
        if let Some(known) = reactions.iter().find(|r| r.user == by && r.content == content) {
            return Ok((known.clone(), false));
        }
        let reaction = HubReaction { id, user: by, content: content.to_owned(), created_at: at };
        reactions.push(reaction.clone());
        self.publish_event(
            repo,
            Some(number),
            by,
            HubEventKind::Reacted { comment, content: content.to_owned() },
        );
        Ok((reaction, true))
    }
}
