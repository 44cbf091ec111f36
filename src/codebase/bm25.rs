//! BM25 term weighting: rare words and frequent occurrences count more.

/// BM25 `k1`: how quickly repeated occurrences stop adding to the score.
const SATURATION: f64 = 1.2;

/// Returns a word's rarity: `having` of `texts` contain it. Never zero, even for a word in every text.
pub(super) fn inverse_document_frequency(texts: usize, having: u32) -> f64 {
    ((texts as f64 + 1.0) / (f64::from(having) + 0.5)).ln_1p()
}

/// Normalizes a count by `length`, the text's length relative to the mean. `weight` (0 to 1) is how far length counts.
pub(super) fn normalize_for_length(count: f64, length: f64, weight: f64) -> f64 {
    count / (1.0 - weight + weight * length)
}

/// Saturates a normalized count; the limit is 2.2.
pub(super) fn saturate(often: f64) -> f64 {
    often * (SATURATION + 1.0) / (often + SATURATION)
}
