//! `import … from "./file"` in JavaScript and TypeScript.

use super::{Found, Imports, all, folder};
use crate::codebase::{Import, Language};

/// Endings that an import may leave out or write as another.
const ENDINGS: [&str; 5] = [".js", ".jsx", ".mjs", ".cjs", ".ts"];

pub(super) fn find(imports: &Imports<'_, '_, '_>, import: &Import) -> Vec<Found> {
    let module = import.module.trim_matches(['"', '\'']);
    let relative = module.starts_with("./") || module.starts_with("../");
    if !relative || module.contains(['?', '#', '!', '*']) {
        return Vec::new();
    }
    let script = |path: &&str| {
        matches!(Language::of(path), Language::JavaScript | Language::TypeScript | Language::Tsx)
    };
    // The block may be of any file that the design changes; wrong is only what is wrong from all of them.
    let from: Vec<&str> = imports.block.files.iter().copied().filter(script).collect();
    let names = import.names.iter().map(String::as_str).filter(|name| !matches!(*name, "*" | "default"));
    let names: Vec<Option<&str>> = names.map(Some).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    let one = |name: Option<&str>| all(from.iter().map(|from| whole(imports, from, module, name)));
    names.into_iter().map(one).collect()
}

fn whole(imports: &Imports<'_, '_, '_>, from: &str, module: &str, name: Option<&str>) -> Found {
    let Some(at) = resolve(folder(from), module) else { return Found::Unknown };
    let stem = ENDINGS.iter().find_map(|ending| at.strip_suffix(ending)).unwrap_or(&at);
    let beside = format!("{stem}.");
    let index = format!("{stem}/index.");
    if imports.added.iter().any(|path| path.starts_with(&beside) || path.starts_with(&index) || *path == at) {
        return Found::Unknown;
    }
    if imports.is_file(&at) && !Language::of(&at).is_code() {
        return Found::Yes;
    }
    let candidates: Vec<&str> = imports.beginning(&beside).chain(imports.beginning(&index)).collect();
    match (candidates.as_slice(), name) {
        ([], _) if imports.is_dir(&at) || imports.is_file(&at) => Found::Unknown,
        ([], _) => {
            let script = |path: &&str| Language::of(path).is_code();
            let files = imports.beginning("").filter(script).filter_map(|path| relative(folder(from), path));
            // Whose block this is is not known: only what is nearly the name of a real file is surely meant for it.
            match imports.no_module("", module, files) {
                Found::No(stray) if stray.nearest.is_empty() || !is_script(module) => Found::Unknown,
                found => found,
            }
        }
        (_, None) => Found::Yes,
        (some, Some(name)) => all(some.iter().map(|path| imports.in_file(path, name, module))),
    }
}

/// Is what is imported a script by its name, or may it be?
fn is_script(module: &str) -> bool {
    let file = module.rsplit('/').next().unwrap_or(module);
    !file.contains('.') || ENDINGS.iter().any(|ending| file.ends_with(ending))
}

/// `./a/../b` from a folder, unless it leads out of the repository.
fn resolve(folder: &str, module: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in module.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// How a file in a folder imports another, without its ending.
fn relative(from: &str, path: &str) -> Option<String> {
    let ours: Vec<&str> = from.split('/').filter(|part| !part.is_empty()).collect();
    let theirs: Vec<&str> = path.split('/').collect();
    let common = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    let up = ours.len() - common;
    let rest = theirs[common..].join("/");
    let rest = rest.rsplit_once('.').map_or(rest.as_str(), |(stem, _)| stem);
    let rest = rest.strip_suffix("/index").unwrap_or(rest);
    let start = if up == 0 { "./".to_owned() } else { "../".repeat(up) };
    (up <= 2 && !rest.is_empty()).then(|| format!("{start}{rest}"))
}
