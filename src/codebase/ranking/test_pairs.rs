//! Pairs test files with the files that they test, by file name.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::codebase::{
    Index,
    tree::{file_name, folder_of, stem},
};

/// Maximum number of folders of a path that are compared. The folders nearest to the file are used.
const PATH_PARTS: usize = 12;

/// Maximum number of candidate files compared for each test, all with the name that the test's own name implies. Even
/// the largest repositories have fewer files with the same name.
const TESTED_CANDIDATES: usize = 256;

/// Returns whether a path is a test or a test helper by the naming conventions of any language.
pub(in crate::codebase) fn is_test(path: &str) -> bool {
    let name = file_name(path);
    let mut folders = path[..path.len() - name.len()].split('/');
    let for_tests = |folder: &str| {
        folder.starts_with("__test") || FOLDERS.contains(&folder.to_ascii_lowercase().as_str())
    };
    folders.any(for_tests)
        || tested_name(name).is_some()
        || matches!(stem(name), "test" | "tests" | "conftest")
}

const FOLDERS: &[&str] =
    &["e2e", "fixtures", "spec", "specs", "test", "testdata", "testfixtures", "testing", "tests"];

/// Returns the name of the file that a test file tests, for example `tree` for `tree_test.go`, `test_tree.py` and
/// `tree.spec.ts`.
fn tested_name(name: &str) -> Option<&str> {
    let whole = stem(name);
    let ending = &name[whole.len()..];
    if [".test.", ".spec.", ".e2e."].iter().any(|kind| ending.starts_with(kind)) {
        return Some(whole);
    }
    whole
        .strip_prefix("test_")
        .or_else(|| SUFFIXES.iter().find_map(|suffix| whole.strip_suffix(suffix)))
        .filter(|subject| !subject.is_empty())
}

const SUFFIXES: &[&str] =
    &["_test", "_tests", "_spec", "_unittest", "-test", ".test", "Tests", "Test", "Spec", "IT"];

/// Returns pairs of a test and the file that it tests, as positions in the index. If several files have the tested
/// name, the file that shares most folder names with the test wins; on a tie, the file nearest to the root.
pub(super) fn pair_tests(index: &Index) -> Vec<(usize, usize)> {
    let files = index.files();
    let mut by_stem: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        by_stem.entry(stem(file_name(&file.path))).or_default().push(at);
    }
    let mut pairs = Vec::new();
    for (test, file) in files.iter().enumerate() {
        let name = file_name(&file.path);
        let beside = ["/tests/", "/test/", "/__tests__/"].iter().any(|folder| file.path.contains(folder))
            || ["tests/", "test/"].iter().any(|folder| file.path.starts_with(folder));
        let Some(subject) = tested_name(name).or_else(|| beside.then(|| stem(name))) else { continue };
        let alike = |other: &usize| {
            let path = files[*other].path.as_str();
            files[*other].language == file.language && *other != test && !is_test(path)
        };
        let named = by_stem.get(subject).map_or(&[][..], Vec::as_slice);
        let candidates = named.iter().copied().take(TESTED_CANDIDATES).filter(alike);
        let near = |other: &usize| {
            let path = &files[*other].path;
            (shared_folders(&file.path, path), Reverse(path.matches('/').count()), Reverse(*other))
        };
        let best = candidates.max_by_key(near);
        pairs.extend(best.map(|tested| (test, tested)));
    }
    pairs
}

/// Returns the number of folder names that occur in both paths, at any depth, because mirrored trees differ only near
/// the root. The number is one higher if both files are in the same folder.
fn shared_folders(a: &str, b: &str) -> usize {
    let (a, b) = (folder_of(a), folder_of(b));
    let same = usize::from(a == b);
    same + inner_folders(a).filter(|part| inner_folders(b).any(|other| other == *part)).count()
}

fn inner_folders(folder: &str) -> impl Iterator<Item = &str> {
    folder.rsplit('/').take(PATH_PARTS)
}
