//! The page of one repository: its runs and their costs, recurring review findings, and the code excerpt most recently
//! shown to models.

use std::time::Duration;

use askama::Template;
use axum::{
    Extension,
    extract::{Path, State},
};

use super::{
    OperatorPageError, OperatorPageResult, PageFrame, PagesContext, PagesState, filters,
    page_sessions::PageSession,
    render_page,
    runs::{self, RunTableRow, repository_name},
    svg::{CHART_HEIGHT, SpendChart, draw_chart},
};
use crate::{
    codebase::{self, CodebaseContext, ContextReport},
    store::{ActivePause, RunQuery, Spending},
    types::{IssueNo, RepoId, RunId, Timestamp},
};

const SHOWN_RUNS: usize = 20;
const SHOWN_DAYS: u64 = 30;

/// Maximum number of findings read from the store; a drafter's prompt uses the same limit.
const FINDINGS: u32 = 1500;

#[derive(Template)]
#[template(path = "repository.html")]
struct RepositoryPage {
    page: PageFrame,
    id: RepoId,
    url: String,
    standing: String,
    action: String,
    label: &'static str,
    notices: Vec<String>,
    rows: Vec<RunTableRow>,
    since: String,
    total: Spending,
    chart: SpendChart,
    height: usize,
    rules: Vec<(&'static str, String)>,
    shown: Option<LatestContext>,
}

/// The code context most recently chosen for a model.
struct LatestContext {
    run: RunId,
    at: Timestamp,
    report: ContextReport,
}

pub(super) async fn page(
    State(pages): PagesState,
    Extension(visit): Extension<PageSession>,
    Path(id): Path<RepoId>,
) -> OperatorPageResult {
    let control = &pages.operator.control;
    let store = &control.store;
    let known = store.installation_registry().repository(id).await?;
    if known.is_none() && !store.repositories().await?.contains(&id) {
        return Err(OperatorPageError::Missing);
    }
    let found = store.run_page(&RunQuery { repo: Some(id), most: SHOWN_RUNS, ..RunQuery::default() }).await?;
    let pauses = store.pauses().await?;
    let now = control.clock.now();
    let since = now.minus(Duration::from_secs((SHOWN_DAYS - 1) * 24 * 3600)).day_start();
    let (lines, mut left_out) = store.spend_since(Some(id), since).await?;
    let spent: Vec<_> = lines.iter().map(|line| (line.day, line.spent)).collect();
    left_out.extend(found.skipped);
    left_out.sort_by(|a, b| a.why.cmp(&b.why));
    left_out.dedup();
    let damaged = !left_out.is_empty();
    let pause = ActivePause::for_repository(&pauses, id);
    let own = pauses.iter().any(|pause| pause.scope == crate::store::PauseScope::Repo(id));
    let title = repository_name(&pages, id).await?;
    let web_url = control.web_url.as_str().trim_end_matches('/');
    render_page(&RepositoryPage {
        id,
        url: known.map_or_else(|| web_url.to_owned(), |row| format!("{web_url}/{}", row.name)),
        standing: pause.map_or_else(
            || "Active.".to_owned(),
            |pause| format!("Paused by {} since {}: {}.", pause.by, pause.at, pause.why),
        ),
        action: format!("/repositories/{id}/{}", if own { "resume" } else { "pause" }),
        label: if own { "Resume" } else { "Pause" },
        notices: runs::unreadable_notices(&pages, &left_out).await?,
        rows: runs::run_rows(&pages, found.runs, &pauses).await?,
        since: since.to_string()[..10].to_owned(),
        total: spent.iter().fold(Spending::default(), |sum, (_, spent)| sum.plus(spent)),
        chart: draw_chart(&spent, since, now),
        height: CHART_HEIGHT,
        rules: default_if_damaged(damaged, lesson_texts(&pages, id).await)?,
        shown: default_if_damaged(damaged, latest_context(&pages, id).await)?,
        page: PageFrame::new(title, &visit),
    })
}

/// Returns the recurring findings that a drafter would get in its prompt, each with the name of its workflow.
async fn lesson_texts(
    pages: &PagesContext,
    id: RepoId,
) -> Result<Vec<(&'static str, String)>, OperatorPageError> {
    let Some(db) = pages.operator.control.store.existing_repository_database(id).await? else {
        return Ok(Vec::new());
    };
    let (newest, none) = (RunId { repo: id, seq: i64::MAX as u64 }, IssueNo(0));
    let mut all = Vec::new();
    for workflow in pages.operator.workflows {
        let findings = db.past_findings(newest, workflow.name(), none, FINDINGS).await?;
        let found = codebase::select_history(none, "", &[], &findings, |_| true).rules.into_iter();
        all.extend(found.map(|rule| (workflow.name(), rule.trim().trim_start_matches("- ").to_owned())));
    }
    Ok(all)
}

async fn latest_context(
    pages: &PagesContext,
    id: RepoId,
) -> Result<Option<LatestContext>, OperatorPageError> {
    let Some((run, at, stored)) = pages.operator.control.store.last_excerpt(id).await? else {
        return Ok(None);
    };
    let context: Option<CodebaseContext> = serde_json::from_str(&stored).ok();
    Ok(context.map(|context| LatestContext { run, at, report: context.report }))
}

/// Replaces a read error by the default value if the database is known to be damaged. In that case the page already
/// shows a notice about the damage.
fn default_if_damaged<V: Default>(
    damaged: bool,
    read: Result<V, OperatorPageError>,
) -> Result<V, OperatorPageError> {
    if damaged { Ok(read.unwrap_or_default()) } else { read }
}
