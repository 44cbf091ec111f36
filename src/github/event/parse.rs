//! Parsers of webhook payloads: one short function per event.

use serde_json::Value;

use super::{
    CheckRerequestEvent, CiEvent, CommentEditedEvent, CommentEvent, InstallationAction, InstallationEvent,
    IssueAction, IssueEvent, PayloadError, PullRequestAction, PullRequestEvent, RepositoryAction,
    RepositoryEvent, ReviewCommentEvent, ReviewEvent, ReviewState, WebhookEvent, payload::WebhookPayload,
};
use crate::{
    github::wire::with_unix_lines,
    types::{CommentId, RepoId},
};

type WebhookEventResult = Result<WebhookEvent, PayloadError>;

pub(super) fn parse(event: &str, body: &[u8]) -> WebhookEventResult {
    let reader: fn(WebhookPayload<'_>) -> WebhookEventResult = match event {
        "issues" => parse_issue,
        "issue_comment" => parse_comment,
        "pull_request" => parse_pull_request,
        "pull_request_review" => parse_review,
        "pull_request_review_comment" => parse_review_comment,
        "check_run" => |p| parse_check(p, "check_run"),
        "check_suite" => |p| parse_check(p, "check_suite"),
        "workflow_run" => |p| parse_check(p, "workflow_run"),
        "status" => parse_status,
        "repository" => parse_repository,
        "installation" => parse_installation,
        "installation_repositories" => parse_installation_repositories,
        "ping" => |_| Ok(WebhookEvent::Ping),
        _ => |p| Ok(ignored_event(format!("nothing acts on `{}` events", shorten_name(p.event)))),
    };
    let value: Value =
        serde_json::from_slice(body).map_err(|e| PayloadError::NotJson { why: e.to_string() })?;
    let value = with_unix_lines(value);
    let payload = WebhookPayload { event, value: &value };
    // Someone may have configured a repository or organization webhook with our address. It belongs to no installation,
    // and we can act only through one.
    if WebhookEvent::SUBSCRIBED.contains(&event) && payload.value_at("installation").is_none() {
        return Ok(ignored_event("the payload names no installation of this App"));
    }
    reader(payload)
}

fn ignored_event(why: impl Into<String>) -> WebhookEvent {
    WebhookEvent::Ignored { why: why.into() }
}

fn unknown_action(payload: WebhookPayload<'_>) -> WebhookEvent {
    let action = shorten_name(payload.text_or_empty("action"));
    ignored_event(format!("nothing acts on `{}` `{action}`", payload.event))
}

/// Shortens an untrusted name for a log line.
fn shorten_name(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

fn parse_issue(p: WebhookPayload<'_>) -> WebhookEventResult {
    let label = || p.text("label.name").map(str::to_owned);
    let action = match p.text_or_empty("action") {
        "opened" => IssueAction::Opened,
        "edited" => IssueAction::Edited,
        "closed" => IssueAction::Closed,
        "reopened" => IssueAction::Reopened,
        "deleted" => IssueAction::Deleted,
        "transferred" => IssueAction::Transferred,
        "labeled" => IssueAction::Labeled { label: label()? },
        // The label may be deleted, and its name with it.
        "unlabeled" if p.value_at("label.name").is_none() => {
            return Ok(ignored_event("a label without a name was removed"));
        }
        "unlabeled" => IssueAction::Unlabeled { label: label()? },
        _ => return Ok(unknown_action(p)),
    };
    Ok(WebhookEvent::Issue(IssueEvent {
        action,
        repo: p.repo()?,
        installation: p.installation()?,
        issue: p.issue_no("issue.number")?,
        sender: p.sender()?,
        issue_author: p.author("issue.user")?,
        at: p.time("issue.updated_at")?,
    }))
}

fn parse_comment(p: WebhookPayload<'_>) -> WebhookEventResult {
    match p.text_or_empty("action") {
        "created" => {}
        "edited" | "deleted" if p.sender()?.id != p.author("comment.user")?.id => {
            return parse_comment_edited(p);
        }
        "edited" => return Ok(ignored_event("edited comments have no effect")),
        _ => return Ok(unknown_action(p)),
    }
    Ok(WebhookEvent::Comment(CommentEvent {
        repo: p.repo()?,
        installation: p.installation()?,
        issue: p.issue_no("issue.number")?,
        is_pull: p.value_at("issue.pull_request").is_some(),
        comment: CommentId(p.number("comment.id")?),
        node: Some(p.text_or_empty("comment.node_id").to_owned()),
        body: p.text_or_empty("comment.body").to_owned(),
        sender: p.sender()?,
        author: p.author("comment.user")?,
        issue_author: p.author("issue.user")?,
        created_at: p.time("comment.created_at")?,
        url: p.text_or_empty("comment.html_url").to_owned(),
        via_app: p.value_at("comment.performed_via_github_app").is_some(),
    }))
}

fn parse_comment_edited(p: WebhookPayload<'_>) -> WebhookEventResult {
    // After an edit, `comment.body` is the editor's text, so take the author's text from `changes`.
    let text_path = if p.text_or_empty("action") == "edited" { "changes.body.from" } else { "comment.body" };
    Ok(WebhookEvent::CommentEdited(CommentEditedEvent {
        repo: p.repo()?,
        installation: p.installation()?,
        issue: p.issue_no("issue.number")?,
        is_pull: p.value_at("issue.pull_request").is_some(),
        comment: CommentId(p.number("comment.id")?),
        text: p.text_or_empty(text_path).to_owned(),
        sender: p.sender()?,
        author: p.author("comment.user")?,
        at: p.time("comment.updated_at")?,
    }))
}

fn parse_pull_request(p: WebhookPayload<'_>) -> WebhookEventResult {
    let action = match p.text_or_empty("action") {
        "opened" => PullRequestAction::Opened,
        "closed" => PullRequestAction::Closed { merged: p.flag("pull_request.merged") },
        "reopened" => PullRequestAction::Reopened,
        "synchronize" => PullRequestAction::Synchronize,
        "ready_for_review" => PullRequestAction::ReadyForReview,
        "converted_to_draft" => PullRequestAction::ConvertedToDraft,
        _ => return Ok(unknown_action(p)),
    };
    Ok(WebhookEvent::PullRequest(PullRequestEvent {
        action,
        repo: p.repo()?,
        installation: p.installation()?,
        pull: p.issue_no("pull_request.number")?,
        author: p.author("pull_request.user")?,
        sender: p.sender()?,
        head_branch: p.text("pull_request.head.ref")?.to_owned(),
        head_oid: p.oid("pull_request.head.sha")?,
        head_repo: p.number("pull_request.head.repo.id").ok().map(RepoId),
        base_branch: p.text("pull_request.base.ref")?.to_owned(),
        draft: p.flag("pull_request.draft"),
        opened_at: p.time("pull_request.created_at")?,
        closed_at: p.time("pull_request.closed_at").ok(),
    }))
}

fn parse_review(p: WebhookPayload<'_>) -> WebhookEventResult {
    match p.text_or_empty("action") {
        "submitted" => {}
        "edited" => return Ok(ignored_event("edited reviews have no effect")),
        _ => return Ok(unknown_action(p)),
    }
    let state = match p.text_or_empty("review.state").to_ascii_lowercase().as_str() {
        "approved" => ReviewState::Approved,
        "changes_requested" => ReviewState::ChangesRequested,
        "commented" => ReviewState::Commented,
        other => {
            return Ok(ignored_event(format!("nothing acts on a review that is `{}`", shorten_name(other))));
        }
    };
    Ok(WebhookEvent::Review(ReviewEvent {
        state,
        repo: p.repo()?,
        installation: p.installation()?,
        pull: p.issue_no("pull_request.number")?,
        review: p.number("review.id")?,
        body: p.text_or_empty("review.body").to_owned(),
        commit_id: p.oid("review.commit_id").ok(),
        sender: p.sender()?,
        author: p.author("review.user")?,
        submitted_at: p.time("review.submitted_at")?,
        url: p.text_or_empty("review.html_url").to_owned(),
    }))
}

fn parse_review_comment(p: WebhookPayload<'_>) -> WebhookEventResult {
    match p.text_or_empty("action") {
        "created" => {}
        "edited" => return Ok(ignored_event("edited comments have no effect")),
        _ => return Ok(unknown_action(p)),
    }
    Ok(WebhookEvent::ReviewComment(ReviewCommentEvent {
        repo: p.repo()?,
        installation: p.installation()?,
        pull: p.issue_no("pull_request.number")?,
        comment: CommentId(p.number("comment.id")?),
        path: p.text_or_empty("comment.path").to_owned(),
        body: p.text_or_empty("comment.body").to_owned(),
        sender: p.sender()?,
        author: p.author("comment.user")?,
        created_at: p.time("comment.created_at")?,
        url: p.text_or_empty("comment.html_url").to_owned(),
        via_app: p.value_at("comment.performed_via_github_app").is_some(),
    }))
}

/// Parses a check run, check suite or workflow run. The three differ mainly in the key of the payload, `key`.
fn parse_check(p: WebhookPayload<'_>, key: &str) -> WebhookEventResult {
    let branch = if key == "check_run" {
        "check_run.check_suite.head_branch".into()
    } else {
        format!("{key}.head_branch")
    };
    let at = |field: &str| format!("{key}.{field}");
    match p.text_or_empty("action") {
        // Each job of a workflow is a check run; the `workflow_run` event covers all of them.
        "completed" if key == "check_run" && p.text_or_empty("check_run.app.slug") == "github-actions" => {
            Ok(ignored_event("an Actions job; its workflow run is handled instead"))
        }
        "completed" => Ok(WebhookEvent::Ci(CiEvent {
            repo: p.repo()?,
            installation: p.installation()?,
            app: p.number(&at("app.id")).ok(),
            commit: p.oid(&at("head_sha"))?,
            branches: p.optional_text(&branch).into_iter().collect(),
            head_repo: p.number(&at("head_repository.id")).ok().map(RepoId),
        })),
        "rerequested" if key != "workflow_run" => Ok(WebhookEvent::CheckRerequested(CheckRerequestEvent {
            repo: p.repo()?,
            installation: p.installation()?,
            app: p.number(&at("app.id"))?,
            name: p.text_or_empty(&at("name")).to_owned(),
            head_oid: p.oid(&at("head_sha"))?,
            head_branch: p.optional_text(&branch),
            sender: p.sender()?,
        })),
        _ => Ok(ignored_event("only completed and rerequested checks are handled")),
    }
}

fn parse_status(p: WebhookPayload<'_>) -> WebhookEventResult {
    if p.text("state")? == "pending" {
        return Ok(ignored_event("a pending status has no result yet"));
    }
    let listed = p.value_at("branches").and_then(Value::as_array).into_iter().flatten();
    Ok(WebhookEvent::Ci(CiEvent {
        repo: p.repo()?,
        installation: p.installation()?,
        app: None,
        commit: p.oid("sha")?,
        branches: listed.filter_map(|branch| branch["name"].as_str().map(str::to_owned)).collect(),
        head_repo: None,
    }))
}

fn parse_repository(p: WebhookPayload<'_>) -> WebhookEventResult {
    let action = match p.text_or_empty("action") {
        "renamed" => RepositoryAction::Renamed,
        "transferred" => RepositoryAction::Transferred,
        "deleted" => RepositoryAction::Deleted,
        "archived" => RepositoryAction::Archived,
        "unarchived" => RepositoryAction::Unarchived,
        "edited" => RepositoryAction::Edited,
        "privatized" => RepositoryAction::Privatized,
        "publicized" => RepositoryAction::Publicized,
        _ => return Ok(unknown_action(p)),
    };
    let (repo, installation, sender) = (p.repo()?, p.installation()?, p.sender()?);
    Ok(WebhookEvent::Repository(RepositoryEvent { action, repo, installation, sender }))
}

fn parse_installation(p: WebhookPayload<'_>) -> WebhookEventResult {
    let action = match p.text_or_empty("action") {
        "created" => InstallationAction::Created,
        "deleted" => InstallationAction::Deleted,
        "suspend" => InstallationAction::Suspended,
        "unsuspend" => InstallationAction::Unsuspended,
        "new_permissions_accepted" => InstallationAction::PermissionsAccepted,
        _ => return Ok(unknown_action(p)),
    };
    // An enterprise account has a slug instead of a login.
    let account = p
        .text("installation.account.login")
        .or_else(|e| p.text("installation.account.slug").map_err(|_| e))?;
    Ok(WebhookEvent::Installation(InstallationEvent {
        action,
        installation: p.installation()?,
        account: account.to_owned(),
        repositories: p.repositories("repositories"),
        sender: p.sender()?,
    }))
}

fn parse_installation_repositories(p: WebhookPayload<'_>) -> WebhookEventResult {
    if !matches!(p.text_or_empty("action"), "added" | "removed") {
        return Ok(unknown_action(p));
    }
    Ok(WebhookEvent::InstallationRepositories {
        installation: p.installation()?,
        added: p.repositories("repositories_added"),
        removed: p.repositories("repositories_removed"),
        sender: p.sender()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::{Actor, InstallationId, IssueNo, Timestamp, UserId};

    fn base(more: Value) -> Value {
        let mut payload = json!({
            "installation": { "id": 3 },
            "repository": { "id": 9, "full_name": "Octo/hello", "private": true, "default_branch": "main" },
            "sender": { "id": 7, "login": "ann", "type": "User" },
            "issue": {
                "number": 42, "updated_at": "2026-02-19T10:00:00Z", "user": { "id": 8, "login": "bob", "type": "User" },
            },
        });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    }

    fn read(event: &str, payload: &Value) -> WebhookEvent {
        WebhookEvent::parse(event, payload.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn line_endings_in_a_webhook_comment_body_are_normalized_to_newlines() {
        let mut payload = comment_payload();
        payload["comment"]["body"] = "one\r\n\r\ntwo\rthree\u{2028}".into();
        let WebhookEvent::Comment(e) = read("issue_comment", &payload) else { panic!() };
        assert_eq!(e.body, "one\n\ntwo\nthree\u{2028}");
    }

    fn comment_payload() -> Value {
        base(json!({
            "action": "created",
            "comment": {
                "id": 5, "body": "/approve", "created_at": "2026-02-19T10:00:01Z", "html_url": "https://x/c5",
                "user": { "id": 7, "login": "ann", "type": "User" }, "performed_via_github_app": null,
            },
        }))
    }

    #[test]
    fn parsed_labeled_event_contains_the_sender_and_the_issue_author() {
        let event =
            read("issues", &base(json!({ "action": "labeled", "label": { "name": "countersign:lld" } })));
        let WebhookEvent::Issue(issue) = &event else { panic!("{event:?}") };
        assert_eq!(issue.action, IssueAction::Labeled { label: "countersign:lld".into() });
        assert_eq!(issue.sender, Actor { id: UserId(7), login: "ann".into(), bot: false });
        assert_eq!(issue.issue_author.login, "bob");
        assert_eq!(issue.at, Timestamp::parse("2026-02-19T10:00:00Z").unwrap());
        assert_eq!(event.installation(), Some(InstallationId(3)));
        assert_eq!(event.repo().unwrap().name.to_string(), "Octo/hello");
    }

    #[test]
    fn edited_comment_is_ignored() {
        let mut payload = comment_payload();
        let event = read("issue_comment", &payload);
        let WebhookEvent::Comment(comment) = event else { panic!("{event:?}") };
        assert_eq!((comment.issue, comment.body.as_str()), (IssueNo(42), "/approve"));
        assert!(!comment.is_pull && !comment.via_app);
        payload["action"] = "edited".into();
        assert_eq!(
            read("issue_comment", &payload),
            WebhookEvent::Ignored { why: "edited comments have no effect".into() }
        );
    }

    #[test]
    fn comment_event_distinguishes_apps_bots_and_pull_requests() {
        let mut payload = comment_payload();
        payload["comment"]["performed_via_github_app"] = json!({ "id": 1 });
        payload["sender"]["type"] = "Bot".into();
        payload["issue"]["pull_request"] = json!({});
        let WebhookEvent::Comment(comment) = read("issue_comment", &payload) else { panic!() };
        assert!(comment.via_app && comment.sender.bot && comment.is_pull);
    }

    #[test]
    fn error_names_the_path_of_a_missing_field() {
        let mut payload = comment_payload();
        payload["comment"].as_object_mut().unwrap().remove("id");
        let error = WebhookEvent::parse("issue_comment", payload.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "the `issue_comment` payload has no `comment.id` that is a number");
        assert!(matches!(WebhookEvent::parse("issues", b"{"), Err(PayloadError::NotJson { .. })));
    }

    #[test]
    fn unknown_event_or_action_is_ignored() {
        for (event, payload) in [
            ("brand_new_event", json!({ "action": "x" })),
            ("issues", base(json!({ "action": "typed" }))),
            ("issue_comment", base(json!({ "action": "pinned" }))),
            ("issues", json!({ "action": "labeled" })),
            ("issues", json!([])),
            ("check_run", base(json!({ "action": "created" }))),
        ] {
            assert!(matches!(read(event, &payload), WebhookEvent::Ignored { .. }), "{event} {payload}");
        }
    }

    #[test]
    fn every_subscribed_event_has_a_parser() {
        for event in WebhookEvent::SUBSCRIBED {
            let why = match read(event, &json!({})) {
                WebhookEvent::Ignored { why } => why,
                other => panic!("{other:?}"),
            };
            assert!(!why.contains("nothing acts"), "{event}: {why}");
            let bare = json!({ "installation": { "id": 1 }, "action": "no such action" });
            if let Ok(WebhookEvent::Ignored { why }) = WebhookEvent::parse(event, bare.to_string().as_bytes())
            {
                assert!(!why.ends_with("events"), "{event} is not read: {why}");
            }
        }
    }

    #[test]
    fn review_event_is_parsed_with_its_commit_id() {
        let oid = "a".repeat(40);
        let payload = base(json!({
            "action": "submitted",
            "pull_request": { "number": 43 },
            "review": { "id": 11, "state": "APPROVED", "body": null, "commit_id": oid, "user": null,
                        "submitted_at": "2026-02-19T10:00:01Z" },
        }));
        let WebhookEvent::Review(review) = read("pull_request_review", &payload) else { panic!() };
        assert_eq!(review.state, ReviewState::Approved);
        assert_eq!(review.commit_id.unwrap().as_str(), oid);
        assert_eq!(review.author.login, "ghost");
    }

    #[test]
    fn installation_event_lists_its_repositories() {
        let payload = json!({
            "action": "created",
            "installation": { "id": 3, "account": { "login": "octo" } },
            "repositories": [{ "id": 9, "full_name": "octo/hello" }, { "id": 10 }],
            "sender": { "id": 7, "login": "ann", "type": "User" },
        });
        let WebhookEvent::Installation(event) = read("installation", &payload) else { panic!() };
        assert_eq!((event.account.as_str(), event.repositories.len()), ("octo", 1));
    }
}
