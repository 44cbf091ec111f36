//! What the files of a commit define and use: does a path, a symbol or an import exist, and if not, which real ones come
//! nearest.
//!
//! A name is denied only where it surely does not stand: in a file that parsed whole, among whose words it is not.
//! Names of other repositories are not judged, nor what a type may have from elsewhere, nor what a build may make. All of
//! it is told by the index and by [`Outside`], so that nothing is read for an answer.

mod attributes;
mod nearest;
mod outside;
mod spelled;
mod strays;

use std::collections::HashSet;

use super::{
    File, Index, Item, Kind, Language, LeftOut, TreeIndex, Why,
    imports::{folder_of, stem},
    summarize,
    tree::file_name,
};
use crate::documents::{Absent, Declares, Design, Repository, Stray, Tree};
pub use outside::Outside;
pub(super) use spelled::Spelled;

/// The names of a commit's files.
pub struct Symbols<'i> {
    index: &'i Index,
    tree: &'i TreeIndex,
    outside: &'i Outside,
    /// By name, and of one name by file and line.
    definitions: Vec<Definition<'i>>,
    /// Names that some file uses and does not define itself.
    used: HashSet<&'i str>,
}

/// One definition.
#[derive(Debug, Clone, Copy)]
struct Definition<'i> {
    path: &'i str,
    item: &'i Item,
    /// What it stands in, such as its type.
    owner: Option<&'i str>,
    /// [`nearest::mask`] of its name.
    mask: u64,
}

/// How many bases above each other are looked at.
const BASES_DEEP: usize = 4;

/// What every type has in some language, or gets from a derive or a trait of the standard library.
const INHERITED: &[&str] = &[
    "Equals",
    "GetHashCode",
    "GetType",
    "ToString",
    "apply",
    "as_ref",
    "asdict",
    "bind",
    "borrow",
    "builder",
    "call",
    "clamp",
    "clone",
    "cmp",
    "constructor",
    "count",
    "default",
    "deserialize",
    "drop",
    "eq",
    "equals",
    "fmt",
    "from",
    "from_str",
    "getClass",
    "hash",
    "hashCode",
    "index",
    "into",
    "iter",
    "length",
    "max",
    "min",
    "name",
    "ne",
    "next",
    "ordinal",
    "partial_cmp",
    "prototype",
    "replace",
    "serialize",
    "source",
    "toString",
    "to_owned",
    "to_string",
    "try_from",
    "try_into",
    "type_id",
    "valueOf",
    "values",
];

impl<'i> Symbols<'i> {
    /// `tree` has all paths of the commit, also of files that the index left out.
    pub fn new(index: &'i Index, tree: &'i TreeIndex, outside: &'i Outside) -> Self {
        let mut definitions: Vec<Definition<'_>> = index.files().iter().flat_map(definitions_of).collect();
        definitions.sort_by_key(|found| (found.item.name.as_str(), found.path, found.item.line));
        let used = index.files().iter().flat_map(|file| file.digest.uses()).collect();
        Self { index, tree, outside, definitions, used }
    }

    /// A file whose names are all known, as far as it has them itself.
    fn whole(&self, path: &str) -> Option<&'i File> {
        let file = self.index.file(path)?;
        let known = file.language.is_code() && !file.digest.summary().partial;
        known.then_some(file)
    }

    fn in_file(&self, path: &str, owner: Option<&str>, name: &str) -> Option<Absent> {
        let file = self.whole(path)?;
        if file.digest.may_spell(name) || file.digest.may_have_more() || self.is_of_others(name) {
            return None;
        }
        let own = definitions_of(file);
        let closed = match owner.filter(|owner| *owner != stem(file_name(path))) {
            Some(owner) if self.types(owner).any(|found| found.path == path) => self.is_closed(owner),
            // Something else's, which is only used here.
            Some(_) => return None,
            None => !own.iter().any(|found| is_made(found) || self.has_foreign_base(*found, BASES_DEEP)),
        };
        // What is defined elsewhere is meant itself, if in the wrong file.
        let mistyped = !self.is_defined(name) && nearest::is_any_meant(&own, name);
        let nearest = || self.nearest(name, Some(path));
        (closed || mistyped).then(|| Absent { nearest: nearest(), closed, mistyped })
    }

    /// Of a name that nobody put into a file.
    fn anywhere(&self, name: &str) -> Option<Absent> {
        let parts = parts(name);
        match parts.as_slice() {
            [name] => self.by_itself(name),
            [.., owner, last] => match self.types(owner).next() {
                Some(_) => self.of_type(owner, last),
                None => self.of_module(owner, last),
            },
            [] => None,
        }
    }

    /// Only what is a slip of one name: what is merely not here may be of others, or yet to come.
    fn by_itself(&self, name: &str) -> Option<Absent> {
        if self.is_defined(name) || self.is_used(name) {
            return None;
        }
        // In whatever language: what is parsed here calls what is not. Prose alone names what is not there.
        let tells = |file: &&File| file.language != Language::Markdown;
        let spelled = || self.index.files().iter().filter(tells).any(|file| file.digest.may_spell(name));
        (nearest::has_slip(&self.definitions, name) && !spelled()).then(|| Absent {
            nearest: self.nearest(name, None),
            closed: !self.index.left_out().iter().any(is_code_unread),
            mistyped: true,
        })
    }

    fn of_type(&self, owner: &str, name: &str) -> Option<Absent> {
        let inherited = INHERITED.contains(&name) || name.starts_with('_');
        if inherited || self.is_of_others(name) || !self.is_closed(owner) {
            return None;
        }
        let mut paths: Vec<&str> = self.named(owner).iter().map(|found| found.path).collect();
        paths.dedup();
        let files: Vec<&File> = paths.iter().filter_map(|path| self.whole(path)).collect();
        let spelled = |file: &&File| file.digest.may_spell(name) || file.digest.may_have_more();
        if files.len() < paths.len() || files.iter().any(spelled) {
            return None;
        }
        let methods_elsewhere = paths.iter().any(|path| Language::of(path) == Language::Go);
        if self.is_defined(name) && methods_elsewhere {
            return None;
        }
        let of_it = |found: &Definition<'_>| {
            found.owner == Some(owner) || methods_elsewhere && found.item.signature.contains(owner)
        };
        let members: Vec<_> = files.iter().flat_map(|file| definitions_of(file)).filter(of_it).collect();
        let mistyped = !self.is_defined(name) && nearest::is_any_meant(&members, name);
        let path = paths.first().copied();
        // A type may have more in a file beside it that was not read.
        let beside = |left: &LeftOut| {
            is_code_unread(left) && paths.iter().any(|path| folder_of(path) == folder_of(&left.path))
        };
        let closed = !self.index.left_out().iter().any(beside);
        Some(Absent { nearest: self.nearest(name, path), closed, mistyped })
    }

    /// `config.load`, where the file `config.rs` is the only one of its name: it may be a variable's as well.
    fn of_module(&self, module: &str, name: &str) -> Option<Absent> {
        let named = |file: &&File| file.language.is_code() && stem(file_name(&file.path)) == module;
        let mut files = self.index.files().iter().filter(named);
        let (file, None) = (files.next()?, files.next()) else { return None };
        let inherited = INHERITED.contains(&name);
        let absent = self.in_file(&file.path, None, name).filter(|absent| absent.mistyped && !inherited)?;
        Some(Absent { closed: false, ..absent })
    }

    fn named(&self, name: &str) -> &[Definition<'i>] {
        let from = self.definitions.partition_point(|found| found.item.name.as_str() < name);
        let count = self.definitions[from..].partition_point(|found| found.item.name == name);
        &self.definitions[from..from + count]
    }

    fn is_defined(&self, name: &str) -> bool {
        !self.named(name).is_empty()
    }

    fn is_used(&self, name: &str) -> bool {
        self.used.contains(name)
    }

    /// What is used and nowhere defined is of a library, and may be used anywhere.
    fn is_of_others(&self, name: &str) -> bool {
        !self.is_defined(name) && self.is_used(name)
    }

    fn types(&self, name: &str) -> impl Iterator<Item = Definition<'i>> {
        let types =
            |found: &Definition<'_>| matches!(found.item.kind, Kind::Type | Kind::Enum | Kind::Interface);
        self.named(name).iter().copied().filter(types)
    }

    /// Has every type of this name all it has from this repository's own text? Not with an attribute or a decorator, which
    /// may make anything, nor with a base or a trait of others.
    fn is_closed(&self, name: &str) -> bool {
        let plain = |found: Definition<'_>| {
            let ruby = Language::of(found.path) == Language::Ruby;
            self.whole(found.path).is_some()
                && found.item.kind == Kind::Type
                && !ruby
                && !is_made(&found)
                && !self.has_foreign_base(found, BASES_DEEP)
        };
        let extended = self
            .named(name)
            .iter()
            .any(|found| found.item.kind == Kind::Extension && found.item.signature.contains(" for "));
        !extended && self.types(name).all(plain)
    }

    /// Has it a base that is not of this repository, as far as one looks?
    fn has_foreign_base(&self, found: Definition<'_>, deep: usize) -> bool {
        if !matches!(found.item.kind, Kind::Type | Kind::Interface) {
            return false;
        }
        match Language::of(found.path) {
            Language::Rust | Language::C => return false,
            // What stands in a struct without a name of its own lends it all it has.
            Language::Go => {
                let embedded = |field: &Item| !field.signature.trim().contains(char::is_whitespace);
                return found.item.children.iter().any(|item| item.kind == Kind::Field && embedded(item));
            }
            _ => {}
        }
        let Some((_, after)) = found.item.signature.split_once(found.item.name.as_str()) else { return true };
        let words = after.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let mut bases = words.filter(|word| !matches!(*word, "extends" | "implements" | "public" | "object"));
        bases.any(|base| {
            let mut known = self.types(base).peekable();
            deep == 0 || known.peek().is_none() || known.any(|base| self.has_foreign_base(base, deep - 1))
        })
    }

    /// Real names that this one may have meant, each with where it is.
    fn nearest(&self, name: &str, path: Option<&str>) -> Vec<String> {
        nearest::of(name, path, &self.definitions)
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

    fn may_be_made(&self, path: &str) -> bool {
        self.outside.may_have(path)
    }

    fn ending_so(&self, path: &str) -> Option<String> {
        let below = format!("/{path}");
        self.tree.files().find(|known| known.ends_with(&below)).map(str::to_owned)
    }

    fn symbol(&self, file: Option<&str>, name: &str) -> Option<Absent> {
        let Some(path) = file else { return self.anywhere(name) };
        let parts = parts(name);
        let (last, owners) = parts.split_last()?;
        self.in_file(path, owners.last().copied(), last)
    }

    fn declares(&self, tag: &str, code: &str) -> Option<Declares> {
        let summary = summarize(strays::language(tag)?, code);
        let mut declares = Declares::default();
        let mut rest: Vec<&Item> = summary.items.iter().collect();
        while let Some(item) = rest.pop() {
            rest.extend(&item.children);
            match item.kind {
                // It adds to a type, and makes none.
                Kind::Extension => continue,
                Kind::Type | Kind::Interface | Kind::Enum | Kind::Alias => {
                    declares.types.insert(item.name.clone())
                }
                _ => declares.names.insert(item.name.clone()),
            };
        }
        (!summary.partial).then_some(declares)
    }

    fn strays(&self, design: &Design<'_>) -> Vec<(usize, Stray)> {
        strays::of(self, design)
    }
}

/// Everything a file defines, whatever it stands in.
/// Code of ours that may define what no file here does.
fn is_code_unread(left: &LeftOut) -> bool {
    let unread = matches!(
        left.why,
        Why::Generated | Why::Minified | Why::Encoding | Why::LfsPointer | Why::TooLarge | Why::TooMany
    );
    unread && Language::of(&left.path).is_code()
}

fn definitions_of(file: &File) -> Vec<Definition<'_>> {
    let mut out = Vec::new();
    let mut open: Vec<(&Item, Option<&str>)> =
        file.digest.summary().items.iter().map(|item| (item, None)).collect();
    while let Some((item, owner)) = open.pop() {
        out.push(Definition { path: &file.path, item, owner, mask: nearest::mask(&item.name) });
        open.extend(item.children.iter().map(|child| (child, Some(item.name.as_str()))));
    }
    out
}

/// `Type::method`, `module.func`, `Class#method` taken apart.
fn parts(name: &str) -> Vec<&str> {
    let name = name.strip_suffix("()").unwrap_or(name);
    name.split(|c: char| ":.#".contains(c)).filter(|part| !part.is_empty()).collect()
}

/// May an attribute or a decorator of it make further names?
fn is_made(found: &Definition<'_>) -> bool {
    let holds =
        matches!(found.item.kind, Kind::Type | Kind::Enum | Kind::Interface | Kind::Module | Kind::Extension);
    holds && attributes::make_names(&found.item.signature)
}

fn is_nameable(found: &Definition<'_>) -> bool {
    !matches!(found.item.kind, Kind::Extension | Kind::Module)
}

#[cfg(test)]
mod tests;
