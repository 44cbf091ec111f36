//! Items that are made as a given one is: by the words of their names and signatures, how many parameters they take, and
//! what their files use.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::text::all_items;
use crate::{
    codebase::{File, Index, Item, Kind, words},
    limits,
};

/// An item like another.
#[derive(Debug, Clone, PartialEq)]
pub struct Alike {
    pub path: String,
    /// Its first and last lines.
    pub lines: (u32, u32),
    /// From 0 to 1.
    pub score: f64,
    /// What the names and signatures share, the rarest first.
    pub words: Vec<String>,
    pub same_parameters: bool,
    /// How many names both files use.
    pub shared_uses: usize,
}

/// How much each voice has of the score.
const WORDS: f64 = 0.7;
const PARAMETERS: f64 = 0.1;
const USES: f64 = 0.2;

/// The items elsewhere most like one that `path` has, best first.
pub fn alike(index: &Index, path: &str, item: &Item) -> Vec<Alike> {
    let mut wanted: Vec<String> = words_of(item).into_iter().collect();
    wanted.truncate(limits::SIMILAR_WORDS);
    let candidates: Vec<(&File, &Item, Vec<usize>)> = index
        .files()
        .par_iter()
        .flat_map_iter(|file| {
            all_items(&file.digest.summary().items).into_iter().map(move |other| (file, other))
        })
        .filter(|(file, other)| {
            shape(other.kind) == shape(item.kind) && !(file.path == path && other.line == item.line)
        })
        .filter_map(|(file, other)| {
            let has = words_of(other);
            let shared: Vec<usize> = (0..wanted.len()).filter(|at| has.contains(&wanted[*at])).collect();
            (!shared.is_empty()).then_some((file, other, shared))
        })
        .collect();
    let mut items_with = vec![0_u32; wanted.len()];
    for word in candidates.iter().flat_map(|(.., shared)| shared) {
        items_with[*word] += 1;
    }
    let all = candidates.len() as f64;
    let rarity: Vec<f64> =
        items_with.iter().map(|with| (1.0 + all / (1.0 + f64::from(*with))).ln()).collect();
    let whole: f64 = rarity.iter().sum();
    let uses: BTreeSet<&str> = index.file(path).into_iter().flat_map(|file| file.digest.uses()).collect();

    let mut scored: Vec<(f64, &File, &Item, Vec<usize>)> = candidates
        .into_iter()
        .map(|(file, other, shared)| {
            let words = shared.iter().map(|word| rarity[*word]).sum::<f64>() / whole.max(f64::MIN_POSITIVE);
            let parameters = if parameters(other) == parameters(item) { PARAMETERS } else { 0.0 };
            (WORDS * words + parameters, file, other, shared)
        })
        .collect();
    let place = |(score, file, item): (f64, &File, &Item), other: (f64, &File, &Item)| {
        other.0.total_cmp(&score).then_with(|| (&file.path, item.line).cmp(&(&other.1.path, other.2.line)))
    };
    scored.sort_by(|a, b| place((a.0, a.1, a.2), (b.0, b.1, b.2)));
    scored.truncate(4 * limits::SIMILAR_ALIKE);
    let mut found: Vec<Alike> = scored
        .into_iter()
        .map(|(score, file, other, mut shared)| {
            let shared_uses = file.digest.uses().filter(|name| uses.contains(name)).count();
            shared.sort_by(|a, b| rarity[*b].total_cmp(&rarity[*a]).then_with(|| a.cmp(b)));
            Alike {
                path: file.path.clone(),
                lines: (other.line, other.end),
                score: score + USES * shared_uses as f64 / uses.len().max(1) as f64,
                words: shared.into_iter().map(|word| wanted[word].clone()).collect(),
                same_parameters: parameters(other) == parameters(item),
                shared_uses,
            }
        })
        .collect();
    found.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| (&a.path, a.lines).cmp(&(&b.path, b.lines)))
    });
    found.truncate(limits::SIMILAR_ALIKE);
    found
}

/// Kinds that may be like each other.
fn shape(kind: Kind) -> Kind {
    match kind {
        Kind::Method => Kind::Function,
        Kind::Interface | Kind::Enum => Kind::Type,
        kind => kind,
    }
}

fn words_of(item: &Item) -> BTreeSet<String> {
    let signature = &item.signature[..item.signature.floor_char_boundary(limits::SIMILAR_SIGNATURE)];
    let mut found = BTreeSet::new();
    for name in words::names_of(signature).chain([item.name.as_str()]) {
        words::each_of_name(name, |word| {
            if OF_EVERY_SIGNATURE.binary_search(&word).is_err() {
                found.insert(word.to_owned());
            }
        });
    }
    found
}

/// What signatures of one kind all have. In order.
const OF_EVERY_SIGNATURE: &[&str] = &[
    "async",
    "class",
    "const",
    "def",
    "enum",
    "fn",
    "func",
    "function",
    "interface",
    "private",
    "protected",
    "public",
    "static",
    "struct",
    "type",
    "void",
];

/// Roughly how many parameters a signature has: what stands between commas in its first round brackets.
fn parameters(item: &Item) -> usize {
    let inner = item.signature.split_once('(').map_or("", |(_, after)| after);
    let mut depth = 0_i32;
    let mut count = usize::from(!inner.trim_start().starts_with(')') && !inner.is_empty());
    for c in inner.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => break,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => count += 1,
            _ => {}
        }
    }
    count
}
