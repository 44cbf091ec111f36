//! Measures the load times of the operator's pages on a server with 10,000 runs in 200 repositories. Half of the runs
//! are at gates and half are done. Each request loads a different page, so no response comes from a cache.

use std::time::Instant;

use countersign::web::control::{ControlReply, PageLinkRequest, PageLinks, call_server};
use reqwest::{Client, redirect::Policy};
use rusqlite::Connection;

use crate::{
    measure::{Ms, Samples, head, ms, row, say, sized},
    site::{Site, block_on},
    waiting,
};

/// Number of list pages read one after the other.
const PAGES: usize = sized(60, 1);

pub(crate) fn main() {
    block_on(async {
        let site = Site::new("").await;
        let serving = site.serve().await;
        let issue =
            site.hub.open_issue(site.repo, site.maya, "Export", "Rows go missing.").expect("an issue");
        waiting::to_the_gate(&site, issue).await;
        serving.stop();
        waiting::multiply(&site);
        for folder in std::fs::read_dir(site.data().join("repos")).expect("the repositories") {
            let file = folder.expect("a folder").path().join("checkpoints.db");
            let half = "UPDATE run SET status = 'done', due = NULL, updated_at = updated_at + 1000 * seq WHERE seq % 2";
            Connection::open(file).expect("a database").execute_batch(half).expect("half of the runs");
        }
        let serving = site.serve().await;
        // The work of a start is over by then.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let visitor = Visitor::enter(&site).await;
        head(&["page", "first", "p50 of the next", "p95"]);
        for list in ["/", "/?state=done", "/?state=asking"] {
            let (mut path, mut first, mut samples) = (list.to_owned(), None, Samples::default());
            for _ in 0..PAGES {
                let (took, page) = visitor.read(&path).await;
                match first {
                    None => first = Some(took),
                    Some(_) => samples.add(took),
                }
                let Some(next) = next(&page) else { break };
                path = next;
            }
            let sorted = samples.sorted();
            row(&[&list, &Ms(first.unwrap_or_default()), &Ms(sorted.at(0.5)), &Ms(sorted.at(0.95))]);
        }
        let repositories = repositories(&site);
        for (name, path) in [("a run", "/runs/{}/1"), ("a repository", "/repositories/{}")] {
            let mut samples = Samples::default();
            for repo in &repositories {
                samples.add(visitor.read(&path.replace("{}", repo)).await.0);
            }
            let sorted = samples.sorted();
            row(&[&name, &"", &Ms(sorted.at(0.5)), &Ms(sorted.at(0.95))]);
        }
        let (took, _) = visitor.read("/spend").await;
        row(&[&"/spend", &Ms(took), &"", &""]);
        say("");
        serving.stop();
    });
}

fn repositories(site: &Site) -> Vec<String> {
    let folders = std::fs::read_dir(site.data().join("repos")).expect("the repositories");
    folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok()).collect()
}

/// Returns the address of the next list page, taken from the link on this page.
fn next(page: &str) -> Option<String> {
    let (before, _) = page.split_once("\">Older runs</a>")?;
    let (_, address) = before.rsplit_once("href=\"")?;
    Some(address.replace("&#38;", "&"))
}

/// A visitor with a session cookie.
struct Visitor {
    client: Client,
    door: String,
    cookie: String,
}

impl Visitor {
    async fn enter(site: &Site) -> Self {
        let asked = serde_json::to_value(PageLinkRequest { act: false, hours: 1 }).expect("JSON");
        let ControlReply::Done(PageLinks { links }) =
            call_server(&site.data(), "/open", Some(asked)).await.expect("the socket")
        else {
            panic!("no link")
        };
        let link = links[0].rsplit('=').next().expect("a link").to_owned();
        let client = Client::builder().redirect(Policy::none()).build().expect("a client");
        let door = format!("http://{}", site.private);
        let form = "application/x-www-form-urlencoded";
        let asked = client.post(format!("{door}/enter")).header("origin", &door).header("content-type", form);
        let answer = asked.body(format!("link={link}")).send().await.expect("the private door");
        let cookie = answer.headers()["set-cookie"].to_str().expect("a cookie");
        let cookie = cookie.split(';').next().expect("its value").to_owned();
        Self { client, door, cookie }
    }

    /// Loads a page. Returns the load time in milliseconds, and the page.
    async fn read(&self, path: &str) -> (f64, String) {
        let asked = self.client.get(format!("{}{path}", self.door)).header("cookie", &self.cookie);
        let started = Instant::now();
        let answer = asked.send().await.expect("the private door");
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        let page = answer.text().await.expect("its page");
        (ms(started.elapsed()), page)
    }
}
