//! `countersign cost --settle`: an operator says what the bill shows of calls whose cost nobody knew.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};

use super::control::{ControlContext, ControlError, ControlMessage, ControlResult, find_repository};
use crate::{
    store::Store,
    types::{MicroUsd, RepoName, RunId, count},
};

/// Which held calls to settle: those of a run, of a repository, or all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SettleCallsRequest {
    pub repository: Option<RepoName>,
    pub run: Option<RunId>,
    /// Billed amount for all of them together.
    pub billed: MicroUsd,
    pub by: String,
}

pub(super) async fn handle_settle(
    State(control): State<ControlContext>,
    Json(asked): Json<SettleCallsRequest>,
) -> ControlResult<ControlMessage> {
    Ok(Json(ControlMessage { message: settle_calls(&control.store, &asked).await? }))
}

/// Settles held calls and says how many.
///
/// # Errors
/// Why none can be, and those of the store. What was settled before stays so.
pub async fn settle_calls(store: &Store, asked: &SettleCallsRequest) -> Result<String, ControlError> {
    let repos = match (&asked.repository, asked.run) {
        (_, Some(run)) => vec![run.repo],
        (Some(name), None) => vec![find_repository(store, name).await?],
        (None, None) => store.repositories().await?,
    };
    let (mut calls, mut held) = (0, MicroUsd(0));
    // It is of one run, or nothing.
    let mut billed = asked.billed;
    for repo in repos {
        let Some(db) = store.existing_repository_database(repo).await? else { continue };
        let (rows, of_repo) = db.settle_calls(asked.run, billed, asked.by.clone()).await?;
        billed = if rows.is_empty() { billed } else { MicroUsd(0) };
        (calls, held) = (calls + rows.len(), held.plus(of_repo));
        store.sync_settled_calls(rows).await?;
    }
    if calls == 0 {
        let why = "nothing is held for calls that are over; `countersign cost` shows what is";
        return Err(ControlError(StatusCode::NOT_FOUND, why.to_owned()));
    }
    let calls = count(calls, "call is", "calls are");
    tracing::warn!(%calls, %held, billed = %asked.billed, by = asked.by, "held calls were settled");
    Ok(format!("{calls} settled: {held} were held, and {} were billed", asked.billed))
}
