//! One paid call, booked: the ledger's row is written before it and settled with the attempt's next write, which is
//! its answer's unless something goes wrong first. An answer that reached the journal is never bought again.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Cx,
    held::{NoAnswer, Waits},
    prompt::{Assembled, Prompt},
};
use crate::{
    engine::{CallRow, CallStatus, Cut, Record, StepError},
    limits,
    messages::Hold,
    providers::{Call, CallError, CallErrorKind, CallRole, ModelId, POOL, Reply, Usage},
    types::{Family, Hash, Timestamp},
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
    /// The account is used up; time helps, or a payment.
    UsedUp,
    /// Our key or login is refused; only the operator can help.
    Auth,
    /// There is no key, login or program to ask with; nothing was asked.
    Lacking,
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
    /// For what is waited for: when another try is worth it.
    not_before: Option<Timestamp>,
}

impl Failure {
    /// Why the call is made again later, if it is.
    fn hold(&self) -> Option<Hold> {
        match self.kind {
            FailureKind::Busy => Some(Hold::Busy),
            FailureKind::UsedUp => Some(Hold::UsedUp),
            FailureKind::Auth => Some(Hold::Refused),
            FailureKind::Lacking => Some(Hold::Lacking),
            _ => None,
        }
    }
}

/// What is asked of a model.
pub(super) struct Ask<'a> {
    pub role: CallRole,
    /// `provider:model`, or another name for one or several, as configured.
    pub spec: &'a str,
    pub system: &'a str,
    pub prompt: &'a Prompt,
    pub schema: Option<&'a serde_json::Value>,
    /// Families that may not answer.
    pub not_families: &'a [Family],
    /// The issue's, which say how urgent it is.
    pub labels: &'a [String],
    pub facts: BTreeMap<String, String>,
    /// Calls of this role in this run; each try counts.
    pub calls: &'a mut u32,
    /// What this visit has waited for so far.
    pub waits: &'a mut Waits,
}

/// What came back. Text is kept by hash: the journal holds no documents.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Answered {
    pub served: Served,
    /// The id asked for, of the model whose answer this is: a pool chooses one.
    #[serde(default)]
    pub asked: String,
    pub prompt: Hash,
    /// What the prompt had no room for.
    #[serde(default)]
    pub cut: Vec<Cut>,
    pub outcome: Result<Text, Failure>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Text {
    pub text: Hash,
    /// The structured answer, when a schema was asked for and the provider returned one.
    pub value: Option<Hash>,
}

/// Tries of one call while the provider is busy, each a journalled call of its own. Of what only time or the operator
/// can end, there is no limit.
const TRIES: u32 = 6;

/// First wait after a busy answer that named none; doubled each time, up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(30);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Buys one answer. Whoever cannot be asked now is waited for, by way of [`NoAnswer::Held`]; every other way of having
/// no answer is returned.
pub(super) async fn ask(cx: &Cx, key: &str, mut ask: Ask<'_>) -> Result<Answered, NoAnswer> {
    let (mut attempt, mut busy) = (0, 0);
    let mut bytes_a_token = limits::USUAL_BYTES_A_TOKEN;
    loop {
        attempt += 1;
        let key = format!("{key}/{attempt}");
        *ask.calls += 1;
        ask.facts.insert("call".to_owned(), ask.calls.to_string());
        let answered: Answered =
            cx.once(&key, |entry| buy(cx, &key, &ask, bytes_a_token, attempt, entry.interrupted)).await?;
        let Err(failure) = &answered.outcome else { return Ok(answered) };
        if failure.kind == FailureKind::TooLong && bytes_a_token > limits::FEWEST_BYTES_A_TOKEN {
            // Denser text than most: once more, with more of it cut.
            bytes_a_token = limits::FEWEST_BYTES_A_TOKEN;
            continue;
        }
        let Some(hold) = failure.hold() else { return Ok(answered) };
        let until = failure.not_before;
        busy += u32::from(hold == Hold::Busy);
        if busy == TRIES {
            return Ok(answered);
        }
        ask.waits.wait(cx, (ask.role, ask.spec), hold, until)?;
    }
}

async fn buy(
    cx: &Cx,
    key: &str,
    ask: &Ask<'_>,
    bytes_a_token: u64,
    attempt: u32,
    interrupted: bool,
) -> Result<Answered, StepError> {
    let (provider, model) = match cx.tools().providers.resolve(ask.spec) {
        Ok(found) => found,
        Err(error) => {
            return Err(StepError::User(format!("The model `{}` cannot be used: {error}", ask.spec)));
        }
    };
    let room = cx.tools().providers.room(&model, ask.system, ask.schema);
    let room = usize::try_from(room.saturating_mul(bytes_a_token)).unwrap_or(usize::MAX);
    let Assembled { text, cut, fits } = ask.prompt.fit(room);
    let prompt = Hash::of_parts([ask.system.as_bytes(), text.as_bytes()]);
    if !fits {
        let (run, bytes) = (cx.run().id, text.len());
        tracing::warn!(%run, model = ask.spec, bytes, room, "a prompt does not fit, with all cut that may be");
        let served = Served { model: "unattested".to_owned(), family: None };
        let outcome = Err(Failure { kind: FailureKind::TooLong, not_before: None });
        return Ok(Answered { served, asked: model.model, prompt, cut, outcome });
    }
    // A call that may have been made is settled by being made again.
    if !interrupted && let Some(lacks) = provider.lacks() {
        tracing::warn!(run = %cx.run().id, role = %ask.role, model = ask.spec, %lacks, "a model cannot be asked");
        let failure = Failure { kind: FailureKind::Lacking, not_before: None };
        return Ok(Answered {
            served: Served::of(&Usage::default()),
            asked: model.model,
            prompt,
            cut,
            outcome: Err(failure),
        });
    }
    let private = cx.tools().is_private(cx).await?;
    let mut row = reserved(ask, &model, prompt, cut.clone());
    if interrupted && let Some(before) = cx.booked(key).await? {
        // It was asked, and its answer is not in the journal: it may have been billed, so it stays in the books
        // with all that is known of it.
        let lost = CallRow { status: CallStatus::Lost, ..before };
        cx.book(&format!("{key}~lost-{}", cx.clock().now().0), Record::Call(lost)).await?;
    }
    cx.record(key, Record::Call(row.clone())).await?;
    let call = Call {
        role: ask.role,
        system: ask.system.to_owned(),
        prompt: text,
        schema: ask.schema.cloned(),
        model: model.model,
        effort: None,
        deadline: limits::MODEL_CALL,
        budget: None,
        private,
        not_families: ask.not_families.to_vec(),
        workers: cx.tools().settings.models.workers.assigned(ask.labels),
        facts: ask.facts.clone(),
    };
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
        let mut row = row.clone();
        settle(&mut row, &leg.usage, Some(&leg.kind));
        cx.book(&format!("{key}~leg-{number}"), Record::Call(row)).await?;
    }
    settle(&mut row, usage, result.as_ref().err().map(|error| &error.kind));
    // With the next write: no answer is kept whose row is not settled. The row may be settled without its answer, when
    // that one cannot be kept and the step is put off.
    cx.book(key, Record::Call(row)).await?;
    let (served, asked) = (Served::of(usage), usage.asked.clone());
    let outcome = match result {
        Ok(reply) => Ok(keep(cx, &reply).await?),
        Err(error) => {
            tracing::warn!(run = %cx.run().id, provider = provider.name(), kind = ?error.kind, detail = %error.message, "model call failed");
            Err(failure(&error, attempt, cx.clock().now()))
        }
    };
    Ok(Answered { served, asked, prompt, cut, outcome })
}

async fn keep(cx: &Cx, reply: &Reply) -> Result<Text, StepError> {
    let text = cx.put(reply.text.as_bytes()).await?;
    let value = match &reply.value {
        Some(value) => Some(cx.put(value.to_string().as_bytes()).await?),
        None => None,
    };
    Ok(Text { text, value })
}

fn reserved(ask: &Ask<'_>, model: &ModelId, prompt: Hash, cut: Vec<Cut>) -> CallRow {
    CallRow {
        role: ask.role.as_str().to_owned(),
        provider: model.provider.clone(),
        asked: ask.spec.to_owned(),
        served: None,
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
        elapsed_ms: 0,
        attempts: 0,
        error: None,
    }
}

fn settle(row: &mut CallRow, usage: &Usage, error: Option<&CallErrorKind>) {
    row.status = if error.is_some() { CallStatus::Failed } else { CallStatus::Done };
    if !usage.provider.is_empty() {
        // Who of several was asked is only known now.
        if row.provider == POOL {
            row.asked = format!("{}:{}", usage.provider, usage.asked);
        }
        row.provider = usage.provider.clone();
    }
    row.served = usage.served.clone();
    row.family = usage.family.clone();
    row.input_tokens = usage.input_tokens;
    row.output_tokens = usage.output_tokens;
    row.cache_read = usage.cache_read_tokens;
    row.cache_written = usage.cache_written_tokens;
    row.cost_microusd = usage.cost_microusd;
    row.billed = usage.billed;
    row.elapsed_ms = u64::try_from(usage.elapsed.as_millis()).unwrap_or(u64::MAX);
    row.attempts = usage.attempts;
    row.error = error.map(|kind| format!("{kind:?}"));
}

fn failure(error: &CallError, attempt: u32, now: Timestamp) -> Failure {
    let plain = |kind| Failure { kind, not_before: None };
    let after = |kind, wait| Failure { kind, not_before: Some(now.plus(wait)) };
    let doubled = |first: Duration| first.saturating_mul(1 << attempt.min(8).saturating_sub(1));
    let busy = |reset: Option<Duration>| {
        after(FailureKind::Busy, reset.unwrap_or(doubled(FIRST_WAIT)).min(LONGEST_WAIT))
    };
    match &error.kind {
        CallErrorKind::Capacity | CallErrorKind::Unavailable => busy(None),
        CallErrorKind::RateLimited { reset } => busy(*reset),
        CallErrorKind::Quota { reset } => {
            let reset = reset.unwrap_or(limits::KEY_RESTS_FROM_QUOTA);
            after(FailureKind::UsedUp, reset.clamp(limits::KEY_RESTS_LEAST, limits::KEY_RESTS_MOST))
        }
        CallErrorKind::Auth => after(FailureKind::Auth, doubled(limits::REFUSED_LOOK).min(LONGEST_WAIT)),
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
