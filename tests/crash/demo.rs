//! Kills `countersign demo` and starts it again with the same data. The final thread must equal that of a demo that
//! was not killed.

use std::{fs, path::Path, time::Duration};

use countersign::{
    clock::{Clock, SystemClock},
    localhub::{Hub, HubOptions},
    types::IssueNo,
};
use rustix::process::Signal;

use crate::{
    matrix::runtime,
    process::{Running, countersign, run_countersign, text},
    random::Random,
};

fn demo(data: &Path) -> [String; 6] {
    ["demo", "--yes", "--through", "lld", "--data", data.to_str().unwrap()].map(str::to_owned)
}

/// Runs the demo until it ends and returns its output.
fn run_demo(data: &Path) -> String {
    let arguments = demo(data);
    let output = run_countersign(&arguments.each_ref().map(String::as_str));
    let printed = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    printed
}

/// Returns the issue, the pull requests and the branch that the demo created on its hub.
fn final_state(data: &Path) -> String {
    runtime().block_on(async {
        let hub = Hub::start(HubOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            data: data.join("hub"),
            now: std::sync::Arc::new(|| SystemClock.now()),
            keeps: true,
        })
        .await
        .unwrap();
        let repo = hub.repository_id("maya", "tally").unwrap();
        let issue = hub.issue(repo, IssueNo(1)).unwrap();
        let heading = |body: &str| {
            body.lines().find(|l| l.starts_with("### ") || l.starts_with('/')).map(str::to_owned)
        };
        let comments: Vec<_> = issue
            .comments
            .iter()
            .map(|c| (c.author.clone(), heading(&c.body), c.reactions.clone()))
            .collect();
        let acts: Vec<_> =
            issue.timeline.iter().map(|i| (i.event.clone(), i.actor.clone(), i.detail.clone())).collect();
        let human: Vec<_> = acts.iter().filter(|(_, actor, _)| actor == "maya").collect();
        let pulls: Vec<_> =
            hub.pulls(repo).into_iter().map(|p| (p.number, p.title, p.state, p.draft)).collect();
        let log: Vec<_> = hub
            .log(repo, "countersign/issue-1")
            .into_iter()
            .map(|c| c.message.lines().next().unwrap().to_owned())
            .collect();
        let whole = |body: &str| {
            Some(
                body.split_once("<summary>The whole design</summary>")?
                    .1
                    .split("</details>")
                    .next()?
                    .to_owned(),
            )
        };
        let design = issue.comments.iter().find_map(|c| whole(&c.body)).expect("the gate holds the design");
        let mut labels = issue.labels;
        labels.sort();
        let reactions = issue.reactions;
        hub.stop().await;
        format!("{labels:?} {reactions:?}\n{comments:#?}\n{human:#?}\n{pulls:#?}\n{log:#?}\n{design}")
    })
}

#[test]
fn demo_killed_twice_reaches_the_state_of_an_uninterrupted_demo() {
    let home = tempfile::tempdir().unwrap();
    let calm = home.path().join("calm");
    run_demo(&calm);
    let expected = final_state(&calm);

    let mut random = Random::seeded("demo");
    // The first round kills the demo while it sets up, the others at any time.
    let rounds = if crate::world::all() { 4 } else { 2 };
    for (round, longest) in [300, 3_000, 1_500, 3_000].into_iter().take(rounds).enumerate() {
        let data = home.path().join(format!("killed-{round}"));
        let mut kills = Vec::new();
        for _ in 0..2 {
            let arguments = demo(&data);
            let mut running = Running::start(&mut countersign(&arguments.each_ref().map(String::as_str)));
            let after = random.between(Duration::from_millis(5), Duration::from_millis(longest));
            std::thread::sleep(after);
            running.signal(Signal::KILL);
            running.child.wait().unwrap();
            kills.push(after);
        }
        let output = run_demo(&data);
        let is = final_state(&data);
        let diff = similar::TextDiff::from_lines(&expected, &is).unified_diff().to_string();
        assert!(expected == is, "killed after {kills:?}:\n{diff}\n{output}");
        assert!(fs::read_dir(data.join("hub/repositories")).unwrap().count() == 1);
    }
}
