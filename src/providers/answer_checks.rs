//! Checks that every response must pass, whichever back end it came from.

use serde_json::Value;

use super::{CallErrorKind, ModelCall, http::CallFault, schema, strict_json};
use crate::documents::strip_fence;

/// Checks that the response names the model that served it, and that this model is the requested one or an accepted
/// successor.
pub(super) fn check_served(call: &ModelCall, served: Option<&str>) -> Result<(), CallFault> {
    if served.is_some_and(|served| call.may_be_served_by(served)) {
        return Ok(());
    }
    let why = format!("{} answered instead of {}", served.unwrap_or("an unnamed model"), call.model);
    Err(CallFault(CallErrorKind::WrongModel { served: served.map(str::to_owned) }, why))
}

/// Checks that the text is not blank. If the call has a schema, also checks `value` against the schema and returns the
/// value. If `value` is `None`, the text without its code fence is parsed as JSON instead.
pub(super) fn validate_answer(
    call: &ModelCall,
    text: String,
    value: Option<Value>,
) -> Result<(String, Option<Value>), CallFault> {
    if text.trim().is_empty() {
        return Err(CallFault::new(CallErrorKind::Empty, "the answer is empty"));
    }
    let Some(wanted) = &call.schema else { return Ok((text, None)) };
    let invalid = |why| CallFault(CallErrorKind::InvalidOutput, why);
    let text = strip_fence(&text).to_owned();
    let value = match value {
        Some(value) => value,
        None => {
            strict_json::parse(&text).map_err(|error| invalid(format!("the answer is not JSON: {error}")))?
        }
    };
    match schema::find_misfit(&value, wanted) {
        Some(misfit) => Err(invalid(misfit)),
        None => Ok((text, Some(value))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::providers::samples;

    #[test]
    fn fence_or_byte_order_mark_around_json_is_stripped() {
        let with_schema =
            ModelCall { schema: Some(json!({"type": "object", "required": ["a"]})), ..samples::call() };
        let object = r#"{"a": "```"}"#;
        for around in
            ["{}", "\u{feff}{}", "```json\n{}\n```", " ```\r\n{}\r\n``` ", "\u{feff}~~~~JSON\n{}\n~~~~\n"]
        {
            let text = around.replace("{}", object);
            let (stripped, value) = validate_answer(&with_schema, text.clone(), None).expect(around);
            assert_eq!((stripped.as_str(), value), (object, Some(json!({"a": "```"}))), "{around}");
            assert_eq!(
                validate_answer(&samples::call(), text.clone(), None).unwrap().0,
                text,
                "no form was asked for"
            );
        }
        for around in
            ["```\n```\n{}\n```\n```", "Here: {}", "```json\n{}", "```json\n{}\n~~~", "```\n{}\n```\nDone."]
        {
            assert!(validate_answer(&with_schema, around.replace("{}", object), None).is_err(), "{around}");
        }
    }
}
