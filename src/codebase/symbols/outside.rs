//! What a commit does not show and that may be there all the same: what builds make, other repositories in it, and the
//! packages it depends on.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use globset::{GlobSet, GlobSetBuilder};

use super::spelled::hash;
use crate::{
    codebase::{
        attributes, dependencies,
        imports::{folder_of, upwards},
        tree::file_name,
        words,
    },
    limits,
};

/// Told by what git is to ignore, by the submodules and by the manifests.
#[derive(Debug, Default)]
pub struct Outside {
    submodules: BTreeSet<String>,
    ignored: GlobSet,
    /// Code that the index does not know, and the names in it: there may be millions, so only their hashes.
    read: BTreeSet<String>,
    names: HashSet<u64>,
    /// Not all that is ignored is known.
    more: bool,
    dependencies: BTreeSet<String>,
    /// Python's packages that it makes itself, which its examples depend on.
    projects: BTreeSet<String>,
    /// Libraries of this repository by the names that imports use, each with its folder.
    crates: BTreeMap<String, String>,
    /// What the names of its Go packages begin with, each with its folder.
    go_modules: BTreeMap<String, String>,
}

impl Outside {
    /// Does the text of this file tell of it?
    pub fn is_told_by(path: &str) -> bool {
        matches!(
            file_name(path),
            ".gitignore" | "Cargo.toml" | "go.mod" | "pyproject.toml" | "requirements.txt"
        )
    }

    /// Of the files that tell of it, by path, each with its text; and whether those are all of them.
    pub fn new<'t>(
        submodules: impl IntoIterator<Item = String>,
        files: impl IntoIterator<Item = (&'t str, &'t str)>,
        all: bool,
    ) -> Self {
        let (mut ignored, mut room) = (GlobSetBuilder::new(), limits::IGNORE_PATTERNS);
        let submodules = submodules.into_iter().collect();
        let mut outside = Self { submodules, more: !all, ..Self::default() };
        for (path, text) in files {
            match file_name(path) {
                // What tests are run over has names of whatever others.
                "Cargo.toml" | "go.mod" if is_sample(path) => {}
                "Cargo.toml" => {
                    outside.crates.extend(library(text).map(|name| (name, folder_of(path).to_owned())))
                }
                "go.mod" => {
                    let name = text.lines().find_map(|line| line.trim().strip_prefix("module "));
                    let name = name.map(|name| name.trim().trim_matches('"').to_owned());
                    outside.go_modules.extend(name.map(|name| (name, folder_of(path).to_owned())));
                    outside
                        .dependencies
                        .extend(dependencies(path, text).into_keys().map(|name| plain(&name)));
                }
                ".gitignore" => {
                    let folder = path.strip_suffix(".gitignore").unwrap_or_default();
                    for pattern in text.lines().filter_map(pattern) {
                        let glob = attributes::glob(folder, pattern).filter(|_| room > 0);
                        outside.more |= glob.is_none();
                        let Some(glob) = glob else { break };
                        ignored.add(glob);
                        room -= 1;
                    }
                }
                _ => {
                    outside.projects.extend(project(text).map(|name| plain(&name)));
                    outside.dependencies.extend(dependencies(path, text).into_keys().map(|name| plain(&name)))
                }
            }
        }
        let ignored = ignored.build();
        Self { more: outside.more || ignored.is_err(), ignored: ignored.unwrap_or_default(), ..outside }
    }

    /// Knows the names in code that the index left out, by path, each with its text.
    pub fn reading<'t>(mut self, unread: impl IntoIterator<Item = (&'t str, &'t str)>) -> Self {
        for (path, text) in unread {
            self.read.insert(path.to_owned());
            self.names.extend(words::names_of(text).map(hash));
        }
        self
    }

    pub(super) fn has_read(&self, path: &str) -> bool {
        self.read.contains(path)
    }

    pub(super) fn spells(&self, name: &str) -> bool {
        self.names.contains(&hash(name))
    }

    /// May there be such a file or folder although the commit has none?
    pub(super) fn may_have(&self, path: &str) -> bool {
        self.more
            || upwards(path)
                .filter(|path| !path.is_empty())
                .any(|path| self.submodules.contains(path) || self.ignored.is_match(path))
    }

    /// Each with its folder.
    pub(super) fn crates(&self) -> impl Iterator<Item = (&str, &str)> {
        self.crates.iter().map(|(name, folder)| (name.as_str(), folder.as_str()))
    }

    /// Each with its folder.
    pub(super) fn go_modules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.go_modules.iter().map(|(name, folder)| (name.as_str(), folder.as_str()))
    }

    /// Does the repository depend on a package of this name?
    pub(super) fn has_package(&self, name: &str) -> bool {
        let name = plain(name);
        self.dependencies.contains(&name) && !self.projects.contains(&name)
    }
}

fn is_sample(path: &str) -> bool {
    path.split('/').any(|folder| matches!(folder, "testdata" | "fixtures" | "vendor" | "third_party"))
}

/// The name of the library that a `Cargo.toml` makes of `src/lib.rs`.
fn library(manifest: &str) -> Option<String> {
    let manifest = manifest.parse::<toml::Table>().ok()?;
    let said = |section: &str, key: &str| manifest.get(section)?.get(key)?.as_str().map(str::to_owned);
    let elsewhere = said("lib", "path").is_some_and(|path| path != "src/lib.rs");
    let name = said("lib", "name").or_else(|| said("package", "name")).filter(|_| !elsewhere)?;
    Some(name.replace('-', "_"))
}

/// The name of the project that a `pyproject.toml` is of.
fn project(manifest: &str) -> Option<String> {
    let manifest = manifest.parse::<toml::Table>().ok()?;
    let poetry = || manifest.get("tool")?.get("poetry")?.get("name");
    let name = manifest.get("project").and_then(|project| project.get("name")).or_else(poetry)?;
    name.as_str().map(str::to_owned)
}

/// Names of packages are compared so: what is imported as `ruamel_yaml` is called `ruamel.yaml`.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

/// A line of a `.gitignore` as a pattern. One that ignores everything, to list what is kept, says nothing of what a build
/// makes; what is kept after all may well be made.
fn pattern(line: &str) -> Option<&str> {
    let line = line.trim();
    let pattern = line.trim_end_matches('/').trim_end_matches("/**").trim_end_matches("/*");
    (!pattern.starts_with(['#', '!']) && !pattern.trim_matches(['*', '/']).is_empty()).then_some(pattern)
}
