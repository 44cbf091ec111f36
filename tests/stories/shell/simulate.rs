//! Stories about `simulate`, which reports the effects that an event would have without causing them.

use std::{collections::BTreeMap, fs, path::Path};

use countersign::{
    cli::{SimulationRequest, simulate_event},
    clock::Clock,
    engine::RunViewStatus,
    intake::SimulatedAction,
    store::{ActivePause, PauseScope},
    types::Hash,
    workflows,
};

use rustix::process::Signal;

use super::process::{Running, countersign, run_countersign, text};
use crate::{
    postgres,
    world::{Setting, World, world},
};

/// Collects the hash of every file below a directory. The files that SQLite writes next to a database even when reading
/// are left out.
fn files(below: &Path, found: &mut BTreeMap<String, Hash>) {
    for entry in fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.to_str().unwrap().to_owned();
        if entry.is_dir() {
            files(&entry, found);
        } else if !name.ends_with("-shm") {
            found.insert(name, Hash::digest(&fs::read(&entry).unwrap()));
        }
    }
}

/// Simulates an event while the server runs. Asserts that neither GitHub nor the data change. Returns the report.
async fn simulate(w: &World, event: SimulatedAction, by: &str) -> String {
    let seen = || {
        let mut found = BTreeMap::new();
        files(w.data(), &mut found);
        found
    };
    let (before, writes, thread) = (seen(), w.hub.writes(), w.thread());
    let requests_before = w.hub.requests().len();
    let settings = workflows::load_settings(&w.directory().join("bot/countersign.toml")).unwrap();
    let repo = "maya/tally".parse().unwrap();
    let asking = SimulationRequest { repo, issue: w.issue.0, event, by: Some(by.to_owned()) };
    let lines = simulate_event(settings, w.clock.clone(), &asking).await.unwrap();
    let tokens = |request: &&countersign::localhub::HubRequestView| !request.path.ends_with("/access_tokens");
    let requests = w.hub.requests();
    let others: Vec<_> =
        requests[requests_before..].iter().filter(tokens).map(|request| &request.method).collect();
    assert!(!others.is_empty() && others.iter().all(|method| *method == "GET"), "{others:?}");
    assert_eq!((w.hub.writes(), w.thread()), (writes, thread));
    assert!(seen() == before, "the data directory is unchanged");
    lines.join("\n")
}

fn label(name: &str) -> SimulatedAction {
    SimulatedAction::Label(name.to_owned())
}

fn comment(text: &str) -> SimulatedAction {
    SimulatedAction::Comment(text.to_owned())
}

#[tokio::test]
async fn simulate_command_reports_the_run_that_a_label_would_start_without_starting_it() {
    let models = Some(("anthropic:claude-opus-4-6", "gemini:gemini-2.5-pro"));
    let env = "ANTHROPIC_API_KEY=key\nGEMINI_API_KEY=key\n".to_owned();
    // The models' services are unreachable, so a model call would fail.
    let toml = "[budget]\ninstallation_month = \"$0.01\"\n".to_owned();
    let mut w = World::new(Setting { models, env, toml, ..Setting::default() }).await;
    let printed = simulate(&w, label("countersign:lld"), "tess").await;
    assert!(printed.contains("maya/tally#1, open: Report time by week"), "{printed}");
    assert!(printed.contains("started lld as"), "{printed}");
    assert!(
        printed.contains("drafter anthropic:claude-opus-4-6, reviewer gemini:gemini-2.5-pro"),
        "{printed}"
    );
    assert!(printed.contains("the drafter would see about "), "{printed}");
    assert!(printed.contains("with the longest response it costs an estimated $"), "{printed}");
    assert!(printed.contains("of $0.01; the rest is too little, so the run would pause"), "{printed}");
    assert!(printed.contains("would react with 👀"), "{printed}");
    assert!(w.run().await.is_none());
    w.settle().await;

    let printed = simulate(&w, label("countersign:lld"), "stranger").await;
    assert!(printed.contains("refused: `countersign:lld` needs triage"), "{printed}");
    assert!(printed.contains("would react with 👎") && !printed.contains("answered"), "{printed}");
    assert!(simulate(&w, label("bug"), "tess").await.ends_with("not a label of ours"));
    let printed = simulate(&w, comment("What do you think?"), "tess").await;
    assert!(printed.ends_with("no command in the comment"), "{printed}");
    let printed = simulate(&w, label("countersign:lld"), "countersign[bot]").await;
    assert!(printed.ends_with("bots' labels are ignored"), "{printed}");
    let printed = simulate(&w, comment("/lld"), "countersign[bot]").await;
    assert!(printed.ends_with("bots' comments are ignored"), "{printed}");
    let (by, why) = ("ops".to_owned(), String::new());
    let pause = ActivePause { scope: PauseScope::Repo(w.repo), by, why, at: w.clock.now() };
    w.app.store.set_pause(pause).await.unwrap();
    let printed = simulate(&w, label("countersign:lld"), "tess").await;
    assert!(printed.contains("started lld as") && printed.contains("has been paused since"), "{printed}");
}

#[tokio::test]
async fn simulate_command_reports_the_effect_of_a_comment_without_recording_it() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let line = w.approve_line();
    let printed = simulate(&w, comment(&line), "sam").await;
    assert!(printed.contains(&format!("passed `/approve` to {}", w.run().await.unwrap().id)), "{printed}");
    let printed = simulate(&w, comment("/approve lld 0123456789ab"), "sam").await;
    assert!(printed.contains("would reply: ") && printed.contains(&line), "{printed}");
    let printed = simulate(&w, comment(&line), "tess").await;
    assert!(printed.contains("refused: ") && printed.contains("would react with 👎"), "{printed}");
    let printed = simulate(&w, comment("/lld"), "tess").await;
    assert!(printed.contains("would reply: "), "{printed}");
    assert!(!printed.contains("drafter"), "no run would begin: {printed}");
    let printed = simulate(&w, comment("/retry"), "tess").await;
    assert!(printed.contains("would reply: "), "{printed}");
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn simulate_command_changes_no_row_of_a_postgres_database() {
    let Some(address) = postgres::database() else { return };
    let mut w = World::new(Setting { postgres: Some(address.clone()), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let rows = || {
        ["answer", "run", "audit", "call", "document"]
            .map(|table| postgres::number(&address, "", &format!("SELECT COUNT(*) FROM all_{table}")))
    };
    let (before, line) = (rows(), w.approve_line());
    let printed = simulate(&w, comment(&line), "sam").await;
    assert!(printed.contains(&format!("passed `/approve` to {}", w.run().await.unwrap().id)), "{printed}");
    let (by, why) = ("ops".to_owned(), String::new());
    let pause = ActivePause { scope: PauseScope::Repo(w.repo), by, why, at: w.clock.now() };
    w.app.store.set_pause(pause).await.unwrap();
    let printed = simulate(&w, label("countersign:issue"), "tess").await;
    assert!(printed.contains("started issue as") && printed.contains("has been paused since"), "{printed}");
    assert_eq!(rows(), before);
    w.stands(RunViewStatus::Asking).await;
}

/// GitHub never responds, and a person interrupts the command. The command must still delete its copy of the data.
#[tokio::test]
async fn interrupted_simulate_command_deletes_its_copy_of_the_data() {
    let w = world().await;
    let (deaf, temp_dir) =
        (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let config = w.directory().join("bot/countersign.toml");
    let text = fs::read_to_string(&config).unwrap();
    let at = format!("http://{}", deaf.local_addr().unwrap());
    fs::write(&config, text.replace(w.hub.base_url().as_str().trim_end_matches('/'), &at)).unwrap();
    let config = config.to_str().unwrap();
    let mut command = countersign(&["simulate", "--repo", "maya/tally", "--issue", "1", "--config", config]);
    let simulating = Running::start(command.env("TMPDIR", temp_dir.path()));
    let _asked = deaf.accept().unwrap();
    assert_eq!(fs::read_dir(temp_dir.path()).unwrap().count(), 1);
    simulating.signal(Signal::INT);
    let (code, printed) = simulating.end();
    assert!(code == Some(1) && printed.contains("interrupted; the copy was removed"), "{printed}");
    assert_eq!(fs::read_dir(temp_dir.path()).unwrap().count(), 0);
}

#[test]
fn simulate_command_accepts_only_label_and_comment_events() {
    let output = run_countersign(&["simulate", "--repo", "a/b", "--issue", "1", "--event", "push"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("write label:NAME or comment:TEXT"), "{}", text(&output.stderr));
}
