//! What can be said of a text without a grammar: the lines that look like definitions, headings, tables of settings or
//! targets.
//!
//! Line by line, so a line is never wrong; what spans lines (fences, block comments, strings in three quotes) is told
//! apart as far as it says so itself. Better nothing than a guess: prose that begins with a keyword is no definition.

mod keywords;
mod notations;

use super::{Item, Kind, Summary};
use crate::{codebase::Language, limits};

pub(super) fn read(language: Language, text: &str) -> Summary {
    let mut summary = Summary::default();
    let items = match language {
        Language::Json => notations::json(text),
        Language::Makefile => notations::makefile(text, &mut summary.imports),
        Language::Markdown => notations::markdown(text),
        Language::Toml => notations::toml(text),
        Language::Yaml => notations::yaml(text),
        _ => keywords::read(text, &mut summary.imports),
    };
    summary.partial = items.full;
    summary.items = items.nested();
    summary
}

/// What is found, in order, each with how deep it stands.
struct Items {
    found: Vec<(usize, Item)>,
    /// Bytes that may be kept yet.
    room: usize,
    /// There was more.
    full: bool,
}

impl Items {
    fn of(text: &str) -> Self {
        Self { found: Vec::new(), room: super::room(text), full: false }
    }

    /// A piece of a line, which is numbered from 0, as it stands there.
    fn add(&mut self, kind: Kind, name: &str, piece: &str, row: usize, depth: usize) {
        let (name, signature) = (name.trim(), piece.trim());
        if name.is_empty() || signature.is_empty() || signature.len() > limits::SIGNATURE_BYTES {
            return;
        }
        let bytes = name.len() + signature.len() + limits::SUMMARY_ITEM_BYTES;
        if self.found.len() >= limits::SUMMARY_ITEMS || bytes > self.room {
            self.full = true;
            return;
        }
        self.room -= bytes;
        let line = super::walk::line(row);
        self.found.push((
            depth,
            Item {
                kind,
                name: name.to_owned(),
                signature: signature.to_owned(),
                cut: false,
                line,
                end: line,
                doc: None,
                public: true,
                children: Vec::new(),
            },
        ));
    }

    fn last(&mut self) -> Option<&mut Item> {
        self.found.last_mut().map(|(_, item)| item)
    }

    /// Every section ends where the next one begins that is no part of it.
    fn ended(mut self, lines: usize) -> Self {
        let mut open: Vec<usize> = Vec::new();
        for at in 0..self.found.len() {
            let (depth, before) = (self.found[at].0, self.found[at].1.line.saturating_sub(1));
            while let Some(last) = open.pop_if(|last| self.found[*last].0 >= depth) {
                self.found[last].1.end = before.max(self.found[last].1.line);
            }
            open.push(at);
        }
        let end = super::walk::line(lines.saturating_sub(1));
        for last in open {
            self.found[last].1.end = end.max(self.found[last].1.line);
        }
        self
    }

    /// Each in what stands above it and less deep.
    fn nested(self) -> Vec<Item> {
        let mut items = Vec::new();
        let mut open: Vec<(usize, Item)> = Vec::new();
        for (depth, item) in self.found {
            close(&mut open, &mut items, |outer, nesting| {
                outer >= depth || nesting >= limits::SUMMARY_NESTING
            });
            open.push((depth, item));
        }
        close(&mut open, &mut items, |_, _| true);
        items
    }
}

/// Puts what is done into what holds it.
fn close(open: &mut Vec<(usize, Item)>, items: &mut Vec<Item>, is_done: impl Fn(usize, usize) -> bool) {
    while let Some((outer, _)) = open.last()
        && is_done(*outer, open.len())
        && let Some((_, done)) = open.pop()
    {
        open.last_mut().map_or(&mut *items, |(_, holder)| &mut holder.children).push(done);
    }
}

/// What a line is preceded by in columns, a tab to the next fourth.
fn indentation(line: &str) -> usize {
    line.chars()
        .take_while(|c| matches!(c, ' ' | '\t'))
        .fold(0, |at, c| if c == '\t' { (at / 4 + 1) * 4 } else { at + 1 })
}

#[cfg(test)]
mod tests;
