//! Language models behind one trait, with one back end per file.
//!
//! A back end sends one prompt and checks one response. It reports the serving model and the cost, or one of a dozen
//! kinds of failure. It executes nothing on behalf of a model and does not retry on its own. Only its callers interpret
//! the text of a response.

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

/// [`Provider::name`] of every pool. [`Usage::provider`] names the back end that answered instead.
pub const POOL: &str = "pool";

/// Role of the model in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallRole {
    Drafter,
    Reviewer,
    /// Chooses the workflow for a request, before any document or code is written.
    Router,
    /// Answers questions about the code and plans searches. Its response never starts a run.
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

    /// Whether runs wait for the response of this role. Work continues without a response of the other roles.
    pub fn is_waited_for(self) -> bool {
        matches!(self, Self::Drafter | Self::Reviewer)
    }
}

impl fmt::Display for CallRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One request to a model.
#[derive(Debug, Clone)]
pub struct ModelCall {
    pub role: CallRole,
    /// System prompt.
    pub system: String,
    pub prompt: String,
    /// JSON Schema of the response. If set, [`ModelReply::value`] is set and conforms to the schema.
    pub schema: Option<serde_json::Value>,
    /// Tools that the response may request, each with `name`, `description` and the schema of its `parameters`. They
    /// are sent only to services with native tool calls; the prompt also describes the tools. Never set together with a
    /// schema.
    pub tools: Option<serde_json::Value>,
    /// Model id in the provider's spelling, from [`ModelId::model`].
    pub model: String,
    /// Maximum time of the whole call, over all routes and retries.
    pub deadline: Duration,
    /// Maximum output tokens. If the model's own limit is lower, that limit applies.
    pub max_output_tokens: u64,
    /// Number of prompt tokens according to the service. `None` if the service did not count them; see
    /// [`Provider::count_tokens`].
    pub counted_prompt_tokens: Option<u64>,
    /// Maximum billed cost in micro-dollars. `None` if the cost is not limited.
    pub budget: Option<u64>,
    /// Whether the content is private. Private content must not be sent to services that may use prompts for other
    /// purposes.
    pub private: bool,
    /// Model families that may not answer, because they contributed to the content.
    pub excluded_families: Vec<Family>,
    /// Ids of other models that the operator accepts in place of the requested model. Set by `CheckedProvider`.
    pub successors: Vec<String>,
    /// Worker pool whose slots limit the call, if the call runs a program on this machine.
    pub workers: WorkerPool,
    /// Values for placeholders in scripted and recorded responses, such as the nonce, the issue and the title. They are
    /// never sent to real models.
    pub facts: BTreeMap<String, String>,
}

impl ModelCall {
    /// Returns the schema or the tools that are sent with the prompt.
    fn answer_form(&self) -> Option<&serde_json::Value> {
        self.schema.as_ref().or(self.tools.as_ref())
    }

    /// Whether `served` is the requested model or an accepted successor.
    fn may_be_served_by(&self, served: &str) -> bool {
        models::is_same_model(&self.model, served) || models::is_listed(&self.successors, served)
    }

    /// Returns an upper bound for the tokens of the system prompt, prompt and schema: their length in bytes, because
    /// every token has at least one byte.
    fn max_input_tokens(&self) -> u64 {
        let form = self.answer_form().map_or(0, |form| form.to_string().len());
        (self.system.len() + self.prompt.len() + form) as u64 + limits::CHAT_FRAME_TOKENS
    }
}

/// Whether a call's usage covers everything that may be billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metering {
    /// The service reported no token counts, or incomplete ones. The recorded usage is a lower bound.
    #[default]
    Unknown,
    /// The service reported all token counts, or certainly did no work.
    Known,
}

/// Tokens, cost and time of a call, successful or not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Whether the token counts are complete. Defaults to unknown, so that uncounted tokens are never treated as free.
    #[serde(default)]
    pub metered: Metering,
    /// Prompt tokens that were not read from or written to a cache.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_written_tokens: u64,
    /// Family of the serving model. `None` if no response names the model. Set by `CheckedProvider`, which also sets
    /// the cost.
    pub family: Option<Family>,
    /// Cost in micro-dollars at the list price of the serving model; `None` if the price is unknown.
    pub cost_microusd: Option<u64>,
    /// Number of bytes of the response that were received without token counts.
    #[serde(default)]
    pub received: u64,
    /// Likely cost in addition to `cost_microusd`, for the prompt and the bytes received. Set if the call [may cost
    /// more](Self::may_cost_more) than recorded.
    #[serde(default)]
    pub likely_microusd: u64,
    /// Whether the cost is billed. Calls of a subscription are not billed; their cost is only notional.
    pub billed: bool,
    /// [`Provider::name`] of the back end that was called. Empty if no back end was called. Set by `CheckedProvider`.
    #[serde(default)]
    pub provider: String,
    /// Id of the requested model.
    pub asked: String,
    /// Model id reported in the response itself; ids in usage tables do not count. The requested id is used instead
    /// only if the operator has confirmed that the provider calls the requested model.
    pub served: Option<String>,
    /// Key in `[models.successors]` under which the serving model is accepted. `None` if the requested model itself
    /// answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_by: Option<String>,
    pub elapsed: Duration,
    /// Time spent waiting for a worker slot. It is not included in `elapsed` and does not count towards the call's
    /// deadline.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub queued: Duration,
    /// Number of requests, including retries.
    pub attempts: u32,
}

impl Usage {
    fn for_model(model: &str) -> Self {
        Self { asked: model.to_owned(), ..Self::default() }
    }

    /// Whether the bill may be higher than the recorded cost.
    pub fn may_cost_more(&self) -> bool {
        let priced = self.cost_microusd.is_some() || (self.prompt_tokens(), self.output_tokens) == (0, 0);
        self.billed && (self.metered == Metering::Unknown || !priced)
    }

    fn prompt_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_written_tokens)
    }
}

/// A response that passed all checks of a back end.
#[derive(Debug, Clone)]
pub struct ModelReply {
    /// Text of the response; never blank.
    pub text: String,
    /// Parsed response that conforms to the call's schema. `None` if the call had no schema.
    pub value: Option<serde_json::Value>,
    /// The model's thoughts, if the service returns them separately. They are not part of the response's text.
    pub thoughts: String,
    pub usage: Usage,
    /// Failed attempts before this response, in order.
    pub earlier_attempts: Vec<CallAttempt>,
}

impl ModelReply {
    fn new(text: String, value: Option<serde_json::Value>, usage: Usage) -> Self {
        Self { text: unix_lines(text), value, thoughts: String::new(), usage, earlier_attempts: Vec::new() }
    }
}

/// A failed attempt of one back end within a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallAttempt {
    pub kind: CallErrorKind,
    /// Message with the same text as [`CallError::message`].
    pub message: String,
    pub usage: Usage,
}

impl CallAttempt {
    fn from_error(error: CallError) -> Self {
        Self { kind: error.kind, message: error.message, usage: *error.usage }
    }

    /// Returns the maximum amount that this attempt may have billed. `most` is the estimated maximum of the whole call.
    fn max_billed(&self, most: u64) -> u64 {
        let counted = self.usage.cost_microusd.filter(|_| self.usage.billed).unwrap_or(0);
        if self.usage.may_cost_more() { counted.max(most) } else { counted }
    }
}

/// Kind of a failure. Callers base decisions on the kind, never on the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallErrorKind {
    /// The service is overloaded; retry soon or with another model.
    Capacity,
    /// The model is rate limited; retry after `reset`.
    RateLimited {
        reset: Option<Duration>,
    },
    /// The account's quota is exhausted until `reset`, or until someone buys more.
    Quota {
        reset: Option<Duration>,
    },
    /// The key or login is missing or invalid.
    Auth,
    /// The model or its vendor refused to answer.
    Refused,
    /// The service rejects the request permanently. `code` is the service's error code, such as `INVALID_ARGUMENT`, or
    /// the HTTP status.
    Rejected {
        code: String,
    },
    /// The service does not know the model.
    NoSuchModel,
    /// The program was killed because it exceeded the memory limit of its worker pool. `used` and `limit` are in bytes.
    ResourceExhausted {
        used: u64,
        limit: u64,
        pool: WorkerPool,
    },
    /// The prompt exceeds the context window.
    TooLong,
    /// The call was not sent, because its maximum cost exceeds its budget.
    OverBudget {
        most_microusd: u64,
    },
    /// The response was truncated at its token limit.
    Truncated,
    /// The response does not conform to the schema.
    InvalidOutput,
    /// The response has no text: the model sent none, or the service withheld it as a recitation.
    Empty,
    /// Another model than the requested one answered, or the response names no model.
    WrongModel {
        served: Option<String>,
    },
    /// No complete response arrived in time. `idle` is true if the response had started and then stalled.
    Timeout {
        idle: bool,
        elapsed: Duration,
    },
    Cancelled,
    /// The service could not be reached, or the program could not be run.
    Unavailable,
}

impl CallErrorKind {
    /// Returns the name of the kind, without details of this call.
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

    /// Whether another model or route may succeed after this failure. A refused or truncated response is not retried
    /// with another model.
    fn another_may_answer(&self) -> bool {
        !matches!(self, Self::Refused | Self::Truncated | Self::Cancelled)
    }
}

/// Error of a call that returned no response. The call may still have cost money.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    pub kind: CallErrorKind,
    /// Message for the server's log. It is never posted in a thread, because it may quote the service. Contains no key.
    pub message: String,
    pub usage: Box<Usage>,
    /// Earlier failed attempts. The last attempt is not included, because this error itself describes it.
    pub earlier_attempts: Vec<CallAttempt>,
}

impl CallError {
    fn new(kind: CallErrorKind, message: impl Into<String>, usage: Usage) -> Self {
        Self { kind, message: message.into(), usage: Box::new(usage), earlier_attempts: Vec::new() }
    }
}

/// Estimated cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostEstimate {
    /// Maximum cost of the call over all routes whose price is known.
    pub most: MicroUsd,
    /// Part of `most` that is charged for the prompt.
    pub input: MicroUsd,
    /// Whether a route that bills nothing may answer the call.
    pub may_be_free: bool,
    /// Whether the price of a route is unknown. Such a route is skipped if the call has a [budget](ModelCall::budget).
    pub unpriced: bool,
}

impl CostEstimate {
    const ZERO: Self = Self { most: MicroUsd(0), input: MicroUsd(0), may_be_free: false, unpriced: false };

    /// Combines the estimates of two routes. `together` computes the combined cost, for example the sum or the maximum.
    fn combine(self, other: Self, together: fn(MicroUsd, MicroUsd) -> MicroUsd) -> Self {
        let (free_way, unpriced) = (self.may_be_free || other.may_be_free, self.unpriced || other.unpriced);
        let (most, input) = (together(self.most, other.most), together(self.input, other.input));
        Self { most, input, may_be_free: free_way, unpriced }
    }
}

/// State of one route to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteState {
    /// [`Provider::name`] of the route's back end.
    pub provider: &'static str,
    /// Description of the route, possibly empty. The error names the missing requirement and how to fix it.
    pub state: Result<String, String>,
}

/// Future that resolves to the result of a call.
pub type ReplyFuture<'a> = BoxFuture<'a, Result<ModelReply, CallError>>;

/// A back end, or a chain of back ends, that models can be called through.
pub trait Provider: Send + Sync {
    /// Provider name, the part of `provider:model` before the colon.
    fn name(&self) -> &'static str;

    /// The wrapped back end, to which the default methods delegate.
    fn behind(&self) -> Option<&dyn Provider> {
        None
    }

    /// Returns the reason why every call would fail at present, and how to fix it. `None` if no missing requirement can
    /// be detected without a call.
    fn missing_requirement(&self) -> Option<String> {
        self.behind()?.missing_requirement()
    }

    /// Checks every route to a model. The check is more thorough than [`Provider::missing_requirement`] and may take
    /// seconds.
    fn inspect(&self) -> BoxFuture<'_, Vec<RouteState>> {
        if let Some(behind) = self.behind() {
            return behind.inspect();
        }
        let state = self.missing_requirement().map_or(Ok(String::new()), Err);
        Box::pin(async move { vec![RouteState { provider: self.name(), state }] })
    }

    /// Lets the person at the terminal log in. `None` if the provider uses no login. The future resolves to `false` if
    /// the person gave up.
    ///
    /// # Errors
    /// A sentence for the terminal that says what failed.
    fn log_in(&self) -> Option<BoxFuture<'_, Result<bool, String>>> {
        self.behind()?.log_in()
    }

    /// Whether calls are billed.
    fn is_billed(&self) -> bool;

    /// Returns a hash of the account's key, which identifies the account. `None` if the provider has no key.
    fn account(&self) -> Option<String> {
        self.behind()?.account()
    }

    /// Estimates the call's cost. The estimate is used for the reservation and for the budget check.
    fn estimate(&self, _call: &ModelCall) -> CostEstimate {
        CostEstimate {
            may_be_free: !self.is_billed() && self.missing_requirement().is_none(),
            ..CostEstimate::ZERO
        }
    }

    /// Requests the prompt's token count from the service, if such a request is free. Returns `None` if the count is
    /// unknown.
    fn count_tokens<'a>(&'a self, _call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        Box::pin(std::future::ready(None))
    }

    /// Whether a call in this worker pool would have to wait for a slot. If so, callers should retry later.
    fn would_queue(&self, pool: WorkerPool) -> bool {
        self.behind().is_some_and(|behind| behind.would_queue(pool))
    }

    /// Makes one call. The call ends within its deadline, plus a moment of cleanup. Time spent waiting in a queue is
    /// not included; it is recorded in [`Usage::queued`].
    ///
    /// # Errors
    /// A [`CallError`]. Its kind determines how to react, and its usage covers the failed attempt.
    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a>;
}

/// A model or a pool, resolved from the settings' `provider:model` or name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    pub provider: String,
    /// Model id to request.
    pub model: String,
    /// Family of the model. `None` for a pool, whose models may belong to several families.
    pub family: Option<Family>,
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.model)
    }
}

/// Error for a model name in the settings that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("{0}")]
    Unknown(MalformedValue),
    #[error(
        "drafter {drafter} and reviewer {reviewer} are both of the {family} family; \
         choose a reviewer of another family, such as gemini:pro with claude:opus"
    )]
    SameFamily { drafter: String, reviewer: String, family: Family },
    #[error(
        "[roles]: models of {families} write the tests, code and fixes of one change, but {reviewer} has no model \
         of another family to review it. Choose another reviewer, or let one family write everything"
    )]
    NobodyReviews { families: String, reviewer: String },
    #[error("{0}")]
    Name(String),
    #[error("{spec} can't be the {role}: {why}")]
    Unfit { spec: String, role: CallRole, why: &'static str },
    #[error(
        "OpenCode does not report which model answers, so no review of its drafts counts; set attest_opencode = true under \
         [models] if you can vouch for it"
    )]
    Unattested,
    #[error("no model of pool:{pool} can be used: {why}")]
    EmptyPool { pool: String, why: String },
    #[error("the script of scripted answers can't be used: {0}")]
    Script(String),
    #[error(
        "{provider} serves only models that the settings list, and {name} is not listed; add it with its own figures:\n\n\
         [[model]]\nid = \"{name}\"\nproviders = [\"{provider}\"]\nfamily = \"qwen\"\ncontext = 40960\nmax_output = 8192"
    )]
    NotListed { provider: String, name: String },
    #[error(
        "successors: the family and price of {id}, which may answer for {asked}, are unknown; add a [[model]] with them"
    )]
    Successor { asked: String, id: String },
    #[error("the cassette folder {0}")]
    Cassettes(String),
    #[error("could not create an HTTPS client: {0}")]
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

/// Readiness of a model that the settings name: whether calls to it are possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReadiness {
    /// "drafter", "reviewer", or the role for which the settings name a separate model.
    pub role: String,
    pub spec: String,
    /// The missing requirement and how to fix it; shown to the operator only. `None` if nothing is missing.
    pub lacks: Option<String>,
}

/// API keys, shared with the back ends that use them.
struct ProviderKeys {
    anthropic: ReloadableValue<AnthropicSettings>,
    gemini: ReloadableValue<GeminiSettings>,
    openai: ReloadableValue<OpenAiSettings>,
}

/// All back ends.
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
    /// Builds the back ends without starting or calling anything. An invalid script is an error here. A missing key
    /// causes an error only at the call (see [`Provider::missing_requirement`]).
    pub fn new(settings: &ModelSettings, clock: SharedClock) -> Result<Self, ResolveError> {
        Self::build(settings, None, clock)
    }

    /// Builds the back ends like [`ModelProviders::new`], and keeps cooldowns and outages in `store`.
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

    /// Replaces the API keys for all calls from now on, and returns the names of the changed keys. If the settings
    /// change the address of a service, the service keeps its old address and key until a restart.
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

    /// Returns Gemini's settings, with the keys of the last reload.
    pub fn gemini_settings(&self) -> Arc<GeminiSettings> {
        self.keys.gemini.get()
    }

    /// Returns the names of the keys that are set, except Gemini's keys.
    pub fn other_key_names(&self) -> Vec<&'static str> {
        let ProviderKeys { anthropic, openai, .. } = &self.keys;
        let keys = [
            ("ANTHROPIC_API_KEY", anthropic.get().api_key.is_some()),
            ("OPENAI_API_KEY", openai.get().api_key.is_some()),
        ];
        keys.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
    }

    /// Whether any key in use may be used only for public repositories.
    pub fn depends_on_privacy(&self) -> bool {
        self.keys.gemini.get().depends_on_privacy()
    }

    /// Returns the back end with this name if it runs a program that has a login, otherwise `None`.
    pub fn login_program(&self, name: &str) -> Option<&Arc<dyn Provider>> {
        [&self.claude, &self.opencode].into_iter().find(|back_end| back_end.name() == name)
    }

    pub fn metrics(&self) -> &ModelMetrics {
        &self.counted
    }

    pub fn model_catalog(&self) -> &models::ModelCatalog {
        &self.table
    }

    /// Returns the readiness of the models on whose responses runs wait: the drafters and the reviewer.
    pub fn readiness(&self, settings: &ModelSettings) -> Vec<ModelReadiness> {
        let all = settings.drafters().chain([("reviewer", &settings.reviewer)]);
        let of = |(role, spec): (&str, &String)| {
            let lacks = self.missing_requirement(spec);
            ModelReadiness { role: role.to_owned(), spec: spec.clone(), lacks }
        };
        all.map(of).collect()
    }

    /// Returns the accounts, models and routes that are in cooldown now, each with the time at which its cooldown ends.
    pub async fn active_cooldowns(&self, now: Timestamp) -> Vec<ActiveCooldown> {
        self.breakers.active_cooldowns(now).await
    }

    /// Returns the last failure of each model since the server started.
    pub fn last_failures(&self) -> Vec<LastFailure> {
        self.breakers.last_failures()
    }

    /// Prevents further programs from being started. Calls that wait for a slot end as cancelled.
    pub fn close(&self) {
        self.workers.close();
    }

    /// Whether a call to this model would have to queue.
    pub fn would_queue(&self, spec: &str, pool: WorkerPool) -> bool {
        self.resolve(spec).is_ok_and(|(provider, _)| provider.would_queue(pool))
    }

    /// Returns the missing requirement of this model, if one can be detected without a call. The text is for the
    /// operator only.
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

/// Shortens a service's message to one line of visible characters, for our log.
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
    fn quoted_text_is_one_short_line_without_control_characters() {
        assert_eq!(quote_text("no\n\tway \u{1b}]0;owned\u{7}\0\u{9b}2J"), "no way ]0;owned2J");
        assert_eq!(quote_text(&"x ".repeat(1_000_000)).chars().count(), 301);
    }

    #[test]
    fn drafter_and_reviewer_of_the_same_model_family_are_refused() {
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
