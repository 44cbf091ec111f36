//! Finds files that the request names, and project files such as READMEs and manifests.

use std::collections::{BTreeMap, BTreeSet};

use super::{ContextRequest, FileRole, untrusted_text};
use crate::{
    codebase::{
        Index,
        tree::{ancestors, file_name, folder_of, stem},
    },
    limits,
};

/// Returns two lists. The first contains the requested files, followed by the files that the text names. The second
/// contains the named files that are never shown to a model, each with the reason.
pub(super) fn find_named_files(
    index: &Index,
    request: &ContextRequest,
) -> (Vec<String>, Vec<(String, String)>) {
    let mut seen = BTreeSet::new();
    let in_text = request
        .text
        .split(|c: char| c.is_whitespace() || "`'\"()[]{}<>,;*|=".contains(c))
        .filter_map(|word| {
            let word = word.trim_start_matches("./").trim_end_matches(['.', ':', '!', '?']);
            // `src/lib.rs:12`
            let path = word.split(':').next().unwrap_or(word);
            (path.contains('/') || path.contains('.')).then_some(path)
        });
    let (mut named, mut refused) = (Vec::new(), Vec::new());
    for path in request.files.iter().map(String::as_str).chain(in_text).filter(|path| seen.insert(*path)) {
        let left = index.excluded().binary_search_by(|left| left.path.as_str().cmp(path));
        if index.file(path).is_some() {
            named.push(path.to_owned());
        } else if let Ok(at) = left {
            refused.push((untrusted_text::one_line(path), index.excluded()[at].why.to_string()));
        }
    }
    named.truncate(limits::CONTEXT_FILES);
    refused.truncate(limits::CONTEXT_FILES);
    (named, refused)
}

/// Project files, by role, value and lowercase names. Names of prose files are given without an extension. READMEs get
/// a low value, because most repositories have a README and many READMEs say little.
const ABOUT: &[(FileRole, f64, &str)] = &[
    (
        FileRole::Convention,
        0.5,
        ".cursorrules agents architecture claude copilot-instructions style styleguide",
    ),
    (FileRole::Convention, 0.3, "contributing readme"),
    (
        FileRole::Manifest,
        0.25,
        "build.gradle build.gradle.kts cargo.toml cmakelists composer.json gemfile go.mod mix.exs package.json \
         pom.xml pyproject.toml requirements setup.cfg setup.py",
    ),
    (
        FileRole::Automation,
        0.08,
        ".gitlab-ci.yml .travis.yml azure-pipelines.yml build.yml check.yml ci.yaml ci.yml jenkinsfile justfile \
         makefile taskfile.yml test.yml tests.yml",
    ),
];

/// Returns the project files that are relevant for `files`. For each kind of project file, returns the nearest one in
/// the folder of each file or above, and the one in the root folder.
pub(super) fn find_project_files(index: &Index, files: &[String]) -> Vec<(String, FileRole, f64)> {
    let mut by_folder: BTreeMap<&str, BTreeMap<String, (&str, FileRole, f64)>> = BTreeMap::new();
    for file in index.files() {
        let (path, folder) = (file.path.as_str(), folder_of(&file.path));
        let name = file_name(path).to_lowercase();
        let (bare, ending) = name.split_at(stem(&name).len());
        let prose = matches!(ending, "" | ".adoc" | ".markdown" | ".md" | ".mdx" | ".rst" | ".txt");
        let name = if prose { bare.to_owned() } else { name };
        let is_known = |(_, _, names): &&(FileRole, f64, &str)| names.split(' ').any(|known| known == name);
        let Some((role, value, _)) = ABOUT.iter().find(is_known) else { continue };
        // Files in `.github` or `docs` describe the parent folder.
        let above = |inner: &&str| {
            folder.strip_suffix(*inner).is_some_and(|above| above.is_empty() || above.ends_with('/'))
        };
        let inner = [".github/workflows", ".github", "docs"].into_iter().find(above);
        let about = inner.map_or(folder, |inner| folder[..folder.len() - inner.len()].trim_end_matches('/'));
        let names = by_folder.entry(about).or_default();
        if about == folder || !names.contains_key(&name) {
            names.insert(name, (path, *role, *value));
        }
    }
    let mut found = BTreeMap::new();
    for folder in files.iter().map(|path| folder_of(path)).chain([""]) {
        let mut seen = BTreeSet::new();
        for (name, (path, role, value)) in
            ancestors(folder).filter_map(|above| by_folder.get(above)).flatten()
        {
            if seen.insert(name) {
                found.insert((*path).to_owned(), (*role, *value));
            }
        }
    }
    found.into_iter().map(|(path, (role, value))| (path, role, value)).collect()
}
