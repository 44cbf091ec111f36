//! `countersign cost --settle`: an operator enters the amount that was billed for calls of unknown cost.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};

use super::control::{ControlContext, ControlError, ControlMessage, ControlResult, find_repository};
use crate::{
    store::Store,
    types::{MicroUsd, RepoName, RunId, count},
};

/// Selects the calls to settle: the calls of a run, of a repository, or all. Settling replaces the amounts reserved for
/// the calls by the billed amount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleCallsRequest {
    pub repository: Option<RepoName>,
    pub run: Option<RunId>,
    /// Total billed amount for all selected calls.
    pub billed: MicroUsd,
    pub by: String,
}

pub(super) async fn handle_settle(
    State(control): State<ControlContext>,
    Json(request): Json<SettleCallsRequest>,
) -> ControlResult<ControlMessage> {
    Ok(Json(ControlMessage { message: settle_calls(&control.store, &request).await? }))
}

/// Settles the selected calls and returns a summary.
///
/// # Errors
/// No call can be settled, or the store fails. Calls that were settled before the error stay settled.
pub async fn settle_calls(store: &Store, request: &SettleCallsRequest) -> Result<String, ControlError> {
    let repos = match (&request.repository, request.run) {
        (_, Some(run)) => vec![run.repo],
        (Some(name), None) => vec![find_repository(store, name).await?],
        (None, None) => store.repositories().await?,
    };
    let (mut calls, mut held) = (0, MicroUsd(0));
    // The billed amount goes to the first repository with held calls; a nonzero amount requires a run.
    let mut billed = request.billed;
    for repo in repos {
        let Some(db) = store.existing_repository_database(repo).await? else { continue };
        let (rows, of_repo) = db.settle_calls(request.run, billed, request.by.clone()).await?;
        billed = if rows.is_empty() { billed } else { MicroUsd(0) };
        (calls, held) = (calls + rows.len(), held.plus(of_repo));
        store.sync_settled_calls(rows).await?;
    }
    if calls == 0 {
        let why = "no finished call holds budget; `countersign cost` shows what is held";
        return Err(ControlError(StatusCode::NOT_FOUND, why.to_owned()));
    }
    tracing::warn!(calls, %held, billed = %request.billed, by = request.by, "released the amounts held for finished calls");
    let calls = count(calls, "call is", "calls are");
    Ok(format!("{calls} settled: {held} were held, and {} were billed", request.billed))
}
