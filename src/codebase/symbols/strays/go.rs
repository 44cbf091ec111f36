//! Imports below the path of a module of this repository.

use super::{Found, Imports, folder, join};

pub(super) fn find(imports: &Imports<'_, '_, '_>, package: &str) -> Vec<Found> {
    let package = package.trim_matches('"');
    let manifests = imports.beginning("").filter(|path| path.rsplit('/').next() == Some("go.mod"));
    let modules = manifests.filter_map(|path| {
        let text = imports.symbols.text(path)?;
        let name = text.lines().find_map(|line| line.trim().strip_prefix("module "))?.trim();
        let below = package.strip_prefix(name.trim_matches('"'))?;
        (below.is_empty() || below.starts_with('/')).then(|| (folder(path), below.trim_start_matches('/')))
    });
    // The one whose name is longest has it.
    let Some((root, below)) = modules.min_by_key(|(_, below)| below.len()) else { return Vec::new() };
    let at = join(root, below);
    let at = at.trim_end_matches('/');
    if imports.is_dir(at) || imports.is_added(at) {
        return vec![Found::Yes];
    }
    let prefix = package.strip_suffix(below).unwrap_or_default();
    let packages = imports.beginning(root).filter_map(|path| {
        let below = folder(path.strip_suffix(".go").map(|_| path)?).strip_prefix(root)?;
        Some(below.trim_start_matches('/').to_owned())
    });
    vec![imports.no_module(prefix, below, packages)]
}
