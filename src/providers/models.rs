//! The one table of language models: ids, short names, families, sizes, prices. What is built in can be corrected and
//! added to by `[[model]]` rows in the settings, without a release.

pub use crate::config::{Model, Price};
use crate::{
    config::{ModelSettings, is_loopback},
    limits,
    types::Family,
};

impl Model {
    /// Tokens of a prompt that it reads beside its instructions and the form of its answer, with room for the longest
    /// answer.
    pub fn room(&self, system: &str, schema: Option<&serde_json::Value>) -> u64 {
        if self.context == u64::MAX {
            return u64::MAX;
        }
        let schema = schema.map_or(0, |schema| schema.to_string().len());
        let fixed = ((system.len() + schema) as u64).div_ceil(limits::USUAL_BYTES_A_TOKEN);
        [self.max_output, fixed, limits::CHAT_FRAME_TOKENS]
            .into_iter()
            .fold(self.context, u64::saturating_sub)
    }
}

/// Every model this server knows. The first row a short name fits wins.
#[derive(Debug, Clone)]
pub struct Table {
    models: Vec<Model>,
}

impl Default for Table {
    fn default() -> Self {
        let claude = |id, aliases, input, output| {
            let price = Some(Price::per_million(input, output));
            row(id, aliases, &["claude", "anthropic"], "claude", (200_000, 64_000), price)
        };
        let gemini = |id, aliases, input, output| {
            let price = Some(Price::per_million(input, output));
            row(id, aliases, &["gemini"], "gemini", (1_048_576, 65_536), price)
        };
        // Asked with a Google login: that has an allowance, and no bill.
        let free =
            |id, family, sizes| row(id, &[], &["opencode"], family, sizes, Some(Price::per_million(0, 0)));
        // The two ends of a rehearsal count as two families, so that a rehearsal obeys the same rules.
        let stub = |id, alias| row(id, &[alias], &["stub"], id, (u64::MAX, u64::MAX), None);
        let models = vec![
            claude("claude-opus-4-6", &["opus", "opus-4-6"], 5_000_000, 25_000_000),
            claude("claude-sonnet-4-6", &["sonnet", "sonnet-4-6"], 3_000_000, 15_000_000),
            claude("claude-haiku-4-5", &["haiku", "haiku-4-5"], 1_000_000, 5_000_000),
            gemini("gemini-3-pro-preview", &["pro", "3-pro-preview"], 2_000_000, 12_000_000),
            gemini("gemini-3-pro", &["3-pro"], 2_000_000, 12_000_000),
            gemini("gemini-2.5-pro", &["2.5-pro"], 1_250_000, 10_000_000),
            gemini("gemini-2.5-flash", &["flash", "2.5-flash"], 300_000, 2_500_000),
            free("google/antigravity-claude-sonnet-4-5", "claude", (200_000, 64_000)),
            free("google/antigravity-gemini-3-flash", "gemini", (1_048_576, 65_536)),
            free("google/antigravity-gemini-3-pro", "gemini", (1_048_576, 65_535)),
            stub("stub-drafter", "drafter"),
            stub("stub-reviewer", "reviewer"),
            stub("stub-router", "router"),
        ];
        Self { models }
    }
}

fn row(
    id: &str,
    aliases: &[&str],
    providers: &[&str],
    family: &str,
    (context, max_output): (u64, u64),
    price: Option<Price>,
) -> Model {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Model {
        id: id.to_owned(),
        aliases: owned(aliases),
        providers: owned(providers),
        family: Family(family.into()),
        context,
        max_output,
        price,
        deprecated: None,
    }
}

impl Table {
    /// Those of the settings, and the built-in ones.
    pub fn of(settings: &ModelSettings) -> Self {
        let mut built_in = Self::default();
        if settings.opencode.base_url.as_ref().is_some_and(|url| !is_loopback(url)) {
            // A gateway may charge for what a Google login has for nothing.
            let asked_there = |row: &&mut Model| row.providers == ["opencode"];
            built_in.models.iter_mut().filter(asked_there).for_each(|row| row.price = None);
        }
        built_in.with(&settings.table)
    }

    /// These rows, and after them ours, where none of these stands for the same model.
    pub(super) fn with(self, rows: &[Model]) -> Self {
        let others = self.models.into_iter().filter(|row| rows.iter().all(|given| given.id != row.id));
        Self { models: rows.iter().cloned().chain(others).collect() }
    }

    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// The row for `name`, an id or a short name, at `provider`.
    pub fn find(&self, provider: &str, name: &str) -> Option<&Model> {
        let named = |m: &&Model| m.id == name || m.aliases.iter().any(|alias| alias == name);
        self.models.iter().filter(|m| m.providers.iter().any(|p| p == provider)).find(named)
    }

    /// The row of the model that `served` names, dates and previews disregarded.
    pub fn row_of(&self, served: &str) -> Option<&Model> {
        let same = |m: &&Model| plain(&m.id) == plain(served);
        self.models.iter().find(|m| m.id == served).or_else(|| self.models.iter().find(same))
    }

    /// The family of a model by the id its answer gave; `None` = unattested.
    pub fn family_of(&self, served: &str) -> Option<Family> {
        if let Some(model) = self.row_of(served) {
            return Some(model.family.clone());
        }
        ["claude", "gemini"].into_iter().find_map(|family| {
            let rest = served.strip_prefix(family)?.strip_prefix('-')?;
            let well_formed =
                rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
            let versioned = rest.split('-').any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
            (well_formed && versioned).then(|| Family(family.into()))
        })
    }

    /// What the tokens cost, by the served model's prices; `None` where we know no price.
    pub fn cost_microusd(
        &self,
        served: &str,
        input: u64,
        output: u64,
        cache_read: u64,
        cache_written: u64,
    ) -> Option<u64> {
        let price = self.row_of(served)?.price?;
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
}

/// Did the model asked for answer? A date or a preview mark in the id served is the same model; a
/// smaller or another version is not.
pub fn is_same(asked: &str, served: &str) -> bool {
    plain(asked) == plain(served)
}

/// An id without what does not make it another model: `-preview`, `-latest`, `:latest`, `-20251001`, `-2025-10-01`,
/// `-001`, `-11-2025`, `-05-06` after a preview mark.
fn plain(id: &str) -> &str {
    if let Some((head, tail)) = id.split_once("-preview") {
        let date = tail.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        return if date { head } else { id };
    }
    let head = ["-latest", ":latest"].iter().find_map(|mark| id.strip_suffix(mark)).unwrap_or(id);
    if let Some((before, date)) = head.len().checked_sub(10).and_then(|at| head.split_at_checked(at))
        && let Some(before) = before.strip_suffix('-')
        && date
            .bytes()
            .enumerate()
            .all(|(at, b)| if matches!(at, 4 | 7) { b == b'-' } else { b.is_ascii_digit() })
    {
        return before;
    }
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
        Table::default().family_of(served).map(|f| f.0)
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
        assert!(is_same("gpt-4o", "gpt-4o-2024-08-06"));
        assert!(is_same("qwen3", "qwen3:latest"));
        for (asked, served) in [
            ("claude-opus-4-6", "claude-haiku-4-5-20251001"),
            ("claude-opus-4-6", "claude-opus-4-5"),
            ("gemini-3-pro-preview", "gemini-2.5-flash"),
            ("gemini-2.5-flash", "gemini-2.5-flash-lite"),
            ("gemini-2.5-pro", "gemini-2.5-pro-preview-tts"),
            ("qwen3:32b", "qwen3:latest"),
            ("gpt-4o", "gpt-4o-mini-2024-07-18"),
        ] {
            assert!(!is_same(asked, served), "{asked} {served}");
        }
    }

    #[test]
    fn prices_go_by_the_served_id() {
        let table = Table::default();
        let cost_microusd =
            |served, input, output, read, written| table.cost_microusd(served, input, output, read, written);
        assert_eq!(cost_microusd("claude-opus-4-6", 1000, 50, 0, 0), Some(6250));
        assert_eq!(cost_microusd("claude-haiku-4-5-20251001", 1000, 50, 0, 0), Some(1250));
        assert_eq!(cost_microusd("claude-opus-4-6", 0, 0, 1_000_000, 1_000_000), Some(6_750_000));
        assert_eq!(cost_microusd("gemini-2.5-flash", 1, 0, 0, 0), Some(1), "rounded up");
        assert_eq!(cost_microusd("stub-drafter", 1000, 50, 0, 0), None);
    }

    #[test]
    fn nobody_knows_what_a_gateway_charges_unless_the_settings_say_it() {
        let id = "google/antigravity-gemini-3-pro";
        let free = Table::default().find("opencode", id).unwrap().clone();
        for (base_url, rows, price) in [
            (None, vec![], free.price),
            (Some("http://127.0.0.1:9/v1"), vec![], free.price),
            (Some("https://gateway.example/v1"), vec![], None),
            (Some("https://gateway.example/v1"), vec![free.clone()], free.price),
        ] {
            let mut settings = ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
            settings.opencode.base_url = base_url.map(|url| url.parse().unwrap());
            settings.table = rows;
            let table = Table::of(&settings);
            assert_eq!(table.find("opencode", id).unwrap().price, price, "{settings:?}");
            assert!(table.find("claude", "opus").unwrap().price.is_some());
        }
    }

    #[test]
    fn names_are_unique_within_a_provider() {
        let table = Table::default();
        let names = |m: &Model| m.aliases.iter().chain([&m.id]).cloned().collect::<Vec<_>>();
        let mut all = Vec::new();
        for model in table.models() {
            for provider in &model.providers {
                all.extend(names(model).into_iter().map(|name| (provider.clone(), name)));
            }
        }
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(table.find("gemini", "pro").unwrap().id, "gemini-3-pro-preview");
        assert_eq!(table.find("anthropic", "opus"), table.find("claude", "opus"));
        assert!(table.find("claude", "pro").is_none());
    }

    #[test]
    fn settings_correct_a_row_and_add_others() {
        let given = |id: &str, provider: &str, family: &str| Model {
            id: id.into(),
            aliases: vec!["pro".into()],
            providers: vec![provider.into()],
            family: Family(family.into()),
            context: 32_000,
            max_output: 8_000,
            price: None,
            deprecated: None,
        };
        let table = Table::default()
            .with(&[given("gemini-9-pro", "gemini", "gemini"), given("qwen3", "ollama", "qwen")]);
        assert_eq!(table.find("gemini", "pro").unwrap().id, "gemini-9-pro");
        assert_eq!(table.family_of("qwen3").unwrap().0, "qwen");
        assert!(table.find("gemini", "3-pro").is_some());
        let corrected = Table::default().with(&[given("gemini-2.5-flash", "gemini", "gemini")]);
        assert_eq!(corrected.row_of("gemini-2.5-flash-001").unwrap().context, 32_000);
    }
}
