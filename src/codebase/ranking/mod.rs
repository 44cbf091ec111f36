//! Ranks the files of a repository by relevance to a text and a list of files.
//!
//! The base score is BM25 over the words of each file's path, definitions, text and past commit messages. Files that
//! define a name from the text score higher. A test and the file that it tests raise each other's score. The ranking
//! uses neither a model nor an embedding, so the same commit and request give the same order. The weights are round
//! numbers; they were chosen on the commits in `benches/recall/older.txt` and checked on those in `commits.txt` in the
//! same folder.

mod matching;
mod query;
mod test_pairs;

use std::collections::BTreeMap;

use self::matching::FileMatch;
pub(super) use self::{matching::for_each_query_word, query::RankingQuery, test_pairs::is_test};
use super::Index;
use crate::limits;

/// The text and the files by which to rank the files of a repository.
#[derive(Debug, Clone, Copy)]
pub struct RankingRequest<'a> {
    /// Text of an issue (title first) or of a design.
    pub text: &'a str,
    /// Paths of the files to change, if they are known.
    pub files: &'a [String],
}

/// A relevant file, and the query words that match it.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedFile {
    pub path: String,
    /// Score, which is comparable only within one ranking. Before bonuses are added, the file that matches the words
    /// best scores 1.
    pub score: f64,
    /// Words of the text that occur in the file or in the subjects of its past commits, most significant first.
    pub words: Vec<String>,
}

/// Maximum number of words reported per file. More words would explain little and would cost tokens.
const WORDS: usize = 5;

/// Bonus for a file that defines a name from the text, if it is the only file to define that name.
const DEFINES: f64 = 0.4;
const MOST_DEFINES: f64 = 1.0;
/// Bonus for a file that the request lists.
const REQUESTED: f64 = 2.0;
/// Share of a test's score that is added to the score of the file that it tests.
const TESTED: f64 = 0.35;
const TEST: f64 = 0.3;

/// Returns the relevant files, best first.
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

/// Adds the definition bonus to each file that defines names from the text. The more files define a name, the smaller
/// the bonus for each of them.
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

/// Raises the score of each tested file by a share of its test's score, and the score of each test by a share of the
/// tested file's score. If a file has several tests, only the test with the highest score counts.
fn boost_tests(scores: &mut [f64], tests: &[(usize, usize)]) {
    let before = scores.to_vec();
    for (test, tested) in tests {
        scores[*tested] = scores[*tested].max(before[*tested] + TESTED * before[*test]);
        scores[*test] = scores[*test].max(before[*test] + TEST * before[*tested]);
    }
}

#[cfg(test)]
mod tests;
