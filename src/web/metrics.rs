//! `GET /metrics`, in the text form of OpenMetrics: what is kept is read from the rows, what only happens was counted where
//! it happened. A scrape opens no repository's database, whatever lives in it.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Metric, Registry},
};

use super::{Deliveries, private::Operator};
use crate::{
    clock::SharedClock,
    engine::Spent,
    github::Left,
    sandbox,
    store::{RunStatus, StoreError},
    traces,
};

/// As the specification names the form.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "countersign";

type GaugeOf<const LABELS: usize> = Family<[(&'static str, &'static str); LABELS], Gauge>;

/// Every metric: its name without the prefix, its labels, and what it tells.
pub const NAMES: [(&str, &str, &str); 15] = [
    ("deliveries", "outcome", "Requests to the webhook, by what was answered"),
    ("inbox", "state", "Deliveries that are kept"),
    ("inbox_oldest_seconds", "", "Age of the oldest delivery that is neither ended nor put off"),
    ("runs", "workflow, step, status", "Live runs, by where they were saved last"),
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
    ("github_calls_left", "installation, limit", "Calls that GitHub leaves an installation in its hour"),
    ("commit_seconds", "", "How long commits took on this disk"),
    ("sandbox_seconds", "end", "Time of commands in the sandbox, by how they ended"),
    ("trace_spans", "outcome", "Spans that a collector took, or that were given up"),
    ("trace_visits_lost", "", "Visits that came faster than the collector took them"),
];

/// What is counted where it happens, by whoever has no other handle on it.
pub struct Observed {
    pub deliveries: Deliveries,
    pub github: Left,
    pub run_time: Spent,
    pub sandbox_time: sandbox::Time,
    pub traces: traces::Counted,
    pub clock: SharedClock,
}

impl Observed {
    /// All of it, as it is now.
    pub(super) async fn text(&self, room: &Operator) -> Result<String, StoreError> {
        let inbox = room.control.store.inbox();
        let (counts, oldest, month) =
            (inbox.counts().await?, inbox.oldest().await?, room.control.store.spent_this_month().await?);
        let kept = GaugeOf::<1>::default();
        for (state, count) in
            [("new", counts.new), ("taken", counts.taken), ("done", counts.done), ("dead", counts.dead)]
        {
            kept.get_or_create(&[("state", state)]).set(whole(count));
        }
        let age = oldest.map_or(0.0, |oldest| self.clock.now().since(oldest).as_secs_f64());
        let runs = GaugeOf::<3>::default();
        for (place, count) in room.control.store.places() {
            // One of a version that is not here any more.
            let (workflow, step) =
                room.control.engine.place(&place.workflow, &place.step).unwrap_or(("other", "other"));
            let labels = [("workflow", workflow), ("step", step), ("status", status(place.status))];
            runs.get_or_create(&labels).inc_by(whole(count));
        }
        let calls = room.providers.counted();
        let mut all = All { registry: Registry::with_prefix(PREFIX), rest: &NAMES };
        all.next(self.deliveries.clone());
        all.next(kept);
        all.next(gauge(age));
        all.next(runs);
        all.next(self.run_time.clone());
        all.next(calls.calls.clone());
        all.next(calls.seconds.clone());
        all.next(calls.tokens.clone());
        all.next(calls.dollars.clone());
        all.next(gauge(month.0 as f64 / 1e6));
        all.next(self.github.clone());
        all.next(room.control.store.commits().clone());
        all.next(self.sandbox_time.clone());
        all.next(self.traces.spans.clone());
        all.next::<Counter>(self.traces.lost.clone());
        let mut text = String::new();
        encode(&mut text, &all.registry).expect("a string takes any text");
        Ok(text)
    }
}

/// What is told of, in the order of [`NAMES`].
struct All {
    registry: Registry,
    rest: &'static [(&'static str, &'static str, &'static str)],
}

impl All {
    fn next<M: Metric>(&mut self, metric: M) {
        if let Some(((name, _, help), rest)) = self.rest.split_first() {
            self.registry.register(*name, *help, metric);
            self.rest = rest;
        }
    }
}

fn gauge(value: f64) -> Gauge<f64, AtomicU64> {
    let gauge = Gauge::default();
    gauge.set(value);
    gauge
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Asking => "asking",
        RunStatus::Waiting => "waiting",
        RunStatus::Halting => "halting",
        _ => "ready",
    }
}
