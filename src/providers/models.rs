//! The model table: ids, aliases, families, sizes and prices. The built-in entries are in `models.toml`; `[[model]]`
//! entries of the settings correct and extend them without a release.

use std::collections::BTreeMap;

use super::ModelCall;
pub use crate::config::{Model, Price};
use crate::{
    config::{ModelSettings, is_loopback, model_rows},
    limits,
    types::{Family, Timestamp},
};

const BUILT_IN: &str = include_str!("models.toml");

impl Model {
    /// Returns the maximum output tokens of this call, limited by the model's own maximum.
    pub(super) fn max_output_for(&self, call: &ModelCall) -> u64 {
        self.max_answer_tokens().min(call.max_output_tokens)
    }

    /// Returns the maximum prompt tokens: the context window minus the system prompt, the schema and the longest
    /// response.
    pub fn prompt_room(&self, system: &str, schema: Option<&serde_json::Value>) -> u64 {
        if self.context == u64::MAX {
            return u64::MAX;
        }
        let schema = schema.map_or(0, |schema| schema.to_string().len());
        let fixed = ((system.len() + schema) as u64).div_ceil(limits::USUAL_BYTES_A_TOKEN);
        [self.max_answer_tokens(), fixed, limits::CHAT_FRAME_TOKENS]
            .into_iter()
            .fold(self.context, u64::saturating_sub)
    }

    /// Returns the maximum tokens of one response. Calls request this maximum, and its cost is reserved.
    pub fn max_answer_tokens(&self) -> u64 {
        self.max_output.min(limits::ANSWER_TOKENS)
    }
}

/// All models this server knows. If several entries match a name, the first one is used.
#[derive(Debug, Clone)]
pub struct ModelCatalog {
    models: Vec<Model>,
    /// Accepted successors of each model, by the requested model's id.
    successors: BTreeMap<String, ModelSuccessors>,
}

/// Ids of models that the operator accepts in place of the requested model.
#[derive(Debug, Clone)]
struct ModelSuccessors {
    /// The requested model, as written in `[models.successors]`.
    key: String,
    ids: Vec<String>,
}

impl Default for ModelCatalog {
    fn default() -> Self {
        let mut models = model_rows(BUILT_IN, "models.toml").expect("a file that a test reads");
        // The scripted models count as separate families, so that a rehearsal follows the same rules.
        models.extend(
            [("stub-drafter", "drafter"), ("stub-reviewer", "reviewer"), ("stub-router", "router")].map(
                |(id, alias)| Model {
                    id: id.to_owned(),
                    aliases: vec![alias.to_owned()],
                    providers: vec!["stub".to_owned()],
                    family: Family(id.to_owned()),
                    context: u64::MAX,
                    max_output: u64::MAX,
                    prices: Vec::new(),
                    retires: None,
                    successor: None,
                    source: None,
                },
            ),
        );
        Self { models, successors: BTreeMap::new() }
    }
}

impl ModelCatalog {
    /// Returns the built-in entries, corrected and extended by the entries of the settings.
    pub fn from_settings(settings: &ModelSettings) -> Self {
        let mut built_in = Self::default();
        if settings.opencode.base_url.as_ref().is_some_and(|url| !is_loopback(url)) {
            // A gateway may charge for what is free with a Google login.
            let asked_there = |row: &&mut Model| row.providers == ["opencode"];
            built_in.models.iter_mut().filter(asked_there).for_each(|row| row.prices.clear());
        }
        let mut table = built_in.with_rows(&settings.table);
        for (key, ids) in &settings.successors {
            let row = key.split_once(':').and_then(|(provider, name)| table.find(provider, name));
            if let Some(asked) = row.map(|row| row.id.clone()) {
                // An alias and its id may both be listed.
                let known = table.successors.entry(asked);
                let known = known.or_insert_with(|| ModelSuccessors { key: key.clone(), ids: Vec::new() });
                known.ids.extend(ids.iter().cloned());
            }
        }
        table
    }

    /// Returns the ids of the models that may answer in place of `asked`.
    pub fn successors(&self, asked: &str) -> &[String] {
        self.successors.get(asked).map_or(&[], |known| &known.ids)
    }

    /// Returns the key in `[models.successors]` under which `served` is accepted in place of `asked`. `None` if no such
    /// entry applies.
    pub fn accepted_by(&self, asked: &str, served: &str) -> Option<&str> {
        let known = self.successors.get(asked).filter(|_| !is_same_model(asked, served))?;
        is_listed(&known.ids, served).then_some(known.key.as_str())
    }

    /// Puts `rows` first and drops existing entries with the same ids.
    pub(super) fn with_rows(self, rows: &[Model]) -> Self {
        let others = self.models.into_iter().filter(|row| rows.iter().all(|given| given.id != row.id));
        Self { models: rows.iter().cloned().chain(others).collect(), successors: self.successors }
    }

    pub fn models(&self) -> &[Model] {
        &self.models
    }

    /// Finds the entry of `provider` whose id or alias is `name`.
    pub fn find(&self, provider: &str, name: &str) -> Option<&Model> {
        let named = |m: &&Model| m.id == name || m.aliases.iter().any(|alias| alias == name);
        self.models.iter().filter(|m| m.providers.iter().any(|p| p == provider)).find(named)
    }

    /// Finds the entry of the serving model by the id in the response, ignoring dates and preview suffixes.
    pub fn find_served(&self, served: &str) -> Option<&Model> {
        let same = |m: &&Model| unversioned_id(&m.id) == unversioned_id(served);
        self.models.iter().find(|m| m.id == bare_id(served)).or_else(|| self.models.iter().find(same))
    }

    /// Returns the family of a model by the id in its response; `None` if the id is unknown.
    pub fn family_of(&self, served: &str) -> Option<Family> {
        if let Some(model) = self.find_served(served) {
            return Some(model.family.clone());
        }
        ["claude", "gemini"].into_iter().find_map(|family| {
            let rest = bare_id(served).strip_prefix(family)?.strip_prefix('-')?;
            let well_formed =
                rest.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
            let versioned = rest.split('-').any(|part| part.starts_with(|c: char| c.is_ascii_digit()));
            (well_formed && versioned).then(|| Family(family.into()))
        })
    }

    /// Returns the cost of the tokens in micro-dollars, at the serving model's prices; `None` if the price is unknown.
    /// `tokens` holds the counts of uncached input, output, cache reads and cache writes.
    pub fn cost_microusd(&self, served: &str, tokens: [u64; 4], now: Timestamp) -> Option<u64> {
        let [input, _, cache_read, cache_written] = tokens;
        let prompt = input.saturating_add(cache_read).saturating_add(cache_written);
        let price = self.find_served(served)?.price(prompt, now)?;
        let prices = [price.input, price.output, price.cache_read, price.cache_write];
        let products =
            tokens.into_iter().zip(prices).map(|(tokens, price)| u128::from(tokens) * u128::from(price));
        u64::try_from(products.sum::<u128>().div_ceil(1_000_000)).ok()
    }
}

/// Whether `served` is the requested model. A date or preview suffix is ignored. A smaller variant or another version
/// is a different model.
pub fn is_same_model(asked: &str, served: &str) -> bool {
    unversioned_id(asked) == unversioned_id(served)
}

/// Whether `served` is one of these exact ids.
pub fn is_listed(ids: &[String], served: &str) -> bool {
    ids.iter().any(|id| bare_id(id) == bare_id(served))
}

/// Removes the path prefix that Gemini's API adds to some ids.
pub(super) fn bare_id(id: &str) -> &str {
    id.strip_prefix("models/").unwrap_or(id)
}

/// Removes version suffixes: `-preview`, `-latest`, `:latest`, `-20251001`, `-2025-10-01`, `-001`, `-11-2025`, or
/// `-05-06` after a preview suffix.
fn unversioned_id(id: &str) -> &str {
    let id = bare_id(id);
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
        ModelCatalog::default().family_of(served).map(|f| f.0)
    }

    #[test]
    fn model_family_is_found_by_catalog_entry_or_versioned_name() {
        for (served, expected) in [
            ("claude-opus-4-6", Some("claude")),
            ("claude-haiku-4-5-20251001", Some("claude")),
            ("claude-newthing-7", Some("claude")),
            ("gemini-3-pro-preview", Some("gemini")),
            ("gemini-9.5-ultra", Some("gemini")),
            ("models/gemini-9.5-ultra", Some("gemini")),
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
    fn served_id_with_a_date_suffix_is_the_same_model_but_another_version_is_not() {
        assert!(is_same_model("claude-haiku-4-5", "claude-haiku-4-5-20251001"));
        assert!(is_same_model("gemini-3-pro-preview", "gemini-3-pro"));
        assert!(is_same_model("gemini-2.5-pro", "gemini-2.5-pro-preview-05-06"));
        assert!(is_same_model("gemini-2.5-flash", "gemini-2.5-flash-001"));
        assert!(is_same_model("gpt-4o", "gpt-4o-2024-08-06"));
        assert!(is_same_model("qwen3", "qwen3:latest"));
        assert!(is_same_model("gemini-3.1-pro-preview", "models/gemini-3.1-pro-preview"));
        for (asked, served) in [
            ("claude-opus-4-6", "claude-haiku-4-5-20251001"),
            ("claude-opus-4-6", "claude-opus-4-5"),
            ("gemini-3-pro-preview", "gemini-2.5-flash"),
            ("gemini-2.5-flash", "gemini-2.5-flash-lite"),
            ("gemini-2.5-pro", "gemini-2.5-pro-preview-tts"),
            ("qwen3:32b", "qwen3:latest"),
            ("gpt-4o", "gpt-4o-mini-2024-07-18"),
        ] {
            assert!(!is_same_model(asked, served), "{asked} {served}");
        }
    }

    #[test]
    fn price_depends_on_served_id_prompt_length_and_day() {
        let table = ModelCatalog::default();
        let day = |text: &str| Timestamp::parse(&format!("{text}T00:00:00Z")).unwrap();
        let (autumn, new_year) = (day("2026-11-27"), day("2027-01-01"));
        for (served, tokens, now, cost) in [
            ("claude-opus-5-5", [1000, 50, 0, 0], autumn, Some(5000)),
            ("claude-haiku-4-5-20251001", [1000, 50, 0, 0], autumn, Some(1250)),
            ("claude-opus-5-5", [0, 0, 1_000_000, 1_000_000], autumn, Some(5_200_000)),
            ("claude-haiku-5-5", [50_000, 1000, 50_000, 0], autumn, Some(6000)),
            ("claude-haiku-5-5", [50_000, 1000, 50_001, 0], autumn, Some(25_000 + 2500 + 2501)),
            ("models/gemini-3.1-pro-preview", [200_000, 1000, 0, 0], autumn, Some(412_000)),
            ("gemini-3.1-pro-preview", [200_001, 1000, 0, 0], autumn, Some(818_004)),
            ("gemini-3.8-flash", [1000, 1000, 0, 0], autumn, Some(4500)),
            ("gemini-3.8-flash", [1000, 1000, 0, 0], new_year, Some(9000)),
            ("gemini-3.5-flash-lite", [1, 0, 0, 0], autumn, Some(1)),
            ("stub-drafter", [1000, 50, 0, 0], autumn, None),
        ] {
            assert_eq!(table.cost_microusd(served, tokens, now), cost, "{served} {tokens:?}");
        }
    }

    #[test]
    fn sold_catalog_models_have_prices_and_retiring_models_have_listed_successors() {
        let table = ModelCatalog::default();
        for row in table.models() {
            let sold = row.providers.iter().any(|provider| provider != "stub" && provider != "opencode");
            let read = row
                .source
                .as_ref()
                .is_some_and(|source| source.contains("https://") && source.contains(", read 20"));
            assert_eq!((sold, sold), (read, sold && !row.prices.is_empty()), "{}", row.id);
            assert_eq!(row.retires.is_some(), row.successor.is_some(), "{}", row.id);
            if let Some(successor) = &row.successor {
                assert!(table.find_served(successor).is_some_and(|row| row.retires.is_none()), "{successor}");
            }
        }
        for name in ["claude:opus", "claude:sonnet", "claude:haiku", "gemini:pro", "gemini:flash"] {
            let (provider, name) = name.split_once(':').unwrap();
            assert!(table.find(provider, name).is_some_and(|row| row.retires.is_none()), "{name}");
        }
    }

    #[test]
    fn gateway_price_is_unknown_unless_set() {
        let id = "google/antigravity-gemini-3-pro";
        let free = ModelCatalog::default().find("opencode", id).unwrap().clone();
        for (base_url, rows, prices) in [
            (None, vec![], free.prices.clone()),
            (Some("http://127.0.0.1:9/v1"), vec![], free.prices.clone()),
            (Some("https://gateway.example/v1"), vec![], Vec::new()),
            (Some("https://gateway.example/v1"), vec![free.clone()], free.prices.clone()),
        ] {
            let mut settings = ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
            settings.opencode.base_url = base_url.map(|url| url.parse().unwrap());
            settings.table = rows;
            let table = ModelCatalog::from_settings(&settings);
            assert_eq!(table.find("opencode", id).unwrap().prices, prices, "{settings:?}");
            assert!(!table.find("claude", "opus").unwrap().prices.is_empty());
        }
    }

    #[test]
    fn successors_set_for_an_alias_and_for_its_model_id_are_merged() {
        let mut settings = ModelSettings::rehearsal(std::path::Path::new("/nowhere"));
        settings.successors =
            [("gemini:pro", "gemini-4-neon"), ("gemini:gemini-3.1-pro-preview", "gemini-3.8-flash")]
                .map(|(asked, id)| (asked.to_owned(), vec![id.to_owned()]))
                .into();
        let ids = ["gemini-3.8-flash", "gemini-4-neon"];
        assert_eq!(ModelCatalog::from_settings(&settings).successors("gemini-3.1-pro-preview"), ids);
    }

    #[test]
    fn model_names_are_unique_within_a_provider() {
        let table = ModelCatalog::default();
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
        assert_eq!(table.find("gemini", "pro").unwrap().id, "gemini-3.1-pro-preview");
        assert_eq!(table.find("anthropic", "opus"), table.find("claude", "opus"));
        assert!(table.find("claude", "pro").is_none());
    }

    #[test]
    fn settings_override_and_add_models() {
        let given = |id: &str, provider: &str, family: &str| Model {
            id: id.into(),
            aliases: vec!["pro".into()],
            providers: vec![provider.into()],
            family: Family(family.into()),
            context: 32_000,
            max_output: 8_000,
            prices: Vec::new(),
            retires: None,
            successor: None,
            source: None,
        };
        let table = ModelCatalog::default()
            .with_rows(&[given("gemini-9-pro", "gemini", "gemini"), given("qwen3", "ollama", "qwen")]);
        assert_eq!(table.find("gemini", "pro").unwrap().id, "gemini-9-pro");
        assert_eq!(table.family_of("qwen3").unwrap().0, "qwen");
        assert!(table.find("gemini", "3-pro").is_some());
        let corrected = ModelCatalog::default().with_rows(&[given("gemini-2.5-flash", "gemini", "gemini")]);
        assert_eq!(corrected.find_served("gemini-2.5-flash-001").unwrap().context, 32_000);
    }
}
