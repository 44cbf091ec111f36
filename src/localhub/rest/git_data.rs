//! The Git Data API: blobs, commits and branches, stored as real objects of the bare repository.

use http::StatusCode;
use serde_json::json;

use super::{HubPermissionLevel, RestCall, RestError, RestResult, repos::wrap_base64};
use crate::{
    localhub::{json::node_id, server::HubReply},
    types::{Oid, RepoId},
};

impl RestCall<'_> {
    pub(super) fn git_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        let repo = || self.repo(owner, name, &[("contents", HubPermissionLevel::Read)]);
        match (method, rest) {
            ("GET", ["blobs", oid]) => self.blob(repo()?, oid),
            ("GET", ["commits", oid]) => self.git_commit(repo()?, oid),
            ("GET", ["ref", name @ ..]) => self.get_ref(repo()?, &name.join("/")),
            ("DELETE", ["refs", "heads", branch @ ..]) => {
                let write = self.repo(owner, name, &[("contents", HubPermissionLevel::Write)])?;
                self.delete_branch(write, &branch.join("/"))
            }
            _ => self.unknown_route(),
        }
    }

    fn blob(&self, repo: RepoId, oid: &str) -> RestResult {
        let (git, oid) = (self.git(repo), oid.parse::<Oid>().map_err(|_| RestError::not_found())?);
        let bytes = git.blob(&oid).map_err(|_| RestError::not_found())?;
        if self.request.header("accept").is_some_and(|a| a.contains("raw")) {
            return Ok(HubReply::new(StatusCode::OK, "application/vnd.github.raw; charset=utf-8", bytes));
        }
        let api = self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).repo_api(r)));
        let url = format!("{}/git/blobs/{oid}", api.unwrap_or_default());
        Ok(self.ok(&json!({
            "sha": oid, "node_id": node_id("B", repo.0), "size": bytes.len(), "encoding": "base64",
            "url": url, "content": wrap_base64(&bytes),
        })))
    }

    fn delete_branch(&self, repo: RepoId, branch: &str) -> RestResult {
        let (by, git) = (self.actor()?, self.git(repo));
        let from = git.branch(branch).ok_or_else(|| RestError::new(422, "Reference does not exist"))?;
        self.hub.change(|c| {
            git.delete_branch(branch)?;
            c.follow_branch_move(repo, branch, Some(from), None, by).map_err(RestError::from)
        })?;
        Ok(HubReply::empty(StatusCode::NO_CONTENT))
    }

    fn git_commit(&self, repo: RepoId, oid: &str) -> RestResult {
        let git = self.git(repo);
        let oid = oid.parse::<Oid>().map_err(|_| RestError::not_found())?;
        let commit = git.read_commit(&oid).map_err(|_| RestError::not_found())?;
        let body = self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).git_commit(r, &commit)));
        body.map(|b| self.ok(&b)).ok_or_else(RestError::not_found)
    }

    fn get_ref(&self, repo: RepoId, name: &str) -> RestResult {
        let (git, name) = (self.git(repo), format!("refs/{name}"));
        let then =
            self.lagged_state.as_ref().and_then(|then| Some((then, name.strip_prefix("refs/heads/")?)));
        let oid = match then {
            Some((then, branch)) => then.branch(repo, branch).cloned(),
            None => git.reference(&name),
        };
        let oid = oid.ok_or_else(RestError::not_found)?;
        let kind = git.object_kind(oid.as_str()).unwrap_or_else(|| "commit".into());
        let body =
            self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).reference(r, &name, &oid, &kind)));
        body.map(|b| self.ok(&b)).ok_or_else(RestError::not_found)
    }
}
