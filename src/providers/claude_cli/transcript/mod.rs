//! Parses the output of the Claude CLI and decides whether the call succeeded.
//!
//! A response is accepted only if all parts of the output agree: exit status, result line, `is_error`, stop reason, the
//! model of every assistant message, and text or a value that fits the schema. `subtype` is "success" even for failed
//! API calls, so only its error values are used. The text of a good response is never searched for error messages. The
//! banner of a failed call is searched, but only if nothing else identifies the failure.

use std::collections::HashMap;

use serde_json::Value;

use super::super::{
    CallError, CallErrorKind, ModelCall, ModelReply, Usage, answer_checks,
    http::{self, CallFault},
    program::limit_kind,
    quote_text,
};
use crate::{proc::ChildOutput, types::Timestamp};

/// Model name in messages that the program generates itself, such as error banners.
const SYNTHETIC: &str = "<synthetic>";

/// Maximum number of distinct models recorded per response.
const MODELS: usize = 8;

/// State collected from the output lines. Parsing is lenient: fields differ between versions, and unknown lines are
/// skipped.
#[derive(Default)]
pub(super) struct ClaudeTranscript {
    /// Distinct models named in the assistant messages, in order of appearance, at most `MODELS`.
    served: Vec<String>,
    /// `error` field of the last message that the program generated itself.
    error: Option<String>,
    retries: u32,
    /// Set if the subscription's quota is exhausted. The inner value is the reset time, if the program named one.
    used_up: Option<Option<Timestamp>>,
    /// Input and output tokens of each assistant message, by message id.
    partial: HashMap<String, (u64, u64)>,
    result: Option<Value>,
}

impl ClaudeTranscript {
    pub(super) fn read_line(&mut self, line: &[u8]) {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { return };
        match text_field(&value, "type") {
            Some("assistant") => self.read_assistant(&value),
            Some("system") if text_field(&value, "subtype") == Some("api_retry") => {
                // Its delay is the program's own back-off, not the service's.
                self.retries += 1;
            }
            Some("rate_limit_event") => {
                let limit = &value["rate_limit_info"];
                let reset = limit["resetsAt"].as_i64().and_then(unix_time);
                self.used_up = (text_field(limit, "status") == Some("rejected")).then_some(reset);
            }
            Some("result") => self.result = Some(value),
            _ => {}
        }
    }

    fn read_assistant(&mut self, line: &Value) {
        let message = &line["message"];
        match text_field(message, "model") {
            Some(SYNTHETIC) => self.error = text_field(line, "error").map(str::to_owned),
            Some(model) => {
                self.add_served_model(model);
                let id = text_field(message, "id").unwrap_or_default();
                let tokens = |key| message["usage"][key].as_u64().unwrap_or(0);
                self.partial.insert(id.to_owned(), (tokens("input_tokens"), tokens("output_tokens")));
            }
            // A message without a model leaves the answer unattested.
            None => self.add_served_model(""),
        }
    }

    fn add_served_model(&mut self, model: &str) {
        // More wrong models would not change the result.
        if self.served.len() < MODELS && !self.served.iter().any(|known| known == model) {
            self.served.push(model.to_owned());
        }
    }

    /// Whether a model had started to answer.
    pub(super) fn has_begun(&self) -> bool {
        !self.served.is_empty()
    }

    pub(super) fn usage(&self, call: &ModelCall) -> Usage {
        let mut usage = Usage::for_model(&call.model);
        // If several answered, report one that was not requested.
        usage.served = self
            .served
            .iter()
            .find(|model| !call.may_be_served_by(model))
            .or(self.served.first())
            .filter(|model| !model.is_empty())
            .cloned();
        usage.attempts = 1 + self.retries;
        let table = self.result.as_ref().map(|result| &result["usage"]);
        let of = |key: &str| table.and_then(|t| t[key].as_u64()).unwrap_or(0);
        usage.input_tokens = of("input_tokens");
        usage.output_tokens = of("output_tokens");
        usage.cache_read_tokens = of("cache_read_input_tokens");
        usage.cache_written_tokens = of("cache_creation_input_tokens");
        let counted =
            [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_written_tokens];
        if counted == [0; 4] {
            self.count_fallback(&mut usage);
        }
        usage
    }

    /// Computes the token counts if those of the result line are zero, as happens after some failures. Uses the
    /// result's usage by model, or, if that is missing or zero too, the counts of the assistant messages.
    fn count_fallback(&self, usage: &mut Usage) {
        let by_model = self.result.as_ref().and_then(|result| result["modelUsage"].as_object());
        for row in by_model.into_iter().flat_map(|table| table.values()) {
            let of = |key: &str| row[key].as_u64().unwrap_or(0);
            add_tokens(&mut usage.input_tokens, of("inputTokens"));
            add_tokens(&mut usage.output_tokens, of("outputTokens"));
            add_tokens(&mut usage.cache_read_tokens, of("cacheReadInputTokens"));
            add_tokens(&mut usage.cache_written_tokens, of("cacheCreationInputTokens"));
        }
        if (usage.input_tokens, usage.output_tokens) == (0, 0) {
            for (input, output) in self.partial.values() {
                add_tokens(&mut usage.input_tokens, *input);
                add_tokens(&mut usage.output_tokens, *output);
            }
        }
    }

    /// Decides whether a finished call succeeded, and which error it is if not. `now` is the current time.
    pub(super) fn judge(
        &self,
        call: &ModelCall,
        output: &ChildOutput,
        now: Timestamp,
    ) -> Result<ModelReply, CallError> {
        let mut usage = self.usage(call);
        usage.elapsed = output.elapsed;
        match self.judge_result(call, output, now) {
            Ok((text, value)) => Ok(ModelReply::new(text, value, usage)),
            Err((kind, why)) => Err(CallError::new(kind, format!("claude: {why}"), usage)),
        }
    }

    fn judge_result(
        &self,
        call: &ModelCall,
        output: &ChildOutput,
        now: Timestamp,
    ) -> Result<(String, Option<Value>), (CallErrorKind, String)> {
        let Some(result) = &self.result else {
            let status = output.status.map_or("a signal".into(), |status| format!("status {status}"));
            let why =
                format!("it ended with {status} and no result line: {}", quote_text(&output.stderr_text()));
            return Err((limit_kind(output, "").unwrap_or(CallErrorKind::Unavailable), why));
        };
        if result["is_error"] != Value::Bool(false) {
            let why = text_field(result, "result")
                .or_else(|| result["errors"][0].as_str())
                .unwrap_or("no reason given");
            return Err((self.failure_kind(result, why, output, now), quote_text(why)));
        }
        if output.status != Some(0) {
            let why = format!("it ended with status {:?} though its result is good", output.status);
            return Err((CallErrorKind::Unavailable, why));
        }
        match text_field(result, "stop_reason") {
            Some("refusal") => return Err((CallErrorKind::Refused, "the model refused".into())),
            Some("max_tokens") => return Err((CallErrorKind::Truncated, "the answer was truncated".into())),
            _ => {}
        }
        if let Some(stranger) = self.wrong_model(call) {
            let why = format!("{} answered instead of {}", quote_text(stranger), call.model);
            return Err((CallErrorKind::WrongModel { served: Some(stranger.to_owned()) }, why));
        }
        let answer = self.validated_answer(call, result).map_err(|CallFault(kind, why)| (kind, why))?;
        if self.served.is_empty() || self.served.iter().any(String::is_empty) {
            let why = "no message says which model answered".to_owned();
            return Err((CallErrorKind::WrongModel { served: None }, why));
        }
        Ok(answer)
    }

    /// Returns the name of a model that answered although the call did not request it; `None` if only the requested
    /// model answered.
    fn wrong_model(&self, call: &ModelCall) -> Option<&str> {
        let other = |served: &&String| !served.is_empty() && !call.may_be_served_by(served);
        self.served.iter().find(other).map(String::as_str)
    }

    /// Validates the response and returns its text. If the call has a schema, also returns the value.
    fn validated_answer(
        &self,
        call: &ModelCall,
        result: &Value,
    ) -> Result<(String, Option<Value>), CallFault> {
        let text = text_field(result, "result").unwrap_or_default().to_owned();
        if call.schema.is_none() {
            return answer_checks::validate_answer(call, text, None);
        }
        // The program succeeds even if the model ignored its schema tool; then the text may hold the value.
        match result.get("structured_output").filter(|value| !value.is_null()) {
            Some(value) => answer_checks::validate_answer(call, value.to_string(), Some(value.clone())),
            None => answer_checks::validate_answer(call, text, None),
        }
    }

    /// Classifies the failure reported by a result line with `is_error`.
    fn failure_kind(
        &self,
        result: &Value,
        banner: &str,
        output: &ChildOutput,
        now: Timestamp,
    ) -> CallErrorKind {
        if text_field(result, "terminal_reason") == Some("prompt_too_long") {
            return CallErrorKind::TooLong;
        }
        match self.error.as_deref() {
            Some("billing_error") => return CallErrorKind::Quota { reset: None },
            Some("authentication_failed" | "oauth_org_not_allowed") => return CallErrorKind::Auth,
            Some("max_output_tokens") => return CallErrorKind::Truncated,
            _ => {}
        }
        let status = result["api_error_status"].as_u64().and_then(|status| u16::try_from(status).ok());
        // Older versions give no status, and put the reset time after the banner.
        let named =
            banner.split_once("limit reached|").and_then(|(_, at)| unix_time(at.trim().parse().ok()?));
        let used_up = self.used_up.or(named.map(Some));
        let rate_limited =
            status == Some(429) || status.is_none() && self.error.as_deref() == Some("rate_limit");
        match used_up {
            Some(until) if rate_limited || named.is_some() => {
                // Ignore a reset time in the past.
                let left = until.map(|until| until.since(now)).filter(|left| !left.is_zero());
                return CallErrorKind::Quota { reset: left };
            }
            None if rate_limited => return CallErrorKind::RateLimited { reset: None },
            _ => {}
        }
        match status {
            Some(401 | 403) => return CallErrorKind::Auth,
            Some(402) => return CallErrorKind::Quota { reset: None },
            Some(413) => return CallErrorKind::TooLong,
            Some(503 | 529) => return CallErrorKind::Capacity,
            _ => {}
        }
        match (
            text_field(result, "subtype"),
            text_field(result, "stop_reason"),
            text_field(result, "api_error"),
        ) {
            (Some("error_max_structured_output_retries" | "error_max_turns"), ..) => {
                CallErrorKind::InvalidOutput
            }
            (Some("error_max_budget_usd"), ..) => CallErrorKind::Quota { reset: None },
            (_, Some("refusal"), _) => CallErrorKind::Refused,
            (_, _, Some("max_output_tokens")) => CallErrorKind::Truncated,
            _ if banner.starts_with("Request timed out") => {
                CallErrorKind::Timeout { idle: self.has_begun(), elapsed: output.elapsed }
            }
            _ if banner.starts_with("Credit balance is too low") => CallErrorKind::Quota { reset: None },
            _ if banner.starts_with("Not logged in") => CallErrorKind::Auth,
            // The program rewords service errors; the status is more reliable.
            _ => match status {
                Some(status) => http::failure_kind(status, &Value::Null),
                None => limit_kind(output, banner).unwrap_or(CallErrorKind::Unavailable),
            },
        }
    }
}

/// Adds with saturation, since the numbers come from the program and may have any size.
fn add_tokens(sum: &mut u64, tokens: u64) {
    *sum = sum.saturating_add(tokens);
}

fn text_field<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key)?.as_str()
}

fn unix_time(seconds: i64) -> Option<Timestamp> {
    seconds.checked_mul(1000).map(Timestamp)
}

#[cfg(test)]
mod tests;
