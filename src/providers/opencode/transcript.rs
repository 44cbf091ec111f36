//! Parses OpenCode's output and decides whether the call succeeded. Each line is an event. The reason of the last
//! finished step is the stop reason. An `error` event means that the response is missing. No event names the model.

use serde_json::Value;

use super::super::{
    CallErrorKind, Metering, ModelCall, Usage,
    answer_checks::validate_answer,
    http::{self, CallFault},
    program::limit_kind,
    quote_text,
};
use crate::proc::ChildOutput;

#[derive(Default)]
pub(super) struct OpenCodeTranscript {
    text: String,
    begun: bool,
    /// Stop reason: the reason of the last finished step.
    reason: Option<String>,
    /// The first `error` event.
    error: Option<Value>,
    usage: Usage,
}

impl OpenCodeTranscript {
    pub(super) fn read_line(&mut self, line: &[u8]) {
        let Ok(mut event) = serde_json::from_slice::<Value>(line) else { return };
        let part = &event["part"];
        match event["type"].as_str() {
            Some("step_start") => (self.begun, self.reason) = (true, None),
            Some("text") => self.text.push_str(part["text"].as_str().unwrap_or_default()),
            Some("step_finish") => {
                let of = |tokens: &Value| tokens.as_u64().unwrap_or(0);
                let tokens = &part["tokens"];
                // Saturate, since the numbers come from the program and may have any size.
                let add = |sum: &mut u64, tokens: &Value| *sum = sum.saturating_add(of(tokens));
                add(&mut self.usage.input_tokens, &tokens["input"]);
                add(&mut self.usage.output_tokens, &tokens["output"]);
                add(&mut self.usage.output_tokens, &tokens["reasoning"]);
                add(&mut self.usage.cache_read_tokens, &tokens["cache"]["read"]);
                add(&mut self.usage.cache_written_tokens, &tokens["cache"]["write"]);
                self.reason = part["reason"].as_str().map(str::to_owned);
            }
            Some("error") => {
                self.error.get_or_insert_with(|| event["error"].take());
            }
            _ => {}
        }
    }

    pub(super) fn record_usage(&self, usage: &mut Usage) {
        let seen = &self.usage;
        usage.input_tokens = seen.input_tokens;
        usage.output_tokens = seen.output_tokens;
        usage.cache_read_tokens = seen.cache_read_tokens;
        usage.cache_written_tokens = seen.cache_written_tokens;
        let status = self.error.as_ref().and_then(|error| error["data"]["statusCode"].as_u64());
        let refused =
            status.and_then(|status| u16::try_from(status).ok()).is_some_and(http::is_unbilled_status);
        // Only whole steps are counted; only a call refused before the first step used nothing.
        if self.reason.is_some() && self.error.is_none() || refused && !self.begun {
            usage.metered = Metering::Known;
        }
    }

    pub(super) fn judge_result(
        &self,
        call: &ModelCall,
        output: &ChildOutput,
    ) -> Result<(String, Option<Value>), CallFault> {
        if let Some(error) = &self.error {
            let message = error["data"]["message"].as_str().unwrap_or("no reason given");
            return Err(CallFault(failure_kind(error, message, output), quote_text(message)));
        }
        if !output.success() {
            let status = output.status.map_or("a signal".into(), |status| format!("status {status}"));
            let why = format!("it ended with {status}: {}", quote_text(&output.stderr_text()));
            return Err(CallFault(limit_kind(output, "").unwrap_or(CallErrorKind::Unavailable), why));
        }
        match self.reason.as_deref() {
            Some("stop") => {}
            Some("length") => {
                return Err(CallFault::new(CallErrorKind::Truncated, "the answer was truncated"));
            }
            Some("content-filter") => {
                return Err(CallFault::new(CallErrorKind::Refused, "the answer was withheld"));
            }
            Some(reason) => {
                let why = format!("the answer is incomplete ({})", quote_text(reason));
                return Err(CallFault(CallErrorKind::InvalidOutput, why));
            }
            None => {
                return Err(CallFault::new(
                    CallErrorKind::Unavailable,
                    "its output has no end of the answer",
                ));
            }
        }
        validate_answer(call, self.text.clone(), None)
    }
}

fn failure_kind(error: &Value, message: &str, output: &ChildOutput) -> CallErrorKind {
    match error["name"].as_str() {
        Some("ContextOverflowError") => return CallErrorKind::TooLong,
        Some("ContentFilterError") => return CallErrorKind::Refused,
        Some("MessageOutputLengthError") => return CallErrorKind::Truncated,
        Some("ProviderAuthError") => return CallErrorKind::Auth,
        _ => {}
    }
    match error["data"]["statusCode"].as_u64() {
        Some(401 | 403) => CallErrorKind::Auth,
        Some(402) => CallErrorKind::Quota { reset: None },
        Some(413) => CallErrorKind::TooLong,
        Some(429) => CallErrorKind::RateLimited { reset: None },
        Some(503 | 529) => CallErrorKind::Capacity,
        // Anthropic has no separate status for exhausted credit.
        Some(400) if message.contains("credit balance is too low") => CallErrorKind::Quota { reset: None },
        Some(status) => http::failure_kind(u16::try_from(status).unwrap_or_default(), &Value::Null),
        None => limit_kind(output, message).unwrap_or(CallErrorKind::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::providers::samples;

    /// A row of the table of endings: how the program ended, and the expected result.
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OpenCodeEnding {
        case: String,
        exit: i32,
        #[serde(default)]
        schema: bool,
        /// Expected error. `None` if the response must be accepted.
        must: Option<CallErrorKind>,
        lines: Vec<Value>,
    }

    #[test]
    fn every_recorded_opencode_exit_maps_to_its_error_kind() {
        let table = std::fs::read_to_string("fixtures/opencode-cli/endings.jsonl").unwrap();
        for row in table.lines() {
            let OpenCodeEnding { case, exit, schema, must, lines } = serde_json::from_str(row).unwrap();
            let mut transcript = OpenCodeTranscript::default();
            lines.iter().for_each(|line| transcript.read_line(line.to_string().as_bytes()));
            let output = ChildOutput {
                signal: None,
                status: Some(exit),
                stdout: Vec::new(),
                stderr: Vec::new(),
                elapsed: Duration::from_secs(2),
            };
            let call = ModelCall {
                prompt: String::new(),
                schema: schema.then(|| json!({"type": "object", "required": ["severity"]})),
                model: "anthropic/claude-opus-4-6".into(),
                deadline: Duration::from_secs(1),
                ..samples::call()
            };
            let outcome = transcript.judge_result(&call, &output);
            assert_eq!(outcome.as_ref().err().map(|fault| &fault.0), must.as_ref(), "{case}");
            let mut usage = Usage::default();
            transcript.record_usage(&mut usage);
            if must.is_none() {
                assert_eq!((usage.input_tokens, usage.output_tokens), (1000, 50), "{case}");
            }
            assert_eq!(usage.served, None, "nothing attests who answered");
        }
    }
}
