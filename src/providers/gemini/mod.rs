//! Gemini over HTTPS: one `generateContent` request per call, repeated with other keys until one succeeds.
//!
//! The key is sent in a header and appears in no URL, error or log. The response's `modelVersion` is the serving model.
//! A response by another model than the requested one is an error.

mod keys;
mod resets;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use reqwest::StatusCode;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub use self::keys::{GeminiKeyState, gemini_key_states};
use self::{keys::GeminiKeys, resets::error_details};
use super::{
    CallAttempt, CallError, CallErrorKind, CallRole, Metering, ModelCall, ModelReply, Provider, ReplyFuture,
    Usage,
    answer_checks::{check_served, validate_answer},
    http::{self, CallFault, ResponseHead},
    models::ModelCatalog,
};
use crate::{
    clock::SharedClock,
    config::{GeminiKey, GeminiSettings, GeminiTier, ReloadableValue},
    store::Store,
    types::Timestamp,
};

pub(super) struct GeminiProvider {
    settings: ReloadableValue<GeminiSettings>,
    keys: GeminiKeys,
    client: reqwest::Client,
    table: Arc<ModelCatalog>,
    clock: SharedClock,
}

impl GeminiProvider {
    /// Creates the back end. Key cooldowns are kept in `store`. Without a store, they are kept only in memory.
    pub(super) fn new(
        settings: ReloadableValue<GeminiSettings>,
        clients: &http::HttpClients,
        table: Arc<ModelCatalog>,
        store: Option<Arc<Store>>,
        clock: SharedClock,
    ) -> Self {
        let client = clients.for_url(&settings.get().base_url);
        let keys = GeminiKeys::new(settings.clone(), store, Arc::clone(&clock));
        Self { settings, keys, client, table, clock }
    }

    /// Sends the request with one key after another, as long as the failure is caused by the key. An overloaded model
    /// is overloaded for all keys alike, so that error is returned at once and no key gets a cooldown.
    async fn ask(&self, call: &ModelCall, cancel: &CancellationToken) -> Result<ModelReply, CallError> {
        if call.role == CallRole::Drafter && !self.settings.get().drafts {
            let why = "gemini: it only reviews, unless allow_gemini_drafts = true is set under [models]";
            return Err(CallError::new(CallErrorKind::Auth, why, Usage::for_model(&call.model)));
        }
        let started = self.clock.now();
        let mut before = Vec::new();
        loop {
            let key = match self.keys.next_key(call).await {
                Ok(key) => key,
                Err(fault) => return Err(no_key_error(call, fault, before)),
            };
            let deadline = call.deadline.saturating_sub(self.elapsed_since(started));
            if deadline.is_zero() {
                let kind = CallErrorKind::Timeout { idle: false, elapsed: self.elapsed_since(started) };
                return Err(no_key_error(
                    call,
                    CallFault::new(kind, "no time is left for another key"),
                    before,
                ));
            }
            match self.ask_with_key(&key, deadline, call, cancel).await {
                Ok(reply) => {
                    self.keys.record_success(&key, &call.model).await;
                    return Ok(ModelReply { earlier_attempts: before, ..reply });
                }
                Err((error, denied))
                    if self.keys.record_failure(&key, &call.model, &error.kind, denied).await =>
                {
                    before.push(CallAttempt::from_error(error));
                }
                Err((error, _)) => return Err(CallError { earlier_attempts: before, ..error }),
            }
        }
    }

    /// Makes one request with one key. The error comes with a flag that tells whether the key was denied only this
    /// model.
    async fn ask_with_key(
        &self,
        key: &GeminiKey,
        deadline: Duration,
        call: &ModelCall,
        cancel: &CancellationToken,
    ) -> Result<ModelReply, (CallError, bool)> {
        let started = self.clock.now();
        let mut denied = false;
        let mut usage = Usage::for_model(&call.model);
        usage.billed = key.tier != Some(GeminiTier::Free);
        let exchange = tokio::select! {
            exchange = self.exchange(call, deadline, &key.secret, &mut denied, &mut usage) => exchange,
            () = cancel.cancelled() => Err(CallFault(CallErrorKind::Cancelled, "cancelled".into())),
        };
        usage.elapsed = self.elapsed_since(started);
        let judged = exchange.and_then(|answer| {
            record_usage(&answer, &mut usage);
            let parts = answer["candidates"][0]["content"]["parts"].as_array();
            let thoughts = join_texts(parts.map(Vec::as_slice).unwrap_or_default(), true);
            judge_answer(call, &answer).map(|(text, value)| (text, value, thoughts))
        });
        match judged {
            Ok((text, value, thoughts)) => Ok(ModelReply { thoughts, ..ModelReply::new(text, value, usage) }),
            Err(fault) => Err((fault.into_call_error("gemini", Some(&key.secret), usage), denied)),
        }
    }

    fn elapsed_since(&self, started: Timestamp) -> Duration {
        self.clock.now().since(started)
    }

    async fn exchange(
        &self,
        call: &ModelCall,
        deadline: Duration,
        key: &SecretString,
        denied: &mut bool,
        usage: &mut Usage,
    ) -> Result<Value, CallFault> {
        let request =
            self.build_post(call, "generateContent", key)?.timeout(deadline).json(&self.request_body(call));
        let (head, response) = http::send(request, self.clock.now(), usage).await?;
        let body = http::read_body(response).await?;
        if !head.status.is_success() {
            // A service may quote the key. Redact it first: later truncation could leave a part of it.
            let body = String::from_utf8_lossy(&body).replace(key.expose_secret(), "[key]");
            *denied = head.status == StatusCode::FORBIDDEN && is_about_model(&body, &call.model);
            return Err(response_fault(&head, &body, self.clock.now()));
        }
        serde_json::from_slice(&body).map_err(|error| {
            CallFault(CallErrorKind::InvalidOutput, format!("the answer is not JSON: {error}"))
        })
    }

    fn build_post(
        &self,
        call: &ModelCall,
        verb: &str,
        key: &SecretString,
    ) -> Result<reqwest::RequestBuilder, CallFault> {
        let settings = self.settings.get();
        let base = settings.base_url.as_str().trim_end_matches('/');
        let url = format!("{base}/v1beta/models/{}:{verb}", call.model);
        Ok(self
            .client
            .post(url)
            .header("x-goog-api-key", http::secret_header("GEMINI_API_KEY", key.expose_secret())?))
    }

    fn request_body(&self, call: &ModelCall) -> Value {
        let mut body = prompt_body(call);
        if let Some(schema) = &call.schema {
            body["generationConfig"] = json!({
                "responseMimeType": "application/json",
                "responseJsonSchema": schema,
            });
        }
        if let Some(row) = self.table.find("gemini", &call.model) {
            // Includes thoughts, which are billed too.
            body["generationConfig"]["maxOutputTokens"] = json!(row.max_output_for(call));
        }
        body
    }
}

/// Builds the error of a call for which no usable key is left. Its usage and message include those of the last attempt.
fn no_key_error(call: &ModelCall, fault: CallFault, mut before: Vec<CallAttempt>) -> CallError {
    let CallFault(kind, why) = fault;
    let (usage, message) = match before.pop() {
        Some(last) => (last.usage, format!("{}; {why}", last.message)),
        None => (Usage::for_model(&call.model), format!("gemini: {why}")),
    };
    CallError { earlier_attempts: before, ..CallError::new(kind, message, usage) }
}

impl Provider for GeminiProvider {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn missing_requirement(&self) -> Option<String> {
        self.keys.missing_requirement()
    }

    fn is_billed(&self) -> bool {
        self.settings.get().keys.iter().any(|key| key.tier != Some(GeminiTier::Free))
    }

    fn count_tokens<'a>(&'a self, call: &'a ModelCall) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async {
            let key = self.keys.next_key(call).await.ok()?;
            let request = self.build_post(call, "countTokens", &key.secret).ok()?;
            // The endpoint does not count the answer form, so count one token per byte.
            let form = call.answer_form().map_or(0, |form| form.to_string().len() as u64);
            let mut shown = prompt_body(call);
            shown["model"] = json!(format!("models/{}", call.model));
            let body = json!({ "generateContentRequest": shown });
            Some(http::count_tokens(request.json(&body), "totalTokens").await?.saturating_add(form))
        })
    }

    fn call<'a>(&'a self, call: &'a ModelCall, cancel: &'a CancellationToken) -> ReplyFuture<'a> {
        Box::pin(self.ask(call, cancel))
    }
}

/// Builds the part of the request that `countTokens` accepts.
fn prompt_body(call: &ModelCall) -> Value {
    json!({
        "systemInstruction": {"parts": [{"text": call.system}]},
        "contents": [{"role": "user", "parts": [{"text": call.prompt}]}],
    })
}

fn record_usage(answer: &Value, usage: &mut Usage) {
    let count = |key: &str| answer["usageMetadata"][key].as_u64();
    let tokens = |key: &str| count(key).unwrap_or(0);
    let prompt = tokens("promptTokenCount");
    usage.cache_read_tokens = tokens("cachedContentTokenCount");
    usage.input_tokens = prompt.saturating_sub(usage.cache_read_tokens);
    let output = tokens("candidatesTokenCount").saturating_add(tokens("thoughtsTokenCount"));
    usage.output_tokens = output.max(tokens("totalTokenCount").saturating_sub(prompt));
    // A blocked prompt has no candidate to count.
    let whole = count("candidatesTokenCount").is_some() || answer.get("candidates").is_none();
    if count("promptTokenCount").is_some() && whole {
        usage.metered = Metering::Known;
    }
    usage.served = answer["modelVersion"].as_str().map(str::to_owned);
}

fn judge_answer(call: &ModelCall, answer: &Value) -> Result<(String, Option<Value>), CallFault> {
    let fault = |kind, why: &str| Err(CallFault::new(kind, why));
    if let Some(reason) = answer["promptFeedback"]["blockReason"].as_str() {
        return fault(CallErrorKind::Refused, &format!("the prompt was blocked ({reason})"));
    }
    check_served(call, answer["modelVersion"].as_str())?;
    let candidate = &answer["candidates"][0];
    match candidate["finishReason"].as_str() {
        Some("STOP") => {}
        Some("MAX_TOKENS") => {
            return fault(CallErrorKind::Truncated, "the answer was truncated at its token limit");
        }
        // A retry may produce an answer that recites nothing.
        Some("RECITATION") => return fault(CallErrorKind::Empty, "the answer was withheld (RECITATION)"),
        Some(
            reason @ ("SAFETY" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "LANGUAGE" | "IMAGE_SAFETY"),
        ) => return fault(CallErrorKind::Refused, &format!("the answer was withheld ({reason})")),
        Some(reason) => {
            return fault(CallErrorKind::InvalidOutput, &format!("the answer ended with {reason}"));
        }
        None => return fault(CallErrorKind::InvalidOutput, "the answer has no stop reason"),
    }
    let parts = candidate["content"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    validate_answer(call, join_texts(parts, false), None)
}

/// Concatenates the text of the thought parts if `thought` is true, otherwise that of the answer parts.
fn join_texts(parts: &[Value], thought: bool) -> String {
    let these = parts.iter().filter(|part| (part["thought"] == Value::Bool(true)) == thought);
    these.filter_map(|part| part["text"].as_str()).collect()
}

/// Whether an error is about this model, rather than about the key or its project.
fn is_about_model(body: &str, model: &str) -> bool {
    let answer = serde_json::from_str::<Value>(body).unwrap_or_default();
    let of_the_key =
        error_details(&answer["error"]).filter_map(|detail| detail["reason"].as_str()).any(|reason| {
            ["API_KEY_", "CONSUMER_", "SERVICE_DISABLED"].iter().any(|whole| reason.starts_with(whole))
        });
    !of_the_key && body.contains(model)
}

/// Converts a response with an error status to a fault.
fn response_fault(head: &ResponseHead, body: &str, now: Timestamp) -> CallFault {
    let answer = serde_json::from_str::<Value>(body).unwrap_or_default();
    let error = &answer["error"];
    let message = error["message"].as_str().unwrap_or(body);
    let reason = |word: &str| error_details(error).any(|detail| detail["reason"] == word);
    let daily = resets::is_daily(error, message);
    let reset = resets::reset_wait(error, message, head.retry_after, daily, now);
    let kind = match head.status.as_u16() {
        401 | 403 => CallErrorKind::Auth,
        400 if reason("API_KEY_INVALID") => CallErrorKind::Auth,
        400 if message.contains("token count") && message.contains("exceeds") => CallErrorKind::TooLong,
        402 => CallErrorKind::Quota { reset },
        413 => CallErrorKind::TooLong,
        // Google reports its own lack of capacity with the same status as our rate limits.
        429 if reason("MODEL_CAPACITY_EXHAUSTED") => CallErrorKind::Capacity,
        429 if daily => CallErrorKind::Quota { reset },
        429 => CallErrorKind::RateLimited { reset },
        503 | 529 => CallErrorKind::Capacity,
        status => http::failure_kind(status, &error["status"]),
    };
    head.fault(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_with_two_verdicts_is_invalid() {
        let call = ModelCall {
            role: CallRole::Reviewer,
            schema: Some(json!({"type": "object", "required": ["verdict"]})),
            model: "gemini-2.5-pro".into(),
            facts: std::collections::BTreeMap::new(),
            ..crate::providers::samples::call()
        };
        let answer = |text: &str| {
            let parts = json!([{ "text": text }]);
            json!({
                "modelVersion": call.model,
                "candidates": [{ "finishReason": "STOP", "content": { "parts": parts } }],
            })
        };
        assert!(judge_answer(&call, &answer(r#"{"verdict": "APPROVED"}"#)).is_ok());
        let twice = judge_answer(&call, &answer(r#"{"verdict": "BLOCKED", "verdict": "APPROVED"}"#));
        let Err(CallFault(kind, why)) = twice else { panic!("accepted as an answer") };
        assert_eq!(kind, CallErrorKind::InvalidOutput);
        assert!(why.contains("`verdict` appears twice"), "{why}");
    }
}
