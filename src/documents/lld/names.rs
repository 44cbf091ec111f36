//! Names that a design takes from the repository and that are not there.
//!
//! Only what the design says to exist already is asked about, and never what it adds itself; where the words leave a
//! doubt, nothing is said. A wrong objection sends a good design back.

mod claims;

use std::collections::BTreeSet;

use self::claims::{Claims, Declared};
use super::{Change, Lld, parse};
use crate::documents::{Block, Known, Mistake, Repository, markdown, path, shown_path};

/// Mistakes of one kind that are told at once: enough to see what is wrong.
const MOST: usize = 12;

/// Real names told with each.
const NEAREST: usize = 3;

/// Paths, symbols and imports of this repository that are named and do not exist.
pub fn names(text: &str, repository: &dyn Repository) -> Vec<Mistake> {
    let lld = parse(text);
    let outline = markdown::outline(text);
    let declared = Declared::of(text, &outline);
    let claims = Claims { text, lld: &lld, outline: &outline, declared: &declared };
    let mut out = paths(&claims, repository);
    out.extend(symbols(&claims, repository));
    out.extend(imports(&claims, repository));
    out
}

/// Files of code in prose that neither exist nor are added.
fn paths(claims: &Claims<'_>, repository: &dyn Repository) -> Vec<Mistake> {
    let top_exists = |path: &str| path.split_once('/').is_some_and(|(top, _)| repository.is_dir(top));
    let strange = |path: &str| {
        top_exists(path)
            && path::refused(path).is_none()
            && repository.is_code(path)
            && !repository.is_file(path)
            && !repository.is_dir(path)
            && !listed(claims.lld, path)
    };
    let mut seen = BTreeSet::new();
    let found = claims.paths().filter(|(path, _)| strange(path) && seen.insert(*path));
    let message = |(named, place): (&str, String)| {
        let near = nearest(&repository.nearest(named));
        let path = shown_path(named);
        let message = format!(
            "`{path}` is named here, but it neither exists nor stands in 2.1; {}",
            near.map_or_else(
                || "mend the path or add a row".to_owned(),
                |near| format!("did you mean {near}?")
            )
        );
        Mistake::error("names.path", place, message).about(named)
    };
    found.take(MOST).map(message).collect()
}

/// Does 2.1 list this path, or a folder above it, or files in it?
fn listed(lld: &Lld, path: &str) -> bool {
    let within = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    lld.files.iter().any(|row| {
        let row = row.path.trim_end_matches('/');
        within(path, row) || within(row, path)
    })
}

/// Names said to be in a file that does not have them, and qualified ones whose owner does not.
fn symbols(claims: &Claims<'_>, repository: &dyn Repository) -> Vec<Mistake> {
    let added =
        |path: &str| claims.lld.files.iter().any(|row| row.change == Some(Change::Add) && row.path == path);
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for claim in claims.symbols() {
        if out.len() == MOST {
            break;
        }
        if claim.file.is_some_and(|file| added(file) || !repository.is_file(file)) {
            continue;
        }
        let Known::No { nearest: near } = repository.symbol(claim.file, claim.name) else { continue };
        if !seen.insert((claim.file, claim.name)) {
            continue;
        }
        let name = shown_path(claim.name);
        let hint = nearest(&near).map_or_else(
            || "name one that is there, or give its signature in 2.4 if it is new".to_owned(),
            |near| format!("did you mean {near}? A new one has its signature in 2.4"),
        );
        out.push(match claim.file {
            Some(file) => {
                let message = format!("`{name}` is not in `{}`; {hint}", shown_path(file));
                Mistake::error("names.symbol", claim.place, message).about(format!("{file} {}", claim.name))
            }
            None => {
                let message = format!("`{name}` was not found in this repository; {hint}");
                Mistake::warning("names.symbol", claim.place, message).about(claim.name)
            }
        });
    }
    out
}

/// Imports in code blocks of what neither exists nor is added.
fn imports(claims: &Claims<'_>, repository: &dyn Repository) -> Vec<Mistake> {
    let rows = || claims.lld.files.iter().filter(|row| path::refused(&row.path).is_none());
    let files: Vec<&str> = rows().map(|row| row.path.trim_end_matches('/')).collect();
    let added: Vec<&str> = rows()
        .filter(|row| row.change == Some(Change::Add))
        .map(|row| row.path.trim_end_matches('/'))
        .collect();
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for code in claims.outline.code_blocks.iter().filter(|code| !code.tag.is_empty()) {
        let block = Block { tag: &code.tag, code: &code.text, files: &files, added: &added };
        for stray in repository.strays(&block) {
            let own = match &stray.name {
                Some((name, _)) => claims.declared.has(name),
                None => claims.declared.has_module(&stray.module),
            };
            if own || out.len() == MOST || !seen.insert((stray.module.clone(), stray.name.clone())) {
                continue;
            }
            let module = shown_path(&stray.module);
            let near = nearest(&stray.nearest);
            let message = match &stray.name {
                Some((name, file)) => {
                    let (name, file) = (shown_path(name), shown_path(file));
                    let hint = near.map_or_else(
                        || "give its signature in 2.4 if it is new".to_owned(),
                        |near| format!("did you mean {near}? A new one has its signature in 2.4"),
                    );
                    format!("`{name}` is imported from `{module}`, but `{file}` has no such name; {hint}")
                }
                None => {
                    let hint = near.map_or_else(
                        || "import what exists, or add a row".to_owned(),
                        |near| format!("did you mean {near}?"),
                    );
                    format!("`{module}` is imported, but it neither exists nor is added in 2.1; {hint}")
                }
            };
            let name = stray.name.iter().map(|(name, _)| format!(" {name}"));
            let about: String = std::iter::once(stray.module.clone()).chain(name).collect();
            out.push(Mistake::error("names.import", claims.place(code.range.start), message).about(about));
        }
    }
    out
}

/// `a` or `b (src/x.rs:3)`, quoted.
fn nearest(names: &[String]) -> Option<String> {
    let quoted: Vec<String> =
        names.iter().take(NEAREST).map(|name| format!("`{}`", shown_path(name))).collect();
    (!quoted.is_empty()).then(|| quoted.join(" or "))
}

#[cfg(test)]
mod tests;
