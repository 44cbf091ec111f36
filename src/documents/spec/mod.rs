//! The implementation spec, from which a model can build an approved design without further questions. It has the same
//! kind of schema as a design, and is checked against the design and the commit.

mod check;
mod parse;

pub use check::{MOST_REFERENCES, check, check_completeness};
pub use parse::{DOC_TEST, ParsedSpec, PatternReference, SpecPart, TestMappingRow, parse};

use super::{
    CodebaseLookup, DocumentMistake, FileTree,
    lld::{self, DocumentSchema, SchemaSection, SectionContent, optional_section, required_section},
    path_rules,
    shorten::SectionRank,
};
use crate::types::IssueNo;

const OVERVIEW: &str = "1";
const FILES: &str = "2";
const STATE: &str = "3";
const TYPES: &str = "4";
const FUNCTIONS: &str = "5";
const CHANGES: &str = "6";
const PATTERNS: &str = "7";
const TESTS: &str = "9";

const SECTIONS: &[SchemaSection] = &[
    required_section(
        OVERVIEW,
        "Overview",
        SectionContent::Prose,
        3,
        "what is built and in which order, in a few sentences",
        "{what is built}",
    ),
    required_section(
        FILES,
        "Files to Implement",
        SectionContent::FilesTable,
        0,
        "a table of the files that the design changes, in the order in which they are to be written. Change Type is `Add`, \
         `Modify` or `Delete`. It has each file of the design, with the same Change Type, and no other",
        "| File | Change Type | Description |\n|---|---|---|\n| `{path/from/the/root}` | Modify | {what changes there} |",
    ),
    required_section(
        STATE,
        "Current State",
        SectionContent::Prose,
        4,
        "for each file to modify a heading `### path` and below it, in a code block, the lines that change, copied from the \
         file word for word; or the plain word `None.` where no file is modified",
        "### {path/from/the/root}",
    ),
    required_section(
        TYPES,
        "Data Structures",
        SectionContent::Prose,
        2,
        "for each type that is new or changes a heading `### name`, its definition in a code block, and then one sample value \
         in a code block of its own; or the plain word `None.`",
        "### {name of a type}",
    ),
    required_section(
        FUNCTIONS,
        "Function Specifications",
        SectionContent::Prose,
        1,
        "for each function that is new or changes a heading `### name`, its signature in a code block, then a line that begins \
         with `Input:` and one that begins with `Output:`, each with exact values in backticks, then what happens at the \
         edges; or the plain word `None.`",
        "### {name of a function}",
    ),
    required_section(
        CHANGES,
        "Change Instructions",
        SectionContent::Prose,
        2,
        "for each file of the table a heading `### path` and below it what is to be done there, step by step",
        "### {path/from/the/root}",
    ),
    required_section(
        PATTERNS,
        "Pattern References",
        SectionContent::Prose,
        6,
        "a list of at most ten pieces of this repository to follow, each item beginning with its place in backticks, as \
         `path/from/the/root:12-30`; or the plain word `None.`",
        "",
    ),
    optional_section("8", "Dependencies", 6, "new or changed dependencies and imports"),
    required_section(
        TESTS,
        "Test Mapping",
        SectionContent::Prose,
        0,
        "a table of tests, one at least for each error and each platform that a function speaks of. Requirement names those of the design, as `REQ-1`; every requirement has a test. Test is the name \
         of the test function, File the file of Files to Implement that it stands in; test files may be added to that table. Input and Expected are \
         exact values. A doc test of Rust is named `doc` and its item, as `doc Size::parse`, and is written with the code. A requirement \
         that something stays as it is has a test that passes already. An existing test that the design removes or renames has a \
         row too, with the word `removed` as Expected",
        "| Requirement | Test | File | Input | Expected |\n|---|---|---|---|---|\n\
         | REQ-1 | {test_name} | {path/from/the/root} | {input} | {expected} |",
    ),
    optional_section("10", "Implementation Notes", 8, "what else whoever builds it has to know"),
];

const SCHEMA: &DocumentSchema = &DocumentSchema {
    kind: "Implementation",
    sections: SECTIONS,
    files_section: FILES,
    signatures_section: FUNCTIONS,
    new_sections: &[FILES, TYPES, FUNCTIONS, "8"],
    prose_chapters: &[OVERVIEW, CHANGES],
    fixture_chapters: &[STATE, TESTS],
};

/// Returns the rules of a spec's format, for a prompt.
pub fn format_rules() -> String {
    SCHEMA.format_rules()
}

/// Returns the rank of a spec's section for shortening: files, tests and functions are cut last.
pub fn section_rank(heading: &str) -> Option<SectionRank> {
    SCHEMA.section_rank(heading)
}

/// Repairs mistakes in a spec's form, such as its headings.
pub fn fix(text: &str, issue: IssueNo) -> String {
    const OWN: &[lld::RepairFunction] = &[|text, _| lld::fix_headings(SCHEMA, text)];
    lld::apply_repairs(text, issue, OWN.iter().chain(lld::FORM))
}

/// Reports paths, names and imports in the spec that do not exist in this repository.
pub fn check_names(text: &str, repository: &dyn CodebaseLookup) -> Vec<DocumentMistake> {
    lld::check_names_in(SCHEMA, text, &parse(text).view, repository)
}

/// Returns a summary with the overview, the files and the number of tests, in at most forty lines.
pub fn summary(text: &str) -> String {
    let spec = parse(text);
    let overview = spec.view.section(OVERVIEW).map_or("", |section| text[section.body.clone()].trim());
    let files: Vec<String> = spec
        .view
        .files
        .iter()
        .take(15)
        .map(|row| {
            let change = row.change.map_or("?", lld::ChangeType::as_str);
            format!("- {change} `{}`: {}", row.path.replace('`', "'"), row.description)
        })
        .collect();
    let overview: Vec<&str> = overview.lines().take(10).collect();
    format!("{}\n\n{}\n\nTests: {}.", overview.join("\n"), files.join("\n"), spec.tests.len())
}

/// Returns whether the location that a reviewer cites exists: a section, a part of a section, a test, a requirement
/// with a test, or a file or directory.
pub fn place_exists(text: &str, place: &str, tree: &dyn FileTree) -> bool {
    let place = place.trim().trim_matches('`').trim();
    let file = lld::path_of_place(place);
    (1..=400).contains(&place.len())
        && (parse(text).find_place(place).is_some()
            || (path_rules::refusal_reason(file).is_none()
                && (tree.is_file(file) || tree.is_dir(file.trim_end_matches('/')))))
}

/// Returns the 1-based number of the line where a location starts; `None` if the text has no such location.
pub fn line_of(text: &str, place: &str) -> Option<usize> {
    let range = parse(text).find_place(place.trim().trim_matches('`').trim())?;
    Some(lld::first_line(text, range))
}

/// Returns whether the text at this location is the same in both versions. Returns false if either version lacks the
/// location.
pub fn unchanged_at(before: &str, now: &str, place: &str) -> bool {
    let place = place.trim().trim_matches('`').trim();
    let at = |text| parse(text).find_place(place);
    at(before).zip(at(now)).is_some_and(|(then, there)| before[then].trim() == now[there].trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::lld::tests::DesignTestTree;

    pub(super) const SOUND: &str = "# 42 - Implementation: Read a file\n\n## Overview\n\nA reader.\n\n\
        ## Files to Implement\n\n| File | Change Type | Description |\n|---|---|---|\n| `src/lib.rs` | Modify | the reader |\n\n\
        ## Current State\n\n### `src/lib.rs`\n\n```rust\npub fn read() {}\n```\n\n## Data Structures\n\n### Count\n\n\
        ```rust\nstruct Count(u8);\n```\n\n```rust\nCount(3)\n```\n\n## Function Specifications\n\n### read\n\n```rust\npub fn \
        read() -> u8\n```\n\nInput: `\"3\"`\n\nOutput: `3`\n\n## Change Instructions\n\n### src/lib.rs\n\nReturn the count.\n\n\
        ## Pattern References\n\n- `src/lib.rs:1-2` the style\n\n## Test Mapping\n\n| Requirement | Test | File | Input | \
        Expected |\n|---|---|---|---|---|\n| REQ-1 | reads_three | `src/lib.rs` | `3` | `3` |\n";

    #[test]
    fn finding_place_can_be_a_section_a_subheading_a_test_or_a_file() {
        for real in [
            "2",
            "§5",
            "Overview",
            "read",
            "5 read",
            "Count",
            "reads_three",
            "REQ-1",
            "src/config.rs",
            "src/lib.rs:3",
        ] {
            assert!(place_exists(SOUND, real, &DesignTestTree), "{real}");
        }
        for unreal in ["", "REQ-2", "write", "src/none.rs", "../src/lib.rs"] {
            assert!(!place_exists(SOUND, unreal, &DesignTestTree), "{unreal}");
        }
        let now = SOUND.replace("Count(3)", "Count(4)");
        assert!(!unchanged_at(SOUND, &now, "Count") && unchanged_at(SOUND, &now, "read"));
        let line = |place| line_of(SOUND, place).and_then(|line| SOUND.lines().nth(line - 1));
        assert_eq!(
            (line("reads_three").map(|row| row.starts_with("| REQ-1")), line("REQ-2")),
            (Some(true), None)
        );
    }

    #[test]
    fn spec_format_rules_list_every_section_and_a_shortened_spec_keeps_its_tests() {
        let rules = format_rules();
        assert!(SECTIONS.iter().all(|spec| rules.contains(&spec.heading())), "{rules}");
        let text = SOUND.replace("the style", &"the style ".repeat(200));
        let short = super::super::shorten::shorten(&text, &section_rank, 1_000).text;
        let spec = parse(&short);
        assert_eq!((spec.view.files.len(), spec.tests.len()), (1, 1), "{short}");
        assert!(summary(SOUND).contains("- Modify `src/lib.rs`: the reader"));
    }

    #[test]
    fn spec_with_numbered_headings_is_parsed_and_fix_removes_the_numbers() {
        let mut numbered = SOUND.to_owned();
        for spec in SECTIONS {
            let with_number = format!("## {}. {}", spec.number, spec.title);
            numbered = numbered.replace(&format!("## {}\n", spec.title), &format!("{with_number}\n"));
        }
        assert!(numbered.contains("## 9. Test Mapping"), "{numbered}");
        assert_eq!(parse(&numbered).tests.len(), 1);
        assert_eq!(fix(&numbered, IssueNo(42)), SOUND);
    }
}
