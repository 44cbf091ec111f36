//! Parses a design. Never fails: parts that are missing stay empty.

use std::ops::Range;

use super::{DocumentSchema, SCHEMA};
use crate::documents::markdown::{self, MarkdownListItem, MarkdownOutline, MarkdownTable};

/// A parsed design. All ranges refer to the text that was parsed.
#[derive(Debug, Default)]
pub struct ParsedDesign {
    /// Issue number in the first heading.
    pub number: Option<u64>,
    pub title: String,
    pub heading: Option<Range<usize>>,
    pub sections: Vec<DesignSection>,
    pub files: Vec<FileRow>,
    pub requirements: Vec<Requirement>,
    pub scenarios: Vec<TestScenario>,
    pub open_questions: Vec<DesignQuestion>,
    /// Names of the functions in the code of Function Signatures.
    pub functions: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct DesignSection {
    /// Section number in the schema. If the heading is not in the schema, the number written in the heading.
    pub number: String,
    pub title: String,
    /// Whether the section is in the schema.
    pub known: bool,
    pub level: usize,
    pub heading: Range<usize>,
    /// Range from the end of the heading to the next heading of the same or a higher level.
    pub body: Range<usize>,
}

#[derive(Debug, Clone)]
pub struct FileRow {
    pub path: String,
    /// Kind of change; `None` if the cell contains none of the known words.
    pub change: Option<ChangeType>,
    pub change_text: String,
    pub directory: bool,
    pub description: String,
    pub range: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ChangeType {
    Add,
    Modify,
    Delete,
}

impl ChangeType {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "Add",
            Self::Modify => "Modify",
            Self::Delete => "Delete",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Requirement {
    /// Requirement ID, such as `REQ-3`.
    pub id: String,
    pub text: String,
    pub range: Range<usize>,
}

#[derive(Debug, Clone)]
pub struct TestScenario {
    /// Scenario ID, such as `010`.
    pub id: String,
    /// Text of the Scenario cell, without the requirement IDs at its end.
    pub text: String,
    pub kind: String,
    pub input: String,
    pub expected: String,
    pub pass: String,
    pub requirements: Vec<String>,
    pub range: Range<usize>,
}

impl TestScenario {
    /// Returns the name and the file of the test that the Scenario cell names, as in `` `adds_two` in `tests/sum.rs` ``.
    pub fn named_test(&self) -> Option<(&str, &str)> {
        let parts: Vec<&str> = self.text.split('`').collect();
        let mut tests = (1..parts.len()).step_by(2).filter(|at| parts[at + 1..].len() > 1);
        let at = tests.find(|at| parts[at + 1].trim() == "in")?;
        Some((parts[at], parts[at + 2]))
    }
}

#[derive(Debug, Clone)]
pub struct DesignQuestion {
    pub text: String,
    pub done: bool,
    pub range: Range<usize>,
}

impl ParsedDesign {
    /// Returns the section with this number. A section of the schema takes precedence over another heading with the
    /// same number.
    pub fn section(&self, number: &str) -> Option<&DesignSection> {
        let mut with_number = self.sections.iter().filter(|s| s.number == number);
        let first = with_number.clone().next();
        with_number.find(|s| s.known).or(first)
    }
}

/// Parses a design. Never fails.
pub fn parse(text: &str) -> ParsedDesign {
    let outline = markdown::parse_outline(text);
    let mut lld = parse_with_schema(SCHEMA, text, &outline);
    if let Some(body) = lld.section("3").map(|s| s.body.clone()) {
        lld.requirements = items_in(&outline, &body).filter_map(parse_requirement).collect();
    }
    if let Some(body) = lld.section("10.1").map(|s| s.body.clone()) {
        lld.scenarios = tables_in(&outline, &body).flat_map(parse_scenarios).collect();
    }
    if let Some(body) = lld.section("2.4").map(|s| s.body.clone()) {
        let blocks = outline.code_blocks.iter().filter(|b| body.contains(&b.range.start));
        lld.functions = blocks.flat_map(|b| function_names(&b.text)).collect();
    }
    if let Some(body) = open_questions_body(text, &outline) {
        lld.open_questions = items_in(&outline, &body)
            .filter_map(|i| {
                let done = i.checked?;
                Some(DesignQuestion { text: i.text.trim().to_owned(), done, range: i.range.clone() })
            })
            .collect();
    }
    lld
}

/// Returns the code blocks of the sections on new types and function signatures.
pub fn signature_blocks(text: &str) -> Vec<String> {
    let outline = markdown::parse_outline(text);
    let lld = parse_with_schema(SCHEMA, text, &outline);
    let bodies: Vec<_> =
        ["2.3", "2.4"].into_iter().filter_map(|number| Some(lld.section(number)?.body.clone())).collect();
    let within = |at: usize| bodies.iter().any(|body| body.contains(&at));
    outline
        .code_blocks
        .iter()
        .filter(|block| within(block.range.start))
        .map(|block| block.text.clone())
        .collect()
}

/// Parses the parts that all schemas have: first heading, sections and table of files.
pub(in crate::documents) fn parse_with_schema(
    schema: &DocumentSchema,
    text: &str,
    outline: &MarkdownOutline,
) -> ParsedDesign {
    let mut lld = ParsedDesign::default();
    if let Some(first) = outline.headings.iter().find(|h| h.level == 1) {
        let (number, title) = parse_first_heading(&first.text);
        lld.number = number;
        lld.title = title.to_owned();
        lld.heading = Some(first.range.clone());
    }
    lld.sections = parse_sections(schema, text, outline);
    if let Some(body) = lld.section(schema.files_section).map(|s| s.body.clone()) {
        lld.files = tables_in(outline, &body).flat_map(parse_file_rows).collect();
    }
    lld
}

/// Splits a first heading such as `42 - Feature: X`, `Issue #42: X` or `LLD-042 – X` into number and title. If the
/// heading has no number, all of it is the title.
pub(super) fn parse_first_heading(text: &str) -> (Option<u64>, &str) {
    let title_only = |t: &'_ str| -> usize { t.len() - strip_feature(t).len() };
    let mut rest = text.trim();
    for word in ["Issue", "LLD"] {
        if let Some(after) = strip_word(rest, word) {
            rest = after.trim_start_matches([' ', '-']);
        }
    }
    let after_hash = rest.strip_prefix('#').unwrap_or(rest);
    let digits = after_hash.len() - after_hash.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let after = after_hash[digits..].trim_start();
    let separated = after.strip_prefix(['-', '–', '—', ':']);
    match (after_hash[..digits].parse(), separated) {
        (Ok(number), Some(title)) => (Some(number), strip_feature(title)),
        (Ok(number), None) if after.is_empty() => (Some(number), ""),
        _ => (None, &text.trim()[title_only(text.trim())..]),
    }
}

fn strip_feature(title: &str) -> &str {
    let title = title.trim();
    strip_word(title, "Feature").and_then(|rest| rest.trim_start().strip_prefix(':')).unwrap_or(title).trim()
}

fn strip_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let head = text.get(..word.len())?;
    let rest = &text[word.len()..];
    let ends = !rest.starts_with(|c: char| c.is_alphabetic());
    (head.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// Splits a heading such as `2.1 Files Changed` or `3. Requirements` into number and title. If the heading has no
/// number, all of it is the title.
pub(super) fn split_number(heading: &str) -> (Option<&str>, &str) {
    let end = heading.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(heading.len());
    let number = heading[..end].trim_end_matches('.');
    let legal = !number.is_empty() && number.split('.').all(|p| (1..=2).contains(&p.len()));
    let rest = &heading[end..];
    let title = rest.trim_start_matches([' ', ':', '-', '–', '\u{a0}']);
    match legal && rest.len() != title.len() && !title.is_empty() {
        true => (Some(number), title),
        false => (None, heading.trim()),
    }
}

fn parse_sections(schema: &DocumentSchema, text: &str, outline: &MarkdownOutline) -> Vec<DesignSection> {
    let headings = &outline.headings;
    let mut out = Vec::new();
    for (i, (heading, spec)) in headings.iter().zip(schema.match_headings(outline)).enumerate() {
        let (number, title) = split_number(&heading.text);
        let Some(number) = spec.map(|spec| spec.number).or(number) else { continue };
        if heading.level == 1 && i == 0 && spec.is_none() {
            continue;
        }
        let end =
            headings[i + 1..].iter().find(|h| h.level <= heading.level).map_or(text.len(), |h| h.range.start);
        out.push(DesignSection {
            number: number.to_owned(),
            title: title.to_owned(),
            known: spec.is_some(),
            level: heading.level,
            heading: heading.range.clone(),
            body: heading.range.end.min(end)..end,
        });
    }
    out
}

/// Returns the range below the heading "Open Questions", which may have any level.
pub(super) fn open_questions_body(text: &str, outline: &MarkdownOutline) -> Option<Range<usize>> {
    let at = outline.headings.iter().position(|h| h.text.to_lowercase().contains("open questions"))?;
    let end = outline.headings.get(at + 1).map_or(text.len(), |h| h.range.start);
    Some(outline.headings[at].range.end.min(end)..end)
}

pub(in crate::documents) fn items_in<'a>(
    outline: &'a MarkdownOutline,
    body: &'a Range<usize>,
) -> impl Iterator<Item = &'a MarkdownListItem> {
    outline.items.iter().filter(|i| body.contains(&i.range.start))
}

pub(in crate::documents) fn tables_in<'a>(
    outline: &'a MarkdownOutline,
    body: &'a Range<usize>,
) -> impl Iterator<Item = &'a MarkdownTable> {
    outline.tables.iter().filter(|t| body.contains(&t.range.start))
}

/// Returns the index of the column whose header starts with this word.
pub(in crate::documents) fn find_column(table: &MarkdownTable, word: &str) -> Option<usize> {
    table.header.iter().position(|h| h.trim_matches(['*', '`']).to_lowercase().starts_with(word))
}

fn parse_file_rows(table: &MarkdownTable) -> Vec<FileRow> {
    let (Some(file), Some(change)) = (find_column(table, "file"), find_column(table, "change")) else {
        return Vec::new();
    };
    let description = find_column(table, "description");
    let cell = |row: &markdown::MarkdownTableRow, at: usize| row.cells.get(at).cloned().unwrap_or_default();
    table
        .rows
        .iter()
        .map(|row| {
            let change_text = cell(row, change);
            let (change, directory) = parse_change_type(&change_text);
            FileRow {
                path: cell(row, file).trim_matches('`').trim().to_owned(),
                change,
                change_text,
                directory,
                description: description.map(|at| cell(row, at)).unwrap_or_default(),
                range: row.range.clone(),
            }
        })
        .collect()
}

fn parse_change_type(cell: &str) -> (Option<ChangeType>, bool) {
    let cell = cell.trim().trim_matches(['`', '*']).trim().to_lowercase();
    let (word, directory) = match cell.strip_suffix("(directory)") {
        Some(word) => (word.trim_end(), true),
        None => (cell.as_str(), false),
    };
    let change = [ChangeType::Add, ChangeType::Modify, ChangeType::Delete]
        .into_iter()
        .find(|c| c.as_str().to_lowercase() == word);
    (change, directory)
}

/// Parses a requirement: a numbered item, or an item that starts with `REQ-n`.
fn parse_requirement(item: &MarkdownListItem) -> Option<Requirement> {
    let text = item.text.trim();
    let own = text.strip_prefix("REQ-").map(|rest| &rest[..count_digits(rest)]).filter(|n| !n.is_empty());
    let id = match own {
        Some(number) => format!("REQ-{}", number.trim_start_matches('0')),
        None => format!("REQ-{}", item.number?),
    };
    Some(Requirement { id, text: text.to_owned(), range: item.range.clone() })
}

fn count_digits(text: &str) -> usize {
    text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len()
}

fn parse_scenarios(table: &MarkdownTable) -> Vec<TestScenario> {
    let (Some(id), Some(scenario)) = (find_column(table, "id"), find_column(table, "scenario")) else {
        return Vec::new();
    };
    let columns = ["type", "input", "expected", "pass"].map(|word| find_column(table, word));
    table
        .rows
        .iter()
        .map(|row| {
            let cell = |at: Option<usize>| at.and_then(|at| row.cells.get(at)).cloned().unwrap_or_default();
            let (text, requirements) = split_requirements(&cell(Some(scenario)));
            let [kind, input, expected, pass] = columns.map(cell);
            let id = cell(Some(id)).trim_matches(['`', '*']).to_owned();
            TestScenario { id, text, kind, input, expected, pass, requirements, range: row.range.clone() }
        })
        .collect()
}

/// Splits a cell such as `reads the file (REQ-1, REQ-2)` into the text and the IDs.
fn split_requirements(cell: &str) -> (String, Vec<String>) {
    let cell = cell.trim();
    let none = || (cell.to_owned(), Vec::new());
    let Some(open) = cell.rfind('(') else { return none() };
    let Some(inner) = cell[open + 1..].trim_end_matches('.').strip_suffix(')') else { return none() };
    let ids: Option<Vec<String>> = inner
        .split([',', '&', ' '])
        .map(str::trim)
        .filter(|part| !part.is_empty() && *part != "and")
        .map(|part| {
            let number = part.get(..4).filter(|p| p.eq_ignore_ascii_case("REQ-")).map(|_| &part[4..])?;
            (!number.is_empty() && count_digits(number) == number.len())
                .then(|| format!("REQ-{}", number.trim_start_matches('0')))
        })
        .collect();
    match ids {
        Some(ids) if !ids.is_empty() => (cell[..open].trim_end().to_owned(), ids),
        _ => none(),
    }
}

/// Returns the names after `fn`, `def`, `function` or `func`.
pub(in crate::documents) fn function_names(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines() {
        let mut words = line.split([' ', '\t', '*']).filter(|w| !w.is_empty());
        if words.any(|w| matches!(w, "fn" | "def" | "function" | "func"))
            && let Some(next) = words.next()
        {
            let name: String = next.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_heading_is_parsed_in_every_form_that_models_write() {
        for (text, number, title) in [
            ("42 - Feature: Read a file", Some(42), "Read a file"),
            ("Issue #7: Title", Some(7), "Title"),
            ("LLD-042 – Title", Some(42), "Title"),
            ("#7 - x", Some(7), "x"),
            ("Feature: Title", None, "Title"),
            ("3D rendering", None, "3D rendering"),
            ("99999999999999999999999 - x", None, "99999999999999999999999 - x"),
            ("", None, ""),
            ("é", None, "é"),
        ] {
            assert_eq!(parse_first_heading(text), (number, title), "{text}");
        }
    }

    #[test]
    fn design_title_may_share_a_word_with_a_section_title() {
        let text = "# 1 - Feature: Tear down the request context\n\n## Context & Goal\n\nx\n";
        let lld = parse(text);
        assert_eq!(
            (lld.number, lld.section("1").map(|section| &text[section.body.clone()])),
            (Some(1), Some("\nx\n"))
        );
        assert_eq!(super::super::fix(text, crate::types::IssueNo(1)), text);
    }

    #[test]
    fn section_is_matched_by_title_or_template_number() {
        let body = |text: &str, number: &str| {
            let text = format!("# 7 - Feature: T\n\n{text}\n\nbody\n");
            parse(&text).section(number).map(|section| text[section.body.clone()].trim().to_owned())
        };
        for (heading, number) in [
            ("## Requirements", "3"),
            ("## requirements", "3"),
            ("## 3. Requirements", "3"),
            ("## 4. Requirements", "3"),
            ("### 2.1 Whatever", "2.1"),
            ("### Files Changed", "2.1"),
            ("### Changed files", "2.1"),
            ("## Risks and their mitigations", "11"),
        ] {
            assert_eq!(body(heading, number).as_deref(), Some("body"), "{heading}");
        }
        for (heading, number) in [
            ("### Requirements", "3"),
            ("### Data sources", "2.3"),
            ("## Goal of the definition", "1"),
            ("## 13. Requirement", "3"),
        ] {
            assert_eq!(body(heading, number), None, "{heading}");
        }
        assert_eq!(body("## What is required\n\n## Requirements", "3").as_deref(), Some("body"));
    }

    #[test]
    fn every_section_of_a_design_is_parsed() {
        let text = "# 5 - Feature: T\n\n## 1. Context & Goal\nx\n\n### Open Questions\n- [x] done?\n- [ ] open?\n\n\
            ### 2.1 Files Changed\n\n| File | Change Type | Description |\n|--|--|--|\n| `src/__init__.py` | Add | a \\| b |\n\
            | src/d/ | add (Directory) | x |\n| y | Rename | z |\n\n\
            ### 2.4 Function Signatures\n```rust\n## 3. not a heading\npub async fn read_it(a: u8);\n```\n\n\
            ## 3. Requirements\n1. one\n1. two\n   - nested\n\n### 10.1 Scenarios\n\n| ID | Scenario | Type | Input | Expected Output | Pass Criteria |\n\
            |-|-|-|-|-|-|\n| 010 | reads (REQ-1, req-2) | Auto | a | b | c |\n| 020 | no id (later) | Auto | | | |\n";
        let lld = parse(text);
        assert_eq!((lld.number, lld.title.as_str()), (Some(5), "T"));
        let numbers: Vec<_> = lld.sections.iter().map(|s| s.number.as_str()).collect();
        assert_eq!(numbers, ["1", "2.1", "2.4", "3", "10.1"]);
        assert_eq!(lld.files.len(), 3);
        assert_eq!(
            (lld.files[0].path.as_str(), lld.files[0].change),
            ("src/__init__.py", Some(ChangeType::Add))
        );
        assert_eq!(lld.files[0].description, "a | b");
        assert_eq!((lld.files[1].change, lld.files[1].directory), (Some(ChangeType::Add), true));
        assert_eq!((lld.files[2].change, lld.files[2].change_text.as_str()), (None, "Rename"));
        let requirements: Vec<_> =
            lld.requirements.iter().map(|r| (r.id.as_str(), r.text.as_str())).collect();
        assert_eq!(requirements, [("REQ-1", "one"), ("REQ-2", "two")]);
        assert_eq!(lld.scenarios[0].requirements, ["REQ-1", "REQ-2"]);
        assert_eq!(lld.scenarios[0].text, "reads");
        assert!(lld.scenarios[1].requirements.is_empty());
        assert_eq!(lld.functions, ["read_it"]);
        let questions: Vec<_> = lld.open_questions.iter().map(|q| (q.text.as_str(), q.done)).collect();
        assert_eq!(questions, [("done?", true), ("open?", false)]);
        assert_eq!(&text[lld.files[2].range.clone()].trim(), &"| y | Rename | z |");
    }
}
