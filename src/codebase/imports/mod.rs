//! Which files an import means.
//!
//! By the rules of each language, as far as paths alone tell them: no build is asked, no package opened. What could be
//! another repository's is [`Resolved::External`]; [`Resolved::Missing`] is only what must be this one's and is not here.

mod go;
mod named;
mod python;
mod rust;
mod script;

use std::collections::{BTreeSet, HashMap};

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

/// Knows the paths of an index by what imports call them.
#[derive(Debug)]
pub struct Resolver<'i> {
    index: &'i Index,
    by_path: HashMap<&'i str, usize>,
    /// The files by their own name without its ending, in the order of their paths.
    by_stem: HashMap<&'i str, Vec<usize>>,
    /// Folders that hold files directly.
    folders: BTreeSet<&'i str>,
    /// The same by their own name, in order.
    folders_by_name: HashMap<&'i str, Vec<&'i str>>,
    /// Rust crates and JavaScript packages by name, with their folder.
    packages: HashMap<String, &'i str>,
    /// What this repository's Go packages begin with, each with the folder that it stands for.
    go_modules: Vec<(String, &'i str)>,
}

impl<'i> Resolver<'i> {
    pub fn new(index: &'i Index) -> Self {
        let files = index.files();
        let mut by_stem: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, file) in files.iter().enumerate() {
            by_stem.entry(stem(file_name(&file.path))).or_default().push(at);
        }
        let folders: BTreeSet<&str> = files.iter().map(|file| folder_of(&file.path)).collect();
        let mut folders_by_name: HashMap<&str, Vec<&str>> = HashMap::new();
        for folder in &folders {
            folders_by_name.entry(file_name(folder)).or_default().push(folder);
        }
        let mut resolver = Self {
            index,
            by_path: files.iter().enumerate().map(|(at, file)| (file.path.as_str(), at)).collect(),
            by_stem,
            folders,
            folders_by_name,
            packages: packages(index),
            go_modules: Vec::new(),
        };
        resolver.go_modules = go::modules(&resolver);
        resolver
    }

    /// Where the import of a file leads.
    pub fn resolve(&self, from: &str, import: &Import) -> Resolved<'i> {
        let module = import.module.as_str();
        if module.is_empty() || module.len() > limits::IMPORT_LENGTH {
            return Resolved::External;
        }
        match self.index.file(from).map_or_else(|| Language::of(from), |file| file.language) {
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

    fn path(&self, path: &str) -> Option<&'i str> {
        self.by_path.get(path).map(|at| self.index.files()[*at].path.as_str())
    }

    fn first_path(&self, candidates: impl IntoIterator<Item = String>) -> Option<&'i str> {
        candidates.into_iter().find_map(|path| self.path(&path))
    }

    fn folder(&self, path: &str) -> Option<&'i str> {
        self.folders.get(path).copied()
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
            .map(|at| self.index.files()[*at].path.as_str())
            .filter(|path| ends(path))
            .min_by_key(|path| (std::cmp::Reverse(common(from, path)), *path))
    }
}

/// Folders with a `Cargo.toml` or `package.json`, by the name that imports use: what the manifest says if its outline
/// shows it, and the folder's own name.
fn packages(index: &Index) -> HashMap<String, &str> {
    let mut packages = HashMap::new();
    for file in index.files() {
        let rust = match file_name(&file.path) {
            "Cargo.toml" => true,
            "package.json" => false,
            _ => continue,
        };
        let folder = folder_of(&file.path);
        let shaped = |name: &str| if rust { name.replace('-', "_") } else { name.to_owned() };
        packages.entry(shaped(file_name(folder))).or_insert(folder);
        if let Some(name) = manifest_name(file.digest.summary()) {
            packages.insert(shaped(&name), folder);
        }
    }
    packages
}

/// The value of a line such as `name = "tokio-util"` or `"name": "vite"`.
fn manifest_name(summary: &super::Summary) -> Option<String> {
    let inner = summary.items.iter().flat_map(|item| &item.children);
    let line = summary.items.iter().chain(inner).find(|item| item.name == "name")?.signature.as_str();
    let value = line.split_once(['=', ':'])?.1.trim().trim_end_matches(',');
    let name = value.trim_matches(['"', '\'']);
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
pub(super) fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", path) => path.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, path) => format!("{folder}/{path}"),
    }
}

/// `path` as seen from `folder`, `.` and `..` followed. None if that leaves the repository.
fn relative(folder: &str, path: &str) -> Option<String> {
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
