//! Checks that the services still serve the models in use. Model lists are free: one GET request per list, or one per
//! page. The check changes no setting. The operator gets a warning with the line to write into the settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::{
    ModelProviders, http, key_check,
    models::{self, Model},
    single_line,
};
use crate::{
    clock::Clock,
    config::{CassetteMode, RouteMode, Settings},
    types::Timestamp,
};

/// Time before a model's retirement at which the warnings start.
const NOTICE: Duration = Duration::from_secs(60 * 24 * 3600);

/// Interval between checks of the model lists while the server is running.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Maximum number of pages read from a list. Each page holds up to a thousand models.
const PAGES: usize = 20;

/// Maximum number of listed models named in a warning if none of them is in our model table.
const NAMED: usize = 5;

/// A setting that names a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSetting {
    pub table: &'static str,
    pub key: String,
    pub spec: String,
}

/// Result of comparing the models in use with the services' model lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListCheck {
    /// One warning for each model that is not listed or retires soon. Each warning contains the line to write into the
    /// settings.
    pub warnings: Vec<String>,
    /// One sentence for each list that could not be read.
    pub unchecked: Vec<String>,
    /// Hosts whose lists were read.
    pub checked: Vec<String>,
}

/// Returns every setting that names a model.
fn model_settings(settings: &Settings) -> Vec<ModelSetting> {
    let of =
        |table, key: &str, spec: &str| ModelSetting { table, key: key.to_owned(), spec: spec.to_owned() };
    let models = &settings.models;
    let drafts = models.drafters().map(|(role, spec)| match role {
        "drafter" => of("models", role, spec),
        role => of("roles", role, spec),
    });
    let mut uses: Vec<_> = drafts.chain([of("models", "reviewer", &models.reviewer)]).collect();
    let routing = settings.routing().filter(|routing| routing.mode != RouteMode::Manual);
    uses.extend(routing.map(|routing| of("route", "model", &routing.model)));
    uses
}

impl ModelProviders {
    /// Reads the services' model lists and compares them with the models of these settings.
    pub async fn check_lists(&self, settings: &Settings, now: Timestamp) -> ListCheck {
        // Settings by the provider and model id they name.
        let mut used: BTreeMap<(String, String), Vec<ModelSetting>> = BTreeMap::new();
        for setting in model_settings(settings) {
            for spec in self.names.models(&setting.spec) {
                if let Ok(id) = self.model(spec) {
                    used.entry((id.provider, id.model)).or_default().push(setting.clone());
                }
            }
        }
        let replays =
            settings.models.cassettes.as_ref().is_some_and(|kept| kept.mode == CassetteMode::Replay);
        let asked = |services: &[&str]| {
            !replays && used.keys().any(|(provider, _)| services.contains(&provider.as_str()))
        };
        let (anthropic, gemini) = (self.keys.anthropic.get(), self.keys.gemini.get());
        let mut check = ListCheck::default();
        let mut lists: BTreeMap<&str, (String, BTreeSet<String>)> = BTreeMap::new();
        let claude = ["claude", "anthropic"];
        let services = [
            (&claude[..], &ANTHROPIC, &anthropic.base_url, anthropic.api_key.as_ref()),
            (&["gemini"], &GEMINI, &gemini.base_url, gemini.keys.first().map(|key| &key.secret)),
        ];
        for (providers, form, base, key) in services {
            let Some(key) = key.filter(|_| asked(providers)) else { continue };
            let host = base.host_str().unwrap_or_default().to_owned();
            match fetch_list(form, base, key).await {
                Ok(ids) => {
                    check.checked.push(host.clone());
                    lists.extend(providers.iter().map(|provider| (*provider, (host.clone(), ids.clone()))));
                }
                Err(why) => check.unchecked.push(format!("{host} does not list its models: {why}")),
            }
        }
        for ((provider, id), settings) in &used {
            let list = lists.get(provider.as_str());
            let row = self.table.find(provider, id);
            let Some(what) = row.and_then(|row| model_warning(row, list, now)) else { continue };
            let line = self.setting_line(provider, id, settings, list.map(|(_, ids)| ids), now);
            check.warnings.push(format!("{provider}:{id}: {what}. {line}"));
        }
        check
    }

    /// Compares the services' model lists with the models of these settings; logs and returns the warnings.
    pub async fn warn_about_models(&self, settings: &Settings, now: Timestamp) -> Vec<String> {
        let found = self.check_lists(settings, now).await;
        for warning in &found.warnings {
            tracing::warn!("{warning}");
        }
        for why in found.unchecked {
            tracing::info!("models not checked: {why}");
        }
        found.warnings
    }

    /// Compares the services' model lists with the models of the current settings, now and then every day, until the
    /// future is dropped.
    pub async fn watch_lists(&self, settings: impl Fn() -> Settings, clock: &dyn Clock) {
        loop {
            self.warn_about_models(&settings(), clock.now()).await;
            clock.sleep(INTERVAL).await;
        }
    }

    /// Returns the replacement line that the operator can paste into the settings.
    fn setting_line(
        &self,
        provider: &str,
        id: &str,
        settings: &[ModelSetting],
        list: Option<&BTreeSet<String>>,
        now: Timestamp,
    ) -> String {
        let Some(other) = self.replacement(provider, id, list, now) else {
            let some: Vec<_> = list.into_iter().flatten().take(NAMED).map(String::as_str).collect();
            let some =
                if some.is_empty() { String::new() } else { format!(" It lists {} …", some.join(", ")) };
            return format!(
                "Choose another model; if `countersign models` does not show it, add a [[model]].{some}"
            );
        };
        let lines = settings.iter().map(|ModelSetting { table, key, spec }| match spec.split_once(':') {
            Some((prefix, _)) if prefix == provider => {
                format!("under [{table}]: {key} = \"{provider}:{other}\"")
            }
            _ => format!("\"{provider}:{other}\" where {spec:?} is defined"),
        });
        let lines: BTreeSet<_> = lines.collect();
        format!("Write {}", lines.into_iter().collect::<Vec<_>>().join("; "))
    }

    /// Returns the successor that the vendor names. Without one, returns the listed model closest in price that does
    /// not retire soon.
    fn replacement(
        &self,
        provider: &str,
        id: &str,
        list: Option<&BTreeSet<String>>,
        now: Timestamp,
    ) -> Option<&str> {
        let gone = self.table.find(provider, id)?;
        let stays = |row: &&Model| {
            row.id != gone.id
                && row.family == gone.family
                && row.providers.iter().any(|its| its == provider)
                && row.retires.is_none_or(|end| end > now.plus(NOTICE))
                && list.is_none_or(|ids| ids.iter().any(|id| is_listed_as(&row.id, id)))
        };
        let named = gone.successor.as_deref().and_then(|id| self.table.find(provider, id)).filter(stays);
        let price = |row: &Model| row.price(0, now).map_or(0, |price| price.output);
        let nearest =
            || self.table.models().iter().filter(stays).min_by_key(|row| price(row).abs_diff(price(gone)));
        named.or_else(nearest).map(|row| row.id.as_str())
    }
}

/// Whether the id in a list means this model. The list may append a version date, as in `claude-haiku-4-5-20251001`. A
/// preview is not the same model as the final version.
fn is_listed_as(id: &str, listed: &str) -> bool {
    let rest = models::bare_id(listed).strip_prefix(id).map(|rest| rest.strip_prefix('-').unwrap_or(rest));
    rest.is_some_and(|day| day.is_empty() || day.len() == 8 && day.bytes().all(|byte| byte.is_ascii_digit()))
}

fn model_warning(row: &Model, list: Option<&(String, BTreeSet<String>)>, now: Timestamp) -> Option<String> {
    let missing = list.filter(|(_, ids)| !ids.iter().any(|id| is_listed_as(&row.id, id)));
    let ends = row.retires.filter(|end| *end <= now.plus(NOTICE)).map(|end| match end <= now {
        true => format!("its maker ended it on {}", end.date()),
        false => format!("its maker ends it on {}", end.date()),
    });
    match (missing, ends) {
        (Some((host, _)), Some(ends)) => Some(format!("{host} does not list it, and {ends}")),
        (Some((host, _)), None) => Some(format!("{host} does not list it")),
        (None, ends) => ends,
    }
}

struct ModelListFormat {
    path: &'static str,
    header: &'static str,
    /// Names of two JSON fields: the field with the list of models, and the field with a model's name.
    items: &'static str,
    name: &'static str,
    /// JSON field with the token of the next page. `more` is the field that tells whether another page exists, and
    /// `query` is the query parameter for the token.
    mark: &'static str,
    more: Option<&'static str>,
    query: &'static str,
}

const ANTHROPIC: ModelListFormat = ModelListFormat {
    path: "v1/models?limit=1000",
    header: "x-api-key",
    items: "data",
    name: "id",
    mark: "last_id",
    more: Some("has_more"),
    query: "after_id",
};

const GEMINI: ModelListFormat = ModelListFormat {
    path: "v1beta/models?pageSize=1000",
    header: "x-goog-api-key",
    items: "models",
    name: "name",
    mark: "nextPageToken",
    more: None,
    query: "pageToken",
};

async fn fetch_list(
    form: &ModelListFormat,
    base: &Url,
    key: &SecretString,
) -> Result<BTreeSet<String>, String> {
    let mut ids = BTreeSet::new();
    let mut page = String::new();
    for _ in 0..PAGES {
        let answer = key_check::send_get(base, &format!("{}{page}", form.path), form.header, key).await?;
        if !answer.status().is_success() {
            return Err(answer.status().to_string());
        }
        let body = http::read_body(answer).await.map_err(|fault| fault.to_string())?;
        let body: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let items = body[form.items].as_array().ok_or_else(|| format!("it has no {}", form.items))?;
        let names = items.iter().filter_map(|item| item[form.name].as_str());
        ids.extend(names.map(|name| single_line(name.trim_start_matches("models/"), 100)));
        let mark = body[form.mark].as_str().filter(|mark| !mark.is_empty());
        match mark.filter(|_| form.more.is_none_or(|more| body[more] == true)) {
            Some(mark) => {
                let mark: String = url::form_urlencoded::byte_serialize(mark.as_bytes()).collect();
                page = format!("&{}={mark}", form.query);
            }
            None => return Ok(ids),
        }
    }
    Err(format!("it has more than {PAGES} pages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_id_with_a_date_suffix_is_the_same_model_but_a_preview_is_not() {
        for (id, listed, same) in [
            ("gemini-3.8-flash", "models/gemini-3.8-flash", true),
            ("claude-haiku-4-5", "claude-haiku-4-5-20251001", true),
            ("gemini-3-pro-preview", "gemini-3-pro", false),
            ("gemini-3-pro", "gemini-3-pro-preview", false),
            ("claude-haiku-4", "claude-haiku-4-5", false),
        ] {
            assert_eq!(is_listed_as(id, listed), same, "{id} {listed}");
        }
    }
}
