//! Pull requests, reviews, commits and Git objects in GitHub's JSON representation.

use serde_json::{Value, json};

use super::{
    git::{BareRepository, FileDiff, GitSignature, HubCommit},
    json::{JsonRenderer, merge_json, node_id},
    model::{HubIssue, HubLineComment, HubPullRequest, HubRepository, HubReview},
    views::{issue_labels, state_word},
};
use crate::types::Oid;

impl JsonRenderer<'_> {
    /// Returns a pull request in the form used in lists and webhooks.
    pub(super) fn pull(&self, repo: &HubRepository, issue: &HubIssue) -> Value {
        let Some(pull) = &issue.pull else { return Value::Null };
        let (api, web) = (self.repo_api(repo), self.issue_web(repo, issue));
        let labels: Value = issue_labels(repo, issue).into_iter().map(|l| self.label(repo, l)).collect();
        json!({
            "url": format!("{api}/pulls/{}", issue.number), "id": pull.id, "node_id": node_id("PR", pull.id),
            "html_url": web, "issue_url": format!("{api}/issues/{}", issue.number),
            "number": issue.number, "state": state_word(issue.open), "locked": issue.locked, "title": issue.title,
            "user": self.account(issue.author), "body": issue.body, "labels": labels,
            "created_at": issue.created_at.to_string(), "updated_at": issue.updated_at.to_string(),
            "closed_at": issue.closed_at.map(|t| t.to_string()), "merged_at": pull.merged_at.map(|t| t.to_string()),
            "merge_commit_sha": pull.merge_commit, "draft": pull.draft,
            "author_association": self.association(repo, issue.author),
            "head": self.pull_branch(repo, &pull.head, &pull.head_oid), "base": self.pull_branch(repo, &pull.base, &pull.base_oid),
        })
    }

    /// Returns a single pull request, with counts and mergeability. As on GitHub, mergeability is unknown in the first
    /// read and known in later ones.
    pub(super) fn full_pull(&self, repo: &HubRepository, issue: &HubIssue) -> Value {
        let mut body = self.pull(repo, issue);
        let Some(pull) = &issue.pull else { return body };
        let git = self.hub.git(repo.id);
        let files = changed_files(&git, pull);
        let sum = |part: fn(&FileDiff) -> usize| files.iter().map(part).sum::<usize>();
        let mergeable = || {
            let base = git.branch(&pull.base).unwrap_or_else(|| pull.base_oid.clone());
            let known = self.hub.is_compared((repo.id, issue.number), [base.clone(), pull.head_oid.clone()]);
            known.then(|| git.merge_trees(&base, &pull.head_oid).is_some())
        };
        let mergeable = issue.open.then(mergeable).flatten();
        let more = json!({
            "merged": pull.merged_at.is_some(), "mergeable": mergeable, "rebaseable": null,
            "mergeable_state": if pull.draft { "draft" } else { "clean" },
            "merged_by": pull.merged_by.map_or(Value::Null, |u| self.account(u)),
            "comments": issue.comments.len(), "review_comments": 0, "maintainer_can_modify": false,
            "commits": git.count(&format!("{}..{}", pull.base_oid, pull.head_oid)),
            "additions": sum(|f| f.additions), "deletions": sum(|f| f.deletions), "changed_files": files.len(),
        });
        merge_json(&mut body, more);
        body
    }

    fn pull_branch(&self, repo: &HubRepository, branch: &str, oid: &Oid) -> Value {
        json!({
            "label": format!("{}:{branch}", self.state.login(repo.owner)), "ref": branch, "sha": oid,
            "user": self.account(repo.owner), "repo": self.repository(repo),
        })
    }

    pub(super) fn review(&self, repo: &HubRepository, issue: &HubIssue, review: &HubReview) -> Value {
        let web = format!("{}#pullrequestreview-{}", self.issue_web(repo, issue), review.id);
        let pull = format!("{}/pulls/{}", self.repo_api(repo), issue.number);
        json!({
            "id": review.id, "node_id": node_id("PRR", review.id), "user": self.account(review.user),
            "body": review.body, "state": review.state, "html_url": web, "pull_request_url": pull,
            "submitted_at": review.at.to_string(), "commit_id": review.commit,
            "author_association": self.association(repo, review.user),
        })
    }

    /// Returns a review comment. Like GitHub's, it contains no line number; it refers to the last line of its hunk.
    pub(super) fn line_comment(
        &self,
        repo: &HubRepository,
        issue: &HubIssue,
        of: &HubReview,
        comment: &HubLineComment,
    ) -> Value {
        let pull = format!("{}/pulls/{}", self.repo_api(repo), issue.number);
        let web = format!("{}#discussion_r{}", self.issue_web(repo, issue), comment.id);
        let mut body = json!({
            "id": comment.id, "node_id": node_id("PRRC", comment.id), "pull_request_review_id": of.id, "path": comment.path,
            "position": 1, "original_position": 1, "commit_id": of.commit, "original_commit_id": of.commit,
            "diff_hunk": format!("@@ -{0},1 +{0},1 @@\n+a line", comment.line), "user": self.account(of.user),
            "body": comment.body, "created_at": of.at.to_string(), "updated_at": of.at.to_string(), "html_url": web,
            "url": format!("{}/pulls/comments/{}", self.repo_api(repo), comment.id), "pull_request_url": pull,
            "author_association": self.association(repo, of.user),
        });
        if let Some(to) = comment.reply_to {
            merge_json(&mut body, json!({ "in_reply_to_id": to }));
        }
        body
    }

    /// Returns a commit in the form of the `git/commits` API.
    pub(super) fn git_commit(&self, repo: &HubRepository, commit: &HubCommit) -> Value {
        let (api, web) = (self.repo_api(repo), self.repo_web(repo));
        json!({
            "sha": commit.oid, "node_id": node_id("C", repo.id.0),
            "url": format!("{api}/git/commits/{}", commit.oid),
            "html_url": format!("{web}/commit/{}", commit.oid),
            "author": signature_json(&commit.author), "committer": signature_json(&commit.committer),
            "tree": { "sha": commit.tree, "url": format!("{api}/git/trees/{}", commit.tree) },
            "message": commit.message,
            "parents": commit.parents.iter().map(|p| json!({
                "sha": p, "url": format!("{api}/git/commits/{p}"), "html_url": format!("{web}/commit/{p}"),
            })).collect::<Value>(),
        })
    }

    /// Returns a commit in the form of the `commits` API.
    pub(super) fn commit(&self, repo: &HubRepository, commit: &HubCommit) -> Value {
        let (api, web) = (self.repo_api(repo), self.repo_web(repo));
        let url = format!("{api}/commits/{}", commit.oid);
        json!({
            "url": url, "sha": commit.oid, "node_id": node_id("C", repo.id.0),
            "html_url": format!("{web}/commit/{}", commit.oid), "comments_url": format!("{url}/comments"),
            "commit": {
                "url": format!("{api}/git/commits/{}", commit.oid),
                "author": signature_json(&commit.author), "committer": signature_json(&commit.committer),
                "message": commit.message, "comment_count": 0,
                "tree": { "sha": commit.tree, "url": format!("{api}/git/trees/{}", commit.tree) },
            },
            "author": self.known_author(&commit.author), "committer": self.known_author(&commit.committer),
            "parents": commit.parents.iter().map(|p| json!({
                "sha": p, "url": format!("{api}/commits/{p}"), "html_url": format!("{web}/commit/{p}"),
            })).collect::<Value>(),
        })
    }

    /// Returns the account that a `<id>+<login>@users.noreply.localhub` address belongs to.
    fn known_author(&self, who: &GitSignature) -> Value {
        let id = who.email.split_once('+').and_then(|(id, _)| id.parse().ok());
        id.map_or(Value::Null, |id| self.account(id))
    }

    pub(super) fn reference(&self, repo: &HubRepository, name: &str, oid: &Oid, kind: &str) -> Value {
        let api = self.repo_api(repo);
        json!({
            "ref": name, "node_id": node_id("REF", repo.id.0), "url": format!("{api}/git/{name}"),
            "object": { "sha": oid, "type": kind, "url": format!("{api}/git/{kind}s/{oid}") },
        })
    }
}

/// Returns the files that a pull request changes, by comparing its head with the merge base.
pub(super) fn changed_files(git: &BareRepository, pull: &HubPullRequest) -> Vec<FileDiff> {
    let base = git.merge_base(&pull.base_oid, &pull.head_oid).unwrap_or_else(|| pull.base_oid.clone());
    git.diff(&base, &pull.head_oid).unwrap_or_default()
}

fn signature_json(who: &GitSignature) -> Value {
    json!({ "name": who.name, "email": who.email, "date": who.at.to_string() })
}
