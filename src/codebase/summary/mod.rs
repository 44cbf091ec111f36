//! Summaries of source files, read from their syntax trees: definitions and imports.
//!
//! The functions are pure and exact: each printed signature occurs verbatim in the source at the printed line. If a
//! file has syntax errors, the summary contains the parts that parse and is marked as partial. No input can cause a
//! panic or exceed its parse budget. The same text gives the same summary, unless parsing timed out.
//!
//! `grammar.rs` explains how to add a language, `bodies.rs` blanks function bodies before parsing, `walk.rs` walks a
//! tree, and `rendering.rs` prints a summary.

mod bash;
mod bodies;
mod c;
mod comments;
mod cpp;
mod csharp;
mod doc;
mod ecma;
mod ecma_modules;
mod go;
mod grammar;
mod inline_tests;
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
    comments::strip_comments,
    inline_tests::{InlineTests, is_inline_test_line, runner_hooks, shadowed_assertion, split_inline_tests},
    rendering::Detail,
    vacuous_tests::{TestAudit, audit_tests},
};
use super::Language;
use crate::limits;

/// Constant part, in bytes, of the maximum size of a summary. The maximum also grows with the length of the text,
/// because a statement is stored once per imported module and a declaration once per name. Summaries of real files are
/// at most twice as long as the file.
const SUMMARY_KEPT_BYTES: usize = 16_384;
const SUMMARY_KEPT_TIMES: usize = 4;

/// Structure of one file: the imports and items that it contains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// First sentence of the file's documentation.
    pub doc: Option<String>,
    pub imports: Vec<Import>,
    /// Top-level items in source order. Nested items are stored as their children.
    pub items: Vec<CodeItem>,
    /// Whether parts of the file did not parse or exceeded the size limits.
    pub partial: bool,
    /// Whether parsing was stopped because it exceeded its budget.
    pub timed_out: bool,
}

/// One import of a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Line number of the statement's first line, counted from 1.
    pub line: u32,
    /// Verbatim text of the whole statement. A statement that imports several modules yields several imports with the
    /// same text.
    pub text: String,
    /// Imported module in the notation of the language, for example `crate::codebase`, `..models`, `./util`,
    /// `java.util.List` or `stdio.h`.
    pub module: String,
    /// Names that the statement imports, in the spelling of the imported module. `*` means all names; `default` means
    /// the unnamed export of an ECMAScript module.
    pub names: Vec<String>,
}

/// A definition in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeItem {
    pub kind: CodeItemKind,
    pub name: String,
    /// Verbatim source text from the first attribute, decorator or annotation up to the body. The lines of the
    /// signature correspond to consecutive source lines starting at `line`.
    pub signature: String,
    /// Whether the signature was too long and was cut to its first lines.
    pub cut: bool,
    /// Line number of the signature's first line, counted from 1.
    pub line: u32,
    /// Line number of the item's last line, counted from 1.
    pub end: u32,
    /// First sentence of the item's documentation.
    pub doc: Option<String>,
    /// Whether the item is visible outside its file, as far as this can be seen in the file itself.
    pub public: bool,
    /// Nested items, such as fields, variants, methods, types and functions.
    pub children: Vec<CodeItem>,
}

/// Kind of an item, in terms that are shared by all languages.
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
    /// A type alias.
    Alias,
    /// An addition to a type that is defined elsewhere, such as an `impl` block or an extension.
    Extension,
    /// A part of a file that is not code, such as a heading, a settings table or a top-level key.
    Section,
}

impl CodeItem {
    fn new(kind: CodeItemKind, name: String, signature: String, line: u32, end: u32) -> Self {
        Self { kind, name, signature, cut: false, line, end, doc: None, public: true, children: Vec::new() }
    }
}

/// Returns the structure of a text.
pub fn summarize(language: Language, text: &str) -> Summary {
    let Some(grammar) = grammar::grammar_for(language) else { return outline::read_outline(language, text) };
    let (tree, timed_out) = parse::best_tree(language, grammar, text);
    let summary = match &tree {
        Some(tree) => walk::read_tree(grammar, SourceText { text, seen: &tree.seen }, tree.tree.root_node()),
        None => Summary { partial: true, ..Summary::default() },
    };
    Summary { timed_out, ..summary }
}

/// Returns the structure of a text, and the names that the text uses: called functions and mentioned types. The names
/// are sorted and unique.
pub(super) fn summarize_with_uses(language: Language, text: &str) -> (Summary, Vec<String>) {
    let used = if grammar::grammar_for(language).is_some() { uses(language, text) } else { Vec::new() };
    (summarize(language, text), used)
}

/// Returns the maximum size, in bytes, of the summary of this text.
fn kept_bytes_limit(text: &str) -> usize {
    SUMMARY_KEPT_BYTES + SUMMARY_KEPT_TIMES * text.len()
}

/// Returns the names that are called (`name(`), are used as a path (`name::`), or start with a capital letter. The
/// names are sorted and unique. Skips comments and strings if they can be recognized from a single line.
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
