//! CI results of a commit: checks of other Apps, statuses, and job logs of GitHub Actions.
//!
//! Code that ran in CI wrote the texts of these results, so they are untrusted. A result that GitHub does not let us
//! read is `Unknown`, never a pass.
//!
//! Anyone may open a pull request from a fork with the commit that we pushed, and choose the base branch against which
//! its workflows run. Therefore a check by GitHub Actions counts only if it is a job of a workflow run whose head
//! repository is this one. Other checks by GitHub Actions do not count, because a workflow can create checks through
//! the API and attach them to any suite of the commit. Checks of other Apps and statuses always count, since only
//! trusted Apps and users can create them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::DeserializeOwned};
use url::Url;

use super::{
    api::ApiRequest,
    error::{GitHubApiError, none_if_refused},
    manifest::{CHECKS, JOB_LOG, REMARKS, RUN_JOBS, STATUSES, WORKFLOW_RUNS},
    repo::GitHubRepo,
};
use crate::types::Oid;

/// Maximum number of pages, of 100 items each, that are read per list. If a list has more pages, one `Unknown` result
/// stands for the rest.
const MAX_PAGES: usize = 3;

/// Maximum number of workflow runs whose jobs are read. Runs of this repository are read first.
const MAX_RUNS: usize = 30;

/// Maximum number of annotations read per check.
const MAX_CHECK_ANNOTATIONS: usize = 30;

/// Slug of the GitHub Actions App. For a check of this App, the id of the check is also the id of the job.
const ACTIONS: &str = "github-actions";

/// Result of one check or status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiCheckReport {
    pub name: String,
    pub outcome: CiCheckOutcome,
    /// Title, summary and text, as the check reported them.
    pub says: Vec<String>,
    /// Id of the check; `None` if the check has no annotations.
    pub check: Option<u64>,
    /// Id of the job; `None` if the job has no log.
    pub job: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiCheckOutcome {
    Pending,
    Passed,
    Failed,
    /// The check was cancelled or needs somebody to act. This is neither a pass nor a failure.
    Neither,
    /// The workflow ran for another repository, so the result does not count.
    Foreign,
    /// The result of the check, or the repository for which it ran, cannot be determined.
    Unknown,
}

#[derive(Deserialize)]
struct IdObject {
    id: u64,
}

/// Reason why a job log could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobLogError {
    /// The rate limit is exhausted; retry when it resets.
    NotNow(GitHubApiError),
    Refused,
    /// The log was deleted or never existed.
    Gone,
    Unreadable,
}

/// Returns a placeholder for results that GitHub did not show us.
fn unknown_report() -> CiCheckReport {
    CiCheckReport {
        name: String::new(),
        outcome: CiCheckOutcome::Unknown,
        says: Vec::new(),
        check: None,
        job: None,
    }
}

impl GitHubRepo {
    /// Returns the results of all checks and statuses of a commit, except our own.
    ///
    /// # Errors
    /// Temporary failures. A result that GitHub permanently refuses to show is `Unknown`.
    pub async fn ci_check_reports(&self, commit: &Oid) -> Result<Vec<CiCheckReport>, GitHubApiError> {
        let checks = none_if_refused(self.external_check_reports(commit).await)?;
        let statuses = none_if_refused(self.status_reports(commit).await)?;
        Ok([checks, statuses]
            .into_iter()
            .flat_map(|list| list.unwrap_or_else(|| vec![unknown_report()]))
            .collect())
    }

    /// Returns the first pages of a list, and a flag that is true if these pages are the whole list.
    async fn list_first_pages<T: DeserializeOwned>(
        &self,
        request: ApiRequest,
        key: &'static str,
    ) -> Result<(Vec<T>, bool), GitHubApiError> {
        let (request, mut listed) = (request.query("per_page", 100).cacheable(), Vec::new());
        for page in 1..=MAX_PAGES {
            let answer = self.send(request.clone().query("page", page)).await?;
            listed.extend(answer.items::<T>(Some(key))?);
            if !answer.has_next_page() {
                return Ok((listed, true));
            }
        }
        Ok((listed, false))
    }

    async fn external_check_reports(&self, commit: &Oid) -> Result<Vec<CiCheckReport>, GitHubApiError> {
        #[derive(Deserialize)]
        struct CheckRunItem {
            id: u64,
            name: String,
            status: String,
            conclusion: Option<String>,
            app: Option<CheckRunApp>,
            check_suite: Option<IdObject>,
            #[serde(default)]
            output: CheckRunOutput,
        }
        #[derive(Deserialize)]
        struct CheckRunApp {
            id: u64,
            #[serde(default)]
            slug: String,
        }
        #[derive(Default, Deserialize)]
        struct CheckRunOutput {
            title: Option<String>,
            summary: Option<String>,
            text: Option<String>,
            #[serde(default)]
            annotations_count: u64,
        }
        let request = self.request(&CHECKS, &[commit.as_str()]).query("filter", "latest");
        let (mut listed, whole) = self.list_first_pages::<CheckRunItem>(request, "check_runs").await?;
        let own = self.github().app_id();
        listed.retain(|check| check.app.as_ref().is_none_or(|app| app.id != own));
        let is_job = |check: &CheckRunItem| check.app.as_ref().is_some_and(|app| app.slug == ACTIONS);
        // Workflow runs are read after the checks, so that each check's run is listed.
        let suites =
            listed.iter().filter(|check| is_job(check)).filter_map(|check| check.check_suite.as_ref());
        let jobs = self.job_ownership(commit, suites.map(|suite| suite.id).collect()).await?;
        let report = |check: CheckRunItem| {
            let outcome = match (check.status.as_str(), check.conclusion.as_deref()) {
                _ if is_job(&check) && jobs.get(&check.id) == Some(&false) => CiCheckOutcome::Foreign,
                _ if is_job(&check) && !jobs.contains_key(&check.id) => CiCheckOutcome::Unknown,
                ("completed", Some("success" | "neutral" | "skipped")) => CiCheckOutcome::Passed,
                ("completed", Some("failure" | "timed_out" | "startup_failure")) => CiCheckOutcome::Failed,
                ("completed", _) => CiCheckOutcome::Neither,
                _ => CiCheckOutcome::Pending,
            };
            let job = is_job(&check).then_some(check.id);
            let CheckRunOutput { title, summary, text, annotations_count } = check.output;
            let says = [title, summary, text].into_iter().flatten().collect();
            let remarks = (annotations_count > 0).then_some(check.id);
            CiCheckReport { name: check.name, outcome, says, check: remarks, job }
        };
        Ok(listed.into_iter().map(report).chain((!whole).then(unknown_report)).collect())
    }

    /// Returns the jobs of the workflow runs with these suites. The flag of each job says whether its workflow ran for
    /// this repository. Jobs of deleted forks, and jobs in lists that GitHub refuses, are missing.
    async fn job_ownership(
        &self,
        commit: &Oid,
        suites: BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, bool>, GitHubApiError> {
        #[derive(Deserialize)]
        struct WorkflowRunItem {
            id: u64,
            check_suite_id: Option<u64>,
            /// Repository of the run's head; `null` if the fork was deleted.
            head_repository: Option<IdObject>,
        }
        let mut jobs = BTreeMap::new();
        if suites.is_empty() {
            return Ok(jobs);
        }
        let request = self.request(&WORKFLOW_RUNS, &[]).query("head_sha", commit.as_str());
        let runs = none_if_refused(self.list_first_pages::<WorkflowRunItem>(request, "workflow_runs").await)?
            .unwrap_or_default()
            .0;
        let runs = runs.into_iter().filter(|run| run.check_suite_id.is_some_and(|id| suites.contains(&id)));
        let here = |run: WorkflowRunItem| Some((run.id, run.head_repository?.id == self.id().0));
        let mut runs: Vec<_> = runs.filter_map(here).collect();
        runs.sort_by_key(|(_, here)| !here);
        for (run, here) in runs.into_iter().take(MAX_RUNS) {
            // Earlier attempts belong to the same workflow run.
            let request = self.request(&RUN_JOBS, &[&run.to_string()]).query("filter", "all");
            let listed = none_if_refused(self.list_first_pages::<IdObject>(request, "jobs").await)?
                .unwrap_or_default()
                .0;
            jobs.extend(listed.into_iter().map(|job| (job.id, here)));
        }
        Ok(jobs)
    }

    async fn status_reports(&self, commit: &Oid) -> Result<Vec<CiCheckReport>, GitHubApiError> {
        #[derive(Deserialize)]
        struct CommitStatusItem {
            context: String,
            state: String,
            description: Option<String>,
        }
        // GitHub lists the newest status of each context.
        let (listed, whole) = self
            .list_first_pages::<CommitStatusItem>(self.request(&STATUSES, &[commit.as_str()]), "statuses")
            .await?;
        let report = |status: CommitStatusItem| CiCheckReport {
            name: status.context,
            outcome: match status.state.as_str() {
                "success" => CiCheckOutcome::Passed,
                "failure" | "error" => CiCheckOutcome::Failed,
                _ => CiCheckOutcome::Pending,
            },
            says: status.description.into_iter().collect(),
            check: None,
            job: None,
        };
        Ok(listed.into_iter().map(report).chain((!whole).then(unknown_report)).collect())
    }

    /// Returns a check's annotations, each with its path and line.
    ///
    /// # Errors
    /// Temporary failures.
    pub async fn check_annotations(&self, check: u64) -> Result<Vec<String>, GitHubApiError> {
        #[derive(Deserialize)]
        struct CheckAnnotationItem {
            #[serde(default)]
            path: String,
            #[serde(default)]
            start_line: u64,
            annotation_level: Option<String>,
            title: Option<String>,
            message: Option<String>,
        }
        let request = self.request(&REMARKS, &[&check.to_string()]).query("per_page", 100);
        let answer = none_if_refused(self.send(request.cacheable()).await)?;
        let mut listed: Vec<CheckAnnotationItem> =
            answer.map(|answer| answer.items(None)).transpose()?.unwrap_or_default();
        listed.sort_by_key(|listed| listed.annotation_level.as_deref() != Some("failure"));
        let line = |listed: CheckAnnotationItem| {
            let title = listed.title.map_or(String::new(), |title| format!("{title}: "));
            format!("{}:{}: {title}{}", listed.path, listed.start_line, listed.message.unwrap_or_default())
        };
        Ok(listed.into_iter().take(MAX_CHECK_ANNOTATIONS).map(line).collect())
    }

    /// Returns the last bytes of a job's log. GitHub stores the log outside its API, so it is fetched without
    /// credentials.
    pub async fn job_log_tail(&self, job: u64, bytes: usize) -> Result<Vec<u8>, JobLogError> {
        let location = match self.send(self.request(&JOB_LOG, &[&job.to_string()])).await {
            Err(GitHubApiError::Moved { location, .. }) => location,
            Err(limit @ GitHubApiError::RateLimited { .. }) => return Err(JobLogError::NotNow(limit)),
            Err(fault) => {
                tracing::info!(job, %fault, "GitHub refused a job log; continuing without it");
                return Err(match fault {
                    GitHubApiError::Forbidden { .. } => JobLogError::Refused,
                    GitHubApiError::NotFound { .. } | GitHubApiError::Gone { .. } => JobLogError::Gone,
                    _ => JobLogError::Unreadable,
                });
            }
            Ok(_) => return Err(JobLogError::Unreadable),
        };
        let url = Url::parse(&location).map_err(|_| JobLogError::Unreadable)?;
        self.github().api().download_tail(url, bytes).await.map_err(|why| {
            tracing::info!(job, why, "could not download a job log; continuing without it");
            JobLogError::Unreadable
        })
    }
}
