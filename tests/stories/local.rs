//! A real small model on this machine, asked over loopback by the whole bot. What it says is not for a test to foresee: such a
//! model often misses the form, and then people have to see that the work goes on without it. `COUNTERSIGN_TEST_LLAMA` names
//! a Python with `xllamacpp`, and after a colon the model's file; without it each of these says that it was skipped.

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

/// A model's server, ended when dropped.
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
    /// On a port of its own choice; `None` = skipped.
    #[expect(clippy::print_stdout, reason = "a skipped test says so")]
    fn start(test: &str) -> Option<Self> {
        let Ok(named) = std::env::var(PROGRAM) else {
            println!("skipped: {test} ({PROGRAM} names no program)");
            return None;
        };
        let (python, weights) = named.split_once(':').expect("a Python and a model's file");
        let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llama/serve.py");
        let mut child = Command::new(python)
            .arg(server)
            .args([weights, MODEL])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the Python that is named can be started");
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = said.find(|line| line.starts_with("http://")).expect("it says where it listens");
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
    /// Calls of a role, of all runs.
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

    /// What comes after the answer is other stories' business.
    fn look_at_all(&self) {
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

#[expect(clippy::print_stdout, reason = "it is read by whoever asked for it")]
fn report(of: &str, calls: &[CallRow], came_to: &str) {
    let tokens: Vec<_> = calls.iter().map(|call| (call.input_tokens, call.output_tokens)).collect();
    let took: Vec<_> = calls.iter().map(|call| call.elapsed_ms).collect();
    println!("{of}: {} calls, tokens {tokens:?}, {took:?} ms: {came_to}", calls.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_read_by_a_real_small_model_or_seen_not_to_be() {
    let Some(llama) = Llama::start("a_request") else { return };
    let mut w = World::new(llama.setting()).await;
    w.comment("sam", "@countersign can we add dark mode to the UI?").await;
    let (asked, routes) = (
        w.calls_to("router").await,
        store::read_routes(&w.app.settings.data_dir.as_path().into(), w.repo).unwrap(),
    );
    assert!((1..=2).contains(&asked.len()), "{asked:#?}\n{}", w.thread());
    assert!(asked.iter().all(|call| call.served.as_deref() == Some(MODEL)), "{asked:#?}");
    let [line] = &routes[..] else { panic!("{routes:?}") };
    let (lead, fell_back) = (line.route.lead.as_str(), &line.route.fell_back);
    report("routing", &asked, &format!("{lead}, {}, {fell_back:?}", line.route.decision));
    // Whatever it said: words alone begin nothing.
    assert!(fell_back.is_none() || lead == "offer", "{line:?}");
    assert_eq!(line.started_run.is_some(), matches!(lead, "begin" | "probably"), "{line:?}");
    w.look_at_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_small_model_plans_searches_or_the_topics_words_are_taken() {
    let Some(llama) = Llama::start("a_plan") else { return };
    let mut w = World::new(llama.setting()).await;
    w.comment("tess", "/scout weeks of time sheets").await;
    w.stands(RunViewStatus::Asking).await;
    let asked = w.calls_to("narrator").await;
    assert!((1..=2).contains(&asked.len()), "{asked:#?}\n{}", w.thread());
    assert!(asked.iter().all(|call| call.served.as_deref() == Some(MODEL)), "{asked:#?}");
    let fell_back = w.status().body.contains("since no model planned the searches");
    report("planning", &asked, if fell_back { "the topic's own words" } else { "the model's plan" });
    w.look_at_all();
}
