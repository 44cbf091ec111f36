//! Which files of a repository matter for a text and a list of files, best first.
//!
//! By the words that text and file share, rare ones counting more: BM25 over the file's path, what it defines, its text,
//! and what earlier commits said when they changed it. A file that defines what the text names gains, and so do tests
//! and what they test by each other. No model, no embedding: the same commit and request give the same order. The few
//! weights are round numbers, chosen on the commits in `benches/recall/older.txt` and checked on those in `commits.txt`
//! beside it.

mod matching;
mod query;
mod test_pairs;

use std::collections::BTreeMap;

use self::matching::FileMatch;
pub(super) use self::{matching::for_each_query_word, query::RankingQuery, test_pairs::is_test};
use super::Index;
use crate::limits;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct RankingRequest<'a> {
    /// An issue, title first, or a design.
    pub text: &'a str,
    /// The files to change, if they are known.
    pub files: &'a [String],
}

/// A file that matters.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedFile {
    pub path: String,
    /// Comparable within one answer only: the best by words alone has one.
    pub score: f64,
    /// Words of the text that it has, or that were said of it, the most telling first.
    pub words: Vec<String>,
}

/// Words that are told of one file: the first say enough, and each takes room from the files.
const WORDS: usize = 5;

/// A definition of a name in the text, the only one of it. Of many the sum ends somewhere.
const DEFINES: f64 = 0.4;
const MOST_DEFINES: f64 = 1.0;
/// A file that the request lists.
const REQUESTED: f64 = 2.0;
/// Of a test's score for the file it tests, and the other way.
const TESTED: f64 = 0.35;
const TEST: f64 = 0.3;

/// The files that matter, best first.
pub fn rank_files(index: &Index, request: &RankingRequest<'_>) -> Vec<RankedFile> {
    let query = RankingQuery::parse(request.text);
    let found = matching::match_files(index, &query);
    let mut scores: Vec<f64> = found.iter().map(|found| found.score).collect();
    let top = scores.iter().copied().fold(0.0, f64::max);
    if top > 0.0 {
        scores.iter_mut().for_each(|score| *score /= top);
    }
    boost_definitions(&mut scores, &found);
    for path in request.files {
        if let Some(at) = index.position(path) {
            scores[at] += REQUESTED;
        }
    }
    boost_tests(&mut scores, &test_pairs::pair_tests(index));

    let mut order: Vec<usize> = (0..scores.len()).filter(|at| scores[*at] > 0.0).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then_with(|| a.cmp(b)));
    order.truncate(limits::SIMILAR_OFFERS);
    let offers = order.into_iter().map(|at| RankedFile {
        path: index.files()[at].path.clone(),
        score: scores[at],
        words: found[at].words.iter().take(WORDS).map(|word| query.words[*word].0.clone()).collect(),
    });
    offers.collect()
}

/// A name that many files define says little of each.
fn boost_definitions(scores: &mut [f64], found: &[FileMatch<'_>]) {
    let mut defining = BTreeMap::<&str, u32>::new();
    for name in found.iter().flat_map(|found| &found.defines) {
        *defining.entry(name).or_default() += 1;
    }
    for (score, found) in scores.iter_mut().zip(found) {
        let worth = found.defines.iter().map(|name| 1.0 / f64::from(defining[name]).sqrt());
        *score += (DEFINES * worth.sum::<f64>()).min(MOST_DEFINES);
    }
}

/// A file gains by its tests, and they by it; of several the best counts.
fn boost_tests(scores: &mut [f64], tests: &[(usize, usize)]) {
    let before = scores.to_vec();
    for (test, tested) in tests {
        scores[*tested] = scores[*tested].max(before[*tested] + TESTED * before[*test]);
        scores[*test] = scores[*test].max(before[*test] + TEST * before[*tested]);
    }
}

#[cfg(test)]
mod tests;
