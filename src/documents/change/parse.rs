//! Parses the text of a change line by line. Never fails: parts that are missing stay empty.

use std::ops::Range;

use super::{ChangeSection, Kind};
use crate::documents::{edits::Edit, lld::path_of_place};

/// A parsed change. All ranges refer to the text that was parsed.
#[derive(Debug, Default)]
pub struct ParsedChange {
    /// Issue number in the title.
    pub number: Option<u64>,
    pub title: String,
    /// Text between the title and the first section.
    pub summary: Range<usize>,
    /// Sections in the order of the text; each range includes the heading.
    pub sections: Vec<(ChangeSection, Range<usize>)>,
    pub files: Vec<FileChange>,
}

/// One file of the change.
#[derive(Debug, Clone)]
pub struct FileChange {
    pub part: ChangeSection,
    pub path: String,
    pub kind: Kind,
    pub body: FileChangeBody,
    /// Requirements that the file's tests prove, such as `REQ-1`.
    pub proves: Vec<String>,
    /// Names of tests in the file that already pass before the change, because they guard existing behaviour.
    pub guards: Vec<String>,
    /// Range of the file's heading and everything below it.
    pub range: Range<usize>,
    /// Range of the code block including its fences, and the number of backticks in the opening fence.
    pub(super) block: Option<(Range<usize>, usize)>,
    /// Range of the text inside the code block.
    pub(super) content: Range<usize>,
}

/// Content of a file's code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChangeBody {
    /// The file has no code block.
    None,
    /// The block contains the full new text of the file.
    Whole(String),
    /// The block contains search and replace edits. Each search or replacement text consists of whole lines.
    Edits(Vec<Edit>),
    /// The block is invalid. The reason is worded as the end of a sentence about the block.
    Invalid(&'static str),
}

#[derive(Clone, Copy)]
struct ChangeLine<'t> {
    text: &'t str,
    start: usize,
    end: usize,
}

/// Parses a change. Never fails.
pub fn parse(text: &str) -> ParsedChange {
    let mut at = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        let start = at;
        at += line.len();
        ChangeLine { text: line.trim_end_matches(['\n', '\r']), start, end: at }
    });
    let lines: Vec<ChangeLine<'_>> = lines.collect();
    let mut change = ParsedChange::default();
    let (mut part, mut index) = (None, 0);
    while let Some(line) = lines.get(index) {
        index += 1;
        if let Some(title) = line.text.strip_prefix("# ").filter(|_| change.title.is_empty()) {
            (change.number, change.title) = parse_title(title);
            change.summary = line.end..text.len();
        } else if let Some(section) = parse_section(line.text) {
            change.end_section(line.start);
            part = Some(section);
            change.sections.push((section, line.start..text.len()));
        } else if let (Some(part), Some((path, kind))) = (part, parse_file_heading(line.text)) {
            change.end_file(line.start);
            change.files.push(FileChange::new(part, path, kind, line.start..text.len()));
        } else if line.text.starts_with("## ") {
            change.end_section(line.start);
            part = None;
        } else if let Some(file) = change.files.last_mut().filter(|file| file.range.end == text.len()) {
            if let Some(length) = fence_length(line.text).filter(|_| file.block.is_none()) {
                let last = closing_fence(&lines, index, length);
                let ends = last.map_or(text.len(), |last| lines[last].end);
                file.content = line.end..last.map_or(text.len(), |last| lines[last].start);
                file.block = Some((line.start..ends, length));
                file.body = match last {
                    Some(_) => parse_body(&text[file.content.clone()], file.kind),
                    None => FileChangeBody::Invalid("has no end"),
                };
                index = last.map_or(lines.len(), |last| last + 1);
            } else {
                file.read_annotation(line.text);
            }
        }
    }
    for file in change.files.iter_mut().filter(|file| file.part == ChangeSection::Tests) {
        let new = find_requirement_ids(file.new_text().as_str());
        file.proves.extend(new);
        file.proves.sort();
        file.proves.dedup();
    }
    change
}

impl ParsedChange {
    fn end_file(&mut self, at: usize) {
        if let Some(file) = self.files.last_mut() {
            file.range.end = file.range.end.min(at);
        }
    }

    fn end_section(&mut self, at: usize) {
        self.end_file(at);
        self.summary.end = self.summary.end.min(at);
        if let Some((_, section)) = self.sections.last_mut() {
            section.end = section.end.min(at);
        }
    }

    pub fn files_in(&self, part: ChangeSection) -> impl Iterator<Item = &FileChange> {
        self.files.iter().filter(move |file| file.part == part)
    }

    /// Returns the range of a location: a file, a section, the tests of a requirement, or a test.
    pub(super) fn find_place(&self, place: &str) -> Option<Range<usize>> {
        let bare = place.trim_start_matches(['§', '#', ' ']);
        let path = path_of_place(bare);
        let name = bare.rsplit([':', '>', ' ', '.']).next().unwrap_or(bare).trim().trim_end_matches("()");
        let upper = bare.to_ascii_uppercase();
        let files = || self.files.iter();
        let file = files().find(|file| file.path == path || file.path == bare);
        let section = || self.sections.iter().find(|(part, _)| part.as_str().eq_ignore_ascii_case(bare));
        let proof = || files().find(|file| file.proves.contains(&upper));
        let named =
            || files().find(|file| file.part == ChangeSection::Tests && has_word(&file.new_text(), name));
        let summary = || (bare.eq_ignore_ascii_case("summary")).then(|| self.summary.clone());
        let file = file.or_else(proof).map(|file| file.range.clone());
        let file = file.or_else(|| section().map(|(_, range)| range.clone())).or_else(summary);
        file.or_else(|| named().map(|file| file.range.clone()))
    }
}

impl FileChange {
    fn new(part: ChangeSection, path: String, kind: Kind, range: Range<usize>) -> Self {
        let (proves, guards, content) = (Vec::new(), Vec::new(), range.start..range.start);
        Self { part, path, kind, body: FileChangeBody::None, proves, guards, range, block: None, content }
    }

    /// Creates a file change that has only a path and a kind.
    pub(super) fn for_path(path: &str, kind: Kind) -> Self {
        Self::new(ChangeSection::Code, path.to_owned(), kind, 0..0)
    }

    /// Returns the new text in the file's block: the full text, or the replacements of all edits.
    pub fn new_text(&self) -> String {
        match &self.body {
            FileChangeBody::Whole(text) => text.clone(),
            FileChangeBody::Edits(edits) => edits.iter().map(|edit| edit.replace.as_str()).collect(),
            FileChangeBody::None | FileChangeBody::Invalid(_) => String::new(),
        }
    }

    /// Reads a `Proves` or `Guards` line, which may be before or after the code block.
    fn read_annotation(&mut self, line: &str) {
        let line = line.trim_start_matches(['-', '*', '_', ' ']);
        if let Some(rest) = line.strip_prefix("Proves") {
            self.proves.extend(find_requirement_ids(rest));
        } else if let Some(rest) = line.strip_prefix("Guards") {
            let names = rest.trim_start_matches([':', '*', '_', ' ']).split(',');
            let names = names.map(|name| name.trim().trim_matches(['`', '.']).to_owned());
            self.guards.extend(names.filter(|name| !name.is_empty()));
        }
    }
}

/// Returns whether `name` occurs in the text as a separate word or phrase.
pub(super) fn has_word(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty()
        && text
            .match_indices(name)
            .any(|(at, _)| !text[..at].ends_with(word) && !text[at + name.len()..].starts_with(word))
}

/// Returns whether a test ID ends with this name. The ID of one case of a parametrised test also matches the name of
/// the test.
pub fn test_id_has_name(id: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let bare = match id.find('[') {
        Some(at) if !name.contains('[') => &id[..at],
        _ => id,
    };
    !name.is_empty() && bare.strip_suffix(name).is_some_and(|rest| !rest.ends_with(word))
}

/// Returns whether the text mentions the test.
pub fn mentions_test(text: &str, name: &str) -> bool {
    test_name_parts(name).all(|part| has_word(text, part))
}

/// Returns the parts of a test's name that must occur in its code. For `Sums::full[1]`, a case of `full` in `Sums`,
/// they are `Sums` and `full`.
pub fn test_name_parts(name: &str) -> impl Iterator<Item = &str> {
    let bare = name.split('[').next().unwrap_or(name);
    bare.split("::").flat_map(|part| part.split(" > "))
}

/// Returns all requirement IDs such as `REQ-1`.
fn find_requirement_ids(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(['R', 'r']) {
        let rest = &text.as_bytes()[at..];
        if rest.get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"REQ-")) {
            let digits = rest[4..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits > 0 && !text[..at].ends_with(char::is_alphanumeric) {
                found.push(text[at..at + 4 + digits].to_ascii_uppercase());
            }
        }
    }
    found
}

/// Parses a title such as `42 - Change: Read it` into the issue number and the text.
fn parse_title(line: &str) -> (Option<u64>, String) {
    let line = line.trim();
    let digits = line.trim_start_matches('#');
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse().ok();
    let rest = if number.is_some() { &digits[end..] } else { line };
    let rest = rest.trim_start_matches([' ', '-', '–', '—', ':']);
    let title = rest.strip_prefix("Change").map_or(rest, |rest| rest.trim_start_matches([' ', ':', '-']));
    (number, title.trim().to_owned())
}

fn parse_section(line: &str) -> Option<ChangeSection> {
    let name = line.strip_prefix("## ")?.trim().trim_end_matches(':');
    ChangeSection::ALL.into_iter().find(|part| part.as_str().eq_ignore_ascii_case(name))
}

/// Parses a file heading such as ``### `src/lib.rs` (Modify)`` into the path and the kind.
pub(super) fn parse_file_heading(line: &str) -> Option<(String, Kind)> {
    let (path, kind) = line.strip_prefix("### ")?.trim().strip_suffix(')')?.rsplit_once('(')?;
    let kinds = [Kind::Add, Kind::Modify, Kind::Delete];
    let kind = kinds.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(kind.trim()))?;
    let path = path.trim();
    let path = path.strip_prefix('`').and_then(|path| path.strip_suffix('`')).unwrap_or(path);
    (!path.contains('`')).then(|| (path.to_owned(), kind))
}

fn fence_length(line: &str) -> Option<usize> {
    let length = count_backticks(line);
    (length >= 3 && !line[length..].contains('`')).then_some(length)
}

pub(super) fn count_backticks(line: &str) -> usize {
    line.len() - line.trim_start_matches('`').len()
}

/// Returns the index of the line that closes a fence: the first bare fence that is at least as long as the opening
/// fence. A block with a fence of three backticks may contain other fences. For such a block, a later fence at the end
/// of the file's part is preferred.
fn closing_fence(lines: &[ChangeLine<'_>], from: usize, length: usize) -> Option<usize> {
    let closes = |at: &usize| {
        let line = lines[*at].text.trim_end();
        let indent = line.len() - line.trim_start_matches(' ').len();
        indent < 4
            && count_backticks(&line[indent..]) >= length
            && line[indent..].len() == count_backticks(&line[indent..])
    };
    let first = (from..lines.len()).find(closes)?;
    if length > 3 {
        return Some(first);
    }
    let ours =
        |line: &ChangeLine<'_>| parse_section(line.text).is_some() || parse_file_heading(line.text).is_some();
    let ends = |at: &usize| {
        let next = lines[at + 1..].iter().find(|line| !line.text.trim().is_empty());
        next.is_none_or(|line| {
            ours(line) || line.text.starts_with("Proves") || line.text.starts_with("Guards")
        })
    };
    let until = (first + 1..lines.len()).find(|at| ours(&lines[*at])).unwrap_or(lines.len());
    let later = (first..until).filter(closes).find(ends);
    Some(later.unwrap_or(first))
}

/// Parses a block as search and replace blocks or as a full file.
pub(super) fn parse_body(content: &str, kind: Kind) -> FileChangeBody {
    if content.lines().find(|line| !line.trim().is_empty()).and_then(parse_marker) != Some(EditMarker::Search)
    {
        let end = if content.is_empty() || content.ends_with('\n') { "" } else { "\n" };
        return FileChangeBody::Whole(format!("{}{end}", content.replace("\r\n", "\n")));
    }
    if kind != Kind::Modify {
        return FileChangeBody::Invalid("searches and replaces, in a file that is not modified");
    }
    let (mut edits, mut within) = (Vec::<Edit>::new(), None);
    for line in content.lines() {
        match (within, parse_marker(line)) {
            (None, Some(EditMarker::Search)) => {
                edits.push(Edit { search: String::new(), replace: String::new() });
                within = Some(EditMarker::Search);
            }
            (None, _) if line.trim().is_empty() => {}
            (None, _) => {
                return FileChangeBody::Invalid("has text outside of `<<<<<<< SEARCH` and `>>>>>>> REPLACE`");
            }
            (Some(EditMarker::Search), Some(EditMarker::Separator)) => within = Some(EditMarker::Separator),
            (Some(EditMarker::Separator), Some(EditMarker::Replace)) => within = None,
            (Some(_), Some(EditMarker::Separator)) => {
                return FileChangeBody::Invalid(
                    "has two lines `=======` in one SEARCH; only one may separate search and replacement",
                );
            }
            (Some(_), Some(_)) => {
                return FileChangeBody::Invalid("has a SEARCH within a SEARCH, or one without `=======`");
            }
            (Some(side), None) => {
                let edit = edits.last_mut().map(|edit| match side {
                    EditMarker::Search => &mut edit.search,
                    _ => &mut edit.replace,
                });
                edit.into_iter().for_each(|text| text.extend([line, "\n"]));
            }
        }
    }
    match within {
        Some(_) => FileChangeBody::Invalid("has a SEARCH that no `>>>>>>> REPLACE` ends"),
        None => FileChangeBody::Edits(edits),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EditMarker {
    Search,
    Separator,
    Replace,
}

/// Parses a marker line: `<<<<<<< SEARCH`, `=======` or `>>>>>>> REPLACE`. The number of `<`, `=` or `>` characters may
/// vary.
fn parse_marker(line: &str) -> Option<EditMarker> {
    let line = line.trim_end();
    let known = [
        ('<', "SEARCH", EditMarker::Search),
        ('=', "", EditMarker::Separator),
        ('>', "REPLACE", EditMarker::Replace),
    ];
    known.into_iter().find_map(|(mark, word, marker)| {
        let rest = line.trim_start_matches(mark);
        ((5..=9).contains(&(line.len() - rest.len())) && rest.trim() == word).then_some(marker)
    })
}
