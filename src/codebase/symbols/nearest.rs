//! Which real names come nearest to one that does not exist.

use std::collections::{BTreeMap, BTreeSet};

use super::Definition;
use crate::codebase::{
    Kind,
    tree::{likeness, pairs},
    words,
};

/// How many are named.
const MOST: usize = 3;

/// Letters of a name that are compared.
const LONGEST: usize = 60;

/// Below this two names have nothing in common that anybody would take one for the other for.
const ALIKE: f64 = 0.5;

/// Definitions nearest to a name, best first: spelled alike or of the same words, those of the file it was looked for in
/// before others. Each as `name (path:line)`, or `name (line 3)` in that file.
pub(super) fn of<'d, 'i: 'd>(
    name: &str,
    path: Option<&str>,
    definitions: impl Iterator<Item = &'d Definition<'i>>,
) -> Vec<String> {
    let wanted = Name::of(name);
    let mut scored: Vec<(f64, &Definition<'_>)> = definitions
        .filter(|found| !matches!(found.item.kind, Kind::Extension | Kind::Module))
        .filter_map(|found| {
            let here = path == Some(found.path);
            let alike = wanted.likeness(&Name::of(&found.item.name));
            // What is elsewhere must be nearer by far to be told of before what is here.
            let score = alike + if here { 0.25 } else { 0.0 };
            (alike >= ALIKE).then_some((score, found))
        })
        .collect();
    scored.sort_by(|(a, left), (b, right)| {
        let by = |found: &Definition<'_>| (found.path.to_owned(), found.item.line, found.item.name.clone());
        b.total_cmp(a).then_with(|| by(left).cmp(&by(right)))
    });
    let mut seen = BTreeSet::new();
    let told =
        scored.into_iter().map(|(_, found)| told(found, path)).filter(|told| seen.insert(told.clone()));
    told.take(MOST).collect()
}

/// The likest of these names, best first.
pub(super) fn among(name: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let wanted = Name::of(name);
    let scored: BTreeMap<String, f64> = names
        .filter_map(|name| {
            let alike = wanted.likeness(&Name::of(&name));
            (alike >= ALIKE).then_some((name, alike))
        })
        .collect();
    let mut scored: Vec<_> = scored.into_iter().collect();
    // Those that are equally like stay in the order of their names.
    scored.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    scored.into_iter().take(MOST).map(|(name, _)| name).collect()
}

fn told(found: &Definition<'_>, path: Option<&str>) -> String {
    let (name, line) = (&found.item.name, found.item.line);
    let qualified = match found.owner {
        Some(owner) if found.item.kind == Kind::Method => format!("{owner}.{name}"),
        _ => name.clone(),
    };
    if path == Some(found.path) {
        format!("{qualified} (line {line})")
    } else {
        format!("{qualified} ({}:{line})", found.path)
    }
}

/// A name as it is compared.
struct Name {
    letters: Vec<char>,
    pairs: Vec<[u8; 2]>,
    words: BTreeSet<String>,
}

impl Name {
    fn of(name: &str) -> Self {
        let lower = name.to_lowercase().replace('_', "");
        Self {
            letters: lower.chars().take(LONGEST).collect(),
            pairs: pairs(&lower),
            words: words::pieces(name),
        }
    }

    /// From 0, nothing in common, to 1.
    fn likeness(&self, other: &Self) -> f64 {
        let spelled = likeness(&self.pairs, &other.pairs);
        let common = self.words.intersection(&other.words).count();
        let all = self.words.union(&other.words).count();
        let said = if all == 0 { 0.0 } else { common as f64 / all as f64 };
        spelled.max(said).max(self.slip(other))
    }

    /// How near they are if one is the other mistyped: at most one letter in three is another. 0 otherwise.
    fn slip(&self, other: &Self) -> f64 {
        let longest = self.letters.len().max(other.letters.len());
        let apart = self.letters.len().abs_diff(other.letters.len());
        if longest < 4 || apart * 3 > longest {
            return 0.0;
        }
        let edits = edits(&self.letters, &other.letters);
        if edits * 3 > longest { 0.0 } else { 1.0 - edits as f64 / longest as f64 }
    }
}

/// Letters to put in, take out or exchange that make one of the other.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let exchanged = corner + usize::from(left != right);
            corner = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
