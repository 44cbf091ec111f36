//! OpenTelemetry traces, one per run, exported over OTLP/HTTP if the settings name a collector.
//!
//! Spans are built from database rows. When a visit ends, it gets a span whose children are the visit's model calls and
//! journal entries. When the run ends, the run gets its own span. Span ids derive from the run, so a restarted server
//! continues the same trace. Spans contain no text by people or models.
//!
//! No step waits for the collector: visits are buffered until they are sent. When the buffer is full, the oldest visits
//! are dropped and counted. A server that crashes loses its unsent spans.

use std::{sync::Arc, time::Duration};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span::SpanKind, status::StatusCode},
};
use prometheus_client::metrics::{counter::Counter, family::Family};
use prost::Message;
use tokio::sync::{Mutex, broadcast};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::{
    clock::SharedClock,
    engine::{CallRow, CallStatus, FinishedVisit},
    store::{RunStatus, Store, StoreError, VisitSpan},
    types::{Hash, RunId, Timestamp, with_causes},
};

/// Timeout of one export request, from connecting to the response.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay before the first retry while the collector is unavailable. The delay doubles with each retry, up to
/// `RETRY_DELAY_MOST`.
const RETRY_DELAY: Duration = Duration::from_secs(2);
const RETRY_DELAY_MOST: Duration = Duration::from_secs(60);

/// Maximum number of visits per export request.
const BATCH: usize = 32;

/// Maximum number of model calls per visit that get a span. The same limit applies separately to journal entries.
const SPANS: u32 = 200;

/// Counters of exported and lost spans.
#[derive(Clone, Default)]
pub struct TraceMetrics {
    pub spans: Family<[(&'static str, &'static str); 1], Counter>,
    pub lost: Counter,
}

/// Exporter of finished visits to one collector.
pub struct TraceExporter {
    store: Arc<Store>,
    clock: SharedClock,
    client: reqwest::Client,
    url: String,
    visits: Mutex<broadcast::Receiver<Arc<FinishedVisit>>>,
    counted: TraceMetrics,
}

/// Counts a request's spans under their outcome when this value is dropped.
struct SpanTally<'a> {
    counted: &'a TraceMetrics,
    spans: u64,
    outcome: &'static str,
}

impl Drop for SpanTally<'_> {
    fn drop(&mut self) {
        self.counted.spans.get_or_create(&[("outcome", self.outcome)]).inc_by(self.spans);
    }
}

/// The collector's response to one request.
enum ExportResult {
    Accepted,
    /// The collector refused the request and would refuse a retry as well. Holds the reason.
    Rejected(String),
    Unavailable(String),
}

impl TraceExporter {
    /// Creates an exporter without sending anything.
    ///
    /// # Errors
    /// No HTTPS client can be built.
    pub fn new(
        collector: &Url,
        visits: broadcast::Receiver<Arc<FinishedVisit>>,
        store: Arc<Store>,
        clock: SharedClock,
        counted: TraceMetrics,
    ) -> Result<Self, reqwest::Error> {
        // An error means that a provider is installed already, and this program installs only this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            reqwest::Client::builder().timeout(EXPORT_TIMEOUT).redirect(reqwest::redirect::Policy::none());
        // Settings allow plain HTTP to this machine only.
        let client = if collector.scheme() == "http" { client.no_proxy() } else { client };
        let url = format!("{}/v1/traces", collector.as_str().trim_end_matches('/'));
        Ok(Self { store, clock, client: client.build()?, url, visits: Mutex::new(visits), counted })
    }

    /// Exports visits until `ended` is cancelled. Then exports the remaining visits for at most `EXPORT_TIMEOUT`.
    pub async fn run(&self, ended: CancellationToken) {
        if run_until(&ended, EXPORT_TIMEOUT, self.export_visits(&ended)).await.is_none() {
            let visits = self.visits.lock().await.len() as u64;
            self.counted.lost.inc_by(visits);
            tracing::warn!(visits, "trace collector too slow at shutdown; dropping the last spans");
        }
    }

    async fn export_visits(&self, ended: &CancellationToken) {
        let mut visits = self.visits.lock().await;
        loop {
            let first = tokio::select! {
                biased;
                first = visits.recv() => first,
                () = ended.cancelled() => return,
            };
            let first = match first {
                Ok(first) => Some(first),
                Err(broadcast::error::RecvError::Lagged(lost)) => self.record_lost(lost),
                Err(broadcast::error::RecvError::Closed) => return,
            };
            let mut batch: Vec<_> = first.into_iter().collect();
            while batch.len() < BATCH {
                match visits.try_recv() {
                    Ok(next) => batch.push(next),
                    Err(broadcast::error::TryRecvError::Lagged(lost)) => drop(self.record_lost(lost)),
                    Err(_) => break,
                }
            }
            let mut spans = Vec::new();
            for visit in &batch {
                match self.build_spans(visit).await {
                    Ok(more) => spans.extend(more),
                    Err(error) => {
                        tracing::warn!(run = %visit.run, %error, "could not build the spans of a step; its trace is incomplete");
                    }
                }
            }
            if !spans.is_empty() && !self.deliver(spans, ended).await {
                return;
            }
        }
    }

    fn record_lost(&self, visits: u64) -> Option<Arc<FinishedVisit>> {
        self.counted.lost.inc_by(visits);
        tracing::warn!(visits, "trace collector too slow; dropped the spans of some steps");
        None
    }

    /// Sends spans until the collector accepts or refuses them. Returns false if the collector is unavailable and the
    /// server is shutting down.
    async fn deliver(&self, spans: Vec<Span>, ended: &CancellationToken) -> bool {
        let mut tally = SpanTally { counted: &self.counted, spans: spans.len() as u64, outcome: "lost" };
        let body = export_request(spans).encode_to_vec();
        let mut wait = RETRY_DELAY;
        loop {
            let last = ended.is_cancelled();
            match self.send(body.clone()).await {
                ExportResult::Accepted => {
                    tally.outcome = "sent";
                    return true;
                }
                ExportResult::Rejected(why) => {
                    tracing::warn!(%why, "trace collector refused spans; check [telemetry] otlp");
                    tally.outcome = "refused";
                    return true;
                }
                ExportResult::Unavailable(why) if last => {
                    tracing::warn!(%why, "trace collector unavailable at shutdown; dropping the last spans");
                    return false;
                }
                ExportResult::Unavailable(why) if wait == RETRY_DELAY => {
                    tracing::warn!(%why, "trace collector unavailable; will retry");
                }
                ExportResult::Unavailable(_) => {}
            }
            tokio::select! {
                () = self.clock.sleep(wait) => {}
                () = ended.cancelled() => {}
            }
            wait = wait.saturating_mul(2).min(RETRY_DELAY_MOST);
        }
    }

    async fn send(&self, body: Vec<u8>) -> ExportResult {
        let post = self.client.post(&self.url).header("content-type", "application/x-protobuf").body(body);
        match post.send().await {
            Ok(answer) if answer.status().is_success() => ExportResult::Accepted,
            // The OTLP specification asks clients to retry these.
            Ok(answer) if matches!(answer.status().as_u16(), 429 | 502..=504) => {
                ExportResult::Unavailable(answer.status().to_string())
            }
            Ok(answer) => ExportResult::Rejected(answer.status().to_string()),
            Err(error) => ExportResult::Unavailable(with_causes(&error)),
        }
    }

    async fn build_spans(&self, left: &FinishedVisit) -> Result<Vec<Span>, StoreError> {
        let Some(db) = self.store.existing_repository_database(left.run.repo).await? else {
            return Ok(Vec::new());
        };
        let (trace, mut left, mut spans) = (RunTrace::new(left), left.clone(), Vec::new());
        while let Some(row) = db.visit(left.run, left.visit, SPANS).await? {
            let more = row.after_retry;
            spans.extend(trace.visit_spans(&left, row, self.clock.now()));
            if !more {
                break;
            }
            // No event announced the visit before: a retry ended it, not its step.
            (left.visit, left.end_status, left.reports_halt) = (left.visit - 1, None, false);
        }
        Ok(spans)
    }
}

/// Runs `work` until the time `patience` has passed after `ended` was cancelled. Returns `None` if `work` was not done
/// by then.
async fn run_until<V>(
    ended: &CancellationToken,
    patience: Duration,
    work: impl Future<Output = V>,
) -> Option<V> {
    let late = async {
        ended.cancelled().await;
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        done = work => Some(done),
        () = late => None,
    }
}

fn export_request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let scope = InstrumentationScope { name: name.into(), version: version.into(), ..Default::default() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..Default::default() }];
    let attributes = vec![text_attribute("service.name", name), text_attribute("service.version", version)];
    let resource = Some(Resource { attributes, ..Default::default() });
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans { resource, scope_spans, ..Default::default() }],
    }
}

/// The trace of one run.
struct RunTrace {
    id: Vec<u8>,
}

impl RunTrace {
    /// Derives the trace id from the run's number and cause. Runs of two servers may have the same number, but never
    /// the same cause.
    fn new(left: &FinishedVisit) -> Self {
        Self { id: truncated_digest::<16>(&[left.run.to_string().as_bytes(), left.cause.0.as_bytes()]) }
    }

    fn span_id(&self, visit: u64, key: &str) -> Vec<u8> {
        truncated_digest::<8>(&[&self.id, &visit.to_be_bytes(), key.as_bytes()])
    }

    fn span(&self, name: String, id: Vec<u8>, parent: Vec<u8>, [from, to]: [Timestamp; 2]) -> Span {
        Span {
            trace_id: self.id.clone(),
            span_id: id,
            parent_span_id: parent,
            name,
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanoseconds(from),
            end_time_unix_nano: nanoseconds(to.max(from)),
            ..Default::default()
        }
    }

    /// Returns the spans of the visit and of its calls and journal entries. If the run ended with this visit, also
    /// returns the run's span.
    fn visit_spans(&self, left: &FinishedVisit, row: VisitSpan, now: Timestamp) -> Vec<Span> {
        // Visit numbers start at 1, so visit 0 is free for the run's own span.
        let (root, id) = (self.span_id(0, ""), self.span_id(left.visit, ""));
        let ended = row.left_at.unwrap_or(now);
        let step = left.step.map_or("unknown step", |step| step.title);
        let name = if left.reports_halt { format!("{step}: halt report") } else { step.to_owned() };
        let mut visit = self.span(name, id.clone(), root.clone(), [row.entered_at, ended]);
        visit.attributes = vec![
            text_attribute("countersign.step", left.step.map_or("unknown", |step| step.id)),
            number_attribute("countersign.visit", left.visit),
            text_attribute("countersign.left", row.how.as_deref().unwrap_or_default()),
        ];
        let mut spans = vec![visit];
        for (key, _, call) in &row.calls {
            spans.push(self.call_span(left.visit, id.clone(), (key, call_start(&row.calls, key), call)));
        }
        for (key, begun, done) in row.entries {
            let times = [begun, done.unwrap_or(ended)];
            spans.push(self.span(key.clone(), self.span_id(left.visit, &key), id.clone(), times));
        }
        if let Some(status) = left.end_status {
            spans.push(self.run_span(left, root, status, (row.retried_at, ended)));
        }
        spans
    }

    /// Returns the run's own span, which is the trace's root. If the run was retried after its end, the root exists
    /// already, so the new span is a child of that root.
    fn run_span(
        &self,
        left: &FinishedVisit,
        root: Vec<u8>,
        status: RunStatus,
        (again, ended): (Option<Timestamp>, Timestamp),
    ) -> Span {
        let RunId { repo, .. } = left.run;
        let mut run = match again {
            None => self.span(left.workflow.clone(), root, Vec::new(), [left.started_at, ended]),
            Some(again) => {
                let (name, id) =
                    (format!("{}: tried again", left.workflow), self.span_id(left.visit, "again"));
                self.span(name, id, root, [again, ended])
            }
        };
        run.attributes = vec![
            text_attribute("countersign.run", &left.run.to_string()),
            text_attribute("countersign.workflow", &left.workflow),
            number_attribute("countersign.repository", repo.0),
            number_attribute("countersign.issue", left.issue.0),
        ];
        run.status = Some(span_status(status != RunStatus::Failed));
        run
    }

    /// Returns the span of a model call, which follows OpenTelemetry's conventions for generative AI.
    fn call_span(
        &self,
        visit: u64,
        parent: Vec<u8>,
        (key, asked, call): (&str, Timestamp, &CallRow),
    ) -> Span {
        let model = call.asked.split_once(':').map_or(call.asked.as_str(), |(_, model)| model);
        let ends = asked.plus(Duration::from_millis(call.elapsed_ms));
        let mut span = self.span(format!("chat {model}"), self.span_id(visit, key), parent, [asked, ends]);
        span.kind = SpanKind::Client.into();
        span.attributes = vec![
            text_attribute("gen_ai.operation.name", "chat"),
            text_attribute("gen_ai.provider.name", conventional_provider(&call.provider)),
            text_attribute("gen_ai.request.model", model),
            // The convention counts cache reads and writes as input.
            number_attribute(
                "gen_ai.usage.input_tokens",
                call.input_tokens + call.cache_read + call.cache_written,
            ),
            number_attribute("gen_ai.usage.output_tokens", call.output_tokens),
            number_attribute("gen_ai.usage.cache_read.input_tokens", call.cache_read),
            number_attribute("gen_ai.usage.cache_creation.input_tokens", call.cache_written),
            text_attribute("countersign.role", &call.role),
        ];
        span.attributes
            .extend(call.served.as_deref().map(|served| text_attribute("gen_ai.response.model", served)));
        if call.status != CallStatus::Done {
            span.attributes.push(text_attribute("error.type", error_type(call)));
            span.status = Some(span_status(false));
        }
        span
    }
}

/// Returns the time at which a request of a call started. The requests of a call are sequential, so the elapsed times
/// of earlier requests are added to the start of the call. All requests except the last are recorded only when the call
/// is over.
fn call_start(calls: &[(String, Timestamp, CallRow)], key: &str) -> Timestamp {
    const LEG: &str = "~leg-";
    let number = |key: &str| key.split_once(LEG).map_or(Some(usize::MAX), |(_, number)| number.parse().ok());
    let (call, own) = (key.split(LEG).next(), number(key));
    let mut at = Timestamp(i64::MAX);
    let mut before = Duration::ZERO;
    for (other, asked, row) in calls.iter().filter(|(other, ..)| other.split(LEG).next() == call) {
        at = at.min(*asked);
        if number(other) < own {
            before += Duration::from_millis(row.elapsed_ms);
        }
    }
    at.plus(before)
}

/// Returns the name of the error without its details, because the details may quote an external service.
fn error_type(call: &CallRow) -> &str {
    let error = call.error.as_deref().unwrap_or("lost");
    error.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// Returns the provider's name in OpenTelemetry's conventions, or our own name for providers that the conventions do
/// not name.
fn conventional_provider(provider: &str) -> &str {
    match provider {
        "claude" => "anthropic",
        "gemini" => "gcp.gemini",
        other => other,
    }
}

fn span_status(well: bool) -> Status {
    let code = if well { StatusCode::Ok } else { StatusCode::Error };
    Status { code: code.into(), ..Default::default() }
}

fn truncated_digest<const BYTES: usize>(parts: &[&[u8]]) -> Vec<u8> {
    Hash::digest_parts(parts.iter().copied()).bytes()[..BYTES].to_vec()
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}

fn text_attribute(key: &'static str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn number_attribute(key: &'static str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &'static str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..Default::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::{Cause, IssueNo};

    fn call(key: &str, at: i64, elapsed_ms: u64) -> (String, Timestamp, CallRow) {
        let row = json!({
            "role": "drafter", "provider": "stub", "asked": "stub:drafter", "prompt": Hash::digest(b""), "status": "done",
            "input_tokens": 0, "output_tokens": 0, "cache_read": 0, "cache_written": 0, "billed": false,
            "elapsed_ms": elapsed_ms, "attempts": 1,
        });
        (key.to_owned(), Timestamp(at), serde_json::from_value(row).unwrap())
    }

    #[test]
    fn request_start_is_the_call_start_plus_durations_of_earlier_requests() {
        // In the ledger, earlier requests get the time at which the call ended (9999).
        let calls = [
            call("draft/1", 1000, 500),
            call("draft/1~leg-0", 9999, 3000),
            call("draft/1~leg-1", 9999, 70),
            call("draft/2", 20_000, 5),
        ];
        let at = |key| call_start(&calls, key).0;
        assert_eq!([at("draft/1~leg-0"), at("draft/1~leg-1"), at("draft/1")], [1000, 4000, 4070]);
        assert_eq!(at("draft/2"), 20_000);
    }

    #[test]
    fn retried_run_has_one_root_span() {
        let left = FinishedVisit {
            run: "1-1".parse().unwrap(),
            cause: Cause("guid".to_owned()),
            issue: IssueNo(1),
            workflow: "lld".to_owned(),
            started_at: Timestamp(1000),
            visit: 7,
            step: None,
            reports_halt: true,
            end_status: Some(RunStatus::Failed),
        };
        let (trace, at) = (RunTrace::new(&left), Timestamp);
        let row = |again| VisitSpan {
            entered_at: at(5000),
            left_at: Some(at(6000)),
            how: None,
            retried_at: again,
            after_retry: false,
            calls: vec![],
            entries: vec![],
        };
        let last = |again| trace.visit_spans(&left, row(again), at(9000)).pop().unwrap();
        let (root, again) = (last(None), last(Some(at(4000))));
        assert_eq!((root.name.as_str(), again.name.as_str()), ("lld", "lld: tried again"));
        assert!(root.parent_span_id.is_empty() && root.span_id != again.span_id);
        assert_eq!((again.parent_span_id, again.start_time_unix_nano), (root.span_id, 4_000_000_000));
    }

    #[tokio::test]
    async fn run_until_returns_none_when_the_grace_period_ends() {
        let ended = CancellationToken::new();
        ended.cancel();
        assert_eq!(run_until(&ended, Duration::ZERO, std::future::pending::<()>()).await, None);
        assert_eq!(run_until(&CancellationToken::new(), Duration::ZERO, async { 1 }).await, Some(1));
    }
}
