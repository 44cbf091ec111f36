//! One paid call, booked: the ledger's row is written before it and settled with the attempt's next write, which is
//! its answer's unless something goes wrong first. An answer that reached the journal is never bought again. What may
//! be on a bill is held back before the call, and a call for which not enough is left is not made.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Cx,
    money::{self, Capped},
};
use crate::{
    config::BudgetSettings,
    engine::{CallRow, CallStatus, Record, StepError},
    limits,
    providers::{Call, CallError, CallErrorKind, CallRole, Reply, Usage},
    types::{Family, Hash, MicroUsd, Timestamp},
};

/// The model an answer itself says it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// As the answer names it, or "unattested".
    pub model: String,
    /// None: the answer names no model, or one we do not know.
    pub family: Option<Family>,
}

impl Served {
    /// The model's name, where the answer gave one.
    pub(super) fn attested(&self) -> Option<String> {
        self.family.as_ref().map(|_| self.model.clone())
    }

    fn of(usage: &Usage) -> Self {
        Self {
            model: usage.served.clone().unwrap_or_else(|| "unattested".to_owned()),
            family: usage.family.clone(),
        }
    }
}

/// Why there is no answer, in the terms of what can be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider is busy or limits us; waiting helps.
    Busy,
    /// Our key or login is refused; only the operator can help.
    Auth,
    /// The model declined.
    Refused,
    /// The prompt is longer than the model reads.
    TooLong,
    /// It could cost more than is left.
    OverBudget,
    /// The answer was cut.
    Truncated,
    /// The answer is not what was asked for.
    Invalid,
    /// Another model than the one asked for answered.
    OtherModel,
    TimedOut,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub kind: FailureKind,
    /// For `Busy`: when another try is worth it.
    not_before: Option<Timestamp>,
}

/// What is asked of a model.
pub(super) struct Ask<'a> {
    pub role: CallRole,
    /// `provider:model`, as configured.
    pub spec: &'a str,
    pub system: &'a str,
    pub prompt: &'a str,
    pub schema: Option<&'a serde_json::Value>,
    pub facts: BTreeMap<String, String>,
    pub caps: &'a BudgetSettings,
    /// Calls of this role in this run; each try counts.
    pub calls: &'a mut u32,
}

/// What came back. Text is kept by hash: the journal holds no documents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Answered {
    pub served: Served,
    pub prompt: Hash,
    pub outcome: Result<Text, Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Text {
    pub text: Hash,
    /// The structured answer, when a schema was asked for and the provider returned one.
    pub value: Option<Hash>,
}

/// Tries of one call while the provider is busy, each a journalled call of its own.
const TRIES: u32 = 6;

/// First wait after a busy answer that named none; doubled each time, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What a call leaves that its journal entry does not tell.
#[derive(Default)]
struct Aside {
    /// It was not made.
    capped: Option<Capped>,
    /// Something was held back for it.
    held: bool,
}

/// Buys one answer. A busy provider is waited for by `Later`, which holds no worker; every other way of
/// having no answer is returned. So is the cap, where one keeps it from being asked for.
pub(super) async fn ask(cx: &Cx, key: &str, mut ask: Ask<'_>) -> Result<Result<Answered, Capped>, StepError> {
    let mut last = None;
    for attempt in 1..=TRIES {
        let key = format!("{key}/{attempt}");
        *ask.calls += 1;
        ask.facts.insert("call".to_owned(), ask.calls.to_string());
        let mut aside = Aside::default();
        let bought = cx.once(&key, |entry| buy(cx, &key, &ask, attempt, entry.interrupted, &mut aside)).await;
        if let Some(capped) = aside.capped {
            return Ok(Err(capped));
        }
        let answered: Answered = bought?;
        if aside.held {
            // Only now that the ledger's row is settled on disk.
            money::follow(cx).await;
        }
        match &answered.outcome {
            Err(Failure { kind: FailureKind::Busy, not_before: Some(until) }) if attempt < TRIES => {
                let now = cx.clock().now();
                if now < *until {
                    return Err(StepError::Later {
                        why: format!("{} is busy; trying again at {until}", provider(ask.spec)),
                        after: until.since(now),
                    });
                }
                last = Some(answered);
            }
            _ => return Ok(Ok(answered)),
        }
    }
    last.map(Ok).ok_or_else(|| StepError::Bug(anyhow::anyhow!("no attempt was made")))
}

async fn buy(
    cx: &Cx,
    key: &str,
    ask: &Ask<'_>,
    attempt: u32,
    interrupted: bool,
    aside: &mut Aside,
) -> Result<Answered, StepError> {
    let prompt = Hash::of_parts([ask.system.as_bytes(), ask.prompt.as_bytes()]);
    let (provider, model) = match cx.tools().providers.resolve(ask.spec) {
        Ok(found) => found,
        Err(error) => {
            return Err(StepError::User(format!("The model `{}` cannot be used: {error}", ask.spec)));
        }
    };
    let private = cx.tools().is_private(cx).await?;
    let mut call = Call {
        role: ask.role,
        system: ask.system.to_owned(),
        prompt: ask.prompt.to_owned(),
        schema: ask.schema.cloned(),
        model: model.model,
        effort: None,
        deadline: limits::MODEL_CALL,
        budget: None,
        private,
        facts: ask.facts.clone(),
    };
    let before = if interrupted { cx.booked(key).await? } else { None };
    let estimate = provider.estimate(&call);
    let capped = money::hold(cx, ask.caps, (ask.role, key), estimate.most, before.as_ref()).await?.err();
    match capped {
        Some(capped) if !estimate.free_way => {
            aside.capped = Some(capped);
            return Err(not_asked());
        }
        _ => {}
    }
    let held = if capped.is_some() { MicroUsd(0) } else { estimate.most };
    call.budget = Some(held.0);
    aside.held = held > MicroUsd(0);
    let mut row = reserved(ask, prompt, held);
    if let Some(before) = before {
        // It was asked, and its answer is not in the journal: it may have been billed, so it stays in the books
        // with all that is known of it.
        let lost = CallRow { status: CallStatus::Lost, ..before };
        cx.book(&format!("{key}~lost-{}", cx.clock().now().0), Record::Call(lost)).await?;
    }
    cx.record(key, Record::Call(row.clone())).await?;
    let result = provider.call(&call, cx.cancelled()).await;
    if result.as_ref().is_err_and(|error| matches!(error.kind, CallErrorKind::Cancelled)) {
        // Not an answer, so not journalled as one: whoever goes on from here asks again. The row stays reserved,
        // because the call may have been billed.
        return Err(StepError::Later {
            why: "the call was stopped".to_owned(),
            after: Duration::from_secs(1),
        });
    }
    let usage = match &result {
        Ok(reply) => &reply.usage,
        Err(error) => error.usage.as_ref(),
    };
    let before = match &result {
        Ok(reply) => &reply.before,
        Err(error) => &error.before,
    };
    for (number, leg) in before.iter().enumerate() {
        // Each has its own row: it may have cost something.
        let mut row = CallRow { provider: leg.provider.to_owned(), ..row.clone() };
        settle(&mut row, &leg.usage, Some(&leg.kind));
        cx.book(&format!("{key}~leg-{number}"), Record::Call(row)).await?;
    }
    settle(&mut row, usage, result.as_ref().err().map(|error| &error.kind));
    // With the next write: no answer is kept whose row is not settled. The row may be settled without its answer, when
    // that one cannot be kept and the step is put off.
    cx.book(key, Record::Call(row)).await?;
    if result.as_ref().is_err_and(|error| matches!(error.kind, CallErrorKind::OverBudget { .. }))
        && capped.is_some()
    {
        // The way that costs nothing was no way after all.
        aside.capped = capped;
        return Err(not_asked());
    }
    let served = Served::of(usage);
    let outcome = match result {
        Ok(reply) => Ok(keep(cx, &reply).await?),
        Err(error) => {
            tracing::warn!(run = %cx.run().id, provider = provider.name(), kind = ?error.kind, detail = %error.message, "model call failed");
            Err(failure(&error, attempt, cx.clock().now()))
        }
    };
    Ok(Answered { served, prompt, outcome })
}

/// Ends the `once`, so that nothing is kept of a call that was not made; never seen outside.
fn not_asked() -> StepError {
    StepError::Later { why: "not enough is left of the budget".to_owned(), after: Duration::ZERO }
}

async fn keep(cx: &Cx, reply: &Reply) -> Result<Text, StepError> {
    let text = cx.put(reply.text.as_bytes()).await?;
    let value = match &reply.value {
        Some(value) => Some(cx.put(value.to_string().as_bytes()).await?),
        None => None,
    };
    Ok(Text { text, value })
}

fn reserved(ask: &Ask<'_>, prompt: Hash, held: MicroUsd) -> CallRow {
    CallRow {
        role: ask.role.as_str().to_owned(),
        provider: provider(ask.spec).to_owned(),
        asked: ask.spec.to_owned(),
        served: None,
        family: None,
        prompt,
        status: CallStatus::Reserved,
        input_tokens: 0,
        output_tokens: 0,
        cache_read: 0,
        cache_written: 0,
        cost_microusd: None,
        billed: false,
        held_microusd: Some(held.0).filter(|held| *held > 0),
        elapsed_ms: 0,
        attempts: 0,
        error: None,
    }
}

fn settle(row: &mut CallRow, usage: &Usage, error: Option<&CallErrorKind>) {
    row.status = if error.is_some() { CallStatus::Failed } else { CallStatus::Done };
    row.served = usage.served.clone();
    row.family = usage.family.clone();
    row.input_tokens = usage.input_tokens;
    row.output_tokens = usage.output_tokens;
    row.cache_read = usage.cache_read_tokens;
    row.cache_written = usage.cache_written_tokens;
    row.cost_microusd = usage.cost_microusd;
    row.billed = usage.billed;
    // Whoever gave up waiting does not know what the other side did meanwhile.
    let unknown = matches!(error, None | Some(CallErrorKind::Timeout { .. }));
    if !usage.billed || usage.cost_microusd.is_some() || !unknown {
        row.held_microusd = None;
    }
    row.elapsed_ms = u64::try_from(usage.elapsed.as_millis()).unwrap_or(u64::MAX);
    row.attempts = usage.attempts;
    row.error = error.map(|kind| format!("{kind:?}"));
}

fn failure(error: &CallError, attempt: u32, now: Timestamp) -> Failure {
    let busy = |reset: Option<Duration>| {
        let doubled = FIRST_WAIT.saturating_mul(1 << attempt.min(8).saturating_sub(1));
        Failure {
            kind: FailureKind::Busy,
            not_before: Some(now.plus(reset.unwrap_or(doubled).min(LONGEST_WAIT))),
        }
    };
    let plain = |kind| Failure { kind, not_before: None };
    match &error.kind {
        CallErrorKind::Capacity | CallErrorKind::Unavailable => busy(None),
        CallErrorKind::RateLimited { reset } | CallErrorKind::Quota { reset } => busy(*reset),
        CallErrorKind::Auth => plain(FailureKind::Auth),
        CallErrorKind::Refused => plain(FailureKind::Refused),
        CallErrorKind::TooLong => plain(FailureKind::TooLong),
        CallErrorKind::OverBudget { .. } => plain(FailureKind::OverBudget),
        CallErrorKind::Truncated => plain(FailureKind::Truncated),
        CallErrorKind::InvalidOutput => plain(FailureKind::Invalid),
        CallErrorKind::WrongModel { .. } => plain(FailureKind::OtherModel),
        CallErrorKind::Timeout { .. } => plain(FailureKind::TimedOut),
        // Never gets here; a stopped call leaves the step before.
        CallErrorKind::Cancelled => busy(None),
    }
}

fn provider(spec: &str) -> &str {
    spec.split(':').next().unwrap_or(spec)
}
