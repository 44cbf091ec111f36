//! Tests of credentials, rate limits, paging and redirects.

use super::*;
use crate::types::{Actor, IssueNo, Role, UserId};

fn issue(number: u64) -> Value {
    json!({
        "number": number, "title": "t", "body": null, "state": "open", "labels": [{ "name": "bug" }, "plain"],
        "user": { "id": 8, "login": "bob", "type": "User" }, "locked": false,
        "updated_at": "2026-02-19T10:00:00Z", "html_url": "https://x/i",
    })
}

#[tokio::test]
async fn concurrent_first_calls_share_one_token() {
    let fake = FakeGitHub::start(|_, _| None).await;
    let repo = fake.repo();
    let calls = (0..10).map(|_| {
        let repo = repo.clone();
        tokio::spawn(async move { repo.info().await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.unwrap().default_branch, "main");
    }
    assert_eq!(fake.count("GET /repos/o/r"), 10);
    assert_eq!(fake.count("POST /app/installations/3/access_tokens"), 1);
}

#[tokio::test]
async fn rejected_installation_token_is_replaced_once_per_request() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/issues/1" if seen.authorization == "Bearer ghs_1" => {
            canned(401, json!({ "message": "Bad credentials" }))
        }
        "GET /repos/o/r/issues/1" => canned(200, issue(1)),
        "GET /repos/o/r/issues/2" => canned(401, json!({ "message": "Bad credentials" })),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    let found = repo.issue(IssueNo(1)).await.unwrap();
    assert_eq!((found.body.as_str(), found.labels), ("", vec!["bug".to_owned(), "plain".to_owned()]));
    assert_eq!(fake.count("POST /app/installations"), 2);
    let fault = repo.issue(IssueNo(2)).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Unauthorized { .. }), "{fault}");
    assert_eq!(fake.count("GET /repos/o/r/issues/2"), 2);
}

#[tokio::test]
async fn failed_read_is_retried_and_failed_write_is_not() {
    let fake = FakeGitHub::start(|seen, before| match seen.line.as_str() {
        "GET /repos/o/r/issues/1" if before == 0 => canned(502, json!({})),
        "GET /repos/o/r/issues/1" => canned(200, issue(1)),
        "POST /repos/o/r/issues/1/reactions" => canned(502, json!({})),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    repo.issue(IssueNo(1)).await.unwrap();
    let fault = repo.react(ReactionTarget::Issue(IssueNo(1)), Reaction::Eyes).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Transient { .. }), "{fault}");
    assert_eq!(fake.writes().len(), 1);
}

#[tokio::test]
async fn no_call_is_sent_during_a_rate_limit() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/issues/1" => {
            canned(403, json!({ "message": "slow down" })).map(|a| a.header("retry-after", "120"))
        }
        _ => None,
    })
    .await;
    let repo = fake.repo();
    let until = NOW.plus(Duration::from_secs(120));
    assert_eq!(repo.issue(IssueNo(1)).await, Err(GitHubApiError::RateLimited { until }));
    assert_eq!(repo.info().await, Err(GitHubApiError::RateLimited { until }), "the whole installation waits");
    assert_eq!(fake.count("GET "), 1);
    fake.clock.advance(Duration::from_secs(120));
    repo.info().await.unwrap();
}

#[tokio::test]
async fn exhausted_rate_limit_stops_further_calls() {
    let reset = NOW.0 / 1000 + 600;
    let fake = FakeGitHub::start(move |seen, _| match seen.line.as_str() {
        "GET /repos/o/r/issues/1" => canned(200, issue(1))
            .map(|a| a.header("x-ratelimit-remaining", "0").header("x-ratelimit-reset", reset.to_string())),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    repo.issue(IssueNo(1)).await.unwrap();
    let until = Timestamp((reset + 1) * 1000);
    assert_eq!(repo.info().await, Err(GitHubApiError::RateLimited { until }));
    assert_eq!(fake.count("GET "), 1, "the answer itself was good, and nothing is sent to be refused");
}

#[tokio::test]
async fn cached_response_is_reused_only_for_the_same_installation() {
    let fake = FakeGitHub::start(|seen, _| match (seen.line.as_str(), seen.known.as_deref()) {
        ("GET /repos/o/r/issues/1", None) => canned(200, issue(1)).map(|a| a.header("etag", "W/\"one\"")),
        ("GET /repos/o/r/issues/1", Some("W/\"one\"")) => canned(304, Value::Null),
        ("POST /app/installations/4/access_tokens", _) => {
            canned(201, json!({ "token": "ghs_4", "expires_at": "2099-01-01T00:00:00Z" }))
        }
        _ => None,
    })
    .await;
    let counted = Arc::new(Mutex::new((0, 0)));
    let counter = Arc::clone(&counted);
    let repo = fake.repo().with_counter(ApiCallCounter::new(move |write| {
        let mut counted = counter.lock().unwrap();
        if write { counted.1 += 1 } else { counted.0 += 1 }
    }));
    let first = repo.issue(IssueNo(1)).await.unwrap();
    assert_eq!(repo.issue(IssueNo(1)).await.unwrap(), first);
    let asked: Vec<_> = fake.requests().into_iter().filter(|s| s.line.contains("/issues/1")).collect();
    assert_eq!([asked[0].known.as_deref(), asked[1].known.as_deref()], [None, Some("W/\"one\"")]);
    assert_eq!(*counted.lock().unwrap(), (2, 0), "both were waited for; the token is everybody's");
    let theirs = repo.github().repo(InstallationId(4), OURS, "o/r".parse().unwrap());
    theirs.issue(IssueNo(1)).await.unwrap();
    assert_eq!(fake.requests().pop().unwrap().known, None);
}

#[tokio::test]
async fn repository_is_looked_up_by_id_when_its_name_is_not_found() {
    let installed = json!({ "id": 3, "account": { "login": "o" }, "suspended_at": null });
    let fake = FakeGitHub::start(move |seen, before| match (seen.line.as_str(), before) {
        ("GET /app/installations/3", 0) => canned(404, json!({})),
        ("GET /app/installations/3", 1) => {
            canned(200, json!({ "id": 3, "account": null, "suspended_at": "2026-01-01T00:00:00Z" }))
        }
        ("GET /app/installations/3", _) => canned(200, installed.clone()),
        ("GET /repositories/9", 0) => canned(404, json!({})),
        ("GET /repositories/9", _) => {
            canned(200, json!({ "id": 9, "full_name": "p/moved", "default_branch": "main" }))
        }
        _ => None,
    })
    .await;
    let repo = fake.repo();
    assert_eq!(repo.availability().await, Ok(RepositoryAvailability::Uninstalled));
    assert_eq!(repo.availability().await, Ok(RepositoryAvailability::Suspended));
    assert_eq!(repo.availability().await, Ok(RepositoryAvailability::Unreachable));
    let Ok(RepositoryAvailability::Available(info)) = repo.availability().await else {
        panic!("it is there")
    };
    assert_eq!(info.name.to_string(), "p/moved");
}

#[tokio::test]
async fn next_page_is_requested_from_the_api_host_even_if_the_link_names_another() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /api/v3/installation/repositories?per_page=100" => {
            let more = json!({ "repositories": [{ "id": 1, "full_name": "o/a" }] });
            // Another host, to which the credentials must not go.
            let next = "<https://elsewhere.example/api/v3/installation/repositories?per_page=100&page=2>; rel=\"next\", <https://x/y>; rel=\"last\"";
            canned(200, more).map(|a| a.header("link", next))
        }
        "GET /api/v3/installation/repositories?per_page=100&page=2" => {
            canned(200, json!({ "repositories": [{ "id": 2, "full_name": "o/b", "private": true }] }))
        }
        _ => None,
    })
    .await;
    for base in ["/api/v3", "/api/v3/"] {
        let found = fake.github_at(base).repositories(InstallationId(3)).await.unwrap();
        assert_eq!(found.iter().map(|repo| repo.id.0).collect::<Vec<_>>(), [1, 2]);
    }
    let pages = fake.requests().into_iter().filter(|seen| seen.line.contains("/installation/repositories"));
    assert!(pages.clone().count() == 4);
    for page in pages {
        assert!(page.authorization.starts_with("Bearer ghs_"), "{page:?}");
    }
}

#[tokio::test]
async fn forbidden_error_names_the_permission_to_grant() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "POST /repos/o/r/issues/1/reactions" => {
            canned(403, json!({ "message": "Resource not accessible by integration" }))
                .map(|a| a.header("x-accepted-github-permissions", "issues=write"))
        }
        _ => None,
    })
    .await;
    let fault = fake.repo().react(ReactionTarget::Issue(IssueNo(1)), Reaction::Eyes).await.unwrap_err();
    assert_eq!(
        fault.to_string(),
        "GitHub refused POST /repos/o/r/issues/1/reactions: it requires issues=write; \
         give the App that permission (Resource not accessible by integration)"
    );
}

#[tokio::test]
async fn failed_permission_lookup_returns_an_error_instead_of_role_none() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r/collaborators/ann/permission" => canned(
            200,
            json!({ "permission": "write", "user": { "id": 7, "permissions": { "push": true, "pull": true } } }),
        ),
        "GET /repos/o/r/collaborators/down/permission" => canned(503, json!({})),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    let ask = async |id, login: &str| {
        repo.permission(&Actor { id: UserId(id), login: login.into(), bot: false }).await
    };
    assert_eq!(ask(7, "ann").await, Ok(Role::Write));
    assert_eq!(ask(8, "ann").await, Ok(Role::None), "the login belongs to someone else now");
    assert_eq!(ask(7, "stranger").await, Ok(Role::None));
    assert!(matches!(ask(7, "down").await, Err(GitHubApiError::Transient { .. })));
}

#[tokio::test]
async fn client_follows_a_repository_rename_but_not_a_transfer() {
    let fake = FakeGitHub::start(|seen, _| {
        let moved = |to: String| canned(301, json!({})).map(|a| a.header("location", to));
        match seen.line.as_str() {
            "GET /repos/o/r" => moved("https://elsewhere.example/repositories/9".into()),
            "GET /repositories/9" => {
                canned(200, json!({ "id": 9, "full_name": "o/renamed", "default_branch": "main" }))
            }
            "GET /repos/o/r/issues/1" => moved("/repositories/9/issues/1".into()),
            "GET /repositories/9/issues/1" => canned(200, issue(1)),
            "GET /repos/o/r/pulls?head=o%3Ab&state=all&per_page=100" => {
                moved("/repositories/9/pulls?head=o%3Ab&state=all&per_page=100".into())
            }
            "GET /repositories/9/pulls?head=o%3Ab&state=all&per_page=100" => canned(200, json!([])),
            "GET /repos/o/r/issues/2" => moved("/repositories/10/issues/5".into()),
            "GET /repos/o/r/issues/3" => moved("/repositories/9/issues/4".into()),
            _ => None,
        }
    })
    .await;
    let repo = fake.repo();
    assert_eq!(repo.info().await.unwrap().name.to_string(), "o/renamed");
    assert_eq!(repo.issue(IssueNo(1)).await.unwrap().number, IssueNo(1));
    assert_eq!(repo.pulls_of_branch("b").await.unwrap(), []);
    for gone in [2, 3] {
        let fault = repo.issue(IssueNo(gone)).await.unwrap_err();
        assert!(matches!(fault, GitHubApiError::Moved { .. }), "{fault}");
    }
}

#[tokio::test]
async fn write_is_refused_when_the_repository_name_is_reused() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "GET /repos/o/r" => canned(200, json!({ "id": 10, "full_name": "o/r", "default_branch": "main" })),
        _ => None,
    })
    .await;
    let repo = fake.repo();
    assert!(matches!(repo.info().await, Err(GitHubApiError::Gone { .. })));
    let fault = repo.react(ReactionTarget::Issue(IssueNo(1)), Reaction::Eyes).await.unwrap_err();
    assert!(matches!(fault, GitHubApiError::Gone { .. }), "{fault}");
    assert!(fake.writes().is_empty());
}

#[tokio::test]
async fn git_token_can_only_read_one_repository() {
    let fake = FakeGitHub::start(|_, _| None).await;
    let (token, _) = fake.github().git_token(InstallationId(3), OURS).await.unwrap();
    assert_eq!(secrecy::ExposeSecret::expose_secret(&token), "ghs_1");
    let asked = fake.requests().pop().unwrap();
    assert_eq!(asked.body, json!({ "repository_ids": [9], "permissions": { "contents": "read" } }));
    assert!(asked.authorization.starts_with("Bearer ey"), "signed by the App's key");
}

#[tokio::test]
async fn manifest_code_is_exchanged_and_never_appears_in_errors() {
    let fake = FakeGitHub::start(|seen, _| match seen.line.as_str() {
        "POST /app-manifests/good/conversions" => canned(
            201,
            json!({ "id": 5, "slug": "s", "name": "n", "html_url": "https://x/apps/s", "pem": "PEM",
                    "webhook_secret": "w", "client_id": "c" }),
        ),
        _ => None,
    })
    .await;
    let url = fake.origin.parse().unwrap();
    let app = convert_manifest(&url, "good", Arc::<SteppedClock>::default()).await.unwrap();
    assert_eq!(app.id, 5);
    assert!(!format!("{app:?}").contains("PEM"));
    assert_eq!(fake.requests()[0].authorization, "");
    let fault = convert_manifest(&url, "badcode", Arc::<SteppedClock>::default()).await.unwrap_err();
    assert!(!format!("{fault} {fault:?}").contains("badcode"), "{fault}");
    let nowhere = "http://127.0.0.1:9/".parse().unwrap();
    let fault = convert_manifest(&nowhere, "badcode", Arc::<SteppedClock>::default()).await.unwrap_err();
    assert!(!format!("{fault} {fault:?}").contains("badcode"), "{fault}");
    assert!(fault.to_string().contains("refused"), "it says why: {fault}");
}

#[tokio::test]
async fn client_error_distinguishes_an_invalid_key_from_an_invalid_url() {
    let fake = FakeGitHub::start(|_, _| None).await;
    let options = |api_url: &str, private_key: SecretString| GitHubOptions {
        api_url: api_url.parse().unwrap(),
        web_url: fake.origin.parse().unwrap(),
        app_id: 1,
        private_key,
        pacing: Pacing::Off,
        clock: Arc::<SteppedClock>::default(),
    };
    let bad_key = GitHub::new(options(&fake.origin, "-----BEGIN nothing".into())).unwrap_err();
    assert!(
        matches!(bad_key, GitHubClientError::Key { .. }) && !bad_key.to_string().contains("BEGIN"),
        "{bad_key}"
    );
    let bad_url = GitHub::new(options("ftp://x/", key())).unwrap_err();
    assert!(matches!(bad_url, GitHubClientError::Address { .. }), "{bad_url}");
    let nowhere = GitHub::new(options("http://127.0.0.1:9/", key())).unwrap().app().await.unwrap_err();
    assert!(matches!(nowhere, GitHubApiError::Transient { .. }) && nowhere.is_temporary(), "{nowhere}");
}

#[tokio::test]
async fn bot_account_lookup_is_repeated_until_it_succeeds() {
    let fake = FakeGitHub::start(|seen, before| match seen.line.as_str() {
        "GET /app/installations?per_page=100" => canned(200, json!([])),
        "GET /users/countersign%5Bbot%5D" if before == 0 => canned(404, json!({})),
        _ => None,
    })
    .await;
    let github = fake.github();
    assert_eq!(github.bot().await.unwrap().id, UserId(0), "not shown yet");
    assert_eq!(github.bot_for_installation(InstallationId(3)).await.unwrap().id, UserId(BOT));
    assert_eq!(github.bot().await.unwrap().id, UserId(BOT));
    assert_eq!(fake.count("GET /users/"), 2, "what is known is not asked for again");
}
