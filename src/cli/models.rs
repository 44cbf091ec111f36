//! `countersign models`: which models can be named in the settings, and what they cost.

use std::process::ExitCode;

use super::{ConfigFlag, columns, say};
use crate::{
    config::{DEFAULT_FILE, Settings},
    providers::models::{Model, Table},
};

/// List the models that can be named as drafter or reviewer: sizes in tokens, prices in dollars for a million tokens.
///
/// Write any of the NAMES behind any of the PROVIDERS: `claude:opus`, `gemini:pro`. A `[[model]]` table in the settings
/// corrects a row or adds one, without a new release:
///
///   [[model]]
///   id = "qwen3:32b"
///   providers = ["ollama"]
///   family = "qwen"
///   context = 40960
///   max_output = 8192
///   price = { input = 0, output = 0 }   # optional; dollars for a million tokens
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Models {
    #[command(flatten)]
    config: ConfigFlag,
}

impl Models {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        // Useful before there are any settings.
        let built_in = self.config.config.as_os_str() == DEFAULT_FILE && !self.config.config.exists();
        let table = match built_in {
            true => Table::default(),
            false => Table::with(&Settings::load(&self.config.config)?.models.table),
        };
        let head =
            ["PROVIDERS", "NAMES", "FAMILY", "CONTEXT", "OUTPUT", "IN", "OUT", "CACHED", "CACHING", ""];
        let rows: Vec<_> =
            std::iter::once(head.map(str::to_owned)).chain(table.models().iter().map(row)).collect();
        columns(&rows).iter().for_each(say);
        Ok(ExitCode::SUCCESS)
    }
}

fn row(model: &Model) -> [String; 10] {
    let size = |tokens: u64| if tokens == u64::MAX { "any".to_owned() } else { tokens.to_string() };
    let dollars = |of: fn(&crate::providers::models::Price) -> u64| {
        let price = model.price.as_ref().map(of);
        price.map_or_else(|| "-".to_owned(), |micro| format!("{:.2}", micro as f64 / 1e6))
    };
    let names: Vec<_> = model.aliases.iter().chain([&model.id]).map(String::as_str).collect();
    [
        model.providers.join(" "),
        names.join(" "),
        model.family.0.clone(),
        size(model.context),
        size(model.max_output),
        dollars(|price| price.input),
        dollars(|price| price.output),
        dollars(|price| price.cache_read),
        dollars(|price| price.cache_write),
        model.deprecated.as_ref().map(|what| format!("deprecated: {what}")).unwrap_or_default(),
    ]
}
