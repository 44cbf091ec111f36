//! Any endpoint with OpenAI's chat completions API: OpenAI, a gateway, or a local server.
//!
//! The key is sent in a header and appears in no URL, error or log. The serving model is the model named in the events
//! of the response.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    CallError, CallErrorKind, ModelCall, ModelReply, Provider, ReplyFuture, Usage,
    http::{self, CallFault, HttpClients, ResponseHead},
    models::ModelCatalog,
    native_tools,
    streaming::{SseEvents, StreamedAnswer, run_bounded},
};
use crate::{
    clock::SharedClock,
    config::{OpenAiSettings, ReloadableValue, is_loopback},
};

const KEY: &str = "OPENAI_API_KEY";
const NO_KEY: &str = "there is no OPENAI_API_KEY in the .env file; add the endpoint's key";

pub(super) struct OpenAiProvider {
    settings: ReloadableValue<OpenAiSettings>,
    client: reqwest::Client,
    table: Arc<ModelCatalog>,
    clock: SharedClock,
}

impl OpenAiProvider {
    pub(super) fn new(
        settings: ReloadableValue<OpenAiSettings>,
        clients: &HttpClients,
        table: &Arc<ModelCatalog>,
        clock: &SharedClock,
    ) -> Self {
        let client = clients.for_url(&settings.get().base_url);
        Self { settings, client, table: Arc::clone(table), clock: Arc::clone(clock) }
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let started = self.clock.now();
        let mut usage = Usage::for_model(&call.model);
        if let Some(why) = self.missing_requirement() {
            return Err(CallError::new(CallErrorKind::Auth, why, usage));
        }
        usage.billed = self.table.find(self.name(), &call.model).is_some_and(|row| !row.prices.is_empty());
        let mut answer = StreamedAnswer::default();
        let settings = self.settings.get();
        let exchange = self.exchange(call, &settings, &mut answer, &mut usage);
        let ended = run_bounded(exchange, call, cancel, &self.clock).await;
        usage.elapsed = self.clock.now().since(started);
        answer.record_usage(&mut usage);
        let thoughts = answer.thoughts();
        match ended.and_then(|()| judge_answer(call, answer)) {
            Ok((text, value)) => Ok(ModelReply { thoughts, ..ModelReply::new(text, value, usage) }),
            Err(fault) => Err(fault.into_call_error(self.name(), settings.api_key.as_ref(), usage)),
        }
    }

    async fn exchange(
        &self,
        call: &ModelCall,
        settings: &OpenAiSettings,
        answer: &mut StreamedAnswer,
        usage: &mut Usage,
    ) -> Result<(), CallFault> {
        let (mut head, mut response) = self.send(call, settings, call.tools.as_ref(), usage).await?;
        if !head.status.is_success() {
            let body = http::read_body(response).await?;
            // If the model or server supports no tools, retry without them; the prompt describes them too.
            if call.tools.is_none() || !rejects_tools(&head, &body) {
                return Err(response_fault(&head, &body));
            }
            (head, response) = self.send(call, settings, None, usage).await?;
            if !head.status.is_success() {
                return Err(response_fault(&head, &http::read_body(response).await?));
            }
        }
        let mut events = SseEvents::new(response, call, &self.clock);
        while let Some(data) = events.next_event().await? {
            if data.trim() == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(&data).map_err(|error| {
                let why = format!("an event of the answer is not JSON: {error}");
                CallFault(CallErrorKind::InvalidOutput, head.with_request_id(why))
            })?;
            handle_event(call, &event, answer)?;
        }
        match answer.ended {
            Some(_) => Ok(()),
            None => Err(CallFault(
                CallErrorKind::Unavailable,
                head.with_request_id("the answer broke off".into()),
            )),
        }
    }

    async fn send(
        &self,
        call: &ModelCall,
        settings: &OpenAiSettings,
        tools: Option<&Value>,
        usage: &mut Usage,
    ) -> Result<(ResponseHead, reqwest::Response), CallFault> {
        let base = settings.base_url.as_str().trim_end_matches('/');
        let mut request = self.client.post(format!("{base}/chat/completions"));
        if let Some(key) = &settings.api_key {
            request = request.header(reqwest::header::AUTHORIZATION, bearer_header(key)?);
        }
        let mut body = self.request_body(call);
        let tools = native_tools::map_tools(tools, |name, description, parameters| {
            let function = json!({"name": name, "description": description, "parameters": parameters});
            json!({"type": "function", "function": function})
        });
        if let Some(tools) = tools {
            body["tools"] = tools;
        }
        http::send(request.json(&body), self.clock.now(), usage).await
    }

    fn request_body(&self, call: &ModelCall) -> Value {
        let mut body = json!({
            "model": call.model,
            "messages": [
                {"role": "system", "content": call.system},
                {"role": "user", "content": call.prompt},
            ],
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(schema) = &call.schema {
            body["response_format"] = json!({
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": true, "schema": schema},
            });
        }
        if let Some(row) = self.table.find(self.name(), &call.model) {
            body[self.output_limit_field()] = json!(row.max_output_for(call));
        }
        body
    }

    /// Returns the name of the request field that limits the output. Most servers accept only `max_tokens`, but
    /// OpenAI's newer models reject that field.
    fn output_limit_field(&self) -> &'static str {
        let settings = self.settings.get();
        let host = settings.base_url.host_str().unwrap_or_default();
        let own = [".openai.com", ".openai.azure.com"].iter().any(|own| host.ends_with(own));
        if own { "max_completion_tokens" } else { "max_tokens" }
    }
}

impl Provider for OpenAiProvider {
    fn name(&self) -> &'static str {
        "openai"
    }

    fn missing_requirement(&self) -> Option<String> {
        let settings = self.settings.get();
        let needed = settings.api_key.is_none() && !is_loopback(&settings.base_url);
        needed.then(|| NO_KEY.into())
    }

    fn is_billed(&self) -> bool {
        true
    }

    fn account(&self) -> Option<String> {
        self.settings.get().api_key.as_ref().map(http::key_fingerprint)
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

fn bearer_header(key: &SecretString) -> Result<reqwest::header::HeaderValue, CallFault> {
    http::secret_header(KEY, &format!("Bearer {}", key.expose_secret()))
}

/// Handles one event. The last event contains the token counts and has no choices.
fn handle_event(call: &ModelCall, event: &Value, answer: &mut StreamedAnswer) -> Result<(), CallFault> {
    if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
        let code = error["code"].as_u64().and_then(|code| u16::try_from(code).ok());
        let kind = error_kind(code.unwrap_or_default(), error, None);
        return Err(CallFault::new(kind, error["message"].as_str().unwrap_or("an error without a message")));
    }
    if let Some(served) = event["model"].as_str().filter(|served| !served.is_empty()) {
        answer.record_served(call, served);
    }
    let choice = &event["choices"][0];
    if let Some(refusal) = choice["delta"]["refusal"].as_str() {
        return Err(CallFault::new(CallErrorKind::Refused, refusal));
    }
    answer.text += choice["delta"]["content"].as_str().unwrap_or_default();
    // Servers use different names for this field.
    let thought = choice["delta"]["reasoning_content"].as_str().or(choice["delta"]["reasoning"].as_str());
    answer.thoughts += thought.unwrap_or_default();
    for (at, tool_call) in choice["delta"]["tool_calls"].as_array().into_iter().flatten().enumerate() {
        let (at, function) = (tool_call["index"].as_u64().unwrap_or(at as u64), &tool_call["function"]);
        answer.calls.add_fragment(
            at,
            tool_call["id"].as_str(),
            function["name"].as_str(),
            function["arguments"].as_str(),
        );
    }
    if let Some(ended) = choice["finish_reason"].as_str() {
        answer.ended = Some(ended.to_owned());
    }
    let usage = &event["usage"];
    if usage.is_object() {
        let tokens = |path: &str| usage.pointer(path).and_then(Value::as_u64);
        let (input, output) = (tokens("/prompt_tokens"), tokens("/completion_tokens"));
        answer.counted = input.is_some() && output.is_some();
        answer.input_tokens = input.unwrap_or(0);
        answer.cache_read_tokens = tokens("/prompt_tokens_details/cached_tokens").unwrap_or(0);
        // Some endpoints do not count thoughts as completion tokens.
        let others = tokens("/total_tokens").unwrap_or(0).saturating_sub(answer.input_tokens);
        answer.output_tokens = output.unwrap_or(0).max(others);
    }
    Ok(())
}

fn judge_answer(call: &ModelCall, answer: StreamedAnswer) -> Result<(String, Option<Value>), CallFault> {
    answer.check_served(call)?;
    match answer.ended.as_deref() {
        Some("stop") => answer.validate(call),
        Some("tool_calls") if answer.calls.to_text(call).is_some() => answer.validate(call),
        Some("length") => {
            Err(CallFault::new(CallErrorKind::Truncated, "the answer was truncated at its token limit"))
        }
        Some("content_filter") => Err(CallFault::new(CallErrorKind::Refused, "the answer was withheld")),
        other => {
            let why = format!("the answer ended with {}", other.unwrap_or("no reason"));
            Err(CallFault::new(CallErrorKind::InvalidOutput, &why))
        }
    }
}

/// Whether the server rejected the request only because it contains tools. The wording of such errors differs between
/// servers, and llama.cpp responds with status 500.
fn rejects_tools(head: &ResponseHead, body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body).to_ascii_lowercase();
    match head.status.as_u16() {
        400 | 404 | 422 | 501 => text.contains("tool"),
        500 => text.contains("tools param requires --jinja"),
        _ => false,
    }
}

/// Converts a response with an error status to a fault.
fn response_fault(head: &ResponseHead, body: &[u8]) -> CallFault {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &parsed["error"];
    let message = error["message"].as_str().or(error.as_str());
    let message = message.map_or_else(|| String::from_utf8_lossy(body), Into::into);
    head.fault(error_kind(head.status.as_u16(), error, head.retry_after), &message)
}

fn error_kind(status: u16, error: &Value, reset: Option<std::time::Duration>) -> CallErrorKind {
    let is = |word: &str| error["code"] == word || error["type"] == word;
    let says = |words: &str| error["message"].as_str().is_some_and(|message| message.contains(words));
    match status {
        _ if is("insufficient_quota") => CallErrorKind::Quota { reset },
        _ if is("context_length_exceeded") || says("maximum context length") => CallErrorKind::TooLong,
        _ if is("content_filter") || is("content_policy_violation") => CallErrorKind::Refused,
        401 | 403 => CallErrorKind::Auth,
        402 => CallErrorKind::Quota { reset },
        413 => CallErrorKind::TooLong,
        429 => CallErrorKind::RateLimited { reset },
        503 | 529 => CallErrorKind::Capacity,
        _ if is("model_not_found") => CallErrorKind::NoSuchModel,
        _ => http::failure_kind(
            status,
            if error["code"].is_string() { &error["code"] } else { &error["type"] },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[test]
    fn output_limit_field_depends_on_the_endpoint() {
        for (base_url, word) in [
            ("https://api.openai.com/v1", "max_completion_tokens"),
            ("https://shop.openai.azure.com/openai/v1", "max_completion_tokens"),
            ("http://127.0.0.1:8080/v1", "max_tokens"),
            ("https://notopenai.com/v1", "max_tokens"),
        ] {
            let settings = OpenAiSettings { base_url: base_url.parse().unwrap(), api_key: None };
            let clock: SharedClock = Arc::new(SystemClock);
            let end = OpenAiProvider::new(
                ReloadableValue::new(settings),
                &HttpClients::new().unwrap(),
                &Arc::default(),
                &clock,
            );
            assert_eq!(end.output_limit_field(), word, "{base_url}");
        }
    }
}
