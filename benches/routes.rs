//! Measures the overhead of routing a free-text request among twelve kinds of work. Measures the time from the comment
//! to the bot's answer with an instant model, and the cost of the calls. Also measures how soon a hanging program is
//! stopped.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use axum::{Json, Router, routing::post};
use countersign::{localhub::embedded_sample, store};
use serde_json::{Value, json};

use crate::{
    measure::{Ms, Samples, head, row, say, sized},
    runs::{open, until},
    site::{Site, block_on},
};

const REQUESTS: usize = sized(100, 2);
const SLEEPING: usize = sized(10, 1);

pub(crate) fn main() {
    block_on(async {
        let prompts = Arc::new(AtomicUsize::new(0));
        let url = serve(Arc::clone(&prompts)).await;
        let toml = format!(
            "[people]\nruns_a_day = 0\ncost_a_day = \"none\"\n[route]\nmodel = \"openai:router-1\"\n[providers.openai]\nbase_url = \
             \"{url}\"\n[[model]]\nid = \"router-1\"\nproviders = [\"openai\"]\nfamily = \"router\"\ncontext = 100000\n\
             max_output = 2000\nprice = {{ input = 1, output = 5 }}\n"
        );
        let mut files: Vec<_> =
            embedded_sample().files.iter().map(|(path, text)| ((*path).to_owned(), text.to_vec())).collect();
        files.extend((0..9).map(|n| {
            let about = "Use when people ask for this kind of work in words of their own. ".repeat(4);
            let text = format!("---\nname: kind-{n}-brief\ndescription: {about}\nworkflow: lld\n---\n");
            (format!(".github/countersign/skills/kind-{n}-brief.md"), text.into_bytes())
        }));
        let site = Site::of(files, &toml).await;
        let serving = site.serve().await;
        let times = ask(&site, REQUESTS).await;
        serving.stop();
        let routes = store::read_routes(&site.data().as_path().into(), site.repo).expect("the decisions");
        let model: u64 = routes.iter().map(|line| line.route.elapsed_ms).sum();
        let costs: Vec<u64> = routes.iter().map(|line| line.route.cost_microusd).collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let times = times.into_iter().collect::<Samples>().sorted();
        head(&["comment → the bot's answer, 12 kinds", "mean", "p50", "p95"]);
        row(&[&"a model that answers at once", &Ms(mean), &Ms(times.at(0.5)), &Ms(times.at(0.95))]);
        say(format_args!("\nof that the model's own time: {}", Ms(model as f64 / routes.len() as f64)));
        say(format_args!(
            "cost of {} recorded calls at $1 and $5 a million tokens: ${:.4} in the mean, ${:.4} the dearest",
            routes.len(),
            costs.iter().sum::<u64>() as f64 / 1e6 / costs.len() as f64,
            costs.iter().max().map_or(0.0, |most| *most as f64 / 1e6),
        ));
        let characters = prompts.load(Ordering::Relaxed) / REQUESTS;
        say(format_args!("a prompt with its issue and request: {characters} characters"));
        sleeping("a program that sleeps", "exec sleep 300").await;
        sleeping("one that ignores SIGTERM", "trap '' TERM\nwhile :; do sleep 300; done").await;
    });
}

/// Runs a program that never answers with a timeout of one second, and measures how soon it is stopped after the
/// timeout.
async fn sleeping(name: &str, script: &str) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let program = scratch.path().join("claude");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo \"2.1.329 (Claude Code)\"; exit; }}\n{script}\n"
    );
    std::fs::write(&program, script).expect("a program");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("a mode");
    let toml = format!(
        "[people]\nruns_a_day = 0\n[providers.claude]\npath = {program:?}\nconfig_dir = \"claude\"\n[route]\nmodel = \
         \"claude:haiku\"\nprogram_timeout = \"1s\"\n"
    );
    let site = Site::new(&toml).await;
    let login = site.data().with_file_name("claude");
    std::fs::create_dir_all(&login).expect("a directory");
    std::fs::write(login.join(".credentials.json"), "{}").expect("a login");
    let serving = site.serve().await;
    ask(&site, SLEEPING).await;
    serving.stop();
    let routes = store::read_routes(&site.data().as_path().into(), site.repo).expect("the decisions");
    let over = routes.iter().map(|line| line.route.elapsed_ms as f64 - 1000.0).collect::<Samples>().sorted();
    say(format_args!(
        "{name} is given up p50 {}, at most {} after its second",
        Ms(over.at(0.5)),
        Ms(over.at(1.0))
    ));
}

/// Posts `count` requests one after the other, each on a new issue. Returns the time, in milliseconds, until each
/// answer.
async fn ask(site: &Site, count: usize) -> Vec<f64> {
    let mut times = Vec::new();
    for n in 0..count {
        let issue = open(site);
        let at = Instant::now();
        site.hub
            .comment(site.repo, issue, site.maya, &format!("@countersign look into number {n}"))
            .expect("a comment");
        times.push(
            until(site, issue, at, |view| view.comments.iter().any(|c| c.body.contains("/route "))).await,
        );
    }
    times
}

async fn serve(prompts: Arc<AtomicUsize>) -> String {
    let answer = async move |Json(request): Json<Value>| {
        let text = request["messages"].to_string();
        prompts.fetch_add(text.len(), Ordering::Relaxed);
        let said = json!({ "skill": "bug-brief", "confidence": 0.5, "intent": "work", "reasoning": "It says so.", "others": [],
            "missing": ["Which command?"] });
        let usage =
            json!({ "prompt_tokens": text.len() / 4, "completion_tokens": said.to_string().len() / 4 });
        let delta = json!({ "content": said.to_string() });
        let choices = json!([{ "delta": delta, "finish_reason": "stop" }]);
        let first = json!({ "model": "router-1", "choices": choices });
        let last = json!({ "model": "router-1", "choices": [], "usage": usage });
        format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n")
    };
    let router = Router::new().route("/chat/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}
