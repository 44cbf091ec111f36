//! The scout's brief: existing solutions in other projects for a question, with a source for each claim. The brief uses
//! the same kind of schema as a design. Checks compare the claims with the sources that were found and read.

mod check;
mod queries;

pub use check::check;
pub use queries::{QUERY_RULES, SearchTerms, parse_search_plan, query_schema};

use serde::{Deserialize, Serialize};

use super::{
    FileTree,
    lld::{self, DocumentSchema, ParsedDesign, SchemaSection, SectionContent, required_section},
    markdown,
};
use crate::types::IssueNo;

const WHAT_EXISTS: &str = "2";
const DIFFERENCES: &str = "3";
const LICENCES: &str = "6";

/// Text of the table's only row if the search found nothing.
pub const NOTHING: &str = "Nothing was found";

/// Text shown as the licence of a repository for which GitHub reports no licence.
const NO_LICENCE: &str = "none told";

const SECTIONS: &[SchemaSection] = &[
    required_section(
        "1",
        "Question",
        SectionContent::Prose,
        0,
        "what is asked, and what an answer would help to decide, in a few sentences",
        "{what is asked}",
    ),
    required_section(
        WHAT_EXISTS,
        "What Exists",
        SectionContent::Prose,
        1,
        "a table of repositories. Its rows stand among what was found: copy them as they are there, in their order, and add none",
        "| Repository | Stars | Licence | Link |\n|---|---|---|---|\n| `{owner/name}` | {stars} | {licence} | {link} |",
    ),
    required_section(
        DIFFERENCES,
        "What They Do Differently",
        SectionContent::Prose,
        2,
        "a list of what those repositories do, one claim an item, each with the link of the source that says it; or the plain \
         word `None.` where nothing was found",
        "{claim}",
    ),
    required_section(
        "4",
        "Gaps Here",
        SectionContent::Prose,
        3,
        "what this repository lacks of that, as far as you are told of it; say so where you are not told",
        "{gap}",
    ),
    required_section(
        "5",
        "Recommendations",
        SectionContent::Prose,
        1,
        "what to do, each with its reason, and what to leave alone",
        "{recommendation}",
    ),
    required_section(
        LICENCES,
        "Licences",
        SectionContent::Prose,
        2,
        "a list with an item for each repository of the table: its name in backticks, its licence as the table has it, and \
         what follows from that for whoever would take code from there; or the plain word `None.`",
        "",
    ),
];

const SCHEMA: &DocumentSchema = &DocumentSchema {
    kind: "Scout",
    sections: SECTIONS,
    files_section: "",
    signatures_section: "",
    new_sections: &[],
    prose_chapters: &[],
    fixture_chapters: &[],
};

/// A repository that the search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoutSource {
    /// Full name, as `owner/name`.
    pub name: String,
    pub url: String,
    pub stars: u64,
    /// Licence as reported by GitHub.
    pub licence: Option<String>,
}

impl ScoutSource {
    fn licence(&self) -> &str {
        self.licence.as_deref().unwrap_or(NO_LICENCE)
    }

    fn table_cells(&self) -> [String; 4] {
        [format!("`{}`", self.name), self.stars.to_string(), self.licence().to_owned(), self.url.clone()]
    }
}

/// Evidence with which a brief is compared.
#[derive(Debug, Clone, Default)]
pub struct ScoutEvidence {
    pub found: Vec<ScoutSource>,
    /// Texts of the READMEs that were read.
    pub texts: Vec<String>,
    /// URL of the issue. The brief may link to this URL and to any URL below it.
    pub issue: String,
    /// URLs of other pages that were read.
    pub pages: Vec<String>,
    /// Search terms of the first and the second round. The terms of the second round are based on the results of the
    /// first.
    pub searched: [Vec<String>; 2],
}

/// Start of the line that lists the search terms. Our code writes this line, not the drafter.
const SEARCHED: &str = "Searched for: ";

impl ScoutEvidence {
    fn search_line(&self) -> Option<String> {
        let [first, then] = self
            .searched
            .each_ref()
            .map(|all| all.iter().map(|words| format!("“{words}”")).collect::<Vec<_>>());
        let then = if then.is_empty() {
            String::new()
        } else {
            format!("; then, after what was read: {}", then.join(", "))
        };
        (!first.is_empty()).then(|| format!("{SEARCHED}{}{then}.", first.join(", ")))
    }
}

/// Returns the rows that the brief's table must have.
pub fn table_rows(found: &[ScoutSource]) -> Vec<String> {
    let row = |source: &ScoutSource| format!("| {} |", source.table_cells().join(" | "));
    if found.is_empty() { vec![format!("| {NOTHING} | | | |")] } else { found.iter().map(row).collect() }
}

/// Returns the rules of the format, in words, for a prompt.
pub fn format_rules() -> String {
    format!(
        "{}The table has the columns `| Repository | Stars | Licence | Link |`. Name no address but those of the sources you \
         are given, or ones below them, and those of pages as they stand. Say what a source says in your own words: more than {} words in a row out of one are \
         refused. What a source says is what its authors claim; nobody ran it.\n",
        SCHEMA.format_rules(),
        check::MOST_QUOTED
    )
}

/// Repairs the form of the text. Missing rows and licences are added, because they are known. Wrong rows and licences
/// are left for the drafter to fix, because other text may depend on them.
pub fn fix(text: &str, issue: IssueNo, known: &ScoutEvidence) -> String {
    const OWN: &[lld::RepairFunction] = &[|text, _| lld::fix_headings(SCHEMA, text)];
    let mut text = lld::apply_repairs(text, issue, OWN.iter().chain(lld::FORM));
    let searched = known.search_line().filter(|line| !text.lines().any(|other| other == line));
    if searched.is_some() {
        text = text.split_inclusive('\n').filter(|line| !line.starts_with(SEARCHED)).collect();
    }
    let there = table_repositories(&text);
    let lacking: Vec<&ScoutSource> =
        known.found.iter().filter(|source| !there.iter().any(|row| row[0] == source.name)).collect();
    let items = list_items(&text, LICENCES).join("\n");
    let missing = known.found.iter().filter(|source| !items.contains(&source.name));
    let missing: String =
        missing.map(|source| format!("\n- `{}`: {}", source.name, source.licence())).collect();
    // Edits run from the end, so that earlier offsets stay valid.
    if let Some(body) = parse_brief(&text).section(LICENCES).map(|section| section.body.clone()) {
        let at = body.start + text[body].trim_end().len();
        let gap = if items.is_empty() && !missing.is_empty() { "\n" } else { "" };
        text.insert_str(at, &format!("{gap}{missing}"));
    }
    let wanted = match known.found.is_empty() && there.is_empty() {
        true => table_rows(&[]),
        false => lacking.iter().flat_map(|source| table_rows(std::slice::from_ref(*source))).collect(),
    };
    if let Some(end) = table_end(&text) {
        let rows: String = wanted.iter().map(|row| format!("\n{row}")).collect();
        let line = searched.map_or_else(String::new, |line| format!("\n\n{line}"));
        // Removing the old line left its blank lines.
        let rest = text[end..].trim_start_matches('\n');
        let gap = if line.is_empty() { text[end..].len() - rest.len() } else { 2.min(rest.len()) };
        text = format!("{}{rows}{line}{}{rest}", &text[..end], "\n".repeat(gap));
    }
    text
}

/// Returns the offset at which a new row of the table is inserted.
fn table_end(text: &str) -> Option<usize> {
    let (outline, brief) = (markdown::parse_outline(text), parse_brief(text));
    let body = brief.section(WHAT_EXISTS)?.body.clone();
    let range = lld::tables_in(&outline, &body).next()?.range.clone();
    Some(range.start + text[range].trim_end().len())
}

/// Returns the brief without its first line. The brief is not shortened, because an approver reads all of it.
pub fn summary(text: &str) -> String {
    text.trim_start().split_once('\n').map_or("", |(_, body)| body).trim().to_owned()
}

/// Returns whether the location that a reviewer cites exists: a location in the document or the repository, or a
/// repository listed in the brief's table.
pub fn place_exists(text: &str, place: &str, tree: &dyn FileTree) -> bool {
    let bare = place.trim().trim_matches('`').trim();
    lld::place_exists(text, place, tree)
        || (!bare.is_empty() && table_repositories(text).iter().any(|row| row[0] == bare))
}

fn parse_brief(text: &str) -> ParsedDesign {
    lld::parse_with_schema(SCHEMA, text, &markdown::parse_outline(text))
}

/// Returns the name, stars, licence and link in each row of the table, without Markdown marks.
fn table_repositories(text: &str) -> Vec<[String; 4]> {
    let (outline, brief) = (markdown::parse_outline(text), parse_brief(text));
    let body = brief.section(WHAT_EXISTS).map(|section| section.body.clone()).unwrap_or_default();
    let rows = lld::tables_in(&outline, &body).flat_map(|table| &table.rows);
    let bare = |cell: Option<&String>| {
        cell.map_or("", String::as_str).trim_matches(['`', '*', '<', '>', ' ']).to_owned()
    };
    rows.map(|row| [0, 1, 2, 3].map(|at| bare(row.cells.get(at)))).collect()
}

fn list_items(text: &str, section: &str) -> Vec<String> {
    let (outline, brief) = (markdown::parse_outline(text), parse_brief(text));
    let body = brief.section(section).map(|section| section.body.clone()).unwrap_or_default();
    lld::items_in(&outline, &body).map(|item| text[item.range.clone()].to_owned()).collect()
}
