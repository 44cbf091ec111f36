//! Stories about the operator's pages over real HTTP: sessions, permissions, origin checks and escaping.

use std::path::Path;

use bytes::Bytes;
use countersign::{
    engine::RunViewStatus,
    types::Hash,
    web::{
        control::{ControlMessage, ControlReply, PageLinkRequest, PageLinks, call_server},
        paths,
    },
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, header, redirect::Policy};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    doors::knock,
    world::{Setting, World, world, world_of_files},
};

const PUBLIC: &str = "[server]\npublic_url = \"https://ops.example.org\"\n";

/// Client of the private listener that acts like one browser: it has one session cookie.
pub(crate) struct Door {
    pub(crate) at: Url,
    client: Client,
    pub(crate) cookie: String,
    stop: CancellationToken,
}

impl World {
    pub(crate) async fn pages(&self) -> Door {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = self.app.private(address, stop.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Client::builder().redirect(Policy::none()).build().unwrap();
        Door { at: format!("http://{address}/").parse().unwrap(), client, cookie: String::new(), stop }
    }

    /// Requests a link that opens a session. The request goes over the control socket, like that of `countersign open`.
    pub(crate) async fn link(&self, act: bool) -> Url {
        let request = json!(PageLinkRequest { act, hours: 12 });
        match call_server::<PageLinks>(self.data(), "/open", Some(request)).await.unwrap() {
            ControlReply::Done(opened) => opened.links[0].parse().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the stream's next chunk. Advances the clock until the chunk arrives.
    async fn next_chunk(&self, door: &Door, stream: &mut Response) -> Option<Bytes> {
        loop {
            tokio::select! {
                hint = stream.chunk() => return hint.unwrap(),
                _ = door.get("/style.css") => self.pass(1),
            }
        }
    }

    /// Opens a session. `act` states whether the session may make changes.
    pub(crate) async fn entered(&self, act: bool) -> Door {
        let (open, mut door) = (self.socket(), self.pages().await);
        let link = self.link(act).await;
        open.abort();
        let answer = door.enter(&link).await;
        assert_eq!(answer.status(), StatusCode::SEE_OTHER);
        door.cookie = cookie(&answer);
        door
    }
}

fn cookie(answer: &Response) -> String {
    answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

fn secret(text: &str) -> &str {
    text.rsplit('=').next().unwrap()
}

/// Returns the form token that a page contains.
fn key(page: &str) -> &str {
    let key = page.split("name=\"key\" value=\"").nth(1).unwrap_or_else(|| panic!("no form: {page}"));
    key.split('"').next().unwrap()
}

/// Adds a form body with one field to a request. The value must not need any escaping.
fn form(request: RequestBuilder, name: &str, value: &str) -> RequestBuilder {
    request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(format!("{name}={value}"))
}

impl Door {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.at.join(path).unwrap());
        if self.cookie.is_empty() { request } else { request.header(header::COOKIE, &self.cookie) }
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let answer = self.request(Method::GET, path).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    fn origin(&self) -> String {
        self.at.origin().ascii_serialization()
    }

    async fn post(&self, path: &str, origin: &str, key: &str) -> (StatusCode, String) {
        let request = form(self.request(Method::POST, path).header("origin", origin), "key", key);
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Posts to `path` with the session's form token, as a browser does when a button is pressed.
    async fn press(&self, path: &str) -> (StatusCode, String) {
        let key = self.key("/deliveries?given_up=true").await;
        self.post(path, &self.origin(), &key).await
    }

    async fn key(&self, page: &str) -> String {
        key(&self.get(page).await.1).to_owned()
    }

    async fn enter(&self, link: &Url) -> Response {
        let request = self.request(Method::POST, "/enter").header("origin", self.origin());
        form(request, "link", secret(link.as_str())).send().await.unwrap()
    }
}

/// Returns the path of every route, with `1` in place of each parameter, and one unknown path.
fn routes() -> Vec<String> {
    let fill = |path: &str| {
        path.split('/')
            .map(|part| if part.starts_with('{') { "1" } else { part })
            .collect::<Vec<_>>()
            .join("/")
    };
    paths().into_iter().map(fill).chain(["/nowhere".to_owned()]).collect()
}

/// Returns whether any file below the directory contains `words`.
fn any_file_contains(directory: &Path, words: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => any_file_contains(&path, words),
            false => std::fs::read(&path)
                .is_ok_and(|bytes| bytes.windows(words.len()).any(|w| w == words.as_bytes())),
        }
    })
}

#[tokio::test]
async fn sign_in_link_opens_one_session_that_expires() {
    let w = world().await;
    let (_open, mut door) = (w.socket(), w.pages().await);
    let link = w.link(false).await;
    for _ in 0..2 {
        let (status, page) = door.get(&link.as_str()[link.origin().ascii_serialization().len()..]).await;
        assert_eq!(status, StatusCode::OK, "a GET does not use the link up");
        assert!(page.contains("<button>Open the pages</button>"), "{page}");
    }
    let elsewhere = door.request(Method::POST, "/enter").header("origin", "https://evil.example");
    let answer = form(elsewhere, "link", secret(link.as_str())).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);

    let answer = door.enter(&link).await;
    assert_eq!(
        (answer.status(), &answer.headers()["location"]),
        (StatusCode::SEE_OTHER, &"/".parse().unwrap())
    );
    let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(set.ends_with("; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"), "{set}");
    // A browser sends a host's cookies to every port, so the name holds the port.
    assert!(set.starts_with(&format!("countersign_{}=", door.at.port().unwrap())), "{set}");
    let again = door.enter(&link).await;
    assert_eq!(again.status(), StatusCode::FORBIDDEN);
    assert!(again.text().await.unwrap().contains("used before"));

    door.cookie = cookie(&answer);
    assert_eq!(door.get("/models").await.0, StatusCode::OK);
    let unspent = w.link(true).await;
    for value in [secret(link.as_str()), secret(&door.cookie), secret(unspent.as_str())] {
        assert!(!any_file_contains(w.data(), value), "the data hold only hashes of secrets");
    }
    assert!(
        any_file_contains(w.data(), &Hash::digest(secret(&door.cookie).as_bytes()).to_string()),
        "the file search works"
    );

    w.pass(601);
    assert_eq!(
        door.enter(&unspent).await.status(),
        StatusCode::FORBIDDEN,
        "a link expires after ten minutes"
    );
    assert_eq!(door.get("/models").await.0, StatusCode::OK);
    w.pass(12 * 3600 - 601);
    assert_eq!(
        door.get("/models").await.0,
        StatusCode::UNAUTHORIZED,
        "the session expires after twelve hours"
    );

    door.cookie = cookie(&door.enter(&w.link(false).await).await);
    let unspent = w.link(true).await;
    assert_eq!(door.get("/models").await.0, StatusCode::OK);
    let ControlReply::Done(ControlMessage { message }) =
        call_server(w.data(), "/close", Some(json!(null))).await.unwrap()
    else {
        panic!()
    };
    assert!(message.starts_with("1 session is closed, and 1 link is revoked"), "{message}");
    assert_eq!(door.get("/models").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(door.enter(&unspent).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn every_page_route_returns_401_without_a_session() {
    let mut w = World::new(Setting { toml: PUBLIC.to_owned(), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    let inside = w.entered(true).await;
    let (name, value) = inside.cookie.split_once('=').unwrap();
    let mut door = w.pages().await;
    let name = name.replace(&inside.at.port().unwrap().to_string(), &door.at.port().unwrap().to_string());
    let wrong = [String::new(), "0".repeat(64), Hash::digest(value.as_bytes()).to_string(), w.token()];
    for value in wrong {
        door.cookie = format!("{name}={value}; countersign_https={value}");
        for path in routes() {
            for method in [Method::GET, Method::POST, Method::PUT] {
                let request = || {
                    door.request(method.clone(), &path).bearer_auth(w.token()).header("origin", door.origin())
                };
                let answer = request().send().await.unwrap();
                assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
                let text = answer.text().await.unwrap();
                assert!(text.contains("countersign open") && !text.contains("Human gate"), "{path}: {text}");
                let answer = request().header("host", "ops.example.org").send().await.unwrap();
                assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{method} {path}");
                assert!(!answer.headers().contains_key("refresh"));
                assert_eq!(answer.text().await.unwrap(), "Not found.\n", "the public name tells nothing");
            }
        }
    }
    let world = |path: &str| door.request(Method::GET, path).header("host", "ops.example.org");
    for path in ["/enter?link=x", "/style.css", "/icon.svg"] {
        assert_eq!(world(path).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
    // After a cross-site link a browser omits the strict cookie, so the page asks it to reload once.
    let answer = world("/runs/1/1").header("sec-fetch-site", "cross-site").send().await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["refresh"]),
        (StatusCode::NOT_FOUND, &"0".parse().unwrap())
    );
    // Under the public name the cookie is limited to HTTPS.
    let open = w.socket();
    let enter = door.request(Method::POST, "/enter").header("host", "ops.example.org");
    let enter = enter.header("origin", "https://ops.example.org");
    let enter = form(enter, "link", secret(w.link(false).await.as_str()));
    let answer = enter.send().await.unwrap();
    assert!(answer.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    open.abort();
}

#[tokio::test]
async fn every_post_request_of_a_read_only_session_returns_403() {
    let mut w = world().await;
    knock("torn", "issues", "{").at(w.webhook.clone()).await;
    w.settle().await;
    let door = w.entered(false).await;
    let (_, page) = door.get("/deliveries?given_up=true").await;
    assert!(page.contains("given up") && !page.contains("<form"), "{page}");
    let value = secret(&door.cookie);
    for path in routes().iter().filter(|path| path.as_str() != "/nowhere") {
        for key in [String::new(), value.to_owned(), Hash::digest(value.as_bytes()).to_string()] {
            let (status, body) = door.post(path, &door.origin(), &key).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
            assert!(body.contains("needs a link of `countersign open --act`"), "{path}: {body}");
        }
    }
    assert_eq!(w.app.store.pauses().await.unwrap(), []);
    assert_eq!(w.ending("torn").0, "dead");
}

#[tokio::test]
async fn request_with_a_wrong_origin_header_host_header_or_form_key_is_refused() {
    let mut w = world().await;
    knock("torn", "issues", "{").at(w.webhook.clone()).await;
    w.settle().await;
    let door = w.entered(true).await;
    let key = door.key("/deliveries?given_up=true").await;
    for origin in
        ["https://evil.example", "null", "", "http://localhost:1", &door.origin().replace("http", "https")]
    {
        let (status, body) = door.post("/pause", origin, &key).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{origin}");
        assert!(body.contains("a page of another site"), "{body}");
    }
    for key in ["", "0", &key[1..]] {
        let (status, body) = door.post("/pause", &door.origin(), key).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(body.contains("load the page again"), "{body}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example:80", "ops.example.org", ""] {
        let answer = door.request(Method::GET, "/").header("host", host).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST, "{host}");
        assert!(answer.text().await.unwrap().contains("a proxy in front must pass on the Host"));
    }
    assert_eq!(w.app.store.pauses().await.unwrap(), []);
    let answer = door.request(Method::GET, "/").send().await.unwrap();
    let says = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    assert!(
        says("content-security-policy")
            .starts_with("default-src 'none'; style-src 'self'; script-src 'self'; ")
    );
    assert_eq!(
        (says("x-content-type-options"), says("cache-control")),
        ("nosniff".into(), "no-store".into())
    );
}

/// Several servers on one database may share the public host name. A session for that name must work on each of them.
#[tokio::test]
async fn session_for_the_public_host_name_works_on_every_server() {
    let w = World::new(Setting { toml: PUBLIC.to_owned(), ..Setting::default() }).await;
    let (_open, mut doors) = (w.socket(), [w.pages().await, w.pages().await]);
    let link = w.link(true).await;
    let by_name = |door: &Door, method, path| {
        let request = door.request(method, path).header("host", "ops.example.org");
        request.header("origin", "https://ops.example.org")
    };
    let entered = form(by_name(&doors[0], Method::POST, "/enter"), "link", secret(link.as_str()));
    let cookie = cookie(&entered.send().await.unwrap());
    doors.iter_mut().for_each(|door| door.cookie.clone_from(&cookie));
    let page = by_name(&doors[0], Method::GET, "/models").send().await.unwrap().text().await.unwrap();
    let paused = form(by_name(&doors[1], Method::POST, "/pause"), "key", key(&page)).send().await.unwrap();
    assert_eq!(paused.status(), StatusCode::SEE_OTHER);
    assert_eq!(w.app.store.pauses().await.unwrap().len(), 1);
}

#[tokio::test]
async fn pages_let_the_operator_pause_the_server_and_replay_deliveries() {
    let mut w = world().await;
    knock("torn", "issues", "{").at(w.webhook.clone()).await;
    w.settle().await;
    let door = w.entered(true).await;
    let pauses = async || {
        let pauses = w.app.store.pauses().await.unwrap();
        pauses.into_iter().map(|pause| format!("{:?} by {}", pause.scope, pause.by)).collect::<Vec<_>>()
    };
    assert_eq!(door.press("/pause").await.0, StatusCode::SEE_OTHER);
    assert_eq!(pauses().await, ["Server by operator (page)"]);
    assert_eq!(door.press("/resume").await.0, StatusCode::SEE_OTHER);
    let own = format!("/repositories/{}", w.repo);
    assert_eq!(door.press(&format!("{own}/pause")).await.0, StatusCode::SEE_OTHER);
    assert_eq!(pauses().await, [format!("Repo(RepoId({})) by operator (page)", w.repo)]);
    assert_eq!(door.press(&format!("{own}/resume")).await.0, StatusCode::SEE_OTHER);
    assert!(pauses().await.is_empty());
    assert_eq!(door.press("/repositories/77/pause").await.0, StatusCode::NOT_FOUND);
    let (status, body) = door.press("/runs/1/7/retry").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(body.contains("there is no run 1-7"), "{body}");

    let (_, page) = door.get("/deliveries?given_up=true").await;
    assert!(
        page.contains("JSON") && page.contains("/deliveries/torn/replay"),
        "shows its reason and a replay button: {page}"
    );
    assert_eq!(door.press("/deliveries/torn/replay").await.0, StatusCode::SEE_OTHER);
    assert_eq!(w.ending("torn").0, "new");
    let key = door.key("/models").await;
    let (status, body) = door.post("/deliveries/torn/replay", &door.origin(), &key).await;
    assert_eq!(status, StatusCode::CONFLICT, "the delivery is not given up now");
    assert!(body.contains("Only a delivery that was given up"), "{body}");
    w.settle().await;
    assert_eq!(w.ending("torn").0, "dead", "the replayed delivery fails again");
    w.database().execute("UPDATE inbox SET packing = 'dropped', body = x'' WHERE id = 'torn'", []).unwrap();
    let (_, page) = door.get("/deliveries?given_up=true").await;
    assert!(page.contains("torn") && page.contains("ask GitHub for a redelivery"), "{page}");
    assert!(!page.contains("/replay"), "{page}");
}

#[tokio::test]
async fn hostile_delivery_text_is_escaped_on_pages() {
    let w = world().await;
    // The webhook accepts no such event, but a note may quote any text.
    let hostile =
        ["<img src=x onerror=alert(1)>\u{202e}", "</td><script>alert(2)</script>", "\"><b onclick=alert(3)>"];
    w.database().execute("UPDATE inbox SET event = ?1, note = ?2, id = ?3 WHERE seq = 1", hostile).unwrap();
    let door = w.entered(true).await;
    let (status, page) = door.get("/deliveries").await;
    assert_eq!(status, StatusCode::OK);
    assert!(["alert(1)", "alert(2)", "alert(3)"].iter().all(|words| page.contains(words)), "{page}");
    assert!(["<img", "<script>", "<b ", "\u{202e}"].iter().all(|live| !page.contains(live)), "{page}");
    let (status, page) = door.get("/<script>alert(1)</script>").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(!page.contains("alert"), "{page}");
    // Error details go to the log, not to the page.
    w.database().execute_batch("ALTER TABLE inbox RENAME TO lost").unwrap();
    let (status, page) = door.get("/deliveries").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(page.contains("log says why") && !page.contains("inbox"), "{page}");
}

#[tokio::test]
async fn event_stream_reports_changes_and_a_slow_reader_blocks_no_other_reader() {
    let w = world().await;
    let door = w.entered(false).await;
    let mut slow = TcpStream::connect(door.at.authority()).await.unwrap();
    let request =
        format!("GET /events HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n", door.at.authority(), door.cookie);
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut events = door.request(Method::GET, "/events").send().await.unwrap();
    assert_eq!(events.headers()["content-type"], "text/event-stream");
    for round in 0..50 {
        knock(&format!("guid-{round}"), "ping", "{}").at(w.webhook.clone()).await;
        assert_eq!(w.next_chunk(&door, &mut events).await.unwrap(), "data: changed\n\n");
    }
    assert_eq!(door.get("/deliveries").await.0, StatusCode::OK);

    let mut others = Vec::new();
    let full = loop {
        let one = door.request(Method::GET, "/events").send().await.unwrap();
        if one.status() != StatusCode::OK {
            break one;
        }
        others.push(one);
    };
    assert_eq!((full.status(), others.len()), (StatusCode::SERVICE_UNAVAILABLE, 14));
    drop(others);

    w.app.store.revoke_sessions().await.unwrap();
    while let Some(hint) = w.next_chunk(&door, &mut events).await {
        assert_eq!(hint, "data: changed\n\n", "pending events arrive before the stream ends");
    }
    let door = w.entered(false).await;
    let mut events = door.request(Method::GET, "/events").send().await.unwrap();
    door.stop.cancel();
    assert_eq!(events.chunk().await.unwrap(), None, "the stream ends with the server");
    drop(slow);
}

#[tokio::test]
async fn thread_links_to_the_run_page_if_a_public_url_is_set() {
    let mut w = World::new(Setting { as_files: true, toml: PUBLIC.to_owned(), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    let run = w.run().await.unwrap().id;
    let page = format!("[run page, for the operator](https://ops.example.org/runs/{}/{})", run.repo, run.seq);
    let status = w.find("updated on 20").body;
    assert!(status.contains(&format!("run `{run}` ({page}), requested by")), "{status}");
    let checks = w.checks();
    assert!(checks[0].summary.contains(&page), "{checks:#?}");
    w.stands(RunViewStatus::Asking).await;
    let mut plain = world_of_files().await;
    plain.comes_to_the_gate().await;
    assert!(!plain.find("updated on 20").body.contains("run page"));
    plain.stands(RunViewStatus::Asking).await;
}
