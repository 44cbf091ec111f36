//! Copies of the hub's state for tests and the demo.

use super::{
    Hub,
    git::HubCommit,
    lock,
    model::{HubDelivery, HubIssue, HubReaction, HubRepository, HubState},
};
use crate::types::{CommentId, IssueNo, Oid, RepoId, Role, Timestamp, UserId};

/// An issue or pull request as shown on its page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubIssueView {
    pub number: IssueNo,
    pub title: String,
    pub body: String,
    /// State of the issue: `open` or `closed`.
    pub state: String,
    pub labels: Vec<String>,
    pub author: String,
    pub comments: Vec<HubCommentView>,
    /// Reactions to the issue itself: login and content (such as `eyes` or `+1`) of each.
    pub reactions: Vec<(String, String)>,
    /// Timeline events without the comments, oldest first.
    pub timeline: Vec<HubTimelineItem>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubCommentView {
    pub id: CommentId,
    pub author: String,
    pub body: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub edits: usize,
    pub reactions: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubTimelineItem {
    /// GitHub's name for the event, such as `labeled` or `closed`.
    pub event: String,
    pub actor: String,
    /// Detail of the event: the label or the new title.
    pub detail: Option<String>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubPullRequestView {
    pub number: IssueNo,
    pub title: String,
    pub body: String,
    pub draft: bool,
    /// State of the pull request: `open` or `closed`.
    pub state: String,
    pub merged: bool,
    pub head: String,
    pub head_oid: Oid,
    pub base: String,
    pub author: String,
    pub labels: Vec<String>,
    pub reviews: Vec<HubReviewView>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubReviewView {
    pub user: String,
    pub state: String,
    pub body: String,
    pub commit: Oid,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubCommitView {
    pub oid: Oid,
    pub tree: Oid,
    pub parents: Vec<Oid>,
    pub author: String,
    pub committer: String,
    pub message: String,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubRequestView {
    pub method: String,
    /// Path of the request, relative to the API's root and including its query.
    pub path: String,
    pub status: u16,
    /// Login of the acting account, `app SLUG` for a request with an App's own token, or `anonymous`.
    pub actor: String,
}

/// An event, sent to the subscribers of [`Hub::subscribe`] after the change is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubEvent {
    pub repo: RepoId,
    pub issue: Option<IssueNo>,
    pub by: String,
    pub at: Timestamp,
    pub what: HubEventKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEventKind {
    IssueOpened { title: String },
    IssueEdited,
    IssueClosed,
    IssueReopened,
    IssueDeleted,
    Labeled { label: String },
    Unlabeled { label: String },
    Commented { id: CommentId, body: String },
    CommentEdited { id: CommentId, body: String },
    CommentDeleted { id: CommentId },
    Reacted { comment: Option<CommentId>, content: String },
    PullOpened { title: String, draft: bool, head: String },
    PullEdited { title: String },
    PullMerged,
    Reviewed { state: String, body: String },
    Checked { name: String, state: String, title: String },
    BranchMoved { branch: String, new: bool, to: Option<Oid>, subject: String },
}

impl Hub {
    pub fn issue(&self, repo: RepoId, number: IssueNo) -> Option<HubIssueView> {
        self.read(|s| Some(view_issue(s, s.repositories.get(&repo)?.issues.get(&number.0)?)))
    }

    /// Returns the pull requests of a repository, oldest first.
    pub fn pulls(&self, repo: RepoId) -> Vec<HubPullRequestView> {
        self.read(|s| {
            let issues = s.repositories.get(&repo).into_iter().flat_map(|r| r.issues.values());
            issues.filter_map(|issue| view_pull(s, issue)).collect()
        })
    }

    /// Returns the content of a file at a branch's head.
    pub fn branch_file(&self, repo: RepoId, branch: &str, path: &str) -> Option<Vec<u8>> {
        let git = self.0.git(repo);
        git.file(&git.branch(branch)?, path)
    }

    /// Returns the commits of a branch, newest first.
    pub fn log(&self, repo: RepoId, branch: &str) -> Vec<HubCommitView> {
        let git = self.0.git(repo);
        let commits = git.branch(branch).and_then(|at| git.log(at.as_str(), 1000).ok());
        commits.unwrap_or_default().into_iter().map(view_commit).collect()
    }

    /// Returns all branch names with their head commits.
    pub fn branches(&self, repo: RepoId) -> Vec<(String, Oid)> {
        self.0.git(repo).branches()
    }

    pub fn repository_id(&self, owner: &str, name: &str) -> Option<RepoId> {
        self.read(|s| s.repository_named(owner, name).map(|r| r.id))
    }

    pub fn user_id(&self, login: &str) -> Option<UserId> {
        self.read(|s| s.account_named(login).map(|a| a.id))
    }

    pub fn role(&self, repo: RepoId, user: UserId) -> Role {
        self.read(|s| s.repositories.get(&repo).map_or(Role::None, |r| r.role_of(user)))
    }

    pub fn deliveries(&self) -> Vec<HubDelivery> {
        self.read(|s| s.deliveries.clone())
    }

    /// Returns the body of a delivery, byte for byte.
    pub fn delivery_body(&self, guid: &str) -> Option<Vec<u8>> {
        let known = self.read(|s| s.deliveries.iter().any(|d| d.guid == guid));
        known.then(|| std::fs::read(self.0.delivery_file(guid)).ok()).flatten()
    }

    /// Returns the REST requests since the start; only the most recent ones if there were very many.
    pub fn requests(&self) -> Vec<HubRequestView> {
        lock(&self.0.requests).clone()
    }

    /// Calls `watcher` after every REST request that changed something, before the response is sent. A test can use
    /// this to crash a client at the moment at which it does not know yet that its request took effect. Only the first
    /// watcher is kept.
    pub fn watch_writes(&self, watcher: impl Fn(&HubRequestView) + Send + Sync + 'static) {
        let _ = self.0.write_watch.set(Box::new(watcher));
    }

    /// Returns the number of REST requests that changed visible state.
    pub fn writes(&self) -> usize {
        self.0.writes.load(std::sync::atomic::Ordering::SeqCst)
    }
}

fn reactions(state: &HubState, reactions: &[HubReaction]) -> Vec<(String, String)> {
    reactions.iter().map(|r| (state.login(r.user), r.content.clone())).collect()
}

pub(super) fn state_word(open: bool) -> &'static str {
    if open { "open" } else { "closed" }
}

fn view_issue(state: &HubState, issue: &HubIssue) -> HubIssueView {
    HubIssueView {
        number: IssueNo(issue.number),
        title: issue.title.clone(),
        body: issue.body.clone().unwrap_or_default(),
        state: state_word(issue.open).to_owned(),
        labels: issue.labels.clone(),
        author: state.login(issue.author),
        comments: issue
            .comments
            .iter()
            .map(|c| HubCommentView {
                id: c.id,
                author: state.login(c.author),
                body: c.body.clone(),
                created_at: c.created_at,
                updated_at: c.updated_at,
                edits: c.edits,
                reactions: reactions(state, &c.reactions),
            })
            .collect(),
        reactions: reactions(state, &issue.reactions),
        timeline: issue
            .events
            .iter()
            .map(|e| HubTimelineItem {
                event: e.event.clone(),
                actor: state.login(e.actor),
                detail: e.label.as_ref().map(|l| l.name.clone()).or(e.rename.as_ref().map(|r| r.1.clone())),
                at: e.at,
            })
            .collect(),
    }
}

fn view_pull(state: &HubState, issue: &HubIssue) -> Option<HubPullRequestView> {
    let pull = issue.pull.as_ref()?;
    Some(HubPullRequestView {
        number: IssueNo(issue.number),
        title: issue.title.clone(),
        body: issue.body.clone().unwrap_or_default(),
        draft: pull.draft,
        state: state_word(issue.open).to_owned(),
        merged: pull.merged_at.is_some(),
        head: pull.head.clone(),
        head_oid: pull.head_oid.clone(),
        base: pull.base.clone(),
        author: state.login(issue.author),
        labels: issue.labels.clone(),
        reviews: pull
            .reviews
            .iter()
            .map(|r| HubReviewView {
                user: state.login(r.user),
                state: r.state.clone(),
                body: r.body.clone(),
                commit: r.commit.clone(),
            })
            .collect(),
    })
}

fn view_commit(commit: HubCommit) -> HubCommitView {
    HubCommitView {
        oid: commit.oid,
        tree: commit.tree,
        parents: commit.parents,
        author: commit.author.name,
        committer: commit.committer.name,
        message: commit.message,
        at: commit.committer.at,
    }
}

/// Returns the labels of an issue, in the repository's label order.
pub(super) fn issue_labels<'a>(
    repo: &'a HubRepository,
    issue: &'a HubIssue,
) -> Vec<&'a super::model::HubLabel> {
    issue.labels.iter().filter_map(|name| repo.label(name)).collect()
}
