//! Renders a summary as text that is shown to a model.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{CodeItem, CodeItemKind, Summary};

/// Level of detail of a rendered summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Names of the items that are visible outside the file. If the file has no such items, the names of all its items.
    Names,
    /// Imports, and the signatures of the items that are visible outside the file. If the file has no such items, the
    /// signatures of all its items.
    Public,
    /// Imports, and the signatures and documentation of all items.
    All,
}

impl Summary {
    /// Renders the imports, followed by the items in source order, each with its line numbers. Signatures are verbatim.
    /// Children are indented below their parent.
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
        // A program, test or script has nothing public, so everything is shown.
        let all = detail == Detail::All || !self.items.iter().any(is_shown);
        write_items(&mut page, &self.items, detail, all, 0);
        if self.partial {
            page.push_str("(parts of this file did not parse)\n");
        }
        page
    }
}

/// Writes items with their children. The depth of the recursion is bounded, because summaries limit the nesting of
/// items.
fn write_items(page: &mut String, items: &[CodeItem], detail: Detail, all: bool, depth: usize) {
    let mut before: Option<&CodeItem> = None;
    for item in items.iter().filter(|item| all || is_shown(item)) {
        let place = match (item.line, item.end) {
            (line, end) if line == end => format!("L{line}"),
            (line, end) => format!("L{line}-{end}"),
        };
        // `a, b int` gives two items with one signature; print it once.
        let printed = before.is_some_and(|last| last.line == item.line && last.signature == item.signature);
        before = Some(item);
        match detail {
            Detail::Names if matches!(item.kind, CodeItemKind::Field | CodeItemKind::Variant) => {}
            Detail::Names => write_lines(page, &place, depth, &item.name),
            _ if printed => {}
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

/// Whether an item is public, or is an extension with a public child.
fn is_shown(item: &CodeItem) -> bool {
    item.public || (item.kind == CodeItemKind::Extension && item.children.iter().any(|child| child.public))
}

/// Writes a text after its line number. The text is indented by `depth`. The lines after the first keep their
/// indentation relative to each other.
fn write_lines(page: &mut String, place: &str, depth: usize, text: &str) {
    let blank = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let margin = text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(blank).min().unwrap_or(0);
    for (at, line) in text.lines().enumerate() {
        let (place, margin) = if at == 0 { (place, 0) } else { ("", margin) };
        let line = line.get(margin..).unwrap_or_default().trim_end();
        let _ = writeln!(page, "{place:<10} {:width$}{line}", "", width = depth * 2);
    }
}
