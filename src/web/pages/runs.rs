//! The list of runs: what needs a person first, then the newest.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::{
    Extension,
    extract::{Query, State},
};
use serde::Deserialize;

use super::{
    OperatorPageError, OperatorPageResult, PageFrame, PagesContext, PagesState, filters,
    page_sessions::PageSession, render_page,
};
use crate::{
    engine::RunViewStatus,
    messages::step_name,
    store::{ActivePause, RunListRow, RunQuery, RunStatus, SkippedRepository},
    types::{IssueNo, RepoId, RunId, Timestamp},
};

/// Runs on a page.
const RUNS_PER_PAGE: usize = 50;

/// By which states the list may be filtered.
const FILTER_STATES: [RunStatus; 7] = [
    RunStatus::Asking,
    RunStatus::Ready,
    RunStatus::Waiting,
    RunStatus::Halting,
    RunStatus::Done,
    RunStatus::Failed,
    RunStatus::Stopped,
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RunsQuery {
    /// A name or a number.
    repo: String,
    state: String,
    workflow: String,
    after: String,
}

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage<'a> {
    page: PageFrame,
    repo: &'a str,
    state: &'a str,
    workflow: &'a str,
    states: Vec<&'static str>,
    workflows: Vec<&'static str>,
    notices: Vec<String>,
    rows: Vec<RunTableRow>,
    next: Option<String>,
}

/// A run as a row of a table.
pub(super) struct RunTableRow {
    pub(super) id: RunId,
    pub(super) repository: String,
    pub(super) issue: IssueNo,
    pub(super) title: String,
    pub(super) workflow: String,
    pub(super) status: &'static str,
    pub(super) why: String,
    pub(super) step: String,
    /// Whether it is well, waits or failed.
    pub(super) class: &'static str,
    pub(super) at: Timestamp,
    pub(super) age: String,
}

pub(super) async fn page(
    State(room): PagesState,
    Extension(visit): Extension<PageSession>,
    Query(wanted): Query<RunsQuery>,
) -> OperatorPageResult {
    let store = &room.operator.control.store;
    let mut notices = Vec::new();
    let states: Vec<_> = FILTER_STATES.map(|status| RunViewStatus::from(status).as_str()).into();
    let state =
        FILTER_STATES.into_iter().find(|status| RunViewStatus::from(*status).as_str() == wanted.state);
    if state.is_none() && !wanted.state.is_empty() {
        notices.push(format!(
            "There is no state “{}”: runs of all states are shown.",
            truncate(&wanted.state, 40)
        ));
    }
    let workflows: Vec<_> = room.operator.workflows.iter().map(|workflow| workflow.name()).collect();
    let named = match wanted.repo.trim() {
        "" => Ok(None),
        text => find_repository(&room, text).await?.map(Some).ok_or_else(|| truncate(text, 80)),
    };
    let asked = RunQuery {
        repo: named.clone().ok().flatten(),
        state,
        workflow: Some(wanted.workflow.clone()).filter(|workflow| !workflow.is_empty()),
        after: wanted.after.parse().ok(),
        most: RUNS_PER_PAGE,
    };
    let found = match named {
        Ok(_) => store.run_page(&asked).await?,
        Err(text) => {
            notices.push(format!("No repository {text} is known here: write OWNER/REPO as GitHub does."));
            Default::default()
        }
    };
    let pauses = store.pauses().await?;
    notices.extend(unreadable_notices(&room, &found.skipped).await?);
    let next = found.more_after.map(|place| {
        let mut query = url::form_urlencoded::Serializer::new("/?".to_owned());
        for (name, value) in
            [("repo", &wanted.repo), ("state", &wanted.state), ("workflow", &wanted.workflow)]
        {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.append_pair("after", &place.to_string()).finish()
    });
    let rows = run_rows(&room, found.runs, &pauses).await?;
    let (repo, state, workflow) = (wanted.repo.trim(), wanted.state.as_str(), wanted.workflow.as_str());
    let page = PageFrame::new("Runs", &visit);
    render_page(&RunsPage { page, repo, state, workflow, states, workflows, notices, rows, next })
}

/// A repository by its number or by the name it was last seen under.
async fn find_repository(room: &PagesContext, text: &str) -> Result<Option<RepoId>, OperatorPageError> {
    if let Ok(id) = text.parse() {
        return Ok(Some(id));
    }
    let Ok(name) = text.parse() else { return Ok(None) };
    Ok(room.operator.control.store.installation_registry().repository_named(&name).await?.map(|row| row.id))
}

/// Runs with the names of now.
pub(super) async fn run_rows(
    room: &PagesContext,
    runs: Vec<RunListRow>,
    pauses: &[ActivePause],
) -> Result<Vec<RunTableRow>, OperatorPageError> {
    let names = repository_names(room, runs.iter().map(|run| run.id.repo)).await?;
    let mut rows = Vec::with_capacity(runs.len());
    for run in runs {
        let repo = run.id.repo;
        let workflow = room.operator.workflows.iter().find(|workflow| workflow.name() == run.workflow);
        let step = workflow.and_then(|workflow| workflow.step(&run.step));
        let status = match RunViewStatus::from_saved(run.status, run.running, run.parked) {
            status if status.is_live() && ActivePause::for_repository(pauses, repo).is_some() => "paused",
            status => status.as_str(),
        };
        rows.push(RunTableRow {
            id: run.id,
            repository: names[&repo].clone(),
            issue: run.issue,
            title: truncate(&run.title.unwrap_or_default(), 120),
            workflow: run.workflow,
            status,
            why: truncate(&run.why.unwrap_or_default(), 200),
            step: step.map_or_else(|| truncate(&run.step, 40), |step| step_name(step.id, step.title)),
            class: status_class(status),
            at: run.updated_at,
            age: super::relative_age(room.operator.control.clock.now(), run.updated_at),
        });
    }
    Ok(rows)
}

/// Is it well, does it wait for somebody, or did it come to nothing?
pub(super) fn status_class(status: &str) -> &'static str {
    match status {
        "asking" | "parked" | "paused" => "wait",
        "failed" => "bad",
        "done" => "good",
        _ => "",
    }
}

/// The repository's name, or its number where we know no name any more.
pub(super) async fn repository_name(room: &PagesContext, repo: RepoId) -> Result<String, OperatorPageError> {
    let row = room.operator.control.store.installation_registry().repository(repo).await?;
    Ok(row.map_or_else(|| repo.to_string(), |row| row.name.to_string()))
}

/// The same of several.
pub(super) async fn repository_names(
    room: &PagesContext,
    repos: impl Iterator<Item = RepoId>,
) -> Result<BTreeMap<RepoId, String>, OperatorPageError> {
    let mut names = BTreeMap::new();
    for repo in repos.collect::<BTreeSet<_>>() {
        names.insert(repo, repository_name(room, repo).await?);
    }
    Ok(names)
}

/// No more of a text than a page has room for.
pub(super) fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// What people are told of what is not on the page.
pub(super) async fn unreadable_notices(
    room: &PagesContext,
    all: &[SkippedRepository],
) -> Result<Vec<String>, OperatorPageError> {
    const NAMED: usize = 10;
    let mut said = Vec::new();
    for SkippedRepository { repo, why } in all.iter().take(NAMED) {
        let its = repository_name(room, *repo).await?;
        said.push(format!("Not all of {its} is shown: {why}. The server's log says more."));
    }
    if let Some(more @ 1..) = all.len().checked_sub(NAMED) {
        said.push(format!("There are {more} more of which not all is shown; the server's log names them."));
    }
    Ok(said)
}
