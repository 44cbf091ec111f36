//! `import "example.com/shop/internal/cart"`: a package is a folder, and begins with its module's name.

use std::collections::BTreeMap;

use super::{Lead, Package, Resolved, Resolver, join, upwards};
use crate::{codebase::Language, limits};

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, package: &str) -> Resolved<'i> {
    let Some((_, root, rest)) = below(resolver, package) else { return Resolved::External };
    resolver.folder(&join(root.folder, rest)).map_or(Resolved::Missing, Resolved::Folder)
}

/// Of a package of a module whose name is said, not guessed.
pub(super) fn lead<'i>(resolver: &Resolver<'i>, package: &str) -> Option<Lead<'i>> {
    let (prefix, root, rest) = below(resolver, package).filter(|(_, root, _)| root.named)?;
    let there = resolver.is_folder(&join(root.folder, rest));
    let rest = if there { Vec::new() } else { vec![rest.to_owned()] };
    Some(Lead { root: prefix.to_owned(), file: None, folder: root.folder.to_owned(), rest })
}

/// The module that a package is of, the longest of those whose names it begins with, and the rest of its path.
fn below<'p, 'i>(resolver: &Resolver<'i>, package: &'p str) -> Option<(&'p str, Package<'i>, &'p str)> {
    let prefixes = upwards(package).take(limits::IMPORT_PARTS).filter(|prefix| !prefix.is_empty());
    let (prefix, root) =
        prefixes.into_iter().find_map(|prefix| Some((prefix, *resolver.go_modules.get(prefix)?)))?;
    Some((prefix, root, package[prefix.len()..].trim_start_matches('/')))
}

/// The name of the module at the root, which no index shows, as the imports tell it: what most of those that end like a
/// folder here begin with.
pub(super) fn guessed<'i>(resolver: &Resolver<'i>) -> Option<(String, Package<'i>)> {
    resolver.path("go.mod")?;
    let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
    let sources = resolver.index.files().iter().filter(|file| file.language == Language::Go);
    for import in sources.take(limits::IMPORT_CANDIDATES).flat_map(|file| &file.digest.summary().imports) {
        let package = import.module.as_str();
        let domain = package.split('/').next().is_some_and(|first| first.contains('.'));
        let cut = package
            .match_indices('/')
            .take(limits::IMPORT_PARTS)
            .find(|(at, _)| resolver.folder(&package[at + 1..]).is_some());
        if let (true, Some((at, _))) = (domain, cut) {
            *votes.entry(&package[..at]).or_default() += 1;
        }
    }
    votes
        .into_iter()
        .max_by_key(|(name, votes)| (*votes, std::cmp::Reverse(*name)))
        .map(|(name, _)| (name.to_owned(), Package { folder: "", named: false }))
}
