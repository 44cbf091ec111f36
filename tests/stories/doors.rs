//! The two doors, knocked on by anybody: the App's real listeners over real HTTP.

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

/// A request to `/webhook`, right in every respect until a test changes one.
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

    /// The status and what was said.
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

    /// The main database, opened a second time by somebody who should not.
    pub(crate) fn database(&self) -> rusqlite::Connection {
        let path: PathBuf = self.app.settings.data_dir.join("main.db");
        rusqlite::Connection::open(path).unwrap()
    }

    /// How a delivery ended: its state and the note beside it.
    pub(crate) fn ending(&self, id: &str) -> (String, String) {
        let sql = "SELECT state, COALESCE(note, '') FROM inbox WHERE id = ?1";
        self.database().query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    /// The newest payload that the hub sent of this event.
    pub(crate) fn payload(&self, event: &str, action: &str) -> Value {
        let sent = self.hub.deliveries();
        let like =
            |d: &&countersign::localhub::HubDelivery| d.event == event && d.action.as_deref() == Some(action);
        let newest = sent.iter().rev().find(like).unwrap();
        serde_json::from_slice(&self.hub.delivery_body(&newest.guid).unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_signed_delivery_is_stored_once() {
    let mut w = world().await;
    let before = w.counts().await;
    let (status, said) = ping("guid-1").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{said}");
    assert_eq!(w.counts().await.new, before.new + 1, "it is on disk before anybody looks at it");

    for body in [r#"{"zen":"Design for failure."}"#, r#"{"zen":"Another body under the same id."}"#] {
        let (status, said) = knock("guid-1", "ping", body).at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        assert!(said.contains("stored before"), "{said}");
    }
    assert_eq!(w.counts().await.new, before.new + 1, "a repeated id adds nothing");

    w.settle().await;
    assert_eq!(w.ending("guid-1"), ("done".to_owned(), "pong".to_owned()));
    ping("guid-1").at(w.webhook.clone()).await;
    let after = w.counts().await;
    assert_eq!((after.new, after.done), (0, before.done + 1), "what is done is not done again");
}

#[tokio::test]
async fn what_is_not_signed_by_our_secret_is_refused() {
    let w = world().await;
    let before = w.counts().await;
    let sha1 = "sha1=0123456789abcdef0123456789abcdef01234567";
    let cut = signature(SECRET, b"{}")[..40].to_owned();
    for (what, knock) in [
        ("another secret", ping("a").with("x-hub-signature-256", &signature("guessed", b"{}"))),
        ("another body", ping("b").with("x-hub-signature-256", &signature(SECRET, b"{}"))),
        ("none", ping("c").without("x-hub-signature-256")),
        ("SHA-1 alone", ping("d").without("x-hub-signature-256").with("x-hub-signature", sha1)),
        ("cut", ping("e").with("x-hub-signature-256", &cut)),
        ("empty", ping("f").with("x-hub-signature-256", "")),
        ("not hexadecimal", ping("g").with("x-hub-signature-256", "sha256=zz")),
    ] {
        let (status, said) = knock.at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{what}: {said}");
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(said["message"].as_str().unwrap().ends_with('.'), "{what}: one sentence: {said}");
        assert!(!said.to_string().contains(SECRET));
    }
    assert_eq!(w.counts().await, before, "nothing of it is kept");
}

#[tokio::test]
async fn two_secrets_hold_while_one_is_being_replaced() {
    let env = "COUNTERSIGN_WEBHOOK_SECRET_PREVIOUS=the-one-before\n".to_owned();
    let w = World::new(Setting { env, ..Setting::default() }).await;
    for (id, secret, expected) in [
        ("new", SECRET, StatusCode::ACCEPTED),
        ("old", "the-one-before", StatusCode::ACCEPTED),
        ("older", "the-one-before-that", StatusCode::UNAUTHORIZED),
    ] {
        let knock = ping(id);
        let signature = signature(secret, &knock.body);
        let (status, said) = knock.with("x-hub-signature-256", &signature).at(w.webhook.clone()).await;
        assert_eq!(status, expected, "{id}: {said}");
    }
}

#[tokio::test]
async fn the_front_door_says_what_is_wrong_with_a_request() {
    let w = world().await;
    let before = w.counts().await;
    let form = "application/x-www-form-urlencoded";
    let (status, said) = ping("form").with("content-type", form).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(said.contains("application/json in the App's settings"), "the fix is named: {said}");
    let (status, _) = ping("untyped").without("content-type").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for header in ["x-github-event", "x-github-delivery"] {
        let (status, _) = ping("headless").without(header).at(w.webhook.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{header}");
    }
    let (status, _) = ping(&"x".repeat(500)).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "an id longer than any of GitHub's");
    assert_eq!(w.counts().await, before);

    let get = |path: &str| {
        let url = w.door(path);
        async move { reqwest::get(url).await.unwrap() }
    };
    assert_eq!(get("/webhook").await.status(), StatusCode::METHOD_NOT_ALLOWED);
    let health = get("/healthz").await;
    assert_eq!(health.status(), StatusCode::OK);
    assert_eq!(health.text().await.unwrap(), "ok\n", "nothing but that it is alive");
    for elsewhere in ["/", "/readyz", "/webhook/", "/webhooks", "/metrics"] {
        assert_eq!(get(elsewhere).await.status(), StatusCode::NOT_FOUND, "{elsewhere}");
    }
}

#[tokio::test]
async fn large_bodies_are_taken_up_to_githubs_own_limit() {
    let w = world().await;
    let padded = |size: usize| {
        let frame = json!({ "zen": "", "pad": "" }).to_string().len();
        json!({ "zen": "", "pad": "x".repeat(size - frame) }).to_string()
    };
    let (status, said) = knock("three", "ping", padded(3 * MEGABYTE)).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{said}");
    assert_eq!(w.counts().await.new, 1);

    // The announced length decides at once; a body that hides its length is cut where the limit is.
    let (status, said) = knock("over", "ping", vec![b'x'; 25 * MEGABYTE + 1]).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{said}");
    assert!(said.contains("25 MB"), "{said}");
    assert_eq!(w.counts().await.new, 1);
}

#[tokio::test]
async fn what_cannot_be_read_is_kept_and_can_be_sent_again() {
    let mut w = world().await;
    let dead = w.counts().await.dead;
    let (status, _) = knock("torn", "issues", r#"{"action":"labeled","#).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "GitHub has delivered; the rest is ours");
    let (status, _) = knock("bytes", "issue_comment", [0xff, 0xfe, 0x00]).at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    w.settle().await;
    assert_eq!(w.counts().await.dead, dead + 2);
    let (state, why) = w.ending("torn");
    assert_eq!(state, "dead");
    assert!(why.contains("JSON"), "the reason is kept: {why}");

    let (_, said) = knock("torn", "ping", "{}").at(w.webhook.clone()).await;
    assert!(said.contains("will be tried again"), "{said}");
    w.settle().await;
    assert_eq!(w.ending("torn").0, "done");
    assert_eq!(w.counts().await.dead, dead + 1);
}

#[tokio::test]
async fn events_we_do_not_know_are_ignored_not_errors() {
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
async fn an_installation_that_is_not_allowed_is_ignored_without_a_call() {
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
    assert!(note.contains("[installations] allow"), "the operator reads what to do: {note}");
    assert_eq!(w.hub.requests().len(), calls, "GitHub is not asked a thing");
    assert!(w.run().await.is_none());

    // The very same under our own installation starts the work: the refusal above was about that alone.
    body["installation"]["id"] = json!(w.installation.0);
    knock("ours", "issues", body.to_string()).at(w.webhook.clone()).await;
    w.settle().await;
    assert!(w.run().await.is_some());
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
async fn a_delivery_that_cannot_be_stored_is_not_acknowledged() {
    let w = world().await;
    w.database().execute_batch("ALTER TABLE inbox RENAME TO lost").unwrap();
    let (status, said) = ping("unlucky").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!said.contains("inbox"), "what broke is the operator's to know: {said}");
    let ready = w.private().await;
    assert_eq!(reqwest::get(ready.join("/readyz").unwrap()).await.unwrap().status(), 503);

    w.database().execute_batch("ALTER TABLE lost RENAME TO inbox").unwrap();
    let (status, _) = ping("unlucky").at(w.webhook.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "sent again it is taken");
}

#[tokio::test]
async fn the_private_door_counts_and_answers_to_its_own_name_only() {
    let mut w = world().await;
    let (door, token) = (w.private().await, w.token());
    let ready = |host: Option<&'static str>| {
        let request = reqwest::Client::new().get(door.join("/readyz").unwrap()).bearer_auth(&token);
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
    // Who has no token hears whether we are well, and nothing of what we do.
    let bare = async |path: &str| reqwest::get(door.join(path).unwrap()).await.unwrap();
    let said: Value = bare("/readyz").await.json().await.unwrap();
    assert_eq!(said, json!({ "ready": true, "degraded": false }));
}

#[tokio::test]
async fn half_a_request_is_waited_for_only_so_long() {
    let w = world().await;
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = door.local_addr().unwrap();
    let bounds = ConnectionLimits { connections: 8, head: Duration::from_millis(50) };
    tokio::spawn(serve(door, w.app.public(), bounds, w.clock.clone(), CancellationToken::new()));
    for (sent, heard) in
        [("", ""), ("GET /hea", ""), ("GET /healthz HTTP/1.1\r\nHost: bot\r\n\r\nGET /", "ok\n")]
    {
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(sent.as_bytes()).await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        assert!(said.ends_with(heard), "{said}");
    }
}

#[tokio::test]
async fn the_time_of_a_delivery_is_our_clocks() {
    let w = world().await;
    ping("timed").at(w.webhook.clone()).await;
    let sql = "SELECT received_at FROM inbox WHERE id = 'timed'";
    let at: i64 = w.database().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(Timestamp(at), countersign::clock::Clock::now(&*w.clock));
}
