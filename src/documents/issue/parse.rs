//! Parses an issue. Never fails: parts that are missing stay empty.

use std::ops::Range;

use super::{CRITERIA, FILES, LABELS, SECTIONS};
use crate::documents::markdown::{self, MarkdownOutline};

/// A parsed issue. All ranges refer to the text that was parsed.
#[derive(Debug, Default)]
pub struct ParsedIssue {
    pub title: String,
    pub heading: Option<Range<usize>>,
    /// Text below the title, without the labels.
    pub body: Range<usize>,
    /// Sections of the schema that the issue contains, in text order, each with the range of its body.
    pub sections: Vec<(&'static str, Range<usize>)>,
    /// Headings of level 3, each with the range of its body.
    pub parts: Vec<(String, Range<usize>)>,
    pub criteria: Vec<AcceptanceCriterion>,
    pub files: Vec<IssueFile>,
    pub labels: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptanceCriterion {
    /// Criterion ID such as `AC-3`; empty if the criterion has no ID.
    pub id: String,
    pub text: String,
    pub range: Range<usize>,
}

#[derive(Debug)]
pub struct IssueFile {
    pub path: String,
    /// Whether the issue says that the file is new.
    pub new: bool,
    pub range: Range<usize>,
}

impl ParsedIssue {
    pub fn section(&self, title: &str) -> Option<Range<usize>> {
        self.sections.iter().find(|(known, _)| *known == title).map(|(_, body)| body.clone())
    }
}

/// Parses an issue. Never fails.
pub fn parse(text: &str) -> ParsedIssue {
    let outline = markdown::parse_outline(text);
    let mut issue = ParsedIssue { body: 0..text.len(), ..ParsedIssue::default() };
    if let Some(first) = outline.headings.iter().find(|h| h.level == 1) {
        issue.title = first.text.clone();
        issue.heading = Some(first.range.clone());
        issue.body = first.range.end.min(text.len())..text.len();
    }
    for (at, heading) in outline.headings.iter().enumerate() {
        let end = |level: usize| {
            let next = outline.headings[at + 1..].iter().find(|h| h.level <= level);
            next.map_or(text.len(), |h| h.range.start)
        };
        let body = |end: usize| heading.range.end.min(end)..end;
        match SECTIONS.iter().find(|spec| spec.title.eq_ignore_ascii_case(&heading.text)) {
            Some(spec) if heading.level == 2 => {
                // The labels are applied to the issue and are not part of its text.
                if spec.title == LABELS && end(2) == text.len() {
                    issue.body.end = heading.range.start.max(issue.body.start);
                }
                issue.sections.push((spec.title, body(end(2))));
            }
            _ if heading.level == 3 => issue.parts.push((heading.text.clone(), body(end(3)))),
            _ => {}
        }
    }
    if let Some(body) = issue.section(CRITERIA) {
        issue.criteria = items_in_section(&outline, &body)
            .map(|item| parse_criterion(&item.text, item.range.clone()))
            .collect();
    }
    if let Some(body) = issue.section(FILES) {
        let spans = outline.code_spans.iter().filter(|span| body.contains(&span.range.start));
        let listed = |at: usize| items_in_section(&outline, &body).any(|item| item.range.contains(&at));
        issue.files =
            spans.filter(|span| listed(span.range.start)).map(|span| parse_file(text, span)).collect();
    }
    if let Some(body) = issue.section(LABELS) {
        let line = text[body].trim().lines().next().unwrap_or_default();
        let names =
            line.split(',').map(|name| name.trim().trim_matches(['`', '*', '.', '-', ' ']).to_owned());
        issue.labels = names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("none")).collect();
    }
    issue
}

pub(super) fn items_in_section<'o>(
    outline: &'o MarkdownOutline,
    body: &Range<usize>,
) -> impl Iterator<Item = &'o markdown::MarkdownListItem> {
    let body = body.clone();
    outline.items.iter().filter(move |item| body.contains(&item.range.start))
}

fn parse_criterion(text: &str, range: Range<usize>) -> AcceptanceCriterion {
    let text = text.trim();
    let marked = text.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("AC-"));
    let digits = if marked { text[3..].bytes().take_while(u8::is_ascii_digit).count() } else { 0 };
    let (id, rest) = text.split_at(if digits > 0 { 3 + digits } else { 0 });
    let rest = if id.is_empty() { rest } else { rest.trim_start_matches([':', '.', ' ', '-', '–']) };
    AcceptanceCriterion { id: id.to_uppercase(), text: rest.trim().to_owned(), range }
}

fn parse_file(text: &str, span: &markdown::CodeSpan) -> IssueFile {
    let after = text[span.range.end..].lines().next().unwrap_or_default();
    let new = after.trim_start().to_ascii_lowercase().starts_with("(new)");
    IssueFile { path: span.text.trim().trim_start_matches("./").to_owned(), new, range: span.range.clone() }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::SOUND, *};

    #[test]
    fn title_criteria_files_and_labels_of_an_issue_are_parsed() {
        let issue = parse(SOUND);
        assert_eq!(issue.title, "Report time by week");
        let criteria: Vec<_> = issue.criteria.iter().map(|c| (c.id.as_str(), c.text.as_str())).collect();
        assert_eq!(criteria[0], ("AC-1", "tally --by week x ends with status 0"));
        let files: Vec<_> = issue.files.iter().map(|f| (f.path.as_str(), f.new)).collect();
        assert_eq!(files, [("src/lib.rs", false), ("src/week.rs", true)]);
        assert_eq!(issue.labels, ["bug", "none-such"]);
        let body = &SOUND[issue.body];
        assert!(
            body.contains("cargo test") && !body.contains("none-such") && !body.contains("# Report"),
            "{body}"
        );
        for text in [
            "",
            "#",
            "# \n## Labels",
            "## Files\n\n- `",
            "- [ ] AC-",
            "## Labels\n\n```\n",
            "# é\n## Files\n- `é` (new",
        ] {
            let _ = (parse(text), super::super::summary(text));
        }
    }
}
