//! The low-level design. The template, the prompt's rules, the parser and the checks use the same table of sections, so
//! that they cannot disagree.

mod check;
mod coverage;
mod fix;
mod names;
mod parse;
mod place;
mod summary;

pub use check::check;
pub(in crate::documents) use check::{check_form, check_hidden_text, check_readable, find_paths};
pub use coverage::check_coverage;
pub(in crate::documents) use coverage::find_vague_phrase;
pub use fix::fix;
pub(in crate::documents) use fix::{FORM, RepairFunction, apply_repairs, fix_headings, replace_ranges};
pub use names::check_names;
pub(in crate::documents) use names::check_names_in;
#[cfg(test)]
pub(in crate::documents) use names::tests::NamesTestRepository;
pub use parse::{
    ChangeType, DesignQuestion, DesignSection, FileRow, ParsedDesign, Requirement, TestScenario, parse,
    signature_blocks,
};
pub(in crate::documents) use parse::{find_column, function_names, items_in, parse_with_schema, tables_in};
pub(in crate::documents) use place::{first_line, names_section, path_of_place};
pub use place::{line_of, place_exists, unchanged_at};
pub use summary::{open_questions, summary};

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    markdown::{MarkdownHeading, MarkdownOutline},
    shorten::{self, SectionRank},
};
use crate::types::IssueNo;

/// Kind of content that a section must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SectionContent {
    /// The section contains only subsections.
    Group,
    Prose,
    FilesTable,
    Requirements,
    Scenarios,
}

/// A section of a schema.
#[derive(Debug)]
pub(crate) struct SchemaSection {
    /// Section number, which identifies the section in code. The parser also accepts the number in a heading, because
    /// older documents have it there.
    pub(crate) number: &'static str,
    pub(crate) title: &'static str,
    pub(crate) required: bool,
    pub(crate) content: SectionContent,
    /// Rule for the drafter, used in the prompt.
    pub(crate) rule: &'static str,
    /// Text that the template has in this section. The drafter must replace each `{…}` in it.
    pub(crate) sample: &'static str,
    /// Rank for shortening a document: sections with a higher rank are cut earlier.
    pub(crate) priority: u8,
}

impl SchemaSection {
    /// Returns the heading, such as `### Files Changed`.
    pub(crate) fn heading(&self) -> String {
        format!("{} {}", "#".repeat(self.level()), self.title)
    }

    pub(crate) fn level(&self) -> usize {
        self.number.split('.').count() + 1
    }

    pub(in crate::documents) fn has_title(&self, title: &str) -> bool {
        self.title.eq_ignore_ascii_case(title.trim())
    }

    /// Returns whether a numbered heading belongs to this section. For a subsection the same number is enough. For a
    /// chapter, `title` must also share a word with the section's title.
    fn matches_number(&self, number: &str, title: &str) -> bool {
        self.number == number && (number.contains('.') || self.shared_word_count(title) > 0)
    }

    /// Returns the number of words of at least four letters that the section's title and `title` share.
    fn shared_word_count(&self, title: &str) -> usize {
        let own = self.title.to_lowercase();
        title.split_whitespace().filter(|word| word.len() >= 4 && own.contains(&word.to_lowercase())).count()
    }
}

pub(in crate::documents) const fn required_section(
    number: &'static str,
    title: &'static str,
    holds: SectionContent,
    priority: u8,
    rule: &'static str,
    sample: &'static str,
) -> SchemaSection {
    SchemaSection { number, title, required: true, content: holds, rule, sample, priority }
}

pub(in crate::documents) const fn optional_section(
    number: &'static str,
    title: &'static str,
    priority: u8,
    rule: &'static str,
) -> SchemaSection {
    SchemaSection {
        number,
        title,
        required: false,
        content: SectionContent::Prose,
        rule,
        sample: "",
        priority,
    }
}

const fn section_group(number: &'static str, title: &'static str) -> SchemaSection {
    SchemaSection {
        number,
        title,
        required: false,
        content: SectionContent::Group,
        rule: "",
        sample: "",
        priority: 0,
    }
}

/// A kind of document: its sections and their roles.
pub(in crate::documents) struct DocumentSchema {
    /// Word before the title in the first heading, such as `Feature`.
    pub(in crate::documents) kind: &'static str,
    pub(in crate::documents) sections: &'static [SchemaSection],
    /// Number of the section with the table of files.
    pub(in crate::documents) files_section: &'static str,
    pub(in crate::documents) signatures_section: &'static str,
    /// Numbers of the sections that describe new code.
    pub(in crate::documents) new_sections: &'static [&'static str],
    /// Numbers of the chapters with prose about existing code.
    pub(in crate::documents) prose_chapters: &'static [&'static str],
    pub(in crate::documents) fixture_chapters: &'static [&'static str],
}

impl DocumentSchema {
    /// Returns, for each heading, the section that it belongs to. A heading matches a section by its exact title at the
    /// right level, or by the section number in older documents. Otherwise the heading matches the missing required
    /// section that shares most words with it. In case of a tie, the heading matches no section.
    pub(in crate::documents) fn match_headings(
        &self,
        outline: &MarkdownOutline,
    ) -> Vec<Option<&'static SchemaSection>> {
        let headings = &outline.headings;
        let is_alone = |spec: &SchemaSection| !headings.iter().any(|heading| spec.has_title(&heading.text));
        // If a heading has the exact title, a numbered step is not that section.
        let alone: Vec<_> = self.sections.iter().filter(|spec| is_alone(spec)).collect();
        let mut numbers = BTreeSet::new();
        let of = |(at, heading): (usize, &MarkdownHeading)| {
            let (number, title) = parse::split_number(&heading.text);
            if at == 0 && heading.level == 1 && !self.is_section_title(&heading.text) {
                return None;
            }
            let titled = |spec: &&SchemaSection| spec.has_title(title) && spec.level() == heading.level;
            let first = number.filter(|number| numbers.insert((*number).to_owned()));
            let numbered =
                |spec: &&&SchemaSection| first.is_some_and(|number| spec.matches_number(number, title));
            self.sections.iter().find(titled).or_else(|| alone.iter().find(numbered).copied())
        };
        let mut found: Vec<_> = headings.iter().enumerate().map(of).collect();
        let mut there: BTreeSet<_> = found.iter().flatten().map(|spec| spec.number).collect();
        for (heading, found) in headings.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            let lacks = |spec: &&SchemaSection| spec.required && !there.contains(spec.number);
            let lacking = self.sections.iter().filter(|spec| spec.level() == heading.level).filter(lacks);
            let mut near: Vec<_> =
                lacking.map(|spec| (spec.shared_word_count(&heading.text), spec)).collect();
            near.sort_by_key(|(shared, _)| Reverse(*shared));
            *found = match near.as_slice() {
                _ if parse::split_number(&heading.text).0.is_some() => None,
                [(shared, _), (second, _), ..] if shared == second => None,
                [(1.., spec), ..] => Some(*spec),
                _ => None,
            };
            there.extend(found.map(|spec| spec.number));
        }
        found
    }

    /// Returns whether the heading is exactly the title of a section. A similar title does not count, because the title
    /// of an issue may share words with a section.
    fn is_section_title(&self, heading: &str) -> bool {
        let (_, title) = parse::split_number(heading);
        self.sections.iter().any(|spec| spec.has_title(title))
    }

    pub(in crate::documents) fn section_title(&self, number: &str) -> &'static str {
        self.sections.iter().find(|spec| spec.number == number).map_or("document", |spec| spec.title)
    }

    /// Returns the rules of the format, in words, for a prompt.
    pub(in crate::documents) fn format_rules(&self) -> String {
        let mut out = format!(
            "The document is Markdown. Its first line is `# {{issue number}} - {}: {{title}}`. Its sections, in this order, with \
             exactly these headings:\n",
            self.kind
        );
        for spec in self.sections {
            let need = match spec.content {
                SectionContent::Group => {
                    out.push_str(&format!(
                        "- `{}` (required): stands above the sections that follow.\n",
                        spec.heading()
                    ));
                    continue;
                }
                _ if spec.required => "required",
                _ => "optional; leave it out when there is nothing to say",
            };
            let head = spec.sample.lines().find(|line| line.starts_with('|'));
            let head = head.map_or(String::new(), |head| format!(". The table's head is `{head}`"));
            out.push_str(&format!("- `{}` ({need}): {}{head}.\n", spec.heading(), spec.rule));
        }
        out.push_str(
            "Do not write review logs, verdicts, costs or claims that something was run or verified: code adds those.\n",
        );
        out
    }

    /// Returns the rank for shortening of the section with this heading; `None` for unknown headings. Headings of
    /// groups get the default rank.
    pub(in crate::documents) fn section_rank(&self, heading: &str) -> Option<SectionRank> {
        let (number, title) = parse::split_number(heading);
        let mut sections = self.sections.iter();
        let numbered =
            |spec: &&SchemaSection| number.is_some_and(|number| spec.matches_number(number, title));
        let spec = sections.clone().find(|spec| spec.has_title(title)).or_else(|| sections.find(numbered))?;
        Some(if spec.content == SectionContent::Group { shorten::DEFAULT_RANK } else { spec.priority })
    }
}

/// Schema of a design.
pub(in crate::documents) const SCHEMA: &DocumentSchema = &DocumentSchema {
    kind: "Feature",
    sections: SECTIONS,
    files_section: "2.1",
    signatures_section: "2.4",
    new_sections: &["2.1", "2.2", "2.3", "2.4"],
    prose_chapters: &["1", "2", "7", "8", "11"],
    fixture_chapters: &["5", "10"],
};

pub(crate) const SECTIONS: &[SchemaSection] = &[
    required_section(
        "1",
        "Context & Goal",
        SectionContent::Prose,
        4,
        "what is to be reached and why, in a few sentences; then the heading `### Open Questions` with a \
         checklist of what only a person can decide, or the plain word `None.`",
        "{The goal, and what is wrong today.}\n\n### Open Questions\n\nNone.",
    ),
    section_group("2", "Proposed Changes"),
    required_section(
        "2.1",
        "Files Changed",
        SectionContent::FilesTable,
        0,
        "a table of every file that changes. Change Type is `Add`, `Modify` or `Delete`, followed by \
         ` (Directory)` for a folder. Paths start at the root of the repository. `Modify` and `Delete` name \
         what exists; `Add` names what does not, in a folder that exists or is itself added in an earlier row",
        "| File | Change Type | Description |\n|---|---|---|\n| `{path/from/the/root}` | Modify | {what changes there} |",
    ),
    optional_section("2.2", "Dependencies", 6, "new or changed dependencies, each with its reason"),
    optional_section("2.3", "Data Structures", 3, "types that are new or change shape, as code"),
    required_section(
        "2.4",
        "Function Signatures",
        SectionContent::Prose,
        1,
        "the functions that are new or change, as signatures in a code block of the repository's language, \
         one line each on what they do; or the plain word `None.`",
        "```text\n{signatures}\n```",
    ),
    optional_section("2.5", "Logic Flow", 3, "the steps in order, with what happens when one fails"),
    optional_section(
        "2.6",
        "Architecture Decisions",
        5,
        "choices that others must know, each with its reason",
    ),
    required_section(
        "3",
        "Requirements",
        SectionContent::Requirements,
        0,
        "a numbered list; item n is called REQ-n everywhere else. Each can be shown true or false by a test",
        "1. {One thing that can be tested.}",
    ),
    optional_section("4", "Alternatives Considered", 8, "what else was weighed, and why not"),
    optional_section("5", "Data & Fixtures", 7, "where test data comes from"),
    optional_section("6", "Diagram", 9, "a mermaid diagram where words do not do"),
    optional_section("7", "Security & Safety", 2, "what an attacker may try, and how it fails safely"),
    optional_section("8", "Performance & Cost", 7, "what it costs in time, memory or money"),
    optional_section("9", "Legal & Compliance", 9, "licences and personal data"),
    section_group("10", "Verification & Testing"),
    required_section(
        "10.1",
        "Test Scenarios",
        SectionContent::Scenarios,
        0,
        "a table of tests. IDs are 010, 020, 030 …; Type is `Auto`, `Auto-Live` or `Manual`; the Scenario cell says in words \
         what is tried, names the test and its file unless it is `Manual`, as `adds_two` in `tests/sum.rs`, and \
         ends with the requirement it shows, as `(REQ-1)` or `(REQ-1, REQ-2)`. Every requirement has a scenario. \
         Pass Criteria say the exact value, status or text that is observed, never `works correctly`; only \
         a `Manual` scenario may ask for a person's eyes",
        "| ID | Scenario | Type | Input | Expected Output | Pass Criteria |\n|---|---|---|---|---|---|\n\
         | 010 | {what is tried} (REQ-1) | Auto | {input} | {output} | {exact observation} |",
    ),
    optional_section("10.2", "Test Commands", 6, "the commands that run them"),
    required_section(
        "11",
        "Risks & Mitigations",
        SectionContent::Prose,
        2,
        "what may go wrong and what is done about it, as a table or list; functions named here stand in Function Signatures",
        "| Risk | Mitigation |\n|---|---|\n| {what may go wrong} | {what is done about it} |",
    ),
    required_section(
        "12",
        "Definition of Done",
        SectionContent::Prose,
        5,
        "a checklist; every path it names stands in Files Changed",
        "- [ ] {what must be true}",
    ),
];

/// Returns the texts of the requirements, by ID.
pub fn requirements(text: &str) -> BTreeMap<String, String> {
    parse(text).requirements.into_iter().map(|requirement| (requirement.id, requirement.text)).collect()
}

/// Returns the title of the section with this number.
pub fn section_title(number: &str) -> Option<&'static str> {
    SECTIONS.iter().find(|spec| spec.number == number).map(|spec| spec.title)
}

/// Returns the skeleton that a drafter fills: the first heading, the headings of groups, and each required section.
pub fn template(issue: IssueNo, title: &str) -> String {
    let mut out = format!("{}\n", format_first_heading(issue, title));
    for spec in SECTIONS.iter().filter(|s| s.required || s.content == SectionContent::Group) {
        out.push_str(&format!("\n{}\n", spec.heading()));
        if !spec.sample.is_empty() {
            out.push_str(&format!("\n{}\n", spec.sample));
        }
    }
    out
}

/// Returns the rules of the format, in words, for a prompt.
pub fn format_rules() -> String {
    SCHEMA.format_rules()
}

/// Formats a first heading such as `# 42 - Feature: Read the config from a file`.
fn format_first_heading(issue: IssueNo, title: &str) -> String {
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("# {issue} - Feature: {title}")
}

/// Returns the rank of a design's section for shortening.
pub fn section_rank(heading: &str) -> Option<SectionRank> {
    SCHEMA.section_rank(heading)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::documents::FileTree;

    pub(in crate::documents) struct DesignTestTree;

    impl FileTree for DesignTestTree {
        fn is_file(&self, path: &str) -> bool {
            matches!(path, "src/lib.rs" | "src/config.rs" | "README.md")
        }
        fn is_dir(&self, path: &str) -> bool {
            matches!(path, "src" | "tests")
        }
        fn nearest_paths(&self, _: &str) -> Vec<String> {
            vec!["src/lib.rs".into()]
        }
    }

    /// Returns the template with each placeholder replaced.
    pub(super) fn filled_template() -> String {
        let text = template(IssueNo(42), "Read a file");
        let text =
            text.replace("{path/from/the/root}", "src/lib.rs").replace("{signatures}", "fn read() -> u8");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            let (_, after) = after.split_once('}').expect("a placeholder ends");
            out.push_str(before);
            out.push_str("the exit code is 2");
            rest = after;
        }
        out + rest
    }

    #[test]
    fn filled_template_passes_every_check() {
        let text = filled_template();
        assert_eq!(check(&text, IssueNo(42), &DesignTestTree), vec![]);
        assert_eq!(check_coverage(&text), vec![]);
        assert_eq!(fix(&text, IssueNo(42)), text);
    }

    #[test]
    fn unfilled_template_fails_the_checks() {
        let rules: Vec<_> = check(&template(IssueNo(42), "x"), IssueNo(42), &DesignTestTree)
            .into_iter()
            .map(|m| m.rule)
            .collect();
        assert!(rules.iter().any(|rule| rule == "placeholder"), "{rules:?}");
    }

    #[test]
    fn format_rules_name_every_section() {
        let rules = format_rules();
        for section in parse(&template(IssueNo(1), "x")).sections {
            let mut specs = SECTIONS.iter();
            let spec = specs
                .find(|spec| spec.title == section.title)
                .expect("the schema has the template's sections");
            assert!(spec.content == SectionContent::Group || rules.contains(&spec.heading()));
        }
    }

    #[test]
    fn shortening_a_design_keeps_files_requirements_and_scenarios() {
        let text = filled_template();
        let short = shorten::shorten(&text, &section_rank, text.len() * 2 / 3);
        assert!(short.cuts.iter().any(|cut| cut.section == "Definition of Done"), "{:?}", short.cuts);
        let short = short.text;
        let (long, lean) = (parse(&text), parse(&short));
        assert_eq!((long.files.len(), long.requirements.len(), long.scenarios.len()), (1, 1, 1));
        assert_eq!((lean.files.len(), lean.requirements.len(), lean.scenarios.len()), (1, 1, 1));
    }
}
