//! What the preprocessor of C and C++ would take away, blanked out so that the rest parses.
//!
//! A grammar sees a text before its preprocessor does: `FMT_API void f()` is no C, and neither are the two halves of an
//! `if` in two branches of an `#if`. Byte for byte the text keeps its length, so that whatever is found in it stands at
//! the same place of the source. Nothing here knows what a macro stands for; it is told from a name by its capitals and
//! by where it stands, and what is made of it is used only if it parses better.

use std::ops::Range;

/// The text with blanks where a macro or a branch keeps it from being parsed.
pub(super) fn blanked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    blank(&mut bytes, branches(text, &tokens(text)));
    // Whole characters were taken away, so it is text still.
    let without = String::from_utf8(bytes).unwrap_or_default();
    let ranges = macros(&without, &tokens(&without));
    let mut bytes = without.into_bytes();
    blank(&mut bytes, ranges);
    String::from_utf8(bytes).unwrap_or_default()
}

/// Each byte once: a group's branches hold those of the groups inside it.
fn blank(bytes: &mut [u8], mut ranges: Vec<Range<usize>>) {
    ranges.sort_by_key(|range| range.start);
    let mut done = 0;
    for range in ranges {
        for byte in bytes.get_mut(range.start.max(done)..range.end).into_iter().flatten() {
            if !matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        done = done.max(range.end);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    what: What,
    at: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Word,
    Sign(u8),
    /// A string, character or number.
    Literal,
    /// A line for the preprocessor, with those it goes on in.
    Directive,
}

/// All but comments and spaces.
fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    // A byte order mark is no name.
    let start = text.len() - text.trim_start_matches('\u{feff}').len();
    let (mut tokens, mut at, mut line_begins) = (Vec::new(), start, true);
    while at < bytes.len() {
        let byte = bytes[at];
        let start = at;
        match byte {
            b'\n' => line_begins = true,
            b'#' if line_begins => {
                at = end_of_directive(bytes, at);
                tokens.push(Token { what: What::Directive, at: start..at });
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at = end_of_line(bytes, at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = text[at + 2..].find("*/").map_or(bytes.len(), |end| at + 2 + end + 2);
                continue;
            }
            _ if byte.is_ascii_whitespace() => {}
            b'"' | b'\'' => {
                at = end_of_literal(text, &mut tokens, at);
                tokens.push(Token { what: What::Literal, at: start..at });
                line_begins = false;
                continue;
            }
            _ if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 => {
                while at < bytes.len() && is_word(bytes[at]) || is_separator(bytes, at, start) {
                    at += 1;
                }
                let what = if byte.is_ascii_digit() { What::Literal } else { What::Word };
                tokens.push(Token { what, at: start..at });
                line_begins = false;
                continue;
            }
            _ => {
                tokens.push(Token { what: What::Sign(byte), at: start..at + 1 });
                line_begins = false;
            }
        }
        at += 1;
    }
    tokens
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// `1'000`
fn is_separator(bytes: &[u8], at: usize, start: usize) -> bool {
    bytes[start].is_ascii_digit()
        && bytes.get(at) == Some(&b'\'')
        && bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric)
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| at + end)
}

/// The end of its last line: one that ends in `\` goes on.
fn end_of_directive(bytes: &[u8], mut at: usize) -> usize {
    loop {
        let end = end_of_line(bytes, at);
        let line = bytes[at..end].strip_suffix(b"\r").unwrap_or(&bytes[at..end]);
        if !line.ends_with(b"\\") || end >= bytes.len() {
            return end;
        }
        at = end + 1;
    }
}

/// Behind the closing quote, or at the end of the line. What is told of a raw string is without its `R`.
fn end_of_literal(text: &str, tokens: &mut Vec<Token>, start: usize) -> usize {
    let bytes = text.as_bytes();
    let raw = bytes[start] == b'"'
        && tokens.last().is_some_and(|last| last.at.end == start && text[last.at.clone()].ends_with('R'));
    if raw {
        tokens.pop();
        let mark = text[start + 1..].split('(').next().unwrap_or("");
        let close = format!("){mark}\"");
        return text[start..].find(&close).map_or(bytes.len(), |end| start + end + close.len());
    }
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\n' => return at,
            byte if byte == bytes[start] => return at + 1,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// One `#if` with its branches.
struct Group {
    /// The tokens that are its directives.
    directives: Vec<usize>,
    /// It begins within a statement or in parentheses.
    inside: bool,
    /// A branch opens what it does not close.
    uneven: bool,
    /// How much is open before it, and how much more behind its first branch.
    depth: i64,
    opened: Option<i64>,
}

/// The lines of all groups that begin or end within something, but for their first branch.
fn branches(text: &str, tokens: &[Token]) -> Vec<Range<usize>> {
    let (mut ranges, mut open) = (Vec::<Range<usize>>::new(), Vec::<Group>::new());
    let (mut depth, mut parentheses) = (0_i64, 0_i64);
    // How deep the outermost list of values is that this is in.
    let mut values: Option<i64> = None;
    let mut before = None;
    for (at, token) in tokens.iter().enumerate() {
        match token.what {
            What::Sign(sign) => {
                if sign == b'{' && before == Some(What::Sign(b'=')) {
                    values.get_or_insert(depth);
                }
                depth += i64::from(matches!(sign, b'{' | b'(')) - i64::from(matches!(sign, b'}' | b')'));
                parentheses += i64::from(sign == b'(') - i64::from(sign == b')');
                values = values.filter(|outer| *outer < depth);
                parentheses = if matches!(sign, b'{' | b'}' | b';') { 0 } else { parentheses.max(0) };
            }
            What::Directive => {
                let word = directive(&text[token.at.clone()]);
                if word.starts_with("if") {
                    let ends =
                        matches!(before, None | Some(What::Sign(b';' | b'{' | b'}' | b':' | b',' | b'>')));
                    open.push(Group {
                        directives: vec![at],
                        inside: parentheses > 0 || values.is_some() || !ends,
                        uneven: false,
                        depth,
                        opened: None,
                    });
                } else if word.starts_with("el") || word == "endif" {
                    let Some(group) = open.last_mut() else { continue };
                    group.directives.push(at);
                    group.uneven |= depth != group.depth;
                    // Every branch begins like the first, and what follows goes on from that.
                    let opened = *group.opened.get_or_insert(depth - group.depth);
                    depth = if word == "endif" { group.depth + opened } else { group.depth };
                    if word == "endif"
                        && let Some(group) = open.pop()
                        && (group.inside || group.uneven)
                    {
                        taken_away(text, tokens, &group, &mut ranges);
                    }
                } else if parentheses > 0 || values.is_some() {
                    ranges.push(token.at.clone());
                }
                continue;
            }
            What::Word | What::Literal => {}
        }
        before = Some(token.what);
    }
    ranges
}

/// The word of a directive.
fn directive(line: &str) -> &str {
    let rest = line.trim_start_matches('#').trim_start();
    rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("")
}

/// The directives, and all branches but one: the first, unless that is `#if 0`.
fn taken_away(text: &str, tokens: &[Token], group: &Group, ranges: &mut Vec<Range<usize>>) {
    let at = |index: usize| tokens[group.directives[index]].at.clone();
    let never =
        text[at(0)].trim_start_matches('#').trim().strip_prefix("if").is_some_and(|said| said.trim() == "0");
    let kept = usize::from(never);
    for index in 0..group.directives.len() {
        ranges.push(at(index));
        if index + 1 < group.directives.len() && index != kept {
            ranges.push(at(index).end..at(index + 1).start);
        }
    }
}

/// Words that a declaration begins with.
const BEGINNINGS: &[&str] = &[
    "auto",
    "bool",
    "char",
    "class",
    "const",
    "constexpr",
    "double",
    "enum",
    "explicit",
    "extern",
    "float",
    "friend",
    "inline",
    "int",
    "long",
    "namespace",
    "operator",
    "short",
    "signed",
    "size_t",
    "static",
    "struct",
    "template",
    "typedef",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
];

/// Macros that stand where the grammar expects none, and lists as default values of parameters.
fn macros(text: &str, tokens: &[Token]) -> Vec<Range<usize>> {
    let mut macros = Macros { text, tokens, left: (0..=tokens.len()).collect() };
    let mut ranges = Vec::new();
    // From the end, so that of several in a row each sees what follows them all.
    for at in (0..tokens.len()).rev() {
        let default = macros.is_default(at).then(|| macros.closing(at + 1)).flatten();
        if let Some(close) = default.or_else(|| macros.initializers(at)) {
            ranges.push(tokens[at].at.start..tokens[close].at.end);
        } else if macros.is_in_capitals(at) {
            let end = macros.end(at);
            if macros.is_out_of_place(at, end) {
                macros.left[at] = macros.left[end];
                ranges.push(tokens[at].at.start..tokens[end - 1].at.end);
            }
        }
    }
    ranges
}

struct Macros<'t> {
    text: &'t str,
    tokens: &'t [Token],
    /// For each token the first from it on that is left.
    left: Vec<usize>,
}

impl Macros<'_> {
    fn word(&self, at: usize) -> &str {
        let token = self.tokens.get(at).filter(|token| token.what == What::Word);
        token.map_or("", |token| &self.text[token.at.clone()])
    }

    fn sign(&self, at: usize) -> u8 {
        match self.tokens.get(at).map(|token| token.what) {
            Some(What::Sign(sign)) => sign,
            _ => 0,
        }
    }

    /// The first token from here that is left.
    fn next(&self, at: usize) -> usize {
        self.left.get(at).copied().unwrap_or(self.tokens.len())
    }

    /// Behind a name and its arguments.
    fn end(&self, at: usize) -> usize {
        let arguments = self.sign(at + 1) == b'(';
        if arguments { self.closing(at + 1).map_or(at + 1, |close| close + 1) } else { at + 1 }
    }

    /// The token that closes what is opened here, if that is near.
    fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for (at, token) in self.tokens.iter().enumerate().skip(open).take(200) {
            match token.what {
                What::Sign(b'(' | b'{') => depth += 1,
                What::Sign(b')' | b'}') => depth = depth.saturating_sub(1),
                What::Sign(b';') | What::Directive => return None,
                _ => {}
            }
            if depth == 0 {
                return Some(at);
            }
        }
        None
    }

    /// `= {` behind a parameter's name: what closes it is followed by `,` or `)`.
    fn is_default(&self, at: usize) -> bool {
        self.sign(at) == b'='
            && self.sign(at + 1) == b'{'
            && self.closing(at + 1).is_some_and(|close| matches!(self.sign(close + 1), b',' | b')'))
    }

    /// The last token of what a constructor says of its members: `: a(1), b{2} {`. Nothing in it is an item.
    fn initializers(&self, at: usize) -> Option<usize> {
        let last = at.checked_sub(1)?;
        if self.sign(at) != b':' || !(self.sign(last) == b')' || self.word(last) == "noexcept") {
            return None;
        }
        let mut close = at;
        for _ in 0..100 {
            let open =
                (close + 2..close + 12).find(|open| matches!(self.sign(*open), b'(' | b'{' | b';' | b'='))?;
            if self.word(close + 1).is_empty() || !matches!(self.sign(open), b'(' | b'{') {
                return None;
            }
            close = self.closing(open)?;
            match self.sign(close + 1) {
                b',' => close += 1,
                b'{' => return Some(close),
                _ => return None,
            }
        }
        None
    }

    /// As macros are.
    fn is_in_capitals(&self, at: usize) -> bool {
        let name = self.word(at);
        name.len() >= 3
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    }

    fn is_out_of_place(&self, at: usize, end: usize) -> bool {
        let next = self.next(end);
        let before = at.checked_sub(1);
        self.leads(before, next) || self.follows(before, next) || self.stands_alone(at, before, next)
    }

    /// `API void f()`, `class API name {`, `int API f()`
    fn leads(&self, before: Option<usize>, next: usize) -> bool {
        let word = self.word(next);
        let after = self.next(next + 1);
        let last = before.map_or("", |before| self.word(before));
        // `if CONSTEXPR (`
        if last == "if" {
            return self.sign(next) == b'(';
        }
        if matches!(last, "class" | "struct" | "union") {
            return !word.is_empty()
                && (matches!(self.sign(after), b'{' | b':' | b'<') || self.word(after) == "final");
        }
        let declares = !self.word(after).is_empty() || matches!(self.sign(after), b'*' | b'&' | b':' | b'<');
        let begins = before.is_none_or(|before| self.is_boundary(before));
        let builtin = BEGINNINGS.contains(&last) || before.is_some_and(|before| self.sign(before) == b'*');
        begins && (BEGINNINGS.contains(&word) || !word.is_empty() && declares || self.sign(next) == b'~')
            || builtin
                && !word.is_empty()
                && (self.sign(after) == b'(' || BEGINNINGS.contains(&word) || declares)
    }

    /// `f() ATTRIBUTE;`, `f() const OVERRIDE {`
    fn follows(&self, before: Option<usize>, next: usize) -> bool {
        let Some(before) = before else { return false };
        let closes =
            self.sign(before) == b')' || matches!(self.word(before), "const" | "noexcept" | "override");
        closes && matches!(self.sign(next), b';' | b'{' | b':' | b'=')
    }

    /// `BEGIN_NAMESPACE` on a line of its own.
    fn stands_alone(&self, at: usize, before: Option<usize>, next: usize) -> bool {
        let between = |from: usize, to: usize| {
            let end = self.tokens.get(to).map_or(self.text.len(), |token| token.at.start);
            self.text[self.tokens[from].at.end..end].contains('\n')
        };
        let first = before.is_none_or(|before| between(before, at));
        let last = next == self.tokens.len() || between(next - 1, next);
        let begins = before.is_none_or(|before| self.is_boundary(before));
        let goes_on = match self.sign(next) {
            b'}' => before.is_none_or(|before| !matches!(self.sign(before), b';' | b'}')),
            sign => matches!(sign, b'{' | b',' | b'=' | b')' | b'(' | b';'),
        };
        first && last && begins && !goes_on
    }

    /// Whether a declaration may begin behind this token.
    fn is_boundary(&self, at: usize) -> bool {
        self.tokens[at].what == What::Directive
            || matches!(self.sign(at), b';' | b'{' | b'}' | b':' | b'>' | b')')
            || self.is_name_of_macro(at)
    }

    /// Another one before it: they go together.
    fn is_name_of_macro(&self, at: usize) -> bool {
        let word = self.word(at);
        word.len() >= 3 && word.contains('_') && !word.bytes().any(|byte| byte.is_ascii_lowercase())
    }
}
