//! More calls than there are places for programs: a run that would stand in line keeps nobody from going on.

use std::{fs, fs::OpenOptions, path::PathBuf, sync::Arc, time::Duration};

use countersign::{
    engine::{CallRow, CallStatus, RunViewStatus},
    proc,
    providers::{CallError, CallErrorKind, CallRole, ModelCall, ModelProviders, ModelReply},
    types::WorkerPool,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    apis::{drafting, reviewing},
    world::{Setting, World},
};

type Called = JoinHandle<Result<ModelReply, CallError>>;

/// A server with one place for what has no hurry.
async fn narrow() -> World {
    let ((anthropic, _), (gemini, _)) = (drafting().await, reviewing(None).await);
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/waiting-claude.sh");
    let toml = format!(
        "[providers.claude]\npath = \"{program}\"\nbase_url = \"{anthropic}\"\nconfig_dir = \"claude\"\n\
         [providers.anthropic]\nbase_url = \"{anthropic}\"\n[providers.gemini]\nbase_url = \"{gemini}\"\n\
         [[providers.gemini.key]]\nname = \"default\"\ntier = \"paid\"\n"
    );
    let env = "ANTHROPIC_API_KEY=sk-ant-of-this-story\nGEMINI_API_KEY=AIzaSyOfThisStory\n".to_owned();
    let models = Some(("claude:opus", "gemini:pro"));
    let mut w = World::new(Setting { models, toml, env, ..Setting::default() }).await;
    w.label("maya", "priority:background").await;
    w
}

impl World {
    fn pipe(&self) -> PathBuf {
        self.directory().join("bot/claude/gate")
    }

    /// Somebody else asks Claude, in no hurry either.
    fn another_call(&self) -> Called {
        let (provider, id) = self.app.providers.resolve("claude:opus").unwrap();
        let call = ModelCall {
            role: CallRole::Drafter,
            system: String::new(),
            prompt: "?".into(),
            schema: None,
            tools: None,
            model: id.model,
            deadline: Duration::from_secs(60),
            max_output_tokens: u64::MAX,
            counted_prompt_tokens: None,
            budget: None,
            private: false,
            excluded_families: Vec::new(),
            successors: Vec::new(),
            workers: WorkerPool::Background,
            facts: Default::default(),
        };
        tokio::spawn(async move { provider.call(&call, &CancellationToken::new()).await })
    }

    /// A call has the place until the file that is handed out is dropped.
    async fn hold(&self) -> (fs::File, Called) {
        fs::create_dir_all(self.pipe().parent().unwrap()).unwrap();
        let made = proc::ChildCommand::new("mkfifo").arg(self.pipe()).run(&CancellationToken::new()).await;
        assert!(made.unwrap().success());
        let call = self.another_call();
        let gate = self.pipe();
        // Opens only once the program is there to read.
        let held = tokio::task::spawn_blocking(|| OpenOptions::new().write(true).open(gate)).await.unwrap();
        fs::remove_file(self.pipe()).unwrap();
        (held.unwrap(), call)
    }

    /// And another one stands in line.
    async fn crowd(&self) -> (fs::File, [Called; 2]) {
        let (held, first) = self.hold().await;
        let second = self.another_call();
        crowded(&self.app.providers).await;
        (held, [first, second])
    }
}

async fn crowded(providers: &ModelProviders) {
    while !providers.would_queue("claude:opus", WorkerPool::Background) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn whoever_would_stand_in_line_comes_again_and_people_read_why() {
    let mut w = narrow().await;
    let (held, calls) = w.crowd().await;
    // The steps of a run are taken one after the other here: this would not come back if one waited for its place.
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    assert_eq!(run.status, RunViewStatus::Waiting, "{}", w.thread());
    w.wait(60).await;
    w.find("Waiting for a place: as many models of its kind as this server runs at a time are at work");
    let books = w.app.store.repository_database(w.repo).await.unwrap();
    w.pass(36 * 3600);
    w.settle().await;
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Waiting, "however long, it is no failure");
    assert!(books.ledger(run.id).await.unwrap().calls.is_empty(), "nothing was asked, nothing is held back");

    drop(held);
    for call in calls {
        drop(call.await.unwrap());
    }
    w.wait(15).await;
    w.approved_by("sam").await;
    assert!(!w.thread().contains("Waiting for a place"));
    let calls = books.ledger(run.id).await.unwrap().calls;
    let settled = |call: &CallRow| matches!(call.status, CallStatus::Done | CallStatus::Failed);
    assert!(calls.iter().all(settled), "{calls:#?}");
}

#[tokio::test]
async fn a_server_that_stops_begins_no_program_any_more() {
    let w = narrow().await;
    let [public, private] = [(); 2].map(|()| tokio::net::TcpListener::bind("127.0.0.1:0"));
    let (public, private) = (public.await.unwrap(), private.await.unwrap());
    let door = public.local_addr().unwrap();
    let (app, stop) = (Arc::clone(&w.app), CancellationToken::new());
    let served = tokio::spawn({
        let stop = stop.clone();
        async move { app.serve(public, private, stop.clone(), stop).await }
    });
    reqwest::get(format!("http://{door}/healthz")).await.unwrap();

    let (held, [first, second]) = w.crowd().await;
    stop.cancel();
    served.await.unwrap().unwrap();
    let error = second.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.usage.attempts), (CallErrorKind::Cancelled, 0));
    assert!(!first.is_finished(), "what has begun is left to come to its end");
    drop(held);
    first.await.unwrap().unwrap();
}

#[tokio::test]
#[ignore = "takes long"]
async fn a_call_that_never_left_the_line_is_in_the_books_as_never_made() {
    let mut w = narrow().await;
    let (held, call) = w.hold().await;
    let providers = Arc::clone(&w.app.providers);
    let stop = tokio::spawn(async move {
        crowded(&providers).await;
        providers.close();
    });
    w.label("maya", "countersign:lld").await;
    stop.await.unwrap();
    let run = w.run().await.unwrap().id;
    let books = w.app.store.repository_database(w.repo).await.unwrap();
    let calls = books.ledger(run).await.unwrap().calls;
    let [row] = calls.as_slice() else { panic!("{calls:#?}") };
    assert_eq!((row.status, row.attempts, row.held_microusd), (CallStatus::Failed, 0, None));

    drop((held, books));
    call.await.unwrap().unwrap();
    let mut w = w.restart().await;
    w.wait(60).await;
    w.approved_by("sam").await;
    let calls = w.app.store.repository_database(w.repo).await.unwrap().ledger(run).await.unwrap().calls;
    assert!(calls.iter().all(|call| call.status != CallStatus::Lost), "{calls:#?}");
}
