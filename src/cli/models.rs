//! `countersign models`: lists the models that settings can name, their prices, and the names that stand for models.

use std::{collections::BTreeMap, path::Path, process::ExitCode, sync::Arc};

use super::{ConfigFlag, align_columns, print_line};
use crate::{
    clock::{Clock, SystemClock},
    config::{DEFAULT_FILE, ModelSettings, Names},
    providers::{
        ModelId, ModelProviders, Provider, ResolveError,
        models::{Model, ModelCatalog, Price},
    },
    types::Timestamp,
    workflows,
};

/// List the models that can be named as drafter or reviewer, with their sizes and prices
///
/// Sizes are in tokens, prices in dollars per million tokens. Write any of the NAMES after any
/// of the PROVIDERS: `claude:opus`, `gemini:pro`. A `[[model]]` table in the settings corrects a
/// row or adds one, without a new release:
///
///   [[model]]
///   id = "qwen3:32b"
///   providers = ["ollama"]
///   family = "qwen"
///   context = 40960
///   max_output = 8192
///   price = { input = 0, output = 0 }   # optional; dollars per million tokens
///
/// The models are followed by the names that stand for one or more models: capabilities, roles,
/// presets and pools. For a pool member that is skipped, the reason is shown.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ModelsCommand {
    #[command(flatten)]
    config: ConfigFlag,
}

impl ModelsCommand {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        // Useful before any settings file exists.
        let built_in = self.config.config.as_os_str() == DEFAULT_FILE && !self.config.config.exists();
        let models = match built_in {
            true => ModelSettings::with_real_models(Path::new(""), None, None),
            false => workflows::load_settings(&self.config.config)?.models,
        };
        let table = ModelCatalog::from_settings(&models);
        let now = SystemClock.now();
        let head =
            ["PROVIDERS", "NAMES", "FAMILY", "CONTEXT", "OUTPUT", "IN", "OUT", "CACHED", "CACHING", ""];
        let rows: Vec<_> = std::iter::once(head.map(str::to_owned))
            .chain(table.models().iter().map(|model| model_row(model, now)))
            .collect();
        align_columns(&rows).iter().for_each(print_line);
        let providers = ModelProviders::new(&models, Arc::new(SystemClock))?;
        print_line("");
        let mut lacking = BTreeMap::new();
        align_columns(&name_rows(&models.names, &providers, &mut lacking)).iter().for_each(print_line);
        for (provider, why) in lacking {
            print_line(format_args!("\n{provider}: {why}"));
        }
        print_line("\nSources of these figures:");
        for model in table.models() {
            if let Some(source) = &model.source {
                print_line(format_args!("{}: {source}", model.id));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the rows for all names that stand for models. Each row contains the name, a model, and the reason why the
/// model cannot be used. Adds the missing requirement of each provider to `lacking`, so that the requirement is printed
/// only once.
fn name_rows(
    names: &Names,
    providers: &ModelProviders,
    lacking: &mut BTreeMap<String, String>,
) -> Vec<[String; 3]> {
    let mut model = |spec: &str, found: Result<(Arc<dyn Provider>, ModelId), ResolveError>| match found {
        Ok((back_end, id)) => match back_end.missing_requirement() {
            None => [id.to_string(), String::new()],
            Some(why) => {
                let row = [id.to_string(), format!("{} lacks something, see below", id.provider)];
                lacking.insert(id.provider, why);
                row
            }
        },
        Err(ResolveError::Unattested) => [spec.to_owned(), "skipped: attest_opencode is not set".to_owned()],
        Err(_) => [spec.to_owned(), "skipped: no [[model]] lists it".to_owned()],
    };
    let capabilities = names.capabilities.keys().map(|level| format!("capability:{}", level.as_str()));
    let roles = names.roles.keys().map(|role| format!("role:{role}"));
    let presets = names.presets.keys().map(|name| format!("preset:{name}"));
    let mut rows = Vec::new();
    for name in capabilities.chain(roles).chain(presets) {
        let [id, why] = model(&name, providers.resolve(&name));
        rows.push([name, id, why]);
    }
    for (name, pool) in &names.pools {
        rows.push([format!("pool:{name}"), pool.strategy.to_string(), String::new()]);
        for (list, members) in [("", &pool.primary), ("fallback: ", &pool.fallback)] {
            for member in members {
                let [id, why] = model(member, providers.resolve_member(member));
                rows.push([String::new(), format!("{list}{id}"), why]);
            }
        }
    }
    rows
}

/// Returns the facts about a model that have no column of their own: price changes, the end date and the successor.
fn remarks(model: &Model, now: Timestamp) -> String {
    let tiers =
        model.prices.iter().filter(|price| price.above > 0 || price.from.is_some_and(|from| from > now));
    let mut remarks: Vec<_> = tiers
        .map(|tier| {
            let [input, output] = [tier.input, tier.output].map(|micro| micro as f64 / 1e6);
            let above = if tier.above > 0 { format!(" above {} tokens", tier.above) } else { String::new() };
            let from = tier.from.map_or(String::new(), |from| format!(" from {}", from.date()));
            format!("{input:.2}/{output:.2}{above}{from}")
        })
        .collect();
    remarks.extend(model.retires.map(|end| format!("ends {}", end.date())));
    remarks.extend(model.successor.as_ref().map(|successor| format!("then {successor}")));
    remarks.join(", ")
}

fn model_row(model: &Model, now: Timestamp) -> [String; 10] {
    let size = |tokens: u64| if tokens == u64::MAX { "any".to_owned() } else { tokens.to_string() };
    let dollars = |of: fn(&Price) -> u64| {
        let price = model.price(0, now).as_ref().map(of);
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
        remarks(model, now),
    ]
}
