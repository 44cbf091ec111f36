//! One trace a run, for a collector that speaks OTLP over HTTP, where the settings name one.
//!
//! Spans are made from rows: a visit's when it is over, with the calls of models and the journal's entries below it, and the
//! run's own at its end. Their ids come from the run's, so a server that is started anew goes on in the same trace. There is
//! nothing in them that people or models wrote. No step waits for a collector: what it does not take is kept for a
//! while, then the oldest is lost and counted. So is what was not sent yet when a server dies.

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

/// One request of ours, from connecting to the answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// A collector that is away is asked again after this, doubled up to a minute.
const RETRY_DELAY: Duration = Duration::from_secs(2);
const RETRY_DELAY_MOST: Duration = Duration::from_secs(60);

/// Visits that share a request.
const BATCH: usize = 32;

/// Of one visit so many calls, and as many entries of the journal, have spans.
const SPANS: u32 = 200;

/// What became of spans.
#[derive(Clone, Default)]
pub struct TraceMetrics {
    pub spans: Family<[(&'static str, &'static str); 1], Counter>,
    pub lost: Counter,
}

/// The way to a collector.
pub struct TraceExporter {
    store: Arc<Store>,
    clock: SharedClock,
    client: reqwest::Client,
    url: String,
    visits: Mutex<broadcast::Receiver<Arc<FinishedVisit>>>,
    counted: TraceMetrics,
}

/// What becomes of some spans, counted when it is known or when they are given up.
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

/// What a collector made of a request.
enum ExportResult {
    Accepted,
    /// It would not take it the next time either.
    Rejected(String),
    Unavailable(String),
}

impl TraceExporter {
    /// Sends nothing yet.
    ///
    /// # Errors
    /// Where no client for HTTPS can be made.
    pub fn new(
        collector: &Url,
        visits: broadcast::Receiver<Arc<FinishedVisit>>,
        store: Arc<Store>,
        clock: SharedClock,
        counted: TraceMetrics,
    ) -> Result<Self, reqwest::Error> {
        // An error means that one is installed already: the same one, for there is no other here.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            reqwest::Client::builder().timeout(EXPORT_TIMEOUT).redirect(reqwest::redirect::Policy::none());
        // Settings allow plain HTTP to this machine only.
        let client = if collector.scheme() == "http" { client.no_proxy() } else { client };
        let url = format!("{}/v1/traces", collector.as_str().trim_end_matches('/'));
        Ok(Self { store, clock, client: client.build()?, url, visits: Mutex::new(visits), counted })
    }

    /// Sends what comes until `ended`; then what is left, as long as one request may take and no longer.
    pub async fn run(&self, ended: CancellationToken) {
        if run_until(&ended, EXPORT_TIMEOUT, self.export_visits(&ended)).await.is_none() {
            let visits = self.visits.lock().await.len() as u64;
            self.counted.lost.inc_by(visits);
            tracing::warn!(visits, "the collector of traces is slow; the last spans are lost");
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
                        tracing::warn!(run = %visit.run, %error, "a visit is left out of a trace");
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
        tracing::warn!(visits, "visits are left out of traces: the collector takes less than there is");
        None
    }

    /// Sends spans until they are taken or refused; false: the collector is away, and the server is ending.
    async fn deliver(&self, spans: Vec<Span>, ended: &CancellationToken) -> bool {
        let mut fate = SpanTally { counted: &self.counted, spans: spans.len() as u64, outcome: "lost" };
        let body = export_request(spans).encode_to_vec();
        let mut wait = RETRY_DELAY;
        loop {
            let last = ended.is_cancelled();
            match self.send(body.clone()).await {
                ExportResult::Accepted => {
                    fate.outcome = "sent";
                    return true;
                }
                ExportResult::Rejected(why) => {
                    tracing::warn!(%why, "the collector of traces refuses spans; look at [telemetry] otlp");
                    fate.outcome = "refused";
                    return true;
                }
                ExportResult::Unavailable(why) if last => {
                    tracing::warn!(%why, "the collector of traces is away; the last spans are lost");
                    return false;
                }
                ExportResult::Unavailable(why) if wait == RETRY_DELAY => {
                    tracing::warn!(%why, "the collector of traces is away; it is tried until it takes what waits");
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
            // Those that the protocol wants tried again.
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
            // Nobody told of the one before: it was not its step that left it.
            (left.visit, left.end_status, left.reports_halt) = (left.visit - 1, None, false);
        }
        Ok(spans)
    }
}

/// Work, until so long after the end; none: it was not done then.
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

/// One run's.
struct RunTrace {
    id: Vec<u8>,
}

impl RunTrace {
    /// Two servers may know a run of the same number; none was begun by the same cause.
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

    /// The visit with what is below it, and the run if it ended with it.
    fn visit_spans(&self, left: &FinishedVisit, row: VisitSpan, now: Timestamp) -> Vec<Span> {
        // No step is visited before the first.
        let (root, id) = (self.span_id(0, ""), self.span_id(left.visit, ""));
        let ended = row.left_at.unwrap_or(now);
        let step = left.step.map_or("unknown step", |step| step.title);
        let name = if left.reports_halt { format!("{step}: told of the end") } else { step.to_owned() };
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

    /// The run's own span, which is the root. One that had ended before has its root; what came after is a span below it.
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

    /// By OpenTelemetry's conventions for generative AI.
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
            // The convention counts what came from a cache among what went in.
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

/// When a request began. Those of one call go one after the other, and all but the last are booked when the call is over.
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

/// Its name, without what it says of this one call: that may quote a service.
fn error_type(call: &CallRow) -> &str {
    let said = call.error.as_deref().unwrap_or("lost");
    said.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// The provider as the conventions call it, where they know it.
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
    fn requests_of_one_call_follow_each_other() {
        // As the ledger has them: asked at 1000, and what was tried before is booked with the end.
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
    fn a_run_that_ends_twice_has_one_root() {
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
    async fn what_is_never_done_holds_up_no_end() {
        let ended = CancellationToken::new();
        ended.cancel();
        assert_eq!(run_until(&ended, Duration::ZERO, std::future::pending::<()>()).await, None);
        assert_eq!(run_until(&CancellationToken::new(), Duration::ZERO, async { 1 }).await, Some(1));
    }
}
