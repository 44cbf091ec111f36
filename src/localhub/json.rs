//! GitHub's JSON representation, written from its REST documentation. No code is shared with the client, so that a
//! mistake in one is not hidden by the same mistake in the other.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::{
    HubInner,
    model::{
        HubApp, HubComment, HubInstallation, HubIssue, HubLabel, HubReaction, HubRepository, HubState,
        HubTimelineEvent,
    },
    views::{issue_labels, state_word},
};
use crate::types::{Role, Timestamp, UserId};

pub(super) struct JsonRenderer<'a> {
    pub(super) state: &'a HubState,
    pub(super) hub: &'a HubInner,
}

/// Returns an opaque node id in GitHub's format. Like most of GitHub's ids, it is readable once decoded.
pub(super) fn node_id(prefix: &str, id: u64) -> String {
    format!("{prefix}_{}", URL_SAFE_NO_PAD.encode(id.to_be_bytes()))
}

fn time(at: Timestamp) -> Value {
    json!(at.to_string())
}

fn time_or_null(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, time)
}

pub(super) const REACTIONS: [&str; 8] =
    ["+1", "-1", "laugh", "confused", "heart", "hooray", "eyes", "rocket"];

impl JsonRenderer<'_> {
    pub(super) fn api(&self) -> String {
        format!("{}/api/v3", self.hub.base)
    }

    /// Returns the API URL of a repository.
    pub(super) fn repo_api(&self, repo: &HubRepository) -> String {
        format!("{}/repos/{}", self.api(), self.state.name_of(repo))
    }

    /// Returns the URL of a repository's page.
    pub(super) fn repo_web(&self, repo: &HubRepository) -> String {
        format!("{}/{}", self.hub.base, self.state.name_of(repo))
    }

    /// Returns a user in the form embedded in other objects; `null` if the account does not exist.
    pub(super) fn account(&self, id: UserId) -> Value {
        let Some(account) = self.state.accounts.get(&id) else { return Value::Null };
        let login = &account.login;
        let (kind, web) = match account.app.and_then(|a| self.state.apps.get(&a)) {
            Some(app) => ("Bot", format!("{}/apps/{}", self.hub.base, app.slug)),
            None => ("User", format!("{}/{login}", self.hub.base)),
        };
        json!({
            "login": login, "id": id, "node_id": node_id(if account.app.is_some() { "BOT" } else { "U" }, id.0),
            "avatar_url": format!("{}/avatars/{id}", self.hub.base),
            "url": format!("{}/users/{}", self.api(), encode_segment(login)), "html_url": web, "type": kind,
        })
    }

    pub(super) fn short_repository(&self, repo: &HubRepository) -> Value {
        json!({
            "id": repo.id, "node_id": node_id("R", repo.id.0), "name": repo.name,
            "full_name": self.state.name_of(repo).to_string(), "private": repo.private,
        })
    }

    pub(super) fn repository(&self, repo: &HubRepository) -> Value {
        let (api, web) = (self.repo_api(repo), self.repo_web(repo));
        let open = repo.issues.values().filter(|i| i.open).count();
        let fame = &repo.fame;
        let described = Some(&fame.description).filter(|text| !text.is_empty());
        let licence = fame.licence.as_ref().map(
            |id| json!({ "key": id.to_lowercase(), "name": id, "spdx_id": id, "url": null, "node_id": "" }),
        );
        let mut body = self.short_repository(repo);
        let more = json!({
            "owner": self.account(repo.owner), "html_url": web, "description": described, "fork": false, "url": api,
            "clone_url": format!("{web}.git"), "homepage": fame.homepage, "language": null,
            "stargazers_count": fame.stars, "default_branch": repo.default_branch, "open_issues_count": open,
            "topics": fame.topics, "has_issues": true, "archived": false, "disabled": false,
            "visibility": if repo.private { "private" } else { "public" },
            "pushed_at": repo.pushed_at.to_string(), "created_at": repo.created_at.to_string(),
            "updated_at": repo.updated_at.to_string(), "license": licence,
        });
        merge_json(&mut body, more);
        body
    }

    pub(super) fn label(&self, repo: &HubRepository, label: &HubLabel) -> Value {
        json!({
            "id": label.id, "node_id": node_id("LA", label.id),
            "url": format!("{}/labels/{}", self.repo_api(repo), encode_segment(&label.name)),
            "name": label.name, "description": label.description, "color": label.color, "default": false,
        })
    }

    fn labels(&self, repo: &HubRepository, issue: &HubIssue) -> Value {
        issue_labels(repo, issue).into_iter().map(|l| self.label(repo, l)).collect()
    }

    pub(in crate::localhub) fn association(&self, repo: &HubRepository, user: UserId) -> &'static str {
        if user == repo.owner {
            "OWNER"
        } else if repo.roles.get(&user).is_some_and(|r| *r > Role::None) {
            "COLLABORATOR"
        } else {
            "NONE"
        }
    }

    /// Returns the App that a bot account belongs to, in the form of `performed_via_github_app`.
    fn performing_app(&self, user: UserId) -> Value {
        let app = self.state.accounts.get(&user).and_then(|a| a.app).and_then(|id| self.state.apps.get(&id));
        app.map_or(Value::Null, |app| self.app(app))
    }

    fn reaction_rollup(&self, url: &str, reactions: &[HubReaction]) -> Value {
        let mut body = Map::new();
        body.insert("url".into(), json!(url));
        body.insert("total_count".into(), json!(reactions.len()));
        for content in REACTIONS {
            let count = reactions.iter().filter(|r| r.content == content).count();
            body.insert(content.into(), json!(count));
        }
        body.into()
    }

    pub(super) fn reaction(&self, reaction: &HubReaction) -> Value {
        json!({
            "id": reaction.id, "node_id": node_id("REA", reaction.id), "user": self.account(reaction.user),
            "content": reaction.content, "created_at": time(reaction.created_at),
        })
    }

    pub(super) fn issue_web(&self, repo: &HubRepository, issue: &HubIssue) -> String {
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        format!("{}/{kind}/{}", self.repo_web(repo), issue.number)
    }

    pub(super) fn issue(&self, repo: &HubRepository, issue: &HubIssue) -> Value {
        let url = format!("{}/issues/{}", self.repo_api(repo), issue.number);
        let web = self.issue_web(repo, issue);
        let mut body = json!({
            "url": url, "repository_url": self.repo_api(repo), "html_url": web,
            "id": issue.id, "node_id": node_id("I", issue.id), "number": issue.number, "title": issue.title,
            "user": self.account(issue.author), "labels": self.labels(repo, issue), "state": state_word(issue.open),
            "locked": issue.locked,
            "comments": issue.comments.len(), "created_at": time(issue.created_at),
            "updated_at": time(issue.updated_at), "closed_at": time_or_null(issue.closed_at),
            "author_association": self.association(repo, issue.author), "body": issue.body,
            "closed_by": issue.closed_by.map_or(Value::Null, |u| self.account(u)),
            "reactions": self.reaction_rollup(&format!("{url}/reactions"), &issue.reactions),
            "performed_via_github_app": self.performing_app(issue.author),
            "state_reason": issue.state_reason,
        });
        if let Some(pull) = &issue.pull {
            body["draft"] = json!(pull.draft);
            body["pull_request"] = json!({
                "url": format!("{}/pulls/{}", self.repo_api(repo), issue.number), "html_url": web,
                "merged_at": time_or_null(pull.merged_at),
            });
        }
        body
    }

    pub(super) fn comment(&self, repo: &HubRepository, issue: &HubIssue, comment: &HubComment) -> Value {
        let url = format!("{}/issues/comments/{}", self.repo_api(repo), comment.id);
        json!({
            "url": url, "html_url": format!("{}#issuecomment-{}", self.issue_web(repo, issue), comment.id),
            "issue_url": format!("{}/issues/{}", self.repo_api(repo), issue.number),
            "id": comment.id, "node_id": node_id("IC", comment.id.0), "user": self.account(comment.author),
            "created_at": time(comment.created_at), "updated_at": time(comment.updated_at),
            "author_association": self.association(repo, comment.author), "body": comment.body,
            "reactions": self.reaction_rollup(&format!("{url}/reactions"), &comment.reactions),
            "performed_via_github_app": self.performing_app(comment.author),
        })
    }

    /// Returns an entry of `GET …/events` and `…/timeline`.
    pub(super) fn event(&self, repo: &HubRepository, event: &HubTimelineEvent) -> Value {
        let mut body = json!({
            "id": event.id, "node_id": node_id("EV", event.id),
            "url": format!("{}/issues/events/{}", self.repo_api(repo), event.id),
            "actor": self.account(event.actor), "event": event.event,
            "created_at": time(event.at), "performed_via_github_app": self.performing_app(event.actor),
        });
        if let Some(label) = &event.label {
            body["label"] = json!({ "name": label.name, "color": label.color });
        }
        if let Some((from, to)) = &event.rename {
            body["rename"] = json!({ "from": from, "to": to });
        }
        body
    }

    pub(super) fn app(&self, app: &HubApp) -> Value {
        json!({
            "id": app.id, "slug": app.slug, "node_id": node_id("A", app.id), "client_id": app.client_id,
            "owner": self.account(app.owner), "name": app.name, "description": null,
            "external_url": app.external_url, "html_url": format!("{}/apps/{}", self.hub.base, app.slug),
            "created_at": time(app.created_at), "updated_at": time(app.created_at),
            "permissions": app.permissions, "events": app.events,
        })
    }

    /// Returns the App in the form shown to the App itself, with the number of its installations.
    pub(super) fn own_app(&self, app: &HubApp) -> Value {
        let mut body = self.app(app);
        let count = self.state.installations.values().filter(|i| i.app == app.id).count();
        body["installations_count"] = json!(count);
        body
    }

    pub(super) fn installation(&self, row: &HubInstallation) -> Value {
        let Some(app) = self.state.apps.get(&row.app) else { return Value::Null };
        json!({
            "id": row.id, "node_id": node_id("I", row.id.0), "client_id": app.client_id,
            "account": self.account(row.account), "repository_selection": "selected",
            "html_url": format!("{}/settings/installations/{}", self.hub.base, row.id),
            "app_id": app.id, "app_slug": app.slug, "target_id": row.account, "target_type": "User",
            "permissions": app.permissions, "events": app.events,
            "created_at": time(row.created_at), "updated_at": time(row.updated_at),
            "suspended_by": row.suspended_at.map_or(Value::Null, |_| self.account(row.account)),
            "suspended_at": time_or_null(row.suspended_at),
        })
    }
}

pub(super) fn merge_json(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

/// Percent-encodes one path segment.
pub(super) fn encode_segment(segment: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    segment.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
