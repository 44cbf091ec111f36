//! `countersign runs`: lists runs and what each run waits for.

use std::{process::ExitCode, sync::Arc};

use anyhow::{Context, anyhow};

use super::{ConfigFlag, align_columns, print_line, require_data};
use crate::{
    clock::SystemClock,
    config::Settings,
    engine::{RunFilter, RunView},
    store::{RunRow, Store},
    types::RepoName,
    web::control::{self, ControlReply, RunListItem, RunListRequest},
    workflows,
};

/// List runs. For each run, shows the current step and when the step started, what the run waits for and where, and the
/// run's GitHub API calls.
///
/// Reads through the running server, or from the data directory if no server runs. CALLS shows the number of requests
/// to GitHub's API so far, a slash, and the number of writes among them.
#[derive(clap::Args)]
pub(super) struct RunsCommand {
    /// List only runs of this repository.
    #[arg(long, value_name = "OWNER/REPO")]
    repo: Option<RepoName>,
    /// Also list runs that are done, failed or stopped.
    #[arg(long)]
    all: bool,
    /// Print a JSON array instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigFlag,
}

impl RunsCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let settings = workflows::load_settings(&self.config.config)?;
        let request =
            RunListRequest { repository: self.repo.as_ref().map(RepoName::to_string), all: self.all };
        let repository = request.repository.iter().map(|name| ("repository", name.as_str()));
        let all = [("all", if request.all { "true" } else { "false" })];
        let query: String =
            url::form_urlencoded::Serializer::new(String::new()).extend_pairs(repository.chain(all)).finish();
        let reply = control::call_server(&settings.data_dir, &format!("/runs?{query}"), None).await;
        let lines: Vec<RunListItem> = match reply.context("the server did not answer")? {
            ControlReply::Done(lines) => lines,
            ControlReply::Refused(why) => return Err(anyhow!(why)),
            ControlReply::NotRunning => read_runs(&settings, self.repo.as_ref(), self.all).await?,
        };
        if self.json {
            print_line(serde_json::to_string_pretty(&lines)?);
        } else if lines.is_empty() {
            print_line(if self.all {
                "There are no runs."
            } else {
                "No live runs; --all also lists ended ones."
            });
        } else {
            table(&lines).iter().for_each(print_line);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads the runs from a data directory that no server uses.
async fn read_runs(
    settings: &Settings,
    name: Option<&RepoName>,
    all: bool,
) -> anyhow::Result<Vec<RunListItem>> {
    let data = &settings.data_dir;
    require_data(data)?;
    let store = Store::open(data, Arc::new(SystemClock))?;
    let repos = match name {
        None => store.repositories().await?,
        Some(name) => vec![control::find_repository(&store, name).await?],
    };
    let mut views = Vec::new();
    for repo in repos {
        let Some(db) = store.existing_repository_database(repo).await? else { continue };
        let rows = db.runs(RunFilter { repo: Some(repo), issue: None, live_only: !all }).await?;
        let view = |row: &RunRow| {
            let workflow = workflows::ALL.iter().find(|workflow| workflow.name() == row.workflow);
            RunView::new(row, workflow.copied())
        };
        views.extend(rows.iter().map(view));
    }
    Ok(control::summarize_runs(&store, &views, &settings.github.web_url).await?)
}

/// Builds the table. The reason comes in the last column because its length is not limited.
fn table(lines: &[RunListItem]) -> Vec<String> {
    let head = ["RUN", "REPOSITORY", "ISSUE", "WORKFLOW", "STEP", "STATUS", "SINCE", "CALLS", "WHERE", "WHY"];
    let rows: Vec<[String; 10]> = std::iter::once(head.map(str::to_owned))
        .chain(lines.iter().map(|line| {
            [
                line.run.to_string(),
                line.repository.clone(),
                format!("#{}", line.issue),
                line.workflow.clone(),
                line.step.clone(),
                line.status.clone(),
                line.since.clone(),
                format!("{}/{}", line.calls, line.writes),
                line.url.clone().unwrap_or_default(),
                line.why.clone().unwrap_or_default(),
            ]
        }))
        .collect();
    align_columns(&rows)
}
