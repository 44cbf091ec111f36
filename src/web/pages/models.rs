//! `GET /models`: the available models, the current cooldowns with their ends, and the latest failures.

use askama::Template;
use axum::{Extension, extract::State};

use super::{
    OperatorPageResult, PageFrame, PagesState, filters, page_sessions::PageSession, relative_age, render_page,
};
use crate::{
    config::ModelSettings,
    providers::{ActiveCooldown, GeminiKeyState, LastFailure, ModelProviders, ModelReadiness, gemini_keys},
    store::{KeyCooldownReason, StoredKeyCooldown},
    types::Timestamp,
};

#[derive(Template)]
#[template(path = "models.html")]
struct ModelsPage {
    page: PageFrame,
    roles: Vec<ModelReadiness>,
    pools: Vec<PoolTableRow>,
    resting: Vec<ActiveCooldown>,
    /// The latest failures. The first part of each entry is the failure's age.
    failures: Vec<(String, LastFailure)>,
    keys: Vec<GeminiKeyTableRow>,
}

struct PoolTableRow {
    name: String,
    strategy: String,
    /// Whether any role uses this pool.
    used: bool,
    members: Vec<PoolMemberRow>,
}

struct PoolMemberRow {
    spec: String,
    fallback: bool,
    lacks: Option<String>,
}

/// A Gemini key, shown by its name in `.env` and never by its value.
struct GeminiKeyTableRow {
    name: String,
    rests: Vec<String>,
}

pub(super) async fn page(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
) -> OperatorPageResult {
    let (providers, settings) = (&pages.operator.providers, &pages.operator.settings.models);
    let now = pages.operator.control.clock.now();
    let learned = pages.operator.control.store.key_cooldowns().await?;
    let roles = providers.readiness(settings);
    render_page(&ModelsPage {
        page: PageFrame::new("Models", &visit),
        pools: pool_rows(settings, providers, &roles),
        roles,
        resting: providers.active_cooldowns(now).await,
        failures: providers.last_failures().into_iter().map(|one| (relative_age(now, one.at), one)).collect(),
        keys: key_rows(providers, &learned, now),
    })
}

fn pool_rows(
    settings: &ModelSettings,
    providers: &ModelProviders,
    roles: &[ModelReadiness],
) -> Vec<PoolTableRow> {
    let member = |spec: &String, fallback| {
        let lacks = match providers.resolve_member(spec) {
            Ok((provider, _)) => provider.missing_requirement(),
            Err(error) => Some(error.to_string()),
        };
        PoolMemberRow { spec: spec.clone(), fallback, lacks }
    };
    let pools = settings.names.pools.iter().map(|(name, pool)| PoolTableRow {
        name: name.clone(),
        strategy: pool.strategy.to_string(),
        used: roles.iter().any(|role| role.spec == format!("pool:{name}")),
        members: pool
            .primary
            .iter()
            .map(|spec| member(spec, false))
            .chain(pool.fallback.iter().map(|spec| member(spec, true)))
            .collect(),
    });
    pools.collect()
}

/// Returns a table row for each key that was configured at the last reload.
fn key_rows(
    providers: &ModelProviders,
    learned: &[StoredKeyCooldown],
    now: Timestamp,
) -> Vec<GeminiKeyTableRow> {
    let others = providers
        .other_key_names()
        .into_iter()
        .map(|name| GeminiKeyTableRow { name: name.to_owned(), rests: Vec::new() });
    let settings = providers.gemini_settings();
    let gemini = gemini_keys(&settings, learned, now).into_iter().map(|GeminiKeyState { key, rests }| {
        GeminiKeyTableRow {
            name: key.name.clone(),
            rests: rests.into_iter().map(|(model, rest)| rest_text(model, rest)).collect(),
        }
    });
    gemini.chain(others).collect()
}

fn rest_text(model: &str, rest: KeyCooldownReason) -> String {
    match rest {
        KeyCooldownReason::Rate { until } => format!("rate-limited for {model} until {until}"),
        KeyCooldownReason::Quota { until } => format!("quota used up for {model} until {until}"),
        KeyCooldownReason::Denied { until } => format!("not allowed to use {model}; next try {until}"),
        KeyCooldownReason::Refused => "refused; fix it in .env and run countersign reload".to_owned(),
    }
}
