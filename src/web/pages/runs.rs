//! The list of runs. Runs that need a person come first, then the newest runs.

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

/// Number of runs per page.
const RUNS_PER_PAGE: usize = 50;

/// Run states by which the list can be filtered.
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
    /// Filter: name or number of a repository.
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

/// A run as a row of the table.
pub(super) struct RunTableRow {
    pub(super) id: RunId,
    pub(super) repository: String,
    pub(super) issue: IssueNo,
    pub(super) title: String,
    pub(super) workflow: String,
    pub(super) status: &'static str,
    pub(super) why: String,
    pub(super) step: String,
    /// CSS class of the run's status: good, waiting or failed.
    pub(super) class: &'static str,
    pub(super) at: Timestamp,
    pub(super) age: String,
}

pub(super) async fn page(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
    Query(filter): Query<RunsQuery>,
) -> OperatorPageResult {
    let store = &pages.operator.control.store;
    let mut notices = Vec::new();
    let states: Vec<_> = FILTER_STATES.map(|status| RunViewStatus::from(status).as_str()).into();
    let state =
        FILTER_STATES.into_iter().find(|status| RunViewStatus::from(*status).as_str() == filter.state);
    if state.is_none() && !filter.state.is_empty() {
        notices.push(format!(
            "There is no state “{}”: runs of all states are shown.",
            truncate(&filter.state, 40)
        ));
    }
    let workflows: Vec<_> = pages.operator.workflows.iter().map(|workflow| workflow.name()).collect();
    let named = match filter.repo.trim() {
        "" => Ok(None),
        text => find_repository(&pages, text).await?.map(Some).ok_or_else(|| truncate(text, 80)),
    };
    let query = RunQuery {
        repo: named.clone().ok().flatten(),
        state,
        workflow: Some(filter.workflow.clone()).filter(|workflow| !workflow.is_empty()),
        after: filter.after.parse().ok(),
        most: RUNS_PER_PAGE,
    };
    let found = match named {
        Ok(_) => store.run_page(&query).await?,
        Err(text) => {
            notices.push(format!("No repository {text} is known here: write OWNER/REPO as GitHub does."));
            Default::default()
        }
    };
    let pauses = store.pauses().await?;
    notices.extend(unreadable_notices(&pages, &found.skipped).await?);
    let next = found.more_after.map(|place| {
        let mut query = url::form_urlencoded::Serializer::new("/?".to_owned());
        for (name, value) in
            [("repo", &filter.repo), ("state", &filter.state), ("workflow", &filter.workflow)]
        {
            if !value.is_empty() {
                query.append_pair(name, value);
            }
        }
        query.append_pair("after", &place.to_string()).finish()
    });
    let rows = run_rows(&pages, found.runs, &pauses).await?;
    let (repo, state, workflow) = (filter.repo.trim(), filter.state.as_str(), filter.workflow.as_str());
    let page = PageFrame::new("Runs", &visit);
    render_page(&RunsPage { page, repo, state, workflow, states, workflows, notices, rows, next })
}

/// Finds a repository by its number, or by the name that it had when it was last seen.
async fn find_repository(pages: &PagesContext, text: &str) -> Result<Option<RepoId>, OperatorPageError> {
    if let Ok(id) = text.parse() {
        return Ok(Some(id));
    }
    let Ok(name) = text.parse() else { return Ok(None) };
    Ok(pages.operator.control.store.installation_registry().repository_named(&name).await?.map(|row| row.id))
}

/// Returns runs as table rows, with the current repository names.
pub(super) async fn run_rows(
    pages: &PagesContext,
    runs: Vec<RunListRow>,
    pauses: &[ActivePause],
) -> Result<Vec<RunTableRow>, OperatorPageError> {
    let names = repository_names(pages, runs.iter().map(|run| run.id.repo)).await?;
    let mut rows = Vec::with_capacity(runs.len());
    for run in runs {
        let repo = run.id.repo;
        let workflow = pages.operator.workflows.iter().find(|workflow| workflow.name() == run.workflow);
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
            age: super::relative_age(pages.operator.control.clock.now(), run.updated_at),
        });
    }
    Ok(rows)
}

/// Returns the CSS class for a run status.
pub(super) fn status_class(status: &str) -> &'static str {
    match status {
        "asking" | "parked" | "paused" => "wait",
        "failed" => "bad",
        "done" => "good",
        _ => "",
    }
}

/// Returns the repository's name, or its number if the name is unknown.
pub(super) async fn repository_name(pages: &PagesContext, repo: RepoId) -> Result<String, OperatorPageError> {
    let row = pages.operator.control.store.installation_registry().repository(repo).await?;
    Ok(row.map_or_else(|| repo.to_string(), |row| row.name.to_string()))
}

/// Returns the name of each of these repositories, or the number if the name is unknown.
pub(super) async fn repository_names(
    pages: &PagesContext,
    repos: impl Iterator<Item = RepoId>,
) -> Result<BTreeMap<RepoId, String>, OperatorPageError> {
    let mut names = BTreeMap::new();
    for repo in repos.collect::<BTreeSet<_>>() {
        names.insert(repo, repository_name(pages, repo).await?);
    }
    Ok(names)
}

/// Returns the first `most` characters of a text, with an ellipsis if the text was longer.
pub(super) fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Returns notices about repositories whose data could not be read in full.
pub(super) async fn unreadable_notices(
    pages: &PagesContext,
    all: &[SkippedRepository],
) -> Result<Vec<String>, OperatorPageError> {
    const NAMED: usize = 10;
    let mut notices = Vec::new();
    for SkippedRepository { repo, why } in all.iter().take(NAMED) {
        let name = repository_name(pages, *repo).await?;
        notices.push(format!("Not all of {name} is shown: {why}. The server's log says more."));
    }
    if let Some(more @ 1..) = all.len().checked_sub(NAMED) {
        notices.push(format!("{more} more are not shown in full; the server's log names them."));
    }
    Ok(notices)
}
