//! What types have, and from which files.

use std::{cell::LazyCell, collections::BTreeSet};

use super::{Definition, Symbols, definitions_of, is_made};
use crate::{
    codebase::{
        File, Import, Item, Kind, Language, LeftOut,
        imports::{folder_of, stem},
        tree::file_name,
        words,
    },
    documents::{Absent, Meant},
};

/// How many bases above each other are looked at, and how many types for one name.
const BASES_DEEP: usize = 4;
const BASES: usize = 100;

/// What every type has in some language, or gets from a derive or a trait of the standard library. In order.
const INHERITED: &[&str] = &[
    "Deconstruct",
    "Equals",
    "GetHashCode",
    "GetType",
    "MemberwiseClone",
    "ReferenceEquals",
    "ToString",
    "apply",
    "as_mut",
    "as_ref",
    "asdict",
    "bind",
    "borrow",
    "borrow_mut",
    "builder",
    "call",
    "cause",
    "clamp",
    "clone",
    "clone_from",
    "cmp",
    "constructor",
    "count",
    "default",
    "description",
    "deserialize",
    "drop",
    "eq",
    "equals",
    "extend",
    "finalize",
    "fmt",
    "from",
    "from_iter",
    "from_str",
    "ge",
    "getClass",
    "gt",
    "hasOwnProperty",
    "hash",
    "hashCode",
    "index",
    "into",
    "into_iter",
    "isPrototypeOf",
    "iter",
    "le",
    "length",
    "lt",
    "max",
    "min",
    "mro",
    "name",
    "ne",
    "next",
    "notify",
    "notifyAll",
    "ordinal",
    "partial_cmp",
    "propertyIsEnumerable",
    "prototype",
    "replace",
    "serialize",
    "source",
    "toLocaleString",
    "toString",
    "to_owned",
    "to_string",
    "try_from",
    "try_into",
    "type_id",
    "valueOf",
    "values",
    "wait",
];

/// Traits of others that lend a type nothing but what [`INHERITED`] has. In order.
const LEND_NOTHING: &[&str] = &[
    "Add",
    "AddAssign",
    "AsMut",
    "AsRef",
    "Borrow",
    "BorrowMut",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Deserialize",
    "Display",
    "Div",
    "DivAssign",
    "Drop",
    "Eq",
    "Error",
    "Extend",
    "From",
    "FromIterator",
    "FromStr",
    "Hash",
    "Index",
    "IndexMut",
    "Into",
    "IntoIterator",
    "Mul",
    "MulAssign",
    "Neg",
    "Not",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "RefUnwindSafe",
    "Rem",
    "Send",
    "Serialize",
    "Sub",
    "SubAssign",
    "Sync",
    "ToString",
    "TryFrom",
    "TryInto",
    "Unpin",
    "UnwindSafe",
];

/// Types that every script has without an import, and that programs have classes of the same name as. In order.
const GLOBALS: &[&str] = &[
    "Animation",
    "Blob",
    "Buffer",
    "Cache",
    "Comment",
    "Date",
    "Document",
    "Element",
    "Error",
    "Event",
    "EventTarget",
    "File",
    "FormData",
    "Headers",
    "History",
    "Image",
    "Iterator",
    "Location",
    "Lock",
    "Map",
    "Module",
    "Node",
    "Notification",
    "Option",
    "Path2D",
    "Plugin",
    "Promise",
    "Proxy",
    "Range",
    "Request",
    "Response",
    "Selection",
    "Set",
    "Storage",
    "Symbol",
    "Text",
    "Touch",
    "URL",
    "Window",
    "Worker",
];

pub(super) fn is_inherited(name: &str) -> bool {
    INHERITED.binary_search(&name).is_ok() || name.starts_with('_')
}

/// Types that were looked at, each by its file and line.
type Seen<'i> = BTreeSet<(&'i str, u32)>;

impl<'i> Symbols<'i> {
    /// Of a name that a type of this repository has not. Where not all that it has is known, that is only a slip of one of
    /// its names that no code spells.
    pub(super) fn of_type(&self, owner: &str, name: &str, path: Option<&str>) -> Option<Absent> {
        if is_inherited(name) || self.is_of_others(name) {
            return None;
        }
        let own: BTreeSet<&str> = self.of_code(owner).map(|found| found.path).collect();
        let all = self.sources(owner);
        let read: Vec<&File> =
            all.as_ref().unwrap_or(&own).iter().filter_map(|path| self.whole(path)).collect();
        if read.len() < own.len() || read.iter().any(|file| file.digest.may_spell(name)) {
            return None;
        }
        let methods_elsewhere = own.iter().any(|path| Language::of(path) == Language::Go);
        if self.is_defined(name) && methods_elsewhere {
            return None;
        }
        let of_it = |found: &Definition<'_>| {
            found.owner == Some(owner) || methods_elsewhere && found.item.signature.contains(owner)
        };
        let members: Vec<_> = read.iter().flat_map(|file| definitions_of(file)).filter(of_it).collect();
        let meant = self.meant(&members, name);
        let nowhere = LazyCell::new(|| self.is_nowhere(name));
        // Others may lend it what is not spelled here.
        if all.is_none() && !(meant == Meant::Slip && *nowhere) {
            return None;
        }
        // So may what its files make, yet hardly what nobody uses.
        let makes = read.iter().any(|file| file.digest.may_have_more());
        if makes && (meant == Meant::Other || !*nowhere) {
            return None;
        }
        // A type may have more in a file beside it that was not read.
        let beside = |left: &LeftOut| {
            self.is_unknown(left) && own.iter().any(|path| folder_of(path) == folder_of(&left.path))
        };
        // What others have, a trait for all types or a method that extends them may lend it.
        let closed = !self.index.left_out().iter().any(beside)
            && (!makes || meant == Meant::Slip)
            && (*nowhere || meant > Meant::Other);
        let nearest = self.nearest(name, path.or_else(|| own.first().copied()));
        Some(Absent { nearest, closed, nowhere: *nowhere, meant })
    }

    /// Documents have headings of this name as well.
    fn of_code(&self, name: &str) -> impl Iterator<Item = Definition<'i>> {
        self.named(name).iter().copied().filter(|found| Language::of(found.path).is_code())
    }

    /// Can types of a file have more than this repository's text says?
    pub(super) fn have_more(&self, own: &[Definition<'i>]) -> bool {
        let mut seen = BTreeSet::new();
        own.iter().any(|found| {
            let has_bases = matches!(found.item.kind, Kind::Type | Kind::Interface);
            is_made(found) || has_bases && !self.bases(*found, BASES_DEEP, &mut seen)
        })
    }

    /// The files that spell all that the types of this name have. None if they may have more: by an attribute or a
    /// decorator, which may make anything, or by a base or a trait of others.
    fn sources(&self, owner: &str) -> Option<BTreeSet<&'i str>> {
        let mut seen = BTreeSet::new();
        for found in self.of_code(owner) {
            let known = match found.item.kind {
                Kind::Type | Kind::Enum | Kind::Interface => self.lends(found, BASES_DEEP, &mut seen),
                Kind::Extension => {
                    seen.insert((found.path, found.item.line));
                    !is_made(&found) && self.implements(found.item, &mut seen)
                }
                _ => {
                    seen.insert((found.path, found.item.line));
                    true
                }
            };
            if !known {
                return None;
            }
        }
        // Last, for it asks every file.
        let mut imports = self.index.files().iter().filter(|file| file.digest.may_spell(owner));
        if imports.any(|file| !self.means_ours(&file.path, owner, owner)) {
            return None;
        }
        let files: BTreeSet<&str> = seen.into_iter().map(|(path, _)| path).collect();
        files.iter().all(|path| self.whole(path).is_some()).then_some(files)
    }

    /// Adds what spells all that a type has, unless it may have more.
    fn lends(&self, found: Definition<'i>, deep: usize, seen: &mut Seen<'i>) -> bool {
        if seen.len() > BASES {
            return false;
        }
        if !seen.insert((found.path, found.item.line)) {
            return true;
        }
        let language = Language::of(found.path);
        let plain = match found.item.kind {
            Kind::Type if matches!(language, Language::JavaScript | Language::TypeScript | Language::Tsx) => {
                GLOBALS.binary_search(&found.item.name.as_str()).is_err()
            }
            Kind::Type => language != Language::Ruby,
            Kind::Enum => language == Language::Rust,
            Kind::Interface => language == Language::Rust && !found.item.signature.contains(':'),
            _ => false,
        };
        plain && !is_made(&found) && self.bases(found, deep, seen)
    }

    /// The same of its bases.
    fn bases(&self, found: Definition<'i>, deep: usize, seen: &mut Seen<'i>) -> bool {
        let name = found.item.name.as_str();
        let mut known = |base: &str| {
            // One of the same name is another of those asked about.
            base == name
                || deep > 0
                    && self.types(base).next().is_some()
                    && self.types(base).all(|base| self.lends(base, deep - 1, seen))
        };
        match Language::of(found.path) {
            Language::Rust | Language::C => true,
            Language::Go => lenders(found.item).all(known),
            _ => {
                let Some((_, after)) = found.item.signature.split_once(name) else { return false };
                let words = after.split(|c: char| !(c.is_alphanumeric() || "_.".contains(c)));
                let said = ["extends", "implements", "public", "object"];
                words.filter(|word| !said.contains(word)).all(|word| {
                    let mut parts = word.split('.').filter(|part| !part.is_empty());
                    let Some(first) = parts.next() else { return true };
                    let base = self.called(found.path, parts.next_back().unwrap_or(first));
                    self.means_ours(found.path, first, base) && known(base)
                })
            }
        }
    }

    /// Is what a file calls `name` a type of this repository, or of a module in which that stands, and no other's that
    /// the file imports?
    fn means_ours(&self, from: &str, name: &str, of_type: &str) -> bool {
        let imports = self.index.file(from).into_iter().flat_map(|file| &file.digest.summary().imports);
        imports.filter(|import| brings(import, name)).all(|import| self.has_ours(&import.module, of_type))
    }

    /// May a module have a type of ours, and not one of the same name?
    fn has_ours(&self, module: &str, of_type: &str) -> bool {
        let scoped = module.strip_prefix('@').and_then(|scoped| scoped.split_once('/'));
        let within = scoped.map_or(module, |(_, within)| within);
        module.starts_with(['.', '~', '#'])
            || module.starts_with("@/")
            || self.types(of_type).any(|found| match Language::of(found.path) {
                Language::Java => found.path.contains(&module.replace('.', "/")),
                _ => self.is_in(found.path, within),
            })
    }

    /// Types that code has from other packages, by an import or by their whole name, while some of ours are called so.
    pub(super) fn of_other_packages(&self, imports: &[Import], code: &str) -> BTreeSet<String> {
        let imported = imports.iter().flat_map(|import| {
            let names = import.names.iter().map(String::as_str);
            let names = names.chain(last_of(&import.module)).chain(names_given(import));
            names.map(|name| (import.module.as_str(), name))
        });
        let tokens = code.split(|c: char| !(c.is_alphanumeric() || "_.:".contains(c)));
        let named: BTreeSet<(&str, &str)> = imported.chain(tokens.filter_map(qualified)).collect();
        let mut others = BTreeSet::new();
        for (module, name) in named {
            let called_so = |name: &str| self.types(name).next().is_some();
            if !others.contains(name) && called_so(name) && !called_so(module) && !self.has_ours(module, name)
            {
                others.insert(name.to_owned());
            }
        }
        others
    }

    /// May what begins so stand in a file, as far as names of modules tell?
    pub(super) fn is_in(&self, path: &str, module: &str) -> bool {
        let first = module.split(['.', ':', '\\', '/']).next().unwrap_or_default();
        let path = match Language::of(path) {
            // A package is a folder there, whatever its files are called.
            Language::Go => folder_of(path),
            Language::Python if self.outside.has_package(first) => "",
            _ => path,
        };
        matches!(first, "crate" | "self" | "super" | "this")
            || self.outside.crates().any(|(name, _)| name == first)
            || self.outside.go_modules().any(|(name, _)| file_name(name) == first)
            || path.split('/').any(|part| stem(part) == first)
    }

    /// What a file imports under another name.
    fn called<'n>(&self, path: &str, name: &'n str) -> &'n str
    where
        'i: 'n,
    {
        let imports = self.index.file(path).into_iter().flat_map(|file| &file.digest.summary().imports);
        let mut own = imports.flat_map(|import| import.names.iter().map(move |own| (import, own)));
        own.find(|(import, own)| import.text.contains(&format!("{own} as {name}")))
            .map_or(name, |(_, own)| own)
    }

    /// Of what is added to a type in Rust: is its trait known, if it is one's?
    fn implements(&self, added: &Item, seen: &mut Seen<'i>) -> bool {
        let Some((head, _)) = added.signature.split_once(" for ") else { return true };
        let mut deep = 0_usize;
        let begins = head.char_indices().rev().find(|(_, c)| {
            match c {
                '>' => deep += 1,
                '<' => deep = deep.saturating_sub(1),
                _ => {}
            }
            deep == 0 && c.is_whitespace()
        });
        let path = begins.map_or(head, |(at, _)| &head[at..]).trim().trim_start_matches('!');
        let path = path.split('<').next().unwrap_or(path);
        let name = path.rsplit("::").next().unwrap_or(path);
        let ours: Vec<_> =
            self.named(name).iter().filter(|found| found.item.kind == Kind::Interface).collect();
        seen.extend(ours.iter().map(|found| (found.path, found.item.line)));
        // What a trait's own bases lend, it lends as well.
        let plain = |found: &&Definition<'_>| !is_made(found) && !found.item.signature.contains(':');
        LEND_NOTHING.binary_search(&name).is_ok()
            || !ours.is_empty() && ours.iter().copied().all(|found| plain(&found))
    }
}

/// Does a file have something by this name from what it imports?
fn brings(import: &Import, name: &str) -> bool {
    last_of(&import.module) == Some(name)
        || import.names.iter().any(|own| own == name)
        || import.text.contains(&format!(" as {name}"))
        || names_given(import).any(|given| given == name)
}

fn last_of(module: &str) -> Option<&str> {
    module.rsplit(['.', ':', '\\', '/']).next()
}

/// What a module exports without a name has the one that its import gives it, somewhere in that.
fn names_given(import: &Import) -> impl Iterator<Item = &str> {
    let is_given = import.names.iter().any(|name| name == "default");
    is_given.then(|| words::names_of(&import.text)).into_iter().flatten()
}

/// `redis.client.Client` as a module and its type.
fn qualified(token: &str) -> Option<(&str, &str)> {
    let mut begins = token.match_indices(['.', ':']).map(|(at, _)| at + 1);
    let at = begins.find(|at| token[*at..].starts_with(char::is_uppercase))?;
    let module = token[..at].trim_end_matches(['.', ':']);
    let name = token[at..].split(['.', ':']).next()?;
    (!module.is_empty()).then_some((module, name))
}

/// What lends a type of Go all it has: what stands in a struct without a name of its own, whatever tag follows, and the
/// type that it is another name of.
fn lenders(item: &Item) -> impl Iterator<Item = &str> {
    let fields = item.children.iter().filter(|child| child.kind == Kind::Field);
    let types = fields.map(|field| field.signature.split(['`', '"']).next().unwrap_or_default().trim());
    let embedded = types.filter(|of_it| !of_it.contains(char::is_whitespace));
    let other = item.signature.split_once(item.name.as_str()).map_or("", |(_, after)| after.trim());
    let is_name = other.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let lends = other.contains('.') || other.starts_with(char::is_uppercase);
    embedded.chain(Some(other).filter(|_| is_name && lends)).map(|name| name.trim_start_matches('*'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_searched_by_halves_is_in_order() {
        assert!(
            [super::INHERITED, super::LEND_NOTHING, super::GLOBALS].iter().all(|names| names.is_sorted())
        );
    }
}
