//! What a delivery says happened, in our own words: a dozen variants, `Ignored` among them.
//!
//! GitHub adds events, actions and fields as it likes. What we do not know is ignored with a reason;
//! only an event that we act on and that lacks what the act needs is an error. Nothing here asks
//! GitHub anything, and nothing here decides what follows.

mod parse;
mod payload;

use serde::Deserialize;

use crate::{
    store::DeliverySubject,
    types::{Actor, CommentId, InstallationId, IssueNo, Oid, RepoId, RepoName, Timestamp},
};

/// The ids in a payload that decide which deliveries must wait for each other. The rest is not parsed.
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

/// A payload that cannot be read as the event it is said to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the payload is not JSON: {why}")]
    NotJson { why: String },
    #[error("the `{event}` payload has no `{path}` that is {expected}")]
    Field { event: String, path: String, expected: &'static str },
}

/// A repository as a payload shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoRef {
    pub id: RepoId,
    pub name: RepoName,
    pub private: bool,
    /// Left out of some payloads.
    pub default_branch: Option<String>,
    /// Its owner is a person: it knows no triage and no maintain access. False where the payload tells no owner.
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
    /// CI has something to say of a commit.
    Ci(CiEvent),
    /// Somebody wants a check, or all of a suite, run again.
    CheckRerequested(CheckRerequestEvent),
    Repository(RepositoryEvent),
    Installation(InstallationEvent),
    InstallationRepositories {
        installation: InstallationId,
        added: Vec<(RepoId, RepoName)>,
        removed: Vec<(RepoId, RepoName)>,
        sender: Actor,
    },
    /// GitHub tries the webhook's address.
    Ping,
    /// Nothing we act on; `why` says so in a few words.
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
    /// When the issue last changed, by GitHub's clock.
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

/// A comment that was just written on an issue or a pull request. One that was edited never is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub is_pull: bool,
    pub comment: CommentId,
    /// As GraphQL knows it; `None` if it is imagined.
    pub node: Option<String>,
    pub body: String,
    pub sender: Actor,
    pub author: Actor,
    pub issue_author: Actor,
    pub created_at: Timestamp,
    pub url: String,
    /// Written by an App in someone's name; such comments command nothing.
    pub via_app: bool,
}

/// A comment that somebody else than its author edited or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommentEditedEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    pub issue: IssueNo,
    pub is_pull: bool,
    pub comment: CommentId,
    /// What it said before.
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
    /// Where the branch lives; `None` once a fork is deleted.
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
    /// The commit that was on the reviewer's page.
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

/// A check, a suite of checks or a workflow run is complete, or a status says how it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    /// The App whose check it is; a status has none.
    pub app: Option<u64>,
    pub commit: Oid,
    /// Branches that it is said to be on.
    pub branches: Vec<String>,
    /// Where the commit lives, where that is told.
    pub head_repo: Option<RepoId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRerequestEvent {
    pub repo: RepoRef,
    pub installation: InstallationId,
    /// The App whose check it is.
    pub app: u64,
    /// Empty for a suite.
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
    /// The login it belongs to.
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
    /// The events that the App subscribes to, as `app-manifest.yml` lists them. Those about the
    /// installation itself come without asking.
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

    /// Reads a verified delivery's body as the event its header names.
    pub fn parse(event_name: &str, body: &[u8]) -> Result<Self, PayloadError> {
        parse::parse(event_name, body)
    }

    /// What a delivery is about, for whoever stores it.
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

    /// The installation it came through; `None` for what is ignored, and for a ping.
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

    /// The repository it is about; `None` for what is about more or nothing.
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
    fn a_subject_is_found_among_the_rest() {
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
