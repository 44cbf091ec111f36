//! From a text to its syntax tree, within bounds.

use std::{cell::RefCell, ops::ControlFlow, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tree_sitter::{ParseOptions, ParseState, Parser, Range, Tree};

use super::grammar::Grammar;
use crate::limits;

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk { parser: Parser::new(), until: Duration::ZERO });
}

/// What a thread parses with.
struct Desk {
    parser: Parser,
    /// When the file that is read now has had its share of this thread's time.
    until: Duration,
}

/// The tree of a text, unless it is too long or too hard to parse.
///
/// The parser reports after every hundred operations, and its reports are counted: it is stopped when there are more than
/// the text's length can explain. That alone would be the same on every day and machine, but on texts made for it a
/// single operation takes as long as the text is deep, and a hundred kilobytes took six minutes. So there is a fuse
/// besides: the time that this thread was computing, whatever else the machine did, and far more of it than code that
/// somebody wrote ever takes.
pub(super) fn tree(grammar: &Grammar, text: &str) -> Option<Tree> {
    DESK.with_borrow_mut(|desk| desk.until = computed() + limits::PARSE_TIME);
    part(grammar, text, &[])
}

/// The same of a part of the text; of all of it, if none is named. It takes its time from the share of the whole.
pub(super) fn part(grammar: &Grammar, text: &str, part: &[Range]) -> Option<Tree> {
    if text.len() > limits::SUMMARY_BYTES {
        return None;
    }
    let bytes = part.first().map_or(text.len(), |part| part.end_byte - part.start_byte);
    let mut patience = limits::PARSE_REPORTS + bytes / limits::PARSE_BYTES_PER_REPORT;
    DESK.with_borrow_mut(|Desk { parser, until }| {
        let mut progress = |_: &ParseState| {
            patience = patience.saturating_sub(1);
            if patience == 0 || computed() > *until {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        parser.set_language(&(grammar.parser)()).ok()?;
        parser.set_included_ranges(part).ok()?;
        let bytes = text.as_bytes();
        let options = ParseOptions::new().progress_callback(&mut progress);
        let tree =
            parser.parse_with_options(&mut |at, _| bytes.get(at..).unwrap_or(&[]), None, Some(options));
        // One that was stopped would go on where it was with the next text.
        parser.reset();
        tree
    })
}

/// How long this thread has been computing.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
