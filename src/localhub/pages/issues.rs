//! Lists of issues and pull requests, the form for a new issue, and the actions of the forms on thread pages.

use std::collections::BTreeMap;

use http::StatusCode;

use super::{
    HubPageError, HubPageRequest, HubPageResult,
    layout::{EscapedHtml, RepositoryTab, label_pill, relative_time},
    redirect,
};
use crate::{
    localhub::{
        HubError,
        model::{HubIssue, HubRepository, HubState},
        views::issue_labels,
    },
    types::{IssueNo, RepoId, Role, UserId},
};

/// Returns the CSS class and the word for an issue's state.
pub(super) fn state_mark(issue: &HubIssue) -> (&'static str, &'static str) {
    match &issue.pull {
        Some(pull) if pull.merged_at.is_some() => ("merged", "Merged"),
        Some(pull) if issue.open && pull.draft => ("draft", "Draft"),
        _ if issue.open => ("open", "Open"),
        Some(_) => ("stopped", "Closed"),
        None => ("merged", "Closed"),
    }
}

impl HubPageRequest<'_> {
    pub(super) fn issue_list(&self, repo: RepoId, pulls: bool) -> HubPageResult {
        let closed = self.request.query("state") == Some("closed");
        let body = self.with_repo(repo, |s, r| {
            let count = |open: bool| {
                r.issues.values().filter(|i| i.pull.is_some() == pulls && i.open == open).count()
            };
            let name = s.name_of(r);
            let path = if pulls { "pulls" } else { "issues" };
            let mut rows = String::new();
            for issue in r.issues.values().rev().filter(|i| i.pull.is_some() == pulls && i.open != closed) {
                rows.push_str(&self.issue_row(s, r, issue));
            }
            if rows.is_empty() {
                rows.push_str("<li class=muted>Nothing here.</li>");
            }
            let fresh = if pulls {
                String::new()
            } else {
                format!("<a class=\"button go\" href=\"/{name}/issues/new\">New issue</a>")
            };
            let here = |on: bool| if on { " class=here" } else { "" };
            format!(
                "<div id=list data-live><div class=bar><a{} href=\"/{name}/{path}\">{} open</a>\
                 <a{} href=\"/{name}/{path}?state=closed\">{} closed</a><span class=grow></span>{fresh}</div>\
                 <ul class=box>{rows}</ul></div>",
                here(!closed),
                count(true),
                here(closed),
                count(false)
            )
        })?;
        let (tab, title) =
            if pulls { (RepositoryTab::Pulls, "Pull requests") } else { (RepositoryTab::Issues, "Issues") };
        self.repo_page(repo, tab, title, &body)
    }

    fn issue_row(&self, state: &HubState, repo: &HubRepository, issue: &HubIssue) -> String {
        let (mark, word) = state_mark(issue);
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        let labels: String = issue_labels(repo, issue).into_iter().map(label_pill).collect();
        let comments = match issue.comments.len() {
            0 => String::new(),
            n => format!("<span class=muted title=\"comments\">💬 {n}</span>"),
        };
        format!(
            "<li><span class=\"dot {mark}\" title=\"{word}\"></span><div class=grow><a class=big href=\"/{}/{kind}/{}\">{}</a> {labels}\
             <p class=muted>#{} opened {} by {}</p></div>{comments}</li>",
            state.name_of(repo),
            issue.number,
            EscapedHtml(&issue.title),
            issue.number,
            relative_time(self.now(), issue.created_at),
            EscapedHtml(&state.login(issue.author)),
        )
    }

    pub(super) fn new_issue_form(&self, repo: RepoId) -> HubPageResult {
        let name = self.with_repo(repo, |s, r| s.name_of(r))?;
        let body = format!(
            "<h1>New issue</h1><form class=write method=post action=\"/{name}/issues\">{}\
             <input name=title placeholder=\"Title\" required autofocus>\
             <textarea name=body rows=14 placeholder=\"What should be different? Markdown works.\"></textarea>\
             <div class=bar><span class=grow></span><button class=go>Create</button></div></form>",
            self.csrf_field()
        );
        self.repo_page(repo, RepositoryTab::Issues, "New issue", &body)
    }

    pub(super) fn open_issue(&self, repo: RepoId, form: &BTreeMap<String, String>) -> HubPageResult {
        let title = form_field(form, "title")?;
        let body = form.get("body").cloned().unwrap_or_default();
        let number = self.hub.open_issue(repo, self.user()?, title, &body)?;
        let name = self.with_repo(repo, |s, r| s.name_of(r))?;
        Ok(redirect(&format!("/{name}/issues/{number}")))
    }

    /// Performs the action of a button on a thread page, if the acting user is allowed to.
    pub(super) fn act_on_issue(
        &self,
        repo: RepoId,
        number: &str,
        action: &str,
        form: &BTreeMap<String, String>,
        back: &str,
    ) -> HubPageResult {
        let by = self.user()?;
        let number = number.parse().map(IssueNo).map_err(|_| HubPageError::not_found())?;
        let author = self.with_repo(repo, |_, r| r.issues.get(&number.0).map(|i| i.author))?;
        let author = author.ok_or_else(HubPageError::not_found)?;
        let body = form.get("body").map(|b| b.trim()).unwrap_or_default();
        match action {
            "comment" => {
                let reopen = form.contains_key("reopen");
                if !body.is_empty() {
                    self.hub.comment(repo, number, by, body)?;
                }
                if form.contains_key("close") || reopen {
                    self.require_role(repo, by, Role::Triage, Some(author))?;
                    self.hub.change(|c| c.set_open(repo, number, by, reopen, Some("completed")))?;
                }
            }
            "label" => {
                self.require_role(repo, by, Role::Triage, None)?;
                self.hub.label(repo, number, by, form_field(form, "name")?)?;
            }
            "unlabel" => {
                self.require_role(repo, by, Role::Triage, None)?;
                self.hub.unlabel(repo, number, by, form_field(form, "name")?)?;
            }
            "react" => {
                let comment = form.get("comment").and_then(|c| c.parse().ok());
                let content = form_field(form, "content")?;
                if !crate::localhub::json::REACTIONS.contains(&content) {
                    return Err(HubPageError::not_found());
                }
                self.hub.change(|c| c.react(repo, number, comment, by, content).map(drop))?;
            }
            "review" => {
                let state = form_field(form, "state")?;
                if !["APPROVED", "CHANGES_REQUESTED", "COMMENTED"].contains(&state) {
                    return Err(HubPageError::not_found());
                }
                self.hub.review(repo, number, by, state, body)?;
            }
            "ready" => {
                self.require_role(repo, by, Role::Write, None)?;
                self.hub.change(|c| c.mark_ready(repo, number, by))?;
            }
            "merge" => {
                self.require_role(repo, by, Role::Write, None)?;
                self.hub.merge(repo, number, by)?;
            }
            _ => return Err(HubPageError::not_found()),
        }
        Ok(redirect(back))
    }

    /// Checks that the acting user may act on the issue. The author always may; any other user needs at least `role`.
    fn require_role(
        &self,
        repo: RepoId,
        by: UserId,
        role: Role,
        author: Option<UserId>,
    ) -> Result<(), HubPageError> {
        if author == Some(by) || self.role(repo) >= role {
            return Ok(());
        }
        let sentence = format!("That takes the role {role} in this repository. Switch to a user who has it.");
        Err(HubPageError::new(StatusCode::FORBIDDEN, sentence))
    }
}

fn form_field<'f>(form: &'f BTreeMap<String, String>, name: &str) -> Result<&'f str, HubPageError> {
    let value = form.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
    value.ok_or_else(|| HubError::Refused(format!("Fill in the field `{name}`.")).into())
}
