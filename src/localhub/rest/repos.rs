//! Repository routes: metadata, permissions and contents.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde_json::{Value, json};

use super::{HubPermissionLevel, RestCall, RestError, RestResult};
use crate::{
    localhub::{
        git::TreeEntry,
        json::{encode_segment, merge_json},
        model::HubAccount,
        server::HubReply,
    },
    types::{Oid, RepoId, Role},
};

const METADATA: [(&str, HubPermissionLevel); 1] = [("metadata", HubPermissionLevel::Read)];
const CONTENTS: [(&str, HubPermissionLevel); 1] = [("contents", HubPermissionLevel::Read)];

impl RestCall<'_> {
    pub(super) fn repo_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> RestResult {
        match (method, rest) {
            ("GET", []) => {
                let repo = self.repo(owner, name, &METADATA)?;
                Ok(self.ok(&self.repository_json(repo)?))
            }
            ("GET", ["collaborators", login, "permission"]) => {
                self.permission(self.repo(owner, name, &METADATA)?, login)
            }
            ("GET", ["contents", path @ ..]) => {
                // Public repositories are readable without an installation on them.
                let repo = self.repo(owner, name, &CONTENTS);
                let repo = match repo {
                    Err(refusal) if refusal.status == 404 => self.public_repo(owner, name),
                    own => own,
                };
                self.contents(repo?, &path.join("/"))
            }
            ("GET", ["rules", "branches", ..]) => {
                self.repo(owner, name, &METADATA)?;
                Ok(self.list(Vec::new()))
            }
            ("GET", ["readme"]) => self.readme(self.public_repo(owner, name)?),
            _ => self.unknown_route(),
        }
    }

    fn repository_json(&self, repo: RepoId) -> Result<Value, RestError> {
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(self.json(s).repository(row))
        })
        .ok_or_else(RestError::not_found)
    }

    fn permission(&self, repo: RepoId, login: &str) -> RestResult {
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let account: &HubAccount = s.account_named(login).filter(|a| a.app.is_none())?;
            let role = row.role_of(account.id);
            let coarse = match role {
                Role::None => "none",
                Role::Read | Role::Triage => "read",
                Role::Write | Role::Maintain => "write",
                Role::Admin => "admin",
            };
            let mut user = self.json(s).account(account.id);
            merge_json(
                &mut user,
                json!({
                    "permissions": {
                        "admin": role >= Role::Admin, "maintain": role >= Role::Maintain,
                        "push": role >= Role::Write, "triage": role >= Role::Triage, "pull": role >= Role::Read,
                    },
                    "role_name": role.as_str(),
                }),
            );
            Some(json!({ "permission": coarse, "role_name": role.as_str(), "user": user }))
        })
        .map(|body| self.ok(&body))
        .ok_or_else(|| RestError::new(404, format!("{login} is not a user")))
    }

    /// Returns the commit named by `?ref=`, or the head of the default branch if the parameter is missing.
    pub(super) fn requested_commit(&self, repo: RepoId, parameter: &str) -> Result<(String, Oid), RestError> {
        let default = self.state(|s| s.repositories.get(&repo).map(|r| r.default_branch.clone()));
        let name = self.request.query(parameter).map(str::to_owned).or(default).unwrap_or_default();
        let name = name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned();
        let oid = self.git(repo).commit_at(&name);
        oid.map(|oid| (name.clone(), oid))
            .ok_or_else(|| RestError::new(404, format!("No commit found for the ref {name}")))
    }

    pub(super) fn contents(&self, repo: RepoId, path: &str) -> RestResult {
        let (revision, commit) = self.requested_commit(repo, "ref")?;
        let git = self.git(repo);
        let path = path.trim_matches('/');
        let entry = if path.is_empty() { None } else { git.entry(&commit, path) };
        if let Some(file) = entry.as_ref().filter(|e| e.kind == "blob") {
            let bytes = git.blob(&file.oid)?;
            if self.request.header("accept").is_some_and(|a| a.contains("raw")) {
                return Ok(HubReply::new(StatusCode::OK, "application/vnd.github.raw; charset=utf-8", bytes));
            }
            let mut body = self.content_item(repo, &revision, file)?;
            let more = json!({ "encoding": "base64", "content": wrap_base64(&bytes), "size": bytes.len() });
            merge_json(&mut body, more);
            return Ok(self.ok(&body));
        }
        let tree = match entry {
            Some(entry) if entry.kind == "tree" => entry.oid,
            Some(_) => return Err(RestError::not_found()),
            None if path.is_empty() => commit,
            None => return Err(RestError::not_found()),
        };
        let mut rows = Vec::new();
        for mut entry in git.tree(&tree)? {
            if !path.is_empty() {
                entry.path = format!("{path}/{}", entry.path);
            }
            rows.push(self.content_item(repo, &revision, &entry)?);
        }
        Ok(self.ok(&Value::Array(rows)))
    }

    fn content_item(&self, repo: RepoId, revision: &str, entry: &TreeEntry) -> Result<Value, RestError> {
        let kind = match (entry.kind.as_str(), entry.mode.as_str()) {
            ("tree", _) => "dir",
            ("commit", _) => "submodule",
            (_, "120000") => "symlink",
            _ => "file",
        };
        let path = entry.path.split('/').map(encode_segment).collect::<Vec<_>>().join("/");
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let (api, web) = (self.json(s).repo_api(row), self.json(s).repo_web(row));
            let url = format!("{api}/contents/{path}?ref={}", encode_segment(revision));
            let object = if kind == "dir" { "trees" } else { "blobs" };
            let git = format!("{api}/git/{object}/{}", entry.oid);
            let part = if kind == "dir" { "tree" } else { "blob" };
            let html = format!("{web}/{part}/{revision}/{path}");
            let raw = (kind != "dir").then(|| format!("{web}/raw/{revision}/{path}"));
            Some(json!({
                "name": name, "path": entry.path, "sha": entry.oid, "size": entry.size.unwrap_or(0), "url": url,
                "html_url": html, "git_url": git, "download_url": raw, "type": kind,
                "_links": { "self": url, "git": git, "html": html },
            }))
        })
        .ok_or_else(RestError::not_found)
    }
}

/// Returns Base64 in lines of sixty characters, the format in which GitHub sends files.
pub(super) fn wrap_base64(bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let lines = encoded.as_bytes().chunks(60);
    lines.map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect()
}
