//! `GET /models`: who can be asked, what rests and until when, and how each failed last.

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
    /// How long ago, and what.
    failures: Vec<(String, LastFailure)>,
    keys: Vec<GeminiKeyTableRow>,
}

struct PoolTableRow {
    name: String,
    strategy: String,
    /// Does any role have it?
    asked: bool,
    members: Vec<PoolMemberRow>,
}

struct PoolMemberRow {
    spec: String,
    fallback: bool,
    lacks: Option<String>,
}

/// By its name in `.env`; never the key.
struct GeminiKeyTableRow {
    name: String,
    rests: Vec<String>,
}

pub(super) async fn page(
    State(room): PagesState,
    Extension(visit): Extension<PageSession>,
) -> OperatorPageResult {
    let (providers, settings) = (&room.operator.providers, &room.operator.settings.models);
    let now = room.operator.control.clock.now();
    let learned = room.operator.control.store.key_cooldowns().await?;
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
        asked: roles.iter().any(|role| role.spec == format!("pool:{name}")),
        members: pool
            .primary
            .iter()
            .map(|spec| member(spec, false))
            .chain(pool.fallback.iter().map(|spec| member(spec, true)))
            .collect(),
    });
    pools.collect()
}

/// As they are since the last reload.
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
        KeyCooldownReason::Rate { until } => format!("asked too often for {model}, rests until {until}"),
        KeyCooldownReason::Quota { until } => format!("used up for {model}, rests until {until}"),
        KeyCooldownReason::Denied { until } => format!("may not use {model}, rests until {until}"),
        KeyCooldownReason::Refused => "refused; put that right in .env and run countersign reload".to_owned(),
    }
}
