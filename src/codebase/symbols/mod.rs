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
mod types;

use std::collections::HashSet;

use super::{
    File, Index, Item, Kind, Language, LeftOut, TreeIndex, Why, imports::stem, summarize, tree::file_name,
};
use crate::documents::{Absent, Declares, Design, Meant, Repository, Stands, Stray, Tree};
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

/// The code of a commit that its index does not know.
pub fn unread(index: &Index) -> impl Iterator<Item = &str> {
    let readable = |left: &&LeftOut| is_unread(left) && left.why != Why::LfsPointer;
    index.left_out().iter().filter(readable).map(|left| left.path.as_str())
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
        if file.digest.may_spell(name) || self.is_of_others(name) {
            return None;
        }
        match owner.filter(|owner| *owner != stem(file_name(path))) {
            Some(owner) if self.types(owner).any(|found| found.path == path) => {
                return self.of_type(owner, name, Some(path));
            }
            // Something else's, which is only used here.
            Some(_) => return None,
            None => {}
        }
        let own = definitions_of(file);
        let nowhere = self.is_nowhere(name);
        let open = self.is_open(file, &own);
        let meant = self.meant(&own, name);
        (!open || nowhere && meant > Meant::Other).then(|| Absent {
            nearest: self.nearest(name, Some(path)),
            closed: !open || nowhere && meant == Meant::Slip,
            nowhere,
            meant,
        })
    }

    /// Of a name that no code spells, where the file in which it is used has one that is like it.
    fn alike_in(&self, path: &str, name: &str) -> Option<Absent> {
        let file = self.whole(path)?;
        let own = definitions_of(file);
        if !nearest::is_any_alike(&own, name) || !self.is_nowhere(name) {
            return None;
        }
        let meant = self.meant(&own, name);
        let closed = meant == Meant::Slip || meant > Meant::Other && !self.is_open(file, &own);
        Some(Absent { nearest: self.nearest(name, None), closed, nowhere: true, meant })
    }

    /// May a file have names that it does not spell?
    fn is_open(&self, file: &File, own: &[Definition<'i>]) -> bool {
        file.digest.may_have_more() || self.have_more(own)
    }

    /// Of a name that a file has from another, or only speaks of.
    fn defined_elsewhere(&self, path: &str, name: &str) -> Option<Absent> {
        let file = self.whole(path)?;
        let own = definitions_of(file);
        let imports = file.digest.summary().imports.iter();
        let mut imports = imports.filter(|import| import.names.iter().any(|imported| imported == name));
        let closed = imports.clone().next().is_some();
        // What a file hands on is in it as well, for whoever imports it from there.
        let is_front = matches!(stem(file_name(path)), "__init__" | "index");
        let hands_on = |text: &str| is_front || text.starts_with("pub") || text.starts_with("export");
        if imports.any(|import| hands_on(&import.text)) {
            return None;
        }
        let here = own.iter().any(|found| found.item.name == name) || !closed && self.is_open(file, &own);
        (!here && self.is_defined(name)).then(|| Absent {
            nearest: self.nearest(name, None),
            closed,
            nowhere: false,
            meant: Meant::Other,
        })
    }

    /// Of a name that nobody put into a file.
    fn anywhere(&self, parts: &[&str]) -> Option<Absent> {
        match parts {
            [name] => self.by_itself(name),
            [.., owner, last] if self.is_type(owner, last) => self.of_type(owner, last, None),
            [.., owner, last] => self.of_variable(owner, last).or_else(|| self.of_module(owner, last)),
            [] => None,
        }
    }

    /// `std::io::Error` is no `Error` of ours.
    fn is_of_others_by_module(&self, parts: &[&str]) -> bool {
        let [module, .., owner, _] = parts else { return false };
        parts.len() > 2
            && self.types(module).next().is_none()
            && self.types(owner).next().is_some()
            && !self.types(owner).any(|found| self.is_in(found.path, module))
    }

    /// In Go, `config.Load` is a package's, whatever type is called like it.
    fn is_type(&self, owner: &str, name: &str) -> bool {
        let of_package = owner.starts_with(char::is_lowercase) && name.starts_with(char::is_uppercase);
        self.types(owner).any(|found| !of_package || Language::of(found.path) != Language::Go)
    }

    /// Only what is a slip of one name: what is merely not here may be of others, or yet to come.
    fn by_itself(&self, name: &str) -> Option<Absent> {
        (nearest::has_slip(&self.definitions, name) && self.is_nowhere(name)).then(|| Absent {
            nearest: self.nearest(name, None),
            closed: !self.index.left_out().iter().any(|left| self.is_unknown(left)),
            nowhere: true,
            meant: Meant::Slip,
        })
    }

    /// `engine.serve`, where it is the slip of one name. What is called like a type is likely of it.
    fn of_variable(&self, variable: &str, name: &str) -> Option<Absent> {
        let absent = self.by_itself(name).filter(|_| !types::is_inherited(name))?;
        let its_type: String = variable
            .split('_')
            .flat_map(|word| word.chars().take(1).flat_map(char::to_uppercase).chain(word.chars().skip(1)))
            .collect();
        let ours = matches!(variable, "self" | "this" | "cls") || self.types(&its_type).next().is_some();
        Some(Absent { closed: absent.closed && ours, ..absent })
    }

    /// `config.load`, where the file `config.rs` is the only one of its name: it may be a variable's as well.
    fn of_module(&self, module: &str, name: &str) -> Option<Absent> {
        let named = |file: &&File| file.language.is_code() && stem(file_name(&file.path)) == module;
        let mut files = self.index.files().iter().filter(named);
        let (file, None) = (files.next()?, files.next()) else { return None };
        let inherited = types::is_inherited(name);
        let absent = self
            .in_file(&file.path, None, name)
            .filter(|absent| absent.meant > Meant::Other && !inherited)?;
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

    /// What is defined elsewhere is meant itself, if in the wrong place.
    fn meant(&self, definitions: &[Definition<'_>], name: &str) -> Meant {
        if self.is_defined(name) { Meant::Other } else { nearest::meant(definitions, name) }
    }

    /// Code of ours that may define what no file here does.
    fn is_unknown(&self, left: &LeftOut) -> bool {
        is_unread(left) && !self.outside.has_read(&left.path)
    }

    /// No code spells it, in whatever language: what is parsed here calls what is not. Prose alone names what is not there.
    fn is_nowhere(&self, name: &str) -> bool {
        let tells = |file: &&File| file.language != Language::Markdown;
        !self.is_defined(name)
            && !self.is_used(name)
            && !self.outside.spells(name)
            && !self.index.files().iter().filter(tells).any(|file| file.digest.may_spell(name))
    }

    fn types(&self, name: &str) -> impl Iterator<Item = Definition<'i>> {
        let types =
            |found: &Definition<'_>| matches!(found.item.kind, Kind::Type | Kind::Enum | Kind::Interface);
        self.named(name).iter().copied().filter(types)
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

    fn symbol(&self, stands: Stands<'_>, name: &str) -> Option<Absent> {
        let parts = parts(name);
        let (last, owners) = parts.split_last()?;
        let owner = owners.last().copied();
        if self.is_of_others_by_module(&parts) {
            return None;
        }
        match stands {
            Stands::UsedIn(path) if owner.is_none() => {
                self.anywhere(&parts).or_else(|| self.alike_in(path, last))
            }
            Stands::Somewhere | Stands::UsedIn(_) => self.anywhere(&parts),
            Stands::In(path) => self.in_file(path, owner, last),
            Stands::DefinedIn(path) => self
                .in_file(path, owner, last)
                .or_else(|| self.defined_elsewhere(path, last).filter(|_| owner.is_none())),
        }
    }

    fn declares(&self, tag: &str, code: &str) -> Declares {
        let summary = strays::language(tag).map(|language| summarize(language, code));
        let whole = summary.as_ref().is_some_and(|summary| !summary.partial);
        let summary = summary.unwrap_or_default();
        let others = self.of_other_packages(&summary.imports, code);
        let mut declares = Declares { whole, others, ..Declares::default() };
        if !whole {
            return declares;
        }
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
        declares
    }

    fn strays(&self, design: &Design<'_>) -> Vec<(usize, Stray)> {
        strays::of(self, design)
    }
}

/// Is it code that the index does not know?
fn is_unread(left: &LeftOut) -> bool {
    let unread = matches!(
        left.why,
        Why::Vendored
            | Why::Generated
            | Why::Minified
            | Why::Encoding
            | Why::LfsPointer
            | Why::TooLarge
            | Why::TooMany
    );
    unread && Language::of(&left.path).is_code()
}

/// Everything a file defines, whatever it stands in.
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
