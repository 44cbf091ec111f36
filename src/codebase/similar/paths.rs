//! Which files a text means by a path, a file's name or a module's path.

use std::collections::BTreeMap;

use crate::codebase::{Index, imports::{folder_of, stem}, tree::file_name};

/// The files of an index by their names.
pub(super) struct Names<'i> {
    index: &'i Index,
    /// By the file's name up to its first dot; a `mod.rs` also by its folder's name. In order.
    by_stem: BTreeMap<&'i str, Vec<usize>>,
}

/// Names of files that stand for their folder.
const FOR_FOLDER: &[&str] = &["__init__", "index", "lib", "main", "mod"];

impl<'i> Names<'i> {
    pub(super) fn of(index: &'i Index) -> Self {
        let mut by_stem: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, file) in index.files().iter().enumerate() {
            let own = stem(file_name(&file.path));
            by_stem.entry(own).or_default().push(at);
            if FOR_FOLDER.contains(&own) {
                by_stem.entry(file_name(folder_of(&file.path))).or_default().push(at);
            }
        }
        Self { index, by_stem }
    }

    pub(super) fn with_stem(&self, stem: &str) -> &[usize] {
        self.by_stem.get(stem).map_or(&[], Vec::as_slice)
    }

    /// The files whose path ends as `path` does, beginnings left away until there are some: a path seen from elsewhere
    /// is still worth something. One without an ending may go on into a file, as `store::Row` does.
    pub(super) fn meant_by(&self, path: &str) -> Vec<usize> {
        let mut parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
        let has_ending = parts.last().is_some_and(|last| last.contains('.'));
        let least = if has_ending && parts.len() == 1 { 1 } else { 2 };
        while parts.len() >= least {
            let known = parts.last().map_or(&[][..], |last| self.with_stem(stem(last)));
            for skipped in 0..=parts.len() - least {
                let wanted = parts[skipped..].join("/");
                let meant = |at: &usize| {
                    let path = self.index.files()[*at].path.as_str();
                    ends_with(if has_ending { path } else { module(path) }, &wanted)
                };
                let found: Vec<usize> = known.iter().copied().filter(meant).collect();
                if !found.is_empty() {
                    return found;
                }
            }
            if has_ending {
                break;
            }
            parts.pop();
        }
        Vec::new()
    }
}

/// A path as modules are called by: without its ending, a `mod.rs` by its folder.
fn module(path: &str) -> &str {
    let whole = &path[..path.len() - file_name(path).len() + stem(file_name(path)).len()];
    if FOR_FOLDER.contains(&stem(file_name(path))) { folder_of(whole) } else { whole }
}

fn ends_with(path: &str, ending: &str) -> bool {
    path.strip_suffix(ending).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}
