//! Tests of the hub over HTTP, in the same way as a client uses it.

use std::{
    sync::{Arc, atomic::AtomicI64, atomic::Ordering::SeqCst},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use reqwest::{Client, Method, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};

use super::*;
use crate::types::{InstallationId, IssueNo, Role, UserId};

const NOON: i64 = 1_771_495_200_000;

struct HubFixture {
    hub: Hub,
    data: tempfile::TempDir,
    clock: Arc<AtomicI64>,
    app: AppCredentials,
    owner: UserId,
    repo: RepoId,
    installation: InstallationId,
    client: Client,
}

fn options(data: &Path, clock: &Arc<AtomicI64>) -> HubOptions {
    let clock = clock.clone();
    HubOptions {
        listen: ([127, 0, 0, 1], 0).into(),
        data: data.to_owned(),
        now: Arc::new(move || Timestamp(clock.load(SeqCst))),
        keeps: true,
    }
}

fn spec(owner: UserId, webhook_url: Option<Url>) -> AppSpec {
    let permissions = [("contents", "write"), ("issues", "write"), ("pull_requests", "read")];
    AppSpec {
        name: "Countersign".into(),
        slug: "countersign".into(),
        permissions: permissions.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        events: vec!["issues".into(), "issue_comment".into()],
        webhook_url,
        private_key: None,
        webhook_secret: SecretString::from("secret"),
        owner,
    }
}

async fn hub_fixture() -> HubFixture {
    let data = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicI64::new(NOON));
    let hub = Hub::start(options(data.path(), &clock)).await.unwrap();
    let owner = hub.create_user("ada").unwrap();
    let files = vec![("README.md".to_owned(), b"# hello\n".to_vec())];
    let repo = hub.create_repo(owner, "tally", RepoSource::Files(files), true).unwrap();
    let app = hub.create_app(spec(owner, None)).unwrap();
    let installation = hub.install(app.id, &[repo]).unwrap();
    let client = Client::builder().user_agent("test").no_proxy();
    let client = client.redirect(reqwest::redirect::Policy::none()).build().unwrap();
    HubFixture { hub, data, clock, app, owner, repo, installation, client }
}

impl HubFixture {
    fn jwt(&self) -> String {
        let now = self.clock.load(SeqCst) / 1000;
        let claims = json!({ "iat": now - 60, "exp": now + 540, "iss": self.app.id.to_string() });
        let [header, claims] =
            [json!({ "alg": "RS256" }), claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let message = format!("{header}.{claims}");
        let signature = keys::sign(self.app.pem.expose_secret(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    async fn send(&self, method: Method, path: &str, token: &str, body: Option<Value>) -> Response {
        let url = format!("{}{path}", self.hub.api_url());
        let request = self.client.request(method, url).bearer_auth(token);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        request.send().await.unwrap()
    }

    async fn token(&self, body: Value) -> String {
        let path = format!("/app/installations/{}/access_tokens", self.installation);
        let answer = self.send(Method::POST, &path, &self.jwt(), Some(body)).await;
        assert_eq!(answer.status(), 201);
        answer.json::<Value>().await.unwrap()["token"].as_str().unwrap().to_owned()
    }

    async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let answer = self.send(Method::GET, path, token, None).await;
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        let answer = self.send(Method::POST, path, token, Some(body)).await;
        (answer.status().as_u16(), answer.json().await.unwrap())
    }
}

#[tokio::test]
async fn response_to_a_refused_request_names_the_missing_permission() {
    let w = hub_fixture().await;
    let token = w.token(json!({ "permissions": { "contents": "read" } })).await;
    let body = Some(json!({ "body": "x" }));
    let answer = w.send(Method::POST, "/repos/ada/tally/issues/1/comments", &token, body).await;
    assert_eq!(answer.status(), 403);
    assert_eq!(answer.headers()["x-accepted-github-permissions"], "issues=write; pull_requests=write");
    assert_eq!(w.get("/repos/ada/other", &token).await.0, 404);
    let (status, reply) = w.get("/repos/ada/tally/milestones", &token).await;
    assert_eq!(
        (status, &reply["message"]),
        (404, &json!("localhub has no route GET /repos/ada/tally/milestones"))
    );
    let elsewhere = w.hub.create_repo(w.owner, "private", RepoSource::Files(vec![]), true);
    assert!(elsewhere.is_ok());
    assert_eq!(w.get("/repos/ada/private", &token).await.0, 404);
}

#[tokio::test]
async fn comments_are_paged_and_can_get_reactions() {
    let w = hub_fixture().await;
    let issue = w.hub.open_issue(w.repo, w.owner, "A title", "A body").unwrap();
    let token = w.token(json!({})).await;
    for n in 0..5 {
        let (status, comment) =
            w.post("/repos/ada/tally/issues/1/comments", &token, json!({ "body": format!("no. {n}") })).await;
        assert_eq!((status, &comment["user"]["type"]), (201, &json!("Bot")));
    }
    let path = "/repos/ada/tally/issues/1/comments?per_page=2&page=2";
    let answer = w.send(Method::GET, path, &token, None).await;
    let link = answer.headers()["link"].to_str().unwrap().to_owned();
    let next =
        format!("<{}/repos/ada/tally/issues/1/comments?per_page=2&page=3>; rel=\"next\"", w.hub.api_url());
    assert!(link.contains(&next), "{link}");
    let page: Value = answer.json().await.unwrap();
    assert_eq!(page[0]["body"], "no. 2");

    let id = page[0]["id"].as_u64().unwrap();
    let reactions = format!("/repos/ada/tally/issues/comments/{id}/reactions");
    assert_eq!(w.post(&reactions, &token, json!({ "content": "eyes" })).await.0, 201);
    assert_eq!(w.post(&reactions, &token, json!({ "content": "eyes" })).await.0, 200);
    let labels = "/repos/ada/tally/issues/1/labels";
    assert_eq!(w.post(labels, &token, json!({ "labels": ["countersign:lld"] })).await.0, 200);
    let answer = w.send(Method::DELETE, &format!("{labels}/countersign%3Alld"), &token, None).await;
    assert_eq!(answer.json::<Value>().await.unwrap(), json!([]));
    let (_, events) = w.get("/repos/ada/tally/issues/1/events", &token).await;
    assert_eq!((&events[0]["event"], &events[1]["event"]), (&json!("labeled"), &json!("unlabeled")));

    let long = "x".repeat(65_537);
    let (status, reply) = w.post("/repos/ada/tally/issues/1/comments", &token, json!({ "body": long })).await;
    assert_eq!((status, &reply["message"]), (422, &json!("Validation Failed")));
    let seen = w.hub.issue(w.repo, issue).unwrap();
    assert_eq!(seen.comments.len(), 5);
    assert_eq!(seen.comments[2].reactions, [("countersign[bot]".to_owned(), "eyes".to_owned())]);
}

#[tokio::test]
async fn git_clone_of_a_private_repository_needs_a_token() {
    let w = hub_fixture().await;
    let token = w.token(json!({ "repository_ids": [w.repo.0], "permissions": { "contents": "read" } })).await;
    let clone = |credentials: String| {
        let url = format!("http://{credentials}{}/ada/tally.git", w.hub.0.address);
        let into = tempfile::tempdir().unwrap();
        let target = into.path().join("clone");
        tokio::task::spawn_blocking(move || {
            let mut command = git::git_command(into.path());
            command.env_remove("GIT_DIR").args(["clone", "--quiet", &url]).arg(&target);
            let done = command.output().unwrap();
            done.status.success().then(|| std::fs::read(target.join("README.md")).unwrap())
        })
    };
    assert_eq!(clone(format!("x-access-token:{token}@")).await.unwrap().unwrap(), b"# hello\n");
    assert!(clone(String::new()).await.unwrap().is_none());
    assert!(clone("x-access-token:ghs_wrong@".into()).await.unwrap().is_none());
}

#[tokio::test]
async fn pull_request_heads_are_updated_at_restart_after_a_kill() {
    let w = hub_fixture().await;
    w.hub.push_commit(w.repo, "topic", w.owner, &[("a", b"1")], "One").unwrap();
    let head = || w.hub.branches(w.repo).into_iter().find(|(name, _)| name == "topic").unwrap().1;
    let (first, base_oid) = (head(), w.hub.log(w.repo, "main")[0].oid.clone());
    let new = actions::NewPullRequest {
        title: "A pull request".into(),
        body: None,
        draft: false,
        head: "topic".into(),
        base: "main".into(),
        head_oid: first.clone(),
        base_oid,
    };
    w.hub.change(|c| c.open_pull(w.repo, w.owner, new)).unwrap();
    let notes = std::fs::read(w.data.path().join("hub.json")).unwrap();
    w.hub.push_commit(w.repo, "topic", w.owner, &[("a", b"2")], "Two").unwrap();
    w.hub.stop().await;
    std::fs::write(w.data.path().join("hub.json"), notes).unwrap();
    // Left by a hub killed while it created a repository.
    std::fs::create_dir(w.hub.git_dir(RepoId(w.hub.read(|s| s.next_id)))).unwrap();

    let again = Hub::start(options(w.data.path(), &w.clock)).await.unwrap();
    assert_ne!(again.pulls(w.repo)[0].head_oid, first);
    assert_eq!(again.pulls(w.repo)[0].head_oid, head());
    let files = RepoSource::Files(vec![("a".into(), b"3".to_vec())]);
    again.create_repo(w.owner, "another", files, false).unwrap();
}

#[tokio::test]
async fn foreign_host_header_is_refused() {
    let w = hub_fixture().await;
    let answer = w.client.get(w.hub.base_url()).header("Host", "evil.example").send().await.unwrap();
    assert_eq!(answer.status(), 421);
}

/// Submits a form as a browser would. `origin` is the origin of the page with the form: our own or a foreign one.
async fn submit_form(w: &HubFixture, path: &str, origin: &str, fields: &[(&str, &str)]) -> Response {
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(fields);
    let url = format!("{}{path}", w.hub.0.base);
    let request = w.client.post(url).header("Origin", origin).header("Cookie", cookie(w));
    request
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(body.finish())
        .send()
        .await
        .unwrap()
}

fn cookie(w: &HubFixture) -> String {
    format!("localhub={}", w.hub.0.page_token)
}

async fn page(w: &HubFixture, path: &str) -> String {
    let url = format!("{}{path}", w.hub.0.base);
    w.client.get(url).header("Cookie", cookie(w)).send().await.unwrap().text().await.unwrap()
}

fn csrf(page: &str) -> &str {
    let (_, rest) = page.split_once("name=csrf value=\"").unwrap();
    rest.split_once('"').unwrap().0
}

#[tokio::test]
async fn pages_require_the_token_and_forms_require_the_hubs_origin() {
    let w = hub_fixture().await;
    w.hub.open_issue(w.repo, w.owner, "A <b>title</b>", "<script>x</script>Body").unwrap();
    let closed = w.client.get(format!("{}/ada/tally/issues/1", w.hub.0.base)).send().await.unwrap();
    assert_eq!(closed.status(), 403);
    let entered = w.client.get(w.hub.page_url()).send().await.unwrap();
    assert_eq!((entered.status().as_u16(), &entered.headers()["location"]), (303, &"/".parse().unwrap()));
    let set = entered.headers()["set-cookie"].to_str().unwrap();
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");

    let thread = page(&w, "/ada/tally/issues/1").await;
    assert!(thread.contains("A &lt;b&gt;title&lt;/b&gt;") && !thread.contains("<script>x"), "{thread}");
    let (base, path) = (w.hub.0.base.clone(), "/ada/tally/issues/1/comment");
    let good = [("csrf", csrf(&thread)), ("body", "Hello\r\nyou")];
    assert_eq!(submit_form(&w, path, "http://evil.example", &good).await.status(), 403);
    assert_eq!(submit_form(&w, path, &base, &[("csrf", "wrong"), ("body", "x")]).await.status(), 403);
    assert_eq!(submit_form(&w, path, &base, &good).await.status(), 303);
    let bodies: Vec<_> =
        w.hub.issue(w.repo, IssueNo(1)).unwrap().comments.into_iter().map(|c| c.body).collect();
    assert_eq!(bodies, ["Hello\r\nyou"]);
}

#[tokio::test]
async fn labelling_an_issue_requires_a_repository_role() {
    let w = hub_fixture().await;
    let eve = w.hub.create_user("eve").unwrap();
    w.hub.set_role(w.repo, eve, Role::Read).unwrap();
    let issue = w.hub.open_issue(w.repo, w.owner, "A title", "A body").unwrap();
    let token = csrf(&page(&w, "/").await).to_owned();
    let label = |who: &'static str| {
        let url = format!("{}/ada/tally/issues/1/label", w.hub.0.base);
        let request = w.client.post(url).header("Origin", &w.hub.0.base);
        let request = request.header("Cookie", format!("{}; localhub_as={who}", cookie(&w)));
        request.body(format!("csrf={token}&name=countersign%3Alld")).send()
    };
    assert_eq!(label("eve").await.unwrap().status(), 403);
    assert!(w.hub.issue(w.repo, issue).unwrap().labels.is_empty());
    assert_eq!(label("ada").await.unwrap().status(), 303);
    assert_eq!(w.hub.issue(w.repo, issue).unwrap().labels, ["countersign:lld"]);
}

#[tokio::test]
async fn manifest_creates_an_app_that_can_be_installed() {
    let w = hub_fixture().await;
    let manifest = json!({
        "name": "Second Signer", "url": "https://example.com", "redirect_url": "http://127.0.0.1:9/back",
        "hook_attributes": { "url": "http://127.0.0.1:9/webhook" },
        "default_permissions": { "issues": "write" }, "default_events": ["issues"],
    })
    .to_string();
    let shown =
        submit_form(&w, "/settings/apps/new?state=abc", "http://127.0.0.1:9", &[("manifest", &manifest)])
            .await;
    let shown = shown.text().await.unwrap();
    assert!(shown.contains("Second Signer") && shown.contains("value=\"abc\""), "{shown}");
    let fields = [("csrf", csrf(&shown)), ("manifest", manifest.as_str()), ("state", "abc")];
    let made = submit_form(&w, "/settings/apps/create", &w.hub.0.base, &fields).await;
    let back: Url = made.headers()["location"].to_str().unwrap().parse().unwrap();
    let code = back.query_pairs().find(|(n, _)| n == "code").unwrap().1.into_owned();
    assert!(back.as_str().ends_with("&state=abc"), "{back}");

    let convert = || w.client.post(format!("{}/app-manifests/{code}/conversions", w.hub.api_url())).send();
    let app: Value = convert().await.unwrap().json().await.unwrap();
    assert_eq!((&app["slug"], &app["owner"]["login"]), (&json!("second-signer"), &json!("ada")));
    assert!(app["pem"].as_str().unwrap().starts_with("-----BEGIN RSA PRIVATE KEY-----"));
    assert_eq!(convert().await.unwrap().status(), 404, "a code is used once");

    let repo = w.repo.to_string();
    let fields = [("csrf", csrf(&shown)), ("repository", repo.as_str())];
    let installed = submit_form(&w, "/apps/second-signer/installations/new", &w.hub.0.base, &fields).await;
    assert_eq!((installed.status().as_u16(), &installed.headers()["location"]), (303, &"/".parse().unwrap()));
}

#[tokio::test]
async fn simulated_faults_match_the_behaviour_of_github() {
    let w = hub_fixture().await;
    let token = w.token(json!({})).await;
    let number = w.hub.open_issue(w.repo, w.owner, "t", "b").unwrap();
    let comments = format!("/repos/ada/tally/issues/{number}/comments");
    let seen = async || w.get(&comments, &token).await.1.as_array().unwrap().len();

    w.hub.arm_fault(HubFault::ReadsLag { by: Duration::from_secs(10) });
    w.post(&comments, &token, json!({ "body": "one" })).await;
    w.hub.push_commit(w.repo, "new", w.owner, &[("a", b"a")], "m").unwrap();
    let branch = async || w.get("/repos/ada/tally/git/ref/heads/new", &token).await.0;
    assert_eq!((seen().await, branch().await), (0, 404), "neither shows yet");
    w.clock.fetch_add(4_000, SeqCst);
    w.post(&comments, &token, json!({ "body": "two" })).await;
    w.clock.fetch_add(6_000, SeqCst);
    assert_eq!(
        (seen().await, branch().await),
        (1, 200),
        "what is ten seconds old shows, what is six does not"
    );
    w.hub.clear_faults();
    assert_eq!(seen().await, 2);

    let whole = w.send(Method::GET, &comments, &token, None).await;
    let (tag, left) = (whole.headers()["etag"].clone(), whole.headers()["x-ratelimit-remaining"].clone());
    let again = w.client.get(format!("{}{comments}", w.hub.api_url())).bearer_auth(&token);
    let again = again.header("if-none-match", tag).send().await.unwrap();
    assert_eq!((again.status().as_u16(), &again.headers()["x-ratelimit-remaining"]), (304, &left));

    let (method, path_contains) = ("POST".to_owned(), "/comments".to_owned());
    let drop = |after_effect| HubFault::Drop {
        method: method.clone(),
        path_contains: path_contains.clone(),
        after_effect,
        times: 1,
    };
    for (after_effect, there) in [(false, 2), (true, 3)] {
        w.hub.arm_fault(drop(after_effect));
        let post = w.client.post(format!("{}{comments}", w.hub.api_url())).bearer_auth(&token);
        let error = post.json(&json!({ "body": "x" })).send().await.unwrap_err();
        assert!(!error.is_status() && !error.is_decode(), "no answer at all: {error:?}");
        assert_eq!(seen().await, there);
    }

    w.hub.arm_fault(HubFault::PrimaryLimit { status: 429, until: Timestamp(w.clock.load(SeqCst) + 5_000) });
    let refused = w.send(Method::GET, &comments, &token, None).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["x-ratelimit-remaining"]),
        (429, &"0".parse().unwrap())
    );
    w.clock.fetch_add(5_000, SeqCst);
    assert_eq!(seen().await, 3);
    w.hub.expire_tokens().unwrap();
    assert_eq!(w.get(&comments, &token).await.0, 401);
}
