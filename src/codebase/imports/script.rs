//! `import x from './util'`: JavaScript and TypeScript, the ending and `index` left to be guessed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use super::{Lead, Resolved, Resolver, folder_of, join, relative, upwards};
use crate::limits;

/// In the order that bundlers try them.
const ENDINGS: &[&str] =
    &["ts", "tsx", "mts", "cts", "d.ts", "js", "jsx", "mjs", "cjs", "vue", "svelte", "json"];

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Resolved<'i> {
    let module = without_wish(module);
    if module.starts_with('.') {
        let found = relative(folder_of(from), module).and_then(|path| file(resolver, &path));
        return found.map_or(Resolved::Missing, |path| Resolved::Files(vec![path]));
    }
    let found = package(resolver, module).or_else(|| aliased(resolver, from, module));
    found.map_or(Resolved::External, |path| Resolved::Files(vec![path]))
}

/// Of a module that is given as a path.
pub(super) fn leads<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Vec<Lead<'i>> {
    let path = relative(folder_of(from), without_wish(module));
    let folder = path.as_deref().map_or("", folder_of);
    leads_of(resolver, folder_of(from), folder, path.as_deref(), module)
}

/// Of a module under a prefix that files of the same package use: one for each folder that it stands for.
pub(super) fn aliased_leads<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Vec<Lead<'i>> {
    let Some(prefix) = prefix(module) else { return Vec::new() };
    let roots = resolver.aliases.get(&(package_of(resolver, from), prefix)).into_iter().flatten();
    let rest = without_wish(&module[prefix.len()..]);
    roots.flat_map(|root| leads_of(resolver, root, root, relative(root, rest).as_deref(), rest)).collect()
}

/// To every file that a path may mean, as a script and what declares its types; or to where there is none.
fn leads_of<'i>(
    resolver: &Resolver<'i>,
    root: &str,
    folder: &str,
    path: Option<&str>,
    rest: &str,
) -> Vec<Lead<'i>> {
    let lead =
        Lead { root: root.to_owned(), file: None, folder: folder.to_owned(), rest: vec![rest.to_owned()] };
    let files = path.into_iter().flat_map(|path| files(resolver, path));
    let found: Vec<Lead<'_>> =
        files.map(|file| Lead { file: Some(file), rest: Vec::new(), ..lead.clone() }).collect();
    if found.is_empty() { vec![lead] } else { found }
}

/// The folders that prefixes stand for, each by its package: all in which files that import by them find what they import,
/// those first in which most do, of equals the shorter. Where most find nothing, only a build knows them.
pub(super) fn aliases<'i>(resolver: &Resolver<'i>) -> HashMap<(String, &'static str), Vec<String>> {
    let mut found: HashMap<_, (usize, BTreeMap<String, usize>)> = HashMap::new();
    for file in resolver.index.files() {
        for import in &file.digest.summary().imports {
            let Some(prefix) = prefix(&import.module) else { continue };
            let rest = without_wish(&import.module[prefix.len()..]);
            let (imports, roots) = found.entry((package_of(resolver, &file.path), prefix)).or_default();
            *imports += 1;
            for (root, _) in under(resolver, &file.path, rest) {
                *roots.entry(root).or_default() += 1;
            }
        }
    }
    let best_first = |(imports, roots): (usize, BTreeMap<String, usize>)| {
        let mut roots: Vec<(String, usize)> = roots.into_iter().collect();
        roots.sort_by_key(|(root, fits)| (Reverse(*fits), root.len()));
        let told = roots.first().is_some_and(|(_, fits)| fits * 2 > imports);
        (told && roots.len() <= limits::IMPORT_PARTS)
            .then(|| roots.into_iter().map(|(root, _)| root).collect())
    };
    found.into_iter().filter_map(|(of, fits)| Some((of, best_first(fits)?))).collect()
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
    files(resolver, path).next()
}

/// Those that a path may mean.
fn files<'r, 'i>(resolver: &'r Resolver<'i>, path: &'r str) -> impl Iterator<Item = &'i str> + use<'r, 'i> {
    // A source names what it will be compiled to.
    let compiled = [
        (".js", &["ts", "tsx", "d.ts"][..]),
        (".mjs", &["mts", "d.mts"]),
        (".cjs", &["cts", "d.cts"]),
        (".jsx", &["tsx"]),
    ];
    let sources =
        compiled.into_iter().filter_map(move |(ending, sources)| Some((path.strip_suffix(ending)?, sources)));
    let sources =
        sources.flat_map(|(stem, sources)| sources.iter().map(move |source| format!("{stem}.{source}")));
    let beside = ENDINGS.iter().map(move |ending| format!("{path}.{ending}"));
    let inside = ENDINGS.iter().map(move |ending| join(path, &format!("index.{ending}")));
    let all = std::iter::once(path.to_owned()).chain(sources).chain(beside).chain(inside);
    // Where there is no such folder, nothing of it is looked for.
    let all = resolver.is_folder(folder_of(path)).then_some(all).into_iter().flatten();
    all.filter_map(|path| resolver.path(&path))
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
    under(resolver, from, path).next().map(|(_, path)| path)
}

/// Files in a folder above, or in the `src` of one, each with that folder, the nearest first.
fn under<'r, 'i>(
    resolver: &'r Resolver<'i>,
    from: &'r str,
    path: &'r str,
) -> impl Iterator<Item = (String, &'i str)> + use<'r, 'i> {
    upwards(folder_of(from))
        .take(limits::IMPORT_PARTS)
        .flat_map(|folder| [join(folder, "src"), folder.to_owned()])
        .filter_map(|root| {
            Some((file(resolver, &relative(&root, path)?)?, root)).map(|(file, root)| (root, file))
        })
}
