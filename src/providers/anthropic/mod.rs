//! Claude through Anthropic's Messages API: one streamed HTTPS request per call, billed by the token.
//!
//! The first event names the serving model, and an event near the end gives the stop reason. A response that lacks
//! either is incomplete. The API key comes from `.env`, is sent in a header, and appears in no error or log.

mod stream;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

use self::stream::{StreamedMessage, failure_kind};
use super::{
    CallError, CallErrorKind, ModelCall, ModelReply, Provider, ReplyFuture, Usage, answer_checks,
    http::{self, CallFault},
    models::ModelCatalog,
    native_tools,
    streaming::{SseEvents, run_bounded},
};
use crate::{
    clock::SharedClock,
    config::{AnthropicSettings, ReloadableValue},
};

/// Maximum number of output tokens requested from a model that is not in the model table.
const MODEL_OUTPUT: u64 = 32_000;

/// API version whose events this module parses.
pub(super) const VERSION: &str = "2023-06-01";

const NO_KEY: &str = "there is no ANTHROPIC_API_KEY in the .env file; add one \
                      (https://console.anthropic.com/settings/keys)";

pub(super) struct AnthropicProvider {
    settings: ReloadableValue<AnthropicSettings>,
    client: reqwest::Client,
    table: Arc<ModelCatalog>,
    clock: SharedClock,
}

impl AnthropicProvider {
    pub(super) fn new(
        settings: ReloadableValue<AnthropicSettings>,
        clients: &http::HttpClients,
        table: Arc<ModelCatalog>,
        clock: SharedClock,
    ) -> Self {
        let client = clients.for_url(&settings.get().base_url);
        Self { settings, client, table, clock }
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let mut usage = Usage::for_model(&call.model);
        let settings = self.settings.get();
        let Some(key) = &settings.api_key else {
            return Err(CallError::new(CallErrorKind::Auth, NO_KEY, usage));
        };
        let started = self.clock.now();
        let mut message = StreamedMessage::default();
        // Usage counts even if the exchange fails.
        let exchange = self.exchange(call, &settings.base_url, key, &mut message, &mut usage);
        let exchange = run_bounded(exchange, call, cancel, &self.clock).await;
        usage.billed = true;
        usage.elapsed = self.clock.now().since(started);
        message.record_usage(&mut usage);
        match exchange.and_then(|()| judge_message(call, &message)) {
            Ok((text, value)) => {
                Ok(ModelReply { thoughts: message.thoughts, ..ModelReply::new(text, value, usage) })
            }
            Err(CallFault(kind, mut why)) => {
                if let Some(head) = &message.head {
                    why = head.with_request_id(why);
                }
                Err(CallFault(kind, why).into_call_error(self.name(), Some(key), usage))
            }
        }
    }

    async fn exchange(
        &self,
        call: &ModelCall,
        base: &Url,
        key: &SecretString,
        message: &mut StreamedMessage,
        usage: &mut Usage,
    ) -> Result<(), CallFault> {
        let base = base.as_str().trim_end_matches('/');
        let request = self.build_post(&format!("{base}/v1/messages"), key)?.json(&self.request_body(call));
        let (head, response) = http::send(request, self.clock.now(), usage).await?;
        if !head.status.is_success() {
            let body = http::read_body(response).await?;
            let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
            let error = &answer["error"];
            let text = error["message"].as_str().map_or_else(|| String::from_utf8_lossy(&body), Into::into);
            let kind = failure_kind(head.status.as_u16(), &error["type"], &text, head.retry_after);
            return Err(head.fault(kind, &text));
        }
        message.head = Some(head);
        let mut events = SseEvents::new(response, call, &self.clock);
        // Some servers keep the connection open after the last event.
        while !message.is_complete()
            && let Some(data) = events.next_event().await?
        {
            message.handle_event(&data)?;
        }
        message.check_complete()
    }

    fn build_post(&self, url: &str, key: &SecretString) -> Result<reqwest::RequestBuilder, CallFault> {
        let key = http::secret_header("ANTHROPIC_API_KEY", key.expose_secret())?;
        Ok(self.client.post(url).header("x-api-key", key).header("anthropic-version", VERSION))
    }

    fn request_body(&self, call: &ModelCall) -> Value {
        let longest =
            self.table.find_served(&call.model).map_or(MODEL_OUTPUT, |row| row.max_output_for(call));
        let mut body = prompt_body(call);
        (body["max_tokens"], body["stream"]) = (json!(longest), json!(true));
        body
    }
}

impl Provider for AnthropicProvider {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn missing_requirement(&self) -> Option<String> {
        self.settings.get().api_key.is_none().then(|| NO_KEY.into())
    }

    fn is_billed(&self) -> bool {
        true
    }

    fn account(&self) -> Option<String> {
        self.settings.get().api_key.as_ref().map(http::key_fingerprint)
    }

    fn count_tokens<'a>(&'a self, call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            let settings = self.settings.get();
            let base = settings.base_url.as_str().trim_end_matches('/');
            let url = format!("{base}/v1/messages/count_tokens");
            let request = self.build_post(&url, settings.api_key.as_ref()?).ok()?;
            // The endpoint does not count schemas, so count one token per byte.
            let schema = call.schema.as_ref().map_or(0, |schema| schema.to_string().len() as u64);
            let shown = prompt_body(&ModelCall { schema: None, ..call.clone() });
            Some(http::count_tokens(request.json(&shown), "input_tokens").await?.saturating_add(schema))
        })
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

/// Builds the part of the request that `count_tokens` accepts.
fn prompt_body(call: &ModelCall) -> Value {
    let mut body = json!({
        "model": call.model,
        "messages": [{"role": "user", "content": call.prompt}],
    });
    if !call.system.is_empty() {
        // Cache the system prompt, which is the same in each call; the rest is not.
        body["system"] =
            json!([{"type": "text", "text": call.system, "cache_control": {"type": "ephemeral"}}]);
    }
    if let Some(schema) = &call.schema {
        body["output_config"]["format"] = json!({"type": "json_schema", "schema": schema});
    }
    let tools = native_tools::map_tools(
        call.tools.as_ref(),
        |name, description, parameters| json!({"name": name, "description": description, "input_schema": parameters}),
    );
    if let Some(tools) = tools {
        body["tools"] = tools;
    }
    body
}

fn judge_message(call: &ModelCall, message: &StreamedMessage) -> Result<(String, Option<Value>), CallFault> {
    let fault = |kind, why: &str| Err(CallFault::new(kind, why));
    answer_checks::check_served(call, message.served.as_deref())?;
    let tool_calls = message.calls.to_text(call);
    match message.stop.as_deref() {
        Some("end_turn" | "stop_sequence") => {}
        Some("tool_use") if tool_calls.is_some() => {}
        Some("max_tokens" | "model_context_window_exceeded") => {
            return fault(CallErrorKind::Truncated, "the answer was truncated at its token limit");
        }
        Some("refusal") => return fault(CallErrorKind::Refused, "the model refused to answer"),
        Some(other) => return fault(CallErrorKind::InvalidOutput, &format!("the answer ended with {other}")),
        None => return fault(CallErrorKind::InvalidOutput, "the answer has no stop reason"),
    }
    answer_checks::validate_answer(call, tool_calls.unwrap_or_else(|| message.text.clone()), None)
}
