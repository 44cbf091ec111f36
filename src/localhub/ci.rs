//! CI results other than our own check: GitHub Actions jobs, each shown as a check with a log, and commit statuses.

use std::{fs, path::PathBuf};

use http::StatusCode;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::{
    AppSpec, Hub, HubError, HubInner,
    checks::CheckRunInput,
    json::JsonRenderer,
    model::{HubAnnotation, HubCheckRun, HubCommitStatus, HubRepository},
    server::{HubReply, HubRequest},
    transaction::HubTransaction,
};
use crate::types::{Oid, RepoId, UserId};

/// Slug of the App that runs GitHub Actions workflows.
pub(super) const ACTIONS: &str = "github-actions";

/// Current state of a workflow job.
#[derive(Debug, Clone, Default)]
pub struct ActionsJob {
    pub name: String,
    /// Conclusion of the job; `None` while the job is running.
    pub conclusion: Option<String>,
    pub summary: String,
    pub annotations: Vec<HubAnnotation>,
    pub log: Option<Vec<u8>>,
    /// The fork for whose pull request the job runs. The fork contains the same commit.
    pub fork: Option<RepoId>,
    /// Whether this is not a job itself but a check that a workflow created through the API.
    pub reported: bool,
}

impl Hub {
    /// Reports the state of a job on a commit. Returns the id of its check. Reporting again under the same name creates
    /// a new check.
    pub fn report_job(&self, repo: RepoId, head: &Oid, job: ActionsJob) -> Result<u64, HubError> {
        self.change(|c| {
            let app = c.actions_app(repo)?;
            let status = if job.conclusion.is_some() { "completed" } else { "in_progress" };
            let input = json!({
                "name": job.name, "head_sha": head, "status": status, "conclusion": job.conclusion,
                "output": { "title": job.name, "summary": job.summary, "annotations": job.annotations },
            });
            let mut input: CheckRunInput =
                serde_json::from_value(input).map_err(|e| HubError::Refused(e.to_string()))?;
            (input.fork, input.reported) = (job.fork, job.reported);
            let check = c.put_check(repo, app, None, input)?;
            c.complete_workflow_run(repo, &check)?;
            let check = check.id;
            if let Some(log) = &job.log {
                let path = c.hub.log_file(check);
                let written =
                    fs::create_dir_all(c.hub.data.join("logs")).and_then(|()| fs::write(&path, log));
                written.map_err(|source| HubError::Data { path, source })?;
            }
            Ok(check)
        })
    }

    /// Reports a commit status, as CI systems do that create no checks.
    pub fn set_status(
        &self,
        repo: RepoId,
        head: &Oid,
        by: UserId,
        (context, state, description): (&str, &str, &str),
    ) -> Result<(), HubError> {
        self.change(|c| {
            let status = HubCommitStatus {
                id: c.state.fresh_id(),
                head: head.clone(),
                context: context.to_owned(),
                state: state.to_owned(),
                description: Some(description.to_owned()),
                by,
                at: c.at,
            };
            c.repo_mut(repo)?.statuses.push(status);
            let here = c.git(repo).branches().into_iter().filter(|(_, oid)| oid == head);
            let branches: Vec<Value> =
                here.map(|(name, oid)| json!({ "name": name, "commit": { "sha": oid } })).collect();
            let extra = vec![
                ("sha", json!(head)),
                ("context", json!(context)),
                ("state", json!(state)),
                ("description", json!(description)),
                ("branches", json!(branches)),
            ];
            c.queue_webhook(repo, "status", None, by, extra);
            Ok(())
        })
    }
}

impl HubTransaction<'_> {
    /// Completes the workflow run of a job that has ended. In localhub, every workflow has exactly one job.
    fn complete_workflow_run(&mut self, repo: RepoId, job: &HubCheckRun) -> Result<(), HubError> {
        let Some(bot) = self.state.apps.get(&job.app).map(|app| app.bot).filter(|_| job.conclusion.is_some())
        else {
            return Ok(());
        };
        let run = self.json().workflow_run(repo, job);
        self.queue_webhook(repo, "workflow_run", Some("completed"), bot, vec![("workflow_run", run)]);
        Ok(())
    }

    fn actions_app(&mut self, repo: RepoId) -> Result<u64, HubError> {
        if let Some(app) = self.state.app_by_slug(ACTIONS) {
            return Ok(app.id);
        }
        let spec = AppSpec {
            name: "GitHub Actions".to_owned(),
            slug: ACTIONS.to_owned(),
            permissions: Default::default(),
            events: Vec::new(),
            webhook_url: None,
            webhook_secret: SecretString::from(""),
            private_key: None,
            owner: self.repo(repo)?.owner,
        };
        Ok(self.create_app(spec, SecretString::from(""), String::new())?.id)
    }
}

impl HubInner {
    pub(super) fn log_file(&self, job: u64) -> PathBuf {
        self.data.join("logs").join(job.to_string())
    }

    /// Serves a job's log to anyone who has its signed URL. Refuses requests that carry credentials.
    pub(super) fn serve_log(&self, request: &HubRequest) -> HubReply {
        let job = request.segments.get(1).and_then(|job| job.parse().ok());
        let signed = request.query("sig").is_some() && request.header("authorization").is_none();
        match job.filter(|_| signed).and_then(|job| fs::read(self.log_file(job)).ok()) {
            Some(log) => HubReply::new(StatusCode::OK, "text/plain; charset=utf-8", log),
            None => HubReply::text(StatusCode::FORBIDDEN, "no such log for whoever asks like this\n"),
        }
    }
}

impl JsonRenderer<'_> {
    /// Returns the workflow run of this job. If the job has no branch, the run is shown with one of our branch names,
    /// because a fork may use any branch name.
    pub(super) fn workflow_run(&self, repo: RepoId, job: &HubCheckRun) -> Value {
        let branch = job.branch.as_deref().unwrap_or("countersign/issue-1");
        json!({
            "id": job.suite, "name": job.name, "head_sha": job.head, "head_branch": branch, "status": job.status,
            "conclusion": job.conclusion, "check_suite_id": job.suite, "pull_requests": [],
            "head_repository": { "id": job.fork.unwrap_or(repo) },
        })
    }

    pub(super) fn status(&self, repo: &HubRepository, status: &HubCommitStatus) -> Value {
        json!({
            "id": status.id, "context": status.context, "state": status.state, "description": status.description,
            "target_url": null, "url": format!("{}/statuses/{}", self.repo_api(repo), status.head),
            "created_at": status.at.to_string(), "updated_at": status.at.to_string(),
            "creator": self.account(status.by),
        })
    }
}
