//! Which files a text means by a path, a file's name or a module's path.

use std::collections::BTreeMap;

use crate::{
    codebase::{
        Index,
        imports::{folder_of, stem},
        tree::file_name,
    },
    limits,
};

/// The files of an index by their names.
#[derive(Debug)]
pub(super) struct Names {
    /// By the file's name up to its first dot; a `mod.rs` also by its folder's name. In order.
    by_stem: BTreeMap<String, Vec<usize>>,
}

/// Names of files that stand for their folder.
const FOR_FOLDER: &[&str] = &["__init__", "index", "lib", "main", "mod"];

impl Names {
    pub(super) fn of(index: &Index) -> Self {
        let mut by_stem: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, file) in index.files().iter().enumerate() {
            let own = stem(file_name(&file.path));
            by_stem.entry(own.to_owned()).or_default().push(at);
            if FOR_FOLDER.contains(&own) {
                by_stem.entry(file_name(folder_of(&file.path)).to_owned()).or_default().push(at);
            }
        }
        Self { by_stem }
    }

    pub(super) fn with_stem(&self, stem: &str) -> &[usize] {
        self.by_stem.get(stem).map_or(&[], Vec::as_slice)
    }

    /// The files whose paths share the longest end with `path`: one seen from elsewhere is still worth something. A path
    /// without an ending may go on into a file, as `store::Row` does.
    pub(super) fn meant_by(&self, index: &Index, path: &str) -> Vec<usize> {
        if let Some(at) = index.place(path).filter(|_| path.contains('/')) {
            return vec![at];
        }
        let parts = path.rsplit('/').filter(|part| !matches!(*part, "" | "." | ".."));
        let parts: Vec<&str> = parts.take(limits::NAMED_PARTS).collect();
        let has_ending = parts.first().is_some_and(|last| last.contains('.'));
        let least = if has_ending && parts.len() == 1 { 1 } else { 2 };
        let ways_to_end = if has_ending { 1 } else { parts.len() };
        let ends = (0..ways_to_end).map(|cut| &parts[cut..]).take_while(|parts| parts.len() >= least);
        ends.map(|parts| self.with_longest_end(index, parts, least, has_ending))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }

    /// Parts from the last to the first, at least so many of which must be those of the file's path.
    fn with_longest_end(&self, index: &Index, parts: &[&str], least: usize, has_ending: bool) -> Vec<usize> {
        let known = self.with_stem(stem(parts[0])).iter().take(limits::NAMED_CANDIDATES);
        let shared = known.map(|at| {
            let path = index.files()[*at].path.as_str();
            let path = if has_ending { path } else { module(path) };
            (path.rsplit('/').zip(parts).take_while(|(own, part)| own == *part).count(), *at)
        });
        let shared: Vec<(usize, usize)> = shared.filter(|(count, _)| *count >= least).collect();
        let most = shared.iter().map(|(count, _)| *count).max();
        shared.into_iter().filter(|(count, _)| Some(*count) == most).map(|(_, at)| at).collect()
    }
}

/// A path as modules are called by: without its ending, a `mod.rs` by its folder.
fn module(path: &str) -> &str {
    let whole = &path[..path.len() - file_name(path).len() + stem(file_name(path)).len()];
    if FOR_FOLDER.contains(&stem(file_name(path))) { folder_of(whole) } else { whole }
}
