//! The paths of a repository at one commit.

use std::collections::BTreeSet;

use crate::documents::FileTree;

/// Maximum number of existing paths suggested for a missing path.
const HINTS: usize = 3;

/// Files and folders of a commit. Paths have no leading slash; the root folder is the empty path.
#[derive(Debug, Clone, Default)]
pub struct TreeIndex {
    files: BTreeSet<String>,
    dirs: BTreeSet<String>,
    links: BTreeSet<String>,
    executables: BTreeSet<String>,
}

impl TreeIndex {
    pub fn new(files: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let files: BTreeSet<String> = files.into_iter().map(Into::into).collect();
        let dirs = files
            .iter()
            .flat_map(|path| path.match_indices('/').map(|(at, _)| path[..at].to_owned()))
            .collect();
        Self { files, dirs, ..Self::default() }
    }

    /// Marks these paths as symlinks or submodules.
    pub fn with_links(self, links: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { links: links.into_iter().map(Into::into).collect(), ..self }
    }

    /// Marks these files as executable.
    pub fn with_executables(self, files: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { executables: files.into_iter().map(Into::into).collect(), ..self }
    }

    /// Returns the paths of all files, sorted.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }
}

impl FileTree for TreeIndex {
    fn is_file(&self, path: &str) -> bool {
        self.files.contains(path)
    }

    fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || self.dirs.contains(path)
    }

    fn is_link(&self, path: &str) -> bool {
        self.links.contains(path)
    }

    fn is_executable(&self, path: &str) -> bool {
        self.executables.contains(path)
    }

    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.files())
    }

    /// Returns the existing paths that are most similar to a missing path. A file with the same name in another folder
    /// comes before a path that is only spelled similarly.
    fn nearest_paths(&self, path: &str) -> Vec<String> {
        let wanted = path.to_lowercase();
        let wanted_pairs = byte_pairs(&wanted);
        let score = |known: &String| {
            let lower = known.to_lowercase();
            let same_name = f64::from(u8::from(file_name(&lower) == file_name(&wanted)));
            dice_similarity(&wanted_pairs, &byte_pairs(&lower)) + same_name
        };
        let scored = self.files.iter().chain(&self.dirs).map(|known| (score(known), known));
        let mut scored: Vec<_> = scored.filter(|(score, _)| *score >= 0.5).collect();
        scored.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.cmp(right)));
        scored.into_iter().take(HINTS).map(|(_, known)| known.clone()).collect()
    }
}

pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the part of a file name before its first dot. A leading dot does not count.
pub(super) fn stem(name: &str) -> &str {
    match name.find('.') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// Returns a folder and its ancestor folders. The root is last.
pub(super) fn ancestors(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |folder| (!folder.is_empty()).then(|| folder_of(folder)))
}

/// Resolves `path`, which may contain `.` and `..`, relative to `folder`. Returns `None` if the result is outside the
/// repository.
pub(super) fn resolve_relative(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Returns all pairs of adjacent bytes in a path, sorted and without duplicates.
pub(super) fn byte_pairs(path: &str) -> Vec<[u8; 2]> {
    let mut pairs: Vec<_> = path.as_bytes().windows(2).map(|w| [w[0], w[1]]).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// Returns the Dice coefficient of two sets: 0 if they have no common element, 1 if they are identical.
pub(super) fn dice_similarity(a: &[[u8; 2]], b: &[[u8; 2]]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    let common = a.iter().filter(|pair| b.binary_search(pair).is_ok()).count();
    2.0 * common as f64 / (a.len() + b.len()) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_index_distinguishes_files_from_folders_and_suggests_nearest_paths() {
        let tree = TreeIndex::new(["src/config/mod.rs", "src/lib.rs", "tests/lib.rs", "README.md"]);
        assert!(tree.is_file("src/lib.rs") && !tree.is_file("src") && !tree.is_file("/src/lib.rs"));
        assert!(
            tree.is_dir("src/config") && tree.is_dir("") && !tree.is_dir("src/lib.rs") && !tree.is_dir("sr")
        );
        assert_eq!(tree.nearest_paths("source/lib.rs"), ["src/lib.rs", "tests/lib.rs"]);
        assert_eq!(tree.nearest_paths("src/confg/mod.rs")[0], "src/config/mod.rs");
        assert_eq!(tree.nearest_paths("Readme.md"), ["README.md"]);
        assert!(tree.nearest_paths("zzz").is_empty());
    }
}
