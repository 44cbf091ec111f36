//! Parses a text into the words and code names to search for.

use std::collections::{BTreeMap, BTreeSet};

use super::super::words;
use crate::limits;

/// Maximum number of code names in a query.
const SIMILAR_NAMES: usize = 200;

#[derive(Debug, Default)]
pub(in crate::codebase) struct RankingQuery {
    /// Words with their weights, sorted by word. The weights do not include the rarity of the words yet.
    pub(in crate::codebase) words: Vec<(String, f64)>,
    /// Words written like code, such as `FooBar`, `foo_bar` and `foo()`, and all words in backticks.
    pub(super) names: BTreeSet<String>,
}

impl RankingQuery {
    pub(in crate::codebase) fn parse(text: &str) -> Self {
        let text = &strip_urls(&text[..text.floor_char_boundary(limits::SIMILAR_TEXT)]);
        let (title, body) = text.trim_start().split_once('\n').unwrap_or((text.trim_start(), ""));
        let mut query = Self { words: weigh_words(title, body), ..Self::default() };
        query.add_names(text);
        query
    }

    pub(in crate::codebase) fn position(&self, word: &str) -> Option<usize> {
        self.words.binary_search_by(|(known, _)| known.as_str().cmp(word)).ok()
    }

    fn add_names(&mut self, text: &str) {
        for line in text.lines() {
            for (at, part) in line.split('`').enumerate() {
                let quoted = at % 2 == 1;
                for name in words::names_in(part) {
                    let end = name.as_ptr() as usize - part.as_ptr() as usize + name.len();
                    let called = part[end..].starts_with("()");
                    if self.names.len() < SIMILAR_NAMES
                        && (3..=100).contains(&name.len())
                        && !name.starts_with(char::is_numeric)
                        && (quoted || called || looks_like_code(name))
                    {
                        self.names.insert(name.to_owned());
                    }
                }
            }
        }
    }
}

/// Removes URLs, because the words in a URL describe a web page and not the repository. Keeps the file path in a GitHub
/// link of the form `https://github.com/OWNER/NAME/blob/COMMIT/PATH`.
fn strip_urls(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        kept.push_str(rest[..at].trim_end_matches(|c: char| c.is_ascii_alphabetic()));
        let after = &rest[at..];
        let end = after.find(|c: char| c.is_whitespace() || "<>()[]\"'`".contains(c));
        let (address, behind) = after.split_at(end.unwrap_or(after.len()));
        let linked = address.split_once("/blob/").and_then(|(_, linked)| linked.split_once('/'));
        kept.push_str(linked.map_or("", |(_, path)| path));
        rest = behind;
    }
    kept + rest
}

/// Returns the words with their weights. Repeated occurrences raise a weight logarithmically, and a word in the title
/// adds 2.
fn weigh_words(title: &str, body: &str) -> Vec<(String, f64)> {
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    for (word, count) in words::count_words(&words::count_names(body)) {
        weights.insert(word, f64::from(count).ln_1p());
    }
    for word in words::word_set(title) {
        *weights.entry(word).or_default() += 2.0;
    }
    let mut weights: Vec<_> = weights.into_iter().collect();
    weights.retain(|(word, _)| !words::is_common(word));
    if weights.len() > limits::SIMILAR_WORDS {
        weights.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        weights.truncate(limits::SIMILAR_WORDS);
        weights.sort_by(|a, b| a.0.cmp(&b.0));
    }
    weights
}

/// Whether a name is `snake_case` or `camelCase`.
fn looks_like_code(name: &str) -> bool {
    let inner = name.trim_matches('_');
    let turns = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    inner.contains('_') || inner.as_bytes().windows(2).any(turns)
}
