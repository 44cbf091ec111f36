use super::*;
use crate::documents::{lld, markdown::parse_outline};

const ISSUE: &str = "Exit with 2 on an empty file.\n\n## Logs\n\n```text\nline 1 of the log\nline 2 of the log\nline 3 of the log\nline 4 of the log\nline 5 of the log\nline 6 of the log\nline 7 of the log\nline 8 of the log\n```\n\n\
    ## Acceptance criteria\n\n- exit status 2\n- a sentence on standard error\n";

#[test]
fn shortening_keeps_important_sections_anywhere_in_the_issue() {
    let cut = shorten(ISSUE, &issue_section_rank, 160);
    insta::assert_snapshot!(cut.text, @r"
    Exit with 2 on an empty file.

    ## Logs

    [… 10 lines of “Logs” left out …]

    ## Acceptance criteria

    - exit status 2
    - a sentence on standard error
    ");
    assert_eq!(cut.cuts, [SectionCut { section: "Logs".to_owned(), lines: 10, bytes: 157 }]);
    let less = shorten(ISSUE, &issue_section_rank, 230);
    assert!(
        less.text
            .contains("```text\nline 1 of the log\nline 2 of the log\nline 3 of the log\n```\n\n[… 6 lines of “Logs” left out …]\n\n## Acc"),
        "{}",
        less.text
    );
    assert_eq!(shorten(ISSUE, &issue_section_rank, ISSUE.len()).text, ISSUE);
}

#[test]
fn long_block_is_cut_and_short_blocks_of_the_same_rank_are_kept() {
    let log = "A line of a long log.\n".repeat(4000);
    let text = format!("Wanted: exit status 2.\n\n{log}\nIt must be said on standard error.\n");
    let cut = shorten(&text, &issue_section_rank, 1000);
    assert!(cut.text.starts_with("Wanted: exit status 2.\n\nA line of a long log.\n"), "{}", cut.text);
    assert!(cut.text.ends_with("lines left out …]\n\nIt must be said on standard error.\n"), "{}", cut.text);
    assert!((900..=1000).contains(&cut.text.len()), "{}", cut.text.len());
    for endless in ["word ".repeat(50_000), "語".repeat(50_000), "x".repeat(200_000)] {
        let cut = shorten(&endless, &issue_section_rank, 10_000);
        assert!((8500..=10_000).contains(&cut.text.len()), "{}", cut.text.len());
    }
}

#[test]
fn log_above_the_first_heading_is_cut_and_later_sections_are_kept() {
    let log = "A line of a log.\n".repeat(4000);
    let text = format!("{log}\n## Acceptance criteria\n\n- exit status 2\n- a sentence on standard error\n");
    let cut = shorten(&text, &issue_section_rank, 60_000);
    assert!(cut.text.ends_with("- exit status 2\n- a sentence on standard error\n"), "{}", cut.cuts.len());
    assert_eq!(cut.cuts.len(), 1);
}

#[test]
fn section_titles_are_ranked_by_whole_words() {
    for (title, rank) in [
        ("Login dialog", None),
        ("Server logs", Some(8)),
        ("Log output", Some(8)),
        ("Conversion", None),
        ("Expected behaviour", Some(1)),
        ("Steps", None),
    ] {
        assert_eq!(issue_section_rank(title), rank, "{title}");
    }
    assert!(
        has_word_beginning("The Code of Conduct!", &["code of conduct "])
            && !has_word_beginning("Authorization", &["author "])
    );
}

#[test]
fn shortened_tables_keep_headers_and_shortened_lists_keep_item_numbers() {
    let rows: String = (0..40).map(|n| format!("| {n} | a cell of words |\n")).collect();
    let items: String = (1..40).map(|n| format!("{n}. an item of words\n   and more\n")).collect();
    let text = format!("# T\n\n| N | W |\n|---|---|\n{rows}\n## List\n\n{items}");
    let cut = shorten(&text, &|_| None, 700);
    let seen = parse_outline(&cut.text);
    assert_eq!(seen.tables[0].header, ["N", "W"]);
    assert!((3..20).contains(&seen.tables[0].rows.len()), "{}", cut.text);
    assert!(seen.items.iter().zip(1..).all(|(item, n)| item.number == Some(n)), "{}", cut.text);
    assert!(cut.text.contains("lines of “List” left out"), "{}", cut.text);
}

#[test]
fn shortening_cuts_design_sections_in_the_order_of_their_rank() {
    let text = "# 5 - Feature: T\n\n## 1. Context & Goal\n\nThe goal, in a few sentences that say what is wanted.\n\n\
        ### 2.1 Files Changed\n\n| File | Change Type | Description |\n|---|---|---|\n| `src/lib.rs` | Modify | more words |\n\n\
        ## 6. Diagram\n\n```mermaid\n# not a heading\ngraph LR\n  a --> b\n  b --> c\n```\n\n## 20. Musings\n\nSome words that nobody asked for, at \
        some length.\n\n## 3. Requirements\n\n1. One thing that is wanted.\n2. Another thing that is wanted.\n";
    let mut order: Vec<String> = Vec::new();
    for room in (270..text.len()).rev() {
        let cut = shorten(text, &lld::section_rank, room);
        assert!(
            cut.text.contains("| `src/lib.rs` | Modify |") && cut.text.contains("2. Another thing"),
            "{}",
            cut.text
        );
        for cut in cut.cuts {
            if !order.contains(&cut.section) {
                order.push(cut.section);
            }
        }
    }
    order.retain(|section| section != "5 - Feature: T");
    assert_eq!(order, ["6. Diagram", "20. Musings", "1. Context & Goal"]);
    let tiny = shorten(text, &lld::section_rank, 60);
    assert!(tiny.text.len() <= 60 && tiny.text.contains("2.1 Files Changed"), "{}", tiny.text);
    assert_eq!(shorten(text, &lld::section_rank, 0).text, "");
}

/// Returns random Markdown. The same seed gives the same text.
fn random_markdown(seed: u64) -> String {
    const BLOCKS: &[&str] = &[
        "## 3. Requirements\n\n",
        "# Embedded\n\n",
        "### 2.1 Files Changed\n\n",
        "## 6. Diagram\n\n",
        "Setext\n===\n\n",
        "One line.\nAnother line of a paragraph.\nAnd a third one.\n\n",
        "```rust\n## 3. Requirements\n\nfn a() {}\n\n}\n```\n\n",
        "~~~~\n```\n# x\n~~~\n```\n~~~~\n",
        "    indented code\n\n    ``` more of it\n\n",
        "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | `|` |\n| 5 | 6 |\n\n",
        "- one\n- two\n\n  ```\n  - code\n  ```\n- three\n\n",
        "1. one\n2. two\n3. three\n\n",
        "> quoted\n> ```\n> # code\n\n",
        "<!-- a comment\n\n# of lines\n\n-->\n\n",
        "<details>\n<summary>s</summary>\n\n",
        "</details>\n",
        "```a `b` not a fence ```\n",
        "``` `` words that go on ``` and on\n",
        "---\n\n",
        "[name]: https://example.com\n\n",
        "é語🦀 \u{0}\r\nwith CR\r\n\r\n",
        "``` text\nunclosed? ",
        "\t- tabbed\n",
        "* * *\n",
        "\n\n\n",
    ];
    let mut seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize
    };
    (0..20).map(|_| BLOCKS[next() % BLOCKS.len()]).collect()
}

#[test]
#[ignore = "takes long"]
fn shortening_does_not_change_how_the_kept_text_is_parsed() {
    for seed in 0..600 {
        let text = random_markdown(seed);
        let before = parse_outline(&text);
        for room in [text.len() * 9 / 10, text.len() * 2 / 3, text.len() / 2, text.len() / 4, 20] {
            let cut = shorten(&text, &lld::section_rank, room);
            assert!(cut.text.len() <= room, "{seed} {room}");
            let after = parse_outline(&cut.text);
            let titles = |o: &markdown::MarkdownOutline| {
                o.headings.iter().map(|h| (h.level, h.text.clone())).collect::<Vec<_>>()
            };
            let (kept, had) = (titles(&after), titles(&before));
            if cut.text.contains("the rest is left out") || cut.text.contains("section") || kept.is_empty() {
                let mut had = had.iter();
                assert!(
                    kept.iter().all(|title| had.any(|known| known == title)),
                    "{seed} {room}: {kept:?}\n{}",
                    cut.text
                );
                continue;
            }
            assert_eq!(kept, had, "{seed} {room}: {text}\n-----\n{}", cut.text);
            let mut blocks = before.code_blocks.iter();
            for block in &after.code_blocks {
                assert!(
                    blocks.any(|known| known.text.starts_with(block.text.trim_end())),
                    "{seed} {room}: {:?}\n{text}\n-----\n{}",
                    block.text,
                    cut.text
                );
            }
            let mut tables = before.tables.iter();
            for table in &after.tables {
                let rows = |table: &markdown::MarkdownTable| {
                    table.rows.iter().map(|row| row.cells.clone()).collect::<Vec<_>>()
                };
                assert!(
                    tables.any(|known| known.header == table.header && rows(known).starts_with(&rows(table))),
                    "{seed} {room}"
                );
            }
        }
    }
}

#[test]
#[ignore = "takes long"]
fn less_important_sections_are_cut_first() {
    for seed in 0..1000 {
        let text = random_markdown(seed);
        let whole = split_sections(&text, &lld::section_rank);
        for room in [text.len() * 9 / 10, text.len() * 2 / 3, text.len() / 2] {
            let cut = shorten(&text, &lld::section_rank, room);
            if cut.text.contains("the rest is left out") || cut.text.is_empty() {
                continue;
            }
            let touched = cut.cuts.iter().filter_map(|cut| {
                whole.iter().filter(|section| section.title == cut.section).map(|section| section.rank).max()
            });
            let Some(best_rank) = touched.min() else { continue };
            for section in whole.iter().filter(|section| section.rank > best_rank) {
                let body = section.blocks.iter().map(|block| &text[block.range.clone()]).collect::<String>();
                let gone = cut.cuts.iter().any(|cut| cut.section == section.title);
                assert!(body.trim().is_empty() || gone, "{seed} {room}: {} is whole", section.title);
            }
        }
    }
}

#[test]
fn issue_text_after_an_unclosed_fence_is_kept() {
    let log = "2026-03-02 09:00:00 INFO tally: read a line\n".repeat(1_500);
    let text = format!("It is slow.\n\n```\n{log}\n### What I want\n\nWANTED: weeks start on Monday.\n");
    let short = shorten(&text, &issue_section_rank, 60_000).text;
    assert!(short.len() <= 60_000 && short.contains("lines left out"), "{}", short.len());
    assert!(short.contains("### What I want\n\nWANTED: weeks start on Monday.\n"), "{}", &short[59_000..]);
    assert_eq!(short.matches("```").count(), 2);
}
