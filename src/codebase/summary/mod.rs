//! What a source file defines and imports, read from its syntax tree.
//!
//! Pure and exact: whatever is printed of a signature stands so in the source, at the line given. A file that does not
//! parse gives what does, and says so. No file makes this panic, and none takes longer than its share of steps: the same
//! text always gives the same summary.
//!
//! `grammar.rs` says how to add a language, `bodies.rs` spares the parser what nobody asks, `walk.rs` reads a tree,
//! `page.rs` prints a summary.

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

/// Bytes that a summary keeps of a text, of any text and for each of its bytes: a statement is kept once for each module
/// it names, a declaration once for each name. Real files need at most twice as many as they have.
const SUMMARY_KEPT_BYTES: usize = 16_384;
const SUMMARY_KEPT_TIMES: usize = 4;

/// The structure of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The first sentence of what the file says about itself.
    pub doc: Option<String>,
    /// In source order.
    pub imports: Vec<Import>,
    /// In source order, each with what it holds.
    pub items: Vec<CodeItem>,
    /// Parts of it did not parse, or there was more than is kept.
    pub partial: bool,
    /// It took too much and was read no further.
    pub timed_out: bool,
}
/// One import statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Import {
    /// Of the statement's first line, from 1.
    pub line: u32,
    /// The whole statement, as it stands. One that imports from several modules is several imports with the same text.
    pub text: String,
    /// What is imported from, as the language writes it: `crate::codebase`, `..models`, `./util`, `java.util.List`,
    /// `stdio.h`.
    pub module: String,
    /// The names brought in, if the statement says which: by the names they have in the module, not here. `*` is all of
    /// them, `default` what an ECMAScript module exports without a name.
    pub names: Vec<String>,
}

/// Something a file defines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeItem {
    pub kind: CodeItemKind,
    pub name: String,
    /// Word for word from the source, from the first attribute, decorator or annotation up to the body: its line n is
    /// part of line `line + n` of the source.
    pub signature: String,
    /// The signature was too long: only its first lines are kept.
    pub cut: bool,
    /// Of the signature's first line, from 1.
    pub line: u32,
    /// The last line of the whole item.
    pub end: u32,
    /// Its documentation's first sentence.
    pub doc: Option<String>,
    /// Visible outside its file, as far as the file says it.
    pub public: bool,
    /// Fields, variants, methods, nested types and functions.
    pub children: Vec<CodeItem>,
}

/// What an item is, in words that all languages share.
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
    /// What is added to a type elsewhere: an `impl` block, an extension.
    Extension,
    /// A part of what is no program: a heading, a table of settings, a top-level key.
    Section,
}

impl CodeItem {
    /// One that is public and holds nothing.
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

/// The same, with the names that the text uses: what it calls, the types it names. In order, each once.
pub(super) fn summarize_with_uses(language: Language, text: &str) -> (Summary, Vec<String>) {
    let used = if grammar::grammar_for(language).is_some() { uses(language, text) } else { Vec::new() };
    (summarize(language, text), used)
}

/// Bytes that may be kept of a text. What declares several names is kept with each, and the more of them the longer it is.
fn kept_bytes_limit(text: &str) -> usize {
    SUMMARY_KEPT_BYTES + SUMMARY_KEPT_TIMES * text.len()
}

/// Names that look called (`name(`) or entered (`name::`) or begin with a capital, in order, each once. Comments and
/// strings are left out as far as their line shows them.
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
