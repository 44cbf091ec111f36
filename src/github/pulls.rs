//! Pull requests from our branches. Each is opened only once and then kept up to date.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    api::ApiRequest,
    comments::{first_piece, marker_line},
    error::GitHubApiError,
    manifest::{
        CREATE_PULL, EDIT_PULL, LINE_COMMENTS, PULL, PULL_COMMITS, PULLS_LIST, REPLY, REVIEW_COMMENTS,
    },
    outbound::OutboundBody,
    repo::GitHubRepo,
    wire::GitHubUser,
};
use crate::{
    limits,
    types::{IssueNo, Oid, RepoId},
};

/// The pull request that a branch should have. `head` and `base` are branches of this repository.
#[derive(Debug, Clone)]
pub struct PullRequestSpec {
    pub head: String,
    pub base: String,
    pub title: String,
    pub body: OutboundBody,
    /// Whether to open a draft pull request. If the repository's plan does not support drafts, a normal pull request
    /// titled `[WIP] …` is opened.
    pub draft: bool,
}

/// Title prefix of a pull request that should be a draft but cannot be one.
const WIP_PREFIX: &str = "[WIP] ";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequest {
    pub number: IssueNo,
    pub url: String,
    pub draft: bool,
    /// Whether the title marks the pull request as work in progress, because it could not be a draft.
    #[serde(default)]
    pub wip: bool,
    pub open: bool,
    pub merged: bool,
    /// Commit with which the pull request was merged.
    #[serde(default)]
    pub merge_commit: Option<Oid>,
    /// Whether the pull request can be merged. `None` until GitHub has computed this, which GitHub starts only when the
    /// pull request is first requested.
    #[serde(default)]
    pub mergeable: Option<bool>,
    /// Target branch, which people may change.
    #[serde(default)]
    pub base_branch: String,
    pub head_oid: Oid,
    pub head_branch: String,
    /// Repository of the head branch; `None` if that fork was deleted.
    pub head_repo: Option<RepoId>,
}

#[derive(Debug, Deserialize)]
struct PullRequestResponse {
    number: u64,
    html_url: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    draft: bool,
    state: String,
    body: Option<String>,
    user: Option<GitHubUser>,
    merged_at: Option<String>,
    merge_commit_sha: Option<Oid>,
    mergeable: Option<bool>,
    head: PullRequestRef,
    base: PullRequestRef,
}

#[derive(Debug, Deserialize)]
struct PullRequestRef {
    r#ref: String,
    sha: Oid,
    /// Repository of the branch; `null` if the fork was deleted.
    repo: Option<PullRequestRefRepository>,
}

#[derive(Debug, Deserialize)]
struct PullRequestRefRepository {
    id: u64,
}

impl From<PullRequestResponse> for PullRequest {
    fn from(found: PullRequestResponse) -> Self {
        Self {
            number: IssueNo(found.number),
            url: found.html_url,
            draft: found.draft,
            wip: found.title.starts_with(WIP_PREFIX),
            open: found.state == "open",
            merged: found.merged_at.is_some(),
            // For an open pull request this is a test merge.
            merge_commit: found.merge_commit_sha.filter(|_| found.merged_at.is_some()),
            mergeable: found.mergeable,
            base_branch: found.base.r#ref,
            head_oid: found.head.sha,
            head_branch: found.head.r#ref,
            head_repo: found.head.repo.map(|repo| RepoId(repo.id)),
        }
    }
}

/// A review comment on a line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineComment {
    /// Id of the first comment in the thread.
    pub thread: u64,
    pub path: String,
    /// Line that the comment refers to; `None` for a comment on the whole file.
    pub line: Option<u64>,
    pub body: String,
}

/// Returns the line number, in the new file, of the last line of a diff hunk. A review comment refers to that line, but
/// GitHub does not always send its number.
fn last_hunk_line(hunk: &str) -> Option<u64> {
    let (header, lines) = hunk.split_once('\n')?;
    let first: u64 = header.split_once('+')?.1.split([',', ' ']).next()?.parse().ok()?;
    let shown = lines.lines().filter(|line| !line.starts_with(['-', '\\'])).count();
    (first + shown as u64).checked_sub(1)
}

impl GitHubRepo {
    /// Returns the open pull request from `head` to `base`, after updating its body if needed; opens one if none
    /// exists. Always looks first, since GitHub allows only one such pull request. Also accepts a pull request that we
    /// opened and whose base people changed.
    pub async fn ensure_pull(&self, spec: &PullRequestSpec) -> Result<PullRequest, GitHubApiError> {
        let about = format!("pull request from {}", spec.head);
        if let Some(found) = self.open_pull(spec).await? {
            let body = first_piece(&spec.body);
            let found = match found.body.as_deref() == Some(&body) {
                true => found,
                false => self.patch_pull(IssueNo(found.number), json!({ "body": body })).await?,
            };
            return Ok(self.resolve_uncertain_write(&about, found.into()));
        }
        let created = match self.create_pull(spec, spec.draft).await {
            // Some plans have no drafts, and 422 has many causes. Try a normal one; if GitHub refuses that too, its
            // reason is the real one.
            Err(GitHubApiError::Rejected { status: 422, .. }) if spec.draft => {
                self.create_pull(spec, false).await
            }
            other => other,
        };
        match created {
            // Someone opened it since the lookup.
            Err(fault @ GitHubApiError::Rejected { status: 422, .. }) => match self.open_pull(spec).await? {
                Some(found) => Ok(self.resolve_uncertain_write(&about, found.into())),
                None => Err(self.unless_reads_lag(&about, fault)),
            },
            other => other,
        }
    }

    async fn open_pull(&self, spec: &PullRequestSpec) -> Result<Option<PullRequestResponse>, GitHubApiError> {
        let request = self.pulls_from_branch(&spec.head).await?.query("state", "open");
        let here = |end: &PullRequestRef, branch: &str| {
            end.r#ref == branch && end.repo.as_ref().is_some_and(|repo| repo.id == self.id().0)
        };
        let mut found: Vec<PullRequestResponse> = self.list_all(request).await?;
        found.retain(|pull| here(&pull.head, &spec.head));
        if let Some(at) = found.iter().position(|pull| here(&pull.base, &spec.base)) {
            return Ok(Some(found.swap_remove(at)));
        }
        let bot = if found.is_empty() { return Ok(None) } else { self.bot().await?.id.0 };
        Ok(found.into_iter().rfind(|pull| pull.user.as_ref().is_some_and(|user| user.id == bot)))
    }

    async fn create_pull(&self, spec: &PullRequestSpec, draft: bool) -> Result<PullRequest, GitHubApiError> {
        let title =
            if spec.draft && !draft { format!("{WIP_PREFIX}{}", spec.title) } else { spec.title.clone() };
        let body = json!({
            "title": title, "head": spec.head, "base": spec.base, "body": first_piece(&spec.body), "draft": draft,
        });
        Ok(self
            .write(self.request(&CREATE_PULL, &[]).body(body))
            .await?
            .json::<PullRequestResponse>()?
            .into())
    }

    /// Replaces the body of a pull request, and its title if one is given.
    pub async fn edit_pull(
        &self,
        number: IssueNo,
        title: Option<&str>,
        body: &OutboundBody,
    ) -> Result<PullRequest, GitHubApiError> {
        let mut edit = json!({ "body": first_piece(body) });
        if let Some(title) = title {
            edit["title"] = json!(title);
        }
        Ok(self.patch_pull(number, edit).await?.into())
    }

    /// Closes a pull request without merging it.
    pub async fn close_pull(&self, number: IssueNo) -> Result<PullRequest, GitHubApiError> {
        Ok(self.patch_pull(number, json!({ "state": "closed" })).await?.into())
    }

    async fn patch_pull(&self, number: IssueNo, edit: Value) -> Result<PullRequestResponse, GitHubApiError> {
        self.write(self.request(&EDIT_PULL, &[&number.to_string()]).body(edit)).await?.json()
    }

    pub async fn pull(&self, number: IssueNo) -> Result<PullRequest, GitHubApiError> {
        Ok(self
            .send(self.request(&PULL, &[&number.to_string()]).cacheable())
            .await?
            .json::<PullRequestResponse>()?
            .into())
    }

    /// Returns the first hundred commits of a pull request with their messages, oldest first, in one call. This works
    /// for closed and merged pull requests too, even after the branch was deleted.
    pub async fn commits_of_pull(&self, number: IssueNo) -> Result<Vec<(Oid, String)>, GitHubApiError> {
        #[derive(Deserialize)]
        struct PullCommitItem {
            sha: Oid,
            commit: PullCommitMessage,
        }
        #[derive(Deserialize)]
        struct PullCommitMessage {
            message: String,
        }
        let request = self.request(&PULL_COMMITS, &[&number.to_string()]).query("per_page", 100);
        let listed: Vec<PullCommitItem> = self.send(request).await?.json()?;
        Ok(listed.into_iter().map(|listed| (listed.sha, listed.commit.message)).collect())
    }

    /// Returns the line comments of a review.
    pub async fn review_comments(
        &self,
        pull: IssueNo,
        review: u64,
    ) -> Result<Vec<LineComment>, GitHubApiError> {
        #[derive(Deserialize)]
        struct ReviewCommentItem {
            id: u64,
            in_reply_to_id: Option<u64>,
            path: String,
            body: Option<String>,
            line: Option<u64>,
            original_line: Option<u64>,
            #[serde(default)]
            diff_hunk: String,
        }
        let request = self.request(&REVIEW_COMMENTS, &[&pull.to_string(), &review.to_string()]);
        let listed: Vec<ReviewCommentItem> = self.list_all(request).await?;
        let comment = |listed: ReviewCommentItem| {
            let line = listed.line.or(listed.original_line).or_else(|| last_hunk_line(&listed.diff_hunk));
            let thread = listed.in_reply_to_id.unwrap_or(listed.id);
            LineComment { thread, path: listed.path, line, body: listed.body.unwrap_or_default() }
        };
        Ok(listed.into_iter().map(comment).collect())
    }

    /// Replies in a review thread of a pull request. If `interrupted` is true, an earlier attempt may have posted the
    /// reply. In that case, the reply is looked up twice, some time apart, before it is posted, because a new reply may
    /// not be visible yet.
    pub async fn ensure_reply(
        &self,
        (pull, thread): (IssueNo, u64),
        marker: &str,
        body: &OutboundBody,
        interrupted: bool,
    ) -> Result<(), GitHubApiError> {
        #[derive(Deserialize)]
        struct ThreadReplyItem {
            user: Option<GitHubUser>,
            body: Option<String>,
        }
        let line = marker_line(marker, 0)?;
        if interrupted {
            let (doubts, now) = (self.github().uncertain_writes(), self.github().now());
            let about = format!("{} reply {marker}", self.id());
            let bot = self.bot().await?.id;
            let listed: Vec<ThreadReplyItem> =
                self.list_all(self.request(&LINE_COMMENTS, &[&pull.to_string()])).await?;
            let ours = |reply: &ThreadReplyItem| {
                reply.user.as_ref().is_some_and(|user| user.id == bot.0)
                    && reply.body.as_ref().is_some_and(|body| body.trim_end().ends_with(&line))
            };
            if listed.iter().any(ours) {
                doubts.resolve(&about);
                return Ok(());
            }
            if doubts.start_or_age(&about, now) < limits::LOOKUP_INTERVAL {
                let why = "an earlier attempt may have posted it; will look once more";
                return Err(GitHubApiError::transient(&about, why));
            }
            doubts.resolve(&about);
        }
        let reply = self.request(&REPLY, &[&pull.to_string(), &thread.to_string()]);
        let text = format!("{}\n\n{line}", first_piece(body));
        self.write(reply.body(json!({ "body": text }))).await.map(drop)
    }

    /// Returns all pull requests from this branch, whether open or closed.
    pub async fn pulls_of_branch(&self, branch: &str) -> Result<Vec<PullRequest>, GitHubApiError> {
        let request = self.pulls_from_branch(branch).await?.query("state", "all");
        let found: Vec<PullRequestResponse> = self.list_all(request).await?;
        let ours =
            |pull: &PullRequestResponse| pull.head.repo.as_ref().is_some_and(|repo| repo.id == self.id().0);
        Ok(found.into_iter().filter(|p| p.head.r#ref == branch && ours(p)).map(PullRequest::from).collect())
    }

    /// Builds the request that lists a branch's pull requests. The request's filter needs the current name of the
    /// repository's owner.
    async fn pulls_from_branch(&self, branch: &str) -> Result<ApiRequest, GitHubApiError> {
        let owner = &self.verify_identity().await?.name.owner;
        Ok(self.request(&PULLS_LIST, &[]).query("head", format!("{owner}:{branch}")))
    }
}
