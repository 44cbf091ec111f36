//! Events that no webhook delivered: comments, and the labels now on an issue together with the people who added them.
//! Both are turned into synthetic deliveries.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    api::{ApiRequest, ApiResponse},
    error::GitHubApiError,
    event::RepoRef,
    manifest::{COMMENTS, ISSUE_EVENTS, ISSUES_LIST},
    repo::{GitHubRepo, parse_time},
    wire::{GitHubUser, author_or_ghost},
};
use crate::types::{Actor, DeliveryId, InstallationId, IssueNo, RepoId, Timestamp};

/// Maximum number of pages of an issue's events that are searched for the author of a label, newest page first.
const EVENT_SEARCH_PAGES: usize = 20;

/// An event in which someone added a label to an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelEvent {
    /// GitHub's unique number of the event.
    pub event: u64,
    /// Person who added the label; marked as a bot if an App acted on the person's behalf.
    pub actor: Actor,
    /// Time at which the label was added, by GitHub's clock.
    pub at: Timestamp,
}

impl LabelEvent {
    /// Returns the delivery id for [`synthetic_payload`](Self::synthetic_payload). The id is derived from the event, so
    /// that each event is handled only once.
    pub fn delivery_id(&self, repo: RepoId) -> DeliveryId {
        DeliveryId(format!("{SYNTHETIC_ID_PREFIX}{repo}-{}", self.event))
    }

    /// Returns whether this id belongs to a delivery that we created for a label found on an issue. GitHub's own ids
    /// have a different format.
    pub fn is_synthetic_delivery(id: &DeliveryId) -> bool {
        id.0.starts_with(SYNTHETIC_ID_PREFIX)
    }

    /// Returns the payload of the `issues` event that GitHub should have delivered.
    pub fn synthetic_payload(
        &self,
        repo: &RepoRef,
        installation: InstallationId,
        issue: IssueNo,
        label: &str,
    ) -> Vec<u8> {
        let body = json!({
            "action": "labeled",
            "label": { "name": label },
            "issue": { "number": issue, "updated_at": self.at.to_string() },
            "repository": repository_json(repo),
            "installation": { "id": installation },
            "sender": user_json(&self.actor),
        });
        body.to_string().into_bytes()
    }
}

/// Returns the repository in the JSON format of a webhook payload.
fn repository_json(repo: &RepoRef) -> Value {
    let owner = if repo.user_owned { "User" } else { "Organization" };
    json!({
        "id": repo.id, "full_name": repo.name.to_string(), "private": repo.private,
        "default_branch": repo.default_branch, "owner": { "type": owner },
    })
}

fn user_json(Actor { id, login, bot }: &Actor) -> Value {
    json!({ "id": id, "login": login, "type": if *bot { "Bot" } else { "User" } })
}

/// Prefix of a synthetic delivery id.
const SYNTHETIC_ID_PREFIX: &str = "labeling-";

#[derive(Deserialize)]
struct IssueEventResponse {
    id: u64,
    event: String,
    actor: Option<GitHubUser>,
    label: Option<LabelName>,
    created_at: String,
    performed_via_github_app: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct LabelName {
    name: String,
}

impl IssueEventResponse {
    fn is_about(&self, label: &str) -> bool {
        matches!(self.event.as_str(), "labeled" | "unlabeled")
            && self.label.as_ref().is_some_and(|l| l.name.eq_ignore_ascii_case(label))
    }
}

impl GitHubRepo {
    /// Returns the open issues with this label, without pull requests.
    pub async fn issues_labeled(&self, label: &str) -> Result<Vec<IssueNo>, GitHubApiError> {
        #[derive(Deserialize)]
        struct LabeledIssueItem {
            number: u64,
            pull_request: Option<serde::de::IgnoredAny>,
        }
        let request = self.request(&ISSUES_LIST, &[]).query("labels", label).query("state", "open");
        let found: Vec<LabeledIssueItem> = self.list_all(request).await?;
        Ok(found.iter().filter(|i| i.pull_request.is_none()).map(|i| IssueNo(i.number)).collect())
    }

    /// Returns the comments on an issue that were written at or after `since` and never edited. Each is returned as the
    /// `issue_comment` delivery that GitHub should have sent.
    pub async fn comments_since(
        &self,
        repo: &RepoRef,
        issue: IssueNo,
        since: Timestamp,
    ) -> Result<Vec<(DeliveryId, Vec<u8>)>, GitHubApiError> {
        let request = self.request(&COMMENTS, &[&issue.to_string()]).query("since", since);
        let mut comments: Vec<Value> = self.list_all(request).await?;
        let since = since.to_string();
        comments.retain(|c| c["created_at"] == c["updated_at"] && c["created_at"].as_str() >= Some(&since));
        if comments.is_empty() {
            return Ok(Vec::new());
        }
        let about = self.issue(issue).await?;
        let to_delivery = |comment: Value| {
            let body = json!({
                "action": "created",
                "issue": { "number": issue, "user": user_json(&about.author) },
                "repository": repository_json(repo),
                "installation": { "id": self.installation() },
                "sender": comment["user"],
                "comment": comment,
            });
            let id = DeliveryId(format!("comment-{}-{}", repo.id, body["comment"]["id"]));
            (id, body.to_string().into_bytes())
        };
        Ok(comments.into_iter().map(to_delivery).collect())
    }

    /// Returns the most recent event that added the label to the issue, or `None` if the issue's history does not show
    /// such an event.
    pub async fn newest_label_event(
        &self,
        issue: IssueNo,
        label: &str,
    ) -> Result<Option<LabelEvent>, GitHubApiError> {
        let page = |page: usize| -> ApiRequest {
            self.request(&ISSUE_EVENTS, &[&issue.to_string()]).query("per_page", 100).query("page", page)
        };
        // GitHub lists the oldest first and offers no other order.
        let first: ApiResponse = self.send(page(1)).await?;
        let last = self.page_count(&first, page).await?;
        for number in (last.saturating_sub(EVENT_SEARCH_PAGES)..=last).rev().filter(|n| *n > 0) {
            let events: Vec<IssueEventResponse> =
                if number == 1 { first.items(None)? } else { self.send(page(number)).await?.items(None)? };
            if let Some(newest) = events.into_iter().rev().find(|event| event.is_about(label)) {
                return parse_label_event(newest);
            }
        }
        Ok(None)
    }
}

fn parse_label_event(newest: IssueEventResponse) -> Result<Option<LabelEvent>, GitHubApiError> {
    if newest.event == "unlabeled" {
        return Ok(None); // taken off since the issue was listed
    }
    let mut actor = author_or_ghost(newest.actor);
    actor.bot |= newest.performed_via_github_app.is_some();
    Ok(Some(LabelEvent { event: newest.id, actor, at: parse_time(&ISSUE_EVENTS, &newest.created_at)? }))
}
