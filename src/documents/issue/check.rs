//! Checks an issue draft and reports all mistakes at once. Also applies fixes that need no model.

use std::collections::BTreeSet;

use super::{
    CRITERIA, DETERMINISM, DOCUMENT_CHARS, FILES, IN_SCOPE, LABELS, OUT_OF_SCOPE, SCOPE, SECTIONS, SIGNAL,
    TITLE_CHARS,
    parse::{ParsedIssue, items_in_section, parse},
    rubric::{TitleOpening, classify_title, find_vague_word, has_example, has_test_signal},
};
use crate::{
    documents::{
        DocumentMistake, FileTree,
        lld::{FORM, RepairFunction, apply_repairs, check_hidden_text, replace_ranges},
        markdown, path_rules, quotable_path, secrets,
    },
    types::IssueNo,
};

/// Returns all mistakes in an issue draft. Heuristic checks return warnings; the reviewer decides on these.
pub fn check(text: &str, labels: &[String], tree: &dyn FileTree) -> Vec<DocumentMistake> {
    let length = text.chars().count();
    if text.trim().is_empty() || length > DOCUMENT_CHARS {
        let message =
            format!("the document has {length} characters; it needs some, and {DOCUMENT_CHARS} are allowed");
        return vec![DocumentMistake::error("length", "document", message)];
    }
    let issue = parse(text);
    let mut out = Vec::new();
    check_hidden_text(text, &mut out);
    check_title(&issue, &mut out);
    check_sections(text, &issue, &mut out);
    check_criteria(&issue, &mut out);
    check_scope(text, &issue, &mut out);
    check_files(text, &issue, tree, &mut out);
    let body = |title| issue.section(title).map(|body| &text[body]);
    if body(DETERMINISM).is_some_and(|body| !has_example(body)) {
        let message = "no example with an exact input and result was found here";
        out.push(DocumentMistake::warning("determinism", DETERMINISM, message));
    }
    if body(SIGNAL).is_some_and(|body| !has_test_signal(body)) {
        let message = "no command, test or output to look at was found here";
        out.push(DocumentMistake::warning("signal", SIGNAL, message));
    }
    for label in issue.labels.iter().filter(|label| !labels.contains(label)) {
        let message = format!(
            "`{}` is not one of the labels to choose from and will not be added",
            quotable_path(label)
        );
        out.push(DocumentMistake::warning("label", LABELS, message));
    }
    if !secrets::find(text).is_empty() {
        let message = "this text looks like a credential; remove it";
        out.push(DocumentMistake::error("secret", "document", message));
    }
    out
}

fn check_title(issue: &ParsedIssue, out: &mut Vec<DocumentMistake>) {
    if issue.title.trim().is_empty() {
        return out.push(DocumentMistake::error(
            "title.missing",
            "title",
            "there is no first line `# TITLE`; write one",
        ));
    }
    if issue.title.chars().count() > TITLE_CHARS {
        let message = format!("it is longer than {TITLE_CHARS} characters; say it shorter");
        out.push(DocumentMistake::error("title.long", "title", message));
    }
    let message = "it does not begin with a verb that says what is to be done, as `Add` or `Report` do";
    match classify_title(&issue.title) {
        TitleOpening::Verb => {}
        TitleOpening::Unknown => {
            out.push(DocumentMistake::warning("title.verb", "title", format!("perhaps {message}")))
        }
        TitleOpening::None => out.push(DocumentMistake::error("title.verb", "title", message)),
    }
}

fn check_sections(text: &str, issue: &ParsedIssue, out: &mut Vec<DocumentMistake>) {
    for spec in SECTIONS {
        let bodies: Vec<_> = issue.sections.iter().filter(|(title, _)| *title == spec.title).collect();
        let mut say = |rule, message: String| out.push(DocumentMistake::error(rule, spec.title, message));
        match bodies.as_slice() {
            [] => say("section.missing", format!("the section is missing; add `## {}`", spec.title)),
            [(_, body)] if text[body.clone()].trim().is_empty() => {
                say("section.empty", format!("it is empty; it holds {}", spec.rule));
            }
            [(_, body)] if !spec.sample.is_empty() && text[body.clone()].contains(spec.sample) => {
                say("placeholder", format!("`{}` is the format's own text; replace it", spec.sample));
            }
            [_] => {}
            _ => say("section.twice", "there are two sections with this title; keep one".to_owned()),
        }
    }
}

fn check_criteria(issue: &ParsedIssue, out: &mut Vec<DocumentMistake>) {
    if issue.criteria.is_empty() {
        if issue.section(CRITERIA).is_some() {
            let message = "no criterion could be read; write them as `- [ ] AC-1 …`";
            out.push(DocumentMistake::error("criteria.none", CRITERIA, message));
        }
        return;
    }
    let mut seen = BTreeSet::new();
    for criterion in &issue.criteria {
        let place = if criterion.id.is_empty() { CRITERIA.to_owned() } else { criterion.id.clone() };
        if !seen.insert(criterion.text.to_lowercase()) {
            out.push(DocumentMistake::error(
                "criteria.twice",
                place.clone(),
                "this criterion occurs twice; keep one",
            ));
        }
        if let Some(word) = find_vague_word(&criterion.text) {
            let message = format!("`{word}` cannot be answered yes or no; say what is seen or measured");
            out.push(DocumentMistake::error("criteria.vague", place, message));
        }
    }
}

fn check_scope(text: &str, issue: &ParsedIssue, out: &mut Vec<DocumentMistake>) {
    let Some(body) = issue.section(SCOPE) else { return };
    let outline = markdown::parse_outline(text);
    for wanted in [IN_SCOPE, OUT_OF_SCOPE] {
        let part = issue
            .parts
            .iter()
            .find(|(title, at)| title.eq_ignore_ascii_case(wanted) && body.contains(&at.start));
        let listed = part.is_some_and(|(_, at)| items_in_section(&outline, at).next().is_some());
        if !listed {
            let message = format!("there is no `### {wanted}` with a list below it");
            out.push(DocumentMistake::error("scope", SCOPE, message));
        }
    }
}

fn check_files(text: &str, issue: &ParsedIssue, tree: &dyn FileTree, out: &mut Vec<DocumentMistake>) {
    let Some(body) = issue.section(FILES).map(|body| text[body].trim()) else { return };
    if issue.files.is_empty() && !body.is_empty() && !body.to_lowercase().starts_with("none") {
        let message = "no path in backticks could be read; list them, or write `None known.`";
        out.push(DocumentMistake::error("files.none", FILES, message));
    }
    for file in &issue.files {
        let shown = quotable_path(&file.path);
        let mut say = |rule, message: String| out.push(DocumentMistake::error(rule, FILES, message));
        let bare = file.path.trim_end_matches('/');
        let there = tree.is_file(bare) || tree.is_dir(bare);
        match path_rules::refusal_reason(&file.path) {
            Some(why) => say("files.path", format!("`{shown}` {why}")),
            None if file.new && there => {
                say("files.new", format!("`{shown}` exists already; take ` (new)` away"))
            }
            None if !file.new && !there => {
                let near = tree
                    .nearest_paths(&file.path)
                    .first()
                    .map_or(String::new(), |near| format!("; did you mean `{}`?", quotable_path(near)));
                say(
                    "files.missing",
                    format!("`{shown}` does not exist{near} Put ` (new)` behind a file that is to be made"),
                );
            }
            None => {}
        }
    }
}

/// Fixes the form of the text in code, so that no model call is needed.
pub fn fix(text: &str, issue: IssueNo) -> String {
    const OWN: &[RepairFunction] = &[fix_headings, number_criteria];
    apply_repairs(text, issue, FORM.iter().chain(OWN))
}

/// Corrects the level and spelling of headings that are in the schema.
fn fix_headings(text: &str, _: IssueNo) -> Option<String> {
    let mut edits = Vec::new();
    for heading in markdown::parse_outline(text).headings {
        let bare = heading.text.trim().trim_end_matches(':');
        let wanted = [(3, IN_SCOPE), (3, OUT_OF_SCOPE)];
        let specs = SECTIONS.iter().map(|spec| (2, spec.title)).chain(wanted);
        let Some((level, title)) = specs.into_iter().find(|(_, title)| title.eq_ignore_ascii_case(bare))
        else {
            continue;
        };
        // The first line is the title, whatever its words.
        if heading.range.start > 0 {
            edits.push((heading.range, format!("{} {title}\n", "#".repeat(level))));
        }
    }
    Some(replace_ranges(text, edits))
}

/// Turns the acceptance criteria into a checklist with consecutive IDs.
fn number_criteria(text: &str, _: IssueNo) -> Option<String> {
    let issue = parse(text);
    let mut edits = Vec::new();
    for (criterion, number) in issue.criteria.iter().zip(1..) {
        let line_end = text[criterion.range.clone()]
            .find('\n')
            .map_or(criterion.range.end, |n| criterion.range.start + n);
        let line = &text[criterion.range.start..line_end];
        let words = match line.strip_prefix(['-', '*', '+']) {
            Some(words) => words,
            None => line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['.', ')']),
        };
        let words = words.trim_start();
        let words = ["[ ]", "[x]", "[X]"]
            .iter()
            .find_map(|mark| words.strip_prefix(mark))
            .unwrap_or(words)
            .trim_start();
        let words = match criterion.id.len() {
            0 => words,
            length => words.get(length..)?.trim_start_matches([':', '.', '–', '-', ' ']),
        };
        edits.push((criterion.range.start..line_end, format!("- [ ] AC-{number} {words}")));
    }
    Some(replace_ranges(text, edits))
}

#[cfg(test)]
mod tests {
    use super::{super::tests::SOUND, *};
    use crate::documents::lld::tests::DesignTestTree;

    fn mistakes_of(text: &str) -> String {
        let found = check(text, &["bug".to_owned(), "none-such".to_owned()], &DesignTestTree);
        found.iter().map(|m| format!("{:?} {m}", m.severity)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn valid_issue_has_no_mistakes() {
        assert_eq!(mistakes_of(SOUND), "");
        assert_eq!(fix(SOUND, IssueNo(1)), SOUND);
        let other = check(SOUND, &[], &DesignTestTree);
        assert!(other.iter().all(|m| m.rule == "label" && !m.is_error()) && other.len() == 2, "{other:?}");
    }

    #[test]
    fn all_mistakes_in_an_issue_are_returned_together() {
        let text = SOUND
            .replace("# Report time by week", "# The week is wrong")
            .replace("ends with status 0", "is fast")
            .replace("`tally --by week x`", "the report")
            .replace("### Out of scope\n\n- months\n\n", "")
            .replace("`src/lib.rs`", "`src/lob.rs`")
            .replace("(new)", "")
            .replace("2027-01-01 is in week 53 of 2026.", "It always does the same.")
            .replace("`cargo test`", "We will know.")
            .replace("## Summary", "## Sumary");
        insta::assert_snapshot!(mistakes_of(&text), @r##"
        Error title: it does not begin with a verb that says what is to be done, as `Add` or `Report` do [title.verb]
        Error Summary: the section is missing; add `## Summary` [section.missing]
        Error AC-1: `fast` cannot be answered yes or no; say what is seen or measured [criteria.vague]
        Error Scope: there is no `### Out of scope` with a list below it [scope]
        Error Files: `src/lob.rs` does not exist; did you mean `src/lib.rs`? Put ` (new)` behind a file that is to be made [files.missing]
        Error Files: `src/week.rs` does not exist; did you mean `src/lib.rs`? Put ` (new)` behind a file that is to be made [files.missing]
        Warning Determinism: no example with an exact input and result was found here [determinism]
        Warning Test signal: no command, test or output to look at was found here [signal]
        "##);
    }

    #[test]
    fn fix_corrects_format_mistakes_in_an_issue() {
        let text = SOUND
            .replace("- [ ] AC-1 ", "1. ")
            .replace("- [ ] AC-2 ", "2. [x] AC-7: ")
            .replace("## Scope", "# scope:")
            .replace("### In scope", "## In Scope");
        let fixed = fix(&format!("Sure!\n\n```markdown\n{text}```\n"), IssueNo(1));
        assert_eq!(fixed, SOUND);
        assert_eq!(fix(&fixed, IssueNo(1)), fixed);
    }
}
