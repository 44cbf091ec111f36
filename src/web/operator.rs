//! `GET /readyz` and the pages, for the operator; bound to loopback, which anybody on this machine can reach. Without the
//! server's token `/readyz` tells its state and nothing else.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    MetricSources, control::ControlContext, metrics::CONTENT_TYPE, pages, roles, webhook::WebhookRefusalLog,
};
use crate::{
    config::{ReloadableValue, Settings},
    engine::{AnyWorkflow, RunFilter},
    providers::{ModelProviders, ModelReadiness},
    rounds::StepServices,
};

/// What the routes for the operator show, and act through.
pub struct OperatorContext {
    pub control: ControlContext,
    pub providers: Arc<ModelProviders>,
    pub settings: Arc<Settings>,
    /// The reviewer since the last reload.
    pub reviewer: ReloadableValue<String>,
    pub refusals: Arc<WebhookRefusalLog>,
    pub observed: MetricSources,
    /// Whose graphs are drawn.
    pub workflows: &'static [&'static dyn AnyWorkflow<StepServices>],
    /// Rung when a delivery is to be dealt with again.
    pub bell: Arc<Notify>,
    /// Ends what would go on for as long as somebody listens.
    pub stop: CancellationToken,
}

/// The routes for whoever sits at the machine.
pub fn operator_router(operator: OperatorContext) -> Router {
    let room = Arc::new(operator);
    Router::new()
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&room))
        .merge(pages::router(Arc::clone(&room)))
        .layer(from_fn_with_state(room, pages::require_known_host))
}

/// Ready is a server that takes deliveries in and keeps them. One whose models cannot be asked does: the runs that need
/// them wait. So that is `degraded` and no reason for whoever watches to start it anew.
async fn ready(State(room): State<Arc<OperatorContext>>, headers: HeaderMap) -> Response {
    let ControlContext { token, store, engine, .. } = &room.control;
    let knows = token.authorizes(&headers);
    let inbox = match store.inbox().counts().await {
        Ok(inbox) => inbox,
        Err(error) => return not_ready(&error.to_string(), knows),
    };
    let mut settings = Settings::clone(&room.settings);
    settings.models.reviewer.clone_from(&room.reviewer.get());
    let readiness = room.providers.readiness(&settings.models);
    let degraded = readiness.iter().any(|model| model.lacks.is_some());
    if !knows {
        return Json(json!({ "ready": true, "degraded": degraded })).into_response();
    }
    // Which takes a look into every repository: not for whoever merely asks.
    let runs = match engine.list(RunFilter { live_only: true, ..RunFilter::default() }).await {
        Ok(runs) => runs,
        Err(error) => return not_ready(&error.to_string(), knows),
    };
    let waiting = runs.iter().filter(|run| run.gate.is_some()).count();
    let models: serde_json::Map<_, _> = readiness
        .iter()
        .map(|ModelReadiness { role, spec, lacks }| {
            let ready = lacks.is_none();
            (role.to_string(), json!({ "spec": spec, "ready": ready, "lacks": lacks }))
        })
        .collect();
    let roles: serde_json::Map<_, _> = roles::role_states(&settings, &room.providers)
        .into_iter()
        .map(|role| (role.name.to_owned(), json!({ "state": role.state, "why": role.why })))
        .collect();
    Json(json!({
        "ready": true,
        "degraded": degraded,
        "models": models,
        "roles": roles,
        "version": env!("CARGO_PKG_VERSION"),
        "inbox": { "new": inbox.new, "taken": inbox.taken, "done": inbox.done, "dead": inbox.dead },
        "webhooks_refused": room.refusals.count(),
        "runs": { "live": runs.len(), "waiting_for_people": waiting },
    }))
    .into_response()
}

fn not_ready(why: &str, knows: bool) -> Response {
    let said = if knows { json!({ "ready": false, "why": why }) } else { json!({ "ready": false }) };
    (StatusCode::SERVICE_UNAVAILABLE, Json(said)).into_response()
}

async fn metrics(State(room): State<Arc<OperatorContext>>, headers: HeaderMap) -> Response {
    if !room.control.token.authorizes(&headers) {
        let why = "Metrics ask for the token in the data directory: Authorization: Bearer TOKEN.\n";
        return (StatusCode::UNAUTHORIZED, why).into_response();
    }
    match room.observed.render(&room).await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}
