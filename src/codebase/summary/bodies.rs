//! A text without the bodies of its functions: they are most of it, and nobody asks what they hold.
//!
//! They are told by how code is laid out: a body goes from the end of a function's head to the first line that is no deeper
//! than where the head begins. Byte for byte the text keeps its length, so that whatever is found in it stands at the same
//! place of the source. What is laid out otherwise stays; what is taken for a body and is none leaves a text that does not
//! parse, and then the whole is read.

use std::ops::Range;

use crate::codebase::Language;

/// How functions begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FunctionSyntax {
    /// They are not looked for.
    Unknown,
    /// This word, and a brace ends it: `fn name(…) {`.
    Word(&'static str),
    /// Brackets and no word for a type, and a brace ends it.
    Brackets,
    /// `def name(…):`
    Python,
    /// `def name`, up to `end`.
    Ruby,
}

/// Words for what holds declarations.
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

/// Lines that a head may have.
const HEAD_LINES: usize = 40;

/// The text with blanks for the bodies that have none of these words in them.
pub(super) fn blank_bodies(language: Language, heads: FunctionSyntax, keep: &[&str], text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for FunctionBody { range, says } in find_bodies(language, heads, text) {
        let said = &text[range.clone()];
        if !keep.iter().any(|word| said.contains(word)) {
            blank(&mut bytes[range]);
            if let Some(at) = says {
                bytes[at] = b'0';
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}

pub(super) fn blank(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r' | b'\t')).for_each(|byte| *byte = b' ');
}

/// What stands between a head and the end.
struct FunctionBody {
    range: Range<usize>,
    /// Where it has to say something to be one: in its last line, for there the function ends.
    says: Option<usize>,
}

/// A line: where it begins, how deep it is and what it says.
struct CodeLine<'t> {
    start: usize,
    deep: usize,
    bare: &'t str,
}

impl CodeLine<'_> {
    /// Where what it says begins and ends.
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
        // What stands before a head and belongs to it is none itself.
        if !bare.starts_with(['#', '@', '[']) || bare.ends_with('{') {
            let begins = may_begin_function(heads, bare);
            head = head.filter(|_| !begins || heads != FunctionSyntax::Python).or(begins.then_some(at));
            let said = |head: usize| &text[lines[head].range().start..lines[at].range().end];
            let ended =
                |head: &usize| at - head < HEAD_LINES && ends_function_head(language, heads, said(*head));
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
                FunctionSyntax::Python => head.is_some_and(|head| !are_brackets_closed(said(head))),
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

/// Whether this is the head of a function, and all of it.
fn ends_function_head(language: Language, heads: FunctionSyntax, said: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    match heads {
        FunctionSyntax::Unknown => false,
        FunctionSyntax::Ruby => !said.ends_with([',', '(', '=']),
        FunctionSyntax::Python => said.ends_with(':') && are_brackets_closed(said),
        _ if !said.ends_with('{') => false,
        FunctionSyntax::Word(function) => {
            let mut words = said.split(|c| !part(c)).take_while(|word| *word != function);
            let holds = words.any(|word| HOLDERS.contains(&word));
            !holds && said.split(|c| !part(c)).any(|word| word == function)
        }
        FunctionSyntax::Brackets if !said.contains('(') => false,
        // `const a = f()`, and on the next line `module.exports = {` or `export {`
        FunctionSyntax::Brackets if said.ends_with("= {") => false,
        FunctionSyntax::Brackets
            if matches!(language, Language::JavaScript | Language::Tsx | Language::TypeScript)
                && !said.lines().last().is_some_and(|last| last.contains(['(', ')'])) =>
        {
            false
        }
        // Where a struct begins, no bracket closes.
        FunctionSyntax::Brackets if language == Language::C => {
            said[..said.len() - 1].trim_end().ends_with(')') && !said.contains("__attribute__")
        }
        // `template <class T>`, `where T : class`, `Some.class`
        FunctionSyntax::Brackets => !HOLDERS.iter().any(|holder| {
            said.match_indices(holder).any(|(at, _)| {
                let (before, after) = (&said[..at], &said[at + holder.len()..]);
                let inner = before.trim_end().ends_with(['<', ',', '.', ':']);
                !inner && !before.ends_with(part) && !after.starts_with(part)
            })
        }),
    }
}

/// Whether all brackets are.
fn are_brackets_closed(said: &str) -> bool {
    said.matches(['(', '[']).count() == said.matches([')', ']']).count()
}

/// The body behind a head that ends in a line, and the line behind it.
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
    // In a text of several lines nothing is laid out.
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
    let (mut start, mut says) = (lines[last].range().end, None);
    let stop = match heads {
        FunctionSyntax::Python => {
            let is_code = |at: &usize| !lines[*at].bare.is_empty() && !lines[*at].bare.starts_with('#');
            let first = (last + 1..end).find(is_code)?;
            let final_line = (first..end).rev().find(is_code)?;
            let said = lines[first].bare.trim_start_matches(['r', 'R', 'u', 'U']);
            start = lines[first].range().start;
            // What it says of itself stays.
            if let Some(quotes) = ["\"\"\"", "'''"].into_iter().find(|quotes| said.starts_with(quotes)) {
                let from = lines[first].range().end - said.len() + 3;
                start = from + text[from..].find(quotes)? + 3;
            } else if said.starts_with(['"', '\'']) {
                start = lines[first].range().end;
            }
            let at = lines[final_line].start + lines[first].deep;
            says = (start..lines[final_line].range().end).contains(&at).then_some(at);
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
        .then_some((FunctionBody { range, says }, end))
}
