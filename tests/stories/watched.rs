//! Stories about monitoring: metrics, and traces of runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use axum::{Json, Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use countersign::{
    engine::RunViewStatus,
    proc::reserved_address,
    web::{
        METRIC_DESCRIPTIONS,
        control::{ControlMessage, ControlReply, RetryCommandRequest, call_server},
    },
};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value,
    trace::v1::{Span, span::SpanKind},
};
use prost::Message;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    doors::knock,
    script::Script,
    world::{Setting, World, world},
};

/// Parses a text in OpenMetrics format. Returns the value of each series; panics on a malformed line.
pub(crate) fn series(text: &str) -> BTreeMap<String, f64> {
    let whole = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no `# EOF` at the end:\n{text}"));
    let mut all = BTreeMap::new();
    for line in whole.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let (plain, labels) = name.split_once('{').unwrap_or((name, "}"));
        assert!(plain.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        for label in labels.strip_suffix('}').unwrap().split_terminator(',') {
            let (key, value) = label.split_once('=').unwrap_or_else(|| panic!("{line}"));
            let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            assert!(quoted.is_some_and(|value| !value.contains(['"', '\\'])), "{key}: {line}");
        }
        assert_eq!(all.insert(name.to_owned(), value.parse().unwrap()), None, "duplicate series: {line}");
    }
    all
}

impl World {
    async fn metrics(&self) -> BTreeMap<String, f64> {
        let url = self.private().await.join("metrics").unwrap();
        let request = reqwest::Client::new().get(url).bearer_auth(self.token());
        let answer = request.send().await.unwrap().error_for_status().unwrap();
        assert!(
            answer.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text")
        );
        series(&answer.text().await.unwrap())
    }

    /// Starts a task that sends traces until the returned token is cancelled.
    fn sends_traces(&self) -> (CancellationToken, JoinHandle<()>) {
        let (ended, app) = (CancellationToken::new(), self.app.clone());
        let until = ended.clone();
        (ended, tokio::spawn(async move { app.traces.as_ref().unwrap().run(until).await }))
    }

    /// Returns the number of visits in the newest run's trail.
    async fn visits(&self) -> usize {
        let run = self.run().await.unwrap().id;
        self.app.store.repository_database(self.repo).await.unwrap().trail(run).await.unwrap().len()
    }
}

#[tokio::test]
async fn metrics_count_runs_deliveries_and_calls_and_require_the_token() {
    let mut w = world().await;
    let url = w.private().await.join("metrics").unwrap();
    for token in ["", "guessed"] {
        let answer = reqwest::Client::new().get(url.clone()).bearer_auth(token).send().await.unwrap();
        assert_eq!(answer.status(), 401);
        assert!(!answer.text().await.unwrap().contains("countersign_"), "{token}");
    }
    w.comes_to_the_gate().await;
    let seen = w.metrics().await;
    assert_eq!(seen["countersign_runs{workflow=\"lld\",step=\"N4\",status=\"asking\"}"], 1.0);
    assert_eq!(
        seen["countersign_inbox{state=\"done\"}"],
        seen["countersign_deliveries_total{outcome=\"stored\"}"]
    );
    assert_eq!(seen["countersign_inbox_oldest_seconds"], 0.0);
    let ledger = w
        .app
        .store
        .repository_database(w.repo)
        .await
        .unwrap()
        .ledger(w.run().await.unwrap().id)
        .await
        .unwrap();
    for (role, model) in [("drafter", "stub-drafter"), ("reviewer", "stub-reviewer")] {
        let rows: Vec<_> = ledger.calls.iter().filter(|call| call.role == role).collect();
        let of = |metric: &str, more: &str| {
            seen[&format!("countersign_{metric}{{provider=\"stub\",model=\"{model}\"{more}}}")]
        };
        assert_eq!(of("model_calls_total", ",outcome=\"answered\""), rows.len() as f64);
        let output: u64 = rows.iter().map(|row| row.output_tokens).sum();
        assert_eq!(of("model_tokens_total", ",kind=\"output\""), output as f64);
        assert_eq!(of("model_seconds_count", ""), rows.len() as f64);
    }
    assert!(!ledger.calls.is_empty());
    assert!(seen["countersign_commit_seconds_count"] > 10.0);
    assert!((1.0..5000.0).contains(&seen["countersign_github_calls_left{limit=\"core\"}"]), "{seen:?}");

    w.pass(3600);
    w.approved_by("sam").await;
    let people = "countersign_run_seconds_total{workflow=\"lld\",on=\"people\"}";
    let later = w.metrics().await;
    assert!(later[people] >= 3600.0, "{later:?}");
    let worked = later["countersign_run_seconds_total{workflow=\"lld\",on=\"work\"}"];
    assert!(worked < 60.0, "the clock stands still while steps work: {worked}");
    assert_eq!(later["countersign_runs_ended_total{workflow=\"lld\",end=\"done\"}"], 1.0);
    assert_eq!(
        (seen["countersign_pauses"], seen.keys().any(|name| name.contains("runs_ended"))),
        (0.0, false)
    );
    assert!(!later.keys().any(|name| name.contains("status=\"asking\"") && name.contains("lld")));
}

#[tokio::test]
async fn wait_time_metric_does_not_recount_waiting_before_a_restart() {
    let mut w = world().await;
    w.comes_to_the_gate().await;
    w.pass(3600);
    let mut w = w.restart().await;
    w.pass(600);
    w.approved_by("sam").await;
    let waited = w.metrics().await["countersign_run_seconds_total{workflow=\"lld\",on=\"people\"}"];
    assert!((600.0..3600.0).contains(&waited), "{waited}");
}

#[tokio::test]
async fn forged_deliveries_create_no_metric_series() {
    let w = world().await;
    let names = |seen: &BTreeMap<String, f64>| seen.keys().cloned().collect::<BTreeSet<_>>();
    knock("first", "ping", "{}").with("x-hub-signature-256", "sha256=00").at(w.door("webhook")).await;
    let before = w.metrics().await;
    for n in 0..20 {
        let event = format!("e{n}");
        knock(&event, &event, "{}").with("x-hub-signature-256", "sha256=00").at(w.door("webhook")).await;
    }
    let after = w.metrics().await;
    assert_eq!(names(&before), names(&after));
    let refused = "countersign_deliveries_total{outcome=\"refused\"}";
    assert_eq!((before[refused], after[refused]), (1.0, 21.0));
    for name in names(&after) {
        let listed = |(known, ..): &&(&str, &str, &str)| name.starts_with(&format!("countersign_{known}"));
        assert!(METRIC_DESCRIPTIONS.iter().any(|row| listed(&row)), "{name} is not in METRIC_DESCRIPTIONS");
    }
}

#[tokio::test]
async fn hostile_model_name_adds_no_metric_line() {
    async fn generate() -> Json<serde_json::Value> {
        Json(json!({
            "candidates": [{"content": {"parts": [{"text": "{}"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 70, "candidatesTokenCount": 5},
            "modelVersion": "x\"} 1\ncountersign_month_dollars{who=\"me\"} 0\n# EOF\n",
        }))
    }
    let url = crate::serve(Router::new().route("/v1beta/models/{target}", post(generate))).await;
    let mut w = World::new(Setting {
        as_files: true,
        models: Some(("stub:drafter", "gemini:pro")),
        toml: format!("[providers.gemini]\nbase_url = \"{url}\"\n"),
        env: "GEMINI_API_KEY=AIzaSyTheKeyOfThisStory\n".to_owned(),
        ..Setting::default()
    })
    .await;
    w.label("maya", "countersign:lld").await;
    w.stands(RunViewStatus::Asking).await;
    assert!(w.gate().contains("INCONCLUSIVE"));
    assert_eq!((w.labels(), w.commits().len()), (vec!["countersign:needs-you".to_owned()], 2));
    assert_eq!(w.pull().state, "open");
    let seen = w.metrics().await;
    let of = |metric: &str, more: &str| {
        seen[&format!("countersign_{metric}{{provider=\"gemini\",model=\"other\"{more}}}")]
    };
    let calls = of("model_calls_total", ",outcome=\"wrong_model\"");
    assert!(calls > 0.0);
    assert_eq!(of("model_tokens_total", ",kind=\"input\""), 70.0 * calls);
    assert!(!seen.keys().any(|name| name.contains("who")), "{seen:?}");
}

/// Imitation of an OTLP collector. It stores the spans that it receives, or fails with a status that the test sets.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    /// Error status with which the collector responds instead of storing spans, if set.
    status: Arc<Mutex<Option<StatusCode>>>,
    requests: Arc<Mutex<u32>>,
}

impl Collector {
    /// Starts the collector and returns its URL.
    async fn listen(&self) -> String {
        async fn take(State(collector): State<Collector>, body: Bytes) -> StatusCode {
            *collector.requests.lock().unwrap() += 1;
            if let Some(status) = *collector.status.lock().unwrap() {
                return status;
            }
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            for resource in request.resource_spans {
                let spans = resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
                collector.spans.lock().unwrap().extend(spans);
            }
            StatusCode::OK
        }
        let router = Router::new().route("/v1/traces", post(take)).with_state(self.clone());
        crate::serve(router).await.to_string()
    }

    fn all(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }
}

fn traced_setting(url: &str) -> Setting {
    Setting { toml: format!("[telemetry]\notlp = \"{url}\"\n"), ..Setting::default() }
}

fn span_attribute(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    })
}

#[tokio::test]
async fn trace_has_each_step_once_across_a_restart() {
    let collector = Collector::default();
    let mut w = World::new(traced_setting(&collector.listen().await)).await;
    let (ended, sending) = w.sends_traces();
    w.comes_to_the_gate().await;
    ended.cancel();
    sending.await.unwrap();
    let before = collector.all().len();
    assert!(before > 10);
    let mut w = w.restart().await;
    let (ended, sending) = w.sends_traces();
    w.approved_by("sam").await;
    ended.cancel();
    sending.await.unwrap();

    let spans = collector.all();
    assert!(spans.len() > before);
    let ids: BTreeSet<_> = spans.iter().map(|span| span.span_id.clone()).collect();
    let traces: BTreeSet<_> = spans.iter().map(|span| span.trace_id.clone()).collect();
    assert_eq!((ids.len(), traces.len()), (spans.len(), 1), "every span is sent once, all in one trace");
    let visits: BTreeSet<u64> =
        spans.iter().filter_map(|span| span_attribute(span, "countersign.visit")?.parse().ok()).collect();
    assert_eq!(visits, (1..=w.visits().await as u64).collect());
    let roots: Vec<_> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    let [root] = roots[..] else { panic!("{roots:?}") };
    assert_eq!(
        (root.name.as_str(), span_attribute(root, "countersign.issue")),
        ("lld", Some(w.issue.to_string()))
    );
    for span in &spans {
        assert!(span.parent_span_id.is_empty() || ids.contains(&span.parent_span_id), "{span:?}");
        assert!(span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano);
        assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
    }

    let run = w.run().await.unwrap().id;
    let calls = w.app.store.repository_database(w.repo).await.unwrap().ledger(run).await.unwrap().calls;
    let client_spans: Vec<_> = spans.iter().filter(|span| span.kind == i32::from(SpanKind::Client)).collect();
    assert_eq!(client_spans.len(), calls.len());
    for call in &calls {
        let model = call.asked.strip_prefix("stub:").unwrap();
        let span = client_spans.iter().find(|span| span.name == format!("chat {model}")).unwrap();
        let expected = [
            ("gen_ai.operation.name", "chat".to_owned()),
            ("gen_ai.provider.name", "stub".to_owned()),
            ("gen_ai.request.model", model.to_owned()),
            ("gen_ai.response.model", call.served.clone().unwrap()),
        ];
        for (key, value) in expected {
            assert_eq!(span_attribute(span, key), Some(value), "{key}");
        }
    }
    let sum_attribute = |key: &str| -> u64 {
        client_spans.iter().filter_map(|s| span_attribute(s, key)?.parse::<u64>().ok()).sum()
    };
    let (input, output) = calls.iter().fold((0, 0), |(i, o), c| (i + c.input_tokens, o + c.output_tokens));
    assert_eq!(
        (sum_attribute("gen_ai.usage.input_tokens"), sum_attribute("gen_ai.usage.output_tokens")),
        (input, output)
    );

    let everything = format!("{spans:?}");
    for words in [w.view().title.as_str(), "maya", "tally"] {
        assert!(!everything.contains(words), "a trace contains people's text: {words}");
    }
}

#[tokio::test]
async fn failed_call_is_marked_as_an_error_in_its_trace() {
    let collector = Collector::default();
    let script = Some(Script::default().fails("drafter", "capacity").toml());
    let setting = Setting { script, ..traced_setting(&collector.listen().await) };
    let mut w = World::new(setting).await;
    let (ended, sending) = w.sends_traces();
    let _open = w.socket();
    w.label("maya", "countersign:lld").await;
    let run = w.run().await.unwrap().id;
    for _ in 0..2 {
        let again = json!(RetryCommandRequest { run, by: "ops".to_owned() });
        let ControlReply::Done(ControlMessage { .. }) =
            call_server(w.data(), "/retry", Some(again)).await.unwrap()
        else {
            panic!()
        };
    }
    w.comment("maya", "/stop").await;
    w.wait(60).await;
    w.stands(RunViewStatus::Stopped).await;
    ended.cancel();
    sending.await.unwrap();
    let spans = collector.all();
    let mut visits: Vec<u64> =
        spans.iter().filter_map(|span| span_attribute(span, "countersign.visit")?.parse().ok()).collect();
    visits.sort_unstable();
    let all: Vec<_> = (1..=w.visits().await as u64).collect();
    assert_eq!(visits, all, "visits left by a retry are traced once too");
    let failed =
        spans.iter().find(|span| span_attribute(span, "error.type").is_some()).expect("a call failed");
    assert_eq!(span_attribute(failed, "error.type").as_deref(), Some("capacity"));
    assert!(spans.iter().any(|span| span.name.ends_with("halt report")), "{spans:?}");
    let calls = w.metrics().await;
    let series =
        "countersign_model_calls_total{provider=\"stub\",model=\"stub-drafter\",outcome=\"capacity\"}";
    assert_eq!(calls[series], 1.0);
}

#[tokio::test]
async fn run_is_not_blocked_by_a_failing_trace_collector() {
    // Four failures: never answers, not listening, status 500, status 400.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (nobody, _reserved) = reserved_address().unwrap();
    let (broken, unwilling) = (Collector::default(), Collector::default());
    *broken.status.lock().unwrap() = Some(StatusCode::INTERNAL_SERVER_ERROR);
    *unwilling.status.lock().unwrap() = Some(StatusCode::BAD_REQUEST);
    let (broken_at, unwilling_at) = (broken.listen().await, unwilling.listen().await);
    for (url, outcome) in [
        (format!("http://{}", silent.local_addr().unwrap()), "lost"),
        (format!("http://{nobody}"), "lost"),
        (broken_at, "refused"),
        (unwilling_at, "refused"),
    ] {
        let mut w = World::new(traced_setting(&url)).await;
        let (ended, sending) = w.sends_traces();
        w.comes_to_the_gate().await;
        w.approved_by("sam").await;
        ended.cancel();
        sending.await.unwrap();
        let seen = w.metrics().await;
        assert!(seen[&format!("countersign_trace_spans_total{{outcome=\"{outcome}\"}}")] > 0.0, "{url}");
        assert!(!seen.contains_key("countersign_trace_spans_total{outcome=\"sent\"}"), "{url}");
    }
    assert!(*broken.requests.lock().unwrap() > 0 && *unwilling.requests.lock().unwrap() > 0);
}

#[tokio::test]
async fn spans_refused_during_a_trace_collector_outage_are_sent_when_it_recovers() {
    let collector = Collector::default();
    *collector.status.lock().unwrap() = Some(StatusCode::SERVICE_UNAVAILABLE);
    let mut w = World::new(traced_setting(&collector.listen().await)).await;
    let (ended, sending) = w.sends_traces();
    w.comes_to_the_gate().await;
    *collector.status.lock().unwrap() = None;
    w.approved_by("sam").await;
    ended.cancel();
    sending.await.unwrap();
    let spans = collector.all();
    let visits = spans.iter().filter(|span| span_attribute(span, "countersign.visit").is_some()).count();
    assert_eq!(visits, w.visits().await);
}
