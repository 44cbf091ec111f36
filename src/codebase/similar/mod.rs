//! Which files of a repository matter for a text and a list of files, best first, and why.
//!
//! Three voices: the words that text and file share, rare ones counting more (BM25 over the file's path, what it
//! defines, and its text); what the text names outright; and the graph of who imports and tests whom, through which files
//! close to good ones gain. No model, no embedding: the same commit and request give the same order. The few weights are
//! round numbers, chosen on the commits in `benches/recall/older.txt` and checked on those in `commits.txt` beside it.

mod alike;
mod graph;
mod paths;
mod query;
mod reasons;
mod relations;
mod tests_of;
mod text;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

pub(super) use self::relations::Related;
pub(super) use self::tests_of::is_test;
pub use self::{
    alike::{Alike, alike},
    reasons::Reason,
};
use self::{graph::Graph, paths::Names, query::Query, relations::Relations, text::Found};
use super::{
    Index, Item,
    imports::{folder_of, stem},
    tree::file_name,
    words,
};
use crate::limits;

/// Items of an offered file that are pointed at.
const SIMILAR_ITEMS: usize = 8;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// An issue, title first, or a design.
    pub text: &'a str,
    /// The files to change, if they are known.
    pub files: &'a [String],
}

/// A file that matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    pub path: String,
    /// Comparable within one answer only: the best by words alone has one.
    pub score: f64,
    /// Strongest first.
    pub reasons: Vec<Reason>,
    /// The first and last lines of the items in it that matter most, best first.
    pub items: Vec<(u32, u32)>,
}

/// Files without a known structure: prose, settings, data.
const NO_CODE: f64 = 0.3;
/// The most that a title's scope adds to the words: half as much again would be 0.5.
const SCOPE: f64 = 0.3;
/// A path with all of the scope in its file's or its last folder's name; elsewhere in it half of that.
const IN_SCOPE: f64 = 0.12;
/// A definition of a name in the text, the only one of it; and its only use. Of many the sums end somewhere.
const DEFINES: f64 = 0.4;
const USES: f64 = 0.25;
const MOST_DEFINES: f64 = 1.0;
const MOST_USES: f64 = 0.5;
/// A path in the text that means one file only.
const NAMED: f64 = 0.8;
/// A file that the request lists.
const REQUESTED: f64 = 2.0;
/// Of a test's score for the file it tests, and the other way.
const TESTED: f64 = 0.35;
const TEST: f64 = 0.3;
/// The most that the graph adds.
const NEAR: f64 = 0.45;

/// The files that matter, best first.
pub fn rank(index: &Index, request: &Request<'_>) -> Vec<Offer> {
    let query = Query::of(request.text);
    let (found, rarity) = text::search(index, &query);
    let relations = Relations::of(index);
    let mut scores = by_words(index, &query, &found);
    by_names(&mut scores, &found);
    by_scope(&mut scores, index, &query);
    let named = by_paths(&mut scores, index, &query, &relations.names);
    let requested = index.files().iter().map(|file| request.files.contains(&file.path)).collect::<Vec<_>>();
    for at in (0..scores.len()).filter(|at| requested[*at]) {
        scores[at] += REQUESTED;
    }
    by_tests(&mut scores, &relations.tests);
    by_graph(&mut scores, &relations.graph);

    let mut order: Vec<usize> = (0..scores.len()).filter(|at| scores[*at] > 0.0).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then_with(|| a.cmp(b)));
    order.truncate(limits::SIMILAR_OFFERS);
    let about = reasons::About {
        index,
        query: &query,
        found: &found,
        named: &named,
        tests: &relations.tests,
        graph: &relations.graph,
        order: &order,
    };
    let offers = order.iter().map(|at| Offer {
        path: index.files()[*at].path.clone(),
        score: scores[*at],
        reasons: about.reasons(*at, requested[*at]),
        items: items(index, *at, &query, &rarity),
    });
    offers.collect()
}

fn by_words(index: &Index, query: &Query, found: &[Found<'_>]) -> Vec<f64> {
    let scores = index.files().iter().zip(found).map(|(file, found)| {
        let kind = if file.language.is_code() { 1.0 } else { NO_CODE };
        found.score * kind * (1.0 + SCOPE * inside(&file.path, query))
    });
    let mut scores: Vec<f64> = scores.collect();
    let top = scores.iter().copied().fold(0.0, f64::max);
    if top > 0.0 {
        scores.iter_mut().for_each(|score| *score /= top);
    }
    scores
}

/// How much of the title's scope a path has in it, from 0 to 1.
fn inside(path: &str, query: &Query) -> f64 {
    if query.scope.is_empty() {
        return 0.0;
    }
    let words = words::of(path);
    query.scope.iter().filter(|word| words.contains(*word)).count() as f64 / query.scope.len() as f64
}

/// A name that many files define, or use, says little of each.
fn by_names(scores: &mut [f64], found: &[Found<'_>]) {
    let defining = files_with(found.iter().flat_map(|found| &found.defines));
    let using = files_with(found.iter().flat_map(|found| &found.uses));
    for (score, found) in scores.iter_mut().zip(found) {
        *score += (DEFINES * worth(&found.defines, &defining)).min(MOST_DEFINES);
        *score += (USES * worth(&found.uses, &using)).min(MOST_USES);
    }
}

fn files_with<'a>(names: impl Iterator<Item = &'a &'a str>) -> BTreeMap<&'a str, u32> {
    let mut files_with = BTreeMap::new();
    for name in names {
        *files_with.entry(*name).or_default() += 1;
    }
    files_with
}

fn worth(names: &[&str], files_with: &BTreeMap<&str, u32>) -> f64 {
    names.iter().map(|name| 1.0 / f64::from(files_with[name]).sqrt()).sum()
}

/// What lies in the part of the repository that the title is about gains, if anything else speaks for it.
fn by_scope(scores: &mut [f64], index: &Index, query: &Query) {
    if query.scope.is_empty() {
        return;
    }
    for (score, file) in scores.iter_mut().zip(index.files()).filter(|(score, _)| **score > 0.0) {
        let has_all = |words: &BTreeSet<String>| query.scope.is_subset(words);
        let mut nearest = words::of(stem(file_name(&file.path)));
        nearest.append(&mut words::of(file_name(folder_of(&file.path))));
        if has_all(&nearest) {
            *score += IN_SCOPE;
        } else if has_all(&words::of(&file.path)) {
            *score += IN_SCOPE / 2.0;
        }
    }
}

/// The files that the text writes a path of, with what it wrote.
fn by_paths<'q>(
    scores: &mut [f64],
    index: &Index,
    query: &'q Query,
    names: &Names,
) -> BTreeMap<usize, &'q str> {
    let mut named: BTreeMap<usize, (f64, &str)> = BTreeMap::new();
    for path in &query.paths {
        let meant = names.meant_by(index, path);
        let worth = NAMED / (meant.len() as f64).max(1.0).powf(0.7);
        for at in meant {
            let best = named.entry(at).or_insert((worth, path));
            if worth > best.0 {
                *best = (worth, path);
            }
        }
    }
    for (at, (worth, _)) in &named {
        scores[*at] += worth;
    }
    named.into_iter().map(|(at, (_, path))| (at, path)).collect()
}

/// A file gains by its tests, and they by it; of several the best counts.
fn by_tests(scores: &mut [f64], tests: &[(usize, usize)]) {
    let before = scores.to_vec();
    for (test, tested) in tests {
        scores[*tested] = scores[*tested].max(before[*tested] + TESTED * before[*test]);
        scores[*test] = scores[*test].max(before[*test] + TEST * before[*tested]);
    }
}

/// Good files warm those near them, twice as good ones four times as much.
fn by_graph(scores: &mut [f64], graph: &Graph) {
    let seeds: Vec<f64> = scores.iter().map(|score| score * score).collect();
    let flow = graph.spread(&seeds);
    let top = flow.iter().copied().fold(0.0, f64::max);
    if top > 0.0 {
        for (score, flow) in scores.iter_mut().zip(flow) {
            *score += NEAR * flow / top;
        }
    }
}

/// The lines of the items that have most of the query in their names and documentation. Of an item and one that it holds
/// the inner is taken, if it says as much; of a long one its beginning, unless what it holds says something.
fn items(index: &Index, at: usize, query: &Query, rarity: &[f64]) -> Vec<(u32, u32)> {
    let worth = |item: &Item| {
        let mut words = BTreeSet::new();
        text::for_words(&item.name, query, |word| {
            words.insert(word);
        });
        let named = if query.names.contains(&item.name) { 10.0 } else { 0.0 };
        let mut sum =
            named + words.iter().map(|word| 2.0 * query.words[*word].1 * rarity[*word]).sum::<f64>();
        text::for_words(item.doc.as_deref().unwrap_or_default(), query, |word| {
            if words.insert(word) {
                sum += query.words[word].1 * rarity[word];
            }
        });
        sum
    };
    let mut telling: Vec<(f64, u32, u32)> = Vec::new();
    for item in text::all_items(&index.files()[at].digest.summary().items) {
        let last = item.line.saturating_add(limits::SIMILAR_ITEM_LINES - 1);
        let by_parts = item.end > last && item.children.iter().any(|child| worth(child) > 0.0);
        let worth = worth(item);
        if worth > 0.0 && item.end >= item.line && !by_parts {
            telling.push((worth, item.line, item.end.min(last)));
        }
    }
    telling.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, Reverse(a.2)).cmp(&(b.1, Reverse(b.2)))));
    let mut taken: Vec<(u32, u32)> = Vec::new();
    for (_, line, end) in telling {
        if taken.len() == SIMILAR_ITEMS {
            break;
        }
        if !taken.iter().any(|(from, to)| line <= *to && *from <= end) {
            taken.push((line, end));
        }
    }
    taken
}

#[cfg(test)]
mod tests;
