//! `GET /metrics` in OpenMetrics text format. Values that are stored are read from the database; events are counted in
//! memory. A scrape opens no repository database.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Metric, Registry},
};

use super::{DeliveryOutcomeCounter, operator::OperatorContext};
use crate::{
    clock::SharedClock,
    engine::{RunEndsCounter, RunSecondsCounter},
    github::RemainingRateLimits,
    sandbox,
    store::{RunStatus, StoreError},
    traces,
};

/// Content type required by the OpenMetrics specification.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "countersign";

type LabeledGauge<const LABELS: usize> = Family<[(&'static str, &'static str); LABELS], Gauge>;

/// Description of every metric: its name without the prefix, its labels, and its help text.
pub const METRIC_DESCRIPTIONS: [(&str, &str, &str); 18] = [
    ("deliveries", "outcome", "Webhook requests, by response"),
    ("inbox", "state", "Stored deliveries"),
    ("inbox_oldest_seconds", "", "Age of the oldest delivery that is neither finished nor deferred"),
    ("runs", "workflow, step, status", "Live runs, by last saved step"),
    ("runs_ended", "workflow, end", "Runs that finished, failed or were stopped"),
    ("pauses", "", "Active pauses: the whole server, or one per repository"),
    (
        "run_seconds",
        "workflow, on",
        "Time of runs: in a step (work), waiting for people or others (models, tests, CI), or queued",
    ),
    ("model_calls", "provider, model, outcome", "Model calls sent"),
    ("model_seconds", "provider, model", "Duration of model calls"),
    ("model_tokens", "provider, model, kind", "Tokens of model calls"),
    ("model_dollars", "provider, model, paid", "Cost of model calls; at list price if a subscription pays"),
    (
        "month_dollars",
        "",
        "Spending counted against this month's caps, including reservations for calls in progress",
    ),
    ("github_calls_left", "limit", "GitHub calls left this hour, for the installation with the fewest left"),
    ("unlike_nodes", "", "Other live nodes on the same Postgres whose settings differ from this node's"),
    ("commit_seconds", "", "Duration of database commits"),
    ("sandbox_seconds", "end", "Duration of sandboxed commands, by outcome"),
    ("trace_spans", "outcome", "Trace spans, by whether the collector accepted them"),
    ("trace_visits_lost", "", "Step visits dropped from traces because the collector was too slow"),
];

/// Counters that other modules increment and the metrics page reads.
pub struct MetricSources {
    pub deliveries: DeliveryOutcomeCounter,
    pub github: RemainingRateLimits,
    pub run_time: RunSecondsCounter,
    pub run_ends: RunEndsCounter,
    pub sandbox_time: sandbox::SandboxSeconds,
    pub traces: traces::TraceMetrics,
    pub clock: SharedClock,
}

impl MetricSources {
    /// Renders all metrics with their current values.
    pub(super) async fn render(&self, operator: &OperatorContext) -> Result<String, StoreError> {
        let inbox = operator.control.store.inbox();
        let store = &operator.control.store;
        let (counts, oldest, month, pauses) = (
            inbox.counts().await?,
            inbox.oldest_waiting().await?,
            store.spent_this_month().await?,
            store.pauses().await?,
        );
        let kept = LabeledGauge::<1>::default();
        for (state, count) in
            [("new", counts.new), ("taken", counts.taken), ("done", counts.done), ("dead", counts.dead)]
        {
            kept.get_or_create(&[("state", state)]).set(to_gauge_value(count));
        }
        let age = oldest.map_or(0.0, |oldest| self.clock.now().since(oldest).as_secs_f64());
        let runs = LabeledGauge::<3>::default();
        for (place, count) in operator.control.store.count_run_positions() {
            // A step or workflow that this version no longer has.
            let (workflow, step) = operator
                .control
                .engine
                .step_names(&place.workflow, &place.step)
                .unwrap_or(("other", "other"));
            let labels = [("workflow", workflow), ("step", step), ("status", status_label(place.status))];
            runs.get_or_create(&labels).inc_by(to_gauge_value(count));
        }
        let calls = operator.providers.metrics();
        let left = LabeledGauge::<1>::default();
        for (limit, calls) in self.github.lowest_by_limit(self.clock.now()) {
            left.get_or_create(&[("limit", limit)]).set(calls);
        }
        let mut all = MetricRegistry(Registry::with_prefix(PREFIX));
        all.add("deliveries", self.deliveries.clone());
        all.add("inbox", kept);
        all.add("inbox_oldest_seconds", gauge(age));
        all.add("runs", runs);
        all.add("runs_ended", self.run_ends.clone());
        all.add("pauses", gauge(pauses.len() as f64));
        all.add("run_seconds", self.run_time.clone());
        all.add("model_calls", calls.calls.clone());
        all.add("model_seconds", calls.seconds.clone());
        all.add("model_tokens", calls.tokens.clone());
        all.add("model_dollars", calls.dollars.clone());
        all.add("month_dollars", gauge(month.0 as f64 / 1e6));
        all.add("github_calls_left", left);
        all.add("unlike_nodes", gauge(store.differing_nodes().len() as f64));
        all.add("commit_seconds", operator.control.store.commit_seconds().clone());
        all.add("sandbox_seconds", self.sandbox_time.clone());
        all.add("trace_spans", self.traces.spans.clone());
        all.add::<Counter>("trace_visits_lost", self.traces.lost.clone());
        let mut text = String::new();
        encode(&mut text, &all.0).expect("a string takes any text");
        Ok(text)
    }
}

struct MetricRegistry(Registry);

impl MetricRegistry {
    fn add<M: Metric>(&mut self, name: &str, metric: M) {
        let row = METRIC_DESCRIPTIONS.iter().find(|(known, ..)| *known == name);
        let (name, _, help) = row.expect("it is in the table");
        self.0.register(*name, *help, metric);
    }
}

fn gauge(value: f64) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn to_gauge_value(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn status_label(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Asking => "asking",
        RunStatus::Waiting => "waiting",
        RunStatus::Halting => "halting",
        _ => "ready",
    }
}
