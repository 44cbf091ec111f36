//! Tests of the operator's pages in a real browser, through chromedriver: both themes, two widths, keyboard operation,
//! and no console messages.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use url::Url;

use crate::{
    doors::knock,
    world::{World, world},
};

/// Paths of the pages that exist independently of any run.
const PAGES: &[&str] = &["/", "/models", "/deliveries", "/deliveries?given_up=true", "/spend"];

/// Script that counts the visible elements that the Tab key should reach.
const COUNT_FOCUSABLE: &str = "return [...document.querySelectorAll('a[href], button, select, summary, input:not([type=hidden]), .scroll')]\
     .filter(one => one.checkVisibility()).length";

const FOCUSED_ELEMENT: &str = "const one = document.activeElement; \
     return [one.tagName + ' ' + (one.href || one.innerText || one.name), \
     one.matches('a[href], button, select, summary, input, .scroll'), one.matches('.skip:focus')]";

/// Script that returns the number of pixels by which the content is wider than the window.
const OVERFLOW: &str = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";

struct Chromium {
    driver: Child,
    session: Url,
    client: reqwest::Client,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts a browser. Returns `None` if chromedriver is not installed, unless `COUNTERSIGN_TEST_CHROMIUM` is set; in
    /// that case the test fails.
    async fn start() -> Option<Self> {
        let named = std::env::var("COUNTERSIGN_TEST_CHROMIUM").ok();
        let driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = match (driver, &named) {
            (Ok(driver), _) => driver,
            (Err(error), Some(_)) => panic!("chromedriver: {error}"),
            (Err(_), None) => {
                eprintln!("skipped: the pages in a browser, because chromedriver is not installed");
                return None;
            }
        };
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let started = lines.find(|line| line.contains("started successfully on port")).unwrap();
        let port = started.trim_end_matches('.').rsplit(' ').next().unwrap();
        let profile = tempfile::tempdir().unwrap();
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            &format!("--user-data-dir={}", profile.path().display()),
        ]
        .map(str::to_owned);
        let mut options = json!({ "args": arguments });
        if let Some(binary) = named {
            options["binary"] = json!(binary);
        }
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" }
        } } });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let base = format!("http://127.0.0.1:{port}/session");
        let answer: Value =
            client.post(&base).json(&capabilities).send().await.unwrap().json().await.unwrap();
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}"));
        let session = format!("{base}/{id}/").parse().unwrap();
        Some(Self { driver, session, client, _profile: profile })
    }

    async fn post(&self, what: &str, with: Value) -> Value {
        let answer = self.client.post(self.session.join(what).unwrap()).json(&with).send().await.unwrap();
        let mut answer: Value = answer.json().await.unwrap();
        assert!(answer["value"]["error"].is_null(), "{what}: {answer}");
        answer["value"].take()
    }

    async fn open(&self, url: &Url) {
        self.post("url", json!({ "url": url })).await;
    }

    async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    async fn emulate(&self, theme: &str, width: u32) {
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        let media = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.post("goog/cdp/execute", media).await;
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.post("goog/cdp/execute", json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": size }))
            .await;
    }

    /// Presses a key such as Tab or Enter.
    async fn press(&self, key: char) {
        let keys = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        self.post("actions", json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": keys }] }))
            .await;
    }

    /// Returns the entries written to the browser's console since the last call.
    async fn console_entries(&self) -> Value {
        self.post("se/log", json!({ "type": "browser" })).await
    }

    /// Saves a screenshot to the folder that `COUNTERSIGN_TEST_PICTURES` names, if that variable is set.
    async fn save_screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("COUNTERSIGN_TEST_PICTURES") else { return };
        let answer = self.client.get(self.session.join("screenshot").unwrap()).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        let picture = BASE64_STANDARD.decode(answer["value"].as_str().unwrap()).unwrap();
        fs::write(PathBuf::from(folder).join(format!("{name}.png")), picture).unwrap();
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Killing the driver does not end the browser, so delete the session. The first byte of the response means it
        // is closed.
        let at = (self.session.host_str().unwrap(), self.session.port().unwrap());
        if let Ok(mut driver) = TcpStream::connect(at) {
            let end = self.session.path().trim_end_matches('/');
            let request = format!("DELETE {end} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
            let _ = driver.write_all(request.as_bytes()).and_then(|()| driver.read_exact(&mut [0]));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

const TAB: char = '\u{E004}';
const ENTER: char = '\u{E007}';

/// Creates a test environment in which every page has content. Some of the content is hostile.
async fn world_with_full_pages() -> World {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let wide = "W".repeat(90);
    for id in ["torn", "odd", &wide] {
        knock(id, "issues", "{").at(w.webhook.clone()).await;
    }
    w.settle().await;
    let hostile = ["</td><script>alert(1)</script>", "<img src=x onerror=alert(1)>\u{202e}"];
    w.database().execute("UPDATE inbox SET event = ?1, note = ?2 WHERE id = 'odd'", hostile).unwrap();
    w
}

#[tokio::test]
#[ignore = "takes long"]
async fn each_page_fits_wide_and_narrow_screens_in_both_themes_and_works_by_keyboard() {
    let w = world_with_full_pages().await;
    let Some(browser) = Chromium::start().await else { return };
    let (open, door) = (w.socket(), w.pages().await);
    let mut link = w.link(true).await;
    open.abort();
    link.set_port(door.at.port()).unwrap();
    // Sign in by keyboard.
    browser.open(&link).await;
    browser.emulate("light", 1200).await;
    browser.save_screenshot("enter").await;
    browser.press(TAB).await;
    browser.press(TAB).await;
    browser.press(ENTER).await;
    for _ in 0..6000 {
        if browser.run("return location.pathname").await == json!("/") {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(
        browser.run("return [location.pathname + location.search, document.cookie]").await,
        json!(["/", ""])
    );
    let (repo, run) = (format!("/repositories/{}", w.repo), format!("/runs/{}/1", w.repo));
    for path in PAGES.iter().copied().chain([repo.as_str(), run.as_str()]) {
        let name = path.trim_matches('/').replace(['/', '?', '='], "-");
        for theme in ["light", "dark"] {
            for width in [1200, 390] {
                browser.emulate(theme, width).await;
                browser.open(&door.at.join(path).unwrap()).await;
                // A busy browser sets the page's width shortly after it opened.
                let mut tries = 0..600;
                while browser.run(OVERFLOW).await != json!(0) {
                    assert!(tries.next().is_some(), "{path} at {width}");
                }
                browser.save_screenshot(&format!("{name}-{theme}-{width}")).await;
            }
        }
        assert!(
            browser.run("return getComputedStyle(document.body).backgroundColor").await
                != json!("rgb(255, 255, 255)")
        );
        let usable = browser.run(COUNT_FOCUSABLE).await.as_u64().unwrap();
        assert!(usable >= 5, "{path}");
        for nth in 0..usable {
            browser.press(TAB).await;
            let at = browser.run(FOCUSED_ELEMENT).await;
            assert_eq!((&at[1], &at[2]), (&json!(true), &json!(nth == 0)), "{path}, Tab {nth}: {at}");
        }
        assert_eq!(browser.console_entries().await, json!([]), "{path}");
    }
    // The page updates itself when a delivery arrives.
    browser.open(&door.at.join("/deliveries").unwrap()).await;
    let words = "return document.querySelector('main').innerText.includes('came-while-looking')";
    assert_eq!(browser.run(words).await, json!(false));
    let mut tries = 0..6000;
    while browser.run(words).await == json!(false) {
        assert!(tries.next().is_some(), "the page was never updated");
        knock(&format!("came-while-looking-{}", tries.start), "ping", "{}").at(w.webhook.clone()).await;
        w.pass(1);
    }
    assert_eq!(browser.console_entries().await, json!([]));
    // A browser opens at most six connections to one server, so a hidden page closes its event stream.
    let hide = "Object.defineProperty(document, 'hidden', { value: true }); \
                document.dispatchEvent(new Event('visibilitychange')); return source.readyState";
    assert_eq!(browser.run(hide).await, json!(2));
}

#[tokio::test]
async fn link_from_another_site_opens_the_page_when_signed_in() {
    let w = world().await;
    let Some(browser) = Chromium::start().await else { return };
    let door = w.entered(false).await;
    // `localhost` is another site than 127.0.0.1 for cookies.
    let (name, value) = door.cookie.split_once('=').unwrap();
    let target = door.at.join("/models").unwrap();
    let page = format!("<!doctype html><link rel=icon href=data:,><a id=a href={target}>there</a>");
    let other = axum::Router::new().route("/", axum::routing::get(async move || axum::response::Html(page)));
    let mut other = crate::serve(other).await;
    other.set_host(Some("localhost")).unwrap();
    let cookie =
        json!({ "url": door.at, "name": name, "value": value, "httpOnly": true, "sameSite": "Strict" });
    browser.post("goog/cdp/execute", json!({ "cmd": "Network.setCookie", "params": cookie })).await;
    browser.open(&other).await;
    browser.run("document.getElementById('a').click()").await;
    let mut tries = 0..6000;
    while browser.run("return document.title").await != json!("Models · Countersign") {
        assert!(tries.next().is_some(), "{}", browser.run("return document.body.innerText").await);
        tokio::task::yield_now().await;
    }
}
