//! One paid call, booked: the ledger's row is written before it and settled with the attempt's next write, which is
//! its answer's unless something goes wrong first. An answer that reached the journal is never bought again. What may
//! be on a bill is held back before the call, and a call for which not enough is left is not made.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{
    Cx,
    held::{NoAnswer, Waits},
    money::{self, Capped},
    prompt::{Assembled, Prompt},
};
use crate::{
    config::BudgetSettings,
    engine::{CallRow, CallStatus, Cut, Record, StepError},
    limits,
    messages::Hold,
    providers::{Call, CallError, CallErrorKind, CallRole, Estimate, ModelId, POOL, Reply, Usage},
    types::{Family, Hash, MicroUsd, Timestamp, WorkerPool},
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
    pub caps: &'a BudgetSettings,
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

/// What a call leaves that its journal entry does not tell.
#[derive(Default)]
struct Aside {
    /// It was not made.
    capped: Option<Capped>,
    /// Nor was this one, for others wait for a place before it.
    crowded: bool,
    /// Something was held back for it.
    held: bool,
}

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
        let mut aside = Aside::default();
        let this = Try { key: &key, number: attempt, bytes_a_token };
        let bought = cx.once(&key, |entry| buy(cx, &ask, this, entry.interrupted, &mut aside)).await;
        if let Some(capped) = aside.capped {
            return Err(NoAnswer::Capped(capped));
        }
        if aside.crowded {
            return Err(ask.waits.in_line(cx, (ask.role, ask.spec), pool(cx, &ask)));
        }
        let answered: Answered = bought?;
        if aside.held {
            // Only now that the ledger's row is settled on disk.
            money::follow(cx).await;
        }
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

/// One of several tries at the same answer.
#[derive(Clone, Copy)]
struct Try<'a> {
    key: &'a str,
    number: u32,
    /// What the prompt is taken to have.
    bytes_a_token: u64,
}

async fn buy(
    cx: &Cx,
    ask: &Ask<'_>,
    this: Try<'_>,
    interrupted: bool,
    aside: &mut Aside,
) -> Result<Answered, StepError> {
    let providers = &cx.tools().providers;
    let (provider, model) = providers
        .resolve(ask.spec)
        .map_err(|error| StepError::User(format!("The model `{}` cannot be used: {error}", ask.spec)))?;
    let room = providers.room(&model, ask.system, ask.schema).saturating_mul(this.bytes_a_token);
    let Assembled { text, cut, fits } = ask.prompt.fit(usize::try_from(room).unwrap_or(usize::MAX));
    let prompt = Hash::of_parts([ask.system.as_bytes(), text.as_bytes()]);
    let (run, bytes) = (cx.run().id, text.len());
    let before = if interrupted { cx.booked(this.key).await? } else { None };
    let before = before.filter(was_sent);
    // A call that may have been made is settled by being made again.
    let lacks = provider.lacks().filter(|_| before.is_none());
    let unsent = match (fits, lacks) {
        (true, None) => None,
        (false, _) => {
            tracing::warn!(%run, model = ask.spec, bytes, room, "a prompt does not fit, with all cut that may be");
            Some(FailureKind::TooLong)
        }
        (true, Some(lacks)) => {
            tracing::warn!(%run, role = %ask.role, model = ask.spec, %lacks, "a model cannot be asked");
            Some(FailureKind::Lacking)
        }
    };
    if let Some(kind) = unsent {
        let (served, asked) = (Served::of(&Usage::default()), model.model);
        return Ok(Answered { served, asked, prompt, cut, outcome: Err(Failure { kind, not_before: None }) });
    }
    if provider.crowded(pool(cx, ask)) {
        aside.crowded = true;
        return Err(not_asked("others wait for a place already"));
    }
    let mut call = call(cx, ask, &model, text).await?;
    let Estimate { most, free_way } = provider.estimate(&call);
    let capped = money::hold(cx, ask.caps, (ask.role, this.key), most, before.as_ref()).await?.err();
    if capped.is_some() && !free_way {
        aside.capped = capped;
        return Err(not_asked("not enough is left of the budget"));
    }
    let held = if capped.is_some() { MicroUsd(0) } else { most };
    call.budget = Some(held.0);
    aside.held = held > MicroUsd(0);
    if let Some(before) = before {
        // It was asked, and its answer is not in the journal: it may have been billed, so it stays in the books
        // with all that is known of it.
        let lost = CallRow { status: CallStatus::Lost, ..before };
        cx.book(&format!("{}~lost-{}", this.key, cx.clock().now().0), Record::Call(lost)).await?;
    }
    let row = reserved(ask, &model, prompt, cut.clone(), held);
    cx.record(this.key, Record::Call(row.clone())).await?;
    let result = provider.call(&call, cx.cancelled()).await;
    match result.as_ref().err().map(|error| &error.kind) {
        // Not an answer, so not journalled as one: whoever goes on from here asks again. The row stays reserved,
        // because the call may have been billed, unless it never left the line.
        Some(CallErrorKind::Cancelled) => {
            if result.as_ref().is_err_and(|error| error.usage.attempts == 0 && error.before.is_empty()) {
                book(cx, this.key, row, &result).await?;
            }
            let (why, after) = ("the call was stopped".to_owned(), Duration::from_secs(1));
            return Err(StepError::Later { why, after });
        }
        // The way that costs nothing was no way after all.
        Some(CallErrorKind::OverBudget { .. }) if capped.is_some() => aside.capped = capped,
        _ => {}
    }
    let usage = book(cx, this.key, row, &result).await?;
    if aside.capped.is_some() {
        return Err(not_asked("not enough is left of the budget"));
    }
    let outcome = match &result {
        Ok(reply) => Ok(keep(cx, reply).await?),
        Err(error) => {
            tracing::warn!(%run, provider = provider.name(), kind = ?error.kind, detail = %error.message, "model call failed");
            Err(failure(error, this.number, cx.clock().now()))
        }
    };
    Ok(Answered { served: Served::of(usage), asked: usage.asked.clone(), prompt, cut, outcome })
}

async fn call(cx: &Cx, ask: &Ask<'_>, model: &ModelId, prompt: String) -> Result<Call, StepError> {
    let desk = cx.tools();
    Ok(Call {
        role: ask.role,
        system: ask.system.to_owned(),
        prompt,
        schema: ask.schema.cloned(),
        model: model.model.clone(),
        effort: None,
        deadline: limits::MODEL_CALL,
        budget: None,
        private: desk.is_private(cx).await?,
        not_families: ask.not_families.to_vec(),
        workers: pool(cx, ask),
        facts: ask.facts.clone(),
    })
}

/// Settles the rows of a call: each of what was tried before has its own, since it may have cost something. They are
/// written with the next write, so no answer is kept whose row is not settled. The row may be settled without its answer,
/// when that one cannot be kept and the step is put off.
async fn book<'a>(
    cx: &Cx,
    key: &str,
    row: CallRow,
    result: &'a Result<Reply, CallError>,
) -> Result<&'a Usage, StepError> {
    let (usage, before, error) = match result {
        Ok(reply) => (&reply.usage, &reply.before, None),
        Err(error) => (error.usage.as_ref(), &error.before, Some(&error.kind)),
    };
    for (number, leg) in before.iter().enumerate() {
        let row = settled(row.clone(), &leg.usage, Some(&leg.kind));
        cx.book(&format!("{key}~leg-{number}"), Record::Call(row)).await?;
    }
    cx.book(key, Record::Call(settled(row, usage, error))).await?;
    Ok(usage)
}

/// Ends the `once`, so that nothing is kept of a call that was not made; never seen outside.
fn not_asked(why: &str) -> StepError {
    StepError::Later { why: why.to_owned(), after: Duration::ZERO }
}

/// May anything have come of it that is not in the journal?
fn was_sent(row: &CallRow) -> bool {
    row.status == CallStatus::Reserved || row.attempts > 0
}

fn pool(cx: &Cx, ask: &Ask<'_>) -> WorkerPool {
    cx.tools().settings.models.workers.assigned(ask.labels)
}

async fn keep(cx: &Cx, reply: &Reply) -> Result<Text, StepError> {
    let text = cx.put(reply.text.as_bytes()).await?;
    let value = match &reply.value {
        Some(value) => Some(cx.put(value.to_string().as_bytes()).await?),
        None => None,
    };
    Ok(Text { text, value })
}

fn reserved(ask: &Ask<'_>, model: &ModelId, prompt: Hash, cut: Vec<Cut>, held: MicroUsd) -> CallRow {
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
        held_microusd: Some(held.0).filter(|held| *held > 0),
        elapsed_ms: 0,
        attempts: 0,
        error: None,
    }
}

fn settled(mut row: CallRow, usage: &Usage, error: Option<&CallErrorKind>) -> CallRow {
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
    // Whoever gave up waiting does not know what the other side did meanwhile.
    let unknown = matches!(error, None | Some(CallErrorKind::Timeout { .. }));
    if !usage.billed || usage.cost_microusd.is_some() || !unknown {
        row.held_microusd = None;
    }
    row.elapsed_ms = u64::try_from(usage.elapsed.as_millis()).unwrap_or(u64::MAX);
    row.attempts = usage.attempts;
    row.error = error.map(|kind| format!("{kind:?}"));
    row
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
