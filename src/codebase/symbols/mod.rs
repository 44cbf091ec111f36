//! What the files of a commit define and use: does a path, a symbol or an import exist, and if not, which real ones come
//! nearest.
//!
//! A No is said only of what is surely not there: of a file that parsed whole, in whose text the name does not occur at
//! all. Names of other repositories are not judged, nor what a type may have from elsewhere.

mod nearest;
mod strays;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use super::{File, Import, Index, Item, Kind, Language, TreeIndex};
use crate::documents::{Block, Known, Repository, Stray, Tree};

/// The names of a commit's files.
pub struct Symbols<'i> {
    index: &'i Index,
    tree: &'i TreeIndex,
    /// Texts of files by path, as far as they were read.
    texts: BTreeMap<String, Option<String>>,
    definitions: BTreeMap<&'i str, Vec<Definition<'i>>>,
    /// Names that some file uses.
    used: BTreeSet<&'i str>,
    /// Files whose texts would have been needed.
    lacking: RefCell<BTreeSet<String>>,
}

/// One definition.
#[derive(Debug, Clone, Copy)]
struct Definition<'i> {
    path: &'i str,
    item: &'i Item,
    /// What it stands in, such as its type.
    owner: Option<&'i str>,
}

/// How many bases above each other are looked at.
const BASES_DEEP: usize = 4;

impl<'i> Symbols<'i> {
    /// `tree` has all paths of the commit, also of files that the index left out.
    pub fn new(index: &'i Index, tree: &'i TreeIndex) -> Self {
        let mut definitions: BTreeMap<&str, Vec<Definition<'_>>> = BTreeMap::new();
        for file in index.files() {
            for definition in definitions_of(file) {
                definitions.entry(definition.item.name.as_str()).or_default().push(definition);
            }
        }
        let used = index.files().iter().flat_map(|file| file.digest.uses()).collect();
        Self { index, tree, texts: BTreeMap::new(), definitions, used, lacking: RefCell::default() }
    }

    /// Files that something was asked of and whose texts are not here: with them the answers may be others.
    pub fn lacking(&self) -> BTreeSet<String> {
        self.lacking.borrow().clone()
    }

    /// Files that were lacking; none where a file has no text.
    pub fn give(&mut self, texts: impl IntoIterator<Item = (String, Option<String>)>) {
        for (path, text) in texts {
            self.lacking.get_mut().remove(&path);
            self.texts.insert(path, text);
        }
    }

    fn text(&self, path: &str) -> Option<&str> {
        let known = self.texts.get(path);
        if known.is_none() {
            self.lacking.borrow_mut().insert(path.to_owned());
        }
        known?.as_deref()
    }

    /// A file whose names are all known, as far as it has them itself.
    fn whole(&self, path: &str) -> Option<&'i File> {
        let file = self.index.file(path)?;
        let known = file.language.is_code() && !file.digest.summary().partial;
        known.then_some(file)
    }

    fn in_file(&self, path: &str, name: &str) -> Known {
        let Some(file) = self.whole(path) else { return Known::Unknown };
        let parts = parts(name);
        let Some((last, owners)) = parts.split_last() else { return Known::Unknown };
        let Some(text) = self.text(path) else { return Known::Unknown };
        if spells(text, last) {
            return Known::Yes;
        }
        // What is known elsewhere may be meant to be used here; and what a file has of others it need not spell.
        if self.exists(last) || takes_all(file, text) || self.is_made(path, last) {
            return Known::Unknown;
        }
        let has_all = match owners.last() {
            Some(owner) => self.types(owner).any(|found| found.path == path) && self.closed(owner),
            None => definitions_of(file).iter().all(|found| !self.has_foreign_base(*found, BASES_DEEP)),
        };
        if has_all { Known::No { nearest: self.nearest(last, Some(path)) } } else { Known::Unknown }
    }

    /// Of a qualified name whose owner is of this repository.
    fn anywhere(&self, name: &str) -> Known {
        let parts = parts(name);
        let [.., owner, last] = parts.as_slice() else { return Known::Unknown };
        if self.exists(last) {
            return Known::Yes;
        }
        if self.types(owner).next().is_none() || !self.closed(owner) {
            return Known::Unknown;
        }
        let spelled = self.types(owner).map(|found| self.text(found.path).map(|text| spells(text, last)));
        if spelled.collect::<Vec<_>>().into_iter().any(|spelled| spelled != Some(false)) {
            return Known::Unknown;
        }
        let path = self.types(owner).next().map(|found| found.path);
        Known::No { nearest: self.nearest(last, path) }
    }

    /// Is it defined or used in any file?
    fn exists(&self, name: &str) -> bool {
        self.definitions.contains_key(name) || self.used.contains(name)
    }

    fn types(&self, name: &str) -> impl Iterator<Item = Definition<'i>> {
        let found = self.definitions.get(name).map(Vec::as_slice).unwrap_or_default();
        found
            .iter()
            .copied()
            .filter(|found| matches!(found.item.kind, Kind::Type | Kind::Enum | Kind::Interface))
    }

    /// Has every type of this name all it has from this repository's own text? Not with an attribute or a decorator, which
    /// may make anything, nor with a base or a trait of others.
    fn closed(&self, name: &str) -> bool {
        let plain = |found: Definition<'_>| {
            let signature = &found.item.signature;
            let whole = self.whole(found.path).is_some();
            let made = signature.contains("#[") || signature.contains('@');
            whole && found.item.kind == Kind::Type && !made && !self.has_foreign_base(found, BASES_DEEP)
        };
        let extended = self.definitions.values().flatten().any(|found| {
            found.item.kind == Kind::Extension
                && found.item.signature.contains(" for ")
                && spells(&found.item.signature, name)
        });
        !extended && self.types(name).all(plain)
    }

    /// Is it a class with a base that is not of this repository, as far as one looks?
    fn has_foreign_base(&self, found: Definition<'_>, deep: usize) -> bool {
        let classes = !matches!(Language::of(found.path), Language::Rust | Language::Go | Language::C);
        if !classes || !matches!(found.item.kind, Kind::Type | Kind::Interface) {
            return false;
        }
        let Some((_, after)) = found.item.signature.split_once(found.item.name.as_str()) else { return true };
        let words = after.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let mut bases = words.filter(|word| !matches!(*word, "extends" | "implements" | "public" | "object"));
        bases.any(|base| {
            let mut known = self.types(base).peekable();
            deep == 0 || known.peek().is_none() || known.any(|base| self.has_foreign_base(base, deep - 1))
        })
    }

    /// May an attribute of a type in the file make this name out of the type's, as a builder's?
    fn is_made(&self, path: &str, name: &str) -> bool {
        let file = self.index.file(path).into_iter().flat_map(definitions_of);
        let marked = |found: &Definition<'_>| {
            found.item.signature.contains("#[") || found.item.signature.contains('@')
        };
        file.filter(marked).any(|found| found.item.name.len() > 2 && name.contains(&found.item.name))
    }

    /// Real names that this one may have meant, each with where it is.
    fn nearest(&self, name: &str, path: Option<&str>) -> Vec<String> {
        nearest::of(name, path, self.definitions.values().flatten())
    }
}

impl Tree for Symbols<'_> {
    fn is_file(&self, path: &str) -> bool {
        self.tree.is_file(path)
    }

    fn is_dir(&self, path: &str) -> bool {
        self.tree.is_dir(path)
    }

    fn nearest(&self, path: &str) -> Vec<String> {
        self.tree.nearest(path)
    }
}

impl Repository for Symbols<'_> {
    fn is_code(&self, path: &str) -> bool {
        Language::of(path).is_code()
    }

    fn symbol(&self, file: Option<&str>, name: &str) -> Known {
        match file {
            Some(path) => self.in_file(path, name),
            None => self.anywhere(name),
        }
    }

    fn strays(&self, block: &Block<'_>) -> Vec<Stray> {
        strays::of(self, block)
    }
}

/// Everything a file defines, whatever it stands in.
fn definitions_of(file: &File) -> Vec<Definition<'_>> {
    let mut out = Vec::new();
    let mut open: Vec<(&Item, Option<&str>)> =
        file.digest.summary().items.iter().map(|item| (item, None)).collect();
    while let Some((item, owner)) = open.pop() {
        out.push(Definition { path: &file.path, item, owner });
        open.extend(item.children.iter().map(|child| (child, Some(item.name.as_str()))));
    }
    out.sort_by_key(|found| (found.item.line, found.item.name.as_str()));
    out
}

/// `Type::method`, `module.func`, `Class#method` taken apart.
fn parts(name: &str) -> Vec<&str> {
    let name = name.strip_suffix("()").unwrap_or(name);
    name.split(|c: char| ":.#".contains(c)).filter(|part| !part.is_empty()).collect()
}

/// Does the text have this word, whole?
fn spells(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(part) && !text[at + word.len()..].starts_with(part)
    })
}

/// May the file have names that its text does not spell: all of another, or what code makes up?
fn takes_all(file: &File, text: &str) -> bool {
    let marks: &[&str] = match file.language {
        Language::Rust => &["include!", "paste!", "concat_idents"],
        Language::Python => &["import *", "__getattr__", "globals()", "setattr(", "exec("],
        Language::JavaScript | Language::TypeScript | Language::Tsx => {
            &["export *", "module.exports = require", "export =", "Object.assign", "defineProperty"]
        }
        Language::C | Language::Cpp => &["##", "#include"],
        Language::CSharp => &["partial "],
        Language::Java => &["lombok", "Generated"],
        Language::Ruby => &["define_method", "method_missing", "include ", "extend ", "class_eval"],
        Language::Php => &["__call", "use "],
        Language::Bash
        | Language::Go
        | Language::Json
        | Language::Makefile
        | Language::Markdown
        | Language::Other
        | Language::Toml
        | Language::Yaml => &[],
    };
    let handed_on =
        |import: &Import| import.text.starts_with("pub") && import.names.iter().any(|name| name == "*");
    marks.iter().any(|mark| text.contains(mark)) || file.digest.summary().imports.iter().any(handed_on)
}

#[cfg(test)]
mod tests;
