//! What every call passes on its way to a back end and back: does it fit the model, may it cost that much, may it be
//! asked now, who answered, and what did it cost. A back end says which model its answer names and how many tokens; what
//! that means is said here, by the one table of models.
//!
//! An account that is used up, and a model that said when to come back, are not asked until then, whoever calls.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    Call, CallError, CallErrorKind, Estimate, Provider, Reply, Usage, Way,
    models::{Model, Table},
    outages::{Outages, Resting},
};
use crate::{
    clock::SharedClock,
    limits,
    types::{MicroUsd, WorkerPool},
};

pub(super) struct Checked {
    back_end: Arc<dyn Provider>,
    table: Arc<Table>,
    outages: Arc<Outages>,
    clock: SharedClock,
}

/// What is paid for together and so used up together. Gemini's keys keep books of their own, by project and model.
fn account(provider: &str, model: &str) -> Option<String> {
    match provider {
        "gemini" => None,
        // It asks others in the operator's name: `google/antigravity-gemini-3-pro`.
        "opencode" => Some(format!("{provider}:{}", model.split('/').next().unwrap_or(model))),
        // Scripted models share nothing.
        "stub" => Some(format!("{provider}:{model}")),
        _ => Some(provider.to_owned()),
    }
}

impl Checked {
    pub(super) fn around(
        back_end: Arc<dyn Provider>,
        table: &Arc<Table>,
        outages: &Arc<Outages>,
        clock: &SharedClock,
    ) -> Arc<dyn Provider> {
        let (table, outages, clock) = (Arc::clone(table), Arc::clone(outages), Arc::clone(clock));
        Arc::new(Self { back_end, table, outages, clock })
    }

    async fn ask(&self, call: &Call, cancel: &CancellationToken) -> Result<Reply, CallError> {
        let row = self.table.find(self.back_end.name(), &call.model);
        if let Some(kind) = row.and_then(|row| self.refusal(call, row)) {
            let why = match kind {
                CallErrorKind::OverBudget { most_microusd } => {
                    format!(
                        "it could cost {most_microusd} micro-dollars, and {:?} are left for it",
                        call.budget
                    )
                }
                _ => format!("the prompt is longer than {} reads", call.model),
            };
            return Err(self.unsent(call, kind, &why));
        }
        let (provider, model) = (self.back_end.name(), call.model.as_str());
        let account = account(provider, model);
        if let Some(account) = &account {
            self.rests(call, account).await?;
        }
        let mut result = self.back_end.call(call, cancel).await;
        let (usage, before) = match &mut result {
            Ok(reply) => (&mut reply.usage, &mut reply.before),
            Err(error) => (error.usage.as_mut(), &mut error.before),
        };
        before
            .iter_mut()
            .map(|attempt| &mut attempt.usage)
            .chain([usage])
            .for_each(|usage| self.judge(usage));
        if let Some(account) = &account {
            let (now, model) = (self.clock.now(), Resting::Model { provider, model });
            match result.as_ref().map_err(|error| &error.kind) {
                Ok(_) => {
                    self.outages.answered(Resting::Account(account)).await;
                    self.outages.answered(model).await;
                }
                Err(CallErrorKind::Quota { reset }) => {
                    self.outages.rest(Resting::Account(account), now, *reset).await;
                }
                // Where no time is named, how long to wait is the caller's to say.
                Err(CallErrorKind::RateLimited { reset: Some(reset) }) => {
                    self.outages.rest(model, now, Some(*reset)).await;
                }
                Err(_) => {}
            }
        }
        result
    }

    /// Is it known that asking now is in vain?
    async fn rests(&self, call: &Call, account: &str) -> Result<(), CallError> {
        let now = self.clock.now();
        if let Some(until) = self.outages.rests(Resting::Account(account), now).await {
            let kind = CallErrorKind::Quota { reset: Some(until.since(now)) };
            return Err(self.unsent(call, kind, &format!("skipped, its account is used up until {until}")));
        }
        let model = Resting::Model { provider: self.back_end.name(), model: &call.model };
        if let Some(until) = self.outages.rests(model, now).await {
            let kind = CallErrorKind::RateLimited { reset: Some(until.since(now)) };
            return Err(self.unsent(
                call,
                kind,
                &format!("skipped, it asked not to be asked before {until}"),
            ));
        }
        Ok(())
    }

    fn unsent(&self, call: &Call, kind: CallErrorKind, why: &str) -> CallError {
        let mut usage = Usage::asking(&call.model);
        usage.provider = self.back_end.name().to_owned();
        CallError::new(kind, format!("{}: {why}", usage.provider), usage)
    }

    /// Why nothing is sent.
    fn refusal(&self, call: &Call, row: &Model) -> Option<CallErrorKind> {
        let bytes = (call.system.len() + call.prompt.len()) as u64;
        if bytes / limits::MOST_BYTES_A_TOKEN > row.context {
            return Some(CallErrorKind::TooLong);
        }
        let most_microusd = self.estimate(call).most.0;
        let over = call.budget.is_some_and(|budget| most_microusd > budget);
        over.then_some(CallErrorKind::OverBudget { most_microusd })
    }

    fn judge(&self, usage: &mut Usage) {
        usage.provider = self.back_end.name().to_owned();
        let tokens = [
            &mut usage.input_tokens,
            &mut usage.output_tokens,
            &mut usage.cache_read_tokens,
            &mut usage.cache_written_tokens,
        ];
        tokens.into_iter().for_each(|tokens| *tokens = limits::CALL_TOKENS.min(*tokens));
        let Some(served) = usage.served.as_deref() else { return };
        usage.family = self.table.family_of(served);
        usage.cost_microusd = self.table.cost_microusd(
            served,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_written_tokens,
        );
    }
}

impl Provider for Checked {
    fn name(&self) -> &'static str {
        self.back_end.name()
    }

    fn lacks(&self) -> Option<String> {
        self.back_end.lacks()
    }

    fn look(&self) -> BoxFuture<'_, Vec<Way>> {
        self.back_end.look()
    }

    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        self.back_end.log_in()
    }

    fn bills(&self) -> bool {
        self.back_end.bills()
    }

    fn estimate(&self, call: &Call) -> Estimate {
        if !self.bills() {
            return self.back_end.estimate(call);
        }
        let bytes = (call.system.len() + call.prompt.len()) as u64;
        let row = self.table.find(self.name(), &call.model);
        let most = row.and_then(|row| {
            let input = bytes / limits::FEWEST_BYTES_A_TOKEN;
            // What is written to a cache on the way costs more than what is only read.
            let plain = self.table.cost_microusd(&row.id, input, row.max_output, 0, 0);
            plain.max(self.table.cost_microusd(&row.id, 0, row.max_output, 0, input))
        });
        Estimate { most: MicroUsd(most.unwrap_or(0)), free_way: false }
    }

    fn crowded(&self, pool: WorkerPool) -> bool {
        self.back_end.crowded(pool)
    }

    fn call<'a>(
        &'a self,
        call: &'a Call,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(self.ask(call, cancel))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::providers::CallRole;

    /// Answers as `claude-haiku-4-5` of some day, whatever is asked.
    struct Haiku;

    impl Provider for Haiku {
        fn name(&self) -> &'static str {
            "anthropic"
        }

        fn lacks(&self) -> Option<String> {
            None
        }

        fn bills(&self) -> bool {
            true
        }

        fn call<'a>(
            &'a self,
            call: &'a Call,
            _: &'a CancellationToken,
        ) -> BoxFuture<'a, Result<Reply, CallError>> {
            let mut usage = Usage::asking(&call.model);
            usage.served = Some("claude-haiku-4-5-20251001".into());
            (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) = (1000, 50, 2000);
            if call.prompt == "lie" {
                (usage.input_tokens, usage.cache_written_tokens) = (u64::MAX, u64::MAX);
            }
            Box::pin(async { Ok(Reply::new("yes".into(), None, usage)) })
        }
    }

    fn call(prompt: String, budget: Option<u64>) -> Call {
        Call {
            role: CallRole::Drafter,
            system: String::new(),
            prompt,
            schema: None,
            model: "claude-opus-4-6".into(),
            effort: None,
            deadline: Duration::from_secs(5),
            budget,
            private: false,
            not_families: Vec::new(),
            workers: Default::default(),
            facts: Default::default(),
        }
    }

    async fn ask(call: Call) -> Result<Reply, CallErrorKind> {
        let clock: SharedClock = Arc::new(crate::clock::SystemClock);
        let provider = Checked::around(Arc::new(Haiku), &Arc::default(), &Arc::default(), &clock);
        provider.call(&call, &CancellationToken::new()).await.map_err(|error| error.kind)
    }

    #[tokio::test]
    async fn who_served_is_priced_and_not_who_was_asked() {
        let usage = ask(call("?".into(), None)).await.unwrap().usage;
        assert_eq!(usage.family.unwrap().0, "claude");
        assert_eq!(usage.cost_microusd, Some(1000 + 50 * 5 + 2000 / 10), "haiku's price");
    }

    #[tokio::test]
    async fn no_number_is_too_large_for_the_books() {
        let usage = ask(call("lie".into(), None)).await.unwrap().usage;
        assert_eq!(
            (usage.input_tokens, usage.cache_written_tokens),
            (limits::CALL_TOKENS, limits::CALL_TOKENS)
        );
        assert!(usage.cost_microusd.is_some_and(|cost| i64::try_from(cost).is_ok()));
    }

    #[tokio::test]
    async fn what_cannot_fit_or_could_cost_too_much_is_not_sent() {
        let long = "x".repeat(200_001 * limits::MOST_BYTES_A_TOKEN as usize);
        assert_eq!(ask(call(long, None)).await.unwrap_err(), CallErrorKind::TooLong);
        // 64,000 tokens of an answer at 25 dollars a million.
        let most_microusd = 1_600_000;
        assert_eq!(
            ask(call(String::new(), Some(1_599_999))).await.unwrap_err(),
            CallErrorKind::OverBudget { most_microusd }
        );
        assert!(ask(call(String::new(), Some(most_microusd))).await.is_ok());
    }
}
