//! What can be done on the pages: the same as on the control socket, and giving a delivery another try. The guard has seen to
//! it that whoever asks may.

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Redirect,
};

use super::{OperatorPageError, PagesState};
use crate::{
    engine::PauseScope,
    types::{DeliveryId, RepoId, RunId},
};

/// Who the log, and a run's trail, say it was.
const OPERATOR: &str = "operator (page)";

type PageActionResult = Result<Redirect, OperatorPageError>;

pub(super) async fn pause(State(room): PagesState) -> PageActionResult {
    set_paused(&room, PauseScope::Server, true, "/").await
}

pub(super) async fn resume(State(room): PagesState) -> PageActionResult {
    set_paused(&room, PauseScope::Server, false, "/").await
}

pub(super) async fn pause_repository(State(room): PagesState, Path(repo): Path<u64>) -> PageActionResult {
    set_paused(&room, known_scope(&room, repo).await?, true, &format!("/repositories/{repo}")).await
}

pub(super) async fn resume_repository(State(room): PagesState, Path(repo): Path<u64>) -> PageActionResult {
    set_paused(&room, known_scope(&room, repo).await?, false, &format!("/repositories/{repo}")).await
}

async fn known_scope(room: &super::PagesContext, repo: u64) -> Result<PauseScope, OperatorPageError> {
    let row = room.operator.control.store.installation_registry().repository(RepoId(repo)).await?;
    Ok(PauseScope::Repo(row.ok_or(OperatorPageError::Missing)?.id))
}

async fn set_paused(
    room: &super::PagesContext,
    scope: PauseScope,
    pause: bool,
    back: &str,
) -> PageActionResult {
    let control = &room.operator.control;
    if pause {
        control.pause(scope, OPERATOR.to_owned(), "asked to on the operator's page").await?;
    } else {
        control.resume(scope, OPERATOR.to_owned()).await?;
    }
    Ok(Redirect::to(back))
}

pub(super) async fn retry(State(room): PagesState, Path((repo, seq)): Path<(u64, u64)>) -> PageActionResult {
    let run = RunId { repo: RepoId(repo), seq };
    room.operator.control.retry(run, OPERATOR.to_owned()).await?;
    Ok(Redirect::to(&format!("/runs/{repo}/{seq}")))
}

pub(super) async fn replay(State(room): PagesState, Path(id): Path<String>) -> PageActionResult {
    if !room.operator.control.store.inbox().retry_given_up(&DeliveryId(id.clone())).await? {
        let why = "Only a delivery that was given up and whose body is still kept can be tried again.";
        return Err(OperatorPageError::Refused(StatusCode::CONFLICT, why.to_owned()));
    }
    tracing::info!(delivery = id, by = OPERATOR, "tried again");
    room.operator.bell.notify_one();
    Ok(Redirect::to("/deliveries?given_up=true"))
}
