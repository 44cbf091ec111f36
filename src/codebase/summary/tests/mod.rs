//! Tests for summaries of every language.

mod languages;
mod outlines;
mod version;

use std::{fs, path::Path};

use super::*;
use crate::limits;

/// One difficult sample text per language.
const FIXTURES: &[(Language, &str)] = &[
    (Language::Bash, include_str!("samples/install.sh")),
    (Language::C, include_str!("samples/node.c")),
    (Language::Cpp, include_str!("samples/box.cpp")),
    (Language::CSharp, include_str!("samples/orders.cs")),
    (Language::Go, include_str!("samples/room.go")),
    (Language::Java, include_str!("samples/orders.java")),
    (Language::JavaScript, include_str!("samples/queue.js")),
    (Language::Php, include_str!("samples/controller.php")),
    (Language::Python, include_str!("samples/room.py")),
    (Language::Ruby, include_str!("samples/thing.rb")),
    (Language::Rust, include_str!("samples/room.rs.txt")),
    (Language::Tsx, include_str!("samples/thing.ts")),
    (Language::TypeScript, include_str!("samples/thing.ts")),
];

fn fixture(language: Language) -> &'static str {
    FIXTURES.iter().find(|(other, _)| *other == language).unwrap().1
}

/// Returns all items, parents before children.
pub(super) fn all(summary: &Summary) -> Vec<&CodeItem> {
    let mut found = Vec::new();
    let mut rest: Vec<&CodeItem> = summary.items.iter().rev().collect();
    while let Some(item) = rest.pop() {
        found.push(item);
        rest.extend(item.children.iter().rev());
    }
    found
}

/// Checks that every text in a summary occurs in the source at the given line.
pub(super) fn assert_exact(text: &str, summary: &Summary) {
    let lines: Vec<&str> = text.lines().collect();
    let stands = |first: u32, expected: &str| {
        for (at, line) in expected.lines().enumerate() {
            let there = lines.get(first as usize - 1 + at).copied().unwrap_or_default();
            assert!(there.contains(line), "{line:?} does not stand in line {first}+{at}: {there:?}");
        }
    };
    let items = all(summary);
    for item in &items {
        assert!(item.line >= 1 && item.line <= item.end && item.end as usize <= lines.len(), "{item:?}");
        assert!(!item.name.is_empty() && !item.signature.trim().is_empty(), "{item:?}");
        stands(item.line, &item.signature);
        assert!(is_named(item, &items), "{item:?}");
        for child in &item.children {
            // Outlines are read line by line and know only the first line.
            let within = item.line <= child.line && (child.end <= item.end || item.end == item.line);
            assert!(within, "{child:?} reaches out of {item:?}");
        }
    }
    for import in &summary.imports {
        stands(import.line, &import.text);
        let parts = import.module.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in parts.chain(import.names.iter().map(String::as_str)) {
            let expected = import.text.contains(name) || matches!(name, "default" | "*");
            assert!(expected, "{name:?} of {import:?}");
        }
    }
}

/// Returns whether a signature contains its item's name. If it does not, a later item must have that name, as in
/// `struct { … } name;`.
fn is_named(item: &CodeItem, items: &[&CodeItem]) -> bool {
    let contains_name = |item: &CodeItem| {
        item.name.split(|c: char| !c.is_alphanumeric() && c != '_').all(|word| item.signature.contains(word))
    };
    let behind =
        |other: &&&CodeItem| other.name == item.name && other.line >= item.line && contains_name(other);
    contains_name(item)
        || item.cut
        || matches!(item.name.as_str(), "default" | "exports")
        || items.iter().any(|other| behind(&other))
}

/// Renders a summary for snapshots: the documentation, the imports as `line module: names`, and the items as `kind name
/// // doc`. A dash marks private items, and braces enclose children.
fn page(language: Language, text: &str) -> String {
    fn render(item: &CodeItem) -> String {
        let public = if item.public { "" } else { " -" };
        let doc = item.doc.as_ref().map(|doc| format!(" // {doc}")).unwrap_or_default();
        let inner: Vec<String> = item.children.iter().map(render).collect();
        let inner = if inner.is_empty() { String::new() } else { format!(" {{ {} }}", inner.join("; ")) };
        format!("{:?} {}{public}{doc}{inner}", item.kind, item.name)
    }
    let summary = summarize(language, text);
    assert_exact(text, &summary);
    let mut page = summary.doc.iter().map(|doc| format!("// {doc}\n")).collect::<String>();
    for import in &summary.imports {
        let line = format!("{} {}: {}", import.line, import.module, import.names.join(" "));
        page.push_str(&format!("{}\n", line.trim_end()));
    }
    page + &summary.items.iter().map(|item| render(item) + "\n").collect::<String>()
}

pub(super) fn signature(language: Language, text: &str, name: &str) -> String {
    let summary = summarize(language, text);
    let found = all(&summary).into_iter().find(|item| item.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {summary:#?}")).signature.clone()
}

#[test]
fn crlf_and_byte_order_mark_do_not_change_the_summary() {
    for (language, text) in FIXTURES {
        let plain = summarize(*language, text);
        assert!(!plain.partial, "{language:?}: {}", plain.render(Detail::All));
        for other in [text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
            assert_exact(&other, &summarize(*language, &other));
            assert_eq!(summarize(*language, &other), plain, "{language:?}");
        }
        assert_eq!(summarize(*language, text), plain);
    }
}

#[test]
fn tabs_and_unusual_line_separators_do_not_change_the_summary() {
    for (language, text) in FIXTURES {
        // Tabs for four spaces change neither Python's blocks nor what is found in Go strings.
        let tabs = text.replace("    ", "\t");
        assert_exact(&tabs, &summarize(*language, &tabs));
        assert_eq!(page(*language, &tabs), page(*language, text), "{language:?}");
        let comment = match language {
            Language::Bash | Language::Python | Language::Ruby => "#",
            _ => "//",
        };
        let last = format!("{text}\n{comment} a\rb\u{2028}c\u{b}d\n\x0c\n");
        assert_eq!(page(*language, &last), page(*language, text), "{language:?}");
    }
}

#[test]
fn truncated_file_is_summarized_with_correct_line_numbers() {
    for (language, text) in FIXTURES {
        let carriage = text.replace('\n', "\r");
        assert_exact(&carriage, &summarize(*language, &carriage));
        for end in (0..text.len()).step_by(92).filter(|end| text.is_char_boundary(*end)) {
            assert_exact(&text[..end], &summarize(*language, &text[..end]));
            assert_exact(&text[end..], &summarize(*language, &text[end..]));
        }
    }
}

#[test]
#[ignore = "takes long"]
fn damaged_file_is_summarized_with_correct_line_numbers() {
    let mut seed = 1u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    for (language, text) in FIXTURES {
        for _ in 0..60 {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = b"{}()[]<>\"'`#/*\n\t\0:;,=\\"[random(21)],
                    1 => drop(bytes.drain(at..(at + random(40)).min(bytes.len()))),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            let damaged = String::from_utf8_lossy(&bytes).into_owned();
            assert_exact(&damaged, &summarize(*language, &damaged));
        }
    }
}

#[test]
fn only_the_item_with_a_syntax_error_is_omitted_from_the_summary() {
    let text = "pub fn before() {}\n\npub fn broken(a: u32, ) -> { } }\n\npub fn after(b: u8) {}\n";
    let summary = summarize(Language::Rust, text);
    assert!(summary.partial);
    let names: Vec<&str> = summary.items.iter().map(|item| item.name.as_str()).collect();
    assert!(names.contains(&"before") && names.contains(&"after"), "{names:?}");
    assert!(!names.contains(&"broken"), "{names:?}");
    assert!(summary.render(Detail::Names).ends_with("(parts of this file did not parse)\n"));
}

#[test]
#[ignore = "takes long"]
fn summary_nesting_and_size_are_limited() {
    for (language, _) in FIXTURES {
        for open in [
            "(",
            "[",
            "{",
            "mod a {",
            "class A {",
            "class A:\n",
            "namespace a {",
            "a(",
            "<a>",
            "if x {",
            "x = [",
        ] {
            let bytes = if open.len() == 1 { 100_000 } else { 10_000 };
            let text = open.repeat(bytes / open.len());
            assert_exact(&text, &summarize(*language, &text));
        }
        let long = "x".repeat(limits::SUMMARY_BYTES + 1);
        assert_eq!(summarize(*language, &long), Summary { partial: true, ..Summary::default() });
        assert_eq!(summarize(*language, ""), Summary::default());
    }
    let nested = summarize(Language::Rust, &("mod a {\n".repeat(100) + &"}".repeat(100)));
    assert!(nested.partial && all(&nested).len() == limits::SUMMARY_NESTING);
    let many = summarize(Language::Python, &"def f(): pass\n".repeat(limits::SUMMARY_ITEMS + 1));
    assert!(many.partial && many.items.len() == limits::SUMMARY_ITEMS);
}

fn kept(summary: &Summary) -> usize {
    let items = all(summary).into_iter().map(|item| {
        item.name.len()
            + item.signature.len()
            + item.doc.as_ref().map_or(0, String::len)
            + limits::SUMMARY_ITEM_BYTES
    });
    let imports = summary.imports.iter().map(|import| {
        import.text.len() + import.module.len() + import.names.iter().map(String::len).sum::<usize>()
    });
    items.chain(imports).sum()
}

#[test]
#[ignore = "takes long"]
fn summary_of_statements_with_many_names_stays_within_its_size_limit() {
    let many = |piece: &str| (0..40_000).map(|n| piece.replace('0', &n.to_string())).collect::<String>();
    let lines = |line: String| line.repeat(50);
    for (language, text) in [
        (Language::Rust, format!("use {{{}}};\n", many("a0::b,\n"))),
        (Language::Rust, "use {a::b, c::d, e::f, g::h, i::j, k::l, m::n};\n".repeat(10_000)),
        (Language::Rust, format!("use {}::{{{}z}};\n", "a".repeat(400), &many("b0::c,")[..6_000])),
        (Language::Python, format!("import {}c\n", many("a0.b, \\\n"))),
        (Language::Php, format!("<?php\nuse {}c;\n", many("a0\\b,\n"))),
        (Language::C, lines(format!("int {}z;\n", &many("a0,")[..1_500]))),
        (Language::C, lines(format!("struct a {{ int b; }} {}z;\n", &many("a0,")[..1_500]))),
        (Language::Go, format!("package a\n{}", lines(format!("var {}z int\n", &many("a0,")[..1_500])))),
    ] {
        let summary = summarize(language, &text);
        assert!(
            summary.partial && kept(&summary) <= kept_bytes_limit(&text),
            "{language:?}: {} bytes",
            kept(&summary)
        );
        assert_exact(&text, &summary);
    }
}

/// Summarizes long texts, each of which took minutes when the summary took quadratic time.
#[test]
#[ignore = "takes long"]
fn summary_of_long_repetitive_text_has_correct_line_numbers() {
    let nested = "#ifdef A\n#else\n".repeat(8_000) + &"#endif\n".repeat(8_000);
    let children =
        format!("class A\n{}{}end\n", "  attr :a\n".repeat(4_900), "  private :b\n".repeat(30_000));
    for (language, text) in [
        (Language::Cpp, format!("int a = (\n{nested});\n")),
        (Language::Cpp, "#define A_H\n".repeat(30_000)),
        (Language::Cpp, format!("}} {}", "AAA(".repeat(60_000))),
        (Language::Rust, "a!{}\n".repeat(50_000)),
        (Language::Rust, "use {a,b,c,d};\n".repeat(15_000)),
        (Language::Ruby, children),
        (Language::Json, format!("{{{}}}", "\"a\": 1,".repeat(30_000))),
    ] {
        assert_exact(&text, &summarize(language, &text));
    }
}

#[test]
#[ignore = "takes long"]
fn parsing_times_out_on_input_that_stalls_the_parser() {
    let nothing = Summary { partial: true, timed_out: true, ..Summary::default() };
    assert_eq!(summarize(Language::JavaScript, &"case x:".repeat(15_000)), nothing);
    assert_eq!(summarize(Language::Cpp, &"a<\n".repeat(100_000)), nothing);
    // The timeout does not affect the next text.
    let next = summarize(Language::JavaScript, "let a");
    assert!(next.items.len() == 1 && !next.timed_out);
}

#[test]
fn long_signature_is_cut_and_ends_with_an_ellipsis() {
    let text = format!("pub fn f(\n{}) {{}}\n", "    a: u32,\n".repeat(100));
    let summary = summarize(Language::Rust, &text);
    assert_exact(&text, &summary);
    let item = &summary.items[0];
    assert!(item.cut && item.signature.lines().count() == limits::SIGNATURE_LINES);
    assert!(summary.render(Detail::Public).ends_with("…\n"));

    let attributes = format!("{}fn g() {{}}\n", "#[a]\n".repeat(100));
    let summary = summarize(Language::Rust, &attributes);
    assert_eq!((summary.items[0].signature.as_str(), summary.items[0].line), ("fn g()", 101));
}

#[test]
fn source_files_of_this_project_are_summarized_completely() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let summary = summarize(Language::Rust, &text);
                assert_exact(&text, &summary);
                assert!(!summary.partial, "{path:?}");
                // Sample texts inside our tests also have items at the start of a line.
                if !path.ends_with("tests.rs")
                    && !path.parent().is_some_and(|folder| folder.ends_with("tests"))
                {
                    assert_whole(&path, &text, &summary);
                }
                files += 1;
            }
        }
    }
    assert!(files > 0);
}

/// Checks that every definition at the start of a line is in the summary.
fn assert_whole(path: &Path, text: &str, summary: &Summary) {
    for line in text.lines() {
        let starts = ["pub fn ", "pub async fn ", "pub struct ", "pub enum ", "pub trait ", "fn ", "struct "];
        let Some((start, rest)) = starts.iter().find_map(|start| Some((start, line.strip_prefix(start)?)))
        else {
            continue;
        };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let whole = format!("{start}{name}");
        let found = summary.items.iter().any(|item| item.name == name && item.signature.contains(&whole));
        assert!(found, "{path:?} has no {whole}");
    }
}

#[test]
fn summary_renders_at_three_levels_of_detail() {
    let text = "use a::b;\n/// Does it.\n#[inline]\npub fn go(\n    x: u8,\n) {\n}\nfn hidden() {}\npub struct S { pub x: u8, y: u8 }\n";
    let summary = summarize(Language::Rust, text);
    insta::assert_snapshot!(summary.render(Detail::All), @r"
    L1         use a::b;
    L3-7       #[inline]
               pub fn go(
                   x: u8,
               )
                 // Does it.
    L8         fn hidden()
    L9         pub struct S
    L9           pub x: u8
    L9           y: u8
    ");
    insta::assert_snapshot!(summary.render(Detail::Public), @r"
    L1         use a::b;
    L3-7       #[inline]
               pub fn go(
                   x: u8,
               )
    L9         pub struct S
    L9           pub x: u8
    ");
    insta::assert_snapshot!(summary.render(Detail::Names), @r"
    L3-7       go
    L9         S
    ");
}
