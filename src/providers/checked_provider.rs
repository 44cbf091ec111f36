//! Checks around every call to a back end. Before the call: prompt size, budget and cooldowns. After the call: the
//! serving model, cost and metrics. A back end reports the model id and the tokens. This module computes the cost with
//! the shared model table.
//!
//! An exhausted account, or a rate-limited model whose reset time is known, is not called again before its reset.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    CallError, CallErrorKind, CostEstimate, Metering, ModelCall, ModelReply, Provider, ReplyFuture, Usage,
    breakers::{CircuitBreakers, CooldownTarget},
    metrics::ModelMetrics,
    models::{Model, ModelCatalog, bare_id},
    single_line,
};
use crate::{clock::SharedClock, limits, types::MicroUsd};

/// Maximum token count accepted from a service: a thousand times the largest context window, but small enough that sums
/// of counts do not overflow.
const MOST_TOKENS: u64 = 1_000_000_000;

/// Maximum characters of a model name taken from a response.
const MODEL_NAME: usize = 100;

pub(super) struct CheckedProvider {
    back_end: Arc<dyn Provider>,
    table: Arc<ModelCatalog>,
    breakers: Arc<CircuitBreakers>,
    counted: Arc<ModelMetrics>,
    clock: SharedClock,
}

/// Returns the account that pays for the model and whose quota its models share. `None` for Gemini, whose back end
/// tracks quota by project and model.
fn billing_account(back_end: &dyn Provider, model: &str) -> Option<String> {
    let provider = back_end.name();
    match provider {
        "gemini" => None,
        // OpenCode calls several services in the operator's name: `google/antigravity-gemini-3-pro`.
        "opencode" => Some(format!("{provider}:{}", model.split('/').next().unwrap_or(model))),
        // Scripted models share no quota.
        "stub" => Some(format!("{provider}:{model}")),
        // A new key may be a new account.
        _ => Some(back_end.account().map_or(provider.to_owned(), |mark| format!("{provider}:{mark}"))),
    }
}

impl CheckedProvider {
    pub(super) fn wrap(
        back_end: Arc<dyn Provider>,
        table: &Arc<ModelCatalog>,
        breakers: &Arc<CircuitBreakers>,
        counted: &Arc<ModelMetrics>,
        clock: &SharedClock,
    ) -> Arc<dyn Provider> {
        let (table, breakers, clock) = (Arc::clone(table), Arc::clone(breakers), Arc::clone(clock));
        Arc::new(Self { back_end, table, breakers, counted: Arc::clone(counted), clock })
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let row = self.table.find(self.back_end.name(), &call.model);
        if let Some((kind, why)) = row.and_then(|row| self.refusal_reason(call, row)) {
            return Err(self.unsent_error(call, kind, &why));
        }
        let (provider, model) = (self.back_end.name(), call.model.as_str());
        let account = billing_account(self.back_end.as_ref(), model);
        if let Some(account) = &account {
            self.check_cooldowns(call, account).await?;
        }
        if let Some(served) = self.breakers.substitute(provider, model) {
            let why = format!(
                "skipped: {served} answered in its place; `countersign reload` makes it be called again"
            );
            return Err(self.unsent_error(call, CallErrorKind::WrongModel { served: Some(served) }, &why));
        }
        let accepting;
        let call = match self.table.successors(model) {
            [] => call,
            ids => {
                accepting = ModelCall { successors: ids.to_vec(), ..call.clone() };
                &accepting
            }
        };
        let mut result = self.back_end.call(call, cancel).await;
        let before = match &mut result {
            Ok(reply) => {
                // A real answer never has zero tokens.
                if reply.usage.prompt_tokens() == 0 || reply.usage.output_tokens == 0 {
                    reply.usage.metered = Metering::Unknown;
                    reply.usage.received = (reply.text.len() + reply.thoughts.len()) as u64;
                }
                self.settle_usage(call, &mut reply.usage, None);
                &mut reply.earlier_attempts
            }
            Err(error) => {
                self.settle_usage(call, &mut error.usage, Some(&mut error.kind));
                &mut error.earlier_attempts
            }
        };
        for attempt in before {
            self.settle_usage(call, &mut attempt.usage, Some(&mut attempt.kind));
        }
        if let Err(error) = &result {
            self.breakers.record_failure(provider, model, self.clock.now(), &error.kind);
            if let CallErrorKind::WrongModel { served: Some(served) } = &error.kind {
                tracing::warn!(
                    "{served} answered instead of {provider}:{model}, so the answer does not count. Name {provider}:{served} in the settings, or accept it under [models.successors]: {}",
                    successor_setting(provider, model, served)
                );
                self.breakers.record_substitute(provider, model, served);
            }
        }
        if let Some(account) = &account {
            let (now, model) = (self.clock.now(), CooldownTarget::Model { provider, model });
            match result.as_ref().map_err(|error| &error.kind) {
                Ok(_) => {
                    self.breakers.end_cooldown(CooldownTarget::Account(account)).await;
                    self.breakers.end_cooldown(model).await;
                }
                Err(CallErrorKind::Quota { reset }) => {
                    self.breakers.start_cooldown(CooldownTarget::Account(account), now, *reset).await;
                }
                // If no reset time is named, the caller decides how long to wait.
                Err(CallErrorKind::RateLimited { reset: Some(reset) }) => {
                    self.breakers.start_cooldown(model, now, Some(*reset)).await;
                }
                Err(_) => {}
            }
        }
        result
    }

    async fn check_cooldowns(&self, call: &ModelCall, account: &str) -> Result<(), CallError> {
        let now = self.clock.now();
        if let Some(until) = self.breakers.cooldown_until(CooldownTarget::Account(account), now).await {
            let kind = CallErrorKind::Quota { reset: Some(until.since(now)) };
            return Err(self.unsent_error(
                call,
                kind,
                &format!("skipped, its quota is exhausted until {until}"),
            ));
        }
        let model = CooldownTarget::Model { provider: self.back_end.name(), model: &call.model };
        if let Some(until) = self.breakers.cooldown_until(model, now).await {
            let kind = CallErrorKind::RateLimited { reset: Some(until.since(now)) };
            return Err(self.unsent_error(call, kind, &format!("skipped, it is rate limited until {until}")));
        }
        Ok(())
    }

    fn unsent_error(&self, call: &ModelCall, kind: CallErrorKind, why: &str) -> CallError {
        let mut usage = Usage::for_model(&call.model);
        usage.provider = self.back_end.name().to_owned();
        CallError::new(kind, format!("{}: {why}", usage.provider), usage)
    }

    /// Returns the reason not to send the call, or `None` if it may be sent. A call is not sent if its prompt is too
    /// long or if it could exceed the budget. Prompts are shortened with the same token estimate, so a prompt that is
    /// too long was built for a model with a larger context window.
    fn refusal_reason(&self, call: &ModelCall, row: &Model) -> Option<(CallErrorKind, String)> {
        let tokens = (call.prompt.len() as u64).div_ceil(limits::USUAL_BYTES_A_TOKEN);
        let prompt_room = row.prompt_room(&call.system, call.answer_form());
        if tokens > prompt_room {
            let why = format!(
                "the prompt has about {tokens} tokens, more than the {prompt_room} that fit into {}",
                row.id
            );
            return Some((CallErrorKind::TooLong, why));
        }
        let CostEstimate { most, unpriced, .. } = self.estimate(call);
        let most_microusd = if unpriced { u64::MAX } else { most.0 };
        let budget = call.budget.filter(|budget| most_microusd > *budget)?;
        let why = match unpriced {
            true => "its price is unknown, and spending caps are set".to_owned(),
            false => format!("it could cost {most_microusd} micro-dollars, and {budget} are left"),
        };
        Some((CallErrorKind::OverBudget { most_microusd }, why))
    }

    /// Caps the usage of an attempt, computes its cost and records it in the metrics. `failed` is the attempt's error,
    /// if it failed.
    fn settle_usage(&self, call: &ModelCall, usage: &mut Usage, mut failed: Option<&mut CallErrorKind>) {
        if let Some(kind) = failed.as_deref_mut() {
            shorten_model_name(kind);
            let answered = matches!(
                kind,
                CallErrorKind::Truncated
                    | CallErrorKind::InvalidOutput
                    | CallErrorKind::Empty
                    | CallErrorKind::WrongModel { .. }
            );
            if answered && (usage.prompt_tokens(), usage.output_tokens) == (0, 0) {
                usage.metered = Metering::Unknown;
            }
        }
        self.price(call, usage);
        if failed.is_none() || usage.attempts > 0 {
            self.counted.record_call(&self.table, usage, failed.as_deref());
        }
    }

    fn price(&self, call: &ModelCall, usage: &mut Usage) {
        usage.provider = self.back_end.name().to_owned();
        for tokens in [
            &mut usage.input_tokens,
            &mut usage.output_tokens,
            &mut usage.cache_read_tokens,
            &mut usage.cache_written_tokens,
        ] {
            *tokens = (*tokens).min(MOST_TOKENS);
        }
        self.price_served(usage);
        self.cap_usage(call, usage);
        if usage.may_cost_more() {
            let input = if usage.prompt_tokens() == 0 { self.max_input_tokens(call) } else { 0 };
            let output = usage.received.div_ceil(limits::FEWEST_BYTES_A_TOKEN);
            let row = self.table.find(self.name(), &call.model);
            let likely = row
                .and_then(|row| self.table.cost_microusd(&row.id, [0, output, 0, input], self.clock.now()));
            usage.likely_microusd = likely.unwrap_or(0);
        }
    }

    /// Caps the recorded cost at the maximum that the call could cost. If the service's count leads to a higher cost,
    /// either the count or our model table is wrong, so the operator is warned.
    fn cap_usage(&self, call: &ModelCall, usage: &mut Usage) {
        let CostEstimate { most, unpriced: false, .. } = self.estimate(call) else { return };
        let longest =
            self.table.find(self.name(), &call.model).map_or(MOST_TOKENS, |row| row.max_output_for(call));
        // Another model may have answered, at its own price.
        let theirs = usage.served.as_deref().and_then(|served| {
            self.table.cost_microusd(served, [0, longest, 0, self.max_input_tokens(call)], self.clock.now())
        });
        let most = most.0.max(theirs.unwrap_or(0));
        let Some(cost) = usage.cost_microusd.filter(|cost| usage.billed && *cost > most) else { return };
        tracing::warn!(
            provider = self.name(),
            model = call.model,
            input = usage.prompt_tokens(),
            output = usage.output_tokens,
            cost_microusd = cost,
            recorded_microusd = most,
            "the service reports more tokens than the call can use; check its bill"
        );
        let mut left = self.max_input_tokens(call);
        for tokens in [&mut usage.cache_written_tokens, &mut usage.input_tokens, &mut usage.cache_read_tokens]
        {
            *tokens = (*tokens).min(left);
            left -= *tokens;
        }
        usage.output_tokens = usage.output_tokens.min(longest);
        usage.cost_microusd = Some(most);
    }

    fn max_input_tokens(&self, call: &ModelCall) -> u64 {
        let most = call.max_input_tokens();
        // A service's token count in advance is an estimate, so add 10 %.
        call.counted_prompt_tokens.map_or(most, |counted| most.min(counted.saturating_add(counted / 10)))
    }

    fn price_served(&self, usage: &mut Usage) {
        let Some(served) = usage.served.as_deref() else { return };
        usage.family = self.table.family_of(served);
        usage.accepted_by = self.table.accepted_by(&usage.asked, served).map(str::to_owned);
        let tokens =
            [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_written_tokens];
        usage.cost_microusd = self.table.cost_microusd(served, tokens, self.clock.now());
        // Shorten only now: before, the name could turn into that of another model.
        usage.served = Some(single_line(bare_id(served), MODEL_NAME));
    }
}

/// Returns the line for the settings with which the operator accepts responses from `served` when `asked` was
/// requested.
pub fn successor_setting(provider: &str, asked: &str, served: &str) -> String {
    format!("\"{provider}:{asked}\" = [\"{served}\"]")
}

/// Shortens the served model's name. The name comes from a service and may be any text.
fn shorten_model_name(kind: &mut CallErrorKind) {
    if let CallErrorKind::WrongModel { served: Some(served) } = kind {
        *served = single_line(bare_id(served), MODEL_NAME);
    }
}

impl Provider for CheckedProvider {
    fn name(&self) -> &'static str {
        self.back_end.name()
    }

    fn behind(&self) -> Option<&dyn Provider> {
        Some(self.back_end.as_ref())
    }

    fn is_billed(&self) -> bool {
        self.back_end.is_billed()
    }

    fn estimate(&self, call: &ModelCall) -> CostEstimate {
        if !self.is_billed() {
            return self.back_end.estimate(call);
        }
        let input = self.max_input_tokens(call);
        let row = self.table.find(self.name(), &call.model);
        let priced = |output: u64| {
            let row = row?;
            let most = |id: &str| {
                let cost = |tokens| self.table.cost_microusd(id, tokens, self.clock.now());
                // Writing the prompt to a cache costs more than plain input.
                cost([input, output, 0, 0]).max(cost([0, output, 0, input]))
            };
            // A successor is paid at its own price.
            let successors = self.table.successors(&row.id).iter().filter_map(|id| most(id));
            most(&row.id).map(|own| successors.fold(own, u64::max))
        };
        let most = priced(row.map_or(0, |row| row.max_output_for(call)));
        let free_way = most == Some(0) && self.missing_requirement().is_none();
        let [paid, input] = [most, priced(0)].map(|cost| MicroUsd(cost.unwrap_or(0)));
        CostEstimate { most: paid, input, may_be_free: free_way, unpriced: most.is_none() }
    }

    fn count_tokens<'a>(&'a self, call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        self.back_end.count_tokens(call)
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::providers::samples;

    /// A provider that answers every call under the name of a dated version of `claude-haiku-4-5`.
    struct HaikuProvider;

    impl Provider for HaikuProvider {
        fn name(&self) -> &'static str {
            "anthropic"
        }

        fn is_billed(&self) -> bool {
            true
        }

        fn call<'a>(&'a self, call: &'a ModelCall, _: &'a CancellationToken) -> ReplyFuture<'a> {
            let mut usage = Usage::for_model(&call.model);
            usage.served = Some("claude-haiku-4-5-20251001".into());
            (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) = (1000, 50, 2000);
            if call.prompt == "nothing" {
                usage =
                    Usage { served: usage.served, metered: Metering::Known, ..Usage::for_model(&call.model) };
            }
            usage.billed = true;
            if call.prompt == "lie" {
                (usage.input_tokens, usage.cache_written_tokens) = (u64::MAX, u64::MAX);
            }
            Box::pin(async { Ok(ModelReply::new("yes".into(), None, usage)) })
        }
    }

    fn call(prompt: String, budget: Option<u64>) -> ModelCall {
        ModelCall { prompt, budget, ..samples::call() }
    }

    async fn ask(call: ModelCall) -> Result<ModelReply, CallErrorKind> {
        let clock: SharedClock = Arc::new(crate::clock::SystemClock);
        let provider = CheckedProvider::wrap(
            Arc::new(HaikuProvider),
            &Arc::default(),
            &Arc::default(),
            &Arc::default(),
            &clock,
        );
        provider.call(&call, &CancellationToken::new()).await.map_err(|error| error.kind)
    }

    #[tokio::test]
    async fn cost_uses_the_price_of_the_served_model_not_the_requested_one() {
        let usage = ask(call("?".into(), None)).await.unwrap().usage;
        assert_eq!(usage.family.unwrap().0, "claude");
        assert_eq!(usage.cost_microusd, Some(1000 + 50 * 5 + 2000 / 10), "haiku's price");
    }

    #[test]
    fn call_served_by_a_more_expensive_model_is_recorded_at_that_models_price() {
        let (back_end, clock) = (Arc::new(HaikuProvider), Arc::new(crate::clock::SystemClock));
        let (table, breakers, counted) = (Arc::default(), Arc::default(), Arc::default());
        let checked = CheckedProvider { back_end, table, breakers, counted, clock };
        let asks_haiku = ModelCall { model: "claude-haiku-4-5".into(), ..samples::call() };
        let served = Some("claude-opus-4-6".to_owned());
        let mut usage =
            Usage { served, billed: true, output_tokens: 60_000, ..Usage::for_model("claude-haiku-4-5") };
        checked.price(&asks_haiku, &mut usage);
        assert_eq!((usage.output_tokens, usage.cost_microusd), (60_000, Some(60_000 * 25)));
    }

    /// A provider that answers every call as `claude-opus-4-7` and counts the calls. It rejects its own response if the
    /// call does not accept that model.
    struct WrongModelProvider(std::sync::atomic::AtomicU32);

    impl Provider for WrongModelProvider {
        fn name(&self) -> &'static str {
            "anthropic"
        }

        fn is_billed(&self) -> bool {
            true
        }

        fn call<'a>(&'a self, call: &'a ModelCall, _: &'a CancellationToken) -> ReplyFuture<'a> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let served = "claude-opus-4-7".to_owned();
            let usage = Usage { served: Some(served.clone()), attempts: 1, ..Usage::for_model(&call.model) };
            Box::pin(async move {
                match call.may_be_served_by(&served) {
                    true => Ok(ModelReply::new("yes".into(), None, usage)),
                    false => {
                        let kind = CallErrorKind::WrongModel { served: Some(served) };
                        Err(CallError::new(kind, "another", usage))
                    }
                }
            })
        }
    }

    #[tokio::test]
    async fn model_is_not_called_again_after_the_service_served_an_unaccepted_model() {
        let clock: SharedClock = Arc::new(crate::clock::SystemClock);
        let setup = |settings: &crate::config::ModelSettings| {
            let (table, breakers) =
                (Arc::new(ModelCatalog::from_settings(settings)), Arc::new(CircuitBreakers::default()));
            let back_end = Arc::new(WrongModelProvider(Default::default()));
            let shared = Arc::clone(&back_end) as Arc<dyn Provider>;
            (back_end, CheckedProvider::wrap(shared, &table, &breakers, &Arc::default(), &clock), breakers)
        };
        let count = |back_end: &WrongModelProvider| back_end.0.load(std::sync::atomic::Ordering::Relaxed);
        let mut settings = crate::config::ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
        let (back_end, provider, breakers) = setup(&settings);
        let wrong = CallErrorKind::WrongModel { served: Some("claude-opus-4-7".into()) };
        for (attempts, times) in [(1, 1), (0, 1), (0, 1)] {
            let error = provider.call(&samples::call(), &CancellationToken::new()).await.unwrap_err();
            assert_eq!(
                (error.kind, error.usage.attempts, count(&back_end)),
                (wrong.clone(), attempts, times)
            );
        }
        breakers.forget_substitutes();
        provider.call(&samples::call(), &CancellationToken::new()).await.unwrap_err();
        assert_eq!(count(&back_end), 2);

        settings.successors = [("claude:opus-4-6".to_owned(), vec!["claude-opus-4-7".to_owned()])].into();
        let (_, provider, _) = setup(&settings);
        let usage = provider.call(&samples::call(), &CancellationToken::new()).await.unwrap().usage;
        assert_eq!(usage.accepted_by.as_deref(), Some("claude:opus-4-6"));
    }

    #[tokio::test]
    async fn recorded_cost_of_a_call_is_capped_at_its_maximum_cost() {
        let usage = ask(call("lie".into(), None)).await.unwrap().usage;
        let bytes = "lie".len() as u64 + limits::CHAT_FRAME_TOKENS;
        assert_eq!((usage.input_tokens, usage.cache_written_tokens), (0, bytes));
        assert_eq!(
            usage.cost_microusd,
            Some(limits::ANSWER_TOKENS * 25 + (bytes * 25).div_ceil(4)),
            "the most it could cost"
        );
    }

    #[tokio::test]
    async fn usage_with_a_zero_token_count_is_marked_as_possibly_costing_more() {
        let usage = ask(call("nothing".into(), None)).await.unwrap().usage;
        let bytes = "nothing".len() as u64 + limits::CHAT_FRAME_TOKENS;
        assert!(usage.may_cost_more());
        assert_eq!(
            usage.likely_microusd,
            (bytes * 25).div_ceil(4) + 2 * 25,
            "its prompt and the word it said"
        );
    }

    #[tokio::test]
    async fn cost_estimate_uses_the_output_limit_and_counted_prompt_tokens() {
        let clock: SharedClock = Arc::new(crate::clock::SystemClock);
        let provider = CheckedProvider::wrap(
            Arc::new(HaikuProvider),
            &Arc::default(),
            &Arc::default(),
            &Arc::default(),
            &clock,
        );
        let most = |max_output_tokens, counted_prompt_tokens| {
            let call =
                ModelCall { max_output_tokens, counted_prompt_tokens, ..call("x".repeat(10_000), None) };
            let CostEstimate { most, input, .. } = provider.estimate(&call);
            (most.0 - input.0, input.0)
        };
        let bytes = 10_000 + limits::CHAT_FRAME_TOKENS;
        assert_eq!(most(1000, None), (1000 * 25, (bytes * 25).div_ceil(4)));
        assert_eq!(most(u64::MAX, Some(2000)), (limits::ANSWER_TOKENS * 25, 2200 * 25 / 4));
        assert_eq!(most(1000, Some(u64::MAX)).1, most(1000, None).1, "no count is believed beyond the bytes");
    }

    #[tokio::test]
    async fn call_that_exceeds_the_context_or_budget_is_not_sent() {
        // Opus's context window without its longest answer and the chat frame.
        let max_bytes =
            (1_000_000 - limits::ANSWER_TOKENS - limits::CHAT_FRAME_TOKENS) * limits::USUAL_BYTES_A_TOKEN;
        let long = "x".repeat(max_bytes as usize);
        assert!(ask(call(long.clone(), None)).await.is_ok());
        assert_eq!(ask(call(long + "x", None)).await.unwrap_err(), CallErrorKind::TooLong);
        // The longest answer at 25 dollars per million tokens.
        let most_microusd = limits::ANSWER_TOKENS * 25;
        // Plus the chat frame, and one token per prompt byte, at the price of cache writes.
        let most_microusd = most_microusd + limits::CHAT_FRAME_TOKENS * 25 / 4;
        let over = ask(call("x".repeat(1000), Some(0))).await.unwrap_err();
        assert_eq!(over, CallErrorKind::OverBudget { most_microusd: most_microusd + 6250 });
        assert_eq!(
            ask(call(String::new(), Some(most_microusd - 1))).await.unwrap_err(),
            CallErrorKind::OverBudget { most_microusd }
        );
        assert!(ask(call(String::new(), Some(most_microusd))).await.is_ok());
    }

    #[tokio::test]
    async fn unpriced_model_is_called_only_when_no_budget_is_set() {
        let (clock, table): (SharedClock, _) = (Arc::new(crate::clock::SystemClock), ModelCatalog::default());
        let unpriced = Model { prices: Vec::new(), ..table.find("anthropic", "opus-4-6").unwrap().clone() };
        let free = Model { prices: vec![crate::config::Price::per_million(0, 0)], ..unpriced.clone() };
        for (row, budget, answered) in
            [(&unpriced, None, true), (&unpriced, Some(u64::MAX - 1), false), (&free, Some(0), true)]
        {
            let table = Arc::new(ModelCatalog::default().with_rows(std::slice::from_ref(row)));
            let provider = CheckedProvider::wrap(
                Arc::new(HaikuProvider),
                &table,
                &Arc::default(),
                &Arc::default(),
                &clock,
            );
            let outcome = provider.call(&call("?".into(), budget), &CancellationToken::new()).await;
            assert_eq!(outcome.is_ok(), answered, "{row:?} {budget:?}");
            let CostEstimate { may_be_free, unpriced, .. } = provider.estimate(&call("?".into(), None));
            assert_eq!((may_be_free, unpriced), (!row.prices.is_empty(), row.prices.is_empty()));
        }
    }
}
