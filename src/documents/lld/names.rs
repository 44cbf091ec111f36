//! Names that a design takes from the repository and that are not there.
//!
//! Only what the design says to exist already is asked about, and never what it adds itself. What is surely wrong is an
//! error; what only looks wrong is told to the reviewer, for a wrong objection sends a good design back.

mod claims;
mod declared;
mod words;

use std::collections::BTreeSet;

use self::{
    claims::{Claim, Claims},
    declared::Declared,
};
use super::{Change, Lld, parse};
use crate::{
    documents::{Block, Design, Meant, Mistake, Repository, Stands, markdown, path, shown_path},
    limits::NAMED_MISTAKES,
};

/// Real names told with each.
const NEAREST: usize = 3;

/// Names of files that every second folder has: no sign that another one was meant.
const COMMON: [&str; 10] =
    ["mod", "lib", "main", "index", "__init__", "utils", "util", "types", "config", "constants"];

/// Paths, symbols and imports of this repository that are named and do not exist.
pub fn names(text: &str, repository: &dyn Repository) -> Vec<Mistake> {
    let lld = parse(text);
    let outline = markdown::outline(text);
    let claims = Claims::new(text, &lld, &outline);
    let declared = Declared::of(&claims, repository);
    let mut out = paths(&claims, repository);
    out.extend(symbols(&claims, &declared, repository));
    out.extend(imports(&claims, &declared, repository));
    out
}

/// Files of code in prose that neither exist nor are added.
fn paths(claims: &Claims<'_>, repository: &dyn Repository) -> Vec<Mistake> {
    let strange = |path: &str| {
        path::refused(path).is_none()
            && repository.is_code(path)
            && !repository.is_file(path)
            && !repository.is_dir(path)
            && !listed(claims.lld, path)
            && !repository.may_be_made(path)
    };
    let mut out = Vec::new();
    for (named, place) in claims.paths() {
        if out.len() == NAMED_MISTAKES {
            break;
        }
        // Without its folder a file may be any of that name, or made up.
        if !named.contains('/') {
            let near = repository.nearest(named).into_iter().filter(|near| is_same_word(near, named));
            let near: Vec<String> = near.collect();
            if strange(named) && repository.ending_so(named).is_none() && !near.is_empty() {
                out.push(path_mistake(named, place, &near));
            }
            continue;
        }
        let (folder, file) = named.rsplit_once('/').unwrap_or_default();
        let top = named.split('/').next().unwrap_or_default();
        if !strange(named) {
            continue;
        }
        // It may be meant from a folder of its own, or be of another repository altogether.
        let whole = repository.ending_so(named);
        if whole.is_none() && !repository.is_dir(top) {
            continue;
        }
        let near = repository.nearest(named);
        let near: Vec<String> = whole.iter().cloned().chain(near).collect();
        let stem = file.split('.').next().unwrap_or_default();
        let moved =
            near.first().is_some_and(|near| near.ends_with(&format!("/{file}")) && !COMMON.contains(&stem));
        let sure = whole.is_none() && (moved || repository.is_dir(folder));
        out.push(path_mistake(named, place, &near).only_warns_unless(sure));
    }
    out
}

fn path_mistake(named: &str, place: String, near: &[String]) -> Mistake {
    let hint = nearest(near)
        .map_or_else(|| "mend the path or add a row".to_owned(), |near| format!("did you mean {near}?"));
    let message =
        format!("`{}` is named here, but it neither exists nor stands in 2.1; {hint}", shown_path(named));
    Mistake::error("names.path", place, message).about(named)
}

/// Is a file called like this, but for how its words are parted?
fn is_same_word(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let plain = |name: &str| name.replace(['_', '-'], "").to_lowercase();
    file != name && plain(file) == plain(name)
}

/// Does 2.1 list this path, or one that ends so, or a folder above it, or files in it?
fn listed(lld: &Lld, path: &str) -> bool {
    let within = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    lld.files.iter().any(|row| {
        let row = row.path.trim_end_matches('/');
        within(path, row) || within(row, path) || ends(row, path)
    })
}

/// Is it the last part of the other path, or all of it?
fn ends(whole: &str, path: &str) -> bool {
    whole.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// Is it surely the file at this path that is meant, and not another whose path ends so?
fn is_meant(lld: &Lld, path: &str, repository: &dyn Repository) -> bool {
    let mut rows = lld.files.iter().map(|row| row.path.as_str()).filter(|row| ends(row, path)).peekable();
    let alone = path.contains('/') || rows.peek().is_some() || repository.ending_so(path).is_none();
    alone && rows.all(|row| row == path) && repository.is_file(path)
}

/// Names said to be in a file that does not have them, and those that nothing has.
fn symbols(claims: &Claims<'_>, declared: &Declared, repository: &dyn Repository) -> Vec<Mistake> {
    let of = |change: Change| {
        let rows = claims.lld.files.iter().filter(move |row| row.change == Some(change));
        rows.map(|row| row.path.as_str()).collect::<BTreeSet<&str>>()
    };
    let (added, modified) = (of(Change::Add), of(Change::Modify));
    let mut out = Vec::new();
    for claim in claims.kept().into_iter().chain(claims.symbols(declared)) {
        if out.len() == NAMED_MISTAKES {
            break;
        }
        let stands = match claim.stands {
            Stands::In(file) | Stands::DefinedIn(file) | Stands::UsedIn(file)
                if !is_meant(claims.lld, file, repository)
                    && (!file.contains('/') || repository.is_file(file)) =>
            {
                Stands::Somewhere
            }
            Stands::UsedIn(file) if !repository.is_file(file) => Stands::Somewhere,
            stands => stands,
        };
        if stands.file().is_some_and(|file| added.contains(file) || !repository.is_file(file)) {
            continue;
        }
        out.extend(symbol(&Claim { stands, ..claim }, &modified, repository));
    }
    out
}

fn symbol(claim: &Claim<'_>, modified: &BTreeSet<&str>, repository: &dyn Repository) -> Option<Mistake> {
    let absent = repository.symbol(claim.stands, claim.name)?;
    // The only file that changes need not be the one that has it.
    if claim.kept && !absent.nowhere {
        return None;
    }
    let name = shown_path(claim.name);
    let near = nearest(&absent.nearest).map(|near| format!("did you mean {near}?"));
    let hint = match (near, claim.kept) {
        (near, true) => near.unwrap_or_default() + " What is new is not said to be there",
        (Some(near), false) => near + " A new one has its signature in 2.4",
        (None, false) => "name one that is there, or give its signature in 2.4 if it is new".to_owned(),
    };
    let hint = hint.trim_start();
    let (message, about, sure) = match claim.stands.file() {
        Some(file) => {
            let message = format!("`{name}` is not in `{}`; {hint}", shown_path(file));
            let meant =
                absent.meant > Meant::Other && (claim.called || !matches!(claim.stands, Stands::UsedIn(_)));
            // What is said to be defined in a file that changes may be what it will have.
            let defined =
                matches!(claim.stands, Stands::DefinedIn(_)) && !(absent.nowhere && modified.contains(file));
            let sure = absent.closed && (meant || claim.surely || defined);
            (message, format!("{file} {}", claim.name), sure)
        }
        None => {
            let mut parts = claim.name.rsplit(['.', ':', '#']).filter(|part| !part.is_empty());
            let owner = parts.nth(1);
            let of_type = owner.is_some_and(|owner| owner.starts_with(char::is_uppercase));
            let meant = match absent.meant {
                Meant::Slip | Meant::Near => of_type || claim.called && (owner.is_some() || claim.used),
                Meant::Alike => claim.used,
                Meant::Other => claim.called && claim.used && owner.is_some() && absent.nowhere,
            };
            let sure = absent.closed && (meant || claim.surely);
            (format!("`{name}` was not found in this repository; {hint}"), claim.name.to_owned(), sure)
        }
    };
    let mistake = Mistake::error("names.symbol", claim.place.clone(), message);
    Some(mistake.about(&about).only_warns_unless(sure))
}

/// Imports in code blocks of what neither exists nor is added.
fn imports(claims: &Claims<'_>, declared: &Declared, repository: &dyn Repository) -> Vec<Mistake> {
    let rows = || claims.lld.files.iter().filter(|row| path::refused(&row.path).is_none());
    let files: Vec<&str> = rows().map(|row| row.path.trim_end_matches('/')).collect();
    let added: Vec<&str> = rows()
        .filter(|row| row.change == Some(Change::Add))
        .map(|row| row.path.trim_end_matches('/'))
        .collect();
    // Code of tests stands elsewhere, and names what is made up for them.
    let judged = |at: usize| !claims.number(at).starts_with("10");
    let blocks: Vec<_> = claims.blocks().filter(|block| judged(block.range.start)).collect();
    let code: Vec<Block<'_>> =
        blocks.iter().map(|block| Block { tag: &block.tag, code: &block.text }).collect();
    let design = Design { files: &files, added: &added, blocks: &code, declares: declared.all() };
    let strays = repository.strays(&design).into_iter().take(NAMED_MISTAKES);
    strays
        .filter_map(|(at, stray)| {
            let module = shown_path(&stray.module);
            let near = nearest(&stray.nearest);
            let (message, about) = match &stray.name {
                Some((name, file)) => {
                    let hint = near.map_or_else(
                        || "give its signature in 2.4 if it is new".to_owned(),
                        |near| format!("did you mean {near}? A new one has its signature in 2.4"),
                    );
                    let (name, file) = (shown_path(name), shown_path(file));
                    (
                        format!(
                            "`{name}` is imported from `{module}`, but `{file}` has no such name; {hint}"
                        ),
                        format!("{} {name}", stray.module),
                    )
                }
                None => {
                    let hint = near.map_or_else(
                        || "import what exists, or add a row".to_owned(),
                        |near| format!("did you mean {near}?"),
                    );
                    let message =
                        format!("`{module}` is imported, but it neither exists nor is added in 2.1; {hint}");
                    (message, stray.module.clone())
                }
            };
            let place = claims.place(blocks.get(at)?.range.start);
            Some(Mistake::error("names.import", place, message).about(&about).only_warns_unless(stray.sure))
        })
        .collect()
}

/// `a` or `b (src/x.rs:3)`, quoted.
fn nearest(names: &[String]) -> Option<String> {
    let mut quoted: Vec<String> = names.iter().map(|name| format!("`{}`", shown_path(name))).collect();
    quoted.dedup();
    quoted.truncate(NEAREST);
    (!quoted.is_empty()).then(|| quoted.join(" or "))
}

#[cfg(test)]
mod tests;
