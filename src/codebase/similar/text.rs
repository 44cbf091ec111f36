//! How much of a text's words and names a file has.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::query::Query;
use crate::codebase::{File, Index, Item, words};

/// A word at the end of a path counts as this many in the text; in a folder's name half of it.
const IN_PATH: f64 = 4.0;
/// And in the name of something that the file defines.
const IN_DEFINITION: f64 = 3.0;
/// BM25: how soon a word said again adds nothing more, and how much a long file must say it more often.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.5;

/// What one file has of a query.
#[derive(Debug, Default)]
pub(super) struct Found<'i> {
    pub(super) score: f64,
    /// Places in the query's words of those that the text has, the most telling first.
    pub(super) in_text: Vec<usize>,
    /// And of those that stand in the path.
    pub(super) in_path: Vec<usize>,
    /// The query's names that the file defines, in order.
    pub(super) names: Vec<&'i str>,
}

/// One word's occurrences in a file.
#[derive(Debug, Default, Clone, Copy)]
struct Hit {
    path: f64,
    definitions: f64,
    text: f64,
}

/// What every file has of it, and how rare each of its words is here.
pub(super) fn search<'i>(index: &'i Index, query: &Query) -> (Vec<Found<'i>>, Vec<f64>) {
    let files = index.files();
    let hits: Vec<(BTreeMap<usize, Hit>, Vec<&str>)> = files.par_iter().map(|file| hits(file, query)).collect();
    let mut files_with = vec![0_u32; query.words.len()];
    for word in hits.iter().flat_map(|(hits, _)| hits.keys()) {
        files_with[*word] += 1;
    }
    let rarity: Vec<f64> = files_with
        .iter()
        .map(|with| ((files.len() as f64 + 1.0) / (f64::from(*with) + 0.5)).ln_1p())
        .collect();
    let size = files.iter().map(|file| file.size as f64).sum::<f64>() / files.len().max(1) as f64;
    let found = hits
        .into_iter()
        .zip(files)
        .map(|((hits, names), file)| {
            let length = 1.0 - LENGTH + LENGTH * file.size as f64 / size.max(1.0);
            let mut worth: Vec<(f64, usize)> = hits
                .iter()
                .map(|(word, hit)| {
                    let often = IN_PATH * hit.path + IN_DEFINITION * hit.definitions.ln_1p() + hit.text / length;
                    let said = often * (SATURATION + 1.0) / (often + SATURATION);
                    (query.words[*word].1 * rarity[*word] * said, *word)
                })
                .collect();
            worth.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            let those = |has: fn(&Hit) -> f64| -> Vec<usize> {
                worth.iter().map(|(_, word)| *word).filter(|word| has(&hits[word]) > 0.0).collect()
            };
            let (in_text, in_path) = (those(|hit| hit.text), those(|hit| hit.path));
            Found { score: worth.iter().map(|(worth, _)| worth).sum(), in_text, in_path, names }
        })
        .collect();
    (found, rarity)
}

fn hits<'i>(file: &'i File, query: &Query) -> (BTreeMap<usize, Hit>, Vec<&'i str>) {
    let mut hits: BTreeMap<usize, Hit> = BTreeMap::new();
    for (at, (word, _)) in query.words.iter().enumerate() {
        let count = file.digest.count(word);
        if count > 0 {
            hits.entry(at).or_default().text = f64::from(count);
        }
    }
    let name = crate::codebase::tree::file_name(&file.path);
    for (part, counts) in [(&file.path[..file.path.len() - name.len()], 0.5), (name, 1.0)] {
        for_words(part, query, |at| {
            let hit = hits.entry(at).or_default();
            hit.path = hit.path.max(counts);
        });
    }
    let mut names = Vec::new();
    for item in all_items(&file.digest.summary().items) {
        for_words(&item.name, query, |at| hits.entry(at).or_default().definitions += 1.0);
        if query.names.contains(&item.name) {
            names.push(item.name.as_str());
        }
    }
    names.sort_unstable();
    names.dedup();
    (hits, names)
}

/// The places in the query of the words of a name.
pub(super) fn for_words(text: &str, query: &Query, mut found: impl FnMut(usize)) {
    for name in words::names_of(text) {
        words::each_of_name(name, |word| {
            if let Ok(at) = query.words.binary_search_by(|(known, _)| known.as_str().cmp(word)) {
                found(at);
            }
        });
    }
}

/// Items with all that they hold, outer ones first.
pub(super) fn all_items(items: &[Item]) -> Vec<&Item> {
    let mut all: Vec<&Item> = Vec::new();
    let mut rest: Vec<&Item> = items.iter().rev().collect();
    while let Some(item) = rest.pop() {
        all.push(item);
        rest.extend(item.children.iter().rev());
    }
    all
}
