//! Fixes that code applies before the checks, so that no model is called for them.

use std::{collections::BTreeSet, ops::Range};

use super::{
    DocumentSchema, SCHEMA, SchemaSection, format_first_heading,
    parse::{items_in, open_questions_body, parse_first_heading, split_number},
};
use crate::{
    documents::{markdown, unix_lines},
    types::IssueNo,
};

/// A fix: returns the fixed text, or `None` if it does not apply.
pub(in crate::documents) type RepairFunction = fn(&str, IssueNo) -> Option<String>;

pub(in crate::documents) const FORM: &[RepairFunction] =
    &[normalize_line_ends, remove_outer_fence, remove_preamble];

/// Applies the fixes repeatedly until no fix changes the text. Therefore fixing the result again changes nothing.
pub fn fix(text: &str, issue: IssueNo) -> String {
    const OWN: &[RepairFunction] =
        &[|text, _| fix_headings(SCHEMA, text), fix_first_heading, fix_empty_questions];
    apply_repairs(text, issue, FORM.iter().chain(OWN))
}

/// Applies these fixes in order, because a fix may rely on earlier fixes. Repeats them until no fix changes the text.
pub(in crate::documents) fn apply_repairs<'r>(
    text: &str,
    issue: IssueNo,
    repairs: impl Iterator<Item = &'r RepairFunction> + Clone,
) -> String {
    let mut text = text.to_owned();
    // A fix can expose work for another, such as removing a fence; a few passes settle it.
    for _ in 0..8 {
        let before = text.clone();
        for repair in repairs.clone() {
            text = repair(&text, issue).unwrap_or(text);
        }
        if text == before {
            break;
        }
    }
    text
}

fn normalize_line_ends(text: &str, _: IssueNo) -> Option<String> {
    let unix = unix_lines(text.trim_start_matches('\u{feff}').to_owned());
    let body = unix.trim_end_matches(['\n', ' ', '\t']);
    let out = if body.is_empty() { String::new() } else { format!("{body}\n") };
    Some(out)
}

/// Splits a fence line into the fence character, the fence length and the text after the fence.
fn parse_fence(line: &str) -> Option<(char, usize, &str)> {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.chars().take_while(|c| *c == mark).count();
    (length >= 3).then(|| (mark, length, line[length..].trim()))
}

/// Removes a code fence around the whole document. Fence lines are counted, because a Markdown parser would end the
/// outer block at the first inner fence. The opening fence must be directly before the first `# `, and the number of
/// fences after it must be odd.
fn remove_outer_fence(text: &str, _: IssueNo) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let title = lines.iter().position(|l| l.starts_with("# "))?;
    let open = lines[..title].iter().rposition(|l| !l.trim().is_empty())?;
    let (mark, _, info) = parse_fence(lines[open])?;
    if !matches!(info.to_ascii_lowercase().as_str(), "" | "markdown" | "md") {
        return None;
    }
    let same = |l: &&str| parse_fence(l).is_some_and(|(m, ..)| m == mark);
    let closes = lines[open + 1..].iter().copied().filter(|l| same(l)).count() % 2 == 1;
    let last =
        lines.iter().rposition(|l| parse_fence(l).is_some_and(|(m, _, info)| m == mark && info.is_empty()));
    let mut kept: Vec<&str> = lines.clone();
    if let Some(last) = last.filter(|last| closes && *last > open) {
        // Text after the closing fence is a closing remark.
        kept.truncate(last);
    }
    kept.drain(..=open);
    Some(kept.join("\n") + "\n")
}

/// Removes text before the first heading, if that heading is the title.
fn remove_preamble(text: &str, _: IssueNo) -> Option<String> {
    let outline = markdown::parse_outline(text);
    let first = outline.headings.first().filter(|h| h.level == 1)?;
    Some(text[first.range.start..].to_owned())
}

fn fix_first_heading(text: &str, issue: IssueNo) -> Option<String> {
    let outline = markdown::parse_outline(text);
    let heading = outline.headings.first().filter(|h| h.level == 1)?;
    let (_, title) = parse_first_heading(heading_source(text, &heading.range));
    if title.is_empty() || SCHEMA.is_section_title(&heading.text) {
        return None;
    }
    let mut out = text.to_owned();
    out.replace_range(heading.range.clone(), &(format_first_heading(issue, title) + "\n"));
    Some(out)
}

/// Returns the Markdown source of a heading without its heading marks.
fn heading_source<'a>(text: &'a str, range: &Range<usize>) -> &'a str {
    let line = text[range.clone()].lines().next().unwrap_or("").trim();
    let bare = line.trim_start_matches('#');
    if bare.len() == line.len() { line } else { bare.trim().trim_end_matches('#').trim_end() }
}

/// Corrects the level and the title of headings that belong to a section of the schema, and removes the numbers from
/// these headings.
pub(in crate::documents) fn fix_headings(schema: &DocumentSchema, text: &str) -> Option<String> {
    let outline = markdown::parse_outline(text);
    let mut found = schema.match_headings(&outline);
    let mut there: BTreeSet<_> = found.iter().flatten().map(|spec| spec.number).collect();
    for (heading, found) in outline.headings.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
        // At another level it counts only if the section is required and missing.
        let (_, title) = split_number(&heading.text);
        let lacking = |s: &&SchemaSection| s.required && s.has_title(title) && !there.contains(s.number);
        *found = schema.sections.iter().find(lacking);
        there.extend(found.map(|spec| spec.number));
    }
    let mut edits = Vec::new();
    for (heading, spec) in outline.headings.iter().zip(found) {
        let Some(spec) = spec else { continue };
        let (number, title) = split_number(&heading.text);
        // A heading without a number must have the exact title: similar words may mean something else.
        if number.is_none() && !spec.has_title(title) {
            continue;
        }
        let wanted = spec.heading() + "\n";
        if text[heading.range.clone()].trim_end() != wanted.trim_end() {
            edits.push((heading.range.clone(), wanted));
        }
    }
    Some(replace_ranges(text, edits))
}

/// Replaces each range by the text given for it. The ranges must be in order and must not overlap.
pub(in crate::documents) fn replace_ranges(
    text: &str,
    edits: impl IntoIterator<Item = (Range<usize>, String)>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (range, new) in edits {
        out.push_str(&text[from..range.start]);
        out.push_str(&new);
        from = range.end;
    }
    out + &text[from..]
}

/// Replaces a lone checkbox such as `- [ ] None` by `None.`. Otherwise the checkbox would count as an open question.
fn fix_empty_questions(text: &str, _: IssueNo) -> Option<String> {
    let outline = markdown::parse_outline(text);
    let body = open_questions_body(text, &outline)?;
    let mut items = items_in(&outline, &body);
    let (item, None) = (items.next()?, items.next()) else { return None };
    let answer = item.text.trim().trim_end_matches('.').to_lowercase();
    if item.checked.is_none()
        || !matches!(answer.as_str(), "none" | "n/a" | "none at this time" | "no open questions")
    {
        return None;
    }
    let mut out = text.to_owned();
    out.replace_range(item.range.clone(), "None.\n");
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUE: IssueNo = IssueNo(42);

    #[test]
    fn fix_unwraps_a_fenced_design_and_normalizes_its_headings() {
        let text = "Here is the design:\r\n```markdown\r\n# LLD-41: Read it  \r\n## 1 Context and goal\r\ntext\r\n\
            #### Open Questions\r\n- [ ] None\r\n# 2.1. Files Changed\r\n\r\n| File | Change Type | Description |\r\n|-|-|-|\r\n\
            | a/b/c.rs | Add | x |\r\n| a/b | Add (Directory) | x |\r\n| a | Add (Directory) | x |\r\n\r\n### 2.4 Function Signatures\r\n\
            ```rust\r\nfn a();  \r\n```\r\n```\r\nHope this helps!\r\n";
        let fixed = fix(text, ISSUE);
        insta::assert_snapshot!(fixed, @r#"
        # 42 - Feature: Read it
        ## Context & Goal
        text
        #### Open Questions
        None.
        ### Files Changed

        | File | Change Type | Description |
        |-|-|-|
        | a/b/c.rs | Add | x |
        | a/b | Add (Directory) | x |
        | a | Add (Directory) | x |

        ### Function Signatures
        ```rust
        fn a();  
        ```
        "#);
    }

    #[test]
    fn fix_keeps_numbers_in_prose_and_never_turns_a_section_into_the_title() {
        let text = "intro\n\n## 1. Context & Goal\n\nx\n\n# 11. Risks & Mitigations\n\ny\n\n### 3 options were weighed\n";
        let fixed = fix(text, ISSUE);
        assert!(fixed.starts_with("intro\n"), "nothing above the first section is lost: {fixed}");
        assert!(
            fixed.contains("\n## Context & Goal\n") && fixed.contains("\n## Risks & Mitigations\n"),
            "{fixed}"
        );
        assert!(fixed.contains("\n### 3 options were weighed\n"));
    }

    #[test]
    fn numbered_step_is_not_taken_for_a_section_with_a_similar_title() {
        let text = "# 42 - Feature: x\n\n## Context & Goal\n\n#### 1. Parse the context\n\n## Non requirements\n\nx\n";
        let fixed = fix(text, ISSUE);
        assert!(fixed.contains("\n#### 1. Parse the context\n"), "{fixed}");
        assert!(fixed.contains("\n## Non requirements\n"), "words near a title stay: {fixed}");
    }

    #[test]
    fn fix_is_idempotent_on_any_text() {
        for text in crate::documents::lld::check::tests::hostile_texts() {
            let once = fix(&text, ISSUE);
            assert_eq!(fix(&once, ISSUE), once, "from {text:?}");
        }
    }
}
