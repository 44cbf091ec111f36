//! The parts of some texts, and how much each says of what is asked: by the words of its lines, whatever the language.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::codebase::{
    bm25,
    index_builder::in_parallel,
    ranking::{RankingQuery, for_each_query_word},
};

/// Lines of one part, at the least and at the most.
const LEAST_LINES: usize = 8;
const MOST_LINES: usize = 40;

/// What a part is worth that has none of the words, beside the best: a file that matters does so as a whole.
const EVEN: f64 = 0.4;
/// What of a part's worth its neighbours have.
const NEAR: f64 = 0.3;
/// How much a long part must say a word more often.
const LENGTH: f64 = 0.75;

/// Some lines of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FilePart {
    /// Counted from 1, the last one included.
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) bytes: usize,
    /// Of one byte: from [`EVEN`] on; the best has more than one.
    pub(super) worth: f64,
}

/// The parts of each text, in order; together they are all of its lines.
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
    let says = |(part, words): &(FilePart, BTreeMap<usize, u32>)| -> f64 {
        let worth = |(word, often): (&usize, &u32)| {
            let often =
                bm25::normalize_for_length(f64::from(*often), part.bytes as f64 / mean.max(1.0), LENGTH);
            query.words[*word].1
                * bm25::inverse_document_frequency(count, having[*word])
                * bm25::saturate(often)
        };
        words.iter().map(worth).sum()
    };
    let said: Vec<Vec<f64>> = read.iter().map(|parts| parts.iter().map(says).collect()).collect();
    let said: Vec<Vec<f64>> = said.iter().map(|said| smooth_with_neighbours(said)).collect();
    let top = said.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let parts = read.into_iter().zip(said).map(|(parts, said)| {
        let parts = parts.into_iter().zip(said);
        parts.map(|((part, _), said)| FilePart { worth: EVEN + said / top, ..part }).collect()
    });
    parts.collect()
}

fn smooth_with_neighbours(said: &[f64]) -> Vec<f64> {
    let at = |at: Option<usize>| at.and_then(|at| said.get(at)).copied().unwrap_or_default();
    (0..said.len()).map(|n| said[n] + NEAR * (at(n.checked_sub(1)) + at(Some(n + 1)))).collect()
}

/// The parts of a text with how often each has each word of the query.
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

/// How many lines the first part takes: it ends where the next line stands far left, best behind a blank one.
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
    // Of equal places the last.
    (LEAST_LINES..=MOST_LINES).rev().min_by_key(cost).unwrap_or(MOST_LINES)
}
