//! Pull request routes.

use serde::Deserialize;
use serde_json::Value;

use super::{HubPermissionLevel, RestCall, RestError, RestResult};
use crate::{
    localhub::{
        actions::NewPullRequest,
        model::{HubIssue, HubReview},
    },
    types::{IssueNo, RepoId},
};

#[derive(Deserialize)]
struct NewPullRequestBody {
    title: Option<String>,
    head: String,
    base: String,
    body: Option<String>,
    #[serde(default)]
    draft: bool,
}

#[derive(Deserialize)]
struct PullRequestPatchBody {
    title: Option<String>,
    body: Option<String>,
    state: Option<String>,
    base: Option<String>,
}

impl RestCall<'_> {
    pub(super) fn pull_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        let level = if method == "GET" { HubPermissionLevel::Read } else { HubPermissionLevel::Write };
        let repo = self.repo(owner, name, &[("pull_requests", level)])?;
        match (method, rest) {
            ("GET", []) => self.pulls(repo),
            ("POST", []) => self.new_pull(repo),
            ("GET", [number]) => {
                let body = self.with_pull(repo, number, |call, s, r, i| call.json(s).full_pull(r, i))?;
                Ok(self.ok(&body))
            }
            ("PATCH" | "POST", [number]) => self.edit_pull(repo, number),
            ("GET", [number, "reviews", review, "comments"]) => self.review_comments(repo, number, review),
            ("GET", [number, "comments"]) => self.all_review_comments(repo, number),
            ("POST", [number, "comments", to, "replies"]) => self.reply(repo, number, to),
            ("GET", [number, "commits"]) => self.pull_commits(repo, number),
            _ => self.unknown_route(),
        }
    }

    fn with_pull<T>(
        &self,
        repo: RepoId,
        number: &str,
        look: impl FnOnce(
            &Self,
            &crate::localhub::model::HubState,
            &crate::localhub::model::HubRepository,
            &HubIssue,
        ) -> T,
    ) -> Result<T, RestError> {
        self.with_issue(repo, number, |s, r, i| i.pull.is_some().then(|| look(self, s, r, i)))?
            .ok_or_else(RestError::not_found)
    }

    fn pulls(&self, repo: RepoId) -> RestResult {
        let state = self.request.query("state").unwrap_or("open");
        let head = self.request.query("head").map(|h| h.rsplit(':').next().unwrap_or(h));
        let base = self.request.query("base");
        let owner = self.request.query("head").and_then(|h| h.split_once(':')).map(|(owner, _)| owner);
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let other = owner.is_some_and(|o| !o.eq_ignore_ascii_case(&s.login(row.owner)));
            let wanted = |i: &&HubIssue| {
                i.pull.as_ref().is_some_and(|p| {
                    (state == "all" || (state == "open") == i.open)
                        && head.is_none_or(|h| p.head == h)
                        && base.is_none_or(|b| p.base == b)
                        && !other
                })
            };
            let found = row.issues.values().rev().filter(wanted);
            Some(found.map(|i| self.json(s).pull(row, i)).collect())
        });
        Ok(self.list(rows.unwrap_or_default()))
    }

    fn new_pull(&self, repo: RepoId) -> RestResult {
        let by = self.actor()?;
        let input: NewPullRequestBody = self.body()?;
        let title = input.title.filter(|t| !t.trim().is_empty());
        let title = title.ok_or_else(|| RestError::invalid("PullRequest", "title", "missing_field", None))?;
        self.check_text("PullRequest", input.body.as_deref(), false)?;
        let git = self.git(repo);
        let head = input.head.rsplit(':').next().unwrap_or_default().to_owned();
        let end = |field: &str, branch: &str| {
            git.branch(branch).ok_or_else(|| RestError::invalid("PullRequest", field, "invalid", None))
        };
        let (head_oid, base_oid) = (end("head", &head)?, end("base", &input.base)?);
        if git.count(&format!("{base_oid}..{head_oid}")) == 0 {
            return Err(invalid_with_message(&format!("No commits between {} and {head}", input.base)));
        }
        let number = self.hub.change(|c| {
            let row = c.repo(repo)?;
            if input.draft && row.refuses_drafts {
                return Err(RestError::new(422, "Draft pull requests are not supported in this repository."));
            }
            let mut pulls = row.issues.values().filter(|i| i.open).filter_map(|i| i.pull.as_ref());
            if pulls.any(|p| p.head == head && p.base == input.base) {
                let owner = c.state.login(row.owner);
                return Err(invalid_with_message(&format!(
                    "A pull request already exists for {owner}:{head}."
                )));
            }
            let new = NewPullRequest {
                title,
                body: input.body,
                draft: input.draft,
                head,
                base: input.base,
                head_oid,
                base_oid,
            };
            Ok(c.open_pull(repo, by, new)?)
        })?;
        let body = self.full_pull(repo, number)?;
        Ok(self.created(&body))
    }

    fn full_pull(&self, repo: RepoId, number: IssueNo) -> Result<Value, RestError> {
        self.with_pull(repo, &number.to_string(), |call, s, r, i| call.json(s).full_pull(r, i))
    }

    fn edit_pull(&self, repo: RepoId, number: &str) -> RestResult {
        let by = self.actor()?;
        let input: PullRequestPatchBody = self.body()?;
        let number = self.with_pull(repo, number, |_, _, _, i| IssueNo(i.number))?;
        self.check_text("PullRequest", input.body.as_deref(), false)?;
        if input.base.is_some() {
            return Err(RestError::new(422, "localhub keeps a pull request's base"));
        }
        let open = match input.state.as_deref() {
            None => None,
            Some("open") => Some(true),
            Some("closed") => Some(false),
            Some(_) => return Err(RestError::invalid("PullRequest", "state", "invalid", None)),
        };
        self.hub.change(|c| {
            c.edit_issue(repo, number, by, input.title.as_deref(), input.body.as_deref())?;
            if let Some(open) = open {
                c.set_open(repo, number, by, open, None)?;
            }
            Ok::<_, RestError>(())
        })?;
        Ok(self.ok(&self.full_pull(repo, number)?))
    }

    fn review_comments(&self, repo: RepoId, number: &str, review: &str) -> RestResult {
        let rows = self.with_pull(repo, number, |call, s, r, issue| {
            let mut reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
            let of = reviews.find(|of| of.id.to_string() == review)?;
            Some(of.comments.iter().map(|comment| call.json(s).line_comment(r, issue, of, comment)).collect())
        })?;
        Ok(self.list(rows.ok_or_else(RestError::not_found)?))
    }

    fn all_review_comments(&self, repo: RepoId, number: &str) -> RestResult {
        let rows = self.with_pull(repo, number, |call, s, r, issue| {
            let reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
            let of = |of: &HubReview| -> Vec<Value> {
                of.comments.iter().map(|comment| call.json(s).line_comment(r, issue, of, comment)).collect()
            };
            reviews.flat_map(of).collect()
        })?;
        Ok(self.list(rows))
    }

    fn reply(&self, repo: RepoId, number: &str, to: &str) -> RestResult {
        #[derive(Deserialize)]
        struct ThreadReplyBody {
            body: String,
        }
        let by = self.actor()?;
        let input: ThreadReplyBody = self.body()?;
        self.check_text("PullRequestReviewComment", Some(&input.body), true)?;
        let number = self.with_pull(repo, number, |_, _, _, i| IssueNo(i.number))?;
        let to = to.parse().map_err(|_| RestError::not_found())?;
        let reply = self.hub.change(|c| c.reply(repo, number, by, (to, &input.body)))?;
        let body = self.with_pull(repo, &number.to_string(), |call, s, r, issue| {
            let mut reviews = issue.pull.iter().flat_map(|pull| &pull.reviews);
            let of = reviews.find(|of| of.comments.iter().any(|comment| comment.id == reply.id))?;
            Some(call.json(s).line_comment(r, issue, of, &reply))
        })?;
        Ok(self.created(&body.ok_or_else(RestError::not_found)?))
    }

    fn pull_commits(&self, repo: RepoId, number: &str) -> RestResult {
        let range = self.with_pull(repo, number, |_, _, _, i| {
            i.pull.as_ref().map(|p| format!("{}..{}", p.base_oid, p.head_oid)).unwrap_or_default()
        })?;
        let mut commits = self.git(repo).log(&range, 250)?;
        commits.reverse();
        let rows = self.with_issue(repo, number, |s, r, _| {
            commits.iter().map(|c| self.json(s).commit(r, c)).collect()
        })?;
        Ok(self.list(rows))
    }
}

/// Returns a 422 error with a custom message.
fn invalid_with_message(message: &str) -> RestError {
    let mut refusal = RestError::invalid("PullRequest", "base", "custom", Some(message));
    if let Some(Value::Object(error)) = refusal.errors.as_mut().and_then(|e| e.get_mut(0)) {
        error.remove("field");
    }
    refusal
}
