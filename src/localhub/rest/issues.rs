//! Routes for issues, comments, labels, reactions and the history of issues.

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::{HubPermissionLevel, RestCall, RestError, RestResult};
use crate::{
    localhub::{
        json::REACTIONS,
        model::{HubIssue, HubRepository, HubState},
        server::HubReply,
    },
    types::{CommentId, IssueNo, RepoId, Timestamp},
};

/// Permissions to read comments and labels. For a pull request, the `pull_requests` permission suffices too.
const READ: [(&str, HubPermissionLevel); 2] =
    [("issues", HubPermissionLevel::Read), ("pull_requests", HubPermissionLevel::Read)];
const WRITE: [(&str, HubPermissionLevel); 2] =
    [("issues", HubPermissionLevel::Write), ("pull_requests", HubPermissionLevel::Write)];

#[derive(Deserialize)]
struct CommentTextBody {
    body: Option<String>,
}

#[derive(Deserialize)]
struct NewIssueBody {
    title: String,
    body: Option<String>,
    #[serde(default)]
    labels: Vec<String>,
}

#[derive(Deserialize)]
struct IssuePatchBody {
    title: Option<String>,
    body: Option<String>,
    state: Option<String>,
}

#[derive(Deserialize)]
struct NewReactionBody {
    content: String,
}

#[derive(Deserialize)]
struct NewLabelBody {
    name: String,
    color: Option<String>,
    description: Option<String>,
}

#[derive(Deserialize)]
struct LabelNamesBody {
    labels: Vec<String>,
}

impl RestCall<'_> {
    pub(super) fn issue_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        let need: &[_] = if method == "GET" { &READ } else { &WRITE };
        let repo = || self.repo(owner, name, need);
        match (method, rest) {
            ("GET", ["issues"]) => self.issues(repo()?),
            (_, ["issues", "comments", id, rest @ ..]) => {
                let id = id.parse().map(CommentId).map_err(|_| RestError::not_found())?;
                self.comment_route(method, repo()?, id, rest)
            }
            ("GET", ["issues", number]) => {
                let body = self.with_issue(repo()?, number, |s, r, i| self.json(s).issue(r, i))?;
                Ok(self.ok(&body))
            }
            ("POST", ["issues"]) => self.new_issue(repo()?),
            // GitHub accepts POST for PATCH on existing resources.
            ("PATCH" | "POST", ["issues", number]) => self.patch_issue(repo()?, number),
            ("GET", ["issues", number, "comments"]) => self.comments(repo()?, number),
            ("POST", ["issues", number, "comments"]) => self.new_comment(repo()?, number),
            ("GET", ["issues", number, "events"]) => self.issue_events(repo()?, number),
            ("POST", ["issues", number, "reactions"]) => {
                let repo = repo()?;
                self.react(repo, self.require_issue(repo, number)?, None)
            }
            (_, ["issues", number, "labels", rest @ ..]) => self.label_route(method, repo()?, number, rest),
            ("POST", ["labels"]) => self.new_label(repo()?),
            ("GET", ["labels", label]) => self.get_label(repo()?, label),
            ("DELETE", ["labels", label]) => self.delete_label(repo()?, label),
            _ => self.unknown_route(),
        }
    }

    fn issues(&self, repo: RepoId) -> RestResult {
        let state = self.request.query("state").unwrap_or("open");
        let labels: Vec<&str> =
            self.request.query("labels").unwrap_or_default().split(',').filter(|l| !l.is_empty()).collect();
        let since = self.since_parameter()?;
        let oldest_first = self.request.query("direction") == Some("asc");
        let by_update = self.request.query("sort") == Some("updated");
        let creator = self.request.query("creator").map(|login| {
            self.state(|s| s.account_named(login).map(|account| account.id))
                .ok_or_else(|| RestError::new(422, "Validation Failed"))
        });
        let creator = creator.transpose()?;
        let wanted = |i: &&HubIssue| {
            (state == "all" || (state == "open") == i.open)
                && labels.iter().all(|l| i.labels.iter().any(|x| x.eq_ignore_ascii_case(l)))
                && since.is_none_or(|t| i.updated_at >= t)
                && creator.is_none_or(|id| i.author == id)
        };
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let mut found: Vec<&HubIssue> = row.issues.values().rev().filter(wanted).collect();
            if by_update {
                found.sort_by_key(|i| std::cmp::Reverse(i.updated_at));
            }
            if oldest_first {
                found.reverse();
            }
            Some(found.into_iter().map(|i| self.json(s).issue(row, i)).collect())
        });
        Ok(self.list(rows.unwrap_or_default()))
    }

    /// Opens an issue. Creates labels that do not exist, as GitHub does for callers with push access.
    fn new_issue(&self, repo: RepoId) -> RestResult {
        let (by, input): (_, NewIssueBody) = (self.actor()?, self.body()?);
        self.check_title(Some(&input.title))?;
        self.check_text("Issue", input.body.as_deref(), false)?;
        let NewIssueBody { title, body, labels } = input;
        let number =
            self.hub.change(|c| c.open_issue(repo, by, &title, body, &labels).map_err(RestError::from))?;
        let body = self.with_issue(repo, &number.to_string(), |s, r, i| self.json(s).issue(r, i))?;
        Ok(self.created(&body))
    }

    fn patch_issue(&self, repo: RepoId, number: &str) -> RestResult {
        let (by, number) = (self.actor()?, self.require_issue(repo, number)?);
        let input: IssuePatchBody = self.body()?;
        self.check_title(input.title.as_deref())?;
        self.check_text("Issue", input.body.as_deref(), false)?;
        let (title, text) = (input.title.as_deref(), input.body.as_deref());
        self.hub.change(|c| {
            c.edit_issue(repo, number, by, title, text)?;
            match input.state.as_deref() {
                None => Ok(()),
                Some(state) => c.set_open(repo, number, by, state == "open", Some("completed")),
            }
        })?;
        let body = self.with_issue(repo, &number.to_string(), |s, r, i| self.json(s).issue(r, i))?;
        Ok(self.ok(&body))
    }

    fn check_title(&self, title: Option<&str>) -> Result<(), RestError> {
        match title {
            Some(title) if title.trim().is_empty() => {
                Err(RestError::invalid("Issue", "title", "missing_field", None))
            }
            Some(title) if title.chars().count() > 256 => {
                let message = "title is too long (maximum is 256 characters)";
                Err(RestError::invalid("Issue", "title", "custom", Some(message)))
            }
            _ => Ok(()),
        }
    }

    fn since_parameter(&self) -> Result<Option<Timestamp>, RestError> {
        let parse = |text: &str| Timestamp::parse(text).map_err(|e| RestError::new(422, e.to_string()));
        self.request.query("since").map(parse).transpose()
    }

    fn comments(&self, repo: RepoId, number: &str) -> RestResult {
        let since = self.since_parameter()?;
        let rows = self.with_issue(repo, number, |s, r, i| {
            let wanted = i.comments.iter().filter(|c| since.is_none_or(|t| c.updated_at >= t));
            wanted.map(|c| self.json(s).comment(r, i, c)).collect()
        })?;
        Ok(self.list(rows))
    }

    fn new_comment(&self, repo: RepoId, number: &str) -> RestResult {
        let (number, by) = (self.require_issue(repo, number)?, self.actor()?);
        self.require_unlocked(repo, number)?;
        let input: CommentTextBody = self.body()?;
        self.check_text("IssueComment", input.body.as_deref(), true)?;
        let text = input.body.unwrap_or_default();
        let id = self.hub.change(|c| c.comment(repo, number, by, &text).map_err(RestError::from))?;
        Ok(self.created(&self.comment_json(repo, id)?))
    }

    /// Refuses writes in a locked conversation. An App is never a collaborator, even if it has write permissions, so it
    /// may neither write nor edit comments there. Nobody may react there.
    pub(super) fn require_unlocked(&self, repo: RepoId, number: IssueNo) -> Result<(), RestError> {
        match self.with_issue(repo, &number.to_string(), |_, _, issue| issue.locked)? {
            true => Err(RestError::new(403, "Unable to create comment because issue is locked.")),
            false => Ok(()),
        }
    }

    fn comment_json(&self, repo: RepoId, id: CommentId) -> Result<Value, RestError> {
        self.with_comment(repo, id, |s, r, i, c| self.json(s).comment(r, i, c))
    }

    fn with_comment<T>(
        &self,
        repo: RepoId,
        id: CommentId,
        look: impl FnOnce(&HubState, &HubRepository, &HubIssue, &crate::localhub::model::HubComment) -> T,
    ) -> Result<T, RestError> {
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let (issue, comment) = row.find_comment(id)?;
            Some(look(s, row, issue, comment))
        })
        .ok_or_else(RestError::not_found)
    }

    fn comment_route(&self, method: &str, repo: RepoId, id: CommentId, rest: &[&str]) -> RestResult {
        let number = self.with_comment(repo, id, |_, _, i, _| IssueNo(i.number))?;
        match (method, rest) {
            // GitHub accepts POST for PATCH on existing resources, and older clients send it.
            ("PATCH" | "POST", []) => {
                let by = self.actor()?;
                self.require_unlocked(repo, number)?;
                let input: CommentTextBody = self.body()?;
                self.check_text("IssueComment", input.body.as_deref(), true)?;
                let text = input.body.unwrap_or_default();
                self.hub.change(|c| c.edit_comment(repo, id, by, &text).map_err(RestError::from))?;
                Ok(self.ok(&self.comment_json(repo, id)?))
            }
            ("DELETE", []) => {
                let by = self.actor()?;
                self.hub.change(|c| c.delete_comment(repo, id, by).map_err(RestError::from))?;
                Ok(HubReply::empty(StatusCode::NO_CONTENT))
            }
            ("POST", ["reactions"]) => self.react(repo, number, Some(id)),
            _ => self.unknown_route(),
        }
    }

    fn react(&self, repo: RepoId, number: IssueNo, comment: Option<CommentId>) -> RestResult {
        let by = self.actor()?;
        self.require_unlocked(repo, number)?;
        let input: NewReactionBody = self.body()?;
        if !REACTIONS.contains(&input.content.as_str()) {
            return Err(RestError::invalid("Reaction", "content", "invalid", None));
        }
        let (reaction, new) = self
            .hub
            .change(|c| c.react(repo, number, comment, by, &input.content).map_err(RestError::from))?;
        let status = if new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(HubReply::json(status, &self.state(|s| self.json(s).reaction(&reaction))))
    }

    fn issue_events(&self, repo: RepoId, number: &str) -> RestResult {
        let rows = self.with_issue(repo, number, |s, r, i| {
            i.events.iter().map(|e| self.json(s).event(r, e)).collect()
        })?;
        Ok(self.list(rows))
    }

    fn label_route(&self, method: &str, repo: RepoId, number: &str, rest: &[&str]) -> RestResult {
        let number = self.require_issue(repo, number)?;
        match (method, rest) {
            ("POST", []) => {
                let (by, names) = (self.actor()?, self.body::<LabelNamesBody>()?.labels);
                self.hub.change(|c| c.add_labels(repo, number, by, &names).map_err(RestError::from))?;
            }
            ("DELETE", [label]) => {
                let by = self.actor()?;
                let on = self.with_issue(repo, &number.to_string(), |_, _, i| {
                    i.labels.iter().any(|l| l.eq_ignore_ascii_case(label))
                })?;
                if !on {
                    return Err(RestError::new(404, "Label does not exist"));
                }
                self.hub.change(|c| c.remove_label(repo, number, by, label).map_err(RestError::from))?;
            }
            _ => return self.unknown_route(),
        }
        let rows = self.with_issue(repo, &number.to_string(), |s, r, i| {
            i.labels.iter().filter_map(|l| r.label(l)).map(|l| self.json(s).label(r, l)).collect()
        })?;
        Ok(self.ok(&Value::Array(rows)))
    }

    /// Deletes a label and removes it from every issue.
    fn delete_label(&self, repo: RepoId, name: &str) -> RestResult {
        self.actor()?;
        self.hub.change(|c| {
            let row = c.repo_mut(repo)?;
            row.label(name).ok_or_else(RestError::not_found)?;
            row.labels.retain(|label| !label.name.eq_ignore_ascii_case(name));
            row.issues
                .values_mut()
                .for_each(|issue| issue.labels.retain(|label| !label.eq_ignore_ascii_case(name)));
            Ok::<_, RestError>(())
        })?;
        Ok(HubReply::empty(StatusCode::NO_CONTENT))
    }

    fn get_label(&self, repo: RepoId, name: &str) -> RestResult {
        let body = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(self.json(s).label(row, row.label(name)?))
        });
        body.map(|b| self.ok(&b)).ok_or_else(RestError::not_found)
    }

    fn new_label(&self, repo: RepoId) -> RestResult {
        let input: NewLabelBody = self.body()?;
        let color = input.color.as_deref();
        if color.is_some_and(|c| c.len() != 6 || !c.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err(RestError::invalid("Label", "color", "invalid", None));
        }
        if self.state(|s| s.repositories.get(&repo).is_some_and(|r| r.label(&input.name).is_some())) {
            return Err(RestError::invalid("Label", "name", "already_exists", None));
        }
        self.actor()?;
        self.hub.change(|c| {
            c.ensure_label(repo, &input.name, color, input.description.as_deref()).map_err(RestError::from)
        })?;
        let body = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(self.json(s).label(row, row.label(&input.name)?))
        });
        body.map(|b| self.created(&b)).ok_or_else(RestError::not_found)
    }
}
