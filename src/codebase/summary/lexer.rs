//! The words and signs of a text in one of the languages with braces, and nothing of its comments and strings.

use std::ops::Range;

use crate::{codebase::Language, limits};

/// A place in a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub byte: usize,
    /// From 0, and the byte that its line begins with.
    pub row: usize,
    pub line: usize,
}

pub(super) enum Token<'t> {
    Word(&'t str),
    Sign(u8),
    /// `::`
    Path,
    /// A string, a character or a number.
    Literal,
    /// A line for the preprocessor, with those it goes on in.
    Directive(Conditional),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conditional {
    Begins,
    Else,
    Ends,
    /// Any other directive.
    None,
}

pub(super) struct Lexer<'t> {
    language: Language,
    text: &'t str,
    at: Position,
    /// Where the last token began.
    pub before: Position,
    /// What a parser need not see, in order: what is inside of comments, and what is added by who reads this.
    pub left_out: Vec<Range<Position>>,
    /// Only blanks were on this line before that.
    first: bool,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(language: Language, text: &'t str) -> Self {
        Self {
            language,
            text,
            at: Position::default(),
            before: Position::default(),
            left_out: Vec::new(),
            first: true,
        }
    }

    /// A parser need not see this, if it is worth the trouble.
    pub(super) fn leave_out(&mut self, gap: Range<Position>) {
        let long = gap.end.byte - gap.start.byte >= limits::SUMMARY_GAP_BYTES;
        if long && self.left_out.len() < limits::SUMMARY_GAPS {
            self.left_out.push(gap);
        }
    }

    /// Behind the last token.
    pub(super) fn place(&self) -> Position {
        self.at
    }

    /// What follows the last token.
    pub(super) fn after(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at.byte..).unwrap_or_default()
    }

    /// Whether the last token is the first on its line, and at the margin.
    pub(super) fn begins_line(&self) -> bool {
        self.before.byte == self.before.line
    }

    /// The next token; nothing if what comes does not end.
    pub(super) fn next(&mut self) -> Option<Token<'t>> {
        loop {
            let rest = self.after();
            let Some(&byte) = rest.first() else {
                self.before = self.at;
                return Some(Token::End);
            };
            let second = rest.get(1).copied().unwrap_or_default();
            match byte {
                b'\n' => {
                    self.at.byte += 1;
                    self.at.row += 1;
                    self.at.line = self.at.byte;
                    self.first = true;
                    continue;
                }
                b' ' | b'\t' | b'\r' | 0x0c => {
                    self.at.byte += 1;
                    continue;
                }
                b'/' if second == b'/' => {
                    self.line(false)?;
                    continue;
                }
                b'/' if second == b'*' => {
                    let start = self.at;
                    self.until(2, "*/")?;
                    let (from, to) = (start.byte + 2, self.at.byte - 2);
                    self.leave_out(Position { byte: from, ..start }..Position { byte: to, ..self.at });
                    continue;
                }
                _ => {}
            }
            self.before = self.at;
            let first = std::mem::replace(&mut self.first, false);
            return match byte {
                b'#' if first && self.has_directives() => self.directive(),
                b'"' | b'\'' | b'`' => self.literal(byte),
                b'@' | b'$' if self.language == Language::CSharp => self.marked(),
                b':' if second == b':' => {
                    self.at.byte += 2;
                    Some(Token::Path)
                }
                _ if is_word(byte) => self.word(),
                _ => {
                    self.at.byte += 1;
                    Some(Token::Sign(byte))
                }
            };
        }
    }

    fn has_directives(&self) -> bool {
        self.may_go_on() || self.language == Language::CSharp
    }

    /// May a line say by a backslash at its end that it is not over?
    fn may_go_on(&self) -> bool {
        matches!(self.language, Language::C | Language::Cpp)
    }

    fn word(&mut self) -> Option<Token<'t>> {
        let rest = self.after();
        let number = rest[0].is_ascii_digit();
        let separates = |at: usize| {
            number && rest[at] == b'\'' && rest.get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
        };
        let end = (1..rest.len()).find(|at| !is_word(rest[*at]) && !separates(*at)).unwrap_or(rest.len());
        let word = &self.text[self.at.byte..self.at.byte + end];
        self.at.byte += end;
        let raw = self.language == Language::Cpp && matches!(word, "R" | "LR" | "uR" | "UR" | "u8R");
        if raw && rest.get(end) == Some(&b'"') {
            let mark = &self.text[self.at.byte + 1..];
            // No longer one is allowed, nor any sign in it.
            let mark = mark.bytes().take(17).position(|byte| byte == b'(').map(|end| &mark[..end])?;
            if mark.contains(|c: char| c.is_ascii_whitespace() || matches!(c, '"' | '\\' | ')')) {
                return None;
            }
            return self.until(1 + mark.len(), &format!("){mark}\"")).map(|()| Token::Literal);
        }
        Some(if number { Token::Literal } else { Token::Word(word) })
    }

    /// A line, and those it goes on in if it may.
    fn line(&mut self, goes_on: bool) -> Option<()> {
        loop {
            let rest = self.after();
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            self.at.byte += end;
            if end == rest.len() || !line.ends_with(b"\\") || !self.may_go_on() {
                return Some(());
            }
            if !goes_on {
                return None;
            }
            self.at = Position { byte: self.at.byte + 1, row: self.at.row + 1, line: self.at.byte + 1 };
        }
    }

    fn directive(&mut self) -> Option<Token<'t>> {
        let said = self.text[self.at.byte + 1..].trim_start_matches([' ', '\t']);
        let word = said.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let what = match word {
            "if" | "ifdef" | "ifndef" => Conditional::Begins,
            "elif" | "else" | "elifdef" | "elifndef" => Conditional::Else,
            "endif" => Conditional::Ends,
            _ => Conditional::None,
        };
        // What looks like a comment there may go on.
        let start = self.at.byte;
        self.line(true)?;
        let comment = self.text[start..self.at.byte].find("/*");
        match comment.map(|begins| start + begins) {
            Some(begins) if !self.text[begins..self.at.byte].contains("*/") => None,
            _ => Some(Token::Directive(what)),
        }
    }

    /// Behind this many bytes and what follows up to the end, and that.
    fn until(&mut self, from: usize, end: &str) -> Option<()> {
        let rest = self.text.get(self.at.byte + from..)?;
        let to = self.at.byte + from + rest.find(end)? + end.len();
        self.go(to);
        Some(())
    }

    /// Over lines, perhaps.
    fn go(&mut self, to: usize) {
        let passed = &self.text.as_bytes()[self.at.byte..to];
        self.at.row += passed.iter().filter(|byte| **byte == b'\n').count();
        if let Some(last) = passed.iter().rposition(|byte| *byte == b'\n') {
            self.at.line = self.at.byte + last + 1;
        }
        self.at.byte = to;
    }

    fn literal(&mut self, quote: u8) -> Option<Token<'t>> {
        let rest = self.after();
        match (self.language, quote) {
            (Language::Go, b'`') => self.until(1, "`")?,
            (_, b'`') => return None,
            (Language::Java | Language::CSharp, b'"') if rest.starts_with(b"\"\"\"") => self.block()?,
            _ => self.on_one_line(quote)?,
        }
        Some(Token::Literal)
    }

    /// Up to the closing quote.
    fn on_one_line(&mut self, quote: u8) -> Option<()> {
        let rest = self.after();
        let mut at = 1;
        loop {
            match rest.get(at)? {
                b'\n' => return None,
                b'\\' if rest.get(at + 1) == Some(&b'\n') => return None,
                b'\\' => at += 1,
                byte if *byte == quote => break,
                _ => {}
            }
            at += 1;
        }
        self.at.byte += at + 1;
        Some(())
    }

    /// Between three quotes or more.
    fn block(&mut self) -> Option<()> {
        let quotes = self.after().iter().take_while(|byte| **byte == b'"').count();
        match self.language {
            Language::CSharp => self.until(quotes, &"\"".repeat(quotes)),
            _ if quotes > 3 => None,
            _ => {
                let mut end = self.at.byte + 3;
                loop {
                    end += self.text[end..].find("\"\"\"")?;
                    let escapes = self.text[..end].bytes().rev().take_while(|byte| *byte == b'\\').count();
                    if escapes.is_multiple_of(2) {
                        break;
                    }
                    end += 1;
                }
                self.go(end + 3);
                Some(())
            }
        }
    }

    /// `@"…"`, `$"…{…}…"` or a name with an `@`.
    fn marked(&mut self) -> Option<Token<'t>> {
        let rest = self.after();
        let marks = rest.iter().take_while(|byte| matches!(byte, b'@' | b'$')).count();
        if rest.get(marks) != Some(&b'"') {
            self.at.byte += 1;
            return Some(Token::Sign(rest[0]));
        }
        let verbatim = rest[..marks].contains(&b'@');
        let holes = rest[..marks].contains(&b'$');
        self.at.byte += marks;
        if !verbatim && rest[marks..].starts_with(b"\"\"\"") {
            return self.block().map(|()| Token::Literal);
        }
        let (mut at, mut open) = (marks + 1, 0_usize);
        loop {
            match rest.get(at)? {
                b'{' if holes && open == 0 && rest.get(at + 1) == Some(&b'{') => at += 1,
                b'{' if holes => open += 1,
                b'}' if holes => open = open.saturating_sub(1),
                // A string in it: which of them ends is not told here.
                b'"' if open > 0 => return None,
                b'"' if verbatim && rest.get(at + 1) == Some(&b'"') => at += 1,
                b'"' => break,
                b'\\' if !verbatim => at += 1,
                b'\n' if !verbatim => return None,
                _ => {}
            }
            at += 1;
        }
        self.go(self.at.byte - marks + at + 1);
        Some(Token::Literal)
    }

    /// Over `<…>`, if that follows.
    pub(super) fn skip_angles(&mut self) -> Option<()> {
        let (mut angles, mut brackets) = (0_usize, 0_usize);
        loop {
            let back = (self.at, self.first, self.left_out.len());
            match self.next()? {
                Token::Sign(b'<') if brackets == 0 => angles += 1,
                Token::Sign(b'>') if brackets == 0 => angles = angles.checked_sub(1)?,
                Token::Sign(b'(' | b'[' | b'{') if angles > 0 => brackets += 1,
                Token::Sign(b')' | b']' | b'}') if angles > 0 => brackets = brackets.checked_sub(1)?,
                Token::Sign(b';') | Token::End => return None,
                _ if angles == 0 => {
                    // `template class A<int>;`
                    (self.at, self.first) = (back.0, back.1);
                    self.left_out.truncate(back.2);
                    return Some(());
                }
                _ => {}
            }
            if angles == 0 && brackets == 0 {
                return Some(());
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}
