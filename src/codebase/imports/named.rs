//! Languages whose imports name a class, a namespace or a file, with roots that only the build knows: found by how the
//! path ends.

use super::{Resolved, Resolver, file_name, files_or, folder_of, join, relative};
use crate::{codebase::Import, limits};

/// `java.util.List`: a class stands in a file of its name, in folders named as its package.
pub(super) fn java<'i>(resolver: &Resolver<'i>, from: &str, import: &Import) -> Resolved<'i> {
    let module = import.module.trim_end_matches(".*").replace('.', "/");
    let whole: Vec<String> =
        std::iter::once(module.clone()).chain(import.names.iter().map(|name| join(&module, name))).collect();
    let mut found: Vec<&str> = Vec::new();
    for path in &whole {
        // A class in a class, or its member, stands in the file of the outer one.
        let outer = super::upwards(path).take_while(|path| path.contains('/')).take(3);
        found.extend(
            outer.into_iter().find_map(|path| resolver.nearest_ending(from, &format!("{path}.java"))),
        );
    }
    found.sort_unstable();
    found.dedup();
    if found.is_empty() && (import.text.contains('*') || import.names.iter().any(|name| name == "*")) {
        return folder_ending(resolver, &module);
    }
    files_or(found, Resolved::External)
}

/// `#include "net/socket.h"`, `source lib/common.sh`: beside the file, or at a root.
pub(super) fn included<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Resolved<'i> {
    let module = module.trim_matches(['"', '<', '>']);
    let beside = relative(folder_of(from), module).and_then(|path| resolver.path(&path));
    let found = beside.or_else(|| resolver.nearest_ending(from, module.trim_start_matches("./")));
    found.map_or(Resolved::External, |path| Resolved::Files(vec![path]))
}

pub(super) fn ruby<'i>(resolver: &Resolver<'i>, from: &str, import: &Import) -> Resolved<'i> {
    let module = import.module.trim_end_matches(".rb");
    if import.text.contains("require_relative") {
        let path = relative(folder_of(from), &format!("{module}.rb"));
        let found = path.and_then(|path| resolver.path(&path));
        return found.map_or(Resolved::Missing, |path| Resolved::Files(vec![path]));
    }
    let found = resolver
        .nearest_ending(from, &format!("lib/{module}.rb"))
        .or_else(|| module.contains('/').then(|| resolver.nearest_ending(from, &format!("{module}.rb")))?);
    found.map_or(Resolved::External, |path| Resolved::Files(vec![path]))
}

/// `App\Models\User`: the last parts are folders and the file; what the first stand for, the manifest says. Two parts
/// must agree, or the name be the only one.
pub(super) fn php<'i>(resolver: &Resolver<'i>, from: &str, import: &Import) -> Resolved<'i> {
    let module = import.module.trim_matches('\\').replace('\\', "/");
    let mut found: Vec<&str> = Vec::new();
    let named = import.names.iter().map(|name| join(&module, name));
    for path in std::iter::once(module.clone()).chain(named) {
        let parts: Vec<&str> = path.split('/').take(limits::IMPORT_PARTS).collect();
        let tails = (0..parts.len().saturating_sub(1)).map(|at| parts[at..].join("/"));
        found
            .extend(tails.into_iter().find_map(|tail| resolver.nearest_ending(from, &format!("{tail}.php"))));
    }
    found.sort_unstable();
    found.dedup();
    files_or(found, Resolved::External)
}

/// `using Shop.Orders`: often, not always, a folder.
pub(super) fn namespace<'i>(resolver: &Resolver<'i>, module: &str) -> Resolved<'i> {
    let parts: Vec<&str> = module.split('.').take(limits::IMPORT_PARTS).collect();
    let exact = [module.to_owned(), parts.join("/")];
    let tails = (1..parts.len().saturating_sub(1)).map(|at| parts[at..].join("/"));
    exact
        .into_iter()
        .chain(tails)
        .map(|path| folder_ending(resolver, &path))
        .find(|found| matches!(found, Resolved::Folder(_)))
        .unwrap_or(Resolved::External)
}

/// The first folder whose path ends so.
fn folder_ending<'i>(resolver: &Resolver<'i>, ending: &str) -> Resolved<'i> {
    let same_name = resolver.folders_named(file_name(ending));
    let found = same_name.iter().take(limits::IMPORT_CANDIDATES).find(|folder| {
        folder.strip_suffix(ending).is_some_and(|before| before.is_empty() || before.ends_with('/'))
    });
    found.map_or(Resolved::External, |folder| Resolved::Folder(folder))
}
