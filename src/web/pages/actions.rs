//! Actions on the pages: the actions of the control socket, and retrying a delivery that was given up. The session
//! middleware has already checked that the user may make changes.

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

/// Name under which actions on the pages appear in the log and in a run's audit trail.
const OPERATOR: &str = "operator (page)";

type PageActionResult = Result<Redirect, OperatorPageError>;

pub(super) async fn pause(State(pages): PagesState) -> PageActionResult {
    set_paused(&pages, PauseScope::Server, true, "/").await
}

pub(super) async fn resume(State(pages): PagesState) -> PageActionResult {
    set_paused(&pages, PauseScope::Server, false, "/").await
}

pub(super) async fn pause_repository(State(pages): PagesState, Path(repo): Path<u64>) -> PageActionResult {
    set_paused(&pages, known_scope(&pages, repo).await?, true, &format!("/repositories/{repo}")).await
}

pub(super) async fn resume_repository(State(pages): PagesState, Path(repo): Path<u64>) -> PageActionResult {
    set_paused(&pages, known_scope(&pages, repo).await?, false, &format!("/repositories/{repo}")).await
}

async fn known_scope(pages: &super::PagesContext, repo: u64) -> Result<PauseScope, OperatorPageError> {
    let row = pages.operator.control.store.installation_registry().repository(RepoId(repo)).await?;
    Ok(PauseScope::Repo(row.ok_or(OperatorPageError::Missing)?.id))
}

async fn set_paused(
    pages: &super::PagesContext,
    scope: PauseScope,
    pause: bool,
    back: &str,
) -> PageActionResult {
    let control = &pages.operator.control;
    if pause {
        control.pause(scope, OPERATOR.to_owned(), "requested on the operator's page").await?;
    } else {
        control.resume(scope, OPERATOR.to_owned()).await?;
    }
    Ok(Redirect::to(back))
}

pub(super) async fn retry(State(pages): PagesState, Path((repo, seq)): Path<(u64, u64)>) -> PageActionResult {
    let run = RunId { repo: RepoId(repo), seq };
    pages.operator.control.retry(run, OPERATOR.to_owned()).await?;
    Ok(Redirect::to(&format!("/runs/{repo}/{seq}")))
}

pub(super) async fn replay(State(pages): PagesState, Path(id): Path<String>) -> PageActionResult {
    if !pages.operator.control.store.inbox().retry_given_up(&DeliveryId(id.clone())).await? {
        let why = "Only a delivery that was given up and whose body is still stored can be retried.";
        return Err(OperatorPageError::Refused(StatusCode::CONFLICT, why.to_owned()));
    }
    tracing::info!(delivery = id, by = OPERATOR, "retrying a given-up delivery");
    pages.operator.bell.notify_one();
    Ok(Redirect::to("/deliveries?given_up=true"))
}
