//! Finds the texts that have most words in common with a given text, using BM25.

use std::collections::{BTreeMap, BTreeSet};

use super::{bm25, words};

/// Strength of BM25 length normalization, from 0 to 1.
const LENGTH: f64 = 0.75;

/// Minimum score of a text that is treated as similar. Texts with a lower score share only common words with the given
/// text.
const LEAST: f64 = 2.0;

/// Returns the indices of the most similar texts, best first. Returns at most `most` indices.
pub fn most_similar_texts(text: &str, others: &[String], most: usize) -> Vec<usize> {
    let wanted: BTreeSet<_> =
        words::word_set(text).into_iter().filter(|word| !words::is_common(word)).collect();
    let counted: Vec<BTreeMap<String, u32>> = others
        .iter()
        .map(|other| words::count_words(&words::count_names(other)).into_iter().collect())
        .collect();
    let length = |words: &BTreeMap<String, u32>| f64::from(words.values().sum::<u32>());
    let mean = counted.iter().map(length).sum::<f64>() / counted.len().max(1) as f64;
    let having = |word: &str| u32::try_from(counted.iter().filter(|words| words.contains_key(word)).count());
    let rarity: BTreeMap<&str, f64> = wanted
        .iter()
        .map(|word| {
            (word.as_str(), bm25::inverse_document_frequency(counted.len(), having(word).unwrap_or(u32::MAX)))
        })
        .collect();
    let mut scored: Vec<(f64, usize)> = Vec::new();
    for (at, words) in counted.iter().enumerate() {
        let shared: BTreeSet<&String> = wanted.iter().filter(|word| words.contains_key(*word)).collect();
        let worth = |word: &&String| {
            let often = bm25::normalize_for_length(f64::from(words[*word]), length(words) / mean, LENGTH);
            rarity[word.as_str()] * bm25::saturate(often)
        };
        let score: f64 = shared.iter().map(worth).sum();
        if shared.len() > 1 && score >= LEAST {
            scored.push((score, at));
        }
    }
    scored.sort_by(|(a, first), (b, second)| b.total_cmp(a).then(first.cmp(second)));
    scored.into_iter().take(most).map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::most_similar_texts;

    #[test]
    fn most_similar_issue_ranks_first() {
        let others: Vec<String> = [
            "Report durations that overflow",
            "Report time by ISO week: weeks of the calendar",
            "Print a total per project",
            "Crash on an empty file",
            "",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(most_similar_texts("Weeks in the calendar are added up by hand", &others, 3), [1]);
        assert_eq!(most_similar_texts("The colour of the bike shed", &others, 3), Vec::<usize>::new());
        assert_eq!(most_similar_texts("x", &[], 3), Vec::<usize>::new());
    }
}
