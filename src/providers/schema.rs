//! Validates values against the part of JSON Schema that our schemas use: types, required and additional properties,
//! items, enumerations, and `anyOf`.

use serde_json::Value;

/// Returns a description of the first place where `value` does not conform to the schema; `None` if `value` conforms.
pub(super) fn find_misfit(value: &Value, schema: &Value) -> Option<String> {
    find_misfit_at(value, schema, "the answer")
}

fn find_misfit_at(value: &Value, schema: &Value, place: &str) -> Option<String> {
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        return Some(format!("{place} is not one of the allowed values"));
    }
    if let Some(choices) = schema.get("anyOf").and_then(Value::as_array)
        && !choices.iter().any(|choice| find_misfit_at(value, choice, place).is_none())
    {
        return Some(format!("{place} fits none of the allowed forms"));
    }
    if let Some(types) = schema.get("type") {
        let types: Vec<_> = match types {
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        if !types.iter().any(|name| has_type(value, name)) {
            return Some(format!("{place} is not of type {}", types.join(" or ")));
        }
    }
    match value {
        Value::Object(fields) => {
            let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
            for name in required.filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    return Some(format!("{place} lacks `{name}`"));
                }
            }
            let properties = schema.get("properties");
            let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
            fields.iter().find_map(|(name, field)| match properties.and_then(|p| p.get(name)) {
                Some(inner) => find_misfit_at(field, inner, &format!("`{name}`")),
                None => {
                    closed.then(|| format!("{place} has `{}`, which is unknown", super::quote_text(name)))
                }
            })
        }
        Value::Array(items) => {
            let inner = schema.get("items")?;
            items
                .iter()
                .enumerate()
                .find_map(|(at, item)| find_misfit_at(item, inner, &format!("{place}[{at}]")))
        }
        _ => None,
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn value_that_violates_the_schema_is_reported_with_its_path() {
        let schema = json!({
            "type": "object",
            "required": ["verdict", "findings"],
            "additionalProperties": false,
            "properties": {
                "verdict": {"type": "string", "enum": ["APPROVED", "REVISE"]},
                "findings": {"type": "array", "items": {"type": "object", "required": ["title"]}},
                "note": {"type": ["string", "null"]},
            },
        });
        assert_eq!(find_misfit(&json!({"verdict": "REVISE", "findings": [], "note": null}), &schema), None);
        for (value, words) in [
            (json!("APPROVED"), "the answer is not of type object"),
            (json!({"verdict": "APPROVED"}), "lacks `findings`"),
            (json!({"verdict": "MAYBE", "findings": []}), "`verdict` is not one of"),
            (json!({"verdict": "REVISE", "findings": [{}]}), "`findings`[0] lacks `title`"),
            (json!({"verdict": "REVISE", "findings": [], "extra": 1}), "has `extra`"),
            (json!({"verdict": "REVISE", "findings": [], "note": 1}), "string or null"),
        ] {
            let found = find_misfit(&value, &schema).unwrap_or_default();
            assert!(found.contains(words), "{value}: {found}");
        }
    }
}
