//! Blanks function bodies before parsing, because bodies make up most of a text and summaries do not need them.
//!
//! Bodies are found by layout: a body runs from the end of a function's head to the first line that is not indented
//! deeper than the head. The blanked text has the same length as the original, so byte positions remain valid. Bodies
//! with a different layout are not blanked. If other code is mistaken for a body, the blanked text does not parse, and
//! the original text is parsed instead.

use std::ops::Range;

use crate::codebase::Language;

/// Syntax by which the head of a function is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FunctionSyntax {
    Unknown,
    /// The head contains a keyword and ends with a brace: `fn name(…) {`.
    Word(&'static str),
    /// The head contains parentheses and no keyword such as `class`, and ends with a brace.
    Brackets,
    /// The head has the form `def name(…):`.
    Python,
    /// The head starts with `def name`, and the body ends at `end`.
    Ruby,
}

/// Keywords that introduce a container of declarations instead of a function.
const HOLDERS: &[&str] = &[
    "class",
    "enum",
    "extension",
    "impl",
    "interface",
    "mod",
    "module",
    "namespace",
    "record",
    "struct",
    "trait",
    "type",
    "union",
];

/// Maximum number of lines of a function head.
const HEAD_LINES: usize = 40;

/// Returns the text with all function bodies blanked, except bodies that contain one of the words in `keep`.
pub(super) fn blank_bodies(language: Language, heads: FunctionSyntax, keep: &[&str], text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for FunctionBody { range, statement } in find_bodies(language, heads, text) {
        let body = &text[range.clone()];
        if !keep.iter().any(|word| body.contains(word)) {
            blank(&mut bytes[range]);
            if let Some(at) = statement {
                bytes[at] = b'0';
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

pub(super) fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r' | b'\t')).for_each(|byte| *byte = b' ');
}

/// The byte range of a function's body.
struct FunctionBody {
    range: Range<usize>,
    /// Position of the byte that becomes a statement in a blanked Python body, so that the body remains valid. The byte
    /// is in the body's last line, so that the function still ends at the same line.
    statement: Option<usize>,
}

/// A line, given by its start offset, its indentation, and its text without surrounding blanks.
struct CodeLine<'t> {
    start: usize,
    deep: usize,
    bare: &'t str,
}

impl CodeLine<'_> {
    /// Returns the byte range of the line's text without surrounding blanks.
    fn range(&self) -> Range<usize> {
        let start = self.start + self.deep;
        start..start + self.bare.len()
    }
}

fn find_bodies(language: Language, heads: FunctionSyntax, text: &str) -> Vec<FunctionBody> {
    if heads == FunctionSyntax::Unknown {
        return Vec::new();
    }
    let mut start = 0;
    let lines: Vec<CodeLine<'_>> = text
        .split_inclusive('\n')
        .map(|line| {
            let deep = line.len() - line.trim_start_matches([' ', '\t']).len();
            start += line.len();
            let bare = line[deep..].trim_end_matches([' ', '\t', '\r', '\n']);
            CodeLine { start: start - line.len(), deep, bare }
        })
        .collect();
    let (mut bodies, mut head, mut at) = (Vec::new(), None, 0);
    while at < lines.len() {
        let bare = lines[at].bare;
        // Attributes and decorators before a head are not part of it.
        if !bare.starts_with(['#', '@', '[']) || bare.ends_with('{') {
            let begins = may_begin_function(heads, bare);
            head = head.filter(|_| !begins || heads != FunctionSyntax::Python).or(begins.then_some(at));
            let head_text = |head: usize| &text[lines[head].range().start..lines[at].range().end];
            let ended = |head: &usize| {
                at - head < HEAD_LINES && ends_function_head(language, heads, head_text(*head))
            };
            if let Some(first) = head.filter(ended) {
                if let Some((body, end)) = find_body(heads, &lines, lines[first].deep, at, text) {
                    bodies.push(body);
                    at = end;
                } else {
                    at += 1;
                }
                head = None;
                continue;
            }
            let open = match heads {
                FunctionSyntax::Python => head.is_some_and(|head| !are_brackets_closed(head_text(head))),
                _ => !bare.is_empty() && !bare.ends_with(['{', '}', ';', ':', '/']),
            };
            head = head.filter(|_| open);
        }
        at += 1;
    }
    bodies
}

fn may_begin_function(heads: FunctionSyntax, line: &str) -> bool {
    match heads {
        FunctionSyntax::Python => line.starts_with("def ") || line.starts_with("async def "),
        FunctionSyntax::Ruby => line.starts_with("def ") || line.contains(" def "),
        _ => !line.starts_with(['}', ')', '*']) && !line.starts_with("//") && !line.starts_with("/*"),
    }
}

/// Whether the text `head` is a complete function head.
fn ends_function_head(language: Language, heads: FunctionSyntax, head: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    match heads {
        FunctionSyntax::Unknown => false,
        FunctionSyntax::Ruby => !head.ends_with([',', '(', '=']),
        FunctionSyntax::Python => head.ends_with(':') && are_brackets_closed(head),
        _ if !head.ends_with('{') => false,
        FunctionSyntax::Word(function) => {
            let mut words = head.split(|c| !part(c)).take_while(|word| *word != function);
            let holds = words.any(|word| HOLDERS.contains(&word));
            !holds && head.split(|c| !part(c)).any(|word| word == function)
        }
        FunctionSyntax::Brackets if !head.contains('(') => false,
        // `const a = f()` followed by a line with `module.exports = {` or `export {`.
        FunctionSyntax::Brackets if head.ends_with("= {") => false,
        FunctionSyntax::Brackets
            if matches!(language, Language::JavaScript | Language::Tsx | Language::TypeScript)
                && !head.lines().last().is_some_and(|last| last.contains(['(', ')'])) =>
        {
            false
        }
        // A function head ends in `)`, a struct does not.
        FunctionSyntax::Brackets if language == Language::C => {
            head[..head.len() - 1].trim_end().ends_with(')') && !head.contains("__attribute__")
        }
        // `template <class T>`, `where T : class`, `Some.class`
        FunctionSyntax::Brackets => !HOLDERS.iter().any(|holder| {
            head.match_indices(holder).any(|(at, _)| {
                let (before, after) = (&head[..at], &head[at + holder.len()..]);
                let inner = before.trim_end().ends_with(['<', ',', '.', ':']);
                !inner && !before.ends_with(part) && !after.starts_with(part)
            })
        }),
    }
}

fn are_brackets_closed(head: &str) -> bool {
    head.matches(['(', '[']).count() == head.matches([')', ']']).count()
}

/// Returns the body after a head that ends in line `last`, and the number of the line after the body.
fn find_body(
    heads: FunctionSyntax,
    lines: &[CodeLine<'_>],
    deep: usize,
    last: usize,
    text: &str,
) -> Option<(FunctionBody, usize)> {
    let is_inside = |line: &CodeLine<'_>| line.bare.is_empty() || line.deep > deep;
    let loose = |line: &CodeLine<'_>| {
        let label = line
            .bare
            .strip_suffix(':')
            .is_some_and(|name| name.chars().all(|c| c.is_alphanumeric() || c == '_'));
        heads == FunctionSyntax::Brackets && (line.bare.starts_with('#') || label)
    };
    // Lines inside a multi-line string have no layout.
    let quotes: &[&str] = match heads {
        FunctionSyntax::Word("func") => &["`"],
        FunctionSyntax::Python => &["\"\"\"", "'''"],
        _ => &[],
    };
    let mut quoted = false;
    let inside = lines[last + 1..].iter().take_while(|line| {
        let goes_on = is_inside(line)
            || loose(line)
            || quoted && !["func", "def ", "class "].iter().any(|word| line.bare.starts_with(word));
        quoted ^= quotes.iter().map(|quotes| line.bare.matches(quotes).count()).sum::<usize>() % 2 == 1;
        goes_on
    });
    let end = last + 1 + inside.count();
    let (mut start, mut statement) = (lines[last].range().end, None);
    let stop = match heads {
        FunctionSyntax::Python => {
            let is_code = |at: &usize| !lines[*at].bare.is_empty() && !lines[*at].bare.starts_with('#');
            let first = (last + 1..end).find(is_code)?;
            let final_line = (first..end).rev().find(is_code)?;
            let docstring = lines[first].bare.trim_start_matches(['r', 'R', 'u', 'U']);
            start = lines[first].range().start;
            // The docstring stays.
            if let Some(quotes) = ["\"\"\"", "'''"].into_iter().find(|quotes| docstring.starts_with(quotes)) {
                let from = lines[first].range().end - docstring.len() + 3;
                start = from + text[from..].find(quotes)? + 3;
            } else if docstring.starts_with(['"', '\'']) {
                start = lines[first].range().end;
            }
            let at = lines[final_line].start + lines[first].deep;
            statement = (start..lines[final_line].range().end).contains(&at).then_some(at);
            lines[final_line].range().end
        }
        FunctionSyntax::Ruby => {
            lines.get(end).filter(|line| line.deep == deep && line.bare.starts_with("end"))?.start
        }
        _ => lines.get(end).filter(|line| line.deep == deep && line.bare.starts_with('}'))?.start,
    };
    let range = start..stop.max(start);
    let directives =
        |word: &str| text[range.clone()].lines().filter(|line| line.trim_start().starts_with(word)).count();
    (range.len() > 8 && directives("#if") == directives("#endif"))
        .then_some((FunctionBody { range, statement }, end))
}
