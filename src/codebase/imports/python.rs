//! `from ..models import User`: packages are folders, modules are files.

use super::{Resolved, Resolver, files_or, folder_of, join, upwards};
use crate::{codebase::Import, limits};

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, from: &str, import: &Import) -> Resolved<'i> {
    let dots = import.module.bytes().take_while(|b| *b == b'.').count();
    let path = import.module[dots..].replace('.', "/");
    if dots > 0 {
        let Some(folder) = upwards(folder_of(from)).nth(dots - 1) else { return Resolved::Missing };
        return files_or(under(resolver, folder, &path, import), Resolved::Missing);
    }
    let first = path.split('/').next().unwrap_or_default();
    for folder in upwards(folder_of(from)).take(limits::IMPORT_PARTS) {
        for root in [folder.to_owned(), join(folder, "src"), join(folder, "lib")] {
            if module(resolver, &join(&root, first)).is_some() {
                // `import a.b` of a package that makes `b` as it runs cannot be told from one that lacks it.
                return files_or(under(resolver, &root, &path, import), Resolved::Missing);
            }
            let found = under(resolver, &root, &path, import);
            if !found.is_empty() {
                return Resolved::Files(found);
            }
        }
    }
    Resolved::External
}

/// The module, and those of its names that are modules.
fn under<'i>(resolver: &Resolver<'i>, root: &str, path: &str, import: &Import) -> Vec<&'i str> {
    let whole = join(root, path);
    let own = module(resolver, &whole);
    let mut found: Vec<&str> =
        import.names.iter().filter_map(|name| module(resolver, &join(&whole, name))).collect();
    if found.len() < import.names.len().max(1) {
        found.extend(own);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn module<'i>(resolver: &Resolver<'i>, path: &str) -> Option<&'i str> {
    let whole = [format!("{path}.py"), join(path, "__init__.py"), format!("{path}.pyi")];
    resolver.first_path(whole)
}
