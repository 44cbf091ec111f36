//! Splits texts into parts of 8 to 40 lines, and scores each part by the query words that the part contains.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::codebase::{
    bm25,
    index_builder::in_parallel,
    ranking::{RankingQuery, for_each_query_word},
};

/// Minimum number of lines of a part, except for a part at the end of a text.
const LEAST_LINES: usize = 8;
const MOST_LINES: usize = 40;

/// Base worth of every part, even of a part without query words, because any part of a relevant file can be useful.
const EVEN: f64 = 0.4;
/// Share of a part's score that is added to the score of each neighbouring part.
const NEAR: f64 = 0.3;
/// Strength of BM25 length normalization, from 0 to 1.
const LENGTH: f64 = 0.75;

/// A range of lines of a text, with its score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FilePart {
    /// First and last line of the part. Lines are counted from 1, and the last line is included.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) bytes: usize,
    /// Worth per byte: [`EVEN`] plus the ratio of the part's score to the best part's score.
    pub(super) worth: f64,
}

/// Returns the scored parts of each text, in line order. The parts of a text together cover all its lines.
pub(super) fn split_texts(texts: &[Option<&str>], query: &RankingQuery) -> Vec<Vec<FilePart>> {
    let read = |text: &Option<&str>| text.map_or_else(Vec::new, |text| part_words(text, query));
    let read: Vec<Vec<(FilePart, BTreeMap<usize, u32>)>> =
        in_parallel(|| texts.par_iter().map(read).collect());
    let mut having = vec![0_u32; query.words.len()];
    for word in read.iter().flatten().flat_map(|(_, words)| words.keys()) {
        having[*word] += 1;
    }
    let count = read.iter().map(Vec::len).sum::<usize>();
    let mean = read.iter().flatten().map(|(part, _)| part.bytes as f64).sum::<f64>() / count.max(1) as f64;
    let score = |(part, words): &(FilePart, BTreeMap<usize, u32>)| -> f64 {
        let worth = |(word, often): (&usize, &u32)| {
            let often =
                bm25::normalize_for_length(f64::from(*often), part.bytes as f64 / mean.max(1.0), LENGTH);
            query.words[*word].1
                * bm25::inverse_document_frequency(count, having[*word])
                * bm25::saturate(often)
        };
        words.iter().map(worth).sum()
    };
    let scores: Vec<Vec<f64>> = read.iter().map(|parts| parts.iter().map(score).collect()).collect();
    let scores: Vec<Vec<f64>> = scores.iter().map(|scores| smooth_with_neighbours(scores)).collect();
    let top = scores.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let parts = read.into_iter().zip(scores).map(|(parts, scores)| {
        let parts = parts.into_iter().zip(scores);
        parts.map(|((part, _), scores)| FilePart { worth: EVEN + scores / top, ..part }).collect()
    });
    parts.collect()
}

fn smooth_with_neighbours(scores: &[f64]) -> Vec<f64> {
    let at = |at: Option<usize>| at.and_then(|at| scores.get(at)).copied().unwrap_or_default();
    (0..scores.len()).map(|n| scores[n] + NEAR * (at(n.checked_sub(1)) + at(Some(n + 1)))).collect()
}

/// Splits a text into parts. Returns each part with the number of occurrences of each query word.
fn part_words(text: &str, query: &RankingQuery) -> Vec<(FilePart, BTreeMap<usize, u32>)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut parts = Vec::new();
    let mut first = 0;
    while first < lines.len() {
        let next = first + part_length(&lines[first..]);
        let mut words = BTreeMap::new();
        let mut bytes = 0;
        for line in &lines[first..next] {
            bytes += line.len() + 1;
            for_each_query_word(line, query, |word| *words.entry(word).or_default() += 1);
        }
        parts.push((FilePart { first: first + 1, last: next, bytes, worth: 0.0 }, words));
        first = next;
    }
    parts
}

/// Returns the number of lines of the first part. The part ends before a line with little indentation, preferably after
/// a blank line.
fn part_length(lines: &[&str]) -> usize {
    if lines.len() <= MOST_LINES {
        return lines.len();
    }
    let indent = |line: &str| line.len() - line.trim_start().len();
    let cost = |at: &usize| {
        let (before, next) = (lines[*at - 1], lines[*at]);
        let within = if before.trim().is_empty() { 0 } else { 16 };
        let closing = if next.trim_start().starts_with([')', ']', '}']) { 12 } else { 0 };
        let blank = if next.trim().is_empty() { 100 } else { 0 };
        indent(next).min(40) + within + closing + blank
    };
    // Ties go to the longest part.
    (LEAST_LINES..=MOST_LINES).rev().min_by_key(cost).unwrap_or(MOST_LINES)
}
