//! Measures the overhead of a model call. Compares our API client with a bare HTTP exchange of the same bytes, and our
//! program runner with a bare run of the same program. Also measures the memory of calls that wait at the same time.

use std::{
    convert::Infallible,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{Router, body::Body, routing::post};
use countersign::{
    clock::SystemClock,
    config::ModelSettings,
    providers::{CallRole, ModelCall, ModelProviders},
};
use futures_util::{future::join_all, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    measure::{Ms, Samples, head, ms, resident, row, say, sized},
    site::block_on,
};

const MODEL: &str = "claude-opus-5-5";
const API_CALLS: usize = sized(400, 5);
const PROGRAM_CALLS: usize = sized(60, 3);
const TOGETHER: usize = sized(50, 3);
/// Size of the prompt in bytes, about the size of a design's prompt.
const PROMPT_BYTES: usize = 60_000;
const PIECES: usize = 500;
const PIECE: &str = "twenty characters so ";

pub(crate) fn main() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    block_on(async {
        let url = serve().await;
        head(&["one call, 60 KB in, 10 KB out", "p50", "p95", "beyond it, p50"]);
        api(&url).await;
        let script = script(scratch.path(), "");
        program("a program that answers at once", &script, scratch.path(), &url, PROGRAM_CALLS).await;
        match std::env::var_os("COUNTERSIGN_TEST_CLAUDE") {
            Some(binary) => {
                let name = "the real Claude program";
                program(name, Path::new(&binary), scratch.path(), &url, PROGRAM_CALLS / 3).await;
            }
            None => say("| the real Claude program: COUNTERSIGN_TEST_CLAUDE names no binary | | | |"),
        }
        memory(scratch.path(), &url).await;
    });
}

fn settings(data_dir: &Path, url: &str) -> ModelSettings {
    let mut settings = ModelSettings::with_real_models(data_dir, None, None);
    settings.anthropic.base_url = url.parse().expect("a URL");
    settings.claude.base_url = Some(url.parse().expect("a URL"));
    settings
}

fn call() -> ModelCall {
    ModelCall {
        role: CallRole::Drafter,
        system: "Answer briefly.".into(),
        prompt: "x".repeat(PROMPT_BYTES),
        schema: None,
        tools: None,
        model: MODEL.into(),
        deadline: Duration::from_secs(60),
        max_output_tokens: u64::MAX,
        counted_prompt_tokens: None,
        budget: None,
        private: false,
        excluded_families: Vec::new(),
        successors: Vec::new(),
        workers: Default::default(),
        facts: Default::default(),
    }
}

async fn timed<T>(samples: &mut Samples, work: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let done = work.await;
    samples.add(ms(started.elapsed()));
    done
}

fn print(name: &str, ours: Samples, bare: Samples) {
    let (ours, bare) = (ours.sorted(), bare.sorted());
    row(&[&format!("{name}, bare"), &Ms(bare.at(0.5)), &Ms(bare.at(0.95)), &""]);
    row(&[
        &format!("{name}, as a call of ours"),
        &Ms(ours.at(0.5)),
        &Ms(ours.at(0.95)),
        &Ms(ours.at(0.5) - bare.at(0.5)),
    ]);
}

async fn api(url: &str) {
    let mut settings = settings("/nowhere".as_ref(), url);
    settings.anthropic.api_key = Some("sk-any".into());
    let providers = ModelProviders::new(&settings, Arc::new(SystemClock)).expect("providers");
    let (provider, _) = providers.resolve("anthropic:opus").expect("a model of the table");
    let (cancel, call) = (CancellationToken::new(), call());
    let client = reqwest::Client::new();
    let body = json!({"model": MODEL, "max_tokens": 64_000, "stream": true, "system": call.system,
                      "messages": [{"role": "user", "content": call.prompt}]});
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    // Alternating, so that both see the same machine load.
    for _ in 0..API_CALLS {
        timed(&mut ours, provider.call(&call, &cancel)).await.expect("an answer");
        let exchange =
            async { client.post(format!("{url}/v1/messages")).json(&body).send().await?.bytes().await };
        timed(&mut bare, exchange).await.expect("the same bytes");
    }
    print("the API", ours, bare);
}

async fn program(name: &str, binary: &Path, data_dir: &Path, url: &str, calls: usize) {
    let mut settings = settings(&data_dir.join("data"), url);
    settings.claude.path = Some(binary.into());
    let providers = ModelProviders::new(&settings, Arc::new(SystemClock)).expect("providers");
    let (provider, _) = providers.resolve("claude:opus").expect("a model of the table");
    let (cancel, call) = (CancellationToken::new(), call());
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for _ in 0..calls {
        timed(&mut ours, provider.call(&call, &cancel)).await.expect("an answer");
        let alone = tokio::task::spawn_blocking({
            let (binary, home, url) = (binary.to_owned(), data_dir.to_owned(), url.to_owned());
            move || alone(&binary, &home, &url)
        });
        timed(&mut bare, alone).await.expect("it runs");
    }
    print(name, ours, bare);
}

/// Runs the program with the same prompt directly, without our code.
fn alone(binary: &Path, home: &Path, url: &str) {
    let mut child = Command::new(binary)
        .args(["-p", "--output-format", "stream-json", "--verbose", "--setting-sources", "user"])
        .args(["--tools", "", "--strict-mcp-config", "--no-session-persistence", "--model", MODEL])
        .args(["--system-prompt", "Answer briefly."])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs([("HOME", home), ("TMPDIR", home), ("CLAUDE_CONFIG_DIR", &home.join("bare"))])
        .envs([("ANTHROPIC_BASE_URL", url), ("ANTHROPIC_API_KEY", "loopback")])
        .envs([("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"), ("DISABLE_TELEMETRY", "1")])
        .envs([("DISABLE_ERROR_REPORTING", "1"), ("DISABLE_AUTOUPDATER", "1")])
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(&b"x".repeat(PROMPT_BYTES)).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn memory(data_dir: &Path, url: &str) {
    let mut settings = settings(&data_dir.join("many"), url);
    settings.claude.path = Some(script(data_dir, "sleep 3"));
    settings.workers.medium.size = TOGETHER;
    let providers = ModelProviders::new(&settings, Arc::new(SystemClock)).expect("providers");
    let (provider, _) = providers.resolve("claude:opus").expect("a model of the table");
    let (cancel, call) = (CancellationToken::new(), call());
    let before = resident(std::process::id());
    let calls = join_all((0..TOGETHER).map(|_| provider.call(&call, &cancel)));
    let watch = async {
        let mut most = before;
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            most = most.max(resident(std::process::id()));
        }
        most
    };
    let (answers, most) = tokio::join!(calls, watch);
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    let each = (most - before) / TOGETHER as f64;
    say(format_args!("\nmemory of ours for each of {TOGETHER} calls that wait for a program: {each:.2} MB"));
}

/// Writes a script that stands in for the model program. The script reads its prompt, runs the shell commands in
/// `waits`, and answers in the real program's format.
fn script(directory: &Path, waits: &str) -> PathBuf {
    let text = PIECE.repeat(PIECES);
    let lines = [
        json!({"type": "system", "subtype": "init", "model": MODEL}),
        json!({"type": "assistant", "message": {"model": MODEL, "role": "assistant", "stop_reason": "end_turn",
               "content": [{"type": "text", "text": text}], "usage": usage()}}),
        json!({"type": "result", "subtype": "success", "is_error": false, "stop_reason": "end_turn", "num_turns": 1,
               "result": text, "usage": usage(), "total_cost_usd": 0.00625}),
    ];
    let answer = lines.map(|line| format!("{line}\n")).concat();
    let script = directory.join(if waits.is_empty() { "claude" } else { "slow-claude" });
    // Everything is in one file, because the sandbox lets the program read no other.
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 2.1.329; exit; }}\ncat >/dev/null\n{waits}\n\
         cat <<'END'\n{answer}END\n"
    );
    fs::write(&script, text).expect("a scratch file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("our own file");
    script
}

fn usage() -> Value {
    json!({"input_tokens": 1000, "output_tokens": 50})
}

/// Starts a server that answers with Anthropic's event stream: a realistic number of events, sent all at once.
async fn serve() -> String {
    let event = |name: &str, mut data: Value| {
        data["type"] = name.into();
        format!("event: {name}\ndata: {data}\n\n")
    };
    let delta = |text: &str| json!({"index": 0, "delta": {"type": "text_delta", "text": text}});
    let start = json!({"message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": MODEL,
                       "stop_reason": null, "usage": usage()}});
    let mut events = vec![
        event("message_start", start),
        event("content_block_start", json!({"index": 0, "content_block": {"type": "text", "text": ""}})),
    ];
    events.extend((0..PIECES).map(|_| event("content_block_delta", delta(PIECE))));
    events.push(event("content_block_stop", json!({"index": 0})));
    events.push(event(
        "message_delta",
        json!({"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}}),
    ));
    events.push(event("message_stop", json!({})));
    let answer = events.concat();
    let messages = move |_: axum::body::Bytes| async move {
        let pieces: Vec<_> = answer.into_bytes().chunks(4096).map(<[u8]>::to_vec).collect();
        let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)));
        ([("content-type", "text/event-stream")], body)
    };
    let router = Router::new().route("/v1/messages", post(messages));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}
