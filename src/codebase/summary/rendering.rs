//! A summary as a model is shown it.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{CodeItem, CodeItemKind, Summary};

/// How much of a summary is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The names of what is visible outside the file; of all there is, if nothing is.
    Names,
    /// Imports, and the signatures of the same.
    Public,
    /// Everything, with what the docs say.
    All,
}

impl Summary {
    /// The summary as text: imports, then items in source order, each with the lines it takes up. Signatures are word
    /// for word; children stand further right than what holds them.
    pub fn render(&self, detail: Detail) -> String {
        let mut page = String::new();
        if detail != Detail::Names {
            if let Some(doc) = &self.doc {
                let _ = writeln!(page, "{doc}");
            }
            let mut seen = BTreeSet::new();
            for import in self.imports.iter().filter(|import| seen.insert(&import.text)) {
                write_lines(&mut page, &format!("L{}", import.line), 0, &import.text);
            }
        }
        // Of a program, a test or a script nothing is visible outside, and all of it matters.
        let all = detail == Detail::All || !self.items.iter().any(is_shown);
        write_items(&mut page, &self.items, detail, all, 0);
        if self.partial {
            page.push_str("(parts of this file did not parse)\n");
        }
        page
    }
}

/// Items with what they hold. Nesting is bounded where summaries are made.
fn write_items(page: &mut String, items: &[CodeItem], detail: Detail, all: bool, depth: usize) {
    let mut before: Option<&CodeItem> = None;
    for item in items.iter().filter(|item| all || is_shown(item)) {
        let place = match (item.line, item.end) {
            (line, end) if line == end => format!("L{line}"),
            (line, end) => format!("L{line}-{end}"),
        };
        // `a, b int` is two items with one signature.
        let said = before.is_some_and(|last| last.line == item.line && last.signature == item.signature);
        before = Some(item);
        match detail {
            Detail::Names if matches!(item.kind, CodeItemKind::Field | CodeItemKind::Variant) => {}
            Detail::Names => write_lines(page, &place, depth, &item.name),
            _ if said => {}
            _ => {
                write_lines(page, &place, depth, &item.signature);
                if item.cut {
                    write_lines(page, "", depth + 1, "…");
                }
                if let Some(doc) = item.doc.as_ref().filter(|_| detail == Detail::All) {
                    write_lines(page, "", depth + 1, &format!("// {doc}"));
                }
            }
        }
        write_items(page, &item.children, detail, all, depth + 1);
    }
}

/// Public itself, or an extension with something public in it.
fn is_shown(item: &CodeItem) -> bool {
    item.public || (item.kind == CodeItemKind::Extension && item.children.iter().any(|child| child.public))
}

/// A text behind its place, its first line as far right as its depth wants it, and the others by how far they stand from
/// each other.
fn write_lines(page: &mut String, place: &str, depth: usize, text: &str) {
    let blank = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let margin = text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(blank).min().unwrap_or(0);
    for (at, line) in text.lines().enumerate() {
        let (place, margin) = if at == 0 { (place, 0) } else { ("", margin) };
        let line = line.get(margin..).unwrap_or_default().trim_end();
        let _ = writeln!(page, "{place:<10} {:width$}{line}", "", width = depth * 2);
    }
}
