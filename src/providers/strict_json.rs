//! Strict parser for JSON written by models. A duplicate key is an error, because parsers differ in which of the key's
//! values they use.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Parses the whole text as one value; a duplicate key at any depth is an error.
pub(super) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str::<StrictValue>(text).map(|strict| strict.0)
}

struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(StrictValue(item)) = items.next_element()? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if out.contains_key(&name) {
                return Err(A::Error::custom(format!("`{}` appears twice", super::quote_text(&name))));
            }
            let StrictValue(field) = fields.next_value()?;
            out.insert(name, field);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_without_duplicate_keys_parses_the_same_as_with_serde_json() {
        for text in [
            "null",
            "[]",
            r#"{"a": [1, -2, 3.5, "x\n", true, {"a": {}}], "b": null}"#,
            "[18446744073709551615]",
        ] {
            assert_eq!(parse(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        assert!(parse("{} {}").is_err() && parse("").is_err());
    }

    #[test]
    fn duplicate_key_is_an_error_at_any_depth() {
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"verdict": "BLOCKED", "\u0076erdict": "OK"}"#,
            r#"[{"x": {"b": 1, "b": 2}}]"#,
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains("appears twice"), "{text}: {error}");
        }
    }
}
