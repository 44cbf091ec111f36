//! How much of a text's words and names a file has.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::query::Query;
use crate::codebase::{File, Index, Item, bm25, reading::in_parallel, tree::file_name, words};

/// A word at the end of a path counts as this many in the text; in a folder's name half of it. And a word in the name of
/// something that the file defines.
const IN_PATH: f64 = 4.0;
const IN_DEFINITION: f64 = 3.0;
/// What they are worth beside that, however often the text says the word: of a word that it says for ever, 2.2.
const PATH: f64 = 1.0;
const DEFINITION: f64 = 0.75;
/// How much a long file must say a word more often.
const LENGTH: f64 = 0.5;
/// What of its worth a file has only as far as it has all words of a text, and not one of them often.
const COVERAGE: f64 = 0.3;

/// What one file has of a query.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    pub(super) score: f64,
    /// Places in the query's words of those that the text has, the most telling first.
    pub(super) in_text: Vec<usize>,
    /// And of those that stand in the path.
    pub(super) in_path: Vec<usize>,
    /// The query's names that the file defines, in order.
    pub(super) defines: Vec<&'a str>,
    /// And those that it uses.
    pub(super) uses: Vec<&'a str>,
}

/// One word's occurrences in a file.
#[derive(Debug, Default, Clone, Copy)]
struct Hit {
    path: f64,
    definitions: f64,
    text: f64,
}

/// What every file has of it, and how rare each of its words is here.
pub(super) fn search<'a>(index: &'a Index, query: &'a Query) -> (Vec<Found<'a>>, Vec<f64>) {
    let files = index.files();
    let hits: Vec<Hits<'_>> = in_parallel(|| files.par_iter().map(|file| Hits::of(file, query)).collect());
    let mut files_with = vec![0_u32; query.words.len()];
    for word in hits.iter().flat_map(|hits| hits.words.keys()) {
        files_with[*word] += 1;
    }
    let rarity: Vec<f64> =
        files_with.iter().map(|with| bm25::times_rarer(files.len(), *with).ln_1p()).collect();
    let size = files.iter().map(|file| file.size as f64).sum::<f64>() / files.len().max(1) as f64;
    let telling: Vec<f64> =
        query.words.iter().zip(&rarity).map(|((_, weight), rarity)| weight * rarity).collect();
    let found = hits.into_iter().zip(files);
    (found.map(|(hits, file)| hits.weighed(&telling, file.size as f64 / size.max(1.0))).collect(), rarity)
}

/// What a file has of a query, not weighed yet.
struct Hits<'a> {
    words: BTreeMap<usize, Hit>,
    defines: Vec<&'a str>,
    uses: Vec<&'a str>,
}

impl<'a> Hits<'a> {
    fn of(file: &'a File, query: &'a Query) -> Self {
        let mut words: BTreeMap<usize, Hit> = BTreeMap::new();
        for (at, (word, _)) in query.words.iter().enumerate() {
            let count = file.digest.count(word);
            if count > 0 {
                words.entry(at).or_default().text = f64::from(count);
            }
        }
        let name = file_name(&file.path);
        for (part, counts) in [(&file.path[..file.path.len() - name.len()], 0.5), (name, 1.0)] {
            for_words(part, query, |at| {
                let hit = words.entry(at).or_default();
                hit.path = hit.path.max(counts);
            });
        }
        let mut defines = Vec::new();
        for item in all_items(&file.digest.summary().items) {
            for_words(&item.name, query, |at| words.entry(at).or_default().definitions += 1.0);
            if query.names.contains(&item.name) {
                defines.push(item.name.as_str());
            }
        }
        defines.sort_unstable();
        defines.dedup();
        let names = query.names.iter().map(String::as_str);
        Self { words, defines, uses: names.filter(|name| file.digest.has_use(name)).collect() }
    }

    /// By how telling each word is, the file being so many times as long as others.
    fn weighed(self, telling: &[f64], size: f64) -> Found<'a> {
        let mut worth: Vec<(f64, usize)> = self
            .words
            .iter()
            .map(|(word, hit)| {
                let in_text = bm25::for_its_length(hit.text, size, LENGTH);
                let said =
                    bm25::saturated(IN_PATH * hit.path + IN_DEFINITION * hit.definitions.ln_1p() + in_text);
                let defined = hit.definitions / (hit.definitions + 1.0);
                (telling[*word] * (said + PATH * hit.path + DEFINITION * defined), *word)
            })
            .collect();
        worth.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let those = |has: fn(&Hit) -> f64| -> Vec<usize> {
            worth.iter().map(|(_, word)| *word).filter(|word| has(&self.words[word]) > 0.0).collect()
        };
        let all: f64 = telling.iter().sum();
        let had: f64 = self.words.keys().map(|word| telling[*word]).sum();
        let coverage = 1.0 - COVERAGE + COVERAGE * had / all.max(f64::MIN_POSITIVE);
        Found {
            score: coverage * worth.iter().map(|(worth, _)| worth).sum::<f64>(),
            in_text: those(|hit| hit.text),
            in_path: those(|hit| hit.path),
            defines: self.defines,
            uses: self.uses,
        }
    }
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
