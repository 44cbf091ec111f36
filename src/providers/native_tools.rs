//! Converts tools and tool calls between our plain-text form and a service's native form.
//!
//! Callers use one plain-text form for all models. Native tool calls are converted to that text, so callers see no
//! difference.

use serde_json::{Value, json};

use super::ModelCall;

/// Native tool calls of a response, assembled from fragments.
#[derive(Debug, Default)]
pub(super) struct NativeToolCalls(Vec<ToolCallFragment>);

#[derive(Debug, Default)]
struct ToolCallFragment {
    at: u64,
    id: String,
    name: String,
    arguments: String,
}

impl NativeToolCalls {
    /// Adds a fragment to the tool call at index `at`. Some servers send no index, so a fragment with a different id
    /// starts a new tool call.
    pub(super) fn add_fragment(
        &mut self,
        at: u64,
        id: Option<&str>,
        name: Option<&str>,
        arguments: Option<&str>,
    ) {
        let id = id.unwrap_or_default();
        let same = |call: &ToolCallFragment| id.is_empty() || call.id.is_empty() || call.id == id;
        let known = self.0.iter().rposition(|call| call.at == at).filter(|known| same(&self.0[*known]));
        let known = known.unwrap_or(self.0.len());
        if known == self.0.len() {
            self.0.push(ToolCallFragment { at, ..ToolCallFragment::default() });
        }
        let call = &mut self.0[known];
        for (known, given) in [(&mut call.id, id), (&mut call.name, name.unwrap_or_default())] {
            if known.is_empty() {
                *known = given.to_owned();
            }
        }
        call.arguments += arguments.unwrap_or_default();
    }

    /// Returns the tool calls as text. `None` if the response has no tool calls or the model was offered no tools.
    pub(super) fn to_text(&self, call: &ModelCall) -> Option<String> {
        let calls = self.0.iter().map(|ToolCallFragment { name, arguments: given, .. }| {
            // Arguments that are not JSON are refused by the parser of tool requests.
            let arguments = match given.trim() {
                "" => Ok(json!({})),
                given => serde_json::from_str::<Value>(given),
            };
            json!({"name": name, "arguments": arguments.unwrap_or_else(|_| json!(given))})
        });
        let calls: Vec<Value> = calls.collect();
        (call.tools.is_some() && !calls.is_empty()).then(|| json!({"toolCalls": calls}).to_string())
    }
}

/// Converts the tools of a call to a service's form. `convert` gets the name, the description and the parameter schema
/// of each tool.
pub(super) fn map_tools<'a>(
    tools: Option<&'a Value>,
    convert: fn(&'a Value, &'a Value, &'a Value) -> Value,
) -> Option<Value> {
    let all = tools?.as_array()?;
    Some(all.iter().map(|tool| convert(&tool["name"], &tool["description"], &tool["parameters"])).collect())
}
