//! A summary as a model is shown it.

use std::fmt::Write as _;

use super::{Item, Kind, Summary};

/// How much of a summary is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// The names of what is visible outside the file.
    Names,
    /// Imports, and the signatures of what is visible outside the file.
    Public,
    /// Everything, with what the docs say.
    All,
}

impl Summary {
    /// The summary as text: imports, then items in source order, each with the lines it takes up. Signatures are word
    /// for word; children stand further right than what holds them.
    pub fn page(&self, detail: Detail) -> String {
        let mut page = String::new();
        if let Some(doc) = self.doc.as_ref().filter(|_| detail != Detail::Names) {
            let _ = writeln!(page, "{doc}");
        }
        if detail != Detail::Names {
            let mut last = None;
            for import in &self.imports {
                if last != Some((import.line, &import.text)) {
                    lines(&mut page, &format!("L{}", import.line), 0, &import.text);
                }
                last = Some((import.line, &import.text));
            }
        }
        for item in &self.items {
            show(&mut page, item, detail, 0);
        }
        if self.partial {
            page.push_str("(parts of this file did not parse)\n");
        }
        page
    }
}

/// An item and its children. Nesting is bounded where summaries are made.
fn show(page: &mut String, item: &Item, detail: Detail, depth: usize) {
    if detail != Detail::All && !is_shown(item) {
        return;
    }
    let place = if item.line == item.end {
        format!("L{}", item.line)
    } else {
        format!("L{}-{}", item.line, item.end)
    };
    if detail == Detail::Names {
        if !matches!(item.kind, Kind::Field | Kind::Variant) {
            lines(page, &place, depth, &item.name);
        }
    } else {
        let cut = if item.cut { " …" } else { "" };
        lines(page, &place, depth, &format!("{}{cut}", item.signature));
        if let Some(doc) = item.doc.as_ref().filter(|_| detail == Detail::All) {
            lines(page, "", depth + 1, &format!("// {doc}"));
        }
    }
    for child in &item.children {
        show(page, child, detail, depth + 1);
    }
}

/// Public itself, or an extension with something public in it.
fn is_shown(item: &Item) -> bool {
    item.public || (item.kind == Kind::Extension && item.children.iter().any(|child| child.public))
}

/// A text behind its place, moved to where its depth wants it.
fn lines(page: &mut String, place: &str, depth: usize, text: &str) {
    for (at, line) in text.lines().enumerate() {
        let place = if at == 0 { place } else { "" };
        let _ = writeln!(page, "{place:<10} {:width$}{line}", "", width = depth * 2);
    }
}
