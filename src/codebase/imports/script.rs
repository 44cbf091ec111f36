//! `import x from './util'`: JavaScript and TypeScript, the ending and `index` left to be guessed.

use super::{Resolved, Resolver, folder_of, join, relative, upwards};
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
    let folder = resolver.packages.get(name)?;
    let path = if rest.is_empty() { "index" } else { rest };
    [join(folder, "src"), join(folder, "src/node"), (*folder).to_owned()]
        .into_iter()
        .find_map(|root| file(resolver, &join(&root, path)))
}

/// `@/x`, `~/x`, `#x` and `src/x`, as projects like to set them up.
fn aliased<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Option<&'i str> {
    let path = ["@/", "~/", "#/", "#", "~"].iter().find_map(|prefix| module.strip_prefix(prefix));
    let path = path.or_else(|| module.starts_with("src/").then_some(module))?;
    under(resolver, from, path)
}

/// The nearest file in a folder above, or in the `src` of one.
fn under<'i>(resolver: &Resolver<'i>, from: &str, path: &str) -> Option<&'i str> {
    upwards(folder_of(from))
        .take(limits::IMPORT_PARTS)
        .flat_map(|folder| [join(folder, "src"), folder.to_owned()])
        .find_map(|root| file(resolver, &relative(&root, path)?))
}
