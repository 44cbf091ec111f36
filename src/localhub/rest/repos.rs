//! Repositories: what they are, who may do what, contents, commits, comparisons.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Call, Level, Refusal};
use crate::{
    localhub::{
        git::TreeEntry,
        json::{escape, merge},
        model::Account,
        server::Reply,
        views,
    },
    types::{Oid, RepoId, Role},
};

const METADATA: [(&str, Level); 1] = [("metadata", Level::Read)];
const CONTENTS: [(&str, Level); 1] = [("contents", Level::Read)];

/// Commits a list goes back at most.
const MOST_COMMITS: usize = 2000;

impl Call<'_> {
    pub(super) fn repo_route(&self, method: &str, owner: &str, name: &str, rest: &[&str]) -> Answer {
        let contents = || self.repo(owner, name, &CONTENTS);
        match (method, rest) {
            ("GET", []) => {
                let repo = self.repo(owner, name, &METADATA)?;
                Ok(self.ok(&self.repository_json(repo)?))
            }
            ("GET", ["installation"]) => self.installation_on(owner, name),
            ("GET", ["collaborators", login, "permission"]) => {
                self.permission(self.repo(owner, name, &METADATA)?, login)
            }
            ("GET", ["branches"]) => self.branches(contents()?),
            ("GET", ["branches", branch @ ..]) => self.branch(contents()?, &branch.join("/")),
            ("GET", ["contents", path @ ..]) => self.contents(contents()?, &path.join("/")),
            ("GET", ["commits"]) => self.commits(contents()?),
            ("GET", ["commits", revision @ ..]) if !revision.is_empty() => {
                self.commit(contents()?, &revision.join("/"))
            }
            ("GET", ["compare", range @ ..]) => self.compare(contents()?, &range.join("/")),
            _ => self.unknown_route(),
        }
    }

    fn repository_json(&self, repo: RepoId) -> Result<Value, Refusal> {
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(self.json(s).repository(row))
        })
        .ok_or_else(Refusal::not_found)
    }

    fn permission(&self, repo: RepoId, login: &str) -> Answer {
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let account: &Account = s.account_named(login).filter(|a| a.app.is_none())?;
            let role = row.role_of(account.id);
            let coarse = match role {
                Role::None => "none",
                Role::Read | Role::Triage => "read",
                Role::Write | Role::Maintain => "write",
                Role::Admin => "admin",
            };
            let mut user = self.json(s).account(account.id);
            merge(
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
        .ok_or_else(|| Refusal::new(404, format!("{login} is not a user")))
    }

    fn branches(&self, repo: RepoId) -> Answer {
        let rows = views::branches(&self.git(repo));
        let api = self.state(|s| s.repositories.get(&repo).map(|r| self.json(s).repo_api(r)));
        let api = api.ok_or_else(Refusal::not_found)?;
        let show = |(name, oid): (String, Oid)| json!({ "name": name, "commit": { "sha": oid, "url": format!("{api}/commits/{oid}") }, "protected": false });
        Ok(self.list(rows.into_iter().map(show).collect()))
    }

    fn branch(&self, repo: RepoId, name: &str) -> Answer {
        let git = self.git(repo);
        let oid = git.branch(name).ok_or_else(|| Refusal::new(404, "Branch not found"))?;
        let commit = git.read_commit(&oid)?;
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let (json, name) = (self.json(s), escape(name));
            let url = format!("{}/branches/{name}", json.repo_api(row));
            let html = format!("{}/tree/{name}", json.repo_web(row));
            Some(json!({
                "name": name, "commit": json.commit(row, &commit), "_links": { "self": url, "html": html },
                "protected": false, "protection": { "enabled": false }, "protection_url": format!("{url}/protection"),
            }))
        })
        .map(|body| self.ok(&body))
        .ok_or_else(Refusal::not_found)
    }

    /// The commit that `?ref=`, or else the default branch, names.
    fn commit_asked(&self, repo: RepoId, parameter: &str) -> Result<(String, Oid), Refusal> {
        let default = self.state(|s| s.repositories.get(&repo).map(|r| r.default_branch.clone()));
        let name = self.request.query(parameter).map(str::to_owned).or(default).unwrap_or_default();
        let name = name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned();
        let oid = self.git(repo).commit_at(&name);
        oid.map(|oid| (name.clone(), oid))
            .ok_or_else(|| Refusal::new(404, format!("No commit found for the ref {name}")))
    }

    fn contents(&self, repo: RepoId, path: &str) -> Answer {
        let (revision, commit) = self.commit_asked(repo, "ref")?;
        let git = self.git(repo);
        let path = path.trim_matches('/');
        let entry = if path.is_empty() { None } else { git.entry(&commit, path) };
        if let Some(file) = entry.as_ref().filter(|e| e.kind == "blob") {
            let bytes = git.blob(&file.oid)?;
            if self.request.header("accept").is_some_and(|a| a.contains("raw")) {
                return Ok(Reply::new(StatusCode::OK, "application/vnd.github.raw; charset=utf-8", bytes));
            }
            let mut body = self.content_item(repo, &revision, file)?;
            let more = json!({ "encoding": "base64", "content": wrapped(&bytes), "size": bytes.len() });
            merge(&mut body, more);
            return Ok(self.ok(&body));
        }
        let tree = match entry {
            Some(entry) if entry.kind == "tree" => entry.oid,
            Some(_) => return Err(Refusal::not_found()),
            None if path.is_empty() => commit,
            None => return Err(Refusal::not_found()),
        };
        let mut rows = Vec::new();
        for mut entry in git.tree(&tree, false)? {
            if !path.is_empty() {
                entry.path = format!("{path}/{}", entry.path);
            }
            rows.push(self.content_item(repo, &revision, &entry)?);
        }
        Ok(self.ok(&Value::Array(rows)))
    }

    fn content_item(&self, repo: RepoId, revision: &str, entry: &TreeEntry) -> Result<Value, Refusal> {
        let kind = match (entry.kind.as_str(), entry.mode.as_str()) {
            ("tree", _) => "dir",
            ("commit", _) => "submodule",
            (_, "120000") => "symlink",
            _ => "file",
        };
        let path = entry.path.split('/').map(escape).collect::<Vec<_>>().join("/");
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let (api, web) = (self.json(s).repo_api(row), self.json(s).repo_web(row));
            let url = format!("{api}/contents/{path}?ref={}", escape(revision));
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
        .ok_or_else(Refusal::not_found)
    }

    fn commits(&self, repo: RepoId) -> Answer {
        let (_, at) = self.commit_asked(repo, "sha")?;
        let git = self.git(repo);
        let (page, size) = self.page();
        let most = (page * size + 1).min(MOST_COMMITS);
        let found = git.log(at.as_str(), self.request.query("path"), most)?;
        let rows = self.state(|s| {
            let row = s.repositories.get(&repo)?;
            Some(found.iter().map(|c| self.json(s).commit(row, c)).collect())
        });
        Ok(self.list(rows.unwrap_or_default()))
    }

    fn commit(&self, repo: RepoId, revision: &str) -> Answer {
        let git = self.git(repo);
        let missing = || Refusal::new(422, format!("No commit found for SHA: {revision}"));
        let oid = git.commit_at(revision).ok_or_else(missing)?;
        let commit = git.read_commit(&oid)?;
        let base = match commit.parents.first() {
            Some(parent) => parent.clone(),
            None => git.empty_tree()?,
        };
        let files = git.diff(&base, &oid)?;
        let (plus, minus) = files.iter().fold((0, 0), |(p, m), f| (p + f.additions, m + f.deletions));
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let json = self.json(s);
            let mut body = json.commit(row, &commit);
            body["stats"] = json!({ "total": plus + minus, "additions": plus, "deletions": minus });
            body["files"] = files.iter().map(|f| json.file(row, &oid, f)).collect();
            Some(body)
        })
        .map(|body| self.ok(&body))
        .ok_or_else(Refusal::not_found)
    }

    fn compare(&self, repo: RepoId, range: &str) -> Answer {
        let git = self.git(repo);
        let (base, head) = range.split_once("...").ok_or_else(Refusal::not_found)?;
        let local = |name: &str| name.rsplit(':').next().and_then(|n| git.commit_at(n));
        let (Some(base), Some(head)) = (local(base), local(head)) else { return Err(Refusal::not_found()) };
        let common = git.merge_base(&base, &head);
        let common = common.ok_or_else(|| Refusal::new(404, "No common ancestor between the two commits"))?;
        let mut commits = git.log(&format!("{base}..{head}"), None, 250)?;
        commits.reverse();
        let (ahead, behind) = (git.count(&format!("{base}..{head}")), git.count(&format!("{head}..{base}")));
        let status = match (ahead, behind) {
            (0, 0) => "identical",
            (_, 0) => "ahead",
            (0, _) => "behind",
            _ => "diverged",
        };
        let (base_commit, common_commit) = (git.read_commit(&base)?, git.read_commit(&common)?);
        let files = git.diff(&common, &head)?;
        self.state(|s| {
            let row = s.repositories.get(&repo)?;
            let json = self.json(s);
            let web = format!("{}/compare/{range}", json.repo_web(row));
            Some(json!({
                "url": format!("{}/compare/{range}", json.repo_api(row)), "html_url": web, "permalink_url": web,
                "diff_url": format!("{web}.diff"), "patch_url": format!("{web}.patch"),
                "base_commit": json.commit(row, &base_commit), "merge_base_commit": json.commit(row, &common_commit),
                "status": status, "ahead_by": ahead, "behind_by": behind, "total_commits": ahead,
                "commits": commits.iter().map(|c| json.commit(row, c)).collect::<Value>(),
                "files": files.iter().map(|f| json.file(row, &head, f)).collect::<Value>(),
            }))
        })
        .map(|body| self.ok(&body))
        .ok_or_else(Refusal::not_found)
    }
}

/// Base64 in lines of sixty, as GitHub sends files.
pub(super) fn wrapped(bytes: &[u8]) -> String {
    let encoded = STANDARD.encode(bytes);
    let lines = encoded.as_bytes().chunks(60);
    lines.map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect()
}
