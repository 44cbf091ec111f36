//! The one table of language models: ids, short names, families, sizes, prices.

use crate::types::Family;

/// One model as its maker sells it.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// The id asked for on the wire.
    pub id: &'static str,
    /// What people write after `provider:`.
    pub aliases: &'static [&'static str],
    /// The provider that serves it, as written before the colon.
    pub provider: &'static str,
    pub family: &'static str,
    /// Tokens of input and output together.
    pub context: u64,
    /// Tokens of one answer.
    pub max_output: u64,
    /// Micro-dollars for a million tokens; `None` for what is never sold.
    pub price: Option<Price>,
}

/// Micro-dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
}

impl Price {
    /// Reading the cache costs a tenth of the input's price, writing it a quarter more.
    const fn per_million(input: u64, output: u64) -> Option<Self> {
        Some(Self { input, output, cache_read: input / 10, cache_write: input / 4 * 5 })
    }
}

/// The first row a short name fits wins.
pub const MODELS: &[Model] = &[
    claude("claude-opus-4-6", &["opus", "opus-4-6"], Price::per_million(5_000_000, 25_000_000)),
    claude("claude-sonnet-4-6", &["sonnet", "sonnet-4-6"], Price::per_million(3_000_000, 15_000_000)),
    claude("claude-haiku-4-5", &["haiku", "haiku-4-5"], Price::per_million(1_000_000, 5_000_000)),
    gemini("gemini-3-pro-preview", &["pro", "3-pro-preview"], Price::per_million(2_000_000, 12_000_000)),
    gemini("gemini-3-pro", &["3-pro"], Price::per_million(2_000_000, 12_000_000)),
    gemini("gemini-2.5-pro", &["2.5-pro"], Price::per_million(1_250_000, 10_000_000)),
    gemini("gemini-2.5-flash", &["flash", "2.5-flash"], Price::per_million(300_000, 2_500_000)),
    stub("stub-drafter", &["drafter"]),
    stub("stub-reviewer", &["reviewer"]),
];

const fn claude(id: &'static str, aliases: &'static [&'static str], price: Option<Price>) -> Model {
    Model { id, aliases, provider: "claude", family: "claude", context: 200_000, max_output: 64_000, price }
}

const fn gemini(id: &'static str, aliases: &'static [&'static str], price: Option<Price>) -> Model {
    Model { id, aliases, provider: "gemini", family: "gemini", context: 1_048_576, max_output: 65_536, price }
}

/// The two ends of a rehearsal count as two families, so that a rehearsal obeys the same rules.
const fn stub(id: &'static str, aliases: &'static [&'static str]) -> Model {
    Model { id, aliases, provider: "stub", family: id, context: u64::MAX, max_output: u64::MAX, price: None }
}

/// The row for `name`, an id or a short name, at `provider`.
pub fn find(provider: &str, name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|m| m.provider == provider && (m.id == name || m.aliases.contains(&name)))
}

/// The row of the model that `served` names, dates and previews disregarded.
pub fn row_of(served: &str) -> Option<&'static Model> {
    MODELS.iter().find(|m| m.id == served).or_else(|| MODELS.iter().find(|m| plain(m.id) == plain(served)))
}

/// The family of a model by the id its answer gave; `None` = unattested.
pub fn family_of(served: &str) -> Option<Family> {
    if let Some(model) = row_of(served) {
        return Some(Family(model.family.into()));
    }
    ["claude", "gemini"].into_iter().find_map(|family| {
        let rest = served.strip_prefix(family)?.strip_prefix('-')?;
        let well_formed =
            rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
        let versioned = rest.split('-').any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
        (well_formed && versioned).then(|| Family(family.into()))
    })
}

/// Did the model asked for answer? A date or a preview mark in the id served is the same model; a
/// smaller or another version is not.
pub fn is_same(asked: &str, served: &str) -> bool {
    plain(asked) == plain(served)
}

/// What the tokens cost, by the served model's prices; `None` where we know no price.
pub fn cost_microusd(
    served: &str,
    input: u64,
    output: u64,
    cache_read: u64,
    cache_written: u64,
) -> Option<u64> {
    let price = row_of(served)?.price?;
    let total = [
        (input, price.input),
        (output, price.output),
        (cache_read, price.cache_read),
        (cache_written, price.cache_write),
    ]
    .into_iter()
    .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
    .sum::<u128>();
    u64::try_from(total.div_ceil(1_000_000)).ok()
}

/// An id without what does not make it another model: `-preview`, `-latest`, `-20251001`, `-001`,
/// `-11-2025`, `-05-06` after a preview mark.
fn plain(id: &str) -> &str {
    if let Some((head, tail)) = id.split_once("-preview") {
        let date = tail.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        return if date { head } else { id };
    }
    let head = id.strip_suffix("-latest").unwrap_or(id);
    match head.rsplit_once('-') {
        Some((before, digits))
            if matches!(digits.len(), 3 | 8) && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            before
        }
        _ => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(served: &str) -> Option<String> {
        family_of(served).map(|f| f.0)
    }

    #[test]
    fn families_by_table_and_by_versioned_prefix() {
        for (served, expected) in [
            ("claude-opus-4-6", Some("claude")),
            ("claude-haiku-4-5-20251001", Some("claude")),
            ("claude-newthing-7", Some("claude")),
            ("gemini-3-pro-preview", Some("gemini")),
            ("gemini-9.5-ultra", Some("gemini")),
            ("stub-drafter", Some("stub-drafter")),
            ("gemini", None),
            ("gemini-pretender", None),
            ("claude-3 but really something else", None),
            ("<synthetic>", None),
            ("gpt-5", None),
            ("", None),
        ] {
            assert_eq!(family(served).as_deref(), expected, "{served}");
        }
    }

    #[test]
    fn a_downgrade_is_another_model_and_a_date_is_not() {
        assert!(is_same("claude-haiku-4-5", "claude-haiku-4-5-20251001"));
        assert!(is_same("gemini-3-pro-preview", "gemini-3-pro"));
        assert!(is_same("gemini-2.5-pro", "gemini-2.5-pro-preview-05-06"));
        assert!(is_same("gemini-2.5-flash", "gemini-2.5-flash-001"));
        for (asked, served) in [
            ("claude-opus-4-6", "claude-haiku-4-5-20251001"),
            ("claude-opus-4-6", "claude-opus-4-5"),
            ("gemini-3-pro-preview", "gemini-2.5-flash"),
            ("gemini-2.5-flash", "gemini-2.5-flash-lite"),
            ("gemini-2.5-pro", "gemini-2.5-pro-preview-tts"),
        ] {
            assert!(!is_same(asked, served), "{asked} {served}");
        }
    }

    #[test]
    fn prices_go_by_the_served_id() {
        assert_eq!(cost_microusd("claude-opus-4-6", 1000, 50, 0, 0), Some(6250));
        assert_eq!(cost_microusd("claude-haiku-4-5-20251001", 1000, 50, 0, 0), Some(1250));
        assert_eq!(cost_microusd("claude-opus-4-6", 0, 0, 1_000_000, 1_000_000), Some(6_750_000));
        assert_eq!(cost_microusd("gemini-2.5-flash", 1, 0, 0, 0), Some(1), "rounded up");
        assert_eq!(cost_microusd("stub-drafter", 1000, 50, 0, 0), None);
    }

    #[test]
    fn names_are_unique_within_a_provider() {
        let mut names: Vec<_> =
            MODELS.iter().flat_map(|m| m.aliases.iter().chain([&m.id]).map(|n| (m.provider, *n))).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(find("gemini", "pro").unwrap().id, "gemini-3-pro-preview");
        assert!(find("claude", "pro").is_none());
    }
}
