//! `use crate::store::Row`: modules are files, named as their folders are.

use super::{Resolved, Resolver, file_name, files_or, folder_of, join};
use crate::codebase::Import;

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, from: &str, import: &Import) -> Resolved<'i> {
    let mut parts = import.module.split("::").map(|part| part.trim().trim_start_matches("r#")).peekable();
    let first = parts.peek().copied().unwrap_or_default();
    let mut folder = match first {
        "crate" => crate_folder(resolver, from),
        "self" | "super" => module_folder(resolver, from),
        name => match resolver.packages.get(name) {
            Some(folder) => join(folder, "src"),
            // A module of this file's own, in the manner of 2018.
            None if step(resolver, &module_folder(resolver, from), name).is_some() => module_folder(resolver, from),
            None => return Resolved::External,
        },
    };
    let own = matches!(first, "crate" | "self" | "super") || resolver.packages.contains_key(first);
    let mut file = root(resolver, &folder);
    if matches!(first, "self" | "super") {
        file = resolver.path(from);
    }
    if own && first != "super" {
        parts.next();
    }
    for part in parts {
        if part == "super" {
            folder = folder_of(&folder).to_owned();
            file = module_file(resolver, &folder);
        } else if let Some((next, path)) = step(resolver, &folder, part) {
            folder = next;
            file = Some(path);
        } else {
            break;
        }
    }
    let names = import.names.iter().filter_map(|name| step(resolver, &folder, name));
    let mut found: Vec<&str> = names.map(|(_, path)| path).collect();
    // The module itself, unless all that is taken from it are modules.
    if found.len() < import.names.len().max(1) {
        found.extend(file);
    }
    found.retain(|path| *path != from);
    found.sort_unstable();
    found.dedup();
    files_or(found, Resolved::External)
}

/// The module `name` in a folder of modules: the folder of its own modules, and its file.
fn step<'i>(resolver: &Resolver<'i>, folder: &str, name: &str) -> Option<(String, &'i str)> {
    let inner = join(folder, name);
    let file = resolver.first_path([format!("{inner}.rs"), format!("{inner}/mod.rs")])?;
    Some((inner, file))
}

/// Where the modules of a file stand.
fn module_folder(resolver: &Resolver<'_>, from: &str) -> String {
    let folder = folder_of(from);
    match file_name(from) {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        // The root of a test, bench or example, whose modules stand beside it.
        _ if is_root_folder(folder) && root(resolver, folder).is_none() => folder.to_owned(),
        name => join(folder, name.trim_end_matches(".rs")),
    }
}

fn is_root_folder(folder: &str) -> bool {
    matches!(file_name(folder), "tests" | "benches" | "examples" | "bin")
}

/// The folder that `crate` means.
fn crate_folder(resolver: &Resolver<'_>, from: &str) -> String {
    let above = super::upwards(folder_of(from)).take(crate::limits::IMPORT_PARTS);
    above
        .into_iter()
        .find(|folder| root(resolver, folder).is_some() || is_root_folder(folder))
        .unwrap_or_else(|| folder_of(from))
        .to_owned()
}

fn root<'i>(resolver: &Resolver<'i>, folder: &str) -> Option<&'i str> {
    resolver.first_path([join(folder, "lib.rs"), join(folder, "main.rs")])
}

/// The file whose modules stand in `folder`.
fn module_file<'i>(resolver: &Resolver<'i>, folder: &str) -> Option<&'i str> {
    root(resolver, folder).or_else(|| resolver.first_path([join(folder, "mod.rs"), format!("{folder}.rs")]))
}
