//! What a design says to exist.
//!
//! Read once from beginning to end: around each name a few words are looked at, never a whole text.

use std::collections::BTreeSet;

use super::{
    declared::Declared,
    words::{
        CALLING, COMMENTS, DEFINED_IN, DOUBT, ENDINGS, HAS, IN, INTO, KEPT, MADE, NEW, OF_IT, RENAMED,
        SURELY, TURNING, UNSURE, USED_IN, USING,
    },
};
use crate::{
    documents::{
        Stands,
        lld::{Change, FileRow, Lld},
        markdown::{CodeBlock, Outline, Span},
    },
    limits,
};

/// A design, read for what it says of the repository.
pub(super) struct Claims<'a> {
    text: &'a str,
    pub(super) lld: &'a Lld,
    outline: &'a Outline,
    /// What is said of each name in backticks.
    said: Vec<Said>,
}

/// What the words around a name say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It is the design's own.
    New,
    /// It may not be there.
    Doubtful,
    /// It is called, read or used.
    Used,
    /// It is there already.
    Surely,
    /// Nothing but its name.
    Plain,
}

/// A name that the design takes to exist.
pub(super) struct Claim<'a> {
    pub(super) name: &'a str,
    pub(super) stands: Stands<'a>,
    pub(super) place: String,
    /// The words leave no doubt that it is there already.
    pub(super) surely: bool,
    /// It is called or used in prose.
    pub(super) used: bool,
    /// It is a function's. What is only read may be a field's, or a key's of something else.
    pub(super) called: bool,
    /// It has a signature in 2.4, as what is there and changes.
    pub(super) kept: bool,
}

/// Sections that speak of what is there. Tests and fixtures name things that are made up for them.
const SPEAKING: [&str; 4] = ["1", "2", "7", "11"];

/// How many words around a name are looked at, and how many bytes.
const WORDS: usize = 6;
const AROUND: usize = 300;

impl<'a> Claims<'a> {
    pub(super) fn new(text: &'a str, lld: &'a Lld, outline: &'a Outline) -> Self {
        let mut claims = Self { text, lld, outline, said: Vec::new() };
        claims.said = (0..outline.code_spans.len()).map(|at| claims.said(at)).collect();
        claims
    }

    /// Paths in backticks that are said to be there, each once, with its place.
    pub(super) fn paths(&self) -> Vec<(&'a str, String)> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for (at, span) in self.outline.code_spans.iter().enumerate() {
            let path = file_of(&span.text).0;
            let legal = |c: char| c.is_ascii_alphanumeric() || "_-./@+".contains(c);
            let whole = path.chars().all(legal)
                && !path.contains("...")
                && (path.contains('/') || is_file_name(path));
            if whole && self.is_claim(at) && !self.in_table(span) && seen.insert(path) {
                out.push((path, self.place(span.range.start)));
            }
            if out.len() == limits::NAMED_CLAIMS {
                break;
            }
        }
        out
    }

    /// Names in backticks that are said to be there, each once a file.
    pub(super) fn symbols(&self, declared: &Declared) -> Vec<Claim<'a>> {
        let mut seen = BTreeSet::new();
        let mut out = Vec::new();
        for (at, span) in self.outline.code_spans.iter().enumerate() {
            if out.len() == limits::NAMED_CLAIMS {
                break;
            }
            let (file, inner) = file_of(&span.text);
            let (name, stands) = match inner {
                Some(name) => (name, Stands::In(file)),
                None => (span.text.as_str(), self.beside(at)),
            };
            let Some(name) = symbol(name) else { continue };
            if !self.is_claim(at) || declared.has(name) || !seen.insert((stands, name)) {
                continue;
            }
            let said = self.said[at];
            let surely = said == Said::Surely;
            let used = said == Said::Used && !self.in_table(span) && !self.is_somebodys(at);
            let called = span.text.contains('(') || self.right_before(at, 2, &CALLING);
            let place = self.place(span.range.start);
            out.push(Claim { name, stands, place, surely, used, called, kept: false });
        }
        out
    }

    /// Functions of 2.4 that a comment there says to be in the repository already, with the file if only one is changed.
    pub(super) fn kept(&self) -> Vec<Claim<'a>> {
        let modified = |row: &&FileRow| row.change == Some(Change::Modify);
        let mut rows = self.lld.files.iter().filter(modified).map(|row| row.path.as_str());
        let stands = match (rows.next(), rows.next()) {
            (Some(file), None) => Stands::In(file),
            _ => Stands::Somewhere,
        };
        let blocks = self.blocks().filter(|block| self.number(block.range.start) == "2.4");
        let claim = |name: &'a str| Claim {
            name,
            stands,
            place: "§2.4".to_owned(),
            surely: true,
            used: false,
            called: true,
            kept: true,
        };
        blocks.flat_map(|block| kept(&block.text)).take(limits::NAMED_CLAIMS).map(claim).collect()
    }

    /// All names in backticks, with what is said of them.
    pub(super) fn spans(&self) -> impl Iterator<Item = (&'a Span, Said)> {
        self.outline.code_spans.iter().zip(self.said.iter().copied())
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = &'a CodeBlock> {
        self.outline.code_blocks.iter()
    }

    /// The section that a place in the text belongs to.
    pub(super) fn place(&self, at: usize) -> String {
        match self.number(at) {
            "" => "document".to_owned(),
            number => format!("§{number}"),
        }
    }

    pub(super) fn number(&self, at: usize) -> &'a str {
        // In the order of the text: the last that begins before it is the innermost.
        let after = self.lld.sections.partition_point(|section| section.body.start <= at);
        let section = after.checked_sub(1).map(|before| &self.lld.sections[before]);
        section.map_or("", |section| section.number.as_str())
    }

    fn is_claim(&self, at: usize) -> bool {
        let number = self.number(self.outline.code_spans[at].range.start);
        SPEAKING.contains(&number.split('.').next().unwrap_or(number))
            && !matches!(self.said[at], Said::New | Said::Doubtful)
    }

    /// `click's Command.run()`, `Command.run() of click`: a word alone tells who has it, and that may be anybody.
    fn is_somebodys(&self, at: usize) -> bool {
        let possessive = |word: &String| ["'s", "’s", "s'"].iter().any(|end| word.ends_with(end));
        let rest = self.text.get(self.outline.code_spans[at].range.end..).unwrap_or_default();
        let of = rest.strip_prefix(" of ").is_some_and(|rest| !rest.starts_with('`'));
        of || self.before(at, 1).iter().any(possessive)
    }

    fn in_table(&self, span: &Span) -> bool {
        let tables = &self.outline.tables;
        let after = tables.partition_point(|table| table.range.start <= span.range.start);
        after.checked_sub(1).is_some_and(|at| tables[at].range.contains(&span.range.start))
    }

    /// Where the words beside a name put it.
    fn beside(&self, at: usize) -> Stands<'a> {
        let spans = &self.outline.code_spans;
        let path =
            |span: &'a Span| Some(span.text.as_str()).filter(|text| is_path(text) || is_file_name(text));
        let between = |from: usize, to: usize| {
            let words = self.text.get(from..to).filter(|words| words.len() < 60)?;
            Some(words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase())
        };
        if let Some(after) = spans.get(at + 1)
            && let Some(words) = between(spans[at].range.end, after.range.start)
            && let Some(file) = path(after)
        {
            if DEFINED_IN.contains(&words.as_str()) {
                return Stands::DefinedIn(file);
            }
            // The file where it is called need not be the one where it is.
            let called = self.said[at] == Said::Used;
            if IN.contains(&words.as_str()) {
                return if called { Stands::UsedIn(file) } else { Stands::In(file) };
            }
            if USED_IN.contains(&words.as_str()) {
                return Stands::UsedIn(file);
            }
        }
        let before = at.checked_sub(1).map(|at| &spans[at]).and_then(|before| {
            let words = between(before.range.end, spans[at].range.start)?;
            path(before).filter(|_| HAS.contains(&words.as_str()))
        });
        before.map_or(Stands::Somewhere, Stands::In)
    }

    fn said(&self, at: usize) -> Said {
        let start = self.outline.code_spans[at].range.start;
        if self.is_surely_there(at) {
            return Said::Surely;
        }
        let after = self.after(at);
        let mut said = Said::Plain;
        let mut turned = false;
        for word in self.before(at, WORDS) {
            let word = word.as_str();
            turned |= INTO.contains(&word);
            if turned && TURNING.contains(&word) {
                said = Said::Doubtful;
            } else if USING.contains(&word) {
                said = Said::Used;
            } else if NEW.contains(&word) {
                return Said::New;
            } else if DOUBT.contains(&word) {
                said = Said::Doubtful;
            } else {
                continue;
            }
            break;
        }
        // "called with the new class" makes that class new, and not what is called.
        let adjective =
            |at: usize| after[at] == "new" && at > 0 && !matches!(after[at - 1].as_str(), "is" | "are");
        if (0..after.len()).any(|at| MADE.contains(&after[at].as_str()) && !adjective(at)) {
            Said::New
        } else if after.iter().any(|word| UNSURE.contains(&word.as_str())) {
            Said::Doubtful
        } else if said == Said::Plain && self.in_added_row(start) {
            Said::New
        } else {
            said
        }
    }

    /// What a row of 2.1 says of a file that is added is said of what that file will have.
    fn in_added_row(&self, at: usize) -> bool {
        let rows = &self.lld.files;
        let after = rows.partition_point(|row| row.range.start <= at);
        after.checked_sub(1).is_some_and(|before| {
            rows[before].change == Some(Change::Add) && rows[before].range.contains(&at)
        })
    }

    fn right_before(&self, at: usize, words: usize, of: &[&str]) -> bool {
        self.before(at, words).iter().any(|word| of.contains(&word.as_str()))
    }

    /// "the existing `load()`", but not "no existing `load()`", nor "is it there already, `load()`".
    fn is_surely_there(&self, at: usize) -> bool {
        let words = self.before_while(at, 2, |token| !token.ends_with(','));
        let any = |of: &[&str]| words.iter().any(|word| of.contains(&word.as_str()));
        any(&SURELY) && !any(DOUBT)
    }

    /// The words of the sentence before a name, the nearest first, without other names.
    fn before(&self, at: usize, most: usize) -> Vec<String> {
        self.before_while(at, most, |_| true)
    }

    fn before_while(&self, at: usize, most: usize, goes_on: impl Fn(&str) -> bool) -> Vec<String> {
        let spans = &self.outline.code_spans;
        let floor = floor(self.text, spans[at].range.start.saturating_sub(AROUND));
        let mut words = Vec::new();
        let mut end = spans[at].range.start;
        for before in (0..=at).rev() {
            let start = before.checked_sub(1).map_or(0, |before| spans[before].range.end).max(floor);
            let Some(stretch) = self.text.get(start..end) else { return words };
            let (stretch, ends) = match stretch.rfind("\n\n") {
                Some(gap) => (&stretch[gap..], true),
                None => (stretch, false),
            };
            for token in stretch.split_whitespace().rev() {
                if ends_sentence(token) || begins_line(token) || words.len() == most || !goes_on(token) {
                    return words;
                }
                words.extend(word(token));
            }
            if ends || start == floor || before == 0 {
                return words;
            }
            end = spans[before - 1].range.start;
        }
        words
    }

    /// Those after it.
    fn after(&self, at: usize) -> Vec<String> {
        let spans = &self.outline.code_spans;
        let mut start = spans[at].range.end;
        let ceiling = floor(self.text, (start + AROUND).min(self.text.len()));
        let mut words = Vec::new();
        for next in at + 1.. {
            let end = spans.get(next).map_or(self.text.len(), |span| span.range.start).min(ceiling);
            let Some(stretch) = self.text.get(start..end) else { return words };
            let gap = stretch.find("\n\n");
            let mut tokens = stretch[..gap.unwrap_or(stretch.len())].split_whitespace();
            while let Some(token) = tokens.next() {
                if token == "," && next == at + 1 && words.is_empty() {
                    words.extend(is_new_one(tokens).then(|| "new".to_owned()));
                    return words;
                }
                // Another part of the sentence speaks of something else.
                if begins_line(token) || words.len() == WORDS || token.starts_with(';') {
                    return words;
                }
                words.extend(word(token));
                if ends_sentence(token) || token.ends_with([',', ';', ':']) {
                    return words;
                }
            }
            if gap.is_some() || end == ceiling || next >= spans.len() {
                return words;
            }
            start = spans[next].range.end;
        }
        words
    }
}

/// Is said behind a comma ", a new one", or ", which this adds"?
fn is_new_one<'t>(tokens: impl Iterator<Item = &'t str>) -> bool {
    let words: Vec<String> = tokens.take(3).filter_map(word).collect();
    let by_design =
        matches!(&words[..], [which, _, adds] if which == "which" && NEW.contains(&adds.as_str()));
    by_design || words.iter().any(|word| MADE.contains(&word.as_str()))
}

/// The functions of a block above which, or behind which, a comment begins with that they are there.
fn kept(code: &str) -> Vec<&str> {
    let mut before = "";
    let mut names = Vec::new();
    for line in code.lines().map(str::trim) {
        let comment = COMMENTS.iter().filter_map(|mark| line.find(mark)).min().unwrap_or(line.len());
        let (code, behind) = line.split_at(comment);
        // A method of Go has its type first.
        let receiver = code.strip_prefix("func (").and_then(|rest| rest.split_once(')'));
        let code = receiver.map_or(code, |(_, rest)| rest);
        let head = code.split('(').next().filter(|head| head.len() < code.len() && !head.starts_with('@'));
        let head = head.unwrap_or_default();
        let name = head.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).find(|name| !name.is_empty());
        if says_kept(behind) || says_kept(before) {
            names.extend(name);
        }
        before = match code {
            "" => behind,
            // A decorator stands between them.
            _ if code.starts_with('@') => before,
            _ => "",
        };
    }
    names
}

/// `// existing`, `# Changed: takes a path`, but not `// Existing callers are safe`.
fn says_kept(comment: &str) -> bool {
    if comment.split_whitespace().filter_map(word).any(|word| RENAMED.contains(&word.as_str())) {
        return false;
    }
    let mut words = comment.trim_start_matches(|c: char| !c.is_alphanumeric()).split_whitespace();
    let Some(first) = words.next().map(str::to_lowercase) else { return false };
    let ends = first.ends_with([',', ':', ';', '.', ')']);
    let of_it = words.next().is_none_or(|next| OF_IT.contains(&next));
    KEPT.contains(&first.trim_end_matches([',', ':', ';', '.', ')'])) && (ends || of_it)
}

/// The next place at or before this one where a text can be cut.
fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ends_sentence(token: &str) -> bool {
    token.ends_with(['.', '!', '?', ';']) && !matches!(token.trim_start_matches('('), "e.g." | "i.e.")
}

/// A list's, a table's or a heading's mark.
fn begins_line(token: &str) -> bool {
    matches!(token, "-" | "*" | "+") || token.starts_with(['|', '#'])
}

fn word(token: &str) -> Option<String> {
    let word = token.trim_matches(|c: char| !(c.is_alphanumeric() || c == '\'')).to_lowercase();
    (!word.is_empty() && word.len() < 30).then_some(word)
}

/// `src/a.rs`, and what is named in it by `src/a.rs::name`, `src/a.rs#name` or `src/a.rs:name`. A line is no name.
fn file_of(span: &str) -> (&str, Option<&str>) {
    for separator in ["::", "#", ":"] {
        if let Some((path, name)) = span.split_once(separator)
            && (is_path(path) || is_file_name(path))
        {
            let name =
                Some(name).filter(|name| !name.starts_with(|c: char| c.is_ascii_digit()) && !name.is_empty());
            return (path, name);
        }
    }
    (span, None)
}

/// A file's name with an ending, in a folder.
fn is_path(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-./@+".contains(c);
    let file = text.rsplit('/').next().unwrap_or(text);
    text.contains('/')
        && text.chars().all(legal)
        && file.rsplit_once('.').is_some_and(|(stem, _)| !stem.is_empty())
}

/// A file of code without its folder.
fn is_file_name(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let (stem, ending) = text.rsplit_once('.').unwrap_or_default();
    !stem.is_empty() && text.chars().all(legal) && ENDINGS.contains(&ending)
}

/// A name that looks like one of code: qualified, called, or written as only code is. Its call's brackets are taken off.
fn symbol(text: &str) -> Option<&str> {
    if text.len() > 200 {
        return None;
    }
    let called = text.strip_suffix("()");
    let name = called.unwrap_or(text);
    let name = match name.split_once('(') {
        // A call with what it is given; a macro's and a generic's marks are not part of a name either.
        Some((name, rest)) if rest.ends_with(')') => name,
        Some(_) => return None,
        None => name,
    };
    let legal = |c: char| c.is_ascii_alphanumeric() || "_:.#".contains(c);
    let parts: Vec<&str> = name.split(|c: char| ":.#".contains(c)).filter(|part| !part.is_empty()).collect();
    let words = parts.iter().all(|part| !part.starts_with(|c: char| c.is_ascii_digit()));
    let last = parts.last()?;
    let inner_capital =
        last.chars().zip(last.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase());
    let code =
        called.is_some() || name.len() < text.len() || parts.len() > 1 || last.contains('_') || inner_capital;
    let whole = name.chars().all(legal) && words && name.len() <= 100 && last.len() > 1;
    let file = name.contains('.') && called.is_none() && ENDINGS.contains(last);
    (whole && code && !file && !is_path(name) && !name.ends_with([':', '.', '#'])).then_some(name)
}
