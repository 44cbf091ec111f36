//! Parses a spec. Never fails: a missing part is empty.

use std::ops::Range;

use super::{CHANGES, FUNCTIONS, PATTERNS, SCHEMA, STATE, TESTS, TYPES};
use crate::documents::{
    lld::{self, ParsedDesign, find_column, items_in, tables_in},
    markdown::{self, MarkdownOutline},
};

/// A parsed spec. All ranges refer to the text that was parsed.
#[derive(Debug, Default)]
pub struct ParsedSpec {
    /// Parts that a spec shares with a design: first heading, sections and files.
    pub view: ParsedDesign,
    /// Parts that quote the current content of the files to modify. The name of each part is the path of its file.
    pub state: Vec<SpecPart>,
    pub types: Vec<SpecPart>,
    pub functions: Vec<SpecPart>,
    /// Parts with change instructions. The name of each part is the path of its file.
    pub changes: Vec<SpecPart>,
    pub references: Vec<PatternReference>,
    pub tests: Vec<TestMappingRow>,
    /// Doc tests, which are written with the code.
    pub doc_tests: Vec<TestMappingRow>,
    /// Existing tests that the change removes or renames.
    pub removed_tests: Vec<TestMappingRow>,
}

/// A subsection with the heading `### name`.
#[derive(Debug, Clone)]
pub struct SpecPart {
    pub name: String,
    pub body: Range<usize>,
    pub code: Vec<String>,
    /// Text outside the code blocks.
    pub prose: String,
}

/// Existing code of the repository that the implementation must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternReference {
    pub path: String,
    /// First and last line, from 1; `None` for the whole file.
    pub lines: Option<(usize, usize)>,
}

#[derive(Debug, Clone, Default)]
pub struct TestMappingRow {
    /// Requirement IDs, such as `REQ-1`.
    pub requirements: Vec<String>,
    pub name: String,
    pub file: String,
    pub input: String,
    pub expected: String,
    pub range: Range<usize>,
}

impl TestMappingRow {
    /// Whether the row removes a test: its column `Expected` has the word `removed`, alone or with a colon and a reason.
    fn is_removal(&self) -> bool {
        let word = self.expected.split(':').next().unwrap_or_default();
        word.trim().eq_ignore_ascii_case("removed")
    }
}

/// Start of a doc test's name, before the item that it documents.
pub const DOC_TEST: &str = "doc ";

/// Parses a spec. Never fails.
pub fn parse(text: &str) -> ParsedSpec {
    let outline = markdown::parse_outline(text);
    let view = lld::parse_with_schema(SCHEMA, text, &outline);
    let body = |number| view.section(number).map(|section| section.body.clone()).unwrap_or_default();
    let parts = |number| parse_parts(text, &outline, body(number));
    let (state, types, functions, changes) = (parts(STATE), parts(TYPES), parts(FUNCTIONS), parts(CHANGES));
    let patterns = body(PATTERNS);
    let references =
        items_in(&outline, &patterns).map(|item| parse_reference(&text[item.range.clone()])).collect();
    let tests = body(TESTS);
    let rows = tables_in(&outline, &tests).flat_map(parse_test_rows);
    let (removed_tests, tests): (Vec<_>, Vec<_>) = rows.partition(TestMappingRow::is_removal);
    let (doc_tests, tests) = tests.into_iter().partition(|row| row.name.starts_with(DOC_TEST));
    ParsedSpec { state, types, functions, changes, references, tests, doc_tests, removed_tests, view }
}

impl ParsedSpec {
    /// Returns the range of a location: a section (by number or title), a part of a section, a test, a requirement's
    /// test or a row of the files table.
    pub(super) fn find_place(&self, place: &str) -> Option<Range<usize>> {
        let bare = place.trim_start_matches(['§', '#', ' ']);
        let (word, rest) = bare.split_once([' ', ',', '(', ':']).unwrap_or((bare, ""));
        let number = word.trim_end_matches('.');
        let is = |name: &str| [bare, rest.trim(), lld::path_of_place(bare)].contains(&name);
        let parts = [&self.types, &self.functions, &self.changes, &self.state];
        let part = parts.into_iter().flatten().find(|part| is(&part.name)).map(|part| part.body.clone());
        let upper = word.to_ascii_uppercase();
        let test = || {
            self.tests.iter().chain(&self.doc_tests).find(|t| is(&t.name) || t.requirements.contains(&upper))
        };
        let file = || self.view.files.iter().find(|row| is(&row.path)).map(|row| row.range.clone());
        let section = || {
            let mut sections = self.view.sections.iter();
            sections
                .find(|s| s.number == number || lld::names_section(&s.title, bare))
                .map(|s| s.body.clone())
        };
        part.or_else(|| test().map(|test| test.range.clone())).or_else(section).or_else(file)
    }
}

fn parse_parts(text: &str, outline: &MarkdownOutline, body: Range<usize>) -> Vec<SpecPart> {
    let all = &outline.headings;
    let below = all.iter().enumerate().filter(|(_, h)| h.level == 3 && body.contains(&h.range.start));
    below
        .map(|(at, heading)| {
            let next = all[at + 1..].iter().find(|h| h.level <= 3).map_or(text.len(), |h| h.range.start);
            let body = heading.range.end.min(next)..next.min(body.end);
            let blocks = &outline.code_blocks;
            let from = blocks.partition_point(|block| block.range.start < body.start);
            let blocks = blocks[from..].iter().take_while(|block| block.range.start < body.end);
            let (mut code, mut prose, mut end) = (Vec::new(), String::new(), body.start);
            for block in blocks {
                prose.push_str(&text[end.min(block.range.start)..block.range.start]);
                end = block.range.end;
                code.push(block.text.clone());
            }
            prose.push_str(text.get(end..body.end).unwrap_or_default());
            SpecPart { name: strip_marks(&heading.text).trim_end_matches("()").to_owned(), body, code, prose }
        })
        .collect()
}

fn strip_marks(text: &str) -> &str {
    text.trim().trim_matches(['`', '*']).trim()
}

/// Parses `path:12-30`, `path:12` or `path` at the start of an item. Any other text counts as a path.
fn parse_reference(item: &str) -> PatternReference {
    let mark = |c: char| c.is_ascii_digit() || c.is_whitespace() || "-*+.)".contains(c);
    let text = item.trim_start_matches(mark);
    let place = match text.strip_prefix('`') {
        Some(code) => code.split('`').next().unwrap_or_default().trim(),
        None => text.split_whitespace().next().unwrap_or_default(),
    };
    let path = lld::path_of_place(place).to_owned();
    let lines = place.get(path.len() + 1..).and_then(|lines| {
        let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
        Some((first.parse().ok()?, last.parse().ok()?))
    });
    PatternReference { path, lines }
}

/// Returns whether a path such as `display::Size::parse` goes through a type.
fn names_type(path: &str) -> bool {
    let is_type = |part: &str| part.starts_with(|c: char| c.is_ascii_uppercase());
    path.split("::").any(is_type) && path.chars().all(|c| c.is_alphanumeric() || "_:".contains(c))
}

fn parse_test_rows(table: &markdown::MarkdownTable) -> Vec<TestMappingRow> {
    let columns = ["requirement", "test", "file", "input", "expected"].map(|word| find_column(table, word));
    if columns[..3].iter().any(Option::is_none) {
        return Vec::new();
    }
    let rows = table.rows.iter().map(|row| {
        let cell = |at: Option<usize>| at.and_then(|at| row.cells.get(at)).cloned().unwrap_or_default();
        let [requirements, name, file, input, expected] = columns.map(cell);
        let words = requirements.split([',', ' ', '&', '`']).map(str::trim);
        let requirements = words.filter(|word| word.get(..4).is_some_and(|w| w.eq_ignore_ascii_case("REQ-")));
        let name = strip_marks(&name).trim_end_matches("()");
        // Rust has no test functions in types, so this is an item with a doc test.
        let is_item = strip_marks(&file).ends_with(".rs") && !name.starts_with(DOC_TEST) && names_type(name);
        TestMappingRow {
            requirements: requirements.map(str::to_ascii_uppercase).collect(),
            name: if is_item { format!("{DOC_TEST}{name}") } else { name.to_owned() },
            file: strip_marks(&file).to_owned(),
            input,
            expected,
            range: row.range.clone(),
        }
    });
    rows.collect()
}
