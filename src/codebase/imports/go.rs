//! `import "example.com/shop/internal/cart"`: a package is a folder, and begins with its module's name.

use std::collections::BTreeMap;

use super::{Resolved, Resolver, file_name, folder_of, join};
use crate::{codebase::Language, limits};

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, package: &str) -> Resolved<'i> {
    for (prefix, root) in &resolver.go_modules {
        let Some(rest) = package.strip_prefix(prefix.as_str()) else { continue };
        if rest.is_empty() || rest.starts_with('/') {
            let folder = join(root, rest.trim_start_matches('/'));
            return resolver.folder(&folder).map_or(Resolved::Missing, Resolved::Folder);
        }
    }
    Resolved::External
}

/// The names of this repository's modules, longest first. Where no outline tells a `go.mod`'s, the imports do: what
/// most of those that end like a folder here begin with.
pub(super) fn modules<'i>(resolver: &Resolver<'i>) -> Vec<(String, &'i str)> {
    let mut modules = Vec::new();
    for file in resolver.index.files().iter().filter(|file| file_name(&file.path) == "go.mod") {
        let folder = folder_of(&file.path);
        let said = file.digest.summary().items.iter().find_map(|item| {
            let name = item.signature.strip_prefix("module ")?.trim().trim_matches('"');
            (!name.is_empty()).then(|| name.to_owned())
        });
        match said {
            Some(name) => modules.push((name, folder)),
            None if folder.is_empty() => modules.extend(guessed(resolver).map(|name| (name, folder))),
            None => {}
        }
    }
    modules.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
    modules
}

fn guessed(resolver: &Resolver<'_>) -> Option<String> {
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
    votes.into_iter().max_by_key(|(name, votes)| (*votes, std::cmp::Reverse(*name))).map(|(name, _)| name.to_owned())
}
