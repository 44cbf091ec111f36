//! Looks up names in a commit: paths, words, and import targets.
//!
//! A word that occurs in any file is treated as existing, whatever it means in that file. Lookups use the index, and
//! also the texts of code files that the index excludes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CodeItem, CodeItemKind, ExcludedFile, ExclusionReason, Index, IndexedFile, Language, TreeIndex,
    summarize,
    tree::{ancestors, byte_pairs, dice_similarity, file_name, folder_of, resolve_relative, stem},
    words,
};
use crate::documents::{CodebaseLookup, FileTree, UnresolvedImport};

/// Maximum number of imports checked per code block. Code blocks of readable designs contain fewer.
const NAMED_IMPORTS: usize = 100;
const NAMED_PLACES: usize = 20;

/// Minimum length of a name for typo detection. For shorter names, too many unrelated names differ by only one letter.
const SHORTEST: usize = 6;
const SHORTEST_MODULE: usize = 4;
/// Minimum length of a name in which a typo may change two letters. In shorter names, a typo may change only one
/// letter.
const LONG: usize = 12;
/// Minimum similarity (Dice coefficient) of a module that is suggested in place of an unknown one.
const ALIKE: f64 = 0.5;

/// Returns the paths of code files that the index excludes but whose text may still be searched.
pub fn unindexed_code(index: &Index) -> impl Iterator<Item = &str> {
    let code = |left: &&ExcludedFile| {
        use ExclusionReason::{Binary, LfsPointer, Name, Secret, Submodule, Symlink};
        let text = !matches!(left.why, Binary | LfsPointer | Name | Secret | Submodule | Symlink);
        text && Language::from_path(&left.path).is_code()
    };
    index.excluded().iter().filter(code).map(|left| left.path.as_str())
}

/// Names that occur in a commit's files and paths.
pub struct CodebaseNames<'i> {
    index: &'i Index,
    /// All paths of the commit, including excluded files.
    tree: &'i TreeIndex,
    /// Texts of those code files that the index excludes.
    unread: &'i [String],
    all: bool,
    modules: Vec<&'i str>,
    /// Paths of all files, each with the prefix `^/`.
    paths: Vec<String>,
    /// Existing names: those that files define or use, and the names of files and folders. Each name is mapped to a
    /// path and a line in which it occurs.
    real: BTreeMap<&'i str, (&'i str, u32)>,
    /// Names of files, folders, modules and types, all of which may have members.
    owners: BTreeSet<&'i str>,
}

impl<'i> CodebaseNames<'i> {
    /// Builds the lookup. `modules` contains the module names from the `go.mod` files.
    pub fn new(index: &'i Index, tree: &'i TreeIndex, modules: &'i [String]) -> Self {
        let modules = modules.iter().flat_map(|text| text.lines());
        let mut names = Self {
            index,
            tree,
            unread: &[],
            all: true,
            modules: modules.filter_map(|line| line.strip_prefix("module ")).map(str::trim).collect(),
            paths: tree.files().map(|path| format!("^/{path}")).collect(),
            real: BTreeMap::new(),
            owners: BTreeSet::new(),
        };
        for path in tree.files() {
            let folders = ancestors(folder_of(path)).map(file_name);
            for name in folders.chain([stem(file_name(path))]) {
                names.real.entry(name).or_insert((path, 0));
                names.owners.insert(name);
            }
        }
        for file in index.files() {
            for used in file.digest.uses() {
                names.real.entry(used).or_insert((&file.path, 0));
            }
            let mut open: Vec<&CodeItem> = file.digest.summary().items.iter().collect();
            while let Some(item) = open.pop() {
                open.extend(&item.children);
                names.real.insert(&item.name, (&file.path, item.line));
                if !matches!(
                    item.kind,
                    CodeItemKind::Field
                        | CodeItemKind::Function
                        | CodeItemKind::Method
                        | CodeItemKind::Section
                        | CodeItemKind::Variant
                ) {
                    names.owners.insert(&item.name);
                }
            }
        }
        names
    }

    /// Adds the texts of the files returned by [`unindexed_code`]. `all` is true if `unread` contains the texts of all
    /// these files.
    pub fn with_unindexed_texts(self, unread: &'i [String], all: bool) -> Self {
        Self { unread, all, ..self }
    }

    /// Returns the paths to which a module may refer. A path that starts with `^` is relative to the root; other paths
    /// may start in any folder. Returns an empty list if the module may belong to another repository.
    fn candidate_paths(&self, language: Language, module: &str, files: &[&str]) -> Vec<String> {
        let from_files = |path: &str| -> Vec<String> {
            let paths = files.iter().filter_map(|file| resolve_relative(folder_of(file), path));
            paths.map(|path| format!("^/{path}")).collect()
        };
        let has = |part: &str| self.paths.iter().any(|path| path.contains(part));
        match language {
            Language::Rust => {
                let (first, rest) = module.split_once("::").unwrap_or((module, ""));
                let folder = format!("/{}/src/", first.replace('_', "-"));
                let rest = rest.replace("super::", "").replace("::", "/");
                match first {
                    "crate" | "self" | "super" => vec![format!("/{rest}")],
                    _ => has(&folder).then(|| format!("{folder}{rest}")).into_iter().collect(),
                }
            }
            Language::Python => {
                let name = module.trim_start_matches('.');
                let path = name.replace('.', "/");
                let first = name.split('.').next().unwrap_or_default();
                let package = format!("/{first}/__init__.py");
                let inner = |path: &&String| {
                    let above = path.strip_suffix(&package).map(|above| format!("{above}/__init__.py"));
                    above.is_some_and(|above| !self.paths.contains(&above))
                };
                match module.len() - name.len() {
                    0 => self.paths.iter().find(inner).map(|_| format!("/{path}")).into_iter().collect(),
                    dots => from_files(&format!("{}{path}", "../".repeat(dots - 1))),
                }
            }
            Language::JavaScript | Language::Tsx | Language::TypeScript if module.starts_with('.') => {
                let path = module.split('?').next().unwrap_or_default();
                // TypeScript imports name the compiled file.
                let stem =
                    path.rsplit_once('.').filter(|(_, end)| matches!(*end, "js" | "jsx" | "mjs" | "cjs"));
                from_files(stem.map_or(path, |(stem, _)| stem))
            }
            Language::Go => {
                let rest = self.modules.iter().find_map(|name| module.strip_prefix(name)?.strip_prefix('/'));
                rest.map(|rest| format!("/{rest}")).into_iter().collect()
            }
            Language::Java => {
                let path = format!("/{}", module.replace('.', "/"));
                let top = path.match_indices('/').nth(2).map(|(at, _)| &path[..=at]);
                top.filter(|top| has(top)).map(|_| path.clone()).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the longest prefix of a path that exists in the commit or among `files`, which are the files that the
    /// design adds.
    fn existing_prefix<'w>(&self, path_to_find: &'w str, files: &[String]) -> &'w str {
        let is_there = |part: &&str| {
            let whole = |path: &String| {
                let mut rests = path.match_indices(*part).map(|(at, _)| &path[at + part.len()..]);
                rests.any(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
            };
            part.len() < 2 || files.iter().any(whole) || self.paths.iter().any(whole)
        };
        let ends = path_to_find.match_indices('/').map(|(at, _)| &path_to_find[..at]).chain([path_to_find]);
        ends.take_while(is_there).last().unwrap_or_default()
    }

    /// Returns the name that is most similar to `part` among the files and folders in the folder `before`; `None` if no
    /// name is similar enough.
    fn nearest_sibling(&self, before: &str, part: &str) -> Option<&str> {
        let start = format!("{before}/");
        let behind = self.paths.iter().flat_map(|path| {
            path.match_indices(&start).filter_map(|(at, _)| path[at + start.len()..].split('/').next())
        });
        let (known, wanted): (BTreeSet<&str>, _) = (behind.map(stem).collect(), byte_pairs(part));
        let alike = |known: &str| match typo_distance(known, part)
            .filter(|_| known.len().min(part.len()) >= SHORTEST_MODULE)
        {
            Some(wrong) => 2.0 - wrong as f64,
            None => dice_similarity(&wanted, &byte_pairs(known)),
        };
        let scored = known.into_iter().map(|known| (alike(known), known));
        let best = scored.filter(|(alike, _)| *alike >= ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, known)| known)
    }

    /// Returns whether a `.gitignore` file mentions this name. In that case the name may refer to build output.
    fn is_ignored(&self, name: &str) -> bool {
        let ignores =
            |file: &IndexedFile| file_name(&file.path) == ".gitignore" && file.digest.contains_name(name);
        self.index.files().iter().any(ignores)
    }

    fn contains_word(&self, piece: &str) -> bool {
        self.index.files().iter().any(|file| file.digest.count(piece) > 0)
    }
}

impl CodebaseLookup for CodebaseNames<'_> {
    fn tree(&self) -> &dyn FileTree {
        self.tree
    }

    fn may_contain(&self, path: &str) -> bool {
        let suffix = format!("/{}", path.trim_end_matches('/'));
        let folder = format!("{suffix}/");
        let whole = |path: &String| path.ends_with(&suffix) || path.contains(&folder);
        let lost = suffix[self.existing_prefix(&format!("^{suffix}"), &[]).len().saturating_sub(1)..]
            .trim_start_matches('/');
        let lost = lost.split('/').next().unwrap_or_default();
        let elsewhere = |left: &ExcludedFile| {
            matches!(left.why, ExclusionReason::Submodule | ExclusionReason::Symlink)
                && suffix[1..].starts_with(&format!("{}/", left.path))
        };
        self.paths.iter().any(whole) || self.index.excluded().iter().any(elsewhere) || self.is_ignored(lost)
    }

    fn has_word(&self, word: &str) -> bool {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let whole = |text: &String| {
            text.match_indices(word)
                .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
        };
        self.real.contains_key(word)
            || self.index.files().iter().any(|file| file.digest.contains_name(word))
            || self.unread.iter().any(whole)
    }

    fn has_read_all(&self) -> bool {
        self.all
    }

    fn defines_name(&self, name: &str) -> bool {
        self.owners.contains(name)
    }

    fn closest_name(&self, word: &str) -> Option<String> {
        let long = self.real.iter().filter(|(name, _)| name.len().min(word.len()) >= SHORTEST);
        let near = long.filter_map(|(name, place)| Some((typo_distance(name, word)?, name, place)));
        let mut near: Vec<_> = near.collect();
        near.sort();
        // A word that occurs elsewhere is a different name, not a typo, such as `set` beside `get`.
        let slips = |name: &str| {
            let (real, wanted) = (words::name_pieces(name), words::name_pieces(word));
            let mut others = wanted.difference(&real).peekable();
            others.peek().is_some() && !others.any(|piece| self.contains_word(piece))
        };
        let found = near.into_iter().find(|(wrong, name, _)| *wrong == 0 || slips(name));
        found.map(|(_, name, (path, line))| match line {
            0 => format!("{name} ({path})"),
            line => format!("{name} ({path}:{line})"),
        })
    }

    fn unresolved_imports(&self, tag: &str, code: &str, files: &[&str]) -> Vec<UnresolvedImport> {
        let language = language_of_tag(tag);
        let imports = summarize(language, code).imports;
        let added: Vec<String> = files.iter().map(|file| format!("^/{file}")).collect();
        let mut out = Vec::new();
        for import in imports.iter().take(NAMED_IMPORTS) {
            let candidates = self.candidate_paths(language, &import.module, files);
            let gap = |way: &'_ String| {
                let there = self.existing_prefix(way, &added);
                let lost = way[there.len()..].trim_start_matches('/').split('/').next().unwrap_or_default();
                (there.to_owned(), lost.to_owned())
            };
            let gaps: Vec<(String, String)> = candidates.iter().take(NAMED_PLACES).map(gap).collect();
            // Rust and Java have modules or classes inside a file.
            let inside =
                |lost: &str| matches!(language, Language::Rust | Language::Java) && self.has_word(lost);
            let leads = |lost: &str| lost.is_empty() || inside(lost) || self.is_ignored(lost);
            let mut strange = |name: &str, nearest: Option<String>| {
                let (module, name, sure) = (import.module.clone(), name.to_owned(), nearest.is_some());
                out.push(UnresolvedImport { module, name, nearest, is_certain: sure });
            };
            if gaps.iter().any(|(_, lost)| leads(lost)) {
                let there = |name: &String| matches!(name.as_str(), "*" | "default") || self.has_word(name);
                import
                    .names
                    .iter()
                    .filter(|name| !there(name))
                    .for_each(|name| strange(name, self.closest_name(name)));
            } else if let Some((_, lost)) = gaps.first() {
                let near = gaps.iter().find_map(|(there, lost)| self.nearest_sibling(there, lost));
                strange(lost, near.map(|near| import.module.replace(lost, near)));
            }
        }
        out
    }
}

/// Returns the number of letters in which `name` differs from a real name, ignoring letter case and `_`. The number is
/// 0 for names that differ only in case style.
///
/// Returns `None` if `name` cannot be a typo of the real name. This is the case if too many letters or any digits
/// differ, if only the first letter differs, or if only one of the two names is a constant.
fn typo_distance(real: &str, name: &str) -> Option<usize> {
    let most = if name.len() < LONG { 1 } else { 2 };
    let digits = |name: &str| name.bytes().filter(u8::is_ascii_digit).collect::<Vec<_>>();
    let constant = |name: &str| !name.contains(char::is_lowercase);
    let letters =
        |name: &str| name.chars().filter(|c| *c != '_').flat_map(char::to_lowercase).collect::<Vec<_>>();
    let differ = real.len().abs_diff(name.len()) <= most + 2
        // A variable may be named like its type.
        && real.get(1..) != name.get(1..)
        && constant(real) == constant(name)
        && digits(real) == digits(name);
    if !differ {
        return None;
    }
    // A name in another case style must have exactly the same letters.
    let manner = |name: &str| (name.contains('_'), name.starts_with(char::is_uppercase));
    let most = if manner(real) == manner(name) { most } else { 0 };
    let (real, name) = (letters(real), letters(name));
    let near = real.len().abs_diff(name.len()) <= most;
    near.then(|| edit_distance(&real, &name)).filter(|edits| *edits <= most)
}

/// Returns the Damerau-Levenshtein distance, which is the number of inserted, deleted, changed and swapped letters.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (rows[i][j] + usize::from(x != y)).min(row[j] + 1).min(rows[i][j + 1] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

fn language_of_tag(tag: &str) -> Language {
    match tag {
        "rust" => Language::Rust,
        "python" => Language::Python,
        "golang" => Language::Go,
        "javascript" => Language::JavaScript,
        "typescript" => Language::TypeScript,
        ending => Language::from_path(&format!("_.{ending}")),
    }
}

#[cfg(test)]
mod tests;
