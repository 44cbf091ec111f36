//! BM25 term weighting, in which rare words and frequent occurrences raise the score.

/// BM25 parameter `k1`, which determines how quickly additional occurrences stop raising the score.
const SATURATION: f64 = 1.2;

/// Returns the rarity of a word that occurs in `having` of `texts` texts. The rarity is above zero even for a word that
/// occurs in every text.
pub(super) fn inverse_document_frequency(texts: usize, having: u32) -> f64 {
    ((texts as f64 + 1.0) / (f64::from(having) + 0.5)).ln_1p()
}

/// Normalizes the count of a word by the length of its text, where the mean length is 1.0. `weight`, from 0 to 1, sets
/// how strongly the length matters.
pub(super) fn normalize_for_length(count: f64, length: f64, weight: f64) -> f64 {
    count / (1.0 - weight + weight * length)
}

/// Returns the saturated value of a normalized count. The value approaches 2.2 for large counts.
pub(super) fn saturate(often: f64) -> f64 {
    often * (SATURATION + 1.0) / (often + SATURATION)
}
