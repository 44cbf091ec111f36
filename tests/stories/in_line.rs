//! Stories with more calls than workers. A run that would have to queue must not block other runs.

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

type CallTask = JoinHandle<Result<ModelReply, CallError>>;

/// Creates a test environment with only one worker for background calls.
async fn single_worker_world() -> World {
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

    /// Starts a background call to Claude that belongs to no run.
    fn start_call(&self) -> CallTask {
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

    /// Occupies the only worker until the returned file is dropped.
    async fn occupy_worker(&self) -> (fs::File, CallTask) {
        fs::create_dir_all(self.pipe().parent().unwrap()).unwrap();
        let mkfifo = proc::ChildCommand::new("mkfifo").arg(self.pipe()).run(&CancellationToken::new()).await;
        assert!(mkfifo.unwrap().success());
        let call = self.start_call();
        let gate = self.pipe();
        // Opening blocks until the program reads the pipe.
        let held = tokio::task::spawn_blocking(|| OpenOptions::new().write(true).open(gate)).await.unwrap();
        fs::remove_file(self.pipe()).unwrap();
        (held.unwrap(), call)
    }

    /// Occupies the only worker and puts a second call into the queue.
    async fn fill_queue(&self) -> (fs::File, [CallTask; 2]) {
        let (held, first) = self.occupy_worker().await;
        let second = self.start_call();
        wait_until_queued(&self.app.providers).await;
        (held, [first, second])
    }
}

async fn wait_until_queued(providers: &ModelProviders) {
    while !providers.would_queue("claude:opus", WorkerPool::Background) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
#[ignore = "takes long"]
async fn run_waits_and_shows_the_reason_when_no_worker_is_free() {
    let mut w = single_worker_world().await;
    let (held, calls) = w.fill_queue().await;
    // Steps run one after the other here, so this would hang if a step waited for a worker.
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap();
    assert_eq!(run.status, RunViewStatus::Waiting, "{}", w.thread());
    w.wait(60).await;
    w.find("Waiting for a slot: this server has reached its limit of parallel calls of this kind");
    let database = w.app.store.repository_database(w.repo).await.unwrap();
    w.pass(36 * 3600);
    w.settle().await;
    assert_eq!(w.run().await.unwrap().status, RunViewStatus::Waiting, "waiting is never a failure");
    assert!(database.ledger(run.id).await.unwrap().calls.is_empty(), "no call was made and no cost is held");

    drop(held);
    for call in calls {
        drop(call.await.unwrap());
    }
    w.wait(15).await;
    w.approved_by("sam").await;
    assert!(!w.thread().contains("Waiting for a slot"));
    let calls = database.ledger(run.id).await.unwrap().calls;
    let settled = |call: &CallRow| matches!(call.status, CallStatus::Done | CallStatus::Failed);
    assert!(calls.iter().all(settled), "{calls:#?}");
}

#[tokio::test]
async fn stopping_server_cancels_queued_model_calls_but_not_the_one_in_progress() {
    let w = single_worker_world().await;
    let [public, private] = [(); 2].map(|()| tokio::net::TcpListener::bind("127.0.0.1:0"));
    let (public, private) = (public.await.unwrap(), private.await.unwrap());
    let address = public.local_addr().unwrap();
    let (app, stop) = (Arc::clone(&w.app), CancellationToken::new());
    let served = tokio::spawn({
        let stop = stop.clone();
        async move { app.serve(public, private, stop.clone(), stop).await }
    });
    reqwest::get(format!("http://{address}/healthz")).await.unwrap();

    let (held, [first, second]) = w.fill_queue().await;
    stop.cancel();
    served.await.unwrap().unwrap();
    let error = second.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.usage.attempts), (CallErrorKind::Cancelled, 0));
    assert!(!first.is_finished(), "a call in progress is not cancelled");
    drop(held);
    first.await.unwrap().unwrap();
}

#[tokio::test]
#[ignore = "takes long"]
async fn model_call_cancelled_in_the_queue_is_recorded_with_zero_attempts() {
    let mut w = single_worker_world().await;
    let (held, call) = w.occupy_worker().await;
    let providers = Arc::clone(&w.app.providers);
    let stop = tokio::spawn(async move {
        wait_until_queued(&providers).await;
        providers.close();
    });
    w.label("maya", "countersign:lld").await;
    stop.await.unwrap();
    let run = w.run().await.unwrap().id;
    let database = w.app.store.repository_database(w.repo).await.unwrap();
    let calls = database.ledger(run).await.unwrap().calls;
    let [row] = calls.as_slice() else { panic!("{calls:#?}") };
    assert_eq!((row.status, row.attempts, row.held_microusd), (CallStatus::Failed, 0, None));

    drop((held, database));
    call.await.unwrap().unwrap();
    let mut w = w.restart().await;
    w.wait(60).await;
    w.approved_by("sam").await;
    let calls = w.app.store.repository_database(w.repo).await.unwrap().ledger(run).await.unwrap().calls;
    assert!(calls.iter().all(|call| call.status != CallStatus::Lost), "{calls:#?}");
}
