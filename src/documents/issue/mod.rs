//! The issue that is drafted from a rough idea. The prompt's rules, the parser and the checks use the same table of
//! sections. [`find_gaps`] implements the rubric of a good issue and is applied to the original idea; the checks apply
//! the same rules to each draft.

mod check;
mod parse;
mod rubric;

pub use check::{check, fix};
pub use parse::{AcceptanceCriterion, ParsedIssue, parse};
pub use rubric::{RubricGap, RubricPart, find_gaps};

use std::ops::Range;

use super::{FileTree, path_rules};

/// A section of an issue.
#[derive(Debug)]
struct IssueSection {
    title: &'static str,
    /// Rule for the drafter, used in the prompt.
    rule: &'static str,
    /// Placeholder in the rule's example. A draft must replace this placeholder.
    sample: &'static str,
}

const fn issue_section(title: &'static str, rule: &'static str, sample: &'static str) -> IssueSection {
    IssueSection { title, rule, sample }
}

const SUMMARY: &str = "Summary";
const CRITERIA: &str = "Acceptance criteria";
const SCOPE: &str = "Scope";
const FILES: &str = "Files";
const DETERMINISM: &str = "Determinism";
const SIGNAL: &str = "Test signal";
const LABELS: &str = "Labels";
const IN_SCOPE: &str = "In scope";
const OUT_OF_SCOPE: &str = "Out of scope";

/// All sections of an issue, in the required order.
const SECTIONS: &[IssueSection] = &[
    issue_section(
        SUMMARY,
        "what is wrong or missing today, for whom, and what will be different, in a few sentences",
        "{what will be different}",
    ),
    issue_section(
        CRITERIA,
        "a checklist of `- [ ] AC-1 …`, `- [ ] AC-2 …`. Each can be answered yes or no by who looks: it names a number, an \
         exact text, a status or a file. A word such as `fast`, `properly`, `works` or `etc.` says nothing by itself",
        "{one thing that can be seen}",
    ),
    issue_section(
        SCOPE,
        "the headings `### In scope` and `### Out of scope`, each with a list of at least one item",
        "{what stays as it is}",
    ),
    issue_section(
        FILES,
        "a list of the files it is about, each path from the root of the repository in backticks, with ` (new)` behind a \
         path that is not there yet; or the plain words `None known.`",
        "{path/from/the/root}",
    ),
    issue_section(
        DETERMINISM,
        "an example that is not the usual case, with its exact input and result; and what could make the result differ from \
         one time to the next (clock, order, network, chance), with what is done about it",
        "{input and result}",
    ),
    issue_section(
        SIGNAL,
        "what shows that it is done: a command in backticks, the name of a test, or an output to look at",
        "{command}",
    ),
    issue_section(
        LABELS,
        "one line: names from the list you are given, separated by commas, or the plain word `None.`",
        "",
    ),
];

/// Maximum number of characters of a title. GitHub and mail clients cut off longer titles.
const TITLE_CHARS: usize = 150;

/// Maximum number of characters of the document. One GitHub issue then has space for the document and for the original
/// text, which is folded.
const DOCUMENT_CHARS: usize = 30_000;

/// Returns the rules of the format, in words, for a prompt. `labels` are the labels from which the drafter may choose.
pub fn format_rules(labels: &[String]) -> String {
    let mut out = format!(
        "The document is Markdown. Its first line is `# {{title}}`; the title begins with a verb (`Add`, `Report`, `Refuse`) and has at most \
         {TITLE_CHARS} characters. Its sections, all of them, in this order, with exactly these headings:\n"
    );
    for spec in SECTIONS {
        out.push_str(&format!("- `## {}`: {}.\n", spec.title, spec.rule));
    }
    let names: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
    out.push_str(&match names.as_slice() {
        [] => "There are no labels to choose from.\n".to_owned(),
        names => format!("The labels to choose from: {}.\n", names.join(", ")),
    });
    out.push_str(
        "Say what is wanted and how one sees it, never how it is to be built. Where people answered a question, their answer \
         holds. The text is read as the issue itself: do not speak of a draft, a drafter, a review or questions in it. Write no \
         review, no cost and no claim that something was run: code adds those.\n",
    );
    out
}

/// Returns the whole issue with its title in bold. The issue is not shortened, because it is short and its approver
/// reads all of it.
pub fn summary(text: &str) -> String {
    let issue = parse(text);
    format!("**{}**\n\n{}", issue.title, text[issue.body.clone()].trim())
}

/// Returns whether the location that a reviewer cites exists: the title, a section, a criterion or a file.
pub fn place_exists(text: &str, place: &str, tree: &dyn FileTree) -> bool {
    let place = strip_marks(place);
    (1..=400).contains(&place.len())
        && (find_place(&parse(text), place).is_some()
            || (path_rules::refusal_reason(place).is_none()
                && (tree.is_file(place) || tree.is_dir(place.trim_end_matches('/')))))
}

/// Returns whether the text at this location is the same in both versions. Returns false if either version lacks the
/// location.
pub fn unchanged_at(before: &str, now: &str, place: &str) -> bool {
    let at = |text| find_place(&parse(text), strip_marks(place));
    at(before).zip(at(now)).is_some_and(|(then, there)| before[then].trim() == now[there].trim())
}

fn strip_marks(place: &str) -> &str {
    place.trim().trim_start_matches(['§', '#', ' ']).trim_matches('`').trim()
}

fn find_place(issue: &ParsedIssue, place: &str) -> Option<Range<usize>> {
    let is = |name: &str| place.eq_ignore_ascii_case(name);
    if is("title") || is("h1") || is(&issue.title) {
        return issue.heading.clone();
    }
    let (word, _) = place.split_once([' ', ':', ',', '(']).unwrap_or((place, ""));
    let section = issue.sections.iter().find(|(title, _)| is(title)).map(|(_, body)| body.clone());
    let criterion =
        || issue.criteria.iter().find(|c| c.id.eq_ignore_ascii_case(word)).map(|c| c.range.clone());
    let file = || issue.files.iter().find(|file| file.path == word).map(|file| file.range.clone());
    section.or_else(criterion).or_else(file)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::documents::lld::tests::DesignTestTree;

    pub(crate) const SOUND: &str = "# Report time by week\n\n## Summary\n\nWeeks are added up by hand today.\n\n\
        ## Acceptance criteria\n\n- [ ] AC-1 `tally --by week x` ends with status 0\n- [ ] AC-2 a date that does not exist is \
        refused with status 1\n\n## Scope\n\n### In scope\n\n- weeks\n\n### Out of scope\n\n- months\n\n## Files\n\n- \
        `src/lib.rs`\n- `src/week.rs` (new)\n\n## Determinism\n\n2027-01-01 is in week 53 of 2026.\n\n## Test signal\n\n`cargo \
        test`\n\n## Labels\n\nbug, none-such\n";

    #[test]
    fn finding_place_can_be_the_title_a_section_a_criterion_or_a_file() {
        for real in [
            "title",
            "Report time by week",
            "Scope",
            "## Test signal",
            "AC-2",
            "ac-1",
            "`src/week.rs`",
            "src/lib.rs",
        ] {
            assert!(place_exists(SOUND, real, &DesignTestTree), "{real}");
        }
        for unreal in ["", "AC-9", "Months", "src/none.rs", "../src/lib.rs"] {
            assert!(!place_exists(SOUND, unreal, &DesignTestTree), "{unreal}");
        }
        let now = SOUND.replace("status 1", "status 2");
        assert!(!unchanged_at(SOUND, &now, "AC-2") && unchanged_at(SOUND, &now, "AC-1"));
    }

    #[test]
    fn format_rules_name_every_section_and_label() {
        let rules = format_rules(&["bug".to_owned()]);
        assert!(SECTIONS.iter().all(|spec| rules.contains(spec.title)) && rules.contains("`bug`"), "{rules}");
    }
}
