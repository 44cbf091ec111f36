//! Language models behind one trait; one back end a file.
//!
//! A back end sends one prompt and judges one answer: what served it, what it cost, and, when there
//! is none, which of a dozen kinds of failure it was. It runs nothing for a model, retries nothing
//! on its own account, and takes no text inside an answer for a signal. What an answer says is for
//! others to read.

mod answer_checks;
mod anthropic;
mod breakers;
mod cassette;
mod checked_provider;
mod claude_cli;
mod fallback;
mod gemini;
mod http;
mod key_check;
mod metrics;
mod model_lists;
pub mod models;
mod native_tools;
mod ollama;
mod openai;
mod opencode;
mod pool;
mod program;
mod routes;
#[cfg(test)]
mod samples;
mod schema;
mod streaming;
mod strict_json;
mod stub;
mod workers;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use breakers::{ActiveCooldown, LastFailure};
pub use cassette::{Cassette, CassetteEntry, CassetteOutcome, read_cassettes};
pub use checked_provider::successor_setting;
pub use gemini::{GeminiKeyState, gemini_key_states as gemini_keys};
pub use key_check::{ApiService, KeyCheck, check_key};
pub use metrics::ModelMetrics;
pub use model_lists::{ListCheck, ModelSetting};
pub use stub::{REHEARSAL, SAMPLE};

use crate::{
    clock::SharedClock,
    config::{
        AnthropicSettings, GeminiKey, GeminiSettings, ModelSettings, Names, OpenAiSettings, ReloadableValue,
        Timeouts, same_secrets,
    },
    documents::{is_invisible, unix_lines},
    limits,
    store::Store,
    types::{Family, MalformedValue, MicroUsd, Timestamp, WorkerPool},
};

/// [`Provider::name`] of what chooses among several models. Who answered is in [`Usage::provider`].
pub const POOL: &str = "pool";

/// On which side of the table a call sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallRole {
    Drafter,
    Reviewer,
    /// At its head: it chooses what is begun, before anything is written.
    Router,
    /// Beside it: it puts a question into words, or answers one. What it says begins nothing.
    Narrator,
}

impl CallRole {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drafter => "drafter",
            Self::Reviewer => "reviewer",
            Self::Router => "router",
            Self::Narrator => "narrator",
        }
    }

    /// Is its answer waited for? Without those of the others the work goes on.
    pub fn is_waited_for(self) -> bool {
        matches!(self, Self::Drafter | Self::Reviewer)
    }
}

impl fmt::Display for CallRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One question to a model.
#[derive(Debug, Clone)]
pub struct ModelCall {
    pub role: CallRole,
    /// Standing instructions.
    pub system: String,
    pub prompt: String,
    /// JSON Schema of the answer; with one, [`ModelReply::value`] is set and fits it.
    pub schema: Option<serde_json::Value>,
    /// Tools that the answer may ask for instead, each with `name`, `description` and the `parameters`' schema: for services
    /// that have a form of their own for that. The prompt tells of them, too. Never with a schema.
    pub tools: Option<serde_json::Value>,
    /// The model's id at this provider: [`ModelId::model`].
    pub model: String,
    /// The time the whole call may take, every leg of it together.
    pub deadline: Duration,
    /// Most tokens of the answer, where the model's own longest is not shorter.
    pub max_output_tokens: u64,
    /// Tokens of the prompt as the service counts them, where it was asked; see [`Provider::count_tokens`].
    pub counted_prompt_tokens: Option<u64>,
    /// Micro-dollars that may be put on a bill for it; none: no limit.
    pub budget: Option<u64>,
    /// Not everybody may read what it is about, so nobody may be sent it who keeps it for other uses.
    pub private: bool,
    /// Families that may not answer, because they had a hand in what it is about.
    pub excluded_families: Vec<Family>,
    /// Other ids that may answer, because the operator lists them for this model. Set where every call passes.
    pub successors: Vec<String>,
    /// Where it belongs if it runs as a program on this machine.
    pub workers: WorkerPool,
    /// Nonce, issue, title …: what scripted answers fill their placeholders from, and what a kept answer
    /// has placeholders for. Real models never see it.
    pub facts: BTreeMap<String, String>,
}

impl ModelCall {
    /// What is sent of the form of its answer.
    fn answer_form(&self) -> Option<&serde_json::Value> {
        self.schema.as_ref().or(self.tools.as_ref())
    }

    /// Whether `served` is the model asked, or one that may answer in its place.
    fn may_be_served_by(&self, served: &str) -> bool {
        models::is_same_model(&self.model, served) || models::is_listed(&self.successors, served)
    }

    /// The most tokens that its prompt can have. No tokenizer makes more of them than a text has bytes.
    fn max_input_tokens(&self) -> u64 {
        let form = self.answer_form().map_or(0, |form| form.to_string().len());
        (self.system.len() + self.prompt.len() + form) as u64 + limits::CHAT_FRAME_TOKENS
    }
}

/// Is everything counted that a call may be billed for?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metering {
    /// No: the service did not say how many tokens it took, or not to the end. What is counted is the least.
    #[default]
    Unknown,
    /// Yes: the service said so, or it surely did nothing.
    Known,
}

/// What a call took, whether it succeeded or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Unknown, unless whoever counts the tokens says otherwise: what is not counted is never taken for nothing.
    #[serde(default)]
    pub metered: Metering,
    /// Tokens of the prompt that came from no cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_written_tokens: u64,
    /// The family of who served it; `None` = unattested. Set where every call passes, as is the cost.
    pub family: Option<Family>,
    /// Micro-dollars by the served model's list price; `None` where there is none.
    pub cost_microusd: Option<u64>,
    /// Bytes of the answer that came before the service said how many tokens they are.
    #[serde(default)]
    pub received: u64,
    /// Likely cost beyond `cost_microusd` of a call that [may cost more](Self::may_cost_more): the prompt and the bytes
    /// received.
    #[serde(default)]
    pub likely_microusd: u64,
    /// Was the cost put on a bill? A subscription's calls have a notional cost.
    pub billed: bool,
    /// Which back end was asked: [`Provider::name`]. Set where every call passes; empty where none was.
    #[serde(default)]
    pub provider: String,
    /// The model's id as asked.
    pub asked: String,
    /// The model's id as the answer gave it; never a usage table's, and the one asked only where the operator attests it.
    pub served: Option<String>,
    /// The model under `[models.successors]` for which the one that served is accepted; `None` where it needs no setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    pub elapsed: Duration,
    /// What it waited for a place before it began; no part of `elapsed`, nor of the call's deadline.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub queued: Duration,
    /// Requests made, retries included.
    pub attempts: u32,
}

impl Usage {
    fn for_model(model: &str) -> Self {
        Self { asked: model.to_owned(), ..Self::default() }
    }

    /// May more of it come on a bill than its cost says?
    pub fn may_cost_more(&self) -> bool {
        let priced = self.cost_microusd.is_some() || (self.prompt_tokens(), self.output_tokens) == (0, 0);
        self.billed && (self.metered == Metering::Unknown || !priced)
    }

    fn prompt_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_written_tokens)
    }
}

/// A model's answer that passed every check a back end can make.
#[derive(Debug, Clone)]
pub struct ModelReply {
    /// Never blank.
    pub text: String,
    /// Set, and fitting the schema, when the call had one.
    pub value: Option<serde_json::Value>,
    /// What the model thought before it answered, where that is told apart; empty where it is not. It is no part of the answer.
    pub thoughts: String,
    pub usage: Usage,
    /// What was tried before this answer came, in order.
    pub earlier_attempts: Vec<CallAttempt>,
}

impl ModelReply {
    fn new(text: String, value: Option<serde_json::Value>, usage: Usage) -> Self {
        Self { text: unix_lines(text), value, thoughts: String::new(), usage, earlier_attempts: Vec::new() }
    }
}

/// One of several back ends that a call was given to, and that had no answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallAttempt {
    pub kind: CallErrorKind,
    /// As [`CallError::message`].
    pub message: String,
    pub usage: Usage,
}

impl CallAttempt {
    fn from_error(error: CallError) -> Self {
        Self { kind: error.kind, message: error.message, usage: *error.usage }
    }

    /// What it may have put on a bill, of the `most` that it could.
    fn max_billed(&self, most: u64) -> u64 {
        let counted = self.usage.cost_microusd.filter(|_| self.usage.billed).unwrap_or(0);
        if self.usage.may_cost_more() { counted.max(most) } else { counted }
    }
}

/// What kind of failure: it decides what the caller does next, the message never does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallErrorKind {
    /// The service is overloaded; try again soon, or elsewhere.
    Capacity,
    /// Too many calls; try again after `reset`.
    RateLimited {
        reset: Option<Duration>,
    },
    /// The account is used up until `reset`, or until someone pays.
    Quota {
        reset: Option<Duration>,
    },
    /// No key or login, or a wrong one.
    Auth,
    /// The model or its maker would not answer this.
    Refused,
    /// The service does not take the request as it is, and would not the next time. `code` is what it calls that:
    /// `INVALID_ARGUMENT`, or the number of its status.
    Rejected {
        code: String,
    },
    /// The service knows no model of that name.
    NoSuchModel,
    /// The program took more memory than its pool allows, in bytes, and was ended.
    ResourceExhausted {
        used: u64,
        limit: u64,
        pool: WorkerPool,
    },
    /// The prompt does not fit.
    TooLong,
    /// It could cost more than the call's budget; nothing was sent.
    OverBudget {
        most_microusd: u64,
    },
    /// The answer was cut at its longest.
    Truncated,
    /// An answer that does not fit the schema.
    InvalidOutput,
    /// An answer without text: the model said nothing, or the service withheld what it happened to recite.
    Empty,
    /// Another model than the one asked answered, or none said who it was.
    WrongModel {
        served: Option<String>,
    },
    /// No answer in time. `idle`: it had begun and stalled.
    Timeout {
        idle: bool,
        elapsed: Duration,
    },
    Cancelled,
    /// The service or program could not be reached or run.
    Unavailable,
}

impl CallErrorKind {
    /// Its name without what it says of this one call.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::RateLimited { .. } => "rate_limited",
            Self::Quota { .. } => "quota",
            Self::Auth => "auth",
            Self::Refused => "refused",
            Self::Rejected { .. } => "rejected",
            Self::NoSuchModel => "no_such_model",
            Self::ResourceExhausted { .. } => "resource_exhausted",
            Self::TooLong => "too_long",
            Self::OverBudget { .. } => "over_budget",
            Self::Truncated => "truncated",
            Self::InvalidOutput => "invalid_output",
            Self::Empty => "empty",
            Self::WrongModel { .. } => "wrong_model",
            Self::Timeout { .. } => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unavailable => "unavailable",
        }
    }

    /// Could somebody else have an answer: another model, or the same one reached in another way? What a model would not
    /// say, or could not say at such length, is not shopped for elsewhere.
    fn another_may_answer(&self) -> bool {
        !matches!(self, Self::Refused | Self::Truncated | Self::Cancelled)
    }
}

/// A call without an answer. It may have cost money all the same.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub kind: CallErrorKind,
    /// For the server's log and never for a thread: it may quote the service. Holds no key.
    pub message: String,
    pub usage: Box<Usage>,
    /// What was tried before, where a call had several chances; this error is the last one's.
    pub earlier_attempts: Vec<CallAttempt>,
}

impl CallError {
    fn new(kind: CallErrorKind, message: impl Into<String>, usage: Usage) -> Self {
        Self { kind, message: message.into(), usage: Box::new(usage), earlier_attempts: Vec::new() }
    }
}

/// What a call may put on a bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    /// At most, by every way together that it may take and that we know the price of.
    pub most: MicroUsd,
    /// The prompt's part of `most`.
    pub input: MicroUsd,
    /// May an answer come that puts nothing on a bill?
    pub may_be_free: bool,
    /// There is a way to be paid for at a price we do not know. With a [budget](ModelCall::budget) it is not taken.
    pub unpriced: bool,
}

impl CostEstimate {
    /// Of no way at all.
    const ZERO: Self = Self { most: MicroUsd(0), input: MicroUsd(0), may_be_free: false, unpriced: false };

    /// With another way; `together` says what both cost.
    fn combine(self, other: Self, together: fn(MicroUsd, MicroUsd) -> MicroUsd) -> Self {
        let (free_way, unpriced) = (self.may_be_free || other.may_be_free, self.unpriced || other.unpriced);
        let (most, input) = (together(self.most, other.most), together(self.input, other.input));
        Self { most, input, may_be_free: free_way, unpriced }
    }
}

/// One route to a model, looked at closely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteState {
    /// [`Provider::name`].
    pub provider: &'static str,
    /// What there is to say of it, if anything; or what is missing, with the fix.
    pub state: Result<String, String>,
}

/// An answer that is waited for.
pub type ReplyFuture<'a> = BoxFuture<'a, Result<ModelReply, CallError>>;

/// A source of answers.
pub trait Provider: Send + Sync {
    /// The word before the colon.
    fn name(&self) -> &'static str;

    /// The back end that stands behind it, which is asked what is not answered here.
    fn behind(&self) -> Option<&dyn Provider> {
        None
    }

    /// Why every call would fail as things stand, with the fix; `None` when nothing is missing that
    /// can be seen without calling.
    fn missing_requirement(&self) -> Option<String> {
        self.behind()?.missing_requirement()
    }

    /// Every route it has to a model. Looks closer than [`Provider::missing_requirement`], and may take seconds.
    fn inspect(&self) -> BoxFuture<'_, Vec<RouteState>> {
        if let Some(behind) = self.behind() {
            return behind.inspect();
        }
        let state = self.missing_requirement().map_or(Ok(String::new()), Err);
        Box::pin(async move { vec![RouteState { provider: self.name(), state }] })
    }

    /// Lets the person at the terminal log in, where that is how it is paid; `false`: they gave up.
    ///
    /// # Errors
    /// A sentence for the terminal: what could not be begun or asked.
    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        self.behind()?.log_in()
    }

    /// Is what a call takes put on a bill?
    fn is_billed(&self) -> bool;

    /// Tells accounts of one provider apart, where a key says which it is: a hash of the key.
    fn account(&self) -> Option<String> {
        self.behind()?.account()
    }

    /// What this call may cost. What is held back for a call and what keeps it from being sent both come from here.
    fn estimate(&self, _call: &ModelCall) -> CostEstimate {
        CostEstimate {
            may_be_free: !self.is_billed() && self.missing_requirement().is_none(),
            ..CostEstimate::ZERO
        }
    }

    /// Asks the service how many tokens the prompt has, where that is free; `None` where it cannot say.
    fn count_tokens<'a>(&'a self, _call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        Box::pin(std::future::ready(None))
    }

    /// Would a call of that kind of run stand in line before it begins? Whoever can had better come again later.
    fn would_queue(&self, pool: WorkerPool) -> bool {
        self.behind().is_some_and(|behind| behind.would_queue(pool))
    }

    /// Asks once. Ends within the call's deadline (and a moment to clean up) of when it begins: what it waits for a place
    /// before that is [`Usage::queued`].
    ///
    /// # Errors
    /// A [`CallError`]: its kind says what can be done about it, its usage what the attempt took.
    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a>;
}

/// A model, resolved from `provider:model` or a name for one; or a pool of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    pub provider: String,
    /// The id to ask for.
    pub model: String,
    /// None: a pool's, whose models may be of several.
    pub family: Option<Family>,
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

/// A `provider:model` that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("{0}")]
    Unknown(MalformedValue),
    #[error(
        "drafter {drafter} and reviewer {reviewer} are both of the {family} family; \
         choose a reviewer of another, such as gemini:pro beside claude:opus"
    )]
    SameFamily { drafter: String, reviewer: String, family: Family },
    #[error(
        "[roles]: tests, code and what mends it become one change, which models of {families} write; {reviewer} has no model \
         of another family to review it. Choose one, or let one family write all of it"
    )]
    NobodyReviews { families: String, reviewer: String },
    #[error("{0}")]
    Name(String),
    #[error("{spec} can't be the {role}: {why}")]
    Unfit { spec: String, role: CallRole, why: &'static str },
    #[error(
        "OpenCode does not say which model answers, so no review of its drafts counts; set attest_opencode = true under \
         [models] if you answer for it"
    )]
    Unattested,
    #[error("no model of pool:{pool} can be used: {why}")]
    EmptyPool { pool: String, why: String },
    #[error("the script of scripted answers can't be used: {0}")]
    Script(String),
    #[error(
        "{provider} serves the models that the settings list, and {name} is none of them; add (with its own figures)\n\n\
         [[model]]\nid = \"{name}\"\nproviders = [\"{provider}\"]\nfamily = \"qwen\"\ncontext = 40960\nmax_output = 8192"
    )]
    NotListed { provider: String, name: String },
    #[error(
        "successors: nobody knows the family and the price of {id}, which may answer for {asked}; add a [[model]] with them"
    )]
    Successor { asked: String, id: String },
    #[error("the folder of cassettes {0}")]
    Cassettes(String),
    #[error("no client for HTTPS could be made: {0}")]
    Client(String),
}

impl ResolveError {
    fn unknown(spec: &str) -> Self {
        Self::Unknown(MalformedValue {
            value: spec.chars().take(80).collect(),
            expected: "a model we know; `countersign models` lists them, and a [[model]] table in the settings adds one",
        })
    }
}

/// Whether a model that the settings name can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReadiness {
    /// "drafter", "reviewer", or the role that has a model of its own.
    pub role: String,
    pub spec: String,
    /// What is missing, with the fix; for the operator's eyes.
    pub lacks: Option<String>,
}

/// What holds the keys of the APIs, shared with their back ends.
struct ProviderKeys {
    anthropic: ReloadableValue<AnthropicSettings>,
    gemini: ReloadableValue<GeminiSettings>,
    openai: ReloadableValue<OpenAiSettings>,
}

/// Every back end there is.
pub struct ModelProviders {
    table: Arc<models::ModelCatalog>,
    claude: Arc<dyn Provider>,
    anthropic: Arc<dyn Provider>,
    gemini: Arc<dyn Provider>,
    ollama: Arc<dyn Provider>,
    openai: Arc<dyn Provider>,
    opencode: Arc<dyn Provider>,
    stub: Arc<dyn Provider>,
    workers: Arc<workers::WorkerSlots>,
    counted: Arc<ModelMetrics>,
    breakers: Arc<breakers::CircuitBreakers>,
    keys: ProviderKeys,
    names: Names,
    pools: BTreeMap<String, Arc<pool::ModelPool>>,
    gemini_drafts: bool,
    attest_opencode: bool,
    timeouts: Timeouts,
}

impl ModelProviders {
    /// Starts nothing and calls nobody; an unusable script is an error here, a missing key is one at
    /// the call (see [`Provider::missing_requirement`]).
    pub fn new(settings: &ModelSettings, clock: SharedClock) -> Result<Self, ResolveError> {
        Self::build(settings, None, clock)
    }

    /// The same, and what they learn about who can be asked outlives them.
    pub fn with_store(
        settings: &ModelSettings,
        store: Arc<Store>,
        clock: SharedClock,
    ) -> Result<Self, ResolveError> {
        Self::build(settings, Some(store), clock)
    }

    fn build(
        settings: &ModelSettings,
        store: Option<Arc<Store>>,
        clock: SharedClock,
    ) -> Result<Self, ResolveError> {
        let table = Arc::new(models::ModelCatalog::from_settings(settings));
        let clients = http::HttpClients::new()?;
        let library = settings
            .cassettes
            .as_ref()
            .map(|given| cassette::CassetteLibrary::open(given, settings.secrets()));
        let library = library.transpose()?;
        let breakers = Arc::new(breakers::CircuitBreakers::with_store(store.clone()));
        let counted = Arc::<ModelMetrics>::default();
        let checked = |back_end: Arc<dyn Provider>| {
            let back_end = match &library {
                Some(library) => library.wrap(back_end),
                None => back_end,
            };
            checked_provider::CheckedProvider::wrap(back_end, &table, &breakers, &counted, &clock)
        };
        let keys = ProviderKeys {
            anthropic: ReloadableValue::new(settings.anthropic.clone()),
            gemini: ReloadableValue::new(settings.gemini.clone()),
            openai: ReloadableValue::new(settings.openai.clone()),
        };
        let workers = workers::WorkerSlots::new(settings.workers.clone(), Arc::clone(&clock));
        let program = checked(Arc::new(claude_cli::ClaudeCliProvider::new(
            settings.claude.clone(),
            settings.ours.clone(),
            Arc::clone(&workers),
            Arc::clone(&clock),
        )));
        let anthropic = checked(Arc::new(anthropic::AnthropicProvider::new(
            keys.anthropic.clone(),
            &clients,
            Arc::clone(&table),
            Arc::clone(&clock),
        )));
        let legs = [
            fallback::FallbackLeg { back_end: program, limit: settings.timeouts.first_leg },
            fallback::FallbackLeg { back_end: Arc::clone(&anthropic), limit: settings.timeouts.second_leg },
        ];
        let claude =
            Arc::new(fallback::FallbackProvider::new(legs, Arc::clone(&breakers), Arc::clone(&clock)));
        let (ollama, openai) = (settings.ollama.clone(), keys.openai.clone());
        let mut all = Self {
            claude,
            anthropic,
            gemini: checked(Arc::new(gemini::GeminiProvider::new(
                keys.gemini.clone(),
                &clients,
                Arc::clone(&table),
                store,
                Arc::clone(&clock),
            ))),
            ollama: checked(Arc::new(ollama::OllamaProvider::new(ollama, &clients, &table, &clock))),
            openai: checked(Arc::new(openai::OpenAiProvider::new(openai, &clients, &table, &clock))),
            opencode: checked(Arc::new(opencode::OpenCodeProvider::new(
                settings.opencode.clone(),
                settings.ours.clone(),
                settings.attest_opencode,
                Arc::clone(&workers),
                &table,
                &clock,
            ))),
            stub: checked(Arc::new(stub::StubProvider::new(&settings.stub, Arc::clone(&clock))?)),
            workers,
            counted,
            breakers: Arc::clone(&breakers),
            keys,
            names: settings.names.clone(),
            pools: BTreeMap::new(),
            gemini_drafts: settings.gemini.drafts,
            attest_opencode: settings.attest_opencode,
            timeouts: settings.timeouts,
            table,
        };
        all.pools = all.build_pools(&breakers, &clock);
        Ok(all)
    }

    /// Takes the keys of these settings from the next call on, and names whose changed. A key goes to the address that it
    /// was given for, and addresses hold until a restart.
    pub fn reload_keys(&self, new: &ModelSettings) -> Vec<&'static str> {
        self.breakers.forget_substitutes();
        let ProviderKeys { anthropic, gemini, openai } = &self.keys;
        let mut changed = Vec::new();
        let old = anthropic.get();
        if old.base_url == new.anthropic.base_url && !same_secrets(&old.api_key, &new.anthropic.api_key) {
            anthropic.set(new.anthropic.clone());
            changed.push("ANTHROPIC_API_KEY");
        }
        let old = openai.get();
        if old.base_url == new.openai.base_url && !same_secrets(&old.api_key, &new.openai.api_key) {
            openai.set(new.openai.clone());
            changed.push("OPENAI_API_KEY");
        }
        let old = gemini.get();
        if old.base_url == new.gemini.base_url && !same_keys(&old.keys, &new.gemini.keys) {
            gemini.set(GeminiSettings { keys: new.gemini.keys.clone(), ..GeminiSettings::clone(&old) });
            changed.push("GEMINI_API_KEY");
        }
        changed
    }

    /// Gemini's keys as they are since the last reload.
    pub fn gemini_settings(&self) -> Arc<GeminiSettings> {
        self.keys.gemini.get()
    }

    /// The names of the other keys that there are.
    pub fn other_key_names(&self) -> Vec<&'static str> {
        let ProviderKeys { anthropic, openai, .. } = &self.keys;
        let keys = [
            ("ANTHROPIC_API_KEY", anthropic.get().api_key.is_some()),
            ("OPENAI_API_KEY", openai.get().api_key.is_some()),
        ];
        keys.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }

    /// Does it matter to a key in use whether a repository is private?
    pub fn depends_on_privacy(&self) -> bool {
        self.keys.gemini.get().depends_on_privacy()
    }

    /// The back end that is a program one logs in to.
    pub fn login_program(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        [&self.claude, &self.opencode].into_iter().find(|back_end| back_end.name() == name)
    }

    pub fn metrics(&self) -> &ModelMetrics {
        &self.counted
    }

    pub fn model_catalog(&self) -> &models::ModelCatalog {
        &self.table
    }

    /// Whether those whose answers runs wait for can be asked.
    pub fn readiness(&self, settings: &ModelSettings) -> Vec<ModelReadiness> {
        let all = settings.drafters().chain([("reviewer", &settings.reviewer)]);
        let of = |(role, spec): (&str, &String)| {
            let lacks = self.missing_requirement(spec);
            ModelReadiness { role: role.to_owned(), spec: spec.clone(), lacks }
        };
        all.map(of).collect()
    }

    /// What is left alone now, and until when.
    pub async fn active_cooldowns(&self, now: Timestamp) -> Vec<ActiveCooldown> {
        self.breakers.active_cooldowns(now).await
    }

    /// How each model failed last, since the server started.
    pub fn last_failures(&self) -> Vec<LastFailure> {
        self.breakers.last_failures()
    }

    /// Begins no program any more; a call that waits for its place ends as cancelled.
    pub fn close(&self) {
        self.workers.close();
    }

    /// Would a call to this model stand in line?
    pub fn would_queue(&self, spec: &str, pool: WorkerPool) -> bool {
        self.resolve(spec).is_ok_and(|(provider, _)| provider.would_queue(pool))
    }

    /// What keeps this model from being asked, as far as that can be seen without asking; for the operator's eyes.
    pub fn missing_requirement(&self, spec: &str) -> Option<String> {
        match self.resolve(spec) {
            Ok((provider, _)) => provider.missing_requirement(),
            Err(error) => Some(error.to_string()),
        }
    }
}

fn same_keys(some: &[GeminiKey], others: &[GeminiKey]) -> bool {
    let named = |key: &GeminiKey| (key.name.clone(), key.project.clone(), key.tier);
    some.iter().map(named).eq(others.iter().map(named))
        && same_secrets(some.iter().map(|key| &key.secret), others.iter().map(|key| &key.secret))
}

/// Text of a service for our log: one line, bounded, and all of it to be seen.
fn quote_text(text: &str) -> String {
    single_line(text, 300)
}

fn single_line(text: &str, longest: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let seen = |c: &char| !c.is_control() && !is_invisible(*c);
    let mut line: String = line.chars().filter(seen).take(longest + 1).collect();
    if let Some((end, _)) = line.char_indices().nth(longest) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_is_one_short_line_that_no_terminal_obeys() {
        assert_eq!(quote_text("no\n\tway \u{1b}]0;owned\u{7}\0\u{9b}2J"), "no way ]0;owned2J");
        assert_eq!(quote_text(&"x ".repeat(1_000_000)).chars().count(), 301);
    }

    #[test]
    fn a_pair_of_one_family_is_refused() {
        let settings = ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
        let providers = ModelProviders::new(&settings, Arc::new(crate::clock::SystemClock)).unwrap();
        assert!(providers.check_pair("claude:opus", "gemini:pro").is_ok());
        assert!(providers.check_pair("stub:drafter", "stub:reviewer").is_ok());
        let error = providers.check_pair("claude:opus", "claude:sonnet").unwrap_err();
        assert!(error.to_string().contains("both of the claude family"), "{error}");
        let error = providers.check_pair("claude:opus", "gemini:ultra").unwrap_err();
        assert!(error.to_string().starts_with("`gemini:ultra` is not a model we know"), "{error}");
    }
}
