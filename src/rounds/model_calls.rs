//! Paid model calls with ledger rows. A row is written before the call. The row is settled together with the attempt's
//! next write, normally the response. A journalled response is never paid for again. The maximum cost is reserved
//! before the call, and a call that would exceed a cap is not made.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Round, StepContext,
    budget::{self, BudgetShortfall},
    call_retries::{CallFailure, CallRetries},
    call_waits::{UnansweredCall, VisitWaits},
    prompt::{AssembledPrompt, Prompt},
};
use crate::{
    config::BudgetSettings,
    engine::{CallRow, CallStatus, LedgerRecord, OmittedSegment, StepError, TextKind, TextRow},
    limits,
    messages::{FailureKind, ModelWaitReason},
    providers::{
        CallError, CallErrorKind, CallRole, CostEstimate, ModelCall, ModelId, ModelReply, POOL, Usage,
    },
    types::{Family, Hash, IssueNo, MicroUsd, Timestamp, WorkerPool},
};

/// Maximum bytes stored of a model's thoughts.
const THOUGHT_BYTES: usize = 64 * 1024;

/// Model name that is recorded if the response names no model.
const UNATTESTED: &str = "unattested";

/// Model that wrote a response, according to the response itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedModel {
    /// Model name given in the response, or "unattested" if the response names none.
    pub model: String,
    /// Family of the model. `None` if the response names no model or an unknown one.
    pub family: Option<Family>,
    /// The requested model, if this model answered in its place and the operator accepts that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_of: Option<ReplacedModel>,
}

/// The requested model, in whose place another model was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedModel {
    pub asked: String,
    /// Key in `[models.successors]` that allows the replacement.
    pub setting: String,
}

impl ServedModel {
    /// Returns the model name given in the response, even if the model is not in our model table.
    pub fn model_name(&self) -> Option<&str> {
        Some(self.model.as_str()).filter(|name| *name != UNATTESTED)
    }

    /// Returns the model's name if the response names a known model, otherwise `None`.
    pub(super) fn attested_model(&self) -> Option<String> {
        self.family.as_ref().map(|_| self.model.clone())
    }

    fn from_usage(usage: &Usage) -> Self {
        let accepted = usage.accepted_by.clone();
        Self {
            model: usage.served.clone().unwrap_or_else(|| UNATTESTED.to_owned()),
            family: usage.family.clone(),
            in_place_of: accepted.map(|setting| ReplacedModel { asked: usage.asked.clone(), setting }),
        }
    }
}

/// A call that is to be made if the budget allows it.
pub(super) struct BudgetedCall<'a> {
    pub role: CallRole,
    /// Task of the call; `None` for the role's usual task. Calls with a task are counted separately.
    pub task: Option<&'static str>,
    /// Model to call: `provider:model`, or a configured name of a model or pool.
    pub spec: &'a str,
    pub system: &'a str,
    pub prompt: &'a Prompt,
    pub schema: Option<&'a serde_json::Value>,
    /// Tools offered to the model, as in [`ModelCall::tools`]. Never set together with a schema.
    pub tools: Option<&'a serde_json::Value>,
    /// Model families that must not answer.
    pub not_families: &'a [Family],
    /// Worker pool whose slots limit the call, if the model runs as a program.
    pub workers: WorkerPool,
    pub facts: BTreeMap<String, String>,
    pub caps: &'a BudgetSettings,
    /// Maximum tokens of the response.
    pub longest: u64,
    /// Timeout of the call. `None` for the model's usual timeout.
    pub deadline: Option<Duration>,
    /// Number of calls per role in this run, including retries.
    pub calls: &'a mut BTreeMap<String, u32>,
    /// Waits of the current visit so far.
    pub waits: &'a mut VisitWaits,
}

impl<'a> BudgetedCall<'a> {
    /// Builds a call of the reviewer's model for a task other than a review.
    pub(super) fn reviewer_task(
        (task, system): (&'static str, &'a str),
        (prompt, schema): (&'a Prompt, &'a serde_json::Value),
        (spec, caps): (&'a str, &'a BudgetSettings),
        issue: IssueNo,
        round: &'a mut Round,
    ) -> Self {
        let facts = [("issue", issue.to_string()), ("fence", prompt.fence_mark().to_owned())];
        Self {
            role: CallRole::Reviewer,
            task: Some(task),
            spec,
            system,
            prompt,
            schema: Some(schema),
            tools: None,
            not_families: &[],
            workers: WorkerPool::default(),
            facts: facts.map(|(name, fact)| (name.to_owned(), fact)).into(),
            caps,
            longest: limits::VERDICT_TOKENS,
            deadline: None,
            calls: &mut round.calls,
            waits: &mut round.waits,
        }
    }
}

/// Response or failure of a call. The response's text is stored separately and referenced by its hash, because the
/// journal contains no documents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BudgetedCallResult {
    pub served: ServedModel,
    /// Id of the requested model. If a pool was requested, id of the model that the pool chose.
    #[serde(default)]
    pub asked: String,
    pub prompt: Hash,
    /// Segments that were cut from the prompt, with the extent of each cut.
    #[serde(default)]
    pub cut: Vec<OmittedSegment>,
    pub outcome: Result<AnswerText, CallFailure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct AnswerText {
    pub text: Hash,
}

/// Facts about an attempt that are not recorded in its journal entry.
#[derive(Default)]
struct AnswerAttemptFlags {
    capped: Option<BudgetShortfall>,
    /// Whether the call was not made because other calls are waiting for a slot.
    crowded: bool,
    /// Whether budget was reserved for the call.
    held: bool,
}

impl BudgetedCall<'_> {
    /// Increments the role's call counter and returns the number of the next call.
    fn next_call_number(&mut self) -> u32 {
        let name = self.task.map_or(self.role.to_string(), str::to_owned);
        let calls = self.calls.entry(name).or_default();
        *calls += 1;
        *calls
    }
}

/// Makes one call, with retries. If the model cannot be called now, returns [`UnansweredCall::Waiting`]. All other
/// failures of the call are part of the result.
pub(super) async fn call_model(
    cx: &StepContext,
    key: &str,
    mut ask: BudgetedCall<'_>,
) -> Result<BudgetedCallResult, UnansweredCall> {
    if let Some(answered) = ask.waits.stored_answer(key) {
        ask.next_call_number();
        return Ok(answered);
    }
    let answered = Box::pin(call_with_retries(cx, key, &mut ask)).await?;
    ask.waits.store_answer(key, &answered);
    Ok(answered)
}

async fn call_with_retries(
    cx: &StepContext,
    key: &str,
    ask: &mut BudgetedCall<'_>,
) -> Result<BudgetedCallResult, UnansweredCall> {
    let (mut attempt, mut patience, mut empty) = (0, CallRetries::default(), false);
    let mut bytes_a_token = limits::USUAL_BYTES_A_TOKEN;
    loop {
        attempt += 1;
        let key = format!("{key}/{attempt}");
        let number = ask.next_call_number();
        ask.facts.insert("call".to_owned(), number.to_string());
        ask.facts.insert("workflow".to_owned(), cx.run().workflow.clone());
        ask.facts.extend(ask.task.map(|task| ("task".to_owned(), task.to_owned())));
        let mut aside = AnswerAttemptFlags::default();
        let this = AnswerAttempt { key: &key, last: patience.last_failure(), bytes_a_token };
        let bought = cx.once(&key, |entry| attempt_call(cx, ask, this, entry.interrupted, &mut aside)).await;
        if let Some(capped) = aside.capped {
            return Err(UnansweredCall::OverBudget(capped));
        }
        if aside.crowded {
            return Err(ask.waits.wait_for_slot(cx, (ask.role, ask.spec), ask.workers));
        }
        let answered: BudgetedCallResult = bought?;
        if aside.held {
            // Only now, because the ledger row is settled on disk.
            budget::release_unspent(cx).await;
        }
        let Err(failure) = &answered.outcome else { return Ok(answered) };
        if failure.kind == FailureKind::TooLong && bytes_a_token > limits::FEWEST_BYTES_A_TOKEN {
            // Text with more tokens per byte than most: retry with more cut.
            bytes_a_token = limits::FEWEST_BYTES_A_TOKEN;
            continue;
        }
        if failure.kind == FailureKind::Empty && !empty {
            // The next response to the same prompt usually has text.
            empty = true;
            continue;
        }
        let Some(hold) = failure.wait_reason() else { return Ok(answered) };
        let until = failure.not_before;
        if patience.record_failure(failure) {
            return Ok(answered);
        }
        ask.waits.wait_after_failure(cx, (ask.role, ask.spec), hold, until)?;
    }
}

/// One of several attempts to get a response to a question.
#[derive(Clone, Copy)]
struct AnswerAttempt<'a> {
    key: &'a str,
    /// Failure of the previous attempt, if any.
    last: Option<&'a CallFailure>,
    /// Assumed bytes per token, with which the prompt's size is estimated.
    bytes_a_token: u64,
}

async fn attempt_call(
    cx: &StepContext,
    ask: &BudgetedCall<'_>,
    this: AnswerAttempt<'_>,
    interrupted: bool,
    aside: &mut AnswerAttemptFlags,
) -> Result<BudgetedCallResult, StepError> {
    let providers = &cx.tools().providers;
    let (provider, model) = providers
        .resolve(ask.spec)
        .map_err(|error| StepError::User(format!("The model `{}` cannot be used: {error}", ask.spec)))?;
    let room = providers
        .prompt_room(&model, ask.system, ask.schema.or(ask.tools))
        .saturating_mul(this.bytes_a_token);
    let AssembledPrompt { text, cut, fits } =
        ask.prompt.assemble(usize::try_from(room).unwrap_or(usize::MAX));
    let prompt = Hash::digest_parts([ask.system.as_bytes(), text.as_bytes()]);
    let before = if interrupted { cx.call_row(this.key).await? } else { None };
    let before = before.filter(was_sent);
    // A call that may have been sent is repeated in any case, to settle it.
    let lacks = provider.missing_requirement().filter(|_| before.is_none());
    let too_long = (!fits).then(|| format!("the prompt has {} bytes after all possible cuts", text.len()));
    let unsent = too_long.map(|why| (FailureKind::TooLong, why));
    if let Some((kind, why)) = unsent.or(lacks.map(|why| (FailureKind::Lacking, why))) {
        tracing::warn!(run = %cx.run().id, role = %ask.role, model = ask.spec, %why, "could not call a model");
        let (served, asked) = (ServedModel::from_usage(&Usage::default()), model.model);
        return Ok(BudgetedCallResult { served, asked, prompt, cut, outcome: Err(kind.into()) });
    }
    if provider.would_queue(ask.workers) {
        aside.crowded = true;
        return Err(call_not_made("other calls already wait for a slot"));
    }
    let mut call = build_call(cx, ask, &model, text).await?;
    let CostEstimate { mut most, mut input, may_be_free: free_way, unpriced } = provider.estimate(&call);
    let capped_at_all = ask.caps.has_spending_cap();
    if capped_at_all && unpriced && !free_way && most == MicroUsd(0) {
        return Err(StepError::User(missing_price_message(ask.spec)));
    }
    let for_call = (ask.role, this.key);
    let mut capped = budget::reserve_budget(cx, ask.caps, for_call, most, before.as_ref()).await?.err();
    if capped.is_some() && !free_way {
        // The estimate is far above most prompts. Counting tokens is free, but needs its own request.
        call.counted_prompt_tokens = provider.count_tokens(&call).await;
        if call.counted_prompt_tokens.is_some() {
            CostEstimate { most, input, .. } = provider.estimate(&call);
            capped = budget::reserve_budget(cx, ask.caps, for_call, most, before.as_ref()).await?.err();
        }
    }
    if capped.is_some() && !free_way {
        aside.capped = capped;
        return Err(call_not_made("not enough is left of the budget"));
    }
    let held = if capped.is_some() { MicroUsd(0) } else { most };
    // Without caps any call is allowed, even one without a known price.
    call.budget = capped_at_all.then_some(held.0);
    aside.held = held > MicroUsd(0);
    if let Some(before) = before {
        record_lost_call(cx, this.key, before).await?;
    }
    let row = reserved_call_row(ask, &model, prompt, cut.clone(), (held, input.min(held)));
    cx.record(this.key, LedgerRecord::Call(row.clone())).await?;
    let result = provider.call(&call, cx.cancellation()).await;
    match result.as_ref().err().map(|error| &error.kind) {
        // Not a result, so it is not journalled and the next attempt calls again. The row keeps its possible cost,
        // unless no request was sent.
        Some(CallErrorKind::Cancelled) => {
            match result
                .as_ref()
                .err()
                .filter(|error| error.usage.attempts > 0 || !error.earlier_attempts.is_empty())
            {
                Some(stopped) => {
                    cx.record_later(this.key, LedgerRecord::Call(stopped_call_row(row, stopped))).await?
                }
                None => drop(settle_call_rows(cx, this.key, row, &result).await?),
            }
            let (why, after) = ("the call was stopped".to_owned(), Duration::from_secs(1));
            return Err(StepError::Later { why, after });
        }
        _ if capped.is_some() && is_blocked_by_budget(&result) => aside.capped = capped,
        _ => {}
    }
    let usage = settle_call_rows(cx, this.key, row, &result).await?;
    if aside.capped.is_some() {
        return Err(call_not_made("not enough is left of the budget"));
    }
    let outcome = match &result {
        Ok(reply) => {
            let (model, seconds) = (usage.served.as_deref().unwrap_or("not said"), usage.elapsed.as_secs());
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            tracing::info!(run = %cx.run().id, role = %ask.role, model, input, output, seconds, "model answered");
            record_thoughts(cx, this.key, &reply.thoughts).await?;
            Ok(store_answer(cx, reply).await?)
        }
        Err(error) => {
            tracing::warn!(run = %cx.run().id, provider = provider.name(), kind = ?error.kind, detail = %error.message, "model call failed");
            Err(CallFailure::from_error(error, this.last, cx.clock().now()))
        }
    };
    Ok(BudgetedCallResult {
        served: ServedModel::from_usage(usage),
        asked: usage.asked.clone(),
        prompt,
        cut,
        outcome,
    })
}

/// Records a call whose response is lost. The call may have been billed, so its row stays in the ledger and is marked
/// as lost.
async fn record_lost_call(cx: &StepContext, key: &str, before: CallRow) -> Result<(), StepError> {
    cx.record_later(&format!("{key}~lost-{}", cx.clock().now().0), LedgerRecord::Call(before.mark_lost()))
        .await
}

async fn build_call(
    cx: &StepContext,
    ask: &BudgetedCall<'_>,
    model: &ModelId,
    prompt: String,
) -> Result<ModelCall, StepError> {
    let desk = cx.tools();
    Ok(ModelCall {
        role: ask.role,
        system: ask.system.to_owned(),
        prompt,
        schema: ask.schema.cloned(),
        tools: ask.tools.cloned(),
        model: model.model.clone(),
        deadline: ask.deadline.unwrap_or_else(|| desk.providers.deadline(model)),
        max_output_tokens: ask.longest,
        counted_prompt_tokens: None,
        budget: None,
        private: desk.is_private(cx).await?,
        excluded_families: ask.not_families.to_vec(),
        successors: Vec::new(),
        workers: ask.workers,
        facts: ask.facts.clone(),
    })
}

/// Settles the ledger rows of a call. Each request has its own row, because each may have cost something. The rows are
/// written together with the next write, so that no response is ever stored with an unsettled row. If that write fails,
/// the row may be settled without a stored response; in that case, the step is retried.
async fn settle_call_rows<'a>(
    cx: &StepContext,
    key: &str,
    row: CallRow,
    result: &'a Result<ModelReply, CallError>,
) -> Result<&'a Usage, StepError> {
    let (usage, before, error) = match result {
        Ok(reply) => (&reply.usage, &reply.earlier_attempts, None),
        Err(error) => (error.usage.as_ref(), &error.earlier_attempts, Some(&error.kind)),
    };
    let legs: Vec<RequestUsage<'_>> =
        before.iter().map(|leg| (&leg.usage, Some(&leg.kind))).chain([(usage, error)]).collect();
    let open = legs.iter().map(|(usage, _)| *usage).filter(|usage| usage.may_cost_more());
    let likely = open.map(|usage| usage.likely_microusd).fold(0, u64::saturating_add);
    for (number, (leg, held)) in legs.iter().zip(split_reservation(row.held_microusd, &legs)).enumerate() {
        let key = if number < before.len() { format!("{key}~leg-{number}") } else { key.to_owned() };
        // One row holds the whole likely cost, like the reservation.
        let row = CallRow { likely_microusd: held.map(|held| likely.min(held)), ..row.clone() };
        cx.record_later(&key, LedgerRecord::Call(settled_call_row(row, *leg, held))).await?;
    }
    Ok(usage)
}

/// Returns the row of a cancelled call. Its cost is the likely cost, limited to the reservation.
fn stopped_call_row(row: CallRow, stopped: &CallError) -> CallRow {
    let legs = stopped.earlier_attempts.iter().map(|leg| &leg.usage).chain([&*stopped.usage]);
    let billed = legs.filter(|usage| usage.billed);
    let likely = billed
        .map(|usage| usage.cost_microusd.unwrap_or(0).saturating_add(usage.likely_microusd))
        .fold(0, u64::saturating_add);
    let likely_microusd = row.held_microusd.map(|held| likely.min(held));
    CallRow { likely_microusd, attempts: stopped.usage.attempts.max(1), ..row.mark_lost() }
}

/// Usage of one request of a call, and the request's error if it failed.
type RequestUsage<'a> = (&'a Usage, Option<&'a CallErrorKind>);

/// Splits the reservation among a call's requests. Known costs are subtracted first. The first request with an unknown
/// cost keeps the remainder, on behalf of all requests with an unknown cost.
fn split_reservation(held: Option<u64>, legs: &[RequestUsage<'_>]) -> Vec<Option<u64>> {
    let billed = legs.iter().filter(|(usage, _)| usage.billed).filter_map(|(usage, _)| usage.cost_microusd);
    let mut rest = Some(held.unwrap_or(0).saturating_sub(billed.sum())).filter(|rest| *rest > 0);
    legs.iter().map(|(usage, _)| if usage.may_cost_more() { rest.take() } else { None }).collect()
}

/// Whether the call failed because its budget excluded paid routes. Returns `false` if a free route is due for a retry,
/// because the call then waits for that route.
fn is_blocked_by_budget(result: &Result<ModelReply, CallError>) -> bool {
    let Err(error) = result else { return false };
    let closed = |kind: &CallErrorKind| matches!(kind, CallErrorKind::OverBudget { .. });
    let kinds = error.earlier_attempts.iter().map(|leg| &leg.kind).chain([&error.kind]);
    // A free route that timed out may well do so again.
    let waits = CallFailure::from_error(error, None, Timestamp(0))
        .wait_reason()
        .is_some_and(|hold| hold != ModelWaitReason::Slow);
    kinds.into_iter().any(closed) && !waits
}

fn missing_price_message(spec: &str) -> String {
    format!(
        "{spec} is billed per use but has no price, so the caps under [budget] cannot limit it. The operator can set \
         a price under [[model]] (input and output 0 if it is free), or set every cap to \"none\"."
    )
}

/// Returns the error with which a call that was not made leaves `once`, so that no journal entry is written. The caller
/// handles the error.
fn call_not_made(why: &str) -> StepError {
    StepError::Later { why: why.to_owned(), after: Duration::ZERO }
}

/// Whether the call may have been sent although the journal contains no result.
fn was_sent(row: &CallRow) -> bool {
    matches!(row.status, CallStatus::Reserved | CallStatus::Lost) || row.attempts > 0
}

/// Stores the model's thoughts, so that people can inspect them later.
async fn record_thoughts(cx: &StepContext, key: &str, thoughts: &str) -> Result<(), StepError> {
    if thoughts.trim().is_empty() {
        return Ok(());
    }
    let thoughts = cx.put(&thoughts.as_bytes()[..thoughts.floor_char_boundary(THOUGHT_BYTES)]).await?;
    cx.record_later(&format!("{key}~thought"), LedgerRecord::Text(TextRow::new(TextKind::Thought, thoughts)))
        .await
}

async fn store_answer(cx: &StepContext, reply: &ModelReply) -> Result<AnswerText, StepError> {
    Ok(AnswerText { text: cx.put(reply.text.as_bytes()).await? })
}

fn reserved_call_row(
    ask: &BudgetedCall<'_>,
    model: &ModelId,
    prompt: Hash,
    cut: Vec<OmittedSegment>,
    (held, input): (MicroUsd, MicroUsd),
) -> CallRow {
    CallRow {
        role: ask.role.as_str().to_owned(),
        provider: model.provider.clone(),
        asked: ask.spec.to_owned(),
        served: None,
        accepted_by: None,
        family: None,
        prompt,
        cut,
        status: CallStatus::Reserved,
        input_tokens: 0,
        output_tokens: 0,
        cache_read: 0,
        cache_written: 0,
        cost_microusd: None,
        billed: false,
        held_microusd: Some(held.0).filter(|held| *held > 0),
        likely_microusd: Some(input.0).filter(|_| held > MicroUsd(0)),
        settled: None,
        elapsed_ms: 0,
        attempts: 0,
        error: None,
    }
}

fn settled_call_row(mut row: CallRow, (usage, error): RequestUsage<'_>, held: Option<u64>) -> CallRow {
    row.status = if error.is_some() { CallStatus::Failed } else { CallStatus::Done };
    if !usage.provider.is_empty() {
        // For a pool, the requested model is only known now.
        if row.provider == POOL {
            row.asked = format!("{}:{}", usage.provider, usage.asked);
        }
        row.provider = usage.provider.clone();
    }
    row.served = usage.served.clone();
    row.accepted_by = usage.accepted_by.clone();
    row.family = usage.family.clone();
    row.input_tokens = usage.input_tokens;
    row.output_tokens = usage.output_tokens;
    row.cache_read = usage.cache_read_tokens;
    row.cache_written = usage.cache_written_tokens;
    row.cost_microusd = usage.cost_microusd;
    row.billed = usage.billed;
    row.held_microusd = held;
    row.elapsed_ms = u64::try_from(usage.elapsed.as_millis()).unwrap_or(u64::MAX);
    row.attempts = usage.attempts;
    row.error = error.map(|kind| kind.name().to_owned());
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::{CallAttempt, Metering};

    fn row() -> CallRow {
        CallRow {
            role: "reviewer".into(),
            provider: "anthropic".into(),
            asked: "gemini:pro".into(),
            served: None,
            accepted_by: None,
            family: None,
            prompt: Hash::digest(b"p"),
            status: CallStatus::Reserved,
            input_tokens: 0,
            output_tokens: 0,
            cache_read: 0,
            cache_written: 0,
            cost_microusd: None,
            billed: false,
            elapsed_ms: 0,
            attempts: 0,
            cut: Vec::new(),
            held_microusd: None,
            likely_microusd: None,
            settled: None,
            error: None,
        }
    }

    #[test]
    fn stored_call_error_kind_is_read_in_the_old_and_the_new_format() {
        let reset = Some(Duration::from_secs(7));
        for kind in
            [CallErrorKind::Capacity, CallErrorKind::RateLimited { reset }, CallErrorKind::NoSuchModel]
        {
            for stored in [format!("{kind:?}"), kind.name().to_owned()] {
                let row = CallRow { error: Some(stored), ..row() };
                assert_eq!(row.error_kind().as_deref(), Some(kind.name()));
            }
        }
    }

    fn usage_with_cost(billed: bool, cost_microusd: Option<u64>) -> Usage {
        Usage { billed, cost_microusd, input_tokens: 7, ..Usage::default() }
    }

    #[test]
    fn requests_of_a_call_together_hold_exactly_the_unbilled_reservation() {
        let legs = || {
            [Metering::Known, Metering::Unknown].into_iter().flat_map(|metered| {
                [(false, None), (true, None), (true, Some(300)), (true, Some(2000))]
                    .map(|(billed, cost)| Usage { metered, ..usage_with_cost(billed, cost) })
            })
        };
        for (a, b) in legs().flat_map(|a| legs().map(move |b| (a.clone(), b))) {
            let both = [(&a, None), (&b, Some(&CallErrorKind::Unavailable))];
            let billed: u64 =
                both.iter().filter(|leg| leg.0.billed).filter_map(|leg| leg.0.cost_microusd).sum();
            let held: u64 = split_reservation(Some(1000), &both).into_iter().flatten().sum();
            let open = both.iter().any(|leg| leg.0.may_cost_more());
            let rest = if open { 1000_u64.saturating_sub(billed) } else { 0 };
            assert_eq!(held, rest, "{both:?}");
        }
    }

    #[test]
    fn only_requests_of_unknown_cost_keep_their_budget_reservation() {
        let refused = Usage { input_tokens: 0, ..usage_with_cost(true, None) };
        for (metered, usage, more) in [
            (Metering::Known, usage_with_cost(true, Some(5)), false),
            (Metering::Known, refused.clone(), false),
            (Metering::Known, usage_with_cost(true, None), true),
            (Metering::Known, usage_with_cost(false, None), false),
            (Metering::Unknown, usage_with_cost(true, Some(5)), true),
            (Metering::Unknown, refused, true),
            (Metering::Unknown, usage_with_cost(false, Some(5)), false),
        ] {
            let usage = Usage { metered, ..usage };
            assert_eq!(usage.may_cost_more(), more, "{usage:?}");
        }
    }

    #[test]
    fn stopped_call_keeps_its_budget_reservation_and_counts_received_tokens() {
        let row = CallRow { held_microusd: Some(2_060_000), likely_microusd: Some(500_000), ..row() };
        let usage = Usage { attempts: 1, likely_microusd: 70_000, ..usage_with_cost(true, Some(30_000)) };
        let (kind, message, usage) = (CallErrorKind::Cancelled, String::new(), Box::new(usage));
        let row = stopped_call_row(row, &CallError { kind, message, usage, earlier_attempts: Vec::new() });
        assert_eq!((row.shared_cap_amount(), row.run_cap_amount()), (MicroUsd(2_060_000), MicroUsd(100_000)));
        assert!(was_sent(&row) && row.status == CallStatus::Lost);
    }

    #[test]
    fn run_over_budget_pauses_unless_a_free_route_may_answer_later() {
        let closed = CallErrorKind::OverBudget { most_microusd: 1 };
        let late = CallErrorKind::Timeout { idle: true, elapsed: Duration::ZERO };
        let failed = |kind: &CallErrorKind, before: &[CallErrorKind]| {
            let leg = |kind: &CallErrorKind| CallAttempt {
                kind: kind.clone(),
                message: String::new(),
                usage: usage_with_cost(false, None),
            };
            let CallAttempt { kind, message, usage } = leg(kind);
            let before = before.iter().map(leg).collect();
            is_blocked_by_budget(&Err(CallError {
                kind,
                message,
                usage: Box::new(usage),
                earlier_attempts: before,
            }))
        };
        assert!(failed(&closed, &[]) && failed(&late, std::slice::from_ref(&closed)));
        assert!(failed(&closed, std::slice::from_ref(&late)));
        assert!(!failed(&late, &[]) && !failed(&CallErrorKind::Capacity, &[closed]));
    }
}
