//! Parses tool requests in a model's response.
//!
//! All models use the same plain-text form: `{"toolCalls": [{"name": …, "arguments": {…}}]}`. The parser ignores a
//! sentence before the JSON, and a code fence around the JSON.

use serde::Deserialize;
use serde_json::Value;

use crate::codebase::redact_text;

/// A tool call that a model requests. The call has not been checked against the model's role yet.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ToolRequest {
    pub name: String,
    #[serde(default)]
    pub arguments: Value,
}

/// Kind of a model's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentAnswer {
    /// The response requests one or more tools.
    Calls(Vec<ToolRequest>),
    /// The response seems to request tools but cannot be parsed. The reason is a fixed string, because the model trusts
    /// it as our own text.
    Broken(&'static str),
    /// The response requests no tools.
    Other,
}

#[derive(Deserialize)]
struct ToolRequestEnvelope {
    #[serde(alias = "tool_calls", rename = "toolCalls")]
    calls: Vec<ToolRequest>,
}

impl AgentAnswer {
    pub fn parse(answer: &str) -> Self {
        let text = answer.trim();
        let named = |text: &str| ["\"toolCalls\"", "\"tool_calls\""].iter().any(|name| text.contains(name));
        // A document may quote such calls.
        if text.starts_with('#') || !named(text) {
            return Self::Other;
        }
        let starts = text.split_inclusive('\n').scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        });
        let starts: Vec<usize> =
            starts.filter(|(_, line)| line.trim_start().starts_with('{')).map(|(at, _)| at).collect();
        let object = starts.first().zip(text.rfind('}')).and_then(|(start, end)| text.get(*start..=end));
        let Some(object) = object else { return Self::Broken("no line begins with the object") };
        match serde_json::from_str::<Value>(object) {
            Ok(value) if value.get("toolCalls").or(value.get("tool_calls")).is_none() => Self::Other,
            Ok(value) => match serde_json::from_value::<ToolRequestEnvelope>(value) {
                Ok(ToolRequestEnvelope { calls }) if calls.is_empty() => Self::Broken("it asks for nothing"),
                Ok(ToolRequestEnvelope { calls }) => Self::Calls(calls),
                Err(_) => Self::Broken(
                    "`toolCalls` is not a list of objects, each with a `name` and its `arguments`",
                ),
            },
            Err(_) => Self::Broken("it is not one JSON object"),
        }
    }
}

impl ToolRequest {
    /// Returns the requested call as one redacted line for a prompt.
    pub(super) fn one_line(&self) -> String {
        truncate_line(&format!("{} {}", self.name, self.arguments), 200)
    }
}

/// Redacts secrets in a model's text, joins its lines into one and truncates the result to `most` characters.
pub(super) fn truncate_line(text: &str, most: usize) -> String {
    let line = redact_text(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
