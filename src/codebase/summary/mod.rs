//! Summaries of source files, read from their syntax trees: definitions and imports.
//!
//! Pure and exact: each printed signature occurs verbatim in the source at the printed line. If a file has syntax
//! errors, the summary has the parts that parse and is marked partial. No input can cause a panic or exceed its parse
//! budget, and the same text gives the same summary unless parsing timed out.
//!
//! `grammar.rs` explains how to add a language, `bodies.rs` blanks function bodies before parsing, `walk.rs` walks a
//! tree, and `rendering.rs` prints a summary.

mod bash;
mod bodies;
mod c;
mod cpp;
mod csharp;
mod doc;
mod ecma;
mod ecma_modules;
mod go;
mod grammar;
mod java;
mod outline;
mod parse;
mod php;
mod preprocessor;
mod python;
mod rendering;
mod ruby;
mod rust;
mod source;
mod vacuous_tests;
mod walk;

use std::collections::HashSet;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

use self::source::SourceText;
pub use self::{
    rendering::Detail,
    vacuous_tests::{TestAudit, audit_tests},
};
use super::Language;
use crate::limits;

/// Constant part of the limit on a summary's bytes. The limit depends on the text's length because a statement is
/// stored once per imported module, and a declaration once per name. Real files need at most twice their length.
const SUMMARY_KEPT_BYTES: usize = 16_384;
const SUMMARY_KEPT_TIMES: usize = 4;

/// Structure of one file: its imports and items.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// First sentence of the file's documentation.
    pub doc: Option<String>,
    pub imports: Vec<Import>,
    /// Items in source order, with nested items as children.
    pub items: Vec<CodeItem>,
    /// Whether parts of the file did not parse or exceeded the limits.
    pub partial: bool,
    /// Whether parsing exceeded its budget and stopped.
    pub timed_out: bool,
}

/// One import of a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// First line of the statement, from 1.
    pub line: u32,
    /// Whole statement, verbatim. A statement that imports several modules yields several imports with the same text.
    pub text: String,
    /// Imported module in the language's notation: `crate::codebase`, `..models`, `./util`, `java.util.List`,
    /// `stdio.h`.
    pub module: String,
    /// Imported names that the statement lists, as the module calls them. `*` means all names; `default` means the
    /// unnamed export of an ECMAScript module.
    pub names: Vec<String>,
}

/// A definition in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeItem {
    pub kind: CodeItemKind,
    pub name: String,
    /// Verbatim source from the first attribute, decorator or annotation up to the body. Line n of the signature is
    /// part of source line `line + n`.
    pub signature: String,
    /// Whether the signature was too long, so that only its first lines are kept.
    pub cut: bool,
    /// First line of the signature, from 1.
    pub line: u32,
    /// Last line of the item, from 1.
    pub end: u32,
    /// First sentence of the item's documentation.
    pub doc: Option<String>,
    /// Whether the item is visible outside its file, as far as the file itself shows.
    pub public: bool,
    /// Nested items: fields, variants, methods, types and functions.
    pub children: Vec<CodeItem>,
}

/// Kind of an item, in terms shared by all languages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CodeItemKind {
    /// A module, namespace or package.
    Module,
    /// A class, struct, union or record.
    Type,
    /// A trait, interface or protocol.
    Interface,
    Enum,
    Variant,
    Field,
    Function,
    Method,
    Constant,
    Macro,
    /// Another name for a type.
    Alias,
    /// An addition to a type defined elsewhere: an `impl` block, an extension.
    Extension,
    /// A part of a file that is not code: a heading, a settings table, a top-level key.
    Section,
}

impl CodeItem {
    fn new(kind: CodeItemKind, name: String, signature: String, line: u32, end: u32) -> Self {
        Self { kind, name, signature, cut: false, line, end, doc: None, public: true, children: Vec::new() }
    }
}

/// Reads the structure of a text.
pub fn summarize(language: Language, text: &str) -> Summary {
    let Some(grammar) = grammar::grammar_for(language) else { return outline::read_outline(language, text) };
    let (tree, timed_out) = parse::best_tree(language, grammar, text);
    let summary = match &tree {
        Some(tree) => walk::read_tree(grammar, SourceText { text, seen: &tree.seen }, tree.tree.root_node()),
        None => Summary { partial: true, ..Summary::default() },
    };
    Summary { timed_out, ..summary }
}

/// Reads the structure of a text and the names it uses: called functions and mentioned types. Names are sorted and
/// unique.
pub(super) fn summarize_with_uses(language: Language, text: &str) -> (Summary, Vec<String>) {
    let used = if grammar::grammar_for(language).is_some() { uses(language, text) } else { Vec::new() };
    (summarize(language, text), used)
}

/// Returns the maximum bytes of the summary of a text.
fn kept_bytes_limit(text: &str) -> usize {
    SUMMARY_KEPT_BYTES + SUMMARY_KEPT_TIMES * text.len()
}

/// Returns names that are called (`name(`), are used as a path (`name::`), or start with a capital. Sorted and unique.
/// Skips comments and strings, but recognizes only those that one line shows.
fn uses(language: Language, text: &str) -> Vec<String> {
    let quotes: &[char] = if language == Language::Rust { &['"'] } else { &['"', '\'', '`'] };
    let mut found = HashSet::with_hasher(RandomState::default());
    for line in text.lines().map(str::trim_start) {
        if line.starts_with(['*', '#']) || line.starts_with("/*") {
            continue;
        }
        let code = line.split("//").next().unwrap_or_default();
        for piece in code.split(quotes).step_by(2) {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
            let mut rest = piece;
            while let Some(start) = rest.bytes().position(is_part) {
                let end = rest.bytes().skip(start).position(|byte| !is_part(byte));
                let (name, after) = rest.split_at(end.map_or(rest.len(), |end| start + end));
                let name = &name[start..];
                let used =
                    name.starts_with(char::is_uppercase) || after.starts_with('(') || after.starts_with("::");
                if used && (2..=limits::NAME_BYTES).contains(&name.len()) {
                    found.insert(name);
                }
                rest = after;
            }
        }
    }
    let mut found: Vec<String> = found.into_iter().map(str::to_owned).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests;
