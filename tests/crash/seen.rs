//! The final visible state of an issue and its costs, without details that differ between runs.

use std::{fmt::Write as _, path::Path, process::Command};

use countersign::{
    engine::{EnginePort, RunFilter},
    localhub::{Hub, HubIssueView},
    types::{IssueNo, RepoId},
};

use crate::world::World;

/// Returns a text with everything that must be the same regardless of the number of kills. `elsewhere` contains earlier
/// addresses of the hub.
pub(crate) async fn seen(w: &World, elsewhere: &[String]) -> String {
    let mut out = String::new();
    let view = w.view();
    let chain = w.app.store.repository_database(w.repo).await.unwrap().audit_chain().await.unwrap();
    assert!(chain.iter().all(|row| row.has_valid_hash()), "the audit chain is broken");
    let own = w.hub.base_url().to_string();
    let hubs = elsewhere.iter().chain([&own]).map(|a| (a.trim_end_matches('/').to_owned(), "HUB".to_owned()));
    // The number of audit entries depends on the lost calls.
    let links = chain.iter().map(|row| (row.hash.to_string(), format!("AUDIT {}", row.what)));
    let names: Vec<(String, String)> = hubs.chain(comments(&view)).chain(links).collect();
    let plain = |text: &str| plain(text, &names);
    thread(&mut out, &view, &plain);
    let others = (1..).map(IssueNo).map_while(|number| w.hub.issue(w.repo, number));
    for other in others.filter(|issue| issue.number != w.issue && issue.number.0 > 1) {
        let title = (other.number, &other.title, &other.labels, other.comments.len());
        writeln!(out, "=== {title:?}\n{}", plain(&other.body)).unwrap();
    }
    pulls_and_branches(&mut out, &w.hub, w.repo, &plain);
    let runs =
        w.app.engine.list(RunFilter { repo: Some(w.repo), issue: None, live_only: false }).await.unwrap();
    for run in &runs {
        writeln!(
            out,
            "=== run of {} on #{}: {} {:?}",
            run.workflow,
            run.issue,
            run.status,
            run.outcome.as_ref().map(|o| plain(&o.summary))
        )
        .unwrap();
    }
    writeln!(out, "gates {}", w.number(Some(w.repo), "SELECT COUNT(*) FROM gate")).unwrap();
    writeln!(out, "answers {}", w.number(Some(w.repo), "SELECT COUNT(*) FROM answer")).unwrap();
    writeln!(out, "approvals {}", w.number(Some(w.repo), "SELECT COUNT(*) FROM approval")).unwrap();
    out
}

/// Returns a text with everything that GitHub shows of a repository whose runs ran in parallel. Numbers that depend on
/// the order of the runs are replaced, and so are the ids of runs and the audit hashes in `numbered`.
pub(crate) fn repository(hub: &Hub, repo: RepoId, numbered: &[(String, String)]) -> String {
    let mut issues: Vec<_> = (1..).map(IssueNo).map_while(|number| hub.issue(repo, number)).collect();
    // A reaction that fails is not retried.
    for view in &mut issues {
        view.comments.iter_mut().for_each(|comment| comment.reactions.clear());
        view.reactions.clear();
    }
    let pulls = hub.pulls(repo);
    let named = pulls.iter().rev().flat_map(|pull| {
        let (number, head) = (pull.number, &pull.head);
        [(format!("#{number}"), format!("#{head}")), (format!("/pull/{number}"), format!("/pull/{head}"))]
    });
    let hub_is = [(hub.base_url().to_string().trim_end_matches('/').to_owned(), "HUB".to_owned())];
    let known = hub_is.into_iter().chain(issues.iter().flat_map(comments)).chain(named);
    let names: Vec<(String, String)> = known.chain(numbered.iter().cloned()).collect();
    let plain = |text: &str| plain(text, &names);
    let mut out = String::new();
    for view in issues.iter().filter(|view| pulls.iter().all(|pull| pull.number != view.number)) {
        thread(&mut out, view, &plain);
    }
    pulls_and_branches(&mut out, hub, repo, &plain);
    out
}

/// Returns replacements that turn comment ids into positions in the thread.
fn comments(view: &HubIssueView) -> Vec<(String, String)> {
    let comments = view.comments.iter().enumerate();
    let comments = comments.flat_map(|(n, c)| {
        let answered = (format!("comment-{}.0", c.id), format!("comment {n}"));
        [(format!("#issuecomment-{}", c.id), format!("#comment {n}")), answered]
    });
    comments.collect()
}

fn thread(out: &mut String, view: &HubIssueView, plain: &impl Fn(&str) -> String) {
    let sorted = |list: &[(String, String)]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    let mut labels = view.labels.clone();
    labels.sort();
    writeln!(out, "issue {:?} {:?} {labels:?} {:?}", view.title, view.state, sorted(&view.reactions))
        .unwrap();
    for c in &view.comments {
        writeln!(out, "--- {} {:?}\n{}", c.author, sorted(&c.reactions), plain(&c.body)).unwrap();
    }
    writeln!(out, "{}", plain(&view.body)).unwrap();
}

fn pulls_and_branches(out: &mut String, hub: &Hub, repo: RepoId, plain: &impl Fn(&str) -> String) {
    let mut pulls = hub.pulls(repo);
    pulls.sort_by(|a, b| a.head.cmp(&b.head));
    for pull in pulls {
        let comments = hub.issue(repo, pull.number).unwrap().comments.len();
        let state = (&pull.state, pull.draft, &pull.head, &pull.base, &pull.labels, comments);
        let number = plain(&format!("#{}", pull.number));
        writeln!(out, "=== pull {number} {:?} {state:?}\n{}", pull.title, plain(&pull.body)).unwrap();
        for line_comment in hub.line_comments(repo, pull.number) {
            // The marker contains the thread's id.
            let text = line_comment.body.split("<!--").next().unwrap();
            writeln!(out, "--- {} in a thread\n{}", line_comment.author, plain(text)).unwrap();
        }
    }
    let (git_dir, checks) = (hub.git_dir(repo), hub.checks(repo));
    writeln!(out, "checks {}", checks.len()).unwrap();
    for (branch, _) in hub.branches(repo) {
        writeln!(out, "=== branch {branch}").unwrap();
        for commit in hub.log(repo, &branch) {
            writeln!(out, "--- by {} {}\n{}", commit.author, commit.committer, plain(&commit.message))
                .unwrap();
            for check in checks.iter().filter(|check| check.head == commit.oid) {
                let (id, state) = (plain(&check.external_id), (&check.status, &check.conclusion));
                let (summary, url) = (plain(&check.summary), check.details_url.as_deref().map(plain));
                let remarks = check.annotations.len();
                writeln!(out, "check {id} {state:?} {:?} {summary:?} {url:?} {remarks}", check.title)
                    .unwrap();
            }
            for line in git(&git_dir, &["ls-tree", "-r", commit.oid.as_str()]).lines() {
                let (object, path) = line.split_once('\t').unwrap();
                // The review log contains commits and times.
                let log = path.ends_with(".review.md");
                let object = object.split(' ').next_back().unwrap();
                let content = if log {
                    plain(&git(&git_dir, &["cat-file", "blob", object]))
                } else {
                    object.to_owned()
                };
                writeln!(out, "{path} {content}").unwrap();
            }
        }
    }
}

/// Replaces these names in the text, as well as all times and commit ids.
fn plain(text: &str, names: &[(String, String)]) -> String {
    let text = names.iter().fold(text.to_owned(), |text, (name, word)| text.replace(name, word));
    let mut out = String::new();
    for word in text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || "-:".contains(c))) {
        let end = word.trim_end_matches(|c: char| !(c.is_ascii_alphanumeric() || "-:".contains(c))).len();
        let (word, rest) = word.split_at(end);
        let hex = word.bytes().all(|b| b.is_ascii_hexdigit());
        let exact = word.len() >= 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T';
        // A date or a time of day in human format.
        let digits = |sign: u8| word.bytes().all(|b| b.is_ascii_digit() || b == sign);
        let day = word.len() == 10 && word.as_bytes()[4] == b'-' && digits(b'-');
        let time = exact || day || (word.len() == 5 && word.as_bytes()[2] == b':' && digits(b':'));
        out += match word.len() {
            7 | 40 if hex => "COMMIT",
            _ if time => "TIME",
            _ => word,
        };
        out += rest;
    }
    out
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(directory)
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
