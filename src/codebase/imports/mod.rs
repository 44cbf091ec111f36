//! Which files an import means.
//!
//! By the rules of each language, as far as paths alone tell them: no build is asked, no package opened. What could be
//! another repository's is [`Resolved::External`]; [`Resolved::Missing`] is only what must be this one's and is not here.

mod go;
mod named;
mod python;
mod rust;
mod script;

use std::collections::{HashMap, HashSet};

use super::{Import, Index, Language, tree::file_name};
use crate::limits;

/// Where an import leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved<'i> {
    /// These files, by path: the module itself, and those of its names that are files.
    Files(Vec<&'i str>),
    /// All files directly in this folder, as with Go's packages.
    Folder(&'i str),
    /// A package of others, as far as can be told.
    External,
    /// It must be of this repository, and is not there.
    Missing,
}

/// How far the module of an import leads.
struct Lead<'i> {
    /// The last file on the way: the module itself, or what the first missing part may stand in.
    file: Option<&'i str>,
    /// Where the modules of that module stand, and the first missing part would.
    folder: String,
    /// What of the module's path is left: no files, and so in the last file or nowhere.
    rest: Vec<String>,
}

/// Knows paths by what imports call them.
#[derive(Debug)]
pub struct Resolver<'i> {
    index: &'i Index,
    paths: HashSet<&'i str>,
    /// The files by their own name without its ending, in the order they came in.
    by_stem: HashMap<&'i str, Vec<&'i str>>,
    /// Folders that hold files directly.
    folders: HashSet<&'i str>,
    /// The same by their own name, in order.
    folders_by_name: HashMap<&'i str, Vec<&'i str>>,
    /// Every folder.
    above: HashSet<&'i str>,
    /// Rust crates and JavaScript packages by name.
    packages: HashMap<String, &'i str>,
    /// What the names of this repository's Go packages begin with.
    go_module: Option<String>,
}

impl<'i> Resolver<'i> {
    /// Over the files of an index, in the order of their paths.
    pub fn new(index: &'i Index) -> Self {
        let mut resolver = Self {
            index,
            paths: HashSet::new(),
            by_stem: HashMap::new(),
            folders: HashSet::new(),
            folders_by_name: HashMap::new(),
            above: HashSet::from([""]),
            packages: packages(index),
            go_module: None,
        };
        for file in index.files() {
            resolver.add(&file.path);
        }
        for folders in resolver.folders_by_name.values_mut() {
            folders.sort_unstable();
        }
        resolver.go_module = go::guessed(&resolver);
        resolver
    }

    fn add(&mut self, path: &'i str) {
        if !self.paths.insert(path) {
            return;
        }
        self.by_stem.entry(stem(file_name(path))).or_default().push(path);
        let folder = folder_of(path);
        if self.folders.insert(folder) {
            self.folders_by_name.entry(file_name(folder)).or_default().push(folder);
            for folder in upwards(folder) {
                if !self.above.insert(folder) {
                    break;
                }
            }
        }
    }

    /// Where the import of a file leads.
    pub fn resolve(&self, from: &str, import: &Import) -> Resolved<'i> {
        let module = import.module.as_str();
        if module.is_empty() || module.len() > limits::IMPORT_LENGTH {
            return Resolved::External;
        }
        match self.language(from) {
            Language::Rust => rust::resolve(self, from, import),
            Language::Python => python::resolve(self, from, import),
            Language::JavaScript | Language::TypeScript | Language::Tsx => {
                script::resolve(self, from, module)
            }
            Language::Go => go::resolve(self, module),
            Language::Java => named::java(self, from, import),
            Language::C | Language::Cpp => named::included(self, from, module),
            Language::Ruby => named::ruby(self, from, import),
            Language::Php => named::php(self, from, import),
            Language::CSharp => named::namespace(self, module),
            Language::Bash => named::included(self, from, module),
            Language::Json
            | Language::Makefile
            | Language::Markdown
            | Language::Other
            | Language::Toml
            | Language::Yaml => Resolved::External,
        }
    }

    fn language(&self, path: &str) -> Language {
        self.index.file(path).map_or_else(|| Language::of(path), |file| file.language)
    }

    fn path(&self, path: &str) -> Option<&'i str> {
        self.paths.get(path).copied()
    }

    fn first_path(&self, candidates: impl IntoIterator<Item = String>) -> Option<&'i str> {
        candidates.into_iter().find_map(|path| self.path(&path))
    }

    fn folder(&self, path: &str) -> Option<&'i str> {
        self.folders.get(path).copied()
    }

    fn is_folder(&self, path: &str) -> bool {
        self.above.contains(path)
    }

    fn folders_named(&self, name: &str) -> &[&'i str] {
        self.folders_by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Of the files whose path ends in `ending`, a `/` before it, the one nearest to `from`.
    fn nearest_ending(&self, from: &str, ending: &str) -> Option<&'i str> {
        let known = self.by_stem.get(stem(file_name(ending)))?;
        let ends = |path: &str| {
            path.strip_suffix(ending).is_some_and(|before| before.is_empty() || before.ends_with('/'))
        };
        known
            .iter()
            .take(limits::IMPORT_CANDIDATES)
            .copied()
            .filter(|path| ends(path))
            .min_by_key(|path| (std::cmp::Reverse(common(from, path)), *path))
    }
}

/// Folders with a `Cargo.toml` or `package.json` by the name that imports use. A crate is called as its folder is, for the
/// index does not show what its manifest says.
fn packages(index: &Index) -> HashMap<String, &str> {
    let mut packages = HashMap::new();
    for file in index.files() {
        let folder = folder_of(&file.path);
        match file_name(&file.path) {
            "Cargo.toml" => {
                packages.entry(file_name(folder).replace('-', "_")).or_insert(folder);
            }
            "package.json" => {
                packages.entry(file_name(folder).to_owned()).or_insert(folder);
                packages.extend(script_name(file.digest.summary()).map(|name| (name, folder)));
            }
            _ => {}
        }
    }
    packages
}

/// The value of the line `"name": "vite",`.
fn script_name(summary: &super::Summary) -> Option<String> {
    let inner = summary.items.iter().flat_map(|item| &item.children);
    let line = summary.items.iter().chain(inner).find(|item| item.name == "name")?.signature.as_str();
    let name = line.split_once(':')?.1.trim().trim_end_matches(',').trim_matches('"');
    (!name.is_empty()).then(|| name.to_owned())
}

pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

pub(super) fn stem(name: &str) -> &str {
    match name.find('.') {
        Some(at) if at > 0 => &name[..at],
        _ => name,
    }
}

/// A path under a folder, which may be the root.
fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", path) => path.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, path) => format!("{folder}/{path}"),
    }
}

/// `path` as seen from `folder`, `.` and `..` followed. None if that leaves the repository.
pub(super) fn relative(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// How many folders two paths share.
fn common(a: &str, b: &str) -> usize {
    a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b).count()
}

/// A folder and those above it, the root last.
pub(super) fn upwards(folder: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(folder), |folder| (!folder.is_empty()).then(|| folder_of(folder)))
}

fn files_or<'i>(found: Vec<&'i str>, otherwise: Resolved<'i>) -> Resolved<'i> {
    if found.is_empty() { otherwise } else { Resolved::Files(found) }
}

#[cfg(test)]
mod tests;
