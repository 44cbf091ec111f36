//! `import "example.com/shop/internal/cart"`: a package is a folder, and begins with its module's name.

use std::collections::BTreeMap;

use super::{Resolved, Resolver};
use crate::{codebase::Language, limits};

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, package: &str) -> Resolved<'i> {
    let below = |module: &String| package.strip_prefix(module.as_str());
    let below = resolver
        .go_module
        .as_ref()
        .and_then(below)
        .filter(|rest| matches!(rest.bytes().next(), None | Some(b'/')));
    let Some(rest) = below else { return Resolved::External };
    resolver.folder(rest.trim_start_matches('/')).map_or(Resolved::Missing, Resolved::Folder)
}

/// The name of the module at the root, which no index shows, as the imports tell it: what most of those that end like a
/// folder here begin with.
pub(super) fn guessed(resolver: &Resolver<'_>) -> Option<String> {
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
    let most = votes.into_iter().max_by_key(|(name, votes)| (*votes, std::cmp::Reverse(*name)));
    most.map(|(name, _)| name.to_owned())
}
