//! Attributes, annotations and decorators that may make names which no text spells.

/// Those that make none but what every type may have.
const PLAIN: &[&str] = &[
    "allow",
    "async_trait",
    "cfg",
    "cfg_attr",
    "clippy",
    "cold",
    "deny",
    "deprecated",
    "derive",
    "diagnostic",
    "doc",
    "error",
    "expect",
    "forbid",
    "inline",
    "macro_use",
    "must_use",
    "non_exhaustive",
    "path",
    "repr",
    "rustfmt",
    "serde",
    "test",
    "track_caller",
    "warn",
];

/// Derives of the standard library, and those nearly everybody uses.
const DERIVES: &[&str] = &[
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Deserialize",
    "Eq",
    "Error",
    "Hash",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Serialize",
];

/// Annotations and decorators that add nothing to be called by name.
const DECORATORS: &[&str] =
    &["dataclass", "dataclasses", "final", "total_ordering", "Deprecated", "FunctionalInterface"];

/// May what stands above a signature make names?
pub(super) fn make_names(signature: &str) -> bool {
    signature.split("#[").skip(1).any(|attribute| {
        let words: Vec<&str> = words(attribute.split(']').next().unwrap_or_default()).collect();
        match words.split_first() {
            Some((&"derive", derived)) => {
                derived.iter().any(|name| starts_upper(name) && !DERIVES.contains(name))
            }
            Some((name, _)) => !PLAIN.contains(name),
            None => false,
        }
    }) || signature
        .split('@')
        .skip(1)
        .any(|decorator| words(decorator).next().is_some_and(|name| !DECORATORS.contains(&name)))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

fn starts_upper(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}
