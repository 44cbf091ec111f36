//! Splits a text into pieces: one piece per function, and one per line outside functions.

use std::{collections::BTreeSet, ops::Range};

use super::{CodeItem, CodeItemKind, Language, summarize};

/// A function, a container or a single line of a text.
pub struct CodePiece<'t> {
    /// Qualified name of a function, or of a container that the other version of the file does not contain. `None` for
    /// a single line.
    pub name: Option<String>,
    pub text: &'t str,
    /// Range of lines, counted from 0.
    pub lines: Range<usize>,
}

impl CodePiece<'_> {
    /// Returns a key that is the same for the matching piece in the other version of the file: the name, or the text of
    /// a single line.
    pub fn key(&self) -> (bool, &str) {
        (self.name.is_some(), self.name.as_deref().unwrap_or(self.text))
    }
}

/// Splits two versions of a file into pieces. Returns `None` if the functions of either version cannot be separated
/// from the other lines.
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
    // Functions that share a name cannot be matched between versions, so they are split into lines.
    let ambiguous =
        |name: &String| named.iter().any(|all| all.iter().filter(|(other, _)| other == name).count() > 1);
    let ambiguous: BTreeSet<String> =
        named.iter().flatten().map(|(name, _)| name).filter(|name| ambiguous(name)).cloned().collect();
    for all in &mut named {
        all.retain(|(name, _)| !ambiguous.contains(name));
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

/// Returns the names of the item's containers, followed by the item's own name. An extension block has no name, so its
/// signature is used instead.
fn qualified_name(item: &CodeItem, within: &str) -> String {
    let own = if item.kind == CodeItemKind::Extension { &item.signature } else { &item.name };
    format!("{within}/{own}")
}

/// Collects the qualified names of items that contain other items.
fn collect_containers(items: &[CodeItem], within: &str, into: &mut BTreeSet<String>) {
    for item in items.iter().filter(|item| !is_function(item) && !item.children.is_empty()) {
        let name = qualified_name(item, within);
        collect_containers(&item.children, &name, into);
        into.insert(name);
    }
}

/// Collects the qualified names and line ranges of functions. A container that the other version does not contain is
/// collected as a whole.
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

/// Whether a line is a comment in the given language.
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

/// Returns whether a line is not a comment and contains a letter or digit.
pub fn is_significant_line(language: Language, line: &str) -> bool {
    !is_comment(language, line) && line.contains(char::is_alphanumeric)
}
