//! Items that are made as a given one is: by the words of their names and signatures, how many parameters they take, and
//! what their files use.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::text::all_items;
use crate::{
    codebase::{File, Index, Item, Kind, reading::in_parallel, words},
    limits,
};

/// Items that are offered as like another one.
const SIMILAR_ALIKE: usize = 20;

/// Bytes of a signature whose words are compared.
const SIMILAR_SIGNATURE: usize = 2000;

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
}

/// How much each voice has of the score.
const WORDS: f64 = 0.7;
const PARAMETERS: f64 = 0.1;
const USES: f64 = 0.2;

/// The items elsewhere most like one that `path` has, best first.
pub fn alike<'i>(index: &'i Index, path: &str, item: &Item) -> Vec<Alike> {
    let mut wanted = BTreeSet::new();
    for_words(item, |word| {
        wanted.insert(word.to_owned());
    });
    let wanted: Vec<String> = wanted.into_iter().take(limits::SIMILAR_WORDS).collect();
    let same_shape = |file: &File, other: &Item| {
        shape(other.kind) == shape(item.kind) && !(file.path == path && other.line == item.line)
    };
    let sharing = |file: &'i File| {
        let all = all_items(&file.digest.summary().items).into_iter();
        let candidates = all.filter(|other| same_shape(file, other));
        let found = candidates.map(|other| (file, other, shared(&wanted, other)));
        found.filter(|(.., shared)| !shared.is_empty()).collect::<Vec<_>>()
    };
    let candidates: Vec<(&File, &Item, Vec<usize>)> =
        in_parallel(|| index.files().par_iter().flat_map_iter(sharing).collect());
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
    scored.truncate(4 * SIMILAR_ALIKE);
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
            }
        })
        .collect();
    found.sort_by(|a, b| {
        b.score.total_cmp(&a.score).then_with(|| (&a.path, a.lines).cmp(&(&b.path, b.lines)))
    });
    found.truncate(SIMILAR_ALIKE);
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

/// Which of the words an item has, in order.
fn shared(wanted: &[String], item: &Item) -> Vec<usize> {
    let mut shared = Vec::new();
    for_words(item, |word| shared.extend(wanted.binary_search_by(|known| known.as_str().cmp(word))));
    shared.sort_unstable();
    shared.dedup();
    shared
}

/// The words of an item's name and signature.
fn for_words(item: &Item, mut found: impl FnMut(&str)) {
    let signature = &item.signature[..item.signature.floor_char_boundary(SIMILAR_SIGNATURE)];
    for name in words::names_of(signature).chain([item.name.as_str()]) {
        words::each_of_name(name, |word| {
            if OF_EVERY_SIGNATURE.binary_search(&word).is_err() {
                found(word);
            }
        });
    }
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
