//! Stories in which the whole bot works with a real small model on this machine. A small model often misses the
//! required format, so the tests accept any response and only check that the run continues.
//!
//! `COUNTERSIGN_TEST_LLAMA` contains the path of a Python with `xllamacpp`, a colon, and the path of the model file.
//! Without the variable, each test prints that it was skipped.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use countersign::{
    engine::{CallRow, RunViewStatus},
    store,
    types::Timestamp,
};

use crate::world::{Setting, World};

const PROGRAM: &str = "COUNTERSIGN_TEST_LLAMA";
const MODEL: &str = "smollm2-135m";

/// Server of the small model. It is stopped when this value is dropped.
struct Llama {
    child: Child,
    url: String,
}

impl Drop for Llama {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Llama {
    /// Starts the model server on a free port. Returns `None` if the test is skipped.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    fn start(test: &str) -> Option<Self> {
        let Ok(named) = std::env::var(PROGRAM) else {
            println!("skipped: {test} ({PROGRAM} names no program)");
            return None;
        };
        let (python, weights) =
            named.split_once(':').expect("COUNTERSIGN_TEST_LLAMA must be PYTHON:MODEL_FILE");
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llama/serve.py");
        let mut child = Command::new(python)
            .arg(server)
            .args([weights, MODEL])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the Python of COUNTERSIGN_TEST_LLAMA can be started");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.find(|line| line.starts_with("http://")).expect("the server prints its address");
        Some(Self { child, url })
    }

    fn setting(&self) -> Setting {
        let row = format!(
            "[[model]]\nid = \"{MODEL}\"\nproviders = [\"openai\"]\nfamily = \"smollm\"\ncontext = 8192\nmax_output = 300\nprice = {{ input = 0, output = 0 }}\n"
        );
        let (url, time) = (&self.url, "service_timeout = \"5m\"");
        let toml = format!(
            "[route]\nmodel = \"openai:{MODEL}\"\n{time}\n[providers.openai]\nbase_url = \"{url}/v1\"\n{row}"
        );
        Setting { toml, ..Setting::default() }
    }
}

impl World {
    /// Returns the calls that a role made, in all runs. Calls without an attempt are left out.
    async fn calls_to(&self, role: &str) -> Vec<CallRow> {
        let rows = self
            .app
            .store
            .repository_database(self.repo)
            .await
            .unwrap()
            .call_costs(None, Timestamp(0))
            .await
            .unwrap();
        rows.into_iter().map(|row| row.call).filter(|call| call.role == role && call.attempts > 0).collect()
    }

    /// Marks the bot's comments, labels and pull requests as inspected. Other stories check them.
    fn mark_comments_seen(&self) {
        for comment in self.bots() {
            self.look_at(comment.id);
        }
        self.labels();
        if !self.pulls().is_empty() {
            self.pull();
            self.commits();
        }
    }
}

#[expect(clippy::print_stdout, reason = "people read this report")]
fn report(of: &str, calls: &[CallRow], came_to: &str) {
    let tokens: Vec<_> = calls.iter().map(|call| (call.input_tokens, call.output_tokens)).collect();
    let took: Vec<_> = calls.iter().map(|call| call.elapsed_ms).collect();
    println!("{of}: {} calls, tokens {tokens:?}, {took:?} ms: {came_to}", calls.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn small_local_model_routes_a_request_or_the_bot_offers_commands() {
    let Some(llama) = Llama::start("a_request") else { return };
    let mut w = World::new(llama.setting()).await;
    w.comment("sam", "@countersign can we add dark mode to the UI?").await;
    let (calls, routes) = (
        w.calls_to("router").await,
        store::read_routes(&w.app.settings.data_dir.as_path().into(), w.repo).unwrap(),
    );
    assert!((1..=2).contains(&calls.len()), "{calls:#?}\n{}", w.thread());
    assert!(calls.iter().all(|call| call.served.as_deref() == Some(MODEL)), "{calls:#?}");
    let [line] = &routes[..] else { panic!("{routes:?}") };
    let (lead, fell_back) = (line.route.lead.as_str(), &line.route.fell_back);
    report("routing", &calls, &format!("{lead}, {}, {fell_back:?}", line.route.decision));
    // Whatever the model answers, words alone start nothing.
    assert!(fell_back.is_none() || lead == "offer", "{line:?}");
    assert_eq!(line.started_run.is_some(), matches!(lead, "begin" | "probably"), "{line:?}");
    w.mark_comments_seen();
}

#[tokio::test(flavor = "multi_thread")]
async fn small_local_model_plans_scout_searches_or_topic_words_are_used() {
    let Some(llama) = Llama::start("a_plan") else { return };
    let mut w = World::new(llama.setting()).await;
    w.comment("tess", "/scout weeks of time sheets").await;
    w.stands(RunViewStatus::Asking).await;
    let calls = w.calls_to("narrator").await;
    assert!((1..=2).contains(&calls.len()), "{calls:#?}\n{}", w.thread());
    assert!(calls.iter().all(|call| call.served.as_deref() == Some(MODEL)), "{calls:#?}");
    let fell_back = w.status().body.contains("because no model planned the search");
    report("planning", &calls, if fell_back { "the topic's own words" } else { "the model's plan" });
    w.mark_comments_seen();
}
