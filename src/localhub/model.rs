//! State of localhub. It consists of plain rows, which are written to `hub.json` after every change. This module
//! contains only lookups; changes are in `transaction.rs`, and the JSON format is in `json.rs`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::types::{CommentId, InstallationId, Oid, RepoId, RepoName, Role, Timestamp, UserId};

/// Id of the first object. Objects of all types share one counter, so that no two objects of different types have the
/// same id.
const FIRST_ID: u64 = 1001;

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubState {
    pub(super) next_id: u64,
    pub(super) accounts: BTreeMap<UserId, HubAccount>,
    pub(super) apps: BTreeMap<u64, HubApp>,
    pub(super) installations: BTreeMap<InstallationId, HubInstallation>,
    pub(super) repositories: BTreeMap<RepoId, HubRepository>,
    /// Former `owner/name`s of repositories in lower case; requests for them are answered with 301.
    pub(super) renamed: BTreeMap<String, RepoId>,
    /// Installation tokens by their SHA-256 hash. The tokens themselves are not stored.
    pub(super) tokens: BTreeMap<String, HubToken>,
    pub(super) deliveries: Vec<HubDelivery>,
    /// Submitted manifests, by code, whose code has not been exchanged for credentials yet.
    pub(super) conversions: BTreeMap<String, HubManifestConversion>,
    /// Access token of the pages. It is kept across restarts, so that printed links stay valid.
    #[serde(default)]
    pub(super) page_token: String,
}

impl Default for HubState {
    fn default() -> Self {
        Self {
            next_id: FIRST_ID,
            accounts: BTreeMap::new(),
            apps: BTreeMap::new(),
            installations: BTreeMap::new(),
            repositories: BTreeMap::new(),
            renamed: BTreeMap::new(),
            tokens: BTreeMap::new(),
            deliveries: Vec::new(),
            conversions: BTreeMap::new(),
            page_token: String::new(),
        }
    }
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubAccount {
    pub(super) id: UserId,
    pub(super) login: String,
    /// App that this account is the bot of; `None` for a person.
    pub(super) app: Option<u64>,
    pub(super) created_at: Timestamp,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubApp {
    pub(super) id: u64,
    pub(super) slug: String,
    pub(super) name: String,
    pub(super) owner: UserId,
    pub(super) bot: UserId,
    pub(super) client_id: String,
    pub(super) permissions: BTreeMap<String, String>,
    pub(super) events: BTreeSet<String>,
    pub(super) webhook_url: Option<String>,
    pub(super) webhook_secret: String,
    pub(super) hook_id: u64,
    pub(super) external_url: String,
    /// Private key in PKCS#1 PEM format. GitHub keeps only the public key; localhub keeps the private key because the
    /// manifest flow returns it once.
    pub(super) pem: String,
    pub(super) created_at: Timestamp,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubInstallation {
    pub(super) id: InstallationId,
    pub(super) app: u64,
    pub(super) account: UserId,
    pub(super) repositories: BTreeSet<RepoId>,
    pub(super) suspended_at: Option<Timestamp>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubToken {
    pub(super) installation: InstallationId,
    pub(super) expires_at: Timestamp,
    /// Permissions of the token. They are fewer than the installation's if the token request asked for fewer.
    pub(super) permissions: BTreeMap<String, String>,
    pub(super) repositories: Option<BTreeSet<RepoId>>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubRepository {
    pub(super) id: RepoId,
    pub(super) owner: UserId,
    pub(super) name: String,
    pub(super) private: bool,
    pub(super) default_branch: String,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) pushed_at: Timestamp,
    pub(super) roles: BTreeMap<UserId, Role>,
    pub(super) labels: Vec<HubLabel>,
    /// Most recent number given to an issue or pull request.
    pub(super) last_number: u64,
    pub(super) issues: BTreeMap<u64, HubIssue>,
    /// Numbers of deleted issues; requests for them are answered with 410.
    pub(super) deleted: BTreeSet<u64>,
    pub(super) refuses_drafts: bool,
    #[serde(default)]
    pub(super) checks: Vec<HubCheckRun>,
    #[serde(default)]
    pub(super) statuses: Vec<HubCommitStatus>,
    #[serde(default)]
    pub(super) fame: RepositoryProfile,
}

/// Public profile of a repository, used by searches.
#[derive(Debug, Serialize, Deserialize, Clone, Default)]
pub struct RepositoryProfile {
    pub stars: u64,
    /// SPDX id of the detected licence.
    pub licence: Option<String>,
    pub description: String,
    pub topics: Vec<String>,
    #[serde(default)]
    pub homepage: Option<String>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubCheckRun {
    pub(super) id: u64,
    /// Id of the check suite, which all checks of an App on the same commit share.
    pub(super) suite: u64,
    pub(super) app: u64,
    pub(super) name: String,
    pub(super) head: Oid,
    /// Branch whose head was the commit when the check was created.
    pub(super) branch: Option<String>,
    pub(super) external_id: Option<String>,
    pub(super) details_url: Option<String>,
    /// Status of the check: `queued`, `in_progress` or `completed`.
    pub(super) status: String,
    pub(super) conclusion: Option<String>,
    /// Fork for whose pull request the job ran.
    #[serde(default)]
    pub(super) fork: Option<RepoId>,
    #[serde(default)]
    pub(super) reported: bool,
    pub(super) title: Option<String>,
    pub(super) summary: Option<String>,
    pub(super) annotations: Vec<HubAnnotation>,
    pub(super) started_at: Timestamp,
    pub(super) completed_at: Option<Timestamp>,
}

/// A commit status, reported by a CI system that creates no checks.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubCommitStatus {
    pub(super) id: u64,
    pub(super) head: Oid,
    pub(super) context: String,
    /// State of the commit status: `pending`, `success`, `failure` or `error`.
    pub(super) state: String,
    pub(super) description: Option<String>,
    pub(super) by: UserId,
    pub(super) at: Timestamp,
}

/// An annotation on lines of a file.
#[derive(Debug, Serialize, Deserialize, Clone, PartialEq, Eq)]
pub struct HubAnnotation {
    pub path: String,
    pub start_line: u64,
    pub end_line: u64,
    /// Level of the annotation: `notice`, `warning` or `failure`.
    pub annotation_level: String,
    pub title: Option<String>,
    pub message: String,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubLabel {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) color: String,
    pub(super) description: Option<String>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubIssue {
    pub(super) id: u64,
    pub(super) number: u64,
    pub(super) title: String,
    pub(super) body: Option<String>,
    pub(super) author: UserId,
    /// User who edited the body last.
    #[serde(default)]
    pub(super) editor: Option<UserId>,
    #[serde(default)]
    pub(super) edited_at: Option<Timestamp>,
    pub(super) open: bool,
    /// Whether the conversation is locked. In that case, only collaborators may comment, and nobody may react.
    #[serde(default)]
    pub(super) locked: bool,
    pub(super) state_reason: Option<String>,
    pub(super) closed_at: Option<Timestamp>,
    pub(super) closed_by: Option<UserId>,
    pub(super) labels: Vec<String>,
    pub(super) comments: Vec<HubComment>,
    pub(super) reactions: Vec<HubReaction>,
    pub(super) events: Vec<HubTimelineEvent>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) pull: Option<HubPullRequest>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubComment {
    pub(super) id: CommentId,
    pub(super) author: UserId,
    pub(super) body: String,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    pub(super) edits: usize,
    pub(super) reactions: Vec<HubReaction>,
    /// Whether the comment was written as a reply to an email.
    #[serde(default)]
    pub(super) by_email: bool,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubReaction {
    pub(super) id: u64,
    pub(super) user: UserId,
    pub(super) content: String,
    pub(super) created_at: Timestamp,
}

/// A timeline entry that is not a comment.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubTimelineEvent {
    pub(super) id: u64,
    /// GitHub's name for the event, such as `labeled`, `unlabeled`, `closed`, `reopened` or `renamed`.
    pub(super) event: String,
    pub(super) actor: UserId,
    pub(super) at: Timestamp,
    pub(super) label: Option<HubLabel>,
    pub(super) rename: Option<(String, String)>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubPullRequest {
    pub(super) id: u64,
    pub(super) draft: bool,
    pub(super) head: String,
    pub(super) base: String,
    /// Most recent head commit. It is kept when the branch is deleted.
    pub(super) head_oid: Oid,
    pub(super) base_oid: Oid,
    pub(super) merged_at: Option<Timestamp>,
    pub(super) merged_by: Option<UserId>,
    pub(super) merge_commit: Option<Oid>,
    pub(super) reviews: Vec<HubReview>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubReview {
    pub(super) id: u64,
    pub(super) user: UserId,
    /// State of the review: `APPROVED`, `CHANGES_REQUESTED` or `COMMENTED`.
    pub(super) state: String,
    pub(super) body: String,
    pub(super) commit: Oid,
    pub(super) at: Timestamp,
    #[serde(default)]
    pub(super) comments: Vec<HubLineComment>,
}

/// A review comment on a line of a file.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubLineComment {
    pub(super) id: u64,
    pub(super) path: String,
    pub(super) line: u64,
    pub(super) body: String,
    /// Id of the first comment in the thread, if this comment is a reply.
    #[serde(default)]
    pub(super) reply_to: Option<u64>,
}

/// One webhook delivery; its body is in `deliveries/<guid>.json`.
#[derive(Debug, Serialize, Deserialize, Clone)]
pub struct HubDelivery {
    pub(super) id: u64,
    pub guid: String,
    pub(super) app: u64,
    pub event: String,
    pub action: Option<String>,
    pub(super) installation: Option<InstallationId>,
    pub(super) repository: Option<RepoId>,
    pub(super) redelivery: bool,
    pub(super) at: Timestamp,
    /// HTTP status of the receiver's response. `None` if the delivery has not been tried yet; 0 if nobody responded.
    pub status: Option<u16>,
}

#[derive(Serialize, Deserialize, Clone)]
pub(super) struct HubManifestConversion {
    pub(super) app: u64,
    pub(super) client_secret: String,
    pub(super) at: Timestamp,
}

impl HubState {
    pub(super) fn fresh_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(super) fn account_named(&self, login: &str) -> Option<&HubAccount> {
        self.accounts.values().find(|a| a.login.eq_ignore_ascii_case(login))
    }

    pub(super) fn login(&self, user: UserId) -> String {
        self.accounts.get(&user).map_or_else(|| "ghost".to_owned(), |a| a.login.clone())
    }

    pub(super) fn name_of(&self, repo: &HubRepository) -> RepoName {
        RepoName { owner: self.login(repo.owner), name: repo.name.clone() }
    }

    pub(super) fn repository_named(&self, owner: &str, name: &str) -> Option<&HubRepository> {
        self.repositories
            .values()
            .find(|r| r.name.eq_ignore_ascii_case(name) && self.login(r.owner).eq_ignore_ascii_case(owner))
    }

    pub(super) fn app_by_slug(&self, slug: &str) -> Option<&HubApp> {
        self.apps.values().find(|a| a.slug.eq_ignore_ascii_case(slug))
    }

    pub(super) fn installations_on(&self, repo: RepoId) -> impl Iterator<Item = &HubInstallation> {
        self.installations.values().filter(move |i| i.repositories.contains(&repo))
    }
}

impl HubRepository {
    /// Returns the role of `user` in this repository. The owner has admin; in a public repository, everybody has at
    /// least read.
    pub(super) fn role_of(&self, user: UserId) -> Role {
        if user == self.owner {
            return Role::Admin;
        }
        let least = if self.private { Role::None } else { Role::Read };
        self.roles.get(&user).copied().unwrap_or(least).max(least)
    }

    pub(super) fn label(&self, name: &str) -> Option<&HubLabel> {
        self.labels.iter().find(|l| l.name.eq_ignore_ascii_case(name))
    }

    pub(super) fn find_comment(&self, id: CommentId) -> Option<(&HubIssue, &HubComment)> {
        self.issues.values().find_map(|i| i.comments.iter().find(|c| c.id == id).map(|c| (i, c)))
    }
}
