//! Measures the time from a label to the pull request with the code. Models answer instantly and the tests are a few
//! lines of shell. The measured time is therefore our own overhead: the sandbox, the databases, and the write pacing
//! that GitHub requires.

use std::time::{Duration, Instant};

use countersign::{localhub::HubIssueView, types::IssueNo};
use serde_json::json;

use crate::{
    measure::{Ms, head, ms, row, say, sized},
    runs::{until, view},
    site::{Site, block_on},
};

const TOGETHER: usize = sized(4, 1);

/// Stages, each with whether it has a gate by default.
const STAGES: [(&str, bool); 3] = [("lld", true), ("spec", false), ("implement", true)];

const RUN: &str = "echo TAP version 13\nfor file in tests/test_*.sh; do sh \"$file\"; done\n";
const SUM: &str = "# Sums.\necho $(( ($1 + $2) % 256 ))\n";
const CHECK: &str =
    "check() { if [ \"$2\" = \"$3\" ]; then echo \"ok - $1\"; else echo \"not ok - $1\"; fi; }\n";

pub(crate) fn main() {
    block_on(async {
        let old = format!("{CHECK}check one_and_one_are_two \"$(sh sum.sh 1 1)\" 2\n");
        let files = [
            (".github/countersign.toml", "[test]\ncommand = \"sh tests/run.sh\"\n"),
            ("sum.sh", SUM),
            ("tests/run.sh", RUN),
            ("tests/test_old.sh", &old),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
        let script = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(script.path(), answers()).expect("it is written");
        let toml = format!("[implement]\nmax_rounds = 1\n[providers.stub]\nscript = {:?}\n", script.path());
        let site = Site::of(files.into(), &toml).await;
        let serving = site.serve().await;
        head(&["one issue", "label → gate", "label → done", "calls to GitHub", "mails"]);
        let (issue, mut before) = (open(&site), 0);
        for (stage, asks) in STAGES {
            let (asked, begun) = (site.hub.requests().len(), Instant::now());
            let gate = play_stage(&site, issue, stage, asks).await;
            let (calls, mails) = (site.hub.requests().len() - asked, mails(&site, issue));
            row(&[&stage, &Ms(gate), &Ms(ms(begun.elapsed())), &calls, &(mails - before)]);
            before = mails;
        }
        say(format_args!("\nmails of the whole run: {}", before));
        print_ledger(&site);
        let issues: Vec<_> = (0..TOGETHER).map(|_| open(&site)).collect();
        let begun = Instant::now();
        futures_util::future::join_all(issues.iter().map(|issue| async {
            for (stage, asks) in STAGES {
                play_stage(&site, *issue, stage, asks).await;
            }
        }))
        .await;
        say(format_args!("\n{TOGETHER} issues side by side, label to code: {}", Ms(ms(begun.elapsed()))));
        serving.stop();
    });
}

/// Runs one stage from its label until it is done; approves its gate as soon as the gate opens. Returns the
/// milliseconds from the label to the gate.
async fn play_stage(site: &Site, issue: IssueNo, stage: &str, asks: bool) -> f64 {
    let begun = Instant::now();
    site.hub.label(site.repo, issue, site.maya, &format!("countersign:{stage}")).expect("a label");
    let mut gate = f64::NAN;
    if asks {
        gate = until(site, issue, begun, |view| line(view, stage).is_some()).await;
        // The command appears a moment before its gate is open, and people read slower than that.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let line = line(&view(site, issue), stage).expect("the line");
        site.hub.comment(site.repo, issue, site.maya, &line).expect("a comment");
    }
    let done = format!("{stage}: done");
    until(site, issue, begun, |view| view.comments.iter().any(|c| c.body.contains(&done))).await;
    gate
}

fn line(view: &HubIssueView, gate: &str) -> Option<String> {
    let lines = view.comments.iter().rev().flat_map(|comment| comment.body.lines());
    let begins = format!("/approve {gate} ");
    lines.map(|line| line.trim().trim_matches('`')).find(|line| line.starts_with(&begins)).map(str::to_owned)
}

/// Returns the number of notification mails that the issue causes: one per bot comment on the issue and on its pull
/// request, and one for the pull request itself.
fn mails(site: &Site, issue: IssueNo) -> usize {
    let of = |issue| view(site, issue).comments.iter().filter(|c| c.author.ends_with("[bot]")).count();
    let pulls = site.hub.pulls(site.repo);
    let ours = pulls.iter().filter(|pull| pull.body.contains(&format!("#{issue}")));
    of(issue) + ours.map(|pull| 1 + of(pull.number)).sum::<usize>()
}

/// Prints the number of model calls of each stage, and the time spent in each step of `implement`.
fn print_ledger(site: &Site) {
    let file = site.data().join(format!("repos/{}/checkpoints.db", site.repo));
    let database = rusqlite::Connection::open(file).expect("the ledger");
    let sql = "SELECT workflow, COUNT(*), SUM(body ->> 'input_tokens'), SUM(body ->> 'output_tokens')
               FROM call JOIN run ON run.seq = call.run GROUP BY workflow ORDER BY MIN(run.seq)";
    let mut query = database.prepare(sql).expect("a query");
    say("");
    head(&["stage", "calls to models", "tokens read", "tokens written"]);
    let rows = query.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, [row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?]))
    });
    for (stage, [calls, read, written]) in rows.expect("rows").flatten() {
        row(&[&stage, &calls, &read, &written]);
    }
    let sql = "SELECT trail.step, COUNT(*), SUM(left_at - entered_at) FROM trail JOIN run ON run.seq = trail.run
               WHERE workflow = 'implement' AND left_at IS NOT NULL GROUP BY trail.step ORDER BY MIN(trail.visit)";
    let mut query = database.prepare(sql).expect("a query");
    say("");
    head(&["step of implement", "visits", "time"]);
    let rows = query
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)));
    for (step, visits, took) in rows.expect("rows").flatten() {
        row(&[&step, &visits, &Ms(took as f64)]);
    }
}

fn open(site: &Site) -> IssueNo {
    let text = "A sum that does not fit begins again at zero. It should be 255, the largest there is.";
    site.hub.open_issue(site.repo, site.maya, "Sums that do not fit", text).expect("an issue")
}

/// Returns the scripted responses for the smallest test repository, translated to shell.
fn answers() -> String {
    let small: toml::Value =
        toml::from_str(include_str!("../fixtures/models/small.toml")).expect("it is TOML");
    let text = |key: &str| {
        let text = small[key].as_str().expect("a text").trim_start();
        let text = text.replace("src/lib.rs", "sum.sh").replace("tests/new.rs", "tests/test_new.sh");
        text.replace("tests/old.rs:1-4", "tests/run.sh:1-1")
    };
    let rust = |old: &str| SUM.lines().nth(1).map(|line| old.replace("    left.wrapping_add(right)", line));
    let (design, spec) = (text("design"), rust(&text("spec")).expect("a line"));
    let tests = text("tests");
    let head = tests.split("```rust").next().expect("a head");
    let tests = format!(
        "{head}```sh\n{CHECK}check what_does_not_fit_is_the_largest \"$(sh sum.sh 200 100)\" 255\ncheck what_fits_is_as_before \
         \"$(sh sum.sh 2 3)\" 5\n```\n"
    );
    let code = rust(&text("code")).expect("a line");
    let code = code
        .replace("    left.saturating_add(right)", "sum=$(( $1 + $2 ))\necho $(( sum > 255 ? 255 : sum ))");
    let approved = json!({
        "nonce": "{{nonce}}", "verdict": "APPROVED", "rationale": "A reason in one sentence.", "findings": [], "resolved": [],
    });
    let draft = |workflow: &str, text: &str| json!({ "workflow": workflow, "role": "drafter", "text": text });
    let review =
        |workflow: &str| json!({ "workflow": workflow, "role": "reviewer", "text": approved.to_string() });
    let attack = json!({ "tests": [] }).to_string();
    let attack =
        json!({ "workflow": "implement", "role": "reviewer", "task": "adversarial", "text": attack });
    let all = json!({ "answer": [
        draft("lld", &design), review("lld"), draft("spec", &spec), review("spec"), draft("implement", &tests),
        review("implement"), draft("implement", &code), attack, review("implement"),
    ] });
    toml::to_string(&all).expect("TOML")
}
