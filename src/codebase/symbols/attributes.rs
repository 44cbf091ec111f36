//! Attributes, annotations and decorators that may make names which no text spells.

/// Those that make none but what every type may have.
const PLAIN: &[&str] = &[
    "allow",
    "async_trait",
    "cfg",
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
    let attributes = signature.split("#[").skip(1);
    let attributes = attributes.map(|attribute| attribute.split(']').next().unwrap_or_default().trim());
    attributes.flat_map(within).any(makes_names)
        || signature
            .split('@')
            .skip(1)
            .any(|decorator| words(decorator).next().is_some_and(|name| !DECORATORS.contains(&name)))
}

/// An attribute, or those that it stands for if a condition holds.
fn within(attribute: &str) -> Vec<&str> {
    let Some(inner) = attribute.strip_prefix("cfg_attr(") else { return vec![attribute] };
    let mut deep = 0_i32;
    let parts = inner.split(|c| {
        deep += i32::from(c == '(') - i32::from(c == ')');
        deep == 0 && c == ','
    });
    parts.skip(1).collect()
}

fn makes_names(attribute: &str) -> bool {
    let words: Vec<&str> = words(attribute).collect();
    match words.split_first() {
        Some((&"derive", derived)) => {
            derived.iter().any(|name| starts_upper(name) && !DERIVES.contains(name))
        }
        Some((name, _)) => !PLAIN.contains(name),
        None => false,
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

fn starts_upper(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}
