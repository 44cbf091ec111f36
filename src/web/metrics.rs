//! `GET /metrics`, in the text form of OpenMetrics: what is kept is read from the rows, what only happens was counted where
//! it happened. A scrape opens no repository's database, whatever lives in it.

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

/// As the specification names the form.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "countersign";

type LabeledGauge<const LABELS: usize> = Family<[(&'static str, &'static str); LABELS], Gauge>;

/// Every metric: its name without the prefix, its labels, and what it tells.
pub const METRIC_DESCRIPTIONS: [(&str, &str, &str); 18] = [
    ("deliveries", "outcome", "Requests to the webhook, by what was answered"),
    ("inbox", "state", "Deliveries that are kept"),
    ("inbox_oldest_seconds", "", "Age of the oldest delivery that is neither ended nor put off"),
    ("runs", "workflow, step, status", "Live runs, by where they were saved last"),
    ("runs_ended", "workflow, end", "Runs that were done, failed or were stopped"),
    ("pauses", "", "What an operator paused: the whole server, or a repository each"),
    (
        "run_seconds",
        "workflow, on",
        "What the time of runs went to: work, people, others (models, tests, CI) or the queue",
    ),
    ("model_calls", "provider, model, outcome", "Calls of models that were sent"),
    ("model_seconds", "provider, model", "How long they took"),
    ("model_tokens", "provider, model, kind", "Tokens that they took"),
    ("model_dollars", "provider, model, paid", "What they cost, and by list price where a subscription pays"),
    (
        "month_dollars",
        "",
        "What counts against this month's caps, with what is held back for calls under way",
    ),
    (
        "github_calls_left",
        "limit",
        "Calls that GitHub leaves in this hour to the installation that has least",
    ),
    (
        "unlike_nodes",
        "",
        "Other living nodes whose settings differ from this node's, where several serve from one Postgres",
    ),
    ("commit_seconds", "", "How long commits took on this disk"),
    ("sandbox_seconds", "end", "Time of commands in the sandbox, by how they ended"),
    ("trace_spans", "outcome", "Spans that a collector took, or that were given up"),
    ("trace_visits_lost", "", "Visits that came faster than the collector took them"),
];

/// What is counted where it happens, by whoever has no other handle on it.
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
    /// All of it, as it is now.
    pub(super) async fn render(&self, room: &OperatorContext) -> Result<String, StoreError> {
        let inbox = room.control.store.inbox();
        let store = &room.control.store;
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
        for (place, count) in room.control.store.count_run_positions() {
            // One of a version that is not here any more.
            let (workflow, step) =
                room.control.engine.step_names(&place.workflow, &place.step).unwrap_or(("other", "other"));
            let labels = [("workflow", workflow), ("step", step), ("status", status_label(place.status))];
            runs.get_or_create(&labels).inc_by(to_gauge_value(count));
        }
        let calls = room.providers.metrics();
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
        all.add("commit_seconds", room.control.store.commit_seconds().clone());
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
