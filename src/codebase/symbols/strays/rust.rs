//! `use crate::…`, and paths that begin with the name of a package of this repository.

use super::{Found, Imports, all, folder, join};
use crate::codebase::Import;

pub(super) fn find(imports: &Imports<'_, '_, '_>, import: &Import) -> Vec<Found> {
    let mut path: Vec<&str> = import.module.split("::").map(str::trim).collect();
    let first = path.remove(0);
    let roots = match first {
        "crate" => own_roots(imports),
        name => package_roots(imports, name),
    };
    let names = import.names.iter().map(|name| Some(name.as_str()));
    let names: Vec<Option<&str>> = if import.names.is_empty() { vec![None] } else { names.collect() };
    let whole = |name: Option<&str>| {
        let path: Vec<&str> = path.iter().copied().chain(name).collect();
        all(roots.iter().map(|root| walk(imports, root, first, &path)))
    };
    names.into_iter().map(whole).collect()
}

/// Down from a root: each name is a module's file, or stands in the file before it.
fn walk(imports: &Imports<'_, '_, '_>, root: &str, first: &str, names: &[&str]) -> Found {
    let (mut file, mut dir) = (root.to_owned(), folder(root).to_owned());
    let mut module = first.to_owned();
    for (at, name) in names.iter().enumerate() {
        let plain = name.strip_prefix("r#").unwrap_or(name);
        if matches!(plain, "*" | "self" | "") {
            return Found::Yes;
        }
        let (leaf, inner) = (join(&dir, &format!("{plain}.rs")), join(&dir, plain));
        let holder = join(&inner, "mod.rs");
        if imports.is_added(&leaf) || imports.is_added(&holder) || imports.is_added(&inner) {
            return Found::Unknown;
        }
        let next = [leaf, holder].into_iter().find(|path| imports.is_file(path));
        match next {
            Some(path) => (file, dir) = (path, inner),
            None => {
                // Macros of a crate are at its root, wherever they stand.
                let macros = file == root && imports.has_macros(root, plain);
                if macros {
                    return Found::Unknown;
                }
                let is_module = at + 1 < names.len() && plain.starts_with(|c: char| c.is_lowercase());
                let like = is_module.then(|| join(&dir, plain));
                return stands(imports, &file, plain, &module, like.as_deref());
            }
        }
        module = format!("{module}::{name}");
    }
    Found::Yes
}

/// A name that is no file: is it in the file of the module it is taken from? `like`: it is a module, and this is the path
/// it would have.
fn stands(imports: &Imports<'_, '_, '_>, file: &str, name: &str, module: &str, like: Option<&str>) -> Found {
    match (imports.in_file(file, name, module), like) {
        (Found::No(_), Some(like)) => {
            let beside = format!("{}/", folder(like));
            let modules = imports.beginning(&beside).filter_map(|path| {
                let stem = path.strip_suffix("/mod.rs").or(path.strip_suffix(".rs"))?;
                stem.strip_prefix(&beside).filter(|name| !name.contains('/')).map(str::to_owned)
            });
            imports.no_module(&format!("{module}::"), name, modules)
        }
        (found, _) => found,
    }
}

/// The roots of the crates that the design's files are of; of all where it has none.
fn own_roots(imports: &Imports<'_, '_, '_>) -> Vec<String> {
    let code = |path: &&str| path.ends_with(".rs");
    let of_files: Vec<String> = imports
        .block
        .files
        .iter()
        .copied()
        .filter(code)
        .flat_map(|path| roots_above(imports, path))
        .collect();
    if !of_files.is_empty() {
        return of_files;
    }
    imports.beginning("").filter(|path| is_root(path)).map(str::to_owned).collect()
}

/// Where the crate of a file begins. A test or an example is a crate of its own, and no one's business.
fn roots_above(imports: &Imports<'_, '_, '_>, path: &str) -> Vec<String> {
    let mut dir = folder(path);
    loop {
        let found: Vec<String> = ["lib.rs", "main.rs"]
            .iter()
            .map(|name| join(dir, name))
            .filter(|path| imports.is_file(path))
            .collect();
        if !found.is_empty() || dir.is_empty() {
            return found;
        }
        dir = folder(dir);
    }
}

fn is_root(path: &str) -> bool {
    ["src/lib.rs", "src/main.rs"].iter().any(|root| path == *root || path.ends_with(&format!("/{root}")))
}

/// The library of the package of this name, by the manifests there are.
fn package_roots(imports: &Imports<'_, '_, '_>, name: &str) -> Vec<String> {
    let manifests = imports.beginning("").filter(|path| path.rsplit('/').next() == Some("Cargo.toml"));
    let named = manifests.filter(|path| {
        let text = imports.symbols.text(path).unwrap_or_default();
        package_name(text).is_some_and(|own| own.replace('-', "_") == name)
    });
    let roots = named.map(|path| join(folder(path), "src/lib.rs"));
    roots.filter(|path| imports.is_file(path)).collect()
}

/// `name = "…"` below `[package]`.
fn package_name(manifest: &str) -> Option<&str> {
    let (_, package) = manifest.split_once("[package]")?;
    let package = package.split("\n[").next()?;
    let line = package.lines().find(|line| line.trim_start().starts_with("name"))?;
    line.split('"').nth(1)
}
