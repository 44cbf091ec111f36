//! Check runs: results that an App reports on a commit.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Hub, HubError,
    json::{JsonRenderer, node_id},
    model::{HubAnnotation, HubCheckRun, HubRepository},
    transaction::HubTransaction,
    views::HubEventKind,
};
use crate::types::{Oid, RepoId, UserId};

/// A check run in the form shown on its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubCheckView {
    pub id: u64,
    pub name: String,
    pub head: Oid,
    pub external_id: String,
    pub details_url: Option<String>,
    pub status: String,
    pub conclusion: Option<String>,
    pub title: String,
    pub summary: String,
    pub annotations: Vec<HubAnnotation>,
}

/// Fields of a request that creates or updates a check run.
#[derive(Deserialize)]
pub(super) struct CheckRunInput {
    pub(super) name: Option<String>,
    pub(super) head_sha: Option<Oid>,
    external_id: Option<String>,
    details_url: Option<String>,
    pub(super) status: Option<String>,
    pub(super) conclusion: Option<String>,
    pub(super) output: Option<CheckRunInputOutput>,
    #[serde(skip)]
    pub(super) fork: Option<RepoId>,
    #[serde(skip)]
    pub(super) reported: bool,
}

#[derive(Deserialize)]
pub(super) struct CheckRunInputOutput {
    title: String,
    summary: String,
    #[serde(default)]
    pub(super) annotations: Vec<HubAnnotation>,
}

impl Hub {
    /// Returns the check runs of a repository, oldest first.
    pub fn checks(&self, repo: RepoId) -> Vec<HubCheckView> {
        let view = |check: &HubCheckRun| HubCheckView {
            id: check.id,
            name: check.name.clone(),
            head: check.head.clone(),
            external_id: check.external_id.clone().unwrap_or_default(),
            details_url: check.details_url.clone(),
            status: check.status.clone(),
            conclusion: check.conclusion.clone(),
            title: check.title.clone().unwrap_or_default(),
            summary: check.summary.clone().unwrap_or_default(),
            annotations: check.annotations.clone(),
        };
        self.read(|s| {
            s.repositories.get(&repo).map(|r| r.checks.iter().map(view).collect()).unwrap_or_default()
        })
    }

    /// Acts as a click on *Re-run* for a check, or on *Re-run all checks* for the suite of its commit and App. As on
    /// GitHub, this only resets the suite's state and notifies the App.
    pub fn rerequest(&self, repo: RepoId, check: u64, user: UserId, suite: bool) -> Result<(), HubError> {
        self.change(|c| {
            let found = c.repo(repo)?.checks.iter().find(|known| known.id == check).cloned();
            let found = found.ok_or_else(|| HubError::Missing(format!("check run {check}")))?;
            c.queue_check_webhook(
                repo,
                &found,
                if suite { "check_suite" } else { "check_run" },
                "rerequested",
                user,
            )
        })
    }
}

impl HubTransaction<'_> {
    /// Creates a check run of `app`, or updates the check run with the given id.
    pub(super) fn put_check(
        &mut self,
        repo: RepoId,
        app: u64,
        id: Option<u64>,
        input: CheckRunInput,
    ) -> Result<HubCheckRun, HubError> {
        let (at, by) = (self.at, self.state.apps.get(&app).map(|a| a.bot));
        let by = by.ok_or_else(|| HubError::Missing(format!("App {app}")))?;
        let mut check = match id {
            Some(id) => {
                let found = self.repo(repo)?.checks.iter().find(|check| check.id == id).cloned();
                found.ok_or_else(|| HubError::Missing(format!("check run {id}")))?
            }
            None => self.new_check(repo, app, input.head_sha.clone(), input.fork)?,
        };
        check.reported |= input.reported;
        check.name = input.name.unwrap_or(check.name);
        check.external_id = input.external_id.or(check.external_id);
        check.details_url = input.details_url.or(check.details_url);
        if let Some(output) = input.output {
            (check.title, check.summary) = (Some(output.title), Some(output.summary));
            check.annotations.extend(output.annotations);
        }
        if let Some(status) = input.status.or(input.conclusion.as_ref().map(|_| "completed".to_owned())) {
            check.status = status;
            check.conclusion = input.conclusion;
            check.completed_at = check.conclusion.is_some().then_some(at);
        }
        let checks = &mut self.repo_mut(repo)?.checks;
        checks.retain(|known| known.id != check.id);
        checks.push(check.clone());
        checks.sort_by_key(|check| check.id);
        let state = check.conclusion.as_ref().unwrap_or(&check.status).clone();
        let (name, title) = (check.name.clone(), check.title.clone().unwrap_or_default());
        self.publish_event(repo, None, by, HubEventKind::Checked { name, state, title });
        let action = match (id, &check.conclusion) {
            (_, Some(_)) => "completed",
            (None, None) => "created",
            (Some(_), None) => return Ok(check),
        };
        self.queue_check_webhook(repo, &check, "check_run", action, by)?;
        Ok(check)
    }

    fn new_check(
        &mut self,
        repo: RepoId,
        app: u64,
        head: Option<Oid>,
        fork: Option<RepoId>,
    ) -> Result<HubCheckRun, HubError> {
        let unknown = |head: &str| HubError::Refused(format!("No commit found for SHA: {head}"));
        let head = head.ok_or_else(|| unknown(""))?;
        let git = self.git(repo);
        if git.read_commit(&head).is_err() {
            return Err(unknown(head.as_str()));
        }
        let same = |c: &&HubCheckRun| c.app == app && c.head == head && c.fork == fork;
        let suite = self.repo(repo)?.checks.iter().find(same).map(|c| c.suite);
        let here = git.branches().into_iter().find(|(_, oid)| *oid == head).map(|(name, _)| name);
        Ok(HubCheckRun {
            suite: suite.unwrap_or_else(|| self.state.fresh_id()),
            id: self.state.fresh_id(),
            app,
            name: String::new(),
            // GitHub gives no branch name for a branch in a fork.
            branch: here.filter(|_| fork.is_none()),
            fork,
            reported: false,
            head,
            external_id: None,
            details_url: None,
            status: "queued".to_owned(),
            conclusion: None,
            title: None,
            summary: None,
            annotations: vec![],
            started_at: self.at,
            completed_at: None,
        })
    }

    /// Queues a webhook about a check. GitHub sends a re-run request only to the App that created the check; in
    /// localhub, no other App has checks.
    fn queue_check_webhook(
        &mut self,
        repo: RepoId,
        check: &HubCheckRun,
        event: &str,
        action: &str,
        by: UserId,
    ) -> Result<(), HubError> {
        let row = self.repo(repo)?;
        let json = self.json();
        let body = if event == "check_suite" { json.check_suite(check) } else { json.check_run(row, check) };
        self.queue_webhook(repo, event, Some(action), by, vec![(event, body)]);
        Ok(())
    }
}

impl JsonRenderer<'_> {
    pub(super) fn check_run(&self, repo: &HubRepository, check: &HubCheckRun) -> Value {
        let url = format!("{}/check-runs/{}", self.repo_api(repo), check.id);
        let web = format!("{}/runs/{}", self.repo_web(repo), check.id);
        json!({
            "id": check.id, "head_sha": check.head, "node_id": node_id("CR", check.id),
            "external_id": check.external_id.clone().unwrap_or_default(), "url": url, "html_url": web,
            "details_url": check.details_url.as_ref().unwrap_or(&web), "status": check.status,
            "conclusion": check.conclusion, "started_at": check.started_at.to_string(),
            "completed_at": check.completed_at.map(|at| at.to_string()), "name": check.name,
            "output": { "title": check.title, "summary": check.summary, "text": null,
                        "annotations_count": check.annotations.len(), "annotations_url": format!("{url}/annotations") },
            "check_suite": self.check_suite(check), "app": self.check_app(check), "pull_requests": [],
        })
    }

    fn check_suite(&self, check: &HubCheckRun) -> Value {
        json!({
            "id": check.suite, "node_id": node_id("CS", check.suite), "head_branch": check.branch,
            "head_sha": check.head, "status": check.status, "conclusion": check.conclusion,
            "app": self.check_app(check), "pull_requests": [],
        })
    }

    fn check_app(&self, check: &HubCheckRun) -> Value {
        self.state.apps.get(&check.app).map_or(Value::Null, |app| self.app(app))
    }
}
