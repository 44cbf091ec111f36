use std::time::Duration;

use serde_json::json;

use super::*;
use crate::providers::samples;

fn call(schema: bool) -> ModelCall {
    ModelCall {
        prompt: String::new(),
        schema: schema.then(|| {
            json!({"type": "object", "required": ["severity"], "properties": {"severity": {"type": "string"}}})
        }),
        deadline: Duration::from_secs(1),
        ..samples::call()
    }
}

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn judge(lines: &str, status: Option<i32>, schema: bool) -> Result<ModelReply, CallError> {
    let mut transcript = ClaudeTranscript::default();
    lines.lines().for_each(|line| transcript.read_line(line.as_bytes()));
    let output = ChildOutput {
        status,
        signal: None,
        stdout: vec![],
        stderr: b"error: why".to_vec(),
        elapsed: Duration::from_secs(2),
    };
    transcript.judge(&call(schema), &output, NOW)
}

/// A row of `endings.jsonl`: how the program ended, and the expected result.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaudeEnding {
    case: String,
    version: String,
    exit: i32,
    #[serde(default)]
    schema: bool,
    /// Expected error. `None` if the response must be accepted.
    must: Option<CallErrorKind>,
    #[serde(default)]
    stderr: String,
    /// Output that is not JSON. Each row sets exactly one of `text`, `lines` and `result`.
    text: Option<String>,
    /// Output lines of `stream-json`.
    lines: Option<Vec<Value>>,
    /// The result line. It is the whole output in the format `json`, and the last line in the format `stream-json`.
    result: Option<Value>,
    #[serde(default)]
    before: Vec<Value>,
    #[serde(default)]
    assistant: Vec<ClaudeMessage>,
}

/// An assistant message: its model, and the program's error field.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaudeMessage {
    model: String,
    error: Option<String>,
}

impl ClaudeEnding {
    fn streamed(&self) -> String {
        if let Some(text) = &self.text {
            return text.clone();
        }
        let mut lines = self.lines.clone().unwrap_or_default();
        if let Some(result) = &self.result {
            lines.push(json!({"type": "system", "subtype": "init", "claude_code_version": self.version}));
            lines.extend(self.before.iter().cloned());
            lines.extend(self.assistant.iter().enumerate().map(|(at, reply)| {
                let usage = json!({"input_tokens": 1000, "output_tokens": 1});
                let message = json!({"id": format!("msg_{at}"), "model": reply.model, "usage": usage});
                json!({"type": "assistant", "message": message, "error": reply.error})
            }));
            lines.push(result.clone());
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns the expected failure if the output consists only of the result line. A result line names no model, so
    /// that output is never accepted as a response.
    fn must_without_messages(&self) -> CallErrorKind {
        match &self.must {
            None | Some(CallErrorKind::WrongModel { .. }) => CallErrorKind::WrongModel { served: None },
            Some(kind) => kind.clone(),
        }
    }
}

fn endings() -> Vec<ClaudeEnding> {
    let table = std::fs::read_to_string("fixtures/claude-cli/endings.jsonl").unwrap();
    table.lines().map(|row| serde_json::from_str(row).unwrap()).collect()
}

fn fixture(case: &str) -> String {
    endings().iter().find(|ending| ending.case == case).unwrap().streamed()
}

#[test]
fn every_recorded_claude_exit_maps_to_its_error_kind() {
    let endings = endings();
    for ending in &endings {
        let kind = |printed: &str| {
            let mut transcript = ClaudeTranscript::default();
            printed.lines().for_each(|line| transcript.read_line(line.as_bytes()));
            let stderr = ending.stderr.clone().into_bytes();
            let elapsed = Duration::from_secs(2);
            let output =
                ChildOutput { status: Some(ending.exit), signal: None, stdout: vec![], stderr, elapsed };
            transcript.judge(&call(ending.schema), &output, NOW).err().map(|error| error.kind)
        };
        assert_eq!(kind(&ending.streamed()), ending.must, "{} of {}", ending.case, ending.version);
        if let Some(result) = ending.result.as_ref().filter(|_| ending.before.is_empty()) {
            let must = Some(ending.must_without_messages());
            assert_eq!(kind(&result.to_string()), must, "{} as its result alone", ending.case);
        }
    }
    let versions = |wanted: &str| endings.iter().filter(|ending| ending.version == wanted).count();
    assert!(versions("2.1.329") >= 71 && versions("2.1.197") >= 4, "the recorded ones are all there");
}

#[test]
fn usage_is_read_from_the_result_and_the_model_from_messages() {
    let usage = judge(&fixture("good"), Some(0), false).unwrap().usage;
    assert_eq!(usage.served.as_deref(), Some("claude-opus-4-6"));
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens), (1000, 50, 200));
    assert_eq!((usage.attempts, usage.billed, usage.elapsed), (1, false, Duration::from_secs(2)));

    let usage = judge(&fixture("other-model"), Some(0), false).unwrap_err().usage;
    assert_eq!(usage.asked, "claude-opus-4-6");
    assert_eq!(usage.served.as_deref(), Some("claude-haiku-4-5-20251001"));

    let usage = judge(&fixture("schema-given-up"), Some(1), true).unwrap_err().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (4000, 200), "spent though the usage says 0");
    assert_eq!(judge(&fixture("overloaded"), Some(1), false).unwrap_err().usage.attempts, 2);
}

#[test]
fn transcript_without_a_result_maps_to_unavailable() {
    for (status, lines) in
        [(Some(0), ""), (Some(1), ""), (None, ""), (Some(0), "not json\n{\"type\":\"system\"}\n[]\n")]
    {
        let error = judge(lines, status, false).unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Unavailable);
        assert!(error.message.contains("error: why"), "{error}");
    }
}

#[test]
fn truncated_claude_transcript_is_never_accepted_as_an_answer() {
    let whole = fixture("good");
    for end in 0..whole.trim_end().len() {
        if whole.is_char_boundary(end) {
            assert!(judge(&whole[..end], Some(0), false).is_err(), "cut at {end}");
        }
    }
}

/// Reads 100,000 messages, about as many as fit into the output limit of 30 MB.
#[test]
fn transcript_with_huge_counts_or_invalid_lines_is_an_error() {
    let mut transcript = ClaudeTranscript::default();
    for number in 0..100_000 {
        let line = format!(
            r#"{{"type":"assistant","message":{{"id":"{number}","model":"m{number}","usage":{{"input_tokens":{}}}}}}}"#,
            u64::MAX
        );
        transcript.read_line(line.as_bytes());
    }
    let usage = transcript.usage(&call(false));
    assert_eq!((usage.input_tokens, usage.served.as_deref()), (u64::MAX, Some("m0")));

    let huge = format!(
        r#"{{"type":"result","is_error":false,"result":"x","usage":{{"input_tokens":{0},"output_tokens":{0}}}}}"#,
        u64::MAX
    );
    judge(&huge, Some(0), false).unwrap_err();
    for junk in ["[".repeat(1_000_000), "\0\u{1b}[2J".into(), "{\"type\":\"assistant\",\"message\":7}".into()]
    {
        judge(&junk, Some(0), false).unwrap_err();
    }
}
