//! `GET /models`: who can be asked, what rests and until when, and how each failed last.

use askama::Template;
use axum::{Extension, extract::State};

use super::{Asked, Page, Shown, ago, entry::Visit, filters, show};
use crate::{
    config::ModelSettings,
    providers::{GeminiKeyState, LastFailure, Providers, Readiness, Resting, gemini_keys},
    store::{Rest, RestingKey},
    types::Timestamp,
};

#[derive(Template)]
#[template(path = "models.html")]
struct Models {
    page: Page,
    roles: Vec<Readiness>,
    pools: Vec<Pool>,
    resting: Vec<Resting>,
    /// How long ago, and what.
    failures: Vec<(String, LastFailure)>,
    keys: Vec<Key>,
}

struct Pool {
    name: String,
    strategy: String,
    /// Does any role have it?
    asked: bool,
    members: Vec<Member>,
}

struct Member {
    spec: String,
    fallback: bool,
    lacks: Option<String>,
}

/// By its name in `.env`; never the key.
struct Key {
    name: String,
    rests: Vec<String>,
}

pub(super) async fn page(State(room): Asked, Extension(visit): Extension<Visit>) -> Shown {
    let (providers, settings) = (&room.operator.providers, &room.operator.settings.models);
    let now = room.operator.control.clock.now();
    let learned = room.operator.control.store.resting_keys().await?;
    let roles = providers.readiness(settings);
    show(&Models {
        page: Page::new("Models", &visit),
        pools: pools(settings, providers, &roles),
        roles,
        resting: providers.resting(now).await,
        failures: providers.last_failures().into_iter().map(|one| (ago(now, one.at), one)).collect(),
        keys: keys(providers, &learned, now),
    })
}

fn pools(settings: &ModelSettings, providers: &Providers, roles: &[Readiness]) -> Vec<Pool> {
    let member = |spec: &String, fallback| {
        let lacks = match providers.member(spec) {
            Ok((provider, _)) => provider.lacks(),
            Err(error) => Some(error.to_string()),
        };
        Member { spec: spec.clone(), fallback, lacks }
    };
    let pools = settings.names.pools.iter().map(|(name, pool)| Pool {
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
fn keys(providers: &Providers, learned: &[RestingKey], now: Timestamp) -> Vec<Key> {
    let others =
        providers.other_keys().into_iter().map(|name| Key { name: name.to_owned(), rests: Vec::new() });
    let settings = providers.gemini();
    let gemini = gemini_keys(&settings, learned, now).into_iter().map(|GeminiKeyState { key, rests }| Key {
        name: key.name.clone(),
        rests: rests.into_iter().map(|(model, rest)| rested(model, rest)).collect(),
    });
    gemini.chain(others).collect()
}

fn rested(model: &str, rest: Rest) -> String {
    match rest {
        Rest::Rate { until } => format!("asked too often for {model}, rests until {until}"),
        Rest::Quota { until } => format!("used up for {model}, rests until {until}"),
        Rest::Denied { until } => format!("may not use {model}, rests until {until}"),
        Rest::Refused => "refused; put that right in .env and run countersign reload".to_owned(),
    }
}
