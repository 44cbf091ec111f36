//! Matches the words and names of a query against each file of the index.

use std::collections::BTreeMap;

use rayon::prelude::*;

use super::query::RankingQuery;
use crate::codebase::{
    CodeItem, Index, IndexedFile, Language, bm25,
    index_builder::in_parallel,
    tree::{file_name, folder_of},
    words,
};

/// Number of occurrences in the text to which a query word in the file's name is equivalent. A word in a folder's name
/// counts half as much.
const IN_PATH: f64 = 4.0;
const IN_DEFINITION: f64 = 3.0;
/// Weight of a query word in the path. This value is added to the saturated count of occurrences, whose limit is 2.2.
const PATH: f64 = 1.0;
const DEFINITION: f64 = 0.75;
const PAST: f64 = 2.5;
/// Strength of BM25 length normalization, from 0 to 1, for files and for their commit messages.
const LENGTH: f64 = 0.5;
/// Share of the score that depends on the proportion of the query's words that the file contains.
const COVERAGE: f64 = 0.5;
/// Factor applied to the score of files that are not source code, such as prose, settings and data.
const NO_SOURCE: f64 = 0.3;

#[derive(Debug, Default)]
pub(super) struct FileMatch<'a> {
    pub(super) score: f64,
    /// Positions of the matched words in the query, most significant word first.
    pub(super) words: Vec<usize>,
    /// Names from the query that the file defines, sorted.
    pub(super) defines: Vec<&'a str>,
}

#[derive(Debug, Default, Clone, Copy)]
struct WordHit {
    path: f64,
    definitions: f64,
    text: f64,
    past: f64,
}

/// Returns one match per file, in the order of the index.
pub(super) fn match_files<'a>(index: &'a Index, query: &RankingQuery) -> Vec<FileMatch<'a>> {
    let files = index.files();
    let mut hits: Vec<FileHits<'_>> =
        in_parallel(|| files.par_iter().map(|file| FileHits::new(file, query)).collect());
    let mut files_with = vec![0_u32; query.words.len()];
    for word in hits.iter().flat_map(|hits| hits.words.keys()) {
        files_with[*word] += 1;
    }
    let rarity = files_with.iter().map(|with| bm25::inverse_document_frequency(files.len(), *with));
    let telling: Vec<f64> =
        query.words.iter().zip(rarity).map(|((_, weight), rarity)| weight * rarity).collect();
    add_past_commits(index, query, &mut hits);
    let size = files.iter().map(|file| file.size as f64).sum::<f64>() / files.len().max(1) as f64;
    let found = hits.into_iter().zip(files);
    found.map(|(hits, file)| hits.score(&telling, file, file.size as f64 / size.max(1.0))).collect()
}

/// Credits the query words in the subject of an earlier commit to the files that the commit changed. The more files a
/// commit changed, the less it adds to each file.
fn add_past_commits(index: &Index, query: &RankingQuery, hits: &mut [FileHits<'_>]) {
    let share = |files: &[usize]| 1.0 / (files.len() as f64).sqrt();
    let mut word_sums = vec![0.0; hits.len()];
    for commit in index.past_commits() {
        for file in &commit.files {
            word_sums[*file] += share(&commit.files) * commit.words.len() as f64;
        }
    }
    let mentioned = word_sums.iter().filter(|sum| **sum > 0.0).count();
    let mean = word_sums.iter().sum::<f64>() / mentioned.max(1) as f64;
    for commit in index.past_commits() {
        let words = commit.words.iter().filter_map(|word| query.position(word));
        let words: Vec<usize> = words.collect();
        for (file, word) in commit.files.iter().flat_map(|file| words.iter().map(move |word| (*file, *word)))
        {
            let often = bm25::normalize_for_length(share(&commit.files), word_sums[file] / mean, LENGTH);
            hits[file].words.entry(word).or_default().past += often;
        }
    }
}

/// Query words and names that one file contains, before they are weighted.
struct FileHits<'a> {
    words: BTreeMap<usize, WordHit>,
    defines: Vec<&'a str>,
}

impl<'a> FileHits<'a> {
    fn new(file: &'a IndexedFile, query: &RankingQuery) -> Self {
        let mut words: BTreeMap<usize, WordHit> = BTreeMap::new();
        for (at, (word, _)) in query.words.iter().enumerate() {
            let count = file.digest.count(word);
            if count > 0 {
                words.entry(at).or_default().text = f64::from(count);
            }
        }
        let name = file_name(&file.path);
        // The file ending says nothing about the topic.
        let name = name.rsplit_once('.').map_or(name, |(name, _)| name);
        for (part, counts) in [(folder_of(&file.path), 0.5), (name, 1.0)] {
            for_each_query_word(part, query, |at| {
                let hit = words.entry(at).or_default();
                hit.path = hit.path.max(counts);
            });
        }
        let mut defines = Vec::new();
        for item in all_items(&file.digest.summary().items) {
            for_each_query_word(&item.name, query, |at| words.entry(at).or_default().definitions += 1.0);
            if query.names.contains(&item.name) {
                defines.push(item.name.as_str());
            }
        }
        defines.sort_unstable();
        defines.dedup();
        Self { words, defines }
    }

    /// Computes the file's score. `telling` contains the weight of each query word; `size` is the file's size relative
    /// to the mean size of all files.
    fn score(self, telling: &[f64], file: &IndexedFile, size: f64) -> FileMatch<'a> {
        let worth = |(word, hit): (&usize, &WordHit)| {
            let in_text = bm25::normalize_for_length(hit.text, size, LENGTH);
            let base = bm25::saturate(IN_PATH * hit.path + IN_DEFINITION * hit.definitions.ln_1p() + in_text);
            let defined = hit.definitions / (hit.definitions + 1.0);
            let past = hit.past / (hit.past + 1.0);
            (telling[*word] * (base + PATH * hit.path + DEFINITION * defined + PAST * past), *word)
        };
        let mut worth: Vec<(f64, usize)> = self.words.iter().map(worth).collect();
        worth.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let all: f64 = telling.iter().sum();
        let had: f64 = self.words.keys().map(|word| telling[*word]).sum();
        let coverage = 1.0 - COVERAGE + COVERAGE * had / all.max(f64::MIN_POSITIVE);
        let kind = if is_source(file) { 1.0 } else { NO_SOURCE };
        FileMatch {
            score: kind * coverage * worth.iter().map(|(worth, _)| worth).sum::<f64>(),
            words: worth.into_iter().map(|(_, word)| word).collect(),
            defines: self.defines,
        }
    }
}

/// Returns whether the file is source code. This includes languages for which we have no grammar.
fn is_source(file: &IndexedFile) -> bool {
    let ending = file_name(&file.path).rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match file.language {
        Language::Other => !ending.is_empty() && !NO_CODE.split(' ').any(|known| known == ending),
        language => language.is_code(),
    }
}

/// Extensions of files that are not code, for files of unknown language. A file without an extension is not treated as
/// code either.
const NO_CODE: &str =
    "adoc csv diff htm html jsonl log org out patch pot po properties rst svg tex tsv txt xml";

/// Calls `found` for each occurrence of a query word in the names of a text. The argument is the position of the word
/// in the query.
pub(in crate::codebase) fn for_each_query_word(
    text: &str,
    query: &RankingQuery,
    mut found: impl FnMut(usize),
) {
    for name in words::names_in(text) {
        words::for_each_word(name, |word| {
            if let Some(at) = query.position(word) {
                found(at);
            }
        });
    }
}

/// Returns all items including nested items. An outer item comes before its inner items.
fn all_items(items: &[CodeItem]) -> Vec<&CodeItem> {
    let mut all: Vec<&CodeItem> = Vec::new();
    let mut rest: Vec<&CodeItem> = items.iter().rev().collect();
    while let Some(item) = rest.pop() {
        all.push(item);
        rest.extend(item.children.iter().rev());
    }
    all
}
