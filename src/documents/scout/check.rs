//! Checks of a brief. They report all mistakes at once, so that one revision can fix them all.

use std::collections::HashSet;

use pulldown_cmark::{Event, Parser, Tag};
use url::Url;

use super::{
    DIFFERENCES, LICENCES, NOTHING, SCHEMA, ScoutEvidence, WHAT_EXISTS, list_items, parse_brief,
    table_repositories, table_rows,
};
use crate::{
    documents::{DocumentMistake, FileTree, lld, markdown, quotable_path},
    types::IssueNo,
};

/// Maximum number of consecutive words that a brief may share with a source. A longer sequence is treated as a copy.
pub(super) const MOST_QUOTED: usize = 25;

const MOST_MISTAKES: usize = 100;

/// Checks the form of the brief, and whether its claims agree with the evidence.
pub fn check(text: &str, issue: IssueNo, tree: &dyn FileTree, known: &ScoutEvidence) -> Vec<DocumentMistake> {
    if let Some(mistake) = lld::check_readable(text) {
        return vec![mistake];
    }
    let mut out = Vec::new();
    lld::check_form(SCHEMA, text, &parse_brief(text), issue, tree, &mut out);
    check_table(text, known, &mut out);
    check_links(text, known, &mut out);
    check_claims(text, known, &mut out);
    check_licences(text, known, &mut out);
    check_copied_text(text, known, &mut out);
    out.truncate(MOST_MISTAKES);
    out
}

fn add_mistake(out: &mut Vec<DocumentMistake>, rule: &'static str, section: &str, message: String) {
    out.push(DocumentMistake::error(rule, SCHEMA.section_title(section), message));
}

/// Checks that the brief's table lists exactly the repositories that were found, with GitHub's data about them.
fn check_table(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    let rows_there = table_repositories(text);
    if known.found.is_empty() {
        if !matches!(rows_there.as_slice(), [row] if row[0] == NOTHING) {
            let message = format!("nothing was found, so its one row is `{}`", table_rows(&[])[0]);
            add_mistake(out, "table.nothing", WHAT_EXISTS, message);
        }
        return;
    }
    for row in &rows_there {
        let name = quotable_path(&row[0]);
        let Some(source) = known.found.iter().find(|source| source.name == row[0]) else {
            add_mistake(
                out,
                "table.unknown",
                WHAT_EXISTS,
                format!("`{name}` was not found by the search; leave its row out"),
            );
            continue;
        };
        let wanted = source.table_cells().map(|cell| cell.trim_matches('`').to_owned());
        if *row != wanted {
            let message =
                format!("the row of `{name}` is not as it was found; write `{}`", wanted.join(" | "));
            add_mistake(out, "table.row", WHAT_EXISTS, message);
        }
    }
    for source in known.found.iter().filter(|source| !rows_there.iter().any(|row| row[0] == source.name)) {
        add_mistake(
            out,
            "table.missing",
            WHAT_EXISTS,
            format!("`{}` was found and has no row; add it", source.name),
        );
    }
}

/// Checks that each URL belongs to a source.
fn check_links(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    for address in find_addresses(text).into_iter().filter(|address| !is_known_address(address, known)) {
        let message =
            format!("`{}` is not one of the sources that were read; leave it out", quotable_path(&address));
        add_mistake(out, "link.unknown", &section_number_of(text, &address), message);
    }
}

fn section_number_of(text: &str, piece: &str) -> String {
    let at = text.find(piece).unwrap_or(0);
    let sections = parse_brief(text).sections;
    sections.iter().find(|s| s.body.contains(&at)).map_or("1".to_owned(), |section| section.number.clone())
}

/// Returns all URLs: Markdown links, and bare URLs that GitHub turns into links.
fn find_addresses(text: &str) -> Vec<String> {
    let linked = Parser::new_ext(text, markdown::parser_options()).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    });
    let mut all: Vec<String> = linked.collect();
    all.extend(markdown::bare_addresses(text));
    all.sort();
    all.dedup();
    all
}

/// Returns whether the URL is the URL of a source or is below one. The URL is resolved as a browser would resolve it,
/// so that `..` cannot lead out of the source's path.
fn is_known_address(address: &str, known: &ScoutEvidence) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let below = |base: &str| {
        let rest = url.as_str().strip_prefix(base.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '?']))
    };
    let bases = known.found.iter().map(|source| &source.url).chain([&known.issue]);
    bases.filter(|base| !base.is_empty()).any(|base| below(base))
        || known.pages.iter().any(|page| Url::parse(page).is_ok_and(|page| page == url))
}

/// Checks that each claim has a link to its source.
fn check_claims(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    if known.found.is_empty() {
        return;
    }
    let items = list_items(text, DIFFERENCES);
    if items.is_empty() {
        add_mistake(out, "claims.none", DIFFERENCES, "there is no list; write one claim per item".to_owned());
    }
    for (n, _) in items.iter().enumerate().filter(|(_, item)| find_addresses(item).is_empty()) {
        add_mistake(
            out,
            "claims.source",
            DIFFERENCES,
            format!("item {} has no link to the source that says it", n + 1),
        );
    }
}

fn check_licences(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    let items = list_items(text, LICENCES);
    for source in &known.found {
        let (name, licence) = (format!("`{}`", source.name), source.licence());
        if !items.iter().any(|item| item.contains(&name) && item.contains(licence)) {
            let message = format!("no item names {name} with its licence as GitHub tells it: {licence}");
            add_mistake(out, "licence", LICENCES, message);
        }
    }
}

/// Reports text with more than [`MOST_QUOTED`] consecutive words that also occur in a source.
fn check_copied_text(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    let rows: HashSet<Vec<String>> =
        known.texts.iter().flat_map(|source| word_sequences(source).collect::<Vec<_>>()).collect();
    if let Some(row) = word_sequences(text).find(|row| rows.contains(row)) {
        let begins = row[..4].join(" ");
        let message = format!(
            "more than {MOST_QUOTED} words in a row are a source's, from “{begins} …”; say it in your own words"
        );
        out.push(DocumentMistake::error("copied", "document", message));
    }
}

/// Returns all sequences of [`MOST_QUOTED`] + 1 consecutive words.
fn word_sequences(text: &str) -> impl Iterator<Item = Vec<String>> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    let rows = words.windows(MOST_QUOTED + 1).map(<[String]>::to_vec).collect::<Vec<_>>();
    rows.into_iter()
}

#[cfg(test)]
mod tests {
    use super::{super::ScoutSource, *};
    use crate::documents::lld::tests::DesignTestTree;

    const URL: &str = "https://github.com/ann/hours";

    fn sample_evidence() -> ScoutEvidence {
        let source = ScoutSource {
            name: "ann/hours".into(),
            url: URL.into(),
            stars: 250,
            licence: Some("MIT".into()),
        };
        let words: Vec<_> = (0..60).map(|n| format!("word{n}")).collect();
        ScoutEvidence { found: vec![source], texts: vec![words.join(" ")], ..ScoutEvidence::default() }
    }

    fn sample_brief() -> String {
        format!(
            "# 42 - Scout: Weeks\n\n## Question\n\nHow do others add up weeks?\n\n## What Exists\n\n| Repository | Stars \
             | Licence | Link |\n|---|---|---|---|\n{}\n\n## What They Do Differently\n\n- It counts by ISO week \
             ([README]({URL}#weeks)).\n\n## Gaps Here\n\nNo weeks.\n\n## Recommendations\n\nUse ISO weeks.\n\n## \
             Licences\n\n- `ann/hours`: MIT, so its notice would have to be kept.\n",
            table_rows(&sample_evidence().found)[0]
        )
    }

    fn violated_rules(text: &str, known: &ScoutEvidence) -> Vec<String> {
        check(text, IssueNo(42), &DesignTestTree, known)
            .iter()
            .map(|mistake| mistake.rule.to_string())
            .collect()
    }

    #[test]
    fn brief_that_lists_every_found_source_passes_every_check() {
        assert_eq!(check(&sample_brief(), IssueNo(42), &DesignTestTree, &sample_evidence()), []);
        assert!(super::super::place_exists(&sample_brief(), "ann/hours", &DesignTestTree));
        let none = ScoutEvidence::default();
        let empty = sample_brief().replace(&table_rows(&sample_evidence().found)[0], &table_rows(&[])[0]);
        let empty = empty.replace(&format!("- It counts by ISO week ([README]({URL}#weeks))."), "None.");
        assert_eq!(check(&empty, IssueNo(42), &DesignTestTree, &none), []);
        assert_eq!(
            violated_rules(&empty, &sample_evidence()),
            ["table.unknown", "table.missing", "claims.none"]
        );
    }

    #[test]
    fn fix_adds_missing_source_rows_and_leaves_wrong_rows_unchanged() {
        let fixed = |text: &str, known: &ScoutEvidence| super::super::fix(text, IssueNo(42), known);
        let row = format!("\n{}", table_rows(&sample_evidence().found)[0]);
        let bare = sample_brief()
            .replace(&row, "")
            .replace("- `ann/hours`: MIT, so its notice would have to be kept.", "As told:");
        let text = fixed(&bare, &sample_evidence());
        assert_eq!(check(&text, IssueNo(42), &DesignTestTree, &sample_evidence()), [], "{text}");
        assert_eq!(fixed(&text, &sample_evidence()), text);
        assert!(fixed(&bare, &ScoutEvidence::default()).contains(&table_rows(&[])[0]));
        let searched =
            ScoutEvidence { searched: [vec!["a b".into()], vec!["c".into()]], ..sample_evidence() };
        let line = "|\n\nSearched for: “a b”; then, after what was read: “c”.\n\n## What They";
        let fixed_text = fixed(
            &sample_brief().replace("|\n\n## What They", "|\n\nSearched for: everything.\n\n## What They"),
            &searched,
        );
        assert!(fixed_text.contains(line) && !fixed_text.contains("everything"), "{fixed_text}");
        assert_eq!(fixed(&fixed_text, &searched), fixed_text);
        assert_eq!(check(&fixed_text, IssueNo(42), &DesignTestTree, &searched), []);
        let wrong = sample_brief().replace("| MIT |", "| none |");
        assert_eq!(fixed(&wrong, &sample_evidence()), wrong);
    }

    #[test]
    fn unsourced_claims_in_a_brief_are_reported_as_mistakes() {
        for (right, wrong, rule) in [
            ("| 250 |", "| 999 |", "table.row"),
            ("| MIT |", "| Apache-2.0 |", "table.row"),
            ("`ann/hours`: MIT", "`ann/hours`: Apache-2.0", "licence"),
            ("No weeks.", "See https://github.com/ann/hours2 for it.", "link.unknown"),
            ("No weeks.", "See https://github.com/ann/hours/../../eve/x.", "link.unknown"),
            ("No weeks.", "See [it](//eve.example/x).", "link.unknown"),
            ("No weeks.", "See [it][1].\n\n[1]: /eve", "link.unknown"),
            ("No weeks.", "See www.eve.example for it.", "link.unknown"),
            ("No weeks.", "![it](http://eve.example/x.png)", "link.unknown"),
            ("No weeks.", "https://github.com@eve.example/ann/hours", "link.unknown"),
            ("([README](https://github.com/ann/hours#weeks))", "", "claims.source"),
        ] {
            let found = violated_rules(&sample_brief().replacen(right, wrong, 1), &sample_evidence());
            assert_eq!(found, [rule], "{wrong}");
        }
        let pages = ScoutEvidence { pages: vec!["https://weeks.example".into()], ..sample_evidence() };
        let with = |address: &str| violated_rules(&sample_brief().replacen("No weeks.", address, 1), &pages);
        assert_eq!(with("See https://weeks.example/ for it."), [""; 0]);
        assert_eq!(with("See https://weeks.example/download for it."), ["link.unknown"]);
        let other = sample_brief().replace("| `ann/hours` |", "| `eve/hours` |");
        assert_eq!(violated_rules(&other, &sample_evidence()), ["table.unknown", "table.missing"]);
    }

    #[test]
    fn long_quotations_of_a_source_are_refused() {
        let words = |count: usize| (10..10 + count).map(|n| format!("Word{n}, ")).collect::<String>();
        let with = |count| {
            violated_rules(&sample_brief().replacen("No weeks.", &words(count), 1), &sample_evidence())
        };
        assert_eq!(with(MOST_QUOTED), [""; 0]);
        assert_eq!(with(MOST_QUOTED + 1), ["copied"]);
    }
}
