//! What a text asks for: its words, the names and paths written in it, and the part of the repository its title is about.

use std::collections::{BTreeMap, BTreeSet};

use super::super::words;
use crate::limits;

/// Names, and paths, of it that are looked for.
const SIMILAR_NAMES: usize = 200;

/// A text, read.
#[derive(Debug, Default)]
pub(super) struct Query {
    /// In order, with how much each counts before it is known how rare it is.
    pub(super) words: Vec<(String, f64)>,
    /// The words before the colon of a title such as `fix(router): ...` or `sync: ...`.
    pub(super) scope: BTreeSet<String>,
    /// What is written like a name of code: `FooBar`, `foo_bar`, `foo()`, or between backticks.
    pub(super) names: BTreeSet<String>,
    /// What is written like a path, a file's name or a module's path, its parts divided by `/`.
    pub(super) paths: BTreeSet<String>,
}

impl Query {
    pub(super) fn of(text: &str) -> Self {
        let whole = head(text, limits::SIMILAR_TEXT);
        let text = &without_addresses(whole);
        let (title, body) = text.trim_start().split_once('\n').unwrap_or((text.trim_start(), ""));
        let mut query = Self { words: weighed(title, body), ..Self::default() };
        if let Some(scope) = scope_of(title) {
            query.scope = words::of(&scope);
        }
        for token in whole.split(|c: char| c.is_whitespace() || "\"'<>()[]{},;|*=".contains(c)) {
            query.note_path(token.trim_matches('`'));
        }
        query.note_names(text);
        query
    }

    /// A path, perhaps with a line after it, or a dotted or coloned path of modules.
    fn note_path(&mut self, token: &str) {
        if self.paths.len() >= SIMILAR_NAMES || token.len() > 200 {
            return;
        }
        // A link to a file as it was at some commit: `https://github.com/OWNER/NAME/blob/COMMIT/PATH#L3`.
        let linked = token.split_once("/blob/").and_then(|(_, after)| after.split_once('/'));
        let token = match linked {
            Some((_, path)) if token.contains("://") => path,
            _ if token.contains("://") => return,
            _ => token,
        };
        let token = token.trim_end_matches(['.', ',', ':', '!', '?', '`']);
        let path = if token.contains("::") {
            token.split("::").filter(|part| is_name(part)).collect::<Vec<_>>().join("/")
        } else {
            let token = token.split(['#', ':', '`']).next().unwrap_or_default();
            token.trim_start_matches("./").trim_start_matches('/').to_owned()
        };
        let known_ending = path.rsplit_once('.').is_some_and(|(before, ending)| {
            !before.is_empty()
                && (1..=5).contains(&ending.len())
                && ending.bytes().all(|b| b.is_ascii_alphanumeric())
        });
        if path.contains('/') || known_ending {
            self.paths.insert(path);
        } else if path.contains('.') && path.split('.').all(is_name) {
            self.paths.insert(path.replace('.', "/"));
        }
    }

    fn note_names(&mut self, text: &str) {
        for line in text.lines() {
            for (at, part) in line.split('`').enumerate() {
                let quoted = at % 2 == 1;
                for name in words::names_of(part) {
                    let end = name.as_ptr() as usize - part.as_ptr() as usize + name.len();
                    let called = part[end..].starts_with("()");
                    if self.names.len() < SIMILAR_NAMES
                        && (3..=100).contains(&name.len())
                        && is_name(name)
                        && (quoted || called || looks_like_code(name))
                    {
                        self.names.insert(name.to_owned());
                    }
                }
            }
        }
    }
}

/// A text without the addresses of pages: their words are the web's and not the repository's.
fn without_addresses(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        kept.push_str(rest[..at].trim_end_matches(|c: char| c.is_ascii_alphabetic()));
        let after = &rest[at..];
        let end = after.find(|c: char| c.is_whitespace() || "<>()[]\"'`".contains(c));
        rest = &after[end.unwrap_or(after.len())..];
    }
    kept + rest
}

/// Words of the title count twice; the tenth time a word occurs it adds little.
fn weighed(title: &str, body: &str) -> Vec<(String, f64)> {
    let mut weights: BTreeMap<String, f64> = BTreeMap::new();
    for (word, count) in words::counted(&words::names(body)) {
        weights.insert(word, f64::from(count).ln_1p());
    }
    for word in words::of(title) {
        *weights.entry(word).or_default() += 2.0;
    }
    let mut weights: Vec<_> = weights.into_iter().collect();
    if weights.len() > limits::SIMILAR_WORDS {
        weights.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        weights.truncate(limits::SIMILAR_WORDS);
        weights.sort_by(|a, b| a.0.cmp(&b.0));
    }
    weights
}

/// `fix(router)!: ...`, `sync: ...`, `internal/states: ...`: the part that the title is about.
fn scope_of(title: &str) -> Option<String> {
    let (before, _) = title.split_once(": ")?;
    let before = before.trim_end_matches('!');
    if let Some((_, scope)) = before.split_once('(') {
        return Some(scope.trim_end_matches(')').to_owned());
    }
    let short = before.len() <= 60 && before.split([' ', ',']).filter(|word| !word.is_empty()).count() <= 3;
    (short && !KINDS.contains(&before.to_lowercase().as_str())).then(|| before.to_owned())
}

/// What a change is, not where.
const KINDS: &[&str] = &[
    "bug", "bugfix", "build", "chore", "ci", "docs", "feat", "feature", "fix", "perf", "refactor", "revert",
    "style", "test", "tests", "todo", "wip",
];

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !name.starts_with(|c: char| c.is_numeric())
}

/// Divided by `_`, or by a capital after a small letter.
fn looks_like_code(name: &str) -> bool {
    let inner = name.trim_matches('_');
    inner.contains('_')
        || inner
            .as_bytes()
            .windows(2)
            .any(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
}

/// The longest beginning of at most so many bytes.
fn head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
