//! Parses a text into a syntax tree, with limits on the parser's work and CPU time.

use std::{borrow::Cow, cell::RefCell, ops::ControlFlow, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use tree_sitter::{ParseOptions, ParseState, Parser, Point, Range, Tree};

use super::{
    bodies::{self, FunctionSyntax},
    grammar::{self, Grammar},
};
use crate::{codebase::Language, limits};

/// Constant part of the maximum number of progress reports before parsing is stopped. The parser reports once per
/// hundred operations. The whole maximum is twice the number that the slowest real file needs.
const PARSE_REPORTS: usize = 1_000;
const PARSE_BYTES_PER_REPORT: usize = 16;

/// Maximum number of nested brackets. The number is limited because every additional open bracket makes each parse step
/// slower.
const PARSE_OPEN: usize = 1_000;

/// Maximum CPU time for parsing one file. The limit is far above the time that any real file needs.
const PARSE_TIME: Duration = Duration::from_secs(1);
const PARSE_REPORTS_PER_LOOK: usize = 8;

/// Maximum number of bytes passed to the parser per read.
const PARSE_CHUNK: usize = 1_024;
const PARSE_BYTES_PER_READ: usize = 16;

/// Minimum number of consecutive blank bytes that are not passed to the parser.
const PARSE_BLANKS: usize = 64;
const PARSE_PARTS: usize = 1_000;

thread_local! {
    static THREAD_PARSER: RefCell<ThreadParser> =
        RefCell::new(ThreadParser { parser: Parser::new(), until: Duration::ZERO, given_up: false });
}

/// Parser of one thread, with the limits for the current file.
struct ThreadParser {
    parser: Parser,
    /// CPU time of this thread at which the time budget of the current file ends.
    until: Duration,
    given_up: bool,
}

/// Starts the parse budget of a file. All parses until the next call of this function share the budget.
pub(super) fn begin_file(grammar: &Grammar, text: &str) {
    THREAD_PARSER.with_borrow_mut(|state| {
        state.until = computed() + PARSE_TIME;
        state.given_up = is_deep(grammar, text);
    });
}

/// Returns whether the text probably has more than `PARSE_OPEN` nested brackets.
fn is_deep(grammar: &Grammar, text: &str) -> bool {
    // Without braces or semicolons, a `<` cannot be told from a comparison, so it does not count.
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

pub(super) struct ParsedText<'t> {
    pub tree: Tree,
    /// Text that the parser read. In this text, function bodies and unparsable code may be blanked.
    pub seen: Cow<'t, str>,
}

/// Returns a syntax tree of the text, and whether the parse budget was exceeded. The tree is the first one without
/// errors, or else the one with the fewest errors. Three texts are tried: one without function bodies, one also without
/// code on which the grammar fails, and the original.
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
        // In Python, indentation is syntax.
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
    (best.map(|(_, parsed)| parsed), THREAD_PARSER.with_borrow(|state| state.given_up))
}

/// Returns the parts of a text between long sequences of blank lines. These sequences are skipped because the lexer
/// would read every blank separately.
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

/// Returns the number of bytes that did not parse, and the number of places at which parsing failed.
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

/// Parses ranges of a text; an empty `parts` means the whole text. Returns `None` if parsing exceeds a limit.
///
/// The parser reports progress after every hundred operations. It is stopped if it reports more often than the length
/// of the text can explain. A scanner that repeatedly looks ahead to the end of a line does not report, so the number
/// of reads is limited too. These limits give the same result on every machine.
///
/// In hostile texts, however, a single operation can take time proportional to the nesting depth, even without
/// brackets. The CPU time of this thread is therefore limited as well. Other load on the machine does not affect this
/// limit.
pub(super) fn parse_ranges(grammar: &Grammar, text: &str, parts: &[Range]) -> Option<Tree> {
    THREAD_PARSER.with_borrow_mut(|state| {
        if state.given_up {
            return None;
        }
        let ThreadParser { parser, until, given_up } = state;
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
        // A stopped parser would otherwise resume with the next text.
        parser.reset();
        tree
    })
}

fn computed() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
