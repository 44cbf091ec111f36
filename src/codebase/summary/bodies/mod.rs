//! Where the bodies of functions are, found without a parser, so that it need not read them.
//!
//! Two thirds of most programs are bodies, and of one only the names that it uses are asked. So the parser is given the
//! rest, at the places where it stands, and the names are taken from the words of the body. This is for languages whose
//! bodies hold no items and no imports, and where a brace that is no comment, string or character is a brace for the
//! parser too: a body ends at the brace that closes it. Of long comments it is given where they begin and end; what they
//! say is read from the text.
//!
//! Nothing here may be wrong: what cannot be told apart (a string that does not end, a branch of an `#if` that opens what
//! it does not close) leaves the whole text to the parser, and so does a rest that does not parse. What ends farther right or
//! left than it begins is no body, for a brace may be missing.

use std::ops::Range;

use tree_sitter::{Point, Range as Part};

use super::lexer::{Conditional, Lexer, Position, Token};
use crate::{codebase::Language, limits};

/// A text without bodies.
pub(super) struct Bodies<'t> {
    /// What is left of it, in order.
    pub rest: Vec<Part>,
    /// Names that the bodies use, perhaps often.
    pub uses: Vec<&'t str>,
}

/// The text without the bodies of its functions; nothing if it has none, or might have others than it seems.
pub(super) fn left_out(language: Language, text: &str) -> Option<Bodies<'_>> {
    if !matches!(language, Language::C | Language::Cpp | Language::CSharp | Language::Go | Language::Java) {
        return None;
    }
    let mut finder = Finder {
        language,
        text,
        lexer: Lexer::new(language, text),
        head: Head::default(),
        open: 0,
        uses: Vec::new(),
    };
    finder.all()?;
    let left_out = &finder.lexer.left_out;
    let rest = rest(left_out, finder.lexer.place());
    (!left_out.is_empty()).then_some(Bodies { rest, uses: finder.uses })
}

fn rest(gaps: &[Range<Position>], end: Position) -> Vec<Part> {
    let begins = std::iter::once(Position::default()).chain(gaps.iter().map(|gap| gap.end));
    let ends = gaps.iter().map(|gap| gap.start).chain([end]);
    let point = |place: Position| Point { row: place.row, column: place.byte - place.line };
    let part = |(start, end): (Position, Position)| Part {
        start_byte: start.byte,
        end_byte: end.byte,
        start_point: point(start),
        end_point: point(end),
    };
    begins.zip(ends).map(part).collect()
}

struct Finder<'t> {
    language: Language,
    text: &'t str,
    lexer: Lexer<'t>,
    head: Head<'t>,
    /// Braces around here, all of which hold declarations.
    open: usize,
    uses: Vec<&'t str>,
}

/// What is read of a declaration so far. What stands in brackets does not count.
#[derive(Default)]
struct Head<'t> {
    start: Option<Position>,
    /// Open brackets.
    brackets: usize,
    /// It says `class`, `namespace` or the like: its braces hold declarations.
    holds: bool,
    /// `operator`: an `=` may be its name.
    operator: bool,
    /// A value: `=`.
    value: bool,
    /// Brackets are behind it.
    parameters: bool,
    /// Behind them, what a constructor says of members, or another reason for no brace to be the body's.
    colon: bool,
    /// `throws`, `where`: a list of types before the body.
    list: bool,
    last: Last<'t>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Last<'t> {
    #[default]
    Other,
    Word(&'t str),
    Literal,
    /// `)`
    Parameters,
    /// Braces that are nothing's body.
    Block,
    Sign(u8),
}

/// What a brace opens.
enum Brace {
    Declarations,
    Body,
    Other,
}

impl<'t> Finder<'t> {
    fn all(&mut self) -> Option<()> {
        loop {
            match self.lexer.next()? {
                Token::End => return (self.open == 0 && self.head.brackets == 0).then_some(()),
                Token::Word(word) => self.word(word)?,
                Token::Literal => self.passed(Last::Literal),
                Token::Path => self.passed(Last::Other),
                Token::Directive(_) => {}
                Token::Sign(b'{') => self.brace()?,
                Token::Sign(b'}') => {
                    if self.head.brackets > 0 {
                        return None;
                    }
                    self.open = self.open.checked_sub(1)?;
                    self.head = Head::default();
                }
                Token::Sign(sign) => self.sign(sign)?,
            }
        }
    }

    fn passed(&mut self, last: Last<'t>) {
        if self.head.brackets == 0 {
            self.head.start.get_or_insert(self.lexer.before);
            self.head.last = last;
        }
    }

    fn word(&mut self, word: &'t str) -> Option<()> {
        if self.head.brackets > 0 {
            return Some(());
        }
        let begins = match self.language {
            Language::Go => self.lexer.begins_line(),
            // Behind the body of a constructor that makes its members with braces.
            _ => self.head.colon && self.head.last == Last::Block,
        };
        if begins {
            self.head = Head::default();
        }
        self.passed(Last::Word(word));
        match word {
            "class" | "enum" | "interface" | "namespace" | "record" | "struct" | "union" | "extern"
                if self.language != Language::Go =>
            {
                self.head.holds = true;
            }
            "throws" | "where" => self.head.list = true,
            "operator" => self.head.operator = true,
            "template" if self.language == Language::Cpp => self.lexer.skip_angles()?,
            _ => {}
        }
        Some(())
    }

    fn sign(&mut self, sign: u8) -> Option<()> {
        match sign {
            b'(' | b'[' => {
                self.passed(Last::Sign(sign));
                self.head.brackets += 1;
                return Some(());
            }
            b')' | b']' => {
                self.head.brackets = self.head.brackets.checked_sub(1)?;
                self.passed(if sign == b')' { Last::Parameters } else { Last::Sign(sign) });
                self.head.parameters |= sign == b')' && self.head.brackets == 0;
                return Some(());
            }
            _ if self.head.brackets > 0 => return Some(()),
            b';' => {
                self.head = Head::default();
                return Some(());
            }
            b'=' => self.head.value |= !self.head.operator,
            b':' => match self.head.last {
                // `public:`
                Last::Word("public" | "protected" | "private") => {
                    self.head = Head::default();
                    return Some(());
                }
                _ => self.head.colon |= self.head.parameters,
            },
            _ => {}
        }
        self.passed(Last::Sign(sign));
        Some(())
    }

    fn brace(&mut self) -> Option<()> {
        let (start, known, gaps) = (self.lexer.place(), self.uses.len(), self.lexer.left_out.len());
        match self.opens() {
            Brace::Declarations => {
                self.open += 1;
                self.head = Head::default();
            }
            Brace::Body => {
                let end = self.close()?;
                let room = gaps < limits::SUMMARY_GAPS && end.byte - start.byte >= limits::SUMMARY_GAP_BYTES;
                if room && self.is_even(start, end) {
                    // The comments in it go with it.
                    self.lexer.left_out.truncate(gaps);
                    self.lexer.leave_out(start..end);
                } else {
                    self.uses.truncate(known);
                }
                self.head = Head::default();
            }
            Brace::Other => {
                self.close()?;
                self.uses.truncate(known);
                // `= {…};`, `: member{…} {`, `func f() interface{} {`
                let goes_on = self.head.brackets > 0 || self.head.value || self.head.colon;
                if goes_on || self.language == Language::Go {
                    self.passed(Last::Block);
                } else {
                    self.head = Head::default();
                }
            }
        }
        Some(())
    }

    fn opens(&self) -> Brace {
        let Head { start, brackets, holds, value, parameters, colon, list, last, .. } = self.head;
        let body = match self.language {
            _ if brackets > 0 => false,
            Language::Go => {
                let begins = |start: Position| self.text[start.byte..].starts_with("func");
                start.is_some_and(begins) && !matches!(last, Last::Word("struct" | "interface"))
            }
            _ if holds => return Brace::Declarations,
            _ if value => false,
            Language::Java => last == Last::Parameters || parameters && list || last == Last::Word("static"),
            Language::CSharp => match last {
                Last::Parameters => true,
                Last::Word("get" | "set" | "init" | "add" | "remove") => true,
                _ if parameters && list => true,
                // A property's, around its accessors.
                Last::Word(_) | Last::Sign(b']' | b'>' | b'?') => return Brace::Declarations,
                _ => false,
            },
            _ => last == Last::Parameters || parameters && !colon && last != Last::Literal,
        };
        if body { Brace::Body } else { Brace::Other }
    }

    /// Where the brace stands that closes the one just read.
    fn close(&mut self) -> Option<Position> {
        let mut depth = 1_usize;
        let mut branches = Vec::new();
        loop {
            match self.lexer.next()? {
                Token::End => return None,
                Token::Sign(b'{') => depth += 1,
                Token::Sign(b'}') => {
                    depth -= 1;
                    if depth == 0 {
                        return branches.is_empty().then_some(self.lexer.before);
                    }
                }
                Token::Word(word) if is_used(word, self.lexer.after()) => self.uses.push(word),
                Token::Directive(Conditional::Begins) => branches.push(depth),
                Token::Directive(Conditional::Else) if branches.last() != Some(&depth) => return None,
                Token::Directive(Conditional::Ends) if branches.pop() != Some(depth) => return None,
                _ => {}
            }
        }
    }

    /// Whether a body ends on the line it begins on, or as far right as its declaration begins.
    fn is_even(&self, start: Position, end: Position) -> bool {
        let blank = |line: &'t str| &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
        let head = self.head.start.unwrap_or(start);
        let before = &self.text[end.line..end.byte];
        start.row == end.row
            || blank(before).len() == before.len() && blank(&self.text[head.line..head.byte]) == before
    }
}

/// Whether a name counts as used where it stands in a body: where it is called, entered or made, or if it begins with a
/// capital.
fn is_used(word: &str, after: &[u8]) -> bool {
    let followed = || match after {
        [b'(' | b'{', ..] | [b':', b':', ..] => KEYWORDS.binary_search(&word).is_err(),
        _ => false,
    };
    (2..=limits::NAME_BYTES).contains(&word.len()) && (word.starts_with(char::is_uppercase) || followed())
}

/// Words that brackets follow, and that are no names. In order.
const KEYWORDS: &[&str] = &[
    "alignof",
    "base",
    "case",
    "catch",
    "checked",
    "decltype",
    "default",
    "defined",
    "delegate",
    "do",
    "else",
    "finally",
    "fixed",
    "for",
    "foreach",
    "func",
    "if",
    "interface",
    "lock",
    "nameof",
    "new",
    "noexcept",
    "operator",
    "return",
    "select",
    "sizeof",
    "struct",
    "super",
    "switch",
    "synchronized",
    "this",
    "throw",
    "try",
    "typeof",
    "unchecked",
    "union",
    "unsafe",
    "using",
    "when",
    "while",
];

#[cfg(test)]
pub(super) mod tests;
