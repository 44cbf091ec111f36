//! Webhook events in our own types.
//!
//! GitHub adds events, actions and fields at any time. An unknown event becomes `Ignored` with a reason. Only a handled
//! event that lacks a required field is an error. This module makes no calls and decides nothing.

mod parse;
mod payload;

use serde::Deserialize;

use crate::{
    store::DeliverySubject,
    types::{Actor, CommentId, InstallationId, IssueNo, Oid, RepoId, RepoName, Timestamp},
};

/// Ids in a payload that determine which deliveries must be processed one after the other. The rest of the payload is
/// not parsed.
#[derive(Deserialize)]
struct SubjectPayload {
    installation: Option<IdField<InstallationId>>,
    repository: Option<IdField<RepoId>>,
    issue: Option<IssueNumberField>,
    pull_request: Option<IssueNumberField>,
}

#[derive(Deserialize)]
struct IdField<T> {
    id: T,
}

#[derive(Deserialize)]
struct IssueNumberField {
    number: IssueNo,
}

/// Error for a payload whose fields do not match its event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the payload is not JSON: {why}")]
    NotJson { why: String },
    #[error("the `{event}` payload has no `{path}` that is {expected}")]
    Field { event: String, path: String, expected: &'static str },
}

/// A repository as described in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRef {
    pub id: RepoId,
    pub name: RepoName,
    pub private: bool,
    /// Default branch; `None` if the payload does not name it.
    pub default_branch: Option<String>,
    /// Whether the owner is a user account; such repositories have no triage and maintain roles. False if the payload
    /// has no owner.
    pub user_owned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookEvent {
    Issue(IssueEvent),
    Comment(CommentEvent),
    CommentEdited(CommentEditedEvent),
    PullRequest(PullRequestEvent),
    Review(ReviewEvent),
    ReviewComment(ReviewCommentEvent),
    /// A CI result for a commit.
    Ci(CiEvent),
    /// A user asked to rerun a check or a suite.
    CheckRerequested(CheckRerequestEvent),
    Repository(RepositoryEvent),
    Installation(InstallationEvent),
    InstallationRepositories {
        installation: InstallationId,
        added: Vec<(RepoId, RepoName)>,
        removed: Vec<(RepoId, RepoName)>,
        sender: Actor,
    },
    /// GitHub tests whether the webhook's URL responds.
    Ping,
    /// An event that we do not handle. `why` is a short reason.
    Ignored {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueEvent {
    pub action: IssueAction,
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub sender: Actor,
    pub issue_author: Actor,
    /// Time of the issue's last change, by GitHub's clock.
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssueAction {
    Opened,
    Edited,
    Closed,
    Reopened,
    Deleted,
    Transferred,
    Labeled { label: String },
    Unlabeled { label: String },
}

/// A newly created comment on an issue or a pull request. Edits of comments are not included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub is_pull: bool,
    pub comment: CommentId,
    /// GraphQL node id of the comment; `None` for a simulated comment.
    pub node: Option<String>,
    pub body: String,
    pub sender: Actor,
    pub author: Actor,
    pub issue_author: Actor,
    pub created_at: Timestamp,
    pub url: String,
    /// Whether an App wrote the comment on a user's behalf. Commands in such comments are ignored.
    pub via_app: bool,
}

/// A comment that someone other than its author edited or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentEditedEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub is_pull: bool,
    pub comment: CommentId,
    /// Text of the comment before it was edited or deleted.
    pub text: String,
    pub sender: Actor,
    pub author: Actor,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestEvent {
    pub action: PullRequestAction,
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub pull: IssueNo,
    pub author: Actor,
    pub sender: Actor,
    pub head_branch: String,
    pub head_oid: Oid,
    /// Repository of the head branch; `None` if that fork was deleted.
    pub head_repo: Option<RepoId>,
    pub base_branch: String,
    pub draft: bool,
    pub opened_at: Timestamp,
    pub closed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullRequestAction {
    Opened,
    Closed { merged: bool },
    Reopened,
    Synchronize,
    ReadyForReview,
    ConvertedToDraft,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewEvent {
    pub state: ReviewState,
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub pull: IssueNo,
    pub review: u64,
    pub body: String,
    /// Commit that the review refers to.
    pub commit_id: Option<Oid>,
    pub sender: Actor,
    pub author: Actor,
    pub submitted_at: Timestamp,
    pub url: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewState {
    Approved,
    ChangesRequested,
    Commented,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewCommentEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub pull: IssueNo,
    pub comment: CommentId,
    pub path: String,
    pub body: String,
    pub sender: Actor,
    pub author: Actor,
    pub created_at: Timestamp,
    pub url: String,
    pub via_app: bool,
}

/// A completed CI result: a check run, a check suite, a workflow run or a commit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    /// App that created the check; `None` for a commit status.
    pub app: Option<u64>,
    pub commit: Oid,
    /// Branches that, according to GitHub, contain the commit.
    pub branches: Vec<String>,
    /// Repository of the branch that the commit belongs to; `None` if GitHub does not name it.
    pub head_repo: Option<RepoId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRerequestEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    /// App that created the check.
    pub app: u64,
    /// Name of the check run; empty for a check suite.
    pub name: String,
    pub head_oid: Oid,
    pub head_branch: Option<String>,
    pub sender: Actor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryEvent {
    pub action: RepositoryAction,
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub sender: Actor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryAction {
    Renamed,
    Transferred,
    Deleted,
    Archived,
    Unarchived,
    Edited,
    Privatized,
    Publicized,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallationEvent {
    pub action: InstallationAction,
    pub installation: InstallationId,
    /// Login of the account that the App is installed on.
    pub account: String,
    pub repositories: Vec<(RepoId, RepoName)>,
    pub sender: Actor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallationAction {
    Created,
    Deleted,
    Suspended,
    Unsuspended,
    PermissionsAccepted,
}

impl WebhookEvent {
    /// Events that the App subscribes to, as listed in `app-manifest.yml`. GitHub sends events about the installation
    /// itself without a subscription.
    pub const SUBSCRIBED: &'static [&'static str] = &[
        "issues",
        "issue_comment",
        "pull_request",
        "pull_request_review",
        "pull_request_review_comment",
        "check_run",
        "check_suite",
        "workflow_run",
        "status",
        "repository",
    ];

    /// Parses the body of a verified delivery. `event_name` is the event named in the delivery's header.
    pub fn parse(event_name: &str, body: &[u8]) -> Result<Self, PayloadError> {
        parse::parse(event_name, body)
    }

    /// Returns the ids that the inbox stores to decide the order of deliveries.
    pub fn subject(event_name: &str, body: &[u8]) -> DeliverySubject {
        let Ok(named) = serde_json::from_slice::<SubjectPayload>(body) else {
            return DeliverySubject::default();
        };
        DeliverySubject {
            installation: named.installation.map(|of| of.id),
            repository: named.repository.map(|of| of.id),
            issue: named.issue.or(named.pull_request).map(|of| of.number),
            fence: matches!(event_name, "repository" | "installation" | "installation_repositories"),
        }
    }

    /// Returns the installation that the event belongs to; `None` for pings and ignored events.
    pub fn installation(&self) -> Option<InstallationId> {
        match self {
            Self::Issue(e) => Some(e.installation),
            Self::Comment(e) => Some(e.installation),
            Self::CommentEdited(e) => Some(e.installation),
            Self::PullRequest(e) => Some(e.installation),
            Self::Review(e) => Some(e.installation),
            Self::ReviewComment(e) => Some(e.installation),
            Self::Ci(e) => Some(e.installation),
            Self::CheckRerequested(e) => Some(e.installation),
            Self::Repository(e) => Some(e.installation),
            Self::Installation(e) => Some(e.installation),
            Self::InstallationRepositories { installation, .. } => Some(*installation),
            Self::Ping | Self::Ignored { .. } => None,
        }
    }

    /// Returns the repository that the event belongs to; `None` for pings, ignored events and events about an
    /// installation.
    pub fn repo(&self) -> Option<&RepoRef> {
        match self {
            Self::Issue(e) => Some(&e.repo),
            Self::Comment(e) => Some(&e.repo),
            Self::CommentEdited(e) => Some(&e.repo),
            Self::PullRequest(e) => Some(&e.repo),
            Self::Review(e) => Some(&e.repo),
            Self::ReviewComment(e) => Some(&e.repo),
            Self::Ci(e) => Some(&e.repo),
            Self::CheckRerequested(e) => Some(&e.repo),
            Self::Repository(e) => Some(&e.repo),
            Self::Installation(_) | Self::InstallationRepositories { .. } => None,
            Self::Ping | Self::Ignored { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_subject_is_built_from_the_ids_in_the_webhook_body() {
        let body =
            br#"{"action":"x","issue":{"user":{"id":1},"number":4},"repository":{"id":9,"owner":{"id":2}},
            "installation":{"id":7,"node_id":"m"}}"#;
        let found = WebhookEvent::subject("issues", body);
        let expected = DeliverySubject {
            installation: Some(InstallationId(7)),
            repository: Some(RepoId(9)),
            issue: Some(IssueNo(4)),
            fence: false,
        };
        assert_eq!(found, expected);
        assert_eq!(
            WebhookEvent::subject("pull_request", br#"{"pull_request":{"number":5}}"#).issue,
            Some(IssueNo(5))
        );
        assert!(WebhookEvent::subject("installation", br#"{"installation":{"id":7}}"#).fence);
        for nothing in [&b""[..], b"[]", b"{\"installation\":7}", b"\xff"] {
            assert_eq!(WebhookEvent::subject("issues", nothing), DeliverySubject::default());
        }
    }
}
