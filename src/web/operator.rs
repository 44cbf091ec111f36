//! `GET /readyz`, `GET /metrics` and the operator's pages. The listener is bound to loopback, which any local user can
//! reach. So without the server's token, `/readyz` returns only its state.

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

/// State of the operator's routes.
pub struct OperatorContext {
    pub control: ControlContext,
    pub providers: Arc<ModelProviders>,
    pub settings: Arc<Settings>,
    /// Name of the reviewer model as of the last reload.
    pub reviewer: ReloadableValue<String>,
    pub refusals: Arc<WebhookRefusalLog>,
    pub observed: MetricSources,
    /// Workflows whose graphs the pages draw.
    pub workflows: &'static [&'static dyn AnyWorkflow<StepServices>],
    /// Notified when a delivery is to be processed again.
    pub bell: Arc<Notify>,
    /// Cancelled at shutdown to end event streams, which would otherwise last as long as the client listens.
    pub stop: CancellationToken,
}

/// Returns the routes of the operator listener.
pub fn operator_router(operator: OperatorContext) -> Router {
    let operator = Arc::new(operator);
    Router::new()
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&operator))
        .merge(pages::router(Arc::clone(&operator)))
        .layer(from_fn_with_state(operator, pages::require_known_host))
}

/// Responds whether the server accepts and stores deliveries. Unavailable models make the state `degraded` but not
/// unready, because runs wait for the models and a restart would not help.
async fn ready(State(operator): State<Arc<OperatorContext>>, headers: HeaderMap) -> Response {
    let ControlContext { token, store, engine, .. } = &operator.control;
    let authorized = token.authorizes(&headers);
    let inbox = match store.inbox().counts().await {
        Ok(inbox) => inbox,
        Err(error) => return not_ready(&error.to_string(), authorized),
    };
    let mut settings = Settings::clone(&operator.settings);
    settings.models.reviewer.clone_from(&operator.reviewer.get());
    let readiness = operator.providers.readiness(&settings.models);
    let degraded = readiness.iter().any(|model| model.lacks.is_some());
    if !authorized {
        return Json(json!({ "ready": true, "degraded": degraded })).into_response();
    }
    // Lists the runs of every repository, so only for authorized requests.
    let runs = match engine.list(RunFilter { live_only: true, ..RunFilter::default() }).await {
        Ok(runs) => runs,
        Err(error) => return not_ready(&error.to_string(), authorized),
    };
    let waiting = runs.iter().filter(|run| run.gate.is_some()).count();
    let models: serde_json::Map<_, _> = readiness
        .iter()
        .map(|ModelReadiness { role, spec, lacks }| {
            let ready = lacks.is_none();
            (role.to_string(), json!({ "spec": spec, "ready": ready, "lacks": lacks }))
        })
        .collect();
    let roles: serde_json::Map<_, _> = roles::role_states(&settings, &operator.providers)
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
        "webhooks_refused": operator.refusals.count(),
        "runs": { "live": runs.len(), "waiting_for_people": waiting },
    }))
    .into_response()
}

fn not_ready(why: &str, authorized: bool) -> Response {
    let body = if authorized { json!({ "ready": false, "why": why }) } else { json!({ "ready": false }) };
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn metrics(State(operator): State<Arc<OperatorContext>>, headers: HeaderMap) -> Response {
    if !operator.control.token.authorizes(&headers) {
        let why = "Metrics require the token in the data directory: Authorization: Bearer TOKEN.\n";
        return (StatusCode::UNAUTHORIZED, why).into_response();
    }
    match operator.observed.render(&operator).await {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}
