//! From a text to its syntax tree, within bounds.

use std::{borrow::Cow, cell::RefCell, ops::ControlFlow, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tree_sitter::{ParseOptions, ParseState, Parser, Point, Range, Tree};

use super::{
    bodies::{self, FunctionSyntax},
    grammar::{self, Grammar},
};
use crate::{codebase::Language, limits};

/// Reports of progress (one for a hundred operations) that a parser may make before it is stopped, whatever the text,
/// and for how many bytes of it there may be one more: twice as many as the worst real file needs.
const PARSE_REPORTS: usize = 1_000;
const PARSE_BYTES_PER_REPORT: usize = 16;

/// Brackets that may be open at once: more make each step take longer.
const PARSE_OPEN: usize = 1_000;

/// Computing time that parsing one file may take: far more than the longest real one takes. Whether it is over is looked
/// up at every so many reports: asking costs as much as a hundredth of what is reported.
const PARSE_TIME: Duration = Duration::from_secs(1);
const PARSE_REPORTS_PER_LOOK: usize = 8;

/// Bytes of a text that a parser is given at once, and for how many bytes of it it may ask once more: it reads a text
/// some sixty times over at most.
const PARSE_CHUNK: usize = 1_024;
const PARSE_BYTES_PER_READ: usize = 16;

/// Blanks that are worth leaving out when a text is parsed, and how many parts one may have then: for each token that it
/// reads the parser looks through their list.
const PARSE_BLANKS: usize = 64;
const PARSE_PARTS: usize = 1_000;

thread_local! {
    static DESK: RefCell<ThreadParser> =
        RefCell::new(ThreadParser { parser: Parser::new(), until: Duration::ZERO, given_up: false });
}

/// What a thread parses with.
struct ThreadParser {
    parser: Parser,
    /// When the file that is read now has had its share of this thread's time.
    until: Duration,
    /// It would have needed more.
    given_up: bool,
}

/// From here on another file is read, all of whose parsing shares one allowance.
pub(super) fn begin_file(grammar: &Grammar, text: &str) {
    DESK.with_borrow_mut(|desk| {
        desk.until = computed() + PARSE_TIME;
        desk.given_up = is_deep(grammar, text);
    });
}

/// Whether more brackets are open at once than anybody opens, as far as their number tells.
fn is_deep(grammar: &Grammar, text: &str) -> bool {
    // Where nothing shows the end of a comparison, what is smaller is no bracket.
    let has_angles = matches!(grammar.heads, FunctionSyntax::Brackets | FunctionSyntax::Word(_));
    let (mut open, mut angles) = (0_usize, 0_usize);
    text.bytes().any(|byte| {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            b'<' if has_angles => angles += 1,
            b'>' => angles = angles.saturating_sub(1),
            _ => {}
        }
        if matches!(byte, b'{' | b'}' | b';') {
            angles = 0;
        }
        open + angles > PARSE_OPEN
    })
}

/// The tree of a text.
pub(super) struct ParsedText<'t> {
    pub tree: Tree,
    /// How the parser saw that text: with blanks for what nobody asks, or where it does not parse otherwise.
    pub seen: Cow<'t, str>,
}

/// The first tree of a text without a fault, or the best: without the bodies of its functions, without what the grammar
/// is known to stumble over, and whole. Whether that took too much.
pub(super) fn best_tree<'t>(
    language: Language,
    grammar: &Grammar,
    text: &'t str,
) -> (Option<ParsedText<'t>>, bool) {
    if text.len() > limits::SUMMARY_BYTES {
        return (None, false);
    }
    begin_file(grammar, text);
    let without = bodies::blank_bodies(language, grammar.heads, grammar.import_words, text);
    let attempts: [&dyn Fn() -> Option<Cow<'t, str>>; 3] = [
        &|| Some(Cow::Owned(without.clone())),
        &|| grammar::blank_unparsable(language, &without).map(Cow::Owned),
        &|| (without != text).then_some(Cow::Borrowed(text)),
    ];
    let mut best: Option<((usize, usize), ParsedText<'t>)> = None;
    for seen in attempts.iter().filter_map(|attempt| attempt()) {
        // Python tells by blanks what is inside of what.
        let parts =
            if grammar.heads == FunctionSyntax::Python { Vec::new() } else { non_blank_ranges(&seen) };
        let Some(tree) = parse_ranges(grammar, &seen, &parts) else { continue };
        let faults = if tree.root_node().has_error() { count_errors(&tree) } else { (0, 0) };
        if best.as_ref().is_none_or(|(least, _)| faults < *least) {
            best = Some((faults, ParsedText { tree, seen }));
        }
        if faults == (0, 0) {
            break;
        }
    }
    (best.map(|(_, parsed)| parsed), DESK.with_borrow(|desk| desk.given_up))
}

/// The parts of a text between many blank lines, through which a lexer goes sign by sign.
fn non_blank_ranges(text: &str) -> Vec<Range> {
    let (mut parts, mut blank) = (Vec::new(), None);
    let range = |start: (usize, usize), end: (usize, usize)| Range {
        start_byte: start.0,
        start_point: Point { row: start.1, column: 0 },
        end_byte: end.0,
        end_point: Point { row: end.1, column: 0 },
    };
    let (mut from, mut at) = ((0, 0), (0, 0));
    for line in text.split_inclusive('\n') {
        if line.trim_ascii().is_empty() {
            blank.get_or_insert(at);
        } else if let Some(blank) = blank.take()
            && at.0 - blank.0 >= PARSE_BLANKS
            && parts.len() < PARSE_PARTS
        {
            parts.push(range(from, blank));
            from = at;
        }
        at = (at.0 + line.len(), at.1 + 1);
    }
    parts.push(range(from, at));
    parts
}

/// How much of a text did not parse: bytes, and places.
fn count_errors(tree: &Tree) -> (usize, usize) {
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

/// The tree of parts of a text, or of all of it if none is named, unless it is too hard to parse.
///
/// The parser reports after every hundred operations, and its reports are counted: it is stopped when there are more than
/// the text's length can explain. A scanner that looks ahead from every place to the end of a line reports nothing; it is
/// seen by how often it reads. All this is the same on every day and machine. But on texts made for it a single operation
/// takes as long as the text is deep in another way than by brackets. So there is a fuse besides: the time that this
/// thread was computing, whatever else the machine did.
pub(super) fn parse_ranges(grammar: &Grammar, text: &str, parts: &[Range]) -> Option<Tree> {
    DESK.with_borrow_mut(|desk| {
        if desk.given_up {
            return None;
        }
        let ThreadParser { parser, until, given_up } = desk;
        let mut reports = PARSE_REPORTS + text.len() / PARSE_BYTES_PER_REPORT;
        let mut progress = |_: &ParseState| {
            reports = reports.saturating_sub(1);
            *given_up |=
                reports == 0 || reports.is_multiple_of(PARSE_REPORTS_PER_LOOK) && computed() > *until;
            if *given_up { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        parser.set_language(&(grammar.parser)()).ok()?;
        parser.set_included_ranges(parts).ok()?;
        let bytes = text.as_bytes();
        let options = ParseOptions::new().progress_callback(&mut progress);
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
