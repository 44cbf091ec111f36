//! What every call passes on its way to a back end and back: does it fit the model, may it cost that much, who
//! answered, and what did it cost. A back end says which model its answer names and how many tokens; what that means is
//! said here, by the one table of models.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    Call, CallError, CallErrorKind, Provider, Reply, Usage, Way,
    models::{Model, Table},
};
use crate::limits;

pub(super) struct Checked {
    back_end: Arc<dyn Provider>,
    table: Arc<Table>,
}

impl Checked {
    pub(super) fn around(back_end: Arc<dyn Provider>, table: &Arc<Table>) -> Arc<dyn Provider> {
        Arc::new(Self { back_end, table: Arc::clone(table) })
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
            let message = format!("{}: {why}", self.back_end.name());
            return Err(CallError::new(kind, message, Usage::asking(&call.model)));
        }
        match self.back_end.call(call, cancel).await {
            Ok(mut reply) => {
                self.judge(&mut reply.usage);
                Ok(reply)
            }
            Err(mut error) => {
                self.judge(&mut error.usage);
                Err(error)
            }
        }
    }

    /// Why nothing is sent.
    fn refusal(&self, call: &Call, row: &Model) -> Option<CallErrorKind> {
        let bytes = (call.system.len() + call.prompt.len()) as u64;
        if bytes / limits::MOST_BYTES_A_TOKEN > row.context {
            return Some(CallErrorKind::TooLong);
        }
        let budget = call.budget.filter(|_| self.back_end.bills())?;
        let (input, output) = (bytes / limits::FEWEST_BYTES_A_TOKEN, row.max_output);
        let most_microusd = self.table.cost_microusd(&row.id, input, output, 0, 0)?;
        (most_microusd > budget).then_some(CallErrorKind::OverBudget { most_microusd })
    }

    fn judge(&self, usage: &mut Usage) {
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
            facts: Default::default(),
        }
    }

    async fn ask(call: Call) -> Result<Reply, CallErrorKind> {
        let provider = Checked::around(Arc::new(Haiku), &Arc::new(Table::default()));
        provider.call(&call, &CancellationToken::new()).await.map_err(|error| error.kind)
    }

    #[tokio::test]
    async fn who_served_is_priced_and_not_who_was_asked() {
        let usage = ask(call("?".into(), None)).await.unwrap().usage;
        assert_eq!(usage.family.unwrap().0, "claude");
        assert_eq!(usage.cost_microusd, Some(1000 + 50 * 5 + 2000 / 10), "haiku's price");
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
