//! `from package.module import name`, where the package is of this repository.

use super::{Found, Imports, all, join};
use crate::codebase::Import;

pub(super) fn find(imports: &Imports<'_, '_, '_>, import: &Import) -> Vec<Found> {
    // What is relative depends on where the block will stand.
    if import.module.starts_with('.') || import.module.is_empty() {
        return Vec::new();
    }
    let names: Vec<Option<&str>> =
        import.names.iter().map(String::as_str).filter(|name| *name != "*").map(Some).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    names.into_iter().map(|name| whole(imports, &import.module, name)).collect()
}

/// In every folder that has a package of the module's first name.
fn whole(imports: &Imports<'_, '_, '_>, module: &str, name: Option<&str>) -> Found {
    let first = module.split('.').next().unwrap_or(module);
    let marker = format!("{first}/__init__.py");
    let packages = imports.beginning("").filter_map(|path| {
        let above = path.strip_suffix(&marker)?;
        let top =
            above.is_empty() || (above.ends_with('/') && !imports.is_file(&format!("{above}__init__.py")));
        top.then(|| above.trim_end_matches('/').to_owned())
    });
    all(packages.collect::<Vec<_>>().iter().map(|above| walk(imports, above, module, name)))
}

fn walk(imports: &Imports<'_, '_, '_>, above: &str, module: &str, name: Option<&str>) -> Found {
    let mut at = above.to_owned();
    let mut file = String::new();
    let mut done = String::new();
    for part in module.split('.') {
        at = join(&at, part);
        if let Some(found) = not_ours(imports, &at, part) {
            return found;
        }
        let next =
            [format!("{at}.py"), join(&at, "__init__.py")].into_iter().find(|path| imports.is_file(path));
        match next {
            Some(path) => file = path,
            // A folder without a file of its own is a package as well.
            None if imports.is_dir(&at) => return Found::Unknown,
            None => return missing(imports, &file, above, part, &done),
        }
        done = if done.is_empty() { part.to_owned() } else { format!("{done}.{part}") };
    }
    let Some(name) = name else { return Found::Yes };
    let inner = join(&at, name);
    if let Some(found) = not_ours(imports, &inner, name) {
        return found;
    }
    if imports.is_dir(&inner) || imports.beginning(&format!("{inner}.")).next().is_some() {
        return Found::Yes;
    }
    imports.in_file(&file, name, module)
}

/// What is added, or may be made by a build.
fn not_ours(imports: &Imports<'_, '_, '_>, at: &str, name: &str) -> Option<Found> {
    let made = name.contains("version") || name.ends_with("_pb2") || name.ends_with("_pb2_grpc");
    let added = imports.is_added(at) || imports.is_added(&format!("{at}.py"));
    let other = imports.beginning(&format!("{at}.")).any(|path| !path.ends_with(".py"));
    (made || added || other).then_some(Found::Unknown)
}

/// A part of a module's name that is no file: a package may have the name from elsewhere.
fn missing(imports: &Imports<'_, '_, '_>, package: &str, above: &str, part: &str, done: &str) -> Found {
    let prefix = format!("{}.", done.split('.').next().unwrap_or(done));
    match imports.in_file(package, part, done) {
        Found::No(_) => {
            let modules = imports.beginning(above).filter_map(|path| {
                let stem = path.strip_suffix("/__init__.py").or(path.strip_suffix(".py"))?;
                let inner = stem.strip_prefix(above)?.trim_start_matches('/').replace('/', ".");
                inner.strip_prefix(&prefix).map(str::to_owned)
            });
            let whole = format!("{done}.{part}");
            imports.no_module(&prefix, whole.strip_prefix(&prefix).unwrap_or(part), modules)
        }
        found => found,
    }
}
