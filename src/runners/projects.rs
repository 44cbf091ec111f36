//! Finds the projects of a repository. A project is a folder with a runner's manifest.

use std::cmp::Reverse;

use serde::Serialize;

use super::{RUNNERS, TestRunner};

/// Folders whose manifests and tests are data or other people's code.
const DATA_FOLDERS: &[&str] =
    &["node_modules", "vendor", "third_party", "fixtures", "__fixtures__", "testdata", "test-data"];

/// A runner, and the folder of a project that it can test, relative to the repository's root. Empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Project {
    pub runner: &'static str,
    pub folder: String,
}

impl std::fmt::Display for Project {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.folder.as_str() {
            "" => write!(f, "{} in the root folder", self.runner),
            folder => write!(f, "{} in {}", self.runner, super::sanitize_line(folder)),
        }
    }
}

fn projects(paths: &[String]) -> impl Iterator<Item = (usize, &'static TestRunner, &str)> {
    RUNNERS.iter().enumerate().flat_map(move |(order, runner)| {
        paths.iter().filter_map(move |path| {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            runner.manifests.contains(&name).then_some((order, runner, folder))
        })
    })
}

/// Returns `path` relative to a folder. `None` if it is outside that folder.
pub(super) fn below<'p>(folder: &str, path: &'p str) -> Option<&'p str> {
    if folder.is_empty() { Some(path) } else { path.strip_prefix(folder)?.strip_prefix('/') }
}

fn depth(folder: &str) -> usize {
    if folder.is_empty() { 0 } else { folder.split('/').count() }
}

/// Returns the runner and the folder of the project to test. Chooses the nearest manifest above most of the `at_hand`
/// files. Without such a manifest, chooses the topmost manifest of the repository.
pub(super) fn detect_project<'p>(
    paths: &'p [String],
    at_hand: &[&str],
) -> Option<(&'static TestRunner, &'p str)> {
    let nearest = |path: &&str| {
        projects(paths)
            .filter(|(.., folder)| below(folder, path).is_some())
            .max_by_key(|(order, _, folder)| (depth(folder), Reverse(*order)))
    };
    let mut above: Vec<_> = at_hand.iter().filter_map(nearest).collect();
    above.sort_by_key(|(order, _, folder)| (*folder, *order));
    let runs = above.chunk_by(|left, right| (left.0, left.2) == (right.0, right.2));
    let most = runs.max_by_key(|run| run.len()).and_then(|run| run.first()).copied();
    let topmost = || projects(paths).min_by_key(|(order, _, folder)| (depth(folder), *folder, *order));
    most.or_else(topmost).map(|(_, runner, folder)| (runner, folder))
}

/// Returns the projects with test files that a run of `tested` did not test, each with its test files. `is_covered` tells
/// whether that run tested anything in a folder.
pub(super) fn untested_projects<'p>(
    paths: &'p [String],
    tested: &Project,
    is_covered: impl Fn(&str) -> bool,
) -> Vec<(Project, Vec<&'p str>)> {
    let is_data = |path: &str| path.split('/').any(|part| DATA_FOLDERS.contains(&part));
    let mut all: Vec<_> = projects(paths).filter(|(.., folder)| !is_data(folder)).collect();
    all.sort_by_key(|(order, _, folder)| (depth(folder), *folder, *order));
    all.dedup_by_key(|(order, _, folder)| (*folder, *order));
    let owner = |runner: &str, path: &str| {
        let own =
            all.iter().filter(|(_, other, folder)| other.name == runner && below(folder, path).is_some());
        own.max_by_key(|(.., folder)| depth(folder)).map(|(.., folder)| *folder)
    };
    let mut untested = Vec::new();
    for (_, runner, folder) in &all {
        let is_tested = runner.name == tested.runner && (*folder == tested.folder || is_covered(folder));
        let is_own = |path: &&str| {
            is_test_file(runner.name, path) && !is_data(path) && owner(runner.name, path) == Some(folder)
        };
        let files: Vec<&str> = match is_tested {
            true => Vec::new(),
            false => paths.iter().map(String::as_str).filter(is_own).collect(),
        };
        if !files.is_empty() {
            untested.push((Project { runner: runner.name, folder: (*folder).to_owned() }, files));
        }
    }
    untested
}

/// Whether a runner takes this file for a test by its path. A Rust file may hold tests wherever it stands.
fn is_test_file(runner: &str, path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    match runner {
        "cargo" => ending == "rs",
        "go" => name.ends_with("_test.go"),
        "pytest" => ending == "py" && (stem.starts_with("test_") || stem.ends_with("_test")),
        _ => {
            let is_script = matches!(ending, "js" | "cjs" | "mjs" | "jsx" | "ts" | "cts" | "mts" | "tsx");
            is_script
                && (["test", "spec"]
                    .iter()
                    .any(|word| stem.strip_suffix(word).is_some_and(|rest| rest.ends_with(['.', '-', '_'])))
                    || path.split('/').any(|part| matches!(part, "test" | "__tests__")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_with_tests_that_a_run_did_not_reach_are_named() {
        let untested = |files: &str, tested: (&'static str, &str), covered: &[&str]| {
            let paths: Vec<String> = files.split(' ').map(str::to_owned).collect();
            let tested = Project { runner: tested.0, folder: tested.1.to_owned() };
            let found = untested_projects(&paths, &tested, |folder| covered.contains(&folder));
            found.iter().map(|(project, _)| project.to_string()).collect::<Vec<_>>().join(", ")
        };
        for (files, tested, covered, expected) in [
            ("Cargo.toml src/a.rs web/package.json web/test/a.js", ("cargo", ""), &[][..], "node in web"),
            ("Cargo.toml src/a.rs web/package.json web/a.js", ("cargo", ""), &[], ""),
            ("Cargo.toml pyproject.toml tests/test_a.py", ("cargo", ""), &[], "pytest in the root folder"),
            (
                "Cargo.toml a/Cargo.toml a/src/a.rs b/Cargo.toml b/src/b.rs",
                ("cargo", ""),
                &["a"],
                "cargo in b",
            ),
            ("go.mod a_test.go sub/go.mod sub/s_test.go", ("go", ""), &[], "go in sub"),
            (
                "go.mod a_test.go sub/go.mod sub/s.go testdata/x/go.mod testdata/x/x_test.go",
                ("go", ""),
                &[],
                "",
            ),
            (
                "a/pyproject.toml a/test_a.py b/pyproject.toml b/b_test.py",
                ("pytest", "a"),
                &[],
                "pytest in b",
            ),
            ("package.json a/package.json a/src/a.spec.ts", ("node", ""), &["a"], ""),
            ("package.json a/package.json a/src/a.spec.ts", ("node", ""), &[], "node in a"),
        ] {
            assert_eq!(untested(files, tested, covered), expected, "{files}");
        }
    }
}
