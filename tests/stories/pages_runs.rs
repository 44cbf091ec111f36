//! What the operator reads of runs: through the private door, with a session, of runs that were really played.

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

/// The stored texts that a run's calls were answered with.
fn answers(raw: &Value) -> Vec<&str> {
    let entries = raw["story"]["entries"].as_array().unwrap().iter();
    let of_calls = entries.filter(|entry| entry["key"].as_str().unwrap().starts_with("draft/"));
    of_calls.flat_map(|entry| entry["texts"].as_array().unwrap()).map(|text| text.as_str().unwrap()).collect()
}

#[track_caller]
fn says(page: &str, words: &[&str]) {
    for word in words {
        assert!(page.contains(word), "{word} is not on the page:\n{page}");
    }
}

#[tokio::test]
async fn a_run_is_read_from_its_start_to_where_it_waits() {
    let mut w = world_of_files().await;
    w.comes_to_the_gate().await;
    let browser = w.entered(false).await;
    let (path, issue) = (w.page_of("1"), w.issue);

    let list = browser.read("/").await;
    says(
        &list,
        &["maya/tally</a>#1", "Human gate: verdict (N4)", ">asking</strong>", &format!("href=\"{path}\"")],
    );
    let page = browser.read(&path).await;
    let on_github = format!("{}/maya/tally/", w.hub.base_url().as_str().trim_end_matches('/'));
    says(
        &page,
        &[
            "The audit chain holds: all ",
            "class=\"now\"><title>N4 Human gate: verdict",
            "class=\"done\"><title>N1 Draft the design",
            &format!("at Human gate: verdict (N4): waits for {}", w.approve_line()),
            "4 calls of models: $0.00 billed",
            "class=\"ahead\"><title>N5 Finalize",
            "aria-current=\"step\">N4 Human gate: verdict (here), then N5 or",
            &format!("href=\"{on_github}issues/{issue}\">Issue #{issue}</a>"),
            &format!("href=\"{on_github}tree/countersign/issue-{issue}\""),
            ">Pull request</a>",
            "<strong>REVISE</strong>",
            "<strong>APPROVED</strong>",
            "Findings and their ends",
            "Gate lld, open: answers 0",
            "drafter: ",
            "Prompt, sha256",
        ],
    );
    let raw = browser.json(&format!("{path}/raw")).await;
    assert_eq!((&raw["status"], &raw["step"]), (&"asking".into(), &"N4".into()));
    let first = answers(&raw)[0].to_owned();
    let text = browser.read(&format!("{path}/text/{first}")).await;
    assert!(text.contains("Feature") && page.contains(&first), "{text}");

    // Somebody answers, and the page tells who.
    w.approved_by("sam").await;
    let page = browser.read(&path).await;
    says(&page, &["Gate lld: answers 1", "/approve by sam (write)", "Accepted: approve", ">done</strong>"]);
    assert!(!page.contains("class=\"now\""), "it is nowhere any more");

    // What is of another run is not told by this one's address.
    w.issue = w.hub.open_issue(w.repo, w.user("maya"), "Another matter", "Entirely.").unwrap();
    w.comes_to_the_gate().await;
    let other = browser.json(&w.page_of("2/raw")).await;
    let its = answers(&other)[0];
    assert_ne!(its, first);
    assert_eq!(browser.get(&w.page_of(&format!("2/text/{its}"))).await.0, 200);
    for path in [
        w.page_of(&format!("1/text/{its}")),
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
async fn a_repository_and_what_was_spent_are_read_and_filters_are_kept() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let browser = w.entered(false).await;
    let page = browser.read(&format!("/repositories/{}", w.repo)).await;
    says(
        &page,
        &[
            "<h1>maya/tally</h1>",
            "At work.",
            "Spend by day",
            "What models are shown",
            "<code>src/",
            "<code>src/lib.rs</code>",
        ],
    );
    assert!(!page.contains("<form"), "whoever may only read sees nothing to press");

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
    says(&page, &["No repository maya/nothing is known here", "value=\"maya/nothing\""]);
    says(&browser.read("/?state=done").await, &["<option selected>done</option>"]);

    let calls = browser.json(&w.page_of("1/raw")).await["story"]["calls"].as_array().unwrap().len();
    says(
        &browser.read("/spend").await,
        &[&format!("in {calls} calls"), "2026-03-02", "<td data-label=\"Role\">drafter</td>"],
    );
    // On the last day of a month that has 31, what came on its second is still of this month.
    w.clock.pass(Duration::from_secs(29 * 24 * 3600));
    let browser = w.entered(false).await;
    let page = browser.read("/spend?since=2026-03-31").await;
    says(&page, &[&format!("in {calls} calls"), "Nothing was spent."]);
    assert!(!page.contains("2026-03-02") && !page.contains("drafter</td>"), "{page}");
    says(&browser.read("/spend?since=2027-01-01").await, &["is no day that has begun"]);
    w.clock.pass(Duration::from_secs(24 * 3600));
    let browser = w.entered(false).await;
    says(&browser.read("/spend?since=2026-03-01").await, &["in 0 calls", "2026-03-02"]);
    w.seen_by_all();
}

#[tokio::test]
async fn words_of_strangers_are_words_and_nothing_else() {
    let title = "<script>alert(1)</script>\" onmouseover=\"x \u{202e}gnp.exe\u{200b}";
    let body = format!("<img src=x onerror=alert(1)> {}", "w".repeat(3000));
    let mut w = World::new(Setting { issue: Some((title.to_owned(), body)), ..Setting::default() }).await;
    w.label("maya", LABEL).await;
    // The rehearsal's design repeats the title, of which GitHub would not show all.
    w.stands(RunViewStatus::Failed).await;
    let (browser, mut seen) = (w.entered(false).await, 0);
    for path in ["/".to_owned(), w.page_of("1"), format!("/repositories/{}", w.repo), "/spend".to_owned()] {
        let page = browser.read(&path).await;
        for word in ["<script>alert", "<img", "\" onmouseover", "\u{202e}", "\u{200b}", " style="] {
            assert!(!page.contains(word), "{word} on {path}");
        }
        seen += usize::from(page.contains("&#60;script&#62;alert(1)"));
    }
    assert_eq!(seen, 3, "the list, the run and the repository show the title as it is written");
    w.seen_by_all();
}

#[tokio::test]
async fn a_repository_that_cannot_be_read_hides_no_other() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    let damaged = RepoId(w.repo.0 + 1);
    let folder = w.data().join(format!("repos/{damaged}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("checkpoints.db"), "no database at all").unwrap();
    let browser = w.entered(false).await;
    let said = format!("Not all of {damaged} is shown: its database is damaged.");
    for (path, more) in
        [("/", "Human gate: verdict"), ("/?state=done", "No run is here"), ("/spend", "drafter</td>")]
    {
        says(&browser.read(path).await, &[&said, more]);
    }
    says(&browser.read(&format!("/repositories/{damaged}")).await, &[&said]);
    let (status, text) = browser.get(&format!("/runs/{damaged}/1")).await;
    assert_eq!(status, 500);
    assert!(text.contains("log says why") && !text.contains("checkpoints.db"), "{text}");
}
