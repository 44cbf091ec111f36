//! Imports of this repository's own modules that are surely not there.
//!
//! Of each language only the forms are judged that can mean nothing but a file of this repository. Everything else is
//! somebody else's.

mod go;
mod python;
mod rust;
mod script;

use std::collections::BTreeSet;

use super::{Symbols, nearest, spells, takes_all};
use crate::{
    codebase::{Language, summarize},
    documents::{Block, Stray},
};

/// Whether an import is there.
pub(super) enum Found {
    Yes,
    /// Surely not.
    No(Stray),
    /// Not ours, or nobody can tell.
    Unknown,
}

/// A block with what it may refer to.
pub(super) struct Imports<'s, 'i, 'b> {
    pub(super) symbols: &'s Symbols<'i>,
    pub(super) block: &'b Block<'b>,
    /// The paths that are added, and the folders they are in.
    added: BTreeSet<&'b str>,
}

/// Every import of the block that is surely of what is not there.
pub(super) fn of(symbols: &Symbols<'_>, block: &Block<'_>) -> Vec<Stray> {
    let Some(language) = language(block.tag) else { return Vec::new() };
    let folders = block.added.iter().flat_map(|path| path.match_indices('/').map(|(at, _)| &path[..at]));
    let added = block.added.iter().copied().chain(folders).collect();
    let imports = Imports { symbols, block, added };
    let summary = summarize(language, block.code);
    let mut strays = Vec::new();
    for import in &summary.imports {
        let found = match language {
            Language::Rust => rust::find(&imports, import),
            Language::Python => python::find(&imports, import),
            Language::Go => go::find(&imports, &import.module),
            _ => script::find(&imports, import),
        };
        strays.extend(found.into_iter().filter_map(|found| match found {
            Found::No(stray) => Some(stray),
            Found::Yes | Found::Unknown => None,
        }));
    }
    strays
}

/// The languages whose imports are judged, by what documents call them.
fn language(tag: &str) -> Option<Language> {
    Some(match tag {
        "rust" | "rs" => Language::Rust,
        "python" | "py" | "python3" => Language::Python,
        "go" | "golang" => Language::Go,
        "javascript" | "js" | "jsx" | "mjs" => Language::JavaScript,
        "typescript" | "ts" => Language::TypeScript,
        "tsx" => Language::Tsx,
        _ => return None,
    })
}

impl<'i> Imports<'_, 'i, '_> {
    fn is_file(&self, path: &str) -> bool {
        self.symbols.tree.is_file(path)
    }

    fn is_dir(&self, path: &str) -> bool {
        self.symbols.tree.is_dir(path)
    }

    /// Is it, or anything in it, of the design's own adding? What that holds is not for us to know.
    fn is_added(&self, path: &str) -> bool {
        self.added.contains(path)
    }

    /// Every path there is, in order, that begins so.
    fn beginning<'s>(&'s self, prefix: &'s str) -> impl Iterator<Item = &'s str> {
        self.symbols.tree.beginning(prefix)
    }

    /// Does the file, which is there, have this name? `module` is what the import calls it.
    fn in_file(&self, path: &str, name: &str, module: &str) -> Found {
        let Some(text) = self.symbols.text(path) else { return Found::Unknown };
        if spells(text, name) {
            return Found::Yes;
        }
        match self.symbols.whole(path) {
            Some(file) if !takes_all(file, text) && !self.symbols.is_made(path, name) => Found::No(Stray {
                module: module.to_owned(),
                name: Some((name.to_owned(), path.to_owned())),
                nearest: self.symbols.nearest(name, Some(path)),
            }),
            _ => Found::Unknown,
        }
    }

    /// May the file, which is a crate's root, have a macro of this name from anywhere in the crate?
    fn has_macros(&self, root: &str, name: &str) -> bool {
        self.symbols.exists(name) || self.symbols.text(root).is_none_or(|text| text.contains("macro"))
    }

    /// A module that is not there, and those that are, all without what their names begin with.
    fn no_module(&self, prefix: &str, name: &str, names: impl Iterator<Item = String>) -> Found {
        let nearest = nearest::among(name, names).iter().map(|name| format!("{prefix}{name}")).collect();
        Found::No(Stray { module: format!("{prefix}{name}"), name: None, nearest })
    }
}

/// What all of them agree on: a No only where every candidate says it.
fn all(found: impl IntoIterator<Item = Found>) -> Found {
    let mut first = None;
    for one in found {
        match one {
            Found::No(stray) => first = first.or(Some(stray)),
            other => return other,
        }
    }
    first.map_or(Found::Unknown, Found::No)
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}
