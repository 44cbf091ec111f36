//! BM25 term weighting: rare words and frequent occurrences raise the score.

/// BM25 `k1`: how quickly repeated occurrences stop adding to the score.
const SATURATION: f64 = 1.2;

/// Returns the rarity of a word that `having` of `texts` texts contain. It is above zero even for a word in every text.
pub(super) fn inverse_document_frequency(texts: usize, having: u32) -> f64 {
    ((texts as f64 + 1.0) / (f64::from(having) + 0.5)).ln_1p()
}

/// Normalizes a word's count by the text's length, where 1.0 is the mean length. `weight` (0 to 1) sets how strongly
/// the length matters.
pub(super) fn normalize_for_length(count: f64, length: f64, weight: f64) -> f64 {
    count / (1.0 - weight + weight * length)
}

/// Saturates a normalized count: the result approaches 2.2.
pub(super) fn saturate(often: f64) -> f64 {
    often * (SATURATION + 1.0) / (often + SATURATION)
}
