//! From a text to its syntax tree, within bounds.

use std::{borrow::Cow, cell::RefCell, ops::ControlFlow};

use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

use super::grammar::{self, Grammar};
use crate::{codebase, limits};

thread_local! {
    static PARSER: RefCell<Parser> = RefCell::new(Parser::new());
}

/// The tree of a text and how the parser saw that text: with blanks where it does not parse otherwise.
pub(super) fn best_tree<'t>(
    language: codebase::Language,
    grammar: &Grammar,
    text: &'t str,
) -> Option<(Tree, Cow<'t, str>)> {
    let first = tree(grammar, text)?;
    if first.root_node().has_error()
        && let Some(blanked) = grammar::blanked(language, text).filter(|blanked| blanked.len() == text.len())
        && let Some(second) = tree(grammar, &blanked)
        && wrong(&second) < wrong(&first)
    {
        return Some((second, Cow::Owned(blanked)));
    }
    Some((first, Cow::Borrowed(text)))
}

/// How much of a text did not parse: bytes, and places.
fn wrong(tree: &Tree) -> (usize, usize) {
    let (mut bytes, mut places) = (0, 0);
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        if node.is_error() || node.is_missing() {
            bytes += node.end_byte() - node.start_byte();
            places += 1;
        } else if node.has_error() && cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return (bytes, places);
            }
        }
    }
}

/// The tree of a text, unless it is too long or too hard to parse.
///
/// The parser reports after every hundred operations; its reports are counted, and it is stopped when there are more
/// than the text's length can explain. A time limit would let the same text parse on one day and not on another, and
/// what is kept of it is kept for good.
fn tree(grammar: &Grammar, text: &str) -> Option<Tree> {
    if text.len() > limits::SUMMARY_BYTES {
        return None;
    }
    let mut patience = limits::PARSE_REPORTS + text.len() / limits::PARSE_BYTES_PER_REPORT;
    let mut progress = |_: &ParseState| {
        patience = patience.saturating_sub(1);
        if patience == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    PARSER.with_borrow_mut(|parser| {
        parser.set_language(&(grammar.parser)()).ok()?;
        let bytes = text.as_bytes();
        let options = ParseOptions::new().progress_callback(&mut progress);
        let tree =
            parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or(&[]), None, Some(options));
        // One that was stopped would go on where it was with the next text.
        parser.reset();
        tree
    })
}
