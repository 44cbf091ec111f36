//! Self-hosted models through Ollama's native API.
//!
//! Ollama reads the prompt into a window of `num_ctx` tokens and by default silently drops the rest. So we request a
//! window that fits the prompt, and treat a prompt that filled the window as truncated.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    CallError, CallErrorKind, ModelCall, ModelReply, Provider, ReplyFuture, Usage,
    http::{self, CallFault, HttpClients, ResponseHead},
    models::{Model, ModelCatalog},
    streaming::{ResponseLines, StreamedAnswer, run_bounded},
};
use crate::{clock::SharedClock, config::OllamaSettings, limits};

/// Step size of context windows, in tokens. Window sizes are multiples of it, because a server reloads the model for
/// each new size.
const WINDOW_STEP_TOKENS: u64 = 4096;

pub(super) struct OllamaProvider {
    settings: OllamaSettings,
    client: reqwest::Client,
    table: Arc<ModelCatalog>,
    clock: SharedClock,
}

impl OllamaProvider {
    pub(super) fn new(
        settings: OllamaSettings,
        clients: &HttpClients,
        table: &Arc<ModelCatalog>,
        clock: &SharedClock,
    ) -> Self {
        let client = clients.for_url(&settings.base_url);
        Self { settings, client, table: Arc::clone(table), clock: Arc::clone(clock) }
    }

    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        let started = self.clock.now();
        let mut usage = Usage::for_model(&call.model);
        let (mut answer, mut thoughts) = (StreamedAnswer::default(), String::new());
        let window = match self.table.find(self.name(), &call.model) {
            Some(row) => Ok(ContextWindow::for_call(call, row)),
            None => Err(CallFault::new(CallErrorKind::Unavailable, "it is not in the model table")),
        };
        let outcome = match window {
            Err(fault) => Err(fault),
            Ok(window) => {
                let exchange = self.exchange(call, &window, &mut answer, &mut usage);
                let ended = run_bounded(exchange, call, cancel, &self.clock).await;
                answer.record_usage(&mut usage);
                thoughts = answer.thoughts();
                ended.and_then(|()| judge_answer(call, &window, answer))
            }
        };
        usage.elapsed = self.clock.now().since(started);
        match outcome {
            Ok((text, value)) => Ok(ModelReply { thoughts, ..ModelReply::new(text, value, usage) }),
            Err(fault) => Err(fault.into_call_error(self.name(), None, usage)),
        }
    }

    async fn exchange(
        &self,
        call: &ModelCall,
        window: &ContextWindow,
        answer: &mut StreamedAnswer,
        usage: &mut Usage,
    ) -> Result<(), CallFault> {
        let base = self.settings.base_url.as_str().trim_end_matches('/');
        let request = self.client.post(format!("{base}/api/chat"));
        let request = request.json(&request_body(call, window));
        let sent = http::send(request, self.clock.now(), usage).await;
        let (head, response) = sent.map_err(|fault| self.with_start_hint(fault))?;
        if !head.status.is_success() {
            return Err(response_fault(&head, &call.model, &http::read_body(response).await?));
        }
        let mut lines = ResponseLines::new(response, call, &self.clock);
        while let Some(line) = lines.next_line().await? {
            if line.is_empty() {
                continue;
            }
            let event: Value = serde_json::from_str(&line).map_err(|error| {
                CallFault::new(
                    CallErrorKind::InvalidOutput,
                    &format!("a line of the answer is not JSON: {error}"),
                )
            })?;
            if let Some(why) = event["error"].as_str() {
                return Err(CallFault::new(CallErrorKind::Unavailable, why));
            }
            handle_event(call, &event, answer);
            if event["done"] == true {
                return Ok(());
            }
        }
        Err(CallFault::new(CallErrorKind::Unavailable, "the answer broke off"))
    }

    fn with_start_hint(&self, fault: CallFault) -> CallFault {
        match fault {
            CallFault(CallErrorKind::Unavailable, why) => {
                let fix = "start it with `ollama serve`, or correct base_url under [providers.ollama]";
                CallFault(
                    CallErrorKind::Unavailable,
                    format!("{} does not answer; {fix} ({why})", self.settings.base_url),
                )
            }
            other => other,
        }
    }
}

impl Provider for OllamaProvider {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn is_billed(&self) -> bool {
        false
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

/// Context window and output limit of a request, in tokens.
#[derive(Debug, PartialEq, Eq)]
struct ContextWindow {
    /// Total number of tokens for prompt and response.
    all: u64,
    answer: u64,
}

impl ContextWindow {
    /// Chooses a window that fits the longest possible response and the largest possible token count of the prompt, up
    /// to the model's context window.
    fn for_call(call: &ModelCall, row: &Model) -> Self {
        let schema = call.schema.as_ref().map_or(0, |schema| schema.to_string().len());
        let bytes = (call.system.len() + call.prompt.len() + schema) as u64;
        let densest = bytes / limits::FEWEST_BYTES_A_TOKEN + limits::CHAT_FRAME_TOKENS;
        let wanted = densest.saturating_add(row.max_output_for(call)).next_multiple_of(WINDOW_STEP_TOKENS);
        Self { all: wanted.min(row.context), answer: row.max_output_for(call) }
    }
}

fn request_body(call: &ModelCall, window: &ContextWindow) -> Value {
    let mut body = json!({
        "model": call.model,
        "messages": [
            {"role": "system", "content": call.system},
            {"role": "user", "content": call.prompt},
        ],
        "stream": true,
        // Newer servers refuse a prompt that does not fit; for older ones we check the token counts.
        "truncate": false,
        "shift": false,
        "options": {"num_ctx": window.all, "num_predict": window.answer},
    });
    if let Some(schema) = &call.schema {
        body["format"] = schema.clone();
    }
    body
}

fn handle_event(call: &ModelCall, event: &Value, answer: &mut StreamedAnswer) {
    answer.text += event["message"]["content"].as_str().unwrap_or_default();
    answer.thoughts += event["message"]["thinking"].as_str().unwrap_or_default();
    if let Some(served) = event["model"].as_str() {
        answer.record_served(call, served);
    }
    if event["done"] == true {
        answer.ended = event["done_reason"].as_str().map(str::to_owned);
        answer.input_tokens = event["prompt_eval_count"].as_u64().unwrap_or(0);
        answer.output_tokens = event["eval_count"].as_u64().unwrap_or(0);
        // Cache reads are not counted, and nothing is billed.
        answer.counted = true;
    }
}

fn judge_answer(
    call: &ModelCall,
    window: &ContextWindow,
    answer: StreamedAnswer,
) -> Result<(String, Option<Value>), CallFault> {
    answer.check_served(call)?;
    if answer.input_tokens >= window.all {
        let why = format!("the prompt filled all {} tokens of the window and was truncated", window.all);
        return Err(CallFault::new(CallErrorKind::TooLong, &why));
    }
    match answer.ended.as_deref() {
        Some("stop") => answer.validate(call),
        Some("length") => {
            Err(CallFault::new(CallErrorKind::Truncated, "the answer was truncated at its token limit"))
        }
        other => {
            let why = format!("the answer ended with {}", other.unwrap_or("no reason"));
            Err(CallFault::new(CallErrorKind::InvalidOutput, &why))
        }
    }
}

/// Converts a response with an error status to a fault.
fn response_fault(head: &ResponseHead, model: &str, body: &[u8]) -> CallFault {
    let parsed: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = parsed["error"].as_str().map_or_else(|| String::from_utf8_lossy(body), Into::into);
    let kind = match head.status {
        StatusCode::NOT_FOUND if message.contains("not found") && message.contains("model") => {
            let why = format!("{model} is not on that machine; run `ollama pull {model}` there");
            return head.fault(CallErrorKind::NoSuchModel, &why);
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => CallErrorKind::Auth,
        StatusCode::BAD_REQUEST if message.contains("context length") => CallErrorKind::TooLong,
        StatusCode::PAYLOAD_TOO_LARGE => CallErrorKind::TooLong,
        StatusCode::TOO_MANY_REQUESTS => CallErrorKind::RateLimited { reset: head.retry_after },
        StatusCode::SERVICE_UNAVAILABLE => CallErrorKind::Capacity,
        status => http::failure_kind(status.as_u16(), &Value::Null),
    };
    head.fault(kind, &message)
}
