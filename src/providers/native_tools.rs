//! Tools in the form that a service has for them: told to it as theirs, and its calls told as ours.
//!
//! Whoever asks knows one form, in plain text, for every model. So a service's own calls are no answer of another kind: they
//! become that text, and what asked for them cannot tell the difference.

use serde_json::{Value, json};

use super::ModelCall;

/// What an answer asks for, as its pieces come.
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
    /// A piece of the call at this place. Not every server counts the places: another id is another call.
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

    /// The text that says the same; none where nothing is asked for, or nothing was offered.
    pub(super) fn to_text(&self, call: &ModelCall) -> Option<String> {
        let calls = self.0.iter().map(|ToolCallFragment { name, arguments: given, .. }| {
            // What is no JSON is refused where it is read.
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

/// The tools of a call, each by its name, what it is for, and the schema of its arguments.
pub(super) fn map_tools<'a>(
    tools: Option<&'a Value>,
    told: fn(&'a Value, &'a Value, &'a Value) -> Value,
) -> Option<Value> {
    let all = tools?.as_array()?;
    Some(all.iter().map(|tool| told(&tool["name"], &tool["description"], &tool["parameters"])).collect())
}
