//! Which files test which, by how they are named.

use crate::codebase::{imports::stem, tree::file_name};

/// Whether a path is that of a test or of what tests use, by the customs of all languages.
pub(in crate::codebase) fn is_test(path: &str) -> bool {
    let name = file_name(path);
    let mut folders = path[..path.len() - name.len()].split('/');
    folders.any(|folder| FOLDERS.contains(&folder.to_ascii_lowercase().as_str()))
        || subject(name).is_some()
        || matches!(stem(name), "test" | "tests" | "conftest")
}

const FOLDERS: &[&str] =
    &["__tests__", "e2e", "fixtures", "spec", "specs", "test", "testdata", "testfixtures", "testing", "tests"];

/// What a test of this name tests: `tree` of `tree_test.go`, `test_tree.py`, `tree.spec.ts`. None for other names.
pub(super) fn subject(name: &str) -> Option<&str> {
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

const SUFFIXES: &[&str] = &["_test", "_tests", "_spec", "_unittest", "-test", ".test", "Tests", "Test", "Spec", "IT"];
