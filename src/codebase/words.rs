//! The words of texts and names, by which files are found.

use std::collections::{BTreeMap, BTreeSet};

/// The words of a text: lower-case, three letters or more, `snake_case` and `camelCase` taken apart,
/// without those that every text has.
pub(super) fn of(text: &str) -> BTreeSet<String> {
    counted(text).into_keys().collect()
}

/// The same with how often each occurs.
pub(super) fn counted(text: &str) -> BTreeMap<String, u32> {
    let mut words = BTreeMap::new();
    for token in text.split(|c: char| !c.is_alphanumeric()).filter(|token| !token.is_empty()) {
        let mut start = 0;
        let mut before_lower = false;
        for (at, c) in token.char_indices() {
            if c.is_uppercase() && before_lower {
                add(&mut words, &token[start..at]);
                start = at;
            }
            before_lower = c.is_lowercase() || c.is_numeric();
        }
        add(&mut words, &token[start..]);
    }
    words
}

fn add(words: &mut BTreeMap<String, u32>, word: &str) {
    let lower = word.to_lowercase();
    // A crude singular, so that "errors" finds `error`.
    let stem =
        lower.strip_suffix('s').filter(|stem| stem.len() > 3 && !stem.ends_with('s')).unwrap_or(&lower);
    if (3..=40).contains(&stem.len()) && !COMMON.contains(&stem) && !stem.bytes().all(|b| b.is_ascii_digit())
    {
        *words.entry(stem.to_owned()).or_default() += 1;
    }
}

const COMMON: &[&str] = &[
    "the", "and", "for", "with", "that", "thi", "this", "from", "not", "are", "was", "but", "have", "has",
    "should", "would", "could", "can", "will", "when", "then", "than", "there", "their", "they", "what",
    "which", "who", "how", "why", "use", "used", "using", "one", "two", "all", "any", "some", "into", "out",
    "now", "new", "also", "only", "more", "must", "may", "you", "your", "our", "its", "been", "does",
    "without", "want", "need", "see", "let", "pub", "mod", "src", "main", "lib", "std", "str", "self",
    "return", "true", "false", "none", "null", "file", "issue", "get", "set",
];
