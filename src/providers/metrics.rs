//! Metrics of model calls since the server started. Only ids of the model table become labels. Otherwise a service
//! could create any number of labels by sending a new model name each time.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::{counter::Counter, family::Family, histogram::Histogram};

use super::{CallErrorKind, Usage, models::ModelCatalog};

/// Label of a model that is not in the model table.
const OTHER: &str = "other";

/// Upper bounds of the histogram buckets in seconds. The last is ten minutes, the default of the longest call timeout.
const CALL_SECONDS: [f64; 8] = [1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

type MetricLabel = (&'static str, String);
type DollarCounter = Counter<f64, AtomicU64>;

/// Metrics by provider and model. Some have a third label.
pub struct ModelMetrics {
    pub calls: Family<[MetricLabel; 3], Counter>,
    pub seconds: Family<[MetricLabel; 2], Histogram>,
    pub tokens: Family<[MetricLabel; 3], Counter>,
    pub dollars: Family<[MetricLabel; 3], DollarCounter>,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        let seconds = Family::new_with_constructor((|| Histogram::new(CALL_SECONDS)) as fn() -> _);
        Self { calls: Family::default(), seconds, tokens: Family::default(), dollars: Family::default() }
    }
}

impl ModelMetrics {
    /// Records a call that was sent, and its error if it failed.
    pub(super) fn record_call(&self, table: &ModelCatalog, usage: &Usage, failed: Option<&CallErrorKind>) {
        let row = match usage.served.as_deref() {
            Some(served) => table.find_served(served),
            None => table.find(&usage.provider, &usage.asked),
        };
        // The Prometheus text format cannot escape these in a label.
        let plain = |id: &&str| !id.contains(['"', '\\']) && !id.chars().any(char::is_control);
        let model = row.map(|row| row.id.as_str()).filter(plain).unwrap_or(OTHER);
        let call = [("provider", usage.provider.clone()), ("model", model.to_owned())];
        let with = |name, value: &str| {
            let [provider, model] = call.clone();
            [provider, model, (name, value.to_owned())]
        };
        self.calls.get_or_create(&with("outcome", failed.map_or("answered", CallErrorKind::name))).inc();
        for (kind, tokens) in [
            ("input", usage.input_tokens),
            ("output", usage.output_tokens),
            ("cache_read", usage.cache_read_tokens),
            ("cache_written", usage.cache_written_tokens),
        ] {
            self.tokens.get_or_create(&with("kind", kind)).inc_by(tokens);
        }
        if let Some(cost) = usage.cost_microusd {
            let paid = if usage.billed { "billed" } else { "notional" };
            self.dollars.get_or_create(&with("paid", paid)).inc_by(cost as f64 / 1e6);
        }
        self.seconds.get_or_create(&call).observe(usage.elapsed.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_model_name_is_labelled_other() {
        let (counted, table) = (ModelMetrics::default(), ModelCatalog::default());
        let served = |name: &str| Usage { served: Some(name.to_owned()), ..Usage::for_model("opus") };
        let of = |model: &str| {
            let labels = [("provider", ""), ("model", model), ("outcome", "answered")];
            counted.calls.get_or_create(&labels.map(|(name, value)| (name, value.to_owned()))).get()
        };
        for n in 0..1000 {
            counted.record_call(&table, &served(&format!("model-{n}")), None);
        }
        counted.record_call(&table, &served("x\"} 1\nspent{who=\""), None);
        counted.record_call(&table, &served("claude-haiku-4-5-20251001"), None);
        assert_eq!((of(OTHER), of("claude-haiku-4-5")), (1001, 1));
        assert_eq!(of("model-7"), 0);
    }
}
