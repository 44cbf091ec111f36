//! From a text to its syntax tree, within bounds.

use std::{borrow::Cow, cell::RefCell, ops::ControlFlow, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tree_sitter::{ParseOptions, ParseState, Parser, Range, Tree};

use super::{
    bodies::{self, Bodies},
    grammar::{self, Grammar},
};
use crate::{codebase, limits};

/// Computing time that parsing one file may take: ten times what the longest real one takes. Whether it is over is looked
/// up at every so many reports: asking costs as much as a hundredth of what is reported.
const PARSE_TIME: Duration = Duration::from_secs(2);
const PARSE_REPORTS_PER_LOOK: usize = 8;

/// Reports of progress (one for a hundred operations) that a parser may make before it is stopped, whatever the text,
/// and for how many bytes of it there may be one more.
const PARSE_REPORTS: usize = 1_000;
const PARSE_BYTES_PER_REPORT: usize = 5;

/// Bytes of a text that a parser is given at once, and for how many bytes of it it may ask once more: it reads a text
/// some sixty times over at most.
const PARSE_CHUNK: usize = 1_024;
const PARSE_BYTES_PER_READ: usize = 16;

thread_local! {
    static DESK: RefCell<Desk> =
        RefCell::new(Desk { parser: Parser::new(), until: Duration::ZERO, timed_out: false });
}

/// What a thread parses with.
struct Desk {
    parser: Parser,
    /// When the file that is read now has had its share of this thread's time.
    until: Duration,
    /// It would have needed more.
    timed_out: bool,
}

impl Desk {
    fn is_over(&mut self) -> bool {
        self.timed_out |= computed() > self.until;
        self.timed_out
    }
}

/// Reads one file, all of whose parsing shares one allowance of time. Whether that was too little.
pub(super) fn fused<R>(read: impl FnOnce() -> R) -> (R, bool) {
    DESK.with_borrow_mut(|desk| {
        desk.until = computed() + PARSE_TIME;
        desk.timed_out = false;
    });
    let read = read();
    (read, DESK.with_borrow(|desk| desk.timed_out))
}

/// The tree of a text.
pub(super) struct Parsed<'t> {
    pub tree: Tree,
    /// How the parser saw that text: with blanks where it does not parse otherwise.
    pub seen: Cow<'t, str>,
    /// Names used in what the parser did not see.
    pub uses: Vec<&'t str>,
}

/// The best tree that a text has: if it parses without the bodies of its functions, that one.
pub(super) fn best_tree<'t>(
    language: codebase::Language,
    grammar: &Grammar,
    text: &'t str,
) -> Option<Parsed<'t>> {
    if text.len() <= limits::SUMMARY_BYTES
        && let Some(Bodies { rest, uses }) = bodies::left_out(language, text)
        && let Some(tree) = part(grammar, text, &rest).filter(|tree| !tree.root_node().has_error())
    {
        return Some(Parsed { tree, seen: Cow::Borrowed(text), uses });
    }
    let first = part(grammar, text, &[])?;
    if first.root_node().has_error()
        && let Some(blanked) = grammar::blanked(language, text).filter(|blanked| blanked.len() == text.len())
        && let Some(second) = part(grammar, &blanked, &[])
        && wrong(&second) < wrong(&first)
    {
        return Some(Parsed { tree: second, seen: Cow::Owned(blanked), uses: Vec::new() });
    }
    Some(Parsed { tree: first, seen: Cow::Borrowed(text), uses: Vec::new() })
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

/// The tree of parts of a text, or of all of it if none is named, unless it is too long or too hard to parse.
///
/// The parser reports after every hundred operations, and its reports are counted: it is stopped when there are more than
/// the text's length can explain. That alone would be the same on every day and machine, but on texts made for it a
/// single operation takes as long as the text is deep, and a hundred kilobytes took six minutes. So there is a fuse
/// besides: the time that this thread was computing, whatever else the machine did, and far more of it than code that
/// somebody wrote ever takes. A scanner that looks ahead from every place to the end of a line reports nothing; it is
/// seen by how often it reads.
pub(super) fn part(grammar: &Grammar, text: &str, parts: &[Range]) -> Option<Tree> {
    if text.len() > limits::SUMMARY_BYTES {
        return None;
    }
    let bytes = match parts {
        [] => text.len(),
        parts => parts.iter().map(|part| part.end_byte - part.start_byte).sum(),
    };
    let mut patience = PARSE_REPORTS + bytes / PARSE_BYTES_PER_REPORT;
    DESK.with_borrow_mut(|desk| {
        if desk.is_over() {
            return None;
        }
        let Desk { parser, until, timed_out } = desk;
        let mut progress = |_: &ParseState| {
            patience = patience.saturating_sub(1);
            *timed_out |= patience.is_multiple_of(PARSE_REPORTS_PER_LOOK) && computed() > *until;
            if patience == 0 || *timed_out { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        parser.set_language(&(grammar.parser)()).ok()?;
        parser.set_included_ranges(parts).ok()?;
        let bytes = text.as_bytes();
        let options = ParseOptions::new().progress_callback(&mut progress);
        // A scanner that looks ahead from every place to the end of a line is seen by how often it reads.
        let mut reads = PARSE_REPORTS + text.len() / PARSE_BYTES_PER_READ;
        let mut read = |at: usize, _| {
            reads = reads.saturating_sub(1);
            let rest = bytes.get(at..).filter(|_| reads > 0).unwrap_or(&[]);
            &rest[..rest.len().min(PARSE_CHUNK)]
        };
        let tree = parser.parse_with_options(&mut read, None, Some(options)).filter(|_| reads > 0);
        // One that was stopped would go on where it was with the next text.
        parser.reset();
        tree
    })
}

/// How long this thread has been computing.
fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
