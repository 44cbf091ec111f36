//! From a text to its syntax tree, within bounds.

use std::{cell::RefCell, ops::ControlFlow};

use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

use super::grammar::Grammar;
use crate::limits;

thread_local! {
    static PARSER: RefCell<Parser> = RefCell::new(Parser::new());
}

/// The tree of a text, unless it is too long or too hard to parse.
///
/// The parser reports after every hundred operations; its reports are counted, and it is stopped when there are more
/// than the text's length can explain. A time limit would let the same text parse on one day and not on another, and
/// what is kept of it is kept for good.
pub(super) fn tree(grammar: &Grammar, text: &str) -> Option<Tree> {
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
