//! What stands around the files to change: the rules of the house, the manifests that build them, what checks them.
//!
//! By paths alone. What a manifest depends on is read from its text by [`dependencies`](super::dependencies).

use std::collections::BTreeSet;

use super::{
    Index,
    imports::{folder_of, join, upwards},
    similar::is_test,
    tree::file_name,
};

/// Paths by what they are for, each in order and once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// What people and agents are told of how things are done here; the nearest to the files, and those of the root.
    pub conventions: Vec<String>,
    /// The nearest of each kind above each file: `Cargo.toml`, `package.json`, ...
    pub manifests: Vec<String>,
    /// Of compilers, linters and formatters, above each file.
    pub settings: Vec<String>,
    /// What is run when something is pushed.
    pub checks: Vec<String>,
    /// Tests in the folders of the files.
    pub tests: Vec<String>,
}

/// What stands around some files; around the root if there are none.
pub fn surroundings(index: &Index, files: &[String]) -> Surroundings {
    let folders: BTreeSet<&str> = files.iter().map(|path| folder_of(path)).chain([""]).collect();
    let above = |names: &[&str]| -> Vec<String> {
        let mut found = BTreeSet::new();
        for name in names {
            for folder in &folders {
                let mut paths = upwards(folder).map(|folder| join(folder, name));
                found.extend(paths.find(|path| index.file(path).is_some()));
            }
        }
        found.into_iter().collect()
    };
    let paths = || index.files().iter().map(|file| file.path.as_str());
    let own_folders: BTreeSet<&str> = files.iter().map(|path| folder_of(path)).collect();
    Surroundings {
        conventions: above(CONVENTIONS),
        manifests: above(MANIFESTS),
        settings: above(SETTINGS),
        checks: paths().filter(|path| is_check(path)).map(str::to_owned).collect(),
        tests: paths()
            .filter(|path| is_test(path) && own_folders.contains(folder_of(path)))
            .map(str::to_owned)
            .collect(),
    }
}

const CONVENTIONS: &[&str] = &[
    ".cursorrules",
    ".github/CONTRIBUTING.md",
    ".github/copilot-instructions.md",
    "AGENTS.md",
    "CLAUDE.md",
    "CONTRIBUTING.md",
    "CONTRIBUTING.rst",
    "STYLE.md",
    "STYLEGUIDE.md",
    "docs/CONTRIBUTING.md",
];

const MANIFESTS: &[&str] = &[
    "CMakeLists.txt",
    "Cargo.toml",
    "Gemfile",
    "build.gradle",
    "build.gradle.kts",
    "composer.json",
    "go.mod",
    "package.json",
    "pom.xml",
    "pyproject.toml",
    "requirements.txt",
    "setup.cfg",
    "setup.py",
];

const SETTINGS: &[&str] = &[
    ".clang-format",
    ".editorconfig",
    ".eslintrc.json",
    ".golangci.yml",
    ".pre-commit-config.yaml",
    ".prettierrc",
    ".rubocop.yml",
    "clippy.toml",
    "eslint.config.js",
    "phpstan.neon",
    "rustfmt.toml",
    "tox.ini",
    "tsconfig.json",
];

fn is_check(path: &str) -> bool {
    let yaml = path.ends_with(".yml") || path.ends_with(".yaml");
    (yaml && path.starts_with(".github/workflows/"))
        || matches!(path, ".gitlab-ci.yml" | ".circleci/config.yml" | "azure-pipelines.yml" | ".travis.yml")
        || (!path.contains('/')
            && matches!(file_name(path), "Jenkinsfile" | "Makefile" | "justfile" | "Taskfile.yml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_of_each_and_those_of_the_root() {
        let index = Index::of_texts(
            [
                ".github/workflows/ci.yml",
                ".github/workflows/notes.txt",
                "AGENTS.md",
                "Cargo.toml",
                "Makefile",
                "crates/a/AGENTS.md",
                "crates/a/Cargo.toml",
                "crates/a/src/lib.rs",
                "crates/a/src/lib_test.rs",
                "crates/b/Cargo.toml",
                "crates/b/Makefile",
                "rustfmt.toml",
            ]
            .map(|path| (path, "")),
        );
        let around = surroundings(&index, &["crates/a/src/lib.rs".to_owned()]);
        assert_eq!(around.conventions, ["AGENTS.md", "crates/a/AGENTS.md"]);
        assert_eq!(around.manifests, ["Cargo.toml", "crates/a/Cargo.toml"]);
        assert_eq!(around.settings, ["rustfmt.toml"]);
        assert_eq!(around.checks, [".github/workflows/ci.yml", "Makefile"]);
        assert_eq!(around.tests, ["crates/a/src/lib_test.rs"]);
        assert_eq!(surroundings(&index, &[]).manifests, ["Cargo.toml"]);
    }
}
