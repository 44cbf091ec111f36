//! What stands around the files to change: the rules of the house, the manifests that build them, what checks them.
//!
//! By paths alone. What a manifest depends on is read from its text by [`dependencies`](super::dependencies).

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Index,
    imports::{folder_of, stem, upwards},
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
}

/// What stands around some files; around the root if there are none.
pub fn surroundings(index: &Index, files: &[String]) -> Surroundings {
    let folders: BTreeSet<&str> = files.iter().map(|path| folder_of(path)).chain([""]).collect();
    let paths = || index.files().iter().map(|file| file.path.as_str());
    let nearest = |kind: &dyn Fn(&str) -> Option<(String, &str)>| -> Vec<String> {
        let mut standing: BTreeMap<(String, &str), &str> = BTreeMap::new();
        for path in paths() {
            let Some(known) = kind(path) else { continue };
            // A folder's own comes before one that stands in its `docs`.
            let own = known.1 == folder_of(path);
            standing
                .entry(known)
                .and_modify(|found| *found = if own { path } else { *found })
                .or_insert(path);
        }
        let names: BTreeSet<&String> = standing.keys().map(|(name, _)| name).collect();
        let mut found = BTreeSet::new();
        for name in names {
            for folder in &folders {
                let mut above = upwards(folder).map(|folder| standing.get(&(name.clone(), folder)));
                found.extend(above.find_map(|path| path.copied()));
            }
        }
        found.into_iter().map(str::to_owned).collect()
    };
    let among = |names: &'static [&'static str]| {
        move |path: &str| {
            let name = file_name(path);
            names.contains(&name).then(|| name.to_owned())
        }
    };
    let (manifest, setting) = (among(MANIFESTS), among(SETTINGS));
    Surroundings {
        conventions: nearest(&convention),
        manifests: nearest(&|path| Some((manifest(path)?, folder_of(path)))),
        settings: nearest(&|path| Some((setting(path)?, folder_of(path)))),
        checks: paths().filter(|path| is_check(path)).map(str::to_owned).collect(),
    }
}

/// What kind of word to people it is, and the folder that it is about: that which holds it, or its `docs`.
fn convention(path: &str) -> Option<(String, &str)> {
    let name = file_name(path).to_lowercase();
    let (kind, ending) = name.split_at(stem(&name).len());
    let prose = matches!(ending, "" | ".adoc" | ".markdown" | ".md" | ".mdx" | ".rst" | ".txt");
    let folder = folder_of(path);
    let about = match file_name(folder) {
        ".github" | "docs" => folder_of(folder),
        _ => folder,
    };
    (prose && CONVENTIONS.contains(&kind)).then(|| (kind.to_owned(), about))
}

/// In small letters, and without an ending.
const CONVENTIONS: &[&str] = &[
    ".cursorrules",
    "agents",
    "architecture",
    "claude",
    "contributing",
    "copilot-instructions",
    "readme",
    "style",
    "styleguide",
];

const MANIFESTS: &[&str] = &[
    "CMakeLists.txt",
    "Cargo.toml",
    "Gemfile",
    "build.gradle",
    "build.gradle.kts",
    "composer.json",
    "go.mod",
    "mix.exs",
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
    "biome.json",
    "clippy.toml",
    "eslint.config.js",
    "phpstan.neon",
    "ruff.toml",
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
                ".github/CONTRIBUTING.md",
                ".github/workflows/ci.yml",
                ".github/workflows/notes.txt",
                "AGENTS.md",
                "Cargo.toml",
                "Makefile",
                "Readme.rst",
                "agents.py",
                "crates/a/AGENTS.md",
                "crates/a/Cargo.toml",
                "crates/a/src/lib.rs",
                "crates/b/Cargo.toml",
                "crates/b/Makefile",
                "crates/b/README.md",
                "docs/Cargo.toml",
                "docs/README.md",
                "rustfmt.toml",
            ]
            .map(|path| (path, "")),
        );
        let around = surroundings(&index, &["crates/a/src/lib.rs".to_owned()]);
        assert_eq!(
            around.conventions,
            [".github/CONTRIBUTING.md", "AGENTS.md", "Readme.rst", "crates/a/AGENTS.md"]
        );
        assert_eq!(around.manifests, ["Cargo.toml", "crates/a/Cargo.toml"]);
        assert_eq!(around.settings, ["rustfmt.toml"]);
        assert_eq!(around.checks, [".github/workflows/ci.yml", "Makefile"]);
        assert_eq!(surroundings(&index, &[]).manifests, ["Cargo.toml"]);
    }
}
