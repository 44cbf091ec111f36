//! Stories about the operator's pages for runs, repositories and spending. The pages are read with a session after real
//! runs.

use std::time::Duration;

use countersign::{engine::RunViewStatus, types::RepoId};
use serde_json::Value;

use crate::{
    pages::Door,
    world::{Setting, World, world, world_of_files},
};

const LABEL: &str = "countersign:lld";

impl World {
    fn page_of(&self, path: &str) -> String {
        format!("/runs/{}/{path}", self.repo)
    }
}

impl Door {
    async fn read(&self, path: &str) -> String {
        let (status, text) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.read(path).await).unwrap()
    }
}

/// Returns the hashes of the texts with which models responded to the draft calls of a run.
fn answer_texts(raw: &Value) -> Vec<&str> {
    let entries = raw["story"]["entries"].as_array().unwrap().iter();
    let of_calls = entries.filter(|entry| entry["key"].as_str().unwrap().starts_with("draft/"));
    of_calls.flat_map(|entry| entry["texts"].as_array().unwrap()).map(|text| text.as_str().unwrap()).collect()
}

#[track_caller]
fn assert_contains(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "{word} is not on the page:\n{page}");
    }
}

#[tokio::test]
async fn run_page_shows_every_step_up_to_the_gate() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let browser = w.entered(false).await;
    let (path, issue) = (w.page_of("1"), w.issue);

    let list = browser.read("/").await;
    assert_contains(
        &list,
        &["maya/tally</a>#1", "Human gate: verdict (N4)", ">asking</strong>", &format!("href=\"{path}\"")],
    );
    let page = browser.read(&path).await;
    let on_github = format!("{}/maya/tally/", w.hub.base_url().as_str().trim_end_matches('/'));
    assert_contains(
        &page,
        &[
            "The audit chain is intact: all ",
            "class=\"now\"><title>N4 Human gate: verdict",
            "class=\"done\"><title>N1 Draft the design",
            &format!("at Human gate: verdict (N4): waits for {}", w.approve_line()),
            "4 model calls: $0.00 billed",
            "class=\"ahead\"><title>N5 Finalize",
            "aria-current=\"step\">N4 Human gate: verdict (here), then N5 or",
            &format!("href=\"{on_github}issues/{issue}\">Issue #{issue}</a>"),
            &format!("href=\"{on_github}tree/countersign/issue-{issue}\""),
            ">Pull request</a>",
            "<strong>REVISE</strong>",
            "<strong>APPROVED</strong>",
            "<h2>Findings</h2>",
            "Gate lld, open: 0 answers",
            "drafter: ",
            "Prompt, sha256",
        ],
    );
    let raw = browser.json(&format!("{path}/raw")).await;
    assert_eq!((&raw["status"], &raw["step"]), (&"asking".into(), &"N4".into()));
    let first = answer_texts(&raw)[0].to_owned();
    let text = browser.read(&format!("{path}/text/{first}")).await;
    assert!(text.contains("Feature") && page.contains(&first), "{text}");

    // After an approval the page names who gave it.
    w.approved_by("sam").await;
    let page = browser.read(&path).await;
    assert_contains(
        &page,
        &["Gate lld: 1 answer", "/approve by sam (write)", "Accepted: approve", ">done</strong>"],
    );
    assert!(!page.contains("class=\"now\""), "a finished run has no current step");

    // A run's URL serves only that run's texts.
    w.issue = w.hub.open_issue(w.repo, w.user("maya"), "Another matter", "Entirely.").unwrap();
    w.comes_to_the_gate().await;
    let other = browser.json(&w.page_of("2/raw")).await;
    let other_text = answer_texts(&other)[0];
    assert_ne!(other_text, first);
    assert_eq!(browser.get(&w.page_of(&format!("2/text/{other_text}"))).await.0, 200);
    for path in [
        w.page_of(&format!("1/text/{other_text}")),
        w.page_of("1/text/nothing"),
        w.page_of("99"),
        w.page_of("99/raw"),
        "/runs/77/1".to_owned(),
        "/repositories/77".to_owned(),
    ] {
        assert_eq!(browser.get(&path).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn repository_and_spend_pages_show_data_and_keep_filters() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let browser = w.entered(false).await;
    let page = browser.read(&format!("/repositories/{}", w.repo)).await;
    assert_contains(
        &page,
        &[
            "<h1>maya/tally</h1>",
            "Active.",
            "Spend by day",
            "Code shown to models",
            "<code>src/",
            "<code>src/lib.rs</code>",
        ],
    );
    assert!(!page.contains("<form"), "a read-only session sees no form");

    for (query, shown) in [
        ("?state=asking", true),
        ("?state=done", false),
        ("?workflow=spec", false),
        ("?repo=maya/tally&workflow=lld", true),
        ("?repo=maya/nothing", false),
        ("?state=odd%3Cb%3E&after=1.x", true),
    ] {
        let page = browser.read(&format!("/{query}")).await;
        assert_eq!(page.contains("Human gate: verdict"), shown, "{query}\n{page}");
    }
    let page = browser.read("/?repo=maya/nothing").await;
    assert_contains(&page, &["No repository maya/nothing is known here", "value=\"maya/nothing\""]);
    assert_contains(&browser.read("/?state=done").await, &["<option selected>done</option>"]);

    let calls = browser.json(&w.page_of("1/raw")).await["story"]["calls"].as_array().unwrap().len();
    assert_contains(
        &browser.read("/spend").await,
        &[&format!("in {calls} calls"), "2026-03-02", "<td data-label=\"Role\">drafter</td>"],
    );
    // On 31 March the calls of 2 March still count for the month.
    w.clock.pass(Duration::from_secs(29 * 24 * 3600));
    let browser = w.entered(false).await;
    let page = browser.read("/spend?since=2026-03-31").await;
    assert_contains(&page, &[&format!("in {calls} calls"), "Nothing was spent."]);
    assert!(!page.contains("2026-03-02") && !page.contains("drafter</td>"), "{page}");
    assert_contains(&browser.read("/spend?since=2027-01-01").await, &["is not a day up to today"]);
    w.clock.pass(Duration::from_secs(24 * 3600));
    let browser = w.entered(false).await;
    assert_contains(&browser.read("/spend?since=2026-03-01").await, &["in 0 calls", "2026-03-02"]);
    w.seen_by_all();
}

#[tokio::test]
async fn issue_text_is_escaped_on_run_pages() {
    let title = "<script>alert(1)</script>\" onmouseover=\"x \u{202e}gnp.exe\u{200b}";
    let body = format!("<img src=x onerror=alert(1)> {}", "w".repeat(3000));
    let mut w = World::new(Setting { issue: Some((title.to_owned(), body)), ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    // The rehearsal's design repeats the title; the run halts because GitHub would hide part of it.
    w.stands(RunViewStatus::Failed).await;
    let (browser, mut seen) = (w.entered(false).await, 0);
    for path in ["/".to_owned(), w.page_of("1"), format!("/repositories/{}", w.repo), "/spend".to_owned()] {
        let page = browser.read(&path).await;
        for word in ["<script>alert", "<img", "\" onmouseover", "\u{202e}", "\u{200b}", " style="] {
            assert!(!page.contains(word), "{word} on {path}");
        }
        seen += usize::from(page.contains("&#60;script&#62;alert(1)"));
    }
    assert_eq!(seen, 3, "the list, the run and the repository page show the escaped title");
    w.seen_by_all();
}

#[tokio::test]
async fn damaged_repository_database_hides_no_other_repository() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let damaged = RepoId(w.repo.0 + 1);
    let folder = w.data().join(format!("repos/{damaged}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("checkpoints.db"), "no database at all").unwrap();
    let browser = w.entered(false).await;
    let notice = format!("Not all of {damaged} is shown: its database is damaged.");
    for (path, more) in
        [("/", "Human gate: verdict"), ("/?state=done", "No runs."), ("/spend", "drafter</td>")]
    {
        assert_contains(&browser.read(path).await, &[&notice, more]);
    }
    assert_contains(&browser.read(&format!("/repositories/{damaged}")).await, &[&notice]);
    let (status, text) = browser.get(&format!("/runs/{damaged}/1")).await;
    assert_eq!(status, 500);
    assert!(text.contains("log says why") && !text.contains("checkpoints.db"), "{text}");
}
