//! Tests of the server's public and private HTTP listeners with hostile and malformed requests.

use std::{path::PathBuf, time::Duration};

use countersign::{
    engine::RunViewStatus,
    store::InboxCounts,
    types::Timestamp,
    web::{ConnectionLimits, serve},
};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::{Method, StatusCode, header::HeaderMap};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::world::{SECRET, Setting, World, world};

const MEGABYTE: usize = 1024 * 1024;

/// A request to `/webhook`. It is valid unless the test changes a part.
pub(crate) struct Knock {
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

pub(crate) fn knock(id: &str, event: &str, body: impl Into<Vec<u8>>) -> Knock {
    let knock = Knock { method: Method::POST, headers: HeaderMap::new(), body: body.into() };
    let signature = signature(SECRET, &knock.body);
    knock
        .with("content-type", "application/json")
        .with("x-github-event", event)
        .with("x-github-delivery", id)
        .with("x-hub-signature-256", &signature)
}

impl Knock {
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sends the request and returns the status and body of the response.
    pub(crate) async fn at(self, url: url::Url) -> (StatusCode, String) {
        let request = reqwest::Client::new().request(self.method, url).headers(self.headers).body(self.body);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }
}

fn ping(id: &str) -> Knock {
    knock(id, "ping", r#"{"zen":"Design for failure."}"#)
}

impl World {
    pub(crate) async fn counts(&self) -> InboxCounts {
        self.app.store.inbox().counts().await.unwrap()
    }

    /// Opens another connection to the main database, independent of the server.
    pub(crate) fn database(&self) -> rusqlite::Connection {
        let path: PathBuf = self.app.settings.data_dir.join("main.db");
        rusqlite::Connection::open(path).unwrap()
    }

    /// Returns the final state of a delivery and the note stored with it.
    pub(crate) fn ending(&self, id: &str) -> (String, String) {
        let sql = "SELECT state, COALESCE(note, '') FROM inbox WHERE id = ?1";
        self.database().query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    /// Returns the newest payload that the hub sent for this event and action.
    pub(crate) fn payload(&self, event: &str, action: &str) -> Value {
        let sent = self.hub.deliveries();
        let like =
            |d: &&countersign::localhub::HubDelivery| d.event == event && d.action.as_deref() == Some(action);
        let newest = sent.iter().rev().find(like).unwrap();
        serde_json::from_slice(&self.hub.delivery_body(&newest.guid).unwrap()).unwrap()
    }
}

#[tokio::test]
async fn signed_delivery_is_stored_once() {
    let mut w = world().await;
    let before = w.counts().await;
    let (status, message) = ping("guid-1").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{message}");
    assert_eq!(w.counts().await.new, before.new + 1, "it is stored before it is processed");

    for body in [r#"{"zen":"Design for failure."}"#, r#"{"zen":"Another body under the same id."}"#] {
        let (status, message) = knock("guid-1", "ping", body).at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        assert!(message.contains("stored before"), "{message}");
    }
    assert_eq!(w.counts().await.new, before.new + 1, "a repeated id stores nothing");

    w.settle().await;
    assert_eq!(w.ending("guid-1"), ("done".to_owned(), "pong".to_owned()));
    ping("guid-1").at(w.webhook.clone()).await;
    let after = w.counts().await;
    assert_eq!((after.new, after.done), (0, before.done + 1), "a finished delivery is not processed again");
}

#[tokio::test]
async fn delivery_without_a_valid_signature_is_refused() {
    let w = world().await;
    let before = w.counts().await;
    let sha1 = "sha1=0123456789abcdef0123456789abcdef01234567";
    let cut = signature(SECRET, b"{}")[..40].to_owned();
    for (case, knock) in [
        ("another secret", ping("a").with("x-hub-signature-256", &signature("guessed", b"{}"))),
        ("another body", ping("b").with("x-hub-signature-256", &signature(SECRET, b"{}"))),
        ("none", ping("c").without("x-hub-signature-256")),
        ("SHA-1 alone", ping("d").without("x-hub-signature-256").with("x-hub-signature", sha1)),
        ("cut", ping("e").with("x-hub-signature-256", &cut)),
        ("empty", ping("f").with("x-hub-signature-256", "")),
        ("not hexadecimal", ping("g").with("x-hub-signature-256", "sha256=zz")),
    ] {
        let (status, message) = knock.at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{case}: {message}");
        let message: Value = serde_json::from_str(&message).unwrap();
        assert!(message["message"].as_str().unwrap().ends_with('.'), "{case}: one sentence: {message}");
        assert!(!message.to_string().contains(SECRET));
    }
    assert_eq!(w.counts().await, before, "nothing is stored");
}

#[tokio::test]
async fn previous_webhook_secret_is_accepted_during_rotation() {
    let env = "COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS=the-one-before\n".to_owned();
    let w = World::new(Setting { env, ..Setting::default() }).await;
    for (id, secret, expected) in [
        ("new", SECRET, StatusCode::ACCEPTED),
        ("old", "the-one-before", StatusCode::ACCEPTED),
        ("older", "the-one-before-that", StatusCode::UNAUTHORIZED),
    ] {
        let knock = ping(id);
        let signature = signature(secret, &knock.body);
        let (status, message) = knock.with("x-hub-signature-256", &signature).at(w.webhook.clone()).await;
        assert_eq!(status, expected, "{id}: {message}");
    }
}

#[tokio::test]
async fn malformed_webhook_request_gets_a_specific_error() {
    let w = world().await;
    let before = w.counts().await;
    let form = "application/x-www-form-urlencoded";
    let (status, message) = ping("form").with("content-type", form).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(
        message.contains("application/json in the App's settings"),
        "the message names the fix: {message}"
    );
    let (status, _) = ping("untyped").without("content-type").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for header in ["x-github-event", "x-github-delivery"] {
        let (status, _) = ping("headless").without(header).at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{header}");
    }
    let (status, _) = ping(&"x".repeat(500)).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "an id longer than GitHub's");
    assert_eq!(w.counts().await, before);

    let get = |path: &str| {
        let url = w.door(path);
        async move { reqwest::get(url).await.unwrap() }
    };
    assert_eq!(get("/webhook").await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let health = get("/healthz").await;
    assert_eq!(health.status(), StatusCode::OK);
    assert_eq!(health.text().await.unwrap(), "ok\n", "it only says that the server is alive");
    for elsewhere in ["/", "/readyz", "/webhook/", "/webhooks", "/metrics"] {
        assert_eq!(get(elsewhere).await.status(), StatusCode::NOT_FOUND, "{elsewhere}");
    }
}

#[tokio::test]
async fn webhook_body_is_accepted_up_to_githubs_limit() {
    let w = world().await;
    let padded = |size: usize| {
        let frame = json!({ "zen": "", "pad": "" }).to_string().len();
        json!({ "zen": "", "pad": "x".repeat(size - frame) }).to_string()
    };
    let (status, message) = knock("three", "ping", padded(3 * MEGABYTE)).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{message}");
    assert_eq!(w.counts().await.new, 1);

    // A body with `Content-Length` is refused at once; one without it is cut off at the limit.
    let (status, message) = knock("over", "ping", vec![b'x'; 25 * MEGABYTE + 1]).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{message}");
    assert!(message.contains("25 MB"), "{message}");
    assert_eq!(w.counts().await.new, 1);
}

#[tokio::test]
async fn delivery_with_invalid_json_is_acknowledged_and_processed_after_redelivery() {
    let mut w = world().await;
    let dead = w.counts().await.dead;
    let (status, _) = knock("torn", "issues", r#"{"action":"labeled","#).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "the delivery itself is acknowledged");
    let (status, _) = knock("bytes", "issue_comment", [0xff, 0xfe, 0x00]).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    w.settle().await;
    assert_eq!(w.counts().await.dead, dead + 2);
    let (state, note) = w.ending("torn");
    assert_eq!(state, "dead");
    assert!(note.contains("JSON"), "the note holds the reason: {note}");

    let (_, message) = knock("torn", "ping", "{}").at(w.webhook.clone()).await;
    assert!(message.contains("will be tried again"), "{message}");
    w.settle().await;
    assert_eq!(w.ending("torn").0, "done");
    assert_eq!(w.counts().await.dead, dead + 1);
}

#[tokio::test]
async fn unknown_events_are_ignored_without_an_error() {
    let mut w = world().await;
    let mut body = w.payload("installation", "created");
    body["action"] = json!("invented_tomorrow");
    for (id, event) in [("unknown-event", "marketplace_purchase"), ("unknown-action", "issues")] {
        let (status, _) = knock(id, event, body.to_string()).at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        w.settle().await;
        let (state, note) = w.ending(id);
        assert_eq!(state, "done", "{event}: {note}");
        assert!(note.starts_with("ignored"), "{event}: {note}");
    }
}

#[tokio::test]
async fn delivery_of_a_disallowed_installation_makes_no_api_call() {
    let mut w = world().await;
    w.hub.label(w.repo, w.issue, w.user("maya"), "bug").unwrap();
    w.settle().await;
    let mut body = w.payload("issues", "labeled");
    body["label"]["name"] = json!("countersign:lld");
    body["installation"]["id"] = json!(w.installation.0 + 1000);
    let calls = w.hub.requests().len();
    let (status, _) = knock("foreign", "issues", body.to_string()).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    w.settle().await;
    let (state, note) = w.ending("foreign");
    assert_eq!(state, "done");
    assert!(note.contains("[installations] allow"), "the note names the setting: {note}");
    assert_eq!(w.hub.requests().len(), calls, "no request to GitHub");
    assert!(w.run().await.is_none());

    // The same payload under our own installation starts a run, so the refusal was only about the installation.
    body["installation"]["id"] = json!(w.installation.0);
    knock("ours", "issues", body.to_string()).at(w.webhook.clone()).await;
    w.settle().await;
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn delivery_that_cannot_be_stored_is_not_acknowledged() {
    let w = world().await;
    w.database().execute_batch("ALTER TABLE inbox RENAME TO lost").unwrap();
    let (status, message) = ping("unlucky").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!message.contains("inbox"), "the response hides what failed: {message}");
    let ready = w.private().await;
    assert_eq!(reqwest::get(ready.join("/readyz").unwrap()).await.unwrap().status(), 503);

    w.database().execute_batch("ALTER TABLE lost RENAME TO inbox").unwrap();
    let (status, _) = ping("unlucky").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "the redelivery is accepted");
}

#[tokio::test]
async fn private_listener_reports_run_counts_and_rejects_a_foreign_host_header() {
    let mut w = world().await;
    let (url, token) = (w.private().await, w.token());
    let ready = |host: Option<&'static str>| {
        let request = reqwest::Client::new().get(url.join("/readyz").unwrap()).bearer_auth(&token);
        let request = host.into_iter().fold(request, |request, host| request.header("host", host));
        async move { request.send().await.unwrap() }
    };
    for host in ["countersign.example.org", "127.0.0.1.example.org:80", "localhost.example.org", ""] {
        assert_eq!(ready(Some(host)).await.status(), StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
    for host in ["localhost:1234", "127.0.0.1", "[::1]:80", "[::1]"] {
        assert_eq!(ready(Some(host)).await.status(), StatusCode::OK, "{host}");
    }
    let counts: Value = ready(None).await.json().await.unwrap();
    assert_eq!(counts["ready"], json!(true));
    assert_eq!(counts["runs"], json!({ "live": 0, "waiting_for_people": 0 }));
    let done = counts["inbox"]["done"].as_u64().unwrap();

    w.comes_to_the_gate().await;
    knock("torn", "issues", "{").at(w.webhook.clone()).await;
    w.settle().await;
    ping("unread").at(w.webhook.clone()).await;
    let counts: Value = ready(None).await.json().await.unwrap();
    assert_eq!(counts["runs"], json!({ "live": 1, "waiting_for_people": 1 }));
    assert_eq!((&counts["inbox"]["new"], &counts["inbox"]["dead"]), (&json!(1), &json!(1)), "{counts}");
    assert!(counts["inbox"]["done"].as_u64().unwrap() > done);
    // Without a token the response only says whether the server is well.
    let bare = async |path: &str| reqwest::get(url.join(path).unwrap()).await.unwrap();
    let health: Value = bare("/readyz").await.json().await.unwrap();
    assert_eq!(health, json!({ "ready": true, "degraded": false }));
}

#[tokio::test]
async fn incomplete_request_times_out() {
    let w = world().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = ConnectionLimits { connections: 8, head: Duration::from_millis(50) };
    tokio::spawn(serve(listener, w.app.public(), limits, w.clock.clone(), CancellationToken::new()));
    for (sent, expected) in
        [("", ""), ("GET /hea", ""), ("GET /healthz HTTP/1.1\r\nHost: bot\r\n\r\nGET /", "ok\n")]
    {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with(expected), "{response}");
    }
}

#[tokio::test]
async fn delivery_time_comes_from_the_servers_clock() {
    let w = world().await;
    ping("timed").at(w.webhook.clone()).await;
    let sql = "SELECT received_at FROM inbox WHERE id = 'timed'";
    let at: i64 = w.database().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(Timestamp(at), countersign::clock::Clock::now(&*w.clock));
}
