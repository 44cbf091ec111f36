//! BM25: what a word tells of a text, the more the fewer texts have it and the more often this one says it.

/// How soon a word said again adds nothing more.
const SATURATION: f64 = 1.2;

/// How rare a word is among texts; one that all have is not quite nothing.
pub(super) fn inverse_document_frequency(texts: usize, having: u32) -> f64 {
    ((texts as f64 + 1.0) / (f64::from(having) + 0.5)).ln_1p()
}

/// How often a text says a word, one so many times as long as others having to say it more often. `heed` is how far
/// length counts, from 0 to 1.
pub(super) fn normalize_for_length(count: f64, length: f64, heed: f64) -> f64 {
    count / (1.0 - heed + heed * length)
}

/// What saying it so often is worth: of a word that is said for ever, 2.2.
pub(super) fn saturate(often: f64) -> f64 {
    often * (SATURATION + 1.0) / (often + SATURATION)
}
