//! What CI says of a commit: checks of other Apps, statuses, and the logs of GitHub's own jobs.
//!
//! All of it is written by whatever ran there. What GitHub does not let us see is told as unknown, and never taken for nothing.
//!
//! Anybody may open a pull request from a fork with the very commit that we pushed, and choose what it is merged with when its
//! workflows run. So a check of GitHub's own counts only as a job of a run that says that its head is this repository: one that
//! a workflow makes by the API hangs on any suite of the commit. Another App has one suite a commit and a status has not even
//! that: what they say is of the commit, by whoever was let into this repository.

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

/// Pages of a hundred that are read of a list; of what is beyond them nothing is known.
const MAX_PAGES: usize = 3;

/// Runs whose jobs are read, those of this repository first.
const MAX_RUNS: usize = 30;

/// Remarks of one check that are read.
const MAX_CHECK_ANNOTATIONS: usize = 30;

/// The App that runs GitHub's own workflows. The number of a check of its is that of the job.
const ACTIONS: &str = "github-actions";

/// What one check or status says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiCheckReport {
    pub name: String,
    pub outcome: CiCheckOutcome,
    /// What it says in its own words: title, summary, text.
    pub says: Vec<String>,
    /// The check, where it has remarks at lines.
    pub check: Option<u64>,
    /// The job whose log there is.
    pub job: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiCheckOutcome {
    Pending,
    Passed,
    Failed,
    /// Somebody ended it, or has to act: that is neither.
    Neither,
    /// It ran for another repository, which is nothing to this one.
    Foreign,
    /// It cannot be told how it went, or for which repository it ran.
    Unknown,
}

#[derive(Deserialize)]
struct IdObject {
    id: u64,
}

/// Why a log cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobLogError {
    /// It can be asked for again when GitHub's limit is over.
    NotNow(GitHubApiError),
    Refused,
    /// It was taken away, or there never was one.
    Gone,
    Unreadable,
}

/// Stands for what we were not shown.
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
    /// What others than we say of a commit.
    ///
    /// # Errors
    /// Those that pass; what is refused for good is unknown.
    pub async fn ci_check_reports(&self, commit: &Oid) -> Result<Vec<CiCheckReport>, GitHubApiError> {
        let checks = none_if_refused(self.external_check_reports(commit).await)?;
        let statuses = none_if_refused(self.status_reports(commit).await)?;
        Ok([checks, statuses]
            .into_iter()
            .flat_map(|list| list.unwrap_or_else(|| vec![unknown_report()]))
            .collect())
    }

    /// The beginning of a list, and whether that is all of it.
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
        // Read after the checks, so that the run of each is there.
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

    /// Jobs of runs with these suites, and whether each ran for this repository. Of a check that is none of them nothing is
    /// known, nor of those of a fork that was deleted, or whose list is refused.
    async fn job_ownership(
        &self,
        commit: &Oid,
        suites: BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, bool>, GitHubApiError> {
        #[derive(Deserialize)]
        struct WorkflowRunItem {
            id: u64,
            check_suite_id: Option<u64>,
            /// `null` once a fork is deleted.
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
            // Those of earlier attempts are of the same run.
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
        // Of each context the newest, which is what counts.
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

    /// What a check remarks at lines, each with its place.
    ///
    /// # Errors
    /// Those that pass.
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

    /// The last bytes of a job's log, if it can be had. It lies elsewhere, and no credentials of ours go there.
    pub async fn job_log_tail(&self, job: u64, bytes: usize) -> Result<Vec<u8>, JobLogError> {
        let location = match self.send(self.request(&JOB_LOG, &[&job.to_string()])).await {
            Err(GitHubApiError::Moved { location, .. }) => location,
            Err(limit @ GitHubApiError::RateLimited { .. }) => return Err(JobLogError::NotNow(limit)),
            Err(fault) => {
                tracing::info!(job, %fault, "there is no log to read");
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
            tracing::info!(job, why, "a log could not be read");
            JobLogError::Unreadable
        })
    }
}
