//! Files that matter by what they are: named ones, and those in which a repository speaks of itself.

use std::collections::BTreeSet;

use super::{Asked, Role};
use crate::{
    codebase::{Index, tree::file_name},
    documents::sections::Rank,
    limits,
};

/// Where a repository says how people, and models, work in it.
const CONVENTIONS: &[(&str, f64)] = &[
    ("agents.md", 0.8),
    ("claude.md", 0.8),
    ("copilot-instructions.md", 0.7),
    ("contributing", 0.6),
    ("readme", 0.6),
    ("architecture.md", 0.7),
];

const MANIFESTS: &[&str] = &[
    "cargo.toml",
    "package.json",
    "pyproject.toml",
    "setup.py",
    "requirements.txt",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "gemfile",
    "composer.json",
    "mix.exs",
    "cmakelists.txt",
    "makefile",
    "justfile",
];

const MANIFEST_VALUE: f64 = 0.4;

/// What is run for each change, at the root or in a folder of its own.
const AUTOMATION: &[&str] =
    &[".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml", "jenkinsfile", ".circleci/config.yml"];

const AUTOMATION_VALUE: f64 = 0.1;

/// Files of automation that are shown at most; large projects have dozens.
const MOST_AUTOMATION: usize = 4;

/// The files that the work is about by their paths: those asked for, then those the text names.
pub(super) fn named(index: &Index, asked: &Asked) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let in_text =
        asked.text.split(|c: char| c.is_whitespace() || "`'\"()[]{}<>,;*|=".contains(c)).filter_map(|word| {
            let word = word.trim_start_matches("./").trim_end_matches(['.', ':', '!', '?']);
            // `src/lib.rs:12`
            let path = word.split(':').next().unwrap_or(word);
            (path.contains('/') || path.contains('.')).then_some(path)
        });
    let paths = asked.files.iter().map(String::as_str).chain(in_text);
    let known = paths.filter(|path| index.file(path).is_some() && seen.insert(*path));
    known.take(limits::CONTEXT_FILES).map(str::to_owned).collect()
}

/// Files that speak about the whole repository, with their worth.
pub(super) fn about(index: &Index) -> Vec<(String, Role, f64)> {
    let mut found: Vec<(usize, usize, &str, Role, f64)> = Vec::new();
    let mut automation = 0;
    for file in index.files() {
        let Some((order, role, value)) = place(&file.path) else { continue };
        if role == Role::Automation {
            automation += 1;
            if automation > MOST_AUTOMATION {
                continue;
            }
        }
        found.push((order, file.path.matches('/').count(), &file.path, role, value));
    }
    found.sort_by_key(|(order, depth, path, ..)| (*order, *depth, *path));
    // Of several READMEs the outermost.
    found.dedup_by(|a, b| a.0 == b.0 && a.3 != Role::Automation);
    found.into_iter().map(|(_, _, path, role, value)| (path.to_owned(), role, value)).collect()
}

/// What a path is by its name and place: an order among such, and what it is worth.
fn place(path: &str) -> Option<(usize, Role, f64)> {
    let path = path.to_lowercase();
    let name = file_name(&path);
    let folder = path[..path.len() - name.len()].trim_end_matches('/');
    let is =
        |known: &str| name == known || name.strip_prefix(known).is_some_and(|rest| rest.starts_with('.'));
    if matches!(folder, "" | "docs" | ".github")
        && let Some(at) = CONVENTIONS.iter().position(|(known, _)| is(known))
    {
        return Some((at, Role::Convention, CONVENTIONS[at].1));
    }
    if folder.is_empty()
        && let Some(at) = MANIFESTS.iter().position(|known| name == *known)
    {
        return Some((CONVENTIONS.len() + at, Role::Manifest, MANIFEST_VALUE));
    }
    let workflow = folder == ".github/workflows" && (name.ends_with(".yml") || name.ends_with(".yaml"));
    (workflow || AUTOMATION.contains(&path.as_str())).then_some((
        usize::MAX,
        Role::Automation,
        AUTOMATION_VALUE,
    ))
}

/// What a section of a repository's own prose is worth to whoever is to change it.
pub(super) fn prose_rank(title: &str) -> Option<Rank> {
    const NEEDED: &[&str] = &[
        "convention",
        "rule",
        "guideline",
        "style",
        "architect",
        "structure",
        "layout",
        "design",
        "test",
        "build",
        "develop",
        "lint",
        "format",
        "commit",
    ];
    const NEEDLESS: &[&str] = &[
        "licen",
        "sponsor",
        "backer",
        "thank",
        "acknowledg",
        "credit",
        "author",
        "contributors",
        "communit",
        "badge",
        "changelog",
        "release",
        "table of contents",
        "contents",
        "support",
        "star history",
        "code of conduct",
    ];
    let title = title.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| title.contains(word));
    match () {
        () if title.is_empty() => Some(3),
        () if has(NEEDLESS) => Some(9),
        () if has(NEEDED) => Some(1),
        () => None,
    }
}

/// The lines of a manifest that name other packages, word for word; `None` where nobody knows how to tell.
pub(super) fn dependencies(path: &str, text: &str) -> Option<String> {
    match file_name(path).to_lowercase().as_str() {
        "cargo.toml" | "pyproject.toml" => Some(of_toml(text)),
        "package.json" | "composer.json" => of_json(text),
        "go.mod" => Some(text.lines().filter(|line| !line.contains("// indirect")).map(with_break).collect()),
        _ => None,
    }
}

fn with_break(line: &str) -> String {
    format!("{line}\n")
}

/// Tables of dependencies, and arrays of that name.
fn of_toml(text: &str) -> String {
    let (mut in_table, mut in_array) = (false, false);
    let belongs = |line: &&str| {
        let trimmed = line.trim();
        if trimmed.starts_with('[') && !in_array {
            in_table = trimmed.contains("dependencies");
        }
        let opens = trimmed.contains("dependencies") && trimmed.ends_with('[');
        let belongs = (in_table && !trimmed.is_empty()) || in_array || opens;
        in_array = (in_array || opens) && trimmed != "]";
        belongs
    };
    text.lines().filter(belongs).map(with_break).collect()
}

fn of_json(text: &str) -> Option<String> {
    let manifest: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut out = String::new();
    for key in ["dependencies", "peerDependencies", "devDependencies", "require", "require-dev"] {
        let Some(packages) = manifest.get(key).and_then(serde_json::Value::as_object) else { continue };
        out.push_str(&format!("{key}:\n"));
        for (name, version) in packages {
            let version = version.as_str().unwrap_or("?");
            out.push_str(&format!("  {name} {version}\n").replace('\r', " "));
        }
    }
    Some(out)
}
