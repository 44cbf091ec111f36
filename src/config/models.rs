//! `[[model]]`: rows of the model table, in the settings and in the built-in file.

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Model, PROVIDERS, Price, file::SettingsChecker, from_toml};
use crate::types::{Family, Timestamp};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelTableRow {
    pub(super) id: Spanned<String>,
    #[serde(default)]
    aliases: Vec<Spanned<String>>,
    providers: Vec<Spanned<String>>,
    family: Spanned<String>,
    context: u64,
    max_output: Spanned<u64>,
    price: Option<ModelPriceTable>,
    #[serde(default)]
    tiers: Vec<ModelPriceTable>,
    retires: Option<Spanned<String>>,
    #[serde(alias = "deprecated")]
    successor: Option<String>,
    source: Option<String>,
    read: Option<String>,
}

impl ModelTableRow {
    /// Returns the table row for a model that is named in `.env`. `context` and `max_output` are in tokens.
    pub(super) fn local_model(provider: &str, id: &str, [context, max_output]: [u64; 2], free: bool) -> Self {
        let spanned = |text: &str| Spanned::new(0..0, text.to_owned());
        let zero = || Spanned::new(0..0, 0.0);
        let price = ModelPriceTable {
            input: zero(),
            output: zero(),
            cache_read: None,
            cache_write: None,
            above: 0,
            from: None,
        };
        Self {
            id: spanned(id),
            aliases: Vec::new(),
            providers: vec![spanned(provider)],
            family: spanned("local"),
            context,
            max_output: Spanned::new(0..0, max_output),
            price: free.then_some(price),
            tiers: Vec::new(),
            retires: None,
            successor: None,
            source: None,
            read: None,
        }
    }

    fn names(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.aliases.iter().chain([&self.id])
    }

    fn shares_provider(&self, other: &Self) -> bool {
        self.providers.iter().any(|own| other.providers.iter().any(|its| its.as_ref() == own.as_ref()))
    }
}

/// Prices in dollars per million tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelPriceTable {
    input: Spanned<f64>,
    output: Spanned<f64>,
    cache_read: Option<Spanned<f64>>,
    cache_write: Option<Spanned<f64>>,
    #[serde(default)]
    above: u64,
    from: Option<Spanned<String>>,
}

/// Parses a text that holds only `[[model]]` rows.
pub fn model_rows(text: &str, name: &str) -> Result<Vec<Model>, ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ModelRowsFile {
        model: Vec<ModelTableRow>,
    }
    let rows: ModelRowsFile = toml::from_str(text).map_err(|error| from_toml(name, text, &error))?;
    SettingsChecker { text, name }.model_rows(&rows.model)
}

impl SettingsChecker<'_> {
    /// Checks all rows. Two rows may not have the same id, or the same name at one provider.
    pub(super) fn model_rows(&self, table: &[ModelTableRow]) -> Result<Vec<Model>, ConfigError> {
        for (at, row) in table.iter().enumerate() {
            if table[..at].iter().any(|before| before.id.as_ref() == row.id.as_ref()) {
                let message =
                    format!("id = {:?} is in two [[model]] tables; keep one of them", row.id.as_ref());
                return Err(self.refuse(&row.id, message));
            }
            for before in table[..at].iter().filter(|before| before.shares_provider(row)) {
                let taken =
                    |name: &&Spanned<String>| before.names().any(|known| known.as_ref() == name.as_ref());
                if let Some(name) = row.names().find(taken) {
                    let message = format!(
                        "{:?} is also a name of {:?} above; keep it in one of the two tables",
                        name.as_ref(),
                        before.id.as_ref()
                    );
                    return Err(self.refuse(name, message));
                }
            }
        }
        table.iter().map(|row| self.model_row(row)).collect()
    }

    /// Returns one warning for each paid model without a price. While a spending cap is set, no paid calls are made to
    /// such a model.
    pub(super) fn unpriced_warnings(&self, table: &[ModelTableRow]) -> Vec<String> {
        // The `claude` program is paid by subscription, and `stub` costs nothing.
        let billed = |row: &&ModelTableRow| {
            row.providers.iter().any(|provider| !matches!(provider.as_ref().as_str(), "claude" | "stub"))
        };
        let rows = table.iter().filter(|row| row.price.is_none() && row.id.span().end > 0);
        let sentence = |row: &ModelTableRow| {
            let message = format!(
                "{:?} has no price, so it gets no paid calls while [budget] has a cap; add price = {{ input = …, \
                 output = … }} in dollars per million tokens, 0 if it is free",
                row.id.as_ref()
            );
            self.refuse(&row.id, message).to_string()
        };
        rows.filter(billed).map(sentence).collect()
    }

    fn model_row(&self, row: &ModelTableRow) -> Result<Model, ConfigError> {
        for (key, text) in [("id", &row.id), ("family", &row.family)] {
            if text.as_ref().is_empty() || text.as_ref().contains(char::is_whitespace) {
                return Err(
                    self.refuse(text, format!("{key} = {:?} is not a name; write one word", text.as_ref()))
                );
            }
        }
        for given in &row.providers {
            self.check_provider("providers", given, given.as_ref())?;
        }
        let longest = *row.max_output.as_ref();
        if longest > row.context {
            let message = format!(
                "max_output = {longest} is more than context = {}, which holds prompt and answer together",
                row.context
            );
            return Err(self.refuse(&row.max_output, message));
        }
        if let (None, Some(tier)) = (&row.price, row.tiers.first()) {
            let message = "tiers need a base price; add it as price = { input = …, output = … }";
            return Err(self.refuse(&tier.input, message.to_owned()));
        }
        let prices = row.price.iter().chain(&row.tiers).map(|price| self.price(price));
        let source = [row.source.as_deref(), row.read.as_deref()].into_iter().flatten().collect::<Vec<_>>();
        Ok(Model {
            id: row.id.as_ref().clone(),
            aliases: row.aliases.iter().map(|alias| alias.as_ref().clone()).collect(),
            providers: row.providers.iter().map(|provider| provider.as_ref().clone()).collect(),
            family: Family(row.family.as_ref().as_str().into()),
            context: row.context,
            max_output: longest,
            prices: prices.collect::<Result<_, _>>()?,
            retires: row.retires.as_ref().map(|given| self.parse_day("retires", given)).transpose()?,
            successor: row.successor.clone(),
            source: (!source.is_empty()).then(|| source.join(", read ")),
        })
    }

    fn price(&self, price: &ModelPriceTable) -> Result<Price, ConfigError> {
        let dollars = |given: &Spanned<f64>| match *given.as_ref() {
            dollars if (0.0..=100_000.0).contains(&dollars) => Ok((dollars * 1e6).round() as u64),
            dollars => {
                Err(self.refuse(given, format!("{dollars} is not a price; write dollars per million tokens")))
            }
        };
        let usual = Price::per_million(dollars(&price.input)?, dollars(&price.output)?);
        Ok(Price {
            cache_read: price.cache_read.as_ref().map_or(Ok(usual.cache_read), dollars)?,
            cache_write: price.cache_write.as_ref().map_or(Ok(usual.cache_write), dollars)?,
            above: price.above,
            from: price.from.as_ref().map(|given| self.parse_day("from", given)).transpose()?,
            ..usual
        })
    }

    fn parse_day(&self, key: &str, given: &Spanned<String>) -> Result<Timestamp, ConfigError> {
        Timestamp::parse(&format!("{}T00:00:00Z", given.as_ref())).map_err(|_| {
            self.refuse(
                given,
                format!("{key} = {:?} is not a date; write one such as 2026-12-01", given.as_ref()),
            )
        })
    }

    /// Checks that `name`, the part of a model's name before the colon, is a known provider.
    pub(super) fn check_provider<T>(
        &self,
        key: &str,
        at: &Spanned<T>,
        name: &str,
    ) -> Result<(), ConfigError> {
        if PROVIDERS.contains(&name) {
            return Ok(());
        }
        let name: String = name.chars().take(80).collect();
        let message = format!("{key}: unknown provider {name:?}; known are {}", PROVIDERS.join(", "));
        Err(self.refuse(at, message))
    }
}
