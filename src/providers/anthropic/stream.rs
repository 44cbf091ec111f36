//! Assembles a message from its streamed events.

use std::time::Duration;

use serde_json::Value;

use crate::providers::{
    CallErrorKind, Metering, Usage,
    http::{self, CallFault, ResponseHead},
    native_tools::NativeToolCalls,
};

#[derive(Default)]
pub(super) struct StreamedMessage {
    pub(super) head: Option<ResponseHead>,
    /// Model id from the first event.
    pub(super) served: Option<String>,
    pub(super) text: String,
    pub(super) thoughts: String,
    pub(super) calls: NativeToolCalls,
    pub(super) stop: Option<String>,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_written: u64,
    /// Whether the service reported the token counts: of the prompt (first), and of the complete response (second).
    counted: [bool; 2],
    complete: bool,
}

impl StreamedMessage {
    pub(super) fn record_usage(&self, usage: &mut Usage) {
        usage.served = self.served.clone();
        usage.input_tokens = self.input;
        usage.output_tokens = self.output;
        usage.cache_read_tokens = self.cache_read;
        usage.cache_written_tokens = self.cache_written;
        if self.counted == [true; 2] {
            usage.metered = Metering::Known;
        } else {
            usage.received = (self.text.len() + self.thoughts.len()) as u64;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Checks, at the end of the stream, that the final event arrived.
    pub(super) fn check_complete(&self) -> Result<(), CallFault> {
        if self.complete {
            return Ok(());
        }
        Err(CallFault::new(CallErrorKind::Unavailable, "the stream was cut before the answer's end"))
    }

    /// Handles one event. `data` is JSON that also contains the event's type.
    pub(super) fn handle_event(&mut self, data: &str) -> Result<(), CallFault> {
        let event: Value = serde_json::from_str(data).map_err(|error| {
            CallFault::new(CallErrorKind::InvalidOutput, &format!("an event is not JSON: {error}"))
        })?;
        let at = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str() {
            Some("message_start") if self.served.is_some() => {
                return Err(CallFault::new(
                    CallErrorKind::InvalidOutput,
                    "a second message began within the first",
                ));
            }
            Some("message_start") => {
                let message = &event["message"];
                self.served = message["model"].as_str().map(str::to_owned);
                self.update_tokens(&message["usage"]);
                self.counted[0] = message["usage"]["input_tokens"].is_u64();
            }
            Some("content_block_start") if event["content_block"]["type"] == "tool_use" => {
                self.calls.add_fragment(at, None, event["content_block"]["name"].as_str(), None);
            }
            Some("content_block_delta") if event["delta"]["type"] == "input_json_delta" => {
                self.calls.add_fragment(at, None, None, event["delta"]["partial_json"].as_str());
            }
            Some("content_block_delta") if event["delta"]["type"] == "text_delta" => {
                self.text.push_str(event["delta"]["text"].as_str().unwrap_or_default());
            }
            Some("content_block_delta") if event["delta"]["type"] == "thinking_delta" => {
                self.thoughts.push_str(event["delta"]["thinking"].as_str().unwrap_or_default());
            }
            Some("message_delta") => {
                self.stop = event["delta"]["stop_reason"].as_str().map(str::to_owned);
                self.update_tokens(&event["usage"]);
                self.counted[1] = event["usage"]["output_tokens"].is_u64();
            }
            Some("message_stop") => self.complete = true,
            Some("error") => {
                let error = &event["error"];
                let text = error["message"].as_str().unwrap_or("an error without a message");
                return Err(CallFault::new(failure_kind(200, &error["type"], text, None), text));
            }
            // Ignore pings and unknown event types.
            _ => {}
        }
        Ok(())
    }

    /// Updates the token counts, which are cumulative. A count that the event omits keeps its value.
    fn update_tokens(&mut self, usage: &Value) {
        for (name, count) in [
            ("input_tokens", &mut self.input),
            ("output_tokens", &mut self.output),
            ("cache_read_input_tokens", &mut self.cache_read),
            ("cache_creation_input_tokens", &mut self.cache_written),
        ] {
            *count = usage[name].as_u64().unwrap_or(*count);
        }
    }
}

/// Classifies an error by HTTP status and error type. An error event within a stream has only a type.
pub(super) fn failure_kind(
    status: u16,
    kind: &Value,
    text: &str,
    retry_after: Option<Duration>,
) -> CallErrorKind {
    // Both are reported as invalid requests and differ only in the text.
    let unpaid = text.contains("credit balance is too low") || text.contains("API usage limits");
    let long = text.contains("prompt is too long") || text.contains("exceed context limit");
    match (status, kind.as_str().unwrap_or_default()) {
        (401 | 403, _) | (_, "authentication_error" | "permission_error") => CallErrorKind::Auth,
        (402, _) | (_, "billing_error") => CallErrorKind::Quota { reset: retry_after },
        (413, _) | (_, "request_too_large") => CallErrorKind::TooLong,
        (429, _) | (_, "rate_limit_error") => CallErrorKind::RateLimited { reset: retry_after },
        (503 | 529, _) | (_, "overloaded_error") => CallErrorKind::Capacity,
        (400, _) | (_, "invalid_request_error") if unpaid => CallErrorKind::Quota { reset: retry_after },
        (400, _) | (_, "invalid_request_error") if long => CallErrorKind::TooLong,
        // Errors within a stream have no status.
        (200, "invalid_request_error") => http::failure_kind(400, kind),
        (200, "not_found_error") => CallErrorKind::NoSuchModel,
        _ => http::failure_kind(status, kind),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_is_assembled_from_stream_events() {
        let mut message = StreamedMessage::default();
        for event in [
            r#"{"type":"message_start","message":{"model":"m","usage":{"input_tokens":9,"cache_read_input_tokens":4,"cache_creation_input_tokens":5}}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"hm"}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"für "}}"#,
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"alle"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
            r#"{"type":"message_stop"}"#,
        ] {
            assert!(message.check_complete().is_err());
            message.handle_event(event).unwrap();
        }
        message.check_complete().unwrap();
        assert_eq!((message.text.as_str(), message.stop.as_deref()), ("für alle", Some("end_turn")));
        assert_eq!((message.input, message.cache_read, message.cache_written, message.output), (9, 4, 5, 7));
    }

    #[test]
    fn anthropic_errors_are_classified_by_status_or_type() {
        let kind = |status, kind: &str, text| failure_kind(status, &json!(kind), text, None);
        let rejected = |code: &str| CallErrorKind::Rejected { code: code.to_owned() };
        for (status, name, text, expected) in [
            (401, "authentication_error", "", CallErrorKind::Auth),
            (200, "overloaded_error", "", CallErrorKind::Capacity),
            (200, "api_error", "", CallErrorKind::Unavailable),
            (402, "billing_error", "", CallErrorKind::Quota { reset: None }),
            (
                400,
                "invalid_request_error",
                "Your credit balance is too low",
                CallErrorKind::Quota { reset: None },
            ),
            (
                400,
                "invalid_request_error",
                "You have reached your specified API usage limits",
                CallErrorKind::Quota { reset: None },
            ),
            (
                400,
                "invalid_request_error",
                "prompt is too long: 9 tokens > 8 maximum",
                CallErrorKind::TooLong,
            ),
            (400, "invalid_request_error", "temperature: no such field", rejected("invalid_request_error")),
            (200, "invalid_request_error", "", rejected("invalid_request_error")),
            (422, "some prose", "", rejected("422")),
            (404, "not_found_error", "model: claude-9", CallErrorKind::NoSuchModel),
            (413, "request_too_large", "", CallErrorKind::TooLong),
            (503, "", "<html>", CallErrorKind::Capacity),
            (502, "", "<html>", CallErrorKind::Unavailable),
        ] {
            assert_eq!(kind(status, name, text), expected, "{status} {name} {text}");
        }
    }
}
