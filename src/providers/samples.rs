//! Fixtures for unit tests of back ends.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    CallError, CallErrorKind, CallRole, Metering, ModelCall, ModelReply, Provider, ReplyFuture, Usage,
};
use crate::{clock::Clock, types::Timestamp};

/// Returns a call with default values, of which tests override single fields.
pub(super) fn call() -> ModelCall {
    ModelCall {
        role: CallRole::Drafter,
        system: String::new(),
        prompt: "p".into(),
        schema: None,
        tools: None,
        model: "claude-opus-4-6".into(),
        deadline: Duration::from_secs(5),
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

/// A clock on which `sleep` returns at once and advances the time.
#[derive(Default)]
pub(super) struct ModelTestClock(AtomicI64);

impl ModelTestClock {
    pub(super) fn advance(&self, duration: Duration) {
        self.0.fetch_add(duration.as_millis() as i64, Ordering::Relaxed);
    }

    pub(super) fn seconds(&self) -> i64 {
        self.0.load(Ordering::Relaxed) / 1000
    }
}

impl Clock for ModelTestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.advance(duration);
        Box::pin(std::future::ready(()))
    }
}

/// Scripted failures by `provider:model`, and a record of the calls. Each model fails with its scripted failures first,
/// and then answers.
#[derive(Default)]
pub(super) struct ModelScript {
    pub(super) failures: BTreeMap<String, VecDeque<CallErrorKind>>,
    pub(super) asked: Vec<(i64, String)>,
    /// Serving model and number of output tokens reported for every call. `None` leaves both unset.
    pub(super) paid: Option<(String, u64)>,
    pub(super) budgets: Vec<Option<u64>>,
    pub(super) deadlines: Vec<Duration>,
    /// Time that a failed call reports as spent in a queue.
    pub(super) queued: Duration,
}

pub(super) struct ScriptedProvider {
    pub(super) name: &'static str,
    pub(super) billed: bool,
    pub(super) script: Arc<Mutex<ModelScript>>,
    pub(super) clock: Arc<ModelTestClock>,
}

impl Provider for ScriptedProvider {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_billed(&self) -> bool {
        self.billed
    }

    fn call<'a>(&'a self, call: &'a ModelCall, _: &'a CancellationToken) -> ReplyFuture<'a> {
        let own = format!("{}:{}", self.name, call.model);
        let mut script = self.script.lock().unwrap();
        script.asked.push((self.clock.seconds(), own.clone()));
        script.budgets.push(call.budget);
        script.deadlines.push(call.deadline);
        let mut usage = Usage {
            attempts: 1,
            billed: self.billed,
            metered: Metering::Known,
            ..Usage::for_model(&call.model)
        };
        if let Some((served, tokens)) = &script.paid {
            (usage.served, usage.output_tokens) = (Some(served.clone()), *tokens);
        }
        let result = match script.failures.get_mut(&own).and_then(VecDeque::pop_front) {
            None => Ok(ModelReply::new("yes".into(), None, usage)),
            Some(kind) => {
                usage.queued = script.queued;
                self.clock.advance(script.queued);
                if matches!(kind, CallErrorKind::Timeout { .. }) {
                    self.clock.advance(call.deadline);
                    usage.metered = Metering::Unknown;
                }
                Err(CallError::new(kind, "it failed", usage))
            }
        };
        Box::pin(async { result })
    }
}
