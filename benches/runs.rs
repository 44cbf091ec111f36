//! Measures how long a maintainer waits if models answer instantly: from label to 👀, from label to gate, and from
//! `/approve` to the last write. The server is a child process, and GitHub is replaced by a localhub over HTTP.

use std::time::{Duration, Instant};

use countersign::{localhub::HubIssueView, types::IssueNo};

use crate::{
    measure::{Ms, Samples, Sorted, head, ms, resident, row, say, sized},
    site::{Site, block_on},
};

const ALONE: usize = sized(20, 1);
const TOGETHER: usize = sized(20, 2);
/// Settings that allow one person to start any number of runs.
pub(crate) const ANY_NUMBER: &str = "[people]\nruns_a_day = 0\ncost_a_day = \"none\"\n";
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn main() {
    block_on(async {
        let site = Site::new(ANY_NUMBER).await;
        let serving = site.serve().await;
        let (mut eyes, mut gate, mut done) = (Samples::default(), Samples::default(), Samples::default());
        let calls = site.hub.requests().len();
        for _ in 0..ALONE {
            let issue = open(&site);
            let labelled = label(&site, issue);
            eyes.add(until(&site, issue, labelled, has_eyes).await);
            gate.add(until(&site, issue, labelled, |view| line(view).is_some()).await);
            // The command appears a moment before its gate is open, and people read slower than that.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let line = line(&view(&site, issue)).expect("the line");
            site.hub.comment(site.repo, issue, site.maya, &line).expect("a comment");
            let approved = Instant::now();
            done.add(
                until(&site, issue, approved, |view| view.labels.iter().any(|l| l.contains("done"))).await,
            );
        }
        let calls = site.hub.requests().len() - calls;
        head(&["one run at a time, models that answer at once", "p50", "p95"]);
        print("label → 👀", eyes);
        print("label → gate, with one revision", gate);
        print("`/approve` → approved design committed, label done", done);
        say(format_args!(
            "\ncalls to GitHub a run, making labels included: {:.1}",
            calls as f64 / ALONE as f64
        ));

        let issues: Vec<_> = (0..TOGETHER).map(|_| open(&site)).collect();
        let started = Instant::now();
        let labelled: Vec<_> = issues.iter().map(|issue| (*issue, label(&site, *issue))).collect();
        let mut eyes = Samples::default();
        for (issue, at) in &labelled {
            eyes.add(until(&site, *issue, *at, has_eyes).await);
        }
        for (issue, at) in &labelled {
            until(&site, *issue, *at, |view| line(view).is_some()).await;
        }
        let all = ms(started.elapsed());
        say(format_args!("\n{TOGETHER} runs at once: all at their gates after {}", Ms(all)));
        let eyes = eyes.sorted();
        say(format_args!("label → 👀 among them: p50 {}, p95 {}", Ms(eyes.at(0.5)), Ms(eyes.at(0.95))));
        say(format_args!("memory after it: {:.1} MB", resident(serving.pid())));
        serving.stop();
    });
}

fn print(name: &str, samples: Samples) {
    let sorted: Sorted = samples.sorted();
    row(&[&name, &Ms(sorted.at(0.5)), &Ms(sorted.at(0.95))]);
}

pub(crate) fn open(site: &Site) -> IssueNo {
    let text = "`tally sum` should skip lines that start with `#`, because exports carry comments.";
    site.hub.open_issue(site.repo, site.maya, "Skip comment lines", text).expect("an issue")
}

pub(crate) fn label(site: &Site, issue: IssueNo) -> Instant {
    let at = Instant::now();
    site.hub.label(site.repo, issue, site.maya, "countersign:lld").expect("a label");
    at
}

pub(crate) fn view(site: &Site, issue: IssueNo) -> HubIssueView {
    site.hub.issue(site.repo, issue).expect("the issue")
}

/// Waits until `shows` returns true for the issue. Returns the milliseconds that have passed since `since`.
pub(crate) async fn until(
    site: &Site,
    issue: IssueNo,
    since: Instant,
    shows: impl Fn(&HubIssueView) -> bool,
) -> f64 {
    while !shows(&view(site, issue)) {
        assert!(since.elapsed() < PATIENCE, "#{issue} never got there: {:#?}", view(site, issue));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    ms(since.elapsed())
}

pub(crate) fn has_eyes(view: &HubIssueView) -> bool {
    view.reactions.iter().any(|(_, kind)| kind == "eyes")
}

/// Returns the `/approve` command that the newest gate comment contains.
pub(crate) fn line(view: &HubIssueView) -> Option<String> {
    let lines = view.comments.iter().rev().flat_map(|comment| comment.body.lines());
    let mut lines = lines.map(|line| line.trim().trim_matches('`'));
    lines.find(|line| line.starts_with("/approve lld ")).map(str::to_owned)
}
