//! `GET /readyz` and the list of runs, for the operator; bound to loopback, which anybody on this machine can reach. Without
//! the server's token they tell its state and nothing else.

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::{Query, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Redirect, Response},
    routing::get,
};
use serde::Deserialize;
use serde_json::json;

use super::{Token, public::Refusals, roles};
use crate::{
    config::Settings,
    engine::{Filter, Port, RunView},
    messages::html,
    providers::{Providers, Readiness},
    store::Store,
};

/// What the routes for the operator show.
pub struct Operator {
    pub store: Arc<Store>,
    pub engine: Arc<dyn Port>,
    pub providers: Arc<Providers>,
    pub settings: Arc<Settings>,
    pub token: Token,
    pub refusals: Arc<Refusals>,
}

/// The routes for whoever sits at the machine.
pub fn private(room: Operator) -> Router {
    Router::new()
        .route("/readyz", get(ready))
        .route("/", get(runs))
        .layer(middleware::from_fn(loopback_only))
        .with_state(Arc::new(room))
}

/// A page on another site must not read this one through a name that resolves here.
async fn loopback_only(request: Request, next: Next) -> Response {
    let host = request.headers().get("host").and_then(|h| h.to_str().ok()).unwrap_or_default();
    // The colons of `[::1]` are not before a port.
    let port = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let name = host.rsplit_once(':').filter(|(_, end)| port(end)).map_or(host, |(name, _)| name);
    if matches!(name, "127.0.0.1" | "localhost" | "[::1]") {
        next.run(request).await
    } else {
        (StatusCode::MISDIRECTED_REQUEST, "Ask for this page at 127.0.0.1 or localhost.\n").into_response()
    }
}

/// Ready is a server that takes deliveries in and keeps them. One whose models cannot be asked does: the runs that need
/// them wait. So that is `degraded` and no reason for whoever watches to start it anew.
async fn ready(State(room): State<Arc<Operator>>, headers: HeaderMap) -> Response {
    let knows = room.token.opens(&headers);
    let (inbox, runs) = match (room.store.inbox().counts().await, room.engine.list(Filter::default()).await) {
        (Ok(inbox), Ok(runs)) => (inbox, runs),
        (Err(error), _) => return unready(&error.to_string(), knows),
        (_, Err(error)) => return unready(&error.to_string(), knows),
    };
    let readiness = room.providers.readiness(&room.settings.models);
    let degraded = readiness.iter().any(|model| model.lacks.is_some());
    if !knows {
        return Json(json!({ "ready": true, "degraded": degraded })).into_response();
    }
    let live = runs.iter().filter(|run| run.status.live()).count();
    let waiting = runs.iter().filter(|run| run.gate.is_some()).count();
    let models: serde_json::Map<_, _> = readiness
        .iter()
        .map(|Readiness { role, spec, lacks }| {
            let ready = lacks.is_none();
            (role.to_string(), json!({ "spec": spec, "ready": ready, "lacks": lacks }))
        })
        .collect();
    let roles: serde_json::Map<_, _> = roles(&room.settings, &room.providers)
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
        "runs": { "live": live, "waiting_for_people": waiting },
    }))
    .into_response()
}

fn unready(why: &str, knows: bool) -> Response {
    let said = if knows { json!({ "ready": false, "why": why }) } else { json!({ "ready": false }) };
    (StatusCode::SERVICE_UNAVAILABLE, Json(said)).into_response()
}

/// The page's address, as `serve` prints it.
#[derive(Deserialize)]
struct Address {
    token: Option<String>,
}

async fn runs(
    State(room): State<Arc<Operator>>,
    Query(address): Query<Address>,
    headers: HeaderMap,
) -> Response {
    if address.token.is_some_and(|given| room.token.is(&given)) {
        return ([(header::SET_COOKIE, room.token.cookie(&headers))], Redirect::to("/")).into_response();
    }
    if !room.token.opens(&headers) {
        let why = "Open the address that `countersign serve` printed when it started: it lets you in.\n";
        return (StatusCode::UNAUTHORIZED, why).into_response();
    }
    match room.engine.list(Filter::default()).await {
        Ok(runs) => Html(page(&runs)).into_response(),
        Err(error) => unready(&error.to_string(), true),
    }
}

fn page(runs: &[RunView]) -> String {
    let rows: String = runs
        .iter()
        .map(|run| {
            format!(
                "<tr><td>{}</td><td>{}</td><td>#{}</td><td>{}</td><td>{} {}</td><td>{}</td><td>{}</td></tr>\n",
                run.id,
                html(&run.workflow),
                run.issue,
                run.status,
                html(&run.step_id),
                html(&run.step_title),
                run.updated_at,
                html(run.why.as_deref().unwrap_or_default()),
            )
        })
        .collect();
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Countersign</title>\
         <style>body{{font:15px system-ui;margin:2rem}}td,th{{padding:.3rem .8rem;text-align:left;\
         border-bottom:1px solid #ddd}}</style><h1>Runs</h1><table><tr><th>Run<th>Workflow<th>Issue<th>Status<th>Step\
         <th>Changed<th>Why</tr>\n{rows}</table>\n"
    )
}
