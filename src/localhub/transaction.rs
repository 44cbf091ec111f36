//! A change in progress: the state, the time of the change, and the events to publish afterwards. Every change of the
//! hub is a method of [`HubTransaction`] (here, in `actions.rs` and in `conversation.rs`), so REST, pages and the Rust
//! API cause the same events.

use serde_json::{Map, Value, json};

use super::{
    HubError, HubInner,
    git::BareRepository,
    json::JsonRenderer,
    model::{HubAccount, HubDelivery, HubIssue, HubRepository, HubState, HubTimelineEvent},
    views::{HubEvent, HubEventKind},
};
use crate::types::{InstallationId, IssueNo, Oid, RepoId, Timestamp, UserId};

/// Maximum number of deliveries kept. Beyond that, the oldest are removed together with their bodies.
const DELIVERIES_KEPT: usize = 2000;

pub(super) struct HubTransaction<'a> {
    pub(super) state: &'a mut HubState,
    pub(super) hub: &'a HubInner,
    pub(super) at: Timestamp,
    events: Vec<HubEvent>,
}

impl<'a> HubTransaction<'a> {
    pub(super) fn new(state: &'a mut HubState, hub: &'a HubInner) -> Self {
        Self { at: (hub.now)(), state, hub, events: Vec::new() }
    }

    pub(super) fn finish(mut self) -> Vec<HubEvent> {
        self.forget_old_deliveries();
        self.events
    }

    pub(super) fn json(&self) -> JsonRenderer<'_> {
        JsonRenderer { state: self.state, hub: self.hub }
    }

    pub(super) fn git(&self, repo: RepoId) -> BareRepository {
        self.hub.git(repo)
    }

    pub(super) fn repo(&self, id: RepoId) -> Result<&HubRepository, HubError> {
        self.state.repositories.get(&id).ok_or_else(|| HubError::Missing(format!("repository {id}")))
    }

    pub(super) fn repo_mut(&mut self, id: RepoId) -> Result<&mut HubRepository, HubError> {
        let at = self.at;
        let repo = self.state.repositories.get_mut(&id);
        let repo = repo.ok_or_else(|| HubError::Missing(format!("repository {id}")))?;
        repo.updated_at = at;
        Ok(repo)
    }

    pub(super) fn issue(&self, repo: RepoId, number: IssueNo) -> Result<&HubIssue, HubError> {
        let issue = self.repo(repo)?.issues.get(&number.0);
        issue.ok_or_else(|| HubError::Missing(format!("issue {number} in repository {repo}")))
    }

    pub(super) fn issue_mut(&mut self, repo: RepoId, number: IssueNo) -> Result<&mut HubIssue, HubError> {
        let at = self.at;
        let issue = self.repo_mut(repo)?.issues.get_mut(&number.0);
        let issue = issue.ok_or_else(|| HubError::Missing(format!("issue {number} in repository {repo}")))?;
        issue.updated_at = at;
        Ok(issue)
    }

    pub(super) fn account(&self, id: UserId) -> Result<&HubAccount, HubError> {
        self.state.accounts.get(&id).ok_or_else(|| HubError::Missing(format!("user {id}")))
    }

    pub(super) fn publish_event(
        &mut self,
        repo: RepoId,
        issue: Option<IssueNo>,
        by: UserId,
        what: HubEventKind,
    ) {
        let by = self.state.login(by);
        self.events.push(HubEvent { repo, issue, by, at: self.at, what });
    }

    pub(super) fn add_timeline_event(&mut self, repo: RepoId, number: IssueNo, event: HubTimelineEvent) {
        if let Some(issue) = self.state.repositories.get_mut(&repo).and_then(|r| r.issues.get_mut(&number.0))
        {
            issue.events.push(event);
        }
    }

    pub(super) fn new_timeline_event(&mut self, word: &str, actor: UserId) -> HubTimelineEvent {
        HubTimelineEvent {
            id: self.state.fresh_id(),
            event: word.to_owned(),
            actor,
            at: self.at,
            label: None,
            rename: None,
        }
    }

    /// Queues a webhook about a repository for every installed App that subscribes to the event.
    pub(super) fn queue_webhook(
        &mut self,
        repo: RepoId,
        event: &str,
        action: Option<&str>,
        sender: UserId,
        extra: Vec<(&str, Value)>,
    ) {
        let wanted: Vec<(u64, InstallationId)> = self
            .state
            .installations_on(repo)
            .filter(|i| i.suspended_at.is_none())
            .filter(|i| self.state.apps.get(&i.app).is_some_and(|a| a.events.contains(event)))
            .map(|i| (i.app, i.id))
            .collect();
        let Some(row) = self.state.repositories.get(&repo) else { return };
        let mut body = Map::new();
        body.extend(action.map(|a| ("action".to_owned(), json!(a))));
        body.extend(extra.into_iter().map(|(k, v)| (k.to_owned(), v)));
        body.insert("repository".into(), self.json().repository(row));
        body.insert("sender".into(), self.json().account(sender));
        for (app, installation) in wanted {
            let mut body = body.clone();
            body.insert("installation".into(), JsonRenderer::installation_stub(installation));
            self.queue_delivery(app, event, action, Some(installation), Some(repo), &Value::Object(body));
        }
    }

    /// Queues a webhook of the event `issues`, with the issue and the given extra fields.
    pub(super) fn queue_issue_webhook(
        &mut self,
        repo: RepoId,
        number: IssueNo,
        action: &str,
        sender: UserId,
        extra: Vec<(&str, Value)>,
    ) {
        let Ok((row, issue)) = self.repo(repo).and_then(|r| Ok((r, self.issue(repo, number)?))) else {
            return;
        };
        let (event, mut body) = if issue.pull.is_some() {
            let pull = self.json().full_pull(row, issue);
            ("pull_request", vec![("number", json!(number.0)), ("pull_request", pull)])
        } else {
            ("issues", vec![("issue", self.json().issue(row, issue))])
        };
        body.extend(extra);
        self.queue_webhook(repo, event, Some(action), sender, body);
    }

    /// Queues a webhook about the App itself. Such webhooks need no subscription.
    pub(super) fn queue_app_webhook(
        &mut self,
        app: u64,
        event: &str,
        action: Option<&str>,
        installation: Option<InstallationId>,
        mut body: Map<String, Value>,
    ) {
        if let Some(action) = action {
            body.insert("action".into(), json!(action));
        }
        self.queue_delivery(app, event, action, installation, None, &Value::Object(body));
    }

    fn queue_delivery(
        &mut self,
        app: u64,
        event: &str,
        action: Option<&str>,
        installation: Option<InstallationId>,
        repository: Option<RepoId>,
        body: &Value,
    ) {
        if self.state.apps.get(&app).is_none_or(|a| a.webhook_url.is_none()) {
            return;
        }
        let guid = match guid() {
            Ok(guid) => guid,
            Err(error) => return tracing::error!(%error, "could not queue webhook; dropping it"),
        };
        if let Err(error) = std::fs::write(self.hub.delivery_file(&guid), body.to_string()) {
            return tracing::error!(%error, "could not queue webhook; dropping it");
        }
        let id = self.state.fresh_id();
        self.state.deliveries.push(HubDelivery {
            id,
            guid,
            app,
            event: event.to_owned(),
            action: action.map(str::to_owned),
            installation,
            repository,
            redelivery: false,
            at: self.at,
            status: None,
        });
    }

    fn forget_old_deliveries(&mut self) {
        while self.state.deliveries.len() > DELIVERIES_KEPT {
            let oldest = self.state.deliveries.remove(0);
            // A redelivery may share the body, or it is gone already.
            if !self.state.deliveries.iter().any(|d| d.guid == oldest.guid) {
                drop(std::fs::remove_file(self.hub.delivery_file(&oldest.guid)));
            }
        }
    }

    /// Updates the pull requests of branches that moved just before the hub was killed, so that their moves were not
    /// recorded.
    pub(super) fn catch_up(&mut self) -> Result<(), HubError> {
        for MissedBranchMove { repo, branch, from, to, by } in find_missed_branch_moves(self.state, self.hub)
        {
            self.follow_branch_move(repo, &branch, Some(from), Some(to), by)?;
        }
        Ok(())
    }

    /// Updates pull requests and queues a `push` webhook after a branch was created, moved or deleted.
    pub(super) fn follow_branch_move(
        &mut self,
        repo: RepoId,
        branch: &str,
        from: Option<Oid>,
        to: Option<Oid>,
        by: UserId,
    ) -> Result<(), HubError> {
        let at = self.at;
        self.repo_mut(repo)?.pushed_at = at;
        let git = self.git(repo);
        let subject = to
            .as_ref()
            .and_then(|oid| git.read_commit(oid).ok())
            .and_then(|c| c.message.lines().next().map(str::to_owned))
            .unwrap_or_default();
        let moved = HubEventKind::BranchMoved {
            branch: branch.to_owned(),
            new: from.is_none(),
            to: to.clone(),
            subject,
        };
        self.publish_event(repo, None, by, moved);
        let zero = || "0".repeat(40);
        let text = |oid: &Option<Oid>| oid.as_ref().map_or_else(zero, Oid::to_string);
        let compare =
            format!("{}/compare/{}...{}", self.json().repo_web(self.repo(repo)?), text(&from), text(&to));
        let push = vec![
            ("ref", json!(format!("refs/heads/{branch}"))),
            ("before", json!(text(&from))),
            ("after", json!(text(&to))),
            ("created", json!(from.is_none())),
            ("deleted", json!(to.is_none())),
            ("forced", json!(false)),
            ("base_ref", Value::Null),
            ("compare", json!(compare)),
            ("commits", json!([])),
            ("head_commit", Value::Null),
            ("pusher", json!({ "name": self.state.login(by) })),
        ];
        self.queue_webhook(repo, "push", None, by, push);
        let Some(to) = to else { return Ok(()) };
        let followers: Vec<u64> = self
            .repo(repo)?
            .issues
            .values()
            .filter(|i| i.open && i.pull.as_ref().is_some_and(|p| p.head == branch && p.head_oid != to))
            .map(|i| i.number)
            .collect();
        for number in followers {
            git.set_reference(&format!("refs/pull/{number}/head"), &to)?;
            let number = IssueNo(number);
            if let Some(pull) = &mut self.issue_mut(repo, number)?.pull {
                pull.head_oid = to.clone();
            }
            let ends = vec![("before", json!(text(&from))), ("after", json!(to.as_str()))];
            self.queue_issue_webhook(repo, number, "synchronize", by, ends);
        }
        Ok(())
    }
}

/// A branch that moved without its pull request having been updated.
pub(super) struct MissedBranchMove {
    repo: RepoId,
    branch: String,
    from: Oid,
    to: Oid,
    by: UserId,
}

/// Returns the branch moves that Git completed but the state does not contain, because the hub was killed in between.
pub(super) fn find_missed_branch_moves(state: &HubState, hub: &HubInner) -> Vec<MissedBranchMove> {
    let mut found = Vec::new();
    for repo in state.repositories.values() {
        for issue in repo.issues.values().filter(|issue| issue.open) {
            let Some(pull) = &issue.pull else { continue };
            let Some(to) = hub.git(repo.id).branch(&pull.head).filter(|head| *head != pull.head_oid) else {
                continue;
            };
            let (branch, from) = (pull.head.clone(), pull.head_oid.clone());
            found.push(MissedBranchMove { repo: repo.id, branch, from, to, by: issue.author });
        }
    }
    found
}

/// Returns a random version 4 UUID, which is the format of GitHub's delivery ids.
fn guid() -> Result<String, HubError> {
    let hex = super::random_hex(16)?;
    let variant = ["8", "9", "a", "b"][hex.as_bytes()[16] as usize % 4];
    Ok(format!("{}-{}-4{}-{variant}{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    #[test]
    fn guid_is_a_version_4_uuid() {
        let guid = super::guid().unwrap();
        let parts: Vec<_> = guid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert_eq!(&guid[14..15], "4");
        assert!("89ab".contains(&guid[19..20]));
    }
}
