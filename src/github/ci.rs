//! What CI says of a commit: checks of other Apps, statuses, and the logs of GitHub's own jobs.
//!
//! All of it is written by whatever ran there. What GitHub does not let us see is left out, for nobody's work hangs on it.

use serde::Deserialize;
use url::Url;

use super::{
    error::{Fault, decorated},
    manifest::{CHECKS, JOB_LOG, REMARKS, STATUSES},
    repo::Repo,
};
use crate::types::Oid;

/// Pages of a hundred checks or statuses; who has more is not waited for.
const PAGES: usize = 3;

/// Remarks of one check that are read.
const MOST_REMARKS: usize = 30;

/// The App that runs GitHub's own workflows. The number of a check of its is that of the job.
const ACTIONS: &str = "github-actions";

/// What one check or status says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub name: String,
    pub outcome: ReportOutcome,
    /// What it says in its own words: title, summary, text.
    pub says: Vec<String>,
    /// The check, where it has remarks at lines.
    pub check: Option<u64>,
    /// The job whose log there is.
    pub job: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportOutcome {
    Pending,
    Passed,
    Failed,
    /// Somebody ended it, or has to act: that is neither.
    Neither,
}

impl Repo {
    /// What others than we say of a commit.
    ///
    /// # Errors
    /// Those that pass; what is refused for good is taken for nothing.
    pub async fn ci(&self, commit: &Oid) -> Result<Vec<Report>, Fault> {
        let mut reports = decorated(self.checks_of_others(commit).await)?.unwrap_or_default();
        reports.extend(decorated(self.statuses(commit).await)?.unwrap_or_default());
        Ok(reports)
    }

    async fn checks_of_others(&self, commit: &Oid) -> Result<Vec<Report>, Fault> {
        #[derive(Deserialize)]
        struct Listed {
            id: u64,
            name: String,
            status: String,
            conclusion: Option<String>,
            app: Option<App>,
            #[serde(default)]
            output: Output,
        }
        #[derive(Deserialize)]
        struct App {
            id: u64,
            #[serde(default)]
            slug: String,
        }
        #[derive(Default, Deserialize)]
        struct Output {
            title: Option<String>,
            summary: Option<String>,
            text: Option<String>,
            #[serde(default)]
            annotations_count: u64,
        }
        let mut listed: Vec<Listed> = Vec::new();
        for page in 1..=PAGES {
            let request = self.request(&CHECKS, &[commit.as_str()]).query("filter", "latest");
            let answer = self.send(request.query("per_page", 100).query("page", page).kept()).await?;
            listed.extend(answer.items::<Listed>(Some("check_runs"))?);
            if !answer.goes_on() {
                break;
            }
        }
        let own = self.github().app_id();
        let others = listed.into_iter().filter(|check| check.app.as_ref().is_none_or(|app| app.id != own));
        let report = |check: Listed| {
            let outcome = match (check.status.as_str(), check.conclusion.as_deref()) {
                ("completed", Some("success" | "neutral" | "skipped")) => ReportOutcome::Passed,
                ("completed", Some("failure" | "timed_out" | "startup_failure")) => ReportOutcome::Failed,
                ("completed", _) => ReportOutcome::Neither,
                _ => ReportOutcome::Pending,
            };
            let job = check.app.is_some_and(|app| app.slug == ACTIONS).then_some(check.id);
            let Output { title, summary, text, annotations_count } = check.output;
            let says = [title, summary, text].into_iter().flatten().collect();
            let remarks = (annotations_count > 0).then_some(check.id);
            Report { name: check.name, outcome, says, check: remarks, job }
        };
        Ok(others.map(report).collect())
    }

    async fn statuses(&self, commit: &Oid) -> Result<Vec<Report>, Fault> {
        #[derive(Deserialize)]
        struct Listed {
            context: String,
            state: String,
            description: Option<String>,
        }
        // Of each context the newest, which is what counts.
        let request = self.request(&STATUSES, &[commit.as_str()]).query("per_page", 100);
        let listed: Vec<Listed> = self.send(request.kept()).await?.items(Some("statuses"))?;
        let report = |status: Listed| Report {
            name: status.context,
            outcome: match status.state.as_str() {
                "success" => ReportOutcome::Passed,
                "failure" | "error" => ReportOutcome::Failed,
                _ => ReportOutcome::Pending,
            },
            says: status.description.into_iter().collect(),
            check: None,
            job: None,
        };
        Ok(listed.into_iter().map(report).collect())
    }

    /// What a check remarks at lines, each with its place.
    ///
    /// # Errors
    /// Those that pass.
    pub async fn remarks_of_check(&self, check: u64) -> Result<Vec<String>, Fault> {
        #[derive(Deserialize)]
        struct Listed {
            #[serde(default)]
            path: String,
            #[serde(default)]
            start_line: u64,
            annotation_level: Option<String>,
            title: Option<String>,
            message: Option<String>,
        }
        let request = self.request(&REMARKS, &[&check.to_string()]).query("per_page", 100);
        let answer = decorated(self.send(request.kept()).await)?;
        let mut listed: Vec<Listed> =
            answer.map(|answer| answer.items(None)).transpose()?.unwrap_or_default();
        listed.sort_by_key(|listed| listed.annotation_level.as_deref() != Some("failure"));
        let line = |listed: Listed| {
            let title = listed.title.map_or(String::new(), |title| format!("{title}: "));
            format!("{}:{}: {title}{}", listed.path, listed.start_line, listed.message.unwrap_or_default())
        };
        Ok(listed.into_iter().take(MOST_REMARKS).map(line).collect())
    }

    /// The last bytes of a job's log, if it can be had. It lies elsewhere, and no credentials of ours go there.
    ///
    /// # Errors
    /// GitHub's limit.
    pub async fn end_of_log(&self, job: u64, bytes: usize) -> Result<Option<Vec<u8>>, Fault> {
        let location = match self.send(self.request(&JOB_LOG, &[&job.to_string()])).await {
            Err(Fault::Moved { location, .. }) => location,
            Err(limit @ Fault::RateLimited { .. }) => return Err(limit),
            Err(fault) => {
                tracing::info!(job, %fault, "there is no log to read");
                return Ok(None);
            }
            Ok(_) => return Ok(None),
        };
        let Ok(url) = Url::parse(&location) else { return Ok(None) };
        match self.github().api().end_of_file(url, bytes).await {
            Ok(end) => Ok(Some(end)),
            Err(why) => {
                tracing::info!(job, why, "a log could not be read");
                Ok(None)
            }
        }
    }
}
