//! `from ..models import User`: packages are folders, modules are files.

use super::{Lead, Resolved, Resolver, files_or, folder_of, join, upwards};
use crate::{codebase::Import, limits};

pub(super) fn resolve<'i>(resolver: &Resolver<'i>, from: &str, import: &Import) -> Resolved<'i> {
    let Some(lead) = lead(resolver, from, &import.module) else { return Resolved::External };
    if !lead.rest.is_empty() {
        return Resolved::Missing;
    }
    let mut found: Vec<&str> =
        import.names.iter().filter_map(|name| module(resolver, &join(&lead.folder, name))).collect();
    if found.len() < import.names.len().max(1) {
        found.extend(lead.file);
    }
    found.sort_unstable();
    found.dedup();
    // A package may have no file of its own.
    files_or(found, Resolved::External)
}

/// An absolute module is looked for in every folder above, and in their `src` and `lib`: a guess where that is no root
/// of packages.
fn lead<'i>(resolver: &Resolver<'i>, from: &str, module: &str) -> Option<Lead<'i>> {
    let dots = module.bytes().take_while(|b| *b == b'.').count();
    let parts: Vec<&str> = module[dots..].split('.').filter(|part| !part.is_empty()).collect();
    if dots > 0 {
        return Some(match upwards(folder_of(from)).nth(dots - 1) {
            Some(folder) => walk(resolver, folder.to_owned(), &parts),
            None => Lead { file: None, folder: String::new(), rest: vec![module.to_owned()] },
        });
    }
    let first = parts.first()?;
    upwards(folder_of(from))
        .take(limits::IMPORT_PARTS)
        .flat_map(|folder| [folder.to_owned(), join(folder, "src"), join(folder, "lib")])
        .find_map(|root| {
            let begins = self::module(resolver, &join(&root, first)).is_some();
            let folder = resolver.is_folder(&join(&root, first));
            let lead = (begins || folder).then(|| walk(resolver, root, &parts))?;
            // A folder alone is a package only if what is asked for is in it.
            (begins || lead.rest.is_empty()).then_some(lead)
        })
}

fn walk<'i>(resolver: &Resolver<'i>, root: String, parts: &[&str]) -> Lead<'i> {
    let file = module(resolver, &root).filter(|path| path.contains("__init__"));
    let mut lead = Lead { file, folder: root, rest: Vec::new() };
    for (at, part) in parts.iter().enumerate() {
        let inner = join(&lead.folder, part);
        let file = module(resolver, &inner);
        if file.is_none() && !resolver.is_folder(&inner) {
            lead.rest = parts[at..].iter().map(|part| (*part).to_owned()).collect();
            break;
        }
        (lead.file, lead.folder) = (file, inner);
    }
    lead
}

fn module<'i>(resolver: &Resolver<'i>, path: &str) -> Option<&'i str> {
    let whole = [format!("{path}.py"), join(path, "__init__.py"), format!("{path}.pyi")];
    resolver.first_path(whole)
}
