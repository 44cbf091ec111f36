//! Check run routes. Only the App that created a check run may change it.

use http::StatusCode;
use serde_json::{Value, json};

use super::{HubPermissionLevel, RestCall, RestError, RestResult, auth::RestCaller};
use crate::{
    localhub::{
        checks::CheckRunInput,
        ci::ACTIONS,
        model::{HubAnnotation, HubCheckRun},
        server::HubReply,
    },
    types::RepoId,
};

/// Maximum number of annotations that GitHub accepts per request.
const MAX_ANNOTATIONS: usize = 50;

const CONCLUSIONS: [&str; 7] =
    ["success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required"];

impl RestCall<'_> {
    pub(super) fn check_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        let level = if method == "GET" { HubPermissionLevel::Read } else { HubPermissionLevel::Write };
        let repo = self.repo(owner, name, &[("checks", level)])?;
        match (method, rest) {
            ("POST", ["check-runs"]) => self.put_check(repo, None),
            ("PATCH", ["check-runs", id]) => {
                self.put_check(repo, Some(id.parse().map_err(|_| RestError::not_found())?))
            }
            ("GET", ["commits", revision, "check-runs"]) => self.checks(repo, revision),
            ("GET", ["check-runs", id, "annotations"]) => self.annotations(repo, id),
            _ => self.unknown_route(),
        }
    }

    fn put_check(&self, repo: RepoId, id: Option<u64>) -> RestResult {
        let RestCaller::Installation { app, .. } = self.caller else {
            return Err(RestError::new(403, "You must authenticate via a GitHub App."));
        };
        let input: CheckRunInput = self.body()?;
        let invalid = |field, code| Err(RestError::invalid("CheckRun", field, code, None));
        if id.is_none() && input.name.as_ref().is_none_or(|name| name.trim().is_empty()) {
            return invalid("name", "missing_field");
        }
        if id.is_none() && input.head_sha.is_none() {
            return invalid("head_sha", "missing_field");
        }
        let status = input.status.as_deref().unwrap_or("queued");
        if !["queued", "in_progress", "completed"].contains(&status) {
            return invalid("status", "invalid");
        }
        if status == "completed" && input.conclusion.is_none() {
            return invalid("conclusion", "missing_field");
        }
        if input.conclusion.as_ref().is_some_and(|word| !CONCLUSIONS.contains(&word.as_str())) {
            return invalid("conclusion", "invalid");
        }
        if input.output.as_ref().is_some_and(|output| output.annotations.len() > MAX_ANNOTATIONS) {
            return invalid("annotations", "too_many");
        }
        // Undocumented; reported by people who tried it.
        let over = |check: &HubCheckRun| Some(check.id) == id && check.status == "completed";
        let restarts = input.conclusion.is_none() && input.status.is_some();
        let known = |wanted: &dyn Fn(&HubCheckRun) -> bool| {
            self.state(|s| s.repositories.get(&repo).is_some_and(|r| r.checks.iter().any(wanted)))
        };
        if restarts && known(&over) {
            return invalid("status", "invalid");
        }
        let of_another = |check: &HubCheckRun| Some(check.id) == id && check.app != app;
        if known(&of_another) {
            let message =
                "Invalid app_id - check run can only be modified by the GitHub App that created it.";
            return Err(RestError::new(403, message));
        }
        let check = self.hub.change(|c| c.put_check(repo, app, id, input))?;
        let body = self.hub.read(|s| s.repositories.get(&repo).map(|r| self.json(s).check_run(r, &check)));
        let body = body.ok_or_else(RestError::not_found)?;
        Ok(if id.is_some() { self.ok(&body) } else { self.created(&body) })
    }

    /// Lists checks: only the newest of each name, or all checks with `filter=all`.
    fn checks(&self, repo: RepoId, revision: &str) -> RestResult {
        let head = self.git(repo).commit_at(revision);
        let head = head.ok_or_else(|| RestError::new(422, format!("No commit found for SHA: {revision}")))?;
        let (name, app) = (self.request.query("check_name"), self.request.query("app_id"));
        let all = self.request.query("filter") == Some("all");
        let rows: Vec<Value> = self.state(|s| {
            let Some(row) = s.repositories.get(&repo) else { return vec![] };
            let wanted = |c: &&HubCheckRun| {
                c.head == head
                    && name.is_none_or(|name| c.name == name)
                    && app.is_none_or(|app| c.app.to_string() == app)
            };
            let mut found: Vec<&HubCheckRun> = row.checks.iter().rev().filter(wanted).collect();
            let mut seen = vec![];
            found.retain(|c| {
                let new = !seen.contains(&(c.suite, &c.name));
                seen.push((c.suite, &c.name));
                all || new
            });
            found.into_iter().map(|c| self.json(s).check_run(row, c)).collect()
        });
        Ok(self.list_in_object("check_runs", json!({}), rows))
    }

    fn annotations(&self, repo: RepoId, id: &str) -> RestResult {
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let check = row.checks.iter().find(|check| check.id.to_string() == id)?;
            let shown = |annotation: &HubAnnotation| {
                json!({ "path": annotation.path, "start_line": annotation.start_line, "end_line": annotation.end_line,
                        "annotation_level": annotation.annotation_level, "title": annotation.title, "message": annotation.message,
                        "start_column": null, "end_column": null, "raw_details": null })
            };
            Some(check.annotations.iter().map(shown).collect())
        });
        Ok(self.list(rows.ok_or_else(RestError::not_found)?))
    }

    /// Returns the newest status of each context and the combined state of all.
    pub(super) fn combined_status(&self, owner: &str, name: &str, revision: &str) -> RestResult {
        let repo = self.repo(owner, name, &[("statuses", HubPermissionLevel::Read)])?;
        let head = self.git(repo).commit_at(revision).ok_or_else(RestError::not_found)?;
        let rows: Vec<Value> = self.state(|s| {
            let Some(row) = s.repositories.get(&repo) else { return vec![] };
            let mut seen = vec![];
            let mut found: Vec<_> = row.statuses.iter().rev().filter(|status| status.head == head).collect();
            found.retain(|status| {
                let new = !seen.contains(&&status.context);
                seen.push(&status.context);
                new
            });
            found.into_iter().map(|status| self.json(s).status(row, status)).collect()
        });
        let any = |state: &str| rows.iter().any(|row| row["state"] == state);
        let state = match () {
            () if any("failure") || any("error") => "failure",
            () if rows.is_empty() || any("pending") => "pending",
            () => "success",
        };
        Ok(self.list_in_object("statuses", json!({ "state": state, "sha": head }), rows))
    }

    /// Lists the workflow runs on a commit, each with its suite.
    pub(super) fn workflow_runs(&self, owner: &str, name: &str) -> RestResult {
        let repo = self.repo(owner, name, &[("actions", HubPermissionLevel::Read)])?;
        let head = self.request.query("head_sha").unwrap_or_default();
        let rows: Vec<Value> = self.state(|s| {
            let Some(row) = s.repositories.get(&repo) else { return vec![] };
            let jobs = s.app_by_slug(ACTIONS).map(|app| app.id);
            let mut found: Vec<_> =
                row.checks.iter().rev().filter(|c| Some(c.app) == jobs && c.head.as_str() == head).collect();
            found.dedup_by_key(|c| c.suite);
            found.into_iter().map(|c| self.json(s).workflow_run(repo, c)).collect()
        });
        Ok(self.list_in_object("workflow_runs", json!({}), rows))
    }

    /// Lists the jobs of a workflow run. The id of a job is also the id of its check.
    pub(super) fn jobs(&self, owner: &str, name: &str, run: &str) -> RestResult {
        let repo = self.repo(owner, name, &[("actions", HubPermissionLevel::Read)])?;
        let rows: Vec<Value> = self.state(|s| {
            let Some(row) = s.repositories.get(&repo) else { return vec![] };
            let jobs = s.app_by_slug(ACTIONS).map(|app| app.id);
            let of_run = |c: &&HubCheckRun| Some(c.app) == jobs && c.suite.to_string() == run && !c.reported;
            row.checks.iter().filter(of_run).map(|c| json!({ "id": c.id, "name": c.name })).collect()
        });
        Ok(self.list_in_object("jobs", json!({}), rows))
    }

    /// Redirects to the URL of a job's log, which can be read without a token.
    pub(super) fn job_log(&self, owner: &str, name: &str, job: &str) -> RestResult {
        let repo = self.repo(owner, name, &[("actions", HubPermissionLevel::Read)])?;
        let known = self.state(|s| {
            s.repositories.get(&repo).is_some_and(|row| row.checks.iter().any(|c| c.id.to_string() == job))
        });
        let there = known && job.parse().is_ok_and(|job| self.hub.0.log_file(job).is_file());
        if !there {
            return Err(RestError::not_found());
        }
        Ok(HubReply::empty(StatusCode::FOUND)
            .with_header("location", &format!("{}/_logs/{job}?sig=short", self.hub.0.base)))
    }
}
