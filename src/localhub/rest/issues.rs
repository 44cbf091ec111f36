//! Issues, comments, labels, reactions and their history.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answer, Call, Level, Refusal};
use crate::{
    localhub::{
        json::REACTIONS,
        model::{Issue, Repository, State},
        server::Reply,
    },
    types::{CommentId, IssueNo, RepoId, Timestamp},
};

/// Comments and labels on a pull request may also be used by its own permission.
const READ: [(&str, Level); 2] = [("issues", Level::Read), ("pull_requests", Level::Read)];
const WRITE: [(&str, Level); 2] = [("issues", Level::Write), ("pull_requests", Level::Write)];

#[derive(Deserialize)]
struct TextBody {
    body: Option<String>,
}

#[derive(Deserialize)]
struct ReactionBody {
    content: String,
}

#[derive(Deserialize)]
struct LabelBody {
    name: String,
    color: Option<String>,
    description: Option<String>,
}

/// The route takes `{"labels": […]}` or the bare list, of names or of objects with a name.
#[derive(Deserialize)]
#[serde(untagged)]
enum LabelNames {
    Object { labels: Vec<LabelName> },
    List(Vec<LabelName>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LabelName {
    Plain(String),
    Object { name: String },
}

impl LabelName {
    fn into_name(self) -> String {
        match self {
            Self::Plain(name) | Self::Object { name } => name,
        }
    }
}

#[derive(Deserialize)]
struct IssueBody {
    title: Option<String>,
    body: Option<String>,
    state: Option<String>,
    state_reason: Option<String>,
    labels: Option<Vec<LabelName>>,
}

impl Call<'_> {
    pub(super) fn issue_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> Answer {
        let need: &[_] = if method == "GET" { &READ } else { &WRITE };
        let repo = || self.repo(owner, name, need);
        match (method, rest) {
            ("GET", ["issues"]) => self.issues(repo()?),
            ("POST", ["issues"]) => self.new_issue(self.repo(owner, name, &WRITE[..1])?),
            ("GET", ["issues", "comments"]) => self.all_comments(repo()?),
            (_, ["issues", "comments", id, rest @ ..]) => {
                let id = id.parse().map(CommentId).map_err(|_| Refusal::not_found())?;
                self.comment_route(method, repo()?, id, rest)
            }
            ("GET", ["issues", number]) => {
                let body = self.with_issue(repo()?, number, |s, r, i| self.json(s).issue(r, i))?;
                Ok(self.ok(&body))
            }
            ("PATCH" | "POST", ["issues", number]) => self.edit_issue(repo()?, number),
            ("GET", ["issues", number, "comments"]) => self.comments(repo()?, number),
            ("POST", ["issues", number, "comments"]) => self.new_comment(repo()?, number),
            ("GET", ["issues", number, "events"]) => self.history(repo()?, number, false),
            ("GET", ["issues", number, "timeline"]) => self.history(repo()?, number, true),
            ("GET", ["issues", number, "reactions"]) => {
                let found = self.with_issue(repo()?, number, |s, _, i| {
                    i.reactions.iter().map(|r| self.json(s).reaction(r)).collect::<Vec<_>>()
                });
                Ok(self.list(self.of_content(found?)))
            }
            ("POST", ["issues", number, "reactions"]) => {
                let repo = repo()?;
                self.react(repo, self.number(repo, number)?, None)
            }
            ("DELETE", ["issues", number, "reactions", id]) => {
                let repo = repo()?;
                self.unreact(repo, self.number(repo, number)?, None, id)
            }
            (_, ["issues", number, "labels", rest @ ..]) => self.label_route(method, repo()?, number, rest),
            ("GET", ["labels"]) => self.labels(repo()?),
            ("POST", ["labels"]) => self.new_label(repo()?),
            ("GET", ["labels", label]) => self.one_label(repo()?, label),
            _ => self.unknown_route(),
        }
    }

    fn issues(&self, repo: RepoId) -> Answer {
        let state = self.request.query("state").unwrap_or("open");
        let labels: Vec<&str> =
            self.request.query("labels").unwrap_or_default().split(',').filter(|l| !l.is_empty()).collect();
        let since = self.since()?;
        let oldest_first = self.request.query("direction") == Some("asc");
        let wanted = |i: &&Issue| {
            (state == "all" || (state == "open") == i.open)
                && labels.iter().all(|l| i.labels.iter().any(|x| x.eq_ignore_ascii_case(l)))
                && since.is_none_or(|t| i.updated_at >= t)
        };
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let mut found: Vec<&Issue> = row.issues.values().rev().filter(wanted).collect();
            if oldest_first {
                found.reverse();
            }
            Some(found.into_iter().map(|i| self.json(s).issue(row, i)).collect())
        });
        Ok(self.list(rows.unwrap_or_default()))
    }

    fn since(&self) -> Result<Option<Timestamp>, Refusal> {
        let parse = |text: &str| Timestamp::parse(text).map_err(|e| Refusal::new(422, e.to_string()));
        self.request.query("since").map(parse).transpose()
    }

    fn new_issue(&self, repo: RepoId) -> Answer {
        let asked: IssueBody = self.body()?;
        let title = asked.title.filter(|t| !t.trim().is_empty());
        let title = title.ok_or_else(|| Refusal::invalid("Issue", "title", "missing_field", None))?;
        self.check_text("Issue", asked.body.as_deref(), false)?;
        let labels: Vec<String> = asked.labels.into_iter().flatten().map(LabelName::into_name).collect();
        let by = self.actor()?;
        let number = self
            .hub
            .change(|c| c.open_issue(repo, by, &title, asked.body, &labels).map_err(Refusal::from))?;
        let body = self.with_issue(repo, &number.to_string(), |s, r, i| self.json(s).issue(r, i))?;
        Ok(self.created(&body))
    }

    fn edit_issue(&self, repo: RepoId, number: &str) -> Answer {
        let asked: IssueBody = self.body()?;
        let (number, by) = (self.number(repo, number)?, self.actor()?);
        self.check_text("Issue", asked.body.as_deref(), false)?;
        let open = match asked.state.as_deref() {
            None => None,
            Some("open") => Some(true),
            Some("closed") => Some(false),
            Some(_) => return Err(Refusal::invalid("Issue", "state", "invalid", None)),
        };
        let labels = asked.labels.map(|l| l.into_iter().map(LabelName::into_name).collect::<Vec<_>>());
        self.hub.change(|c| {
            c.edit_issue(repo, number, by, asked.title.as_deref(), asked.body.as_deref())?;
            if let Some(labels) = &labels {
                let has = c.issue(repo, number)?.labels.clone();
                for gone in has.iter().filter(|h| !labels.iter().any(|l| l.eq_ignore_ascii_case(h))) {
                    c.remove_label(repo, number, by, gone)?;
                }
                c.add_labels(repo, number, by, labels)?;
            }
            if let Some(open) = open {
                let reason = asked.state_reason.as_deref().or(Some("completed"));
                c.set_open(repo, number, by, open, reason)?;
            }
            Ok::<_, Refusal>(())
        })?;
        let body = self.with_issue(repo, &number.to_string(), |s, r, i| self.json(s).issue(r, i))?;
        Ok(self.ok(&body))
    }

    fn comments(&self, repo: RepoId, number: &str) -> Answer {
        let since = self.since()?;
        let rows = self.with_issue(repo, number, |s, r, i| {
            let wanted = i.comments.iter().filter(|c| since.is_none_or(|t| c.updated_at >= t));
            wanted.map(|c| self.json(s).comment(r, i, c)).collect()
        })?;
        Ok(self.list(rows))
    }

    fn all_comments(&self, repo: RepoId) -> Answer {
        let since = self.since()?;
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let mut found: Vec<_> =
                row.issues.values().flat_map(|i| i.comments.iter().map(move |c| (i, c))).collect();
            found.retain(|(_, c)| since.is_none_or(|t| c.updated_at >= t));
            found.sort_by_key(|(_, c)| c.id);
            Some(found.into_iter().map(|(i, c)| self.json(s).comment(row, i, c)).collect())
        });
        Ok(self.list(rows.unwrap_or_default()))
    }

    fn new_comment(&self, repo: RepoId, number: &str) -> Answer {
        let (number, by) = (self.number(repo, number)?, self.actor()?);
        self.may_speak(repo, number)?;
        let asked: TextBody = self.body()?;
        self.check_text("IssueComment", asked.body.as_deref(), true)?;
        let text = asked.body.unwrap_or_default();
        let id = self.hub.change(|c| c.comment(repo, number, by, &text).map_err(Refusal::from))?;
        Ok(self.created(&self.comment_json(repo, id)?))
    }

    /// An App is no collaborator, whatever its permissions: in a locked conversation it may neither write nor edit a
    /// comment. Reactions are switched off there for all.
    pub(super) fn may_speak(&self, repo: RepoId, number: IssueNo) -> Result<(), Refusal> {
        match self.with_issue(repo, &number.to_string(), |_, _, issue| issue.locked)? {
            true => Err(Refusal::new(403, "Unable to create comment because issue is locked.")),
            false => Ok(()),
        }
    }

    fn comment_json(&self, repo: RepoId, id: CommentId) -> Result<Value, Refusal> {
        self.with_comment(repo, id, |s, r, i, c| self.json(s).comment(r, i, c))
    }

    fn with_comment<T>(
        &self,
        repo: RepoId,
        id: CommentId,
        look: impl FnOnce(&State, &Repository, &Issue, &crate::localhub::model::Comment) -> T,
    ) -> Result<T, Refusal> {
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let (issue, comment) = row.find_comment(id)?;
            Some(look(s, row, issue, comment))
        })
        .ok_or_else(Refusal::not_found)
    }

    fn comment_route(&self, method: &str, repo: RepoId, id: CommentId, rest: &[&str]) -> Answer {
        let number = self.with_comment(repo, id, |_, _, i, _| IssueNo(i.number))?;
        match (method, rest) {
            ("GET", []) => Ok(self.ok(&self.comment_json(repo, id)?)),
            // GitHub takes POST for PATCH on what exists, and older clients send it.
            ("PATCH" | "POST", []) => {
                let by = self.actor()?;
                self.may_speak(repo, number)?;
                let asked: TextBody = self.body()?;
                self.check_text("IssueComment", asked.body.as_deref(), true)?;
                let text = asked.body.unwrap_or_default();
                self.hub.change(|c| c.edit_comment(repo, id, by, &text).map_err(Refusal::from))?;
                Ok(self.ok(&self.comment_json(repo, id)?))
            }
            ("DELETE", []) => {
                let by = self.actor()?;
                self.hub.change(|c| c.delete_comment(repo, id, by).map_err(Refusal::from))?;
                Ok(Reply::empty(StatusCode::NO_CONTENT))
            }
            ("GET", ["reactions"]) => {
                let found = self.with_comment(repo, id, |s, _, _, c| {
                    c.reactions.iter().map(|r| self.json(s).reaction(r)).collect::<Vec<_>>()
                });
                Ok(self.list(self.of_content(found?)))
            }
            ("POST", ["reactions"]) => self.react(repo, number, Some(id)),
            ("DELETE", ["reactions", reaction]) => self.unreact(repo, number, Some(id), reaction),
            _ => self.unknown_route(),
        }
    }

    fn of_content(&self, reactions: Vec<Value>) -> Vec<Value> {
        let content = self.request.query("content");
        reactions.into_iter().filter(|r| content.is_none_or(|c| r["content"] == c)).collect()
    }

    fn react(&self, repo: RepoId, number: IssueNo, comment: Option<CommentId>) -> Answer {
        let by = self.actor()?;
        self.may_speak(repo, number)?;
        let asked: ReactionBody = self.body()?;
        if !REACTIONS.contains(&asked.content.as_str()) {
            return Err(Refusal::invalid("Reaction", "content", "invalid", None));
        }
        let (reaction, new) =
            self.hub.change(|c| c.react(repo, number, comment, by, &asked.content).map_err(Refusal::from))?;
        let status = if new { StatusCode::CREATED } else { StatusCode::OK };
        Ok(Reply::json(status, &self.state(|s| self.json(s).reaction(&reaction))))
    }

    fn unreact(&self, repo: RepoId, number: IssueNo, comment: Option<CommentId>, id: &str) -> Answer {
        let (by, id) = (self.actor()?, id.parse::<u64>().map_err(|_| Refusal::not_found())?);
        self.hub.change(|c| {
            let issue = c.issue_mut(repo, number)?;
            let reactions = match comment {
                None => Some(&mut issue.reactions),
                Some(comment) => {
                    issue.comments.iter_mut().find(|c| c.id == comment).map(|c| &mut c.reactions)
                }
            };
            let reactions = reactions.ok_or_else(Refusal::not_found)?;
            let at = reactions.iter().position(|r| r.id == id && r.user == by);
            reactions.remove(at.ok_or_else(Refusal::not_found)?);
            Ok::<_, Refusal>(())
        })?;
        Ok(Reply::empty(StatusCode::NO_CONTENT))
    }

    /// Events alone, or with the comments between them.
    fn history(&self, repo: RepoId, number: &str, comments: bool) -> Answer {
        let rows = self.with_issue(repo, number, |s, r, i| {
            let json = self.json(s);
            let mut rows: Vec<_> = i.events.iter().map(|e| (e.at, e.id, json.event(r, e))).collect();
            for comment in i.comments.iter().filter(|_| comments) {
                let mut body = json.comment(r, i, comment);
                body["event"] = json!("commented");
                body["actor"] = json.account(comment.author);
                rows.push((comment.created_at, comment.id.0, body));
            }
            rows.sort_by_key(|(at, id, _)| (*at, *id));
            rows.into_iter().map(|(_, _, body)| body).collect()
        })?;
        Ok(self.list(rows))
    }

    fn label_route(&self, method: &str, repo: RepoId, number: &str, rest: &[&str]) -> Answer {
        let number = self.number(repo, number)?;
        match (method, rest) {
            ("GET", []) => {}
            ("POST", []) => {
                let (by, names) = (self.actor()?, self.label_names()?);
                self.hub.change(|c| c.add_labels(repo, number, by, &names).map_err(Refusal::from))?;
            }
            ("DELETE", [label]) => {
                let by = self.actor()?;
                let on = self.with_issue(repo, &number.to_string(), |_, _, i| {
                    i.labels.iter().any(|l| l.eq_ignore_ascii_case(label))
                })?;
                if !on {
                    return Err(Refusal::new(404, "Label does not exist"));
                }
                self.hub.change(|c| c.remove_label(repo, number, by, label).map_err(Refusal::from))?;
            }
            _ => return self.unknown_route(),
        }
        let rows = self.with_issue(repo, &number.to_string(), |s, r, i| {
            i.labels.iter().filter_map(|l| r.label(l)).map(|l| self.json(s).label(r, l)).collect()
        })?;
        Ok(if method == "GET" { self.list(rows) } else { self.ok(&Value::Array(rows)) })
    }

    fn label_names(&self) -> Result<Vec<String>, Refusal> {
        let names = match self.body()? {
            LabelNames::Object { labels } => labels,
            LabelNames::List(labels) => labels,
        };
        Ok(names.into_iter().map(LabelName::into_name).collect())
    }

    fn labels(&self, repo: RepoId) -> Answer {
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(row.labels.iter().map(|l| self.json(s).label(row, l)).collect())
        });
        Ok(self.list(rows.unwrap_or_default()))
    }

    fn one_label(&self, repo: RepoId, name: &str) -> Answer {
        let body = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(self.json(s).label(row, row.label(name)?))
        });
        body.map(|b| self.ok(&b)).ok_or_else(Refusal::not_found)
    }

    fn new_label(&self, repo: RepoId) -> Answer {
        let asked: LabelBody = self.body()?;
        let color = asked.color.as_deref();
        if color.is_some_and(|c| c.len() != 6 || !c.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Err(Refusal::invalid("Label", "color", "invalid", None));
        }
        if self.state(|s| s.repositories.get(&repo).is_some_and(|r| r.label(&asked.name).is_some())) {
            return Err(Refusal::invalid("Label", "name", "already_exists", None));
        }
        self.actor()?;
        self.hub.change(|c| {
            c.ensure_label(repo, &asked.name, color, asked.description.as_deref()).map_err(Refusal::from)
        })?;
        let body = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(self.json(s).label(row, row.label(&asked.name)?))
        });
        body.map(|b| self.created(&b)).ok_or_else(Refusal::not_found)
    }
}
