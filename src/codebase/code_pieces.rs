//! A text in pieces: each function with its name, and every other line by itself.

use std::{collections::BTreeSet, ops::Range};

use super::{CodeItem, CodeItemKind, Language, summarize};

/// A piece of a text.
pub struct CodePiece<'t> {
    /// Of a function, or of a type that only one of two texts has: with the names of what it is in.
    pub name: Option<String>,
    pub text: &'t str,
    /// Its lines, from 0.
    pub lines: Range<usize>,
}

impl CodePiece<'_> {
    /// What it is known by in another text.
    pub fn key(&self) -> (bool, &str) {
        (self.name.is_some(), self.name.as_deref().unwrap_or(self.text))
    }
}

/// Two texts of one file in pieces; none where functions cannot be told from other lines in both.
pub fn split_into_pieces(language: Language, texts: [&str; 2]) -> Option<[Vec<CodePiece<'_>>; 2]> {
    let summaries = texts.map(|text| summarize(language, text));
    if summaries.iter().any(|summary| summary.partial || summary.timed_out) {
        return None;
    }
    let mut named = [Vec::new(), Vec::new()];
    let holders = [0, 1].map(|at| {
        let mut holders = BTreeSet::new();
        collect_containers(&summaries[at].items, "", &mut holders);
        holders
    });
    for at in [0, 1] {
        collect_functions(&summaries[at].items, "", &holders[1 - at], &mut named[at]);
    }
    // Of several with one name nobody can say which became which.
    let several =
        |name: &String| named.iter().any(|all| all.iter().filter(|(other, _)| other == name).count() > 1);
    let several: BTreeSet<String> =
        named.iter().flatten().map(|(name, _)| name).filter(|name| several(name)).cloned().collect();
    for all in &mut named {
        all.retain(|(name, _)| !several.contains(name));
        all.sort_by_key(|(_, lines)| lines.start);
        if all.windows(2).any(|pair| pair[0].1.end > pair[1].1.start) {
            return None;
        }
    }
    let [before, after] = texts;
    let [were, are] = named;
    Some([cut_pieces(before, were), cut_pieces(after, are)])
}

fn is_function(item: &CodeItem) -> bool {
    matches!(item.kind, CodeItemKind::Function | CodeItemKind::Method)
}

/// A block that adds to a type has no name but its head.
fn qualified_name(item: &CodeItem, within: &str) -> String {
    let own = if item.kind == CodeItemKind::Extension { &item.signature } else { &item.name };
    format!("{within}/{own}")
}

/// What holds others, by name.
fn collect_containers(items: &[CodeItem], within: &str, into: &mut BTreeSet<String>) {
    for item in items.iter().filter(|item| !is_function(item) && !item.children.is_empty()) {
        let name = qualified_name(item, within);
        collect_containers(&item.children, &name, into);
        into.insert(name);
    }
}

/// Functions, and holders that the other text has not, which are one thing each.
fn collect_functions(
    items: &[CodeItem],
    within: &str,
    others: &BTreeSet<String>,
    into: &mut Vec<(String, Range<usize>)>,
) {
    for item in items {
        let name = qualified_name(item, within);
        if others.contains(&name) && !is_function(item) {
            collect_functions(&item.children, &name, others, into);
        } else if is_function(item) || !item.children.is_empty() {
            into.push((name, (item.line as usize).saturating_sub(1)..item.end as usize));
        }
    }
}

fn cut_pieces(text: &str, named: Vec<(String, Range<usize>)>) -> Vec<CodePiece<'_>> {
    let (mut pieces, mut rest, mut at) = (Vec::new(), text, 0);
    let mut named = named.into_iter().peekable();
    while !rest.is_empty() {
        let (name, end) = match named.next_if(|(_, lines)| lines.start <= at) {
            Some((name, lines)) => (Some(name), lines.end.max(at + 1)),
            None => (None, at + 1),
        };
        let length = rest.split_inclusive('\n').take(end - at).map(str::len).sum();
        let (text, after) = rest.split_at(length);
        let count = text.split_inclusive('\n').count();
        pieces.push(CodePiece { name, text, lines: at..at + count });
        (rest, at) = (after, at + count);
    }
    pieces
}

/// A line for people, as the language has them.
pub fn is_comment(language: Language, line: &str) -> bool {
    use Language::{Bash, Makefile, Other, Php, Python, Ruby, Toml, Yaml};
    let line = line.trim();
    let of_hash = matches!(language, Bash | Makefile | Other | Php | Python | Ruby | Toml | Yaml);
    let of_slash = !matches!(language, Bash | Makefile | Python | Ruby | Toml | Yaml);
    let inner =
        line.strip_prefix('*').is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '/', '*']));
    of_hash && line.starts_with('#')
        || of_slash && (line.starts_with("//") || line.starts_with("/*") || inner)
}

/// A line of nothing but brackets or words for people is none that runs.
pub fn is_significant_line(language: Language, line: &str) -> bool {
    !is_comment(language, line) && line.contains(char::is_alphanumeric)
}
