//! Tests of refusals by GitHub: final refusals, temporary refusals, and errors after which the write may still have
//! taken effect.

use super::*;
use crate::{
    limits,
    types::{CommentId, IssueNo, UserId},
};

fn comment(id: u64) -> Value {
    json!({
        "id": id, "body": "hello\n\n<!-- countersign:m -->", "user": { "id": BOT, "login": "x", "type": "Bot" },
        "created_at": "2026-02-19T10:00:00Z", "updated_at": "2026-02-19T10:00:05Z",
    })
}

const POST: &str = "POST /repos/o/r/issues/1/comments";
const LOOK: &str = "GET /repos/o/r/issues/1/comments";

/// Makes a label change whose GraphQL response contains `error`. Returns the resulting error and the repository.
async fn label_swap_error(error: Value) -> (GitHubApiError, GitHubRepo) {
    let fake = FakeGitHub::start(move |seen, _| match seen.line.as_str() {
        line if line.starts_with("GET /repos/o/r/labels/") => canned(200, json!({ "node_id": "LA_1" })),
        "GET /repos/o/r/issues/1" => canned(
            200,
            json!({ "number": 1, "node_id": "I_1", "title": "t", "state": "open", "updated_at": "2026-02-19T10:00:00Z" }),
        ),
        "POST /graphql" => canned(200, json!({ "data": null, "errors": [error] })),
        _ => None,
    })
    .await;
    let new = LabelSpec { name: "done", color: "0e8a16", description: "why" };
    let change = LabelChange { issue: IssueNo(1), remove: Some("working"), add: Some(new) };
    let repo = fake.repo();
    (repo.change_label(&change).await.unwrap_err(), repo)
}

#[tokio::test]
async fn only_known_graphql_errors_are_permanent() {
    let wrong = "Something went wrong while executing your query. This may be the result of a timeout.";
    for kind in [None, Some("SERVICE_UNAVAILABLE"), Some("A_NEW_ONE")] {
        let mut error = json!({ "message": wrong });
        if let Some(kind) = kind {
            error["type"] = json!(kind);
        }
        let (fault, _) = label_swap_error(error).await;
        assert!(matches!(fault, GitHubApiError::Transient { .. }), "{kind:?}: {fault}");
    }
    let (fault, _) = label_swap_error(json!({ "type": "FORBIDDEN", "message": "no" })).await;
    assert!(matches!(fault, GitHubApiError::Forbidden { .. }), "{fault}");
    for error in [
        json!({ "type": "UNPROCESSABLE", "message": "no" }),
        json!({ "extensions": { "code": "undefinedField" }, "message": "no such field" }),
    ] {
        let (fault, _) = label_swap_error(error).await;
        assert!(matches!(fault, GitHubApiError::Rejected { .. }), "{fault}");
    }
    let listed = "the `acme` organization has an IP allow list enabled, and 192.0.2.1 is not permitted";
    let (fault, _) = label_swap_error(json!({ "type": "FORBIDDEN", "message": listed })).await;
    assert!(matches!(fault, GitHubApiError::TemporarilyRefused { .. }), "{fault}");
}

#[tokio::test]
async fn graphql_rate_limit_pauses_the_installation() {
    for kind in ["RATE_LIMIT", "RATE_LIMITED"] {
        let message = "API rate limit already exceeded for installation ID 3.";
        let (fault, repo) =
            label_swap_error(json!({ "type": kind, "code": "graphql_rate_limit", "message": message })).await;
        let until = NOW.plus(limits::RATE_PAUSE);
        assert_eq!(fault, GitHubApiError::RateLimited { until });
        assert_eq!(repo.info().await.unwrap_err(), fault, "{kind}: nothing is sent before it ends");
    }
}

#[tokio::test]
async fn comment_refused_by_github_is_posted_again_without_a_lookup() {
    let fake = FakeGitHub::start(|seen, before| match (seen.line.as_str(), before) {
        (POST, 0..4) => canned(403, json!({ "message": "slow down" })).map(|a| a.header("retry-after", "1")),
        (POST, 4) => {
            canned(422, json!({ "message": "Validation Failed", "errors": ["was submitted too quickly"] }))
        }
        (POST, _) => canned(201, comment(5)),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    for attempt in 0..5 {
        let body = OutboundBody::frame("hello".to_owned());
        let refused = repo.ensure_comment(IssueNo(1), "m", &body, attempt > 0).await.unwrap_err();
        assert!(refused.is_temporary(), "{refused}");
        fake.clock.advance(Duration::from_secs(1));
    }
    let body = OutboundBody::frame("hello".to_owned());
    assert_eq!(repo.ensure_comment(IssueNo(1), "m", &body, true).await.unwrap().id, CommentId(5));
    assert_eq!((fake.count(POST), fake.count(LOOK)), (6, 0));
}

#[tokio::test]
async fn comment_with_a_lost_response_is_looked_up_even_after_a_rate_limit() {
    let fake = FakeGitHub::start(|seen, before| match (seen.line.as_str(), before) {
        (POST, 0) => canned(502, json!({})),
        (POST, 1) => canned(429, json!({ "message": "slow down" })).map(|a| a.header("retry-after", "1")),
        (POST, _) => canned(201, comment(5)),
        // GitHub loses the first comment; the third shows at once.
        (line, before) if line.starts_with(LOOK) && before < 3 => canned(200, json!([])),
        (line, _) if line.starts_with(LOOK) => canned(200, json!([comment(5)])),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    let body = OutboundBody::frame("hello".to_owned());
    for attempt in 0..3 {
        repo.ensure_comment(IssueNo(1), "m", &body, attempt > 0).await.unwrap_err();
        fake.clock.advance(limits::LOOKUP_INTERVAL);
    }
    assert_eq!(fake.count(POST), 2, "after the lost one it is looked twice before it is written again");
    assert_eq!(repo.ensure_comment(IssueNo(1), "m", &body, true).await.unwrap().id, CommentId(5));
}

#[tokio::test]
async fn forbidden_error_is_temporary_only_when_the_installation_is_suspended() {
    let fake = FakeGitHub::start(|seen, before| match (seen.line.as_str(), before) {
        ("POST /app/installations/3/access_tokens", 0) => {
            canned(403, json!({ "message": "Diese Installation ruht." }))
        }
        ("GET /repos/o/r", 0) => canned(
            403,
            json!({ "message": "Sorry. This installation owned by o suspended your access at 2026-01-01T00:00:00Z." }),
        ),
        ("GET /app/installations/3", _) => canned(502, json!({})),
        ("POST /repos/o/r/issues/1/reactions", _) => canned(403, json!({ "message": "No." })),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    for refused in ["a token", "a call"] {
        let fault = repo.info().await.unwrap_err();
        assert!(matches!(fault, GitHubApiError::TemporarilyRefused { .. }), "{refused}: {fault}");
    }
    let fault = repo.react(ReactionTarget::Issue(IssueNo(1)), Reaction::Eyes).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Forbidden { .. }), "{fault}");
}

#[tokio::test]
async fn newest_comment_is_found_when_the_last_page_link_is_missing() {
    let fake = FakeGitHub::start(|seen, _| {
        let page: u64 = seen.line.strip_prefix(&format!("{LOOK}?per_page=100&page="))?.parse().unwrap();
        let listed = canned(200, if page == 3 { json!([comment(5)]) } else { json!([]) });
        let next = format!("<https://x/y?page={}>; rel=\"next\"", page + 1);
        listed.map(|a| if page < 3 { a.header("link", next) } else { a })
    })
    .await;
    let body = OutboundBody::frame("x".to_owned());
    let found = fake.repo().ensure_comment(IssueNo(1), "m", &body, true).await.unwrap();
    assert_eq!(found.id, CommentId(5));
}

#[tokio::test]
async fn member_list_of_an_unreadable_or_missing_team_is_none() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /orgs/octo/teams/core/members?per_page=100" => canned(200, json!([{ "id": 7 }, { "id": 8 }])),
        "GET /orgs/octo/teams/dark/members?per_page=100" => {
            canned(403, json!({ "message": "Resource not accessible by integration" }))
        }
        "GET /orgs/octo/teams/down/members?per_page=100" => canned(502, json!({})),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    assert_eq!(repo.team_members("octo", "core").await, Ok(Some(vec![UserId(7), UserId(8)])));
    for unknown in ["dark", "none"] {
        assert_eq!(repo.team_members("octo", unknown).await, Ok(None));
    }
    assert!(
        repo.team_members("octo", "down").await.is_err_and(|fault| fault.is_temporary()),
        "that nobody could say is no answer"
    );
}
