//! Code that is made as what matters most is: where to look how such things are done here.

use super::{Candidate, Role};
use crate::codebase::{Index, Item, Kind, alike};

/// An item of a file, to be shown beside the one that it is like.
pub(super) struct Example {
    pub(super) path: String,
    pub(super) lines: (u32, u32),
    pub(super) value: f64,
    pub(super) why: String,
}

/// Files, and items of each, that are looked for others like them; each is compared with all there are.
const FILES: usize = 3;
const ITEMS: usize = 2;
/// Examples of one item.
const EXAMPLES: usize = 3;
/// What is less like it than this shows nothing.
const LEAST: f64 = 0.4;
/// Words that they share, the rarest first, of which a reason tells.
const WORDS: usize = 3;
/// Of the value of the best file, that of an example that is the same in all.
const VALUE: f64 = 0.25;

/// For the first of some files that have code that matters.
pub(super) fn of(index: &Index, candidates: &[Candidate]) -> Vec<Example> {
    let matters = |candidate: &&Candidate| {
        matches!(candidate.role, Role::Named | Role::Found) && !candidate.items.is_empty()
    };
    let mut found = Vec::new();
    for candidate in candidates.iter().filter(matters).take(FILES) {
        let items = candidate.items.iter().filter_map(|lines| item(index, &candidate.path, *lines));
        for item in items.filter(|item| is_made(item)).take(ITEMS) {
            let alike = alike(index, &candidate.path, item).into_iter();
            let alike = alike.filter(|other| other.score >= LEAST && other.path != candidate.path);
            found.extend(alike.take(EXAMPLES).filter_map(|other| {
                let name = &self::item(index, &other.path, other.lines)?.name;
                let words = other.words.iter().take(WORDS).map(String::as_str).collect::<Vec<_>>().join(", ");
                let also = if other.same_parameters { ", and as many parameters" } else { "" };
                let why = format!("{name} is made like {} of {}: {words}{also}", item.name, candidate.path);
                Some(Example { path: other.path, lines: other.lines, value: VALUE * other.score, why })
            }));
        }
    }
    found
}

fn is_made(item: &Item) -> bool {
    matches!(item.kind, Kind::Function | Kind::Method | Kind::Type | Kind::Interface | Kind::Enum)
}

/// The item of a file that has these lines, the outermost of several.
fn item<'i>(index: &'i Index, path: &str, lines: (u32, u32)) -> Option<&'i Item> {
    let mut items = &index.file(path)?.digest.summary().items;
    loop {
        if let Some(item) = items.iter().find(|item| (item.line, item.end) == lines) {
            return Some(item);
        }
        let around = |item: &&Item| item.line <= lines.0 && lines.1 <= item.end && !item.children.is_empty();
        items = &items.iter().find(around)?.children;
    }
}
