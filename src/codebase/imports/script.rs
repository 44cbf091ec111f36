//! `import x from './util'`: JavaScript and TypeScript, the ending and `index` left to be guessed.

use std::collections::HashMap;

use super::{Lead, Resolved, Resolver, folder_of, join, relative, upwards};
use crate::limits;

/// In the order that bundlers try them.
const ENDINGS: &[&str] =
    &["ts", "tsx", "mts", "cts", "d.ts", "js", "jsx", "mjs", "cjs", "vue", "svelte", "json"];

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Resolved<'i> {
    if module.starts_with('.') {
        return lead(resolver, from, module)
            .file
            .map_or(Resolved::Missing, |path| Resolved::Files(vec![path]));
    }
    let module = without_wish(module);
    let found = package(resolver, module).or_else(|| aliased(resolver, from, module));
    found.map_or(Resolved::External, |path| Resolved::Files(vec![path]))
}

/// Of a module that is given as a path.
pub(super) fn lead<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Lead<'i> {
    let path = relative(folder_of(from), without_wish(module));
    let file = path.as_ref().and_then(|path| file(resolver, path));
    let folder = path.as_deref().map_or("", folder_of).to_owned();
    let rest = if file.is_some() { Vec::new() } else { vec![module.to_owned()] };
    Lead { root: folder_of(from).to_owned(), file, folder, rest }
}

/// Of a module under a prefix, if files of the same package use that.
pub(super) fn aliased_lead<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Option<Lead<'i>> {
    let prefix = prefix(module)?;
    let root = resolver.aliases.get(&(package_of(resolver, from), prefix))?.clone();
    let rest = without_wish(&module[prefix.len()..]);
    let file = file(resolver, &join(&root, rest));
    let rest = if file.is_some() { Vec::new() } else { vec![rest.to_owned()] };
    Some(Lead { root: root.clone(), file, folder: root, rest })
}

/// The folders that prefixes stand for, each by its package: as far as files import by them what is there.
pub(super) fn aliases<'i>(resolver: &Resolver<'i>) -> HashMap<(String, &'static str), String> {
    let mut aliases = HashMap::new();
    for file in resolver.index.files() {
        for import in &file.digest.summary().imports {
            let Some(prefix) = prefix(&import.module) else { continue };
            let rest = without_wish(&import.module[prefix.len()..]);
            if let Some((root, _)) = under(resolver, &file.path, rest) {
                aliases.entry((package_of(resolver, &file.path), prefix)).or_insert(root);
            }
        }
    }
    aliases
}

fn prefix(module: &str) -> Option<&'static str> {
    ["@/", "~/"].into_iter().find(|prefix| module.starts_with(prefix))
}

/// The folder of the package that a file is of.
fn package_of(resolver: &Resolver<'_>, path: &str) -> String {
    let mut above = upwards(folder_of(path));
    above.find(|folder| resolver.path(&join(folder, "package.json")).is_some()).unwrap_or_default().to_owned()
}

/// `./style.css?raw` is the file and a wish.
fn without_wish(module: &str) -> &str {
    module.split('?').next().unwrap_or(module)
}

fn file<'i>(resolver: &Resolver<'i>, path: &str) -> Option<&'i str> {
    if let Some(path) = resolver.path(path) {
        return Some(path);
    }
    // A source names what it will be compiled to.
    let compiled = [(".js", &["ts", "tsx"][..]), (".mjs", &["mts"]), (".cjs", &["cts"]), (".jsx", &["tsx"])];
    for (ending, sources) in compiled {
        if let Some(stem) = path.strip_suffix(ending) {
            return resolver.first_path(sources.iter().map(|source| format!("{stem}.{source}")));
        }
    }
    let beside = ENDINGS.iter().map(|ending| format!("{path}.{ending}"));
    let inside = ENDINGS.iter().map(|ending| join(path, &format!("index.{ending}")));
    resolver.first_path(beside.chain(inside))
}

/// A package of this repository by its name, or something in it.
fn package<'i>(resolver: &Resolver<'i>, module: &str) -> Option<&'i str> {
    let parts = if module.starts_with('@') { 2 } else { 1 };
    let end = module.match_indices('/').nth(parts - 1).map_or(module.len(), |(at, _)| at);
    let (name, rest) = (&module[..end], module[end..].trim_start_matches('/'));
    let folder = resolver.packages.get(name)?.folder;
    let path = if rest.is_empty() { "index" } else { rest };
    [join(folder, "src"), join(folder, "src/node"), folder.to_owned()]
        .into_iter()
        .find_map(|root| file(resolver, &join(&root, path)))
}

/// `@/x`, `~/x`, `#x` and `src/x`, as projects like to set them up.
fn aliased<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Option<&'i str> {
    let path = ["@/", "~/", "#/", "#", "~"].iter().find_map(|prefix| module.strip_prefix(prefix));
    let path = path.or_else(|| module.starts_with("src/").then_some(module))?;
    under(resolver, from, path).map(|(_, path)| path)
}

/// A file in a folder above, or in the `src` of one, with that folder.
fn under<'i>(resolver: &Resolver<'i>, from: &str, path: &str) -> Option<(String, &'i str)> {
    upwards(folder_of(from))
        .take(limits::IMPORT_PARTS)
        .flat_map(|folder| [join(folder, "src"), folder.to_owned()])
        .find_map(|root| file(resolver, &join(&root, path)).map(|path| (root, path)))
}
