//! What would be, told without doing any of it.

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

use super::process::{Running, countersign, finished, text};
use crate::{
    postgres,
    world::{Setting, World, world},
};

/// Every file below, but what SQLite lets readers write beside a database.
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

/// What is told of it, beside the server; nothing is done meanwhile, here or there.
async fn told(w: &World, event: SimulatedAction, by: &str) -> String {
    let seen = || {
        let mut found = BTreeMap::new();
        files(w.data(), &mut found);
        found
    };
    let (before, writes, thread) = (seen(), w.hub.writes(), w.thread());
    let asked = w.hub.requests().len();
    let settings = workflows::load_settings(&w.directory().join("bot/countersign.toml")).unwrap();
    let repo = "maya/tally".parse().unwrap();
    let asking = SimulationRequest { repo, issue: w.issue.0, event, by: Some(by.to_owned()) };
    let lines = simulate_event(settings, w.clock.clone(), &asking).await.unwrap();
    let tokens = |request: &&countersign::localhub::HubRequestView| !request.path.ends_with("/access_tokens");
    let requests = w.hub.requests();
    let others: Vec<_> = requests[asked..].iter().filter(tokens).map(|request| &request.method).collect();
    assert!(!others.is_empty() && others.iter().all(|method| *method == "GET"), "{others:?}");
    assert_eq!((w.hub.writes(), w.thread()), (writes, thread));
    assert!(seen() == before, "the data directory is as it was");
    lines.join("\n")
}

fn label(name: &str) -> SimulatedAction {
    SimulatedAction::Label(name.to_owned())
}

fn comment(text: &str) -> SimulatedAction {
    SimulatedAction::Comment(text.to_owned())
}

#[tokio::test]
async fn a_run_that_would_begin_is_told_and_does_not_begin() {
    let models = Some(("anthropic:claude-opus-4-6", "gemini:gemini-2.5-pro"));
    let env = "ANTHROPIC_API_KEY=key\nGEMINI_API_KEY=key\n".to_owned();
    // Nobody listens there: a model that was asked would fail loudly.
    let toml = "[budget]\ninstallation_month = \"$0.01\"\n".to_owned();
    let mut w = World::new(Setting { models, env, toml, ..Setting::default() }).await;
    let said = told(&w, label("countersign:lld"), "tess").await;
    assert!(said.contains("maya/tally#1, open: Report time by week"), "{said}");
    assert!(said.contains("started lld as"), "{said}");
    assert!(said.contains("drafter anthropic:claude-opus-4-6, reviewer gemini:gemini-2.5-pro"), "{said}");
    assert!(said.contains("of the repository the drafter is shown about "), "{said}");
    assert!(said.contains("with the longest answer that is an estimated $"), "{said}");
    assert!(said.contains("of $0.01, which leaves no room for it, so the run would pause"), "{said}");
    assert!(said.contains("👀 would be shown"), "{said}");
    assert!(w.run().await.is_none());
    w.settle().await;

    let said = told(&w, label("countersign:lld"), "stranger").await;
    assert!(said.contains("refused: `countersign:lld` needs triage"), "{said}");
    assert!(said.contains("👎 would be shown") && !said.contains("answered"), "{said}");
    assert!(told(&w, label("bug"), "tess").await.ends_with("not a label of ours"));
    let said = told(&w, comment("What do you think?"), "tess").await;
    assert!(said.ends_with("no command in it"), "{said}");
    let said = told(&w, label("countersign:lld"), "countersign[bot]").await;
    assert!(said.ends_with("a bot's label never acts"), "{said}");
    let said = told(&w, comment("/lld"), "countersign[bot]").await;
    assert!(said.ends_with("a bot's comment never acts"), "{said}");
    let (by, why) = ("ops".to_owned(), String::new());
    let pause = ActivePause { scope: PauseScope::Repo(w.repo), by, why, at: w.clock.now() };
    w.app.store.set_pause(pause).await.unwrap();
    let said = told(&w, label("countersign:lld"), "tess").await;
    assert!(said.contains("started lld as") && said.contains("is paused since"), "{said}");
}

#[tokio::test]
async fn a_gate_that_would_hear_it_is_told_and_hears_nothing() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let line = w.approve_line();
    let said = told(&w, comment(&line), "sam").await;
    assert!(said.contains(&format!("`/approve` taken by {}", w.run().await.unwrap().id)), "{said}");
    let said = told(&w, comment("/approve lld 0123456789ab"), "sam").await;
    assert!(said.contains("it would be answered: ") && said.contains(&line), "{said}");
    let said = told(&w, comment(&line), "tess").await;
    assert!(said.contains("refused: ") && said.contains("👎 would be shown"), "{said}");
    let said = told(&w, comment("/lld"), "tess").await;
    assert!(said.contains("it would be answered: "), "{said}");
    assert!(!said.contains("drafter"), "no run would begin: {said}");
    let said = told(&w, comment("/retry"), "tess").await;
    assert!(said.contains("it would be answered: "), "{said}");
    w.settle().await;
    w.stands(RunViewStatus::Asking).await;
}

#[tokio::test]
#[ignore = "takes long"]
async fn with_the_data_in_a_postgres_the_same_is_told() {
    let Some(address) = postgres::database() else { return };
    let mut w = World::new(Setting { postgres: Some(address.clone()), ..Setting::default() }).await;
    w.comes_to_the_gate().await;
    w.wait(60).await;
    let rows = || {
        ["answer", "run", "audit", "call", "document"]
            .map(|table| postgres::number(&address, "", &format!("SELECT COUNT(*) FROM all_{table}")))
    };
    let (before, line) = (rows(), w.approve_line());
    let said = told(&w, comment(&line), "sam").await;
    assert!(said.contains(&format!("`/approve` taken by {}", w.run().await.unwrap().id)), "{said}");
    let (by, why) = ("ops".to_owned(), String::new());
    let pause = ActivePause { scope: PauseScope::Repo(w.repo), by, why, at: w.clock.now() };
    w.app.store.set_pause(pause).await.unwrap();
    let said = told(&w, label("countersign:issue"), "tess").await;
    assert!(said.contains("started issue as") && said.contains("is paused since"), "{said}");
    assert_eq!(rows(), before);
    w.stands(RunViewStatus::Asking).await;
}

/// GitHub never answers, and somebody loses patience.
#[tokio::test]
async fn one_that_is_stopped_leaves_no_copy() {
    let w = world().await;
    let (deaf, room) = (std::net::TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let config = w.directory().join("bot/countersign.toml");
    let text = fs::read_to_string(&config).unwrap();
    let at = format!("http://{}", deaf.local_addr().unwrap());
    fs::write(&config, text.replace(w.hub.base_url().as_str().trim_end_matches('/'), &at)).unwrap();
    let config = config.to_str().unwrap();
    let mut command = countersign(&["simulate", "--repo", "maya/tally", "--issue", "1", "--config", config]);
    let simulating = Running::start(command.env("TMPDIR", room.path()));
    let _asked = deaf.accept().unwrap();
    assert_eq!(fs::read_dir(room.path()).unwrap().count(), 1);
    simulating.signal(Signal::INT);
    let (code, said) = simulating.end();
    assert!(code == Some(1) && said.contains("ended on the way; the copy is gone"), "{said}");
    assert_eq!(fs::read_dir(room.path()).unwrap().count(), 0);
}

#[test]
fn an_event_is_a_label_or_a_comment() {
    let output = finished(&["simulate", "--repo", "a/b", "--issue", "1", "--event", "push"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("write label:NAME or comment:TEXT"), "{}", text(&output.stderr));
}
