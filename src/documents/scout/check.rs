//! Everything code can find wrong with a brief, in one list, so that a drafter mends it in one go.

use std::collections::HashSet;

use pulldown_cmark::{Event, Parser, Tag};
use url::Url;

use super::{
    DIFFERENTLY, EXISTS, LICENCES, NOTHING, SCHEMA, ScoutEvidence, items, parse, repositories, rows,
};
use crate::{
    documents::{DocumentMistake, FileTree, lld, markdown, shown_path},
    types::IssueNo,
};

/// Words of a source that may stand in a row: longer is a copy.
pub(super) const MOST_QUOTED: usize = 25;

/// Told of at once.
const MOST_MISTAKES: usize = 100;

/// What is wrong with its form, and with what it says of others.
pub fn check(text: &str, issue: IssueNo, tree: &dyn FileTree, known: &ScoutEvidence) -> Vec<DocumentMistake> {
    if let Some(mistake) = lld::unreadable(text) {
        return vec![mistake];
    }
    let mut out = Vec::new();
    lld::form(SCHEMA, text, &parse(text), issue, tree, &mut out);
    table(text, known, &mut out);
    links(text, known, &mut out);
    claims(text, known, &mut out);
    licences(text, known, &mut out);
    copied(text, known, &mut out);
    out.truncate(MOST_MISTAKES);
    out
}

fn say(out: &mut Vec<DocumentMistake>, rule: &'static str, section: &str, message: String) {
    out.push(DocumentMistake::error(rule, SCHEMA.title(section), message));
}

/// It has the repositories that were found, with what GitHub tells of them, and no other.
fn table(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    let rows_there = repositories(text);
    if known.found.is_empty() {
        if !matches!(rows_there.as_slice(), [row] if row[0] == NOTHING) {
            let message = format!("nothing was found, so its one row is `{}`", rows(&[])[0]);
            say(out, "table.nothing", EXISTS, message);
        }
        return;
    }
    for row in &rows_there {
        let name = shown_path(&row[0]);
        let Some(source) = known.found.iter().find(|source| source.name == row[0]) else {
            say(
                out,
                "table.unknown",
                EXISTS,
                format!("`{name}` was not found by the search; leave its row out"),
            );
            continue;
        };
        let wanted = source.cells().map(|cell| cell.trim_matches('`').to_owned());
        if *row != wanted {
            let message =
                format!("the row of `{name}` is not as it was found; write `{}`", wanted.join(" | "));
            say(out, "table.row", EXISTS, message);
        }
    }
    for source in known.found.iter().filter(|source| !rows_there.iter().any(|row| row[0] == source.name)) {
        say(out, "table.missing", EXISTS, format!("`{}` was found and has no row; add it", source.name));
    }
}

/// Each address is that of a source, or below one.
fn links(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    for address in addresses(text).into_iter().filter(|address| !is_known(address, known)) {
        let message =
            format!("`{}` is none of the sources that were read; leave it out", shown_path(&address));
        say(out, "link.unknown", &section_of(text, &address), message);
    }
}

fn section_of(text: &str, piece: &str) -> String {
    let at = text.find(piece).unwrap_or(0);
    let sections = parse(text).sections;
    sections.iter().find(|s| s.body.contains(&at)).map_or("1".to_owned(), |section| section.number.clone())
}

/// What leads somewhere: by Markdown, and by GitHub's habit of making links out of bare addresses.
fn addresses(text: &str) -> Vec<String> {
    let linked = Parser::new_ext(text, markdown::options()).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
        _ => None,
    });
    let mut all: Vec<String> = linked.collect();
    all.extend(markdown::bare_addresses(text));
    all.sort();
    all.dedup();
    all
}

/// As a browser would go there: `..` leads out of what it stands below.
fn is_known(address: &str, known: &ScoutEvidence) -> bool {
    let Ok(url) = Url::parse(address) else { return false };
    let below = |base: &str| {
        let rest = url.as_str().strip_prefix(base.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '#', '?']))
    };
    let bases = known.found.iter().map(|source| &source.url).chain([&known.issue]);
    bases.filter(|base| !base.is_empty()).any(|base| below(base))
        || known.pages.iter().any(|page| Url::parse(page).is_ok_and(|page| page == url))
}

/// Each claim says where it is from.
fn claims(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    if known.found.is_empty() {
        return;
    }
    let items = items(text, DIFFERENTLY);
    if items.is_empty() {
        say(out, "claims.none", DIFFERENTLY, "there is no list; write one claim an item".to_owned());
    }
    for (n, _) in items.iter().enumerate().filter(|(_, item)| addresses(item).is_empty()) {
        say(
            out,
            "claims.source",
            DIFFERENTLY,
            format!("item {} has no link to the source that says it", n + 1),
        );
    }
}

fn licences(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    let items = items(text, LICENCES);
    for source in &known.found {
        let (name, licence) = (format!("`{}`", source.name), source.licence());
        if !items.iter().any(|item| item.contains(&name) && item.contains(licence)) {
            let message = format!("no item names {name} with its licence as GitHub tells it: {licence}");
            say(out, "licence", LICENCES, message);
        }
    }
}

/// So many words in a row that stand in a source as well are not the drafter's own.
fn copied(text: &str, known: &ScoutEvidence, out: &mut Vec<DocumentMistake>) {
    let rows: HashSet<Vec<String>> =
        known.texts.iter().flat_map(|source| in_a_row(source).collect::<Vec<_>>()).collect();
    if let Some(row) = in_a_row(text).find(|row| rows.contains(row)) {
        let begins = row[..4].join(" ");
        let message = format!(
            "more than {MOST_QUOTED} words in a row are a source's, from “{begins} …”; say it in your own words"
        );
        out.push(DocumentMistake::error("copied", "document", message));
    }
}

/// All rows of one word more than may be quoted.
fn in_a_row(text: &str) -> impl Iterator<Item = Vec<String>> {
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

    fn known() -> ScoutEvidence {
        let source = ScoutSource {
            name: "ann/hours".into(),
            url: URL.into(),
            stars: 250,
            licence: Some("MIT".into()),
        };
        let words: Vec<_> = (0..60).map(|n| format!("word{n}")).collect();
        ScoutEvidence { found: vec![source], texts: vec![words.join(" ")], ..ScoutEvidence::default() }
    }

    fn brief() -> String {
        format!(
            "# 42 - Scout: Weeks\n\n## Question\n\nHow do others add up weeks?\n\n## What Exists\n\n| Repository | Stars \
             | Licence | Link |\n|---|---|---|---|\n{}\n\n## What They Do Differently\n\n- It counts by ISO week \
             ([README]({URL}#weeks)).\n\n## Gaps Here\n\nNo weeks.\n\n## Recommendations\n\nUse ISO weeks.\n\n## \
             Licences\n\n- `ann/hours`: MIT, so its notice would have to be kept.\n",
            rows(&known().found)[0]
        )
    }

    fn rules(text: &str, known: &ScoutEvidence) -> Vec<String> {
        check(text, IssueNo(42), &DesignTestTree, known)
            .iter()
            .map(|mistake| mistake.rule.to_string())
            .collect()
    }

    #[test]
    fn a_brief_of_what_was_found_is_sound() {
        assert_eq!(check(&brief(), IssueNo(42), &DesignTestTree, &known()), []);
        assert!(super::super::place_exists(&brief(), "ann/hours", &DesignTestTree));
        let none = ScoutEvidence::default();
        let empty = brief().replace(&rows(&known().found)[0], &rows(&[])[0]);
        let empty = empty.replace(&format!("- It counts by ISO week ([README]({URL}#weeks))."), "None.");
        assert_eq!(check(&empty, IssueNo(42), &DesignTestTree, &none), []);
        assert_eq!(rules(&empty, &known()), ["table.unknown", "table.missing", "claims.none"]);
    }

    #[test]
    fn what_code_knows_is_added_and_what_is_wrong_is_left() {
        let fixed = |text: &str, known: &ScoutEvidence| super::super::fix(text, IssueNo(42), known);
        let row = format!("\n{}", rows(&known().found)[0]);
        let bare = brief()
            .replace(&row, "")
            .replace("- `ann/hours`: MIT, so its notice would have to be kept.", "As told:");
        let text = fixed(&bare, &known());
        assert_eq!(check(&text, IssueNo(42), &DesignTestTree, &known()), [], "{text}");
        assert_eq!(fixed(&text, &known()), text);
        assert!(fixed(&bare, &ScoutEvidence::default()).contains(&rows(&[])[0]));
        let searched = ScoutEvidence { searched: [vec!["a b".into()], vec!["c".into()]], ..known() };
        let line = "|\n\nSearched for: “a b”; then, after what was read: “c”.\n\n## What They";
        let told = fixed(
            &brief().replace("|\n\n## What They", "|\n\nSearched for: everything.\n\n## What They"),
            &searched,
        );
        assert!(told.contains(line) && !told.contains("everything"), "{told}");
        assert_eq!(fixed(&told, &searched), told);
        assert_eq!(check(&told, IssueNo(42), &DesignTestTree, &searched), []);
        let wrong = brief().replace("| MIT |", "| none |");
        assert_eq!(fixed(&wrong, &known()), wrong);
    }

    #[test]
    fn what_was_not_found_goes_back() {
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
            let found = rules(&brief().replacen(right, wrong, 1), &known());
            assert_eq!(found, [rule], "{wrong}");
        }
        let pages = ScoutEvidence { pages: vec!["https://weeks.example".into()], ..known() };
        let with = |address: &str| rules(&brief().replacen("No weeks.", address, 1), &pages);
        assert_eq!(with("See https://weeks.example/ for it."), [""; 0]);
        assert_eq!(with("See https://weeks.example/download for it."), ["link.unknown"]);
        let other = brief().replace("| `ann/hours` |", "| `eve/hours` |");
        assert_eq!(rules(&other, &known()), ["table.unknown", "table.missing"]);
    }

    #[test]
    fn few_words_of_a_source_may_stand_in_a_row() {
        let words = |count: usize| (10..10 + count).map(|n| format!("Word{n}, ")).collect::<String>();
        let with = |count| rules(&brief().replacen("No weeks.", &words(count), 1), &known());
        assert_eq!(with(MOST_QUOTED), [""; 0]);
        assert_eq!(with(MOST_QUOTED + 1), ["copied"]);
    }
}
