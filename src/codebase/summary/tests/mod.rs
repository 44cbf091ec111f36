//! What holds for summaries of every language.

use super::*;

/// Every item, those that hold others before them.
pub(super) fn all(summary: &Summary) -> Vec<&Item> {
    let mut found = Vec::new();
    let mut rest: Vec<&Item> = summary.items.iter().rev().collect();
    while let Some(item) = rest.pop() {
        found.push(item);
        rest.extend(item.children.iter().rev());
    }
    found
}

/// What a summary promises: what it prints stands in the source where it says.
pub(super) fn assert_exact(text: &str, summary: &Summary) {
    let lines: Vec<&str> = text.lines().collect();
    let stands = |first: u32, said: &str| {
        for (at, line) in said.lines().enumerate() {
            let there = lines.get(first as usize - 1 + at).copied().unwrap_or_default();
            assert!(there.contains(line), "{line:?} does not stand in line {first}+{at}: {there:?}");
        }
    };
    for item in all(summary) {
        assert!(item.line >= 1 && item.line <= item.end && item.end as usize <= lines.len(), "{item:?}");
        assert!(!item.name.is_empty() && !item.signature.trim().is_empty(), "{item:?}");
        stands(item.line, &item.signature);
    }
    for import in &summary.imports {
        stands(import.line, &import.text);
    }
}

/// The items of a text as `kind name`, children further right than what holds them.
pub(super) fn outline(language: Language, text: &str) -> String {
    fn write(items: &[Item], depth: usize, page: &mut String) {
        for item in items {
            let public = if item.public { "" } else { " -" };
            page.push_str(&format!("{:w$}{:?} {}{public}\n", "", item.kind, item.name, w = depth * 2));
            write(&item.children, depth + 1, page);
        }
    }
    let summary = summarize(language, text);
    assert_exact(text, &summary);
    let mut page = String::new();
    write(&summary.items, 0, &mut page);
    page
}

#[test]
fn rust_in_short() {
    let text = "//! A room. More.\nuse std::{fmt::{self, Write as _}, sync::Arc};\n\n/// One thing.\n#[derive(Debug)]\npub struct A<T = u8>\nwhere\n    T: Copy,\n{\n    pub x: T,\n}\nimpl A {\n    pub(crate) async fn go(&self) -> u8 { f() }\n}\n";
    let (summary, uses) = read(Language::Rust, text);
    assert_exact(text, &summary);
    insta::assert_snapshot!(summary.page(Detail::All), @r"
    A room.
    L2         use std::{fmt::{self, Write as _}, sync::Arc};
    L5-11      #[derive(Debug)]
               pub struct A<T = u8>
               where
                   T: Copy,
                 // One thing.
    L10          pub x: T
    L12-14     impl A
    L13          pub(crate) async fn go(&self) -> u8
    ");
    assert_eq!(uses, ["Copy", "Debug", "f"]);
    insta::assert_snapshot!(outline(Language::Rust, text), @r"
    Type A
      Field x
    Extension A -
      Method go
    ");
}
